"""The command ``gpuprof``: parse, call, print.

Each command is a module here, imported when the command is used.
"""

from __future__ import annotations

import atexit
import codecs
import gc
import importlib
import io
import sys
from pathlib import Path
from typing import Any

import click

from gpuprof._distribution import NAME
from gpuprof._terminal import escaped_output
from gpuprof.errors import GpuprofError

# Commands make many objects and drop few: looking for cycles as often as usual takes a seventh of
# the time of `gpuprof explain`.
gc.set_threshold(200_000)
atexit.register(gc.freeze)

COMMANDS = {
    "run": "Run a job and record it as it is; with a backend, under its profiler.",
    "capture": "Capture steps on the armed workers of a running job.",
    "top": "Show a running job: its steps, what bounds them, who waits for whom.",
    "stacks": "Show what every process of a running job does now, and who waits for whom.",
    "report": "Show a run's timing trees, or the ranges in its reports.",
    "explain": "Explain why a step takes as long as it does: critical path, stragglers, causes.",
    "timeline": "Write one timeline of all processes of a run, for Perfetto.",
    "html": "Write one page about a run, or about two, to look at in a browser.",
    "diff": "Compare two runs: what became slower, and where. Can fail a CI job.",
    "baseline": "Write the figures of good runs to a small file, for gpuprof diff.",
    "export": "Copy a run with hashed names, to show it to others.",
    "plan": "Show what a configuration will do to each worker. Start nothing.",
    "collect": "Bring a run's files home from its nodes and list them.",
    "runs": "List the runs in the output directory.",
    "clean": "Remove runs.",
    "doctor": "Check that this machine, or every node of a Ray cluster, can profile.",
    "config": "Show, validate, explain, or convert a configuration.",
    "backends": "List installed backends and their profilers.",
}
"""Each command's help, so that listing the commands imports none of their modules.

The command `x-y` is the function `command` in `x_y.py`.
"""


class LazyGroup(click.Group):
    """Imports a command when it is used, and prints gpuprof's errors without a traceback.

    The exit code is 2 for bad input and for anything else that gpuprof refuses.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        """The commands' names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the command."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(
            f"gpuprof._cli.{name.replace('-', '_')}"
        ).command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line. All output is escaped, including click's own errors."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # click, too, would switch from ASCII to UTF-8, but then bypass our escaping
                ascii_only = codecs.lookup(stream.encoding).name == "ascii"
                stream.reconfigure(
                    encoding="utf-8" if ascii_only else None, errors="backslashreplace"
                )
        with escaped_output():
            return super().main(*arguments, **options)

    def invoke(self, context: click.Context) -> object:
        """Run the command. Print gpuprof's errors without a traceback."""
        try:
            return super().invoke(context)
        except GpuprofError as error:
            click.echo(f"gpuprof: {error}", err=True)
            sys.exit(2)


def _print_skill(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo((Path(__file__).parents[1] / "SKILL.md").read_text("utf-8"), nl=False)
        context.exit()


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`gpuprof COMMAND --help` ends with an example.",
)
@click.version_option(package_name=NAME)
@click.option(
    "--skill",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_skill,
    help="Print SKILL.md: for agents, how to find out why a job is slow.",
)
def main() -> None:
    """Profile the right workers and steps of a distributed job, and see where the time goes."""
