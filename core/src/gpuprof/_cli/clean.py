"""``gpuprof clean``."""

from __future__ import annotations

import math
import os
import time

import click

from gpuprof import _tables
from gpuprof._artifacts import runs
from gpuprof._artifacts.receipt import size_text
from gpuprof._cli import settings
from gpuprof._report import cache
from gpuprof.errors import OutputError

_DAY = 86400.0


@click.command(epilog=settings.examples("gpuprof clean --older-than 30"))
@click.argument("names", nargs=-1, metavar="[RUN]...")
@settings.output_dir_option
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove runs that started more than DAYS ago.",
)
@click.option(
    "--cache",
    "only_cache",
    is_flag=True,
    help="Remove what `gpuprof report --nvtx` has cached, instead of runs. Does not ask.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(
    names: tuple[str, ...],
    output_dir: str,
    older_than: float | None,
    only_cache: bool,
    yes: bool,
) -> None:
    """Remove runs by name or by age, after asking.

    Runs of running jobs are kept. Exits with code 1 if a run cannot be read or removed.
    """
    if [bool(names), older_than is not None, only_cache].count(True) != 1:
        raise click.UsageError("give either run names or --older-than DAYS or --cache")
    if only_cache:
        size = cache.remove()
        click.echo(f"{size_text(size)} freed in {cache.directory()}")
        return
    all_runs = runs.runs(output_dir)
    problems = runs.unreadable(output_dir)
    for fault in problems:
        click.echo(fault, err=True)
    unknown = sorted({*names} - {run.name for run in all_runs})
    if unknown:
        hint = runs.hint(unknown[0], [run.name for run in all_runs])
        raise click.UsageError(f"no such run in {output_dir}: {', '.join(unknown)}; {hint}")
    newest = time.time() - older_than * _DAY if older_than is not None else -math.inf
    selection = [run for run in all_runs if run.name in names or run.begun < newest]
    if selection:
        rows = [
            (
                run.name,
                size_text(run.size),
                ("", f"{run.state}, kept" if run.goes_on else run.state),
            )
            for run in selection
        ]
        headers = ["run", "size", "state"]
        click.echo(_tables.table(headers, rows, right=("size",), shorten={"run": "start"}))
    selection = [run for run in selection if not run.goes_on]
    where = os.path.abspath(output_dir)
    if not selection:
        click.echo("nothing to remove")
    elif yes or click.confirm(f"Remove {len(selection)} of {len(all_runs)} runs from {where}?"):
        for run in selection:
            try:
                runs.remove(run)
            except OutputError as error:
                problems.append(str(error))
                click.echo(error, err=True)
    if problems:
        raise SystemExit(1)
