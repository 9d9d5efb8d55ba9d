"""Which windows are open on which workers, and opening and closing them at the edges of steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import attrs
import ray

from gpuprof._log import log
from gpuprof._session.orders import Order, Watch
from gpuprof._session.session import CLOSE_DEADLINE, OPEN_DEADLINE
from gpuprof._session.windows import StepWindows
from gpuprof.backend.types import Window, Windows, Worker
from gpuprof.ray import _channel
from gpuprof.ray._listener import start_session
from gpuprof.ray._steps import Steps


class WindowControl:
    """The windows of all workers of a run.

    Times out, and never raises for what a worker does or does not do.

    Args:
        steps: those that the run has had.

    Attributes:
        opened: the numbers of the windows that each worker has said to be open, by its name.
    """

    def __init__(self, steps: Steps) -> None:
        self._channel = _channel.Channel(ray.util.get_node_ip_address())
        self._handles: dict[str, Any] = {}
        self._plans: dict[Windows, tuple[StepWindows, list[str]]] = {}  # many workers, few plans
        # as they were told, also where it failed: what was begun is ended
        self._open: dict[str, Window] = {}
        self._capturing: set[str] = set()
        self.opened: dict[str, set[int]] = {}
        self._told: set[tuple[str, int]] = set()
        self._failed: dict[tuple[str, str], str] = {}
        self._steps = steps
        self._highest_before: dict[str, float] = {}  # each worker was added

    def add(self, name: str, handle: Any, windows: Windows) -> None:
        """Make a worker known and have it connect, when it comes to that.

        It may take the place of one that has died.
        """
        if name not in self._handles:
            self._plan(name, windows)
        self._handles[name] = handle
        self._highest_before[name] = self._steps.highest
        self._open.pop(name, None)
        self._capturing.discard(name)
        self._start_session(name)

    def replan(self, windows: Mapping[str, Windows]) -> None:
        """Give some workers other windows."""
        kept = [
            (name, planned)
            for planned, (_, names) in self._plans.items()
            for name in names
            if name not in windows
        ]
        self._plans = {}
        for name, planned in [*kept, *windows.items()]:
            self._plan(name, planned)

    def begin_step(self, number: int) -> list[str]:
        """Open the windows that `number` lies in and that are not open. Returns what went wrong.

        Those that lie before it are closed first: where steps do not go up by one, none of them was
        the last one of its window.
        """
        problems = self.end_step(number - 1)
        to_open: dict[str, Window] = {}
        for windows, names in self._plans.values():
            window = windows.at(number)
            if window is not None:
                to_open.update((name, window) for name in names if self._open.get(name) != window)
        if not to_open:  # as in nearly every step
            return problems
        self._open.update(to_open)
        self._told.update((name, window.number) for name, window in to_open.items())
        failed = self._tell("open", to_open, OPEN_DEADLINE)
        self._failed.update(
            {(name, to_open[name].label): problem for name, problem in failed.items()}
        )
        return problems + _sentences(failed)

    def unopened(self) -> dict[tuple[str, str], str]:
        """Why windows are not open that should be, by the worker's name and their labels."""
        return self._failed | self.untold()

    def untold(self) -> dict[tuple[str, str], str]:
        """The same, of those that the worker was never told to open."""
        return {
            (name, window.label): self._why_untold(name, window)
            for planned, (_, names) in self._plans.items()
            for window in planned
            for name in names
            if (name, window.number) not in self._told
        }

    def _why_untold(self, name: str, window: Window) -> str:
        if self._steps.lowest > self._steps.highest:
            return "no step was begun by profiler.step"
        if window.start is not None and window.start <= self._highest_before[name]:
            return f"the worker was added when step {self._highest_before[name]} had begun"
        return (
            f"none of its steps ran; the run's were {self._steps.lowest} to {self._steps.highest}"
        )

    @property
    def any_open(self) -> bool:
        """Whether any worker has said that its window is open.

        It may have refused to open it, or failed.
        """
        return bool(self._capturing)

    def end_step(self, number: int) -> list[str]:
        """Close the windows whose last step was `number`. Returns what went wrong."""
        if not self._open:
            return []
        return self._close(
            {
                name: window
                for name, window in self._open.items()
                if window.stop is not None and number + 1 >= window.stop
            }
        )

    def close_all(self) -> list[str]:
        """Close what is open. Returns what went wrong."""
        return self._close(dict(self._open))

    def end(self) -> None:
        """Hang up."""
        self._channel.close()

    def _plan(self, name: str, windows: Windows) -> None:
        if windows not in self._plans:
            self._plans[windows] = (StepWindows(windows), [])
        self._plans[windows][1].append(name)

    def _close(self, windows: dict[str, Window]) -> list[str]:
        for name in windows:
            del self._open[name]
            self._capturing.discard(name)
        failed = self._tell("close", windows, CLOSE_DEADLINE)
        # Where opening has failed already, closing is no news.
        return _sentences(
            {
                name: problem
                for name, problem in failed.items()
                if (name, windows[name].label) not in self._failed
            }
        )

    def _tell(self, kind: str, windows: dict[str, Window], deadline: float) -> dict[str, str]:
        """Returns what went wrong, by the worker's name."""
        if not windows:
            return {}
        until = time.monotonic() + deadline
        silent = set(windows) - self._channel.connected() if kind == "open" else ()
        request = self._channel.post(kind, windows, deadline)
        # not started yet, or restarted
        starting = {self._start_session(name): name for name in silent}
        while (
            not request.wait(0.2 if starting else max(0.0, until - time.monotonic()))
            and time.monotonic() < until
        ):
            for reference in (
                ray.wait(list(starting), num_returns=len(starting), timeout=0)[0]
                if starting
                else []
            ):
                _answer_for_the_dead(request, reference, starting.pop(reference))
        self._channel.forget(request)
        answers = dict(request.answers)
        if kind == "open":
            for name in set(request.open):
                self._capturing.add(name)
                self.opened.setdefault(name, set()).add(windows[name].number)
        problems = {name: problem for name, problem in answers.items() if problem}
        late = sorted(set(windows) - set(answers))
        return problems | {
            name: f"did not {kind} its window {windows[name].label} within {deadline:.0f} s"
            for name in late
        }

    def _start_session(self, name: str) -> Any:
        return self._handles[name].__ray_call__.remote(start_session, self._channel.address)


def _sentences(problems: Mapping[str, str]) -> list[str]:
    return [f"{name}: {problem}" for name, problem in problems.items()]


def _answer_for_the_dead(request: _channel.Request, reference: Any, name: str) -> None:
    """A worker that cannot be asked to connect will never answer."""
    try:
        session = ray.get(reference)
    except Exception as error:
        request.answer(name, f"the worker cannot be reached: {type(error).__name__}")
    else:
        if session != name:
            request.answer(name, "the process is not the worker that was planned")


class Firing:
    """Turns orders into windows.

    Args:
        path: the directory of orders.
        control: of the windows.
    """

    def __init__(self, path: str, control: WindowControl) -> None:
        self._watch = Watch(path)
        self._control = control
        self._armed: dict[str, tuple[Worker, bool, StepWindows]] = {}

    def add(self, worker: Worker, continuous: bool) -> None:
        """Make an armed worker known.

        Args:
            continuous: whether the steps of an order are one window.
        """
        self._armed.setdefault(worker.name, (worker, continuous, StepWindows()))

    def begin_step(self, number: int) -> None:
        """Take the orders that have come. Without one it costs a look at an empty list."""
        while self._watch.waiting:
            self._fire(self._watch.waiting.popleft(), number)

    def end(self) -> None:
        """Take no more."""
        self._watch.end()

    def unheard(self) -> list[str]:
        """What to say of the windows that were ordered and never came."""
        workers: dict[tuple[str, str], list[str]] = {}
        for (name, label), why in self._control.untold().items():
            if name in self._armed:
                workers.setdefault((label, why), []).append(name)
        return [
            f"gpuprof capture: {label} on {', '.join(names)}: {why}"
            for (label, why), names in workers.items()
        ]

    def _fire(self, order: Order, number: int) -> None:
        replanned, workers = {}, dict[Windows, list[str]]()
        for name, (worker, continuous, windows) in self._armed.items():
            if order.selects(worker.group, worker.rank):
                before = windows.all
                windows.add(
                    attrs.evolve(window, number=0) for window in order.windows(number, continuous)
                )
                replanned[name] = windows.all
                workers.setdefault(
                    tuple(window for window in windows.all if window not in before), []
                ).append(name)
        self._control.replan(replanned)
        if not workers:
            log().warning(
                "gpuprof capture: an order's groups and ranks are those of none of %s",
                ", ".join(self._armed),
            )
        for ordered, names in workers.items():
            past = [
                window.label
                for window in ordered
                if window.stop is not None and window.stop <= number
            ]
            coming = [window.label for window in ordered if window.label not in past]
            if coming:
                log().info("gpuprof capture: %s on %s", ", ".join(coming), ", ".join(names))
            if past:
                log().warning(
                    "gpuprof capture: %s on %s: too late, step %d begins",
                    ", ".join(past),
                    ", ".join(names),
                    number,
                )
