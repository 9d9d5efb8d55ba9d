"""``gpuprof collect``."""

from __future__ import annotations

import importlib
import os

import click

from gpuprof._artifacts import close, runs
from gpuprof._artifacts.collect import LONG, Collection, Nodes, ThisNode
from gpuprof._cli import settings
from gpuprof._report import printing
from gpuprof.errors import OutputError


@click.command(epilog=settings.examples("gpuprof collect", "gpuprof collect --ray"))
@settings.run_argument
@settings.output_dir_option
@click.option(
    "--ray",
    "on_ray",
    is_flag=True,
    help="Collect from the nodes of a running Ray cluster.",
)
@click.option(
    "--address", default="auto", show_default=True, help="With --ray: address of the cluster."
)
@settings.wide_option
def command(name: str, output_dir: str, on_ray: bool, address: str, width: int | None) -> None:
    """Gather a run's files and write its manifest, if its driver did not.

    Without RUN, the last run in the output directory. RUN is a run's name, as `gpuprof runs` lists
    it. PATH is a run's directory.

    Without --ray, collects from this machine's staging directory. Exits with code 1 if a report or
    a file is missing or broken.
    """
    directory = settings.find_run(name, output_dir)
    try:
        _collect(os.path.abspath(settings.no_link(directory)), on_ray, address, width)
    except OSError as error:
        raise OutputError(f"{error.filename or directory}: {error.strerror}") from None


def _collect(directory: str, on_ray: bool, address: str, width: int | None) -> None:
    info = runs.about(directory)
    if info is None:
        raise click.UsageError(f"{directory}: not a run directory; gpuprof runs lists the runs")
    for fault in info.faults:
        click.echo(fault, err=True)
    about = info.beginning
    if about is None:
        raise click.UsageError(
            f"{os.path.join(directory, 'run.json')}: missing or damaged, so the run's "
            "configuration is unknown and nothing can be collected"
        )
    # Files of the original run must not go into a copy of it.
    own = about["directory"] if _same(directory, about["directory"]) else directory
    is_staged = about["working_dir"] != os.path.dirname(about["directory"])
    away = os.path.join(about["working_dir"], about["run"]) if on_ray or is_staged else own
    nodes: Nodes = (
        importlib.import_module("gpuprof.ray").connected_nodes(address) if on_ray else ThisNode()
    )
    records = nodes.on_each(close.settle, about, away, own, timeout=LONG)
    whole_files = [close.finished_files(record) for record in records]
    home = Collection(nodes, away, directory, enabled=on_ray or is_staged, owner=own)
    with printing.progress(sum(sum(record.sizes.values()) for record in whole_files)) as bar:
        problems = home.bring(whole_files, progress=bar)
    # The driver has finished this run: list new files, but keep its receipt.
    if info.manifest is not None and info.finalized:
        count = close.list_again(info.manifest, directory, records)
        click.echo(f"{count} files in {directory}, listed in manifest.json")
        faults = [fault for record in records for fault in record.faults]
        complete = True
    else:
        receipt = close.write_receipt(about, home, records, problems)
        click.echo(receipt.table(width=width, hint=settings.WIDE_HINT))
        faults, complete = [], receipt.complete and not receipt.faults
    for problem in (*faults, *problems):
        click.echo(problem, err=True)
    if faults or problems or info.faults or not complete:
        raise SystemExit(1)


def _same(directory: str, other: str) -> bool:
    try:
        return os.path.samefile(directory, other)
    except OSError:
        return False
