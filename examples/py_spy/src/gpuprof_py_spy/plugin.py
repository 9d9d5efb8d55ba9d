"""The hooks: py-spy attaches to the worker while a window is open.

The page "Write a backend that attaches" explains it, part by part.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import attrs
from gpuprof.backend import Backend, Check, Collected, Tool, Window, Worker, hookimpl, move, option
from gpuprof.errors import ConfigError, ToolError

EXTENSION = ".speedscope.json"
ATTACHED = b"Sampling process"
"""py-spy prints it once it has attached."""
DEADLINE = 50.0
"""Seconds to attach, and to write a report: less than gpuprof waits for either."""
BECOME = """
import os, signal, sys
sys.stdin.readline()
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes another program once it is told to, with no signal blocked: Ray's workers block SIGINT,
and what they start would never end by it."""
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
PR_SET_PTRACER = 0x59616D61


@attrs.frozen
class PySpyOptions:
    """Options of ``py-spy record``."""

    rate: int = option("Samples a second.", default=100)
    idle: bool = option("Record waiting threads, too.", default=False)
    native: bool = option("Record C and C++ frames, too.", default=False)
    nonblocking: bool = option(
        "Do not pause the worker for each sample: it costs less, and some samples are wrong.",
        default=False,
    )

    def __attrs_post_init__(self) -> None:
        if self.rate < 1:
            raise ConfigError([f"rate: {self.rate} is not valid; expected at least 1"])


class PySpyBackend(Backend[PySpyOptions]):
    """Attaches py-spy to a worker while a window is open; changes no command."""

    contract = 2
    Options = PySpyOptions

    def __init__(self, options: PySpyOptions) -> None:
        super().__init__(options)
        self._recorder: subprocess.Popen[bytes] | None = None

    @hookimpl
    def start_capture(self, worker: Worker, window: Window, tool: Tool | None) -> None:
        """Start py-spy, and wait until it has attached."""
        if tool is None:
            raise ToolError(self.missing_tool())
        self._attach(tool, self._raw_file(worker, window), worker.log_file)

    @hookimpl
    def stop_capture(self, worker: Worker, window: Window) -> list[str] | None:
        """Have py-spy write its report, as Ctrl-C does, and name the file."""
        if self._recorder is None:
            return None
        self._detach()
        final = move(self._raw_file(worker, window), worker.final_stem(window), EXTENSION)
        return [final] if final else None

    def _raw_file(self, worker: Worker, window: Window) -> str:
        return f"{worker.directory}/{worker.file_stem}.window-{window.number}"

    def _attach(self, tool: Tool, raw_file: str, log_file: str) -> None:
        record = [tool.path, "record", "--pid", str(os.getpid()), "--output", raw_file]
        record += ["--format", "speedscope", "--rate", str(self.options.rate)]
        for name in ("idle", "native", "nonblocking"):
            record += [f"--{name}"] if getattr(self.options, name) else []
        with open(log_file, "a+b") as log:
            fcntl.flock(log, fcntl.LOCK_SH)  # py-spy inherits it, and so holds it until it ends
            log.seek(0, os.SEEK_END)
            begin = log.tell()
            self._recorder = recorder = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BECOME, *record],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            assert recorder.stdin is not None
            with recorder.stdin:
                _allow(recorder.pid)
            deadline = time.monotonic() + DEADLINE
            while ATTACHED not in (printed := _from(log_file, begin)) or not _catches(recorder.pid):
                if recorder.poll() is not None:
                    raise ToolError(f"py-spy cannot attach: {_last_line(printed)}")
                if time.monotonic() > deadline:
                    raise ToolError(f"py-spy has not attached within {DEADLINE:g} s")
                time.sleep(0.01)

    def _detach(self) -> None:
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        deadline = time.monotonic() + DEADLINE
        while recorder.poll() is None:
            if time.monotonic() > deadline:
                recorder.kill()
                recorder.wait()
                raise ToolError(f"py-spy has not written its report within {DEADLINE:g} s")
            recorder.send_signal(signal.SIGINT)  # py-spy can lose one that comes at its start
            with suppress(subprocess.TimeoutExpired):
                recorder.wait(1.0)

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        """A report for each window."""
        return {window.number: worker.final_stem(window) + EXTENSION for window in windows}

    @hookimpl
    def collect_files(
        self, worker: Worker, windows: tuple[Window, ...], ended: bool
    ) -> Collected | None:
        """Name the report that py-spy writes by itself once its worker was killed."""
        if not ended:
            return None
        _wait_for_end(worker.log_file)
        files = {}
        for window in windows:
            final = move(self._raw_file(worker, window), worker.final_stem(window), EXTENSION)
            if final:
                files[window.number] = [final]
        return Collected(files)

    @hookimpl
    def check_report(self, path: str) -> str | None:
        """A report ends with its last brace."""
        if not path.endswith(EXTENSION):
            return None
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 16))
            return None if file.read().rstrip().endswith(b"}") else "it was cut short"

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for py-spy beside this Python, and then on PATH."""
        folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
        path = shutil.which("py-spy", path=os.pathsep.join(folders))
        return Tool(path, _version(path)) if path else None

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to get it."""
        return "py-spy is not installed: pip install py-spy"

    @hookimpl
    def diagnose(self, tool: Tool, purpose: str) -> list[Check]:
        """Before a run, attach to this very process, as a worker will."""
        if purpose != "start":
            return []
        with tempfile.TemporaryDirectory() as directory:
            try:
                self._attach(tool, f"{directory}/raw", f"{directory}/log")
            except ToolError as error:
                return [Check("py-spy can attach", False, str(error), _remedy())]
            finally:
                if self._recorder is not None:
                    self._detach()
        return [Check("py-spy can attach", True, "to a process, from a child of it")]

    @hookimpl
    def plan_notes(self, worker: Worker) -> list[str]:
        """Say what attaching costs."""
        note = "py-spy attaches anew for each scope, which takes far longer than most scopes"
        return [note] if worker.discrete else []


def _allow(tracer: int) -> None:
    """Let a child process attach, where Yama allows that to parents only."""
    with suppress(OSError):
        if YAMA.read_text().strip() == "1":
            ctypes.CDLL(None).prctl(PR_SET_PTRACER, tracer, 0, 0, 0)


def _remedy() -> str:
    with suppress(OSError):
        scope = YAMA.read_text().strip()
        if scope == "2":
            return f"{YAMA} is 2: sudo sysctl kernel.yama.ptrace_scope=1"
        if scope == "3":  # the kernel does not let anybody lower it
            return f"{YAMA} is 3: set kernel.yama.ptrace_scope=1 for the next boot, and reboot"
    return "in a container, add the capability SYS_PTRACE"


def _catches(pid: int) -> bool:
    """Whether SIGINT would no longer simply end py-spy, which prints its line a moment before."""
    with suppress(OSError):
        caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
        return bool(int(caught, 16) >> signal.SIGINT - 1 & 1)
    return False


def _from(path: str, begin: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read()


def _last_line(printed: bytes) -> str:
    lines = printed.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it has printed nothing"


def _wait_for_end(log_file: str) -> None:
    """Wait until no process holds the lock that py-spy has inherited."""
    with suppress(FileNotFoundError), open(log_file, "rb") as log:
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                return fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ToolError(f"py-spy still runs after {DEADLINE:g} s") from None
            time.sleep(0.05)


@functools.cache
def _version(path: str) -> str | None:
    printed = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return printed.stdout.removeprefix("py-spy").strip() or None
