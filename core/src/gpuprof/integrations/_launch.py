"""Integrates a framework into a command without changing it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gpuprof.integrations import VARIABLE


def prepare(name: str) -> None:
    """Make each Python started from here install an integration when it imports the framework.

    Each imports ``_start/sitecustomize.py`` as it starts.

    Args:
        name: of the framework.
    """
    start = str(Path(__file__).with_name("_start"))
    paths = [start, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update({VARIABLE: name.replace("-", "_"), "PYTHONPATH": os.pathsep.join(paths)})


def leave() -> None:
    """Undo `prepare` for what this process starts: Ray's workers are reached by Ray's hook."""
    os.environ.pop(VARIABLE, None)
    start = str(Path(__file__).with_name("_start"))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != start]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def become(words: Sequence[str]) -> NoReturn:
    """Become a command."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(words[0], list(words))
