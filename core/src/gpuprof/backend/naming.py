"""Names a window's file by a template, and moves it there without overwriting another file."""

from __future__ import annotations

import hashlib
import itertools
import os
import string
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from gpuprof._shim.files import follow_umask
from gpuprof._shim.safe import create, read_bytes, take_name

VARIABLES = (
    "group", "rank", "worker", "step", "range", "n", "pid", "node", "label", "occurrence",
    "incarnation",
)  # fmt: skip
"""A template's variables.

``worker`` is ``<group>-<rank>``. ``step`` is the window's step, or ``first-last``. ``range`` is
``start:stop`` with stop exclusive. ``n`` is the window's number, from 1. ``label`` and
``occurrence`` identify the scope of a discrete window.
"""
_KEEPER = ".taken"
_LONGEST = 200
"""Maximum bytes of a name. File systems allow 255; the rest is room for extensions."""


def template_problem(template: str) -> str | None:
    """The problem with a template, or ``None``.

    >>> template_problem("{group}-{rank}.{stp}")  # doctest: +ELLIPSIS
    'unknown variable {stp}; valid: group, rank, worker, step, ... incarnation'
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        return f"invalid template: {error}"
    for text, field, form, conversion in parts:
        if "/" in text or "\0" in text:
            return "expected a file name without a directory; output_dir sets the directory"
        if field is not None and (field not in VARIABLES or form or conversion):
            return f"unknown variable {{{field}}}; valid: {', '.join(VARIABLES)}"
    if not template or template.startswith("."):
        return "expected a name that does not begin with a dot"
    return None


def fill(template: str, values: Mapping[str, str]) -> str:
    """Fill in a template.

    A variable without a value stays a placeholder, ``/`` in a value becomes ``%2F``, and a name
    that is too long is cut and gets a hash.

    >>> fill("{worker}_{pid}", {"worker": "A-0"})
    'A-0_{pid}'
    """
    name = "".join(
        text + ("" if field is None else values.get(field, f"{{{field}}}").replace("/", "%2F"))
        for text, field, _, _ in string.Formatter().parse(template)
    )
    content = name.encode()
    if len(content) <= _LONGEST:
        return name
    digest = hashlib.blake2b(content, digest_size=4).hexdigest()
    return f"{content[: _LONGEST - 9].decode(errors='ignore')}-{digest}"


def slug(label: str) -> str:
    """A label as a part of a file's name; `urllib.parse.unquote` restores it.

    >>> slug("actor/run training 100%")
    'actor%2Frun%20training%20100%25'
    """
    return quote(label, safe="")


def move(source: str, stem: str, extension: str) -> str | None:
    """Move a finished file to its final name.

    If that name is or was taken, ``.2``, ``.3``, … comes before the extension. The file's
    permissions follow this process's umask.

    Args:
        source: the file's current path.
        stem: the final path without `extension`.
        extension: the extension, with its dot.

    Returns:
        The final path, or ``None`` if `source` is gone: another process has moved it.
    """
    own_name = f"{source}.{os.getpid()}.moving"
    try:
        os.rename(source, own_name)  # of two processes, only one succeeds
    except FileNotFoundError:
        return None
    follow_umask(own_name)
    for number in itertools.count(1):
        final = stem + (f".{number}" if number > 1 else "") + extension
        if not os.path.lexists(keeper(final)) and take_name(own_name, final):
            return final
    raise AssertionError  # for type checkers


def keep_name(path: str) -> None:
    """Reserve the name of a file that will be moved away.

    A restarted worker that captures the same window then takes another name.
    """
    with open(create(keeper(path)), "w") as file:
        file.write(str(os.path.getsize(path)))


def keeper(path: str) -> str:
    """The file that reserves the name of `path`; its content is that file's size."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}{_KEEPER}")


def is_keeper(name: str) -> bool:
    """Whether this is the name of a reserving file."""
    return name.startswith(".") and name.endswith(_KEEPER)


def came_home(keeper: Path) -> int:
    """The size of the file whose name is reserved."""
    with suppress(OSError, ValueError):
        return int(read_bytes(keeper, 64))
    return 0
