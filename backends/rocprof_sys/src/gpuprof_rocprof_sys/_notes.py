"""What the user should know before the start."""

from __future__ import annotations

from gpuprof.backend import Tool, Worker

from gpuprof_rocprof_sys import _outputs, _tool
from gpuprof_rocprof_sys._arguments import find
from gpuprof_rocprof_sys._environment import gated
from gpuprof_rocprof_sys._options import RocprofSysOptions


def notes(worker: Worker, tool: Tool, options: RocprofSysOptions) -> list[str]:
    """Where the result differs from what was asked for."""
    found = []
    if not worker.lifetime and not gated(worker, tool):
        which = (
            f"release {tool.version} has"
            if tool.version
            else "the release is not known, so we count on"
        )
        found.append(
            f"whole-process capture: {which} no gate for the GPU (1.6 has one); windows are the "
            "ranges 'gpuprof' in one trace"
        )
    if options.interpreter_after_dashes:
        found.append(
            "interpreter_after_dashes: AMD's own launcher ends with 0 and without having run the "
            "worker"
        )
    yours = _outputs.elsewhere(options.env)
    if yours:
        found.append(
            f"{', '.join(yours)} is yours: gpuprof does not know where the files are, and expects "
            "none"
        )
    found += [
        f"passed on all the same: {doubt}"
        for doubt in (options.doubts() if not options.strict else ())
    ]
    if _outputs.is_on(options.env, "USE_SAMPLING"):
        often = options.env.get("ROCPROFSYS_SAMPLING_FREQ", "300")
        cost = (
            f"interrupts every thread {often} times a second, which slows the worker down and "
            "makes its trace large"
        )
        found.append(f"ROCPROFSYS_USE_SAMPLING {cost}; rocprof_sys.preset: standard does without")
    release = _tool.release(tool)
    for key in options.args:
        argument = find(key, options.launcher)
        since = tuple(map(int, argument.since.split("."))) if argument and argument.since else ()
        if argument and release is not None and release < since:
            found.append(f"args.{key}: needs release {argument.since}, here is {tool.version}")
    if options.launcher == "python" and _tool.splits_words(tool):
        found.append(
            f"rocprof-sys-python of release {tool.version} splits arguments at spaces and expands "
            "$; launcher: module does not"
        )
    return found
