"""Trees of the functions that groups and ranks run, and of a rank's extra time in them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import attrs

from gpuprof._analysis import comparable
from gpuprof._analysis.causes import Finding
from gpuprof._analysis.loop import NAMES, Loop
from gpuprof._analysis.run import OUTSIDE, Process
from gpuprof._analysis.stacks import COMPARED, Code, Frame
from gpuprof._report.stacks import short

MOST_PROCESSES = 16
"""The most processes of a group to use, besides slow ones; if there are more, these are spread
evenly over them."""
_LEAST = 0.002
"""Share of a tree's time above which a function is drawn."""

Path = tuple[str, ...]
"""A scope, then functions called in it, outermost first."""
Tree = dict[Path, float]
"""Seconds per step for each path, including the functions called inside."""


@attrs.frozen
class Flame:
    """A tree of functions.

    Args:
        name: whose time the tree shows.
        whole: whether that is all its time, and not what it takes longer than others.
        rows: the depth, name and seconds per step of each function, parents before their children.
    """

    name: str
    whole: bool
    rows: list[tuple[int, str, float]]


def flames(loop: Loop, findings: Sequence[Finding]) -> list[Flame]:
    """The trees of a run, the most telling first.

    One for each group, with the mean of its ranks, and one for each slow rank's extra time over the
    median of the others. Then both for some ranks of each group.
    """
    code = Code(loop)
    slow = {(finding.group, finding.worker) for finding in findings if finding.cause in COMPARED}
    first, more = [], []
    for group in loop.run.groups:
        ranks = [rank[-1] for rank in comparable.members(loop.run, group).values()]
        trees = _trees(code, _spread(ranks, MOST_PROCESSES))
        mean = {path: total / len(trees) for path, total in _sum(trees.values()).items()}
        slow_ranks = [rank for rank in ranks if (group, rank.name) in slow]
        trees_of_ranks = {**trees, **_trees(code, slow_ranks)} if len(ranks) > 1 else {}
        # of all, so that the trees of two ranks can be compared
        entered = _entered(set().union(*map(_visible, (mean, *trees_of_ranks.values()))))
        first.append(_flame(group, True, mean, entered))
        for rank in ranks:
            if rank.number not in trees_of_ranks:
                continue
            mine = trees_of_ranks[rank.number]
            others = [tree for number, tree in trees.items() if number != rank.number]
            more.append(_flame(rank.name, True, mine, entered))
            if others:
                name = f"{rank.name}, more than the median of {group}"
                extra = _flame(name, False, _more(mine, others), entered)
                (first if rank in slow_ranks else more).append(extra)
    return [flame for flame in (*first, *more) if flame.rows]


def _trees(code: Code, processes: Iterable[Process]) -> dict[int, Tree]:
    """The trees of the processes that were sampled, by the process's number."""
    trees = {}
    for process in processes:
        by_place = code.by_place(process)
        if by_place is None:
            continue
        tree: Tree = defaultdict(float)
        for place, stacks in by_place.items():
            scope = NAMES[OUTSIDE] if place == OUTSIDE else code.path(place)
            for stack, seconds in stacks.items():
                path = (scope, *map(_label, stack))
                for depth in range(1, len(path) + 1):
                    tree[path[:depth]] += seconds
        trees[process.number] = tree
    return trees


def _sum(trees: Iterable[Tree]) -> Tree:
    total: Tree = defaultdict(float)
    for tree in trees:
        for path, seconds in tree.items():
            total[path] += seconds
    return total


def _more(tree: Tree, others: Sequence[Tree]) -> Tree:
    return {
        path: seconds - statistics.median(other.get(path, 0.0) for other in others)
        for path, seconds in tree.items()
    }


def _visible(tree: Mapping[Path, float]) -> set[Path]:
    """The paths with enough time to be drawn."""
    whole = sum(max(0.0, seconds) for path, seconds in tree.items() if len(path) == 1)
    return {path for path, seconds in tree.items() if seconds > _LEAST * whole}


def _flame(name: str, whole: bool, tree: Mapping[Path, float], entered: Mapping[str, int]) -> Flame:
    rows = []
    for path in sorted(_visible(tree)):
        outer = entered.get(path[0], 1)  # a difference may show what is too short in all trees
        if len(path) == 1 or len(path) > outer:
            rows.append((max(0, len(path) - outer), path[-1], tree[path]))
    return Flame(name, whole, rows)


def _entered(tree: Iterable[Path]) -> dict[str, int]:
    """The number of leading names that all paths of a scope share, by scope.

    They are the calls that lead into the scope.
    """
    paths = set(tree)
    by_scope: dict[str, list[Path]] = defaultdict(list)
    for path in paths - {path[:-1] for path in paths}:
        by_scope[path[0]].append(path)
    return {
        scope: max(1, min(_common(min(inner), max(inner)), min(map(len, inner)) - 1))
        for scope, inner in by_scope.items()
    }


def _common(one: Path, other: Path) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _label(frame: Frame) -> str:
    """A function and its line. The file says the module, and a narrow box has no room for both."""
    function, line = frame
    return f"{function.function} ({short(function.file)}:{line})"


def _spread(processes: Sequence[Process], most: int) -> list[Process]:
    most = min(len(processes), most)
    return [processes[number * len(processes) // most] for number in range(most)]
