"""Bringing a run's files from the nodes to the driver, in chunks, held against their checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import ray

from gpuprof import _naming, _records, _shim
from gpuprof._log import log
from gpuprof._manifest import Filed, checksum
from gpuprof._records import NodeRecord
from gpuprof.errors import OutputError
from gpuprof.ray._nodes import Nodes, connect

CHUNK = 16 * 2**20
"""Bytes that travel at once."""
IN_FLIGHT = 3
"""Chunks of one file on their way. The driver holds these in Ray's object store and one more in its own memory: 64 MiB beside what
it has; a node holds as much in its store and one in the task that reads it. The size of a file does not matter."""
_ATTEMPTS = 2
_TOKEN = ".gpuprof-home"

Progress = Callable[[int], object]


class Collection:
    """The files of one run that have come home, and those that have still to come.

    Args:
        nodes: of the cluster.
        away: the run's directory on the nodes.
        home: the run's directory on the driver, which is there.
        enabled: whether files are to be moved at all.

    Attributes:
        filed: what has come home, by node and path there.
    """

    def __init__(self, nodes: Nodes, away: str, home: str, enabled: bool) -> None:
        self.filed: dict[tuple[str, str], Filed] = {}
        self._nodes = nodes
        self._away = away
        self._home = home
        self._enabled = enabled
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._token = secrets.token_hex(8)
        with open(os.path.join(home, _TOKEN), "w") as file:
            file.write(self._token)

    def every(self, seconds: float) -> None:
        """Bring finished reports on a thread of its own, from now on and until `stop`."""
        threading.Thread(target=self._repeat, args=(seconds,), name="gpuprof-collect", daemon=True).start()

    def stop(self) -> None:
        """End what `every` has begun; waits for the file that is on its way."""
        self._stopped.set()
        with self._lock:
            pass

    def add_sizes(self, record: NodeRecord) -> NodeRecord:
        """A node's record with the files that it had and that are home."""
        mine = {os.path.basename(path): filed.size for (node, path), filed in self.filed.items() if node == record.node}
        return attrs.evolve(record, sizes={**mine, **record.sizes})

    def bring(self, records: Iterable[NodeRecord], finished_only: bool = False, progress: Progress | None = None) -> list[str]:
        """Move files to the driver: each is removed on its node once it is whole at home. Returns what went wrong.

        Args:
            finished_only: only reports that nothing will be written to any more.
            progress: told of bytes as they come.
        """
        problems: list[str] = []
        if not self._enabled:
            return problems
        with self._lock:
            at_home = {answer.node for answer in self._nodes.ask(_holds, self._away, self._token) if answer.result}
            for record in records:
                if record.node in at_home:
                    continue
                names = _finished(record) if finished_only else [name for name in sorted(record.sizes) if not _temporary(name)]
                for name in names:
                    try:
                        self._bring(record, name, progress or (lambda _: None))
                    except Exception as error:
                        path = os.path.join(record.directory, name)
                        problems.append(f"{record.node}:{path} could not be brought home and lies there: {error}".splitlines()[0])
        return problems

    def in_place(self) -> dict[tuple[str, str], Filed]:
        """The files that are where their nodes have written them, with checksums that each node computes for its own."""
        found: dict[tuple[str, str], Filed] = {}
        for node, filed in self._nodes.on_each(_checksums, self._away):
            found.update({(node, path): file for path, file in filed.items()})
        return found

    def _bring(self, record: NodeRecord, name: str, progress: Progress) -> None:
        source = os.path.join(record.directory, name)
        directory = os.path.join(self._home, record.node)
        os.makedirs(directory, exist_ok=True)
        partial = os.path.join(directory, f".{name}.partial")
        for attempt in range(1, _ATTEMPTS + 1):
            expected = self._on(record.node, checksum, source)
            size, digest = 0, hashlib.sha256()
            with open(partial, "wb") as file:
                for chunk in self._chunks(record.node, source, expected.size):
                    file.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                    progress(len(chunk))
            if (size, digest.hexdigest()) == (expected.size, expected.sha256):
                break
            if attempt == _ATTEMPTS:
                os.unlink(partial)
                raise OutputError(f"{name}: {size} bytes came whose checksum is not that of the {expected.size} that were sent")
        stem, extension = os.path.splitext(name)
        final: str | None = os.path.join(directory, name)
        if extension == ".json":
            os.replace(partial, str(final))  # a session writes its file again and again
        else:
            final = _naming.move(partial, os.path.join(directory, stem), extension)
        self.filed[record.node, source] = Filed(str(final), expected.size, expected.sha256)
        self._on(record.node, _remove, source)

    def _chunks(self, node: str, path: str, size: int) -> Iterator[bytes]:
        if node == _shim.node_name():
            for offset in range(0, size, CHUNK):
                yield _read(path, offset)
            return
        waiting: deque[Any] = deque()
        for offset in range(0, size, CHUNK):
            if len(waiting) == IN_FLIGHT:
                yield ray.get(waiting.popleft())
            waiting.append(self._nodes.call(self._nodes.named(node), _read, path, offset))
        while waiting:
            yield ray.get(waiting.popleft())

    def _on(self, node: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if node == _shim.node_name():
            return function(*arguments)
        return ray.get(self._nodes.call(self._nodes.named(node), function, *arguments))

    def _repeat(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            try:
                problems = self.bring(self._nodes.on_each(_records.read_node, self._away), finished_only=True)
            except Exception as error:
                problems = [f"{type(error).__name__}: {error}"]
            for problem in problems:
                log().warning("%s", problem)


def size_away(away: str, address: str) -> int:
    """How many bytes of a run the nodes have, of the cluster that this process is then connected to.

    Args:
        away: the run's directory there.
        address: of the cluster.

    Raises:
        GpuprofError: no cluster answers.
    """
    connect(address)
    return sum(sum(record.sizes.values()) for record in Nodes().on_each(_records.read_node, away))


def collect(away: str, home: str, progress: Progress | None = None) -> list[str]:
    """Bring a run's files from the nodes to `home`, also where its driver has died. Returns what went wrong."""
    nodes = Nodes()
    return Collection(nodes, away, home, enabled=True).bring(nodes.on_each(_records.read_node, away), progress=progress)


def _checksums(directory: str) -> tuple[str, Mapping[str, Filed]]:
    record = _records.read_node(directory)
    paths = [os.path.join(record.directory, name) for name in sorted(record.sizes) if not _temporary(name)]
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # its process has renamed it
            found[path] = checksum(path)
    return record.node, found


def _finished(record: NodeRecord) -> list[str]:
    """The reports that have their final names."""
    files = [
        os.path.basename(file)
        for start in record.starts
        for window in (start.session or {}).get("windows", ())
        if window["closed"]
        for file in window["files"] or ()
    ]
    return [name for name in dict.fromkeys(files) if name in record.sizes]


def _temporary(name: str) -> bool:
    return name.startswith(".") or name.endswith((".tmp", ".moving", ".partial"))


def _holds(directory: str, token: str) -> bool:
    """Run on a node: whether its directory is the driver's, on a file system that they share."""
    try:
        with open(os.path.join(directory, _TOKEN)) as file:
            return file.read() == token
    except OSError:
        return False


def _read(path: str, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(CHUNK)


def _remove(path: str) -> None:
    os.unlink(path)
