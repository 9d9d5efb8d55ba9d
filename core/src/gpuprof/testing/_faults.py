"""Checks of what happens when something raises: the job goes on, and whatever was begun is ended."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from gpuprof_timing import annotate

from gpuprof.backend import hookimpl
from gpuprof.testing._case import WINDOWS, Captured, Case, fail


class FaultChecks(Case):
    """A profiler never breaks the job."""

    def test_an_exception_inside_a_window_does_no_harm(self, tmp_path: Path) -> None:
        """The job's own exception leaves two ranges; the window ends, and the next one works."""
        self._need("start_capture", "stop_capture")
        captured = Captured(self, tmp_path)
        captured.capture.start(WINDOWS[0])
        with contextlib.suppress(KeyError), annotate("outer"), annotate("inner"):
            raise KeyError("the job's own")
        captured.capture.stop(WINDOWS[0].number)
        captured.capture.start(WINDOWS[1])
        captured.capture.stop(WINDOWS[1].number)
        captured.expect_no_fault(
            "after an exception of the job",
            "ranges must end in __exit__, with or without an exception",
        )

    def test_a_start_that_raised_is_ended(self, tmp_path: Path) -> None:
        """`stop_capture` runs all the same, raises nothing more, and leaves the process ready for
        another instance.
        """
        self._need("start_capture", "stop_capture")
        captured = Captured(self, tmp_path, self._raising("start_capture"))
        captured.capture.start(WINDOWS[0])
        if captured.capture.records[WINDOWS[0].number]["closed"] is None:
            fail(
                "stop_capture did not follow a start that raised",
                "this is a fault of gpuprof's: report it",
            )
        if len(captured.faults) != 1:
            fail(
                f"stop_capture raised after a start that had raised: {captured.faults[-1]}",
                "end what was begun, and nothing else",
            )
        afterwards = Captured(self, tmp_path)
        afterwards.capture.start(WINDOWS[0])
        afterwards.capture.stop(WINDOWS[0].number)
        afterwards.expect_no_fault(
            "a new instance, after a start of another one had raised",
            "stop_capture must end what the start had begun",
        )

    def test_faults_are_kept_from_the_job(self, tmp_path: Path) -> None:
        """Whichever hook raises, the session notes it once and goes on without the backend."""
        for hook in ("start_capture", "stop_capture", "open_range"):
            captured = Captured(self, tmp_path, self._raising(hook))
            try:
                captured.capture.start(WINDOWS[0])
                for _ in range(2):
                    with annotate("work"):
                        pass
                captured.capture.stop(WINDOWS[0].number)
            except Exception as error:
                fail(
                    f"{hook} raised, and the job got {error!r}",
                    "this is a fault of gpuprof's: report it",
                )
            if len(captured.faults) != 1 or captured.capture.state != "faulted":
                fail(
                    f"{hook} raised, and the session noted {captured.faults}",
                    "raise Exceptions, and nothing that is not one",
                )

    def _raising(self, hook: str) -> Any:
        """The backend with one hook that raises, after it has done what it does."""
        original = getattr(self.backend, hook, None)

        def raising(self: Any, worker: Any, window: Any) -> None:
            if original is not None and hook != "open_range":
                wanted = original.__code__.co_varnames[1 : original.__code__.co_argcount]
                given = {"worker": worker, "window": window}
                original(self, *[given[name] for name in wanted])
            raise RuntimeError(f"{hook} raises")

        return type("Raising", (self.backend,), {hook: hookimpl(raising)})
