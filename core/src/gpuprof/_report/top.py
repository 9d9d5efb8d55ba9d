"""What ``gpuprof top`` shows of a running job."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from gpuprof import _tables
from gpuprof._analysis.explain import Explainer, Explanation, GroupTimes, Path
from gpuprof._analysis.live import (
    STEPS,
    Doing,
    Live,
    Slowest,
    doing,
    phases,
    silent,
    slowest,
    written,
)
from gpuprof._analysis.run import Run
from gpuprof._artifacts import runs
from gpuprof._artifacts.dumps import unasked
from gpuprof._artifacts.early_ends import listed, sentences
from gpuprof._artifacts.receipt import size_text
from gpuprof._artifacts.records import NodeRecord
from gpuprof._artifacts.runs import State
from gpuprof._report.explain import bounds, helps, path_text, verdict, waits
from gpuprof._report.standstill import age, ranks
from gpuprof._report.trees import DRIVER, introduce
from gpuprof._report.words import duration, percentage
from gpuprof._shim.files import file_size
from gpuprof._shim.safe import regular_files

JSON_VERSION = 1
_BARS = "▁▂▃▄▅▆▇█"
_PHASES, _PARTS, _LINES = 3, 5, 6
"""How many phases of a group, parts of a path, and lines of a list are shown."""
_LEAST_SHARE = 0.01
_NO_STEP = (
    "No step has ended so far. If the job has made some, `gpuprof explain` says how to mark them."
)
_BEHIND = 0.05
"""Share by which the slowest rank must exceed the others to be shown."""


@attrs.frozen
class Steps:
    """The steps that have ended.

    Args:
        number: what the job calls the last one.
        median: the median of the last `STEPS` steps, in seconds.
        before: the median of the steps before these, in seconds; ``None`` if there are fewer than
            ten.
        latest: the seconds of each of the last `STEPS` steps.
    """

    ended: int
    number: int
    last: float
    median: float
    before: float | None
    latest: list[float]


@attrs.frozen
class Group:
    """A worker group in the last steps.

    Args:
        phases: the longest scopes of the last step, and each one's share of the group's time.
        slowest: its slowest rank; ``None`` for a group of one.
    """

    times: GroupTimes
    phases: list[tuple[str, float]]
    slowest: Slowest | None


@attrs.frozen
class Picture:
    """A running job at one moment.

    Args:
        seconds: since it began; ``None`` if that is not known.
        processes: how many have recorded something.
        steps: ``None`` before the first step has ended.
        answer: why the last steps take as long as they do; ``None`` if none of them counts.
        path: the critical path of the last step.
        doing: what processes have been in for a second or longer.
        windows: each window's steps, and how many workers have it in each state.
        size: bytes of the run's files.
        free: free bytes on their disk.
    """

    run: str
    state: State
    seconds: float | None
    processes: int
    nodes: int
    steps: Steps | None
    answer: Explanation | None
    groups: list[Group]
    path: Path | None
    doing: list[Doing]
    windows: list[tuple[str, dict[str, int]]]
    faults: list[str]
    size: int
    free: int


def look(live: Live) -> Picture | None:
    """See what a job does now; ``None`` until one of its processes has recorded something."""
    run = live.look()
    if run is None:
        return None
    now = time.time()
    directory = str(live.directory)
    about = runs.about(directory)
    records = runs.records(about) if about else []
    if run.state == "running":  # a process that has yet to write a step seems idle in it
        for position in set(run.usual) - set(written(run)):
            run.steps[position] = attrs.evolve(run.steps[position], warm_up=True)
    answer, path, groups = None, None, []
    if run.usual:
        last = run.usual[-1]
        explainer = Explainer(run)
        answer = explainer.explain()
        path = explainer.path(last, "last")
        groups = [
            Group(times, phases(run, last, times.group), slowest(run, times.group))
            for times in answer.groups
            if times.group in run.groups
        ]
    begun = about.beginning["begun"] if about and about.beginning else None
    return Picture(
        run.name,
        run.state,
        None if begun is None else now - begun,
        len(run.processes),
        len({process.node for process in run.processes}),
        _steps(run, live.durations),
        answer,
        groups,
        path,
        doing(run, now) if run.state == "running" else [],
        _windows(records),
        _faults(run, records, directory, now),
        sum(file_size(entry.path) for entry in regular_files(live.directory)),
        shutil.disk_usage(directory).free,
    )


def _steps(run: Run, durations: Sequence[float]) -> Steps | None:
    ended = [step for step in run.steps if step.complete]
    if not ended:
        return None
    earlier = durations[:-STEPS]
    return Steps(
        len(durations),
        ended[-1].number,
        durations[-1],
        statistics.median(durations[-STEPS:]),
        statistics.median(earlier) if len(earlier) >= 10 else None,
        list(durations[-STEPS:]),
    )


def _windows(records: Iterable[NodeRecord]) -> list[tuple[str, dict[str, int]]]:
    states: dict[str, Counter[str]] = {}
    for record in records:
        for start in record.starts:
            for window in start.windows:
                begin, end = window["start"], window["stop"]
                where = window["scope"] or "from start to end"
                if begin is not None and end is not None:
                    where = f"step {begin}" if end - begin == 1 else f"steps {begin} to {end - 1}"
                states.setdefault(where, Counter())[window["state"]] += 1
    return [(where, dict(counts)) for where, counts in states.items()]


def _faults(run: Run, records: Iterable[NodeRecord], directory: str, now: float) -> list[str]:
    faults = [*sentences(run.ended_early), *run.problems]
    for record in records:
        faults += record.faults
        for start in record.starts:
            own = start.session["faults"] if start.session else []
            faults += [f"{start.name}: {fault}" for fault in own]
    if run.state == "running":
        still = silent(run, now)
        if still:
            longest = max(seconds for _, seconds in still)
            names = listed([process.name for process, _ in still])
            faults.append(
                f"{names} recorded nothing for {age(longest)}: `gpuprof stacks {run.name}` shows "
                "what they do"
            )
    missing = unasked(directory)
    if missing:
        faults.append(
            f"{ranks(missing)} left no file here: this directory is not shared with their nodes, "
            "so they are missing above"
        )
    return list(dict.fromkeys(faults))


def as_json(picture: Picture) -> str:
    """The picture as JSON, on one line; docs/json.md describes its keys."""
    answer = picture.answer
    content = attrs.asdict(picture) | {
        "version": JSON_VERSION,
        "bounds": bounds(answer) if answer else None,
        "waits": waits(answer) if answer else None,
        "helps": helps(answer) if answer else None,
        "groups": [
            attrs.asdict(group.times)
            | {
                "phases": [{"scope": scope, "share": share} for scope, share in group.phases],
                "slowest": attrs.asdict(group.slowest) if group.slowest else None,
            }
            for group in picture.groups
        ],
        "doing": [
            {"worker": entry.process.name, "scope": entry.scope, "seconds": entry.seconds}
            for entry in picture.doing
        ],
        "windows": [{"window": where, "workers": states} for where, states in picture.windows],
    }
    del content["answer"]
    return json.dumps(content)


def text(picture: Picture, width: int | None = None) -> str:
    """The picture as text."""
    answer = picture.answer
    parts = [
        _head(picture),
        _faults_text(picture.faults),
        verdict(answer) if answer else _tables.labelled("", _NO_STEP),
        _groups(picture, width),
        _now(picture),
        path_text(picture.path, width, most=_PARTS) if picture.path else "",
        _tail(picture),
    ]
    return "\n\n".join(part for part in parts if part)


def _head(picture: Picture) -> str:
    since = "" if picture.seconds is None else f" for {age(picture.seconds)}"
    state = {"running": f"running{since}", "killed": "killed", "ended": "has ended"}.get(
        picture.state, "may be running"
    )
    nodes = "" if picture.nodes == 1 else f" on {picture.nodes} nodes"
    lines = [f"{picture.run}: {state}, {picture.processes} processes{nodes}"]
    steps = picture.steps
    if steps is not None:
        trend = ""
        if steps.before is not None:
            change = steps.median / steps.before - 1
            sign = "+" if change >= 0 else "-"
            trend = f", {sign}{percentage(abs(change))} against those before"
        lines += [
            _tables.labelled(
                "",
                f"step {steps.number} took {duration(steps.last)}; median of the last "
                f"{len(steps.latest)}: {duration(steps.median)}{trend}",
            ),
            _bars(steps.latest),
        ]
    return "\n".join(lines)


def _bars(seconds: Sequence[float]) -> str:
    """A column for each step, as high as the step is long, up to twice the median.

    >>> _bars([1.0, 1.0, 2.0, 1.0, 0.5, 9.0, 1.0])
    '▅▅█▅▃█▅'
    """
    most = 2 * statistics.median(seconds) or 1.0
    highest = len(_BARS) - 1
    return "".join(_BARS[min(highest, int(len(_BARS) * value / most))] for value in seconds)


def _groups(picture: Picture, width: int | None) -> str:
    headers = ["group", "workers", "work", "waits", "outside", "slowest rank", "last step"]
    rows = []
    for group in picture.groups:
        times = group.times
        inside = [
            f"{scope} {percentage(share)}"
            for scope, share in group.phases[:_PHASES]
            if share >= _LEAST_SHARE
        ]
        rows.append(
            [
                times.group,
                str(times.workers),
                percentage(times.work),
                percentage(times.idle),
                percentage(times.elsewhere),
                _behind(times.group, group.slowest),
                ", ".join(inside),
            ]
        )
    if not rows:
        return ""
    return _tables.table(
        headers,
        rows,
        right=headers[1:5],
        optional=["workers"],
        shorten={"last step": "end", "group": "end"},
        width=width,
    )


def _behind(group: str, rank: Slowest | None) -> str:
    if rank is None or not rank.others or rank.seconds < (1 + _BEHIND) * rank.others:
        return ""
    more = percentage(rank.seconds / rank.others - 1)
    return f"{rank.worker.removeprefix(f'{group}-')} (+{more})"


def _now(picture: Picture) -> str:
    """What processes do now, those in the same scope together."""
    together: dict[tuple[str, str], list[Doing]] = {}
    for entry in picture.doing:
        together.setdefault((entry.process.group, entry.scope), []).append(entry)
    longest = sorted(together.items(), key=lambda item: -max(d.seconds for d in item[1]))
    lines = []
    for (group, scope), entries in longest[:_LINES]:
        processes = [entry.process for entry in entries]
        who = processes[0].name
        if len(processes) > 1:
            who = f"{group} {ranks(process.rank for process in processes)}"
        who = introduce(DRIVER) if who == DRIVER else who
        seconds = max(entry.seconds for entry in entries)
        lines.append(_tables.labelled("  ", f"{who} in {scope} for {age(seconds)}"))
    more = len(longest) - len(lines)
    return "\n".join(["Now", *lines, *([f"  {more} more"] if more > 0 else [])]) if lines else ""


def _faults_text(faults: Sequence[str]) -> str:
    lines = [_tables.labelled("fault:  ", fault) for fault in faults[:_LINES]]
    if len(faults) > _LINES:
        lines.append(f"{len(faults) - _LINES} more faults")
    return "\n".join(lines)


def _tail(picture: Picture) -> str:
    lines = []
    for where, states in picture.windows[-_LINES:]:
        counts = ", ".join(f"{state} in {count}" for state, count in sorted(states.items()))
        lines.append(_tables.labelled("window: ", f"{where}, {counts}"))
    lines.append(f"disk:   {size_text(picture.size)} in this run, {size_text(picture.free)} free")
    return "\n".join(lines)
