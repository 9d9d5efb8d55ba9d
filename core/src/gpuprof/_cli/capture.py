"""``gpuprof capture``."""

from __future__ import annotations

import os

import click

from gpuprof._artifacts import runs
from gpuprof._cli.settings import examples, find_run, output_dir_option, run_argument
from gpuprof._config import selection
from gpuprof._session import orders
from gpuprof.errors import ConfigError


@click.command(epilog=examples("gpuprof capture --steps next:3 --groups Trainer --ranks 0"))
@run_argument
@output_dir_option
@click.option(
    "--steps", required=True, help="next:N for the next N steps, or steps and slices: 100,200:203."
)
@click.option(
    "--groups",
    default="all",
    show_default=True,
    help="Worker groups: names or wildcards, comma-separated.",
)
@click.option(
    "--ranks", default="all", show_default=True, help="Ranks and slices, comma-separated: 0,8:16."
)
def command(name: str, output_dir: str, steps: str, groups: str, ranks: str) -> None:
    """Capture steps on the armed workers of a running job.

    Sends the order and returns; reports appear in the run directory.

    Without RUN, the last run in the output directory. RUN is a run's name, as `gpuprof runs` lists
    it. PATH is a run's directory.
    """
    directory = find_run(name, output_dir)
    path = orders.directory_of(directory)
    if not os.path.isdir(path):
        raise ConfigError(f"{directory}: {_why_not_armed(directory)}")
    info = runs.about(directory) or runs.About(directory, os.path.basename(directory))
    goes_on = info.goes_on()
    if goes_on is False:
        raise ConfigError(f"{directory}: has ended; expected a running job")
    number, ranges = orders.parse_steps(steps)
    names = tuple(word.strip() for word in groups.split(",") if word.strip())
    if not names:
        raise ConfigError(
            f"--groups: {groups!r} is not valid; expected all, or names and wildcards "
            "such as Actor*,Env"
        )
    order = orders.Order(number, ranges, names, _ranks(ranks))
    orders.give(path, order)
    starts = [start for record in runs.records(info) for start in record.starts]
    groups_so_far = sorted({start.group for start in starts})
    for pattern in names:
        if groups_so_far and not any(selection.matches(g, (pattern,)) for g in groups_so_far):
            click.echo(
                f"--groups: {pattern!r} matches no worker so far; seen: {', '.join(groups_so_far)}",
                err=True,
            )
    if number and goes_on and info.launched and not any(start.process for start in starts):
        click.echo(
            "--steps: no worker runs here yet, and next:N does not reach workers that start "
            "later; try again once they run",
            err=True,
        )
    if goes_on is None:
        click.echo(
            f"{directory}: cannot tell from here whether it still runs; the order is sent anyway",
            err=True,
        )
    click.echo(f"order sent: steps {steps}, groups {groups}, ranks {ranks}, in {directory}")


def _why_not_armed(directory: str) -> str:
    if not os.path.isdir(directory):
        return "no such directory; gpuprof runs lists the runs"
    info = runs.about(directory)
    config = info.config if info else {}
    if any(section.get("armed") for section in (config, *(config.get("groups") or {}).values())):
        return "no worker is armed yet; try again once the workers have started"
    return "its workers are not armed; start the job with armed: true and steps: []"


def _ranks(text: str) -> tuple[tuple[int, int], ...]:
    if text.strip().lower() == "all":
        return selection.ALL_RANKS.ranges
    try:
        return selection.Integers.of_text(text).ranges
    except ConfigError:
        raise ConfigError(
            f"--ranks: {text!r} is not valid; expected all, or ranks and slices such as 0,8:16"
        ) from None
