"""The modules of scripts/, which is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """A module of scripts/."""
    spec = importlib.util.spec_from_file_location(name, CHECKOUT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
