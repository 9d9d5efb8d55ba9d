"""The ledger: an append-only file of what a process did when.

`gpuprof._artifacts.ledger` reads the file; `gpuprof._session.blocks` has its layout. This module
needs only the standard library, since it runs in every worker.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import struct
import sys
import threading
import time
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypedDict

from gpuprof_timing.recording import (
    ROLES,
    Folded,
    Linked,
    Node,
    Released,
    SpanLog,
    Track,
    roots,
    walk,
)

from gpuprof._log import log
from gpuprof._session.blocks import BlockFile
from gpuprof._session.cards import Cards
from gpuprof._session.collector import Collections
from gpuprof._session.samples import Phase, Samples
from gpuprof._session.stacks import SUFFIX, Sampler
from gpuprof._session.usage import SLEPT, Usage
from gpuprof._shim.processes import process_start
from gpuprof._shim.row import LedgerLimits

FORMAT = "gpuprof-ledger"
VERSION = 1

SPAN = struct.Struct("<IIqq")
"""A call: place, track, start, end."""
FOLD = struct.Struct("<IIqqqq")
"""Several calls folded into one row: place, track, start of the first, end of the last, number of
calls, nanoseconds busy."""
LINK = struct.Struct("<IIqqQQ")
"""A key of a call: place, track, start, end, key (see `key_of`), role (its index in `ROLES`)."""
STEP = struct.Struct("<qqI")
"""The beginning or end of a step: the step's number, time, 1 for the beginning or 0 for the end."""
CLOCK = struct.Struct("<qqq")
"""Both clocks at one moment: monotonic, wall, and the nanoseconds that reading them took."""
OPEN = struct.Struct("<Iq")
"""A call that had not ended when the block was written: place, start."""
ITERATION = struct.Struct("<Iq")
"""The first collective in an iteration of a loop: the loop's number, time."""
COLLECTION = struct.Struct("<Iqq")
"""A run of the garbage collector: generation, start, end."""

SENT = struct.Struct("<IqqQQ")
"""A call sent to another process: track, when sending began, when it ended, the call's key, and the
key of a call whose result is an argument, or 0. A call that takes several results has one row for
each."""

SIZE = struct.Struct("<Iqq")
"""How many bytes a call handles: place, a time during the call, bytes."""

KEY = 8
"""The length of a key in a ledger, in bytes."""
_SENT_AS_IT_IS = struct.Struct(f"<Iqq{KEY}sQ")
"""`SENT`, of a key that needs no hash."""

DRIVES = "drives"
"""The event of a process that drives the run. It makes the process a driver, whatever role its
header has."""
HELPER = "helper"
"""The role of a process that only runs functions for another one, as those of a DataLoader do."""
STARTS_RANKS = "starts ranks"
"""The event of a process that starts a rank by itself, with the rank's group."""
STEP_AT = "step at"
"""The event of a process whose steps are set by the key ``step_at``. Its last step may only have
begun, because with an actor's method each call ends one step and begins the next."""
MARKS_STEPS = "marks steps"
"""The event of a process that has marked its first step, with the ``track`` of the thread that has.
"""
PACED_STEPS = "paced steps"
"""The event of a driver whose steps last a fixed time. The workers' own steps say more."""
LIBRARY_STEPS = "library steps"
"""The event of a process whose steps are counted by a library, because the job marks none."""
PROCESS_GROUP = "process group"
"""The event of a process that has joined a process group of torch.distributed."""
LOOP = "loop"
"""The event of a loop around collectives, which the process has entered for a second time.

With its ``number``, ``file`` and ``line``; its ``level``, of which that of a loop
around it is lower; the first line of the loop of the same function that it is ``inside``; and
``epochs``: whether its own first line speaks of epochs.
"""
ENDED = "a thread that has ended"
"""The name of a thread that had ended before its name was read."""
DRAIN_INTERVAL = 1.0
"""Seconds between two writes."""
LAST_SECONDS = 2 * DRAIN_INTERVAL
"""The most seconds that a killed process loses, even on a busy machine."""
CLOCK_INTERVAL = 5.0
_SURVIVES = 1_000_000_000
"""Nanoseconds after which a call that is still open is written, in case it never ends."""
_BURST = 64
"""How many steps' ``bytes_per_step`` may be written at once."""
_MOST_PLACES, _MOST_TRACKS, _MOST_OPEN = 20_000, 4_096, 2_000
_MORE = "(more)"
_FREE_NAMES = 2**16
"""Bytes of names that a process writes even if the total is used up. Most jobs need a tenth of
that."""
_NAMES_AT_ONCE = 1 / 64
"""A fraction of the total. After that many bytes of new names, the process checks again how much
all processes have used."""
_TRACK = 1 << 32
"""The factor of a track's number in the first eight bytes of a `SPAN`, which are read as one
integer: the call's code, place + track * `_TRACK`."""


class Header(TypedDict):
    """The first line of a ledger.

    Keys:
        clock: identifies the monotonic clock; processes with the same text share one clock.
        monotonic: when the ledger began, in nanoseconds of the monotonic clock.
        wall: when the ledger began, in nanoseconds since the epoch.
    """

    format: str
    version: int
    run: str
    name: str
    group: str
    rank: int
    node: str
    incarnation: str | None
    pid: int
    process_start: str | None
    role: str
    clock: str
    monotonic: int
    wall: int


_TELLING = 60
"""Samples of a process without scopes that tell what it does."""


class LedgerWriter:
    """Writes the ledger of this process.

    The job's threads only append to a buffer. `drain` does the rest, on the control thread.

    Args:
        path: the file's path. The file is created once there is something to write. An existing
            file of that name is kept: the new file's name gets a number.
        on_fault: called with a message if the ledger ends early. The job goes on.
        make_directory: makes the file's directory, once, before the file is created.

    Attributes:
        begin_step: called on the job's thread when a step begins, with the step's number.
        end_step: called on the job's thread when a step ends, with the step's number.
        sent: called on the job's thread when it has sent a call to another process. Its arguments
            are the time at which sending began, on this ledger's clock; the key that the call
            releases at its end; and the keys of the calls whose results are arguments of the call,
            which therefore cannot begin before those calls end.
        attributes: called on the job's thread when a step has ended, with the step's number and its
            attributes.
        samples: the phases of samples.
    """

    def __init__(
        self,
        path: str,
        header: Header,
        budget: LedgerLimits,
        on_fault: Callable[[str], object],
        clock: Callable[[], int] = time.perf_counter_ns,
        wall: Callable[[], int] = time.time_ns,
        make_directory: Callable[[], object] = int,
    ) -> None:
        self._file = BlockFile(path, header, make_directory)
        self._header = header
        self._budget = budget
        self._on_fault = on_fault
        self._clock = clock
        self._wall = wall
        self._spans = SpanLog(clock)
        self._collections = Collections(clock)
        # Bound methods, so that the job's thread makes no further Python call in between.
        self.begin_step: Callable[[int], object] = self._begin_first_step
        self.end_step: Callable[[int], object] = self._spans.note
        self.sent: Callable[[int, bytes, tuple[bytes, ...]], object] = self._spans.note_sent
        self.samples = Samples(clock, budget["total"])
        self.attributes = self.samples.add_attributes
        rate = budget.get("sampling", 0.0)
        self._sampler = Sampler(rate, clock, on_fault) if rate else None
        self._over = False
        self._lock = threading.Lock()  # `end` may run on another thread than `drain`
        self._events: list[dict[str, Any]] = []
        self._marker: int | None = None
        self._by_node: dict[Node, int] = {}
        self._places: dict[tuple[int, str], int] = {}
        self._depths: dict[int, int] = {0: 0}
        self._tracks: dict[object, int] = {}  # times `_TRACK`
        self._threads: dict[int, weakref.ref[threading.Thread] | None] = {}
        self._known_tracks = 0
        self._new_places: list[dict[str, Any]] = []
        self._new_tracks: list[dict[str, Any]] = []
        self._links: list[bytes] = []
        self._sizes: list[tuple[Node, int, int]] = []
        self._iterations: list[tuple[int, int]] = []
        self._deepest = 0
        self._thinned = 0
        self._spent = False
        self._allowance = _BURST * budget["bytes_per_step"]
        self.steps_known = False
        self._open: frozenset[tuple[int, int]] = frozenset()
        self._next_clock = 0
        self._usage = Usage(clock)
        self._cards = Cards(clock, self.event)
        self._first_usage: list[tuple[str, bytes]] = []
        self._used = 0  # bytes of the total that were used at the last check
        self._names = 0  # bytes of all names so far
        self._new_names = 0  # bytes of the names that are not part of `_used`
        self._unwritten_names = 0
        self._names_are_spent = False

    def begin(self, is_timed: bool = True) -> None:
        """Start recording.

        Args:
            is_timed: whether scopes are timed; if not, the ledger says so.
        """
        self._spans.begin()
        self._collections.begin()
        self._first_usage = self._read_usage()
        if not is_timed:
            self.event("untimed")
        elif self._sampler is not None:
            self._sampler.begin()

    @property
    def path(self) -> str:
        """The file's path."""
        return self._file.path

    @property
    def recording(self) -> bool:
        """Whether the ledger is still being recorded."""
        return not self._over

    def event(self, kind: str, **about: Any) -> None:
        """Note an event that happens now, other than a call or a step."""
        if not self._over:
            self._events.append({"event": kind, "time": self._clock(), **about})

    def sized(self, node: Node, size: int) -> None:
        """Note how many bytes the current call at a node of the tree handles."""
        if not self._over and not self._thinned:
            self._sizes.append((node, self._clock(), size))

    def iterated(self, loop: int) -> None:
        """Note that a loop begins an iteration; nobody asks once the job has marked a step."""
        if not self._over and not self.steps_known:
            self._iterations.append((loop, self._clock()))

    def sample(self, sample: object, phase: object) -> Phase:
        """A phase of a sample: a context manager, entered and left on the job's threads."""
        return Phase(self.samples, sample, phase)

    def drain(self) -> None:
        """Write what was recorded since the last call.

        Never raises: a fault ends the ledger and is reported once.
        """
        with self._lock:
            if self._over:
                return
            try:
                self._drain()
            except Exception as error:
                self._give_up(error)

    def end(self) -> None:
        """Stop recording, and write what has not been written yet."""
        with self._lock:
            if self._over:
                return
            self._stop()
            try:
                self._drain()
                self.event("end", **({"interrupted": True} if _interrupted() else {}))
                self._drain()
            except Exception as error:
                self._give_up(error)
            self._over = True
            self._file.close()
            if self._sampler is not None:
                self._sampler.close()

    def _begin_first_step(self, number: int) -> None:
        self._marker = get_ident()
        self.begin_step = self._spans.mark
        self.begin_step(number)

    def _stop(self) -> None:
        self._spans.end()
        self._collections.end()
        if self._sampler is not None:
            self._sampler.end()

    def _give_up(self, error: Exception) -> None:
        self._over = True
        self._stop()
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):
            reason = str(error.strerror)
        self._on_fault(f"{self.path}: the ledger ends here: {reason}; everything else goes on")

    def _drain(self) -> None:
        batch = self._spans.take()
        if self._marker is not None:
            self.event(MARKS_STEPS, track=self._track_of(self._marker) // _TRACK)
            self._marker = None
        self._forget_ended_threads()
        if len(self._by_node) > 4 * _MOST_PLACES:  # each reset of a tree gives it new nodes
            self._by_node.clear()
        spans = batch.rows.pack(self._by_node, self._tracks, self._links, self._code_of)
        folds = [self._pack(fold) for fold in batch.folds]
        steps = [STEP.pack(*mark) for mark in batch.marks]
        if batch.lost:
            self.event("lost", steps=batch.lost)
        open_calls = self._still_open()
        events = self._drained_events()
        sent_calls, sizes = b"".join(map(self._packed_sent, batch.sent)), self._packed_sizes()
        has_content = spans or folds or steps or events or open_calls or sent_calls
        # such as those of an environment in a child process, which its parent may kill at its end
        tells = self._sampler is not None and self._sampler.taken >= _TELLING
        if not (has_content or tells or self.samples.waiting or self._file.exists):
            return
        is_due = self._clock() >= self._next_clock
        usage = self._read_usage() if (has_content or is_due) and not self._spent else []
        collections, losses = self._collections.take()
        if losses:
            self.event("lost", collections=losses)
        if self._sampler is not None:  # before places and tracks are written: it may add some
            self._sampler.pack(self._place_of, lambda track: self._track_of(track) // _TRACK)
        self._file.add_json("plac", self._new_places)
        self._file.add_json("trak", self._new_tracks)
        for kind, blocks in (("span", [spans]), ("fold", folds)):
            self._file.add(kind, b"".join(blocks))
        for kind, blocks in (("link", self._links), ("step", steps)):
            self._file.add(kind, b"".join(blocks))
        self._file.add("coll", b"".join(COLLECTION.pack(*row) for row in collections))
        iterations, self._iterations = self._iterations, []
        self._file.add("iter", b"".join(ITERATION.pack(*row) for row in iterations))
        self._file.add("sent", sent_calls)
        self._file.add("size", sizes)
        self._new_places, self._new_tracks, self._links = [], [], []
        if open_calls is not None:
            self._file.add(
                "open", b"".join(OPEN.pack(*row) for row in sorted(open_calls)), empty=True
            )
        self.steps_known = self.steps_known or bool(steps)
        calls = 0 if self.steps_known else [node.depth for node in batch.nodes].count(1)
        self._thin(self._file.waiting, len(steps), calls)
        before = self.samples.thinned
        self.samples.write(self._file)
        if self.samples.thinned > before:
            self._note_thinned_samples(first=not before)
        self._file.add_json("evnt", [*events, *self._drained_events()])
        if is_due:
            self._next_clock = self._clock() + int(CLOCK_INTERVAL * 1e9)
            self._file.add("clck", self._both_clocks())
        for kind, rows in (*self._first_usage, *usage):  # nothing that a step could save
            self._file.add(kind, rows)
        self._first_usage = []
        self._file.write()
        self._unwritten_names = 0
        if self._sampler is not None:
            self._sampler.write(self.path.removesuffix(".ledger") + SUFFIX, self._header)

    def _pack(self, fold: Folded) -> bytes:
        place = self._place_of(fold.node)
        track = fold.track.track if type(fold.track) is Linked else fold.track
        where = 0 if track is None else self._track_of(track) // _TRACK
        return FOLD.pack(place, where, fold.start, fold.end, fold.calls, fold.busy)

    def _packed_sent(self, row: tuple[Track, int, int, bytes, tuple[bytes, ...]]) -> bytes:
        track, start, end, key, needs = row
        number = self._track_of(track) // _TRACK
        if not needs and len(key) == KEY:  # as most are
            return _SENT_AS_IT_IS.pack(number, start, end, key, 0)
        call = number, start, end, key_of(key)
        if not needs:
            return SENT.pack(*call, 0)
        return b"".join([SENT.pack(*call, key_of(need)) for need in needs])

    def _packed_sizes(self) -> bytes:
        count = len(self._sizes)  # other threads append meanwhile
        sizes = self._sizes[:count]
        del self._sizes[:count]
        return b"".join(SIZE.pack(self._place_of(node), *rest) for node, *rest in sizes)

    def _drained_events(self) -> list[dict[str, Any]]:
        size = len(self._events)  # other threads append meanwhile
        events = self._events[:size]
        del self._events[:size]
        return events

    # Tables

    def _code_of(self, node: Node, start: int, end: int, track: Track) -> int:
        """The code of a call (see `_TRACK`). Adds the call's links to the rows to write."""
        place = self._place_of(node)
        if type(track) is not Linked:
            return place + self._track_of(track)
        number = self._track_of(track.track)
        for key in track.keys:
            role = ROLES.index("releases" if type(key) is Released else track.role)
            self._links.append(LINK.pack(place, number // _TRACK, start, end, key_of(key), role))
        return place + number

    def _place_of(self, node: Node) -> int:
        place = self._by_node.get(node)
        if place is not None:
            return place
        chain = []
        above: Node | None = node
        while above is not None and above.parent is not None and above not in self._by_node:
            chain.append(above)
            above = above.parent
        place = self._by_node.get(above, 0) if above is not None else 0
        for child in reversed(chain):
            place = self._by_node[child] = self._place(place, child)
        return place

    def _place(self, parent: int, node: Node) -> int:
        key = node.key
        place = self._places.get((parent, key))
        if place is None and (
            len(self._places) >= _MOST_PLACES or not self._takes_name(key, node.waits_for)
        ):
            parent, key = 0, _MORE
            place = self._places.get((parent, key))
        if place is None:
            place = self._places[parent, key] = len(self._places) + 1
            self._depths[place] = self._depths[parent] + 1
            self._deepest = max(self._deepest, self._depths[place])
            about: dict[str, Any] = {"id": place, "parent": parent, "key": key}
            if node.waits_for is not None:
                about["waits_for"] = node.waits_for
            self._new_places.append(about)
        return place

    def _track_of(self, track: object) -> int:
        number = self._tracks.get(track)
        if number is not None:
            return number
        ident: Any = track[0] if isinstance(track, tuple) else track
        if isinstance(track, tuple) and len(self._tracks) >= _MOST_TRACKS:
            return self._track_of(ident)
        thread = threading._active.get(ident)  # type: ignore[attr-defined]
        self._threads[ident] = None if thread is None else weakref.ref(thread)
        self._known_tracks += 1
        name = thread.name if thread is not None else ENDED
        if not self._takes_name(name):
            name = _MORE
        self._new_tracks.append(
            {
                "id": self._known_tracks,
                "name": name,
                "thread": ident,
                "native": getattr(thread, "native_id", None),
                "task": isinstance(track, tuple),
            }
        )
        number = self._tracks[track] = self._known_tracks * _TRACK
        return number

    def _forget_ended_threads(self) -> None:
        """Forget the tracks of ended threads.

        A new thread with the id of an ended one then gets its own track.
        """
        for ident, reference in list(self._threads.items()):
            thread = None if reference is None else reference()
            if threading._active.get(ident, thread) is not thread:  # type: ignore[attr-defined]
                del self._threads[ident]
                for track in list(self._tracks):
                    if track == ident or (isinstance(track, tuple) and track[0] == ident):
                        del self._tracks[track]

    def _still_open(self) -> frozenset[tuple[int, int]] | None:
        """The calls that have been open for a while; ``None`` if they are the same as last time."""
        before = self._clock() - _SURVIVES
        calls = set()
        for node in self._some_nodes():
            scope = node.latest
            start = scope.started if scope is not None and scope.node is node else None
            if start is not None and start < before:
                calls.add((self._place_of(node), start))
        open_calls = frozenset(calls)
        if open_calls == self._open:
            return None
        self._open = open_calls
        return open_calls

    def _some_nodes(self) -> Iterable[Node]:
        for root in roots(self._clock):
            yield from itertools.islice(walk(root), _MOST_OPEN)

    # The budget

    def _thin(self, size: int, steps: int, calls: int) -> None:
        per_step = self._budget["bytes_per_step"]
        gain = per_step * (steps // 2 if self.steps_known else max(1, calls))
        self._allowance = min(self._allowance + gain - size, _BURST * per_step)
        deepest = (self._thinned or self._deepest + 1) - 1
        if self._allowance < 0 and deepest > 1:
            self._allowance = _BURST * per_step // 2
            self._thin_from(deepest, f"bytes_per_step: {per_step} bytes are used up")
        elif not self._spent and self._total() > self._budget["total"]:
            self._spent = True
            self._spans.spare()
            self.samples.spare()
            if self._sampler is not None:
                self._sampler.end()
            self._thin_from(2, f"total: {self._budget['total']} bytes are used up on this node")

    def _thin_from(self, depth: int, why: str) -> None:
        if not self._thinned or self._spent:
            log().info(
                "%s: from now on the ledger leaves out scopes at level %d and deeper "
                "(ledger.%s); the timing tree has them all",
                self._header["name"],
                depth,
                why,
            )
        self._thinned = depth
        self._spans.thin(depth)
        self.event("thinned", depth=depth, why=why)

    def _note_thinned_samples(self, first: bool) -> None:
        if first:
            log().info(
                "%s: from now on the ledger leaves out more and more samples (ledger.total); it "
                "keeps the longest phases and the totals",
                self._header["name"],
            )
        self.event("samples thinned", level=self.samples.thinned)

    def _takes_name(self, *words: str | None) -> bool:
        """Count a new name against the total, and return whether it fits.

        Once one name does not fit, neither does any later one.
        """
        size = len(json.dumps(words))
        total = self._budget["total"]
        if self._names + size > _FREE_NAMES:
            if not self._names_are_spent and self._new_names + size > total * _NAMES_AT_ONCE:
                self._look()
            if self._used + self._new_names + size > total:
                self._names_are_spent = True
        if self._names_are_spent:
            return False
        self._names += size
        self._new_names += size
        self._unwritten_names += size
        return True

    def _total(self) -> int:
        if (
            not self._file.exists or self._clock() < self._next_clock
        ):  # looked at as often as the clocks
            return 0
        self._look()
        return self._used

    def _look(self) -> None:
        """Check how much of the total all ledgers of the run on this node have used."""
        self._used = self._unwritten_names
        self._new_names = 0
        with suppress(FileNotFoundError), os.scandir(os.path.dirname(self.path)) as entries:
            self._used += sum(
                entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if entry.name.endswith((".ledger", SUFFIX))
            )

    def _read_usage(self) -> list[tuple[str, bytes]]:
        """What the process uses by now, as blocks. May add tracks."""
        if not self._usage.is_due():
            return []
        threads = self._usage.threads(lambda thread: self._track_of(thread) // _TRACK)
        cards = b"".join(self._cards.read())
        asleep = 0 if self._sampler is None else self._sampler.sleeps.nanoseconds
        slept = SLEPT.pack(self._clock(), asleep)
        used = self._usage.process()
        return [("thrd", b"".join(threads)), ("slpt", slept), ("used", used), ("card", cards)]

    # The file

    def _both_clocks(self) -> bytes:
        before = self._clock()
        wall = self._wall()
        after = self._clock()
        return CLOCK.pack((before + after) // 2, wall, after - before)


def make_header(
    run: str, name: str, group: str, rank: int, node: str, incarnation: str | None, role: str
) -> Header:
    """The first line of this process's ledger. The ledger's time begins with this call."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "run": run,
        "name": name,
        "group": group,
        "rank": rank,
        "node": node,
        "incarnation": incarnation,
        "pid": os.getpid(),
        "process_start": process_start(os.getpid()),
        "role": role,
        "clock": clock_id(),
        "monotonic": time.perf_counter_ns(),
        "wall": time.time_ns(),
    }


def _interrupted() -> bool:
    """Whether Ctrl-C ends the process, or the block of code that ends the ledger."""
    kind = sys.exc_info()[0]
    if kind is None and not hasattr(sys, "ps1"):  # a prompt goes on after Ctrl-C
        kind = getattr(sys, "last_type", None)
    return kind is not None and issubclass(kind, KeyboardInterrupt)


def key_of(key: str | bytes) -> int:
    """A key in the ledger's form: 64 bits, which two processes compute alike from the same key.

    A key of eight bytes is taken as it is; any other key is hashed.
    """
    content = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
    if len(content) == KEY:
        return int.from_bytes(content, "little")
    digest = hashlib.blake2b(content, digest_size=KEY)
    return int.from_bytes(digest.digest(), "little")


def clock_id() -> str:
    """An identifier of this process's monotonic clock: the machine's boot and the time namespace.

    Processes with the same identifier share one clock.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        return f"{os.uname().nodename}/{os.getpid()}"  # shared with nobody
    try:
        return f"{boot}/{os.readlink('/proc/self/ns/time')}"
    except OSError:  # a kernel without time namespaces
        return boot
