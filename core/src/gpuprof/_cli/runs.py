"""``gpuprof runs``."""

from __future__ import annotations

import json
import time

import attrs
import click

from gpuprof import _tables
from gpuprof._artifacts import runs
from gpuprof._artifacts.receipt import size_text
from gpuprof._cli.settings import WIDE_HINT, examples, output_dir_option, wide_option


@click.command(epilog=examples("gpuprof runs --output-dir gpuprof-output"))
@output_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@wide_option
def command(output_dir: str, as_json: bool, width: int | None) -> None:
    """List the runs in the output directory, oldest first.

    If a run's files are broken, names them and exits with code 1.
    """
    found = runs.runs(output_dir)
    broken = runs.unreadable(output_dir)
    _show(found, output_dir, as_json, width)
    for fault in broken:
        click.echo(fault, err=True)
    if broken or any(run.faults for run in found):
        raise SystemExit(1)


def _show(found: list[runs.Run], output_dir: str, as_json: bool, width: int | None) -> None:
    if as_json:
        click.echo(
            json.dumps([{**attrs.asdict(run), "state": run.state} for run in found], indent=2)
        )
        return
    rows = [
        (
            run.name,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run.begun)),
            run.backend,
            size_text(run.size),
            ("", run.state),
        )
        for run in found
    ]
    made = _tables.table(
        ["run", "started", "backend", "size", "state"],
        rows,
        right=("size",),
        optional=("backend",),
        shorten={"run": "start"},
        width=width,
        hint=WIDE_HINT,
    )
    click.echo(made if rows else f"no runs in {output_dir}")
