"""Runs a Python script and saves its exit code, for tools that lose it.

Such tools run the script in a child process and do not pass its exit code on.

Usage: ``exit_code.py NOTE SCRIPT [ARGUMENT...]``. The tool runs this file in place of the script.
This file runs in the worker's Python before any of the worker's code, so it uses the standard
library only.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import types

SCRIPT = os.path.abspath(__file__)
"""The script to give such a tool."""


_UNKNOWN = b"unknown"
_LONGEST = len(_UNKNOWN)


class Note:
    """The shim's side of the file in which a script's process leaves its exit code.

    The file is made before the tool starts and overwritten in place, which works on a full disk.
    The shim and the script's process keep it open, so the code arrives even if somebody removes the
    run directory.
    """

    def __init__(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # an existing file is not from this start
            os.unlink(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o666)
        os.write(self._file, _UNKNOWN)

    def read(self) -> int | None:
        """The exit code; ``None`` if the process ended without leaving one."""
        with contextlib.suppress(OSError, ValueError):
            return int(os.pread(self._file, _LONGEST, 0))
        return None


def main(note: str, script: str, *arguments: str) -> None:
    """Run a script as the interpreter would, and write its exit code to the file `note`."""
    process = os.getpid()
    code = 1
    handle = None
    with contextlib.suppress(OSError):
        handle = os.open(note, os.O_WRONLY | os.O_CLOEXEC)
        place = os.fstat(handle)
    try:
        code = _run(script, arguments)
    finally:
        if os.getpid() == process and handle is not None:  # not in a process that the script forked
            with contextlib.suppress(OSError):
                # the script may have closed files that are not its own
                if os.path.samestat(place, os.fstat(handle)):
                    os.pwrite(handle, str(code).encode().ljust(_LONGEST), 0)


def _run(script: str, arguments: tuple[str, ...]) -> int:
    path = os.path.abspath(script)
    # pickle and spawned processes look for the script's names in __main__
    program = types.ModuleType("__main__")
    program.__file__ = path
    sys.modules["__main__"] = program
    sys.argv[:] = [script, *arguments]
    # Python would put the script's directory first, and our modules must shadow nobody's
    folder = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [
        os.path.dirname(os.path.realpath(path)),
        *(entry for entry in sys.path if os.path.realpath(entry) != folder),
    ]
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: {error}\n")
        return 2
    try:
        exec(compile(source, path, "exec", dont_inherit=True), program.__dict__)
    except SystemExit as error:
        return _code(error.code)
    except BaseException as error:
        # without our own frame
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _code(value: object) -> int:
    if value is None or isinstance(value, int):
        return int(value or 0) & 0xFF
    sys.stderr.write(f"{value}\n")
    return 1


if __name__ == "__main__":
    main(*sys.argv[1:])
