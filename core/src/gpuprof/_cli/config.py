"""``gpuprof config``."""

from __future__ import annotations

import json
import textwrap

import click

from gpuprof._cli import settings
from gpuprof._config import describe, json_schema, systems
from gpuprof._config.dump import dump
from gpuprof._plan import job
from gpuprof._tables import console_width, labelled
from gpuprof.backend import loading
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
    if config.backend != "none":
        loading.load(config.backend, "backend")  # elsewhere only once it selects somebody
    notes = [*config.source.notes, *job.notes(config)]
    answer = job.ask_tool(config)
    if answer.refusals:
        raise ConfigError(answer.refusals)
    click.echo(f"valid: backend {config.backend}")
    for note in [*notes, *filter(None, [answer.note])]:
        click.echo(labelled("note: ", note))


@command.command(epilog=settings.examples("gpuprof config schema > gpuprof.schema.json"))
def schema() -> None:
    """Print JSON Schema of a configuration, with the sections of all installed backends.

    Editors complete and check YAML with it.
    """
    content = json_schema.of_configuration(json_schema.installed_models())
    click.echo(json.dumps(content, indent=2))


@command.command(epilog=settings.examples("gpuprof config explain steps"))
@click.argument("key")
def explain(key: str) -> None:
    """Explain KEY: purpose, valid values, default, environment variable.

    If KEY is a backend's name, explains every key of its section.
    """
    for described_key in describe.find(key):
        click.echo(textwrap.fill(f"{described_key.path}: {described_key.help}", console_width()))
        click.echo(labelled("  takes    ", described_key.takes))
        inside = described_key.path.count(".") > 1
        if not inside:
            default = "none; required" if described_key.default is None else described_key.default
            click.echo(labelled("  default  ", default))
        if described_key.variable:
            click.echo(f"  variable {described_key.variable}")
        if described_key.where:
            click.echo(f"  program  {described_key.where}")
        if described_key.since:
            click.echo(f"  release  from {described_key.since}")


@command.command(
    epilog=settings.examples("gpuprof config convert ppo.yaml --from verl > profiling.yaml")
)
@settings.arguments
def convert(words: tuple[str, ...], system: str | None) -> None:
    """Print another system's settings as a gpuprof configuration.

    Comments in the output explain every setting that gpuprof reads differently.
    """
    if system in (None, "gpuprof"):
        raise click.UsageError(f"--from is required; valid: {', '.join(systems.installed())}")
    config = settings.load(words, system)
    file, _ = settings.parts(words)
    click.echo(f"# From {file or 'the environment'}, by gpuprof config convert --from {system}.")
    for note in config.source.notes:
        click.echo(f"# {note}")
    click.echo(dump(config), nl=False)
