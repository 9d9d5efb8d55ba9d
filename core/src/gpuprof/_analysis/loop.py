"""What a run tells about its loop: the steps that count, their critical paths, and `saves`.

Every cause is a question to `Loop.saves`: how much shorter would the run be if some activities took
less time?
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from gpuprof._analysis.path import Clocks, Factors, Graph, Kind, Stretch, Window
from gpuprof._analysis.run import OUTSIDE, Floats, Integers, Process, Run
from gpuprof._analysis.stragglers import ALL, BEFORE

NAMES = {
    OUTSIDE: "(outside any scope)",
    ALL: "(several scopes)",
    BEFORE: "(before its first scope)",
}
"""Names of places that are no scope."""
BETWEEN_STEPS = "(between steps)"
BETWEEN_CALLS = "(between its calls)"
"""The name of `OUTSIDE` for a driver that is known to work there."""
EXPLAINED = 0.7
"""Share of the path that must be explained before gpuprof says what bounds a step."""
_MOST_PATHS = 200
_MOST_MOMENTS = 20_000
"""Calls to replay for a what-if question, in all steps together."""


class Loop:
    """The loop of a run, made up of the steps that count.

    All shares are of the whole loop: from the first step's beginning to the last one's end.

    Args:
        run: the run, with at least one step that counts.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.usual = run.usual
        self.durations = np.array([run.steps[step].duration for step in self.usual], float)
        self.median = float(np.median(self.durations))
        self.mean = float(self.durations.mean())
        self.gaps = gaps(run)
        in_a_row = np.split(self.usual, np.flatnonzero(np.diff(self.usual) != 1) + 1)
        rows: list[Window] = [(int(row[0]), int(row[-1])) for row in in_a_row]
        # steps of ranks that do not wait for each other overlap
        self.loop = float(sum(run.steps[last].end - run.steps[first].start for first, last in rows))
        self.in_steps = 1 - float((self.gaps[1] - self.gaps[0]).sum()) / self.loop
        self.graph = Graph(run)
        self._paths: dict[int, list[Stretch]] = {}
        self.sampled = _spread(self.usual, _MOST_PATHS)
        spans = sum(len(process.ledger.spans) for process in run.processes)
        most = max(3, _MOST_MOMENTS * len(run.steps) // max(1, spans))
        self._all_replayed = len(self.usual) <= most
        self.windows = rows if self._all_replayed else _cut(rows, most)
        self.replayed = [step for first, last in self.windows for step in range(first, last + 1)]

    def name(self, place: int, process: int | None = None) -> str:
        """The name of a place, as people read it. `OUTSIDE` may have another name for a driver."""
        if place == OUTSIDE and process == self.run.driver and self.graph.driver_works:
            return BETWEEN_CALLS
        return NAMES[place] if place in NAMES else self.run.places[place].name

    # The critical path

    def stretches(self, position: int) -> list[Stretch]:
        """The critical path of a step, given its position in `Run.steps`, by time."""
        if position not in self._paths:
            self._paths[position] = self.graph.path(position)
        return self._paths[position]

    def times(self, position: int) -> dict[tuple[int, int, Kind], int]:
        """The nanoseconds of each process, place and kind on the path of a step."""
        times: dict[tuple[int, int, Kind], int] = {}
        for process, place, start, end, kind, _, _, _ in self.stretches(position):
            part = process, place, kind
            times[part] = times.get(part, 0) + end - start
        return times

    @functools.cached_property
    def shares(self) -> dict[tuple[int, int, Kind], Floats]:
        """The time of each process, place and kind on the path of each sampled step.

        Relative to the mean duration of the sampled steps.
        """
        shares: dict[tuple[int, int, Kind], Floats] = {}
        length = sum(self.run.steps[step].duration for step in self.sampled) / len(self.sampled)
        length = max(1.0, length)
        for row, position in enumerate(self.sampled):
            for part, took in self.times(position).items():
                if part not in shares:
                    shares[part] = np.zeros(len(self.sampled))
                shares[part][row] = took / length
        return shares

    def is_open(self, part: tuple[int, int, Kind]) -> bool:
        """Whether a part of a path is unexplained. A part is a process, a place and a kind."""
        _, place, kind = part
        hides = kind == "work" and place >= 0 and bool(self.run.may_wait[place])
        return hides or kind in ("unexplained", "outside")

    @functools.cached_property
    def open_shares(self) -> dict[tuple[int, int, Kind], float]:
        """The mean share of each unexplained part of the paths."""
        return {
            part: float(share.mean()) for part, share in self.shares.items() if self.is_open(part)
        }

    def before_steps(self, number: int, place: int) -> Floats:
        """The share of a process's time at a place, by step, that lies between it and the last."""
        run, process = self.run, self.run.processes[number]
        starts, ends = gaps(run, process)
        rows = run.sums_between(process, starts, ends)
        at_place = rows["place"] == place if place != OUTSIDE else np.ones(len(rows), bool)
        between = np.bincount(rows["step"][at_place], rows["own"][at_place], len(starts))
        within = run.matrix("own", place, [process])[:, 0]
        if place == OUTSIDE:
            between = ends - starts - between
        before = np.zeros(len(run.steps))
        before[_followed(run) + 1] = between
        shares: Floats = before / (before + within).clip(1)
        return shares

    # What if

    def saves(
        self, factors: Factors, steps: Sequence[int] | None = None, clocks: Clocks | None = None
    ) -> float:
        """The share of the run that is saved if the times of some activities are multiplied.

        Args:
            factors: the multipliers for each step.
            steps: the positions of the steps to apply them to; ``None`` means all steps.
        """
        windows, of_all = self.windows, 1.0
        if steps is not None and not self._all_replayed:
            windows = [(step, step) for step in _spread(steps, len(self.replayed))]
            of_all = sum(self.run.steps[step].duration for step in steps) / self.loop
        elif steps is not None:
            factors = _only(steps, factors)
        after = sum(self.graph.replay(window, factors, clocks) for window in windows)
        before = sum(self.graph.plan(window).usual for window in windows)
        return (1 - after / before) * of_all if before else 0.0

    def in_halves(self, saves: float, factors: Factors) -> tuple[float, float]:
        """How much of a saving comes from each half of the run."""
        first = self.saves(_only(self.usual[: len(self.usual) // 2], factors))
        return first, saves - first


def gaps(run: Run, process: Process | None = None) -> tuple[Integers, Integers]:
    """The starts and ends of the gaps between adjacent steps that both count.

    Args:
        process: whose steps they are; ``None`` for those of all.
    """
    before = _followed(run)
    if process is None or process.number not in run.edges:
        starts = np.array([run.steps[position].end for position in before], np.int64)
        ends = np.array([run.steps[position + 1].start for position in before], np.int64)
    else:
        begun, ended = run.edges[process.number]
        starts, ends = ended[before], begun[before + 1]
        starts = np.maximum.accumulate(np.where(starts > 0, starts, ends))  # 0: it did not mark it
    return starts, np.maximum(starts, ends)


def _followed(run: Run) -> Integers:
    """The positions of the steps that count and are followed by another one that does."""
    usual = np.array(run.usual, np.int64)
    followed: Integers = usual[:-1][np.diff(usual) == 1]
    return followed


def _only(steps: Iterable[int], factors: Factors) -> Factors:
    """Factors that apply in the given steps only."""
    chosen = frozenset(steps)
    return lambda step: factors(step) if step in chosen else {}


def _cut(rows: Iterable[Window], most: int) -> list[Window]:
    """Evenly spread parts of rows of steps, with about `most` steps in all."""
    length = max(1, most // 4)
    parts = [
        (first, min(first + length - 1, end))
        for begin, end in rows
        for first in range(begin, end + 1, length)
    ]
    return [parts[number] for number in _spread(range(len(parts)), max(3, most // length))]


def _spread(positions: Sequence[int], most: int) -> list[int]:
    """At most `most` of the positions, evenly spread."""
    if len(positions) <= most:
        return list(positions)
    return [positions[number * len(positions) // most] for number in range(most)]
