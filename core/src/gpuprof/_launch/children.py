"""Records the ranks that a program starts by itself: with Lightning, or with multiprocessing.

Such a process gets a worker's row of its own in its environment, or with the process object that a
fork server unpickles. Its session is started by `_start/sitecustomize.py`, or after the fork.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from gpuprof._session import public
from gpuprof._session.ledger import STARTS_RANKS
from gpuprof._session.stacks import LIBRARY
from gpuprof._shim.row import VARIABLE, Row, decode, encode
from gpuprof.frameworks import after_import, guarded, replace, say

_PACKAGES = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")
_ENVIRONMENTS = re.compile(r"(gym|gymnasium|stable_baselines3|tianshou|torchrl\.envs|pufferlib)\.")
"""The modules of libraries that step environments in processes of their own."""
_ENVIRONMENT = "environment"
"""The group of these processes; of those of a rank, its name stands before it."""
_HELPERS = {
    "torch.utils.data._utils.worker": "loader",
    "multiprocessing.pool": "pool",
    "concurrent.futures.process": "pool",
}
"""The modules of libraries that run the program's functions in other processes, and what these are
called."""
_MOST, _MOST_HELPERS = 256, 32
"""The most processes to record, and the most helpers of a kind: a program may start one for each
piece of work, or new ones in each epoch."""
_started: Counter[str] = Counter()
_helpers: Counter[str] = Counter()
_starting: threading.RLock
"""Held while a process is started in an environment of its own."""
_process: tuple[int, str | None] = 0, None
"""The process whose children are recorded, and its own row."""
_SENT = "_gpuprof"
"""The attribute of a process object that brings a row to a fork server's fork."""
_UNPICKLED = """
try:
    from gpuprof._launch.children import take
except ImportError:
    pass
else:
    take({row!r})
"""
"""What a fork of a fork server runs. Its interpreter may be one without gpuprof."""


def install() -> None:
    """Record the ranks that this process starts, if any."""
    global _process
    _process = os.getpid(), os.environ.get(VARIABLE)
    for package in _PACKAGES:
        after_import(f"{package}.strategies.launchers.subprocess_script", _lightning)
    after_import("multiprocessing.popen_spawn_posix", _spawned)
    after_import("multiprocessing.popen_fork", _forked)
    after_import("multiprocessing.popen_forkserver", _served)


def _lightning(module: ModuleType) -> None:
    def recording(original: Callable[..., Any]) -> Callable[..., Any]:
        def _call_children_scripts(self: Any) -> Any:
            with _recorded("Lightning", lambda row: _lightning_row(row, self.num_nodes)):
                return original(self)

        return _call_children_scripts

    replace(module._SubprocessScriptLauncher, "_call_children_scripts", recording)


def _lightning_row(row: Row, nodes: int) -> Row | None:
    """The row of the other ranks of this node: each reads its own rank."""
    if row["profiled"] or nodes > 1:
        say(
            "Lightning: only the first rank of a node is recorded; for all of them, type "
            "`gpuprof run … -- torchrun …`",
            "the job goes on",
        )
        return None
    row["rank_variable"] = "LOCAL_RANK"
    return row


def _spawned(module: ModuleType) -> None:
    def recording(original: Callable[..., Any]) -> Callable[..., Any]:
        def _launch(self: Any, process_obj: Any) -> Any:
            from multiprocessing import resource_tracker

            resource_tracker.ensure_running()  # or it would be started, and recorded, in `original`
            with _recorded("multiprocessing", lambda row: _spawned_row(row, process_obj)):
                return original(self, process_obj)

        return _launch

    replace(module.Popen, "_launch", recording, ["process_obj"])


def _spawned_row(row: Row, process: Any) -> Row | None:
    if row.get("step_at", "").startswith("__main__:"):  # there, the script has another name
        row["step_at"] = row["step_at"].replace("__main__", "__mp_main__", 1)
    return _process_row(row, process)


def _forked(module: ModuleType) -> None:
    from multiprocessing import util

    def recording(original: Callable[..., Any]) -> Callable[..., Any]:
        def _launch(self: Any, process_obj: Any) -> Any:
            with _recorded("multiprocessing", lambda row: _process_row(row, process_obj), False):
                return original(self, process_obj)

        return _launch

    replace(module.Popen, "_launch", recording, ["process_obj"])
    util.register_after_fork(module, _start_after_fork)


class _Sent:
    """Starts the session of the process that unpickles it."""

    def __init__(self, row: Row) -> None:
        self._code = _UNPICKLED.format(row=encode(row))

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str, dict[str, Any]]]:
        return exec, (self._code, {})


def _served(module: ModuleType) -> None:
    def recording(original: Callable[..., Any]) -> Callable[..., Any]:
        def _launch(self: Any, process_obj: Any) -> Any:
            # The fork has the server's environment, not this process's.
            guarded("multiprocessing: its processes", lambda: _send(process_obj))
            try:
                return original(self, process_obj)
            finally:
                vars(process_obj).pop(_SENT, None)

        return _launch

    replace(module.Popen, "_launch", recording, ["process_obj"])


def _send(process: Any) -> None:
    row = _row(lambda row: _spawned_row(row, process))
    if row is not None:
        vars(process)[_SENT] = _Sent(row)


def take(row: str) -> None:
    """Start the session of this fork of a fork server, once multiprocessing has set it up."""
    from multiprocessing import util

    os.environ[VARIABLE] = row
    util.register_after_fork(sys.modules[__name__], _start_after_fork)


def _start_after_fork(_: ModuleType) -> None:
    global _process
    pid, row = _process
    if os.environ.get(VARIABLE) != row:  # a process that is forked otherwise has its parent's
        _process = pid, os.environ.get(VARIABLE)
        guarded("multiprocessing: this process", public.session)


def _process_row(row: Row, process: Any) -> Row | None:
    """The row of a process that runs the program's own function or class, which names its group.

    Of processes of libraries, those that step environments are recorded, and the `_HELPERS`.
    """
    runs, rank = process._target or type(process), None
    spawn = sys.modules.get("torch.multiprocessing.spawn")
    if spawn is not None and runs is spawn._wrap:
        runs, rank = process._args[:2]
    file = getattr(sys.modules.get(runs.__module__), "__file__", None)
    is_environment = _ENVIRONMENTS.match(runs.__module__ or "") is not None
    is_users = is_environment or (file is not None and not LIBRARY.search(file))
    is_counted = os.getpid() == _process[0] and _started.total() < _MOST
    helper = _HELPERS.get(runs.__module__)
    if row["profiled"] or not (is_users or helper) or not is_counted:
        return None
    if helper is not None:
        return _helper_row(row, f"{row['group']}-{row['rank']}-{helper}")
    name = runs.__name__.strip("<>")  # of a lambda
    if is_environment:
        of_rank = "" if row["group"] == "Program" else f"{row['group']}-{row['rank']}-"
        name = f"{of_rank}{_ENVIRONMENT}"
    group = name if name != row["group"] else f"{name}Process"
    row["group"], row["rank"] = group, _started[group] if rank is None else rank
    _started[group] += 1
    session = public.session()
    if session is not None and session.ledger is not None:
        session.ledger.event(STARTS_RANKS, group=group)
        session.starts_ranks = True
    return row


def _helper_row(row: Row, group: str) -> Row | None:
    """The row of a process that has stacks, and no steps or scopes."""
    if _helpers[group] == _MOST_HELPERS:
        return None
    row["group"], row["rank"], row["helps"] = group, _helpers[group], True
    for key in ("step_at", "library_steps", "instruments"):
        row.pop(key, None)  # type: ignore[misc]
    _helpers[group] += 1
    return row


@contextmanager
def _recorded(
    starter: str, row_of: Callable[[Row], Row | None], imports: bool = True
) -> Iterator[None]:
    """Record the processes that are started meanwhile.

    Args:
        starter: what starts them.
        row_of: their row, from this process's own; ``None``: they are not recorded.
        imports: whether they import `_start/sitecustomize.py`.
    """
    with _starting:  # pools start processes on threads, and the environment is one
        variables = guarded(f"{starter}: its processes", lambda: _variables(row_of)) or {}
        if not imports:
            variables.pop("PYTHONPATH", None)
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _make_lock() -> None:
    global _starting
    _starting = threading.RLock()


_make_lock()
os.register_at_fork(after_in_child=_make_lock)  # a fork happens while it is held


def _row(row_of: Callable[[Row], Row | None]) -> Row | None:
    value = os.environ.get(VARIABLE)
    row = None if value is None else row_of(decode(value))
    if row is not None:
        row["print_tree"] = False
    return row


def _variables(row_of: Callable[[Row], Row | None]) -> dict[str, str]:
    from gpuprof._launch import at_start

    row = _row(row_of)
    if row is None:
        return {}
    path = at_start.path(os.environ.get("PYTHONPATH", ""))
    return {VARIABLE: encode(row), "PYTHONPATH": path}
