"""The arguments that commands share: a configuration, and the directory of the runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import click

from gpuprof import compat
from gpuprof._config.load import load as load_config
from gpuprof._config.schema import Config


def settings_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the arguments `words` and `system`, for `parts` and `load`."""
    words = click.argument("words", nargs=-1, metavar="[CONFIG] [KEY=VALUE]...")
    system = click.option(
        "--from",
        "system",
        type=click.Choice(["gpuprof", *compat.SYSTEMS]),
        help="System that CONFIG is written for. Default: gpuprof.",
    )
    return words(system(command))


def output_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument `output_dir`, the directory of the runs."""
    return click.option(
        "--output-dir",
        envvar="GPUPROF_OUTPUT_DIR",
        default="gpuprof-output",
        show_default=True,
        show_envvar=True,
        help="Directory of the runs.",
    )(command)


def parts(words: tuple[str, ...]) -> tuple[str | None, list[str]]:
    """The configuration file, if there is one, and the overrides.

    Raises:
        click.UsageError: there are two files.
    """
    overrides = [
        word for word in words if ("=" in word or word.startswith("~")) and not os.path.exists(word)
    ]
    files = [word for word in words if word not in overrides]
    if len(files) > 1:
        raise click.UsageError(
            f"expected at most one configuration file, got {', '.join(files)}; overrides are "
            "KEY=VALUE"
        )
    return (files[0] if files else None), overrides


def load(
    words: tuple[str, ...], system: str | None, defaults: Mapping[str, Any] | None = None
) -> Config:
    """Read the configuration that the arguments name."""
    file, overrides = parts(words)
    return load_config(
        file, system=system, overrides=overrides, defaults=defaults, readers=compat.READERS
    )
