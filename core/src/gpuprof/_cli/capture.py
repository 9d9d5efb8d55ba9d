"""``gpuprof capture``."""

from __future__ import annotations

import os

import click

from gpuprof._artifacts import runs
from gpuprof._cli.settings import output_dir_option
from gpuprof._config import selection
from gpuprof._session import orders
from gpuprof.errors import ConfigError


@click.command()
@click.option(
    "--run", required=True, help="The run's directory, or its id in the output directory."
)
@output_dir_option
@click.option("--steps", required=True, help="next:N, or steps and slices: 100,200:203.")
@click.option(
    "--groups",
    default="all",
    show_default=True,
    help="Names or wildcards, with commas between them.",
)
@click.option("--ranks", default="all", show_default=True, help="Ranks and slices: 0,8:16.")
def command(run: str, output_dir: str, steps: str, groups: str, ranks: str) -> None:
    """Have the armed workers of a run that goes on capture some steps.

    Says what it has asked for, and waits for nothing: reports appear in the run's directory.
    """
    directory = run if os.path.isdir(run) else os.path.join(output_dir, run)
    path = orders.directory_of(directory)
    if not os.path.isdir(path):
        raise ConfigError([f"--run: {run!r} is not valid: {_why_not_armed(directory)}"])
    known = runs.about(directory) or runs.About(directory, os.path.basename(directory))
    goes_on = known.goes_on()
    if goes_on is False:
        raise ConfigError([f"--run: {run!r} is not valid: it has ended"])
    number, ranges = orders.parse_steps(steps)
    names = tuple(name.strip() for name in groups.split(",") if name.strip())
    if not names:
        raise ConfigError(
            [
                (
                    f"--groups: {groups!r} is not valid; expected all, or names and wildcards as "
                    "in "
                    "Actor*,Env"
                )
            ]
        )
    order = orders.Order(number, ranges, names, _ranks(ranks))
    orders.give(path, order)
    starts = [start for record in runs.records(known) for start in record.starts]
    seen = sorted({start.group for start in starts})
    for name in names:
        if seen and not any(selection.matches(group, (name,)) for group in seen):
            click.echo(
                f"--groups: no worker of {name!r} has been seen here yet; seen: {', '.join(seen)}",
                err=True,
            )
    if number and goes_on and known.launched and not any(start.process for start in starts):
        click.echo(
            "--steps: no worker of it runs here yet, and next is not for those that start later; "
            "try again then",
            err=True,
        )
    if goes_on is None:
        click.echo(
            f"--run: whether {run!r} still runs cannot be told from here; the order is left all "
            "the same",
            err=True,
        )
    click.echo(f"asked for steps {steps} of groups {groups}, ranks {ranks}, in {directory}")


def _why_not_armed(directory: str) -> str:
    if not os.path.isdir(directory):
        return "there is no such directory"
    known = runs.about(directory)
    config = known.config if known else {}
    if any(section.get("armed") for section in (config, *(config.get("groups") or {}).values())):
        return "no worker of it is armed yet; try again once they have started"
    return "no worker of it is armed (armed: true, steps: [])"


def _ranks(text: str) -> tuple[tuple[int, int], ...]:
    if text.strip().lower() == "all":
        return selection.ALL_RANKS.ranges
    parts = [part.strip() for part in text.split(",")]
    try:
        return selection.Integers.parse(
            [int(part) if part.isascii() and part.isdigit() else part for part in parts]
        ).ranges
    except ConfigError:
        raise ConfigError(
            [f"--ranks: {text!r} is not valid; expected all, or ranks and slices as in 0,8:16"]
        ) from None
