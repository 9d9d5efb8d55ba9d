"""Inside a worker of an armed run that counts its own steps: orders become windows.

All of it runs on the control thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from gpuprof._session.orders import POLL, Order, Orders, announce
from gpuprof._session.windows import StepWindows

_MARGIN = 6 * POLL
"""How many seconds after the first rank has read an order of ``next:N`` its steps begin. On a busy
node another rank may read it seconds later, and cannot capture a step that it has begun."""


class ArmedWindows:
    """Adds the windows that a worker is told to capture, and the steps that any worker captures.

    Args:
        path: the directory of orders.
        worker: group and rank; ``None`` for a worker that captures nothing itself.
        continuous: whether the steps of an order are one window.
        windows: where its windows are added.
        expect: told the steps that any worker captures.
        clock: seconds.

    Attributes:
        poll_interval: seconds between two calls of `look`.
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
            step: the one that runs, or ran last; ``None`` before the first.
        """
        self._waiting += self._orders.poll()
        now = self._clock()
        if self._waiting and step is not None:
            self._waiting = [order for order in self._waiting if not self._obey(order, step, now)]
        self._last = (now, step) if step is not None else None

    def _obey(self, order: Order, step: int, now: float) -> bool:
        """Plan the windows of an order. Returns whether that is done.

        ``next:N`` begins so late that every rank has read the order before its first step. Those
        that capture it agree on that step; the others wait until they have.
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
                # one speaks for all; a window opens where a step begins: `step` itself has begun
                announce(windows, self._worker[0], step, step + 1)
        return True
