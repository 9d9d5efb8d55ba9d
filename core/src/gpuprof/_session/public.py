"""The functions of gpuprof that code inside a worker calls.

They work in every process. Without a configuration they only keep the timing tree.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from gpuprof_timing import Timing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuprof_timing.instrument import Arguments, Key, Scope

    from gpuprof._session.ledger import LedgerWriter
    from gpuprof._session.metrics import StepMetrics
    from gpuprof._session.samples import Phase
    from gpuprof._session.session import Session
    from gpuprof.backend.types import Window

# as in _shim/row.py, which is not imported where there is nothing to configure
VARIABLE = "GPUPROF_WORKER"

_timing = Timing(f"Process {os.getpid()} profile")
_session: Session | None = None
_started = False
_starting = False
_lock = threading.RLock()
_NOT_PROFILED = nullcontext()
_library_steps: LibrarySteps | None = None
"""Marks the steps that a library counts, as long as the job marks none itself."""
_driver_step: Callable[..., AbstractContextManager[object]] | None = None
"""Makes a step of the run, if this process is its driver. The driver announces its steps to the
workers."""
_driver_ledger: LedgerWriter | None = None
"""The ledger of a driver, which has no session."""
_metrics: StepMetrics | None = None
"""The metrics of this process's steps, or of its run's if it is the driver."""
_BARRIERS = 4
"""The number of barriers in `sync_mark`. The first one lets all processes arrive; the fastest one
counts."""

Function = TypeVar("Function", bound="Callable[..., Any]")


def timing() -> Timing:
    """The tree of this process.

    >>> with timing().add_time("load"):
    ...     pass
    >>> timing()["load"] >= 0.0
    True
    """
    if not _started:
        session()
    return _timing


class NoPhase(AbstractContextManager["NoPhase"]):
    """A phase in a process that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> NoPhase:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, **values: float) -> None:
        """Do nothing."""


_NO_PHASE = NoPhase()


class timer(AbstractContextManager["timer"]):
    """A node in the process's tree and a range in the profiler's timeline.

    Decorator of functions and coroutines, or `with`.

    Args:
        name: the key in the tree and the name of the range, verbatim.
        waits_for: what the scope waits for, without working itself: a worker group, ``barrier`` for
            all other ranks of its own group, ``data`` from outside, ``*`` for an unknown worker.
        key: a text, bytes, or a tuple of several, that both sides of the wait know; or a function
            that returns it. See `gpuprof.Timing.add_time`.

    >>> @timer("actor/run_training")
    ... def run_training():
    ...     return 3
    >>> run_training()
    3
    >>> timing()["actor/run_training"] > 0.0
    True
    """

    def __init__(self, name: str, *, waits_for: str | None = None, key: Key | None = None) -> None:
        self._name = name
        self._waits_for = waits_for
        self._key = key

    def __enter__(self) -> timer:
        self._scope = timing().add_time(self._name, None, self._waits_for, self._key)
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)

    def __call__(self, function: Function) -> Function:
        """Time every call of `function`."""
        # Looks up the tree at each call: a decorated function can be pickled to other processes.
        from gpuprof_timing.instrument import decorate, key_of_call

        name, waits_for, key = self._name, self._waits_for, self._key

        def make(crosses_tasks: bool, arguments: Arguments) -> Scope:
            return timing().add_time(name, None, waits_for, key_of_call(key, arguments))

        return decorate(function, make)


def session() -> Session | None:
    """The session of this process; the first call starts it.

    ``None`` in a process without a plan, or where the session cannot start.
    """
    global _session, _started, _starting, _library_steps, _metrics
    if _started:
        return _session
    with _lock:  # the driver and the job may both make the first call, on different threads
        if not _starting:  # starting a session may call this again
            _starting = True
            _session = _start()
            _started = True
            if _session is not None:
                _metrics = _metrics or _session.metrics
                if _session.row.get("step_at"):
                    from gpuprof._session import step_at

                    step_at.start_session = session
                    _session.begin(int, _mark_step)
                elif _session.row.get("library_steps"):
                    _library_steps = LibrarySteps(_session)
                    _session.begin(_library_steps.next)
                else:
                    _session.begin(int)
    return _session


def _start() -> Session | None:
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    try:
        from gpuprof_timing.recording import at_interpreter_end

        from gpuprof._session.session import Session
        from gpuprof._shim.row import LEFT_OUT, decode

        row = decode(value)
        if row.get("role") == LEFT_OUT:
            return None
        if "rank_variable" in row:
            row["rank"] = int(os.environ[row["rank_variable"]])
        own_session = Session(row, _timing)
    except Exception as error:
        from gpuprof._log import log

        what = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        log().warning("process %d runs without gpuprof: %s", os.getpid(), what)
        return None
    at_interpreter_end(_end)
    return own_session


def step(number: int, /, **attributes: float) -> AbstractContextManager[object]:
    """Mark a global step, in a process that counts steps.

    That is a rank of an SPMD program, a worker with steps of its own, or the driver of a Ray job
    that `gpuprof run` has started. Opens the windows that begin with the step and closes those that
    end with it. If the driver has opened the window already, the step joins it. Outside windows it
    only measures the step's time. Does nothing if the key ``step_at`` says what a step is.

    Args:
        number: the step's number.
        attributes: numbers for this process's part of the step, under any names, such as
            ``frames=512``. They are added up over all steps, and shown with their rate below the
            timing tree. ``buffer``, the number of waiting samples, is averaged instead. ``flops``
            and ``peak_flops``, the most that the process's devices can do in a second, give the
            MFU.

    >>> with step(3, frames=512):
    ...     pass
    """
    this_session = _session if _started else session()
    if this_session is None:
        return _NOT_PROFILED
    if _library_steps is not None:
        forget_library_steps()
    if this_session.row.get("step_at"):
        return _NOT_PROFILED
    if _driver_step is not None:
        return _driver_step(number, **attributes)
    return own_step(this_session, number, **attributes)


def own_step(
    this_session: Session, number: int, /, **attributes: float
) -> AbstractContextManager[object]:
    """A step of this process, as `step` marks it."""
    context = _step(this_session, number)
    if not attributes:
        return context
    if not isinstance(number, int):
        return this_session.totals.step(context, attributes)
    keep = partial(_keep_attributes, this_session.ledger, number)
    return this_session.totals.step(context, attributes, keep)


def step_metrics() -> dict[str, float | str]:
    """What is known about the last step, for the job's own tracker.

    On Ray, call it in the driver, and elsewhere in one rank. The keys begin with ``gpuprof/``. The
    duration and the rates are those of the last step of this process. Figures from the ledgers are
    about all processes, a few seconds old, and begin with the second call; ``recorded_step`` is
    their step. docs/while-it-runs.md describes all keys. Empty where nothing is recorded.

    >>> for number in range(3):
    ...     with step(number):
    ...         pass
    ...     metrics = step_metrics()  # for the tracker, such as wandb.log(metrics)
    """
    if not _started:
        session()
    if _metrics is None:
        return {}
    _metrics.begin()
    return {f"gpuprof/{name}": value for name, value in _metrics.latest().items()}


def sample(sample: str | int, /, phase: str = "generate") -> Phase | NoPhase:
    """A phase in the life of a sample, such as one rollout of a prompt.

    Use it in whichever process, thread or task works on the sample, across ``await`` as well. The
    first phase of an id begins the sample, and its last one ends it. Phases may overlap and nest. A
    process that is not recorded does nothing.

    Args:
        sample: the sample's id, unique in the run. A number and the same number as text, such as 17
            and ``"17"``, are one sample.
        phase: its name. ``queued``, ``generate``, ``tool``, ``reward``, ``buffered`` and
            ``trained`` are known to `gpuprof explain`; other names are shown as they are. A sample
            that is ``queued`` or ``buffered`` stays so until its next phase, in any process.

    Returns:
        A context manager. Its method ``note`` records numbers of this phase under any names, such
        as ``tokens``, ``turns``, ``bytes``, or the weights' ``version``.

    >>> with sample("prompt-17/0", phase="generate") as rollout:
    ...     rollout.note(tokens=512, version=3)
    """
    this_session = _session if _started else session()
    ledger = _driver_ledger if this_session is None else this_session.ledger
    if ledger is None or not ledger.recording:
        return _NO_PHASE
    return ledger.sample(sample, phase)


def _step(this_session: Session, number: int) -> AbstractContextManager[object]:
    inner = _in_windows(this_session, number)
    return _NotedStep(this_session.ledger, number, inner) if isinstance(number, int) else inner


def _keep_attributes(
    ledger: LedgerWriter | None, number: int, attributes: Mapping[str, float]
) -> None:
    if ledger is not None:
        ledger.attributes(number, attributes)
    if _metrics is not None:
        _metrics.attributes(number, attributes)


def mark_with(driver_step: Callable[..., AbstractContextManager[object]]) -> None:
    """Make the steps that this process marks steps of the run, which it drives.

    Args:
        driver_step: takes what `step` takes.
    """
    global _driver_step
    _driver_step = driver_step


def record_with(ledger: LedgerWriter) -> None:
    """Record the samples of this process, which is the run's driver, in the driver's ledger."""
    global _driver_ledger
    _driver_ledger = ledger


def measure_with(metrics: StepMetrics) -> None:
    """Make the metrics of this process, which is the run's driver, those of the driver's steps."""
    global _metrics
    _metrics = metrics


def _mark_step(number: int) -> AbstractContextManager[object]:
    if _driver_step is not None:
        return _driver_step(number)
    this_session = session()
    return _NOT_PROFILED if this_session is None else own_step(this_session, number)


class LibrarySteps:
    """Marks the steps that a library counts: each lasts from the end of the step before to its own.

    Step 0 is not marked: its beginning is unknown, because the library only announces ends.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._number = 0
        self._step: AbstractContextManager[object] = _NOT_PROFILED

    def next(self) -> None:
        """End the current step, and begin the next one."""
        if _library_steps is self:
            self.end()
            if not self._number and self._session.ledger is not None:
                self._session.ledger.event("library steps")
            self._number += 1
            self._step = _step(self._session, self._number)
            self._step.__enter__()

    def end(self) -> None:
        """End the current step."""
        step, self._step = self._step, _NOT_PROFILED
        step.__exit__(None, None, None)


def forget_library_steps() -> None:
    """Stop marking the steps that a library counts: the job or its driver marks steps itself."""
    global _library_steps
    steps, _library_steps = _library_steps, None
    if steps is not None:
        steps.end()


def sync_mark(barrier: Callable[[], object]) -> None:
    """Compare the clocks of all processes of a job without a driver, by passing some barriers.

    Nobody leaves a barrier before all have entered it. So the ledgers of several nodes can be put
    on one time line, with an error of at most about the time that the fastest barrier takes. Call
    it in all processes, once at the beginning, and again every few minutes because clocks drift. On
    Ray the driver compares the clocks by itself.

    Args:
        barrier: waits for all processes, as ``torch.distributed.barrier`` does. It is called four
            times, also in a process that writes no ledger.

    >>> sync_mark(lambda: None)
    """
    this_session = session()
    ledger = this_session.ledger if this_session is not None else None
    for _ in range(_BARRIERS):
        start = time.perf_counter_ns()
        barrier()
        end = time.perf_counter_ns()
        if ledger is not None:
            ledger.event("sync", entered=start, left=end)


def _in_windows(this_session: Session, number: int) -> AbstractContextManager[object]:
    """The part of a step that opens and closes windows, or measures a step outside windows."""
    left_out = this_session.left_out
    try:
        # steps need not go up by one
        if this_session.held is not None and number not in this_session.held:
            this_session.step_times.edges += _close_held(this_session)
        if not left_out.active and left_out.captured.at(number) is None:  # as in nearly every step
            this_session.step = number
            return this_session.outside
        window = this_session.windows.planned.at(number)
        left_out.begin_step(number)
    except TypeError:  # not a number
        this_session.note(
            f"gpuprof.step expects an integer; a step of type {type(number).__name__} is in no "
            "window"
        )
        return _NOT_PROFILED
    this_session.step = number
    if window is not None:
        return _Step(this_session, window, number)
    return _NOT_PROFILED if left_out.active else this_session.outside


class _NotedStep(AbstractContextManager[None]):
    """A step whose beginning and end are noted in the ledger, if there is one, and its duration."""

    __slots__ = ("_inner", "_ledger", "_number", "_started")

    def __init__(
        self, ledger: LedgerWriter | None, number: int, inner: AbstractContextManager[object]
    ) -> None:
        self._ledger = ledger
        self._number = number
        self._inner = inner

    def __enter__(self) -> None:
        if self._ledger is not None:
            self._ledger.begin_step(self._number)
        self._inner.__enter__()
        self._started = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is None and _metrics is not None:
            _metrics.step(self._number, time.perf_counter() - self._started)
        try:
            self._inner.__exit__(kind, *rest)
        finally:
            if self._ledger is not None:
                self._ledger.end_step(self._number)


class _Step(AbstractContextManager[None]):
    def __init__(self, session: Session, window: Window, number: int) -> None:
        self._session = session
        self._window = window
        self._number = number

    def __enter__(self) -> None:
        session, windows, window = self._session, self._session.windows, self._window
        self._outer = session.running
        session.running = self._number
        began = time.perf_counter()
        if not windows.is_open(window.number):
            session.held = window
            windows.ask(window)
            _heed(session, session.open(window.number))
        self._inside = windows.is_open(window.number)  # it may have been refused, or have failed
        self._started = time.perf_counter()
        self._edges = self._started - began

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        seconds = time.perf_counter() - self._started
        session = self._session
        session.step_times.ended = True  # before the window's end writes the session's file
        session.running = self._outer
        if self._outer == self._number:
            return  # a step inside itself: a framework and the user's code both mark it
        if self._window.stop == self._number + 1 and session.held is not None:
            self._edges += _close_held(session)
        # discrete windows open and close within the step
        if kind is None and not session.row["discrete"]:
            session.step_times.add(seconds, "captured" if self._inside else "left out", self._edges)


def _close_held(session: Session) -> float:
    """Close the window that a step has asked for. Returns the seconds that closing took."""
    began = time.perf_counter()
    window, session.held = session.held, None
    if window is not None:
        _heed(session, session.close(window.number))
    return time.perf_counter() - began


def _heed(session: Session, problem: str | None) -> None:
    if problem and session.row.get("on_error") == "raise":
        from gpuprof.errors import GpuprofError

        raise GpuprofError(problem)


def _end() -> None:
    if _session is not None and not _session.ended:
        from gpuprof._session.patience import unhurried  # the session has imported it

        with unhurried():
            _session.end()


def _forget() -> None:
    """Reset a forked child, which has no control thread and is not the worker.

    If the child uses gpuprof, it starts its own session.
    """
    global _session, _started, _starting, _lock, _timing, _library_steps, _driver_step
    global _driver_ledger, _metrics
    if _session is not None:
        from gpuprof_timing import set_range_opener

        set_range_opener(None)
        atexit.unregister(_end)
    _session, _started, _starting, _library_steps, _driver_step = None, False, False, None, None
    _driver_ledger = _metrics = None
    _lock = threading.RLock()  # another thread may have held it
    _timing = Timing(f"Process {os.getpid()} profile")


os.register_at_fork(after_in_child=_forget)
