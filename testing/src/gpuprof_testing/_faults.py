"""Checks of exceptions: the job goes on, and a capture that has started is stopped."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from gpuprof.backend import hookimpl
from gpuprof_timing import annotate

from gpuprof_testing._case import WINDOWS, Captured, Case, fail


class FaultChecks(Case):
    """An exception in the backend never breaks the job."""

    def test_an_exception_inside_a_window_does_no_harm(self, tmp_path: Path) -> None:
        """The job's exception leaves two ranges; the window closes, and the next one works."""
        self._need("start_capture", "stop_capture")
        captured = Captured(self, tmp_path)
        captured.open(WINDOWS[0])
        with contextlib.suppress(KeyError), annotate("outer"), annotate("inner"):
            raise KeyError("the job's own")
        captured.capture.stop(WINDOWS[0].number)
        captured.capture.start(WINDOWS[1])
        captured.capture.stop(WINDOWS[1].number)
        captured.expect_no_fault(
            "after an exception in the job",
            "end ranges in __exit__, with or without an exception",
        )

    def test_a_start_that_raised_is_ended(self, tmp_path: Path) -> None:
        """After a failed start, `stop_capture` cleans up, and a new instance works."""
        self._need("start_capture", "stop_capture")
        captured = Captured(self, tmp_path, self._raising("start_capture"))
        captured.capture.start(WINDOWS[0])
        if captured.capture.windows.state(WINDOWS[0].number) != "failed":
            fail(
                "stop_capture was not called after a start that raised",
                "this is a bug in gpuprof: report it",
            )
        if len(captured.faults) != 1:
            fail(
                f"stop_capture raised after a start that raised: {captured.faults[-1]}",
                "stop only what start_capture has started",
            )
        afterwards = Captured(self, tmp_path)
        afterwards.capture.start(WINDOWS[0])
        afterwards.capture.stop(WINDOWS[0].number)
        afterwards.expect_no_fault(
            "a new instance, after the start of another one raised",
            "stop_capture must undo a start that raised halfway",
        )

    def test_faults_are_kept_from_the_job(self, tmp_path: Path) -> None:
        """Whichever hook raises, the session reports it once and goes on without the backend."""
        cases = [
            (hook, kind)
            for hook in ("start_capture", "stop_capture", "open_range")
            for kind in (RuntimeError, SystemExit)
        ]
        for hook, kind in cases:
            captured = Captured(self, tmp_path, self._raising(hook, kind))
            try:
                captured.capture.start(WINDOWS[0])
                for _ in range(2):
                    with annotate("work"):
                        pass
                captured.capture.stop(WINDOWS[0].number)
            except (Exception, SystemExit) as error:
                fail(
                    f"{hook} raised, and the job got {error!r}",
                    "this is a bug in gpuprof: report it",
                )
            if len(captured.faults) != 1 or not captured.capture.faulted:
                fail(
                    f"{hook} raised, and the session reported {captured.faults}",
                    "make sure that stop_capture works after any fault",
                )

    def _raising(self, hook: str, kind: type[BaseException] = RuntimeError) -> Any:
        """A variant of the backend with one hook that does its work and then raises."""
        original = getattr(self.backend, hook, None)

        def raising(self: Any, worker: Any, window: Any, tool: Any) -> None:
            if original is not None:
                names = original.__code__.co_varnames[1 : original.__code__.co_argcount]
                arguments = {"worker": worker, "window": window, "tool": tool}
                original(self, *[arguments[name] for name in names])
            raise kind(f"{hook} raises")

        def no_range(self: Any) -> None:
            raise kind(f"{hook} raises")

        faulty = hookimpl(no_range if hook == "open_range" else raising)
        return type("Raising", (self.backend,), {hook: faulty})
