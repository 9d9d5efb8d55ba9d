"""Calls functions once the job has imported the module that they wait for.

gpuprof has its own import hook, because `wrapt` would import asyncio into every recorded process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[ModuleType], object]]] = {}


def after_import(name: str, call: Callable[[ModuleType], object]) -> None:
    """Call `call` with a module once the job has imported it; at once if it already has.

    Args:
        call: must not raise, because an exception would fail the job's import.
    """
    module = sys.modules.get(name)
    if module is not None:
        call(module)
        return
    _waiting.setdefault(name, []).append(call)
    if sys.meta_path[0] is not _finder:  # in front, so that the hooks of others run before `call`
        sys.meta_path[:] = [_finder, *(finder for finder in sys.meta_path if finder is not _finder)]


class _Finder:
    """Finds modules with the other finders, and wraps their loaders to notice each import."""

    def __init__(self) -> None:
        self._finding: set[str] = set()
        """Modules being searched for. Another library's import hook searches all finders again
        from inside our search; ours must not answer it, or the waiting functions would be called
        before that hook."""

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
    """A loader that calls the functions waiting for its module once the module is loaded.

    The module itself gets the `original` loader.
    """

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
