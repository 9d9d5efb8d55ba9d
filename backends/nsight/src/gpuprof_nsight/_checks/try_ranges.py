"""A program with an open gate and a few ranges, which `gpuprof doctor` looks for in the report."""

from __future__ import annotations

import json
from importlib.metadata import version

import nvtx
from gpuprof.backend import Window, Worker

from gpuprof_nsight._gates.nvtx import NvtxGate
from gpuprof_nsight._names import DOMAIN
from gpuprof_nsight._nvtx.ranges import compiled, make

OURS = "gpuprof doctor"
OWN = "a range of the job's own"


def main() -> None:
    """Open the ranges, and print how; and whether nvtx takes our domain for enabled.

    An older release takes every domain for enabled.
    """
    domain = getattr(nvtx, "Domain", None)
    is_enabled = domain is None or isinstance(nvtx.get_domain(DOMAIN), domain)
    answer = {"nvtx": version("nvtx"), "enabled": is_enabled, "compiled": compiled}
    print(json.dumps(answer), flush=True)  # noqa: T201 - read by `gpuprof doctor`
    worker, window = Worker("doctor", "doctor", 0, "", "0", ""), Window(1, 0, 1)
    gate = NvtxGate()
    gate.open(worker, window)
    with make(worker.group, 0).open(OURS, False), nvtx.annotate(OWN):
        pass
    gate.close(worker, window)
