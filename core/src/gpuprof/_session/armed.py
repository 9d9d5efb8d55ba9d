"""Inside an armed worker that counts its own steps: orders become windows.

All of it runs on the control thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import attrs

from gpuprof._log import log
from gpuprof._session.orders import POLL, Order, Orders
from gpuprof._session.windows import StepWindows
from gpuprof.backend.types import Window, Worker


class ArmedWindows:
    """Adds the windows that a worker is told to capture.

    Args:
        path: the directory of orders.
        worker: who.
        continuous: whether the steps of an order are one window.
        windows: where they are added.
        clock: seconds.

    Attributes:
        poll_interval: seconds between two calls of `look`.
    """

    poll_interval = POLL

    def __init__(
        self,
        path: str,
        worker: Worker,
        continuous: bool,
        windows: StepWindows,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._orders = Orders(path)
        self._worker = worker
        self._continuous = continuous
        self._windows = windows
        self._waiting: list[Order] = []
        self._last: tuple[float, int] | None = None

    def look(self, step: int | None) -> None:
        """Look for orders.

        Args:
            step: the one that runs, or ran last; ``None`` before the first.
        """
        worker = self._worker
        self._waiting += [
            order for order in self._orders.poll() if order.selects(worker.group, worker.rank)
        ]
        now = self._clock()
        if self._waiting and step is not None:
            self._waiting = [order for order in self._waiting if not self._obey(order, step, now)]
        self._last = (now, step) if step is not None else None

    def _obey(self, order: Order, step: int, now: float) -> bool:
        """Whether that is done.

        ``next`` begins at a step that no rank has reached when the last of them has looked.
        """
        first: int | None = 0
        if order.next:
            if self._last is None:
                return False  # how fast the steps are is known the next time
            seconds, steps = now - self._last[0], step - self._last[1]
            pace = max(0.0, steps / seconds) if seconds > 0 else 0.0
            first = self._orders.agree(order, step + 1 + math.ceil(2 * POLL * pace))
        if first is None:
            return False
        ordered = list(order.windows(first, self._continuous))
        self._windows.add(attrs.evolve(window, number=0) for window in ordered)
        if self._worker.rank == order.ranks[0][0]:  # one speaks for all
            self._say(ordered, step)
        return True

    def _say(self, ordered: Sequence[Window], step: int) -> None:
        # A window opens where a step begins: `step` itself has begun.
        past = [
            window.label
            for window in ordered
            if window.stop is not None and window.stop <= step + 1
        ]
        coming = [window.label for window in ordered if window.label not in past]
        if coming:
            log().info("gpuprof capture: %s on %s", ", ".join(coming), self._worker.group)
        if past:
            log().warning(
                "gpuprof capture: %s on %s: too late, step %d runs",
                ", ".join(past),
                self._worker.group,
                step,
            )
