"""Opens and closes the workers' windows when steps begin and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import ray

from gpuprof._config.selection import Integers
from gpuprof._log import log
from gpuprof._session.left_out import LeftOut
from gpuprof._session.orders import Order, Watch, announce
from gpuprof._session.session import CLOSE_DEADLINE, OPEN_DEADLINE
from gpuprof._session.windows import StepWindows, Windows
from gpuprof.backend.types import Window, Worker
from gpuprof.ray import _channel
from gpuprof.ray._listener import start_session
from gpuprof.ray._nodes import is_starting
from gpuprof.ray._steps import Steps
from gpuprof.ray._wire import Address, Measurement

_STEP_DEADLINE = 5.0
"""Seconds to wait for workers to acknowledge a step. A worker that is later than that puts a little
of the step's time into the wrong tree."""
_FLUSH_DEADLINE = 10.0
"""Seconds for workers to write what they have recorded."""
_START_DEADLINE = 120.0
"""The most seconds that a step waits for a worker that Ray is still starting. Without gpuprof, the
first call of that worker would wait as well. Once the worker runs, `OPEN_DEADLINE` applies."""
_CONNECT_DEADLINE = 10.0
"""Seconds for which the driver waits at the end for a new worker to connect, before it closes that
worker's whole-life window. A worker that is busy for longer closes the window itself when it
ends."""


class WindowControl:
    """Tells workers to open and close their windows, and keeps a copy of each worker's record.

    All requests have a timeout. A worker that fails or does not answer never causes an exception.

    Args:
        on_clock: called with each measurement of a worker's clock; see `Channel`. Until the first
            worker with windows is added, the connections serve only these measurements.
        in_thread: whether the backend records the thread that begins a step.

    Attributes:
        edges: seconds spent opening and closing windows since the last reset.
    """

    def __init__(
        self,
        steps: Steps,
        left_out: LeftOut,
        on_clock: Callable[[Measurement], object] | None = None,
        in_thread: bool = False,
    ) -> None:
        self._in_thread = in_thread
        self.channel = _channel.Channel(ray.util.get_node_ip_address(), on_clock)
        self.channel.keeps_all = False
        self._steps = steps
        self._left_out = left_out
        self.edges = 0.0
        self._handles: dict[str, Any] = {}
        self._windows: dict[str, Windows] = {}
        # the highest step that had begun when a worker was added
        self._added_after: dict[str, float] = {}
        # the window that each worker was asked to open and not yet asked to close; also if it
        # failed, since whatever was begun must be ended
        self._held: dict[str, Window] = {}
        # there are many workers and few plans, so each step looks at each plan once
        self._plans: dict[tuple[Window, ...], tuple[StepWindows, list[str]]] = {}

    def add(self, name: str, handle: Any, windows: tuple[Window, ...]) -> None:
        """Register a worker, and start its session.

        Adding a name again replaces the handle of a worker that has died.

        Args:
            handle: the actor's handle; ``None`` if the worker starts its session and connects by
                itself.
        """
        if not self.channel.keeps_all:  # from now on steps are announced to all workers
            self.channel.keeps_all = True
            for other, earlier in list(self._handles.items()):
                self.listen(other, earlier)
        if name not in self._windows:
            self._windows[name] = Windows(windows)
            self._group([name])
        self._added_after[name] = self._steps.highest
        self._held.pop(name, None)
        if windows and windows[0].start is None:  # the session opens it when it starts
            self._ask(name, windows[0])
        if handle is not None:
            self.listen(name, handle)

    def listen(self, name: str, handle: Any) -> None:
        """Announce steps to a worker from now on, and start its session.

        The given handle replaces an earlier one of the same worker.
        """
        self._handles[name] = handle
        _ignore(self._start_session(name))

    def listen_to_all(self) -> Address:
        """Keep the connections of all workers, and return the address on which to connect."""
        self.channel.keeps_all = True
        return self.channel.address

    def flush(self, last: bool = False) -> None:
        """Have the connected workers write what they have recorded; see `Channel.flush`."""
        self.channel.flush(last, _FLUSH_DEADLINE)

    def planned(self, name: str) -> tuple[Window, ...]:
        """The planned windows of a worker."""
        return self._windows[name].planned.all

    @property
    def opened(self) -> dict[str, set[int]]:
        """The numbers of the windows that each worker has opened, by its name."""
        return {
            name: {entry["number"] for entry in windows.entries if entry["opened"]}
            for name, windows in self._windows.items()
        }

    def replan(self, plans: Mapping[str, StepWindows]) -> None:
        """Replace the planned windows of some workers."""
        for name, windows in plans.items():
            self._windows[name].planned = windows
        self._plans = {}
        self._group(self._windows)

    def begin_step(self, number: int) -> list[str]:
        """Open the windows that contain step `number`. Returns what went wrong.

        First closes earlier windows that are still open: step numbers may skip, so the last step of
        a window may never have run.
        """
        problems = self.end_step(number - 1)
        windows = {
            name: window
            for plan, names in self._plans.values()
            if (window := plan.at(number)) is not None
            for name in names
            if self._held.get(name) != window or not self._is_refused(name, window)
        }
        if not windows and not self._left_out.active:  # as in nearly every step
            return problems
        self._tell_step(number)
        to_open = {
            name: window for name, window in windows.items() if self._held.get(name) != window
        }
        for name, window in to_open.items():
            self._ask(name, window)
        problems += _sentences(self._tell("open", to_open, OPEN_DEADLINE))
        if windows and all(map(self._is_refused, windows, windows.values())):
            self._left_out.withdraw()
            if not self._left_out.active:
                self.channel.tell_step(False, _STEP_DEADLINE, withdrawn=True)
        return problems

    def _is_refused(self, name: str, window: Window) -> bool:
        return self._windows[name].state(window.number) == "refused"

    def _ask(self, name: str, window: Window) -> None:
        self._held[name] = window
        self._windows[name].ask(window)

    def _tell_step(self, number: int) -> None:
        """Tell every worker whether to leave this step out of its tree.

        Also starts the session of each unconnected worker, such as a restarted one, so that the
        worker takes part from the next step on.
        """
        left_out = self._left_out
        before = left_out.active
        if not before:
            for name in self._handles.keys() - self.channel.connected():
                _ignore(self._start_session(name))
        if left_out.begin_step(number):
            changes = left_out.active != before
            self.channel.tell_step(left_out.active, _STEP_DEADLINE if changes else 0.0)

    def missing(self) -> dict[tuple[str, str], str]:
        """Why planned windows did not open, by the worker's name and the window's label."""
        errors = {
            (name, entry["label"]): entry["error"]
            for name, windows in self._windows.items()
            for entry in windows.entries
            if entry["error"]
        }
        return errors | self.skipped()

    def skipped(self) -> dict[tuple[str, str], str]:
        """Like `missing`, for the windows that workers were never asked to open."""
        return {
            (name, window.label): self._why_skipped(self._added_after[name], window)
            for name, windows in self._windows.items()
            for window in windows.planned.all
            if windows.state(window.number) == "planned"
        }

    def _why_skipped(self, added_after: float, window: Window) -> str:
        if self._steps.lowest > self._steps.highest:
            how = "`profiler.step`, or set step_at"
            if self._in_thread:
                how = "gpuprof.step in the worker: the backend records the thread that begins it"
            return f"no step was begun; mark it with {how}"
        if window.start is not None and window.start <= added_after:
            return f"the worker was added when step {added_after} had begun"
        return (
            f"none of its steps ran; the run's were {self._steps.lowest} to {self._steps.highest}"
        )

    @property
    def any_open(self) -> bool:
        """Whether a window of any worker is open."""
        return any(
            self._windows[name].is_open(window.number) for name, window in self._held.items()
        )

    def end_step(self, number: int) -> list[str]:
        """Close the windows whose last step was `number`. Returns what went wrong."""
        if not self._held:
            return []
        return self._close(
            {
                name: window
                for name, window in self._held.items()
                if window.stop is not None and number + 1 >= window.stop
            }
        )

    def close_all(self) -> list[str]:
        """Close all open windows. Returns what went wrong."""
        lifetimes = {name: window for name, window in self._held.items() if window.start is None}
        # a worker that was added only just now may not be connected yet
        self._tell("open", lifetimes, _CONNECT_DEADLINE)
        return self._close(self._held.copy())

    def end(self) -> None:
        """Close the connections to the workers, and drop their handles."""
        self.channel.close()
        self._handles.clear()

    def _group(self, names: Iterable[str]) -> None:
        """Put workers with the same windows together."""
        for name in names:
            windows = self._windows[name]
            all_windows = windows.planned.all
            if all_windows not in self._plans:
                self._plans[all_windows] = (windows.planned, [])
                self._left_out.expect(Integers.merged(windows.planned.ranges).ranges)
            windows.planned, members = self._plans[all_windows]
            members.append(name)

    def _close(self, windows: dict[str, Window]) -> list[str]:
        # If opening the window failed, do not also report the failure to close it.
        reported_names = {
            name for name, window in windows.items() if self._windows[name].problem(window.number)
        }
        for name in windows:
            del self._held[name]
        problems = self._tell("close", windows, CLOSE_DEADLINE)
        return _sentences(
            {
                name: problem
                for name, problem in problems.items()
                if name not in reported_names
                # a worker that has ended has closed its whole-life window itself
                and not (windows[name].start is None and problem == _channel.ENDED)
            }
        )

    def _tell(
        self, kind: Literal["open", "close"], windows: dict[str, Window], deadline: float
    ) -> dict[str, str]:
        """Send workers a request. Returns what went wrong, by the worker's name."""
        if not windows:
            return {}
        began = time.monotonic()
        until = began + deadline
        silent = set(windows) - self.channel.connected() if kind == "open" else ()
        request = self.channel.post(kind, windows, deadline)
        # these workers have not started their sessions yet, or were restarted
        starting = {self._start_session(name): name for name in silent if name in self._handles}
        for name in self.channel.disconnected.keys() & set(silent) - self._handles.keys():
            request.answer(name, _channel.ENDED)
        while not request.wait(0.2 if starting else max(0.0, until - time.monotonic())):
            if time.monotonic() >= until:
                if time.monotonic() >= began + _START_DEADLINE or not any(
                    is_starting(self._handles[name]) for name in starting.values()
                ):
                    break
                until += deadline
                request.expiry += deadline
            for reference in (
                ray.wait(list(starting), num_returns=len(starting), timeout=0)[0]
                if starting
                else []
            ):
                _answer_for_the_dead(request, reference, starting.pop(reference))
        self.channel.forget(request)
        self.edges += time.monotonic() - began
        answers, problems = dict(request.answers), {}
        for name, window in sorted(windows.items()):
            late = f"did not {kind} its window {window.label} within {deadline:.0f} s"
            problem, entry = answers.get(name, (late, None))
            if entry is not None:
                self._windows[name].take(window, entry)
            if problem:
                self._windows[name].fail(window, problem)
                problems[name] = problem
        return problems

    def _start_session(self, name: str) -> Any:
        return self._handles[name].__ray_call__.remote(start_session, self.channel.address)


def _ignore(reference: Any) -> None:
    """Ignore a call's result. Otherwise Ray would print an unhandled failure of the call."""
    reference.future().add_done_callback(lambda future: future.cancelled() or future.exception())


def _sentences(problems: Mapping[str, str]) -> list[str]:
    return [f"{name}: {problem}" for name, problem in problems.items()]


def _answer_for_the_dead(request: _channel.Request, reference: Any, name: str) -> None:
    """Answer on behalf of a worker that cannot connect and so will never answer itself."""
    try:
        session = ray.get(reference)
    except Exception as error:
        request.answer(name, f"the worker cannot be reached: {type(error).__name__}")
    else:
        if session != name:
            request.answer(name, "the process is not the planned worker")


class Firing:
    """Turns orders into windows of the armed workers."""

    def __init__(self, path: str, control: WindowControl) -> None:
        self._watch = Watch(path)
        self._control = control
        self._armed: dict[str, tuple[Worker, bool]] = {}

    def add(self, worker: Worker, continuous: bool) -> None:
        """Register an armed worker.

        Args:
            continuous: whether adjacent steps of an order share one window.
        """
        self._armed.setdefault(worker.name, (worker, continuous))

    def begin_step(self, number: int) -> None:
        """Plan the windows of the orders that have come. Without orders this costs nothing."""
        while self._watch.waiting:
            self._fire(self._watch.waiting.popleft(), number)

    def end(self) -> None:
        """Stop polling for orders."""
        self._watch.end()

    def faults(self) -> list[str]:
        """A sentence for each ordered window that never opened, with the workers' names."""
        workers: dict[tuple[str, str], list[str]] = {}
        for (name, label), why in self._control.skipped().items():
            if name in self._armed:
                workers.setdefault((label, why), []).append(name)
        return [
            f"gpuprof capture: {label} on {', '.join(names)}: {why}"
            for (label, why), names in workers.items()
        ]

    def _fire(self, order: Order, number: int) -> None:
        plans, workers = {}, dict[tuple[Window, ...], list[str]]()
        for name, (worker, continuous) in self._armed.items():
            if order.selects(worker.group, worker.rank):
                plans[name] = StepWindows(self._control.planned(name))
                windows = order.add_to(plans[name], number, continuous)
                workers.setdefault(windows, []).append(name)
        self._control.replan(plans)
        if not workers:
            log().warning(
                "gpuprof capture: an order's groups and ranks match none of %s",
                ", ".join(self._armed),
            )
        for windows, names in workers.items():
            announce(windows, ", ".join(names), number, number)
