"""A wrapping profiler: `wrapper_launcher.py` runs the worker and records when it is told to."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import attrs
from gpuprof.backend import Check, Collected, RangeTimes, Tool, hookimpl, move, option
from gpuprof.errors import ConfigError

EXTENSION = ".wrap.jsonl"
LAUNCHER = str(Path(__file__).with_name("wrapper_launcher.py"))


@attrs.frozen
class WrapperOptions:
    """What the wrapper samples."""

    interval: int = option("Milliseconds between two samples of the memory.", default=10)
    executable: str | None = option(
        "Path of the wrapper. null: the one that comes with this package.",
        default=None,
        program=True,
    )

    def __attrs_post_init__(self) -> None:
        if self.interval < 1:
            raise ConfigError([f"interval: {self.interval} is not valid; expected at least 1"])


@functools.lru_cache
def version_of(path, changed):
    return subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=20, check=True
    ).stdout.strip()


class Connection:
    """The line to the launcher."""

    def __init__(self):
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        try:
            self.socket.connect("\0" + os.environ["WRAPPER_SOCKET"])
        except BaseException:
            self.socket.close()
            raise
        self.lines = self.socket.makefile("r", encoding="utf-8")

    def tell(self, order):
        data = json.dumps(order).encode() + b"\n"
        with self.lock:
            if self.socket is not None and os.getpid() == self.pid:
                self.socket.sendall(data)

    def ask(self, order):
        self.tell(order)
        answer = json.loads(self.lines.readline() or '{"error": "the wrapper has ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self):
        with self.lock:
            self.lines.close()
            self.socket.close()
            self.socket = None


class Range(AbstractContextManager):
    def __init__(self, connection, name):
        self.connection, self.name = connection, name
        self.entered = []

    def __enter__(self):
        self.entered.append(time.perf_counter_ns())

    def __exit__(self, *error):
        start = self.entered.pop()
        end = time.perf_counter_ns()
        self.connection.tell({"range": [self.name, start, end - start, threading.get_ident()]})
        return None


class WrapperBackend:
    """Runs the worker under the wrapper."""

    contract = 2
    Options = WrapperOptions
    fault = ""  # handed to the launcher by planted faults

    def __init__(self, options):
        self._options = options
        self._connection = None

    def _raw(self, worker, window):
        return f"{worker.directory}/{worker.file_stem}.window-{window.number}.raw"

    def flags(self, worker):
        flags = ["--interval", str(self._options.interval)]
        if worker.lifetime:
            flags += ["--lifetime", self._raw(worker, worker.windows[0])]
        if self.fault:
            flags += ["--fault", self.fault]
        return flags

    @hookimpl
    def render_command(self, worker, command, tool):
        return [tool.path, *self.flags(worker), "--", *command.interpreter, *command.arguments]

    @hookimpl
    def start_capture(self, worker, window):
        if "WRAPPER_SOCKET" not in os.environ:
            return  # not under the wrapper, so there is nothing to open
        self._connection = Connection()
        if window.start is not None:
            self._connection.ask({"start": self._raw(worker, window)})

    @hookimpl
    def stop_capture(self, worker, window):
        connection, self._connection = self._connection, None
        if connection is None:
            return None
        try:
            if window.start is None:
                return None  # goes on until the worker's end
            raw = connection.ask({"stop": True})["file"]
        finally:
            connection.close()
        final = move(raw, worker.final_stem(window), EXTENSION) if raw else None
        return [final] if final else None

    @hookimpl
    def open_range(self, name):
        connection = self._connection
        return Range(connection, name) if connection is not None else nullcontext()

    @hookimpl
    def probe(self):
        path = os.path.abspath(self._options.executable or LAUNCHER)
        if not os.access(path, os.X_OK):
            return None
        return Tool(path, version_of(path, os.stat(path).st_mtime_ns))

    @hookimpl
    def missing_tool(self):
        return (
            "the wrapper is not installed: pip install the-wrapper, "
            "or set wrapper.executable to its path"
        )

    @hookimpl
    def diagnose(self, worker, tool, purpose):
        if purpose == "doctor":
            return self._further_checks()
        if purpose == "plan":
            return None
        found = subprocess.run(
            [tool.path, "--interval", str(self._options.interval), "--", "/bin/true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return [
            Check(
                "trial run",
                found.returncode == 0,
                found.stderr.strip() or "works",
                "" if found.returncode == 0 else "choose another interval",
                key="interval",
            )
        ]

    def _further_checks(self):
        readable = os.access("/proc/self/statm", os.R_OK)
        return [
            Check(
                "proc",
                readable,
                "/proc is readable" if readable else "/proc is not readable",
                "" if readable else "mount /proc into the container",
            )
        ]

    @hookimpl
    def expected_files(self, worker, windows):
        return {window.number: worker.final_stem(window) + EXTENSION for window in windows}

    @hookimpl
    def collect_files(self, worker, windows, ended):
        found = self._collect(worker, windows, ended)
        return Collected(found) if found else None

    def _collect(self, worker, windows, ended):
        if not ended:
            return None
        found = {}
        for window in windows:
            raw = self._raw(worker, window)
            final = move(raw, worker.final_stem(window), EXTENSION)
            if final:
                found[window.number] = [final]
        return found or None

    @hookimpl
    def check_report(self, path):
        path = os.fspath(path)
        if not path.endswith(EXTENSION):
            return None
        with open(path, "rb") as file:
            if file.read(10) != b'{"wrap": 1':
                return "is not the wrapper's, or its beginning is missing"
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 14))
            return None if file.read() == b'{"end": true}\n' else "was cut short"

    @hookimpl
    def read_ranges(self, path):
        if not path.endswith(EXTENSION):
            return None
        found = {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith('{"range"'):
                    name, _, duration, _ = json.loads(line)["range"]
                    found.setdefault(name, []).append(duration)
        return [RangeTimes(name, tuple(times)) for name, times in found.items()]
