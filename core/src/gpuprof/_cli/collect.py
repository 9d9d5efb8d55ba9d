"""``gpuprof collect``."""

from __future__ import annotations

import importlib
import os

import click

from gpuprof._artifacts import close, runs
from gpuprof._artifacts.collect import LONG, Collection, Nodes, ThisNode
from gpuprof._report import printing


@click.command()
@click.argument("directory", metavar="RUN_DIRECTORY")
@click.option(
    "--ray",
    "on_ray",
    is_flag=True,
    help="Bring the files from the nodes of a Ray cluster that is running.",
)
@click.option("--address", default="auto", show_default=True, help="Of the cluster, with --ray.")
def command(directory: str, on_ray: bool, address: str) -> None:
    """Bring home what a run has left, where its driver did not, and write the manifest of what is
    there.

    Without --ray: from this machine's staging directory, beside what is in RUN_DIRECTORY already.
    """
    directory = os.path.abspath(directory)
    known = runs.about(directory)
    if known is None:
        raise click.UsageError(f"{directory} is not the directory of a run")
    for fault in known.faults:
        click.echo(fault, err=True)
    about = known.beginning
    if about is None:
        raise click.UsageError(
            f"{os.path.join(directory, 'run.json')} is missing or damaged: how the run was "
            "configured is not known"
        )
    away = os.path.join(about["working_dir"], about["run"])
    nodes: Nodes = (
        importlib.import_module("gpuprof.ray").connected_nodes(address) if on_ray else ThisNode()
    )
    records = nodes.on_each(close.settle, about, timeout=LONG)
    finished = [close.finished_files(record) for record in records]
    home = Collection(nodes, away, directory, enabled=on_ray or away != directory)
    with printing.progress(sum(sum(record.sizes.values()) for record in finished)) as bar:
        problems = home.bring(finished, progress=bar)
    # its driver has finished it: there may be more files by now, and nothing else
    if known.manifest is not None and known.finalized:
        count = close.list_again(known.manifest, directory, records)
        click.echo(f"{count} files in {directory}, listed in manifest.json")
    else:
        click.echo(close.write_receipt(about, home, records, problems).table())
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(1)
