"""The arguments that commands share: a configuration, and the directory of the runs."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from gpuprof import _tables
from gpuprof._artifacts import runs
from gpuprof._config import OUTPUT_DIR
from gpuprof.errors import ConfigError, GpuprofError

if TYPE_CHECKING:  # readers of runs need no schema
    from gpuprof._config.schema import Config

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_PROGRAM = re.compile(r"(.*/)?(python[\d.]*|bash|sh|uv)|[^=]*\.(py|sh)")
"""The words that start a training: an interpreter, a shell, uv, or a script."""
_OF_PROGRAM = ("-m", "--config-name", "--config-path")
"""Options of a training command that take a value and are not settings."""


def examples(*lines: str) -> str:
    """The text with a command's examples for the end of its help."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


def arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments `words` and `system` to a command that calls `parts` or `load`."""
    words = click.argument("words", nargs=-1, metavar="[CONFIG] [KEY=VALUE]...")

    @functools.wraps(command)
    def with_overrides(*, words: tuple[str, ...], overrides: tuple[str, ...], **others: Any) -> Any:
        for override in overrides:
            if not is_override(override):
                raise click.UsageError(f"--set: {override!r} is not valid; expected KEY=VALUE")
        return command(words=(*words, *overrides), **others)

    system = system_option("System that CONFIG is written for")
    return words(system(_training_command(set_option(with_overrides))))


def _training_command(command: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command accept a whole training command, by dropping words that are not settings.

    ``--config FILE`` is taken as CONFIG if no other file is given, as in ``gpuprof run``.
    """

    @functools.wraps(command)
    def without_program(
        words: tuple[str, ...], system: str | None, config: str | None, **others: Any
    ) -> Any:
        from gpuprof._config import systems

        words = tuple(_settings(words))
        own = system in (None, "gpuprof")
        in_file = own or not systems.reader(str(system)).IN_ENVIRONMENT
        if config is not None and in_file and parts(words)[0] is None:
            words = (config, *words)
        return command(words=words, system=system, **others)

    for name in _OF_PROGRAM:
        without_program = click.option(name, hidden=True, expose_value=False)(without_program)
    return click.option("--config", hidden=True)(without_program)


def _settings(words: tuple[str, ...]) -> Iterator[str]:
    """The settings among the words of a training command.

    The words include options of the training command if ``--`` precedes them.

    >>> list(_settings(("uv", "run", "train.py", "--config-name", "ppo", "a.b=c")))
    ['a.b=c']
    """
    before = ""
    for word in words:
        of_program = _PROGRAM.fullmatch(word) or word.partition("=")[0] in _OF_PROGRAM
        # RLinf's shell script takes the name of a test suite as an argument
        of_script = before.endswith(".sh") and "=" not in word and not os.path.exists(word)
        of_program = of_program or before in _OF_PROGRAM or (before, word) == ("uv", "run")
        if not of_program and not of_script:
            yield word
        before = word


def system_option(text: str) -> Decorator:
    """The option ``--from``, whose help begins with `text`."""
    values = "verl, rlinf, nemo-rl, or that of another plugin. Default: gpuprof."
    return click.option("--from", "system", metavar="SYSTEM", help=f"{text}: {values}")


def is_override(word: str) -> bool:
    """Whether a word is an override rather than a file or a command."""
    return ("=" in word or word.startswith("~")) and not os.path.exists(word)


def no_link(directory: str) -> str:
    """Check that the run directory to write into is not a symbolic link, and return it.

    Raises:
        ConfigError: `directory` is a symbolic link, which a downloaded archive may contain.
    """
    if os.path.islink(directory.rstrip(os.sep)):
        problem = f"{directory}: a link, and nothing is written through one"
        raise ConfigError(f"{problem}; name the directory itself: {os.path.realpath(directory)}")
    return directory


def find_run(name: str, output_dir: str, whole: bool = False) -> str:
    """The directory of a run, or a file in one, given by name or by path.

    Of a directory with runs, and for the name `latest`, that is the newest of them. Then prints its
    path on stderr.

    Args:
        whole: whether a directory with runs stands for all files in it, and the caller says so if
            there are none.

    Raises:
        ConfigError: there is no such run or file.
    """
    is_parent = not whole and runs.about(name) is None and runs.has_runs(name)
    if (os.path.exists(name) and not is_parent) or (whole and os.sep in name):
        return name
    if os.sep in name and not is_parent:
        raise ConfigError(f"{name}: no such file or directory; gpuprof runs lists the runs")
    path = runs.find(name) if is_parent else runs.find(output_dir, name)
    if is_parent or name == runs.LATEST:
        click.echo(f"run: {path}", err=True)
    return path


def about_run(name: str, output_dir: str) -> runs.About:
    """What is known about a run, given by name or by its directory.

    Raises:
        ConfigError: it is not a run's directory.
    """
    path = find_run(name, output_dir)
    about = runs.about(path)
    if about is None:
        raise ConfigError(f"{path}: not a run's directory; gpuprof runs lists the runs")
    return about


def end(problems: Collection[str]) -> None:
    """Print the problems on stderr. If there are any, exit with code 1."""
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(1)


def _configured_output_dir() -> str:
    if not os.environ.get("GPUPROF_CONFIG"):
        return OUTPUT_DIR
    try:
        return load((), None).output_dir
    except GpuprofError as error:  # commands that need no configuration must still work
        click.echo(f"gpuprof: GPUPROF_CONFIG ignored: {error}", err=True)
        return OUTPUT_DIR


run_argument = click.argument("name", default=runs.LATEST, metavar="[RUN | PATH]")
output_dir_option = click.option(
    "--output-dir",
    envvar="GPUPROF_OUTPUT_DIR",
    default=_configured_output_dir,
    show_default="output_dir of $GPUPROF_CONFIG, or gpuprof-output",
    show_envvar=True,
    help="Directory of the runs.",
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the configuration. Repeatable.",
)
warm_up_option = click.option(
    "--warmup",
    "warm_up",
    type=click.IntRange(0),
    metavar="N",
    help="Leave out the first N steps. Default: the first steps that take longer.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
wide_option = click.option(
    "--wide",
    "width",
    flag_value=_tables.UNLIMITED,
    type=int,
    default=None,
    help="Show all columns and whole paths. Default: as much as fits the terminal.",
)
WIDE_HINT = "--wide shows everything."


def parts(words: tuple[str, ...]) -> tuple[str | None, list[str]]:
    """The configuration file, if there is one, and the overrides."""
    overrides = [word for word in words if is_override(word)]
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
    from gpuprof._config.load import load as load_config

    file, overrides = parts(words)
    return load_config(file, system=system, overrides=overrides, defaults=defaults)
