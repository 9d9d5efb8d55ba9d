"""Two sets of runs compared: what differs, what became slower, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from statistics import fmean
from typing import cast

import attrs

from gpuprof._analysis.figures import RANKS_SPREAD, Change, compare
from gpuprof._analysis.summary import Group, Promise, Scope, Summary
from gpuprof._artifacts.early_ends import listed
from gpuprof.errors import ConfigError

FEWEST = 30
"""Undisturbed steps that a run needs."""
DEFAULT = "step > 5%"
STEP = "step"
_MATTERS = 0.1
"""Share of a step from which a rank's work counts for what could be found."""
_WORTH_NAMING = 0.01
"""Share of a step by which a rank's work must have grown."""
Ranked = Scope | Group
"""What has figures of ranks."""
_CONDITION = re.compile(r"\s*(?P<target>.+?)\s*>\s*(?P<bounds>[^>]+)")
_BOUND = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|s|ms|us|µs)")
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


@attrs.frozen
class Condition:
    """When to fail: a step, group or place that is slower by more than both bounds.

    Args:
        text: as it was written.
        target: ``step``, a group, or a place: its path, the end of it, or a wildcard, and a group
            and a colon in front of it to mean that group's only.
        ratio: the relative bound; 0 without one.
        seconds: the absolute one per step; 0 without one.
    """

    text: str
    target: str
    ratio: float
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        Raises:
            ConfigError: it is not one.

        >>> condition = Condition.parse("rollout/generate > 10%, 20ms")
        >>> condition.target, condition.ratio, condition.seconds
        ('rollout/generate', 0.1, 0.02)
        """
        match = _CONDITION.fullmatch(text)
        parts = (
            [_BOUND.fullmatch(part.strip()) for part in match["bounds"].split(",")] if match else []
        )
        relative = [float(p["number"]) / 100 for p in parts if p and p["unit"] == "%"]
        absolute = [float(p["number"]) * _UNITS[p["unit"]] for p in parts if p and p["unit"] != "%"]
        if match is None or not all(parts) or len(relative) > 1 or len(absolute) > 1:
            raise ConfigError(
                [
                    (
                        f"--fail-if: {text!r} is not valid; expected 'TARGET > 5%', "
                        "'TARGET > 20ms' or 'TARGET > 5%, 20ms', with TARGET step, a worker group, "
                        "or a scope such as rollout/generate"
                    )
                ]
            )
        return cls(text.strip(), match["target"], sum(relative), sum(absolute))

    def exceeded(self, change: Change, to_others: Change | None = None) -> bool:
        """Whether the lower end of a change lies above both bounds.

        Of a rank also whether it has changed by more than that, and the lower end of its change to
        the other ranks lies above both.
        """
        if self._above(change.low, change):
            return True
        return (
            to_others is not None and self.suspected(change) and self._above(to_others.low, change)
        )

    def suspected(self, change: Change) -> bool:
        """Whether a change lies above both bounds, its interval left aside."""
        return self._above(change.ratio, change)

    def _above(self, ratio: float, change: Change) -> bool:
        return ratio > 1 + self.ratio and change.before * (ratio - 1) > self.seconds

    def fails_from(self, change: Change, to_others: Change | None = None) -> float:
        """The ratio from which a change with an interval as wide as this one's would fail."""
        widths = [
            interval.ratio / interval.low
            for interval in (change, to_others)
            if interval is not None
        ]
        return (1 + max(self.ratio, self.seconds / change.before)) * min(widths)


@attrs.frozen
class ScopeChange:
    """A place in a group's trees.

    Args:
        change: of a step's seconds in it, the mean of the group's ranks.
        share: of the step's change, with its sign; ``None`` if the step's may be chance.
        calls: per step and rank, before and after.
        worker: the rank that has changed most in the same direction; empty in a group of one.
        of_worker: its change.
    """

    group: str
    scope: str
    waits: bool
    change: Change
    share: float | None
    calls: tuple[float, float]
    worker: str = ""
    of_worker: Change | None = None


@attrs.frozen
class GroupChange:
    """A group's work, waiting and imbalance; see `gpuprof._analysis.summary.Group`."""

    group: str
    work: Change
    waits: Change
    imbalance: tuple[float, float]


@attrs.frozen
class RankChange:
    """How the work of a rank has changed.

    Args:
        scope: where; of a rank whose whole work has changed, where it has changed most.
        change: of its seconds per step.
        to_others: of its seconds to those of the other ranks in the same step.
    """

    group: str
    worker: str
    scope: str
    change: Change
    to_others: Change

    @property
    def certain(self) -> bool:
        """Whether it has become slower, and not only the others faster, by more than chance."""
        return self.to_others.low > 1 and self.change.ratio**2 >= self.to_others.ratio


@attrs.frozen
class Failure:
    """What a condition has found.

    Args:
        worker: the rank; empty for a whole group or the step.
        change: of its seconds.
        to_others: of a rank's seconds to those of the other ranks; ``None`` if it waits there.
    """

    group: str
    scope: str
    worker: str
    change: Change
    to_others: Change | None = None


@attrs.frozen
class Check:
    """A condition and what came of it.

    Args:
        failures: the worst one first; empty if all is in order.
        unsure: what has changed by more than the bounds, but may have by chance.
        fails_from: the least ratio that it could find with these runs, among its targets the worst.
    """

    condition: Condition
    failures: list[Failure]
    unsure: list[Failure]
    fails_from: float


@attrs.frozen
class OneSided:
    """A place that only one side has, and its seconds per step."""

    group: str
    scope: str
    seconds: float


@attrs.frozen
class Missing:
    """Ranks that another run has, and this one lacks.

    Args:
        run: its side, ``A`` or ``B``, and its name; only its name in a baseline.
    """

    run: str
    workers: list[str]


@attrs.frozen
class Diff:
    """Two sets of runs compared.

    Args:
        before: the runs.
        after: the same.
        step: the change of a step's seconds.
        scopes: of places that both have, in order of what they cost.
        new: places that only the second has, the one that takes most first.
        gone: places that only the first has.
        groups: by name.
        checks: one for each condition.
        slower_ranks: the one that costs most first.
        finds_rank: the least ratio of a rank's work to the others' that would be told from chance
            nine times in ten; ``None`` where no group has several ranks.
        missing: ranks that not all runs have. Others do their work, so that no condition is judged.
        kept: what the first run was promised, and whether the second one is promised the same
            again, so that nobody has mended it.
    """

    before: list[Summary]
    after: list[Summary]
    step: Change
    scopes: list[ScopeChange]
    new: list[OneSided]
    gone: list[OneSided]
    groups: list[GroupChange]
    checks: list[Check]
    slower_ranks: list[RankChange]
    finds_rank: float | None
    missing: list[Missing]
    kept: tuple[Promise, bool] | None

    @property
    def slower(self) -> bool:
        """Whether a condition has failed."""
        return any(check.failures for check in self.checks)


@attrs.frozen
class _Place:
    """A scope of a group, or with an empty path all its work.

    Args:
        sides: what the runs have there, of those that have it.
    """

    group: str
    scope: str
    sides: Sequence[Sequence[Ranked]]

    @property
    def ranks(self) -> list[str]:
        """Those that are there in all these runs."""
        both = list(chain.from_iterable(self.sides))
        return [
            name
            for name in both[0].ranks
            if all(name in entry.ranks and entry.ranks[name].seconds > 0 for entry in both)
        ]

    @property
    def chances(self) -> int:
        """How many figures of it are looked at: its group's, and two of each rank."""
        return 2 * len(self.ranks) + 1

    def change(self, chances: int = 1) -> Change:
        """How it has changed; see `compare`."""
        before, after = ([entry.seconds for entry in side] for side in self.sides)
        return compare(before, after, chances)

    def of_ranks(self, chances: int) -> Iterator[tuple[str, Change, Change | None]]:
        """The change of each rank, and that of its time to the other ranks'."""
        first, second = self.sides
        to_others = {
            name: ([e.to_others[name] for e in first], [e.to_others[name] for e in second])
            for name in self.ranks
            if all(name in entry.to_others for entry in chain(first, second))
        }
        # what ranks differ by from run to run is told by all of them
        pool = list(to_others.values())
        for name in self.ranks:
            before, after = ([entry.ranks[name] for entry in side] for side in self.sides)
            others = None
            if name in to_others:
                others = compare(*to_others[name], chances, RANKS_SPREAD, pool)
            yield name, compare(before, after, chances), others


def diff(
    before: Sequence[Summary], after: Sequence[Summary], conditions: Iterable[Condition] = ()
) -> Diff:
    """Compare runs.

    Args:
        before: one or more, equal but for chance.
        after: the same.
        conditions: when to fail.

    Raises:
        ConfigError: they cannot be compared: ranks were killed, there are too few steps, or a
            condition is about nothing that both have.
    """
    sides = (("A", before), ("B", after))
    pairs = [(f"{side} ({run.run})", run) for side, runs in sides for run in runs]
    _refuse("not comparable", [*_early(pairs), *_too_few(pairs)])
    step = compare([run.seconds for run in before], [run.seconds for run in after])
    places = list(_places(before, after))
    common = [place for place in places if all(place.sides)]
    scopes = [_scope(place, step) for place in common if place.scope]
    of_all = [place for place in common if len(pairs) == sum(map(len, place.sides))]
    works = [place for place in of_all if not place.scope]
    ranks, least = _slower_ranks(works, [place for place in of_all if place.scope], step)
    missing = list(_missing(pairs))
    return Diff(
        list(before),
        list(after),
        step,
        sorted(scopes, key=lambda scope: -abs(scope.change.seconds)),
        _only(places, 1),
        _only(places, 0),
        [_group(place) for place in works],
        [] if missing else [_check(condition, step, common) for condition in conditions],
        ranks,
        least,
        missing,
        _kept(before, after),
    )


def _places(before: Sequence[Summary], after: Sequence[Summary]) -> Iterator[_Place]:
    """The work and the scopes of all groups that any run has."""
    for name in dict.fromkeys(name for run in (*before, *after) for name in run.groups):
        groups = [[run.groups[name] for run in s if name in run.groups] for s in (before, after)]
        yield _Place(name, "", groups)
        for path in dict.fromkeys(path for group in chain(*groups) for path in group.scopes):
            scopes = [[group.scopes[path] for group in s if path in group.scopes] for s in groups]
            yield _Place(name, path, scopes)


def _only(places: Sequence[_Place], side: int) -> list[OneSided]:
    """The scopes that only one side has, the one that takes most first."""
    scopes = [
        OneSided(place.group, place.scope, fmean(e.seconds.seconds for e in place.sides[side]))
        for place in places
        if place.scope and not place.sides[1 - side]
    ]
    return sorted(scopes, key=lambda scope: -scope.seconds)


def _kept(before: Sequence[Summary], after: Sequence[Summary]) -> tuple[Promise, bool] | None:
    promise = next((run.promise for run in before if run.promise), None)
    if promise is None:
        return None
    suspects = [set(run.promise.workers) for run in after if run.promise]
    return promise, any(not names.isdisjoint(promise.workers) for names in suspects)


def _slower_ranks(
    works: Sequence[_Place], places: Sequence[_Place], step: Change
) -> tuple[list[RankChange], float | None]:
    """The ranks that have become slower, and the least ratio of one's work that would show it.

    Their whole work is looked at, and each of their innermost scopes.
    """
    paths = {(place.group, place.scope) for place in places}
    innermost = [
        place
        for place in places
        if not any(g == place.group and path.startswith(f"{place.scope}/") for g, path in paths)
    ]
    of_work, of_places = list(_changed_ranks(works)), list(_changed_ranks(innermost))
    least = [
        rank.to_others.finds for rank in of_work if rank.change.before >= _MATTERS * step.before
    ]
    of_places.sort(key=lambda rank: -rank.change.seconds)
    costly = {rank.worker: rank.scope for rank in reversed(of_places)}
    slower: dict[str, RankChange] = {}
    for rank in (*of_work, *of_places):
        if rank.certain and rank.change.seconds >= _WORTH_NAMING * step.before:
            scope = rank.scope or costly.get(rank.worker, "")
            slower.setdefault(rank.worker, attrs.evolve(rank, scope=scope))
    ranks = sorted(slower.values(), key=lambda rank: -rank.change.seconds)
    return ranks, max(least, default=None)


def _changed_ranks(places: Sequence[_Place]) -> Iterator[RankChange]:
    """The change of each rank that is compared with others, one of as many that are looked at."""
    chances = sum(len(place.sides[0][0].to_others) for place in places)
    for place in places:
        for worker, change, to_others in place.of_ranks(chances):
            if to_others is not None:
                yield RankChange(place.group, worker, place.scope, change, to_others)


def _scope(place: _Place, step: Change) -> ScopeChange:
    change = place.change()
    of_ranks = {name: of_rank for name, of_rank, _ in place.of_ranks(place.chances)}
    sign = 1 if change.seconds >= 0 else -1
    worker = max(of_ranks, key=lambda name: sign * of_ranks[name].seconds, default="")
    before, after = (cast("Sequence[Scope]", side) for side in place.sides)
    return ScopeChange(
        place.group,
        place.scope,
        after[0].waits,
        change,
        None if step.low <= 1 <= step.high else change.seconds / step.seconds,
        (fmean(scope.calls for scope in before), fmean(scope.calls for scope in after)),
        worker,
        of_ranks.get(worker),
    )


def _group(place: _Place) -> GroupChange:
    before, after = (cast("Sequence[Group]", side) for side in place.sides)
    return GroupChange(
        place.group,
        place.change(),
        compare([group.waits for group in before], [group.waits for group in after]),
        (fmean(group.imbalance for group in before), fmean(group.imbalance for group in after)),
    )


def _check(condition: Condition, step: Change, places: Sequence[_Place]) -> Check:
    targets = list(_targets(condition.target, step, places))
    if not targets:
        groups = list(dict.fromkeys(place.group for place in places))
        scopes = sorted(f"{place.group}:{place.scope}" for place in places if place.scope)
        raise ConfigError(
            [
                (
                    f"--fail-if: {condition.target!r} is neither step nor a group or a scope of "
                    f"both runs; groups: {', '.join(groups)}; scopes: {', '.join(scopes)}"
                )
            ]
        )
    targets.sort(key=lambda target: -target.change.seconds)
    failures = [target for target in targets if condition.exceeded(target.change, target.to_others)]
    suspects = [target for target in targets if condition.suspected(target.change)]
    return Check(
        condition,
        failures,
        [target for target in suspects if target not in failures],
        max(condition.fails_from(target.change, target.to_others) for target in targets),
    )


def _targets(target: str, step: Change, places: Sequence[_Place]) -> Iterator[Failure]:
    """All that a condition is about, as if it had failed; a scope's ranks after their group."""
    if target == STEP:
        yield Failure("", STEP, "", step)
        return
    for place in places:
        if not place.scope:
            change = place.change()
            if target == place.group and change.before and change.after:
                yield Failure(place.group, "", "", change)
        elif _means(target, place.group, place.scope):
            yield Failure(place.group, place.scope, "", place.change(place.chances))
            for name, of_worker, to_others in place.of_ranks(place.chances):
                yield Failure(place.group, place.scope, name, of_worker, to_others)


def _means(target: str, group: str, path: str) -> bool:
    """Whether a condition's target is a place.

    >>> _means("predict", "A", "rollout/predict"), _means("B:*", "A", "rollout/predict")
    (True, False)
    """
    return any(
        fnmatchcase(name, target) for whole in (path, f"{group}:{path}") for name in _ends(whole)
    )


def _ends(path: str) -> Iterator[str]:
    """A path, and what is left of it without the scopes around."""
    while path:
        yield path
        path = path.partition("/")[2]


def check_runs(runs: Sequence[Summary]) -> None:
    """Check that runs can be a baseline.

    Raises:
        ConfigError: there are too few steps, ranks that not all of them have, or killed ones.
    """
    pairs = [(run.run, run) for run in runs]
    missing = [f"{gap.run} has no ledger of {listed(gap.workers)}" for gap in _missing(pairs)]
    _refuse("no baseline", [*missing, *_early(pairs), *_too_few(pairs)])


def _refuse(what: str, problems: Sequence[str]) -> None:
    if problems:
        raise ConfigError([f"{what}: {problem}" for problem in problems])


def _missing(runs: Sequence[tuple[str, Summary]]) -> Iterator[Missing]:
    """What a run lacks that another has."""
    workers = {
        where: [name for group in run.groups.values() for name in group.workers]
        for where, run in runs
    }
    all_names = dict.fromkeys(chain.from_iterable(workers.values()))
    for where, names in workers.items():
        if lacking := [name for name in all_names if name not in names]:
            yield Missing(where, lacking)


def _early(runs: Sequence[tuple[str, Summary]]) -> Iterator[str]:
    for where, run in runs:
        yield from (f"{where}: {sentence}" for sentence in run.ended_early)


def _too_few(runs: Sequence[tuple[str, Summary]]) -> Iterator[str]:
    for where, run in runs:
        if not run.steps.all:
            yield f"{where} has no steps; `gpuprof explain {run.run}` says how to mark them"
        elif run.steps.used < FEWEST:
            yield (
                f"{where} has {run.steps.used} of {run.steps.all} steps to compare, and {FEWEST} "
                f"are needed: let the job take more{left_out(run)}"
            )


def left_out(run: Summary) -> str:
    """Which steps are not used, as the end of a sentence."""
    reasons = (
        (run.steps.warm_up, "warm-up"),
        (run.steps.disturbed, "captured or slowed by a window"),
        (run.steps.incomplete, "incomplete"),
    )
    words = ", ".join(f"{number} {reason}" for number, reason in reasons if number)
    return f"; left out: {words}" if words else ""
