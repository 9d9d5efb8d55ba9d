"""Two sets of runs compared: what differs, what became slower, and where."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import attrs

from gpuprof._analysis.figures import RANKS_SPREAD, Change, Figure, compare
from gpuprof._analysis.summary import Group, Promise, Reports, Scope, Summary
from gpuprof._artifacts.formats import Setup
from gpuprof.errors import ConfigError

JSON_VERSION = 1
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
_WHERE_FILES_GO = ("output_dir", "working_dir")
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

        >>> made = Condition.parse("rollout/generate > 10%, 20ms")
        >>> made.target, made.ratio, made.seconds
        ('rollout/generate', 0.1, 0.02)
        """
        found = _CONDITION.fullmatch(text)
        parts = (
            [_BOUND.fullmatch(part.strip()) for part in found["bounds"].split(",")] if found else []
        )
        relative = [float(p["number"]) / 100 for p in parts if p and p["unit"] == "%"]
        absolute = [float(p["number"]) * _UNITS[p["unit"]] for p in parts if p and p["unit"] != "%"]
        if found is None or not all(parts) or len(relative) > 1 or len(absolute) > 1:
            raise ConfigError(
                [
                    (
                        f"--fail-if: {text!r} is not valid; expected 'TARGET > 5%', "
                        "'TARGET > 20ms' or 'TARGET > 5%, 20ms', with TARGET step, a worker group, "
                        "or a scope such as rollout/generate"
                    )
                ]
            )
        return cls(text.strip(), found["target"], sum(relative), sum(absolute))

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
        widths = [each.ratio / each.low for each in (change, to_others) if each is not None]
        return (1 + max(self.ratio, self.seconds / change.before)) * min(widths)


@attrs.frozen
class Difference:
    """Something else than time that differs between the runs.

    Args:
        what: such as ``torch`` or ``steps``, a key of the configuration.
        matters: whether ``--strict`` refuses it. Names of nodes do not matter.
    """

    what: str
    before: str
    after: str
    matters: bool = True


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
class Diff:
    """Two sets of runs compared.

    Args:
        before: the runs.
        after: the same.
        differences: what else differs.
        step: the change of a step's seconds.
        scopes: of places that both have, in order of what they cost.
        new: places that only the second has, as group, path and seconds per step.
        gone: places that only the first has.
        groups: by name.
        checks: one for each condition.
        slower_ranks: the one that costs most first.
        finds_rank: the least ratio of a rank's work to the others' that would be told from chance
            nine times in ten; ``None`` where no group has several ranks.
        unlike: sentences on ranks that not all runs have. Others do their work, so that no
            condition is judged.
        kept: what the first run was promised, and whether the second one is promised the same
            again, so that nobody has mended it.
    """

    before: list[Summary]
    after: list[Summary]
    differences: list[Difference]
    step: Change
    scopes: list[ScopeChange]
    new: list[tuple[str, str, float]]
    gone: list[tuple[str, str, float]]
    groups: list[GroupChange]
    checks: list[Check]
    slower_ranks: list[RankChange]
    finds_rank: float | None
    unlike: list[str]
    kept: tuple[Promise, bool] | None

    @property
    def slower(self) -> bool:
        """Whether a condition has failed."""
        return any(check.failures for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """In types that JSON has: seconds and ratios, ``None`` where there is none."""
        return {
            "version": JSON_VERSION,
            "slower": self.slower,
            "unlike": self.unlike,
            "before": [_about(each) for each in self.before],
            "after": [_about(each) for each in self.after],
            "differences": [attrs.asdict(each) for each in self.differences],
            "finds": {
                "step": _number(self.step.finds),
                "rank": None if self.finds_rank is None else _number(self.finds_rank),
            },
            "step": _numbers(self.step),
            "slower_ranks": [
                {
                    "group": each.group,
                    "worker": each.worker,
                    "scope": each.scope,
                    **_numbers(each.change),
                    "to_others": _numbers(each.to_others),
                }
                for each in self.slower_ranks
            ],
            "promised": {**attrs.asdict(self.kept[0]), "again": self.kept[1]}
            if self.kept
            else None,
            "scopes": [
                {
                    "group": each.group,
                    "scope": each.scope,
                    "waits": each.waits,
                    **_numbers(each.change),
                    "share": each.share,
                    "calls": list(each.calls),
                    "worker": each.worker,
                    "of_worker": _numbers(each.of_worker) if each.of_worker else None,
                }
                for each in self.scopes
            ],
            "new": [dict(zip(("group", "scope", "seconds"), e, strict=True)) for e in self.new],
            "gone": [dict(zip(("group", "scope", "seconds"), e, strict=True)) for e in self.gone],
            "groups": [
                {
                    "group": each.group,
                    "work": _numbers(each.work),
                    "waits": _numbers(each.waits),
                    "imbalance": list(each.imbalance),
                }
                for each in self.groups
            ],
            "checks": [
                {
                    "condition": check.condition.text,
                    "fails_from": _number(check.fails_from),
                    "failures": [_failure(each) for each in check.failures],
                    "unsure": [_failure(each) for each in check.unsure],
                }
                for check in self.checks
            ],
        }


def _about(run: Summary) -> dict[str, Any]:
    return {
        "run": run.run,
        "steps": attrs.asdict(run.steps),
        "seconds": run.seconds.seconds,
        "effective_steps": run.seconds.effective,
        "waited": run.waited,
        "setup": run.setup,
        "reports": attrs.asdict(run.reports) if run.reports else None,
        "profiling": run.overhead,
    }


def _failure(found: Failure) -> dict[str, Any]:
    return {
        "group": found.group,
        "scope": found.scope,
        "worker": found.worker,
        **_numbers(found.change),
        "to_others": _numbers(found.to_others) if found.to_others else None,
    }


def _numbers(change: Change) -> dict[str, float | None]:
    return {name: _number(value) for name, value in attrs.asdict(change).items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def diff(
    before: Sequence[Summary],
    after: Sequence[Summary],
    conditions: Iterable[Condition] = (),
    strict: bool = False,
) -> Diff:
    """Compare runs.

    Args:
        before: one or more, equal but for chance.
        after: the same.
        conditions: when to fail.
        strict: refuse runs that differ in anything that matters.

    Raises:
        ConfigError: they cannot be compared: ranks were killed, there are too few steps, or a
            condition is about nothing that both have; with `strict`, anything else differs.
    """
    found = differences(before, after)
    named = [*_named_runs("A", before), *_named_runs("B", after)]
    unlike = list(_ranks(named))
    problems = [*_early(named), *_too_few(named)]
    if strict:
        problems += [
            f"{each.what}: {each.before} in A, {each.after} in B; without --strict this is listed "
            "and compared all the same"
            for each in found
            if each.matters
        ]
    if problems:
        raise ConfigError([f"not comparable: {problem}" for problem in problems])
    step = compare([run.seconds for run in before], [run.seconds for run in after])
    names = list(dict.fromkeys(name for run in (*before, *after) for name in run.groups))
    scopes = []
    new: list[tuple[str, str, float]] = []
    gone: list[tuple[str, str, float]] = []
    for group in names:
        of_both = [
            [run.groups[group] for run in side if group in run.groups] for side in (before, after)
        ]
        for path in dict.fromkeys(path for side in of_both for g in side for path in g.scopes):
            sides = [[g.scopes[path] for g in side if path in g.scopes] for side in of_both]
            if all(sides):
                scopes.append(_scope(group, path, sides, step))
            else:
                only = sides[0] or sides[1]
                cost = sum(each.seconds.seconds for each in only) / len(only)
                (gone if sides[0] else new).append((group, path, cost))
    ranks, least = _slower_ranks(before, after, step)
    return Diff(
        list(before),
        list(after),
        found,
        step,
        sorted(scopes, key=lambda each: -abs(each.change.seconds)),
        sorted(new, key=lambda each: -each[2]),
        sorted(gone, key=lambda each: -each[2]),
        [_group(name, before, after) for name in _common(before, after)],
        []
        if unlike
        else [_check(condition, step, scopes, before, after) for condition in conditions],
        ranks,
        least,
        unlike,
        _kept(before, after),
    )


def _kept(before: Sequence[Summary], after: Sequence[Summary]) -> tuple[Promise, bool] | None:
    promise = next((run.promise for run in before if run.promise), None)
    if promise is None:
        return None
    accused = [set(run.promise.workers) for run in after if run.promise]
    return promise, any(not names.isdisjoint(promise.workers) for names in accused)


def _slower_ranks(
    before: Sequence[Summary], after: Sequence[Summary], step: Change
) -> tuple[list[RankChange], float | None]:
    """The ranks that have become slower, and the least ratio of one's work that would show it.

    Their whole work is looked at, and each of their innermost scopes.
    """
    works: list[tuple[str, str, list[Group], list[Group]]] = []
    places: list[tuple[str, str, list[Scope], list[Scope]]] = []
    for name in _common(before, after):
        earlier, later = ([run.groups[name] for run in side] for side in (before, after))
        works.append((name, "", earlier, later))
        paths = earlier[0].scopes
        for path in paths:
            if all(path in group.scopes for group in (*earlier, *later)) and not any(
                other.startswith(f"{path}/") for other in paths
            ):
                ours, theirs = ([group.scopes[path] for group in side] for side in (earlier, later))
                places.append((name, path, ours, theirs))
    of_work = list(_changed_ranks(works))
    of_places = list(_changed_ranks(places))
    least = [
        each.to_others.finds for each in of_work if each.change.before >= _MATTERS * step.before
    ]
    costly = {}
    for each in sorted(of_places, key=lambda each: each.change.seconds):
        costly[each.worker] = each
    slower: dict[str, RankChange] = {}
    for each in (*of_work, *sorted(of_places, key=lambda each: -each.change.seconds)):
        if each.certain and each.change.seconds >= _WORTH_NAMING * step.before:
            scope = each.scope or (costly[each.worker].scope if each.worker in costly else "")
            slower.setdefault(each.worker, attrs.evolve(each, scope=scope))
    ordered = sorted(slower.values(), key=lambda each: -each.change.seconds)
    return ordered, max(least, default=None)


def _changed_ranks(
    places: Sequence[tuple[str, str, Sequence[Ranked], Sequence[Ranked]]],
) -> Iterator[RankChange]:
    """The change of each rank that is compared with others, one of as many that are looked at."""
    chances = sum(len(before[0].to_others) for *_, before, _ in places)
    for group, scope, before, after in places:
        for worker, change, to_others in _of_ranks(before, after, chances):
            if to_others is not None:
                yield RankChange(group, worker, scope, change, to_others)


def _scope(group: str, path: str, sides: list[list[Scope]], step: Change) -> ScopeChange:
    before, after = sides
    change = compare([each.seconds for each in before], [each.seconds for each in after])
    certain = not step.low <= 1 <= step.high
    of_ranks = {name: of_rank for name, of_rank, _ in _of_ranks(before, after)}
    sign = 1 if change.seconds >= 0 else -1
    worker = max(of_ranks, key=lambda name: sign * of_ranks[name].seconds, default="")
    return ScopeChange(
        group,
        path,
        after[0].waits,
        change,
        change.seconds / step.seconds if certain else None,
        (_mean(each.calls for each in before), _mean(each.calls for each in after)),
        worker,
        of_ranks.get(worker),
    )


def _of_ranks(
    before: Sequence[Ranked], after: Sequence[Ranked], chances: int = 0
) -> Iterator[tuple[str, Change, Change | None]]:
    """Of each rank that has the scope in all runs the change, and that to the others.

    Args:
        chances: how many are looked at; 0: those of these ranks.
    """
    both = [*before, *after]
    names = [name for name in before[0].ranks if all(_has_rank(name, each) for each in both)]
    chances = chances or _chances(len(names))
    to_others = {
        name: [[each.to_others[name] for each in side] for side in (before, after)]
        for name in names
        if all(name in each.to_others for each in both)
    }
    # what ranks differ by from run to run is told by all of them
    alike = list(to_others.values())
    for name in names:
        ours, theirs = ([each.ranks[name] for each in side] for side in (before, after))
        change = compare(ours, theirs, chances)
        if name in to_others:
            ours, theirs = to_others[name]
            yield name, change, compare(ours, theirs, chances, RANKS_SPREAD, alike)
        else:
            yield name, change, None


def _chances(ranks: int) -> int:
    """How many figures of a scope are looked at: its group's, and two of each rank."""
    return 2 * ranks + 1


def _has_rank(name: str, scope: Ranked) -> bool:
    return name in scope.ranks and scope.ranks[name].seconds > 0


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _common(before: Sequence[Summary], after: Sequence[Summary]) -> list[str]:
    """The groups that all runs have."""
    runs = [*before, *after]
    return [name for name in before[0].groups if all(name in run.groups for run in runs)]


def _group(name: str, before: Sequence[Summary], after: Sequence[Summary]) -> GroupChange:
    sides = [[run.groups[name] for run in side] for side in (before, after)]

    def change(of: str) -> Change:
        figures: list[list[Figure]] = [[getattr(each, of) for each in side] for side in sides]
        return compare(figures[0], figures[1])

    return GroupChange(
        name,
        change("work"),
        change("waits"),
        (_mean(g.imbalance for g in sides[0]), _mean(g.imbalance for g in sides[1])),
    )


def _check(
    condition: Condition,
    step: Change,
    scopes: Sequence[ScopeChange],
    before: Sequence[Summary],
    after: Sequence[Summary],
) -> Check:
    looked = list(_targets(condition.target, step, scopes, before, after))
    if not looked:
        known = sorted({f"{each.group}:{each.scope}" for each in scopes})
        raise ConfigError(
            [
                (
                    f"--fail-if: {condition.target!r} is neither step nor a group or a scope of "
                    f"both runs; groups: {', '.join(before[0].groups)}; scopes: {', '.join(known)}"
                )
            ]
        )
    looked.sort(key=lambda each: -each.change.seconds)
    failures = [each for each in looked if condition.exceeded(each.change, each.to_others)]
    suspects = [each for each in looked if condition.suspected(each.change)]
    return Check(
        condition,
        failures,
        [each for each in suspects if each not in failures],
        max(condition.fails_from(each.change, each.to_others) for each in looked),
    )


def _targets(
    target: str,
    step: Change,
    scopes: Sequence[ScopeChange],
    before: Sequence[Summary],
    after: Sequence[Summary],
) -> Iterator[Failure]:
    """All that a condition is about, as if it had failed; a scope's ranks after their group."""
    if target == STEP:
        yield Failure("", STEP, "", step)
        return
    for name in _common(before, after):
        if target == name:
            change = _group(name, before, after).work
            if change.before and change.after:
                yield Failure(name, "", "", change)
    for each in scopes:
        if not _means(target, each.group, each.scope):
            continue
        ours, theirs = (
            [run.groups[each.group].scopes[each.scope] for run in side if _has(run, each)]
            for side in (before, after)
        )
        of_ranks = list(_of_ranks(ours, theirs))
        change = compare(
            [scope.seconds for scope in ours],
            [scope.seconds for scope in theirs],
            chances=_chances(len(of_ranks)),
        )
        yield Failure(each.group, each.scope, "", change)
        for name, of_worker, to_others in of_ranks:
            yield Failure(each.group, each.scope, name, of_worker, to_others)


def _has(run: Summary, scope: ScopeChange) -> bool:
    return scope.group in run.groups and scope.scope in run.groups[scope.group].scopes


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


def check_runs(found: Sequence[Summary]) -> None:
    """Check that runs can be a baseline.

    Raises:
        ConfigError: there are too few steps, ranks that not all of them have, or killed ones.
    """
    named = [(run.run, run) for run in found]
    problems = [*_ranks(named), *_early(named), *_too_few(named)]
    if problems:
        raise ConfigError([f"no baseline: {problem}" for problem in problems])


def _named_runs(side: str, found: Sequence[Summary]) -> Iterator[tuple[str, Summary]]:
    for run in found:
        yield f"{side} ({run.run})", run


def _ranks(found: Sequence[tuple[str, Summary]]) -> Iterator[str]:
    """What a run lacks that another has."""
    everybody = [
        (where, [name for group in run.groups.values() for name in group.workers])
        for where, run in found
    ]
    wanted = dict.fromkeys(name for _, names in everybody for name in names)
    for where, names in everybody:
        missing = [name for name in wanted if name not in names]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            yield f"{where} has no ledger of {', '.join(missing[:5])}{more}"


def _early(found: Sequence[tuple[str, Summary]]) -> Iterator[str]:
    for where, run in found:
        yield from (f"{where}: {sentence}" for sentence in run.ended_early)


def _too_few(found: Sequence[tuple[str, Summary]]) -> Iterator[str]:
    for where, run in found:
        if run.steps.used < FEWEST:
            yield (
                f"at least {FEWEST} undisturbed steps in each; {where} has {run.steps.used} of "
                f"{run.steps.all}: {run.steps.warm_up} warm-up, {run.steps.disturbed} captured or "
                f"slowed by a window, {run.steps.incomplete} incomplete are left out"
            )


def differences(before: Sequence[Summary], after: Sequence[Summary]) -> list[Difference]:
    """What differs beside times: settings and versions first, what the runs left last."""
    found = []
    sides = [
        [dict(_facts(run.setup)) if run.setup else {} for run in side] for side in (before, after)
    ]
    for what in dict.fromkeys(name for side in sides for facts in side for name in facts):
        texts = [" or ".join(dict.fromkeys(f.get(what, "not set") for f in side)) for side in sides]
        if texts[0] != texts[1]:
            found.append(Difference(what, texts[0], texts[1], what != "names of nodes"))
    sizes = [" or ".join(dict.fromkeys(map(_sizes, side))) for side in (before, after)]
    if sizes[0] != sizes[1]:
        found.append(Difference("ranks", sizes[0], sizes[1]))
    reports = [", ".join(_reports(run.reports) for run in side) for side in (before, after)]
    if reports[0] != reports[1] and len(before) == len(after):
        found.append(Difference("reports", reports[0], reports[1], matters=False))
    return found


def _sizes(run: Summary) -> str:
    return ", ".join(f"{len(group.workers)} {name}" for name, group in run.groups.items())


def _reports(reports: Reports | None) -> str:
    return f"{reports.complete} of {reports.expected} complete" if reports else "no receipt"


def _facts(setup: Setup) -> Iterator[tuple[str, str]]:
    yield "backend", setup["backend"]
    for key, value in _flat(setup["config"]):
        if key not in _WHERE_FILES_GO:
            yield f"config {key}", value
    yield "commit", (setup["commit"] or "none")[:12]
    for name, versions in setup["versions"].items():
        yield name, ", ".join(versions) or "none"
    counts = sorted((len(workers) for workers in setup["nodes"].values()), reverse=True)
    yield "workers on each node", ", ".join(map(str, counts)) or "none"
    yield "GPUs", "; ".join(sorted(map(_named, setup["gpus"].values()))) or "none"
    yield "names of nodes", ", ".join(setup["nodes"]) or "none"


def _named(gpus: Sequence[str]) -> str:
    """A node's GPUs.

    >>> _named(["NVIDIA H100", "NVIDIA H100"])
    '2 NVIDIA H100'
    """
    kinds = dict.fromkeys(gpus)
    return ", ".join(f"{gpus.count(kind)} {kind}" for kind in kinds) or "none"


def _flat(config: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", str(value)
