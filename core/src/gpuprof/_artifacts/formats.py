"""The JSON files of a run: their types, and reading one.

Workers and their shims write files too: see `SessionFile` and `ToolStatus`.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, get_args, get_origin

import cattrs

from gpuprof._session.file import WindowPlace
from gpuprof.errors import OutputError

RUN_VERSION = 1
RANK_VERSION = 1
SETTLED_VERSION = 1
MANIFEST_VERSION = 2

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
        working_dir: where workers write on their nodes.
        config: the settings, without secrets.
        driver: the process that the run lasts as long as; ``None`` under ``gpuprof run``.
    """

    version: int
    begun: float
    run: str
    backend: str
    working_dir: str
    config: dict[str, Any]
    driver: Process | None


class Settled(TypedDict):
    """``<group>-<rank>.start-<incarnation>.settled``: what a profiler left, once it has ended.

    Args:
        files: the reports, by window number.
        problems: why others could not be recovered.
        windows: those that were captured.
    """

    version: int
    files: dict[str, list[str]]
    problems: list[str]
    windows: list[WindowPlace]


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
    """What is known of a file: the worker that wrote it, and of a report the window it holds."""

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


class _ManifestOfLeftovers(TypedDict):
    version: int
    run: str
    backend: str
    receipt: ReceiptEntry
    files: list[FileEntry]


class Manifest(_ManifestOfLeftovers, total=False):
    """``manifest.json``: how a run ended.

    Args:
        workers: the plan; absent where ``gpuprof collect`` finished the run without it.
    """

    workers: list[WorkerEntry]


def load(path: str | Path) -> dict[str, Any]:
    """Load one of a run's files without checking what it holds.

    Raises:
        OSError: it cannot be read.
        OutputError: it is no JSON mapping.
    """
    try:
        data = json.loads(Path(path).read_text())
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{path}: ignored: damaged: not JSON: {error}") from None
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
            f"{path}: ignored: version {data.get('version')!r}; expected version {version}. "
            "Use one release of gpuprof for a whole run"
        )
    try:
        return _converter().structure(data, kind)
    except Exception as error:
        problem, _, key = cattrs.transform_error(error, "", _what_is_wrong)[0].rpartition(" @ ")
        raise OutputError(f"{path}: ignored: damaged: {key.lstrip('.')}: {problem}") from None


def read(path: str | Path, kind: type[File], version: int) -> File:
    """Read and check one of a run's files.

    Raises:
        OSError: it cannot be read.
        OutputError: it is damaged, or of another version; with its path and what is wrong.
    """
    return check(path, load(path), kind, version)


def _what_is_wrong(error: BaseException, _: type | None) -> str:
    """What is wrong with a value, in a few words."""
    return "missing" if isinstance(error, KeyError) else str(error)


@functools.cache
def _converter() -> cattrs.Converter:
    """Checks types and converts nothing."""
    converter = cattrs.Converter()
    for kind in (str, bool, int, float):
        converter.register_structure_hook(kind, _exact)
    converter.register_structure_hook_func(
        _is_list,
        lambda value, kind: [
            converter.structure(each, get_args(kind)[0]) for each in _exact(value, list)
        ],
    )
    converter.register_structure_hook_func(_is_literal, _choice)
    return converter


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _choice(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if value not in choices:
        raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
    return value


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list


def _exact(value: Any, kind: Any) -> Any:
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise TypeError(f"{value!r} is not of type {kind.__name__}")
