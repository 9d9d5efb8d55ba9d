"""Steps that take longer for one reason: work that only few steps or few ranks do, or a pause."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import comparable, odds
from gpuprof._analysis.loop import Loop
from gpuprof._analysis.run import OUTSIDE, Floats, Run
from gpuprof._analysis.waits import DATA

Integers = NDArray[np.int64]

_SLOW = 1.5
"""How many times the median a step must take to be slow."""
_OF_A_SLOW_STEP = 0.6
"""Share of a slow step's excess that one place must have to be the reason."""
_ALIKE_TIMES = 0.25
"""How much times of one kind may differ, as a share of how far two kinds are apart."""
_ALIKE = 0.8
"""Share of a rank's excess in a slow step, from which another rank's excess counts as equal."""
_STANDS_OUT, _MAY_STAND_OUT = 3.0, 2.0
"""How many times as much as the next pauses in order of cost pauses must cost to stand out, and for
it to be possible."""
_MOST_SLOW = 200
_BY_CHANCE = 0.001
"""The largest probability that a period is chance."""
_LEAST_TIMES = 4
"""How often something must occur to have a period."""
_LONGEST_PERIOD = 200
"""Steps. Looking for longer periods would take long."""
_TOP = 0.1
"""Share of the other steps that may take as long as those with a period."""
_REGULAR = 0.8
"""Share of the distances between successive steps of an occasion that must be equal for a period.
"""


@attrs.frozen(eq=False)
class Occasion:
    """Steps that take longer for one reason.

    Args:
        rows: positions in `Loop.usual`.
        processes: the processes that cause it, the one with most of its time first.
        places: the place where they do, or `OUTSIDE` of all scopes, followed by those inside it.
        cost: nanoseconds in all these steps together.
        more: for a pause, nanoseconds above the usual time, by process and step; ``None`` where
            the place occurs in these steps only.
        mostly: the place with most of its time, if that is not the first one.
        among_others: whether others pause nearly as long, as on a busy machine.
    """

    rows: list[int]
    processes: list[int]
    places: list[int]
    cost: float
    more: Mapping[int, Floats] | None = None
    mostly: int | None = None
    among_others: bool = False

    @property
    def worst(self) -> int:
        """The place with most of its time."""
        return self.places[0] if self.mostly is None else self.mostly

    def is_usual(self, record: Loop) -> bool:
        """Whether it occurs in most steps."""
        return 2 * len(self.rows) > len(record.usual)

    def is_of_most(self, record: Loop) -> bool:
        """Whether most ranks of a group have it."""
        run = record.run
        group = run.processes[self.processes[0]].group
        ranks = {process.name for process in run.groups.get(group, [])}
        names = {run.processes[number].name for number in self.processes}
        return len(ranks) > 1 and 2 * len(ranks & names) > len(ranks)

    def is_kind(self, record: Loop) -> bool:
        """Whether it is a kind of step, such as an evaluation: most ranks have it, in few steps."""
        return self.more is None and not self.is_usual(record) and self.is_of_most(record)

    def numbers(self, record: Loop) -> list[int]:
        """The numbers of the steps in which it occurs."""
        return [record.run.steps[record.usual[row]].number for row in self.rows]

    def period(self, record: Loop) -> int | None:
        """Its period in steps, if that is nearly constant; some occurrences may be missing."""
        gaps = np.diff(self.numbers(record))
        if len(gaps) < 2:
            return None
        usual = int(np.median(gaps))
        if usual > 1 and (gaps == usual).mean() >= _REGULAR:
            return usual
        least = int(gaps.min())
        # one gap in `least` is a multiple of it by chance
        by_chance = (1 / max(1, least)) ** (len(gaps) - 1)
        return least if not (gaps % least).any() and by_chance <= _BY_CHANCE else None


class Occasions:
    """The occasions of a record."""

    def __init__(self, record: Loop) -> None:
        self._record = record
        rows, processes, places, own = _worked(record)
        self._worked = rows, processes, places, own
        self.rare = self._rare()
        """Occasions in at most half of the steps, or on few ranks, such as a checkpoint."""
        self.pauses = self._paused()
        """Pauses, the most expensive first."""

    def _rare(self) -> list[Occasion]:
        run, (rows, processes, places, own) = self._record.run, self._worked
        size, steps = len(run.places) + 1, len(self._record.usual)
        presence = np.zeros((size, steps), bool)
        presence[places, rows] = True
        counts = presence.sum(axis=1)
        rare = (counts >= 2) & (2 * counts <= steps) | self._of_few()
        top = np.arange(size)
        for number, place in enumerate(run.places):  # a parent stands before its children
            if rare[number] and place.parent >= 0 and rare[place.parent]:
                top[number] = top[place.parent]
        occasions = []
        for place in np.flatnonzero(rare & (top == np.arange(size))).tolist():
            mine = top[places] == place
            sums = np.zeros((steps, len(run.processes)))
            np.add.at(sums, (rows[mine], processes[mine]), own[mine])
            # other groups may have a scope of that name as well, such as Ray's own
            most = run.processes[int(sums.sum(axis=0).argmax())].group
            sums[:, [process.number for process in run.processes if process.group != most]] = 0
            who = sums.sum(axis=0)
            inside = int(np.bincount(places[mine], own[mine], size).argmax())
            occasions.append(
                Occasion(
                    np.flatnonzero(sums.any(axis=1)).tolist(),
                    np.argsort(-who, kind="stable")[: np.count_nonzero(who)].tolist(),
                    [_place(run, inner) for inner in np.flatnonzero(top == place).tolist()],
                    float(sums.max(axis=1).sum()),
                    mostly=_place(run, inside),
                )
            )
        return occasions

    def _of_few(self) -> NDArray[np.bool_]:
        """The places that few ranks of a group enter while all the others wait.

        More ranks than one of four have a part of the job, and do nothing for the others.
        """
        record, (_, processes, places, _) = self._record, self._worked
        run, size = record.run, len(record.run.processes)
        codes, steps = np.unique(places * size + processes, return_counts=True)
        codes = codes[2 * steps > len(record.usual)]
        few = np.zeros(len(run.places) + 1, bool)
        for name in run.groups:
            group = list(chain.from_iterable(comparable.members(run, name).values()))
            if len(group) < 2:
                continue
            numbers = np.array([process.number for process in group])
            mine = np.isin(codes % size, numbers)
            counts = np.bincount(codes[mine] // size, minlength=len(few))
            work = run.work(group)[record.usual]
            few_ranks = (counts > 0) & (counts <= max(1, len(group) // 4))
            for place in np.flatnonzero(few_ranks).tolist():
                has = np.isin(numbers, codes[mine & (codes // size == place)] % size)
                gain = (work[:, has].max(axis=1) - work[:, ~has].max(axis=1)).clip(0).mean()
                few[place] = gain >= comparable.LEAST_SHARE * record.mean
        return few

    def _paused(self) -> list[Occasion]:
        """Steps that take much longer than most, grouped by the process and place that cause it.

        Leaves out what a place causes that occurs in few steps, which is an occasion already.
        """
        record, (rows, processes, places, own) = self._record, self._worked
        durations, run = record.durations, record.run
        if len(durations) < odds.LEAST_STEPS or not run.places:
            return []
        spread = 1.4826 * float(np.median(np.abs(durations - record.median)))
        slow = durations > max(_SLOW * record.median, record.median + 5 * spread)
        width = len(run.places) + 1
        codes, size = processes * width + places, len(run.processes) * width
        usual_times = np.bincount(codes[~slow[rows]], own[~slow[rows]], size) / max(
            1, (~slow).sum()
        )
        pauses: dict[int, Floats] = {}
        longest = np.argsort(-durations, kind="stable")[:_MOST_SLOW]
        rare = {
            place
            for occasion in self.rare
            if not occasion.is_usual(record)
            for place in occasion.places
        }
        for row in longest[slow[longest]].tolist():
            mine = rows == row
            more = np.bincount(codes[mine], own[mine], size) - usual_times
            most = int(more.argmax())
            # where others take longer by as much, all may wait unseen for one of them
            equals = more[most % width :: width] > _ALIKE * more[most]
            if (
                equals.sum() == 1
                and more[most] >= _OF_A_SLOW_STEP * (durations[row] - record.median)
                and _place(run, most % width) not in rare
            ):
                at = pauses.setdefault(most, np.zeros(len(run.steps)))
                at[record.usual[row]] = more[most]
        occasions = [
            self._pause({code // width: more}, code % width) for code, more in pauses.items()
        ]
        chosen = _that_stand_out(sorted(occasions, key=lambda occasion: -occasion.cost))
        slow_rows = {row for occasion in chosen for row in occasion.rows}
        return chosen + [
            occasion for occasion in self._of_groups(rare) if slow_rows.isdisjoint(occasion.rows)
        ]

    def _of_groups(self, rare: Collection[int]) -> list[Occasion]:
        """Steps in which any ranks of a group take longer: a different one each time, or all.

        It is not chance if the steps have a period, or if all take about the same time longer.
        """
        record, (rows, processes, places, own) = self._record, self._worked
        run, steps = record.run, len(record.usual)
        names = sorted({process.group for process in run.processes})
        group = np.array([names.index(process.group) for process in run.processes])
        width = len(run.places) + 1
        codes, code = np.unique(group[processes] * width + places, return_inverse=True)
        longest = np.zeros((len(codes), steps))
        np.maximum.at(longest, (code, rows), own)
        longer = (longest - np.median(longest, axis=1, keepdims=True)).clip(0)
        occasions = []
        for number in np.flatnonzero(longer.sum(axis=1) >= comparable.LEAST_SHARE * record.loop):
            at = _periodic(longest[number], len(codes))
            at = _clustered(longest[number]) if at is None else at
            place = int(codes[number]) % width
            if at is None or _place(run, place) in rare or self._is_shared(names, codes[number]):
                continue
            by_process: dict[int, Floats] = {}
            other_rows = np.setdiff1d(np.arange(steps), at)
            for process in np.unique(processes[code == number]).tolist():
                calls = (code == number) & (processes == process)
                times = np.bincount(rows[calls], own[calls], steps)
                excess = (times[at] - np.median(times[other_rows])).clip(0)
                excess[excess < _OF_A_SLOW_STEP * longer[number][at]] = 0
                if excess.any():
                    by_process[process] = np.zeros(len(run.steps))
                    by_process[process][np.array(record.usual)[at]] = excess
            occasion = self._pause(by_process, place)
            if occasion.cost >= comparable.LEAST_SHARE * record.loop:
                occasions.append(occasion)
        # a scope and the scope around it share their slow steps: keep the one that costs most
        occasions.sort(key=lambda occasion: -occasion.cost)
        return [
            occasion
            for at, occasion in enumerate(occasions)
            if all(set(occasion.rows).isdisjoint(other.rows) for other in occasions[:at])
        ]

    def _is_shared(self, names: Sequence[str], code: int) -> bool:
        """Whether ranks of a group take calls as they get free, so that steps differ anyway."""
        run = self._record.run
        group, place = divmod(int(code), len(run.places) + 1)
        if names[group] not in run.groups or place == len(run.places):
            return False
        ranks = list(comparable.members(run, names[group]).values())
        return len(ranks) > 1 and not comparable.is_steady(run, place, ranks)

    def _pause(self, more: Mapping[int, Floats], place: int) -> Occasion:
        """A pause of some processes at a place, as `_worked` numbers it."""
        record = self._record
        longest = np.max(list(more.values()), axis=0)
        rows = np.flatnonzero(longest[record.usual]).tolist()
        processes = sorted(more, key=lambda process: -more[process].sum())
        where = [_place(record.run, place)]
        return Occasion(rows, processes, where, float(longest.sum()), more)


def _periodic(times: Floats, tests: int) -> Integers | None:
    """The rows that take longer at regular intervals; ``None`` if chance explains that.

    Args:
        times: by row.
        tests: how many such arrays are tested.
    """
    count, best, chosen = len(times), _BY_CHANCE, None
    periods = range(2, min(count // _LEAST_TIMES, _LONGEST_PERIOD) + 1)
    slow = np.flatnonzero(times > _SLOW * np.median(times))
    for period in periods:
        # with such a period, about this share of all rows takes long
        share = 1 / period + _TOP * (1 - 1 / period)
        longest = times > np.quantile(times, 1 - share)
        phases = np.arange(count) % period
        hits, sizes = np.bincount(phases[longest], minlength=period), np.bincount(phases)
        chances = {
            phase: odds.tail(int(hits[phase]), int(sizes[phase]), share)
            for phase in np.flatnonzero(hits >= _REGULAR * sizes).tolist()
        }
        of_slow = np.unique(phases[slow]).tolist()
        if len(of_slow) == 1 and len(slow) >= max(_LEAST_TIMES, _REGULAR * sizes[of_slow[0]]):
            # few, but all that are slow
            size = int(sizes[of_slow[0]])
            chances[of_slow[0]] = math.comb(size, len(slow)) / math.comb(count, len(slow))
        for phase, one in chances.items():
            chance = one * sum(periods) * tests
            if chance < best:
                best, chosen = chance, np.flatnonzero(longest & (phases == phase))
    return chosen


def _clustered(times: Floats) -> Integers | None:
    """The rows that take longer, if times are of two kinds with a gap between; else ``None``.

    Pauses of a machine, and samples of any length, are in the gap, or differ as much themselves.
    """
    usual = float(np.median(times))
    slow = times > _SLOW * usual
    if not _LEAST_TIMES < slow.sum() <= len(times) / 2 or usual <= 0:
        return None
    at = np.flatnonzero(slow)
    if at[-1] - at[0] < len(at):
        return None  # a phase of the run
    excess = float(np.median(times[slow])) - usual
    least, most = np.quantile(times[slow], [_TOP, 1 - _TOP])
    has_gap = np.quantile(times[~slow], 1 - _TOP) - usual <= _ALIKE_TIMES * excess
    return at if has_gap and most - least <= _ALIKE_TIMES * excess else None


def _that_stand_out(occasions: list[Occasion]) -> list[Occasion]:
    """The one or two occasions that cost much more than the next: on a busy machine, all pause."""
    costs = [*(occasion.cost for occasion in occasions), 0.0]
    sizes = range(1, min(2, len(occasions)) + 1)
    few = [size for size in sizes if costs[size - 1] >= _STANDS_OUT * costs[size]]
    if occasions and not few and costs[0] >= _MAY_STAND_OUT * costs[1]:
        return [attrs.evolve(occasions[0], among_others=True)]
    return occasions[: max(few, default=0)]


def _worked(record: Loop) -> tuple[Integers, Integers, Integers, Floats]:
    """The rows of `Run.sums` with work: row of `usual`, process, place, nanoseconds.

    Includes the time that the driver, or ranks that mark their own steps, spend outside of all
    scopes: nobody calls these processes. Its place is numbered after all others.
    """
    run = record.run
    places = run.sums["place"].astype(np.int64)
    usual = np.zeros(len(run.steps), bool)
    usual[record.usual] = True
    data = np.array([place.waits_for == DATA for place in run.places] or [False], bool)
    own = run.sums["own"] - np.where(data[places], 0.0, run.sums["waiting"])
    work = (own > 0) & ~run.may_wait[places] & usual[run.sums["step"]]
    own_steps = sorted(run.edges) if run.driver is None else [run.driver]
    if record.graph.blind:
        own_steps.clear()
        work &= run.sums["process"] != run.driver
    outside = (run.lengths - run.tracked)[np.ix_(record.usual, own_steps)].clip(0)
    rows, columns = np.nonzero(outside)
    parts = (
        (np.searchsorted(record.usual, run.sums["step"][work]), rows),
        (run.sums["process"][work].astype(np.int64), np.array(own_steps, np.int64)[columns]),
        (places[work], np.full(len(rows), len(run.places))),
        (own[work], outside[rows, columns]),
    )
    arrays = tuple(np.concatenate(part) for part in parts)
    return arrays[0], arrays[1], arrays[2], arrays[3]


def _place(run: Run, number: int) -> int:
    """The usual number of a place of `_worked`, which numbers `OUTSIDE` as the last place."""
    return OUTSIDE if number == len(run.places) else number
