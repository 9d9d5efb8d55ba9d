"""The kit's worker, run as a script: reports on its process, then does what it is told.

_program.py REPORT WORK [ARGUMENT…]
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

BEGAN = time.monotonic()
"""When this began, by the clock that all processes of a machine share."""
THREADS, ROUNDS, TASKS = 4, 5, 10
SLEEP = 0.03
"""Seconds of the range ``kit/sleep``."""
PART = 0.01
"""Seconds of the shortest part of ranges that overlap."""
MEETS = 20.0
"""Seconds that a worker waits for another one, which may have failed."""
SETTLES, SLEEPS = 0.5, 1.5
"""Seconds that a worker sleeps in a window, before and while it is watched."""
NAMES = ("kit/日本 ünï 🙂", "kit/" + "long" * 100, "kit/{a} %s $HOME \\ \"q\" 'q'")
"""Names of ranges that few tools have thought of."""
SAID, COMPLAINED = "kit: a result", "kit: a complaint"
LOOKS, BETWEEN_LOOKS = 3, 0.05
"""How often the worker looks at its open files after a window, and the seconds in between."""
STEPS = (1, 3)
"""The steps that are captured."""
TIMES: dict[str, list[list[int]]] = {}
"""How long some ranges took by this program's own clock, see `Timed`, by their names."""


def tell(path: str) -> None:
    """Write down the interpreter, the arguments, the module's name and the process's state."""
    state = {
        "began": BEGAN,
        "pid": os.getpid(),
        "executable": sys.executable,
        "flags": [*sys.flags, getattr(sys.stdout, "write_through", False)],  # of -u
        "argv": sys.argv,
        "name": __name__,
        "path": sys.path,
        "process": process(),
        "environment": dict(os.environ),
    }
    with open(path, "w") as file:
        json.dump(state, file)
    for stream, text in ((sys.stdout, SAID), (sys.stderr, COMPLAINED)):
        stream.write(f"{text}\n")
        stream.flush()


def process() -> dict[str, object]:
    """What this process has from its launcher, and no tool may change."""
    mask = os.umask(0)
    os.umask(mask)
    ignored_signals = [n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN]
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "umask": f"{mask:04o}",
        "ignored signals": ignored_signals,
        "blocked signals": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "working directory": os.getcwd(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "stdout": os.readlink("/proc/self/fd/1"),
        "stderr": os.readlink("/proc/self/fd/2"),
        "niceness": os.nice(0),
        "session": os.getsid(0),
        "process group": os.getpgid(0),
        "cpu affinity": sorted(os.sched_getaffinity(0)),
        "input": hashlib.sha256(sys.stdin.buffer.read()).hexdigest(),
    }


def open_files() -> Counter[str]:
    """How many files of each kind this process has open, without gpuprof's own."""
    files: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            to = os.readlink(f"/proc/self/fd/{name}")
            if not to.startswith(("/proc/", "anon_inode:")) and not to.endswith(".ledger"):
                files[to.partition(":")[0]] += 1
    return files


def opened() -> dict[str, object]:
    """How many files of each kind and threads this process has, without gpuprof's own."""
    files = open_files()
    for _ in range(LOOKS - 1):  # gpuprof's threads open files and directories for a moment
        time.sleep(BETWEEN_LOOKS)
        files &= open_files()
    threads = [
        thread.name for thread in threading.enumerate() if not thread.name.startswith("gpuprof")
    ]
    children = 0
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            children += len(file.read().split())
    return {
        "file": files,
        "thread": len(threads),
        "child process": children,
        "file in the temporary directory": len(os.listdir(tempfile.gettempdir())),
    }


def inheritable() -> list[str]:
    """The files, beside the standard ones, that programs get which this process starts."""
    paths = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                paths.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(path for path in paths if not path.startswith("/proc/"))


def be_patient() -> None:
    """Wait for the tool for as long as it takes; a job on a busy machine would go on without it.

    A tool that hangs is found by whoever started this program.
    """
    from gpuprof._session import session

    session.OPEN_DEADLINE = session.CLOSE_DEADLINE = threading.TIMEOUT_MAX


def work(step: int) -> None:
    """One step, in threads and tasks."""
    import gpuprof

    with gpuprof.timing().add_time(f"kit/outer-{step}"):
        for _ in range(3):
            with gpuprof.annotate(f"kit/inner-{step}"):
                pass
        with gpuprof.annotate(f"kit/sleep-{step}"):
            time.sleep(SLEEP)
            with gpuprof.annotate(f"kit/deep-{step}"):
                pass
        for name in NAMES:
            with gpuprof.annotate(f"{name}-{step}"):
                pass
        try:
            with gpuprof.annotate(f"kit/raises-{step}"):
                raise KeyError
        except KeyError:
            pass
        threads = [threading.Thread(target=work_in_thread, args=(step,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(work_in_tasks(step), debug=False)  # -X dev would report slow tasks
    for _ in range(3):
        with gpuprof.annotate("kit"):  # for tools that count ranges of one name
            pass
    with gpuprof.annotate(f"kit/inner-{step}"):  # the same name at another place
        pass
    if step in STEPS:
        overlap(step)


class Timed:
    """A range that notes in `TIMES` how long it took at least and at most.

    These are nanoseconds; and when it was entered and left, in nanoseconds since the epoch.
    """

    def __init__(self, name: str, crosses_tasks: bool = False) -> None:
        import gpuprof

        self.name = name
        self.range = gpuprof.annotate(name, crosses_tasks=crosses_tasks)

    def __enter__(self) -> None:
        self.epoch = time.time_ns()
        self.before = time.perf_counter_ns()
        self.range.__enter__()
        self.entered = time.perf_counter_ns()

    def __exit__(self, *error: object) -> None:
        least = time.perf_counter_ns() - self.entered
        self.range.__exit__(None, None, None)
        most = time.perf_counter_ns() - self.before
        TIMES.setdefault(self.name, []).append([least, most, self.epoch, time.time_ns()])


def overlap(step: int) -> None:
    """Open ranges that differ in their times only: those of one name, and those that overlap."""
    early, later = (Timed(f"kit/{name}-{step}", True) for name in ("early", "later"))
    early.__enter__()
    time.sleep(3 * PART)
    later.__enter__()
    time.sleep(PART)
    early.__exit__()
    time.sleep(PART)
    later.__exit__()
    with Timed(f"kit/again-{step}"):
        time.sleep(3 * PART)
        with Timed(f"kit/again-{step}"):
            time.sleep(PART)
    twins = []
    for _ in range(2):
        entered, leave = threading.Event(), threading.Event()
        thread = threading.Thread(target=be_a_twin, args=(step, entered, leave))
        thread.start()
        entered.wait()
        twins.append((thread, leave))
        time.sleep((3 if len(twins) == 1 else 1) * PART)
    for thread, leave in twins:
        leave.set()
        thread.join()
        time.sleep(PART)


def be_a_twin(step: int, entered: threading.Event, leave: threading.Event) -> None:
    """Open a range beside one of the same name in another thread."""
    with Timed(f"kit/twin-{step}"):
        entered.set()
        leave.wait()


def recorded(directory: str) -> list[str]:
    """The files below a directory in which something is written."""
    return [
        name
        for place, _, names in os.walk(directory)
        if "/." not in place[len(directory) :]  # gpuprof's own
        for name in names
        if os.path.getsize(os.path.join(place, name))
    ]


def meet(when: str) -> None:
    """Wait for another worker, as ranks do: in its window, too, and at the same place of it."""
    met = os.environ.get("KIT_MEET")
    if not met:
        return
    open(f"{met}-{when}-{os.getpid()}", "w").close()
    directory, name = os.path.split(f"{met}-{when}-")
    deadline = time.monotonic() + MEETS
    while time.monotonic() < deadline:
        if sum(path.startswith(name) for path in os.listdir(directory)) > 1:
            return
        time.sleep(0.01)
    os.environ["KIT_MEET"] = ""  # it does not come


def work_in_thread(step: int) -> None:
    """Open ranges beside those of other threads."""
    import gpuprof

    for _ in range(ROUNDS):
        with gpuprof.annotate(f"kit/thread-{step}"):
            pass


async def work_in_tasks(step: int) -> None:
    """Open ranges in interleaved tasks."""
    import gpuprof

    async def one(number: int) -> None:
        with gpuprof.annotate(f"kit/task-{step}"):
            for _ in range(number % 3 + 1):
                await asyncio.sleep(0)

    await asyncio.gather(*(one(number) for number in range(TASKS)))


def expected_labels(step: int, windows: int = 1) -> dict[str, int]:
    """How often each range is opened in a step, and one of any step's in as many windows."""
    kinds = {"outer": 1, "inner": 4, "sleep": 1, "deep": 1, "raises": 1}
    kinds |= {"thread": THREADS * ROUNDS, "early": 1, "later": 1, "again": 2, "twin": 2}
    own_names = {f"{name}-{step}": 1 for name in NAMES}
    everywhere = {"kit": 3 * windows}
    return {f"kit/{kind}-{step}": count for kind, count in (kinds | {"task": TASKS}).items()} | (
        own_names | everywhere
    )


def scopes() -> None:
    """A step with two scopes and a part between them."""
    import gpuprof

    be_patient()
    for step in range(3):
        with gpuprof.step(step):
            for name in ("kit/first", "kit/second one"):
                with gpuprof.timer(name), gpuprof.annotate(f"{name}-{step}"):
                    pass


def wait(path: str) -> None:
    """Note the signals that come; end on SIGTERM, after a clean-up that takes a second."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(number: int, frame: object) -> None:
        os.write(log, f"{signal.Signals(number).name}\n".encode())
        if number == signal.SIGTERM:
            time.sleep(1.0)
            os.write(log, b"cleaned up\n")
            os._exit(9)

    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, note)
    os.write(log, b"ready\n")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)


def leave(path: str) -> None:
    """Leave a process running, as a server of the job's, and write its number."""
    started = os.posix_spawn("/bin/sleep", ["sleep", "90"], os.environ, setsid=True)
    with open(path, "w") as file:
        file.write(str(started))


def busy(rounds: int) -> None:
    """Something for any profiler: calls, allocations, a thread, a child process."""
    rows = [[str(number)] * 100 for number in range(rounds)]
    thread = threading.Thread(target=len, args=(rows,))
    thread.start()
    thread.join()


def idle(path: str) -> None:
    """Sleep in a window and after it, and write what this process and its tool spend on it.

    Written are, for each, two numbers in seconds: of processors, and of a clock.
    """
    import gpuprof

    be_patient()
    # as in Ray's workers, and inherited by what the worker starts
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    spent = {}
    for step, when in ((1, "in a window"), (2, "while no window was open")):
        with gpuprof.step(step):
            time.sleep(SETTLES)  # the tool may be busy with its start, or with the window's end
            before, began = _spent(), time.monotonic()
            time.sleep(SLEEPS)
            spent[when] = [_spent() - before, time.monotonic() - began]
    with open(path, "w") as file:
        json.dump(spent, file)


def _spent() -> float:
    """Seconds of processors of all processes that have this one's token."""
    ticks = 0
    token = f"KIT_TOKEN={os.environ['KIT_TOKEN']}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                if token not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{pid}/stat") as file:
                ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def end(how: str) -> None:
    """End in one of many ways."""
    if how.isdigit():
        sys.exit(int(how))
    if how.startswith("_"):
        os._exit(int(how[1:]))
    if how == "raise":
        raise KeyError("the worker's own")
    if how.startswith("SIG"):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.Signals[how])
        time.sleep(5)


def main(path: str, works: str, *arguments: str) -> None:
    """Report, then do what `works` says."""
    if works == "plain":
        sys.stdout.write(f"{SAID}\n")
        if "KIT_FILE" in os.environ:
            with contextlib.suppress(OSError):
                os.write(int(os.environ["KIT_FILE"]), f"{SAID}\n".encode())
        busy(20_000)
        return
    tell(path)
    if works == "leave":
        leave(arguments[0])
    if works == "end":
        end(arguments[0])
    if works == "wait":
        wait(arguments[0])
    if works == "idle":
        idle(arguments[0])
    if works == "scopes":
        scopes()
    if works in ("work", "killed", "linger"):
        import gpuprof

        be_patient()
        children = inheritable()
        inherited: set[str] = set()
        beside: set[str] = set()
        around: dict[str, object] = {"at start": children}
        for step in range(5):
            if works == "work" and step in (2, 4):  # after each of the windows
                around[str(step)] = opened()
            late = [
                gpuprof.annotate(f"kit/late-{step}", crosses_tasks=crosses)
                for crosses in (False, True)
            ]
            with gpuprof.step(step):
                meet(f"before-{step}")
                work(step)
                meet(f"after-{step}")
                inherited |= {*inheritable()} - {*children}
                beside |= {*os.listdir()}
                if step == 1:
                    subprocess.run(["/bin/true"], check=True)  # a tool may leave a file of each
                if works == "killed" and step == 3:
                    with open(f"{path}.last", "w") as file:
                        json.dump(recorded(arguments[0]), file)
                    os.kill(os.getpid(), signal.SIGKILL)
                for scope in late:
                    scope.__enter__()
            for scope in reversed(late):
                scope.__exit__(None, None, None)
        with open(f"{path}.around", "w") as file:
            result = {"inherited": sorted(inherited), "beside": sorted(beside), "times": TIMES}
            json.dump({**around, **result}, file)
        while works == "linger" and not os.path.exists(arguments[0]):
            time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
