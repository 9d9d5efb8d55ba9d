"""The compiled `gpuprof_timing` and a second copy of it in Python, in one process."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from types import ModuleType
from unittest import mock

import gpuprof_timing
from gpuprof_timing.recording import PURE_VARIABLE

NAME = "gpuprof_timing"


def _copies() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == NAME}


@functools.cache
def in_python() -> ModuleType:
    """The copy in Python. What it imports late comes from the compiled one."""
    compiled = _copies()
    for name in compiled:
        del sys.modules[name]
    try:
        with mock.patch.dict(os.environ, {PURE_VARIABLE: "1"}):
            importlib.import_module(f"{NAME}._spans")
            return importlib.import_module(NAME)
    finally:
        for name in _copies():
            del sys.modules[name]
        sys.modules.update(compiled)


def both() -> tuple[ModuleType, ModuleType]:
    """The one that is installed, and the copy in Python."""
    return gpuprof_timing, in_python()
