"""Describes sampled stacks in words, and writes them for other programs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from gpuprof import _tables
from gpuprof._analysis.stacks import WARM_UP, Frame, Line, Stack
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts import stacks as artifacts
from gpuprof._artifacts.ledger import Ledger
from gpuprof._report.words import duration, percentage
from gpuprof.errors import OutputError

Profile = Mapping[tuple[str, ...], int]
"""Stacks with the outermost frame first, each with its microseconds."""
_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"

_INSTALLED = re.compile(r".*[/\\](?:(?:site|dist)-packages|lib(?:64)?[/\\]python[0-9.]+t?)[/\\]")
_LEAST_OF_LINE = 0.5
"""Share of a function's time that one line must have to be named alone."""


def words(line: Line) -> str:
    """A sentence about a line's share of the time in a place, or of a slow rank's extra time.

    >>> where = "json.loads", "/job/data.py", 88
    >>> words(Line("extra", "A-1", "load", 9, 0.014, 0.62, *where, of_line=0.7, samples=99))
    '62 % of the extra 14 ms: json.loads, data.py:88'
    """
    whole = f"the extra {duration(line.seconds)}" if line.kind == "extra" else line.scope
    busy = ""
    if line.kind == "helpers":
        whole = f"its {line.scope}'s work"
        busy = f"; the {line.scope} is busy {percentage(1 - line.waits)} of the time"
    return f"{percentage(line.share)} of {whole}: {line.name}, {where(line)}{busy}"


def where(line: Line) -> str:
    """The file and the line number of a line of code."""
    at = f"{short(line.file)}:{line.line}"
    return f"{at} and other lines" if line.of_line < _LEAST_OF_LINE * line.share else at


def as_dict(line: Line) -> dict[str, Any]:
    """A line of code as a mapping for JSON."""
    return {**attrs.asdict(line), "says": words(line)}


def short(file: str) -> str:
    """A source file's name or, for an installed file, its path from the package on."""
    match = _INSTALLED.match(file)
    return file[match.end() :] if match else re.split(r"[/\\]", file)[-1]


def frame_text(frame: Frame) -> str:
    """A function and its line, as text."""
    function, line = frame
    return f"{function.full_name} ({short(function.file)}:{line})"


def hottest(lines: Sequence[Line]) -> str:
    """The section on the hottest lines in the places that bound steps; empty without such lines."""
    rows = (
        _tables.labelled(
            f"{line.worker}  ", (f"{WARM_UP}: " if line.scope == WARM_UP else "") + words(line)
        )
        for line in lines
    )
    return "\n".join(("Hottest lines", *rows)) if lines else ""


def chart(samples: Iterable[tuple[Stack, tuple[int, int]]]) -> list[tuple[str, int, int, int]]:
    """A thread's functions over time: each with its line, start, end and depth.

    A function lasts as long as samples in a row see it on the same line.
    """
    functions: list[tuple[str, int, int, int]] = []
    running: list[tuple[Frame, int]] = []
    last = 0

    def leave(depth: int) -> None:
        while len(running) > depth:
            frame, since = running.pop()
            functions.append((frame_text(frame), since, last, len(running)))

    for stack, (start, end) in samples:
        pairs = zip(running, stack, strict=False)
        others = (depth for depth, (one, frame) in enumerate(pairs) if one[0] != frame)
        leave(next(others, min(len(running), len(stack))) if start == last else 0)
        running += [(frame, start) for frame in stack[len(running) :]]
        last = end
    leave(0)
    return functions


def read_profiles(paths: Iterable[Path], by_rank: bool) -> tuple[dict[str, Profile], list[str]]:
    """Read the sampled stacks of runs. Each stack begins with its thread and its scope.

    Args:
        by_rank: make a profile for each process instead of each group.

    Returns:
        The profiles by name, and a sentence for each file that cannot be read.
    """
    counters: dict[str, Counter[tuple[str, ...]]] = {}
    broken: list[str] = []
    for path in paths:
        files, problems = ledgers.ledgers(path)
        broken += problems
        for ledger in files:
            try:
                read = artifacts.read(ledger)
            except OutputError as error:
                broken.append(str(error))
                continue
            if read is not None:
                broken += [read.problem] if read.problem else []
                name = ledger.name if by_rank else ledger.header["group"]
                counters.setdefault(name, Counter()).update(_profile(ledger, read))
    return {name: counters[name] for name in sorted(counters)}, broken


def collapsed(profiles: Mapping[str, Profile]) -> str:
    """Profiles in the format of flame graph programs: a line for each stack, with microseconds."""
    return "\n".join(
        f"{';'.join(map(_collapsible, (name, *stack)))} {time}"
        for name, profile in profiles.items()
        for stack, time in sorted(profile.items())
    )


def _collapsible(frame: str) -> str:
    return " ".join(frame.replace(";", ",").splitlines())


def speedscope(profiles: Mapping[str, Profile]) -> str:
    """Profiles as the content of a file for speedscope."""
    frames: dict[str, int] = {}
    entries = []
    for name, profile in profiles.items():
        samples = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in profile]
        entries.append(
            {
                "type": "sampled",
                "name": name,
                "unit": "microseconds",
                "startValue": 0,
                "endValue": sum(profile.values()),
                "samples": samples,
                "weights": list(profile.values()),
            }
        )
    names = {"frames": [{"name": frame} for frame in frames]}
    return json.dumps({"$schema": _SPEEDSCOPE, "shared": names, "profiles": entries})


def _profile(ledger: Ledger, read: artifacts.Stacks) -> Counter[tuple[str, ...]]:
    times: Counter[tuple[str, ...]] = Counter()
    frames: dict[int, tuple[str, ...]] = {0: ()}
    for number, (caller, function, line) in enumerate(read.stacks[1:].tolist(), 1):
        about = read.functions[function]
        frames[number] = (*frames[caller], frame_text((about, line)))
    for stack, track, place, _, start, end in read.samples.tolist():
        scope = (f"[{ledger.places[place].path}]",) if place else ()
        inside = frames[stack] or ("(more)",)
        key = (ledger.tracks[track].name, *scope, *inside)
        times[key] += (end - start) // 1000
    return +times
