"""A worker's row of the plan, as it travels to its process."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

VARIABLE = "GPUPROF_WORKER"
VERSION = 1
INTERPRETER = "{interpreter}"
LEFT_OUT: Final = "left out"
KEEP_EXIT_CODE = "{keep_exit_code}"
"""Placeholder in a command for the words in front of a script that save the script's exit code,
for tools that lose it."""


class _Launch(TypedDict):
    command: list[str]
    environment: dict[str, str | None]
    verbatim: list[str]
    interpreter: list[str]
    tool: str
    tool_version: str | None
    shared_temporary: list[str]


class Launch(_Launch, total=False):
    """What the shim runs in front of the worker.

    Keys:
        command: the profiler's command line, with placeholders.
        environment: variables to add; ``None`` unsets.
        verbatim: those without placeholders, as the user gave them.
        interpreter: the worker's Python; empty for the shim's own.
        tool: the path of the profiler's program.
        tool_version: its release.
        shared_temporary: folders of the temporary directory that all its processes share.
        apart: run the tool in a session of its own, and stay in front of it.
        verbose: also print what goes to the profiler's log.
    """

    apart: bool
    verbose: bool


class _Planned(TypedDict):
    version: int
    run: str
    group: str
    rank: int
    output_dir: str
    has_gpu: bool
    profiled: bool
    windows: list[tuple[Any, ...]]
    discrete: bool
    file_name: str | None
    max_bytes: int | None


class _Limits(TypedDict):
    bytes_per_step: int
    total: int


class LedgerLimits(_Limits, total=False):
    """How much a ledger may take.

    Keys:
        bytes_per_step: of one process; where steps are not counted, for each call of a top-level
            scope.
        total: bytes of all ledgers of the run on a node.
        sampling: how many times a second the stacks of all threads are sampled; absent for never.
    """

    sampling: float


class Row(_Planned, total=False):
    """All that a worker needs from the plan.

    The planner writes the row, the launcher and the shim add to it, the session reads it.

    Keys:
        version: of this layout; readers refuse another one.
        windows: the fields of each planned window, in the order of `Window`.
        max_bytes: how much the run's files may take on a node.
        finish_command: run at the end of the last window.
        captured_steps: the steps in which any worker of the run captures, as pairs of the first
            one and the one after the last; absent if they are those of `windows`.
        ledger: what the worker's ledger may take; absent if it writes none.
        instruments: libraries whose waits the worker records; absent if there are none.
        library_steps: whether an instrument marks steps while the job does not.
        step_at: the function or the actor's method whose calls are steps, if the user says so.
        watchdog: seconds of silence before the watchdog reports; 0 for never; absent if it decides.
        orders: the directory in which ``gpuprof capture`` leaves its orders.
        node_ids: whether several nodes share a host name.
        print_tree: whether the worker prints its tree at its end, as nobody else does.
        unselected: what to say at the end if the process turns out to be no driver on Ray: that it
            is not profiled.
        home: the final directory of the runs, where reports are collected from a staging one.
        run_directory: the run's directory where its files are brought in the end.
        rank_variable: the variable that has the rank instead, where a library starts the ranks.
        drives: whether the worker, or what it starts, makes the run's workers and counts its steps.
        role: ``owner`` is the worker; ``child`` a process that inherited its environment; ``left
            out`` one that records nothing.
        incarnation: which start of the worker this is, from ``1``. A child has none.
        unwrapped: why the worker runs without the profiler.
        interpreter: the Python of a worker that has the shim in front of it without a plan for it,
            as it is made by one that is profiled; absent for the shim's own.
    """

    captured_steps: list[tuple[int, int]]
    # of a profiled worker
    backend: str
    options: dict[str, Any]
    plugins: list[str]
    plugin_options: dict[str, dict[str, Any]]
    on_error: Literal["disable", "raise"]
    discrete_labels: list[str]
    max_windows: int
    continuous: bool
    nodes: list[str]
    launch: Launch
    # from the launcher
    finish_command: str
    ledger: LedgerLimits
    instruments: list[str]
    library_steps: bool
    step_at: str
    watchdog: float
    orders: str
    node_ids: bool
    print_tree: bool
    unselected: str
    home: str
    run_directory: str
    rank_variable: str
    drives: bool
    # known on the node only
    role: Literal["owner", "child", "left out"]
    node: str
    incarnation: str
    unwrapped: str
    interpreter: list[str]


def starts_worker(command: Sequence[str]) -> bool:
    """Whether a command seems to start the interpreter as a process of its own.

    >>> starts_worker(["nsys", "profile", "{interpreter}"]), starts_worker(["python", "-m", "tool"])
    (True, False)
    """
    return any(INTERPRETER in word for word in command)


def has_log(command: Sequence[str]) -> bool:
    """Whether the profiler's output is separate from the worker's, so that it goes to a log."""
    return starts_worker(command) and list(command) != [INTERPRETER]


def encode(row: Mapping[str, object]) -> str:
    """A row as a value that survives Ray, which expands ``$`` in environment variables."""
    return base64.urlsafe_b64encode(json.dumps(row, separators=(",", ":")).encode()).decode()


def decode(value: str) -> Row:
    """The inverse of `encode`.

    Raises:
        ValueError: the value is not a row, or has another version.
    """
    row = _parse(value)
    if row.get("version") != VERSION:
        raise ValueError(
            f"{VARIABLE} has version {row.get('version')!r}, expected {VERSION}: install the same "
            "release of gpuprof here and where the job is launched"
        )
    return row  # type: ignore[return-value, unused-ignore]


def planned_interpreter(value: str) -> list[str]:
    """The worker's Python in a row of any version; empty if the row does not tell."""
    try:
        words = _parse(value)["launch"]["interpreter"]
        return [word for word in words if isinstance(word, str)]
    except (ValueError, KeyError, TypeError):
        return []


def _parse(value: str) -> dict[str, Any]:
    try:
        row = json.loads(base64.urlsafe_b64decode(value))
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"{VARIABLE} is not a row of a plan; gpuprof sets this variable itself")
    return row
