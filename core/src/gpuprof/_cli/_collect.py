"""``gpuprof collect``."""

from __future__ import annotations

import importlib
import os

import click

from gpuprof import _manifest, _records, _report, _runs
from gpuprof._collection import Collection, Nodes, ThisNode


@click.command()
@click.argument("directory", metavar="RUN_DIRECTORY")
@click.option("--ray", "on_ray", is_flag=True, help="Bring the files from the nodes of a Ray cluster that is running.")
@click.option("--address", default="auto", show_default=True, help="Of the cluster, with --ray.")
def command(directory: str, on_ray: bool, address: str) -> None:
    """Bring home what a run has left, where its driver did not, and write the manifest of what is there.

    Without --ray: from this machine's staging directory, beside what is in RUN_DIRECTORY already.
    """
    known = _runs.about(directory)
    if known is None:
        if on_ray or not os.path.isdir(directory):
            raise click.UsageError(f"{directory} is not the directory of a run")
        known = {"run": os.path.basename(os.path.abspath(directory)), "backend": ""}
    directory = os.path.abspath(directory)
    away = os.path.join(known.get("working_dir") or os.path.dirname(directory), known["run"])
    nodes: Nodes = ThisNode()
    if on_ray:
        nodes = importlib.import_module("gpuprof.ray").connected_nodes(address)
    records = nodes.on_each(_records.read_node, away)
    with _report.progress(sum(sum(record.sizes.values()) for record in records)) as bar:
        problems = Collection(nodes, away, directory, enabled=on_ray or away != directory).bring(records, progress=bar)
    files = _manifest.write_what_is_there(directory, known)
    for problem in problems:
        click.echo(problem, err=True)
    click.echo(f"{len(files)} files in {directory}, listed in manifest.json")
    if problems:
        raise SystemExit(1)
