"""The timing trees in a run directory."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from gpuprof_timing import Timing
from gpuprof_timing.recording import TIMING_VARIABLE, integer

from gpuprof import _tables
from gpuprof._artifacts.early_ends import listed
from gpuprof._session.file import TotalsEntry
from gpuprof._session.totals import lines, merge
from gpuprof._shim.safe import load_json
from gpuprof.errors import ConfigError

_OTHERS = ("manifest.json", "run.json")
DRIVER = "Runner"
"""The name of the driver's tree and ledger."""


def introduce(text: str, driver: str = DRIVER) -> str:
    """Explain the driver's name at its first mention in a text.

    >>> introduce("EnvRunner 60 %, Runner 40 %")
    'EnvRunner 60 %, Runner (the driver) 40 %'
    """
    return re.sub(rf"(?<![\w-]){re.escape(driver)}(?![\w-])", r"\g<0> (the driver)", text, count=1)


@attrs.frozen(eq=False)
class Tree:
    """The times of one process or of several processes together.

    Args:
        timing: the timing tree without the steps that profiling slowed down.
        while_profiling: the timing tree of the slowed steps; ``None`` if there were none.
        seconds: how long the slowed steps took, in the process in which they took longest.
        whole_life: the number of processes that were captured from start to end.
        totals: the totals of the steps' attributes; ``None`` if the steps have no attributes.
    """

    timing: Timing
    while_profiling: Timing | None = None
    steps: int = 0
    seconds: float = 0.0
    processes: int = 1
    whole_life: int = 0
    group: str = ""
    totals: TotalsEntry | None = None

    @classmethod
    def read(cls, data: Mapping[str, Any], name: str) -> Tree:
        """Read a tree that a session has written; see `gpuprof._session.file.TreeEntry`.

        Raises:
            ValueError, LookupError, TypeError: the data come from another release.
        """
        slowed_times = data.get("while_profiling")
        tree = cls(
            Timing.from_dict(data["timing"]),
            Timing.from_dict(slowed_times) if slowed_times is not None else None,
            integer(data, "steps_left_out") if "steps_left_out" in data else 0,
            slowed_times["run"] / 1e9 if slowed_times is not None else 0.0,
            whole_life=bool(data.get("whole_life")),
            totals=merge([data["totals"]] if "totals" in data else []),
        )
        return tree.renamed(name)

    @classmethod
    def merge(cls, trees: Sequence[Tree], name: str) -> Tree:
        """Merge the trees of several processes into one."""
        slowed_times = [tree.while_profiling for tree in trees if tree.while_profiling is not None]
        return cls(
            Timing.merge((tree.timing for tree in trees), name),
            Timing.merge(slowed_times, name) if slowed_times else None,
            max((tree.steps for tree in trees), default=0),
            max((tree.seconds for tree in trees), default=0.0),
            sum(tree.processes for tree in trees),
            sum(tree.whole_life for tree in trees),
            totals=merge([tree.totals for tree in trees if tree.totals is not None]),
        )

    def __bool__(self) -> bool:
        return bool(self.timing or self.while_profiling or self.totals)

    def renamed(self, name: str) -> Tree:
        """Rename both timing trees. Returns this tree."""
        for tree in (self.timing, self.while_profiling):
            if tree is not None:
                tree.name = name
        return self

    def text(self, render: Callable[[Timing], str] = Timing.text) -> str:
        """The tree as text, with notes on steps left out and on profiler overhead in its times.

        The timing tree of the slowed steps is also shown if it has places that the main one lacks,
        and alone if the main one is empty.
        """
        return "\n".join(self._lines(render))

    def _lines(self, render: Callable[[Timing], str]) -> Iterator[str]:
        slowed_times = self.while_profiling
        if self.timing or not slowed_times:
            yield render(self.timing)
        if slowed_times is not None:
            steps = f"{self.steps} step{'' if self.steps == 1 else 's'}"
            text = f"(while profiling): {steps}, {self.seconds:.1f} s left out"
            if slowed_times.metrics().keys() <= self.timing.metrics().keys():
                yield text
            else:
                why = "some scopes ran only there" if self.timing else "no other step ran"
                yield f"{text}; {why}:"
                yield render(slowed_times)
        if self.totals is not None:
            yield from lines(self.totals)
        if self.whole_life:
            whose = (
                f"{self.whole_life} of {self.processes} processes "
                + ("was" if self.whole_life == 1 else "were")
                if self.processes > 1
                else "the process was"
            )
            yield (
                f"(while profiling): {whose} captured from start to end; times include profiler "
                "overhead"
            )


def merged(files: Iterable[Path]) -> tuple[list[Tree], list[str]]:
    """Merge the trees of each worker group, over ranks, restarts and children.

    The driver's tree stays separate, and so do different runs.

    Returns:
        The merged trees, and a line for each broken file.
    """
    by_group: dict[tuple[str, str], list[Tree]] = {}
    problems = []
    for file in files:
        try:
            content = _read(file)
            tree = None if content is None else Tree.read(content[1], content[0].name)
        # such as a tree of another release
        except Exception as error:
            reason = str(error) or type(error).__name__
            problems.append(f"{file}: cannot be read, so its tree is left out: {reason[:200]}")
            continue
        if content is not None and tree is not None:
            by_group.setdefault((content[0].run, content[0].group), []).append(tree)
    if not by_group:
        raise ConfigError(
            [*problems, "no timing tree found; expected a run directory whose workers used gpuprof"]
        )
    several = len({run for run, _ in by_group}) > 1
    trees = []
    for (run, group), of_group in by_group.items():
        of_run = f" of {run}" if several and run else ""
        processes = f", {len(of_group)} processes" if len(of_group) > 1 else ""
        tree_of_group = Tree.merge(of_group, f"{group}{of_run}{processes}")
        trees.append(attrs.evolve(tree_of_group, group=group))
    return trees, problems


def tree_tables(trees: Sequence[Tree], width: int | None = None, hint: str = "") -> str:
    """A table for each tree, and a legend of the signs in the tables."""
    signs: set[str] = set()
    is_empty = not any(tree.timing for tree in trees)

    def render(timing: Timing, tree: Tree) -> str:
        name = introduce(timing.name) if tree.group == DRIVER else timing.name
        rows = timing.rows()
        if not rows:
            return f"{name}\n{_NOTHING if is_empty else 'Nothing was timed.'}"
        if tree.processes == 1:  # a single process is always the slowest
            rows = [{key: row[key] for key in row if key != "slowest"} for row in rows]
        headers = list(rows[0])
        signs.update(
            sign
            for row in rows
            for sign, is_shown in (
                ("% run", True),
                ("open", "open" in row),
                ("∥", row["name"].endswith("∥")),
                ("(other)", row["name"].endswith("(other)")),
                ("device", "device" in row),
                ("slowest", "slowest" in row),
            )
            if is_shown
        )
        table = _tables.table(
            headers,
            [list(row.values()) for row in rows],
            right=headers[1:],
            optional=_LEFT_OUT,
            shorten={"name": "end", "slowest": "start"},
            width=width,
            hint=hint,
        )
        return f"{name}\n{table}"

    shown = [tree for tree in trees if tree] or trees
    tables = [tree.text(functools.partial(render, tree=tree)) for tree in shown]
    if len(shown) < len(trees):
        empty = [tree.group or tree.timing.name for tree in trees if not tree]
        tables.append(f"Nothing was timed in {listed(empty)}.")
    lines = [text for sign, text in _LEGEND.items() if sign in signs]
    return "\n\n".join([*tables, _tables.legend(lines)] if lines else tables)


_NOTHING = (
    "Nothing was timed. Put gpuprof.timer(…) around what the job does, and unset "
    f"{TIMING_VARIABLE} if it is 0."
)
_LEFT_OUT = ("std", "min", "mean", "% parent", "max", "calls")
"""The columns to leave out on a narrow terminal, in this order."""
_LEGEND = {
    "% run": "Times are in seconds. % parent: share of the scope around it; more than 100 % if "
    "scopes ran in parallel. % run: share of the processes' time, all together",
    "(other)": "(other): the scope's time outside of the scopes inside it",
    "∥": "∥: the scopes inside ran in parallel, so together they took longer than the scope",
    "open": "open: scopes that had not ended; total has their time so far",
    "device": "device: time between two events on the GPU's stream",
    "slowest": "slowest: the process that took longest, and its seconds",
}


def as_json(trees: list[Tree]) -> str:
    """The trees as JSON, by name. Trees of slowed steps get "(while profiling)" in their names."""
    by_name = {tree.timing.name: tree.timing for tree in trees}
    for tree in trees:
        if tree.while_profiling is not None:
            by_name[f"{tree.timing.name} (while profiling)"] = tree.while_profiling
    content: dict[str, Any] = {name: tree.to_dict() for name, tree in by_name.items()}
    for tree in trees:
        if tree.totals is not None:
            content[tree.timing.name]["totals"] = tree.totals
    return json.dumps(content, indent=2)


@attrs.frozen
class _Process:
    """The owner of a file's tree.

    Args:
        group: the worker group. Trees of the same group and run are merged.
    """

    name: str
    run: str
    group: str


def _read(file: Path) -> tuple[_Process, Mapping[str, Any]] | None:
    """The owner and the data of the tree in a file, for `Tree.read`; ``None`` if it has no tree."""
    if file.suffix != ".json" or file.name in _OTHERS or file.parent.name.startswith("."):
        return None
    data = load_json(os.path.realpath(file))  # the user may have given a link
    if not isinstance(data, dict):
        return None
    if {"version", "name", "run", "children"} <= data.keys():  # the timing library's own file
        return _Process(file.stem, "", _text(data, "name")), {"timing": data}
    if not isinstance(data.get("timing"), dict):
        return None
    if data.get("drives"):
        if file.with_name(f"{DRIVER}.json").exists():
            return None
        return _Process(DRIVER, _text(data, "run"), DRIVER), data
    name = _text(data, "name")
    group = _text(data, "group") if "group" in data else name
    return _Process(name, _text(data, "run") if "run" in data else "", group), data


def _text(data: Mapping[str, Any], key: str) -> str:
    if not isinstance(data[key], str):
        raise ValueError(f"{key}: expected text")
    return str(data[key])
