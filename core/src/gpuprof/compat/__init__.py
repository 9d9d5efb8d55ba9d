"""Readers of other systems' profiling settings: RLinf, verl and NeMo-RL.

Each module here is one system: a pure function from its settings to gpuprof's.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from gpuprof._config import systems
from gpuprof._config.systems import Reader, Readers, Translation

__all__ = ["SYSTEMS", "Translation", "read"]

SYSTEMS = ("rlinf", "verl", "nemo-rl")
"""The systems whose settings can be read."""


def _reader(system: str) -> Reader:
    return cast("Reader", importlib.import_module(f"gpuprof.compat.{system.replace('-', '_')}"))


READERS: Readers = {name: partial(_reader, name) for name in SYSTEMS}
"""For each system a function that imports its reader. Every reader of a configuration is given
these."""


def read(system: str, settings: Mapping[str, Any]) -> Translation:
    """Translate the settings of another system into a configuration of gpuprof.

    Args:
        system: one of `SYSTEMS`.
        settings: the system's whole configuration, which may be OmegaConf's; for ``nemo-rl`` the
            environment.

    Raises:
        ConfigError: with every invalid setting and its full path.

    >>> environ = {"NRL_NSYS_WORKER_PATTERNS": "*policy*", "NRL_NSYS_PROFILE_STEP_RANGE": "3:5"}
    >>> read("nemo-rl", environ).settings["steps"]
    ['3:5']
    """
    return systems.read(system, settings, READERS)
