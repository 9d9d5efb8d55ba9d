"""Parses a command line: whether it runs a Python script, and which words are Python's flags."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from gpuprof.backend.types import Command

_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_MODULE_OR_CODE = re.compile("-[A-VYZa-z]*?[cm]")
"""``-m`` or ``-c``, also behind other letters as in ``-um``. Later words belong to the program."""


def parse(words: Sequence[str]) -> Command:
    """Split a Python command line into the interpreter with its flags, and the rest.

    A command line of any other program is split into the program and its arguments.

    >>> parse(["python3.11", "-u", "train.py"])
    Command(interpreter=('python3.11', '-u'), arguments=('train.py',), script=True, python=True)
    >>> parse(["./train", "-u"])
    Command(interpreter=('./train',), arguments=('-u',), script=False, python=False)
    >>> parse(["python", "-Im", "package", "-x"])
    Command(interpreter=('python',), arguments=('-Im', 'package', '-x'), script=False, python=True)
    """
    if not re.fullmatch(r"(python|pypy)[\d.]*t?", os.path.basename(words[0])):
        return Command((words[0],), tuple(words[1:]), script=False, python=False)
    end = 1
    while (
        end < len(words)
        and words[end].startswith("-")
        and words[end] != "-"
        and not _MODULE_OR_CODE.match(words[end])
    ):
        end += 2 if words[end] in _WITH_VALUE else 1
    script = end < len(words) and not words[end].startswith("-")
    return Command(tuple(words[:end]), tuple(words[end:]), script)
