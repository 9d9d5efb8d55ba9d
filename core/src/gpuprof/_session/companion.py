"""The companion of a run: a process beside the job that looks at it while it runs.

It takes no time from the interpreters of the job, and cannot break them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from gpuprof._log import log
from gpuprof._session import stall
from gpuprof._shim.files import write_json
from gpuprof._shim.safe import UnsafeFile, load_json

_METRICS = ".metrics.json"
"""The file that says that metrics are wanted, and holds them."""


def start(run_directory: str) -> None:
    """Start the companion of a run, which ends with this process. A second one ends at once.

    It is a child of nobody here, since the job may wait for all of its children.
    """
    command = [sys.executable, "-m", "gpuprof._report.companion"]
    command += [run_directory, str(os.getpid())]
    try:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=stall.own_environment(),
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log().warning("the run is not watched for slow ranks and metrics: %s", error)


def want_metrics(run_directory: str) -> None:
    """Have the companion write metrics."""
    write_json(os.path.join(run_directory, _METRICS), {"metrics": {}})


def wants_metrics(run_directory: str) -> bool:
    """Whether somebody wants metrics."""
    return os.path.exists(os.path.join(run_directory, _METRICS))


def write_metrics(run_directory: str, metrics: dict[str, float | str]) -> None:
    """Replace the metrics."""
    write_json(os.path.join(run_directory, _METRICS), {"metrics": metrics})


def metrics(run_directory: str) -> dict[str, float | str]:
    """The latest metrics; empty before there are any."""
    with suppress(OSError, UnsafeFile, LookupError, TypeError, ValueError):
        return dict(load_json(os.path.join(run_directory, _METRICS))["metrics"])
    return {}
