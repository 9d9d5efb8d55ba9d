"""Text that fits the screen: tables, and labelled text with a hanging indent."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from tabulate import tabulate

NARROWEST = 80
_GAP = 2
"""Columns of space that tabulate leaves between two columns."""


def screen() -> int:
    """The width of the terminal; 80 if it is narrower, or if the output is no terminal."""
    return max(NARROWEST, shutil.get_terminal_size((NARROWEST, 0)).columns)


def table(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str],
    width: int | None = None,
    align: Sequence[str] | None = None,
) -> str:
    """A table whose cells are wrapped so that no line is wider than the screen.

    Args:
        width: of the screen, in columns; ``None``: the terminal's.
        align: of each column, as tabulate's `colalign`; ``None``: all to the left.

    >>> print(table([("vm", "a sentence of several words")], ["node", "found"], width=20))
    node    found
    ------  ----------
    vm      a sentence
            of several
            words
    """
    natural = [
        max(len(line) for cell in column for line in (cell.splitlines() or [""]))
        for column in zip(headers, *rows, strict=True)
    ]
    # tabulate makes a column two wider than a header that is its widest cell
    natural = [max(wide, len(head) + _GAP) for wide, head in zip(natural, headers, strict=True)]
    limits = _fitting(natural, (width or screen()) - _GAP * (len(headers) - 1))
    # not by tabulate's `maxcolwidths`, which breaks paths at their hyphens
    cells = [
        [_wrapped(cell, limit) for cell, limit in zip(row, limits, strict=True)] for row in rows
    ]
    return tabulate(cells, headers, disable_numparse=True, colalign=align if rows else None)


def labelled(label: str, text: str, width: int | None = None) -> str:
    """A text behind its label; further lines begin below the text.

    Words are never broken: a path that is wider than the screen can still be copied.

    >>> print(labelled("  file  ", "a.nsys-rep and two more", width=20))
      file  a.nsys-rep
            and two more
    """
    return textwrap.fill(
        text,
        width or screen(),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _wrapped(cell: str, width: int) -> str:
    return "\n".join(
        part
        for line in cell.splitlines()
        for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    )


def _fitting(natural: list[int], room: int) -> list[int]:
    """The widths of columns in `room`: the widest ones give way, to the same width."""
    limits = list(natural)
    while sum(limits) > room and max(limits) > 1:
        widest = max(limits)
        second = max((wide for wide in limits if wide < widest), default=1)
        many = limits.count(widest)
        cut = max(1, min(widest - second, -(-(sum(limits) - room) // many)))
        limits = [wide - cut if wide == widest else wide for wide in limits]
    return limits
