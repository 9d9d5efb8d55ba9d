"""Reasons that only the driver knows: why a window was never opened on a worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from gpuprof._receipt import NEVER_OPENED, NEVER_USED, ReceiptRow
from gpuprof.ray._unadded import NEVER_ADDED


def explained(
    rows: Collection[ReceiptRow], never_added: Collection[tuple[str, int]], unopened: Mapping[tuple[str, str], str]
) -> tuple[ReceiptRow, ...]:
    """The rows of a receipt, with the reason of those that could not become complete.

    Args:
        never_added: the workers that nobody could reach, by group and rank.
        unopened: why a window is not open that should be, by the worker's name and the window's label.
    """
    names = {f"{group}-{rank}" for group, rank in never_added}

    def explain(row: ReceiptRow) -> ReceiptRow:
        why = NEVER_ADDED if row.worker in names and row.state != "complete" else ""
        if row.reason in (NEVER_OPENED, NEVER_USED):
            why = why or unopened.get((row.worker, row.window), "")
        return attrs.evolve(row, reason=f"{row.reason}; {why}") if why else row

    return tuple(explain(row) for row in rows)
