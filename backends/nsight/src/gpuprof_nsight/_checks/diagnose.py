"""The checks of `gpuprof doctor`: ranges in a report, versions, the importer, sampling, the GPU."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import attrs
from gpuprof.backend import Check, Command, Tool, Window, Worker

from gpuprof_nsight import _names
from gpuprof_nsight._checks import try_ranges
from gpuprof_nsight._command import gate, render
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._nsys import find
from gpuprof_nsight._nsys.trial import ATTEMPTS, output_of, trial_directory
from gpuprof_nsight._nvtx import ranges
from gpuprof_nsight._reports.read import read

_ANOTHER_PAIR = (
    "pip install 'nvtx==0.2.11', which works with every nsys; or install an nsys newer than 2023.4"
)
_ENVIRONMENT = (
    "every report holds its worker's whole environment, secrets included; nsys has no option that "
    "leaves it out"
)
_PROGRAM = f"from {try_ranges.__name__} import main; main()"


def checks(worker: Worker, tool: Tool, options: NsightOptions) -> Iterator[Check]:
    """Run the checks. Every call of nsys has a deadline, and its leftover processes are ended."""
    yield from _ranges_arrive(worker, tool)
    yield _importer(tool)
    yield Check("environment", True, _ENVIRONMENT)
    # A worker without a GPU is not sampled. But a user who chose options has workers with a GPU,
    # perhaps on a machine like this one.
    if options.value("sample") != "none" and (
        worker.has_gpu or options.allow_cpu_sampling or options.chosen
    ):
        yield _sampling(tool)
    with_cuda = (
        gate.choose(attrs.evolve(worker, windows=(Window(1, 0, 1),)), options).gate == "cuda"
    )
    if worker.has_gpu or with_cuda:
        yield _gpu(tool, with_cuda)


def _ranges_arrive(worker: Worker, tool: Tool) -> Iterator[Check]:
    """Record a small program through the NVTX gate and look for its ranges in the report."""
    options = NsightOptions(preset="light", gate="nvtx", executable=tool.path)
    with trial_directory(tool) as directory:
        worker = attrs.evolve(
            worker, directory=directory, incarnation="0", windows=(Window(1, 0, 1),), discrete=False
        )
        program = Command((sys.executable,), ("-c", _PROGRAM))
        command = render.render(worker, program, tool, options)
        report = _names.raw_window(worker, worker.windows[0]) + _names.EXTENSION
        for _ in range(ATTEMPTS):
            output = output_of(command, directory, {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"})
            reports = [
                path
                for path in (report, _names.raw_stem(worker) + _names.EXTENSION)
                if os.path.exists(path)
            ]
            if reports:
                break
        else:
            lines = [line.strip() for line in output.splitlines() if line.strip()]
            yield Check(
                "ranges",
                False,
                f"nsys wrote no report: {lines[-1] if lines else 'it printed nothing'}",
                _ANOTHER_PAIR,
            )
            return
        names = {(event.domain, event.name) for event in read(reports[0], tool.path).ranges()}
    ours = (_names.DOMAIN, try_ranges.OURS) in names
    answer = _answer(output)
    if ours:
        yield _compiled(answer["compiled"])
    else:
        yield Check("ranges", False, "the report has no range of gpuprof's", _ANOTHER_PAIR)
    own = any(name == try_ranges.OWN for _, name in names)
    detail, compatible = _versions(answer, tool, own)
    yield Check("nvtx", ours, detail, "" if compatible and ours else _ANOTHER_PAIR)


def _answer(output: str) -> dict[str, Any]:
    """What the small program has printed."""
    answers = [line for line in output.splitlines() if line.startswith("{")]
    unknown = {"nvtx": "?", "enabled": True, "compiled": ranges.compiled}
    return {**unknown, **json.loads(answers[-1])} if answers else unknown


def _compiled(is_compiled: bool) -> Check:
    """Whether ranges are opened in C or in Python. Never a failure: Python is only slower."""
    detail = "a test report has gpuprof's ranges"
    if is_compiled:
        return Check("ranges", True, f"{detail}, which are compiled")
    if os.environ.get(ranges.VARIABLE) == "1":
        return Check("ranges", True, f"{detail}, opened in Python: {ranges.VARIABLE}=1")
    remedy = (
        "to compile them, reinstall gpuprof-nsight where there are gcc, Python.h and NVTX's header "
        "(pip install nvidia-nvtx-cu12)"
    )
    return Check("ranges", True, f"{detail}, opened in Python, which is slower", remedy)


def _versions(answer: dict[str, Any], tool: Tool, own: bool) -> tuple[str, bool]:
    """The releases of nvtx and nsys, and whether the job's own ranges arrive.

    How gpuprof makes its domain: see `_nvtx.package`.
    """
    pair = f"nvtx {answer['nvtx']} with nsys {tool.version}"
    if answer["enabled"]:
        return f"{pair}: compatible", True
    outcome = "work, too" if own else "are lost"
    cause = "nvtx sees every domain as disabled; gpuprof's ranges work anyway, the job's own"
    return f"{pair}: {cause} {outcome}", own


def _importer(tool: Tool) -> Check:
    """Check that the captures of a killed nsys can be imported."""
    importers = find.importers(tool.path)
    if importers:
        return Check("importer", True, importers[0])
    where = os.path.dirname(os.path.dirname(os.path.realpath(tool.path)))
    detail = f"no {find.IMPORTER} in {where}: the captures of a killed nsys cannot be saved"
    return Check(
        "importer",
        False,
        detail,
        "set executable to the program nsys in a directory target-linux-*, not to a script",
    )


def _sampling(tool: Tool) -> Check:
    """Check that the system allows CPU sampling, in nsys's own words."""
    with trial_directory(tool) as directory:
        output = output_of([tool.path, "status", "--environment"], directory, {})
    lines = [" ".join(line.split()) for line in output.splitlines()]
    words = [
        line
        for line in lines
        if line.startswith("CPU Profiling Environment (") or "Paranoid Level =" in line
    ]
    tree = next((line for line in words if "(process-tree)" in line), "")
    ok = tree.endswith(": OK")
    remedy = (
        "run sysctl kernel.perf_event_paranoid=2, in a container also with --cap-add=SYS_ADMIN; or "
        "set options.sample: none"
    )
    return Check(
        "sampling",
        ok,
        "; ".join(words) or f"nsys says: {' '.join(lines)[:300]}",
        "" if ok else remedy,
    )


def _gpu(tool: Tool, with_cuda: bool) -> Check:
    """Check that a process here sees a GPU: without one, reports have no work of a GPU.

    Args:
        with_cuda: whether the gate itself needs it.
    """
    remedy = "make a GPU visible (CUDA_VISIBLE_DEVICES, or --gpus of the container)"
    if with_cuda:
        remedy += ", or set gate: auto"
    code = (
        "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(0);"
        "print(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)"
    )
    # In a process of its own: an initialised CUDA driver does not survive a fork.
    with trial_directory(tool) as directory:
        words = output_of([sys.executable, "-c", code], directory, {}).split()
    ok = len(words) == 2 and words[0] == "0" and int(words[1]) > 0
    detail = f"{words[1]} visible" if ok else f"no GPU is visible: {' '.join(words[-8:])}"
    return Check("gpu", ok, detail, "" if ok else remedy)
