"""Samples the Python stacks of this process's threads, several times a second.

`gpuprof._artifacts.stacks` reads the file. It has names of functions, modules and files, and never
values of the job's variables. Samples keep their times, because only the reader knows which step
was warm-up.

Python 3.11 needs the compiled module: there, creating a frame object may run the garbage collector
and crash the job, so C reads the interpreter's frames. Elsewhere C would gain little, because most
of a sample's cost is cold caches and the GIL.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import threading
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Mapping, Sequence
from types import CodeType

from gpuprof_timing.recording import CAN_SAMPLE, Alarm, Node, open_nodes, stacks, task_tracks

from gpuprof._session.blocks import BlockFile
from gpuprof._session.sleeps import Sleeps
from gpuprof._session.usage import OWN_THREADS

SUFFIX = ".stacks"
STACK = struct.Struct("<III")
"""A stack: the number of its caller's stack, its innermost function, the line in that function."""
SAMPLE = struct.Struct("<IIIIqq")
"""A time in which a thread's stack and place did not change: stack, track, place or 0, number of
samples, start, end."""

FUNCTION = ("function", "module", "file")
"""The fields that are written for a function."""

LIBRARY = re.compile(r"^<|[/\\](site|dist)-packages[/\\]|[/\\]lib(64)?[/\\]python[0-9.]+t?[/\\]")
"""Files whose lines a user did not write."""
_MOST_A_SAMPLE = 50e-6
"""Processor seconds that a sample may take in the long run, at the rate that was asked for: 0.1 %
of a core for 20 a second. If samples are more expensive, they are taken more rarely."""
_ALLOWANCE = 300.0
"""Sampling may take this many seconds' share of the core at once, so that a short job is sampled at
the full rate: while it imports its libraries, every stack is new."""
_GOLDEN = 0.618034
"""The golden ratio's fraction. Its multiples, modulo 1, spread most evenly."""
_SWITCH = 2e-5
"""Seconds for which the sampler waits until the thread that has the GIL must give it up. It asks
again after each, for nothing while C code keeps it."""
_MOST_LATER = 0.005
"""Python's usual switch interval, in seconds."""
_READY = 1.1 * _MOST_LATER
"""How many seconds before its time the sampler wakes: it then waits for the GIL at most for that
long, unless C code keeps it."""
_TURNS = 97
"""Makes another sequence of the phases between samples."""
_MOST_FRAMES = 128
"""The most frames of a stack; the outermost callers beyond are left out."""
_MOST_STACKS, _MOST_FUNCTIONS, _MOST_KNOWN = 16_384, 8_192, 16_384
_LONGEST = 512
"""The most characters of a name."""
_MOST_WAITING = 16_384
"""The most rows to keep in memory, since the control thread may hang with a profiler."""
_HALVES = 2**20
"""After each such number of bytes of rows, the sampling rate is halved, so that a long job's file
is only a little larger than a short job's."""


class _Stretch:
    """A time in which a thread keeps its stack and place, as far as no row has it yet."""

    __slots__ = ("end", "node", "samples", "stack", "start", "track", "written")

    def __init__(self, stack: int, track: object, node: Node | None, start: int, end: int) -> None:
        self.stack = stack
        self.track = track
        self.node = node
        self.start = start
        self.end = end
        self.samples = 1
        self.written = 0  # nanoseconds


class Sampler:
    """Samples the stacks of all threads except gpuprof's own.

    A fault on the sampling thread or in writing ends the sampling, and is reported once.

    Args:
        clock: the clock, in nanoseconds, of the trees whose places are noted.
        on_fault: called with a message if sampling ends early.

    Attributes:
        period: seconds between two samples.
        taken: how many samples there are.
        sleeps: how long the main thread has slept.
    """

    def __init__(
        self, rate: float, clock: Callable[[], int], on_fault: Callable[[str], object]
    ) -> None:
        self.period = 1 / rate
        self.taken = 0
        self._share = rate * _MOST_A_SAMPLE
        self._clock = clock
        self._on_fault = on_fault
        self.sleeps = Sleeps(LIBRARY)
        self._over = Alarm()
        self._ended = self._faulted = False
        self._lock = allocate_lock()  # the control thread packs; the job's threads never take it
        self._file: BlockFile | None = None
        self._blocks: list[tuple[str, bytes]] = []
        self._written = 0
        self._last: int | None = None
        self._own: dict[int, bool] = {}
        self._known: dict[int, int] = {}
        self._codes: dict[int, tuple[CodeType, int]] = {}
        self._functions: dict[tuple[str, str, str], int] = {}
        self._stacks: dict[tuple[int, int, int], int] = {}
        self._lines: dict[tuple[int, int], int] = {}
        self._stretches: dict[int, _Stretch] = {}
        self._rows: list[tuple[int, object, Node | None, int, int, int]] = []
        self._new_functions: list[tuple[str, str, str]] = []
        self._new_stacks: list[bytes] = []

    def begin(self) -> None:
        """Start sampling, if this Python can be sampled safely."""
        if not CAN_SAMPLE:
            return
        threading.Thread(target=self._run, name=f"{OWN_THREADS}stacks", daemon=True).start()

    def end(self) -> None:
        """Stop sampling. The samples taken so far can still be written."""
        if not self._ended:
            self._ended = True
            self._over.ring()

    def sample(self) -> None:
        """Take one sample of all threads."""
        with self._lock:
            self._sample()

    def pause(self, spent: float, elapsed: float) -> float:
        """How long to wait until the next sample, on the average.

        Args:
            spent: processor seconds that sampling has taken so far.
            elapsed: seconds since it began.
        """
        return max(self.period, spent / self._share - elapsed - _ALLOWANCE)

    def pack(self, place_of: Callable[[Node], int], track_of: Callable[[object], int]) -> None:
        """Turn the samples into blocks to write."""
        if self._faulted:
            return
        try:
            with self._lock:
                self._pack(place_of, track_of)
        except Exception as error:
            self._give_up(error)

    def write(self, path: str, header: Mapping[str, object]) -> None:
        """Write what was packed."""
        if not self._blocks:
            return
        try:
            self._file = self._file or BlockFile(path, header)
            for kind, content in self._blocks:
                self._file.add(kind, content)
            self._blocks = []
            self._file.write()
        except Exception as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _run(self) -> None:
        self._own[get_ident()] = True
        began, phase, wait = time.monotonic(), 0.0, self.period
        looked = time.monotonic_ns()
        while True:
            # varying waits, so that the samples fall on all parts of a step, whatever its length
            pause = wait * (0.5 + phase)
            at = time.monotonic() + pause
            waited = self._over.sleep(pause - _READY)
            if waited is None:
                return
            # Who keeps the GIL beyond that moment is still where it was then. From here on, nothing
            # may give up the GIL: the job would run on.
            was_kept = waited >= _MOST_LATER and time.monotonic() >= at
            if not was_kept and self._let_go(at, phase):
                return
            try:
                self.sample()
                now = time.monotonic_ns()
                self.sleeps.look(now - looked)
                looked = now
            except Exception as error:
                self._give_up(error)
                return
            self.taken += 1
            phase = (phase + _GOLDEN) % 1
            wait = self.pause(time.thread_time(), time.monotonic() - began)

    def _let_go(self, at: float, phase: float) -> bool:
        """Let the job run on to a moment that it has not chosen; returns whether sampling is over.

        A thread that wakes waits for the GIL up to the switch interval, and so mostly gets it where
        the job gives it up, as in a large copy of NumPy's, or in what follows a few milliseconds of
        Python. Such a place would have most of the samples, though it takes 3 % of the time. So the
        sampler wakes before its time, and then waits until then with a short interval.

        Args:
            at: the time of the sample, of the clock `time.monotonic`.
            phase: of 0 to 1, for the wait if that time has passed.
        """
        usual = sys.getswitchinterval()
        sys.setswitchinterval(min(usual, _SWITCH))
        short = sys.getswitchinterval()
        late = min(usual, _MOST_LATER) * (_TURNS * phase % 1)
        left = at - time.monotonic()
        try:
            return self._over.sleep(left if left > 0 else late) is None
        finally:
            if sys.getswitchinterval() == short:  # the job may have set its own meanwhile
                sys.setswitchinterval(usual)

    def _sample(self) -> None:
        now = self._clock()
        nodes, tasks = open_nodes(self._clock), task_tracks()
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        alive = set()
        for ident, key, frames in stacks(self._known, _MOST_FRAMES):
            alive.add(ident)
            own = self._own.get(ident)
            if own is None:
                own = self._own[ident] = _is_own(ident)
            if own:
                continue
            if frames is not None:
                self._known[key] = self._new_stack(frames)
            stack = self._known[key]
            node, track = nodes.get(ident), tasks.get(ident, ident)
            stretch = self._stretches.get(ident)
            if stretch is None:
                start = now if self._last is None else self._last
            elif stretch.stack == stack and stretch.node is node and stretch.track == track:
                stretch.end = now
                stretch.samples += 1
                continue
            else:
                start = stretch.end
                self._cut(stretch)
            self._stretches[ident] = _Stretch(stack, track, node, start, now)
        if len(self._own) > len(alive):  # some have ended, and another thread may get their numbers
            for ident in self._own.keys() - alive:
                del self._own[ident]
                if ident in self._stretches:
                    self._cut(self._stretches.pop(ident))
        self._last = now

    def _cut(self, stretch: _Stretch) -> None:
        """Make a row of the part of a stretch that no row has yet."""
        if stretch.samples and len(self._rows) < _MOST_WAITING:
            what = stretch.stack, stretch.track, stretch.node
            self._rows.append((*what, stretch.samples, stretch.start, stretch.end))
        stretch.written += stretch.end - stretch.start
        stretch.start, stretch.samples = stretch.end, 0

    def _new_stack(self, frames: Sequence[tuple[CodeType, dict[str, object], int]]) -> int:
        """The number of a stack; 0 if there are too many."""
        number = 0
        for code, variables, instruction in reversed(frames):
            function = self._function_of(code, variables)
            if not function:
                return 0
            key = number, function, self._line_of(code, instruction)
            if key not in self._stacks and len(self._stacks) >= _MOST_STACKS:
                return 0
            if key not in self._stacks:
                self._stacks[key] = len(self._stacks) + 1
                self._new_stacks.append(STACK.pack(*key))
            number = self._stacks[key]
        return number

    def _function_of(self, code: CodeType, variables: dict[str, object]) -> int:
        """The number of a function, given its global variables; 0 if there are too many."""
        if id(code) in self._codes:
            return self._codes[id(code)][1]
        if len(self._codes) >= _MOST_FUNCTIONS:
            return 0
        module = dict.get(variables, "__name__")  # a subclass's `get` is not ours to call
        words = (
            getattr(code, "co_qualname", code.co_name),  # from Python 3.11 on
            module if isinstance(module, str) else "",
            code.co_filename,
        )
        name = words[0][:_LONGEST], words[1][:_LONGEST], words[2][:_LONGEST]
        if name not in self._functions:
            self._functions[name] = len(self._functions) + 1
            self._new_functions.append(name)
        # the code is kept, so that no other one can have its id
        self._codes[id(code)] = code, self._functions[name]
        return self._functions[name]

    def _line_of(self, code: CodeType, instruction: int) -> int:
        """The line of an instruction of a function that has a number."""
        at = id(code), instruction
        if at not in self._lines:
            if len(self._lines) >= _MOST_KNOWN:
                self._lines.clear()
            self._lines[at] = _line_of(code, instruction)
        return self._lines[at]

    def _pack(self, place_of: Callable[[Node], int], track_of: Callable[[object], int]) -> None:
        for stretch in self._stretches.values():
            # so that a killed process loses at most half of each thread's last stretch
            if self._ended or stretch.end - stretch.start >= stretch.written:
                self._cut(stretch)
        rows, self._rows = self._rows, []
        records = [
            SAMPLE.pack(
                stack,
                track_of(track),
                0 if node is None else place_of(node),
                samples,
                start,
                end,
            )
            for stack, track, node, samples, start, end in rows
        ]
        functions = [dict(zip(FUNCTION, name, strict=True)) for name in self._new_functions]
        names = json.dumps(functions, separators=(",", ":")).encode() if functions else b""
        self._blocks += [
            ("code", names), ("stck", b"".join(self._new_stacks)), ("smpl", b"".join(records)),
        ]  # fmt: skip
        self._new_functions, self._new_stacks = [], []
        self._written += SAMPLE.size * len(records)
        if self._written >= _HALVES:
            self._written = 0
            self.period *= 2

    def _give_up(self, error: Exception) -> None:
        self._faulted = True
        self.taken = 0
        self.end()
        self._stretches, self._rows, self._blocks = {}, [], []
        reason = (
            error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        )
        self._on_fault(f"no more stacks are sampled: {reason}; everything else goes on")


def _line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction.

    An instruction without a line, such as the jump of a loop, gets the line before.
    """
    latest = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > instruction:
            break
        latest = line or latest
    return latest


def _is_own(ident: int) -> bool:
    thread = threading._active.get(ident)  # type: ignore[attr-defined]
    return thread is not None and thread.name.startswith(OWN_THREADS)
