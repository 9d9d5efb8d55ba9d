"""Asks the processes of a running job for their stacks, and finds out why some do not answer.

In each process, a gpuprof thread writes the answer to the run directory; see
`gpuprof._session.dump`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from gpuprof._artifacts import alive, formats, ledger, runs, stacks
from gpuprof._log import log
from gpuprof._session.dump import MEMORY, OURS, VERSION, cpu_time, directory_of
from gpuprof._session.file import SESSION_VERSION, SessionFile
from gpuprof._shim.node import node_name
from gpuprof._shim.processes import place, process_children, process_start
from gpuprof._shim.safe import LARGEST, not_private, remove_tree
from gpuprof.errors import OutputError

State = formats.ProcessState
"""The outcome for a process. ``by signal``: gpuprof's thread could not run, so `faulthandler` has
written the stacks. ``lost``: its node has died. ``silent``: no answer; the process may be on
another node."""
ANSWERED = ("answered", "by signal")
"""The states of a process whose answer tells what it does now."""

PATIENCE = 10.0
"""Seconds to wait for answers. On a network file system, processes see a question with a delay."""
_SILENCE = 3.0
"""Seconds without an answer after which gpuprof inspects a process of this node from outside."""
_FRESH = 30.0
"""Seconds. A process writes its file every 5 s, so if the file is newer than this, the process is
alive somewhere."""
_SERVICES = re.compile(rb"/ray/|-m\0gpuprof|multiprocessing\.resource_tracker")
"""Command lines of child processes that are not the job's own."""
_PROCESS = re.compile(r"(?P<name>.+)\.(?:start|child)-\d+\.json")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ ?(?:\[(?P<name>.*)\] )?\(most recent")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_MEMORY = re.compile(rf"/memfd:{MEMORY}-(\d+)-(\d+) \(deleted\)")


@attrs.frozen
class Child:
    """A child process that is not recorded.

    Args:
        seconds: for how long its threads have run, or were ready to run but had no core.
    """

    pid: int
    seconds: float
    time: float


@attrs.frozen
class Process:
    """A process of the run, and what it is doing.

    Args:
        file: the name of its answer file.
        path: its session file, which it rewrites every few seconds; ``None`` if it has none.
        start: its start time, which tells it from a later process with the same id.
        answer: see `gpuprof._session.dump.Answerer.answer`. After an answer by signal, only the
            time and the threads; without an answer, those of its last record, if there is one.
        children: its child processes that are not recorded, if it is on this node.
    """

    name: str
    group: str
    rank: int
    node: str
    pid: int
    start: str | None
    file: str
    state: State = "silent"
    answer: dict[str, Any] = attrs.field(factory=dict)
    path: Path | None = None
    children: tuple[Child, ...] = ()


def ask(directory: str, patience: float = PATIENCE, name: str = "") -> list[Process]:
    """Ask all processes of a run for their stacks.

    Args:
        patience: seconds to wait for processes that may still answer.
        name: the name of a question that was asked on another node; empty for a new one.

    Raises:
        FileExistsError: this question is being asked here already.
    """
    question = _question(directory, name or f"{time.time_ns():020d}-{secrets.token_hex(3)}")
    try:
        processes = list(_collect(directory, question, patience))
        recorded = {process.pid for process in processes}
        with_children = [
            attrs.evolve(process, children=tuple(_children(process, recorded)))
            for process in processes
        ]
        return sorted(with_children, key=lambda process: (process.group, process.rank))
    finally:
        with contextlib.suppress(OSError):
            remove_tree(question)


def _children(process: Process, recorded: Container[int]) -> Iterator[Child]:
    if process.start is None or process_start(process.pid) != process.start:
        return
    for pid in process_children(process.pid):
        with contextlib.suppress(OSError):  # it ends
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if pid not in recorded and command and not _SERVICES.search(command):
                threads = map(int, os.listdir(f"/proc/{pid}/task"))
                yield Child(pid, sum(cpu_time(thread) or 0.0 for thread in threads), time.time())


def unasked(directory: str) -> list[int]:
    """The ranks of `gpuprof run` that have left no file here: their nodes do not share it."""
    ranks, _ = alive.read_ranks(directory)
    size = max((rank["size"] for rank in ranks), default=0)
    return sorted(set(range(size)) - {rank["rank"] for rank in ranks})


def _question(directory: str, name: str) -> str:
    path = directory_of(directory)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        problem = not_private(os.lstat(path))
        if problem:
            raise OutputError(
                f"{path}: {problem}; expected a directory of this user's, with mode 0700"
            )
        question = os.path.join(path, name)
        os.mkdir(question, 0o700)
    except FileExistsError:
        raise
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    return question


def _collect(directory: str, question: str, patience: float) -> Iterator[Process]:
    waiting = {process.file: process for process in _expected(directory)}
    files = set(waiting)
    reached_files: set[str] = set()
    damaged_files: set[str] = set()
    began = time.monotonic()
    while True:
        for file in _answers(question):
            if file in damaged_files:
                continue
            try:
                answer = _read(os.path.join(question, file))
            except FileNotFoundError:
                continue
            except OutputError as error:
                damaged_files.add(file)
                log().warning("%s", error)
                continue
            if file in reached_files:  # two may ask on one node
                continue
            reached_files.add(file)
            yield _answered(file, answer, waiting.pop(file, None))
            for process in _connected(answer):
                if process.file not in files | reached_files:
                    files.add(process.file)
                    waiting[process.file] = process
        waited = time.monotonic() - began
        for process in list(waiting.values()):
            reached = _look_at(process, waited > _SILENCE)
            if reached is not None:
                del waiting[process.file]
                reached_files.add(process.file)
                yield reached
        if waited > patience or (not waiting and waited > _SILENCE / 2):
            break
        time.sleep(0.05)
    for process in waiting.values():
        yield attrs.evolve(process, answer=_last_seen(process))


def _answers(question: str) -> list[str]:
    """The names of the answer files that have not been read yet."""
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(question) if not name.startswith("."))
    return []


def _read(path: str) -> formats.Answer:
    """Read and remove an answer."""
    try:
        return formats.read(path, formats.Answer, VERSION)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def to_answer(process: Process) -> dict[str, Any]:
    """What is known of a process, in the form of its own answer, for an asker on another node."""
    return {
        "threads": [],
        **process.answer,
        "version": VERSION,
        "name": process.name,
        "group": process.group,
        "rank": process.rank,
        "node": process.node,
        "pid": process.pid,
        "state": process.state,
    }


def _connected(answer: formats.Answer) -> Iterator[Process]:
    """The workers that a driver says are connected to it."""
    for worker in answer.get("workers", ()):
        name = worker["worker"]
        group, _, rank = name.rpartition("-")
        if rank.isdecimal():
            about = worker["node"], worker["pid"], None, worker["file"]
            yield Process(name, group, int(rank), *about)


def _answered(file: str, answer: formats.Answer, known: Process | None) -> Process:
    state = answer.get("state", "answered")
    content: dict[str, Any] = {**answer}
    if state not in ANSWERED and known is not None:  # a driver knows less than the files
        content |= _last_seen(known)
    return Process(
        answer["name"],
        answer["group"],
        answer["rank"],
        answer["node"],
        answer["pid"],
        None if known is None else known.start,
        file,
        state,
        content,
        path=None if known is None else known.path,
    )


def _expected(directory: str) -> list[Process]:
    """The processes that have not recorded their end. If a worker has several starts, its last."""
    about = runs.about(directory) or runs.About(directory, os.path.basename(directory))
    latest: dict[tuple[str, int], Process] = {}
    processes = []
    for path in _session_files(about):
        named = _PROCESS.fullmatch(path.name)
        try:
            session = formats.read(path, SessionFile, SESSION_VERSION) if named else None
        except (OutputError, OSError):  # unreadable
            continue
        if session is None:
            continue
        process = Process(
            session["name"],
            session["group"],
            session["rank"],
            session["node"],
            session["pid"],
            session["process_start"],
            f"{session['node']}.{path.name}",
            path=path,
        )
        if session["incarnation"] is None:
            processes += [] if session["over"] else [process]
        else:
            key = process.group, process.rank
            earlier = latest.get(key)
            if earlier is None or _number(earlier.file) < _number(path.name):
                latest[key] = process
                if session["over"]:
                    latest[key] = attrs.evolve(process, state="answered")
    processes += [process for process in latest.values() if process.state != "answered"]
    driver = about.beginning["driver"] if about.beginning else None
    if driver is not None and driver["pid"] not in {process.pid for process in processes}:
        is_here = driver["place"] == place()
        node = driver["place"].partition(" ")[0]
        processes.append(
            Process(
                "Runner",
                "Runner",
                0,
                node if not is_here else os.uname().nodename,
                driver["pid"],
                driver["start"],
                "Runner.json",
            )
        )
    return processes


def _number(file: str) -> int:
    return int(file.removesuffix(".json").rpartition("-")[2])


def _session_files(about: runs.About) -> Iterable[Path]:
    parent, name = os.path.split(os.path.abspath(about.directory))
    working = about.beginning["working_dir"] if about.beginning else parent
    for place_of_run in dict.fromkeys((os.path.join(parent, name), os.path.join(working, name))):
        for node in sorted(Path(place_of_run).glob("[!.]*")):
            if node.is_dir() and not node.is_symlink():
                yield from sorted(node.glob("*.json"))


def _look_at(process: Process, has_been_silent: bool) -> Process | None:
    """Inspect a process on this node from outside; ``None`` if the process may still answer.

    Args:
        has_been_silent: whether it has had `_SILENCE` seconds to answer.
    """
    if process.start is None:
        return None
    if process_start(process.pid) != process.start:
        is_gone = process.node == node_name() and not _is_fresh(process)
        return attrs.evolve(process, state="dead", answer=_last_seen(process)) if is_gone else None
    if _kernel_state(process.pid) in "Tt":
        return attrs.evolve(process, state="stopped", answer=_last_seen(process))
    if not has_been_silent:
        return None
    threads = _by_signal(process.pid)
    if threads is None:
        return None
    return attrs.evolve(
        process, state="by signal", answer={"time": time.time(), "threads": threads}
    )


def _is_fresh(process: Process) -> bool:
    """Whether the process wrote its file recently. Then it is alive, but in another container."""
    if process.path is None:
        return False
    with contextlib.suppress(OSError):
        return time.time() - process.path.stat().st_mtime < _FRESH
    return False


def _kernel_state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?"


def _by_signal(pid: int) -> list[dict[str, Any]] | None:
    """The threads of a process whose interpreter is blocked by C code.

    The signal goes to gpuprof's own thread in the process, so it interrupts no call of the job.

    Returns:
        The threads; ``None`` if the interpreter is not blocked, or the process has no signal
        handler or does not answer the signal.
    """
    for path, number, thread in _memories(pid):
        if not _catches(pid, number) or not _waits_for_gil(path, f"/proc/{pid}/task/{thread}"):
            continue
        try:
            with open(path, "r+b") as memory:
                memory.truncate(0)
                _send(pid, thread, number)
                text, before = b"", b"-"
                deadline = time.monotonic() + 2.0
                while (text != before or not text) and time.monotonic() < deadline:
                    time.sleep(0.1)
                    memory.seek(0)
                    text, before = memory.read(LARGEST), text
                memory.truncate(0)
        except OSError:
            continue
        if text:
            return parse(text.decode(errors="replace"), cpu_time(pid))
    return None


def _memories(pid: int) -> Iterator[tuple[str, int, int]]:
    """For each handler: the file for its stacks, its signal, and the thread to send that to."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                match = _MEMORY.fullmatch(os.readlink(path))
                # a forked process inherits its parent's file, but not the parent's thread
                if match and os.path.isdir(f"/proc/{pid}/task/{match[2]}"):
                    yield path, int(match[1]), int(match[2])


def _waits_for_gil(memory: str, thread: str) -> bool:
    """Whether gpuprof's thread in a process has waited for the GIL for the last `_SILENCE` seconds.

    Then the GIL's holder is in C code: it would have given the GIL to the thread otherwise, even on
    a busy machine.

    Args:
        memory: the in-memory file whose time of change shows when the thread last had the GIL.
        thread: the thread's directory in `/proc`.
    """
    try:
        if time.time() - os.stat(memory).st_mtime < _SILENCE:
            return False
        before = _switches(thread)
        time.sleep(0.5)
        # A thread that waits for the GIL asks for it every 5 ms. Any other wait does not wake it.
        return _switches(thread) - before > 3 and time.time() - os.stat(memory).st_mtime > _SILENCE
    except (OSError, StopIteration):
        return False


def _switches(thread: str) -> int:
    """How often a thread has gone to sleep."""
    with open(f"{thread}/status") as file:
        return int(next(line for line in file if line.startswith("voluntary")).split()[1])


def _catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal, which would otherwise kill it."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    except (OSError, StopIteration, ValueError):
        return False


def _send(pid: int, thread: int, number: int) -> None:
    import ctypes

    tgkill = getattr(ctypes.CDLL(None, use_errno=True), "tgkill", None)
    if tgkill is None or tgkill(pid, thread, number):
        os.kill(pid, signal.Signals(number) if number < signal.SIGRTMIN else number)


def parse(text: str, cpu: float | None = None) -> list[dict[str, Any]]:
    r"""Parse the threads that `faulthandler` has written, without gpuprof's own threads.

    Args:
        cpu: the processor time of the main thread; see `cpu_time`.

    >>> parse('Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f')[0]["frames"]
    [['f', 'a.py', 3]]
    """
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        thread, frame = _THREAD.match(line), _FRAME.match(line)
        if thread:
            threads.append(
                {
                    "id": len(threads),
                    "name": thread["name"] or "",
                    "main": False,
                    "frames": [],
                    "scope": None,
                    "waits": [],
                    "cpu": None,
                }
            )
        elif frame and threads:
            number = int(frame["line"]) if frame["line"].isdigit() else 0
            threads[-1]["frames"].append([frame["name"], frame["file"], number])
    if threads:  # the newest comes first
        threads[-1].update(main=True, cpu=cpu, name="MainThread")
    of_job = [thread for thread in threads if not _is_ours(thread["frames"])]
    for job_thread in of_job:
        job_thread["frames"] = [
            frame for frame in job_thread["frames"] if not frame[1].startswith(OURS)
        ]
    return of_job


def _is_ours(frames: list[Any]) -> bool:
    """Whether a thread is gpuprof's own: its outermost frame outside `threading` is gpuprof's."""
    inner = [file for _, file, _ in frames if os.path.basename(file) != "threading.py"]
    return bool(inner) and inner[-1].startswith(OURS)


def _last_seen(process: Process) -> dict[str, Any]:
    """What a process that does not answer has recorded last, in the form of an answer."""
    if process.path is None:
        return {}
    try:
        wrote = process.path.stat().st_mtime  # it rewrites its file even if nothing ends
    except OSError:
        return {}
    try:
        record = ledger.read(process.path.with_suffix(ledger.SUFFIX))
        samples = stacks.read(record)
    except (OutputError, ImportError):
        return {"time": wrote}
    scope = None
    if len(record.open):
        number, start = max(record.open.tolist(), key=lambda call: record.places[call[0]].depth)[:2]
        began = (start + record.header["wall"] - record.header["monotonic"]) / 1e9
        scope = {"path": record.places[number].path, "seconds": max(0.0, wrote - began)}
    frames = [] if samples is None else last_frames(record, samples)
    thread = {"id": 0, "name": "MainThread", "main": True, "frames": frames, "scope": scope}
    return {"time": wrote, "threads": [{**thread, "waits": [], "cpu": None}]}


def last_frames(
    record: ledger.Ledger, samples: stacks.Stacks, thread: str = "MainThread"
) -> list[tuple[str, str, int]]:
    """A thread's last sampled stack, the innermost frame first."""
    tracks = [number for number, track in enumerate(record.tracks) if track.name == thread]
    rows = [row for row in samples.samples.tolist() if row[1] in tracks]
    number = max(rows, key=lambda row: row[-1])[0] if rows else 0
    frames = []
    while number:
        caller, function_number, line = samples.stacks[number].tolist()
        function = samples.functions[function_number]
        if not function.file.startswith(OURS):
            frames.append((function.function, function.file, line))
        number = caller
    return frames
