"""A program that records an empty window through the session gate, for the preflight."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import attrs
from gpuprof.backend import Window, Worker

from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._gates.session import SessionGate


def words(worker: Worker, options: NsightOptions, problem: str) -> list[str]:
    """The program's command line.

    nsys's error goes to the file `problem`, as the user's options can hide the program's output.
    """
    arguments = json.dumps([attrs.asdict(attrs.evolve(worker, windows=())), attrs.asdict(options)])
    return [sys.executable, "-c", f"from {__name__} import main; main()", problem, arguments]


def main() -> None:
    """Open and close the gate."""
    worker, options = json.loads(sys.argv[2])
    gate, worker = SessionGate(NsightOptions(**options)), Worker(**worker)
    window = Window(1, 0, 1)
    try:
        gate.open(worker, window)
        gate.close(worker, window)
    except Exception as error:
        Path(sys.argv[1]).write_text(str(error))
