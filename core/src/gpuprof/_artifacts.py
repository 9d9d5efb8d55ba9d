"""What a run left behind: reading a node's directory, and holding it against the plan."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pluggy
from tabulate import tabulate

from gpuprof import _shim
from gpuprof._plan import PlannedWorker
from gpuprof._types import Window
from gpuprof.errors import OutputError

State = Literal["complete", "incomplete", "missing"]
_MANY_ROWS = 20


@attrs.frozen
class Start:
    """One start of a worker, as seen on its node.

    Args:
        session: what the worker wrote about itself, if it used gpuprof.
        tool: what the shim wrote about the profiler, if there was one.
    """

    group: str
    rank: int
    incarnation: str
    session: dict[str, Any] | None
    tool: dict[str, Any] | None

    @property
    def ended(self) -> bool:
        """Whether the profiler has ended, so that its files are final."""
        return self.tool is not None and self.tool["state"] != "running"


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


def read_node(run_directory: str) -> NodeRecord:
    """Read what this node has of a run. Everything may be half-done: the run may go on."""
    node = _shim.node_name()
    directory = Path(run_directory, node)
    sessions: dict[tuple[str, int, str], dict[str, Any]] = {}
    for file in directory.glob("*.json"):
        session = _read_json(file)
        if session is not None and session.get("incarnation"):
            sessions[session["group"], session["rank"], session["incarnation"]] = session
    tools: dict[tuple[str, int, str], dict[str, Any]] = {}
    for file in (directory / ".gpuprof").glob("*.tool"):
        stem, _, incarnation = file.name[: -len(".tool")].rpartition(".start-")
        group, _, rank = stem.rpartition("-")
        status = _read_json(file)
        if status is not None:
            if status["state"] == "running" and _shim.process_start(status["pid"]) != status["start"]:
                status["state"] = "ended"  # and so has the shim, before it could say so: Ray kills what it has started
            tools[group, int(rank), incarnation] = status
    starts = [Start(*key, sessions.get(key), tools.get(key)) for key in sorted({*sessions, *tools})]
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(directory) if entry.is_file()} if directory.is_dir() else {}
    return NodeRecord(node, str(directory), tuple(starts), sizes)


def _read_json(file: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def make_directory(path: str, key: str) -> None:
    """Make a directory, or say why not.

    Raises:
        OutputError: with `key`, the path, and what is in the way.
    """
    try:
        os.makedirs(path, exist_ok=True)
        probe = Path(path, ".writable")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(
            f"{key}: {path!r} cannot be written: {error.strerror}; expected a directory that can be made or written"
        ) from None


@attrs.frozen
class ReceiptRow:
    """One expected file.

    Args:
        worker: ``<group>-<rank>``.
        window: the window's label.
        file: absolute on its node, or ``None`` where none could be expected.
        size: bytes.
        state: of the file.
        reason: why it is not complete.
    """

    worker: str
    node: str
    window: str
    file: str | None
    size: int
    state: State
    reason: str = ""


@attrs.frozen
class Receipt:
    """What was expected, what is there, and what is missing and why.

    Args:
        rows: one for each worker and window, and each restart.
        directory: of the run.
        faults: what went wrong beside missing files.
    """

    rows: tuple[ReceiptRow, ...]
    directory: str | None
    faults: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every expected file is there."""
        return all(row.state == "complete" for row in self.rows)

    def table(self, all_rows: bool = False) -> str:
        """The receipt as text. Beyond 20 rows only what is not complete, unless `all_rows`."""
        if self.directory is None:
            return "Nothing was profiled."
        shown: Sequence[ReceiptRow] = self.rows
        if len(shown) > _MANY_ROWS and not all_rows:
            shown = [row for row in self.rows if row.state != "complete"]
        cells = [
            (
                row.worker,
                row.window,
                self._relative(row.file),
                _size(row.size),
                row.state + (f": {row.reason}" if row.reason else ""),
            )
            for row in shown
        ]
        done = [row for row in self.rows if row.state == "complete"]
        total = (
            f"{len(done)} of {len(self.rows)} reports complete, {_size(sum(row.size for row in done))} in all, in {self.directory}"
        )
        table = tabulate(cells, ["worker", "window", "file", "size", "state"], disable_numparse=True) if cells else ""
        return "\n".join([*([table] if table else []), *(f"fault: {fault}" for fault in self.faults), total])

    def _relative(self, file: str | None) -> str:
        return "" if file is None else os.path.relpath(file, self.directory)

    def to_dict(self) -> dict[str, Any]:
        """The receipt in types that JSON has."""
        return attrs.asdict(self)


def _size(size: int) -> str:
    """Bytes, for people.

    >>> _size(0), _size(135014), _size(3 * 2**20)
    ('0 B', '131.8 KiB', '3.0 MiB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def receipt_rows(planned: PlannedWorker, records: Sequence[NodeRecord], hooks: pluggy.PluginManager) -> list[ReceiptRow]:
    """Hold what the nodes have against one worker's plan: a row for each window, and for each restart that captured it again."""
    worker = planned.worker
    if not hooks.hook.expected_files.get_hookimpls() and not hooks.hook.stop_capture.get_hookimpls():
        return []  # the backend does not say what it leaves
    starts = [
        (start, record) for record in records for start in record.starts if (start.group, start.rank) == (worker.group, worker.rank)
    ]
    rows = []
    for window in worker.windows:
        # Of several starts those that captured the window count; if none did, the last one says why.
        captured = [(start, record) for start, record in starts if window.number in captured_windows(start)]
        for start, record in captured or starts[-1:]:
            rows.append(_row(planned, start, record, window, hooks))
        if not starts:
            rows.append(ReceiptRow(worker.name, "", window.label, None, 0, "missing", "the worker never started"))
    return rows


def captured_windows(start: Start) -> dict[int, dict[str, Any]]:
    """The session's records of the windows that were opened without a fault, by number."""
    windows = start.session["windows"] if start.session else []
    return {window["number"]: window for window in windows if not window["error"]}


def _row(planned: PlannedWorker, start: Start, record: NodeRecord, window: Window, hooks: pluggy.PluginManager) -> ReceiptRow:
    captured = captured_windows(start)
    mine = captured.get(window.number)
    whole_life = window.start is None
    file = None
    if mine is not None and mine["files"]:
        file = mine["files"][0]
    elif mine is not None or whole_life:
        here = attrs.evolve(planned.worker, node=record.node, incarnation=start.incarnation, directory=record.directory)
        opened = tuple(window for window in here.windows if whole_life or window.number in captured)
        file = (hooks.hook.expected_files(worker=here, windows=opened) or {}).get(window.number)
    size = record.sizes.get(os.path.basename(file), 0) if file else 0
    if size and (start.ended or (mine is not None and mine["closed"])):
        return ReceiptRow(planned.worker.name, record.node, window.label, file, size, "complete")
    if size:
        return ReceiptRow(
            planned.worker.name, record.node, window.label, file, size, "incomplete", "the profiler was still writing"
        )
    return ReceiptRow(planned.worker.name, record.node, window.label, file, 0, "missing", _why_missing(start, mine))


def _why_missing(start: Start, window: dict[str, Any] | None) -> str:
    if start.tool is not None and start.tool["state"] == "unwrapped":
        return str(start.tool["reason"])
    if start.session and start.session["faults"]:
        return "; ".join(start.session["faults"])
    if window is None:
        return "the window was never opened" if start.session else "the worker never used gpuprof, so no window was opened"
    if window["closed"] is None:
        return "the worker ended while the window was open"
    return "the profiler left no file" if start.ended else "the profiler has not written it yet"
