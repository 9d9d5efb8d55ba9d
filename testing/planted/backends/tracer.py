"""An in-process tracer: times ranges (and garbage collections) and writes a file per window."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext

import attrs
from gpuprof.backend import RangeTimes, Tool, hookimpl, move, option
from gpuprof.errors import ConfigError

EXTENSION = ".tracer.json"
VERSION = "1.4.0"


@attrs.frozen
class TracerOptions:
    """What the tracer records."""

    collections: bool = option("Record garbage collections, too.", default=True)
    limit: int = option("Ranges to keep in a window; later ones are dropped.", default=1_000_000)

    def __attrs_post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError([f"limit: {self.limit} is not valid; expected at least 1"])


class Trace:
    """What is recorded between `start` and `stop`."""

    def __init__(self, options, scratch, final):
        self.options, self.scratch, self.final = options, scratch, final
        self.events = []
        self.collections = []
        self.lock = threading.Lock()
        self.is_open = False
        self.pid = os.getpid()
        self.stacks = threading.local()

    def start(self):
        if self.options.collections:
            gc.callbacks.append(self.on_collection)
        self.is_open = True

    def stop(self):
        with self.lock:
            self.is_open = False
        if self.on_collection in gc.callbacks:
            gc.callbacks.remove(self.on_collection)

    def on_collection(self, phase, info):
        if self.is_open and phase == "stop":
            self.collections.append([time.perf_counter_ns(), info["generation"]])

    def range(self, name, crosses_tasks):
        return Range(self, name, crosses_tasks)

    def stack(self):
        if not hasattr(self.stacks, "names"):
            self.stacks.names = []
        return self.stacks.names

    def add(self, name, start, end, parents):
        with self.lock:
            if self.is_open and os.getpid() == self.pid and len(self.events) < self.options.limit:
                self.events.append([name, start, end - start, parents, threading.get_ident()])

    def content(self):
        with self.lock:
            return {"tracer": 1, "events": self.events, "collections": self.collections}

    def write(self):
        """Write beside the final file and give it its name; overwrite nothing."""
        with open(self.scratch, "w", encoding="utf-8") as file:
            json.dump(self.content(), file)
            file.write("\n")
        return move(self.scratch, self.final, EXTENSION)


class Range(AbstractContextManager):
    """One range; can be entered again, also while it is open."""

    def __init__(self, trace, name, crosses_tasks):
        self.trace, self.name, self.crosses_tasks = trace, name, crosses_tasks
        self.entered = []

    def __enter__(self):
        parents = []
        if not self.crosses_tasks:
            stack = self.trace.stack()
            parents = list(stack)
            stack.append(self.name)
        self.entered.append((time.perf_counter_ns(), parents))

    def __exit__(self, *error):
        end = time.perf_counter_ns()
        start, parents = self.entered.pop()
        if not self.crosses_tasks:
            self.trace.stack().pop()
        self.trace.add(self.name, start, end, parents)
        return None


class TracerBackend:
    """Records ranges inside the worker while a window is open."""

    contract = 2
    Options = TracerOptions
    Trace = Trace

    def __init__(self, options):
        self._options = options
        self._trace = None

    @hookimpl
    def start_capture(self, worker, window):
        scratch = f"{worker.directory}/{worker.file_stem}.window-{window.number}{EXTENSION}.part"
        self._trace = self.Trace(self._options, scratch, worker.final_stem(window))
        self._trace.start()

    @hookimpl
    def stop_capture(self):
        trace, self._trace = self._trace, None
        if trace is None:
            return None
        was_open = trace.is_open
        trace.stop()
        final = trace.write() if was_open else None
        return [final] if final else None

    @hookimpl
    def open_range(self, name, crosses_tasks):
        trace = self._trace
        return trace.range(name, crosses_tasks) if trace is not None else nullcontext()

    @hookimpl
    def probe(self):
        return Tool(__file__, VERSION)

    @hookimpl
    def missing_tool(self):
        return "the tracer is not installed: pip install the-tracer"

    @hookimpl
    def expected_files(self, worker, windows):
        return {window.number: worker.final_stem(window) + EXTENSION for window in windows}

    @hookimpl
    def check_report(self, path):
        path = os.fspath(path)
        if not path.endswith(EXTENSION):
            return None
        with open(path, "rb") as file:
            head = file.read(12)
            if head != b'{"tracer": 1':
                return "is not a trace, or its beginning is missing"
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 3))
            return None if file.read() == b"]}\n" else "was cut short"

    @hookimpl
    def read_ranges(self, path):
        if not path.endswith(EXTENSION):
            return None
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["events"]
        found = {}
        for name, _, duration, parents, _ in events:
            found.setdefault((name, tuple(parents)), []).append(duration)
        return [
            RangeTimes(name, tuple(times), parents=parents)
            for (name, parents), times in found.items()
        ]
