"""``gpuprof plan``."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from gpuprof._cli import settings
from gpuprof._launch.launchers import usual_group
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
    help="How the job is started. If CONFIG has no worker_groups, `gpuprof run` selects each "
    "process's own group, and Ray none. Default: ray.",
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
    """Show which workers will be profiled, with command lines, windows and files.

    Starts nothing. If the profiler is on this machine, it checks the options, and an option that it
    refuses is an error.

    CONFIG is a YAML file; default: $GPUPROF_CONFIG. KEY=VALUE overrides a key of it, such as
    'steps=[3,10]'. Workers that differ only in their rank are shown as one.
    """
    spec: Any = (
        importlib.import_module("gpuprof.ray").running_workers() if workers == "ray" else workers
    )
    places = parse_workers(spec) if spec is not None else None
    own = {}
    if launcher == "run":  # it selects each process's own group
        groups = [place.group for place in places or ()] or [usual_group(os.environ)]
        own = {"worker_groups": list(dict.fromkeys(groups))}
    config = settings.load(words, system, own)
    if shell is not None:
        candidates = places if places is not None else job.known(config)
        place = _find("--shell", shell, candidates, strict=places is not None)
        click.echo(job.shell_line(config, place))
        return
    whole_plan = job.plan(config, places, launcher)
    answer = job.ask_tool(config, places)
    if worker is not None:
        rows = {row.worker.name: row for row in whole_plan.rows}
        all_places = [Place(row.worker.group, row.worker.rank) for row in whole_plan.rows]
        place_of_worker = _find("--worker", worker, all_places)
        click.echo(str(rows[f"{place_of_worker.group}-{place_of_worker.rank}"]))
    elif as_json:
        click.echo(json.dumps(whole_plan.to_dict(), indent=2))
    elif every:
        click.echo(whole_plan.every_worker())
    else:
        click.echo(str(whole_plan))
        if any(row.profiled for row in whole_plan.rows):
            click.echo(_HINT)
    if answer.note:
        click.echo(labelled("note: ", answer.note), err=as_json)
    if answer.refusals:
        raise ConfigError(answer.refusals)


def _find(option: str, name: str, places: Sequence[Place], strict: bool = True) -> Place:
    """The place of the named worker, which must be one of `places` if `strict`."""
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if match is None:
        raise click.UsageError(
            f"{option}: {name!r} is not valid; expected a group and a rank, such as ActorGroup-0"
        )
    worker = Place(match[1], int(match[2]))
    for place in places:
        if (place.group, place.rank) == (worker.group, worker.rank):
            return place
    if strict:
        counts = Counter(place.group for place in places)
        ranks = ", ".join(f"{group} ({count})" for group, count in counts.items())
        raise ConfigError(
            f"{option}: {name!r} is not a worker; the plan has these groups (ranks): {ranks}"
        )
    return worker
