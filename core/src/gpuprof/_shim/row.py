"""A worker's row of the plan, encoded in an environment variable of the worker's process."""

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
"""Placeholder in a tool's command for `exit_code` and its note file. They come before the script,
and save its exit code for tools that lose it."""


class _Launch(TypedDict):
    command: list[str]
    environment: dict[str, str | None]
    verbatim: list[str]
    interpreter: list[str]
    tool: str
    tool_version: str | None
    shared_temporary: list[str]
    disposable_temporary: list[str]


class Launch(_Launch, total=False):
    """What the shim runs in front of the worker.

    Keys:
        verbatim: names of the variables whose values come from the user, and so have no
            placeholders.
        interpreter: the worker's Python; empty for the shim's own.
        shared_temporary: folders of the temporary directory that all the profiler's processes on
            a machine share.
        disposable_temporary: wildcards for files of the temporary directory that hold no recorded
            data.
        apart: run the tool in a session of its own, and keep the shim running in front of it.
    """

    apart: bool


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
    """How much a ledger may record.

    Keys:
        bytes_per_step: bytes that one process may write in a step or, where steps are not counted,
            for each call of a top-level scope.
        total: bytes of all the run's ledgers on a node together.
        sampling: how many times a second the stacks of all threads are sampled; absent for never.
    """

    sampling: float


class Row(_Planned, total=False):
    """Everything that a worker needs from the plan.

    The planner writes the row, the launcher and the shim add keys, and the session reads it.

    Keys:
        version: the version of this layout; readers refuse any other.
        windows: the fields of each planned window, in the order of `Window`.
        max_bytes: how much disk space the run's files may take on a node.
        captured_steps: the steps in which any worker of the run captures, as pairs of a first step
            and the step after the last; absent if `windows` has the same steps.
        ledger: how much the worker's ledger may record; absent if it writes none.
        instruments: libraries whose waits the worker records; absent if there are none.
        step_at: the function or actor method whose calls are steps, if the user has named one.
        watchdog: seconds of silence before the watchdog reports; 0 for never; absent if the
            watchdog decides.
        orders: the directory in which ``gpuprof capture`` leaves its orders.
        print_tree: whether the worker prints its own tree when it ends, because no other process
            does.
        unselected: a message that the process is not profiled, printed at its end if it turns out
            not to be a Ray driver.
        home: the final directory of runs, into which reports are collected from a staging
            directory.
        rank_variable: the environment variable with the rank, where a library starts the ranks; it
            replaces `rank`.
        drives: whether the worker, or a program that it starts, makes the run's workers and counts
            its steps.
        tasks: the group of processes that run Ray tasks; those of an actor inherit its row.
        helps: whether the process only runs functions for the one that started it, as a
            DataLoader's do.
        role: ``owner`` is the worker; ``child`` is a process that inherited the worker's
            environment; ``left out`` is a process that records nothing.
        incarnation: which start of the worker this is, from ``1``. A child has none.
        unwrapped: why the worker runs without the profiler.
        interpreter: the Python of a worker that runs behind the shim but is not in the plan,
            because a profiled worker made it; absent for the shim's own.
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
    helps: bool
    unselected: str
    home: str
    run_directory: str
    rank_variable: str
    drives: bool
    tasks: str
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
    """Whether the profiler writes its own output to a log, separate from the worker's."""
    return starts_worker(command) and list(command) != [INTERPRETER]


def encode(row: Mapping[str, object]) -> str:
    """Encode a row as an environment variable's value, without ``$``, which Ray would expand."""
    return base64.urlsafe_b64encode(json.dumps(row, separators=(",", ":")).encode()).decode()


def decode(value: str) -> Row:
    """Decode a row; the inverse of `encode`.

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
    """The worker's Python from a row of any version; empty if the row does not give it."""
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
