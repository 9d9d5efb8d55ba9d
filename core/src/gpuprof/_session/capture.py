"""Windows inside a worker: opening and closing them through the hooks.

All of it runs on the control thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpuprof_timing import set_range_opener

from gpuprof._session.file import State, WindowEntry
from gpuprof._session.windows import Progress
from gpuprof.backend.boundary import Hooks
from gpuprof.backend.types import Collected, Window, Worker

OpenRange = Callable[[str, bool], AbstractContextManager[object]]


class Capture:
    """Opens and closes the windows of one worker, one at a time.

    Args:
        worker: who.
        hooks: the backend and the plugins.
        on_fault: told the name of the plugin and what it raised; returns the message.
        progress: where the open window is noted.
        note: called with a window and its new state, for the ledger.

    Attributes:
        records: one for each window that was opened, in that order, in types that JSON has.
    """

    def __init__(
        self,
        worker: Worker,
        hooks: Hooks,
        on_fault: Callable[[str, BaseException], str],
        progress: Progress | None = None,
        note: Callable[[Window, str], object] = lambda window, state: None,
    ) -> None:
        self.worker = worker
        self.progress = progress or Progress()
        self.state: State = "new"
        self.records: dict[int, WindowEntry] = {}
        self._windows: dict[int, Window] = {}
        self._hooks = hooks
        self._on_fault = on_fault
        self._note = note
        self._faulty: set[str] = set()
        self._started = 0.0

    def start(self, window: Window) -> str | None:
        """Open a window, once. Returns what went wrong."""
        if window.number in self.records or self.state == "faulted":
            return self.problem(window.number)
        if self.progress.captured is not None:
            self.stop(self.progress.captured.number)
        record = self._record(window)
        self._windows[window.number] = window
        self.progress.captured = window
        self.state = "open"
        self._note(window, "opening")
        for name, start in self._hooks.each("start_capture", worker=self.worker, window=window):
            try:
                start()
            except Exception as error:
                message = self._fault(name, error)
                record["error"] = record["error"] or message
        self._started = time.perf_counter()
        self._note(window, "open")
        if self.state == "open":
            set_range_opener(self.range_opener(window), self.range_fault)
        else:
            self.stop(window.number)
        return self.problem(window.number)

    def refuse(self, window: Window, reason: str) -> None:
        """Record why a window is not opened."""
        if window.number not in self.records:
            self._record(window).update({"opened": None, "error": reason})

    def _record(self, window: Window) -> WindowEntry:
        record: WindowEntry = {
            "number": window.number,
            "label": window.label,
            "start": window.start,
            "stop": window.stop,
            "scope": window.scope,
            "occurrence": window.occurrence,
            "opened": time.time(),
            "closed": None,
            "seconds": None,
            "files": None,
            "extras": [],
            "error": None,
        }
        self.records[window.number] = record
        return record

    def stop(self, number: int) -> str | None:
        """Close a window if it is the one that is open. Returns what went wrong."""
        window = self.progress.captured
        if window is None or window.number != number:
            return self.problem(number)
        record = self.records[number]
        set_range_opener(None)
        record["seconds"] = time.perf_counter() - self._started
        self._note(window, "closing")
        stops = list(self._hooks.each("stop_capture", worker=self.worker, window=window))
        for name, stop in reversed(stops):
            try:
                for found in stop():
                    if name == "backend":
                        record["files"] = found
                    else:  # the receipt is about the backend's reports
                        record["extras"] += found
            except Exception as error:
                message = self._fault(name, error)
                record["error"] = record["error"] or message  # what fails first is the cause
        record["closed"] = time.time()
        self._note(window, "closed")
        record["files"] = record["files"] or None
        self.progress.captured = None
        self._name_files()
        for name in self._faulty - {"backend"}:
            self._hooks.unregister(name=name)
        self._faulty.clear()
        if self.state != "faulted":
            self.state = "closed"
        return self.problem(number)

    def problem(self, number: int) -> str | None:
        """What went wrong with a window, or ``None``. A refused window is not an error."""
        record = self.records.get(number)
        return str(record["error"]) if record and record["error"] and record["opened"] else None

    def range_opener(self, window: Window) -> OpenRange | None:
        """Opens ranges of the backend's in `window`; ``None`` where it has none.

        Bound once: going through pluggy costs 1.4 µs.
        """
        implementations = self._hooks.hook.open_range.get_hookimpls()
        if not implementations:
            return None
        function: Callable[..., Any] = implementations[-1].function
        wanted = implementations[-1].argnames
        worker = self.worker

        def open_range(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
            return function(worker, window, name, crosses_tasks or in_task()) or nullcontext()

        def open_with_less(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
            given = {
                "worker": worker,
                "window": window,
                "name": name,
                "crosses_tasks": crosses_tasks or in_task(),
            }
            return function(*[given[argument] for argument in wanted]) or nullcontext()

        return (
            open_range
            if wanted == ("worker", "window", "name", "crosses_tasks")
            else open_with_less
        )

    def range_fault(self, error: BaseException) -> None:
        """What to do when a range raises."""
        self._fault("backend", error)

    def _name_files(self) -> None:
        """Let the backend give its finished files their final names."""
        captured = tuple(
            self._windows[number] for number, record in self.records.items() if not record["error"]
        )
        files = {
            number: record["files"] for number, record in self.records.items() if record["files"]
        }
        given = {
            "worker": self.worker,
            "windows": captured,
            "files": files,
            "ended": False,
            "scratch": "",
        }
        try:
            found = self._hooks.hook.collect_files(**given) or Collected()
        except Exception as error:
            self._fault("backend", error)
            return
        if found.problem:
            self._fault("backend", RuntimeError(found.problem))
        for number, named in found.files.items():
            if number in self.records:  # others are no windows of this worker
                others = self.records[number]["files"] or []
                self.records[number]["files"] = list(dict.fromkeys([*named, *others]))

    def _fault(self, name: str, error: BaseException) -> str:
        self._faulty.add(name)
        if name == "backend":
            self.state = "faulted"
        return self._on_fault(name, error)


def in_task() -> bool:
    """Whether this is inside an event loop, where a range may end while another task's is open."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
