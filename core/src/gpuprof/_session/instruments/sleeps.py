"""`time.sleep` of the main thread: time of its own, which the kernel cannot tell from a wait.

A loop that sleeps until something has happened waits for somebody else, so it does not count: any
``while`` loop around the call, and a ``for`` loop that may be left before its end.
"""

from __future__ import annotations

import dis
import functools
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType

from gpuprof._session.instruments.instrument import Instrument
from gpuprof._session.stacks import LIBRARY

_LEAVES = ("RETURN_VALUE", "RETURN_CONST")


def _install(instrument: Instrument, library: ModuleType) -> None:
    main = threading.main_thread().ident
    known: dict[tuple[CodeType, int], bool] = {}

    def note(frame: FrameType, nanoseconds: int) -> None:
        call = frame.f_code, frame.f_lasti
        if call not in known:
            known[call] = not (LIBRARY.search(call[0].co_filename) or is_polling(*call))
        if known[call]:
            instrument.note_sleep(nanoseconds)

    def make(original: Callable[[float], None]) -> Callable[[float], None]:
        @functools.wraps(original)
        def sleep(seconds: float, /) -> None:
            if threading.get_ident() != main or not instrument.on:
                return original(seconds)
            begin = time.perf_counter_ns()
            try:
                original(seconds)
            finally:
                took = time.perf_counter_ns() - begin
                instrument.guarded(note, sys._getframe(1), took)

        return sleep

    instrument.replace([library], "sleep", make)


def is_polling(code: CodeType, offset: int) -> bool:
    r"""Whether a call is in a loop that may end with any of its rounds.

    Args:
        offset: that of the call's instruction.

    >>> code = compile("for _ in range(3):\n  work(); sleep(1)", "", "exec")
    >>> calls = [each for each in dis.get_instructions(code) if each.opname.startswith("CALL")]
    >>> is_polling(code, calls[-1].offset)
    False
    >>> code = compile("while not ready():\n  sleep(1)", "", "exec")
    >>> calls = [each for each in dis.get_instructions(code) if each.opname.startswith("CALL")]
    >>> any(is_polling(code, call.offset) for call in calls)
    True
    """
    # a long loop has prefixes of its jumps' distances
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    backwards = [
        (int(each.argval), each.offset)
        for each in instructions
        if "JUMP" in each.opname and isinstance(each.argval, int) and each.argval <= each.offset
    ]
    # several jumps may lead back to one beginning, as those of `continue`
    loops = {
        begin: max(end for first, end in backwards if first == begin) for begin, _ in backwards
    }
    around = [(end - begin, begin, end) for begin, end in loops.items() if begin <= offset <= end]
    if not around:
        return False
    _, begin, end = min(around)
    inside = [each for each in instructions if begin <= each.offset <= end]
    if inside[0].opname != "FOR_ITER":  # a ``while`` loop
        return True
    return any(
        each.opname in _LEAVES
        or ("JUMP" in each.opname and isinstance(each.argval, int) and each.argval > end)
        for each in inside[1:]
    )


INSTALL = {"time": _install}
