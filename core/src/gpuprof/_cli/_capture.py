"""``gpuprof capture``."""

from __future__ import annotations

import os

import click

from gpuprof import _orders, _selection
from gpuprof.errors import ConfigError


@click.command()
@click.option("--run", required=True, help="The run's directory, or its id below GPUPROF_OUTPUT_DIR or gpuprof-output.")
@click.option("--steps", required=True, help="next:N, or steps and slices: 100,200:203.")
@click.option("--groups", default="all", show_default=True, help="Names or wildcards, with commas between them.")
@click.option("--ranks", default="all", show_default=True, help="Ranks and slices: 0,8:16.")
def command(run: str, steps: str, groups: str, ranks: str) -> None:
    """Have the armed workers of a run that goes on capture some steps.

    Says what it has asked for, and waits for nothing: reports appear in the run's directory.
    """
    directory = run if os.path.isdir(run) else os.path.join(os.environ.get("GPUPROF_OUTPUT_DIR", "gpuprof-output"), run)
    path = _orders.directory_of(directory)
    if not os.path.isdir(path):
        reason = "no worker of it is armed (armed: true, steps: [])" if os.path.isdir(directory) else "there is no such directory"
        raise ConfigError([f"--run: {run!r} is not valid: {reason}"])
    number, ranges = _orders.parse_steps(steps)
    names = tuple(name.strip() for name in groups.split(",") if name.strip())
    order = _orders.Order(number, ranges, names, _ranks(ranks))
    _orders.give(path, order)
    click.echo(f"asked for steps {steps} of groups {groups}, ranks {ranks}, in {directory}")


def _ranks(text: str) -> tuple[tuple[int, int], ...]:
    if text.strip().lower() == "all":
        return _selection.ALL_RANKS.ranges
    parts = [part.strip() for part in text.split(",")]
    try:
        return _selection.Integers.parse([int(part) if part.isascii() and part.isdigit() else part for part in parts]).ranges
    except ConfigError:
        raise ConfigError([f"--ranks: {text!r} is not valid; expected all, or ranks and slices as in 0,8:16"]) from None
