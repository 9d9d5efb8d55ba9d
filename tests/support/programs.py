"""Programs that run in a process of their own, and the trees that they leave."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.waiting import DEADLINE

HEAD = """
import os, signal, sys, threading
from gpuprof_timing import Timing, annotate
timing = Timing("t")
path = sys.argv[1]

def ready():
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)  # otherwise a signal just before the read waits for its end
    print("ready", flush=True)
    os.read(woken, 1)
"""


def run(program: str, path: Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    command = [sys.executable, "-W", "error", "-c", HEAD + program, str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL
    )
    assert expected == done.returncode, done.stderr
    return done


def terminate(program: str, path: Path) -> tuple[int, str, str]:
    """Run a program until ready and send it SIGTERM; return its status and output."""
    command = [sys.executable, "-c", HEAD + program, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert "ready\n" == process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            out, err = process.stdout.read(), process.stderr.read() if process.stderr else ""
            return process.wait(DEADLINE), out, err
        finally:
            process.kill()


def nodes(path: Path) -> dict[str, dict[str, Any]]:
    """The root's children in a written tree."""
    return {node["key"]: node for node in json.loads(path.read_text())["children"]}
