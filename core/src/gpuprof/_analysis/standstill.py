"""What the processes of a running job do now: equal stacks merged, and what has moved meanwhile."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from gpuprof._artifacts.dumps import ANSWERED, Process

_LIBRARIES = frozenset({
    "_pytest", "accelerate", "click", "hydra", "numpy", "omegaconf", "ray", "torch", "tqdm",
    "uvloop",
})  # fmt: skip
"""Packages of which only the function that the job has called is named, as of the standard
library."""
_WRAPPERS = frozenset({
    "<lambda>", "<module>", "__call__", "_bootstrap", "_bootstrap_inner", "_call_impl", "_fn",
    "_resume_span", "_wrapped_call_impl", "auto_init_wrapper", "decorate_context", "decorated",
    "inner", "wrapped", "wrapper",
})  # fmt: skip
"""Functions of libraries that only call what is meant."""
_MOST_NAMES = 5
_BUSY = 0.5
"""Part of the time between two looks for which a thread that computes runs, at least."""
_NUMBERS = re.compile(r"\d+")

Frame = tuple[str, str, int]


@attrs.frozen
class Doing:
    """What one thread or task of a process does.

    Args:
        frames: the innermost first: function, file, line.
        thread: of a thread or a task; empty for the main thread.
        scope: the innermost open one; empty without one.
        seconds: for how long that has been open.
        state: ``moves``, ``busy`` (the same functions, on a core), ``waits``; empty if it was
            looked at once.
        waits: what the calls on its stack wait for or run, the innermost first; see
            `gpuprof._session.dump.waits`.
    """

    process: Process
    frames: tuple[Frame, ...]
    thread: str
    scope: str
    seconds: float
    state: str
    waits: tuple[Mapping[str, Any], ...] = ()

    @property
    def chain(self) -> tuple[str, ...]:
        """The functions that tell, the innermost first."""
        return chain(self.frames)

    @property
    def location(self) -> str:
        """File and line in the job's own code, if there is any."""
        own = [frame for frame in self.frames if package_of(frame[1]) is None]
        _, file, line = (own or list(self.frames))[0]
        return f"{os.path.basename(file)}:{line}"

    @property
    def is_jobs(self) -> bool:
        """Whether code of the job runs in it."""
        return bool(self.scope) or any(package_of(frame[1]) is None for frame in self.frames)


@attrs.frozen
class Class:
    """Threads with equal stacks, of processes of one group.

    Args:
        size: how many processes of the group have answered.
    """

    group: str
    size: int
    same: tuple[Doing, ...]


def package_of(file: str) -> str | None:
    """The library that a file belongs to; ``None``: the job itself.

    >>> package_of("/usr/lib/python3/site-packages/ray/actor.py"), package_of("/home/me/train.py")
    ('ray', None)
    """
    if file.startswith("<frozen"):
        return "python"
    parts = file.split(os.sep)
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            package = parts[len(parts) - parts[::-1].index(folder)].removesuffix(".py")
            return package if package in _LIBRARIES else None
    if re.fullmatch(r"python3(\.\d+)?", parts[-2] if len(parts) > 1 else ""):
        stem = parts[-1].removesuffix(".py")
        return stem if stem in sys.stdlib_module_names else None
    if len(parts) > 2 and re.fullmatch(r"python3(\.\d+)?", parts[-3]):
        return parts[-2] if parts[-2] in sys.stdlib_module_names else None
    return None


def chain(frames: Iterable[Frame]) -> tuple[str, ...]:
    """The functions that tell, the innermost first: of a library only the one that was called.

    >>> chain([("wait", "/usr/lib/python3.11/threading.py", 1),
    ...        ("Queue.get", "/usr/lib/python3.11/queue.py", 2), ("main", "train.py", 3)])
    ('queue.get', 'main')
    """
    names: list[str] = []
    entry, is_library = "", False
    for function, file, _ in frames:
        package = package_of(file)
        short = function.rpartition("<locals>.")[2]
        if package is None:
            names += [entry] if entry else []
            names.append(".".join(short.split(".")[-2:]))
            entry, is_library = "", False
        elif not is_library or short.rpartition(".")[2] not in _WRAPPERS:
            entry, is_library = f"{package}.{short.rpartition('.')[2]}", True
    if entry and not names:
        names.append(entry)
    return tuple(name for name in names if name != "<module>") or tuple(names)


def doings(now: Sequence[Process], later: Sequence[Process] = ()) -> list[Doing]:
    """What all threads and tasks do, as of the later look if there is one."""
    earlier = {p.file: p for p in now}
    results = []
    for process in later or now:
        if process.state not in ANSWERED:
            continue
        before = earlier.get(process.file) if later else None
        answer, past = process.answer, before.answer if before else {}
        threads = answer.get("threads", [])
        past_threads = {t["id"]: t for t in past.get("threads", [])}
        by_signal = "by signal" in (process.state, before.state if before else "")
        for thread in threads:
            earlier_one = past_threads.get(thread["id"])
            if by_signal:  # which knows no ids
                mains = [t for t in past_threads.values() if t["main"]] if thread["main"] else []
                earlier_one = mains[0] if mains else None
            state = _state(thread, earlier_one, answer, past) if later else ""
            name = "" if thread["main"] else f"thread {thread['name']}"
            results.append(_doing(process, thread, name, state))
        past_tasks = {task["name"]: task for task in past.get("tasks", [])}
        for task in answer.get("tasks", []):
            same = _task_state(task, past_tasks.get(task["name"])) if later else ""
            results.append(_doing(process, task, f"task {task['name']}", same))
    return [doing for doing in results if doing.frames]


def computing(now: Process, later: Process) -> int:
    """How many of a process's children that are not recorded have computed between two looks."""
    before = {child.pid: child for child in now.children}
    return sum(
        child.seconds - before[child.pid].seconds > _BUSY * (child.time - before[child.pid].time)
        for child in later.children
        if child.pid in before
    )


def last_seen(process: Process) -> Doing | None:
    """What a process without an answer did last; ``None`` if that is not known."""
    threads = process.answer.get("threads")
    return _doing(process, threads[0], "", "") if threads else None


def _doing(process: Process, thread: Mapping[str, Any], name: str, state: str) -> Doing:
    scope = thread.get("scope") or {}
    return Doing(
        process,
        tuple((str(name), str(file), int(line)) for name, file, line in thread["frames"]),
        name,
        str(scope.get("path", "")),
        float(scope.get("seconds", 0)),
        state,
        tuple(thread.get("waits", ())),
    )


def _task_state(task: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    if before is None:
        return "moves"
    same = all(task[key] == before[key] for key in ("frames", "waits"))
    return "waits" if same else "moves"


def _state(
    thread: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    answer: Mapping[str, Any],
    past: Mapping[str, Any],
) -> str:
    if before is None:
        return "moves"
    functions = [[frame[:2] for frame in look["frames"]] for look in (thread, before)]
    if functions[0] != functions[1]:
        return "moves"
    if thread["main"] and any(answer.get(key) != past.get(key) for key in ("ended", "step")):
        return "moves"
    seconds = answer.get("time", 0) - past.get("time", 0)
    if None in (thread["cpu"], before["cpu"]) or seconds <= 0:
        return "waits"
    return "busy" if thread["cpu"] - before["cpu"] > _BUSY * seconds else "waits"


def classes(what: Iterable[Doing]) -> list[Class]:
    """Threads that do the same, by group: the main threads first, the most common stack first."""
    what = list(what)
    by_key: dict[Any, list[Doing]] = {}
    sizes: dict[str, set[str]] = {}
    for doing in what:
        group = doing.process.group
        sizes.setdefault(group, set()).add(doing.process.file)
        functions = tuple(frame[:2] for frame in doing.frames)
        thread = _NUMBERS.sub("#", doing.thread)
        key = group, thread, functions, doing.location, doing.state
        by_key.setdefault(key, []).append(doing)
    results = [Class(key[0], len(sizes[key[0]]), tuple(same)) for key, same in by_key.items()]
    return sorted(
        results, key=lambda entry: (entry.group, bool(entry.same[0].thread), -len(entry.same))
    )
