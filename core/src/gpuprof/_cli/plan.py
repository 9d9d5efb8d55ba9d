"""``gpuprof plan``."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from typing import Any

import click

from gpuprof._cli.settings import load, settings_arguments
from gpuprof._config.schema import Config
from gpuprof._plan import job
from gpuprof._plan.groups import Place
from gpuprof._plan.groups import parse as parse_workers
from gpuprof.errors import ConfigError


@click.command()
@settings_arguments
@click.option(
    "--workers",
    metavar="SPEC",
    help="Workers as GROUP=RANKS:GPUS (GPUs per rank), such as ActorGroup=8:1,EnvGroup=2; or a "
    "YAML file; or `ray` for the named actors of the running cluster. Default: the groups that "
    "CONFIG names.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--shell",
    metavar="GROUP-RANK",
    help="Print only this worker's command line, for a shell; append the worker's script to it.",
)
def command(
    words: tuple[str, ...],
    system: str | None,
    workers: str | None,
    as_json: bool,
    shell: str | None,
) -> None:
    """Show which workers will be profiled, with command lines, windows and files. Start nothing.

    CONFIG is a YAML file; default: $GPUPROF_CONFIG. KEY=VALUE overrides a key of it, such as
    'steps=[3,10]'.
    """
    spec: Any = (
        importlib.import_module("gpuprof.ray").running_workers() if workers == "ray" else workers
    )
    config = load(words, system)
    if shell is not None:
        click.echo(_shell_line(config, spec, shell))
        return
    made = job.plan(config, spec)
    click.echo(json.dumps(made.to_dict(), indent=2) if as_json else str(made))


def _shell_line(config: Config, spec: Any, shell: str) -> str:
    match = re.fullmatch(r"(.+)-(\d+)", shell)
    if match is None:
        raise click.UsageError(
            f"--shell: {shell!r} is not valid; expected a group and a rank, such as ActorGroup-0"
        )
    wanted = Place(match[1], int(match[2]))
    places = parse_workers(spec) if spec is not None else job.known(config)
    place = next(
        (place for place in places if (place.group, place.rank) == (wanted.group, wanted.rank)),
        None,
    )
    if place is None and spec is not None:
        counts = Counter(place.group for place in places)
        ranks = ", ".join(f"{group} ({count})" for group, count in counts.items())
        message = f"--shell: {shell!r} is not a worker; --workers has these groups (ranks): {ranks}"
        raise ConfigError([message])
    return job.shell_line(config, place or wanted)
