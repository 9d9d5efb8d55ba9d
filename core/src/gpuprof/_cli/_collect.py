"""``gpuprof collect``."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from gpuprof import _manifest, _report, _runs


@click.command()
@click.argument("directory", metavar="RUN_DIRECTORY")
@click.option("--ray", "on_ray", is_flag=True, help="Bring the files from the nodes of a Ray cluster that is running.")
@click.option("--address", default="auto", show_default=True, help="Of the cluster, with --ray.")
def command(directory: str, on_ray: bool, address: str) -> None:
    """Bring home what a run has left, where its driver did not, and write the manifest of what is there.

    Without --ray: the files that are in RUN_DIRECTORY already, as on a file system that all nodes share.
    """
    known = _runs.about(directory)
    if known is None:
        if on_ray or not os.path.isdir(directory):
            raise click.UsageError(f"{directory} is not the directory of a run")
        known = {"run": os.path.basename(os.path.abspath(directory)), "backend": ""}
    directory = os.path.abspath(directory)
    problems: list[str] = []
    if on_ray:
        away = os.path.join(os.path.abspath(known.get("staging_dir") or os.path.dirname(directory)), known["run"])
        ray: Any = importlib.import_module("gpuprof.ray")
        with _report.progress(ray.size_away(away, address)) as bar:
            problems = ray.collect(away, directory, bar)
    files = _manifest.write_what_is_there(directory, known)
    for problem in problems:
        click.echo(problem, err=True)
    click.echo(f"{len(files)} files in {directory}, listed in manifest.json")
    if problems:
        raise SystemExit(1)
