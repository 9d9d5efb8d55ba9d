"""Notes for the plan: where the capture will differ from the settings."""

from __future__ import annotations

import re

from gpuprof.backend import Tool, Worker

from gpuprof_rocprof_sys import _outputs, _tool
from gpuprof_rocprof_sys._arguments import find
from gpuprof_rocprof_sys._environment import gated
from gpuprof_rocprof_sys._options import PROGRAMS, RocprofSysOptions, listed


def notes(worker: Worker, tool: Tool, options: RocprofSysOptions) -> list[str]:
    """Notes on the gate, moved files, doubtful options and the release."""
    sentences = []
    if not worker.lifetime and not gated(worker, tool):
        which = (
            f"release {tool.version} has no gate for the GPU"
            if tool.version
            else "the release is unknown, so assuming no gate for the GPU"
        )
        sentences.append(
            f"whole-process capture: {which} (1.6 has one); windows are the ranges 'gpuprof' in "
            "one trace"
        )
    if options.interpreter_after_dashes:
        sentences.append(
            "interpreter_after_dashes: AMD's own launcher exits with 0 without running the worker"
        )
    yours = _outputs.relocated(options.env)
    if yours:
        sentences.append(
            f"your {', '.join(yours)} moves the files: gpuprof does not look for them there"
        )
    domains = options.env.get("ROCPROFSYS_ROCM_DOMAINS")
    if domains is not None and "marker_api" not in re.split(r"[\s,]+", domains):
        sentences.append(
            "your ROCPROFSYS_ROCM_DOMAINS records no ranges of windows or scopes: add marker_api"
        )
    for key, variables in options.replaced.items():
        lacks = "option" if find(key, options.launcher) is None else "value"
        effective = {name: options.env[name] for name in variables}
        sentences.append(
            f"args.{key}: {options.args[key]!r} is read as env {listed(variables)}: "
            f"{PROGRAMS[options.launcher]} has no such {lacks}"
            + (f"; your env wins: {listed(effective)}" if effective != variables else "")
        )
    sentences += [
        f"passed on anyway: {doubt}" for doubt in (options.doubts() if not options.strict else ())
    ]
    if _outputs.is_on(options.env, "USE_SAMPLING"):
        often = options.env.get("ROCPROFSYS_SAMPLING_FREQ", "300")
        cost = (
            f"interrupts every thread {often} times a second, slows the worker down and makes its "
            "trace large"
        )
        sentences.append(
            f"ROCPROFSYS_USE_SAMPLING {cost}; rocprof_sys.preset: standard turns it off"
        )
    release = _tool.release(tool)
    for key in options.args:
        argument = find(key, options.launcher)
        since = tuple(map(int, argument.since.split("."))) if argument and argument.since else ()
        if argument and release is not None and release < since:
            sentences.append(
                f"args.{key}: needs release {argument.since}; {tool.version} is installed"
            )
    if options.launcher == "python" and _tool.splits_words(tool):
        sentences.append(
            f"rocprof-sys-python of release {tool.version} splits arguments at spaces and expands "
            "$; launcher: module avoids this"
        )
    return sentences
