"""Which options the commands of the installed nsys have, by their own help."""

from __future__ import annotations

import re
from collections.abc import Callable

MODES = ("defer", "sync", "async")
"""Of writing reports: when all ranges have ended, at the end of each while the program waits, or while it goes on."""
COMMANDS = ("profile", "launch", "start")
_OPTION = re.compile(r"^[ \t]{1,3}(?:-(\w), )?--([\w-]+)(?:\[([\w|]+)\])?", re.MULTILINE)


def features(say: Callable[..., str]) -> dict[str, list[str]]:
    """The names of options, long and short, by the command that takes them. What the help does not say is left out.

    ``modes`` are those in which ``capture-range-end=repeat`` can write reports.

    Args:
        say: runs nsys with words, and returns what it prints.
    """
    texts = {command: say(command, "--help") for command in COMMANDS}
    found = {command: options_in(text) for command, text in texts.items()} | {"modes": modes_in(texts["profile"])}
    return {name: words for name, words in found.items() if words}


def options_in(text: str) -> list[str]:
    r"""The names in a help text, in its order.

    >>> options_in("\t-t, --trace=\n\n\t   As --sample.\n\t--nvtx-domain-[include|exclude]=\n")
    ['t', 'trace', 'nvtx-domain-include', 'nvtx-domain-exclude']
    """
    names: list[str] = []
    for short, long, endings in _OPTION.findall(text):
        names += [*filter(None, [short]), *(f"{long}{ending}" for ending in endings.split("|"))]
    return names


def modes_in(text: str) -> list[str]:
    """The modes that the help of ``capture-range-end`` speaks of. Neither 2022.4 nor 2023.4 has any."""
    behind = text.partition("--capture-range-end")[2]
    option = _OPTION.search(behind)
    about = behind[: option.start()] if option else behind
    return [mode for mode in MODES if re.search(rf"\b{mode}\b", about)]
