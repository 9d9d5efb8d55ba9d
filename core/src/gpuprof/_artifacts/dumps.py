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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from gpuprof._artifacts import formats, ledger, runs
from gpuprof._session.dump import MEMORY, OURS, VERSION, cpu_time, directory_of, not_private
from gpuprof._session.file import SESSION_VERSION, SessionFile
from gpuprof._shim.node import node_name
from gpuprof._shim.processes import place, process_start
from gpuprof._shim.safe import LARGEST, UnsafeFile, load_json, remove_tree
from gpuprof.errors import OutputError

State = Literal["answered", "by signal", "stopped", "dead", "silent"]
"""The outcome for a process. ``by signal``: gpuprof's thread could not run, so `faulthandler` has
written the stacks. ``silent``: no answer; the process may be on another node."""

PATIENCE = 10.0
"""Seconds to wait for answers. On a network file system, processes see a question with a delay."""
_SILENCE = 3.0
"""Seconds without an answer after which gpuprof inspects a process of this node from outside."""
_FRESH = 30.0
"""Seconds. A process writes its file every 5 s, so if the file is newer than this, the process is
alive somewhere."""
_PROCESS = re.compile(r"(?P<name>.+)\.(?:start|child)-\d+\.json")
_ANSWER = {"name": str, "group": str, "rank": int, "node": str, "pid": int, "threads": list}
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ ?(?:\[(?P<name>.*)\] )?\(most recent")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_MEMORY = re.compile(rf"/memfd:{MEMORY}-(\d+)-(\d+) \(deleted\)")


@attrs.frozen
class Process:
    """A process of the run, and what it is doing.

    Args:
        name: the worker's name, such as ``Learner-3``.
        file: the name of its answer file.
        path: its session file, which it rewrites every few seconds; ``None`` if it has none.
        start: its start time, which tells it from a later process with the same id.
        answer: see `gpuprof._session.dump.Answerer.answer`. After an answer by signal, only the
            time and the threads.
        last: a sentence about the last record of a process that does not answer.
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
    last: str = ""


def ask(directory: str, patience: float = PATIENCE) -> list[Process]:
    """Ask all processes of a run for their stacks.

    Args:
        directory: the run directory.
        patience: seconds to wait for processes that may still answer.

    Returns:
        All known processes of the run, whether or not they answered.

    Raises:
        OutputError: the directory cannot be written, or is not private.
    """
    question = _question(directory)
    try:
        return sorted(
            _collect(directory, question, patience), key=lambda each: (each.group, each.rank)
        )
    finally:
        with contextlib.suppress(OSError):
            remove_tree(question)


def _question(directory: str) -> str:
    path = directory_of(directory)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        problem = not_private(os.lstat(path))
        if problem:
            raise OutputError(
                f"{path}: {problem}; expected a directory of this user's, with mode 0700"
            )
        question = os.path.join(path, f"{time.time_ns():020d}-{secrets.token_hex(3)}")
        os.mkdir(question, 0o700)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    return question


def _collect(directory: str, question: str, patience: float) -> Iterator[Process]:
    waiting = {each.file: each for each in _expected(directory)}
    began = time.monotonic()
    while True:
        for file in _answers(question):
            answer = _read(os.path.join(question, file))
            known = waiting.pop(file, None)
            if answer is not None:
                yield _answered(file, answer, known)
        waited = time.monotonic() - began
        for each in list(waiting.values()):
            reached = _look_at(each, waited > _SILENCE)
            if reached is not None:
                del waiting[each.file]
                yield reached
        if waited > patience or (not waiting and waited > _SILENCE / 2):
            break
        time.sleep(0.05)
    for each in waiting.values():
        yield each


def _answers(question: str) -> list[str]:
    """The names of the answer files that have not been read yet."""
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(question) if not name.startswith("."))
    return []


def _read(path: str) -> dict[str, Any] | None:
    try:
        answer = load_json(path, LARGEST)
        os.unlink(path)
    except (OSError, UnsafeFile):
        return None
    valid = isinstance(answer, dict) and answer.get("version") == VERSION
    valid = valid and all(type(answer.get(key)) is kind for key, kind in _ANSWER.items())
    return answer if valid else None


def _answered(file: str, answer: dict[str, Any], known: Process | None) -> Process:
    return Process(
        str(answer["name"]),
        str(answer["group"]),
        int(answer["rank"]),
        str(answer["node"]),
        int(answer["pid"]),
        None if known is None else known.start,
        file,
        "answered",
        answer,
        path=None if known is None else known.path,
    )


def _expected(directory: str) -> list[Process]:
    """The processes that have not recorded their end. If a worker has several starts, its last."""
    known = runs.about(directory) or runs.About(directory, os.path.basename(directory))
    latest: dict[tuple[str, int], Process] = {}
    found = []
    for path in _session_files(known):
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
            path.name,
            path=path,
        )
        if session["incarnation"] is None:
            found += [] if session["over"] else [process]
        else:
            key = process.group, process.rank
            earlier = latest.get(key)
            if earlier is None or _number(earlier.file) < _number(path.name):
                latest[key] = process
                if session["over"]:
                    latest[key] = attrs.evolve(process, state="answered")
    found += [process for process in latest.values() if process.state != "answered"]
    driver = known.beginning["driver"] if known.beginning else None
    if driver is not None and driver["pid"] not in {each.pid for each in found}:
        here = driver["place"] == place()
        node = driver["place"].partition(" ")[0]
        found.append(
            Process(
                "Runner",
                "Runner",
                0,
                node if not here else os.uname().nodename,
                driver["pid"],
                driver["start"],
                "Runner.json",
            )
        )
    return found


def _number(file: str) -> int:
    return int(file.removesuffix(".json").rpartition("-")[2])


def _session_files(known: runs.About) -> Iterable[Path]:
    parent, name = os.path.split(os.path.abspath(known.directory))
    working = known.beginning["working_dir"] if known.beginning else parent
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
        gone = process.node == node_name() and not _is_fresh(process)
        return attrs.evolve(process, state="dead", last=_last_record(process)) if gone else None
    if _kernel_state(process.pid) in "Tt":
        return attrs.evolve(process, state="stopped", last=_last_record(process))
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
        The threads; ``None`` if the process has no signal handler or does not answer the signal.
    """
    for path, number, thread in _memories(pid):
        if not _catches(pid, number):
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
                found = _MEMORY.fullmatch(os.readlink(path))
                # a forked process inherits its parent's file, but not the parent's thread
                if found and os.path.isdir(f"/proc/{pid}/task/{found[2]}"):
                    yield path, int(found[1]), int(found[2])


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
    mine = [each for each in threads if not _is_ours(each["frames"])]
    for each in mine:
        each["frames"] = [frame for frame in each["frames"] if not frame[1].startswith(OURS)]
    return mine


def _is_ours(frames: list[Any]) -> bool:
    """Whether a thread is gpuprof's own: its outermost frame outside `threading` is gpuprof's."""
    inner = [file for _, file, _ in frames if os.path.basename(file) != "threading.py"]
    return bool(inner) and inner[-1].startswith(OURS)


def _last_record(process: Process) -> str:
    """A sentence about a process's last record, from its ledger or the time of its file."""
    if process.path is None:
        return ""
    try:
        record = ledger.read(process.path.with_suffix(ledger.SUFFIX))
    except (OutputError, ImportError):
        with contextlib.suppress(OSError):
            wrote = time.localtime(process.path.stat().st_mtime)
            return f"it wrote its file last at {time.strftime('%H:%M:%S', wrote)}"
        return ""
    at = time.strftime("%H:%M:%S", time.localtime((record.last + record.offset) / 1e9))
    calls = sorted(record.open.tolist(), key=lambda call: record.places[call[0]].depth)
    if not calls:
        return f"its last record is of {at}"
    place_number, start = calls[-1]
    since = time.strftime("%H:%M:%S", time.localtime((start + record.offset) / 1e9))
    return f"its last record is of {at}: in {record.places[place_number].path} since {since}"
