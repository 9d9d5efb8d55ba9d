"""``gpuprof clean``."""

from __future__ import annotations

import os
import time

import click

from gpuprof import _tables
from gpuprof._artifacts import runs
from gpuprof._artifacts.receipt import size_text
from gpuprof._cli.settings import examples, output_dir_option
from gpuprof._report import cache
from gpuprof.errors import OutputError

_DAY = 86400.0


@click.command(epilog=examples("gpuprof clean --older-than 30"))
@click.argument("names", nargs=-1, metavar="[RUN]...")
@output_dir_option
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
    help="Remove only what `gpuprof report --nvtx` has cached; by default of all runs.",
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

    Runs of running jobs are kept. Exits with code 1 if a run cannot be read or removed. With
    --cache, removes what can be made again and keeps the runs, and does not ask.
    """
    if bool(names) == (older_than is not None) and (names or not only_cache):
        raise click.UsageError("give either run names or --older-than DAYS")
    found = runs.runs(output_dir)
    broken = runs.unreadable(output_dir)
    for fault in broken:
        click.echo(fault, err=True)
    known = {run.name for run in found}
    unknown = sorted({*names} - known)
    if unknown:
        hint = runs.hint(unknown[0], known)
        raise click.UsageError(f"no such run in {output_dir}: {', '.join(unknown)}; {hint}")
    if names:
        chosen = [run for run in found if run.name in names]
    elif older_than is not None:
        chosen = [run for run in found if run.begun < time.time() - older_than * _DAY]
    else:
        chosen = found
    if only_cache:
        broken += _remove_caches(chosen)
    else:
        broken += _remove_runs(chosen, len(found), output_dir, yes)
    if broken:
        raise SystemExit(1)


def _remove_caches(chosen: list[runs.Run]) -> list[str]:
    """Remove the caches of runs, and return the faults."""
    broken = []
    freed = {}
    for run in chosen:
        try:
            freed[run.name] = cache.remove(run.directory)
        except OSError as error:
            broken.append(f"{run.directory!r}: the cache cannot be removed: {error}")
            click.echo(broken[-1], err=True)
    rows = [(name, size_text(size)) for name, size in freed.items() if size]
    click.echo(
        _tables.table(["run", "freed"], rows, right=("freed",)) if rows else "nothing to remove"
    )
    return broken


def _remove_runs(chosen: list[runs.Run], count: int, output_dir: str, yes: bool) -> list[str]:
    """Remove runs after asking, and return the faults."""
    broken = []
    rows = [
        (
            run.name,
            size_text(run.size),
            ("", f"{run.state}, kept" if run.goes_on else run.state),
        )
        for run in chosen
    ]
    if rows:
        click.echo(
            _tables.table(["run", "size", "state"], rows, right=("size",), shorten={"run": "start"})
        )
    chosen = [run for run in chosen if not run.goes_on]
    if not chosen:
        click.echo("nothing to remove")
    elif yes or click.confirm(
        f"Remove {len(chosen)} of {count} runs from {os.path.abspath(output_dir)}?"
    ):
        for run in chosen:
            try:
                runs.remove(run)
            except OutputError as error:
                broken.append(str(error))
                click.echo(error, err=True)
    return broken
