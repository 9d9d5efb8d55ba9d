"""Orders to the armed workers of a Ray job: the driver takes them at the beginning of a step, and plans windows from there on."""

from __future__ import annotations

import attrs

from gpuprof._log import log
from gpuprof._orders import Order, Watch
from gpuprof._step_windows import StepWindows
from gpuprof._types import Windows, Worker
from gpuprof.ray._windows import WindowControl


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
        return [f"gpuprof capture: {label} on {', '.join(names)}: {why}" for (label, why), names in workers.items()]

    def _fire(self, order: Order, number: int) -> None:
        replanned, workers = {}, dict[Windows, list[str]]()
        for name, (worker, continuous, windows) in self._armed.items():
            if order.selects(worker.group, worker.rank):
                before = windows.all
                windows.add(attrs.evolve(window, number=0) for window in order.windows(number, continuous))
                replanned[name] = windows.all
                workers.setdefault(tuple(window for window in windows.all if window not in before), []).append(name)
        self._control.replan(replanned)
        if not workers:
            log().warning("gpuprof capture: an order's groups and ranks are those of none of %s", ", ".join(self._armed))
        for ordered, names in workers.items():
            past = [window.label for window in ordered if window.stop is not None and window.stop <= number]
            coming = [window.label for window in ordered if window.label not in past]
            if coming:
                log().info("gpuprof capture: %s on %s", ", ".join(coming), ", ".join(names))
            if past:
                log().warning("gpuprof capture: %s on %s: too late, step %d begins", ", ".join(past), ", ".join(names), number)
