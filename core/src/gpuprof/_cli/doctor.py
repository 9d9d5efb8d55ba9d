"""``gpuprof doctor``."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator

import attrs
import click

from gpuprof._cli import settings
from gpuprof._doctor.examine import examine
from gpuprof._shim.node import node_name
from gpuprof._tables import labelled, table
from gpuprof._terminal import printable, unescaped


@click.command(
    epilog=settings.examples(
        "gpuprof doctor", "gpuprof doctor backend=none", "gpuprof doctor profiling.yaml --ray"
    )
)
@settings.arguments
@click.option(
    "--ray",
    "on_ray",
    is_flag=True,
    help="Check every live node of the Ray cluster instead of this machine.",
)
@click.option("--address", help="With --ray: address of the cluster.  [default: auto]")
@settings.json_option
def command(
    words: tuple[str, ...], system: str | None, on_ray: bool, address: str | None, as_json: bool
) -> None:
    """Check that this machine can profile, by trying it.

    Checks the directories, the profiler and its options, the start-up time, and a test report.
    CONFIG sets the backend and its options; backend=none needs no profiler. Without CONFIG, checks
    all installed backends. Exits with code 1 if a check fails.
    """
    if address is not None and not on_ray:
        raise click.UsageError("--address needs --ray: without it, doctor checks this machine")
    config = settings.load(words, system)
    if on_ray:
        with _progress() as trying:
            trying("every node of the cluster")
            nodes = importlib.import_module("gpuprof.ray").examine_nodes(config, address or "auto")
    else:
        with _progress() as trying:
            nodes = [(node_name(), examine(config, trying=trying))]
    if as_json:
        click.echo(
            json.dumps(
                [
                    {"node": node, **attrs.asdict(check), "result": check.result}
                    for node, checks in nodes
                    for check in checks
                ],
                indent=2,
            )
        )
    else:
        rows = [
            (node, check.name, (check.result, check.detail))
            for node, checks in nodes
            for check in checks
        ]
        click.echo(table(["node", "check", "result"], rows))
        for node, checks in nodes:
            for check in checks:
                if check.remedy:
                    click.echo(labelled("remedy ", f"for {check.name} on {node}: {check.remedy}"))
    if not all(check.ok for _, checks in nodes for check in checks):
        sys.exit(1)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Print the next check on stderr, on one line that a terminal overwrites."""
    terminal = unescaped(sys.stderr) if sys.stderr.isatty() else None

    def trying(what: str) -> None:
        if terminal:
            click.echo(f"\r\x1b[Ktrying {printable(what)}", terminal, nl=False)
        else:
            click.echo(f"trying {what}", err=True)

    try:
        yield trying
    finally:
        if terminal:
            click.echo("\r\x1b[K", terminal, nl=False)
