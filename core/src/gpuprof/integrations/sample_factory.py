"""Sample Factory: its `Timing`, whose scopes are in gpuprof's tree and reports, too.

Tried with sample-factory 2.1.1. Its processes are no actors of Ray: put `gpuprof run` in front of
the program, with ``--integrate sample-factory``, or call `install` before it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuprof._session.public import timing
from gpuprof.integrations._changes import after_import, replace, say, unknown_release

__all__ = ["TRIED", "install", "install_in_worker"]

TRIED = ("2.1.1",)
"""The releases that this was tried with."""


def install() -> None:
    """Integrate gpuprof into Sample Factory in this process, and in those that it forks.

    A release that was not tried keeps its `Timing` to itself, and a line of the log says so.
    """
    unknown = unknown_release("sample-factory", TRIED)
    if unknown:
        say(unknown, "its Timing is not in gpuprof's tree and reports")
    else:
        install_in_worker()


def install_in_worker() -> None:
    """The part of `install` for every process."""
    after_import("sample_factory.utils.timing", _timing)


def _timing(module: ModuleType) -> None:
    def entering(original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(self: Any) -> Any:
            result = original(self)
            self._gpuprof_scope = timing().add_time(self._key).__enter__()
            return result

        return __enter__

    def leaving(original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(self: Any, *error: Any) -> Any:
            self._gpuprof_scope.__exit__(*error)
            return original(self, *error)

        return __exit__

    replace(module.TimingContext, "__enter__", entering)
    replace(module.TimingContext, "__exit__", leaving, ["traceback"])
