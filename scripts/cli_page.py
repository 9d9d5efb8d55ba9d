"""Write docs/cli.md: the help of every command, as click prints it.

Usage: python scripts/cli_page.py [--check].
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import generated
from gpuprof._cli import main

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 80
HEAD = """\
# Command line

Find a command's options and an example; `gpuprof COMMAND --help` prints the same.
`scripts/cli_page.py` writes this page.

## Complete commands with Tab

Add the line of your shell to its start-up file, and open a new shell:

| shell | file | line |
| --- | --- | --- |
| bash 4.4 or later | `~/.bashrc` | `eval "$(_GPUPROF_COMPLETE=bash_source gpuprof)"` |
| zsh | `~/.zshrc` | `eval "$(_GPUPROF_COMPLETE=zsh_source gpuprof)"` |
| fish | `~/.config/fish/config.fish` | `_GPUPROF_COMPLETE=fish_source gpuprof \\| source` |

## Exit codes

| code | means |
| --- | --- |
| 0 | done, and in order |
| 1 | a file is broken or missing, a check of `doctor` failed, or `diff` found a slower run |
| 2 | bad arguments or settings, or runs that `diff` cannot compare |
| 127 | `gpuprof run`: command not found |

Otherwise `gpuprof run` exits as its command does.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_sections(main, "gpuprof"))


def _sections(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[str]:
    """The help of a command and of those below it."""
    settings = {**command.context_settings, "terminal_width": WIDTH}
    with click.Context(command, parent=parent, info_name=name, **settings) as context:
        yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                found = command.get_command(context, each)
                assert found is not None
                yield from _sections(found, each, context)


if __name__ == "__main__":
    generated.write(PAGE, page())
