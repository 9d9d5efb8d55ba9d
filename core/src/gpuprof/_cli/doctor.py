"""``gpuprof doctor``."""

from __future__ import annotations

import importlib
import json
import sys

import attrs
import click
from tabulate import tabulate

from gpuprof._cli.settings import load, settings_arguments
from gpuprof._doctor.examine import examine
from gpuprof._shim.node import node_name


@click.command()
@settings_arguments
@click.option(
    "--ray",
    "on_ray",
    is_flag=True,
    help="Check every live node of the Ray cluster instead of this machine.",
)
@click.option("--address", help="With --ray: address of the cluster.  [default: auto]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...], system: str | None, on_ray: bool, address: str | None, as_json: bool
) -> None:
    """Check that this machine can profile, by trying it.

    Checks the directories, the profiler and its options, the start-up time, and a test report.
    CONFIG sets the backend and its options. Without a backend, checks all installed ones. Exits
    with code 1 if a check fails.
    """
    if address is not None and not on_ray:
        raise click.UsageError("--address needs --ray: without it, doctor checks this machine")
    config = load(words, system)
    if on_ray:
        nodes = importlib.import_module("gpuprof.ray").examine_nodes(config, address or "auto")
    else:
        nodes = [(node_name(), examine(config))]
    if as_json:
        click.echo(
            json.dumps(
                [
                    {"node": node, **attrs.asdict(check)}
                    for node, checks in nodes
                    for check in checks
                ],
                indent=2,
            )
        )
    else:
        rows = [
            (node, check.name, "ok" if check.ok else "FAILED", check.detail)
            for node, checks in nodes
            for check in checks
        ]
        click.echo(tabulate(rows, ["node", "check", "result", "found"], disable_numparse=True))
        for node, checks in nodes:
            for check in checks:
                if not check.ok:
                    click.echo(f"remedy for {check.name} on {node}: {check.remedy}")
    if not all(check.ok for _, checks in nodes for check in checks):
        sys.exit(1)
