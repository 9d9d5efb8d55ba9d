"""Programs that need torch, each a fork of one process: importing it takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PARENT = """
import json
import os
import sys
import traceback

import torch

for line in sys.stdin:
    program, *paths = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, path in enumerate(paths, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = 0
        try:
            exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            code = int(bool(end.code))
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Run = Callable[[str], str]
"""Runs a program, whose standard output it returns; one that fails fails the test."""


@contextmanager
def torch_process(directory: Path) -> Iterator[Run]:
    """A process that has imported torch and runs programs.

    Args:
        directory: for what the programs print.
    """
    paths = [directory / name for name in ("stdout", "stderr")]
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def run(program: str) -> str:
            print(json.dumps([program, *map(str, paths)]), file=requests, flush=True)
            code = answers.readline()
            stdout, stderr = (path.read_text() for path in paths)
            assert "0\n" == code, stderr
            return stdout

        yield run
