"""The command ``gpuprof``: parse, call, print.

Each command has a module of its own here, imported when it is asked for.
"""

from __future__ import annotations

import importlib
import sys

import click

from gpuprof.errors import GpuprofError

COMMANDS = {
    "run": "run a command as one rank of a job, under the profiler",
    "capture": "have the armed workers of a run that goes on capture some steps",
    "report": "what a run has left: trees, and the ranges in its reports",
    "plan": "what a configuration will do to each worker, before anything starts",
    "collect": "bring home what a run has left on its nodes, and list it",
    "runs": "what runs there are",
    "clean": "remove runs",
    "doctor": "whether this machine, or every node of a Ray cluster, can profile",
    "config": "show, validate, explain or convert a configuration",
    "backends": "what is installed, and whether its profiler is there",
}
"""Name to help, so that listing the commands imports none of them. The command `x-y` is the
function `command` of `x_y.py`."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used, and turns our errors into
    messages.

    The exit code is 2 for bad input and whatever else gpuprof refuses.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        """The names, in the order of the table."""
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
        """Write the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, context: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(context)
        except GpuprofError as error:
            click.echo(f"gpuprof: {error}", err=True)
            sys.exit(2)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpuprof")
def main() -> None:
    """Profile the right workers and steps of a distributed job, and see where the time goes."""
