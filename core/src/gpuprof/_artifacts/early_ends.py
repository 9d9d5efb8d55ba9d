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


def ended_early(records: Iterable[NodeRecord]) -> list[Ended]:
    """The starts that have ended so.

    Look before the run's own end ends workers.

    Args:
        records: of all nodes, each read there, as only a node knows its processes.
    """
    return [
        Ended(start, record.node)
        for record in records
        for start in record.starts
        if start.process is None and start.session is not None and not start.session["over"]
    ]


def entries(directory: str, ended: Iterable[Ended]) -> list[EarlyEnd]:
    """What the manifest says of them.

    Args:
        directory: the run's, where their ledgers are by now.
    """
    return [
        {
            "worker": each.start.name,
            "node": each.node,
            "incarnation": each.start.incarnation,
            "step": _last_step_of(Path(directory), each),
        }
        for each in ended
    ]


def sentences(found: Iterable[EarlyEnd]) -> list[str]:
    """A sentence for all that ended on one node in the same step.

    >>> both = [
    ...     EarlyEnd(worker=f"A-{rank}", node="n0", incarnation="1", step=19) for rank in (0, 1)
    ... ]
    >>> print(*sentences(both))
    A-0, A-1 ended early on node n0, killed or crashed: the last record is in step 19, and the \
last seconds may be missing
    """
    together: dict[tuple[str, int | None], list[str]] = {}
    for each in found:
        together.setdefault((each["node"], each["step"]), []).append(each["worker"])
    return [
        f"{listed(workers)} ended early on node {node}, killed or crashed: "
        + ("" if step is None else f"the last record is in step {step}, and ")
        + "the last seconds may be missing"
        for (node, step), workers in together.items()
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


def _last_step_of(directory: Path, ended: Ended) -> int | None:
    place = directory / ended.node
    try:
        found = [ledgers.read(place / f"{ended.start.stem}{SUFFIX}")]
        found += [ledgers.read(path) for path in directory.glob(f"*/Runner{SUFFIX}")]
    except OutputError:  # none was kept
        return None
    ledgers.align(found)
    return last_step(found[0], next((each for each in found if len(each.edges)), found[0]))
