"""The receipt: which reports were expected, which exist, which are missing, and why."""

from __future__ import annotations

import os
from collections.abc import Sequence

import attrs

from gpuprof import _tables
from gpuprof._artifacts.formats import FileState, ReceiptEntry, RowEntry
from gpuprof._artifacts.reasons import Reason

_MANY_ROWS = 20


@attrs.frozen
class ReceiptRow:
    """One window and its expected file.

    Args:
        file: the file's absolute path on its node; ``None`` if none could be expected.
        cause: why the file is not complete, or holds more than the window.
        planned: the file's name in the plan, the same for windows that share a file; empty if the
            plan has no file for the window.
    """

    worker: str
    node: str
    window: str
    file: str | None
    size: int
    state: FileState
    cause: Reason = Reason.NONE
    detail: str = ""
    planned: str = ""

    @property
    def reason(self) -> str:
        """The cause and the detail in a sentence; empty if there is no cause."""
        return self.cause.text(self.detail)

    def add_detail(self, detail: str) -> ReceiptRow:
        """The row with one more detail."""
        return attrs.evolve(self, detail="; ".join(filter(None, (self.detail, detail))))

    def to_dict(self) -> RowEntry:
        """The row as a mapping for JSON."""
        return {
            "worker": self.worker,
            "node": self.node,
            "window": self.window,
            "file": self.file,
            "size": self.size,
            "state": self.state,
            "cause": self.cause.name,
            "reason": self.reason,
            "planned": self.planned,
        }


@attrs.frozen
class Receipt:
    """Which reports were expected, which exist, which are missing, and why.

    Args:
        directory: the run directory; ``None`` if nothing was profiled.
        faults: problems other than missing files, one sentence each.
        overhead: how much longer steps took inside windows, in one line; empty if there is nothing
            to compare.
    """

    rows: tuple[ReceiptRow, ...]
    directory: str | None
    faults: tuple[str, ...] = ()
    overhead: str = ""

    @property
    def complete(self) -> bool:
        """Whether every expected file exists and is complete."""
        return all(row.state == "complete" for row in self.rows)

    @property
    def total(self) -> str:
        """How many reports are complete, their size and their directory, in one line."""
        complete_rows = [row for row in self.rows if row.state == "complete"]
        if not self.rows:
            return f"{counted(0, 0)}, in {self.directory}"
        # several windows may share a file
        size = size_text(sum({(row.node, row.file): row.size for row in complete_rows}.values()))
        return f"{counted(*count(self.to_dict()['rows']))}, {size} in total, in {self.directory}"

    def table(self, all_rows: bool = False, width: int | None = None, hint: str = "") -> str:
        """The receipt as text. With more than 20 rows, only incomplete ones, unless `all_rows`.

        Args:
            width: the largest width in columns; 0 for no limit. Default: the terminal's, or 80.
            hint: how to see full paths; printed below the table if a path was shortened.
        """
        if self.directory is None:
            return "Nothing was profiled."
        visible: Sequence[ReceiptRow] = self.rows
        if len(visible) > _MANY_ROWS and not all_rows:
            visible = [row for row in self.rows if row.state != "complete"]
        rows = [
            (
                row.worker,
                row.window,
                self._relative(row.file),
                size_text(row.size),
                (row.state, row.reason),
            )
            for row in visible
        ]
        table = (
            _tables.table(
                ["worker", "window", "file", "size", "state"],
                rows,
                right=("size",),
                shorten={"file": "start", "worker": "start"},
                width=width,
                hint=hint,
            )
            if rows
            else ""
        )
        faults = [f"fault: {fault}" for fault in self.faults]
        return "\n".join(line for line in (table, *faults, self.total, self.overhead) if line)

    def _relative(self, file: str | None) -> str:
        return "" if file is None else os.path.relpath(file, self.directory)

    def to_dict(self) -> ReceiptEntry:
        """The receipt as a mapping for JSON."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "directory": self.directory,
            "faults": list(self.faults),
            "overhead": self.overhead,
        }


def count(rows: Sequence[RowEntry]) -> tuple[int, int]:
    """Count the expected reports and the complete ones.

    A report of several windows is complete when it holds all of them.
    """
    files = {
        (row["worker"], row["planned"]): (row["node"], row["file"])
        for row in rows
        if row["file"] and row["planned"]
    }
    complete: dict[tuple[str, str], bool] = {}
    for row in rows:
        planned_file = row["worker"], row["planned"] or row["window"]
        report = (
            (row["node"], row["file"]) if row["file"] else files.get(planned_file, planned_file)
        )
        complete[report] = complete.get(report, True) and row["state"] == "complete"
    return len(complete), sum(complete.values())


def how_far(step: int | None) -> str:
    """The end of a sentence about the last step that a process with its own steps finished."""
    return (
        "no step of `with gpuprof.step(n)` has ended"
        if step is None
        else f"its last step was {step}"
    )


def counted(expected: int, complete: int) -> str:
    """How many reports are complete, in words.

    >>> counted(9, 8), counted(1, 1), counted(0, 0)
    ('8 of 9 reports complete', '1 of 1 report complete', 'no report expected')
    """
    if not expected:
        return "no report expected"
    return f"{complete} of {expected} report{'' if expected == 1 else 's'} complete"


def size_text(size: int) -> str:
    """A size in bytes as text, in a suitable unit.

    >>> size_text(0), size_text(135014), size_text(3 * 2**20)
    ('0 B', '131.8 KiB', '3.0 MiB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
