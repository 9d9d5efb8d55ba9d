"""The page that `gpuprof html` writes, and the data in it.

The numbers are the same as in `gpuprof report`, `explain` and `diff`, because they come from the
same functions. The page's script only draws them.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import jinja2
import yaml
from markupsafe import Markup

from gpuprof._analysis import reading
from gpuprof._analysis.diff import DEFAULT
from gpuprof._analysis.explain import Explainer, Explanation
from gpuprof._analysis.run import Run, Step
from gpuprof._analysis.scopes import spreads
from gpuprof._analysis.summary import summary_of
from gpuprof._artifacts import runs
from gpuprof._artifacts.early_ends import sentences
from gpuprof._artifacts.formats import Manifest, RowEntry, WorkerEntry
from gpuprof._artifacts.manifest import setup as setup_of
from gpuprof._artifacts.receipt import count, counted, size_text
from gpuprof._report import explain as explaining
from gpuprof._report import gantt, samples
from gpuprof._report.diff import (
    as_dict,
    compare,
    condition,
    interval,
    percent,
    signed,
    unjudged,
    verdict,
)
from gpuprof._report.flames import flames
from gpuprof._report.heat import HeatMap, heat_maps
from gpuprof._report.ranges import DEVICE, Node, WindowRanges, files_of, read_ranges
from gpuprof._report.trees import Tree, merged
from gpuprof._report.words import duration, percentage
from gpuprof._shim.safe import replacing
from gpuprof.errors import ConfigError, GpuprofError, OutputError

_MOST_STEPS = 2000
"""The most bars in the chart of steps. With more steps, a bar shows the slowest of several."""
_MOST_DRAWN = 60
"""The most steps that the page draws."""
_LARGEST_DRAWN = 2_000_000
"""The most characters of the drawn steps' data. The median and slowest steps are always drawn."""
_MOST_CAPTURED = 5
_MOST_SAMPLED_STEPS = 12
"""The most steps whose samples the page draws."""
_MOST_STRETCHES = 600
"""The most stretches of a critical path; the longest are kept."""
_MOST_PLACES = 2000
"""The most places of all trees; those with the most time are kept."""
_MOST_FUNCTIONS = 30_000
"""The most rows of all trees of functions."""
_MOST_PROCESSES = 200
_MOST_WINDOWS = 100
_MOST_RANGES = 10_000
"""The most ranges of all windows."""
_FEWEST_RANGES = 40
"""The number of ranges that each window may have, even if there are many windows."""
_MOST_SCOPES = 1000
"""The most scopes of a diff."""
_MOST_RECEIPT_ROWS = 200
_MOST_FILES = 200
_LARGEST_TEXT = 300
"""The longest name, in characters; longer ones are cut."""

_Section = dict[str, Any]
"""The data of a section, or, under ``why``, the reason why it is empty."""


def write(directories: Sequence[str], output: Path, warm_up: int | None = None) -> list[str]:
    """Write the page of one run, or of two runs to be compared.

    Returns:
        A sentence for each file of the runs that cannot be read.
    """
    data = collect(directories, output, warm_up)
    content = render(data)
    try:
        with replacing(output) as file:
            # names of files need not be text
            file.write(content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise OutputError(
            f"{output}: cannot be written: {error.strerror}; name another file: --output FILE"
        ) from None
    return [problem for run in data["runs"] for problem in run["problems"]]


def render(data: Mapping[str, Any]) -> str:
    """The page as one HTML file that loads no other files."""
    files = importlib.resources.files("gpuprof._report") / "html"
    style, script = (
        (files / name).read_text(encoding="utf-8") for name in ("style.css", "script.js")
    )
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(
        duration=duration, percent=percent, share=percentage, signed=signed, size=size_text
    )
    template = environment.from_string((files / "page.html").read_text(encoding="utf-8"))
    return template.render(
        data,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        block=Markup(_block(data)),
    )


def _hash(content: str) -> str:
    """The hash of an inline style or script, in the form of a content security policy."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


_DRAWN = ("run", "explain", "steps", "gantt", "samples", "heat", "trees", "stacks", "ranges")


def _block(data: Mapping[str, Any]) -> str:
    """The script's data as JSON, escaped so that it cannot end its HTML element."""
    content = {
        "runs": [{name: run[name] for name in _DRAWN} for run in data["runs"]],
        "diff": data["diff"],
    }
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


# What there is to show


def collect(directories: Sequence[str], output: Path, warm_up: int | None = None) -> dict[str, Any]:
    """Everything that the page shows, in JSON types.

    Args:
        output: the page's path, to which its links are relative.
    """
    missing = [
        f"{directory}: not found; expected a run's name or its directory"
        for directory in directories
        if not os.path.isdir(directory)
    ]
    if missing:
        raise ConfigError(missing)
    contents = [_run(directory, output, warm_up) for directory in directories]
    return {
        "title": " and ".join(run["run"] for run in contents),
        "runs": contents,
        "diff": _diff(directories, warm_up) if len(directories) > 1 else None,
    }


def _run(directory: str, output: Path, warm_up: int | None) -> dict[str, Any]:
    about = runs.about(directory)
    problems = list(about.faults) if about else []
    read: Run | None = None
    try:
        read = reading.read(directory, warm_up)
        without = ""
        problems += read.problems
    except ConfigError as error:
        without = "; ".join(error.problems)
    explanation: _Section = {"why": without}
    answer: Explanation | None = None
    explainer: Explainer | None = None
    if read is not None:
        try:
            explainer = explaining.explainer(read)
            answer = explainer.explain()
            explanation = explaining.as_dict(answer)
        except ConfigError as error:
            explanation = {"why": "; ".join(error.problems)}
    bars = _bars(read) if read else []
    pictures = _gantt(read, explainer, bars) if read else {"why": without}
    trees = _trees(directory, read, explainer.group if explainer else "")
    if about is None and read is None and "why" in trees:
        raise ConfigError(
            [f"{directory}: no run: it has neither ledgers nor timing trees to show", without]
        )
    manifest = about.manifest if about else None
    problems += trees.pop("problems", [])
    ranges = _ranges(directory)
    problems += ranges.pop("problems", [])
    used = explanation.get("processes", [])
    explanation = {**explanation, "processes": used[:_MOST_PROCESSES]}
    return {
        "processes_left": max(0, len(used) - _MOST_PROCESSES),
        "run": _cut(about.run if about else os.path.basename(os.path.abspath(directory))),
        "directory": directory,
        "facts": [*_facts(about), *_ended_early(read), *_given(answer)],
        "explain": explanation,
        "steps": _steps(read, bars, pictures)
        if bars and read
        else {"why": _no_steps(read, without)},
        "gantt": pictures,
        "samples": _samples(read, pictures) if read else {"why": without},
        "heat": _heat(read, explanation) if read else {"why": without},
        "trees": trees,
        "stacks": _stacks(explainer, answer),
        "ranges": ranges,
        "receipt": _receipt(manifest, directory, output),
        "commands": _commands(manifest),
        "config": _config(about),
        "files": _files(directory, output),
        "problems": list(dict.fromkeys(problems)),
    }


def _no_steps(read: Run | None, without: str) -> str:
    if read is None:
        return without
    reason = explaining.no_steps(read)
    return f"{reason[0].upper()}{reason[1:]}.".replace("`", "")


def _facts(about: runs.About | None) -> Iterator[tuple[str, str]]:
    """The run's date, state, software, nodes and number of workers."""
    if about is None:
        return
    if about.beginning:
        beginning = time.gmtime(about.beginning["begun"])
        yield "began", time.strftime("%Y-%m-%d %H:%M:%S UTC", beginning)
        yield "backend", about.beginning["backend"]
    if about.goes_on():
        yield "state", "running"
    if about.manifest:
        setup = about.manifest["setup"]
    elif about.beginning:
        setup = setup_of(about.beginning, runs.records(about))
    else:
        return
    nodes = setup["nodes"]
    workers = sum(map(len, nodes.values()))
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    yield "nodes", f"{len(nodes)}: {', '.join(list(nodes)[:4])}{more}"
    yield "workers", str(workers)
    gpus = [gpu for of_node in setup["gpus"].values() for gpu in of_node]
    kinds = ", ".join(f"{gpus.count(kind)} {kind}" for kind in dict.fromkeys(gpus))
    yield "GPUs", kinds or "none"
    for name, versions in setup["versions"].items():
        if versions:
            yield name, ", ".join(versions)
    if setup["commit"]:
        yield "commit", setup["commit"][:12]


def _ended_early(read: Run | None) -> Iterator[tuple[str, str]]:
    for sentence in sentences(read.ended_early if read else ()):
        yield "killed", sentence


def _given(answer: Explanation | None) -> Iterator[tuple[str, str]]:
    for line in explaining.given(answer) if answer else ():
        name, _, text = line.partition(": ")
        yield _cut(name), _cut(text)


# Steps

_STATES = ("counts", "warm-up", "captured", "slowed by a window", "incomplete")


def _state(step: Step) -> int:
    """The position in `_STATES` of the state that says most about a step."""
    if step.captured:
        return 2
    if step.disturbed:
        return 3
    if step.warm_up:
        return 1
    return 0 if step.complete else 4


def _bars(run: Run) -> list[int]:
    """The positions of the steps in the chart: the slowest of every few, and all captured ones."""
    many = -(-len(run.steps) // _MOST_STEPS)
    bars = [
        max(range(first, min(first + many, len(run.steps))), key=lambda at: run.steps[at].duration)
        for first in range(0, len(run.steps), max(1, many))
    ]
    captures = [at for at, step in enumerate(run.steps) if step.captured]
    return sorted({*bars, *captures[:_MOST_STEPS]})


def _steps(run: Run, bars: Sequence[int], pictures: _Section) -> _Section:
    steps = [run.steps[at] for at in bars]
    where = {at: position for position, at in enumerate(pictures.get("at", ()))}
    longest = max(range(len(steps)), key=lambda bar: steps[bar].duration)
    return {
        "states": _STATES,
        "number": [step.number for step in steps],
        "seconds": [step.duration / 1e9 for step in steps],
        "state": [_state(step) for step in steps],
        "drawn": [where.get(at, -1) for at in bars],
        "longest": longest,
        "all": len(run.steps),
    }


# The scopes of steps


def _gantt(run: Run, explainer: Explainer | None, bars: Sequence[int]) -> _Section:
    """The scopes and critical paths of as many steps as fit on the page."""
    if explainer is None:
        return {"why": "No critical path: no step counts."}
    order, why = _order(run, explainer, bars)
    places: dict[int, str] = {}
    steps: dict[int, _Section] = {}
    size = 0
    for at in order:
        section = _step(run, explainer, at, why.get(at, "chosen"))
        new = {place: _cut(run.places[place].path) for place in _places(section) - places.keys()}
        size += len(json.dumps(section)) + sum(map(len, new.values()))
        if size > _LARGEST_DRAWN and at not in why:
            break
        places.update(new)
        steps[at] = section
    positions = sorted(steps)
    return {
        "at": positions,
        "steps": [steps[at] for at in positions],
        "places": places,
        "waits": {place: bool(run.waiting_places[place]) for place in places},
        "kinds": _KINDS,
        "all": len(run.steps),
    }


_KINDS = ("work", "handover", "data", "unexplained", "dispatch", "outside", "samples")


def _order(run: Run, explainer: Explainer, bars: Sequence[int]) -> tuple[list[int], dict[int, str]]:
    """The steps to draw, most important first, and the reasons for steps that must be drawn."""
    why: dict[int, str] = {}
    for position, reason in explainer.chosen():
        why.setdefault(position, reason)
    longest = max(bars, key=lambda at: run.steps[at].duration)
    why.setdefault(longest, "longest")
    captures = [at for at in bars if run.steps[at].captured]
    order = [*why, *_spread(captures, _MOST_CAPTURED)]
    for many in (4, 16, _MOST_DRAWN):
        order += _spread(bars, many)
    return list(dict.fromkeys(order))[:_MOST_DRAWN], why


def _spread(positions: Sequence[int], most: int) -> list[int]:
    if len(positions) <= most:
        return list(positions)
    return [positions[number * len(positions) // most] for number in range(most)]


def _step(run: Run, explainer: Explainer, at: int, why: str) -> _Section:
    step, path = run.steps[at], explainer.record.stretches(at)
    rows = gantt.rows(run, at, path)
    row_of: dict[int, int] = {}
    for number, row in enumerate(rows):
        row_of.setdefault(row.process, number)
    longest = sorted(path, key=lambda part: -part.duration)[:_MOST_STRETCHES]
    return {
        "step": step.number,
        "why": why,
        "state": _state(step),
        "seconds": step.duration / 1e9,
        "rows": [
            {
                "worker": _cut(run.processes[row.process].name),
                "node": _cut(run.processes[row.process].node),
                "track": _cut(row.track),
                "spans": [number for span in row.spans for number in span],
                "folds": [number for fold in row.folds for number in fold],
                "left": row.left,
            }
            for row in rows
        ],
        "processes": len(run.processes),
        "path": attrs.asdict(explainer.path(at, why)),
        "stretches": [
            number
            for part in sorted(longest, key=lambda part: part.start)
            for number in (
                row_of.get(part.process, -1),
                part.place,
                part.start - step.start,
                part.duration,
                _KINDS.index(part.kind),
            )
        ],
        "left": len(path) - len(longest),
    }


def _places(step: _Section) -> set[int]:
    """The places in a step, by their numbers in the run; -1 is none."""
    numbers = set(step["stretches"][1::5])
    for row in step["rows"]:
        numbers.update(row["spans"][::4], row["folds"][::6])
    return numbers - {-1}


def _samples(run: Run, pictures: _Section) -> _Section:
    """The samples of some of the drawn steps; the median and the slowest one come first."""
    if not len(run.samples):
        return {"why": "The job recorded no samples."}
    if "why" in pictures:
        return {"why": pictures["why"]}
    choice = list(zip(pictures["at"], pictures["steps"], strict=True))
    choice.sort(key=lambda each: each[1]["why"] == "chosen")
    steps: list[_Section] = []
    for at, section in choice[:_MOST_SAMPLED_STEPS]:
        picture = samples.picture(run, at)
        if picture is not None:
            steps.append({**picture, "why": section["why"]})
    if not steps:
        return {"why": "Nobody worked on a sample in the drawn steps."}
    used = {row[0] for step in steps for row in step["workers"]}
    used |= {number for step in steps for row in step["rows"] for number in row["phases"][1::5]}
    return {
        "steps": sorted(steps, key=lambda step: step["step"]),
        "names": [_cut(name) for name in run.samples.names],
        "workers": {number: _cut(run.processes[number].name) for number in sorted(used)},
    }


# Workers and places


def _heat(run: Run, explanation: _Section) -> _Section:
    if "why" in explanation:
        return explanation
    maps = heat_maps(run)
    if not maps:
        return {"why": "No group has two workers that could be compared."}
    return {
        "step": explanation["seconds"]["median"],
        "groups": [_heat_map(run, group) for group in maps],
    }


def _heat_map(run: Run, heat: HeatMap) -> _Section:
    names = list(dict.fromkeys(name for row in heat.rows for name in row.whose))
    where = {name: position for position, name in enumerate(names)}
    return {
        **attrs.asdict(heat),
        "places": [_cut(run.places[place].path) for place in heat.places],
        "waits": [bool(run.waiting_places[place]) for place in heat.places],
        "names": [_cut(name) for name in names],
        "rows": [
            {**attrs.asdict(row), "whose": [where[name] for name in row.whose]} for row in heat.rows
        ],
    }


def _trees(directory: str, read: Run | None, group: str) -> _Section:
    """The merged trees, as columns of places in the order of the tree.

    Args:
        group: the group that bounds a step, whose tree is shown first; empty if it is not known.
    """
    try:
        group_trees, broken = merged(files_of([directory]))
    except ConfigError:
        return {"why": "No timing tree: no process of the run has left a session file."}
    spread = spreads(read) if read is not None and read.usual else {}
    places = read.places if read is not None else []
    numbers = {(place.parent, place.name): at for at, place in enumerate(places)}
    sections = []
    for tree in group_trees:
        sections.append(_tree(tree.timing.name, tree.timing.to_dict(), tree, numbers, spread))
        timing = tree.while_profiling
        if timing is not None:
            name = f"{timing.name} (while profiling)"
            sections.append(_tree(name, timing.to_dict(), tree, numbers, {}))
    sections = [tree for tree in sections if tree["rows"]]
    _thin(sections)
    if not sections:
        return {"why": "No scope ran.", "problems": broken}
    first = next((at for at, tree in enumerate(sections) if tree["group"] == group), 0)
    return {"columns": _COLUMNS, "trees": sections, "first": first, "problems": broken}


def _stacks(explainer: Explainer | None, answer: Explanation | None) -> _Section:
    """The functions that each group runs, and those in which slow ranks take longer."""
    if explainer is None or answer is None:
        return {"why": "No step can be explained."}
    graphs = flames(explainer.record, answer.findings)
    if not graphs:
        return {"why": "No stacks were sampled: see the key sampling."}
    names: dict[str, int] = {}
    sections: list[_Section] = []
    room = _MOST_FUNCTIONS
    for graph in graphs:
        room -= len(graph.rows)
        if sections and room < 0:
            break
        rows = [
            (depth, names.setdefault(_cut(name), len(names)), round(1e9 * seconds))
            for depth, name, seconds in graph.rows
        ]
        sections.append({"name": _cut(graph.name), "whole": graph.whole, "rows": rows})
    return {"names": list(names), "flames": sections, "left": len(graphs) - len(sections)}


_COLUMNS = (
    "depth", "name", "calls", "total", "mean", "p50", "p95", "min", "max", "device", "slowest",
    "most", "open",
)  # fmt: skip
_DEPTH, _NAME, _CALLS, _TOTAL = range(4)


def _tree(
    name: str,
    data: Mapping[str, Any],
    tree: Tree,
    numbers: Mapping[tuple[int, str], int],
    spread: Mapping[tuple[str, int], tuple[float, float]],
) -> _Section:
    """A tree: nanoseconds as in `gpuprof report --json`; p50 and p95 in seconds.

    Args:
        numbers: the positions in `Run.places`, by the place around and the name.
        spread: of its scopes, see `spreads`.
    """
    rows: list[list[Any]] = []
    nowhere = len(numbers)  # around the places of a tree that no ledger has
    pending = [(0, -1, child) for child in reversed(data["children"])]
    while pending:
        depth, parent, node = pending.pop()
        place = numbers.get((parent, node["key"]), nowhere)
        of_ranks = node["spread"] or {}
        has_extremes = node["minimum"] is not None and 0 <= node["minimum"] <= node["maximum"]
        middle, high = spread.get((tree.group, place), (None, None))
        rows.append(
            [
                depth,
                _cut(node["key"]),
                node["count"],
                node["total"] + node["open_elapsed"],
                node["total"] / node["count"] if node["count"] else None,
                middle,
                high,
                node["minimum"] if has_extremes else None,
                node["maximum"] if has_extremes else None,
                node["device_total"] if node["device_count"] else None,
                of_ranks.get("slowest"),
                of_ranks.get("maximum"),
                node["open"],
            ]
        )
        pending += [(depth + 1, place, child) for child in reversed(node["children"])]
    return {
        "name": _cut(name),
        "group": tree.group,
        "processes": tree.processes,
        "rows": rows,
        "left": 0,
    }


def _thin(trees: Sequence[_Section]) -> None:
    """Leave out the places with the least time if there are more than `_MOST_PLACES`."""
    totals = sorted((row[_TOTAL] for tree in trees for row in tree["rows"]), reverse=True)
    if len(totals) <= _MOST_PLACES:
        return
    least = totals[_MOST_PLACES]
    for tree in trees:
        rows: list[list[Any]] = []
        below = None
        for row in tree["rows"]:
            if below is not None and row[_DEPTH] > below:
                continue
            below = None if row[_TOTAL] > least else row[_DEPTH]
            if below is None:
                rows.append(row)
        tree["left"] = len(tree["rows"]) - len(rows)
        tree["rows"] = rows


# Reports


def _ranges(directory: str) -> _Section:
    try:
        windows, _, broken = read_ranges(files_of([directory]))
    except ConfigError:
        return {"why": "No report that an installed backend can read: nothing was captured."}
    except GpuprofError as error:
        return {"why": str(error)}
    if not windows:
        return {"why": "The reports have no range of gpuprof's.", "problems": broken}
    first_windows = windows[:_MOST_WINDOWS]
    most = max(_FEWEST_RANGES, _MOST_RANGES // len(first_windows))
    return {
        "windows": [_window(window, most) for window in first_windows],
        "left": len(windows) - len(first_windows),
        "problems": broken,
    }


def _window(window: WindowRanges, most: int) -> _Section:
    every: list[tuple[int, Node]] = []
    pending = [(0, node) for node in reversed(window.root.below())]
    while pending:
        depth, node = pending.pop()
        every.append((depth, node))
        pending += [(depth + 1, child) for child in reversed(node.below())]
    kinds = [kind for kind in DEVICE if any(node.device.get(kind) for _, node in every)]
    return {
        "group": _cut(window.group),
        "window": _cut(window.window),
        "ranks": window.ranks,
        "seconds": window.seconds,
        "kinds": kinds,
        "rows": [
            [
                depth,
                _cut(node.name),
                len(node.durations),
                node.total,
                min(node.durations, default=None),
                max(node.durations, default=None),
                window.share(node),
                *(node.device.get(kind, 0) for kind in kinds),
            ]
            for depth, node in every[:most]
        ],
        "left": max(0, len(every) - most),
    }


def _receipt(manifest: Manifest | None, directory: str, output: Path) -> _Section:
    if manifest is None:
        return {"why": "There is no receipt yet: gpuprof collect RUN writes it."}
    receipt = manifest["receipt"]
    rows: Sequence[RowEntry] = receipt["rows"]
    if len(rows) > _MOST_RECEIPT_ROWS:
        rows = sorted(rows, key=lambda row: row["state"] == "complete")[:_MOST_RECEIPT_ROWS]
    link = _linker(receipt["directory"] or directory, directory, output)
    return {
        "said": counted(*count(receipt["rows"])),
        "overhead": receipt["overhead"],
        "faults": receipt["faults"],
        "rows": [
            {
                "worker": row["worker"],
                "window": row["window"],
                "name": link(row["file"])[0] if row["file"] else "",
                "link": link(row["file"])[1] if row["file"] else "",
                "size": row["size"],
                "state": row["state"],
                "reason": row["reason"],
            }
            for row in rows
        ],
        "left": len(receipt["rows"]) - len(rows),
    }


def _linker(home: str, directory: str, output: Path) -> Callable[[str], tuple[str, str]]:
    """A function that gives a file's name on the page and a link to the file.

    The link is empty if the file is not in the run directory.
    """
    folder = os.path.abspath(output.parent)

    def link(file: str) -> tuple[str, str]:
        name = os.path.relpath(file, home)
        if name.startswith(".."):
            return file, ""
        path = os.path.join(os.path.abspath(directory), name)
        if not os.path.exists(path):
            return name, ""
        return name, "./" + quote(os.fsencode(os.path.relpath(path, folder)))

    return link


def _files(directory: str, output: Path) -> list[dict[str, str]]:
    """Existing timeline files."""
    link = _linker(directory, directory, output)
    files = sorted(Path(directory).glob("timeline*.perfetto.gz"))[:_MOST_FILES]
    return [dict(zip(("name", "link"), link(str(file)), strict=True)) for file in files]


def _commands(manifest: Manifest | None) -> _Section:
    """The command of each group's first rank. `gpuprof._config.secrets` has masked the secrets."""
    workers = manifest.get("workers") if manifest is not None else None
    if not workers:
        return {"why": "The plan is not known: the run has none, or has not ended."}
    firsts: dict[tuple[str, bool], WorkerEntry] = {}
    for worker in workers:
        firsts.setdefault((worker["group"], worker["profiled"]), worker)
    return {"workers": list(firsts.values()), "left": len(workers) - len(firsts)}


def _config(about: runs.About | None) -> str:
    settings = about.config if about else {}
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True) if settings else ""


# Two runs


def _diff(directories: Sequence[str], warm_up: int | None) -> _Section:
    try:
        summaries = [summary_of(directory, warm_up) for directory in directories]
        comparison = compare(summaries[:1], summaries[1:], [condition(DEFAULT)])
    except ConfigError as error:
        return {"why": "; ".join(error.problems)}
    data = as_dict(comparison)
    return {
        **data,
        **{name: data[name][:_MOST_SCOPES] for name in ("scopes", "new", "gone")},
        "left": max(0, len(comparison.scopes) - _MOST_SCOPES),
        "said": ". No condition is judged: ".join([verdict(comparison), *unjudged(comparison)]),
        "costs": [scope.change.seconds for scope in comparison.scopes[:_MOST_SCOPES]],
        "intervals": [interval(scope.change) for scope in comparison.scopes[:_MOST_SCOPES]],
    }


def _cut(name: str) -> str:
    """A name, cut to `_LARGEST_TEXT` characters."""
    return name if len(name) <= _LARGEST_TEXT else f"{name[: _LARGEST_TEXT - 1]}…"
