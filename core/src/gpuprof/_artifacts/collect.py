"""Brings a run's files home from the nodes or a staging directory, in chunks and with checksums."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import attrs

from gpuprof._artifacts.manifest import Filed, checksum, measure
from gpuprof._artifacts.receipt import ReceiptRow
from gpuprof._artifacts.records import NodeRecord, read_node
from gpuprof._log import log
from gpuprof._session.file import files_of
from gpuprof._shim.node import node_name
from gpuprof._shim.ownership import open_owned
from gpuprof._shim.safe import (
    UnsafeFile,
    create,
    make_directory,
    open_regular,
    publish,
    read_bytes,
)
from gpuprof.backend import naming
from gpuprof.errors import OutputError

CHUNK = 16 * 2**20
"""Bytes per message when a file is brought home."""
LONG = 900.0
"""Seconds that a node may take to import reports and compute the checksums of all its files."""
_ATTEMPTS = 2
_TOKEN = ".gpuprof-home"

Progress = Callable[[int], object]
Result = TypeVar("Result")


class Nodes(Protocol):
    """The nodes that have the files."""

    def on_each(
        self, function: Callable[..., Result], *arguments: Any, timeout: float = 60.0
    ) -> list[Result]:
        """Call a function on every node; skip those that do not answer in `timeout` seconds."""

    def on(self, node: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on the node of this name."""

    def stream(
        self, node: str, function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]]
    ) -> Iterator[Result]:
        """Call a function on one node with each of the arguments.

        Yields the results in order, and holds only a few of them in memory at once.
        """


class ThisNode:
    """This node alone."""

    def on_each(
        self, function: Callable[..., Result], *arguments: Any, timeout: float = 60.0
    ) -> list[Result]:
        """Call the function here."""
        return [function(*arguments)]

    def on(self, node: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call the function here."""
        return function(*arguments)

    def stream(
        self, node: str, function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]]
    ) -> Iterator[Result]:
        """Yield the function's result for each of the arguments."""
        return (function(*call) for call in arguments)


class Collection:
    """The files of one run that have come home, and those still on their nodes.

    Args:
        home: the run directory here, which must exist.
        owner: the run directory that the owner files on the nodes must name. Default: `home`. No
            file is moved out of a directory with another owner.

    Attributes:
        filed: the files that have come home, by node and path on that node.
    """

    def __init__(
        self, nodes: Nodes, away: str, home: str, enabled: bool, owner: str | None = None
    ) -> None:
        self.filed: dict[tuple[str, str], Filed] = {}
        self._nodes = nodes
        self._away = away
        self.directory = home
        self._owner = owner or home
        self._enabled = enabled
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._token = _token(home) if enabled else ""
        self._kept: list[tuple[str, str]] = []

    def every(self, seconds: float, records: Callable[[], list[NodeRecord]]) -> None:
        """Start a thread that brings finished reports home until `stop` is called."""
        threading.Thread(
            target=self._repeat, args=(seconds, records), name="gpuprof-collect", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop the thread of `every` once it has copied its current file."""
        self._stopped.set()
        with self._lock:
            pass

    def add_sizes(self, record: NodeRecord) -> NodeRecord:
        """Add the sizes of files that came home from a node to the node's record."""
        sizes = {
            os.path.basename(path): file.size
            for (node, path), file in self.filed.items()
            if node == record.node
        }
        return attrs.evolve(record, sizes={**sizes, **record.sizes})

    def bring(
        self,
        records: Iterable[NodeRecord],
        finished_only: bool = False,
        progress: Progress | None = None,
    ) -> list[str]:
        """Move files home. Each is removed from its node once it is complete here.

        Returns:
            A sentence for each file that could not be moved.
        """
        problems: list[str] = []
        if not self._enabled:
            return problems
        with self._lock:
            if finished_only and self._stopped.is_set():
                return problems
            at_home = {
                node
                for node, holds in self._nodes.on_each(_holds, self._away, self._token)
                if holds
            }
            for record in records:
                if record.node in at_home:
                    continue
                for name in _finished(record) if finished_only else sorted(record.sizes):
                    if (
                        _temporary(name)
                        or (record.node, os.path.join(record.directory, name)) in self.filed
                    ):
                        continue  # it came home during the run, but is still in the record
                    if finished_only and self._stopped.is_set():
                        return problems
                    try:
                        self._bring(record, name, finished_only, progress or (lambda _: None))
                    except Exception as error:
                        path = os.path.join(record.directory, name)
                        problems.append(
                            f"{record.node}:{path} could not be brought home and lies there: "
                            f"{error}".splitlines()[0]
                        )
            if not finished_only:
                self._release_names()
        return problems

    def at_home(self, rows: Iterable[ReceiptRow]) -> list[ReceiptRow]:
        """Rows of a receipt with the paths of the files that have come home."""
        return [
            attrs.evolve(row, file=self.filed[row.node, row.file].file)
            if row.file and (row.node, row.file) in self.filed
            else row
            for row in rows
        ]

    def in_place(self) -> dict[tuple[str, str], Filed]:
        """The files that stay on their nodes; each node computes its own checksums."""
        files: dict[tuple[str, str], Filed] = {}
        for node, files_of_node in self._nodes.on_each(_checksums, self._away, timeout=LONG):
            files.update({(node, path): file for path, file in files_of_node.items()})
        return files

    def _bring(self, record: NodeRecord, name: str, keep_name: bool, progress: Progress) -> None:
        source = os.path.join(record.directory, name)
        directory = os.path.join(self.directory, record.node)
        make_directory(directory)
        partial = os.path.join(directory, f".{name}.partial")
        for attempt in range(1, _ATTEMPTS + 1):
            original = self._nodes.on(record.node, _measure, source, self._owner)
            calls = (  # only the measured bytes, because a ledger may still grow
                (source, self._owner, offset, min(CHUNK, original.size - offset))
                for offset in range(0, original.size, CHUNK)
            )
            chunks = self._nodes.stream(record.node, _read, calls)
            try:
                copy = _write(partial, chunks, original.mode, progress)
            except Exception:
                with contextlib.suppress(OSError):
                    os.unlink(partial)
                raise
            if copy == (original.size, original.sha256):
                break
            if attempt == _ATTEMPTS:
                os.unlink(partial)
                raise OutputError(
                    f"{name}: checksum mismatch: received {copy[0]} of {original.size} bytes"
                )
        stem, extension = os.path.splitext(name)
        final: str | None = os.path.join(directory, name)
        if extension == ".json":
            os.replace(partial, str(final))  # a session writes its file again and again
        else:
            final = naming.move(partial, os.path.join(directory, stem), extension)
        self.filed[record.node, source] = Filed(str(final), original.size, original.sha256)
        if keep_name:
            self._kept.append((record.node, source))
        self._nodes.on(record.node, _remove, source, self._owner, keep_name)

    def _release_names(self) -> None:
        while self._kept:
            node, source = self._kept.pop()
            with contextlib.suppress(OutputError):  # the node is gone, and the name with it
                self._nodes.on(node, _release, source)

    def _repeat(self, seconds: float, records: Callable[[], list[NodeRecord]]) -> None:
        while not self._stopped.wait(seconds):
            try:
                problems = self.bring(records(), finished_only=True)
            except Exception as error:
                problems = [f"{type(error).__name__}: {error}"]
            for problem in problems:
                log().warning("%s", problem)


def _token(home: str) -> str:
    """The mark in a run's directory by which nodes recognize a shared file system.

    The first process creates the mark for all.
    """
    mark = os.path.join(home, _TOKEN)
    own = f"{mark}.{secrets.token_hex(8)}.tmp"
    with open(create(own), "w") as file:
        file.write(secrets.token_hex(8))
    publish(own, mark)
    try:
        return read_bytes(mark, 64).decode()
    except UnsafeFile as error:
        raise OutputError(f"{mark}: {error}; remove it and try again") from None


def _checksums(directory: str) -> tuple[str, Mapping[str, Filed]]:
    record = read_node(directory)
    paths = [
        os.path.join(record.directory, name)
        for name in sorted(record.sizes)
        if not _temporary(name)
    ]
    checksums = {}
    for path in paths:
        with contextlib.suppress(OSError, UnsafeFile):  # its process has renamed it
            checksums[path] = checksum(path)
    return record.node, checksums


def _finished(record: NodeRecord) -> list[str]:
    """The reports that have their final names."""
    files = [
        os.path.basename(file)
        for start in record.starts
        for window in start.windows
        if window["closed"]
        for file in files_of(window)
    ]
    return [name for name in dict.fromkeys(files) if name in record.sizes]


def _temporary(name: str) -> bool:
    return name.startswith(".") or name.endswith((".tmp", ".moving", ".partial"))


def _holds(directory: str, token: str) -> tuple[str, bool]:
    """Get a node's name, and whether it shares the home directory's file system.

    Runs on that node.
    """
    try:
        return node_name(), read_bytes(os.path.join(directory, _TOKEN), 64).decode() == token
    except (OSError, ValueError):
        return node_name(), False


@contextlib.contextmanager
def _owned(path: str, owner: str) -> Iterator[int]:
    """Open the directory of a file on its node, if the directory's files belong to `owner`."""
    handle = open_owned(os.path.dirname(path), owner)
    try:
        yield handle
    finally:
        os.close(handle)


def _measure(path: str, owner: str) -> Filed:
    with _owned(path, owner) as directory:
        return checksum(path, directory)


def _read(path: str, owner: str, offset: int, size: int) -> bytes:
    with (
        _owned(path, owner) as directory,
        open(open_regular(os.path.basename(path), directory), "rb") as file,
    ):
        file.seek(offset)
        return file.read(size)


def _write(path: str, chunks: Iterable[bytes], mode: int, progress: Progress) -> tuple[int, str]:
    """Write chunks to a file. Returns its size and SHA-256."""
    with open(create(path, 0o600), "wb") as file:

        def take(chunk: bytes) -> None:
            file.write(chunk)
            progress(len(chunk))

        result = measure(chunks, take)
        os.fchmod(file.fileno(), mode)
        return result


def _remove(path: str, owner: str, keep_name: bool) -> None:
    with _owned(path, owner) as directory:
        if keep_name:
            naming.keep_name(path)
        os.unlink(os.path.basename(path), dir_fd=directory)


def _release(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(naming.keeper(path))
