"""Settings of other systems, read as they are.

Each module here is one system: a pure function from its settings to ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from gpuprof._config import systems
from gpuprof._config.systems import Readers, Translation

__all__ = ["SYSTEMS", "Translation", "read"]

SYSTEMS = ("rlinf", "verl", "nemo-rl")
"""The systems whose settings can be read."""
READERS: Readers = {
    name: partial(importlib.import_module, f"gpuprof.compat.{name.replace('-', '_')}")
    for name in SYSTEMS
}
"""The modules here, by the name of their system: for whoever reads a configuration, imported when
they are called."""


def read(system: str, settings: Mapping[str, Any]) -> Translation:
    """Read the settings of another system.

    Args:
        system: one of `SYSTEMS`.
        settings: the system's whole configuration, OmegaConf included; for ``nemo-rl`` the
            environment.

    Raises:
        ConfigError: with everything in them that is not valid, each with its full path there.

    >>> read("nemo-rl", {"NRL_NSYS_WORKER_PATTERNS": "*policy*", "NRL_NSYS_PROFILE_STEP_RANGE": "3:5"}).settings["steps"]
    ['3:5']
    """
    return systems.read(system, settings, READERS)
