"""The parts of a run's results, if several processes drive the run: one part from each process."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Sequence

import attrs
from ray.experimental import internal_kv

from gpuprof._artifacts.early_ends import Ended
from gpuprof._artifacts.formats import WorkerEntry
from gpuprof._artifacts.receipt import Receipt

_SPACE = b"gpuprof"


@attrs.frozen
class Part:
    """What one process knows about the run at its end.

    Args:
        ledger: the name of the ledger with the process's steps.
    """

    receipt: Receipt
    workers: list[WorkerEntry]
    ended_early: list[Ended]
    ended_by_job: list[Ended]
    ledger: str = "Runner"


def together(parts: Sequence[Part]) -> Receipt:
    """Merge the receipts of all parts; the directory is that of the last part."""
    receipts = [part.receipt for part in parts]
    return Receipt(
        tuple(row for receipt in receipts for row in receipt.rows),
        receipts[-1].directory,
        tuple(dict.fromkeys(fault for receipt in receipts for fault in receipt.faults)),
        next((receipt.overhead for receipt in receipts if receipt.overhead), ""),
    )


def leave(run: str, part: Part) -> None:
    """Leave a part in the store of Ray's cluster, for the process that began the run."""
    key = f"{run}/{secrets.token_hex(8)}".encode()
    internal_kv._internal_kv_put(key, pickle.dumps(part), namespace=_SPACE)


def take(run: str) -> list[Part]:
    """Take the parts that other processes have left in the store of Ray's cluster."""
    parts = []
    for key in internal_kv._internal_kv_list(f"{run}/".encode(), namespace=_SPACE):
        parts.append(pickle.loads(internal_kv._internal_kv_get(key, namespace=_SPACE)))
        internal_kv._internal_kv_del(key, namespace=_SPACE)
    return parts
