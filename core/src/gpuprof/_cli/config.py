"""``gpuprof config``."""

from __future__ import annotations

import click

from gpuprof import compat
from gpuprof._cli.settings import load, parts, settings_arguments
from gpuprof._config import describe
from gpuprof._config.dump import dump
from gpuprof._plan import job


@click.group()
def command() -> None:
    """Read a configuration: show, validate, explain, convert."""


@command.command()
@settings_arguments
def show(words: tuple[str, ...], system: str | None) -> None:
    """Print the configuration that is in force: file, variables and overrides together, without the
    defaults; secrets hidden.
    """
    click.echo(dump(load(words, system), with_secrets=False), nl=False)


@command.command()
@settings_arguments
def validate(words: tuple[str, ...], system: str | None) -> None:
    """Say everything that is wrong, the backend's options included, and what is doubtful.

    Needs no GPU and no profiler.
    """
    config = load(words, system)
    notes = [*config.source.notes, *job.notes(config)]
    click.echo(f"valid: backend {config.backend}")
    for note in notes:
        click.echo(f"note: {note}")


@command.command()
@click.argument("key")
def explain(key: str) -> None:
    """Say what KEY does, what it takes, its default, and the variable that sets it.

    A backend's name lists its section.
    """
    for found in describe.find(key):
        click.echo(f"{found.path}: {found.help}")
        click.echo(f"  takes    {found.takes}")
        inside = found.path.count(".") > 1
        if not inside:
            click.echo(f"  default  {'none; required' if found.default is None else found.default}")
        if found.variable:
            click.echo(f"  variable {found.variable}")
        if found.where:
            click.echo(f"  program  {found.where}")
        if found.since:
            click.echo(f"  release  from {found.since}")


@command.command()
@settings_arguments
def convert(words: tuple[str, ...], system: str | None) -> None:
    """Print another system's settings as a configuration of gpuprof; what is read otherwise is said
    in comments.
    """
    if system in (None, "gpuprof"):
        raise click.UsageError(f"--from is missing: {', '.join(compat.SYSTEMS)}")
    config = load(words, system)
    file, _ = parts(words)
    click.echo(f"# From {file or 'the environment'}, by gpuprof config convert --from {system}.")
    for note in config.source.notes:
        click.echo(f"# {note}")
    click.echo(dump(config), nl=False)
