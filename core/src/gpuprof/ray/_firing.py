"""Orders to the armed workers of a Ray job: the driver takes them at the beginning of a step, and plans windows from there on."""

from __future__ import annotations

import attrs

from gpuprof._orders import Order, Watch
from gpuprof._step_windows import StepWindows
from gpuprof._types import Worker
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
        self._armed[worker.name] = (worker, continuous, StepWindows())

    def begin_step(self, number: int) -> None:
        """Take the orders that have come. Without one it costs a look at an empty list."""
        while self._watch.waiting:
            self._fire(self._watch.waiting.popleft(), number)

    def end(self) -> None:
        """Take no more."""
        self._watch.end()

    def _fire(self, order: Order, number: int) -> None:
        replanned = {}
        for name, (worker, continuous, windows) in self._armed.items():
            if order.selects(worker.group, worker.rank):
                windows.add(attrs.evolve(window, number=0) for window in order.windows(number, continuous))
                replanned[name] = windows.all
        self._control.replan(replanned)
