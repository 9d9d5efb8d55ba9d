"""The file that a session leaves: `<group>-<rank>.start-<incarnation>.json`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from gpuprof._session.environment import Environment
from gpuprof.backend.types import Window

SESSION_VERSION = 5

WindowState = Literal[
    "planned", "asked", "opening", "open", "closing", "closed", "refused", "failed"
]
"""Of a window: the profiler has it from ``opening`` to ``closing``, and the last three are ends."""


class WindowEntry(TypedDict):
    """A window, and what has become of it.

    Args:
        number: which window of the worker it is, as `label` to `occurrence` are; see
            `gpuprof.backend.types.Window`.
        opened: seconds since the epoch; ``None`` if the profiler was not asked to open it.
        closed: the same; ``None`` while it is open.
        seconds: how long it recorded, without what the profiler took to start and to stop.
        files: its reports, once they have their final names.
        extras: the files of plugins beside the backend.
        error: why it was not captured.
    """

    number: int
    label: str
    start: int | None
    stop: int | None
    scope: str | None
    occurrence: int
    state: WindowState
    opened: float | None
    closed: float | None
    seconds: float | None
    files: list[str] | None
    extras: list[str]
    error: str | None


class StepSums(TypedDict):
    """Sums and counts of step durations in seconds; see `gpuprof._session.step_times`."""

    inside: float
    outside: float
    count_inside: int
    count_outside: int
    edges: float


class TotalsEntry(TypedDict):
    """What the steps of a process add up to; see `gpuprof._session.totals`.

    Args:
        sums: by the attribute's name; integers are exact, of any size.
        seconds: from the beginning of the first of these steps to the end of the last.
    """

    sums: dict[str, Any]
    seconds: float


class _TreeEntry(TypedDict):
    timing: dict[str, Any]
    while_profiling: dict[str, Any] | None
    steps_left_out: int
    whole_life: bool


class TreeEntry(_TreeEntry, total=False):
    """The times of a process, as `gpuprof_timing.Timing.to_dict` writes trees.

    Args:
        timing: the tree, without the steps that profiling slowed.
        while_profiling: the tree of those steps; ``None`` if there were none.
        steps_left_out: their number.
        whole_life: whether the process was captured from its start, so that all its times have
            what the profiler costs.
        totals: absent if its steps have no attributes.
    """

    totals: TotalsEntry


class SessionFile(TreeEntry):
    """One process of a worker.

    Args:
        incarnation: the start of the worker; ``None`` in a child process.
        process_start: tells the process from later ones with the same id.
        behind_profiler: whether the shim started the process, behind the profiler if one was
            planned.
        skipped: how many discrete windows were not captured, by reason.
        step: the last step of a worker that counts its own steps.
        over: whether the process has written all that it knows, as it has ended, or the run has. A
            killed process has not.
        drives: whether the process drives the workers of a job on Ray, so that ``Runner.json`` has
            the same tree.
        environment: what the process runs on and with.
    """

    version: int
    name: str
    run: str
    group: str
    rank: int
    node: str
    incarnation: str | None
    pid: int
    process_start: str | None
    profiled: bool
    behind_profiler: bool
    unwrapped: str | None
    windows: list[WindowEntry]
    skipped: dict[str, int]
    faults: list[str]
    step: int | None
    step_times: StepSums
    over: bool
    drives: bool
    environment: Environment


def new_entry(window: Window, state: WindowState = "planned") -> WindowEntry:
    """The entry of a window to which nothing has happened yet."""
    return {
        "number": window.number,
        "label": window.label,
        "start": window.start,
        "stop": window.stop,
        "scope": window.scope,
        "occurrence": window.occurrence,
        "state": state,
        "opened": None,
        "closed": None,
        "seconds": None,
        "files": None,
        "extras": [],
        "error": None,
    }


def window_of(entry: WindowEntry) -> Window:
    """The window that an entry is about."""
    return Window(
        entry["number"], entry["start"], entry["stop"], entry["scope"], entry["occurrence"]
    )


def files_of(window: WindowEntry) -> list[str]:
    """The files of a window, the backend's first."""
    return [*(window["files"] or ()), *window["extras"]]
