"""One window: a torch.profiler that runs while it is open.

The only module that imports torch, and only when a window opens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import quote

from gpuprof.backend import move

from gpuprof_torch_profiler._options import TorchProfilerOptions

EXTENSION = ".trace.json"


class Trace:
    """Records from `start` to `stop`, in all threads: gpuprof opens windows on a thread of its own.

    Args:
        options: what is recorded.
        scratch: the path, without extension, that the trace is written to.
        final: the path, without extension, that it is then given.
    """

    def __init__(self, options: TorchProfilerOptions, scratch: str, final: str) -> None:
        with _without_a_new_variable("TORCHINDUCTOR_CACHE_DIR"):
            import torch.profiler

        # Before torch 2.7 only operators of the thread that starts the profiler could be seen,
        # which is never the training's.
        everything = torch.profiler._ExperimentalConfig(profile_all_threads=True)
        schedule = options.schedule
        activities = None
        if options.activities is not None:
            activities = [
                getattr(torch.profiler.ProfilerActivity, activity.upper())
                for activity in options.activities
            ]
        self._profile = torch.profiler.profile(
            activities=activities,
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_flops=options.with_flops,
            schedule=schedule
            and torch.profiler.schedule(
                wait=schedule.wait,
                warmup=schedule.warmup,
                active=schedule.active,
                repeat=schedule.repeat,
                skip_first=0,
            ),
            on_trace_ready=self._export,
            experimental_config=everything,
        )
        self._record_function = torch.profiler.record_function
        self._counted = schedule.every if schedule else None
        self._scratch, self._final = scratch + EXTENSION, final
        self._files: list[str] = []
        self._lock = threading.Lock()
        self._is_open = False

    def start(self) -> None:
        """Begin to record."""
        with _without_a_new_variable("TORCHINDUCTOR_CACHE_DIR"):
            self._profile.start()
        self._is_open = True

    def stop(self) -> list[str]:
        """End, write what was recorded, and return the files."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._profile.stop()
        return self._files

    def step(self) -> None:
        """Advance the schedule, unless the window is closed: that would record anew."""
        with self._lock:
            if self._is_open:
                # if torch raises in the middle of this, whatever it is told next ends the process
                self._is_open = False
                self._profile.step()
                self._is_open = True

    def open_range(self, name: str) -> AbstractContextManager[object]:
        """A range in the trace. It may end in another thread or task than it began in."""
        marked: AbstractContextManager[object] = self._record_function(_quoted(name))
        return _Counted(marked, self) if name == self._counted else marked

    def _export(self, profile: Any) -> None:
        profile.export_chrome_trace(self._scratch)
        moved = move(self._scratch, self._final, EXTENSION)
        if moved is not None:
            self._files.append(moved)


@contextmanager
def _without_a_new_variable(name: str) -> Iterator[None]:
    """Remove a variable again that torch sets, for all programs that the job starts."""
    was = name in os.environ
    try:
        yield
    finally:
        if not was:
            os.environ.pop(name, None)


_SAFE = " !#$&'()*+,/:;<=>?@[]^`{|}~"


def _quoted(name: str) -> str:
    """The name as torch can write it into JSON, which it does without escapes."""
    return quote(name, safe=_SAFE)


class _Counted(AbstractContextManager[None]):
    """A range whose end is a step of the schedule."""

    def __init__(self, marked: AbstractContextManager[object], trace: Trace) -> None:
        self._marked = marked
        self._trace = trace

    def __enter__(self) -> None:
        self._marked.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._marked.__exit__(*error)
        self._trace.step()
