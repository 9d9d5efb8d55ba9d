"""How long the main thread sleeps by `time.sleep`, which the kernel cannot tell from a wait.

A loop that sleeps until something has happened waits for somebody else, so it does not count: any
``while`` loop around the call, and a ``for`` loop that may be left before its end.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType

_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS")
_ASLEEP = "nanosleep"
"""In the name of the kernel's function in which a thread sleeps for a given time."""
_NEAR = 12
"""Instructions before a call in which the name of the called function is."""


class Sleeps:
    """Notes how long the main thread has slept, from looks at it now and then.

    Nothing of the job's is replaced: somebody may pickle `time.sleep`, by its name.

    Attributes:
        nanoseconds: in all.
    """

    def __init__(self) -> None:
        self.nanoseconds = 0
        self._known: dict[tuple[CodeType, int], bool] = {}
        self._main = threading.main_thread().ident or 0

    def look(self, nanoseconds: int) -> None:
        """Note what the main thread does, for the time since the last look."""
        try:
            # Linux gives a process the number of its first thread
            with open(f"/proc/self/task/{os.getpid()}/wchan", encoding="ascii") as file:
                if _ASLEEP not in file.read():
                    return
        except (OSError, ValueError):  # not every kernel tells
            return
        frame = sys._current_frames().get(self._main)
        if frame is None:
            return
        call = frame.f_code, frame.f_lasti
        if call not in self._known:
            self._known[call] = is_own_sleep(*call)
        self.nanoseconds += nanoseconds * self._known[call]


def is_own_sleep(code: CodeType, offset: int) -> bool:
    r"""Whether a call is one of `time.sleep`, and in no loop that may end with any of its rounds.

    Args:
        offset: that of the call's instruction.

    >>> import dis
    >>> def calls(source):
    ...     code = compile(source, "", "exec")
    ...     offsets = [each.offset for each in dis.get_instructions(code) if "CALL" in each.opname]
    ...     return any(is_own_sleep(code, offset) for offset in offsets)
    >>> calls("for _ in range(3):\n  work(); time.sleep(1)")
    True
    >>> calls("while not ready():\n  sleep(1)")
    False
    """
    import dis  # slow to import, and few jobs sleep

    # a long loop has prefixes of its jumps' distances
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    before = [each for each in instructions if each.offset <= offset][-_NEAR:]
    if not any(each.argval == "sleep" for each in before):
        return False
    backwards = [
        (int(each.argval), each.offset)
        for each in instructions
        if "JUMP" in each.opname and isinstance(each.argval, int) and each.argval <= each.offset
    ]
    # several jumps may lead back to one beginning, as those of `continue`
    loops = {begin: max(end for at, end in backwards if at == begin) for begin, _ in backwards}
    for begin, end in loops.items():
        if begin <= offset <= end:
            inside = [each for each in instructions if begin <= each.offset <= end]
            if not inside or inside[0].opname != "FOR_ITER":  # a ``while`` loop
                return False
            for each in inside[1:]:
                goes_on = isinstance(each.argval, int) and each.argval <= end
                if each.opname in _LEAVES or ("JUMP" in each.opname and not goes_on):
                    return False
    return True
