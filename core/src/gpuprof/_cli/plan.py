"""``gpuprof plan``."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from gpuprof._cli import settings
from gpuprof._plan import job
from gpuprof._plan.groups import Place
from gpuprof._plan.groups import parse as parse_workers
from gpuprof._tables import labelled
from gpuprof.errors import ConfigError

_HINT = "--worker GROUP-RANK shows one worker in full, --all each of them"


@click.command(
    epilog=settings.examples(
        "gpuprof plan profiling.yaml --workers ActorGroup=8:1,EnvGroup=2 'steps=[3,10]'"
    )
)
@settings.arguments
@click.option(
    "--workers",
    metavar="SPEC",
    help="Workers as GROUP=RANKS:GPUS (GPUs per rank), such as ActorGroup=8:1,EnvGroup=2; or a "
    "YAML file; or `ray` for the named actors of the running cluster. Default: the groups that "
    "CONFIG names.",
)
@click.option(
    "--for",
    "launcher",
    type=click.Choice(["run", "ray"]),
    help="How the job is started: by `gpuprof run`, which selects each process's own group if "
    "CONFIG has no worker_groups; or on Ray, where no group is then selected. Default: ray.",
)
@click.option("--worker", metavar="GROUP-RANK", help="Show only this worker, in full.")
@click.option("--all", "every", is_flag=True, help="Show each worker in full.")
@settings.json_option
@click.option(
    "--shell",
    metavar="GROUP-RANK",
    help="Print only this worker's command line, for a shell; append the worker's script to it.",
)
def command(
    words: tuple[str, ...],
    system: str | None,
    workers: str | None,
    launcher: job.Launcher | None,
    worker: str | None,
    every: bool,
    as_json: bool,
    shell: str | None,
) -> None:
    """Show which workers will be profiled, with command lines, windows and files. Start none.

    If the profiler is on this machine, it reads the options; what it refuses is an error.

    CONFIG is a YAML file; default: $GPUPROF_CONFIG. KEY=VALUE overrides a key of it, such as
    'steps=[3,10]'. Workers that differ only in their rank are shown as one.
    """
    spec: Any = (
        importlib.import_module("gpuprof.ray").running_workers() if workers == "ray" else workers
    )
    places = parse_workers(spec) if spec is not None else None
    config = settings.load(words, system, job.defaults(launcher, places))
    if shell is not None:
        known = places if places is not None else job.known(config)
        wanted = _find("--shell", shell, known, strict=places is not None)
        click.echo(job.shell_line(config, wanted))
        return
    made = job.plan(config, places, launcher)
    asked = job.ask_tool(config, places)
    if worker is not None:
        rows = {row.worker.name: row for row in made.rows}
        named = [Place(row.worker.group, row.worker.rank) for row in made.rows]
        found = _find("--worker", worker, named)
        click.echo(str(rows[f"{found.group}-{found.rank}"]))
    elif as_json:
        click.echo(json.dumps(made.to_dict(), indent=2))
    elif every:
        click.echo(made.every_worker())
    else:
        click.echo(str(made))
        if any(row.profiled for row in made.rows):
            click.echo(_HINT)
    if asked.note:
        click.echo(labelled("note: ", asked.note), err=as_json)
    if asked.refusals:
        raise ConfigError(asked.refusals)


def _find(option: str, name: str, places: Sequence[Place], strict: bool = True) -> Place:
    """The worker of a name; not `strict`: also one that is not among `places`."""
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if match is None:
        raise click.UsageError(
            f"{option}: {name!r} is not valid; expected a group and a rank, such as ActorGroup-0"
        )
    wanted = Place(match[1], int(match[2]))
    for place in places:
        if (place.group, place.rank) == (wanted.group, wanted.rank):
            return place
    if strict:
        counts = Counter(place.group for place in places)
        ranks = ", ".join(f"{group} ({count})" for group, count in counts.items())
        raise ConfigError(
            f"{option}: {name!r} is not a worker; the plan has these groups (ranks): {ranks}"
        )
    return wanted
