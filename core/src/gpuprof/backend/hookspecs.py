"""The contract between gpuprof and a backend, on one screen.

A backend is a class, named by an entry point in the group ``gpuprof``; the entry's name is the
backend's name. It has an attrs class `Options` (help in each field's metadata), is made with an
instance of it once per plan and once per session, and implements the hooks below with
`gpuprof.backend.hookimpl`. A hook may leave out arguments that it does not need. It may have an
attribute `exclusive`: names of what only one client in a process can hold (``CUPTI``); two that
hold the same are refused together.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from gpuprof.backend.types import Check, Command, RangeTimes, Tool, Window, Windows, Worker

__all__ = [
    "diagnose", "expected_files", "inject_env", "missing_tool", "open_range", "plan_notes", "preflight", "probe", "read_ranges",
    "recover", "render_command", "shared_temporary", "start_capture", "stop_capture",
    "worthless_temporary",
]  # fmt: skip

hookspec = pluggy.HookspecMarker("gpuprof")
hookimpl = pluggy.HookimplMarker("gpuprof")
"""Marks a method, or a module's function, as the implementation of a hook."""


# On the launcher's side, pure.
@hookspec(firstresult=True)
def render_command(worker: Worker, command: Command, tool: Tool) -> list[str] | None:
    """Return the whole argument vector that runs `command` under the profiler.

    Placeholders are resolved on the node.
    """


@hookspec
def inject_env(worker: Worker, tool: Tool) -> dict[str, str | None] | None:
    """Return environment variables for the worker; ``None`` as a value unsets one.

    The user's own values win.
    """


# In the worker, on the control thread, one window at a time.
@hookspec
def start_capture(worker: Worker, window: Window) -> None:
    """Begin to record. May raise: `stop_capture` still follows."""


@hookspec
def stop_capture(worker: Worker, window: Window) -> list[str] | None:
    """End the recording. Return the window's files, or ``None`` where they are only known later."""


@hookspec(firstresult=True)
def open_range(
    worker: Worker, window: Window, name: str, crosses_tasks: bool
) -> AbstractContextManager[object] | None:
    """Return a context manager that marks a range; `crosses_tasks`: it may end in another task or
    thread than it began in.
    """


# Optional: a backend without these works fully.
@hookspec(firstresult=True)
def probe() -> Tool | None:
    """On a node: find the program, or return ``None``.

    Called again and again: remember what takes long.
    """


@hookspec(firstresult=True)
def missing_tool() -> str | None:
    """Say in one sentence which program is missing and the command that installs it."""


@hookspec(firstresult=True)
def shared_temporary(tool: Tool) -> list[str] | None:
    """Name the folders in the tool's temporary directory that all of its processes on a machine
    must share, as those of locks.

    Each worker's tool has that directory for itself; these folders become links to those that it
    would have used otherwise.
    """


@hookspec(firstresult=True)
def worthless_temporary() -> list[str] | None:
    """Name, by wildcards, the files that the tool leaves in its temporary directory and in which
    nothing is recorded.

    A killed worker's directory stays there as long as it has any other file that is not empty.
    """


@hookspec(firstresult=True)
def preflight(worker: Worker, tool: Tool) -> tuple[str, str] | None:
    """On a node, before any worker starts: run the tool for real on nothing.

    Return why it would not work: the key below the backend's section that is to blame, empty if
    none is, and the tool's words.
    """


@hookspec
def diagnose(worker: Worker, tool: Tool) -> list[Check] | None:
    """On a node, for ``gpuprof doctor``: what else can be tried for such a worker, each with its
    remedy. Every wait has an end.
    """


@hookspec
def plan_notes(worker: Worker, tool: Tool) -> list[str] | None:
    """Return what the user should know before the start: where the command differs from what was
    asked for, and why.
    """


@hookspec(firstresult=True)
def expected_files(worker: Worker, windows: Windows) -> dict[int, str] | None:
    """Return, for each window's number, the file that holds it in the end.

    Its path is `Worker.final_stem`, with an extension.

    A window that is left out leaves no file with these options; `plan_notes` says so.
    """


@hookspec
def recover(
    worker: Worker,
    windows: Windows,
    files: Mapping[int, list[str]],
    ended: bool,
    scratch: str,
    tool: str,
) -> dict[int, list[str]] | None:
    """On the worker's node: bring finished files of the captured `windows`, in this order, to their
    final names.

    Called in the worker after each window with `ended` false, and again once the worker and its
    tool have ended, when leftovers in `scratch`, the temporary directory that `tool` had for
    itself, are there to be saved. `files` are those that have their final names already, by the
    window's number; return those that get them now. What cannot be saved is raised, with the rest
    as the exception's attribute ``named``; `scratch` is then kept.
    """


@hookspec(firstresult=True)
def read_ranges(path: str) -> list[RangeTimes] | None:
    """Return the ranges of gpuprof's in a finished file, or ``None`` where it is not a file of this
    backend's.

    Where the program to read it with is not here, raise `ToolError`: a backend with the settings of
    the file's run, which may be of another machine, is then followed by one with its defaults.
    """
