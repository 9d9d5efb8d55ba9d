"""Which options the commands of the installed nsys have, by their own help."""

from __future__ import annotations

import re
from collections.abc import Callable

COMMANDS = ("profile", "launch", "start")
_OPTION = re.compile(r"^[ \t]{1,3}(?:-(\w), )?--([\w-]+)(?:\[([\w|]+)\])?", re.MULTILINE)


def features(say: Callable[..., str]) -> dict[str, list[str]]:
    """The names of options, long and short, by the command that takes them. A command without help is left out.

    Args:
        say: runs nsys with words, and returns what it prints.
    """
    found = {command: options_in(say(command, "--help")) for command in COMMANDS}
    return {command: names for command, names in found.items() if names}


def options_in(text: str) -> list[str]:
    r"""The names in a help text, in its order.

    >>> options_in("\t-t, --trace=\n\n\t   As --sample.\n\t--nvtx-domain-[include|exclude]=\n")
    ['t', 'trace', 'nvtx-domain-include', 'nvtx-domain-exclude']
    """
    names: list[str] = []
    for short, long, endings in _OPTION.findall(text):
        names += [*filter(None, [short]), *(f"{long}{ending}" for ending in endings.split("|"))]
    return names
