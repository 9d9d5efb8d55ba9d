"""Reads the sampled stacks of a process's threads.

`gpuprof._session.stacks` writes the files and describes their rows.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np

from gpuprof._artifacts.ledger import MOST, Ledger, blocks_of, entries
from gpuprof._session.stacks import FUNCTION, SUFFIX
from gpuprof._shim.safe import UnsafeFile, open_regular
from gpuprof.errors import OutputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.void]

STACK = [("caller", "<u4"), ("function", "<u4"), ("line", "<u4")]
SAMPLE = [
    ("stack", "<u4"), ("track", "<u4"), ("place", "<u4"), ("samples", "<u4"),
    ("start", "<i8"), ("end", "<i8"),
]  # fmt: skip


_COMPREHENSIONS = re.compile(r"\.<locals>(\.<locals>|\.<(list|dict|set)comp>|\.<genexpr>)+")


@attrs.frozen
class Function:
    """A Python function.

    Args:
        function: its qualified name, which includes the enclosing classes and functions.
        module: its module's name; empty if it has none.
        file: the path of its source, or a placeholder such as ``<string>``.
    """

    function: str
    module: str
    file: str

    @property
    def full_name(self) -> str:
        """The function's name after its module's; without a module for a function of a script.

        A comprehension has the name of the function that it is in.

        >>> Function("Env.reset.<locals>.<listcomp>.<listcomp>", "__main__", "env.py").full_name
        'Env.reset'
        """
        function = _COMPREHENSIONS.sub("", self.function)
        if self.module in ("", "__main__", "__mp_main__"):
            return function
        return f"{self.module}.{function}"


@attrs.frozen(eq=False)
class Stacks:
    """The sampled stacks of a process's threads.

    Args:
        functions: the functions by number; number 0 is unknown.
        stacks: the stacks by number, an array of `STACK`: the number of the caller's stack, the
            innermost function and its line. Number 0 is the empty stack, and stands for stacks
            beyond the limit.
        samples: the stretches during which all samples of a thread saw the same stack and place, an
            array of `SAMPLE`. Places and tracks are numbered as in the ledger; place 0 is outside
            all scopes. ``samples`` counts the samples; times are nanoseconds as in the ledger.
        problem: a sentence about the end of the file, if it cannot be read; empty otherwise.
    """

    functions: list[Function]
    stacks: Rows
    samples: Rows
    problem: str = ""


def exist(ledger: Ledger) -> bool:
    """Whether a process was sampled."""
    return ledger.path.with_suffix(SUFFIX).exists()


def read(ledger: Ledger) -> Stacks | None:
    """Read the samples of a process; ``None`` if it was not sampled."""
    path = ledger.path.with_suffix(SUFFIX)
    functions = [Function("", "", "")]
    stacks, samples = [np.zeros(1, STACK)], [np.zeros(0, SAMPLE)]
    try:
        with open(open_regular(path), "rb") as file:
            blocks = blocks_of(path, file)[1]
            good = file.tell()
            for kind, content in blocks:
                if kind == "code":
                    names = entries(content, dict.fromkeys(FUNCTION, (str,)))
                    functions += [Function(*(name[key] for key in FUNCTION)) for name in names]
                elif kind == "stck":
                    stacks.append(np.frombuffer(content, STACK))
                elif kind == "smpl":
                    samples.append(np.frombuffer(content, SAMPLE))
                good = file.tell()
            damaged = os.fstat(file.fileno()).st_size - good
    except FileNotFoundError:
        return None
    except (OSError, UnsafeFile) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OutputError(f"{path}: ignored: {reason}") from None
    except ValueError as error:
        raise OutputError(f"{path}: ignored: damaged: {error}") from None
    problem = f"{path}: its last {damaged} bytes cannot be read" if damaged else ""
    read = Stacks(functions, np.concatenate(stacks), np.concatenate(samples), problem)
    _check(path, ledger, read)
    if ledger.line is not None:
        for name in ("start", "end"):
            read.samples[name] += ledger.line.drift(read.samples[name])
    return read


def _check(path: Path, ledger: Ledger, read: Stacks) -> None:
    """Refuse stacks and samples that no process writes, so that no analysis has to expect them.

    Samples at a place or on a track that the ledger lacks get number 0 instead.
    """
    stacks, samples = read.stacks, read.samples
    for what, valid in (
        ("a stack inside a later one", stacks["caller"][1:] < np.arange(1, len(stacks))),
        ("a function that it does not have", stacks["function"] < len(read.functions)),
        ("a stack that it does not have", samples["stack"] < len(stacks)),
        ("a stretch that ends before it begins", samples["start"] <= samples["end"]),
        ("a time that no clock shows", abs(samples["start"]) < MOST),
        ("a time that no clock shows", abs(samples["end"]) < MOST),
    ):
        if not valid.all():
            raise OutputError(f"{path}: ignored: damaged: {what}")
    # a killed process may have written fewer places and tracks to its ledger
    samples["place"][samples["place"] >= len(ledger.places)] = 0
    samples["track"][samples["track"] >= len(ledger.tracks)] = 0
