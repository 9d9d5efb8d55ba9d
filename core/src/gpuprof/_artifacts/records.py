"""What the processes of a run have left on one node: sessions' files, how the profilers fare, and
the files that are there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from gpuprof._shim.node import node_name
from gpuprof._shim.processes import process_start, started_process
from gpuprof._shim.scratch import tool_processes
from gpuprof.errors import OutputError

_WITHOUT = ("unwrapped", "unselected")


@attrs.frozen(eq=False)
class Start:
    """One start of a worker, as seen on its node.

    Args:
        session: what the worker wrote about itself, if it used gpuprof.
        tool: what the shim wrote about the profiler, if there was one. Its ``state`` is
            ``running``, ``finishing`` (the worker has ended, the profiler not), ``ended``,
            ``unwrapped`` (it could not be started) or ``unselected`` (the key `nodes` leaves this
            node out).
        settled: what became of the files once all had ended: ``files`` by window number,
            ``problems``, the captured ``windows``.
        process: of the worker, while it lives.
        began: whether the worker has started at all. Ray ends processes that it has no use for,
            some while their profiler starts.
    """

    group: str
    rank: int
    incarnation: str
    session: dict[str, Any] | None
    tool: dict[str, Any] | None
    settled: dict[str, Any] | None = None
    process: int | None = None
    began: bool = True

    @property
    def files(self) -> list[str]:
        """Those that have their final names."""
        windows = (self.session or {}).get("windows", ())
        settled = (self.settled or {}).get("files", {}).values()
        return [
            file
            for files in (*(window["files"] or () for window in windows), *settled)
            for file in files
        ]

    @property
    def left_out(self) -> bool:
        """Whether the worker was to be profiled, but not on the node that it has started on."""
        return (self.tool or {}).get("state") == "unselected" or (
            self.session is not None and not self.session["profiled"]
        )

    @property
    def over(self) -> bool:
        """Whether the worker and what it ran under have ended."""
        return self.process is None and (self.tool is None or self.ended)

    @property
    def ended(self) -> bool:
        """Whether the profiler has ended, so that its files are final."""
        return self.tool is not None and self.tool["state"] in ("ended", *_WITHOUT)


@attrs.frozen
class NodeRecord:
    """One node's part of a run.

    Args:
        node: host name.
        directory: absolute, on that node.
        starts: of workers, in no order.
        sizes: of the files in the directory, in bytes.
    """

    node: str
    directory: str
    starts: tuple[Start, ...]
    sizes: Mapping[str, int]

    def of(self, group: str, rank: int) -> NodeRecord:
        """The part of one worker, its children included."""
        starts = tuple(start for start in self.starts if (start.group, start.rank) == (group, rank))
        own = {os.path.basename(file) for start in starts for file in start.files}
        prefixes = (f"{group}-{rank}.start-", f"{group}-{rank}.child-", f"{group}-{rank}.finish.")
        sizes = {
            name: size
            for name, size in self.sizes.items()
            if name in own or name.startswith(prefixes)
        }
        return NodeRecord(self.node, self.directory, starts, sizes)


def read_node(run_directory: str, node: str | None = None) -> NodeRecord:
    """Read what this node has of a run. Everything may be half-done: the run may go on.

    Args:
        node: another one, that is dead, of which the files are to be seen from here.
    """
    node = node or node_name()
    directory = Path(run_directory, node)
    sessions: dict[tuple[str, int, str], dict[str, Any]] = {}
    for file in directory.glob("*.json"):
        session = _read_json(file)
        if session is not None and session.get("incarnation"):
            sessions[session["group"], session["rank"], session["incarnation"]] = session
    tools: dict[tuple[str, int, str], dict[str, Any]] = {}
    settled: dict[tuple[str, int, str], dict[str, Any]] = {}
    for file in (directory / ".gpuprof").iterdir() if (directory / ".gpuprof").is_dir() else ():
        if file.suffix in (".tool", ".settled"):
            stem, _, incarnation = file.stem.rpartition(".start-")
            group, _, rank = stem.rpartition("-")
            status = _read_json(file)
            if status is not None:
                (tools if file.suffix == ".tool" else settled)[group, int(rank), incarnation] = (
                    status
                )
    living: dict[tuple[str, int, str], int] = {}
    unborn = set()
    for key, session in sessions.items():
        if session["process_start"] and process_start(session["pid"]) == session["process_start"]:
            living[key] = session["pid"]
    for key, status in tools.items():
        mark = directory / ".gpuprof" / f"{key[0]}-{key[1]}.start-{key[2]}.target"
        if status.get("marks") and key not in sessions and not mark.exists():
            unborn.add(key)
        target = started_process(str(mark))
        if target is not None and process_start(target[0]) == target[1]:
            living[key] = target[0]
        if status["state"] not in _WITHOUT:
            status["state"] = _tool_state(status, key in living)
    keys = sorted({*sessions, *tools})
    starts = [
        Start(
            *key,
            sessions.get(key),
            tools.get(key),
            settled.get(key),
            living.get(key),
            key not in unborn,
        )
        for key in keys
    ]
    sizes = {}
    for entry in os.scandir(directory) if directory.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # its process has just renamed it
            if entry.is_file():
                sizes[entry.name] = entry.stat().st_size
    return NodeRecord(node, str(directory), tuple(starts), sizes)


def read_nodes(run_directory: str) -> list[NodeRecord]:
    """Read what lies in a run's directory, of whichever nodes."""
    nodes = sorted(
        entry.name
        for entry in os.scandir(run_directory)
        if entry.is_dir() and not entry.name.startswith(".")
    )
    return [read_node(run_directory, node) for node in nodes]


def _tool_state(status: dict[str, Any], worker_lives: bool) -> str:
    """How a tool fares, whatever the shim has last said: Ray kills shims, and users kill what they
    find.
    """
    # Where the profiler's front is gone, its agent goes on with the worker.
    if worker_lives or (
        status["state"] == "running" and process_start(status["pid"]) == status["start"]
    ):
        return "running"
    scratch = status.get("scratch")
    if scratch and os.path.isdir(scratch) and any(tool_processes(scratch)):
        return "finishing"
    return "ended"


def _read_json(file: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def make_directory(output_dir: str, run: str, key: str) -> None:
    """Make the directory of a run, or say why not.

    Args:
        key: the full path of the one that has set `output_dir`.

    Raises:
        OutputError: with `key`, the directory that was given, and what is in the way.
    """
    path = os.path.join(output_dir, run)
    try:
        os.makedirs(path, exist_ok=True)
        probe = Path(path, ".writable")
        probe.touch()
        probe.unlink(missing_ok=True)  # of ranks that do this at once, one is the first
    except OSError as error:
        raise OutputError(
            f"{key}: {output_dir!r} cannot be written: {error.strerror} ({error.filename}); "
            "expected a directory that can be made or written"
        ) from None
