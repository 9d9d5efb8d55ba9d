"""The file that a session leaves: `<group>-<rank>.start-<incarnation>.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from gpuprof._session.environment import Environment

if TYPE_CHECKING:
    from gpuprof.backend.types import Window

SESSION_VERSION = 5

WindowState = Literal[
    "planned", "asked", "opening", "open", "closing", "closed", "refused", "failed"
]
"""The state of a window. The profiler is busy with the window from ``opening`` to ``closing``. The
last three states are final."""


class WindowEntry(TypedDict):
    """A window and its outcome.

    `number`, `label`, `start`, `stop`, `scope` and `occurrence` are those of the window; see
    `gpuprof.backend.types.Window`.

    Args:
        opened: when the profiler was asked to open the window, in seconds since the epoch; ``None``
            if it was not asked.
        closed: when the window was closed or failed, in seconds since the epoch; ``None`` until
            then, and if it was never opened.
        seconds: how long the window recorded, without the time that the profiler took to start and
            stop.
        files: the backend's reports; ``None`` if there are none.
        error: why the window was not captured; ``None`` if nothing went wrong.
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
    """The summed step attributes of a process; see `gpuprof._session.totals`.

    Args:
        sums: the sum of each attribute, by its name; integers are exact, of any size.
        seconds: the time from the beginning of the first step with attributes to the end of the
            last.
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
        while_profiling: the tree of the steps that profiling slowed; ``None`` without such steps.
        steps_left_out: the number of steps that profiling slowed.
        whole_life: whether the process was captured from its start, so that all its times include
            the profiler's overhead.
    """

    totals: TotalsEntry


class SessionFile(TreeEntry):
    """The content of a session's file, about one process of a worker.

    Args:
        incarnation: identifies this start of the worker; ``None`` in a child process.
        process_start: distinguishes the process from a later one with the same id.
        behind_profiler: whether the shim started the process. If a profiler was planned, the
            process then runs under it.
        skipped: how many discrete windows were not captured, by reason.
        step: the last step of a worker that counts its own steps.
        over: whether the file is final, because the process or the run has ended. It is false for
            a killed process.
        drives: whether the process drives the workers of a job on Ray. If so, ``Runner.json`` has
            the same tree.
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
    """The window that an entry describes."""
    from gpuprof.backend.types import Window  # slow to import, and readers of runs need it rarely

    return Window(
        entry["number"], entry["start"], entry["stop"], entry["scope"], entry["occurrence"]
    )


def files_of(window: WindowEntry) -> list[str]:
    """The files of a window, the backend's first."""
    return [*(window["files"] or ()), *window["extras"]]
