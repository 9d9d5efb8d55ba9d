"""Text that fits the terminal: tables in one style, and labelled text with a hanging indent."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence

from gpuprof._terminal import printable

_GAP = "  "
_SHORTEST = 12
"""The fewest columns of a shortened cell."""
UNLIMITED = 0
"""The width of a table without a limit: as wide as its longest row."""

Text = tuple[str, str]
"""A word and its explanation, such as ``("missing", "the worker never started")``."""


def console_width() -> int:
    """The terminal's width in characters, or COLUMNS if set; 80 if stdout is no terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    optional: Sequence[str] = (),
    shorten: Mapping[str, str] | None = None,
    width: int | None = None,
    hint: str = "",
) -> str:
    """Lay out rows in columns.

    A `Text` in the last column moves to lines below the row if it is too long for the row.

    Args:
        right: the columns to align at the right.
        optional: columns to leave out, in this order, while the table is too wide.
        shorten: where to cut the cells of a column that may be cut: at the ``start`` or the
            ``end``.
        width: the maximum width in characters, or `UNLIMITED`; ``None`` means the terminal's width.
        hint: how to see the missing text; printed below a table with columns or text left out.

    >>> print(table(["worker", "state"], [("A-0", ("complete", "")), ("A-1", ("missing", "why"))]))
    worker  state
    ------  ------------
    A-0     complete
    A-1     missing: why
    """
    limit = console_width() if width is None else width
    columns = list(range(len(headers)))
    cells = [
        # escape before measuring, because an escaped character is wider
        [
            printable(cell[0] if isinstance(cell, tuple) else " ".join(cell.splitlines()))
            for cell in row
        ]
        for row in rows
    ]
    for row, texts in zip(rows, cells, strict=True):
        texts[-1] += ":" if isinstance(row[-1], tuple) and all(row[-1]) else ""

    def widths() -> dict[int, int]:
        return {
            column: max(len(row[column]) for row in [list(headers), *cells]) for column in columns
        }

    def excess() -> int:
        total = sum(widths().values()) + len(_GAP) * (len(columns) - 1)
        return total - limit if limit else 0

    left_out = []
    for name in optional:
        if excess() > 0 and name in headers:
            columns.remove(headers.index(name))
            left_out.append(name)
    cut = False
    for name, where in (shorten or {}).items():
        column = headers.index(name) if name in headers else -1
        if excess() > 0 and column in columns:
            most = max(_SHORTEST, len(name), widths()[column] - excess())
            cut = cut or most < widths()[column]
            for row in cells:
                row[column] = _cut(row[column], most, where)
    before = sum(widths()[column] + len(_GAP) for column in columns[:-1])
    below: dict[int, str] = {}
    for number, row in enumerate(rows):
        last_cell = row[-1]
        if not isinstance(last_cell, tuple) or not last_cell[1]:
            continue
        inline = " ".join(filter(None, (cells[number][-1], " ".join(last_cell[1].split()))))
        if not limit or before + len(inline) <= limit:
            cells[number][-1] = inline
        else:
            below[number] = last_cell[1]
    lengths = widths()
    lines = [
        _line(list(headers), lengths, headers, right),
        _GAP.join("-" * lengths[column] for column in columns),
    ]
    for number, row in enumerate(cells):
        lines.append(_line(row, lengths, headers, right))
        if number in below:
            lines += _wrapped(below[number], limit)
    if hint and left_out:
        lines += textwrap.wrap(f"Left out: {', '.join(left_out)}. {hint}", limit)
    elif hint and cut:
        lines.append(hint)
    return "\n".join(lines)


def labelled(label: str, text: str, width: int | None = None) -> str:
    """Wrap text after its label, with further lines indented to the start of the text.

    Never breaks a word, so a path wider than the screen can still be copied. Keeps a number and its
    percent sign on one line.

    >>> print(labelled("  file  ", "a.nsys-rep and two more", width=20))
      file  a.nsys-rep
            and two more
    """
    return textwrap.fill(
        text.replace(" %", "\N{NO-BREAK SPACE}%"),
        width or console_width(),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\N{NO-BREAK SPACE}%", " %")


def legend(lines: Sequence[str]) -> str:
    """Wrap the explanations below a table to the terminal's width."""
    width = console_width()
    return "\n".join(
        part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_GAP)
    )


def _line(
    row: Sequence[str], lengths: Mapping[int, int], headers: Sequence[str], right: Collection[str]
) -> str:
    return _GAP.join(
        row[column].rjust(length) if headers[column] in right else row[column].ljust(length)
        for column, length in lengths.items()
    ).rstrip()


def _wrapped(text: str, limit: int) -> list[str]:
    """The indented lines below a row. A long path is not broken, so it can be copied."""
    return textwrap.wrap(
        " ".join(text.split()),
        limit,
        initial_indent=_GAP * 2,
        subsequent_indent=_GAP * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _cut(cell: str, most: int, where: str) -> str:
    """A cell with the part that does not fit replaced by ``…``."""
    if len(cell) <= most:
        return cell
    return f"…{cell[len(cell) - most + 1 :]}" if where == "start" else f"{cell[: most - 1]}…"
