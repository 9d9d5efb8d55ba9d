"""The command line, as a user runs it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from gpuprof import _cli


def run(*words: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(_cli.main, words)
    assert 0 == result.exit_code, result.output
    return result.output


@pytest.mark.parametrize("name", _cli.COMMANDS)
def test_every_command_has_help(name: str) -> None:
    """Each command of the table can be imported and says what it does."""
    assert "Usage:" in run(name, "--help")


def test_help_lists_the_commands() -> None:
    """The table of commands is part of the help."""
    assert [] == [name for name in _cli.COMMANDS if name not in run("--help")]


def test_a_plugin_that_fails_to_import_is_listed(install) -> None:
    """A broken plugin is shown with its error, and the others beside it."""
    install("raise RuntimeError('no driver')", broken="Broken")
    found = {plugin["name"]: plugin for plugin in json.loads(run("backends", "--json"))}
    assert "no driver" in found["broken"]["error"]
    assert found["nsight"]["error"] is None


def test_backends_shows_the_hooks() -> None:
    """A backend that works is shown with what it implements."""
    assert "start_capture" in run("backends")
