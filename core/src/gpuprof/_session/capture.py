"""Opens and closes windows inside a worker, through the hooks.

Everything here runs on the control thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpuprof_timing import set_range_opener

from gpuprof._session.file import window_of
from gpuprof._session.windows import Windows
from gpuprof.backend.boundary import Hooks
from gpuprof.backend.types import Tool, Window, Worker

OpenRange = Callable[[str, bool], AbstractContextManager[object]]


class Capture:
    """Opens and closes the windows of one worker, one at a time.

    Args:
        on_fault: called with the name of a plugin and the exception that it raised; returns the
            message.
        windows: the record of the windows, which this object keeps up to date.

    Attributes:
        faulted: whether the backend has failed, so that no further window opens.
    """

    def __init__(
        self,
        worker: Worker,
        hooks: Hooks,
        on_fault: Callable[[str, BaseException], str],
        windows: Windows | None = None,
    ) -> None:
        self.worker = worker
        self.windows = windows or Windows()
        self.faulted = False
        self._hooks = hooks
        self._on_fault = on_fault
        self._faulty: set[str] = set()
        self._tool: Tool | None = None

    def prepare(self) -> None:
        """Look for the profiler's program now: an order's window opens seconds sooner."""
        self._hooks.hook.probe()

    def start(self, window: Window) -> str | None:
        """Open a window, unless it was opened before. Returns what went wrong, or ``None``."""
        windows = self.windows
        if self.faulted or not windows.can_open(window.number):
            return windows.problem(window.number)
        if windows.current is not None:
            self.stop(windows.current.number)  # its close was lost
        windows.begin(window)
        try:
            self._look_for_tool()
        except Exception as error:
            windows.blame(window, self._fault("backend", error))
            return self.stop(window.number)
        for name, start in self._each("start_capture", window):
            try:
                start()
            except Exception as error:
                windows.blame(window, self._fault(name, error))
        if self.faulted:
            self.stop(window.number)
        else:
            windows.opened()
            set_range_opener(self.range_opener(window), self.range_fault)
        return windows.problem(window.number)

    def stop(self, number: int) -> str | None:
        """Close a window, if it is the open one. Returns what went wrong, or ``None``."""
        windows, window = self.windows, self.windows.current
        entry = windows.entry(number)
        if window is None or window.number != number or entry is None:
            return windows.problem(number)
        set_range_opener(None)
        windows.begin_closing()
        stops = list(self._each("stop_capture", window))
        for name, stop in reversed(stops):
            try:
                for files in stop():
                    if name == "backend":
                        entry["files"] = files or None
                    else:  # the receipt is about the backend's reports
                        entry["extras"] += files
            except Exception as error:
                windows.blame(window, self._fault(name, error))
        windows.end()
        self._name_files()
        for name in self._faulty - {"backend"}:
            self._hooks.unregister(name=name)
        self._faulty.clear()
        return windows.problem(number)

    def _each(self, hook: str, window: Window) -> Iterator[tuple[str, Callable[[], Any]]]:
        """The calls of one hook for a window, and whose they are."""
        return self._hooks.each(hook, worker=self.worker, window=window, tool=self._tool)

    def _look_for_tool(self) -> None:
        """Find the profiler's program once, if a hook for windows takes it: it may take seconds."""
        callers = self._hooks.hook
        hooks = [*callers.start_capture.get_hookimpls(), *callers.stop_capture.get_hookimpls()]
        if self._tool is None and any("tool" in hook.argnames for hook in hooks):
            self._tool = callers.probe()

    def range_opener(self, window: Window) -> OpenRange | None:
        """The function that opens the backend's ranges in `window`; ``None`` without such ranges.

        It calls the backend's hook directly, because going through pluggy costs 1.4 µs.
        """
        implementations = self._hooks.hook.open_range.get_hookimpls()
        if not implementations:
            return None
        function: Callable[..., Any] = implementations[-1].function
        argument_names = implementations[-1].argnames
        worker = self.worker

        def open_range(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
            return function(worker, window, name, crosses_tasks or in_task()) or nullcontext()

        def open_with_less(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
            arguments = {
                "worker": worker,
                "window": window,
                "name": name,
                "crosses_tasks": crosses_tasks or in_task(),
            }
            return function(*[arguments[name] for name in argument_names]) or nullcontext()

        return (
            open_range
            if argument_names == ("worker", "window", "name", "crosses_tasks")
            else open_with_less
        )

    def range_fault(self, error: BaseException) -> None:
        """Handle an exception raised by a range: it counts as a fault of the backend."""
        self._fault("backend", error)

    def _name_files(self) -> None:
        """Let the backend give its finished files their final names."""
        entries = self.windows.entries
        windows = tuple(window_of(entry) for entry in entries if not entry["error"])
        files = {entry["number"]: entry["files"] for entry in entries if entry["files"]}
        collect_files = self._hooks.hook.collect_files
        try:
            collection = collect_files(
                worker=self.worker, windows=windows, files=files, ended=False, scratch=""
            )
        except Exception as error:
            self._fault("backend", error)
            return
        if collection is None:
            return
        if collection.problem:
            self._fault("backend", RuntimeError(collection.problem))
        for entry in entries:
            final_names = collection.files.get(entry["number"])
            if final_names is not None:
                entry["files"] = list(dict.fromkeys([*final_names, *(entry["files"] or ())]))

    def _fault(self, name: str, error: BaseException) -> str:
        self._faulty.add(name)
        self.faulted = self.faulted or name == "backend"
        return self._on_fault(name, error)


def in_task() -> bool:
    """Whether an event loop runs on this thread.

    If so, a range may end while a range of another task is still open.
    """
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
