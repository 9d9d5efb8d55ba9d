"""Two sets of runs compared: what differs, what became slower, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from statistics import fmean
from typing import cast

import attrs

from gpuprof._analysis.figures import RANKS_SPREAD, Change, compare
from gpuprof._analysis.summary import Group, Promise, Scope, Summary

FEWEST = 30
"""Undisturbed steps that a run needs."""
DEFAULT = "step > 5%"
STEP = "step"
_MATTERS = 0.1
"""Share of a step that a rank's work must have to count for `Diff.finds_rank`."""
_WORTH_NAMING = 0.01
"""Share of a step by which a rank's time must have grown for the rank to be listed."""
Ranked = Scope | Group
"""What has figures for each rank."""


@attrs.frozen
class Condition:
    """When to fail: a step, group or place that is slower by more than both bounds.

    Args:
        text: the condition as the user wrote it.
        target: ``step``, a group, or a place. A place is a path, the end of a path, or a wildcard;
            ``GROUP:`` in front limits it to one group.
        ratio: the relative bound; 0 without one.
        seconds: the absolute bound in seconds per step; 0 without one.
    """

    text: str
    target: str
    ratio: float
    seconds: float

    def exceeded(self, change: Change, to_others: Change | None = None) -> bool:
        """Whether the lower end of a change's interval lies above both bounds.

        A rank also exceeds them if its change lies above both bounds and so does the lower end of
        its change relative to the other ranks.
        """
        if self._above(change.low, change):
            return True
        return (
            to_others is not None and self.suspected(change) and self._above(to_others.low, change)
        )

    def suspected(self, change: Change) -> bool:
        """Whether a change lies above both bounds, ignoring its interval."""
        return self._above(change.ratio, change)

    def _above(self, ratio: float, change: Change) -> bool:
        return ratio > 1 + self.ratio and change.before * (ratio - 1) > self.seconds

    def fails_from(self, change: Change, to_others: Change | None = None) -> float:
        """The ratio from which a change would fail, if its interval were as wide as this one's."""
        widths = [
            interval.ratio / interval.low
            for interval in (change, to_others)
            if interval is not None
        ]
        return (1 + max(self.ratio, self.seconds / change.before)) * min(widths)


@attrs.frozen
class ScopeChange:
    """How the time in a place of a group's trees has changed.

    Args:
        change: the change of the seconds per step in the place, the mean of the group's ranks.
        share: its share of the step's change, with its sign; ``None`` if the step's change may be
            chance.
        calls: per step and rank, before and after.
        worker: the rank that has changed most in the same direction; empty in a group of one.
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
        scope: the place; if the rank's whole work has changed, the one that has changed most.
        change: the change of its seconds per step.
        to_others: the change of its time relative to the other ranks' in the same step.
    """

    group: str
    worker: str
    scope: str
    change: Change
    to_others: Change

    @property
    def certain(self) -> bool:
        """Whether the rank, beyond chance, has become slower, and not only the others faster."""
        return self.to_others.low > 1 and self.change.ratio**2 >= self.to_others.ratio


@attrs.frozen
class Failure:
    """What a condition has found.

    Args:
        worker: the rank; empty for a whole group or the step.
        change: the change of the seconds.
        to_others: the change of a rank's time relative to the other ranks'; ``None`` if the rank
            waits there.
    """

    group: str
    scope: str
    worker: str
    change: Change
    to_others: Change | None = None


@attrs.frozen
class Check:
    """A condition and its result.

    Args:
        failures: the worst one first; empty if the condition has not failed.
        unsure: changes beyond the bounds that may be chance.
        fails_from: the smallest ratio at which the condition would fail with these runs, whichever
            of its targets has changed.
    """

    condition: Condition
    failures: list[Failure]
    unsure: list[Failure]
    fails_from: float


@attrs.frozen
class OneSided:
    """A place that only one of the two sets of runs has, and its seconds per step."""

    group: str
    scope: str
    seconds: float


@attrs.frozen
class Missing:
    """Ranks that another run has and this one lacks.

    Args:
        run: the side, ``A`` or ``B``, and the name of this run; in a baseline only the name.
    """

    run: str
    workers: list[str]


@attrs.frozen
class TooFew:
    """A run with fewer steps than `FEWEST` to compare; `run` is as in `Missing`."""

    run: str
    summary: Summary


@attrs.frozen
class Diff:
    """Two sets of runs compared.

    Args:
        scopes: the changes of places that both sets have, the largest first.
        new: places that only the second set has, the one that takes most first.
        gone: places that only the first set has, the one that takes most first.
        finds_rank: the smallest change of a rank's work relative to the others' that these runs
            would tell from chance nine times in ten, as a ratio; ``None`` where no group has
            several ranks.
        missing: ranks that some runs lack. Other ranks do their work there, so no condition is
            checked.
        too_few: runs of so few steps that no condition is checked.
        targets: groups and scopes of both sets of runs, if some condition is about none of them.
            No condition is checked then.
        kept: the saving promised for the first set, and whether the second set is promised one
            from the same workers, so that the cause has not been removed.
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
    too_few: list[TooFew]
    targets: list[str]
    kept: tuple[Promise, bool] | None

    @property
    def judged(self) -> bool:
        """Whether the conditions were checked."""
        return not (self.missing or self.too_few or self.targets)

    @property
    def slower(self) -> bool:
        """Whether a condition has failed."""
        return any(check.failures for check in self.checks)


@attrs.frozen
class _Place:
    """A scope of a group, or all the group's work if the path is empty.

    Args:
        sides: for each set of runs, the figures of those runs that have the place.
    """

    group: str
    scope: str
    sides: Sequence[Sequence[Ranked]]

    @property
    def ranks(self) -> list[str]:
        """The ranks that spend time here in all these runs."""
        both = list(chain.from_iterable(self.sides))
        return [
            name
            for name in both[0].ranks
            if all(name in entry.ranks and entry.ranks[name].seconds > 0 for entry in both)
        ]

    @property
    def chances(self) -> int:
        """How many figures are compared here: the group's, and two for each rank."""
        return 2 * len(self.ranks) + 1

    def change(self, chances: int = 1) -> Change:
        """How the group's time here has changed; see `compare`."""
        before, after = ([entry.seconds for entry in side] for side in self.sides)
        return compare(before, after, chances)

    def of_ranks(self, chances: int) -> Iterator[tuple[str, Change, Change | None]]:
        """Each rank, its change, and the change of its time relative to the other ranks'."""
        first, second = self.sides
        to_others = {
            name: ([e.to_others[name] for e in first], [e.to_others[name] for e in second])
            for name in self.ranks
            if all(name in entry.to_others for entry in chain(first, second))
        }
        # how much a rank differs from run to run is estimated from all ranks
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
    """Compare runs, each with a step that counts and without ranks that were killed.

    Args:
        before: one or more runs that differ by chance only.
    """
    pairs = labelled(before, after)
    # ratios throughout, as a machine's noise is a share of the time, not an amount
    step = compare([run.seconds for run in before], [run.seconds for run in after])
    places = list(_places(before, after))
    common = [place for place in places if all(place.sides)]
    scopes = [_scope(place, step) for place in common if place.scope]
    # only where every run has the place can each rank be compared with itself
    of_all = [place for place in common if len(pairs) == sum(map(len, place.sides))]
    works = [place for place in of_all if not place.scope]
    ranks, least = _slower_ranks(works, [place for place in of_all if place.scope], step)
    missing, few = list(missing_ranks(pairs)), too_few(pairs)
    checks = [_check(condition, step, common) for condition in conditions]
    targets = [] if all(checks) else _all_targets(common)
    return Diff(
        list(before),
        list(after),
        step,
        sorted(scopes, key=lambda scope: -abs(scope.change.seconds)),
        _only(places, 1),
        _only(places, 0),
        [_group(place) for place in works],
        [] if missing or few or targets else list(filter(None, checks)),
        ranks,
        least,
        missing,
        few,
        targets,
        _kept(before, after),
    )


def labelled(before: Sequence[Summary], after: Sequence[Summary]) -> list[tuple[str, Summary]]:
    """All runs, each with its side and name, as ``A (name)``."""
    sides = (("A", before), ("B", after))
    return [(f"{side} ({run.run})", run) for side, runs in sides for run in runs]


def _places(before: Sequence[Summary], after: Sequence[Summary]) -> Iterator[_Place]:
    """The work and the scopes of every group, if at least one run has them."""
    for name in dict.fromkeys(name for run in (*before, *after) for name in run.groups):
        groups = [[run.groups[name] for run in s if name in run.groups] for s in (before, after)]
        yield _Place(name, "", groups)
        for path in dict.fromkeys(path for group in chain(*groups) for path in group.scopes):
            scopes = [[group.scopes[path] for group in s if path in group.scopes] for s in groups]
            yield _Place(name, path, scopes)


def _only(places: Sequence[_Place], side: int) -> list[OneSided]:
    """The scopes that only the given side has, the one that takes most first."""
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
    """The ranks that have become slower, and the smallest ratio that would show in any rank's work.

    Compares each rank's whole work and each of its innermost scopes.
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
    return ranks, max(least, default=None)  # a promise about any rank is that of the worst one


def _changed_ranks(places: Sequence[_Place]) -> Iterator[RankChange]:
    """The change of each rank that has others to compare with, corrected for their number."""
    chances = sum(len(place.sides[0][0].to_others) for place in places)
    for place in places:
        for worker, change, to_others in place.of_ranks(chances):
            if to_others is not None:
                yield RankChange(place.group, worker, place.scope, change, to_others)


def _scope(place: _Place, step: Change) -> ScopeChange:
    change = place.change()
    of_ranks = {name: of_rank for name, of_rank, _ in place.of_ranks(place.chances)}
    sign = 1 if change.seconds >= 0 else -1  # the rank that explains the group's change
    worker = max(of_ranks, key=lambda name: sign * of_ranks[name].seconds, default="")
    before, after = (cast("Sequence[Scope]", side) for side in place.sides)
    return ScopeChange(
        place.group,
        place.scope,
        after[0].waits,
        change,
        # a share of a change that may be chance would mean nothing
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


def _all_targets(places: Sequence[_Place]) -> list[str]:
    """What a condition can be about beside the step: the groups, then their scopes."""
    groups = dict.fromkeys(place.group for place in places)
    return [*groups, *sorted(f"{place.group}:{place.scope}" for place in places if place.scope)]


def _check(condition: Condition, step: Change, places: Sequence[_Place]) -> Check | None:
    """Check a condition; ``None`` if it is about nothing that both sets of runs have."""
    targets = list(_targets(condition.target, step, places))
    if not targets:
        return None
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
    """All that a condition applies to, as if it had failed: for a scope, the group, then ranks."""
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
    """Whether a condition's target matches a scope of a group.

    >>> _means("predict", "A", "rollout/predict"), _means("B:*", "A", "rollout/predict")
    (True, False)
    """
    return any(
        fnmatchcase(name, target) for whole in (path, f"{group}:{path}") for name in _ends(whole)
    )


def _ends(path: str) -> Iterator[str]:
    """A path, then the same path without its outermost scope, and so on."""
    while path:
        yield path
        path = path.partition("/")[2]


def missing_ranks(runs: Sequence[tuple[str, Summary]]) -> Iterator[Missing]:
    """For each run that lacks ranks that another run has, those ranks."""
    workers = {
        where: [name for group in run.groups.values() for name in group.workers]
        for where, run in runs
    }
    all_names = dict.fromkeys(chain.from_iterable(workers.values()))
    for where, names in workers.items():
        if lacking := [name for name in all_names if name not in names]:
            yield Missing(where, lacking)


def too_few(runs: Sequence[tuple[str, Summary]]) -> list[TooFew]:
    """The runs that have too few steps."""
    return [TooFew(where, run) for where, run in runs if run.steps.used < FEWEST]
