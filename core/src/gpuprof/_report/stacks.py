"""What samples of stacks say: in words, and as files for other programs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from gpuprof import _tables
from gpuprof._analysis.stacks import WARM_UP, Frame, Line
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts import stacks as artifacts
from gpuprof._artifacts.ledger import Ledger
from gpuprof._report.words import duration, percentage
from gpuprof.errors import OutputError

Profile = Mapping[tuple[str, ...], int]
"""Stacks from the outermost frame on, each with its microseconds."""
_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"

_INSTALLED = re.compile(r".*[/\\](?:(?:site|dist)-packages|lib(?:64)?[/\\]python[0-9.]+t?)[/\\]")
_LEAST_OF_LINE = 0.5
"""Of a function's share, from which one line stands for it."""


def words(line: Line) -> str:
    """What a line takes of a place's time.

    >>> where = "json.loads", "/job/data.py", 88
    >>> words(Line("extra", "A-1", "load", 9, 0.014, 0.62, *where, of_line=0.7, samples=99))
    '62 % of the extra 14 ms: json.loads, data.py:88'
    """
    whole = f"the extra {duration(line.seconds)}" if line.kind == "extra" else line.scope
    return f"{percentage(line.share)} of {whole}: {line.name}, {where(line)}"


def where(line: Line) -> str:
    """The file and the number of a line."""
    at = f"{short(line.file)}:{line.line}"
    return f"{at} and other lines" if line.of_line < _LEAST_OF_LINE * line.share else at


def as_dict(line: Line) -> dict[str, Any]:
    """A line in JSON types."""
    return {**attrs.asdict(line), "says": words(line)}


def short(file: str) -> str:
    """The path of a source as people read it: of what is installed from its package on."""
    match = _INSTALLED.match(file)
    return file[match.end() :] if match else re.split(r"[/\\]", file)[-1]


def frame_text(frame: Frame) -> str:
    """A function and its line."""
    function, line = frame
    return f"{function.full_name} ({short(function.file)}:{line})"


def hottest(lines: Sequence[Line]) -> str:
    """The lines of the places that bound steps; empty if there are none."""
    rows = (
        _tables.labelled(
            f"{line.worker}  ", (f"{WARM_UP}: " if line.scope == WARM_UP else "") + words(line)
        )
        for line in lines
    )
    return "\n".join(("Hottest lines", *rows)) if lines else ""


def read_profiles(paths: Iterable[Path], by_rank: bool) -> tuple[dict[str, Profile], list[str]]:
    """What all threads of some runs were seen to run, with the thread and the scope around it.

    Args:
        by_rank: whether each process has a profile, or each group.

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
                name = ledger.name if by_rank else ledger.header["group"]
                counters.setdefault(name, Counter()).update(_profile(ledger, read))
    return {name: counters[name] for name in sorted(counters)}, broken


def collapsed(profiles: Mapping[str, Profile]) -> str:
    """A line for each stack, as flame graph programs read them: frames and microseconds."""
    return "\n".join(
        f"{';'.join(map(_collapsible, (name, *stack)))} {time}"
        for name, profile in profiles.items()
        for stack, time in sorted(profile.items())
    )


def _collapsible(frame: str) -> str:
    return " ".join(frame.replace(";", ",").splitlines())


def speedscope(profiles: Mapping[str, Profile]) -> str:
    """A file for speedscope, with a profile for each."""
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
