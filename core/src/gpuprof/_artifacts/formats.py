"""The types of a run's JSON files, and functions that read them.

For the files that workers and shims write, see `SessionFile` and `ToolStatus`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict, TypeVar

from gpuprof._config.structure import Checker, Invalid, shown
from gpuprof._session.environment import Environment
from gpuprof._session.file import WindowEntry
from gpuprof._shim.safe import LARGEST, UnsafeFile, load_json
from gpuprof.errors import OutputError

RUN_VERSION = 3
RANK_VERSION = 1
SLOW_VERSION = 1
SETTLED_VERSION = 2
MANIFEST_VERSION = 3

LARGEST_MANIFEST = 512 * 2**20
"""Most bytes of a manifest. The rows and files of 10,000 workers take a tenth of this."""
_LARGEST_NUMBER = 2**53
"""Limit of numbers in a file. Real sizes, process ids and times are far smaller."""

_MOST_RANKS = 2**20
"""The most ranks of a process group."""

File = TypeVar("File")
FileState = Literal["complete", "incomplete", "missing"]
ProcessState = Literal["answered", "by signal", "stopped", "dead", "lost", "silent"]


class Process(TypedDict):
    """A process's identity, distinct from later processes with its id and from other containers'.

    Args:
        place: the host and container; see `gpuprof._shim.processes.place`.
        start: the start time; see `gpuprof._shim.processes.process_start`.
    """

    place: str
    pid: int
    start: str | None


class RankProcess(Process):
    """``.ranks/<group>-<rank>.process``: a rank under ``gpuprof run``.

    Args:
        over: whether the rank has ended, recorded for nodes that cannot see its process.
    """

    version: int
    rank: int
    size: int
    over: bool


class RunFile(TypedDict):
    """``run.json``: a run, written when it begins.

    Args:
        begun: when the run began, in seconds since the epoch.
        directory: the original run directory, into which the files are brought home. If the run is
            copied or moved, this does not change.
        working_dir: the directory to which workers write on their nodes.
        config: the settings, without secrets.
        driver: the driver, with which the run ends; ``None`` under ``gpuprof run``.
        environment: the hardware and software of the process that began the run.
        commit: the git commit of the working directory; ``None`` without one.
    """

    version: int
    begun: float
    run: str
    backend: str
    directory: str
    working_dir: str
    config: dict[str, Any]
    driver: Process | None
    environment: Environment
    gpuprof: str
    commit: str | None


class SlowRank(TypedDict):
    """``slow-<number>.json``: a rank that became slow while the run went on.

    Args:
        peer: the name of the healthy rank that was captured beside it.
        says: how slow it was, and what was done, in a sentence.
    """

    version: int
    worker: str
    peer: str
    says: str


class Settled(TypedDict):
    """``<group>-<rank>.start-<incarnation>.settled``: the reports of a profiler that has ended.

    Args:
        files: the paths of the reports, by window number.
        problems: why other reports could not be recovered.
    """

    version: int
    files: dict[str, list[str]]
    problems: list[str]
    windows: list[WindowEntry]


class RowEntry(TypedDict):
    """A row of the receipt; see `ReceiptRow`.

    Args:
        cause: the name of a `Reason`.
        reason: the cause and its details, in a sentence.
    """

    worker: str
    node: str
    window: str
    file: str | None
    size: int
    state: FileState
    cause: str
    reason: str
    planned: str


class ReceiptEntry(TypedDict):
    """The receipt in the manifest; see `Receipt`."""

    rows: list[RowEntry]
    directory: str | None
    faults: list[str]
    overhead: str


class EarlyEnd(TypedDict):
    """A worker whose process ended before the run did, without writing its last state.

    Args:
        incarnation: which start of the worker it was.
        step: the step in which the worker's ledger ends; ``None`` if that is not known.
    """

    worker: str
    node: str
    incarnation: str
    step: int | None
    restarted: bool


class WorkerEntry(TypedDict):
    """A worker of the plan."""

    group: str
    rank: int
    profiled: bool
    reason: str
    command: list[str]
    environment: dict[str, str | None]
    notes: list[str]


class AboutFile(TypedDict, total=False):
    """The worker that wrote a file; for a report, also its window."""

    group: str
    rank: int
    incarnation: str
    window: str
    step: int | None
    steps_end: int | None
    opened: float | None
    closed: float | None
    seconds: float | None
    tool_version: str | None


class FileEntry(AboutFile):
    """A file of the run."""

    node: str
    file: str
    size: int
    sha256: str


class Setup(TypedDict):
    """The setup that two runs must have in common to be compared.

    Args:
        commit: the git commit of the working directory of the driver, or of the first rank.
        versions: the sorted versions, over all processes of the run, of ``gpuprof``, ``python``,
            ``torch``, ``ray``, the GPUs' ``driver`` and the ``profiler``.
        nodes: the names of the workers on each node, by the node's name.
        gpus: the names of each node's GPUs, by the node's name.
    """

    backend: str
    config: dict[str, Any]
    commit: str | None
    versions: dict[str, list[str]]
    nodes: dict[str, list[str]]
    gpus: dict[str, list[str]]


class _ManifestOfLeftovers(TypedDict):
    version: int
    run: str
    backend: str
    setup: Setup
    receipt: ReceiptEntry
    files: list[FileEntry]


class Manifest(_ManifestOfLeftovers, total=False):
    """``manifest.json``: how a run ended.

    Args:
        workers: the plan; absent if ``gpuprof collect`` finished the run without knowing the plan.
        ended_early: workers that were killed or crashed; absent if the driver died, because its
            workers then die with it.
        ended_by_job: workers that the job itself ended before the run's end, for example with
            `ray.kill`; absent without a driver, because only a driver can tell them from crashed
            workers.
    """

    workers: list[WorkerEntry]
    ended_early: list[EarlyEnd]
    ended_by_job: list[EarlyEnd]


class Frame(list["str | int"]):
    """A function's name, its file, and the line that it is at."""

    TAKES: ClassVar[tuple[str, ...]] = ("a list of function, file and line",)

    @classmethod
    def parse(cls, value: object) -> Frame:
        """The frame."""
        if not isinstance(value, list) or [type(part) for part in value] != [str, str, int]:
            raise Invalid(value, cls.TAKES[0])
        return cls(value)


class Stretch(list[int]):
    """Ranks in equal distances: the first one, the distance, and how many they are."""

    TAKES: ClassVar[tuple[str, ...]] = ("a list of first rank, distance and count",)

    @classmethod
    def parse(cls, value: object) -> Stretch:
        """The stretch."""
        if not isinstance(value, list) or [type(part) for part in value] != [int, int, int]:
            raise Invalid(value, cls.TAKES[0])
        _, distance, count = value
        if not distance or not 0 <= count <= _MOST_RANKS:
            raise Invalid(value, cls.TAKES[0])
        return cls(value)


class _OpenScope(TypedDict):
    path: str
    seconds: float


class OpenScope(_OpenScope, total=False):
    """The innermost open scope of a thread or task."""

    waits_for: str | None


class CallsWaitedFor(TypedDict):
    """What a call on a stack waits for: the key of each call, and its actor's id."""

    on: str
    calls: list[list[str]]


class CallThatRuns(TypedDict):
    """A Ray call on a stack: its key."""

    runs: str
    name: str


class TaskNow(TypedDict):
    """What a task does; see `gpuprof._session.dump.snapshot`."""

    name: str
    frames: list[Frame]
    scope: OpenScope | None
    waits: list[CallsWaitedFor | CallThatRuns]


class ThreadNow(TaskNow):
    """What a thread does.

    Args:
        cpu: seconds for which it has run, or was ready to.
    """

    id: int
    main: bool
    cpu: float | None


class GroupNow(TypedDict):
    """A process group of torch.distributed, and how many collectives this rank has begun in it."""

    name: str
    ranks: list[Stretch]
    begun: int


class InFlight(TypedDict):
    """The oldest collective of a process group that torch's flight recorder has not seen end.

    Or the oldest call between two ranks, which has a number of another kind.
    """

    name: str
    group: str
    between_two: bool
    operation: str
    number: int
    seconds: float


class Connected(TypedDict):
    """A worker that is connected to a driver."""

    worker: str
    node: str
    pid: int
    file: str


class _WhoAnswers(TypedDict):
    version: int
    name: str
    group: str
    rank: int
    node: str
    pid: int
    threads: list[ThreadNow]


_WhatElse = TypedDict(
    "_WhatElse",
    {
        "state": ProcessState,
        "time": float,
        "step": int | None,
        "quiet": float | None,
        "ended": int,
        "tasks": list[TaskNow],
        "actor": str,
        "rank of job": int | None,
        "groups": list[GroupNow],
        "flight": list[InFlight],
        "workers": list[Connected],
    },
    total=False,
)


class Answer(_WhoAnswers, _WhatElse):
    """``.dumps/<question>/<node>.<file>``: what a process does now, or did last."""


def load(path: str | Path, most: int = LARGEST) -> dict[str, Any]:
    """Load one of a run's files without checking its content.

    Raises:
        OutputError: it cannot be read, is not a regular file, is too large, or is not a JSON
            mapping.
    """
    try:
        data = load_json(path, most)
    except FileNotFoundError:
        raise
    except UnsafeFile as error:
        raise OutputError(f"{path}: ignored: damaged: {error}") from None
    except OSError as error:
        raise OutputError(f"{path}: ignored: cannot be read: {error.strerror}") from None
    if not isinstance(data, dict):
        raise OutputError(f"{path}: ignored: damaged: expected a JSON mapping")
    return data


def check(path: str | Path, data: dict[str, Any], kind: type[File], version: int) -> File:
    """Check the version of a loaded file, then its types."""
    if data.get("version") != version:
        raise OutputError(
            f"{path}: ignored: version {shown(data.get('version'))}; expected version {version}. "
            "Use one release of gpuprof for a whole run"
        )
    checker = _FileChecker()
    content: File = checker.check(data, kind, "")
    if checker.problems:
        raise OutputError(f"{path}: ignored: damaged: {checker.problems[0]}")
    return content


def read(path: str | Path, kind: type[File], version: int) -> File:
    """Read and check one of a run's files."""
    return check(path, load(path), kind, version)


class _FileChecker(Checker):
    """Also rejects values that gpuprof never writes, so that readers need not expect them."""

    def fits(self, value: Any, kind: Any) -> bool:
        """Whether a value is of this type."""
        if isinstance(value, str) and "\0" in value:
            return False
        if isinstance(value, (int, float)) and not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
            return False
        return super().fits(value, kind)
