"""A generated job while it runs: clocks that go forward, and ledgers of what they passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np
from gpuprof._session.instruments.collectives import runs
from gpuprof._session.ledger import PROCESS_GROUP
from support.simulated_run import SimulatedLedger, write_run

from truth.causes import COLLECTOR, UNEVEN, Accusation, Cause, normal, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Keys = Callable[[int], Sequence[str]]

DRIVER = "Runner"
_NOTED = 1000.0
"""Milliseconds between two notes of a process's main thread."""


@attrs.frozen
class Noise:
    """What a machine does to the work on it, as standard deviations, relative.

    Args:
        lasting: of ranks: some processors are better.
        slow: of a rank's steps, each of which resembles the one before.
        fast: of calls.
        often: share of calls in which something else runs.
        much: how much longer such a call takes, on average.
    """

    lasting: float = 0.003
    slow: float = 0.0
    fast: float = 0.01
    often: float = 0.0
    much: float = 0.0


NOISES = {
    "idle": Noise(),
    "uneven": Noise(lasting=0.03),
    "loaded": Noise(0.005, 0.06, 0.05, 0.03, 0.5),
    "overloaded": Noise(0.01, 0.2, 0.2, 0.15, 1.0),
    "rare preemption": Noise(often=0.004, much=5.0),
}
DISTRIBUTIONS = (
    "fixed",
    "log-normal 5 %",
    "log-normal 15 %",
    "log-normal 40 %",
    "by length",
    "drifting",
)


@attrs.define
class Machine:
    """All that varies in a job without a cause.

    Args:
        seed: of the draws.
        steps: how many.
        groups: how many ranks each has.
        per_node: ranks of a group on a node.
        distribution: of the work, from step to step and rank to rank.
        noise: what else the machine does.
        retries: whether work that takes too long is cancelled and begun again.
        pace: by what everything takes longer in this run.

    Attributes:
        lost: by group, the milliseconds that each rank waits for a processor.
    """

    seed: int
    steps: int
    groups: dict[str, int]
    per_node: int = 8
    distribution: str = "fixed"
    noise: str = "idle"
    retries: bool = False
    pace: float = 1.0
    lost: dict[str, Floats] = attrs.field(factory=dict, init=False)
    _known: dict[tuple[str, str, int], Floats] = attrs.field(factory=dict, init=False)

    def nodes(self, group: str) -> list[str]:
        """The node of each rank."""
        return [f"node-{rank // self.per_node}" for rank in range(self.groups[group])]

    def usual(self, group: str, scope: str, milliseconds: float, works: bool, call: int) -> Floats:
        """What a scope takes without a cause, in milliseconds, by step and rank."""
        key = group, scope, call
        if key not in self._known:
            name = f"{group}/{scope}/{call}"
            steps, ranks = self.steps, self.groups[group]
            drawn = normal(self.seed, name, steps, ranks)
            varied = self._distributed(drawn) if works else np.exp(0.03 * drawn)
            noise = NOISES[self.noise]
            fast = noise.fast * normal(self.seed, f"{name}/fast", steps, ranks)
            struck = uniform(self.seed, f"{name}/struck", steps, ranks) < noise.often
            lost = -np.log(uniform(self.seed, f"{name}/lost", steps, ranks)) * noise.much
            paced = milliseconds * self.pace * self._trend[:, None]
            waited = paced * struck * lost
            self.lost[group] = self.lost.get(group, 0) + waited.sum(axis=0)
            self._known[key] = paced * varied * np.exp(fast) * self._slowly(group) + waited
        return self._known[key]

    def _distributed(self, drawn: Floats) -> Floats:
        if self.distribution == "by length":  # of responses: some are much longer
            return 0.5 + 0.5 * np.exp(0.7 * drawn - 0.245)
        spread = {"log-normal 5 %": 0.05, "log-normal 15 %": 0.15, "log-normal 40 %": 0.4}
        return np.exp(spread.get(self.distribution, 0.01) * drawn)

    def _slowly(self, group: str) -> Floats:
        """What all work of a rank has in common, by step and rank."""
        noise, ranks = NOISES[self.noise], self.groups[group]
        drawn = normal(self.seed, f"{group}/slow", self.steps, ranks)
        for step in range(1, self.steps):
            drawn[step] = 0.9 * drawn[step - 1] + 0.44 * drawn[step]
        lasting = normal(self.seed, f"{group}/lasting", 1, ranks)
        return np.exp(noise.slow * drawn + noise.lasting * lasting)

    @property
    def _trend(self) -> Floats:
        """What all work of a step has in common; the first step is warm-up."""
        memory, factors = 0.0, []
        for drawn in normal(self.seed, "steps", self.steps)[:, 0]:
            memory = 0.6 * memory + 0.03 * drawn
            factors.append(max(0.5, 1 + memory))
        trend = np.array(factors)
        if self.distribution == "drifting":
            trend *= np.linspace(1, 1.5, self.steps)
        trend[0] *= 2.5
        return trend


class Recorder:
    """The ledgers of a job.

    Args:
        machine: its groups.
        record: ``full``; ``no keys``: who waits for whom is not recorded; ``waits as work``:
            neither is that a scope waits.
        scale: by what to multiply all times.
        renamed: for each group the numbers that its ranks take; absent for the usual ones.
    """

    def __init__(
        self,
        machine: Machine,
        record: str = "full",
        scale: int = 1,
        renamed: dict[str, Sequence[int]] | None = None,
    ) -> None:
        self.machine = machine
        self.record = record
        self.scale = scale
        self.ledgers: dict[str, list[SimulatedLedger]] = {}
        for group, ranks in machine.groups.items():
            if group == DRIVER:
                self.ledgers[group] = [SimulatedLedger(DRIVER, "driver")]
                continue
            numbers = (renamed or {}).get(group, range(ranks))
            self.ledgers[group] = [
                SimulatedLedger(f"{group}-{number}", node=node)
                for number, node in zip(numbers, machine.nodes(group), strict=True)
            ]
        self.blocked: list[tuple[int, int]] = []
        """When the driver waits, as nanoseconds, whether a ledger says so or not."""

    def nanoseconds(self, milliseconds: float) -> int:
        """A time as it is written. Doubling the scale doubles it exactly."""
        return self.scale * round(milliseconds * 1_000_000)

    def write(self, directory: Path) -> Path:
        """Write all ledgers. Returns the directory."""
        for group, ledgers in self.ledgers.items():
            lost = self.machine.lost.get(group, np.zeros(len(ledgers))).tolist()
            for ledger, waited in zip(ledgers, lost, strict=True):
                ledger.main = self._main(ledger, group, self.nanoseconds(waited))
        return write_run(directory, [ledger for group in self.ledgers.values() for ledger in group])

    def _main(self, ledger: SimulatedLedger, group: str, ready: int) -> list[tuple[int, int, int]]:
        """What a process notes of its main thread once a second: a time, ran, and was ready to.

        A driver runs or is ready to whenever it does not wait, a worker whenever it is in a scope.

        Args:
            ready: nanoseconds for which it is ready in all.
        """
        last = max((end for *_, end in ledger.spans), default=0)
        times = np.append(np.arange(0, last, self.nanoseconds(_NOTED)), last)
        if group == DRIVER:
            active = times - _covered(times, self.blocked)
        else:
            active = _covered(times, [(start, end) for _, _, start, end in ledger.spans])
        waited = np.rint(active * min(1.0, ready / max(1, active[-1]))).astype(int)
        return list(zip(times.tolist(), (active - waited).tolist(), waited.tolist(), strict=True))


def _covered(times: Integers, intervals: Sequence[tuple[int, int]]) -> Integers:
    """How much of the time before each of the times lies in any interval."""
    begins, ends = np.array(sorted(intervals) or [(0, 0)]).T
    ends = np.maximum.accumulate(ends)
    begins = np.maximum(begins, np.append(0, ends[:-1]))  # one may be inside another
    lengths = np.append(0, np.cumsum((ends - begins).clip(0)))
    at = np.searchsorted(begins, times, "right") - 1
    covered: Integers = lengths[at] + (np.minimum(times, ends[at]) - begins[at]).clip(0)
    return np.where(at < 0, 0, covered)


class World:
    """A run of a job with some of its causes. All times are milliseconds.

    Args:
        machine: what varies anyway.
        causes: those that strike.
        recorder: of what happens; ``None``: only the steps' times are wanted.
        without: replaced by what others take.
        adapts: whether slow ranks get less work, as their last steps tell.

    Attributes:
        edges: begin and end of each step, of all ranks together.
    """

    def __init__(
        self,
        machine: Machine,
        causes: Sequence[Cause] = (),
        recorder: Recorder | None = None,
        without: Accusation | None = None,
        adapts: bool = False,
    ) -> None:
        self.machine = machine
        self.steps = machine.steps
        self.causes = causes
        self.recorder = recorder
        self.without = without
        self.adapts = adapts
        self.edges: list[tuple[float, float]] = []
        self._shares: dict[str, Floats] = {}
        self._times: dict[tuple[str, str, int], Floats] = {}

    def size(self, group: str) -> int:
        """How many ranks a group has."""
        return self.machine.groups[group]

    @property
    def loop(self) -> float:
        """From the first counted step's begin to the last one's end: step 0 is warm-up."""
        return max(end for _, end in self.edges) - self.edges[1][0]

    # Work

    def times(
        self, group: str, scope: str, usual: float, works: bool = True, call: int = 0
    ) -> Floats:
        """What a scope takes, by step and rank, with the causes that strike.

        Args:
            usual: milliseconds, without cause and noise.
            works: whether it is work of the ranks: a transfer or a driver's moment varies less.
            call: which one of the step's calls.
        """
        key = group, scope, call
        if key not in self._times:
            nodes = self.machine.nodes(group)
            times = self.machine.usual(group, scope, usual, works, call)
            for cause in self.causes:
                if cause.hits(group, scope, works and group != DRIVER):
                    times = cause.applied(times, call, nodes)
            if self.machine.retries and works:
                again = self.machine.usual(group, scope, usual, works, call + 1000)
                times = np.where(times > 1.3 * usual, 1.3 * usual + again, times)
            if self.without is not None:
                heavy = {
                    rank
                    for cause in self.causes
                    if cause.kind == UNEVEN and cause.group == group
                    for rank in cause.ranks
                }
                times = self.without.applied(group, scope, times, nodes, heavy)
            self._times[key] = times
        return self._times[key]

    def at(
        self, group: str, scope: str, usual: float, step: int, works: bool = True, call: int = 0
    ) -> Floats:
        """The same in a step, by rank."""
        row: Floats = self.times(group, scope, usual, works, call)[step]
        return row * self._shares.get(group, 1.0) if works and self.adapts else row

    def adapt(self, group: str, took: Floats) -> None:
        """Give each rank as much of the next step's work as its speed in this one suggests."""
        if self.adapts:
            share = self._shares.get(group, np.ones(len(took))) * np.sqrt(took.mean() / took)
            self._shares[group] = share / share.mean()

    def run(
        self,
        group: str,
        keys: tuple[str, ...],
        usual: float,
        step: int,
        now: Floats,
        works: bool = True,
        call: int = 0,
        waits_for: str | None = None,
    ) -> Floats:
        """Let a group do something, from the ranks' times on. Returns when each has done it."""
        end = now + self.at(group, keys[-1], usual, step, works, call)
        self.span(group, keys, now, end, waits_for=waits_for)
        for cause in self.causes:
            if cause.kind == COLLECTOR and call == 0 and cause.hits(group, keys[-1], works):
                self._collected(cause, step, end)
        return end

    def _collected(self, cause: Cause, step: int, ends: Floats) -> None:
        """Record that the garbage collector has just stopped a rank."""
        steps, pause = cause.occasions(self.steps)
        if self.recorder is not None and step in steps:
            end = float(ends[cause.ranks[0]])
            edges = self.recorder.nanoseconds(end - pause), self.recorder.nanoseconds(end)
            self.recorder.ledgers[cause.group][cause.ranks[0]].collections.append((2, *edges))

    # The record

    def span(
        self,
        group: str,
        keys: tuple[str, ...],
        begin: Floats | float,
        end: Floats | float,
        rank: int | None = None,
        waits_for: str | None = None,
        waits: Keys | None = None,
        releases: Keys | None = None,
        meets: Keys | None = None,
    ) -> None:
        """Record calls of a group, or of one rank of it, unless they take no time.

        Args:
            begin: milliseconds, a number or one for each rank, as is `end`.
            waits: for each rank its keys, as are `releases` and `meets`.
        """
        recorder = self.recorder
        if recorder is None:
            return
        if group == DRIVER and waits_for is not None:
            recorder.blocked.append((recorder.nanoseconds(begin), recorder.nanoseconds(end)))
        if recorder.record != "full":
            waits = releases = meets = None
        if recorder.record == "waits as work" and waits_for not in (None, "data"):
            if group == DRIVER:
                return
            keys, waits_for = (*keys[:-1], "exchange"), None
        ranks = range(self.size(group)) if rank is None else [rank]
        begins = np.broadcast_to(np.asarray(begin, float), len(ranks)).tolist()
        ends = np.broadcast_to(np.asarray(end, float), len(ranks)).tolist()
        ledgers = recorder.ledgers[group]
        for number, first, last in zip(ranks, begins, ends, strict=True):
            if last > first:
                ledgers[number].span(
                    keys,
                    recorder.nanoseconds(first),
                    recorder.nanoseconds(last),
                    waits_for=waits_for,
                    waits=waits(number) if waits else (),
                    releases=releases(number) if releases else (),
                    meets=meets(number) if meets else (),
                )

    def sent(
        self,
        group: str,
        begin: float,
        end: float,
        key: str,
        needs: Sequence[str] = (),
        rank: int = 0,
    ) -> None:
        """Record a call that a rank of a group sends, and those that it needs."""
        if self.recorder is not None and self.recorder.record == "full":
            edges = self.recorder.nanoseconds(begin), self.recorder.nanoseconds(end)
            self.recorder.ledgers[group][rank].sent(*edges, key, needs)

    def grouped(self, group: str, name: str, ranks: Sequence[int]) -> None:
        """Record that ranks of a group are a process group of torch."""
        for rank in ranks if self.recorder is not None else ():
            self.recorder.ledgers[group][rank].event(
                PROCESS_GROUP, 0, name=name, rank=rank, ranks=runs(ranks)
            )

    def step(self, group: str, number: int, begin: Floats | float, end: Floats | float) -> None:
        """Record a step of each rank of a group."""
        begins = np.broadcast_to(np.asarray(begin, float), self.size(group))
        ends = np.broadcast_to(np.asarray(end, float), self.size(group))
        self.edges.append((float(begins.min()), float(ends.max())))
        if self.recorder is not None:
            for ledger, first, last in zip(self.recorder.ledgers[group], begins, ends, strict=True):
                edges = self.recorder.nanoseconds(first), self.recorder.nanoseconds(last)
                ledger.step(number, *edges)
