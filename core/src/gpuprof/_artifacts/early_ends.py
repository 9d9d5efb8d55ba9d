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
    """A start whose process has ended without writing what it still knew."""

    start: Start
    node: str
    restarted: bool


def ended_early(records: Iterable[NodeRecord]) -> list[Ended]:
    """Starts whose processes ended early.

    Look before the run's own end ends workers.

    Args:
        records: of all nodes, each read there, as only a node knows its processes.
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


def entries(directory: str, ended: Iterable[Ended], driver: str = "Runner") -> list[EarlyEnd]:
    """What the manifest says of them.

    Args:
        directory: the run's, where their ledgers are by now.
        driver: the name of the ledger that has the steps.
    """
    return [
        {
            "worker": each.start.name,
            "node": each.node,
            "incarnation": each.start.incarnation,
            "step": _last_step_of(Path(directory), each, driver),
            "restarted": each.restarted,
        }
        for each in ended
    ]


def sentences(found: Iterable[EarlyEnd]) -> list[str]:
    """A sentence for all that ended on one node in the same step.

    >>> where = {"node": "n0", "incarnation": "1", "step": 19, "restarted": False}
    >>> print(*sentences([{"worker": "A-0", **where}, {"worker": "A-1", **where}]))
    A-0, A-1 ended early on node n0, killed or crashed: the last record is in step 19, and the \
last seconds may be missing
    """
    together: dict[tuple[str, int | None, bool], list[str]] = {}
    for each in found:
        alike = each["node"], each["step"], each["restarted"]
        together.setdefault(alike, []).append(each["worker"])
    return [
        f"{listed(workers)} ended early on node {node}, killed or crashed"
        + (", and started again: " if restarted else ": ")
        + ("" if step is None else f"the last record is in step {step}, and ")
        + "the last seconds may be missing"
        for (node, step, restarted), workers in together.items()
    ]


def listed(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


def last_step(ledger: Ledger, steps_of: Ledger) -> int | None:
    """The last step that had begun when a ledger's last record was made.

    Args:
        steps_of: whose steps are meant: the driver's, or its own.
    """
    moment = ledger.last + ledger.offset - steps_of.offset
    begun = [step.number for step in steps_of.steps() if step.start <= moment]
    return begun[-1] if begun else None


def _last_step_of(directory: Path, ended: Ended, driver: str) -> int | None:
    place = directory / ended.node
    try:
        found = [ledgers.read(place / f"{ended.start.stem}{SUFFIX}")]
        found += [ledgers.read(path) for path in directory.glob(f"*/{driver}{SUFFIX}")]
    except OutputError:  # none was kept
        return None
    ledgers.align(found)
    return last_step(found[0], next((each for each in found if len(each.edges)), found[0]))
