"""`gpuprof run` as a process, with backends that need no profiler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import journal
from support.waiting import DEADLINE

Install = Callable[..., str]
LOSES_EXIT_CODES = (
    Path(journal.__file__)
    .read_text()
    .replace(
        "[tool.path, *command.interpreter, *command.arguments]",
        '["/bin/sh", "-c", \'"$@"; exit 0\', "sh", *command.interpreter, '
        "*command.keep_exit_code, *command.arguments]",
    )
)


def gpuprof_run(
    directory: Path, *words: str, backend: str = "none", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory that may have installed backends in `site`."""
    command = [sys.executable, "-m", "gpuprof", "run", "--set", f"backend={backend}", *words]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory / "site"), **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


USES_GPUPROF = """
import gpuprof, os
for number in range(3):
    with gpuprof.step(number), gpuprof.timer("train"):
        pass
if not os.fork():
    with gpuprof.timer("in a fork"):
        os._exit(0)
os.wait()
"""


def torchrun(rank: int, size: int) -> dict[str, str]:
    """The variables that torchrun sets."""
    sizes = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    return {"TORCHELASTIC_RUN_ID": "job", "RANK": str(rank), **sizes}


@pytest.mark.parametrize(("which", "printed"), [("all", [0, 1, 2]), ("ends", [0, 2]), ("none", [])])
def test_a_rank_that_becomes_the_command_prints_its_tree(
    tmp_path: Path, which: str, printed: list[int]
) -> None:
    """Once, as print_trees says: no process in front of it could."""
    (tmp_path / "script.py").write_text(USES_GPUPROF)
    words = ["--set", f"print_trees={which}", "--", sys.executable, "script.py"]
    said = [gpuprof_run(tmp_path, *words, **torchrun(rank, 3)).stderr for rank in range(3)]
    counts = [text.count(f"Worker-{rank} profile tree view") for rank, text in enumerate(said)]
    assert [int(rank in printed) for rank in range(3)] == counts


def test_a_rank_with_a_process_in_front_prints_its_tree_once(
    tmp_path: Path, install: Install
) -> None:
    """The process in front does, which outlives a program that is killed."""
    install(LOSES_EXIT_CODES, journal="Journal")
    (tmp_path / "script.py").write_text(USES_GPUPROF)
    done = gpuprof_run(tmp_path, "--", sys.executable, "script.py", backend="journal")
    assert 1 == done.stderr.count("Worker-0 profile tree view"), done.stderr


@pytest.mark.parametrize("end", ["os._exit(5)", "os.abort()", "os.kill(os.getpid(), 9)"])
def test_a_lost_exit_code_is_not_zero_and_the_receipt_tells(
    tmp_path: Path, install: Install, end: str
) -> None:
    """A launcher that looks at exit codes does not take a crash for success."""
    install(LOSES_EXIT_CODES, journal="Journal")
    (tmp_path / "script.py").write_text(f"import os\n{end}")
    done = gpuprof_run(tmp_path, "--", sys.executable, "script.py", backend="journal")
    assert 1 == done.returncode, done.stderr
    assert "fault: Worker-0: the exit code is unknown: the program was killed" in done.stderr
