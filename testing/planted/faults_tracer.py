"""Faults of the in-process tracer."""

import asyncio
import atexit
import contextvars
import dataclasses
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings

import attrs
from backends.tracer import EXTENSION, VERSION, Range, Trace, TracerOptions
from faults import fault
from gpuprof.backend import RangeTimes, Tool, Window, hookimpl, move, option


def tracer(name, theme, harm):
    return fault(name, "tracer", theme, harm)


def with_trace(Base, Faulty):
    return type("FaultyBackend", (Base,), {"Trace": Faulty})


def with_range(Base, Faulty):
    class FaultyTrace(Trace):
        def range(self, name, crosses_tasks):
            return Faulty(self, name, crosses_tasks)

    return with_trace(Base, FaultyTrace)


def at_start(function):
    """A class that does one thing more when a window opens."""

    def make(Base):
        class Faulty(Base):
            @hookimpl
            def start_capture(self, worker, window):
                function(self)
                Base.start_capture(self, worker, window)

        return Faulty

    return make


def at_stop(function):
    """A class that does one thing more when a window closes."""

    def make(Base):
        class Faulty(Base):
            @hookimpl
            def stop_capture(self):
                files = Base.stop_capture(self)
                function(self)
                return files

        return Faulty

    return make


# ---- files


@tracer(
    "report-fixed-name",
    "files",
    "Every rank and window writes trace.tracer.json; none has the planned name.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            self.final = os.path.join(os.path.dirname(self.final), "trace")
            return super().write()

    return with_trace(Base, FaultyTrace)


@tracer(
    "report-overwritten-on-restart",
    "files",
    "A restarted worker replaces the report of its first start.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            with open(self.scratch, "w", encoding="utf-8") as file:
                json.dump(self.content(), file)
                file.write("\n")
            os.replace(self.scratch, self.final + EXTENSION)
            return self.final + EXTENSION

    return with_trace(Base, FaultyTrace)


@tracer(
    "scratch-shared-by-ranks",
    "ranks",
    "Two ranks that close their windows together destroy each other's file.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            self.scratch = os.path.join(os.path.dirname(self.final), "tracer.part")
            return super().write()

    return with_trace(Base, FaultyTrace)


@tracer("report-private-mode", "files", "Colleagues cannot read the report: its mode is 0600.")
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            handle, self.scratch = tempfile.mkstemp(dir=os.path.dirname(self.final), suffix=".part")
            os.close(handle)
            return super().write()

    return with_trace(Base, FaultyTrace)


@tracer(
    "report-world-writable",
    "files",
    "Anybody on the machine can change the report, whatever the umask says.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            final = super().write()
            os.chmod(final, 0o666)
            return final

    return with_trace(Base, FaultyTrace)


@tracer("report-empty", "nothing-recorded", "The report is there, with nothing in it.")
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            open(self.scratch, "w").close()
            return move(self.scratch, self.final, EXTENSION)

    return with_trace(Base, FaultyTrace)


@tracer(
    "report-without-events",
    "nothing-recorded",
    "The report is well-formed and holds no range, as events are cleared before they are written.",
)
def _(Base):
    class FaultyTrace(Trace):
        def stop(self):
            super().stop()
            self.events = []

    return with_trace(Base, FaultyTrace)


@tracer(
    "report-written-later",
    "files",
    "stop_capture names a file that is only written 3 s later, so a job that ends has none.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            timer = threading.Timer(3, super().write)
            timer.daemon = True
            timer.start()
            return self.final + EXTENSION

    return with_trace(Base, FaultyTrace)


@tracer(
    "report-relative-path",
    "files",
    "The report is said to be at a path relative to the job's directory and is not found later.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self):
            return [os.path.relpath(file) for file in Base.stop_capture(self) or []]

    return Faulty


@tracer(
    "report-keeps-scratch-name",
    "files",
    "The report stays under its intermediate name, and the planned one is missing.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            with open(self.scratch, "w", encoding="utf-8") as file:
                json.dump(self.content(), file)
                file.write("\n")
            return self.scratch

    return with_trace(Base, FaultyTrace)


@tracer(
    "report-part-left-behind",
    "leftovers",
    "A .part file stays beside each report and doubles the space.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            with open(self.scratch, "w", encoding="utf-8") as file:
                json.dump(self.content(), file)
                file.write("\n")
            copy = self.scratch + ".copy"
            shutil.copy(self.scratch, copy)
            return move(copy, self.final, EXTENSION)

    return with_trace(Base, FaultyTrace)


@tracer("file-name-template-ignored", "files", "The user's file_name has no effect on the report.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, attrs.evolve(worker, file_name=None), window)

    return Faulty


@tracer(
    "discrete-windows-share-name",
    "windows",
    "The files of scopes in one step have the same name with numbers, and not those planned.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, Window(window.number, window.start, window.stop))

    return Faulty


@tracer(
    "second-window-holds-first",
    "windows",
    "Each report also holds the ranges of all windows before it.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            super().__init__(options)
            self.events = []

        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, window)
            self._trace.events = self.events

    return Faulty


@tracer("second-window-not-recorded", "windows", "Only the first window leaves a report.")
def _(Base):
    class Faulty(Base):
        done = False

        @hookimpl
        def start_capture(self, worker, window):
            if not self.done:
                self.done = True
                Base.start_capture(self, worker, window)

    return Faulty


@tracer(
    "whole-life-fails", "windows", "A capture of the whole life raises, as it has no first step."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            self.steps = list(range(window.start, window.stop))
            Base.start_capture(self, worker, window)

    return Faulty


@tracer("only-single-steps-recorded", "windows", "A window of several steps is not recorded.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            if window.start is None or window.stop == window.start + 1:
                Base.start_capture(self, worker, window)

    return Faulty


@tracer(
    "stop-returns-no-files",
    "files",
    "The report is there but the receipt calls it missing: stop_capture forgets to return it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self):
            Base.stop_capture(self)

    return Faulty


@tracer(
    "stop-returns-a-string",
    "types",
    "The backend is switched off at the first window: a path instead of a list of them.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self):
            return (Base.stop_capture(self) or [None])[0]

    return Faulty


@tracer(
    "stop-returns-bytes",
    "types",
    "The backend is switched off at the first window: paths as bytes.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self):
            return [os.fsencode(file) for file in Base.stop_capture(self) or []]

    return Faulty


@tracer(
    "expected-wrong-extension",
    "expected",
    "The receipt says that every report is missing: .json was promised, .tracer.json is there.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {window.number: worker.final_stem(window) + ".json" for window in windows}

    return Faulty


@tracer(
    "expected-only-first-window", "expected", "A missing report of a later window is never noticed."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {window.number: worker.final_stem(window) + EXTENSION for window in windows[:1]}

    return Faulty


@tracer(
    "expected-extra-summary",
    "expected",
    "The receipt misses a file for a window that was never planned.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {
                **Base.expected_files(self, worker, windows),
                0: f"{worker.directory}/summary{EXTENSION}",
            }

    return Faulty


@tracer(
    "expected-counts-from-zero",
    "expected",
    "The receipt attributes each report to the window before it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return dict(enumerate(worker.final_stem(window) + EXTENSION for window in windows))

    return Faulty


@tracer("expected-list", "types", "Planning fails: a list of files instead of a mapping by window.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return [worker.final_stem(window) + EXTENSION for window in windows]

    return Faulty


@tracer(
    "expected-needs-existing-directory",
    "pure",
    "Planning fails where the run's directory does not exist yet.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            os.listdir(worker.directory)
            return Base.expected_files(self, worker, windows)

    return Faulty


@tracer(
    "expected-makes-directory",
    "pure",
    "`gpuprof plan` leaves a directory behind on the machine that plans.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            os.makedirs(worker.directory, exist_ok=True)
            return Base.expected_files(self, worker, windows)

    return Faulty


@tracer(
    "expected-has-date",
    "pure",
    "Plan and receipt name different files, as the name has the time of the call in it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {
                w.number: f"{worker.final_stem(w)}.{time.time_ns()}{EXTENSION}" for w in windows
            }

    return Faulty


# ---- state


@tracer(
    "state-shared-by-instances",
    "state",
    "A second session in the process ends the first one's window.",
)
def _(Base):
    class Faulty(Base):
        shared = None

        def __init__(self, options):
            self._options = options

        @property
        def _trace(self):
            return Faulty.shared

        @_trace.setter
        def _trace(self, value):
            Faulty.shared = value

    return Faulty


@tracer(
    "options-shared-by-instances",
    "state",
    "The settings of the last instance apply to all of them.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            Base.__init__(self, options)
            Faulty.last = options

        @property
        def _options(self):
            return Faulty.last

        @_options.setter
        def _options(self, value):
            pass

    return Faulty


@tracer(
    "stop-without-start-raises",
    "state",
    "If the start never ran, the stop raises an AttributeError and the fault is blamed on it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self):
            if not hasattr(self, "ran"):
                if self._trace is None:
                    raise AttributeError("'NoneType' object has no attribute 'stop'")
                self.ran = True
            return Base.stop_capture(self)

    return Faulty


@tracer(
    "stop-twice-raises",
    "state",
    "A second stop raises, and the session reports a fault that is none.",
)
def _(Base):
    class Faulty(Base):
        stopped = False

        @hookimpl
        def start_capture(self, worker, window):
            self.stopped = False
            Base.start_capture(self, worker, window)

        @hookimpl
        def stop_capture(self):
            if self.stopped:
                raise RuntimeError("is not running")
            self.stopped = True
            return Base.stop_capture(self)

    return Faulty


@tracer("stop-twice-writes-twice", "state", "A second stop leaves another copy of the report.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self):
            trace = self._trace
            files = Base.stop_capture(self)
            self._last, last = trace or getattr(self, "_last", None), getattr(self, "_last", None)
            return [last.write()] if trace is None and last is not None else files

    return Faulty


@tracer(
    "failed-start-half-on",
    "state",
    "A start that raises, as into a directory that is gone, leaves the collector's callback behind, and stop does not undo it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            scratch = (
                f"{worker.directory}/{worker.file_stem}.window-{window.number}{EXTENSION}.part"
            )
            trace = self.Trace(self._options, scratch, worker.final_stem(window))
            trace.start()
            open(scratch, "w").close()  # raises where it cannot write
            self._trace = trace

    return Faulty


@tracer(
    "failed-start-blocks-next",
    "state",
    "After one start that raised, every later window is refused as 'already running'.",
)
def _(Base):
    class Faulty(Base):
        running = False

        @hookimpl
        def start_capture(self, worker, window):
            if self.running:
                raise RuntimeError("is already running")
            self.running = True
            if not os.path.isdir(worker.directory):
                raise FileNotFoundError(worker.directory)
            Base.start_capture(self, worker, window)

        @hookimpl
        def stop_capture(self):
            if self._trace is not None:
                self.running = False
            return Base.stop_capture(self)

    return Faulty


@tracer(
    "state-in-thread-local",
    "state",
    "Nothing is recorded: the state lives in the control thread, and ranges open in others.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            self._options, self._local = options, threading.local()

        @property
        def _trace(self):
            return getattr(self._local, "trace", None)

        @_trace.setter
        def _trace(self, value):
            self._local.trace = value

    return Faulty


@tracer(
    "hook-asks-for-the-main-thread",
    "state",
    "No window opens: the start insists on the main thread.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("start the tracer on the main thread")
            Base.start_capture(self, worker, window)

    return Faulty


# ---- what is left in the process

tracer(
    "leaves-gc-callback",
    "leftovers",
    "After the window each collection still calls the tracer, and memory grows.",
)(
    lambda Base: with_trace(
        Base,
        type("FaultyTrace", (Trace,), {"stop": lambda self: setattr(self, "is_open", False)}),
    )
)


def leave(name, harm, function):
    tracer(name, "leftovers", harm)(at_start(function))


def stop_leaves(name, harm, function):
    tracer(name, "leftovers", harm)(at_stop(function))


leave(
    "leaves-gc-disabled",
    "The job's memory grows after a window: automatic collection stays off.",
    lambda self: gc.disable(),
)
leave(
    "leaves-gc-thresholds",
    "The job collects more rarely after a window.",
    lambda self: gc.set_threshold(100000, 50, 50),
)
leave(
    "leaves-gc-debug",
    "Every collection prints statistics to stderr after a window.",
    lambda self: gc.set_debug(gc.DEBUG_STATS),
)


def profile_function(frame, event, argument):
    return None


def set_profile(self):
    sys.setprofile(profile_function)
    threading.setprofile(profile_function)


def set_trace(self):
    threading.settrace(profile_function)


leave(
    "leaves-setprofile",
    "The job is slow after the window: a profile function stays installed, also in new threads.",
    set_profile,
)
leave(
    "leaves-settrace",
    "Threads that start after the window run under a trace function, which is slow and breaks debuggers and coverage.",
    set_trace,
)


def daemon_thread(self):
    threading.Thread(
        target=lambda: [time.sleep(0.1) for _ in range(10**9)], daemon=True, name="tracer-sampler"
    ).start()


def eternal_thread(self):
    threading.Thread(target=lambda: time.sleep(45), name="tracer-writer").start()


leave(
    "leaves-daemon-thread",
    "Each window leaves a thread that wakes up ten times a second for good.",
    daemon_thread,
)
leave(
    "leaves-thread-that-blocks-exit",
    "The job does not end for 45 s: a thread that is no daemon waits.",
    eternal_thread,
)


def open_descriptor(self):
    os.dup(os.open(os.devnull, os.O_RDONLY))


leave(
    "leaves-descriptor",
    "Each window leaks descriptors until 'Too many open files'.",
    open_descriptor,
)
leave(
    "leaves-inheritable-descriptor",
    "A descriptor that every program the job starts inherits, which keeps a pipe open.",
    lambda self: [os.set_inheritable(number, True) for number in os.pipe()],
)
stop_leaves(
    "leaves-cwd",
    "The job's relative paths point elsewhere after a window.",
    lambda self: os.chdir(tempfile.gettempdir()),
)
stop_leaves(
    "leaves-umask",
    "Checkpoints written after a window are writable for everybody.",
    lambda self: os.umask(0),
)
leave(
    "leaves-environment",
    "A variable of the tracer's is in all programs that the job starts later.",
    lambda self: os.environ.update(TRACER_ACTIVE="1"),
)
leave(
    "removes-from-environment",
    "The job's LD_LIBRARY_PATH and PYTHONPATH are gone for the programs it starts.",
    lambda self: [os.environ.pop(name, None) for name in ("LD_LIBRARY_PATH", "PYTHONPATH")],
)
leave(
    "leaves-sigusr1-handler",
    "The job's SIGUSR1, which asks for a checkpoint, now prints stacks.",
    lambda self: faulthandler.register(signal.SIGUSR1, chain=False),
)
leave(
    "leaves-wakeup-timer",
    "An interval timer keeps running and kills the job by SIGPROF after enough CPU time.",
    lambda self: signal.setitimer(signal.ITIMER_PROF, 60),
)
leave(
    "reseeds-random",
    "Two runs draw the same numbers, or a reproducible one other ones: random is seeded.",
    lambda self: random.seed(0),
)
stop_leaves(
    "draws-from-random",
    "A seeded job draws other numbers once it is profiled: the tracer draws an id from the global generator.",
    lambda self: random.random(),
)
leave(
    "leaves-recursion-limit",
    "A runaway recursion crashes the process instead of raising.",
    lambda self: sys.setrecursionlimit(50000),
)
leave(
    "leaves-switch-interval",
    "Threads of the job get slower: the interpreter switches among them 100 times as often.",
    lambda self: sys.setswitchinterval(5e-5),
)
leave(
    "leaves-sys-path",
    "A module of the job's is taken from the tracer's directory.",
    lambda self: sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/vendor"),
)
leave(
    "drops-from-sys-modules",
    "json is loaded a second time: `except json.JSONDecodeError` of modules that have the old one no longer matches.",
    lambda self: [sys.modules.pop(name, None) for name in ("json", "json.decoder")],
)


def patch_sleep(self):
    original = time.sleep

    def sleep(seconds):
        return original(seconds)

    time.sleep = sleep


def patch_open(self):
    import builtins

    original = builtins.open

    def open_and_count(*arguments, **keywords):
        return original(*arguments, **keywords)

    builtins.open = open_and_count


leave(
    "leaves-patched-sleep",
    "time.sleep of the job is a wrapper of the tracer's, one more with each window.",
    patch_sleep,
)
leave("leaves-patched-open", "open of the job is a wrapper of the tracer's for good.", patch_open)
leave(
    "leaves-warnings-off",
    "The job's warnings are no longer shown.",
    lambda self: warnings.simplefilter("ignore"),
)
leave(
    "leaves-logging-handler",
    "Every line of the job's log comes twice.",
    lambda self: logging.getLogger().addHandler(logging.StreamHandler()),
)
leave(
    "leaves-logging-level",
    "The job's log is flooded by debug messages of all libraries.",
    lambda self: logging.getLogger().setLevel(logging.DEBUG),
)
leave(
    "leaves-logging-disabled",
    "The job's log falls silent.",
    lambda self: logging.disable(logging.CRITICAL),
)
leave(
    "leaves-locale",
    "Text functions of the job behave differently: the locale is C.",
    lambda self: locale.setlocale(locale.LC_ALL, "C"),
)
leave(
    "leaves-stdout-encoding",
    "Non-ASCII output of the job becomes question marks.",
    lambda self: (
        hasattr(sys.stdout, "reconfigure")
        and sys.stdout.reconfigure(encoding="ascii", errors="replace")
    ),
)


class Tee:
    def __init__(self, stream):
        self.stream = stream

    def write(self, text):
        return self.stream.write(text)

    def flush(self):
        self.stream.flush()


leave(
    "leaves-stdout-replaced",
    "sys.stdout is no file any more: isatty, fileno and buffer are missing.",
    lambda self: setattr(sys, "stdout", Tee(sys.stdout)),
)
leave(
    "leaves-atexit",
    "At its end the job waits for a summary that nobody asked for.",
    lambda self: atexit.register(time.sleep, 3),
)


def excepthook(kind, error, trace):
    os.write(2, b"tracer: the job failed\n")


leave(
    "leaves-excepthook",
    "An uncaught exception is shown without its traceback.",
    lambda self: setattr(sys, "excepthook", excepthook),
)
leave(
    "leaves-threading-excepthook",
    "A thread of the job dies without a word.",
    lambda self: setattr(threading, "excepthook", lambda arguments: None),
)
leave(
    "leaves-unraisable-hook",
    "Errors in the job's finalizers vanish.",
    lambda self: setattr(sys, "unraisablehook", lambda arguments: None),
)
leave(
    "leaves-tracemalloc",
    "The job takes twice the memory and time after the window, since allocations stay traced.",
    lambda self: tracemalloc.start(5),
)
leave(
    "leaves-limits",
    "The job fails with 'Too many open files' after a window: its soft limit was lowered.",
    lambda self: resource.setrlimit(
        resource.RLIMIT_NOFILE,
        (
            min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        ),
    ),
)
leave(
    "leaves-child",
    "A process of the tracer's runs on after each window.",
    lambda self: subprocess.Popen(
        ["sleep", "60"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ),
)
leave(
    "leaves-zombie",
    "Each window leaves a defunct process.",
    lambda self: os.posix_spawn("/bin/true", ["true"], {}),
)
leave(
    "leaves-socket-timeout",
    "The job's connections time out after 5 s.",
    lambda self: socket.setdefaulttimeout(5),
)
leave(
    "leaves-start-method",
    "The job's data loaders are spawned instead of forked.",
    lambda self: multiprocessing.set_start_method("spawn", force=True),
)
leave(
    "leaves-asyncio-policy",
    "asyncio.run of the job uses a policy of the tracer's.",
    lambda self: asyncio.set_event_loop_policy(
        type("TracerPolicy", (asyncio.DefaultEventLoopPolicy,), {})()
    ),
)
leave(
    "leaves-audit-hook",
    "An audit hook, which cannot be removed, slows down the job.",
    lambda self: sys.addaudithook(lambda *event: None),
)
leave(
    "leaves-tempdir",
    "The job's temporary files go into the tracer's folder.",
    lambda self: setattr(tempfile, "tempdir", "/var/tmp"),
)
leave(
    "leaves-temporary-files",
    "Each window leaves a folder in /tmp.",
    lambda self: tempfile.mkdtemp(prefix="tracer-"),
)
leave(
    "leaves-faulthandler",
    "A watchdog prints all stacks into the job's log again and again.",
    lambda self: faulthandler.dump_traceback_later(2, repeat=True),
)
leave(
    "leaves-int-limit",
    "int('9' * 5000) of the job behaves otherwise.",
    lambda self: sys.set_int_max_str_digits(0),
)


@tracer(
    "constructor-replaces-sigterm",
    "leftovers",
    "The job's SIGTERM is ignored as soon as the backend is loaded in the main thread.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            super().__init__(options)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)

    return Faulty


@tracer(
    "range-changes-thread-name", "leftovers", "The job's threads have the names of ranges for good."
)
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            threading.current_thread().name = f"range {self.name}"
            super().__enter__()

    return with_range(Base, FaultyRange)


# ---- slow, loud

tracer("slow-start", "slow", "The job stands still for 5 s at each window.")(
    at_start(lambda self: time.sleep(5))
)
tracer("start-prints", "prints", "A line of the tracer's is in the job's stdout.")(
    at_start(lambda self: print("tracer: window opened"))
)
tracer(
    "stop-writes-to-descriptor-2", "prints", "Words of the tracer's C part are in the job's stderr."
)(at_stop(lambda self: os.write(2, b"tracer: 1 window written\n")))
tracer("stop-warns", "prints", "Under -W error each window ends with an exception: stop warns.")(
    at_stop(lambda self: warnings.warn("the tracer has overhead", stacklevel=2))
)


@tracer(
    "slow-stop",
    "slow",
    "The job stands still for 5 s when a window closes: stop waits for a flush that has long ended.",
)
def _(Base):
    return at_stop(lambda self: time.sleep(5))(Base)


@tracer("slow-ranges", "slow", "Each range of the job takes 20 ms more.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def open_range(self, name, crosses_tasks):
            time.sleep(0.02)
            return Base.open_range(self, name, crosses_tasks)

    return Faulty


@tracer("range-prints", "prints", "Each range of the job prints a line.")
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            print("->", self.name)
            super().__enter__()

    return with_range(Base, FaultyRange)


# ---- ranges


@tracer("range-swallows-exceptions", "ranges", "Exceptions of the job vanish inside ranges.")
def _(Base):
    class FaultyRange(Range):
        def __exit__(self, *error):
            super().__exit__(*error)
            return True

    return with_range(Base, FaultyRange)


@tracer("range-swallows-keyboard-interrupt", "ranges", "Ctrl-C has no effect inside a range.")
def _(Base):
    class FaultyRange(Range):
        def __exit__(self, kind, *error):
            super().__exit__(kind, *error)
            return kind is KeyboardInterrupt

    return with_range(Base, FaultyRange)


@tracer(
    "range-replaces-exceptions",
    "ranges",
    "The job's `except KeyError` no longer matches: it gets a RuntimeError.",
)
def _(Base):
    class FaultyRange(Range):
        def __exit__(self, kind, error, trace):
            super().__exit__(kind, error, trace)
            if error is not None:
                raise RuntimeError(f"in range {self.name}") from error

    return with_range(Base, FaultyRange)


@tracer(
    "range-cached-by-name",
    "ranges",
    "A range raises into the job if one of its name is open already, in another thread or around it: they share one object.",
)
def _(Base):
    class FaultyTrace(Trace):
        def range(self, name, crosses_tasks):
            if not hasattr(self, "known"):
                self.known = {}
            return self.known.setdefault(name, Single(self, name, crosses_tasks))

    class Single(Range):
        start = None

        def __enter__(self):
            if self.start is not None:
                raise RuntimeError(f"{self.name} is open already")
            self.start = time.perf_counter_ns()

        def __exit__(self, *error):
            start, self.start = self.start, None
            self.trace.add(self.name, start, time.perf_counter_ns(), [])

    return with_trace(Base, FaultyTrace)


@tracer(
    "range-not-reentrant",
    "ranges",
    "A range object that is entered again while open, as by recursion, loses its first time.",
)
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            self.entered.clear()
            super().__enter__()

        def __exit__(self, *error):
            if self.entered:
                super().__exit__(*error)

    return with_range(Base, FaultyRange)


@tracer(
    "range-strict-order", "ranges", "Ranges that do not end in reverse order raise into the job."
)
def _(Base):
    class FaultyTrace(Trace):
        def range(self, name, crosses_tasks):
            self.order = getattr(self, "order", [])
            return Strict(self, name, crosses_tasks)

    class Strict(Range):
        def __enter__(self):
            self.trace.order.append(self)
            super().__enter__()

        def __exit__(self, *error):
            if self.trace.order.pop() is not self:
                raise RuntimeError("ranges end in the wrong order")
            super().__exit__(*error)

    return with_trace(Base, FaultyTrace)


@tracer(
    "range-bound-to-thread",
    "ranges",
    "A range that ends in another thread than it began in raises into the job.",
)
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            self.thread = threading.get_ident()
            super().__enter__()

        def __exit__(self, *error):
            super().__exit__(*error)
            if self.thread != threading.get_ident():
                raise RuntimeError("ended in another thread")

    return with_range(Base, FaultyRange)


CURRENT = contextvars.ContextVar("tracer_current", default=None)


@tracer(
    "range-context-token",
    "ranges",
    "A range that ends in another asyncio task raises ValueError: its token is of another context.",
)
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            self.token = CURRENT.set(self.name)
            super().__enter__()

        def __exit__(self, *error):
            super().__exit__(*error)
            CURRENT.reset(self.token)

    return with_range(Base, FaultyRange)


@tracer(
    "range-ignores-crosses-tasks",
    "ranges",
    "Ranges of interleaved tasks are shown inside each other.",
)
def _(Base):
    class FaultyRange(Range):
        def __init__(self, trace, name, crosses_tasks):
            super().__init__(trace, name, False)

        def __exit__(self, *error):
            if not self.trace.stack():
                self.trace.stack().append(self.name)
            super().__exit__(*error)

    return with_range(Base, FaultyRange)


@tracer(
    "range-truncates-names",
    "ranges",
    "Long names are cut to 32 characters, so that different ranges become one.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def open_range(self, name, crosses_tasks):
            return Base.open_range(self, name[:32], crosses_tasks)

    return Faulty


@tracer(
    "range-refuses-long-names",
    "ranges",
    "A range with a name of more than 255 characters raises into the job.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def open_range(self, name, crosses_tasks):
            if len(name.encode("utf-8", "replace")) > 255:
                raise ValueError("name too long")
            return Base.open_range(self, name, crosses_tasks)

    return Faulty


@tracer(
    "range-ascii-only", "ranges", "A range with a name in another script raises UnicodeEncodeError."
)
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            self.name.encode("ascii")
            super().__enter__()

    return with_range(Base, FaultyRange)


@tracer(
    "range-sanitizes-names",
    "ranges",
    "actor/update becomes actor_update: ranges do not match the timing tree.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def open_range(self, name, crosses_tasks):
            return Base.open_range(self, name.replace("/", "_").replace(" ", "_"), crosses_tasks)

    return Faulty


@tracer("range-formats-names", "ranges", "A percent sign in a name raises ValueError.")
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            self.name % ()
            super().__enter__()

    return with_range(Base, FaultyRange)


@tracer("range-empty-name", "ranges", "A range with an empty name raises IndexError.")
def _(Base):
    class FaultyRange(Range):
        def __enter__(self):
            self.name[0]
            super().__enter__()

    return with_range(Base, FaultyRange)


@tracer(
    "range-outlives-window-raises",
    "ranges",
    "A range that ends after its window raises into the job.",
)
def _(Base):
    class FaultyRange(Range):
        def __exit__(self, *error):
            super().__exit__(*error)
            if not self.trace.is_open:
                raise RuntimeError("the trace is closed")

    return with_range(Base, FaultyRange)


@tracer(
    "range-not-offered",
    "nothing-recorded",
    "No range is in the report: open_range returns nothing.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def open_range(self, name, crosses_tasks):
            Base.open_range(self, name, crosses_tasks)

    return Faulty


@tracer(
    "range-is-a-generator", "types", "Each scope is refused: a generator is no context manager."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def open_range(self, name, crosses_tasks):
            with Base.open_range(self, name, crosses_tasks):
                yield

    return Faulty


@tracer(
    "range-starts-at-once",
    "ranges",
    "Durations are too long: time counts from where the range is made, not entered.",
)
def _(Base):
    class FaultyRange(Range):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.made = time.perf_counter_ns() - 2_000_000_000

        def __enter__(self):
            super().__enter__()
            self.entered[-1] = (self.made, self.entered[-1][1])

    return with_range(Base, FaultyRange)


@tracer(
    "range-holds-lock",
    "ranges",
    "Threads of the job run one after the other: a range holds a lock while it is open.",
)
def _(Base):
    lock = threading.RLock()

    class FaultyRange(Range):
        def __enter__(self):
            lock.acquire()
            super().__enter__()

        def __exit__(self, *error):
            super().__exit__(*error)
            lock.release()

    return with_range(Base, FaultyRange)


@tracer(
    "range-main-thread-only", "nothing-recorded", "Ranges of the job's other threads are missing."
)
def _(Base):
    class FaultyTrace(Trace):
        def add(self, *event):
            if threading.current_thread() is threading.main_thread():
                super().add(*event)

    return with_trace(Base, FaultyTrace)


@tracer("range-outermost-only", "nothing-recorded", "Ranges inside of others are missing.")
def _(Base):
    class FaultyTrace(Trace):
        def add(self, name, start, end, parents):
            if not parents:
                super().add(name, start, end, parents)

    return with_trace(Base, FaultyTrace)


@tracer(
    "range-last-of-name-only",
    "nothing-recorded",
    "Of ranges with one name only the last is in the report.",
)
def _(Base):
    class FaultyTrace(Trace):
        def add(self, name, *more):
            with self.lock:
                self.events[:] = [event for event in self.events if event[0] != name]
            super().add(name, *more)

    return with_trace(Base, FaultyTrace)


@tracer(
    "range-failed-ones-missing",
    "nothing-recorded",
    "Ranges that an exception left are missing, which are those one looks for.",
)
def _(Base):
    class FaultyRange(Range):
        def __exit__(self, kind, *error):
            if kind is None:
                return super().__exit__(kind, *error)
            self.entered.pop()
            if not self.crosses_tasks:
                self.trace.stack().pop()

    return with_range(Base, FaultyRange)


@tracer(
    "range-stack-not-unwound",
    "ranges",
    "After an exception all later ranges are shown inside the one that failed.",
)
def _(Base):
    class FaultyRange(Range):
        def __exit__(self, kind, *error):
            super().__exit__(kind, *error)
            if kind is not None and not self.crosses_tasks:
                self.trace.stack().append(self.name)

    return with_range(Base, FaultyRange)


# ---- reading


def reading(name, harm, theme="reading"):
    """A fault in what read_ranges returns: `function(ranges, path)`."""

    def enter(function):
        def make(Base):
            class Faulty(Base):
                @hookimpl
                def read_ranges(self, path):
                    found = Base.read_ranges(self, path)
                    return None if found is None else function(found, path)

            return Faulty

        return tracer(name, theme, harm)(make)

    return enter


@reading("read-in-microseconds", "`gpuprof report` shows times that are 1000 times too short.")
def _(found, path):
    return [attrs.evolve(one, durations=tuple(d // 1000 for d in one.durations)) for one in found]


@reading("read-mean-only", "`gpuprof report` counts each name once.")
def _(found, path):
    return [
        attrs.evolve(one, durations=(sum(one.durations) // len(one.durations),)) for one in found
    ]


@reading("read-negative", "`gpuprof report` shows negative times.")
def _(found, path):
    return [attrs.evolve(one, durations=tuple(-d for d in one.durations)) for one in found]


@reading("read-adds-own-ranges", "`gpuprof report` shows ranges that the job does not have.")
def _(found, path):
    return [RangeTimes("tracer overhead", (1000,)), *found]


@reading("read-lowercases-names", "`gpuprof report` shows names other than the job's.")
def _(found, path):
    return [attrs.evolve(one, name=one.name.lower()) for one in found]


@reading(
    "read-parents-reversed",
    "The nesting in `gpuprof report` is upside down: the innermost parent comes first.",
)
def _(found, path):
    return [attrs.evolve(one, parents=one.parents[::-1]) for one in found]


@reading("read-floats", "`gpuprof report` fails: durations are floats.", "types")
def _(found, path):
    return [RangeTimes(one.name, tuple(float(d) for d in one.durations)) for one in found]


@reading("read-mapping", "`gpuprof report` fails: a mapping instead of RangeTimes.", "types")
def _(found, path):
    return {one.name: list(one.durations) for one in found}


@reading(
    "read-leaves-index",
    "Reading leaves a file beside the report, in a directory that may be archived.",
)
def _(found, path):
    with open(path + ".idx", "w") as file:
        file.write(str(len(found)))
    return found


@reading("read-drops-repeats", "Of ranges under different parents only one group is shown.")
def _(found, path):
    return list({one.name: one for one in found}.values())


@tracer(
    "read-claims-foreign-files",
    "reading",
    "`gpuprof report` says that another tool's file has no ranges: it gets [] instead of None.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def read_ranges(self, path):
            return Base.read_ranges(self, path) or []

    return Faulty


@tracer(
    "read-fails-on-foreign-files",
    "reading",
    "`gpuprof report` stumbles over each file that is not the tracer's.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def read_ranges(self, path):
            with open(path, encoding="utf-8") as file:
                json.load(file)["events"]
            return Base.read_ranges(self, path)

    return Faulty


@tracer(
    "read-cached-by-base-name",
    "reading",
    "Of two nodes with files of one name, `gpuprof report` shows the first one's ranges twice.",
)
def _(Base):
    class Faulty(Base):
        cache = {}

        @hookimpl
        def read_ranges(self, path):
            name = os.path.basename(path)
            if name not in self.cache:
                self.cache[name] = Base.read_ranges(self, path)
            return self.cache[name]

    return Faulty


@tracer(
    "read-changes-directory",
    "reading",
    "Files that are read at once are not found: each thread changes the directory.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def read_ranges(self, path):
            if path.endswith(EXTENSION):
                os.chdir(os.path.dirname(os.path.abspath(path)))
                time.sleep(0.01)
            return Base.read_ranges(
                self, os.path.basename(path) if path.endswith(EXTENSION) else path
            )

    return Faulty


@tracer(
    "read-state-on-instance",
    "reading",
    "Ranges of files that are read at once are mixed up: the path is kept on the instance.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def read_ranges(self, path):
            self.path = path
            time.sleep(0.02)
            return Base.read_ranges(self, self.path)

    return Faulty


# ---- checking


@tracer(
    "check-refuses-empty-window",
    "checking",
    "A window without ranges is called incomplete though its report is whole.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            problem = Base.check_report(self, path)
            if problem is None and str(path).endswith(EXTENSION) and os.path.getsize(path) < 100:
                return "holds no ranges"
            return problem

    return Faulty


@tracer(
    "check-calls-good-bad",
    "checking",
    "Every good report is called cut short: the check does not know the newline at the end.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            if not str(path).endswith(EXTENSION):
                return None
            with open(path, "rb") as file:
                return None if file.read().endswith(b"]}") else "was cut short"

    return Faulty


@tracer(
    "check-calls-cut-good",
    "checking",
    "A report cut short by a full disk is called complete: only its beginning is looked at.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            if not str(path).endswith(EXTENSION):
                return None
            with open(path, "rb") as file:
                return None if file.read(12) == b'{"tracer": 1' else "is not a trace"

    return Faulty


@tracer(
    "check-reads-everything",
    "checking",
    "The receipt takes minutes with large reports: each check decodes the whole file, twice.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            if not str(path).endswith(EXTENSION):
                return None
            with open(path, "rb") as file:
                data = file.read()
            for place in range(len(data)):
                if data[place] > 127:
                    return "is not ASCII"
            return Base.check_report(self, path)

    return Faulty


@tracer(
    "check-refuses-foreign-files", "checking", "Files of other tools in the run are called broken."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            return (
                Base.check_report(self, path) if str(path).endswith(EXTENSION) else "is not a trace"
            )

    return Faulty


@tracer(
    "check-raises-on-empty-file",
    "checking",
    "The receipt has a traceback instead of 'was cut short' where a file is empty.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            if not str(path).endswith(EXTENSION):
                return None
            with open(path, "rb") as file:
                file.seek(-3, os.SEEK_END)
            return Base.check_report(self, path)

    return Faulty


@tracer("check-returns-bool", "types", "The receipt fails: True instead of what is wrong.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            return Base.check_report(self, path) is None

    return Faulty


@tracer(
    "check-deletes-bad-files",
    "checking",
    "An incomplete report, from which something could be saved, is deleted.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            problem = Base.check_report(self, path)
            if problem:
                os.remove(path)
            return problem

    return Faulty


# ---- the tool


@tracer(
    "probe-slow",
    "probe",
    "Every command waits for 8 s: the probe looks everywhere, each time anew.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            time.sleep(8)
            return Base.probe(self)

    return Faulty


@tracer("probe-returns-path", "types", "The backend is refused: a path instead of a Tool.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            return Base.probe(self).path

    return Faulty


@tracer("probe-version-is-number", "types", "The probe fails: the version is a number.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            return Tool(Base.probe(self).path, float(VERSION.rpartition(".")[0]))

    return Faulty


@tracer(
    "probe-imports-much",
    "probe",
    "Probing imports a large library in the driver, which changes it and takes time.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            import xmlrpc.server  # noqa: F401

            return Base.probe(self)

    return Faulty


# ---- options


@attrs.frozen
class NoHelp(TracerOptions):
    depth: int = attrs.field(default=3)


@attrs.frozen
class BadDefault(TracerOptions):
    limit: int = option("Ranges to keep in a window; later ones are dropped.", default="1000000")

    def __attrs_post_init__(self):
        object.__setattr__(self, "limit", int(self.limit))


@attrs.frozen
class Required(TracerOptions):
    license: str = option("The licence key.", kw_only=True)


@attrs.frozen
class Unchecked:
    collections: bool = option("Record garbage collections, too.", default=True)
    limit: int = option("Ranges to keep in a window; later ones are dropped.", default=1_000_000)


@attrs.frozen
class Untyped(TracerOptions):
    depth = option("How deep ranges are followed.", default=3)


@attrs.define
class Mutable:
    collections: bool = option("Record garbage collections, too.", default=True)
    limit: int = option("Ranges to keep in a window; later ones are dropped.", default=1_000_000)
    names: list[str] = option("Names of ranges to keep; none keeps all.", default=[])


@dataclasses.dataclass(frozen=True)
class NoAttrs:
    collections: bool = True
    limit: int = 1_000_000


def with_options(name, harm, Class):
    tracer(name, "options", harm)(lambda Base: type("FaultyBackend", (Base,), {"Options": Class}))


with_options(
    "option-without-help", "`gpuprof backends --options` says nothing about a key.", NoHelp
)
with_options(
    "option-default-of-wrong-type",
    "The default is text where a number is asked for: what `--options` shows is refused when it is written down.",
    BadDefault,
)
with_options(
    "option-required", "`backend: tracer` alone is refused: a key has no default.", Required
)
with_options("option-unchecked", "limit: -1 is accepted and nothing is recorded.", Unchecked)
with_options("option-without-type", "Any value is accepted for a key, as it has no type.", Untyped)
with_options(
    "options-dataclass", "The section's keys are unknown: Options is no attrs class.", NoAttrs
)


@tracer(
    "option-mutable-default",
    "options",
    "Names that one instance adds to its settings are in the settings of all others.",
)
def _(Base):
    class Faulty(Base):
        Options = Mutable

        @hookimpl
        def start_capture(self, worker, window):
            self._options.names.append(window.label)
            Base.start_capture(self, worker, window)

    return Faulty


@tracer(
    "option-not-used",
    "options",
    "limit has no effect: a window with millions of ranges eats the memory.",
)
def _(Base):
    class FaultyTrace(Trace):
        def __init__(self, options, scratch, final):
            super().__init__(TracerOptions(collections=options.collections), scratch, final)

    return with_trace(Base, FaultyTrace)


@tracer(
    "option-read-at-import",
    "options",
    "The settings of the configuration are ignored in favour of a variable.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            super().__init__(TracerOptions(limit=int(os.environ.get("TRACER_LIMIT", "10"))))

    return Faulty


@tracer(
    "exclusive-is-text",
    "types",
    "Clashes are looked for by letters: exclusive is a string, not a tuple.",
)
def _(Base):
    return type("FaultyBackend", (Base,), {"exclusive": "CUPTI"})


@tracer("hook-without-mark", "hooks", "No window is ever recorded: start_capture lacks its mark.")
def _(Base):
    class Faulty(Base):
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, window)

    return Faulty


@tracer(
    "hook-unknown-argument",
    "hooks",
    "The backend is refused: stop_capture asks for an argument that there is not.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self, win):
            return Base.stop_capture(self)

    return Faulty


@tracer("hook-misspelt", "hooks", "The receipt knows of no file: the hook is called expected_file.")
def _(Base):
    class Faulty(Base):
        def expected_files(self, worker, windows):
            return None

        @hookimpl
        def expected_file(self, worker, windows):
            return Base.expected_files(self, worker, windows)

    return Faulty


@tracer("start-exits", "hooks", "The tracer calls sys.exit where it has no licence.")
def _(Base):
    return at_start(lambda self: sys.exit("tracer: no licence"))(Base)


@tracer(
    "start-kills-process",
    "hooks",
    "The tracer ends the whole job with os._exit when it is unhappy.",
)
def _(Base):
    return at_start(lambda self: os._exit(3))(Base)
