"""Starts the session of a program that never uses gpuprof.

The folder `_start` goes to the front of PYTHONPATH. Python then imports the folder's
`sitecustomize` as it starts, and that starts the session.
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
"""Flags with which Python ignores PYTHONPATH or `sitecustomize`."""


def can_start(command: Command) -> bool:
    """Whether gpuprof can start a session before the program."""
    flags = command.interpreter[1:]
    return command.python and not any(_WITHOUT_PATH.fullmatch(flag) for flag in flags)


def add(plan: PlannedWorker) -> PlannedWorker:
    """Put the folder `_start` on the worker's PYTHONPATH."""
    own_path = plan.environment.get("PYTHONPATH")
    outer_path = os.environ.get("PYTHONPATH", "")
    verbatim = plan.verbatim if own_path else (*plan.verbatim, "PYTHONPATH")
    environment = {**plan.environment, "PYTHONPATH": path(own_path or outer_path)}
    return attrs.evolve(plan, environment=environment, verbatim=verbatim)


def path(rest: str) -> str:
    """A PYTHONPATH that begins with the folder `_start`, followed by `rest`."""
    return os.pathsep.join([_START, *filter(None, [rest])])


def starts(environment: Mapping[str, str | None]) -> bool:
    """Whether PYTHONPATH in these variables begins with the folder `_start`."""
    return (environment.get("PYTHONPATH") or "").split(os.pathsep)[0] == _START
