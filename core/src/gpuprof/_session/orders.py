"""Orders to armed workers: the steps that ``gpuprof capture`` asks for, as files in a directory.

The directory and its files are private to their owner. An order holds numbers and group names;
gpuprof runs no code from it and opens no path from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import threading
import time
from collections import deque
from typing import Any

import attrs

from gpuprof._config.selection import MAX_WINDOWS, Integers, matches, windows
from gpuprof._log import log
from gpuprof._session.windows import StepWindows
from gpuprof._shim.safe import not_private, open_regular, parse_json
from gpuprof.backend.types import Windows
from gpuprof.errors import ConfigError, OutputError

POLL = 0.5
"""Seconds between two looks at the directory."""
_LARGEST = 65536
_SETTLED = 2_000_000_000
"""Nanoseconds after which a further change is sure to change the directory's modification time: the
clocks of file systems are coarse."""


@attrs.frozen
class Order:
    """The steps to capture, and the workers to capture them on.

    Args:
        next: how many of the next steps to capture; 0 if `ranges` has the steps.
        ranges: the steps, as pairs of first step and the step after the last.
        ranks: the workers' ranks, as pairs like those of `ranges`.
    """

    next: int
    ranges: tuple[tuple[int, int], ...]
    groups: tuple[str, ...]
    ranks: tuple[tuple[int, int], ...]
    name: str = attrs.field(default="", eq=False)

    def selects(self, group: str, rank: int) -> bool:
        """Whether the order is for the worker with this group and rank."""
        return matches(group, self.groups) and any(
            start <= rank < stop for start, stop in self.ranks
        )

    def steps(self, first: int) -> tuple[tuple[int, int], ...]:
        """The steps, in the form of `ranges`; those of ``next:N`` begin with `first`."""
        return ((first, first + self.next),) if self.next else self.ranges

    def add_to(self, plan: StepWindows, first: int, continuous: bool) -> Windows:
        """Add the order's windows to a worker's plan, and return the windows that were added.

        Args:
            plan: the worker's planned windows; windows that overlap these are not added.
            first: the first step of ``next:N``.
        """
        order_windows = windows(Integers(self.steps(first)), continuous)
        return plan.add(attrs.evolve(window, number=0) for window in order_windows)


def announce(order_windows: Windows, workers: str, step: int, first: int) -> None:
    """Log which windows of an order are coming, and which are too late."""
    past = [
        window.label for window in order_windows if window.stop is not None and window.stop <= first
    ]
    coming = [window.label for window in order_windows if window.label not in past]
    if coming:
        log().info("gpuprof capture: %s on %s", ", ".join(coming), workers)
    if past:
        log().warning(
            "gpuprof capture: %s on %s: too late, the run is at step %d",
            ", ".join(past),
            workers,
            step,
        )


def parse_steps(text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Parse ``next:N``, or steps and slices separated by commas, to an order's `next` and `ranges`.

    >>> parse_steps("next:2"), parse_steps("100,200:203")
    ((2, ()), (0, ((100, 101), (200, 203))))
    """
    match = re.fullmatch(r"next:(\d+)", text.strip())
    if match and 0 < int(match[1]) <= MAX_WINDOWS:
        return int(match[1]), ()
    try:
        steps = Integers.of_text(text)
    except ConfigError:
        steps = Integers(())
    if not 0 < steps.count <= MAX_WINDOWS:
        raise ConfigError(
            f"steps: {text!r} is not valid; expected next:N, or steps and slices as in 100,200:203"
        )
    return 0, steps.ranges


def directory_of(run_directory: str) -> str:
    """The directory that holds a run's orders."""
    return os.path.join(run_directory, ".orders")


def make(run_directory: str) -> str:
    """Make the directory of orders, which marks the run as armed. Returns its path."""
    path = directory_of(run_directory)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    problem = not_private(os.lstat(path))
    if problem:
        raise OutputError(f"{path}: {problem}; expected a directory of this user's, with mode 0700")
    return path


def give(path: str, order: Order) -> None:
    """Leave an order in the directory."""
    data = {
        "version": 1,
        "next": order.next,
        "ranges": order.ranges,
        "groups": order.groups,
        "ranks": order.ranks,
    }
    name = f"{time.time_ns():020d}-{secrets.token_hex(3)}.json"
    try:
        problem = not_private(os.lstat(path))
        if problem:
            raise OutputError(f"{path}: {problem}; workers would refuse the order")
        _write(os.path.join(path, f"{name}.tmp"), data)
        os.rename(os.path.join(path, f"{name}.tmp"), os.path.join(path, name))
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None


class Orders:
    """Reads the orders in a directory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: set[str] = set()
        self._delayed: set[str] = set()
        self._early: list[Order] = []
        self._changed = 0
        # An old ``next:N`` was for an earlier start of the worker. Steps given by number may still
        # be ahead.
        self._early = [order for order in self.poll() if not order.next]

    def poll(self) -> list[Order]:
        """Return the orders that are new since the last call, the oldest first.

        Skips unreadable or non-private files, warning once.
        """
        early, self._early = self._early, []
        try:
            change_time = os.stat(self._path).st_mtime_ns
            if change_time == self._changed and time.time_ns() - change_time > _SETTLED:
                return early
            names = sorted(
                name
                for name in os.listdir(self._path)
                if name.endswith(".json") and name not in self._seen
            )
        except OSError:
            return early  # an unreachable file system, or a run that was cleaned up
        self._changed = change_time
        self._seen.update(names)
        orders = early
        for name in names:
            try:
                orders.append(_order(self._read(name), name))
            except (OSError, ValueError, LookupError, TypeError, OverflowError) as error:
                path = os.fsencode(os.path.join(self._path, name)).decode(errors="backslashreplace")
                log().warning("order %s is ignored: %s", path, error)
        return orders

    def agree(self, order: Order, first: int) -> int | None:
        """Agree with the other readers of this directory on an order's first step.

        The first proposal counts.

        Returns:
            The first step. ``None`` if the file with the agreed step cannot be written or read now:
            try again later. This is logged once.
        """
        name = f"{order.name}.first"
        temporary = os.path.join(self._path, f"{name}.{secrets.token_hex(3)}.tmp")
        try:
            try:
                # Linked when complete: on a full disk an empty file would block all ranks.
                _write(temporary, {"first": first})
                os.link(temporary, os.path.join(self._path, name))
            except FileExistsError:
                pass  # another reader was first
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return int(self._read(name)["first"])
        except (OSError, ValueError, LookupError, TypeError, OverflowError) as error:
            if order.name not in self._delayed:
                self._delayed.add(order.name)
                log().warning(
                    "order %s is delayed: %s", os.path.join(self._path, order.name), error
                )
            return None

    def agreed(self, order: Order) -> int | None:
        """The first step that other readers have agreed on; ``None`` if they have not yet."""
        try:
            return int(self._read(f"{order.name}.first")["first"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _read(self, name: str) -> Any:
        path = os.path.join(self._path, name)
        with open(open_regular(path), "rb") as file:
            for status, kind in (
                (os.lstat(self._path), stat.S_ISDIR),
                (os.fstat(file.fileno()), stat.S_ISREG),
            ):
                problem = not_private(status, kind)
                if problem:
                    raise ValueError(problem)
            return parse_json(file.read(_LARGEST))


class Watch:
    """Polls for orders on a thread.

    Attributes:
        waiting: the orders that have been read and not yet taken; the caller removes them.
    """

    def __init__(self, path: str) -> None:
        self.waiting: deque[Order] = deque()
        self._orders = Orders(path)
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="gpuprof-orders", daemon=True).start()

    def end(self) -> None:
        """Stop polling."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(POLL):
            self.waiting.extend(self._orders.poll())


def _write(path: str, data: Any) -> None:
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        json.dump(data, file)


def _order(data: Any, name: str) -> Order:
    if not isinstance(data, dict):
        raise ValueError("expected a mapping")
    if data["version"] != 1:
        raise ValueError(f"version {data['version']!r} is not supported; expected 1")
    if not all(isinstance(data[key], list) for key in ("ranges", "ranks", "groups")):
        raise ValueError("expected lists of ranges, ranks and groups")
    ranges, ranks = (
        tuple((int(start), int(stop)) for start, stop in data[key]) for key in ("ranges", "ranks")
    )
    if not all(0 <= start <= stop for start, stop in (*ranges, *ranks)) or int(data["next"]) < 0:
        raise ValueError("expected steps and ranks of at least 0, the first one first")
    if sum(stop - start for start, stop in ranges) > MAX_WINDOWS or int(data["next"]) > MAX_WINDOWS:
        raise ValueError(f"more than {MAX_WINDOWS} steps")
    return Order(
        int(data["next"]), ranges, tuple(str(group) for group in data["groups"]), ranks, name
    )
