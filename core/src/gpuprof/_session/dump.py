"""The stacks of all threads of this process, written when ``gpuprof stacks`` asks for them.

A question is a directory in the run's `.dumps`; each process answers with a file in that directory.
A gpuprof thread writes the answer, so answering works while the job's threads wait in C code that
has released the GIL. If a thread holds the GIL, the asker sends the process a signal. The signal's
handler is `faulthandler`'s: it needs no lock, and writes into a file in memory, which the asker
reads through `/proc`.

An answer holds no values of the job's variables: only line numbers and the names of functions,
files and scopes.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType
from typing import Any

from gpuprof_timing.recording import Node, roots, walk

from gpuprof._log import log
from gpuprof._session.instruments.threads import THREAD
from gpuprof._session.stall import INTERVAL, Progress, StallWatch
from gpuprof._session.usage import OWN_THREADS, processor_times
from gpuprof._shim.files import write_json
from gpuprof._shim.safe import not_private, open_directory

VERSION = 1
POLL = 1.0
"""Seconds between two looks for a question."""
MEMORY = "gpuprof-dump"
"""The start of the in-memory file's name. The signal's number and the id of the thread to send it
to follow."""
QUESTION = re.compile(r"\d{20}-[0-9a-f]{6}")
"""The name of a question's directory."""
_KEY = "_gpuprof_key"
"""The attribute in which a future keeps the key of what it waits for; see
`instruments.coroutines`."""
_DRIVERS_SCOPE = "main_loop"
"""The scope around everything that a driver does. It is open even while nothing is expected to
end, so it does not show that the driver is busy."""
_MOST_FRAMES, _MOST_THREADS, _MOST_TASKS, _MOST_OPEN = 200, 500, 500, 2_000
OURS = tuple(
    os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep
    for module in (sys.modules["gpuprof"], sys.modules["gpuprof_timing"])
)
"""The directories of gpuprof's own functions, which are left out of all stacks."""

_SUSPENDED = (AsyncGeneratorType, CoroutineType)
_OPAQUE = ("coroutine_wrapper", "async_generator_asend")
"""The types of objects that await a coroutine for others, such as Ray's Cython code, and have no
attribute for it."""

Frames = list[tuple[str, str, int]]
"""Function, file and line of each frame, the innermost frame first."""

waits: dict[CodeType, Callable[[FrameType], Mapping[str, Any] | None]] = {}
"""By the code of a function that an instrument follows: returns what the current call of that
function, given its frame, waits for or does."""
states: dict[str, Callable[[], Any]] = {}
"""By name, functions of instruments that return the current state of the process."""


def directory_of(run_directory: str) -> str:
    """The directory that holds a run's questions."""
    return os.path.join(run_directory, ".dumps")


class Answerer:
    """Answers the questions of a run, on a thread.

    Args:
        run_directory: the run's directory, as this node sees it.
        about: what each answer says about the process.
        silence: seconds without progress before the watchdog reports; 0 means that it never
            reports, ``None`` that it chooses the time itself.
        clock: the clock, in nanoseconds, of the trees whose open scopes are named.

    Attributes:
        forward: called with the directory of each question once this process has answered it;
            takes the question to nodes that do not see the directory.
    """

    def __init__(
        self,
        run_directory: str,
        file: str,
        about: Mapping[str, Any],
        step: Callable[[], int | None],
        silence: float | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.run_directory = run_directory
        self.forward: Callable[[str], object] | None = None
        self._path = directory_of(run_directory)
        with suppress(OSError):  # not writable, or not shared with this node
            os.mkdir(self._path, 0o700)
        self._watch: StallWatch | None = None
        if silence != 0:
            self._watch = StallWatch(run_directory, self._path, self._progress, silence)
        self.file = file
        self._about = dict(about)
        self._step = step
        self._clock = clock
        self._seen = set(self._questions())
        self._pid = os.getpid()
        self._over = threading.Event()
        threading.Thread(target=self._run, name=f"{OWN_THREADS}dump", daemon=True).start()

    def identify_as(self, about: Mapping[str, Any]) -> None:
        """Change what later answers say about the process, for example that it is the driver."""
        self._about = dict(about)

    def end(self) -> None:
        """Stop answering."""
        self._over.set()

    def _run(self) -> None:
        unregister: Callable[[], object] = int
        beat: Callable[[], object] = int
        with suppress(Exception):  # without the signal, only a hang with the GIL held goes unseen
            unregister, beat = _register(threading.get_native_id())
        try:
            self._answer_until_over(beat)
        finally:
            unregister()

    def _answer_until_over(self, beat: Callable[[], object]) -> None:
        due = time.monotonic() + INTERVAL
        while not self._over.wait(POLL):
            try:
                beat()
                self.look()
                if time.monotonic() >= due:
                    due = time.monotonic() + INTERVAL
                    self._watch_over()
            except Exception as error:
                log().info("stacks are not answered: %s: %s", type(error).__name__, error)
                return

    def _watch_over(self) -> None:
        if self._watch is not None:
            try:
                if not_private(os.lstat(self._path)) is None:
                    self._watch.look()
            except OSError:  # a run that was removed, or a full disk
                self._watch = None

    def _progress(self) -> Progress:
        return progress(self._clock, self._step() or 0)

    def look(self) -> None:
        """Answer the new questions."""
        for name in self._questions():
            if name in self._seen:
                continue
            self._seen.add(name)
            where = os.path.join(self._path, name)
            with suppress(OSError):  # the asker has gone
                if not_private(os.lstat(where)) is None:
                    write_json(os.path.join(where, self.file), self.answer())
                    if self.forward is not None:
                        with suppress(Exception):  # Ray ends: the other nodes do not answer
                            self.forward(where)

    def answer(self) -> dict[str, Any]:
        """The answer: what this process does now."""
        return {
            "version": VERSION,
            **self._about,
            "pid": self._pid,
            "time": time.time(),
            "step": self._step(),
            "quiet": None if self._watch is None else self._watch.quiet,
            **snapshot(self._clock),
        }

    def _questions(self) -> list[str]:
        """The questions in the directory, if only this user can access the directory."""
        try:
            handle = open_directory(self._path)  # a network file system caches `stat`
        except OSError:
            return []
        try:
            status = os.fstat(handle)
            if not_private(status):
                return []
            return sorted(name for name in os.listdir(handle) if QUESTION.fullmatch(name))
        except OSError:
            return []
        finally:
            os.close(handle)


def progress(clock: Callable[[], int], step: int) -> Progress:
    """The progress of this process."""
    end_count, longest, inside, first = 0, 0, False, False
    for root in roots(clock):
        for node in walk(root):
            end_count += node.count
            if str(node.key).endswith(THREAD):  # a thread lives as long as it likes
                continue
            longest = max(longest, node.longest)
            if node.open > 0 and node.key != _DRIVERS_SCOPE:
                inside = True
                first = first or (node.waits_for is None and not node.count)
    return Progress(end_count + step, longest / 1e9, inside, first)


def _register(thread: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Have an unused signal write the stacks, whichever thread holds the GIL.

    The signal's handler reads frames without a lock, and crashes the process if Python code runs
    meanwhile. So the asker sends the signal only if the thread has waited for the GIL for seconds.

    Args:
        thread: the native id of the thread that the asker sends the signal to.

    Returns:
        A function that undoes the registration, and one by which the thread shows the asker that it
        has the GIL.
    """
    number = next(
        number
        for number in range(signal.SIGRTMAX - 6, signal.SIGRTMIN + 2, -1)
        if signal.getsignal(number) is signal.SIG_DFL
    )
    memory = os.memfd_create(f"{MEMORY}-{number}-{thread}", os.MFD_CLOEXEC)
    fcntl.fcntl(memory, fcntl.F_SETFL, os.O_APPEND)  # the asker empties it
    faulthandler.register(number, file=memory, all_threads=True, chain=False)

    status = os.fstat(memory)

    def unregister() -> None:
        faulthandler.unregister(number)
        with suppress(OSError):  # a job that closes all files may have opened others since
            if os.path.samestat(os.fstat(memory), status):
                os.close(memory)

    def beat() -> None:
        if os.path.samestat(os.fstat(memory), status):
            os.utime(memory)

    return unregister, beat


def snapshot(clock: Callable[[], int]) -> dict[str, Any]:
    """Describe all threads and tasks of this process, and the states that instruments report."""
    now = clock()
    scopes, end_count = _open_scopes(clock, now)
    frames = sys._current_frames()
    thread_objects = {thread.ident: thread for thread in threading.enumerate()}
    main = threading.main_thread().ident
    threads = []
    for ident, frame in list(frames.items())[:_MOST_THREADS]:
        thread = thread_objects.get(ident)
        if thread is not None and thread.name.startswith(OWN_THREADS):
            continue
        native = thread.native_id if thread is not None else None
        threads.append(
            {
                "id": ident,
                "name": thread.name if thread is not None else "",
                "main": ident == main,
                "frames": _frames(frame),
                "scope": scopes.get(ident),
                "waits": _waits(frame),
                "cpu": cpu_time(native),
            }
        )
    tasks = [
        {
            "name": task.get_name(),
            "frames": stack,
            "waits": task_waits,
            "scope": scopes.get((None, id(task))),
        }
        for task, stack, task_waits in _tasks()
    ]
    return {"threads": threads, "tasks": tasks, "ended": end_count, **_states()}


def _frames(innermost: FrameType | None) -> Frames:
    stack: Frames = []
    frame = innermost
    while frame is not None and len(stack) < _MOST_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            stack.append((_name(code), code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return stack


def _name(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def _waits(innermost: FrameType | None) -> list[Mapping[str, Any]]:
    """What the calls on a stack that instruments follow wait for or do, the innermost first."""
    call_waits: list[Mapping[str, Any]] = []
    frame = innermost
    while frame is not None:
        call_waits += _told(frame)
        frame = frame.f_back
    return call_waits


def _told(frame: FrameType) -> list[Mapping[str, Any]]:
    tell = waits.get(frame.f_code)
    if tell is not None:
        with suppress(Exception):  # another release of the library: leave this out
            what = tell(frame)
            return [] if what is None else [what]
    return []


def _states() -> dict[str, Any]:
    answers = {}
    for name, tell in list(states.items()):
        with suppress(Exception):
            answers[name] = tell()
    return answers


def _open_scopes(clock: Callable[[], int], now: int) -> tuple[dict[Any, dict[str, Any]], int]:
    """The innermost open scope of each thread and task, and how many scopes have ended.

    A task's key is the pair of ``None`` and the task's id.
    """
    open_scopes: dict[Any, dict[str, Any]] = {}
    depths: dict[Any, int] = {}
    end_count = node_count = 0
    for root in roots(clock):
        for node in walk(root):
            node_count += 1
            if node_count > _MOST_OPEN * 10:
                break
            end_count += node.count
            scope: Any = node.latest
            start = scope.started if scope is not None and scope.node is node else None
            track = getattr(scope, "track", None)
            if start is None or track is None:
                continue
            track = (None, track[1]) if isinstance(track, tuple) else track
            if node.depth > depths.get(track, 0):
                depths[track] = node.depth
                open_scopes[track] = {
                    "path": _path(node),
                    "seconds": round((now - start) / 1e9, 3),
                    "waits_for": node.waits_for,
                }
    return open_scopes, end_count


def _path(node: Node) -> str:
    keys = []
    place: Node | None = node
    while place is not None and place.parent is not None:
        keys.append(str(place.key))
        place = place.parent
    return "/".join(reversed(keys))


def cpu_time(thread: int | None) -> float | None:
    """The seconds for which a thread has run, or was ready to run but had no core."""
    try:
        return sum(processor_times(thread)) / 1e9
    except (OSError, ValueError):  # some kernels have no such file
        return None


def _tasks() -> Iterator[tuple[Any, Frames, list[Mapping[str, Any]]]]:
    """Each unfinished task of all event loops, its stack, and what it waits for or runs."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return
    count = 0
    for task in _all_tasks(asyncio):
        with suppress(Exception):  # the task may continue meanwhile
            if task.done():
                continue
            stack: Frames = []
            task_waits: list[Mapping[str, Any]] = []
            awaitable = task.get_coro()
            while awaitable is not None and len(stack) < _MOST_FRAMES:
                key = getattr(awaitable, _KEY, None)
                if isinstance(key, bytes):
                    task_waits.append({"on": "await", "calls": [(key.hex(), "")]})
                frame = _attribute(awaitable, "cr_frame", "gi_frame", "ag_frame")
                if frame is not None:
                    task_waits += _told(frame)
                    if not frame.f_code.co_filename.startswith(OURS):
                        line = frame.f_lineno or 0
                        stack.append((_name(frame.f_code), frame.f_code.co_filename, line))
                awaitable = _awaited(awaitable)
            if stack:
                count += 1
                yield task, stack[::-1], task_waits[::-1]
        if count >= _MOST_TASKS:
            return


def _awaited(awaitable: Any) -> Any:
    """What a suspended coroutine or generator awaits; ``None`` if it is the innermost one."""
    inner = _attribute(awaitable, "cr_await", "gi_yieldfrom", "ag_await")
    if type(inner).__name__ in _OPAQUE:
        inside = gc.get_referents(inner)
        inner = next((one for one in inside if isinstance(one, _SUSPENDED)), None)
    return inner


def _attribute(awaitable: Any, *names: str) -> Any:
    """The first of these attributes that is not ``None``."""
    return next(filter(None, (getattr(awaitable, name, None) for name in names)), None)


def _all_tasks(asyncio: Any) -> list[Any]:
    tasks = asyncio.tasks
    # the first from Python 3.12 on
    all_tasks: Any = getattr(tasks, "_scheduled_tasks", None) or getattr(tasks, "_all_tasks", ())
    for _ in range(100):  # another thread may make a task meanwhile
        try:
            return list(all_tasks)
        except RuntimeError:
            continue
    return []
