"""Clients of an asynchronous actor whose method blocks its event loop, by discrete events."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path

import attrs

from support.simulated_run import SimulatedLedger, write_run

MS = 1_000_000
_ON_ITS_WAY = 300_000
"""Nanoseconds that a message takes."""


@attrs.frozen(kw_only=True)
class Load:
    """What clients and service do; times are milliseconds.

    Args:
        calls: that each client makes in a step, one after the other.
        work: of a client before each call.
        sleep: of the service in a call, with its event loop free.
        block: of the service in a call, with its event loop blocked.
    """

    clients: int
    calls: int
    work: float
    sleep: float
    block: float
    steps: int = 20


@attrs.define
class _Call:
    client: int
    number: int
    key: str
    asked: int = 0
    track: int = 0
    begun: int = 0
    slept: int = 0
    due: int = 0


class _Service:
    """An event loop: it runs what is ready, one after the other."""

    def __init__(self, at: Callable[..., None]) -> None:
        self._at = at
        self._ready: deque[tuple[int, Callable[[int, int], None]]] = deque()
        self._busy = False

    def ready(self, now: int, length: int, then: Callable[[int, int], None]) -> None:
        self._ready.append((length, then))
        if not self._busy:
            self._take(now)

    def _take(self, now: int) -> None:
        self._busy = bool(self._ready)
        if self._busy:
            length, then = self._ready.popleft()
            self._at(now + length, self._ended, now, then)

    def _ended(self, now: int, begun: int, then: Callable[[int, int], None]) -> None:
        then(begun, now)
        self._take(now)


def simulate(load: Load, faster: float = 1.0, directory: Path | None = None) -> int:
    """Let it run. Returns the nanoseconds of the loop without the first step.

    Args:
        faster: what the service blocks is multiplied by this.
        directory: where to write the ledgers.
    """
    events: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
    order = itertools.count()

    def at(time: int, then: Callable[..., None], *about: object) -> None:
        heapq.heappush(events, (time, next(order), then, about))

    def drawn(name: str, milliseconds: float) -> int:
        return int(milliseconds * MS * random.Random(name).lognormvariate(0, 0.15))

    driver, service = SimulatedLedger("Runner", "driver"), SimulatedLedger("Service-0")
    clients = [SimulatedLedger(f"Client-{client}") for client in range(load.clients)]
    tracks = list(range(2, 2 + load.clients))
    service.loops = dict.fromkeys(tracks, 1)
    loop = _Service(at)
    steps: list[tuple[int, int]] = []
    running: set[int] = set()

    def begin(now: int) -> None:
        for client in range(load.clients):
            running.add(client)
            driver.sent(now, now, f"ray:{len(steps)}:{client}")
            at(now + _ON_ITS_WAY, ask, client, 0, now + _ON_ITS_WAY)
        steps.append((now, now))

    def ask(now: int, client: int, number: int, since: int) -> None:
        if number < load.calls:
            key = f"ray:{len(steps)}:{client}:{number}"
            at(now + drawn(key, load.work), send, _Call(client, number, key), since)
            return
        clients[client].span("play", since, now, releases=[f"ray:{len(steps) - 1}:{client}"])
        running.remove(client)
        if not running:
            start, _ = steps.pop()
            keys = [f"ray:{len(steps)}:{each}" for each in range(load.clients)]
            end = now + _ON_ITS_WAY
            driver.span("ray.get", start, end, waits_for="*", waits=keys)
            driver.step(len(steps), start, end)
            steps.append((start, end))
            if len(steps) < load.steps:
                at(end, begin)

    def send(now: int, call: _Call, since: int) -> None:
        clients[call.client].sent(now, now, call.key)
        call.asked = now
        at(now + _ON_ITS_WAY, lambda then: loop.ready(then, 10_000, begun))

        def begun(begin: int, end: int) -> None:
            call.track, call.begun, call.slept = tracks.pop(0), begin, end
            call.due = end + drawn(f"{call.key} sleeps", load.sleep)
            at(call.due, lambda then: loop.ready(then, length, blocked))

        length = int(drawn(f"{call.key} blocks", load.block) * faster)

        def blocked(begin: int, end: int) -> None:
            service.span("serve", call.begun, end, track=call.track, releases=[call.key])
            service.span(
                ("serve", "asyncio.sleep"), call.slept, begin, track=call.track,
                waits_for="*", waits=[call.due.to_bytes(8, "little")],
            )  # fmt: skip
            tracks.append(call.track)
            loop.ready(end, 1_000, lambda _, sent: at(sent + _ON_ITS_WAY, answered))

        def answered(now: int) -> None:
            clients[call.client].span(
                ("play", "ray.get"), call.asked, now, waits_for="*", waits=[call.key]
            )
            ask(now, call.client, call.number + 1, since)

    at(0, begin)
    while events:
        time, _, then, about = heapq.heappop(events)
        then(time, *about)
    if directory is not None:
        write_run(directory, [driver, service, *clients])
    return steps[-1][1] - steps[1][0]
