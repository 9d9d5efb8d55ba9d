"""Running nsys in tests, as often as gpuprof itself would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuprof_nsight._nsys import find
from gpuprof_nsight._nsys.trial import output_of, trial_directory


def profile(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run `nsys profile … -o REPORT …`, without agents left from earlier runs.

    A few starts of nsys in a hundred end before the program begins, also on an idle machine: nsys
    opens a semaphore that its launcher may not have created yet, and asks for the address of a
    connection that may not be up yet. gpuprof starts nsys again then, here as for a worker.
    """
    tool = find.find(command[0])
    assert tool is not None
    with trial_directory(tool) as directory:
        output = output_of([*command], directory, environment)
    # nsys can end with 0 and leave no report
    assert Path(command[command.index("-o") + 1] + ".nsys-rep").exists(), output
