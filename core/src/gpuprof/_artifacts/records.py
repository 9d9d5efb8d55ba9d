"""Read a run's files on one node: session files, the states of profilers, and all file sizes."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import attrs

from gpuprof._artifacts.formats import SETTLED_VERSION, Settled, read
from gpuprof._session.file import SESSION_VERSION, SessionFile, WindowEntry, files_of
from gpuprof._shim.files import STATUS_VERSION, ToolState, ToolStatus
from gpuprof._shim.node import node_name
from gpuprof._shim.ownership import scratch_problem
from gpuprof._shim.processes import process_start, started_process
from gpuprof._shim.scratch import tool_processes
from gpuprof._shim.tool_log import last_words
from gpuprof.errors import OutputError

_WITHOUT = ("unwrapped", "unselected")
_OF_START = re.compile(r"(.+)-(\d+)\.start-(\d+)\.(json|tool|settled)")

_PRIVATE = (".gpuprof", ".ranks", ".orders", ".dumps")
_OWN = re.compile(
    r"manifest\.json|run\.json|Runner\.json|.+-\d+\.(start|child)-\d+\.json|.+-\d+\.start-\d+\.log|.+\.(ledger|stacks)|.+-\d+\.finish\..*|\..*"
)

Key = tuple[str, int, str]
File = TypeVar("File")


@attrs.frozen(eq=False)
class Start:
    """One start of a worker, as seen on its node.

    Args:
        session: the worker's session file; ``None`` if the worker did not use gpuprof.
        tool: the shim's file about the profiler, with the profiler's present state; ``None``
            without a profiler.
        settled: the record of the reports, written after the worker and its profiler had ended.
        process: the worker's process id while the worker lives, else ``None``.
        pid: the worker's process id, also after its end; 0 if the worker left no mark.
        began: whether the worker has started at all. Ray ends processes that it does not need,
            some while their profiler starts.
        last_words: the last lines of the profiler's log; empty if the profiler printed nothing.
    """

    group: str
    rank: int
    incarnation: str
    session: SessionFile | None
    tool: ToolStatus | None
    settled: Settled | None = None
    process: int | None = None
    began: bool = True
    pid: int = 0
    last_words: str = ""

    @property
    def files(self) -> list[str]:
        """The files that have their final names."""
        files_by_window = self.settled["files"].values() if self.settled else ()
        return [
            file
            for files in (
                *map(files_of, self.windows),
                *files_by_window,
            )
            for file in files
        ]

    @property
    def windows(self) -> list[WindowEntry]:
        """The windows that the worker was told to open."""
        return self.session["windows"] if self.session else []

    @property
    def name(self) -> str:
        """The worker's name, without the number of the start."""
        return f"{self.group}-{self.rank}"

    @property
    def stem(self) -> str:
        """The beginning of the names of this start's files."""
        return f"{self.name}.start-{self.incarnation}"

    @property
    def log(self) -> str:
        """The name of the profiler's log."""
        return f"{self.stem}.log"

    @property
    def state(self) -> ToolState | None:
        """The profiler's state; ``None`` without a profiler."""
        return self.tool["state"] if self.tool else None

    @property
    def left_out(self) -> bool:
        """Whether the worker started on a node where it is not profiled."""
        return self.state == "unselected" or (
            self.session is not None and not self.session["profiled"]
        )

    @property
    def over(self) -> bool:
        """Whether the worker and its profiler have ended."""
        return self.process is None and (self.tool is None or self.ended)

    @property
    def ended(self) -> bool:
        """Whether the profiler has ended, so that its files are final."""
        return self.state in ("ended", *_WITHOUT)


@attrs.frozen
class NodeRecord:
    """One node's part of a run.

    Args:
        directory: the run directory's absolute path on that node, with the node's name.
        sizes: the size of each regular file in the directory in bytes, by name.
        faults: a message for each file that could not be read.
        damaged: what is wrong with each report that cannot be read, by the report's name.
    """

    node: str
    directory: str
    starts: tuple[Start, ...]
    sizes: Mapping[str, int]
    faults: tuple[str, ...] = ()
    damaged: Mapping[str, str] = attrs.field(factory=dict)

    def of(self, group: str, rank: int) -> NodeRecord:
        """The part of the record that belongs to one worker, including its child processes."""
        starts = tuple(start for start in self.starts if (start.group, start.rank) == (group, rank))
        own = {os.path.basename(file) for start in starts for file in start.files}
        prefixes = (f"{group}-{rank}.start-", f"{group}-{rank}.child-", f"{group}-{rank}.finish.")
        sizes = {
            name: size
            for name, size in self.sizes.items()
            if name in own or name.startswith(prefixes)
        }
        return attrs.evolve(self, starts=starts, sizes=sizes)


def is_own(file: Path) -> bool:
    """Whether a file is one of gpuprof's own, and so not a report.

    >>> is_own(Path("run/node/A-0.start-1.json")), is_own(Path("run/node/A-0.step-1.json"))
    (True, False)
    """
    return _OWN.fullmatch(file.name) is not None or file.parent.name in _PRIVATE


def read_node(run_directory: str, node: str | None = None) -> NodeRecord:
    """Read this node's part of a run, which may still be running.

    Args:
        node: a dead node's name, to read that node's files on a shared file system instead.
    """
    node = node or node_name()
    directory = Path(run_directory, node)
    private = directory / ".gpuprof"
    faults: list[str] = []
    for place in (directory, private):
        if place.is_symlink():
            return NodeRecord(node, str(directory), (), {}, (f"{place}: ignored: a link",))
    sessions = _read_all(directory, "json", SessionFile, SESSION_VERSION, faults)
    tools = _read_all(private, "tool", ToolStatus, STATUS_VERSION, faults)
    settled = _read_all(private, "settled", Settled, SETTLED_VERSION, faults)
    living: dict[Key, int] = {}
    pids: dict[Key, int] = {}
    unborn = set()
    for key, session in sessions.items():
        pids[key] = session["pid"]
        if session["process_start"] and process_start(session["pid"]) == session["process_start"]:
            living[key] = session["pid"]
    for key, status in tools.items():
        mark = private / f"{key[0]}-{key[1]}.start-{key[2]}.target"
        if status["marks"] and key not in sessions and not os.path.lexists(mark):
            unborn.add(key)
        target = started_process(str(mark))
        if target is not None:
            pids.setdefault(key, target[0])
        if target is not None and process_start(target[0]) == target[1]:
            living[key] = target[0]
        scratch = status["scratch"]
        stem = f"{key[0]}-{key[1]}.start-{key[2]}"
        # keep the path of a removed directory: others may lie next to it
        if scratch and os.path.lexists(scratch):
            problem = scratch_problem(scratch, str(private), stem)
            if problem:
                where = f"{private / stem}.tool"
                faults.append(f"{where}: temporary directory {scratch} left alone: {problem}")
                status["scratch"] = ""
        if status["state"] not in _WITHOUT:
            status["state"] = _tool_state(status, key in living if key in pids else None)
    keys = sorted({*sessions, *tools})
    starts = [
        Start(
            *key,
            session=sessions.get(key),
            tool=tools.get(key),
            settled=settled.get(key),
            process=living.get(key),
            began=key not in unborn,
            pid=pids.get(key, 0),
            last_words=last_words(str(directory / f"{key[0]}-{key[1]}.start-{key[2]}.log")),
        )
        for key in keys
    ]
    sizes = {}
    try:
        for entry in os.scandir(directory) if directory.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # its process has just renamed it
                if entry.is_file(follow_symlinks=False):
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    except OSError as error:
        faults.append(f"{directory}: cannot be read: {error.strerror}")
    return NodeRecord(node, str(directory), tuple(starts), sizes, tuple(faults))


def read_nodes(run_directory: str) -> list[NodeRecord]:
    """Read the files of every node in a run's directory."""
    nodes = sorted(
        entry.name
        for entry in os.scandir(run_directory)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    )
    return [read_node(run_directory, node) for node in nodes]


def _tool_state(status: ToolStatus, worker_lives: bool | None) -> ToolState:
    """A tool's present state. The status file may be stale, because Ray and users kill shims.

    Args:
        worker_lives: ``None`` if that is not known, for example before the worker's start.
    """
    # if the process that we started has gone, the profiler's agent continues with the worker
    lives = bool(status["start"]) and process_start(status["pid"]) == status["start"]
    scratch = status["scratch"]
    if worker_lives or (
        status["state"] == "running" and lives and (worker_lives is None or not scratch)
    ):
        return "running"
    if scratch and os.path.isdir(scratch) and any(tool_processes(scratch)):
        return "finishing"
    return "ended"


def _read_all(
    directory: Path, suffix: str, kind: type[File], version: int, faults: list[str]
) -> dict[Key, File]:
    """Read the files of one kind in a directory, for every start.

    Args:
        faults: a list, to which a sentence is added for each file that is damaged or has another
            version.
    """
    contents: dict[Key, File] = {}
    for key, file in _of_starts(directory, suffix):
        try:
            contents[key] = read(file, kind, version)
        except OutputError as error:
            faults.append(str(error))
        except FileNotFoundError:  # its process has just renamed it
            pass
    return contents


def _of_starts(directory: Path, suffix: str) -> Iterator[tuple[Key, Path]]:
    for file in sorted(directory.glob(f"*.{suffix}")):
        parts = _OF_START.fullmatch(file.name)
        if parts:
            yield (parts[1], int(parts[2]), parts[3]), file
