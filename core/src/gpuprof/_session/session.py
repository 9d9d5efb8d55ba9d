"""gpuprof inside one worker: its windows, its ranges, its tree and its file."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import attrs
from gpuprof_timing import Timing, set_range_opener

from gpuprof._log import log
from gpuprof._session.budget import used_bytes
from gpuprof._session.control import ControlThread
from gpuprof._session.dump import Answerer
from gpuprof._session.environment import environment
from gpuprof._session.file import SESSION_VERSION, SessionFile, TreeEntry, WindowEntry, files_of
from gpuprof._session.ledger import DRAIN_INTERVAL, HELPER, STEP_AT, LedgerWriter, make_header
from gpuprof._session.left_out import LeftOut
from gpuprof._session.metrics import StepMetrics
from gpuprof._session.patience import answered, scratch_of
from gpuprof._session.step_times import StepOutside, StepTimes
from gpuprof._session.totals import Totals, lines
from gpuprof._session.windows import Windows
from gpuprof._shim.claim import claim
from gpuprof._shim.files import directory, started_file, write_json
from gpuprof._shim.node import node_name, selected
from gpuprof._shim.ownership import own_directory
from gpuprof._shim.processes import process_start, started_process
from gpuprof._shim.row import Row
from gpuprof.backend.types import Window, Worker

if TYPE_CHECKING:
    # `_prepare` imports these: most processes with a session capture nothing
    from gpuprof_timing.recording import DeviceReading

    from gpuprof._session.armed import ArmedWindows
    from gpuprof._session.capture import Capture
    from gpuprof._session.discrete import DiscreteWindows
    from gpuprof._session.finish_command import FinishCommand
    from gpuprof._session.instruments.instrument import Instrument
    from gpuprof._session.step_at import Mark, StepAt
    from gpuprof.backend.boundary import Hooks


FILE_INTERVAL = 5.0
"""Seconds between two writes of a session's file. A killed process loses no more timing than
this."""
OPEN_DEADLINE = 60.0
CLOSE_DEADLINE = 120.0
"""Timeouts in seconds for a busy profiler; see `answered`. Closing includes nsys's writing of the
report."""
_RAY_WORKER = "default_worker.py"
"""The script of Ray's worker processes."""
_SILENT = "the profiler does not respond; the job goes on, and no window opens until it responds"


class Session:
    """The part of gpuprof that lives in a worker.

    Attributes:
        running: the innermost step that is in a window and has not ended.
        held: the window that a step has asked for and must close; the driver closes the windows
            that it has asked for itself.
        step_times: the durations of the steps inside and outside windows.
        metrics: those of the process's last step.
        ledger: the record of when scopes began and ended; ``None`` if the ledger is switched off.
        launched: whether `gpuprof run` has started this process, and no other process ends its run.
        drives: whether the process's tree is that of the run's driver.
        starts_ranks: whether it has started ranks of the run by itself.
        outside: a context manager that times a step outside windows; it does nothing if no window
            can open in this process.
        refuses_orders: why only the job's own steps can open a window; ``None`` if the driver can,
            too.
    """

    def __init__(self, row: Row, timing: Timing) -> None:
        self.timing = timing
        self.pid = os.getpid()
        self._process_start = process_start(self.pid)
        self.row = _identify(row)
        # remembered here, since the files that the shim writes may be deleted while the worker runs
        self._behind_profiler = row.get("role") == "owner" == self.row["role"]
        self.child = self.row["role"] == "child"
        name = f"{self.row['group']}-{self.row['rank']}"
        self.name = f"{name}.child-{self.pid}" if self.child else name
        stem = self.name if self.child else f"{self.name}.start-{self.row['incarnation']}"
        self.file = os.path.join(directory(row), f"{stem}.json")
        timing.name = f"{self.name} profile"
        self.faults: list[str] = []
        self._capture: Capture | None = None
        self._discrete: DiscreteWindows | None = None
        self._in_thread = False
        self.refuses_orders: str | None = None
        # with discrete windows, the ledger notes the window of each scope instead
        self.windows = Windows() if row["discrete"] else Windows(note=self._note_window)
        self.step: int | None = None
        self.running: int | None = None
        self.held: Window | None = None
        self.left_out = LeftOut(timing)
        own = [window[1:3] for window in row["windows"] if window[1] is not None]
        self.left_out.expect(row.get("captured_steps", own))
        self._armed: ArmedWindows | None = None
        self._due = 0.0
        self._silent: Future[str | None] | None = None
        self.step_times = StepTimes()
        self.totals = Totals()
        self.metrics = StepMetrics(row.get("run_directory"))
        self.ended = False
        self.launched = False
        self.drives = False
        self.starts_ranks = False
        self._over = False
        self._finish = None if self.child else _finish_command(self.row, self.name, self.pid)
        # set in a child process that is recorded in the report of its worker's whole life
        self._worker = worker_of(row) if self.child and _behind_profiler(row) else None
        if not self.child and self.row["profiled"]:
            if self.row.get("unwrapped"):
                log().warning("%s is not profiled: %s", self.name, self.row["unwrapped"])
            else:
                self._prepare()
        if not self.child and row.get("orders"):
            self._arm(row["orders"])
        self._instruments: list[Instrument] = []
        self._step_at: StepAt | None = None
        self.outside: AbstractContextManager[None] = (
            nullcontext() if self._capture is None else StepOutside(self.step_times)
        )
        self.ledger = self._make_ledger()
        self._control = ControlThread(
            self._chore,
            min(
                self._armed.poll_interval if self._armed else FILE_INTERVAL,
                DRAIN_INTERVAL if self.ledger else FILE_INTERVAL,
            ),
        )
        if not self.child:
            self._control.submit(self._write)
        if self._capture is not None and not self._capture.worker.windows:
            self._control.submit(self._capture.prepare)
        self.answerer = self._make_answerer()

    def begin(self, end_step: Callable[[], object], mark: Mark | None = None) -> None:
        """Begin the parts that call `public.session`, which must return this session by then.

        These are the instruments, and the window of the worker's whole life, if one is planned.

        Args:
            end_step: called when a library ends what it calls a step.
            mark: makes the steps that the key ``step_at`` sets.
        """
        steps = self._follow_steps(mark) if mark is not None else None
        if self.ledger is not None and self.row.get("instruments"):
            from gpuprof._session import instruments
            from gpuprof._session.instruments.instrument import Hooks

            ledger = self.ledger
            hooks = Hooks(
                end_step,
                ledger.sent,
                ledger.event,
                sized=ledger.sized,
                sample=ledger.samples.add,
                iterated=ledger.iterated,
            )
            if steps is not None:
                hooks = hooks._replace(called=steps.called, holds=steps.held)
            self._instruments += instruments.begin(
                self.row["instruments"], self.timing, self.note, hooks
            )
        if self._worker is not None:
            self._open_ranges(self._worker)
        if self._capture is not None and self._capture.worker.lifetime:
            # The report comes only when the worker ends. Until then, this line tells where to look.
            log().info(
                "%s is profiled for its whole life: node %s, process %d",
                self.name,
                self.row["node"],
                self.pid,
            )
            self.open(1)

    def _follow_steps(self, mark: Mark) -> StepAt:
        from gpuprof._session.instruments.instrument import Instrument
        from gpuprof._session.step_at import StepAt

        instrument = Instrument("step_at", self.timing, self.note)
        self._instruments.append(instrument)
        self._step_at = StepAt(self.row["step_at"], mark, instrument)
        if self.ledger is not None:
            self.ledger.event(STEP_AT)
        self._step_at.install()
        return self._step_at

    def _make_ledger(self) -> LedgerWriter | None:
        budget = self.row.get("ledger")
        if budget is None:
            return None
        header = make_header(
            self.row["run"],
            self.name,
            self.row["group"],
            self.row["rank"],
            self.row["node"],
            self.row.get("incarnation"),
            "child" if self.child else HELPER if self.row.get("helps") else "worker",
        )
        ledger = LedgerWriter(
            f"{self.file.removesuffix('.json')}.ledger",
            header,
            budget,
            self.note,
            make_directory=lambda: own_directory(self.row),
        )
        try:
            ledger.begin(self.timing.enabled)
        except RuntimeError as error:
            self.note(f"no ledger is written: {error}")
            return None
        return ledger

    def _make_answerer(self) -> Answerer:
        row = self.row
        about = {"name": self.name, "group": row["group"], "rank": row["rank"], "node": row["node"]}
        directory_of_run = row.get("run_directory")
        if not directory_of_run or not os.path.isdir(directory_of_run):  # on another node
            directory_of_run = os.path.dirname(directory(row))
        file = f"{row['node']}.{os.path.basename(self.file)}"
        return Answerer(directory_of_run, file, about, lambda: self.step, row.get("watchdog"))

    def _note_window(self, window: Window, state: str) -> None:
        if self.ledger is not None:
            self.ledger.event("window", number=window.number, label=window.label, state=state)

    def open(self, number: int, expiry: float = float("inf")) -> str | None:
        """Open a window, unless it was opened before. Waits for the control thread.

        Args:
            expiry: seconds since the epoch, after which it is too late to open the window.
        """
        if self._profiler_is_silent:
            self._control.submit(lambda: self._refuse(number, _SILENT))
            return f"{self.name}: {_SILENT}"
        return self._with_profiler(lambda: self._do_open(number, expiry), OPEN_DEADLINE)

    def close(self, number: int) -> str | None:
        """Close a window, if it is open. Waits for the control thread and thus for the profiler."""
        return self._with_profiler(lambda: self._do_close(number), CLOSE_DEADLINE)

    def note(self, fault: str) -> None:
        """Log a fault once, and keep it for the receipt."""
        if fault not in self.faults:
            self.faults.append(fault)
            log().warning("%s: %s", self.name, fault)

    def write(self, device: DeviceReading = "known") -> None:
        """Bring the session's file up to date.

        Args:
            device: which GPU times to read first; see `Timing.to_dict`.
        """
        if self._profiler_is_silent:  # the control thread is blocked, so write here
            self._write(device)
        else:
            self._on_control(lambda: self._write(device), OPEN_DEADLINE)

    def end(self) -> None:
        """End the session: close the open window and the ledger, and write the file a last time."""
        self.ended = True
        self.metrics.end()
        self.answerer.end()
        if self.windows.current is not None:
            self.close(self.windows.current.number)
        self.end_ledger()
        self.write("ready")
        # the ranks that it has started mark their own steps
        if self.launched and not self.starts_ranks and self._step_at and self._step_at.why_none:
            log().warning("%s: %s", self.name, self._step_at.why_none)
        if self.launched and "unselected" in self.row:
            log().warning("%s: %s", self.name, self.row["unselected"])
        if self.row.get("print_tree") and not self.child:
            totals = self.totals.entry()
            if self.timing or totals:
                log().info("%s", "\n".join([str(self.timing), *(lines(totals) if totals else [])]))
            if self.row["rank"] == 0:
                run = os.path.dirname(directory(self.row))
                command = "explain" if self.ledger is not None else "report"
                more = " (all trees: gpuprof report)" if self.ledger is not None else ""
                log().info("once all processes have ended: gpuprof %s %s%s", command, run, more)
        self.finish()
        if self._finish is not None:
            self._finish.wait()

    def end_ledger(self) -> None:
        """Write the rest of the ledger, and close it. The session's file is final from then on."""
        self._over = True
        for instrument in self._instruments:
            instrument.end_marking()
        if self.ledger is not None:
            self.ledger.end()

    def finish(self) -> None:
        """Start the user's command, unless the end of the last window has already started it."""
        if self._finish is not None:
            self._finish.start([file for entry in self._captured for file in files_of(entry)])

    @property
    def _captured(self) -> list[WindowEntry]:
        """The entries of the opened, refused and failed windows; if discrete, those of scopes."""
        return self._capture.windows.entries if self._capture is not None else []

    def snapshot(self, device: DeviceReading = "known") -> SessionFile:
        """The content of the session's file.

        By default it makes no GPU call: a hanging GPU would block the control thread, and a call
        would break a CUDA graph that the job is capturing.
        """
        return {
            "version": SESSION_VERSION,
            "name": self.name,
            "run": self.row["run"],
            "group": self.row["group"],
            "rank": self.row["rank"],
            "node": self.row["node"],
            "incarnation": self.row.get("incarnation"),
            "pid": self.pid,
            "process_start": self._process_start,
            "profiled": self.row["profiled"],
            "behind_profiler": self._behind_profiler,
            "unwrapped": self.row.get("unwrapped"),
            "windows": self._captured,
            "skipped": dict(self._discrete.skipped) if self._discrete else {},
            "faults": self.faults,
            "step": self.step if self.step_times.ended else None,
            "step_times": self.step_times.to_dict(),
            "over": self._over,
            "drives": self.drives,
            "environment": environment(),
            **self.trees(device),
        }

    def trees(self, device: DeviceReading = "known") -> TreeEntry:
        """The process's trees and totals, in JSON types; see `snapshot`."""
        whole_life = self._worker is not None or any(
            entry["start"] is None and entry["opened"] for entry in self._captured
        )
        return self.left_out.entry(device, whole_life, self.totals.entry())

    def _make_hooks(self) -> tuple[Any, Hooks] | None:
        """The backend, and the hooks of the backend and the plugins.

        ``None`` if one cannot be loaded, which counts as a fault of the backend.
        """
        from gpuprof._config.structure import structure
        from gpuprof.backend import loading
        from gpuprof.backend.boundary import PLUGINS

        row = self.row
        try:
            backend = loading.load_backend(row["backend"], "backend")
            plugins = [(name, loading.load(name, "plugins", PLUGINS)) for name in row["plugins"]]
            values = row.get("plugin_options", {})
            options = {
                name: structure(values[name], plugin.Options)
                for name, plugin in plugins
                if name in values
            }
            return backend, loading.make_hooks(
                backend, structure(row["options"], backend.Options), plugins, options
            )
        except Exception as error:
            self._fault("backend", error)
            return None

    def _open_ranges(self, worker: Worker) -> None:
        """Have this child process open ranges in the report of the worker that started it.

        This works only with a profiler that wraps the worker and follows its process tree, and only
        in the window of the worker's whole life, which a child knows to be open.
        """
        from gpuprof._session.capture import Capture
        from gpuprof.backend import contract

        parts = self._make_hooks()
        if parts is None or contract.capability(parts[0]) != "wraps":
            self._worker = None
            return
        opener = Capture(worker, parts[1], self._fault).range_opener(worker.windows[0])
        # If a backend's ranges need `start_capture` first, only the worker itself has them.
        set_range_opener(opener, lambda error: None)

    def _prepare(self) -> None:
        from gpuprof._session.capture import Capture
        from gpuprof._session.discrete import DiscreteWindows
        from gpuprof.backend import contract

        row = self.row
        parts = self._make_hooks()
        if parts is None:
            return
        backend, hooks = parts
        worker = attrs.evolve(worker_of(row), pid=str(self.pid))
        self._in_thread = contract.starts_in_thread(backend)
        if self._in_thread and not worker.lifetime:
            self.refuses_orders = (
                f"{row['backend']} records the thread that opens its window; mark the steps in the "
                "worker, with gpuprof.step"
            )
        self.windows.planned.add(worker.windows)
        capture_windows = Windows(note=self._note_window) if worker.discrete else self.windows
        self._capture = Capture(worker, hooks, self._fault, capture_windows)
        if worker.discrete:
            self._discrete = DiscreteWindows(
                self._capture,
                self.windows,
                lambda task: self._with_profiler(task, CLOSE_DEADLINE),
                tuple(row["discrete_labels"]),
                row["max_windows"],
                self._spent,
            )

    def _arm(self, orders: str) -> None:
        from gpuprof._session.armed import ArmedWindows

        row = self.row
        self._armed = ArmedWindows(
            orders,
            None if self._capture is None else (row["group"], row["rank"]),
            row.get("continuous", False),
            self.windows.planned,
            self.left_out.expect,
        )

    @property
    def _profiler_is_silent(self) -> bool:
        """Whether the control thread still waits for a profiler on which the job has given up."""
        return self._silent is not None and not self._silent.done()

    def _with_profiler(self, task: Callable[[], str | None], deadline: float) -> str | None:
        """Call the profiler on the control thread, or on this thread if it records its caller's."""
        if not self._in_thread:
            return self._on_control(task, deadline)
        try:
            with self._control.paused(deadline):
                return task()
        except Exception as error:
            return f"{self.name}: {type(error).__name__}: {error}"

    def _on_control(self, task: Callable[[], str | None], deadline: float) -> str | None:
        waits = not self._profiler_is_silent
        future = self._control.submit(task)
        if not waits or not answered(future, deadline, self._scratch):
            self._silent = self._silent if not waits else future
            self.note(_SILENT)
            return f"{self.name}: {_SILENT}"
        try:
            problem: str | None = future.result()
        # the job's step waits here: our faults must not end it
        except Exception as error:
            return f"{self.name}: {type(error).__name__}: {error}"
        return problem

    @functools.cached_property
    def _scratch(self) -> str:
        return "" if self.child else scratch_of(self.row)

    def _refuse(self, number: int, reason: str) -> str:
        window = self.windows.planned.numbered(number)
        if window is not None:
            self.windows.refuse(window, reason)
        return reason

    def _do_open(self, number: int, expiry: float) -> str | None:
        capture, windows = self._capture, self.windows
        if capture is None or capture.faulted:
            reason = "; ".join(self.faults) or self.row.get("unwrapped")
            return self._refuse(number, reason) if reason else None
        window = windows.planned.numbered(number)
        if window is None:
            return f"{self.name}: unknown window {number}"
        if not windows.can_open(number):
            if windows.state(number) in ("closed", "failed"):
                self.note("a step number that comes again is captured the first time only")
            return windows.problem(number)
        if time.time() > expiry:
            return self._refuse(
                number,
                f"window {window.label} is not opened: it was asked for too late, or the clocks "
                "of the nodes differ",
            )
        spent = self._spent()
        if spent:
            self._refuse(number, spent)
            log().warning("%s: window %s is not opened: %s", self.name, window.label, spent)
            return self._write()
        if self._discrete is not None:
            self._discrete.arm(window)
            return None
        problem = capture.start(window)
        # Written now: a killed process should leave a record of its open window.
        return problem or self._write()

    def _spent(self) -> str | None:
        """Why no further window opens, if the run's files on this node have used up `max_bytes`.

        Otherwise ``None``.
        """
        budget = self.row.get("max_bytes")
        if budget is None:
            return None
        size = used_bytes(directory(self.row))
        return (
            f"max_bytes: {size} of {budget} bytes are used on this node" if size >= budget else None
        )

    def _do_close(self, number: int) -> str | None:
        capture = self._capture
        if capture is None:
            return None
        if self._discrete is not None:
            self._discrete.disarm(number)
        problem = capture.stop(number) if self._discrete is None else None
        if number == len(capture.worker.windows) and not capture.worker.lifetime:
            self.finish()
        return self._write() or problem

    def _fault(self, name: str, error: BaseException) -> str:
        """Switch a plugin off, with one warning.

        A fault of the backend ends capturing in this worker.
        """
        message = f"{name}: {type(error).__name__}: {error}"
        if message not in self.faults:
            self.faults.append(message)
            log().warning(
                "%s: profiling is switched off here, the job goes on: %s", self.name, message
            )
        return message

    def _chore(self) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + FILE_INTERVAL
            self._write()
        if self._armed is not None:
            self._armed.look(self.step)
        if self.ledger is not None:
            self.ledger.drain()

    def _write(self, device: DeviceReading = "known") -> str | None:
        """Write the session's file, and return what went wrong the first time that it does.

        The file is written even if nothing has ended since the last write: the tree's own duration
        has grown. A full or vanished disk must not disturb the job, so it causes one warning.
        """
        if self.child and not self.timing and self.totals.entry() is None:
            return None
        try:
            own_directory(self.row)
            write_json(self.file, self.snapshot(device))
        except Exception as error:
            reason = (
                error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            )
            message = f"{self.file} cannot be written: {reason}"
            if message not in self.faults:
                self.faults.append(message)
                log().warning("%s: %s", self.name, message)
                return message
        return None


def _behind_profiler(row: Row) -> bool:
    """Whether the worker of this row is recorded for its whole life.

    Args:
        row: the row as a child process inherits it from its worker.
    """
    is_wrapped = row.get("role") == "owner" and row["profiled"] and not row.get("unwrapped")
    return is_wrapped and worker_of(row).lifetime


def _finish_command(row: Row, name: str, pid: int) -> FinishCommand | None:
    command = row.get("finish_command")
    if command is None:
        return None
    from gpuprof._session.finish_command import FinishCommand

    variables = {
        "GROUP": row["group"],
        "RANK": str(row["rank"]),
        "PID": str(pid),
        "RUN": row["run"],
    }
    return FinishCommand(command, name, directory(row), variables)


def _identify(row: Row) -> Row:
    """Decide whether this process is the worker, or a child that inherited its environment."""
    row = row.copy()
    if "role" not in row:
        incarnation = claim(row, os.getpid())
        row["role"] = "child" if incarnation is None else "owner"
        row["node"] = node_name(row)
        if incarnation is not None:
            row["incarnation"] = incarnation
        row["profiled"] = row["profiled"] and selected(row.get("nodes", ["all"]))
    elif row["role"] == "owner" and _target_of(row) != os.getpid():
        row["role"] = "child"
    if row["role"] == "child":
        row["node"] = node_name(row)
        row.pop("incarnation", None)
        if "tasks" in row and os.path.basename(sys.argv[0]) == _RAY_WORKER:
            row["group"], row["rank"] = row["tasks"], 0
    return row


def _target_of(row: Row) -> int:
    """The worker's process id: as the shim noted it, or else that of the first process to ask."""
    path = started_file(row, row["incarnation"])
    try:
        with open(path, "x") as file, open("/proc/self/stat") as stat:
            file.write(stat.read())
    except FileExistsError:
        pass
    target = started_process(path)
    return target[0] if target else 0


def worker_of(row: Row) -> Worker:
    """The `Worker` that a row describes, as hooks in the worker's process get it."""
    return Worker(
        row["run"],
        row["group"],
        row["rank"],
        row["node"],
        row["incarnation"],
        directory(row),
        tuple(Window(*window) for window in row["windows"]),
        row["has_gpu"],
        row["discrete"],
        row["file_name"],
    )
