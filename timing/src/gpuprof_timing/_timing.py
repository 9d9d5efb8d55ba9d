"""`Timing`: the tree's public face."""

from __future__ import annotations

import copyreg
import os
import sys
import time
import weakref

from gpuprof_timing._node import integer, text, tree_from_dicts
from gpuprof_timing._reading import FORMAT_VERSION, Reading
from gpuprof_timing._recording import Recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TextIO

    from gpuprof_timing._device import DeviceTimes, EventProvider
    from gpuprof_timing._scope import Scope
    from gpuprof_timing._spans import Key

TIMING_VARIABLE = "GPUPROF_TIMING"
"""``0`` switches off every `Timing` made without an explicit `enabled`."""


class Timing(Reading):
    """Where the time went, as a tree of named scopes.

    A scope is a context manager, or a decorator of functions and methods. A coroutine function is
    timed from the call to the end, awaiting included. A generator, asynchronous or not, is timed
    only while it runs; each resumption is a call.

    The same key at several places of the tree has a node at each. A scope with the key of the scope
    around it uses that scope's node: recursion counts every call and the time of the outermost one.
    A key that is not a string, such as a member of an `Enum`, is shown by its `str`; the tree finds
    it by either.

    Threads and asyncio tasks nest separately; a task started inside a scope nests below it. Under
    the global lock no call is lost, however many threads share a node; on a free-threaded build,
    threads that share a node can lose calls, so give each thread its own `Timing` and `merge` them.

    As a mapping, and by attribute, it gives seconds for every key: for `add_time` the sum over all
    nodes of that key, recursion counted once; for `timeit` the most recent duration; for `time_avg`
    the mean of all windows together.

    Args:
        name: the title of the printed tree.
        clock: returns nanoseconds, never decreasing.
        enabled: whether scopes do anything. Default: yes, unless ``GPUPROF_TIMING`` is ``0``.
        strict: raise if a key is used in two kinds at one place, instead of logging it once.
        device_events: measures time on the GPU, for tests; default: torch's CUDA events.

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

    _epoch: int | None = None
    """The epoch of a snapshot's original tree; ``None`` for others, and if read from a file."""

    def __init__(
        self,
        name: str = "Profile",
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        enabled: bool | None = None,
        strict: bool = False,
        device_events: EventProvider | None = None,
    ) -> None:
        if enabled is None:
            enabled = os.environ.get(TIMING_VARIABLE) != "0"
        device_times: DeviceTimes | None = None
        if device_events is not None:
            from gpuprof_timing._device import DeviceTimes

            device_times = DeviceTimes(device_events)
        self._recording = Recording(self, name, clock, enabled, strict, device_times)
        if type(self).add_time is Timing.add_time:
            vars(self)["add_time"] = self._recording.fast_add_time  # one call less in hot loops
        # Taken once, so that all that this process says lies on one line of time.
        self._wall = time.time_ns() - clock()
        self._began = clock()
        _all.add(self)

    @property
    def enabled(self) -> bool:
        """Whether scopes do anything, including decorated functions and scopes kept for reuse.

        A scope that was made while switched off keeps doing nothing.
        """
        return self._recording.enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self._recording.switch(enabled)

    # Scopes

    def add_time(
        self,
        name: str,
        device: str | None = None,
        waits_for: str | None = None,
        key: Key | None = None,
    ) -> Scope:
        """A scope whose durations are summed.

        Args:
            name: its key in the tree.
            device: ``cuda`` also measures the time between two events on the current stream, which
                is not the time that the GPU was busy. The events are read later, so no scope waits
                for the GPU. Without CUDA, and while a CUDA graph is captured, only the CPU's time
                is measured. A scope's end reads earlier events, which breaks a capture by another
                thread in the mode ``global``, torch's default.
            waits_for: what the scope waits for, without working itself: the group of that name, all
                other ranks of its own group (``barrier``), ``data`` from outside, or an unknown
                worker (``*``).
            key: a text, bytes, or a tuple of several, that both sides of the wait know. A scope
                that waits ends after the scope elsewhere that has the same key and does not wait;
                scopes that wait for the ``barrier`` with the same key meet. A function is called
                when the scope ends, with the arguments of the decorated function if there is one.
                Without a ledger, a key is ignored and costs nothing.

        Raises:
            ValueError: another device, or one together with `waits_for` or `key`.
        """
        return self._recording.add_time(name, device, waits_for, key)

    def timeit(self, name: str) -> Scope:
        """A scope that shows its last duration."""
        return self._recording.timeit(name)

    def time_avg(self, name: str, average: int = 10) -> Scope:
        """A scope that shows the mean of its last `average` durations.

        Raises:
            ValueError: `average` is below 1.
        """
        return self._recording.time_avg(name, average)

    # Records

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Timing:
        """The inverse of `to_dict`. The tree is a record: its clock stands still.

        Raises:
            ValueError, LookupError, TypeError: `to_dict` does not return such data, or another
                version's does.
        """
        if data.get("version") != FORMAT_VERSION:
            raise ValueError(
                f"timing tree of version {data.get('version')!r}: this gpuprof-timing reads "
                f"{FORMAT_VERSION}"
            )
        timing = cls(text(data, "name"), clock=_stand_still, enabled=True)
        timing._wall = 0
        timing._began = -integer(data, "run")
        tree_from_dicts(data["children"], timing._recording.root)
        return timing

    # Parts of a run, and runs of several processes

    def reset(self) -> None:
        """Start an empty tree. Open scopes end in the old one."""
        self._recording.begin()
        self._found = Reading._found
        self._began = self._recording.clock()

    def snapshot(self) -> Timing:
        """A copy of the tree, for `delta`."""
        epoch = self._recording.epoch
        copy = Timing.from_dict(self.to_dict())
        copy._epoch = epoch
        return copy

    def delta(self, since: Timing) -> Timing:
        """The tree's growth since a `snapshot`.

        The extremes of a part of the run are unknown; the table leaves them out. After a `reset`,
        and in a fork, the whole tree is newer than the snapshot.

        >>> ticks = iter(range(0, 10**12, 1_000_000_000))
        >>> timing = Timing("t", clock=lambda: next(ticks))
        >>> with timing.add_time("a"):
        ...     pass
        >>> before = timing.snapshot()
        >>> with timing.add_time("a"):
        ...     pass
        >>> timing.delta(before)["a"]
        1.0

        Raises:
            TypeError: `since` is not a `Timing`.
        """
        from gpuprof_timing._merge import subtract

        _check("since", since)
        later = self.snapshot()
        if since._epoch is not None and since._epoch != later._epoch:
            return later
        subtract(later._recording.root, since._recording.root)
        later._began += since._recording.clock() - since._began
        return later

    @staticmethod
    def merge(trees: Iterable[Timing], name: str = "Merged profile") -> Timing:
        """Merge the trees of several processes.

        Counts and totals add, extremes and deviations combine exactly, and the table names the
        slowest process of each place. Neither the order matters, nor earlier merges.

        Args:
            trees: taken one by one, so a generator needs only memory for one tree and the result.

        Raises:
            TypeError: one of them is not a `Timing`.
        """
        from gpuprof_timing._merge import merge_into

        total = Timing(name, clock=_stand_still, enabled=True)
        total._wall = 0
        for tree in trees:
            _check("trees", tree)
            record = tree if tree._recording.clock is _stand_still else tree.snapshot()
            merge_into(total._recording.root, record._recording.root, record.name)
            # they stand still at 0: the run of all is the sum, of which shares are then shares
            total._began += record._began
        return total

    # The end of the process

    def print_at_exit(self, file: TextIO | None = None) -> None:
        """Print the tree (`text`) when the process ends, even by an exception or SIGTERM.

        Open scopes count with their time so far, and a last line names the innermost ones, as in
        ``open: train/forward``. A process that goes on after SIGTERM, because a handler of its own
        returns or raises, prints the tree again at its end.

        Args:
            file: standard error if none is given.
        """
        from gpuprof_timing._at_exit import at_exit

        def show() -> None:
            from gpuprof_timing._render import open_places

            places = ", ".join(open_places(self._recording.root))
            last = f"\nopen: {places}" if places else ""
            print(f"{self.text()}{last}", file=file or sys.stderr, flush=True)

        at_exit(show)

    def write_at_exit(self, path: str | os.PathLike[str]) -> None:
        """Write the tree as JSON when the process ends, even by an exception or SIGTERM.

        Read it by `from_dict`.

        A process that goes on after SIGTERM, because a handler of its own returns or raises, writes
        the tree again at its end.

        Args:
            path: relative to the current directory, even if that changes later.
        """
        from gpuprof_timing._at_exit import at_exit

        path = os.path.abspath(path)

        def write() -> None:
            import json

            # Renamed when it is whole, so that nobody ever reads half a tree. Does not wait for the
            # GPU, which may hang.
            temporary = f"{path}.{os.getpid()}.tmp"
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(json.dumps(self.to_dict(device="ready")))
            os.replace(temporary, path)

        at_exit(write)

    def __reduce__(self) -> tuple[Callable[..., Timing], tuple[Any, ...]]:
        """Pickle an empty `Timing` with the same name and settings: processes time themselves."""
        return _made_elsewhere, (type(self), self.name, self.enabled, self._recording.strict)


def _made_elsewhere(of: type[Timing], name: str, enabled: bool, strict: bool) -> Timing:
    return of(name, enabled=enabled, strict=strict)


def _reduced(recording: Recording) -> tuple[Callable[..., Recording], tuple[Any, ...]]:
    """Pickle with its `Timing`: a decorated function and its module share one, elsewhere too."""
    return _recording_of, (recording.timing,)


def _recording_of(timing: Timing | None) -> Recording:
    # Nobody could read one that is gone where this comes from.
    return (Timing(enabled=False) if timing is None else timing)._recording


copyreg.pickle(Recording, _reduced)
_all: weakref.WeakSet[Timing] = weakref.WeakSet()


def _after_fork() -> None:
    """The child measures its own time, from an empty tree. Records stay what they are."""
    for timing in list(_all):
        if timing._recording.clock is not _stand_still:
            timing.reset()


os.register_at_fork(after_in_child=_after_fork)


def _stand_still() -> int:
    return 0


def _check(argument: str, value: object) -> None:
    if not isinstance(value, Timing):
        kind = type(value).__name__
        raise TypeError(
            f"{argument}: a {kind} is no Timing; what to_dict or a file has is read by "
            "Timing.from_dict"
        )
