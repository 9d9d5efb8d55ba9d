"""Notes when a loop around the job's collectives begins its next iteration.

From one collective to the next, the innermost function call that goes on has either gone forward or
jumped back, and only a loop jumps back. So no loop has to be watched: each collective looks at the
calls that are new since the last one, which takes a few microseconds. `gpuprof._analysis.rhythm`
chooses the loop of the steps.
"""

from __future__ import annotations

import dis
import functools
import linecache
import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import NamedTuple

from gpuprof._session.instruments.instrument import Instrument
from gpuprof._session.ledger import LOOP
from gpuprof._session.stacks import LIBRARY

_ENOUGH = 100
"""Iterations after which loops inside a loop are no longer noted."""
_MOST = 50_000
"""The most iterations of a loop to note."""


class Loop(NamedTuple):
    """A loop in the bytecode of a function: the offsets of its first and last instruction."""

    start: int
    end: int


@functools.lru_cache(maxsize=1024)
def loops_of(code: CodeType) -> tuple[Loop, ...]:
    r"""The loops of a function, the inner ones first.

    >>> code = compile("while a:\n    for b in c:\n        b()\n    d()", "", "exec")
    >>> inner, outer = loops_of(code)
    >>> outer.start < inner.start < inner.end < outer.end
    True
    """
    ends: dict[int, int] = {}
    for instruction in dis.get_instructions(code):
        target = instruction.argval
        if (
            instruction.opcode in _JUMPS
            and isinstance(target, int)
            and target < instruction.offset
            and instruction.opname != "JUMP_BACKWARD_NO_INTERRUPT"  # of an `await`
        ):
            ends[target] = max(instruction.offset, ends.get(target, 0))
    return tuple(sorted((Loop(*each) for each in ends.items()), key=lambda x: x.end - x.start))


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


class _Mark:
    """Marks a frame as seen, as its `f_trace`, which only a debugger would call.

    Attributes:
        at: the offset of the instruction that the frame was at.
    """

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, *_: object) -> _Mark:
        return self


class Loops:
    """Notes the iterations of the loops around calls of the main thread.

    Args:
        instrument: notes them, until its library marks steps.
    """

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._numbers: dict[tuple[CodeType, Loop], int] = {}
        self._levels: list[tuple[int, int]] = []
        self._counts: list[int] = []
        self._of_epochs: list[bool] = []
        self._settled: list[tuple[CodeType, Loop]] = []
        self._main = threading.main_thread().ident

    def note(self, above: int) -> None:
        """Note the iteration that a call begins, if it begins one.

        Args:
            above: how many frames the caller's is above this one.
        """
        if self._instrument.has_steps or threading.get_ident() != self._main or sys.gettrace():
            return
        frame: FrameType | None = sys._getframe(above)
        while frame is not None:
            mark = frame.f_trace
            if isinstance(mark, _Mark):
                break
            if mark is not None:  # a debugger's, which has gone
                return
            frame.f_trace = _Mark(frame.f_lasti)
            frame = frame.f_back
        else:
            return
        # this call goes on since the last collective, and those inside it are new
        now, then, mark.at = frame.f_lasti, mark.at, frame.f_lasti
        if now <= then and not LIBRARY.search(frame.f_code.co_filename):
            self._add(frame, now, then)

    def _add(self, frame: FrameType, first: int, last: int) -> None:
        code = frame.f_code
        around = [loop for loop in loops_of(code) if loop.start <= first and last <= loop.end]
        if not around:
            return
        loop = code, around[0]
        number = self._numbers.setdefault(loop, len(self._numbers))
        if number == len(self._levels):
            self._levels.append((_depth(frame), len(around)))
            self._counts.append(0)
            self._describe(number, code, around)
        self._counts[number] += 1
        if self._counts[number] <= _MOST and not self._is_inside(frame, loop[1]):
            self._instrument.note_iteration(number)
            if self._counts[number] == _ENOUGH and not self._of_epochs[number]:
                self._settled.append(loop)

    def _is_inside(self, frame: FrameType, loop: Loop) -> bool:
        """Whether a loop of a call is inside another one of many iterations."""
        first, last = loop
        caller: FrameType | None = frame
        while caller is not None and self._settled:
            for code, around in self._settled:
                is_around = around.start <= first and last <= around.end
                if code is caller.f_code and is_around and (first, last) != around:
                    return True
            caller = caller.f_back
            if caller is not None:
                first = last = caller.f_lasti
        return False

    def _describe(self, number: int, code: CodeType, around: Sequence[Loop]) -> None:
        line, *outer = (_line_of(code, loop) for loop in around)
        self._of_epochs.append("epoch" in linecache.getline(code.co_filename, line))
        self._instrument.note_event(
            LOOP,
            number=number,
            file=code.co_filename,
            line=line,
            level=list(self._levels[number]),
            inside=outer[0] if outer else None,
            epochs=self._of_epochs[number],
        )


def _depth(frame: FrameType) -> int:
    depth = 0
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _line_of(code: CodeType, loop: Loop) -> int:
    """The line of a loop's `for` or `while`."""
    inside = (
        line
        for start, end, line in code.co_lines()
        if line and start <= loop.end and end > loop.start
    )
    return min(inside, default=code.co_firstlineno)
