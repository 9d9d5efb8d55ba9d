"""Installs gpuprof in a command's framework without a change of the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gpuprof.backend import loading
from gpuprof.frameworks import Framework

VARIABLE = "GPUPROF_INTEGRATE"
"""Names the framework's package, and its plugin's module, for ``_integrate/sitecustomize.py``."""
_START = str(Path(__file__).with_name("_integrate"))


def framework(name: str) -> Framework:
    """The plugin of a framework.

    Raises:
        PluginError: it is not installed, or broken, or there are two.
    """
    plugin: Framework = loading.load(name, "--integrate", loading.FRAMEWORKS)
    return plugin


def prepare(name: str, plugin: Framework) -> None:
    """Make each Python started from here install a plugin when it imports the framework.

    Each imports ``_integrate/sitecustomize.py`` as it starts.

    Args:
        name: of the framework.
        plugin: of the framework.
    """
    module = loading.catalogue(loading.FRAMEWORKS).entries[name].value
    paths = [_START, *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {VARIABLE: f"{plugin.PACKAGE}={module}"}
    os.environ.update({**variables, "PYTHONPATH": os.pathsep.join(paths)})


def leave() -> None:
    """Undo `prepare` for later processes; Ray's own hook reaches Ray's workers."""
    os.environ.pop(VARIABLE, None)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != _START]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def become(words: Sequence[str]) -> NoReturn:
    """Become a command."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(words[0], list(words))
