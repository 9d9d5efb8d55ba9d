"""Installs gpuprof in a command's framework, with no change to the command."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gpuprof.backend import loading
from gpuprof.frameworks import Framework

VARIABLE = "GPUPROF_INTEGRATE"
"""The variable that names the framework's package and plugin for `_integrate`'s `sitecustomize`."""
_START = str(Path(__file__).with_name("_integrate"))


def framework(name: str) -> Framework:
    """The plugin of a framework.

    Raises:
        PluginError: the plugin is not installed or is broken, or two plugins have this name.
    """
    plugin: Framework = loading.load(name, "--integrate", loading.FRAMEWORKS)
    return plugin


def prepare(name: str, plugin: Framework) -> None:
    """Make every Python process that this one starts install the plugin in the framework.

    Each process imports ``_integrate/sitecustomize.py`` as it starts, and installs the plugin when
    it imports the framework.

    Args:
        name: the framework's name.
        plugin: the framework's plugin.
    """
    module = loading.catalogue(loading.FRAMEWORKS).entries[name].value
    paths = [_START, *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {VARIABLE: f"{plugin.PACKAGE}={module}"}
    os.environ.update({**variables, "PYTHONPATH": os.pathsep.join(paths)})


def leave() -> None:
    """Undo `prepare` for processes started later: Ray's own hook reaches Ray's workers.

    As this process ends, it says so if the framework has begun no run in it.
    """
    package = os.environ.pop(VARIABLE, "").partition("=")[0]
    atexit.register(_say_if_nothing_began, package)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != _START]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _say_if_nothing_began(package: str) -> None:
    driver = sys.modules.get("gpuprof.ray.driver")
    if driver is None or not driver.began():
        sys.stderr.write(
            f"gpuprof: --integrate: nothing is recorded: {package}'s trainer did not run, or its "
            "settings select nothing and GPUPROF_ENABLED=true is not set; gpuprof run without "
            "--integrate records the job as it is\n"
        )


def become(words: Sequence[str]) -> NoReturn:
    """Replace this process by a command."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(words[0], list(words))
