"""How long the job's own code sleeps by `time.sleep` in the main thread.

By its processor time alone, such a thread may as well wait for another process. A loop that sleeps
until something has happened does wait, so it does not count: any ``while`` loop around the call,
and a ``for`` loop that may be left before its end. But a loop that also trains, or answers
messages, is no such loop.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from types import CodeType

_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS")
_WORKS = frozenset((
    "step", "backward", "zero_grad", "all_reduce", "all_gather", "barrier", "send", "recv",
))  # fmt: skip
"""Names of functions, one of which a loop calls that trains, plays, or answers messages."""
_ASLEEP = "nanosleep"
"""In the name of the kernel's function in which a thread sleeps for a given time."""
_NEAR = 12
"""Instructions before a call in which the name of the called function is."""


class Sleeps:
    """Notes how long the main thread has slept, from looks at it now and then.

    Nothing of the job's is replaced: somebody may pickle `time.sleep`, by its name.

    Args:
        library: found in the files whose sleeps do not count: a library may wait for a server, and
            try again.

    Attributes:
        nanoseconds: in all.
    """

    def __init__(self, library: re.Pattern[str]) -> None:
        self.nanoseconds = 0
        self._library = library
        self._known: dict[tuple[CodeType, int], bool] = {}
        self._main = threading.main_thread().ident or 0

    def look(self, nanoseconds: int) -> None:
        """Note what the main thread does, for the time since the last look.

        Reads no file unless it may sleep: that gives up the GIL, which others may keep for long.
        """
        frame = sys._current_frames().get(self._main)
        if frame is None or "sleep" not in frame.f_code.co_names:
            return
        call = frame.f_code, frame.f_lasti
        if call not in self._known:
            is_librarys = self._library.search(call[0].co_filename) is not None
            self._known[call] = not is_librarys and is_own_sleep(*call)
        if self._known[call] and self._is_asleep():
            self.nanoseconds += nanoseconds

    def _is_asleep(self) -> bool:
        try:
            # Linux gives a process the number of its first thread
            with open(f"/proc/self/task/{os.getpid()}/wchan", encoding="ascii") as file:
                return _ASLEEP in file.read()
        except (OSError, ValueError):  # not every kernel tells
            return False


def is_own_sleep(code: CodeType, offset: int) -> bool:
    r"""Whether a call is one of `time.sleep`, in no loop that may end with any round.

    Loops that work may.

    Args:
        offset: that of the call's instruction.

    >>> import dis
    >>> def calls(source):
    ...     code = compile(source, "job.py", "exec")
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
            if any(each.argval in _WORKS for each in inside if isinstance(each.argval, str)):
                continue
            if not inside or inside[0].opname != "FOR_ITER":  # a ``while`` loop
                return False
            for each in inside[1:]:
                goes_on = isinstance(each.argval, int) and each.argval <= end
                if each.opname in _LEAVES or ("JUMP" in each.opname and not goes_on):
                    return False
    return True
