"""Trees of the functions that groups run, and of the extra time that slow ranks take in them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import attrs

from gpuprof._analysis import stragglers
from gpuprof._analysis.causes import Finding
from gpuprof._analysis.loop import NAMES, Loop
from gpuprof._analysis.path import OUTSIDE
from gpuprof._analysis.run import Process
from gpuprof._analysis.stacks import COMPARED, Code
from gpuprof._report.stacks import frame_text

MOST_PROCESSES = 16
"""The most processes of a group to use; if there are more, these are spread evenly over them."""
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
        rows: the depth, name and seconds per step of each function, parents before their children.
    """

    name: str
    rows: list[tuple[int, str, float]]


def flames(loop: Loop, findings: Sequence[Finding]) -> list[Flame]:
    """A tree for each group, and for each slow rank a tree of its extra time over the median."""
    code = Code(loop)
    result = []
    for group in loop.run.groups:
        ranks = [rank[-1] for rank in stragglers.members(loop.run, group).values()]
        trees = _trees(code, _spread(ranks))
        if trees:
            mean = {path: total / len(trees) for path, total in _sum(trees.values()).items()}
            result.append(_flame(group, mean))
        for finding in findings:
            slow = next((process for process in ranks if process.name == finding.worker), None)
            if finding.group == group and finding.cause in COMPARED and slow is not None:
                others = [process for process in ranks if process is not slow]
                mine, theirs = _trees(code, [slow]), _trees(code, _spread(others))
                if mine and theirs:
                    more = _more(mine[slow.number], list(theirs.values()))
                    result.append(_flame(f"{slow.name}, more than the median of {group}", more))
    return [flame for flame in result if flame.rows]


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
                path = (scope, *map(frame_text, stack))
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


def _flame(name: str, tree: Mapping[Path, float]) -> Flame:
    whole = sum(seconds for path, seconds in tree.items() if len(path) == 1)
    visible = {
        path: seconds for path, seconds in tree.items() if seconds > max(0.0, _LEAST * whole)
    }
    hidden = _entered(visible)
    rows = []
    for path in sorted(visible):
        outer = hidden[path[0]]
        if len(path) == 1 or len(path) > outer:
            rows.append((max(0, len(path) - outer), path[-1], visible[path]))
    return Flame(name, rows)


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


def _spread(processes: Sequence[Process]) -> list[Process]:
    most = min(len(processes), MOST_PROCESSES)
    return [processes[number * len(processes) // most] for number in range(most)]
