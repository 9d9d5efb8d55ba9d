"""Sample Factory: its `Timing`, whose scopes are in gpuprof's tree and reports, too.

Its processes are no actors of Ray: put ``gpuprof run --integrate sample-factory`` in front of the
program, or call `install` before Sample Factory is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuprof import timing
from gpuprof.frameworks import after_import, replace, say, unknown_release

__all__ = ["ON_RAY", "PACKAGE", "TRIED", "install", "install_in_worker"]

PACKAGE = "sample_factory"
ON_RAY = False
TRIED = ("2.1.1",)


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
    """Open a scope in each `TimingContext`, inside a scope named after the component.

    The component's scope is needed because components share a process: a learner and its batcher,
    or all components in serial mode.
    """

    def entering(original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(self: Any) -> Any:
            # the first call starts the session, which must not count in the first scope
            add_time = timing().add_time
            around, theirs = None, self._timing
            if len(theirs["_open_contexts_stack"]) == 1:  # keys are faster than attributes
                around = add_time(_component(theirs["_name"])).__enter__()
            self._gpuprof_scopes = around, add_time(self._key).__enter__()
            return original(self)

        return __enter__

    def leaving(original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(self: Any, kind: Any, error: Any, trace: Any) -> Any:
            try:
                return original(self, kind, error, trace)
            finally:
                around, scope = self._gpuprof_scopes
                scope.__exit__(kind, error, trace)
                if around is not None:
                    around.__exit__(kind, error, trace)

        return __exit__

    replace(module.TimingContext, "__enter__", entering)
    replace(module.TimingContext, "__exit__", leaving, ["traceback"])


@functools.cache
def _component(name: str) -> str:
    """The component of a `Timing` with this name: ``Learner 0`` of ``Learner 0 profile``."""
    return name.removesuffix(" profile")
