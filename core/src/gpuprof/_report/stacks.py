"""What samples of stacks say in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuprof import _tables
from gpuprof._analysis.stacks import Line
from gpuprof._report.words import duration, percentage

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
    at = f"{short(line.file)}:{line.line}"
    if line.of_line < _LEAST_OF_LINE * line.share:
        at = f"{at} and other lines"
    return f"{percentage(line.share)} of {whole}: {line.name}, {at}"


def short(file: str) -> str:
    """The path of a source as people read it: of what is installed from its package on."""
    installed = _INSTALLED.match(file)
    return file[installed.end() :] if installed else re.split(r"[/\\]", file)[-1]


def hottest(lines: Sequence[Line]) -> str:
    """The lines of the places that bound steps; empty if there are none."""
    said = (_tables.labelled(f"{line.worker}  ", words(line)) for line in lines)
    return "\n".join(("Hottest lines", *said)) if lines else ""
