"""The driver's output at the end of a run: the trees, then the receipt."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from gpuprof_timing import Timing

from gpuprof._artifacts.receipt import Receipt
from gpuprof._config.schema import PrintTrees
from gpuprof._log import log
from gpuprof._report.trees import Tree
from gpuprof._terminal import unescaped

Trees = Mapping[tuple[str, int], Tree]


def chosen(trees: Trees, which: PrintTrees, slow: Collection[str] = ()) -> list[Tree]:
    """The trees to print. The name of a slow worker's tree says that the worker is slow.

    Args:
        which: ``ends`` selects two ranks of each group: the first, and a slow one or else the last.
    """
    if which == "none":
        return []
    ranks: dict[str, list[int]] = {}
    for group, rank in trees:
        ranks.setdefault(group, []).append(rank)
    selection = set()
    for group, all_ranks in ranks.items():
        first, last = min(all_ranks), max(all_ranks)
        slower = (rank for rank in all_ranks if rank != first and f"{group}-{rank}" in slow)
        selection |= {(group, first), (group, next(slower, last))}
    return [
        tree.renamed(f"{group}-{rank} (slow) profile") if f"{group}-{rank}" in slow else tree
        for (group, rank), tree in trees.items()
        if which == "all" or (group, rank) in selection
    ]


def read_tree(data: Mapping[str, Any], worker: str) -> Tree:
    """Read a worker's tree. If that fails, log a warning and return an empty tree."""
    try:
        return Tree.read(data, f"{worker} profile")
    except (ValueError, LookupError, TypeError) as error:
        log().warning("%s: cannot read its timing tree: %s", worker, error)
        return Tree(Timing(worker))


def print_trees(
    trees: Trees,
    driver: Tree,
    which: PrintTrees,
    slow: Collection[str] = (),
    directory: str | None = None,
) -> None:
    """Log each chosen tree as a record, then the driver's, and how many are left out.

    Args:
        directory: where all trees are; ``None`` if they are in no file.
    """
    if which == "none":
        return
    choice = chosen(trees, which, slow)
    for tree in [*choice, driver]:
        log().info("%s", tree.text())
    if len(choice) < len(trees) and directory is not None:
        log().info(
            "%d more workers have trees; all, merged by group: gpuprof report %s",
            len(trees) - len(choice),
            directory,
        )


def print_receipt(receipt: Receipt) -> None:
    """Log the receipt, as a warning if anything is missing.

    If no report was expected, log only the directory of the trees.
    """
    if not receipt.rows and not receipt.faults:
        log().info("timing trees: %s", receipt.directory)
        return
    log().log(
        20 if receipt.complete and not receipt.faults else 30,
        "profiling receipt:\n%s",
        receipt.table(),
    )


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar of bytes if stderr is a terminal. Yields a function to update it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    import click  # not needed by a job

    stream = unescaped(sys.stderr)
    with click.progressbar(length=total, label="collecting reports", file=stream) as bar:
        yield bar.update
