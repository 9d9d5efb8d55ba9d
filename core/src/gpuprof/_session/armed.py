"""Turns orders into windows, inside an armed worker that counts its own steps.

Everything here runs on the control thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from gpuprof._session.orders import POLL, Order, Orders, announce
from gpuprof._session.windows import StepWindows

_MARGIN = 6 * POLL
"""Seconds between the moment the first rank reads a ``next:N`` order and the first step of that
order. On a busy node another rank may read the order seconds later, and it cannot capture a step
that it has already begun."""


class ArmedWindows:
    """Plans the windows that orders request from this worker.

    It also reports the steps that any other worker captures, since those are slowed here, too.

    Args:
        worker: group and rank; ``None`` for a worker that captures nothing itself.
        continuous: whether adjacent steps of an order share one window.
        windows: the worker's planned windows; new ones are added to it.
        expect: called with the steps that any worker captures.
    """

    poll_interval = POLL

    def __init__(
        self,
        path: str,
        worker: tuple[str, int] | None,
        continuous: bool,
        windows: StepWindows,
        expect: Callable[[Iterable[tuple[int, int]]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._orders = Orders(path)
        self._worker = worker
        self._continuous = continuous
        self._windows = windows
        self._expect = expect
        self._waiting: list[Order] = []
        self._last: tuple[float, int] | None = None

    def look(self, step: int | None) -> None:
        """Look for orders.

        Args:
            step: the current or the latest step; ``None`` before the first.
        """
        self._waiting += self._orders.poll()
        now = self._clock()
        if self._waiting and step is not None:
            self._waiting = [order for order in self._waiting if not self._obey(order, step, now)]
        self._last = (now, step) if step is not None else None

    def _obey(self, order: Order, step: int, now: float) -> bool:
        """Plan the windows of an order, and return whether the order is finished with.

        The first step of ``next:N`` is far enough ahead that every rank reads the order before it.
        The ranks that capture the order agree on that step; the other ranks wait until they have
        agreed.
        """
        first: int | None = 0
        is_selected = self._worker is not None and order.selects(*self._worker)
        if order.next and not is_selected:
            first = self._orders.agreed(order)
        elif order.next:
            if self._last is None:
                return False  # the pace of the steps is known at the next look
            seconds, steps = now - self._last[0], step - self._last[1]
            pace = max(0.0, steps / seconds) if seconds > 0 else 0.0
            first = self._orders.agree(order, step + 1 + math.ceil(_MARGIN * pace))
        if first is None:
            return False
        self._expect(order.steps(first))
        if is_selected:
            windows = order.add_to(self._windows, first, self._continuous)
            if self._worker is not None and self._worker[1] == order.ranks[0][0]:
                # The first selected rank logs for all. `step` has begun, so a window can open at
                # the beginning of the next step at the earliest.
                announce(windows, self._worker[0], step, step + 1)
        return True
