"""``gpuprof run``."""

from __future__ import annotations

import shutil
import sys

import click

from gpuprof import _config, _process, _tool_process, compat


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--config", metavar="FILE", help="A YAML file; otherwise the one in GPUPROF_CONFIG.")
@click.option("--group", default="Worker", show_default=True, help="The worker group that this process is a rank of.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the configuration.")
@click.option("--from", "system", type=click.Choice(["gpuprof", *compat.SYSTEMS]), help="Whose settings FILE holds.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND...")
def command(config: str | None, group: str, overrides: tuple[str, ...], system: str | None, words: tuple[str, ...]) -> None:
    """Run COMMAND under the profiler, if the configuration selects its rank; otherwise become it.

    Rank and run are read from the variables of torchrun, srun, mpirun or mpiexec. Where the configuration does not say
    worker_groups, the group of this process is selected.
    """
    if shutil.which(words[0]) is None:
        click.echo(f"gpuprof: {words[0]}: no such program", err=True)
        sys.exit(127)  # as a shell
    loaded = _config.load(config, system=system, overrides=overrides, defaults={"worker_groups": [group]})
    sys.exit(_tool_process.end_as(_process.run(loaded, group, words)))
