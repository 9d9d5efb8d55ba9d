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
    """`TimingContext`: a scope, below one by the name that the component gives its `Timing`.

    Several components share a process: a learner and its batcher, all of them in serial mode.
    """

    def entering(original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(self: Any) -> Any:
            ours = timing()  # starts the session, which is no part of their first scope
            outermost = len(self._timing._open_contexts_stack) == 1
            self._gpuprof_scopes = [
                ours.add_time(name).__enter__()
                for name in ([_component(self._timing), self._key] if outermost else [self._key])
            ]
            return original(self)

        return __enter__

    def leaving(original: Callable[..., Any]) -> Callable[..., Any]:
        def __exit__(self: Any, *error: Any) -> Any:
            try:
                return original(self, *error)
            finally:
                for scope in reversed(self._gpuprof_scopes):
                    scope.__exit__(*error)

        return __exit__

    replace(module.TimingContext, "__enter__", entering)
    replace(module.TimingContext, "__exit__", leaving, ["traceback"])


def _component(theirs: Any) -> str:
    """The component of a `Timing`: ``Learner 0`` of ``Learner 0 profile``."""
    return str(theirs._name).removesuffix(" profile")
