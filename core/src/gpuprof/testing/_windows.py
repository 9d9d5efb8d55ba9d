"""Checks of windows: `start_capture` and `stop_capture`, called in this process as by a session."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gpuprof.testing._case import WINDOWS, Captured, Case, fail


class WindowChecks(Case):
    """One window at a time, each started and stopped once, on any thread."""

    def test_windows_follow_each_other(self, tmp_path: Path) -> None:
        """Opening a second window closes the first one before."""
        self._need("start_capture", "stop_capture")
        captured = Captured(self, tmp_path)
        for window in WINDOWS:
            captured.capture.start(window)
        captured.capture.stop(WINDOWS[1].number)
        captured.expect_no_fault(
            "the second window",
            "stop_capture must leave the instance ready for another start_capture",
        )

    def test_windows_are_asked_for_once(self, tmp_path: Path) -> None:
        """Repeated orders to open and close one window run each hook once."""
        self._need("start_capture", "stop_capture")
        calls: list[str] = []
        hooks = self._hooks()
        hooks.add_hookcall_monitoring(lambda name, *_: calls.append(name), lambda *_: None)
        captured = Captured(self, tmp_path, hooks=hooks)
        for ask in (captured.capture.start, captured.capture.start):
            ask(WINDOWS[0])
        for _ in range(2):
            captured.capture.stop(WINDOWS[0].number)
        counted = [calls.count(name) for name in ("start_capture", "stop_capture")]
        if counted != [1, 1]:
            fail(
                f"start and stop were called {counted} times",
                "this is a bug in gpuprof: report it",
            )

    def test_start_and_stop_on_different_threads(self, tmp_path: Path) -> None:
        """gpuprof starts a window on a thread of its own, and may stop it on another at exit."""
        self._need("start_capture", "stop_capture")
        captured = Captured(self, tmp_path)
        steps: list[Any] = [
            lambda: captured.capture.start(WINDOWS[0]),
            lambda: captured.capture.stop(WINDOWS[0].number),
        ]
        for step in steps:
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
        captured.expect_no_fault(
            "a window on two threads",
            "keep the state of start_capture on the instance, not in its thread",
        )

    def test_stop_may_come_twice(self, tmp_path: Path) -> None:
        """A repeated stop does no harm."""
        self._need("start_capture", "stop_capture")
        hook = self._hooks().hook
        worker = self._worker(tmp_path)
        hook.start_capture(worker=worker, window=WINDOWS[0])
        hook.stop_capture(worker=worker, window=WINDOWS[0])
        try:
            hook.stop_capture(worker=worker, window=WINDOWS[0])
        except Exception as error:
            fail(
                f"the second stop_capture raised {error!r}",
                "return at once if nothing is being recorded",
            )

    def test_stop_may_come_without_a_start(self, tmp_path: Path) -> None:
        """`stop_capture` follows every attempted start, even one that raised at once."""
        self._need("stop_capture")
        try:
            self._hooks().hook.stop_capture(worker=self._worker(tmp_path), window=WINDOWS[0])
        except Exception as error:
            fail(
                f"stop_capture without a start raised {error!r}",
                "return at once if nothing is being recorded",
            )

    def test_stop_says_which_files(self, tmp_path: Path) -> None:
        """`stop_capture` returns a list of paths, or ``None`` if they are only known later."""
        self._need("start_capture", "stop_capture")
        hooks = self._hooks()
        given = {"worker": self._worker(tmp_path), "window": WINDOWS[0]}
        self._ask("start_capture", hooks, **given)
        for files in self._ask("stop_capture", hooks, **given):
            missing = [file for file in files if not Path(file).is_file()]
            if missing:
                fail(
                    f"stop_capture returned {missing[0]}, which does not exist",
                    "return once the file is complete, or return None",
                )
