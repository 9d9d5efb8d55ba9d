"""Runs that never ran, for the analyses: ledgers whose calls are given by their names and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.made_ledgers import BEGAN, MEETS, RELEASES, WAITS, MadeLedger

EPOCH = BEGAN
CLOCK = "boot/time"


class SimulatedLedger:
    """What is to be in the ledger of one process. It is written by `MadeLedger`.

    Args:
        name: as ``ActorGroup-0``, ``ActorGroup-0.child-7``, or ``Runner``.
        role: ``worker``, ``child`` or ``driver``.
        clock: processes with the same text share a clock.

    Attributes:
        loops: of each track that is a task, the thread of its event loop.
        incarnation: the start of the worker.
        spans: place, track, start and end of the calls so far.
        links: the keys of those, each with its role.
        open: place and start of calls that have not ended.
        collections: generation, start and end of the garbage collector's runs.
        iterations: loop and time of the beginnings of a loop's iterations.
        sizes: place, time and bytes of what calls handled.
        main: times, for how long the main thread had run by then, and was ready to.
        sleeps: times, for how long the main thread had slept of its own accord by then.
        threads: the same of other threads, by their names, or tracks if they have scopes.
        usage: what the process had used by some times; what is left out is 0.
        cards: card, time, per cent, memory, clock and reasons of what GPUs did.
    """

    def __init__(
        self, name: str, role: str = "worker", node: str = "node-0", clock: str = CLOCK
    ) -> None:
        self.name = name
        self.role = role
        self.node = node
        self.clock = clock
        self.loops: dict[int, int] = {}
        self.incarnation = None if role == "driver" else "1"
        self._places: dict[tuple[str, ...], int] = {}
        self._waits_for: dict[tuple[str, ...], str | None] = {}
        self.spans: list[tuple[int, int, int, int]] = []
        self.open: list[tuple[int, int]] = []
        self._folds: list[tuple[int, int, int, int, int, int]] = []
        self.links: list[tuple[int, int, int, int, str | bytes, int]] = []
        self._steps: list[tuple[int, int, int | None]] = []
        self._events: list[tuple[str, int, dict[str, Any]]] = []
        self.collections: list[tuple[int, int, int]] = []
        self.iterations: list[tuple[int, int]] = []
        self.sizes: list[tuple[int, int, int]] = []
        self.main: list[tuple[int, int, int]] = []
        self.sleeps: list[tuple[int, int]] = []
        self.threads: dict[str | int, list[tuple[int, int, int]]] = {}
        self.usage: list[dict[str, int]] = []
        self.cards: list[tuple[int, int, int, int, int, int]] = []
        self._sent: list[tuple[int, int, str, str]] = []
        self._samples: list[tuple[str, str, int, int | None, dict[str, float]]] = []
        self._attributes: list[tuple[int, int, dict[str, float]]] = []

    def place(self, *keys: str, waits_for: str | None = None) -> int:
        """The number of a place, which is new or known."""
        if keys not in self._places:
            if len(keys) > 1:
                self.place(*keys[:-1])
            self._places[keys] = len(self._places) + 1
            self._waits_for[keys] = waits_for
        return self._places[keys]

    def span(
        self,
        keys: str | Sequence[str],
        start: int,
        end: int,
        *,
        track: int = 1,
        waits_for: str | None = None,
        waits: Sequence[str | bytes] = (),
        releases: Sequence[str] = (),
        meets: Sequence[str] = (),
    ) -> None:
        """A call, with the keys that it shares with others."""
        keys = (keys,) if isinstance(keys, str) else tuple(keys)
        row = (self.place(*keys, waits_for=waits_for), track, start, end)
        self.spans.append(row)
        for role, texts in ((WAITS, waits), (RELEASES, releases), (MEETS, meets)):
            self.links += [(*row, text, role) for text in texts]

    def fold(self, keys: str | Sequence[str], start: int, end: int, count: int, busy: int) -> None:
        """Calls that are known only together."""
        keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self._folds.append((self.place(*keys), 1, start, end, count, busy))

    def step(self, number: int, start: int, end: int | None) -> None:
        """A step; one without an end goes on."""
        self._steps.append((number, start, end))

    def begin_steps(self, count: int) -> Iterator[tuple[int, int]]:
        """Steps of 100 ms; yields the number and the beginning of each."""
        for number in range(count):
            self.step(number, number * 10**8, (number + 1) * 10**8)
            yield number, number * 10**8

    def sent(self, start: int, end: int, key: str, needs: Sequence[str] = ()) -> None:
        """A call that it sent, and those whose results that takes."""
        self._sent += [(start, end, key, needed) for needed in needs or ("",)]

    def sample(self, sample: str, phase: str, start: int, end: int | None, **notes: float) -> None:
        """A phase of a sample; one without an end goes on."""
        self._samples.append((sample, phase, start, end, notes))

    def attributes(self, step: int, time: int, **values: float) -> None:
        """Attributes of a step that ends at `time`."""
        self._attributes.append((step, time, values))

    def event(self, event: str, time: int, **about: Any) -> None:
        """Anything else."""
        self._events.append((event, time, about))

    def write(self, directory: Path, ended: bool = True) -> Path:
        """Write the file into a run's directory.

        Args:
            ended: whether the process has closed it.
        """
        group, _, rank = self.name.partition(".child-")[0].rpartition("-")
        made = MadeLedger(
            directory,
            group or self.name,
            int(rank) if group else 0,
            self.node,
            self.role,
            clock=self.clock,
            incarnation=self.incarnation,
            name=self.name,
        )
        if self.role == "child":
            made.path = made.path.with_name(f"{self.name}.ledger")
        for keys, waits_for in self._waits_for.items():
            made.place(*keys, waits_for=waits_for)
        for number in range(1, max([track for _, track, *_ in self.spans] + [1]) + 1):
            name = "MainThread" if number == 1 else f"thread {number}"
            made.track(name, self.loops.get(number, number), task=number in self.loops)
        made.spans(self.spans)
        made.folds(self._folds)
        made.links(self.links)
        made.collections(self.collections)
        made.iterations(self.iterations)
        made.sizes(self.sizes)
        made.main(self.main)
        made.sleeps(self.sleeps)
        for number, (name, rows) in enumerate(self.threads.items(), 100):
            track = name if isinstance(name, int) else made.track(name, number)
            made.threads((track, *row) for row in rows)
        made.usage(self.usage)
        made.cards(self.cards)
        made.sent(self._sent)
        for step in self._steps:
            made.step(*step)
        made.still_open(self.open)
        for phase in self._samples:
            made.sample(*phase)
        for attributes in self._attributes:
            made.attributes(*attributes)
        for event, time, about in self._events:
            made.event(event, time, **about)
        if ended:
            times = [end for *_, end in self.spans]
            times += [end for *_, end, _ in self._samples if end is not None]
            times += [time for _, *step in self._steps for time in step if time is not None]
            made.event("end", max(times, default=0))
        return made.write()


def write_run(directory: Path, made: Sequence[SimulatedLedger]) -> Path:
    """Write all ledgers of a run. Returns its directory."""
    for each in made:
        each.write(directory)
    return directory
