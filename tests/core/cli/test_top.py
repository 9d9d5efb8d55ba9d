"""`gpuprof top`: what it shows of a running job."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof._artifacts.alive import this_process
from gpuprof._cli import main
from support.launched import environment
from support.run_files import run_file
from support.simulated_job import Job


def top(*words: Any) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["top", *map(str, words)])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with a slow rank, whose driver is this process."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    Job("slow rank", seed=3, steps=60).write(directory)
    (directory / "manifest.json").unlink(missing_ok=True)
    (directory / "run.json").write_text(json.dumps(run_file("run", driver=this_process())))
    return directory


@pytest.mark.parametrize("width", [80, 200])
def test_all_parts_fit_the_terminal(
    width: int, running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In narrow ones and in wide ones."""
    monkeypatch.setenv("COLUMNS", str(width))
    lines = top(running, "--once").output.splitlines()
    heads = ["run: running", "step 59 took", "bounds a step:", "group ", "Critical path", "disk:"]
    assert [] == [head for head in heads if not any(line.startswith(head) for line in lines)]
    assert [] == [line for line in lines if len(line) > width]


def test_the_slow_rank_is_shown(running: Path) -> None:
    """Beside how much longer it works than its group."""
    groups = json.loads(top(running, "--once", "--json").output)["groups"]
    slow = {group["group"]: group["slowest"] for group in groups}["RolloutGroup"]
    assert "RolloutGroup-1" == slow["worker"]
    assert slow["seconds"] > slow["others"]


def test_it_ends_with_the_run(tmp_path: Path) -> None:
    """It then has printed the last picture."""
    directory = Job(None, seed=1, steps=12).write(tmp_path / "run")
    driver = {**this_process(), "start": "0"}
    (directory / "run.json").write_text(json.dumps(run_file("run", driver=driver)))
    assert 1 == top(directory).output.count("run: has ended")


def test_a_low_window_says_what_it_lacks(running: Path) -> None:
    """Its last line counts the lines that do not fit."""
    driver, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 12, 80, 0, 0))
    command = [sys.executable, "-m", "gpuprof", "top", str(running)]
    with subprocess.Popen(command, stdout=terminal, env=environment(LINES="")) as process:
        os.close(terminal)
        shown = b""
        while b"\x1b[J" not in shown:
            shown += os.read(driver, 4096)
        process.kill()
    os.close(driver)
    lines = shown.decode().split("\x1b[J")[0].splitlines()
    assert (11, True) == (len(lines), "more lines: a larger window" in lines[-1])


def test_a_run_without_a_record_says_so(tmp_path: Path) -> None:
    """It has only begun."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps(run_file("run", driver=this_process())))
    assert "nothing has been recorded so far" in top(directory, "--once").output


def test_another_directory_is_refused(tmp_path: Path) -> None:
    """With what lists the runs."""
    done = top(tmp_path)
    assert (2, True) == (done.exit_code, "gpuprof runs lists the runs" in done.output)
