"""Calls what waits for a module when the job has imported it.

Written here, as `wrapt` would import asyncio into every process that is recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[ModuleType], object]]] = {}


def after_import(name: str, call: Callable[[ModuleType], object]) -> None:
    """Call `call` with a module once it has been imported; now if it has been.

    Args:
        name: of the module.
        call: must not raise; it would fail the job's import.
    """
    module = sys.modules.get(name)
    if module is not None:
        call(module)
        return
    _waiting.setdefault(name, []).append(call)
    if sys.meta_path[0] is not _finder:  # hooks of others that are there come before
        sys.meta_path[:] = [_finder, *(finder for finder in sys.meta_path if finder is not _finder)]


class _Finder:
    """Finds modules as the other finders do, with a loader that tells when they are there."""

    def __init__(self) -> None:
        self._finding: set[str] = set()
        """Others' hooks ask all finders again: what waits is called after them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting or name in self._finding:
            return None
        self._finding.add(name)
        try:
            for finder in sys.meta_path:
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if find is None else find(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):  # not a package without a file
                        spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                    return spec
            return None
        finally:
            self._finding.discard(name)


class _Loader:
    """A loader that calls what waits for its module, and is replaced by `original` before that."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def exec_module(self, module: ModuleType) -> None:
        """Load the module."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._original
        module.__loader__ = self._original
        self._original.exec_module(module)
        for call in _waiting.pop(module.__name__, ()):
            call(module)


_finder: Any = _Finder()
