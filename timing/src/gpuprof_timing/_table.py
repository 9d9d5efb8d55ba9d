"""The tree as rows of a table, with all its statistics."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuprof_timing._node import Node

CONCURRENT = "∥"
"""Marks a place whose children took more time than the place itself: they ran in parallel."""

Row = dict[str, str]


def table(rows: list[dict[str, str]], style: str) -> str:
    """The rows in one of tabulate's table formats.

    Raises:
        ImportError: tabulate is not installed.
        ValueError: tabulate has no such format.
    """
    try:
        from tabulate import tabulate, tabulate_formats
    except ImportError as error:
        raise ImportError("Timing.table needs tabulate: pip install tabulate") from error
    if style not in tabulate_formats:  # of which tabulate would make its plainest
        raise ValueError(
            f"format: {style!r} is not valid; expected {' or '.join(tabulate_formats)}"
        )
    columns = list(rows[0]) if rows else [name for name in COLUMNS if name not in _OPTIONAL]
    return tabulate(
        [list(row.values()) for row in rows],
        columns,
        tablefmt=style,
        disable_numparse=True,
        colalign=["left"] + ["right"] * (len(columns) - 1),
    )


def table_rows(root: Node, now: int, run: int) -> list[dict[str, str]]:
    """All nodes, a row each, children indented below their parents.

    Args:
        run: nanoseconds since the timing began.
    """
    rows = list(_rows(root, now, run))
    columns = [
        name for name in COLUMNS if name not in _OPTIONAL or any(row.get(name) for row in rows)
    ]
    return [{name: row.get(name, "") for name in columns} for row in rows]


COLUMNS = (
    "name",
    "calls",
    "open",
    "total",
    "mean",
    "min",
    "max",
    "std",
    "% parent",
    "% run",
    "device",
    "slowest",
)
_OPTIONAL = {"open", "device", "slowest"}
_INDENT = "\N{MIDDLE DOT} "  # neither tabulate nor Markdown keeps spaces at the beginning of a cell


def _rows(root: Node, now: int, run: int) -> Iterator[Row]:
    pending: list[Node | Row] = [*reversed(root.descend())]
    while pending:
        child = pending.pop()
        if isinstance(child, dict):
            yield child
            continue
        above = child.parent
        assert above is not None
        whole = run if above is root else above.elapsed(now)
        depth = child.depth - 1
        total = child.elapsed(now)
        below = sum(grandchild.elapsed(now) for grandchild in child.descend())
        mark = f" {CONCURRENT}" if below > total else ""
        yield {
            "name": _INDENT * depth + child.key + mark,
            "calls": str(child.count),
            "open": str(child.open or ""),
            "total": _seconds(total / 1e9),
            # nothing has ended yet: zero would be a claim
            "mean": _seconds(child.mean()) if child.count else "",
            "min": _seconds(child.shortest / 1e9) if child.has_extremes else "",
            "max": _seconds(child.longest / 1e9) if child.has_extremes else "",
            "std": _seconds(child.deviation()) if child.count else "",
            "% parent": _percent(total, whole),
            "% run": _percent(total, run),
            "device": _seconds(child.device_total / 1e9) if child.device_count else "",
            "slowest": f"{child.spread.slowest} ({child.spread.maximum / 1e9:.4f})"
            if child.spread
            else "",
        }
        if child.children and below < total:
            other: Row = {
                "name": _INDENT * (depth + 1) + "(other)",
                "total": _seconds((total - below) / 1e9),
                "% parent": _percent(total - below, total),
                "% run": _percent(total - below, run),
            }
            pending.append(other)
        pending.extend(reversed(child.descend()))


def _seconds(value: float) -> str:
    return f"{value:.4f}" if value >= 0.001 or not value else f"{value:.2e}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole > 0 else ""
