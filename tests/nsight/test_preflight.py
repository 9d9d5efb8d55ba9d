"""What nsys itself says of options, before anything starts."""

from __future__ import annotations

import shutil

import pytest
from gpuprof import Tool, Window, Worker
from gpuprof_nsight._options import NsightOptions
from gpuprof_nsight._preflight import refusal

WITHOUT_GPU = Worker("run", "EnvGroup", 0, "node", "1", "/out", (Window(1, 3, 4),))


@pytest.mark.nsys
@pytest.mark.parametrize("key", ["sample", "s", "cpuctxsw", "backtrace", "cudabacktrace"])
def test_options_that_a_worker_without_a_gpu_does_not_get_are_read(key: str) -> None:
    """A value that nsys refuses is refused, by its key; those that it takes are not run: sampling could hang."""
    tool = Tool(str(shutil.which("nsys")), None)
    given = {"t": "nvtx", "sample": "process-tree", "cpuctxsw": "process-tree", "cudabacktrace": "all", "backtrace": "fp"}
    if key == "s":
        del given["sample"]
    refused = refusal(WITHOUT_GPU, tool, NsightOptions(options={**given, key: "nonsense"}))
    assert refused is not None
    assert (f"options.{key}", "nonsense") == (refused[0], refused[1].partition("argument: ")[2].partition(".")[0].split()[0])


@pytest.mark.nsys
def test_options_that_nsys_takes_are_not_refused() -> None:
    """With and without those that are left out."""
    tool = Tool(str(shutil.which("nsys")), None)
    assert [None, None] == [refusal(WITHOUT_GPU, tool, options) for options in (NsightOptions(), NsightOptions(preset="light"))]
