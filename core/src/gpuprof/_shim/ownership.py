"""Marks directories with their run, so that no forged path makes gpuprof delete foreign files.

gpuprof removes, empties and searches directories whose paths come from a run's files, and anybody
may have written those files. So each such directory holds an owner file, which must belong to this
user and must name the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from .files import private_file, start_stem
from .row import Row
from .safe import UnsafeFile, is_ours, load_json, make_directory, open_directory, replacing

OWNER = ".gpuprof-owner"
"""The owner file, in a tool's temporary directory and in a node's private directory."""


def scratch_owner(row: Row, incarnation: str, disposable: list[str]) -> dict[str, object]:
    """The owner file's content for the temporary directory of a worker's tool."""
    start = start_stem(row, incarnation)
    return {"private": _private(row), "start": start, "disposable": disposable}


def scratch_problem(scratch: str, private: str, start: str) -> str | None:
    """The reason not to trust a tool's temporary directory; ``None`` if it is this start's."""
    owner, problem = owner_of(scratch)
    if problem:
        return problem
    if owner.get("start") != start or not _same(owner.get("private"), private):
        return f"it belongs to {owner.get('start')} in {owner.get('private')}"
    return None


def own_directory(row: Row) -> None:
    """Create a run's directory on this node, and write its owner file.

    Raises:
        OSError: it cannot be created, or is a link.
    """
    private = _private(row)
    for directory in (os.path.dirname(private), private):
        make_directory(directory)
    home = row.get("run_directory")
    if home and not os.path.lexists(os.path.join(private, OWNER)):
        note_owner(private, {"home": home})


def open_owned(directory: str, home: str) -> int:
    """Open a node's directory after checking that its files belong in `home`.

    Refuses a link, and a link in place of the run directory above it.

    Raises:
        UnsafeFile: it is not this user's, or its owner file names another home.
    """
    run_directory, node = os.path.split(directory)
    outer = open_directory(run_directory)
    try:
        handle = open_directory(node, dir_fd=outer)
    finally:
        os.close(outer)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise UnsafeFile(f"{directory} is owned by user {os.fstat(handle).st_uid}")
        owner, problem = owner_of(".gpuprof", handle)
        if problem:
            raise UnsafeFile(f"{directory} is not marked as part of {home}: {problem}")
        if owner.get("home") != home:
            raise UnsafeFile(f"{directory} belongs to {owner.get('home')}, not to {home}")
    except BaseException:
        os.close(handle)
        raise
    return handle


def note_owner(directory: str, content: Mapping[str, object]) -> None:
    """Write a directory's owner file."""
    with replacing(os.path.join(directory, OWNER), 0o600) as file:
        file.write(json.dumps(content).encode())


def owner_of(directory: str, dir_fd: int | None = None) -> tuple[dict[str, object], str]:
    """The content of a directory's owner file, and why not to trust it (empty if it is trusted)."""
    try:
        handle = open_directory(directory, dir_fd)
    except OSError as error:
        return {}, str(error.strerror)
    try:
        for path, status in (
            ("it", os.fstat(handle)),
            (OWNER, os.stat(OWNER, dir_fd=handle, follow_symlinks=False)),
        ):
            if status.st_uid != os.geteuid():
                return {}, f"{path} is owned by user {status.st_uid}"
        if not is_ours(os.stat(OWNER, dir_fd=handle, follow_symlinks=False)):
            return {}, f"other users can write to it or its {OWNER}"
        content = load_json(OWNER, 65536, handle)
    except FileNotFoundError:
        return {}, f"it has no {OWNER}"
    except (OSError, UnsafeFile) as error:
        return {}, f"{OWNER}: {error}"
    finally:
        os.close(handle)
    return (content, "") if isinstance(content, dict) else ({}, f"{OWNER}: expected a mapping")


def _same(one: object, other: str) -> bool:
    if not isinstance(one, str):
        return False
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _private(row: Row) -> str:
    return os.path.dirname(private_file(row, OWNER))
