"""What a window's file is called: a template, filled in, and the move to that name without
overwriting anything.
"""

from __future__ import annotations

import hashlib
import os
import string
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

VARIABLES = (
    "group",
    "rank",
    "worker",
    "step",
    "range",
    "n",
    "pid",
    "node",
    "label",
    "occurrence",
    "incarnation",
)
"""What a template may hold: ``worker`` is ``<group>-<rank>``; ``step`` the window's step, or
``first-last``; ``range`` ``start:stop`` (stop exclusive); ``n`` the window's number, from 1;
``label`` and ``occurrence`` the scope of a discrete window.
"""
_KEEPER = ".taken"
_LONGEST = 200
"""Bytes of a name, so that with extensions and suffixes it stays below the 255 that file systems
take."""


def template_problem(template: str) -> str | None:
    """What is wrong with a template, or ``None``.

    >>> template_problem("{group}-{rank}.{stp}")
    'unknown variable {stp}; valid: group, rank, worker, step, range, n, pid, node, label, occurrence, incarnation'
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        return f"not a template: {error}"
    for text, field, form, conversion in parts:
        if "/" in text or "\0" in text:
            return "expected a file's name; the directory is set by output_dir"
        if field is not None and (field not in VARIABLES or form or conversion):
            return f"unknown variable {{{field}}}; valid: {', '.join(VARIABLES)}"
    if not template or template.startswith("."):
        return "expected a name that does not begin with a dot"
    return None


def fill(template: str, values: Mapping[str, str]) -> str:
    """The name: whatever is not given stays a placeholder, ``/`` in a value becomes ``%2F``, a name
    too long is cut and hashed.

    >>> fill("{worker}_{pid}", {"worker": "A-0"})
    'A-0_{pid}'
    """
    filled = "".join(
        text + ("" if field is None else values.get(field, f"{{{field}}}").replace("/", "%2F"))
        for text, field, _, _ in string.Formatter().parse(template)
    )
    encoded = filled.encode()
    if len(encoded) <= _LONGEST:
        return filled
    digest = hashlib.blake2b(encoded, digest_size=4).hexdigest()
    return f"{encoded[: _LONGEST - 9].decode(errors='ignore')}-{digest}"


def slug(label: str) -> str:
    """A label as a part of a file's name, from which `urllib.parse.unquote` gives it back.

    >>> slug("actor/run training 100%")
    'actor%2Frun%20training%20100%25'
    """
    return quote(label, safe="")


def move(source: str, stem: str, extension: str) -> str | None:
    """Give a finished file its final name; where that is or was taken, ``.2``, ``.3``, … comes
    before the extension.

    Args:
        source: where the file is.
        stem: the final path without `extension`.
        extension: with its dot.

    Returns:
        The path, or ``None`` if there is no such file: somebody else has moved it.
    """
    mine = f"{source}.{os.getpid()}.moving"
    try:
        os.rename(source, mine)  # of two who try, one succeeds
    except FileNotFoundError:
        return None
    number = 1
    while True:
        final = stem + (f".{number}" if number > 1 else "") + extension
        if os.path.exists(keeper(final)):
            number += 1
            continue
        try:
            os.link(mine, final)
        except FileExistsError:
            number += 1
            continue
        except OSError:  # a file system without hard links
            with suppress(FileExistsError):
                os.close(os.open(final, os.O_CREAT | os.O_EXCL))
                os.replace(mine, final)
                return final
            number += 1
            continue
        os.unlink(mine)
        return final


def keep_name(path: str) -> None:
    """Keep the name of a file taken when it goes: a worker that starts again and captures the same
    window needs another.
    """
    Path(keeper(path)).write_text(str(os.path.getsize(path)))


def keeper(path: str) -> str:
    """The file that keeps the name of `path`. It holds that one's size."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}{_KEEPER}")


def is_keeper(name: str) -> bool:
    """Whether a file of this name keeps another's."""
    return name.startswith(".") and name.endswith(_KEEPER)


def came_home(keeper: Path) -> int:
    """The size of the file whose name is kept."""
    with suppress(OSError, ValueError):
        return int(keeper.read_text())
    return 0
