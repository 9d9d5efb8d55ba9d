"""Reasons that only the driver knows: why a window was never opened on a worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from gpuprof._receipt import NEVER_OPENED, NEVER_USED, ReceiptRow, how_far
from gpuprof._records import NodeRecord
from gpuprof.ray._unadded import NEVER_ADDED


def explained(
    rows: Collection[ReceiptRow],
    never_added: Collection[tuple[str, int]],
    unopened: Mapping[tuple[str, str], str],
    tasks: Mapping[str, str],
) -> tuple[ReceiptRow, ...]:
    """The rows of a receipt, with the reason of those that could not become complete.

    Args:
        never_added: the workers that nobody could reach, by group and rank.
        unopened: why a window is not open that should be, by the worker's name and the window's label.
        tasks: how far those came that say their steps themselves, by the worker's name.
    """
    names = {f"{group}-{rank}" for group, rank in never_added}

    def explain(row: ReceiptRow) -> ReceiptRow:
        why = NEVER_ADDED if row.worker in names and row.state != "complete" else ""
        if row.reason in (NEVER_OPENED, NEVER_USED):
            why = why or unopened.get((row.worker, row.window), "")
        if row.reason == NEVER_OPENED:
            why = why or tasks.get(row.worker, "")
        return attrs.evolve(row, reason=f"{row.reason}; {why}") if why else row

    return tuple(explain(row) for row in rows)


def of_tasks(records: Collection[NodeRecord], tasks: Collection[tuple[str, int]]) -> dict[str, str]:
    """How far the steps of tasks came, by their names. Where one has several processes, the highest step counts."""
    last: dict[str, int | None] = {}
    for start in (start for record in records for start in record.starts):
        if (start.group, start.rank) in tasks and start.session is not None:
            name, step = f"{start.group}-{start.rank}", start.session["step"]
            last[name] = max((known for known in (last.get(name), step) if known is not None), default=None)
    return {name: how_far(step) for name, step in last.items()}
