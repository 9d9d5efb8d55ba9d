"""How long a worker takes to start under the profiler, tried with the shim and the very command of
the plan.
"""

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
_SHARE = 0.5
"""Of the limit, that one worker alone may take: at the start of a job many start at once."""
_SCRIPT = """
import importlib.util, time
if importlib.util.find_spec("ray"):
    import ray
print("started", time.time(), flush=True)
"""
_PATIENCE = 120.0
"""Seconds, where Ray sets no limit."""


def registration_limit() -> float | None:
    """Seconds after which Ray gives a worker up; ``None`` where there is no Ray."""
    if importlib.util.find_spec("ray") is None:
        return None
    return float(os.environ.get(_RAY_VARIABLE, _RAY_LIMIT))


def check(
    planner: Planner, planned: PlannedWorker, tool: Tool | None, limit: float | None
) -> Check:
    """Start Python under the profiler, import Ray if it is here, and hold the time against `limit`
    seconds.
    """
    row = planner.row(planned, [sys.executable], tool)
    program = [sys.executable, "-S", "-E", PROGRAM, "-c", _SCRIPT]
    patience = limit or _PATIENCE
    remedy = (
        f"take a lighter preset, or set {_RAY_VARIABLE} higher where each node's `ray start` runs"
    )
    with tempfile.TemporaryDirectory(prefix="gpuprof-start-") as scratch:
        share_temporary(scratch, row["launch"]["shared_temporary"])
        environment = {**os.environ, VARIABLE: encode(row), "TMPDIR": scratch}
        started = time.time()
        try:
            said = _run(program, environment, patience)
        except subprocess.TimeoutExpired:
            return Check("start-up", False, f"it has not ended within {patience:.0f} s", remedy)
        finally:
            for directory in (scratch, *glob.glob(f"{glob.escape(scratch)}/*/")):
                end_tool(directory.rstrip("/"))
    words = said.split()
    if "started" not in words:
        return Check(
            "start-up",
            False,
            f"a script under it does not run: {said.strip()[-300:]}",
            "run `gpuprof plan --shell` by hand",
        )
    seconds = float(words[words.index("started") + 1]) - started
    for start in records.read_node(os.path.join(planner.output_dir, planner.run)).starts:
        if start.tool and start.tool["state"] == "unwrapped":
            return Check(
                "start-up",
                False,
                f"the worker runs without it: {start.tool['reason']}",
                "see the reason",
            )
    if limit is None:
        return Check("start-up", True, f"{seconds:.1f} s")
    ok = seconds <= _SHARE * limit
    return Check(
        "start-up", ok, f"{seconds:.1f} s, where Ray gives {limit:.0f} s", "" if ok else remedy
    )


def _run(program: list[str], environment: dict[str, str], patience: float) -> str:
    """What a program says, killed with all that it has started when it takes longer than `patience`
    seconds.
    """
    process = subprocess.Popen(
        program,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=patience)[0]
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
