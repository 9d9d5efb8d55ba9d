"""``gpuprof config``."""

from __future__ import annotations

import json
import textwrap

import click

from gpuprof import compat
from gpuprof._cli import settings
from gpuprof._config import describe, json_schema
from gpuprof._config.dump import dump
from gpuprof._plan import job
from gpuprof._tables import console_width, labelled
from gpuprof.errors import ConfigError


@click.group(epilog=settings.examples("gpuprof config validate profiling.yaml"))
def command() -> None:
    """Show, validate, explain, or convert a configuration."""


@command.command(epilog=settings.examples("gpuprof config show profiling.yaml"))
@settings.arguments
def show(words: tuple[str, ...], system: str | None) -> None:
    """Print the effective configuration.

    Merges the file, the environment variables and the overrides. Leaves out defaults and hides
    secrets.
    """
    click.echo(dump(settings.load(words, system), with_secrets=False), nl=False)


@command.command(epilog=settings.examples("gpuprof config validate profiling.yaml 'steps=[3]'"))
@settings.arguments
def validate(words: tuple[str, ...], system: str | None) -> None:
    """Report every error and warning in a configuration.

    Checks the backend's options too, and has the profiler read them if it is on this machine. Needs
    no GPU.
    """
    config = settings.load(words, system)
    notes = [*config.source.notes, *job.notes(config)]
    asked = job.ask_tool(config)
    if asked.refusals:
        raise ConfigError(asked.refusals)
    click.echo(f"valid: backend {config.backend}")
    for note in [*notes, *filter(None, [asked.note])]:
        click.echo(labelled("note: ", note))


@command.command(epilog=settings.examples("gpuprof config schema > gpuprof.schema.json"))
def schema() -> None:
    """Print JSON Schema of a configuration, with the sections of all installed backends.

    Editors complete and check YAML with it.
    """
    made = json_schema.of_configuration(json_schema.installed_models())
    click.echo(json.dumps(made, indent=2))


@command.command(epilog=settings.examples("gpuprof config explain steps"))
@click.argument("key")
def explain(key: str) -> None:
    """Explain KEY: purpose, valid values, default, environment variable.

    If KEY is a backend's name, explains every key of its section.
    """
    for found in describe.find(key):
        click.echo(textwrap.fill(f"{found.path}: {found.help}", console_width()))
        click.echo(labelled("  takes    ", found.takes))
        inside = found.path.count(".") > 1
        if not inside:
            default = "none; required" if found.default is None else found.default
            click.echo(labelled("  default  ", default))
        if found.variable:
            click.echo(f"  variable {found.variable}")
        if found.where:
            click.echo(f"  program  {found.where}")
        if found.since:
            click.echo(f"  release  from {found.since}")


@command.command(
    epilog=settings.examples("gpuprof config convert ppo.yaml --from verl > profiling.yaml")
)
@settings.arguments
def convert(words: tuple[str, ...], system: str | None) -> None:
    """Print another system's settings as a gpuprof configuration.

    Comments in the output explain every setting that gpuprof reads differently.
    """
    if system in (None, "gpuprof"):
        raise click.UsageError(f"--from is required; valid: {', '.join(compat.SYSTEMS)}")
    config = settings.load(words, system)
    file, _ = settings.parts(words)
    click.echo(f"# From {file or 'the environment'}, by gpuprof config convert --from {system}.")
    for note in config.source.notes:
        click.echo(f"# {note}")
    click.echo(dump(config), nl=False)
