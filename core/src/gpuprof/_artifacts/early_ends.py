"""Workers whose processes ended before the run did: killed, crashed, or ended by `os._exit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.ledger import SUFFIX, Ledger
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof.errors import OutputError

_LISTED = 5


@attrs.frozen
class Ended:
    """A start of a worker whose process ended without writing its last state."""

    start: Start
    node: str
    restarted: bool


def ended_early(records: Iterable[NodeRecord]) -> list[Ended]:
    """The starts of workers whose processes ended early.

    Call this before the end of the run ends any workers.

    Args:
        records: the records of all nodes. Each must have been read on its node, because only a node
            can see its processes.
    """
    records = list(records)
    last: dict[str, int] = {}
    for start in (start for record in records for start in record.starts):
        last[start.name] = max(last.get(start.name, 0), int(start.incarnation))
    return [
        Ended(start, record.node, int(start.incarnation) < last[start.name])
        for record in records
        for start in record.starts
        if start.process is None and start.session is not None and not start.session["over"]
    ]


def entries(directory: str, early_ends: Iterable[Ended], driver: str = "Runner") -> list[EarlyEnd]:
    """The manifest's entries for early ends.

    Args:
        directory: the run directory, which must hold the workers' ledgers by now.
        driver: the name of the ledger with the driver's steps.
    """
    return [
        {
            "worker": early_end.start.name,
            "node": early_end.node,
            "incarnation": early_end.start.incarnation,
            "step": _last_step_of(Path(directory), early_end, driver),
            "restarted": early_end.restarted,
        }
        for early_end in early_ends
    ]


def sentences(early_ends: Iterable[EarlyEnd]) -> list[str]:
    """One sentence for all workers of a node that ended in the same step.

    >>> where = {"node": "n0", "incarnation": "1", "step": 19, "restarted": False}
    >>> print(*sentences([{"worker": "A-0", **where}, {"worker": "A-1", **where}]))
    A-0, A-1 ended early on node n0, killed or crashed: the last record is in step 19, and the \
last seconds may be missing
    """
    groups: dict[tuple[str, int | None, bool], list[str]] = {}
    for early_end in early_ends:
        alike = early_end["node"], early_end["step"], early_end["restarted"]
        groups.setdefault(alike, []).append(early_end["worker"])
    return [
        f"{listed(workers)} ended early on node {node}, killed or crashed"
        + (", and started again: " if restarted else ": ")
        + ("" if step is None else f"the last record is in step {step}, and ")
        + "the last seconds may be missing"
        for (node, step, restarted), workers in groups.items()
    ]


def listed(names: Sequence[str]) -> str:
    """The first `_LISTED` names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


def last_step(ledger: Ledger, steps_of: Ledger) -> int | None:
    """The last step that had begun at the time of a ledger's last record.

    Args:
        steps_of: the ledger with the steps: the driver's, or the same one.
    """
    moment = ledger.last + ledger.offset - steps_of.offset
    numbers = [step.number for step in steps_of.steps() if step.start <= moment]
    return numbers[-1] if numbers else None


def _last_step_of(directory: Path, early_end: Ended, driver: str) -> int | None:
    place = directory / early_end.node
    try:
        run_ledgers = [ledgers.read(place / f"{early_end.start.stem}{SUFFIX}")]
        run_ledgers += [ledgers.read(path) for path in directory.glob(f"*/{driver}{SUFFIX}")]
    except OutputError:  # no ledger was written, or it cannot be read
        return None
    ledgers.align(run_ledgers)
    return last_step(
        run_ledgers[0],
        next((ledger for ledger in run_ledgers if len(ledger.edges)), run_ledgers[0]),
    )
