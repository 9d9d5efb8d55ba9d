"""The JSON files of a run: their types, and reading one.

Workers and their shims write files too: see `SessionFile` and `ToolStatus`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

from gpuprof._config.structure import Checker, shown
from gpuprof._session.environment import Environment
from gpuprof._session.file import WindowEntry
from gpuprof._shim.safe import LARGEST, UnsafeFile, load_json
from gpuprof.errors import OutputError

RUN_VERSION = 3
RANK_VERSION = 1
SETTLED_VERSION = 2
MANIFEST_VERSION = 3

LARGEST_MANIFEST = 512 * 2**20
"""Bytes: rows and files of 10,000 workers take a tenth of it."""
_LARGEST_NUMBER = 2**53
"""No size, process id or time in a file comes near it."""

File = TypeVar("File")
FileState = Literal["complete", "incomplete", "missing"]


class Process(TypedDict):
    """A process, told from later ones with the same id and from those of other containers."""

    place: str
    pid: int
    start: str | None


class RankProcess(Process):
    """``.ranks/<group>-<rank>.process``: a rank under ``gpuprof run``.

    Args:
        size: how many ranks the launch has.
        over: whether the rank has ended, for nodes that cannot see its process.
    """

    version: int
    rank: int
    size: int
    over: bool


class RunFile(TypedDict):
    """``run.json``: a run, written when it begins.

    Args:
        begun: seconds since the epoch.
        directory: the run's own, where its files come home. A copy of the run lies elsewhere.
        working_dir: where workers write on their nodes.
        config: the settings, without secrets.
        driver: the process that the run lasts as long as; ``None`` under ``gpuprof run``.
        environment: what the process that began the run runs on and with.
        gpuprof: the version of gpuprof.
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


class Settled(TypedDict):
    """``<group>-<rank>.start-<incarnation>.settled``: the reports of a profiler that has ended.

    Args:
        files: the reports, by window number.
        problems: why others could not be recovered.
        windows: those that were captured.
    """

    version: int
    files: dict[str, list[str]]
    problems: list[str]
    windows: list[WindowEntry]


class RowEntry(TypedDict):
    """A row of the receipt; see `ReceiptRow`.

    Args:
        cause: the name of a `Reason`.
        reason: the cause and its details as people read them.
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
    """A worker whose process ended before the run did, without writing what it still knew.

    Args:
        worker: ``<group>-<rank>``.
        incarnation: its start.
        step: in which its ledger ends; ``None`` if that is not known.
        restarted: whether the worker was started again.
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
    """The worker that wrote a file, and for a report its window."""

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
    """What two runs must have in common to be compared. Masks secrets as ``run.json`` does.

    Args:
        config: the settings.
        commit: the git commit of the driver's working directory, or of the first rank's.
        versions: of ``gpuprof``, ``python``, ``torch``, ``ray``, the GPUs' ``driver`` and the
            ``profiler``: all that the run's processes had, in order.
        nodes: the workers on each node, by its name.
        gpus: the names of each node's GPUs.
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
        workers: the plan; absent where ``gpuprof collect`` finished the run without it.
        ended_early: workers that were killed or crashed; absent where the driver died, as its
            workers then end with it.
        ended_by_job: workers that the job itself ended before the run did, as with `ray.kill`;
            absent without a driver, as nobody else knows them from crashed ones.
    """

    workers: list[WorkerEntry]
    ended_early: list[EarlyEnd]
    ended_by_job: list[EarlyEnd]


def load(path: str | Path, most: int = LARGEST) -> dict[str, Any]:
    """Load one of a run's files without checking its content.

    Args:
        most: bytes of the file.

    Raises:
        FileNotFoundError: there is none.
        OutputError: it cannot be read, is not a regular file, is too large, or is no JSON mapping.
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
    """Check the version of a loaded file, then its types.

    Raises:
        OutputError: with the path and what is wrong.
    """
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
    """Read and check one of a run's files.

    Raises:
        FileNotFoundError: there is none.
        OutputError: it cannot be read, is damaged, or of another version; with its path and what is
            wrong.
    """
    return check(path, load(path), kind, version)


class _FileChecker(Checker):
    """Also rejects values that no file of a run has, so that readers need not expect them."""

    def fits(self, value: Any, kind: Any) -> bool:
        """Whether a value is of this type."""
        if isinstance(value, str) and "\0" in value:
            return False
        if isinstance(value, (int, float)) and not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
            return False
        return super().fits(value, kind)
