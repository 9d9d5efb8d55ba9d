"""``gpuprof run``."""

from __future__ import annotations

import shutil
import sys

import click

from gpuprof import compat
from gpuprof._config.load import load
from gpuprof._launch.run import run
from gpuprof._shim import tool


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--config", metavar="FILE", help="A YAML file; otherwise the one in GPUPROF_CONFIG.")
@click.option(
    "--group",
    default="Worker",
    show_default=True,
    help="The worker group that this process is a rank of.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the configuration.",
)
@click.option(
    "--from",
    "system",
    type=click.Choice(["gpuprof", *compat.SYSTEMS]),
    help="Whose settings FILE holds.",
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND...")
def command(
    config: str | None,
    group: str,
    overrides: tuple[str, ...],
    system: str | None,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND under the profiler, if the configuration selects its rank; otherwise become it.

    Rank and run are read from the variables of torchrun, srun, mpirun or mpiexec. Where the
    configuration does not say worker_groups, the group of this process is selected.
    """
    if shutil.which(words[0]) is None:
        click.echo(f"gpuprof: {words[0]}: no such program", err=True)
        sys.exit(127)  # as a shell
    own = {"worker_groups": [group]}
    loaded = load(config, system=system, overrides=overrides, defaults=own, readers=compat.READERS)
    sys.exit(tool.end_as(run(loaded, group, words)))
