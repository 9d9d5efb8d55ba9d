"""Reads what this process uses of its machine, about once a second.

The kernel counts anyway, so all that it costs is to read the counters. Some kernels and sandboxes
lack some of them: these are 0, and threads without a count have no row.
"""

from __future__ import annotations

import os
import resource
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

OWN_THREADS = "gpuprof-"
"""The prefix of the names of gpuprof's threads."""
THREAD = struct.Struct("<Iqqq")
SLEPT = struct.Struct("<qq")
"""A thread's processor time so far: track, time of the reading, nanoseconds for which the thread
ran, nanoseconds for which it was ready to run but had no processor."""
USAGE = struct.Struct("<11q")
"""The process and its machine at one moment: time, nanoseconds of all processors so far, bytes in
memory, how many of them are files or shared, page faults so far that read a disk, bytes read from
and written to disks so far, threads of the machine that run or are ready to, bytes of memory that
the machine has left, its processors, and how many of them the main thread may use."""

_MOST_THREADS = 64
_DOUBLES = 300
"""After each such number of readings they become half as frequent, so that a long job's file is
only a little larger than a short job's."""
_BLOCK = 512
"""Bytes of the blocks in which the kernel counts reads and writes."""
_LARGEST = 65_536
_NO_LIMIT = 2**60
"""A cgroup's memory limit, in bytes, from which it counts as none."""
_CGROUPS = "/sys/fs/cgroup"


class Usage:
    """Reads the counters of this process and its machine."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._readings = 0
        self._period = 0
        self._next = 0
        self._page = resource.getpagesize()
        self._processors = os.cpu_count() or 1
        self._limit = _limit()
        self._known: frozenset[int] = frozenset()

    def is_due(self) -> bool:
        """Whether to read again: whenever asked at first, and more rarely in a long job."""
        now = self._clock()
        if self._readings and now < self._next:
            return False
        self._readings += 1
        if self._readings % _DOUBLES == 0:
            self._period = max(1_000_000_000, 2 * self._period)
        self._next = now + self._period
        return True

    def threads(self, track_of: Callable[[int], int]) -> Iterator[bytes]:
        """A row of `THREAD` for the main thread, and for each other that has lived for a while.

        Only Python's threads count, without gpuprof's own: those of C++ do not take the GIL.

        Args:
            track_of: returns the ledger's number of a thread's track, given Python's id of it.
        """
        main = threading.main_thread()
        others = [
            thread
            for thread in list(threading._active.values())  # type: ignore[attr-defined]
            if thread is not main and not thread.name.startswith(OWN_THREADS)
        ]
        known, self._known = self._known, frozenset(thread.native_id for thread in others)
        # a track for each of many short-lived threads would fill the file
        lasting = [thread for thread in others if thread.native_id in known]
        for thread in [main, *lasting[:_MOST_THREADS]]:
            with suppress(OSError, ValueError):  # it has ended, or the kernel does not count
                now, times = self._clock(), processor_times(thread.native_id)
                yield THREAD.pack(track_of(thread.ident), now, *times)

    def process(self) -> bytes:
        """A row of `USAGE`."""
        counts = resource.getrusage(resource.RUSAGE_SELF)
        resident = shared = 0
        with suppress(OSError, ValueError):
            resident, shared = (
                int(pages) * self._page for pages in _content("/proc/self/statm").split()[1:3]
            )
        return USAGE.pack(
            self._clock(),
            time.process_time_ns(),
            resident,
            shared,
            counts.ru_majflt,
            counts.ru_inblock * _BLOCK,
            counts.ru_oublock * _BLOCK,
            _runnable(),
            self._available(),
            self._processors,
            len(os.sched_getaffinity(os.getpid())),
        )

    def _available(self) -> int:
        """Bytes that programs can still use without swapping; 0 if that is not known."""
        available = 0
        with suppress(OSError, ValueError, IndexError):
            _, _, rest = _content("/proc/meminfo").partition(b"MemAvailable:")
            available = int(rest.split(maxsplit=1)[0]) * 1024
        if self._limit is not None:
            limit, used, details, name = self._limit
            with suppress(OSError, ValueError, IndexError):
                # the kernel takes back pages of files that nobody has read for a while
                _, _, rest = _content(details).partition(name)
                unused = int(rest.split(maxsplit=1)[0])
                left = limit - int(_content(used)) + unused
                available = max(0, min(available, left) if available else left)
        return available


def processor_times(thread: int | None) -> tuple[int, int]:
    """A thread's nanoseconds of running, and of being ready to run without a processor.

    Args:
        thread: the system's id of a thread; that of a process is its main thread's.

    Raises:
        OSError: there is no such thread, or this kernel does not count these times.
    """
    ran, ready, _ = map(int, _content(f"/proc/{thread}/schedstat").split())
    return ran, ready


def _runnable() -> int:
    """How many of the machine's threads run or are ready to, without this one; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError):
        return max(0, int(_content("/proc/loadavg").split()[3].partition(b"/")[0]) - 1)
    return 0


def _limit() -> tuple[int, str, str, bytes] | None:
    """The memory limit of this process's cgroup, or of the nearest one around it.

    Returns:
        The bytes, the file that says how many are in use, and the file and field that say how many
        of them are rarely used files; ``None`` without a limit.
    """
    with suppress(OSError, ValueError):
        for line in _content("/proc/self/cgroup").decode().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                top, most, used, field = _CGROUPS, "memory.max", "memory.current", b"inactive_file"
            elif "memory" in controllers.split(","):
                top, most = f"{_CGROUPS}/memory", "memory.limit_in_bytes"
                used, field = "memory.usage_in_bytes", b"total_inactive_file"
            else:
                continue
            while True:
                directory = f"{top}{path.rstrip('/')}"
                with suppress(OSError, ValueError):  # a container sees only its own, at the top
                    limit = int(_content(f"{directory}/{most}"))
                    if limit < _NO_LIMIT:
                        return limit, f"{directory}/{used}", f"{directory}/memory.stat", field
                if path in ("/", ""):
                    break
                path = os.path.dirname(path)
    return None


def _content(path: str) -> bytes:
    """A small file of the kernel; a file object would take twice as long."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _LARGEST)
    finally:
        os.close(file)
