"""Escapes text for the terminal: a run's names may come from anybody, and must not control it.

Control characters set the title, fill the clipboard, and hide lines; bidirectional ones reorder
what is read; invisible ones make two names look the same.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

# What Unicode lets fonts draw as nothing although it is a letter or a mark, which Python calls
# printable: joiners, fillers of Hangul, and selectors of variants.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def printable(text: str) -> str:
    r"""Escape all characters that a terminal would obey, reorder or not show.

    Line breaks and tabs stay, as do letters of all languages.

    >>> printable("Träger\n\x1b]0;title\x07 \u202eabc")
    'Träger\n\\x1b]0;title\\x07 \\u202eabc'
    """
    if text.replace("\n", "").replace("\t", "").isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(
        character
        if character in "\n\t" or (character.isprintable() and not _INVISIBLE.match(character))
        else character.encode("unicode_escape").decode()
        for character in text
    )


class _Escaping:
    """A stream that writes only what is printable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def unescaped(stream: TextIO) -> TextIO:
    """A stream for text of our own that moves the cursor, such as a progress bar."""
    return stream._stream if isinstance(stream, _Escaping) else stream


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape whatever this process prints to stdout and stderr, whoever prints it."""
    before = sys.stdout, sys.stderr
    ours = cast("tuple[TextIO, TextIO]", tuple(map(_Escaping, before)))
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        # after a broken pipe click has put streams there that must stay to the end
        if (sys.stdout, sys.stderr) == ours:
            sys.stdout, sys.stderr = before
