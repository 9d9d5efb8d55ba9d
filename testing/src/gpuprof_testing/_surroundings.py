"""What a hook leaves changed in the process around it, what it prints, and how long it takes."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import ctypes
import datetime
import decimal
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import queue
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import numpy

State = dict[str, Any]
_THREAD = "gpuprof-kit"

RECORDING = frozenset(
    {
        "profile function",
        "trace function",
        "threads",
        "open files",
        "child processes",
        "gc callbacks",
        "timers",
        "tracing of allocations",
        "signals that libraries handle",
    }
)
"""What a tool may need while it records, and gives back when it stops."""
TIMERS = (signal.SIGPROF, signal.SIGALRM, signal.SIGVTALRM)
"""Signals that sampling profilers live on."""


TEMPORARY = "files in the temporary directory"


@attrs.define
class Called:
    """What a call did beside its result.

    Args:
        result: its result.
        raised: what it raised instead.
        seconds: how long it took.
        printed: what it wrote to the standard streams.
        changes: what it left changed: how it was, and how it is.
        acts: the files that it wrote and the programs that it started, if those were recorded.
    """

    result: Any = None
    raised: BaseException | None = None
    seconds: float = 0.0
    printed: str = ""
    changes: dict[str, tuple[Any, Any]] = attrs.field(factory=dict)
    acts: list[str] = attrs.field(factory=list)


def watch(function: Callable[[], Any], deadline: float | None = None) -> Called:
    """Call a function and see what it does beside its result.

    Args:
        deadline: seconds after which the call is given up. It runs on a thread that all such calls
            have in common, as windows do in a session. ``None``: call it on this thread, and wait
            as long as it takes.
    """
    effects = Called()

    def call() -> None:
        before = state()
        began = time.perf_counter()
        try:
            effects.result = function()
        except Exception as error:
            effects.raised = error
        effects.seconds = time.perf_counter() - began
        effects.changes = difference(before, state())

    with _printed(effects):
        if deadline is None:
            call()
        else:
            if not _calls:
                _calls.append(queue.SimpleQueue())
                threading.Thread(target=_serve, args=_calls, name=_THREAD, daemon=True).start()
            end = threading.Event()
            _calls[0].put((call, end))
            if not end.wait(deadline):
                _calls.clear()  # that thread waits for ever
                effects.seconds = deadline
                effects.raised = TimeoutError(f"it did not return within {deadline:g} s")
    return effects


_calls: list[queue.SimpleQueue[tuple[Callable[[], None], threading.Event]]] = []


def _serve(calls: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]]) -> None:
    while True:
        call, end = calls.get()
        try:
            call()
        finally:
            end.set()


def difference(before: State, after: State) -> dict[str, tuple[Any, Any]]:
    """What differs between two states; of modules, those that were removed or replaced."""
    changes = {name: (was, after[name]) for name, was in before.items() if after[name] != was}
    if "modules" in changes:
        was, now = changes.pop("modules")
        names = sorted(name for name, module in was.items() if now.get(name) != module)
        if names:
            changes["modules"] = (names, "removed or replaced")
    return changes


def state() -> State:
    """What a job relies on in its process, by names that a message can use."""
    mask = os.umask(0)
    os.umask(mask)
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "environment": dict(os.environ),
        "working directory": _working_directory(),
        "umask": f"{mask:04o}",
        "niceness": os.nice(0),
        "cpu affinity": sorted(os.sched_getaffinity(0)),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "signal handlers": _handlers(),
        "blocked signals": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "timers": [any(signal.getitimer(which)) for which in (0, 1, 2)],
        "signals that libraries handle": _caught(),
        "open files": _descriptors(),
        "threads": sorted(
            thread.name for thread in threading.enumerate() if thread.name != _THREAD
        ),
        "child processes": _children(),
        "profile function": [sys.getprofile(), threading.getprofile()] if _NEW else _hooks(),
        "trace function": [sys.gettrace(), threading.gettrace()] if _NEW else None,
        "audit of imports": [type(finder).__name__ for finder in sys.meta_path],
        "sys.path": list(sys.path),
        "sys.argv": list(sys.argv),
        "sys.flags of bytecode": sys.dont_write_bytecode,
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "standard streams": [id(sys.stdin), id(sys.stdout), id(sys.stderr)],
        "encodings": [
            (getattr(stream, "encoding", ""), getattr(stream, "errors", ""))
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "hooks of sys": [id(hook) for hook in (sys.excepthook, sys.displayhook, sys.unraisablehook)]
        + [id(threading.excepthook)],
        "builtins": {name: id(value) for name, value in vars(builtins).items() if name != "_"},
        "functions of the standard library": {
            name: id(function) for name, function in _functions().items()
        },
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "gc callbacks": len(gc.callbacks),
        "frozen objects": gc.get_freeze_count() > 0,
        "random numbers": random.getstate(),
        "numpy's random numbers": _numpy_random(),
        "locale": locale.setlocale(locale.LC_ALL),
        "limit of digits": getattr(sys, "get_int_max_str_digits", lambda: 0)(),
        "standard input": _position(),
        TEMPORARY: sorted(os.listdir(tempfile.gettempdir())),
        "time zone": time.tzname,
        "warnings": [
            entry
            for entry in warnings.filters
            if entry[1] is None and entry[2] is Warning and entry[3] is None
        ],
        "showing of warnings": id(warnings.showwarning),
        "logging": _logging(),
        "decimal context": str(decimal.getcontext()),
        "default of sockets": socket.getdefaulttimeout(),
        "temporary directory": tempfile.gettempdir(),
        "fault handler": faulthandler.is_enabled(),
        "tracing of allocations": tracemalloc.is_tracing(),
        "event loop policy": f"{type(_policy()).__name__} at {id(_policy()):#x}",
        "current event loop": id(_event_loop()),
        "hooks of asynchronous generators": sys.get_asyncgen_hooks(),
        "child subreaper": _of_process(_GET_CHILD_SUBREAPER),
        "signal when the parent ends": _of_process(_GET_PDEATHSIG),
        "name": _read("comm"),
        "adjustment for the end of memory": _read("oom_score_adj"),
        "scheduling": os.sched_getscheduler(0),
        "stack size of new threads": _stack_size(),
        "waking file of signals": _wakeup(),
        "blocking of standard streams": [_blocks(number) for number in (0, 1, 2)],
        "flags of dlopen": sys.getdlopenflags(),
        "numpy's handling of errors": _of_numpy("geterr"),
        "numpy's print options": _of_numpy("get_printoptions"),
        "start method of multiprocessing": _start_method(),
        "modules": {name: id(module) for name, module in sys.modules.items()},
        "functions at exit": atexit._ncallbacks(),
    }


_NEW = hasattr(threading, "getprofile")
_GET_PDEATHSIG, _GET_CHILD_SUBREAPER = 2, 37  # linux/prctl.h


def _hooks() -> list[Any]:
    return [
        sys.getprofile(),
        sys.gettrace(),
        getattr(threading, "_profile_hook", None),
        getattr(threading, "_trace_hook", None),
    ]


def _working_directory() -> str:
    with suppress(OSError):
        return os.getcwd()
    return "(gone)"


def _position() -> int:
    with suppress(OSError):
        return os.lseek(0, 0, os.SEEK_CUR)
    return 0


def _handlers() -> dict[str, Any]:
    return {
        number.name: signal.getsignal(number) for number in signal.Signals if number not in TIMERS
    }


def _caught() -> list[int]:
    """The signals with a handler of whatever kind, Python's or a library's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            mask = int(line.split()[1], 16)
            return [n for n in range(1, 32) if mask >> (n - 1) & 1 and n not in TIMERS]
    return []


def _descriptors() -> dict[int, str]:
    """The open files by their numbers, but for what Python and the kernel open for themselves."""
    targets = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if not target.startswith("/proc/"):
                targets[int(name)] = target
    return targets


def _children() -> list[str]:
    numbers = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            numbers += (task / "children").read_text().split()
    return sorted(numbers)


def _functions() -> dict[str, Any]:
    """Functions that tools like to replace."""
    modules = {
        "os": os,
        "time": time,
        "threading": threading,
        "socket": socket,
        "signal": signal,
        "subprocess": subprocess,
    }
    names = {
        "os": ("fork", "_exit", "kill", "open", "system", "getpid"),
        "time": ("sleep", "time", "perf_counter"),
        "threading": ("Thread", "Lock"),
        "socket": ("socket",),
        "signal": ("signal",),
        "subprocess": ("Popen", "run", "check_output"),
    }
    functions = {
        f"{module}.{name}": getattr(modules[module], name)
        for module, attributes in names.items()
        for name in attributes
    }
    classes: tuple[type, ...] = (threading.Thread, subprocess.Popen, socket.socket)
    return functions | {
        f"{kind.__name__}.{name}": function
        for kind in classes
        for name, function in vars(kind).items()
    }


def be_unusual(number: int) -> None:
    """Give this process values of its own, as a job does: whoever sets the usual ones is seen.

    Args:
        number: another one makes other values.
    """
    random.seed(number)
    numpy.random.seed(number)
    numpy.seterr(under="warn")
    threading.setprofile(_hook_of_job)
    threading.settrace(_hook_of_job)
    threading.stack_size(1 << (20 + number % 3))
    sys.setrecursionlimit(2000 + number)
    sys.setswitchinterval(0.006)
    gc.set_threshold(701 + number, 11, 11)
    socket.setdefaulttimeout(1000.0 + number)
    warnings.simplefilter("ignore", ResourceWarning)
    os.umask(0o027)
    decimal.getcontext().prec = 30 + number
    if not _loops:
        _loops.append(asyncio.new_event_loop())
    asyncio.set_event_loop(_loops[0])
    be_elsewhere(f"KIT-5:{45 + number}")
    if not _of_job:
        _of_job.extend(os.pipe())
        os.set_blocking(_of_job[1], False)
    signal.set_wakeup_fd(_of_job[1])


_of_job: list[int] = []
_loops: list[asyncio.AbstractEventLoop] = []


def be_elsewhere(zone: str) -> None:
    """Move this process to another time zone, as the TZ of POSIX has them."""
    os.environ["TZ"] = zone
    time.tzset()


@contextmanager
def another_hour() -> Iterator[None]:
    """While this lasts, it is another hour of another day, here and elsewhere.

    By the functions that plans and names are made with. Who has imported one of them by its name
    is in another time zone, at least.
    """
    zone = os.environ.get("TZ")
    functions = {name: getattr(time, name) for name in ("time", "time_ns")}
    of_moments = {name: getattr(time, name) for name in ("localtime", "gmtime", "ctime")}

    def at(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda moment=None: function(time.time() if moment is None else moment)

    def strftime(form: str, moment: Any = None) -> str:
        return original_strftime(form, time.localtime() if moment is None else moment)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + _LATER

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.timezone.utc).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    original_strftime, original_datetime = time.strftime, datetime.datetime
    seconds = _LATER.total_seconds()
    be_elsewhere("KIT-9:30")
    try:
        time.time = lambda: functions["time"]() + seconds
        time.time_ns = lambda: functions["time_ns"]() + int(seconds * 1e9)
        for name, function in of_moments.items():
            setattr(time, name, at(function))
        time.strftime = strftime
        datetime.datetime = Later  # type: ignore[misc]  # as tests of dates do
        yield
    finally:
        for name, function in {**functions, **of_moments}.items():
            setattr(time, name, function)
        time.strftime, datetime.datetime = original_strftime, original_datetime  # type: ignore[misc]
        if zone is None:
            del os.environ["TZ"]
            time.tzset()
        else:
            be_elsewhere(zone)


_LATER = datetime.timedelta(days=40, hours=5, minutes=7)


def _hook_of_job(*_: object) -> None:
    """The function that the job has set to see its later threads."""


def _of_process(number: int) -> int:
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(number, ctypes.byref(answer))
    return answer.value


def _read(name: str) -> str:
    return Path("/proc/self", name).read_text().strip()


def _stack_size() -> int:
    size = threading.stack_size()  # which sets it to 0
    threading.stack_size(size)
    return size


def _wakeup() -> int:
    with suppress(ValueError):  # but in the main thread nobody can look
        number = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(number)
        return number
    return -1


def _blocks(number: int) -> bool:
    with suppress(OSError):
        return os.get_blocking(number)
    return True


def _event_loop() -> object:
    # get_event_loop would make one
    return getattr(getattr(_policy(), "_local", None), "_loop", None)


def _of_numpy(name: str) -> str:
    module = sys.modules.get("numpy")
    return str(getattr(module, name)()) if module is not None else ""


def _numpy_random() -> Any:
    numpy = sys.modules.get("numpy.random")
    try:
        return str(numpy.get_state()) if numpy is not None else None
    except Exception:
        return None


def _logging() -> Any:
    root = logging.getLogger()
    return (
        root.level,
        [id(handler) for handler in root.handlers],
        root.disabled,
        logging.root.manager.disable,
        [logging.getLevelName(level) for level in (10, 20, 30, 40, 50)],
        id(logging.getLoggerClass()),
    )


def _start_method() -> str:
    # asking for it without allow_none would set it
    return multiprocessing.get_start_method(True) or multiprocessing.get_all_start_methods()[0]


def _policy() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return asyncio.get_event_loop_policy()


@contextmanager
def _printed(effects: Called) -> Iterator[None]:
    """Collect what is written to the standard streams and their descriptors."""
    flush()
    with tempfile.TemporaryFile() as file:
        originals = [os.dup(number) for number in (1, 2)]
        streams = sys.stdout, sys.stderr
        stream = open(os.dup(file.fileno()), "w", buffering=1)  # noqa: SIM115
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            sys.stdout = sys.stderr = stream
            yield
        finally:
            if sys.stdout is stream:
                sys.stdout = streams[0]
            if sys.stderr is stream:
                sys.stderr = streams[1]
            stream.close()
            for number, original in zip((1, 2), originals, strict=True):
                os.dup2(original, number)
                os.close(original)
        file.seek(0)
        effects.printed = file.read().decode(errors="replace")


def flush() -> None:
    """Write what the streams still hold."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
