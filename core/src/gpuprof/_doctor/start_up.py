"""Measures how long a worker takes to start, with the shim and the planned command line."""

from __future__ import annotations

import glob
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

from gpuprof._artifacts import records
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim import PROGRAM
from gpuprof._shim.row import VARIABLE, encode
from gpuprof._shim.scratch import end_tool, share_temporary
from gpuprof.backend.types import Check, Tool

_RAY_LIMIT = 60.0
"""Ray's own default of worker_register_timeout_seconds."""
_RAY_VARIABLE = "RAY_worker_register_timeout_seconds"
_MAX_SHARE = 0.5
"""Maximum share of Ray's limit for the start of a single worker. In a job, many workers start at
once and each takes longer."""
_SCRIPT = """
import importlib.util, time
if importlib.util.find_spec("ray"):
    import ray
print("started", time.time(), flush=True)
"""
_DEFAULT_LIMIT = 120.0
"""Timeout of the test script in seconds if there is no limit of Ray's."""


def registration_limit() -> float | None:
    """Seconds after which Ray gives up on a worker; ``None`` without Ray."""
    if importlib.util.find_spec("ray") is None:
        return None
    return float(os.environ.get(_RAY_VARIABLE, _RAY_LIMIT))


def check(planner: Planner, plan: PlannedWorker, tool: Tool | None, limit: float | None) -> Check:
    """Time the start of Python under the profiler, with Ray imported if installed."""
    row = planner.row(plan, [sys.executable], tool)
    timeout = limit or _DEFAULT_LIMIT
    remedy = f"use a lighter preset, or raise {_RAY_VARIABLE} for `ray start` on each node"
    with tempfile.TemporaryDirectory(prefix="gpuprof-start-") as scratch:
        share_temporary(scratch, row["launch"]["shared_temporary"])
        script = os.path.join(scratch, "script.py")  # some profilers run only scripts
        with open(script, "w") as file:
            file.write(_SCRIPT)
        program = [sys.executable, "-S", "-E", PROGRAM, script]
        environment = {**os.environ, VARIABLE: encode(row), "TMPDIR": scratch}
        beginning = time.time()
        try:
            output = _run(program, environment, timeout)
        except subprocess.TimeoutExpired:
            return Check(
                "start-up",
                False,
                f"a test script under the profiler timed out after {timeout:.0f} s",
                remedy,
            )
        finally:
            for directory in (scratch, *glob.glob(f"{glob.escape(scratch)}/*/")):
                end_tool(directory.rstrip("/"))
    words = output.split()
    if "started" not in words:
        return Check(
            "start-up",
            False,
            f"a test script under the profiler failed: {output.strip()[-300:]}",
            "run the command that `gpuprof plan --shell` prints",
        )
    seconds = float(words[words.index("started") + 1]) - beginning
    for start in records.read_node(os.path.join(planner.output_dir, planner.run)).starts:
        if start.tool and start.tool["state"] == "unwrapped":
            return Check(
                "start-up",
                False,
                f"the worker ran without the profiler: {start.tool['reason']}",
                "fix the cause, then run `gpuprof doctor` again",
            )
    if limit is None:
        return Check("start-up", True, f"{seconds:.1f} s")
    ok = seconds <= _MAX_SHARE * limit
    return Check(
        "start-up",
        ok,
        f"{seconds:.1f} s of the {limit:.0f} s that Ray allows",
        "" if ok else remedy,
    )


def _run(program: list[str], environment: dict[str, str], timeout: float) -> str:
    """The output of a program. Kills it and its children after `timeout` seconds."""
    with subprocess.Popen(
        program,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
