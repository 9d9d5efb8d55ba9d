"""``gpuprof run``."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys

import click

from gpuprof._cli import settings
from gpuprof._config.load import load
from gpuprof._config.schema import KEYS
from gpuprof._launch import follow, integrate, launchers
from gpuprof._launch.run import run
from gpuprof._shim import tool
from gpuprof.ray import _unmodified


class _Run(click.Command):
    """Names the key of the configuration that an unknown option means."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            key = error.option_name.lstrip("-").replace("-", "_")
            if key not in KEYS:
                raise
            raise click.UsageError(
                f"{error.option_name}: not an option but a key of the configuration; type --set "
                f"{key}=VALUE",
                context,
            ) from None


@click.command(
    cls=_Run,
    context_settings={"allow_interspersed_args": False},
    epilog=settings.examples(
        "gpuprof run --config profiling.yaml --group Trainer -- python train.py",
        "gpuprof run --set step_at=train:train_step -- python train.py",
        "torchrun --no-python gpuprof run --config profiling.yaml -- python train.py",
    ),
)
@click.option(
    "--config", metavar="FILE", help="YAML file. Default: the one that GPUPROF_CONFIG names."
)
@click.option(
    "--group",
    help="Worker group of this process. Default: Worker for a launcher's ranks, otherwise Program.",
)
@settings.set_option
@settings.system_option("System whose settings FILE holds")
@click.option(
    "--integrate",
    "framework",
    metavar="NAME",
    help="Framework that COMMAND runs, to use its own settings, worker groups, steps and timers: "
    "verl, rlinf, nemo-rl, sample-factory, or that of another plugin.",
)
@click.argument(
    "words",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="[KEY=VALUE]... [--] COMMAND...",
)
def command(
    config: str | None,
    group: str | None,
    overrides: tuple[str, ...],
    system: str | None,
    framework: str | None,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND under the profiler if the configuration selects this rank.

    Otherwise COMMAND replaces this process. The rank and the run come from the variables of
    torchrun, srun, mpirun or mpiexec. Without worker_groups in the configuration, this process's
    own group is selected.

    With --integrate and a framework on Ray, COMMAND is the driver, and the framework's own profiler
    settings select the workers. With --integrate sample-factory, the default of backend is none:
    timing trees and ledgers, no reports.
    """
    own_words = tuple(itertools.takewhile(settings.is_override, words))
    overrides += own_words
    words = words[len(own_words) :]
    words = words[1:] if own_words and words[:1] == ("--",) else words
    if not words:
        raise click.UsageError("expected a command after KEY=VALUE")
    if shutil.which(words[0]) is None:
        click.echo(f"gpuprof: {words[0]}: command not found", err=True)
        sys.exit(127)  # as a shell does
    if framework is not None:
        plugin = integrate.framework(framework)
        if plugin.ON_RAY and (config or overrides or system):
            raise click.UsageError(
                f"--integrate {framework} reads the framework's own settings; change those, or set "
                "GPUPROF_... variables"
            )
        integrate.prepare(framework, plugin)
        if plugin.ON_RAY:
            integrate.become(words)
    own_group = group or launchers.usual_group(os.environ)
    own: dict[str, object] = {"worker_groups": [own_group]}
    source: str | dict[str, object] = config or os.environ.get("GPUPROF_CONFIG") or {}
    if not source:
        own.update(backend="none", worker_groups="all")
    configuration = load(source, system=system, overrides=overrides, defaults=own)
    own_settings = {
        "source": os.path.abspath(source) if isinstance(source, str) else source,
        "system": system,
        "overrides": overrides,
        "defaults": own,
    }
    if not configuration.selects_nothing:
        if follow.starts_ranks(words):
            flags = {"--config": config, "--group": group, "--from": system}
            flag_words = [word for flag, value in flags.items() if value for word in (flag, value)]
            follow.become(
                words, [*flag_words, *(w for override in overrides for w in ("--set", override))]
            )
        os.environ[_unmodified.SETTINGS] = json.dumps(own_settings)
    sys.exit(tool.end_as(run(configuration, own_group, words)))
