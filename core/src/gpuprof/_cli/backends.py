"""``gpuprof backends``."""

from __future__ import annotations

import json

import attrs
import click

from gpuprof import _tables
from gpuprof._cli import settings
from gpuprof._config import json_schema
from gpuprof._config.describe import Key, backend_keys
from gpuprof._doctor import installed
from gpuprof.backend import loading


@click.command(epilog=settings.examples("gpuprof backends --json"))
@settings.json_option
@click.option("--options", "name", metavar="NAME", help="List the keys of this backend instead.")
@click.option("--schema", metavar="NAME", help="Print JSON Schema of this backend's section.")
@settings.wide_option
def command(as_json: bool, name: str | None, schema: str | None, width: int | None) -> None:
    """List the installed backends and plugins, and the profiler that each one finds."""
    if schema is not None:
        content = json_schema.of_options(schema, loading.model_of(schema))
        click.echo(json.dumps(content, indent=2))
        return
    if name is not None:
        _options(name, as_json, width)
        return
    plugins = installed.survey()
    if as_json:
        click.echo(json.dumps([attrs.asdict(plugin) for plugin in plugins], indent=2))
        return
    rows = [
        (plugin.name, plugin.version, plugin.distribution, ("", _profiler_and_hooks(plugin)))
        for plugin in plugins
    ]
    headers = ["name", "version", "distribution", "profiler and hooks"]
    click.echo(_tables.table(headers, rows, width=width))


def _profiler_and_hooks(plugin: installed.Survey) -> str:
    hooks = f"hooks: {', '.join(plugin.hooks)}" if plugin.hooks else ""
    how = plugin.capability and f"records: {plugin.capability}"
    return "; ".join(filter(None, (_profiler(plugin), how, hooks)))


def _profiler(plugin: installed.Survey) -> str:
    if plugin.error is not None:
        return f"broken: {plugin.error}"
    if plugin.tool is not None:
        return f"{plugin.tool.path} {plugin.tool.version or ''}".rstrip()
    return plugin.missing or "needs none"


def _options(name: str, as_json: bool, width: int | None) -> None:
    keys = backend_keys(name)
    if as_json:
        click.echo(json.dumps([attrs.asdict(key) for key in keys], indent=2))
        return
    rows = [(key.path, ("", _about(key))) for key in keys]
    table = _tables.table(["key", "what it takes and does"], rows, width=width)
    click.echo(table if rows else f"backend {name} has no keys")


def _about(key: Key) -> str:
    parts = (
        key.takes,
        key.default and f"default {key.default}",
        key.where,
        key.since and f"from {key.since}",
    )
    return f"{'; '.join(filter(None, parts))}. {key.help}"
