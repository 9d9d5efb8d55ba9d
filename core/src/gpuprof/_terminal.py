"""Escapes text for the terminal: names in a run may come from anybody.

Control characters could set the title, fill the clipboard, or hide lines. Bidirectional characters
reorder the text on the screen. Invisible characters make two names look the same.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

# Letters and marks that fonts may draw as nothing, although Python calls them printable: joiners,
# Hangul fillers, and variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def printable(text: str) -> str:
    r"""Escape all characters that a terminal would obey, reorder or hide.

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
    """A stream that escapes what is not printable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def unescaped(stream: TextIO) -> TextIO:
    """The stream without escaping, for gpuprof's own cursor movements, as in a progress bar."""
    return stream._stream if isinstance(stream, _Escaping) else stream


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape everything that any code of this process prints to stdout and stderr."""
    before = sys.stdout, sys.stderr
    ours = cast("tuple[TextIO, TextIO]", tuple(map(_Escaping, before)))
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        # After a broken pipe, click has installed streams that must stay until the process ends.
        if (sys.stdout, sys.stderr) == ours:
            sys.stdout, sys.stderr = before
