"""``gpuprof runs``."""

from __future__ import annotations

import json
import time

import attrs
import click

from gpuprof import _tables
from gpuprof._artifacts import runs
from gpuprof._artifacts.receipt import size_text
from gpuprof._cli import settings


@click.command(epilog=settings.examples("gpuprof runs --output-dir gpuprof-output"))
@settings.output_dir_option
@settings.json_option
@settings.wide_option
def command(output_dir: str, as_json: bool, width: int | None) -> None:
    """List the runs in the output directory, oldest first.

    If a run's files are broken, names them and exits with code 1.
    """
    all_runs = runs.runs(output_dir)
    problems = runs.unreadable(output_dir)
    if as_json:
        content = [{**attrs.asdict(run), "state": run.state} for run in all_runs]
        click.echo(json.dumps(content, indent=2))
    else:
        click.echo(_table(all_runs, width) if all_runs else f"no runs in {output_dir}")
    settings.end(problems)
    if any(run.faults for run in all_runs):  # named in its row
        raise SystemExit(1)


def _table(all_runs: list[runs.Run], width: int | None) -> str:
    rows = [
        (
            run.name,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run.begun)),
            run.backend,
            size_text(run.size),
            ("", run.state),
        )
        for run in all_runs
    ]
    return _tables.table(
        ["run", "started", "backend", "size", "state"],
        rows,
        right=("size",),
        optional=("backend",),
        shorten={"run": "start"},
        width=width,
        hint=settings.WIDE_HINT,
    )
