"""gpuprof inside one worker: its capture windows, its ranges, its tree, and the file that it leaves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from typing import Any, Literal

import pluggy
from gpuprof_timing import Timing, set_range_opener

from gpuprof import _plan, _plugins, _shim
from gpuprof._control import ControlThread
from gpuprof._log import log
from gpuprof._structure import structure
from gpuprof._types import Window, Worker

State = Literal["new", "open", "closed", "faulted"]
FILE_INTERVAL = 5.0
"""Seconds between two writes of a session's file, at most. Whatever kills the process, no more timing than this is lost."""
OPEN_DEADLINE = 30.0
CLOSE_DEADLINE = 120.0
"""Seconds. nsys writes the report before closing returns, and a process forked at that moment can stall it for 30 s."""


class Session:
    """The part of gpuprof that lives in a worker.

    Args:
        row: the plan's row for this worker.
        timing: the process's tree.
    """

    def __init__(self, row: _shim.Row, timing: Timing) -> None:
        self.timing = timing
        self.pid = os.getpid()
        self.row = _identify(row)
        self.child = self.row["role"] == "child"
        self.name = f"{row['group']}-{row['rank']}" + (f".child-{self.pid}" if self.child else "")
        stem = self.name if self.child else f"{self.name}.start-{self.row['incarnation']}"
        self.file = os.path.join(_shim.directory(row), f"{stem}.json")
        timing.name = f"{self.name} profile"
        self.state: State = "new"
        self.faults: list[str] = []
        self._windows: dict[int, dict[str, Any]] = {}
        self._open: Window | None = None
        self._plugins: list[tuple[str, Any]] = []
        self._faulty: set[str] = set()
        self._written = ""
        self.ended = False
        if not self.child and self.row["profiled"]:
            self._prepare()
        self._control = ControlThread(self._write, FILE_INTERVAL)
        if not self.child:
            self._control.submit(self._write)

    @property
    def captures(self) -> bool:
        """Whether windows can be opened here."""
        return bool(self._plugins) and not self.row.get("unwrapped")

    def window_of(self, step: int) -> Window | None:
        """The planned window that `step` lies in."""
        return next((window for window in self._worker.windows if step in window), None) if self.captures else None

    def open(self, number: int, expiry: float = float("inf")) -> str | None:
        """Open a planned window, once. Waits for the control thread.

        Args:
            expiry: seconds since the epoch, after which it is too late.

        Returns:
            What went wrong, or ``None``.
        """
        return self._on_control(lambda: self._do_open(number, expiry), OPEN_DEADLINE)

    def close(self, number: int) -> str | None:
        """Close a window, if it is open. Waits for the control thread, and so for the profiler."""
        return self._on_control(lambda: self._do_close(number), CLOSE_DEADLINE)

    def is_open(self, number: int) -> bool:
        """Whether the window is open now."""
        return self._open is not None and self._open.number == number

    def write(self) -> None:
        """Bring the session's file up to date."""
        self._on_control(self._write, OPEN_DEADLINE)

    def end(self) -> None:
        """Close what is open and write the file for the last time."""
        self.ended = True
        if self._open is not None:
            self.close(self._open.number)
        self.write()

    def snapshot(self) -> dict[str, Any]:
        """What the session's file holds."""
        return {
            "version": 1,
            "name": self.name,
            "run": self.row["run"],
            "group": self.row["group"],
            "rank": self.row["rank"],
            "node": self.row["node"],
            "incarnation": self.row["incarnation"],
            "pid": self.pid,
            "profiled": self.row["profiled"],
            "unwrapped": self.row.get("unwrapped"),
            "state": self.state,
            "windows": list(self._windows.values()),
            "faults": self.faults,
            "timing": self.timing.to_dict(),
        }

    def _prepare(self) -> None:
        row = self.row
        try:
            backend = _plugins.load_backend(row["backend"], "backend")
            plugins = [(name, _plugins.load(name, "plugins")) for name in row["plugins"]]
            self._manager = _plan.make_hooks(backend, structure(row["options"], backend.Options), plugins)
            self._worker: Worker = _plan.worker_of(row)
        except Exception as error:
            self._fault("backend", error)
            return
        self._plugins = self._manager.list_name_plugin()
        if row.get("unwrapped"):
            log().warning("%s is not profiled: %s", self.name, row["unwrapped"])
        if self.captures and self._worker.windows and self._worker.windows[0].start is None:
            self._do_open(1, float("inf"))

    def _on_control(self, task: Callable[[], str | None], deadline: float) -> str | None:
        try:
            problem: str | None = self._control.submit(task).result(deadline)
        except FutureTimeoutError:
            return f"{self.name}: the profiler did not answer within {deadline:.0f} s"
        return problem

    def _do_open(self, number: int, expiry: float) -> str | None:
        if number in self._windows:
            return self._problem(number)
        if not self.captures or self.state == "faulted":
            return "; ".join(self.faults) or self.row.get("unwrapped")
        if time.time() > expiry:
            return None
        if self._open is not None:
            self._do_close(self._open.number)
        window = self._worker.windows[number - 1]
        record: dict[str, Any] = {
            "number": number,
            "label": window.label,
            "opened": time.time(),
            "closed": None,
            "files": None,
            "error": None,
        }
        self._windows[number] = record
        self._open = window
        self.state = "open"
        for name, plugin in self._plugins:
            try:
                self._only(plugin).start_capture(worker=self._worker, window=window)
            except Exception as error:
                record["error"] = self._fault(name, error)
        if self.state == "open":
            self._fill_range_slot(window)
        elif self._open is not None:
            self._do_close(number)
        return self._problem(number)

    def _do_close(self, number: int) -> str | None:
        window, record = self._open, self._windows.get(number)
        if window is None or record is None or window.number != number:
            return self._problem(number)
        set_range_opener(None)
        files: list[str] = []
        for name, plugin in reversed(self._plugins):
            try:
                for found in self._only(plugin).stop_capture(worker=self._worker, window=window):
                    files += found
            except Exception as error:
                record["error"] = self._fault(name, error)
        record["closed"] = time.time()
        record["files"] = files or None
        self._open = None
        for name in self._faulty - {"backend"}:
            self._manager.unregister(name=name)
        self._faulty.clear()
        self._plugins = self._manager.list_name_plugin()
        if self.state != "faulted":
            self.state = "closed"
        self._write()
        return self._problem(number)

    def _problem(self, number: int) -> str | None:
        record = self._windows.get(number)
        return str(record["error"]) if record and record["error"] else None

    def _only(self, plugin: Any) -> Any:
        """The hooks with every plugin but one left out: one that raises must not keep the next from being called."""
        others = [other for _, other in self._plugins if other is not plugin]
        return _SubsetHooks(self._manager, others)

    def _fill_range_slot(self, window: Window) -> None:
        implementations = self._manager.hook.open_range.get_hookimpls()
        if not implementations:
            return
        implementation = implementations[-1]
        wanted = implementation.argnames
        function: Callable[..., Any] = implementation.function

        def open_range(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
            given = {"window": window, "name": name, "crosses_tasks": crosses_tasks or _in_task()}
            return function(*[given[argument] for argument in wanted])  # type: ignore[no-any-return]

        set_range_opener(open_range, self._range_fault)

    def _range_fault(self, error: Exception) -> None:
        self._fault("backend", error)

    def _fault(self, name: str, error: Exception) -> str:
        """Switch a plugin off, and say so once. A fault of the backend ends capturing in this worker."""
        message = f"{name}: {type(error).__name__}: {error}"
        if message not in self.faults:
            self.faults.append(message)
            log().warning("%s: profiling is switched off here, the job goes on: %s", self.name, message)
        self._faulty.add(name)
        if name == "backend":
            self.state = "faulted"
        return message

    def _write(self) -> None:
        """Write the session's file if anything changed. A full or vanished disk is not the job's problem."""
        if self.child and not self.timing:
            return
        snapshot = self.snapshot()
        content = repr(snapshot)
        if content == self._written:
            return
        try:
            os.makedirs(os.path.dirname(self.file), exist_ok=True)
            _shim.write_json(self.file, snapshot)
            self._written = content
        except OSError as error:
            message = f"{self.file} cannot be written: {error.strerror}"
            if message not in self.faults:
                self.faults.append(message)
                log().warning("%s: %s", self.name, message)


class _SubsetHooks:
    """``hooks.start_capture(...)`` for some of a manager's plugins."""

    def __init__(self, manager: pluggy.PluginManager, left_out: list[Any]) -> None:
        self._manager = manager
        self._left_out = left_out

    def __getattr__(self, hook: str) -> pluggy.HookCaller:
        return self._manager.subset_hook_caller(hook, self._left_out)


def _identify(row: _shim.Row) -> _shim.Row:
    """Decide whether this process is the worker or a child of it that inherited its environment."""
    row = dict(row)
    if row.get("role") is None:
        incarnation = _shim.claim(row, os.getpid())
        row.update(role="owner" if incarnation else "child", node=_shim.node_name(), incarnation=incarnation)
    elif row["role"] == "owner" and _shim.target_of(row) != os.getpid():
        row["role"] = "child"
    if row["role"] == "child":
        row.update(node=_shim.node_name(), incarnation=None)
    return row


def _in_task() -> bool:
    """Whether this is inside an event loop, where a range may end while another task's is open."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
