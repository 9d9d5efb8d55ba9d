"""The tree of the process that has the `Profiler`."""

from __future__ import annotations

from typing import ClassVar

from gpuprof_timing import Timing


class RunnerTree:
    """The process's own tree, with the run as a scope in it.

    Args:
        timing: of the process.
    """

    _another_has_ended: ClassVar[bool] = False

    def __init__(self, timing: Timing) -> None:
        timing.name = "Runner profile"
        self._timing = timing
        # The first run has what the process did before it. A later one has no part in the earlier ones.
        self._before = timing.snapshot() if RunnerTree._another_has_ended else None
        self._main_loop = timing.add_time("main_loop")
        self._main_loop.__enter__()

    def end(self) -> Timing:
        """End the run. Returns what is to be shown of it."""
        self._main_loop.__exit__(None, None, None)
        RunnerTree._another_has_ended = True
        return self._timing if self._before is None else self._timing.delta(self._before)
