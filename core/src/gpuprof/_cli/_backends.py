"""``gpuprof backends``."""

from __future__ import annotations

import json

import attrs
import click
from tabulate import tabulate

from gpuprof import _plugins


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the backends and plugins that are installed, their hooks, and the profiler that each has found here."""
    found = _plugins.survey()
    if as_json:
        click.echo(json.dumps([attrs.asdict(plugin) for plugin in found], indent=2))
        return
    rows = [
        (plugin.name, plugin.version, plugin.distribution, plugin.error or plugin.tool, ", ".join(plugin.hooks)) for plugin in found
    ]
    widths = [None, None, None, 48, 40]
    click.echo(tabulate(rows, ["name", "version", "distribution", "profiler", "hooks"], disable_numparse=True, maxcolwidths=widths))
