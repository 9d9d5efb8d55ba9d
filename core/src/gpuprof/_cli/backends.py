"""``gpuprof backends``."""

from __future__ import annotations

import json

import attrs
import click
from tabulate import tabulate

from gpuprof._config.describe import backend_keys
from gpuprof._doctor import installed


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--options", "name", metavar="NAME", help="List the keys of this backend instead.")
def command(as_json: bool, name: str | None) -> None:
    """List the installed backends and plugins, and the profiler that each one finds."""
    if name is not None:
        _options(name, as_json)
        return
    found = installed.survey()
    if as_json:
        click.echo(json.dumps([attrs.asdict(plugin) for plugin in found], indent=2))
        return
    rows = [
        (
            plugin.name,
            plugin.version,
            plugin.distribution,
            _profiler(plugin),
            ", ".join(plugin.hooks),
        )
        for plugin in found
    ]
    widths = [None, None, None, 48, 40]
    click.echo(
        tabulate(
            rows,
            ["name", "version", "distribution", "profiler", "hooks"],
            disable_numparse=True,
            maxcolwidths=widths,
        )
    )


def _profiler(plugin: installed.Survey) -> str:
    if plugin.error is not None:
        return f"broken: {plugin.error}"
    if plugin.tool is not None:
        return f"{plugin.tool.path} {plugin.tool.version or ''}".rstrip()
    return plugin.missing or "needs none"


def _options(name: str, as_json: bool) -> None:
    keys = backend_keys(name)
    if as_json:
        click.echo(json.dumps([attrs.asdict(key) for key in keys], indent=2))
        return
    rows = [
        (
            key.path,
            key.takes,
            key.default or "",
            key.help,
            key.where,
            key.since and f"from {key.since}",
        )
        for key in keys
    ]
    headers = ["key", "takes", "default", "what it does", "program", "release"]
    widths = [28, 24, 24, 60, None, None]
    click.echo(
        tabulate(rows, headers, disable_numparse=True, maxcolwidths=widths)
        if rows
        else f"backend {name} has no keys"
    )
