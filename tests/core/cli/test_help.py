"""Every command's help ends with examples that the command would take, and Tab completes them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from gpuprof._cli import main


def commands(group: click.Group, before: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """All commands below a group, by what is typed to call them."""
    context = click.Context(group)
    found = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[" ".join((*before, name))] = command
        if isinstance(command, click.Group):
            found |= commands(command, (*before, name))
    return found


COMMANDS = commands(main)


def examples(command: click.Command) -> list[list[str]]:
    """The words of each example in a command's help, from `gpuprof` on."""
    lines = (command.epilog or "").splitlines()
    found = [shlex.split(line) for line in lines if line.startswith("  ")]
    return [words[words.index("gpuprof") : _end(words)] for words in found]


def _end(words: list[str]) -> int:
    return words.index(">") if ">" in words else len(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(name: str) -> None:
    """A command line to copy is worth a paragraph."""
    assert examples(COMMANDS[name])


@pytest.mark.parametrize(
    ("name", "words"),
    [(name, words) for name, command in COMMANDS.items() for words in examples(command)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_example_is_understood(name: str, words: list[str]) -> None:
    """Click parses it: the options exist, and their values have the right type."""
    command: click.Command = main
    context = click.Context(main)
    rest = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None
        command, rest = found, rest[1:]
    assert command in [each for key, each in COMMANDS.items() if key.startswith(name)]
    command.make_context(words[1], rest)


def test_tab_completes_a_command() -> None:
    """What the shell's line of docs/cli.md asks for is answered."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "gpuprof")],
        env={
            **os.environ,
            "_GPUPROF_COMPLETE": "bash_complete",
            "COMP_WORDS": "gpuprof tim",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plain,timeline\n" == done.stdout
