"""What the driver says at the end: the trees, then the receipt."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuprof_timing import Timing

from gpuprof._artifacts.receipt import Receipt
from gpuprof._config.schema import PrintTrees
from gpuprof._log import log

Trees = Mapping[tuple[str, int], Timing]


def chosen(trees: Trees, which: PrintTrees) -> list[Timing]:
    """The trees to print, by group and rank: all, none, or each group's first and last rank
    (``ends``).
    """
    if which == "none":
        return []
    ranks: dict[str, list[int]] = {}
    for group, rank in trees:
        ranks.setdefault(group, []).append(rank)
    ends = {
        (group, end)
        for group, all_ranks in ranks.items()
        for end in (min(all_ranks), max(all_ranks))
    }
    return [tree for key, tree in trees.items() if which == "all" or key in ends]


def read_tree(data: dict[str, Any], worker: str) -> Timing:
    """The tree that a worker has written; an empty one, which is logged, where it cannot be read,
    as of another release.
    """
    try:
        return Timing.from_dict(data)
    except (ValueError, LookupError, TypeError) as error:
        log().warning("%s: its timing tree cannot be read: %s", worker, error)
        return Timing(worker)


def print_trees(trees: Trees, runner: Timing, which: PrintTrees) -> None:
    """Log one tree a record, the runner's last."""
    if which == "none":
        return
    for tree in [*chosen(trees, which), runner]:
        log().info("%s", tree)


def print_receipt(receipt: Receipt) -> None:
    """Log the receipt; as a warning when anything is missing.

    Where no report was expected, only where the trees lie.
    """
    if not receipt.rows and not receipt.faults:
        log().info("timing trees lie in %s", receipt.directory)
        return
    log().log(
        20 if receipt.complete and not receipt.faults else 30,
        "profiling receipt:\n%s",
        receipt.table(),
    )


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[int], object]]:
    """A bar on the terminal, of bytes: gives what is told of each part.

    Nothing where there is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    import click  # not needed by a job

    with click.progressbar(length=total, label="bringing reports home", file=sys.stderr) as bar:
        yield bar.update
