"""Starts the session of a program that never uses gpuprof.

The folder `_start` goes in front of PYTHONPATH: Python imports its `sitecustomize` as it starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from gpuprof._plan.worker import PlannedWorker
from gpuprof.backend.types import Command

_START = str(Path(__file__).with_name("_start"))
_WITHOUT_PATH = re.compile("-[a-zA-Z]*[EIS][a-zA-Z]*")
"""Flags with which Python reads no PYTHONPATH, or imports no `sitecustomize`."""


def can_start(command: Command) -> bool:
    """Whether a session can be started before the program."""
    flags = command.interpreter[1:]
    return command.python and not any(_WITHOUT_PATH.fullmatch(flag) for flag in flags)


def add(planned: PlannedWorker) -> PlannedWorker:
    """The worker with the folder on its path."""
    given = planned.environment.get("PYTHONPATH")
    inherited = os.environ.get("PYTHONPATH", "")
    verbatim = planned.verbatim if given else (*planned.verbatim, "PYTHONPATH")
    environment = {**planned.environment, "PYTHONPATH": path(given or inherited)}
    return attrs.evolve(planned, environment=environment, verbatim=verbatim)


def path(rest: str) -> str:
    """A PYTHONPATH that begins with the folder."""
    return os.pathsep.join([_START, *filter(None, [rest])])


def starts(environment: Mapping[str, str | None]) -> bool:
    """Whether the folder is on the path of these variables."""
    return (environment.get("PYTHONPATH") or "").split(os.pathsep)[0] == _START
