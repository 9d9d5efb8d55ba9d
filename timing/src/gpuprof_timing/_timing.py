"""`Timing`: the tree's public face."""

from __future__ import annotations

import os
import sys
import time
import weakref
from contextvars import ContextVar

from gpuprof_timing import _torch
from gpuprof_timing._cursor import Cursor
from gpuprof_timing._node import Node
from gpuprof_timing._reading import FORMAT_VERSION, Reading
from gpuprof_timing._scope import NO_SCOPE, AverageScope, LastScope, NoScope, Scope, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TextIO

    from gpuprof_timing._device import DeviceTimes, EventProvider
    from gpuprof_timing._events import EventLog
    from gpuprof_timing._node import Kind

MAX_NODES = 10_000
"""Places in one tree. A key that is made of data would otherwise fill the memory."""
OVERFLOW = "(more)"
"""The key under which later places are folded."""
VARIABLE = "GPUPROF_TIMING"
"""Set to ``0`` it switches off every `Timing` that does not say otherwise."""
_NO_KEY: Any = None  # the root's: equal to no key
_modules = sys.modules
_new = object.__new__


class Timing(Reading):
    """Where the time went, as a tree of named scopes.

    A scope is a context manager, or a decorator of functions and methods. Of a coroutine function it takes the time from the call
    to the end, awaiting included; of generators and asynchronous generators only the time in which they run, each resumption
    being a call. A key may be used at several places of the tree; each place is a node of its own. A key equal to that of the scope
    around it uses that scope's node: recursion counts every call and takes the outermost one's time.

    Threads and asyncio tasks nest separately; a task started inside a scope nests below it. Under the global lock no call is lost,
    however many threads share a node; on a free-threaded build, threads that share a node can lose calls, so give each thread
    a `Timing` of its own and `merge` them.

    As a mapping, and by attribute, it gives seconds for every key: for `add_time` the sum over all places that do not lie below the
    same key, for `timeit` the most recent, for `time_avg` the mean of all windows together.

    Args:
        name: the title that the tree is printed under.
        clock: returns nanoseconds, never decreasing.
        enabled: whether scopes do anything. Unless it is said, they do if ``GPUPROF_TIMING`` is not ``0``.
        strict: raise where a key is used at one place in two kinds, instead of logging it once.
        events: how many of the last scopes to keep for `chrome_trace`.
        device_events: what measures time on the GPU, for tests; torch's CUDA events otherwise.

    >>> ticks = iter(range(0, 10**12, 500_000_000))
    >>> timing = Timing("Learner 0 profile", clock=lambda: next(ticks))
    >>> with timing.add_time("train"):
    ...     with timing.add_time("forward"):
    ...         pass
    >>> print(timing)
    Learner 0 profile tree view:
    train: 1.5000
      forward: 0.5000
    >>> timing["forward"], timing.train
    (0.5, 1.5)
    """

    def __init__(
        self,
        name: str = "Profile",
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        enabled: bool | None = None,
        strict: bool = False,
        events: int = 0,
        device_events: EventProvider | None = None,
    ) -> None:
        self.name = name
        self.enabled = os.environ.get(VARIABLE) != "0" if enabled is None else enabled
        self._strict = strict
        self._clock = clock
        # Taken once, so that all that this process says lies on one line of time.
        self._wall = time.time_ns() - clock()
        self._events: EventLog | None = None
        if events:
            from gpuprof_timing._events import EventLog

            self._events = EventLog(events)
        self._device_times: DeviceTimes | None = None
        self._without_device = False
        if device_events is not None:
            from gpuprof_timing._device import DeviceTimes

            self._device_times = DeviceTimes(device_events)
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """Start an empty tree. What is open belongs to the old one, and ends there."""
        self._root = Node(_NO_KEY, "add_time", 0, None)
        root = make(Scope, self, _NO_KEY)
        root.node = self._root
        # A new variable: contexts still hold scopes of the old tree in the old one.
        cursor = ContextVar("gpuprof_timing", default=Cursor(root, 0))  # noqa: B039 - thread 0 never moves it
        self._cursor = cursor.get
        self._set_cursor = cursor.set
        self._nodes = 0
        self._said: set[str] = set()
        self._began = self._clock()
        if self._events is not None:
            self._events.clear()
        if self._device_times is not None:
            self._device_times.forget()

    # Scopes

    def add_time(self, key: str, *, device: str | None = None) -> Scope:
        """A scope whose durations are summed.

        Args:
            device: ``cuda`` measures the time on the current stream as well, between two events that are read later: no scope
                waits for the GPU. It is the time from one event to the other, not the time that the GPU was busy. Without CUDA,
                and while a CUDA graph is captured, the scope takes the CPU's time only.

        Raises:
            ValueError: another device.
        """
        if device is not None:
            return self._device_scope(key, device)
        if not self.enabled:
            return NO_SCOPE
        if "torch" in _modules and _torch.is_compiling():
            return NoScope()
        # `make(Scope, self, key)`, written out: one call less in the scope that hot loops use.
        scope = _new(Scope)
        scope._timing = self
        scope._key = key
        scope.node = None
        return scope

    def timeit(self, key: str) -> Scope:
        """A scope of which the last duration is shown."""
        if not self.enabled:
            return NO_SCOPE
        return NoScope() if _torch.is_compiling() else make(LastScope, self, key)

    def time_avg(self, key: str, average: int = 10) -> Scope:
        """A scope of which the mean of the last `average` durations is shown.

        Raises:
            ValueError: `average` is below 1.
        """
        if average < 1:
            raise ValueError(f"average={average!r}: expected at least 1")
        if not self.enabled:
            return NO_SCOPE
        if _torch.is_compiling():
            return NoScope()
        scope = make(AverageScope, self, key)
        scope.average = average
        return scope

    def _device_scope(self, key: str, device: str) -> Scope:
        if device != "cuda":
            raise ValueError(f"device={device!r}: expected 'cuda'")
        if not self.enabled:
            return NO_SCOPE
        if _torch.is_compiling():
            return NoScope()
        if self._device_times is None:
            if self._without_device or "torch" not in _modules:
                return make(Scope, self, key)
            from gpuprof_timing._device import DeviceTimes, find_provider

            provider = find_provider()
            if provider is None:
                self._without_device = True  # asking again would cost ten times the scope
                return make(Scope, self, key)
            self._device_times = DeviceTimes(provider)
        from gpuprof_timing._device import DeviceScope

        return make(DeviceScope, self, key)

    def _make_node(self, above: Node, key: str, kind: Kind, average: int) -> Node:
        """The child `key` of `above`, made where there is none. Once for each new place."""
        if self._nodes >= MAX_NODES and key not in above.children:
            self._say(OVERFLOW, f"more than {MAX_NODES} places; later ones are folded into {OVERFLOW!r}")
            # One for the whole tree: a place for them below each parent would again be without end.
            above, key = self._root, OVERFLOW
        else:
            self._nodes += 1
        return above.children.setdefault(key, Node(key, kind, average, above))

    def _conflict(self, node: Node, kind: Kind) -> None:
        place = "/".join(_path(node))
        problem = f"{place!r} is shown as {node.kind}, the first use; {kind} there is ignored"
        if self._strict:
            raise ValueError(f"{self.name}: {problem}")
        self._say(place, problem)

    def _say(self, what: str, problem: str) -> None:
        if what not in self._said:
            import logging

            self._said.add(what)
            logging.getLogger("gpuprof.timing").warning("%s: %s", self.name, problem)

    # Records

    def chrome_trace(self) -> dict[str, Any]:
        """The last scopes as a Chrome trace, for ui.perfetto.dev or chrome://tracing: ``json.dump`` it into a file.

        Threads and tasks are tracks. Times are microseconds since the epoch, so that traces of several processes line up.

        Raises:
            ValueError: this `Timing` keeps no events.
        """
        if self._events is None:
            raise ValueError("this Timing keeps no events: make it with Timing(events=100_000)")
        return self._events.to_chrome(self.name, os.getpid(), self._wall)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Timing:
        """The inverse of `to_dict`. The tree is a record: its clock stands still.

        Raises:
            ValueError: the data come from another version of the format.
        """
        if data.get("version") != FORMAT_VERSION:
            raise ValueError(f"timing tree of version {data.get('version')!r}: this gpuprof-timing reads {FORMAT_VERSION}")
        timing = cls(data["name"], clock=_stand_still, enabled=True)
        timing._wall = 0
        timing._began = -data["run"]
        for child in data["children"]:
            timing._root.children[child["key"]] = Node.from_dict(child, timing._root)
        return timing

    # Parts of a run, and runs of several processes

    def reset(self) -> None:
        """Begin an empty tree. Scopes that are open end in the old one."""
        self._begin()

    def snapshot(self) -> Timing:
        """The tree as it is now, to compare with later."""
        return Timing.from_dict(self.to_dict())

    def delta(self, since: Timing) -> Timing:
        """What has been added since a `snapshot`. Extremes of a part of the run are not known; the table leaves them out.

        >>> ticks = iter(range(0, 10**12, 1_000_000_000))
        >>> timing = Timing("t", clock=lambda: next(ticks))
        >>> with timing.add_time("a"):
        ...     pass
        >>> before = timing.snapshot()
        >>> with timing.add_time("a"):
        ...     pass
        >>> timing.delta(before)["a"]
        1.0
        """
        from gpuprof_timing._merge import subtract

        later = self.snapshot()
        subtract(later._root, since._root)
        later._began += since._clock() - since._began
        return later

    @staticmethod
    def merge(trees: Iterable[Timing], name: str = "Merged profile") -> Timing:
        """Trees of several processes as one.

        Counts and totals add, extremes and deviations combine exactly, and the table names the slowest process of each place. The
        order does not matter, nor whether some were merged before.

        Args:
            trees: taken one by one, so a generator needs no more memory than one tree and the result.
        """
        from gpuprof_timing._merge import merge_into

        merged = Timing(name, clock=_stand_still, enabled=True)
        merged._wall = 0
        for tree in trees:
            record = tree if tree._clock is _stand_still else tree.snapshot()
            merge_into(merged._root, record._root, record.name)
            merged._began = min(merged._began, record._began)
        return merged

    # The end of the process

    def print_at_exit(self, file: TextIO | None = None) -> None:
        """Print the tree when the process ends, also by an exception or by SIGTERM. What is open is in it as far as it got.

        Args:
            file: standard error if none is given.
        """
        from gpuprof_timing._at_exit import at_exit

        at_exit(lambda: print(self, file=file or sys.stderr, flush=True))

    def write_at_exit(self, path: str | os.PathLike[str]) -> None:
        """Write the tree as JSON when the process ends, also by an exception or by SIGTERM. Read it by `from_dict`."""
        from gpuprof_timing._at_exit import at_exit

        def write() -> None:
            import json

            # Renamed when it is whole, so that nobody ever reads half a tree. Does not wait for the GPU, which may hang.
            temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(self._to_dict(wait=False), file)
            os.replace(temporary, path)

        at_exit(write)

    def __reduce__(self) -> tuple[Callable[..., Timing], tuple[Any, ...]]:
        """Another process measures its own time: a `Timing` travels as an empty one of the same name and settings."""
        size = self._events.size if self._events is not None else 0
        return _made_elsewhere, (type(self), self.name, self.enabled, self._strict, size)


def _made_elsewhere(of: type[Timing], name: str, enabled: bool, strict: bool, events: int) -> Timing:
    return of(name, enabled=enabled, strict=strict, events=events)


_all: weakref.WeakSet[Timing] = weakref.WeakSet()


def _after_fork() -> None:
    """The child measures its own time, from an empty tree."""
    for timing in list(_all):
        timing.reset()


os.register_at_fork(after_in_child=_after_fork)


def _stand_still() -> int:
    return 0


def _path(node: Node) -> list[str]:
    above = node.parent
    return [] if above is None else [*_path(above), node.key]
