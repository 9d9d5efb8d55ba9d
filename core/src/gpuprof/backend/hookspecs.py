"""The contract between gpuprof and a backend: every hook, in one file.

A backend is a class. An entry point in the group ``gpuprof.backends`` names it; the entry's name
is the backend's name. Its attrs class `Options` describes its settings, with help in each field's
metadata. gpuprof makes one instance per plan and one per session, each with an `Options`.
`contract` is the version of the contract that the class is written for, or the first and the last
one. With ``start_in_thread = True`` windows are opened and closed on the job's thread that marks
the steps.

The class implements the hooks below with `gpuprof.backend.hookimpl`; a hook may leave out arguments
that it does not need. Its attribute `exclusive` lists resources that allow one client per process
(``CUPTI``): gpuprof refuses two plugins that need the same one.

Hooks with one answer belong to the backend. Extra plugins, in the group ``gpuprof.plugins``, may
have `diagnose`, `inject_env`, `plan_notes`, `start_capture` and `stop_capture`.

Results are checked. A path is a string or any `os.PathLike`; a list may be a tuple; ``None`` always
means nothing. Whatever a hook raises, `sys.exit` included, is a fault of the plugin; only Ctrl-C
passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from gpuprof.backend.types import (
        Check,
        Collected,
        Command,
        Purpose,
        RangeTimes,
        RecordedTrack,
        Tool,
        Window,
        Windows,
        Worker,
    )

__all__ = [
    "check_report", "collect_files", "diagnose", "expected_files", "inject_env", "missing_tool",
    "open_range", "plan_notes", "probe", "read_ranges", "read_spans", "render_command",
    "start_capture", "stop_capture",
]  # fmt: skip

PROJECT = "gpuprof"
"""pluggy's name for the hooks."""
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a method, or a module's function, as the implementation of a hook."""


# On the launcher's side. These two must be pure.
@hookspec(firstresult=True)
def render_command(worker: Worker, command: Command, tool: Tool) -> list[str] | None:
    """Return the whole command line that runs `command` under the profiler.

    Placeholders are resolved on the node.
    """


@hookspec
def inject_env(worker: Worker, tool: Tool) -> dict[str, str | None] | None:
    """Return environment variables for the worker; ``None`` as a value unsets one.

    The user's own values win. Two plugins with different values for one variable are refused.
    """


# In the worker, one window at a time; on the control thread, or with start_in_thread on the job's.
@hookspec
def start_capture(worker: Worker, window: Window, tool: Tool | None) -> None:
    """Start to record. May raise: `stop_capture` still follows.

    `tool` is the result of `probe` in the worker, or ``None`` without that hook. The step waits for
    up to 60 s, and then goes on; the window opens late.
    """


@hookspec
def stop_capture(worker: Worker, window: Window, tool: Tool | None) -> list[str] | None:
    """Stop recording. Return the window's files, or ``None`` if they are only known later.

    The step waits for this hook and `collect_files`, up to 120 s together, and then goes on.
    """


@hookspec(firstresult=True)
def open_range(
    worker: Worker, window: Window, name: str, crosses_tasks: bool
) -> AbstractContextManager[object] | None:
    """Return a context manager that marks a range.

    With `crosses_tasks` the range may end in another task or thread than it began in. If the
    backend wraps a worker for its whole life, the worker's child processes call only this hook.
    """


# Optional: a backend without these works fully.
@hookspec(firstresult=True)
def probe() -> Tool | None:
    """On a node: find the profiler's program, or return ``None``.

    Called often: cache whatever takes long. On Ray it has 60 s.
    """


@hookspec(firstresult=True)
def missing_tool() -> str | None:
    """Return one sentence: the missing program, and the command that installs it."""


@hookspec
def diagnose(worker: Worker, tool: Tool, purpose: Purpose) -> list[Check] | None:
    """On a node: check that the tool works for such a worker. Every wait needs a timeout.

    `purpose` says what to check:

    - ``plan``, for ``gpuprof plan``: have the tool read the options, and start no program.
    - ``start``, before any worker starts: try the tool on an empty program, leave no files, read no
      input. A failed check refuses the run; its `key` names the option to blame, its `detail`
      quotes the tool. On Ray it has 60 s, together with `probe`; a slower node is not checked.
    - ``doctor``, for ``gpuprof doctor``, after ``start``: run further checks; a failed one has a
      remedy.
    """


@hookspec
def plan_notes(worker: Worker, tool: Tool) -> list[str] | None:
    """Return notes for the user: where the command differs from the settings, and why."""


@hookspec(firstresult=True)
def expected_files(worker: Worker, windows: Windows) -> dict[int, str] | None:
    """Return the final file of each window, by the window's number.

    A file's path is `Worker.final_stem` with an extension. Leave out a window that these options do
    not record, and mention it in `plan_notes`.
    """


@hookspec(firstresult=True)
def collect_files(
    worker: Worker,
    windows: Windows,
    files: Mapping[int, list[str]],
    ended: bool,
    scratch: str,
) -> Collected | None:
    """On the worker's node: move finished files of the captured `windows` to their final names.

    Called in the worker after each window, with `ended` false and the time limit of `stop_capture`.
    Called again once the worker and its tool have ended, on Ray with 900 s, to save leftovers in
    `scratch`, the tool's temporary directory. `files` are the files with final names so far, by the
    window's number; return the new ones. If something cannot be saved, return the `problem` as
    well, or raise: `scratch` is then kept for ``gpuprof collect``.
    """


@hookspec(firstresult=True)
def check_report(path: str) -> str | None:
    """Return what is wrong with a finished file that cannot be read, such as one cut short.

    Return ``None`` for any other file. Called often: look at the file's structure only.
    """


@hookspec(firstresult=True)
def read_ranges(path: str) -> list[RangeTimes] | None:
    """Return gpuprof's ranges in a finished file; ``None`` if another backend wrote the file.

    Without this hook, the ranges are the tracks that `read_spans` calls ``ranges``: implement it
    only if it returns more, such as the ranges' GPU work, or is much faster.

    One `RangeTimes` for each name inside the same `parents`. Leave `parents` empty where the
    nesting is not known, as for ranges of asyncio tasks, which may overlap.

    Called for every file of a run that is not gpuprof's: look at the extension first. Several files
    are read at once, each in its own thread. The result is kept until the file, the backend's
    release or its settings change.

    Raise `ToolError` if the program that reads the file is missing. The backend has the settings of
    the file's run, except options that name programs: see `gpuprof.backend.option`.
    """


@hookspec(firstresult=True)
def read_spans(path: str) -> list[RecordedTrack] | None:
    """Return all that a finished file recorded; ``None`` if another backend wrote the file.

    For `gpuprof timeline` and, without `read_ranges`, for `gpuprof report --nvtx`. Several files
    are read at once, as by `read_ranges`. To correct your clock, gpuprof compares the tracks of
    kind ``ranges`` with the scopes.

    Raise `ToolError` if the program that reads the file is missing.
    """
