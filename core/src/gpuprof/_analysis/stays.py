"""How long samples are with workers, and how time would pass there if some took less time."""

from __future__ import annotations

import functools
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.samples import GENERATE, LASTING, TRAINED, Samples

if TYPE_CHECKING:
    from gpuprof._analysis.path import Clocks
    from gpuprof._analysis.run import Floats, Run

Integers = NDArray[np.int64]

_LEAST_SHARED = 0.1
"""How much longer a token must take because of the other samples, to be their doing: of the time
that it takes by itself."""

_LEAST_BATCHES = 3
_ESTIMATES = 20
"""How often the two are estimated: what a token takes, and the pace of each worker in each step."""


@attrs.frozen
class OfSamples:
    """What samples tell about a cause. Of each cause only some of this.

    Args:
        phase: the phase in which the samples are.
        limit: the tokens, or the seconds, at which the samples would end.
        unit: ``tokens`` or ``seconds``.
        part: share of the samples that the cause is about.
        work: share of the time that workers spend on samples.
        held: share of the run in which the last samples hold the workers.
        waiting: the phase, other than generating, in which these samples are most, and its share.
        seconds: the median of a sample in the phase, and the 95th percentile.
        most: the most tokens of a worker, divided by the mean of the workers, in the median step.
        behind: versions by which samples are behind the trainer's: the median and the most.
        idle: share of the workers' slots for samples that are empty until a batch is trained.
    """

    phase: str = GENERATE
    limit: float | None = None
    unit: str = ""
    part: float = 0.0
    work: float = 0.0
    held: float = 0.0
    waiting: tuple[str, float] = ("", 0.0)
    seconds: tuple[float, float] = (0.0, 0.0)
    most: float = 0.0
    behind: tuple[float, float] = (0.0, 0.0)
    idle: float = 0.0


@attrs.define(eq=False, slots=False)
class Stays:
    """A sample's stay in a worker lasts from its first phase there to the end of its last one.

    Phases in which nobody works on the sample do not count, and neither does training.

    Args:
        sample: the number of each stay's sample; stays are in order of their start.
        start: nanoseconds of the run, as is `end`.
        step: the position of the step in which the stay ends; -1 outside of steps.
        tokens: how many tokens were generated; 0 if that was not noted.
        weight: how many samples the stay stands for, if the ledger had no room for all.
        rows: for each phase of `samples` the position of its stay; -1 for none.
    """

    samples: Samples
    sample: Integers
    process: Integers
    start: Integers
    end: Integers
    step: Integers
    tokens: Floats
    weight: Integers
    rows: Integers

    @classmethod
    def of(cls, run: Run, phase: str = GENERATE) -> Stays:
        """The stays of a run with some phase in them."""
        samples = run.samples
        pairs = samples.sample * len(run.processes) + samples.process
        others = np.logical_or.reduce([samples.of(name) for name in (*LASTING, TRAINED)])
        has_phase = np.isin(pairs, pairs[samples.of(phase)])
        works = np.flatnonzero(has_phase & ~others & samples.ended)
        codes, at = np.unique(pairs[works], return_inverse=True)
        start = np.full(len(codes), np.iinfo(np.int64).max)
        end, step, weight = np.zeros((3, len(codes)), np.int64)
        np.minimum.at(start, at, samples.start[works])
        np.maximum.at(end, at, samples.end[works])
        np.maximum.at(step, at, samples.last_step[works])
        np.maximum.at(weight, at, samples.weight[works])
        counts = np.nan_to_num(noted(samples, "tokens")[works])
        tokens = np.bincount(at, counts, len(codes)).astype(float)
        order = np.argsort(start, kind="stable")
        rows = np.full(len(samples), -1)
        rows[works] = np.argsort(order, kind="stable")[at]
        sample, process = np.divmod(codes[order], max(1, len(run.processes)))
        return cls(
            samples,
            sample,
            process,
            start[order],
            end[order],
            step[order],
            tokens[order],
            weight[order],
            rows,
        )

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def thinned(self) -> bool:
        """Whether the ledgers had no room for all samples."""
        return len(self.samples.left_out) > 0

    @functools.cached_property
    def lengths(self) -> Floats:
        """Nanoseconds."""
        lengths: Floats = (self.end - self.start).astype(float)
        return lengths

    @functools.cached_property
    def workers(self) -> dict[int, Integers]:
        """By process, its stays."""
        numbers = np.unique(self.process).tolist()
        return {number: np.flatnonzero(self.process == number) for number in numbers}

    @functools.cached_property
    def rounds(self) -> float:
        """How often a worker ends all its samples before it begins more, on average."""
        rounds = 0
        for mine in self.workers.values():
            latest = np.maximum.accumulate(self.end[mine])
            rounds += 1 + int((self.start[mine][1:] >= latest[:-1]).sum())
        return rounds / max(1, len(self.workers))

    def filled(self, process: int) -> float:
        """The mean share of a worker's slots in use, if it has as many as ever were in use.

        While batches are trained: before the first one, samples may have waited for it.
        """
        mine, ends = self.workers[process], self._batches[1]
        lasted = self.end[mine].clip(ends[0], ends[-1]) - self.start[mine].clip(ends[0], ends[-1])
        return float(lasted.sum() / max(1, self._slots[process] * (ends[-1] - ends[0])))

    def held(self, process: int) -> float:
        """The mean share of a worker's slots that are empty until a batch has been trained.

        Slots that are empty between two samples for another reason, such as calls that take long,
        do not wait for training.
        """
        mine, ends = self.workers[process], self._batches[1]
        slots = self._slots[process]
        # each slot is free from the end of a sample until another one begins, or the run ends
        since = np.sort(self.end[mine])
        until = np.append(self.start[mine][slots:], np.full(slots, ends[-1]))
        waited = np.searchsorted(ends, since, "right") < np.searchsorted(ends, until, "right")
        lasted = until.clip(ends[0], ends[-1]) - since.clip(ends[0], ends[-1])
        return float(lasted[waited].sum() / max(1, slots * (ends[-1] - ends[0])))

    @functools.cached_property
    def _slots(self) -> dict[int, int]:
        """By process, the most samples that a worker ever had at once."""
        slots = {}
        for process, mine in self.workers.items():
            times = np.concatenate([self.start[mine], self.end[mine]])
            change = np.repeat([1, -1], len(mine))
            slots[process] = int(np.cumsum(change[np.lexsort((change, times))]).max(initial=1))
        return slots

    # Beside training

    @functools.cached_property
    def _batches(self) -> tuple[Integers, Integers, Integers, Integers]:
        """When each batch begins and ends to be trained, and its size; and the samples of all."""
        samples = self.samples
        rows = np.flatnonzero(samples.of(TRAINED) & samples.ended)
        rows = rows[np.argsort(samples.start[rows], kind="stable")]
        start, end, sample = samples.start[rows], samples.end[rows], samples.sample[rows]
        first = np.flatnonzero(np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1]))
        # several ranks may train a sample
        new = np.zeros(len(rows), np.int64)
        new[np.unique(sample, return_index=True)[1]] = 1
        ends, sizes = np.maximum.reduceat(end, first), np.add.reduceat(new, first)
        return start[first], ends, sizes, sample[new > 0]

    def saves(self, clocks: Clocks, training: float = 1.0) -> float:
        """The share of the time from the first batch to the last that other clocks would save.

        A batch is trained when the one before it is over and as many samples have come as it needs,
        whichever they are.

        Args:
            clocks: how time would pass for those who generate.
            training: by what to multiply the time that training takes.
        """
        starts, ends, sizes, trained = self._batches
        begin = float(ends[0])
        times: list[Floats] = []
        other_times: list[Floats] = []
        for process, mine in self.workers.items():
            over = self.end[mine[np.isin(self.sample[mine], trained)]].astype(float)
            if not len(over):
                continue
            before, after = clocks.get(process, (over[:1], over[:1]))
            gained = np.interp([*over, begin], before, before - after)
            times.append(over)
            other_times.append(over - np.where(over > begin, gained[:-1] - gained[-1], 0.0))
        if not times or len(starts) < _LEAST_BATCHES:
            return 0.0
        came, instead = np.sort(np.concatenate(times)), np.sort(np.concatenate(other_times))
        last = np.minimum(np.cumsum(sizes), len(came)) - 1
        end = begin
        for batch in range(1, len(starts)):
            ready = max(float(ends[batch - 1]), came[last[batch]])
            lag = max(0.0, float(starts[batch]) - ready)
            took = float(ends[batch] - starts[batch])
            end = max(end, instead[last[batch]]) + lag + training * took
        return 1 - (end - begin) / max(1.0, float(ends[-1]) - begin)

    # What if

    def if_never_held(self, process: int) -> tuple[Floats, Floats]:
        """How the time of a worker would pass if no slot waited for a batch to be trained.

        The more samples are in flight, the longer each takes.
        """
        mine, (alone, each) = self.workers[process], self.of_a_token
        used = self._in_flight(process)[1].max() * self.filled(process)
        share = 1 - self.held(process)
        slower = (alone + each * used / share) / max(1e-9, alone + each * used)
        begin, end = float(self.start[mine].min()), float(self.end[mine].max())
        return np.array([begin, end]), np.array([begin, begin + (end - begin) * share * slower])

    def clocks(self, lengths: Floats) -> Clocks:
        """How the time of the workers would pass if their stays took so many nanoseconds."""
        return {
            process: _clock(self.start[mine], self.end[mine], lengths[mine])
            for process, mine in self.workers.items()
        }

    def without(self, phase: str) -> Floats:
        """The lengths of the stays if a phase took no time, in whichever process it is."""
        samples, lengths = self.samples, np.array(self.lengths)
        by_sample: dict[int, list[int]] = {}
        for stay, sample in enumerate(self.sample.tolist()):
            by_sample.setdefault(sample, []).append(stay)
        for row in np.flatnonzero(samples.of(phase) & samples.ended).tolist():
            for stay in by_sample.get(int(samples.sample[row]), ()):
                begin = max(samples.start[row], self.start[stay])
                lengths[stay] -= max(0, min(samples.end[row], self.end[stay]) - begin)
        least: Floats = lengths.clip(0)
        return least

    def until(self, limit: float) -> Floats:
        """The lengths of the stays if samples ended at so many tokens."""
        samples, lengths = self.samples, np.array(self.lengths)
        tokens = np.nan_to_num(noted(samples, "tokens"))
        rows = np.flatnonzero((self.rows >= 0) & (tokens > 0))
        rows = rows[np.lexsort((samples.start[rows], self.rows[rows]))]
        stay, count = self.rows[rows], tokens[rows]
        before = np.cumsum(count) - count
        before -= before[np.searchsorted(stay, stay)]
        last = (before < limit) & (before + count > limit)
        part = (limit - before[last]) / count[last]
        for row, share in zip(rows[last].tolist(), part.tolist(), strict=True):
            times, _, made = self._decoding[int(samples.process[row])]
            first, end = np.interp([samples.start[row], samples.end[row]], times, made)
            until = float(np.interp(first + share * (end - first), made, times))
            at = self.rows[row]
            lengths[at] = min(lengths[at], until - self.start[at])
        return lengths

    # Tokens

    @property
    def of_a_token(self) -> tuple[float, float]:
        """What a token takes: nanoseconds by itself, and more for each sample in flight.

        So a worker takes as long as its longest sample by itself, and as much longer as it has
        tokens in all.
        """
        return self._of_a_token[:2]

    def pace(self, process: int, step: int) -> float:
        """How many times as long as usual a token takes in a worker in a step.

        A worker that is slow there for another reason is so with all its samples.
        """
        return self._of_a_token[2].get((process, step), 1.0)

    @functools.cached_property
    def _of_a_token(self) -> tuple[float, float, dict[tuple[int, int], float]]:
        """See `of_a_token` and `pace`: each is estimated with what is known of the other."""
        samples, tokens = self.samples, np.nan_to_num(noted(self.samples, "tokens"))
        rows = np.flatnonzero((self.rows >= 0) & (tokens > 0))
        took = (samples.end - samples.start)[rows].astype(float)
        beside = np.zeros(len(rows))
        for process in self.workers:
            mine = samples.process[rows] == process
            times, so_far = self._in_flight(process)[::2]
            edges = [samples.start[rows][mine], samples.end[rows][mine]]
            beside[mine] = np.diff(np.interp(edges, times, so_far), axis=0)[0]
        count = beside / took.clip(1)
        if len(rows) < 3 or count.std() == 0:
            return float(took.sum() / max(1.0, tokens[rows].sum())), 0.0, {}
        pairs = np.stack([self.process[self.rows[rows]], self.step[self.rows[rows]]])
        parts, part = np.unique(pairs, axis=1, return_inverse=True)
        part = part.reshape(-1)
        weight, of_a_token = np.sqrt(tokens[rows]), took / tokens[rows]
        columns = np.stack([weight, weight * count], axis=1)
        pace, alone, each = np.ones(parts.shape[1]), 0.0, 0.0
        for _ in range(_ESTIMATES):
            alone, each = np.linalg.lstsq(columns, weight * of_a_token / pace[part])[0]
            expected = np.bincount(part, tokens[rows] * (alone + each * count))
            pace = np.bincount(part, took) / expected.clip(1)
            pace /= np.median(pace)
        if each * count.mean() < _LEAST_SHARED * alone:
            return float(took.sum() / tokens[rows].sum()), 0.0, {}
        paces = dict(zip(zip(*parts.tolist(), strict=True), pace.tolist(), strict=True))
        return max(float(alone), 0.0), float(each), paces

    def _in_flight(self, process: int) -> tuple[Floats, Floats, Floats]:
        """When the number of samples that a worker generates changes, it, and its integral."""
        rows = np.flatnonzero(
            self.samples.of(GENERATE) & self.samples.ended & (self.samples.process == process)
        )
        times = np.concatenate([self.samples.start[rows], self.samples.end[rows]]).astype(float)
        order = np.argsort(times, kind="stable")
        count = np.cumsum(np.repeat([1.0, -1.0], len(rows))[order])
        so_far = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(times[order]))])
        return times[order], count, so_far

    @functools.cached_property
    def _decoding(self) -> dict[int, tuple[Floats, Floats, Floats]]:
        """By process, times, samples in flight, and tokens that each sample would have so far."""
        alone, each = self.of_a_token
        by_process = {}
        for process in self.workers:
            times, count, _ = self._in_flight(process)
            speed = 1 / (alone + each * count[:-1].clip(1)) if alone + each else count[:-1] + 1
            made = np.concatenate([[0.0], np.cumsum(speed * np.diff(times))])
            by_process[process] = times, count, made
        return by_process


def noted(samples: Samples, name: str) -> Floats:
    """A note of all phases; NaN where it is missing."""
    return samples.notes.get(name, np.full(len(samples), np.nan))


def _clock(starts: Integers, ends: Integers, lengths: Floats) -> tuple[Floats, Floats]:
    """When a worker's samples end, and when they would if they took `lengths`.

    A worker has slots: a sample begins as long after the end of another one as it did.

    >>> starts, ends = np.array([0, 0, 10]), np.array([10, 40, 30])
    >>> _clock(starts, ends, np.array([10.0, 20.0, 20.0]))
    (array([ 0., 10., 30., 40.]), array([ 0., 10., 20., 30.]))
    """
    in_order = np.sort(ends)
    in_flight: list[float] = []
    instead: list[float] = []
    before: list[float] = []
    after: list[float] = []
    earlier = np.searchsorted(in_order, starts, "right")
    for start, over, length in zip(
        starts.tolist(), earlier.tolist(), lengths.tolist(), strict=True
    ):
        while len(instead) < over:
            instead.append(heappop(in_flight))
        begin = instead[-1] + (start - float(in_order[over - 1])) if over else float(start)
        if not in_flight:  # the time between two rounds stays as it is
            before.append(start)
            after.append(begin)
        heappush(in_flight, begin + length)
    instead += sorted(in_flight)
    times = np.concatenate([before, in_order]).astype(float)
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([after, instead])[order]
