"""The options of each launcher: the one table for validation, the docs and the command line.

Sources: ``rocprofsys/__main__.py`` and ``rocprof-sys-sample/impl.cpp`` of releases 0.1.0 to 1.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import attrs

Launcher = Literal["python", "module", "sample", "run"]
Kind = Literal["flag", "boolean", "integer", "number", "text", "list"]
PYTHON: tuple[Launcher, ...] = ("python", "module")
NATIVE: tuple[Launcher, ...] = ("sample", "run")


@attrs.frozen
class Argument:
    """One option of a launcher.

    Args:
        spellings: its names with dashes; each, without dashes, is a key of `args`.
        kind: the type of its value; a ``boolean`` may have none, a ``flag`` never has one.
        help: what it does.
        launchers: the launchers that have it.
        since: the first release that has it; empty for all.
        choices: the valid values; empty if any value is valid.
    """

    spellings: tuple[str, ...]
    kind: Kind
    help: str
    launchers: tuple[Launcher, ...]
    since: str = ""
    choices: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The spellings without dashes."""
        return tuple(spelling.lstrip("-") for spelling in self.spellings)


def _python(spellings: str, kind: Kind, text: str, *choices: str) -> Argument:
    return Argument(tuple(spellings.split()), kind, text, PYTHON, choices=choices)


def _native(spellings: str, kind: Kind, text: str, *choices: str, since: str = "") -> Argument:
    return Argument(tuple(spellings.split()), kind, text, NATIVE, since, choices)


ARGUMENTS = (
    _python("-v --verbosity", "integer", "Verbosity of the tool's messages."),
    _python(
        "-b --builtin",
        "flag",
        "Trace Python functions only between start and stop. Set by gpuprof unless python_frames.",
    ),
    _python("-c --config", "text", "Configuration file of the tool. Ignored before 1.9."),
    _python("-s --setup", "text", "Script to run before the profiled one."),
    _python("-F --full-filepath", "boolean", "Show full file paths in labels."),
    _python("--trace-c", "boolean", "Trace C functions too."),
    _python("-a --annotate-trace", "boolean", "Add debug annotations to the trace."),
    _python(
        "--label",
        "list",
        "Contents of labels, besides the function's name.",
        "args",
        "file",
        "line",
    ),
    _python("-I --function-include", "list", "Record these functions too."),
    _python("-E --function-exclude", "list", "Do not record these functions."),
    _python("-R --function-restrict", "list", "Record only these functions."),
    _python("-MI --module-include", "list", "Record these files too."),
    _python("-ME --module-exclude", "list", "Do not record these files."),
    _python("-MR --module-restrict", "list", "Record only these files."),
    _native("-v --verbose", "integer", "Verbosity of the tool's messages."),
    _native("--debug", "flag", "Print debug messages."),
    _native("--monochrome", "flag", "Print messages without colours."),
    _native("-c --config", "list", "Configuration files of the tool."),
    _native("-T --trace", "boolean", "Write a detailed trace (Perfetto)."),
    _native("-P --profile", "boolean", "Write a call-stack profile."),
    _native("-F --flat-profile", "boolean", "Write a profile without call stacks."),
    _native("-H --host", "boolean", "Sample the CPU's frequency and memory."),
    _native("-D --device", "boolean", "Sample the GPU's temperature and memory."),
    _native("-w --wait", "number", "Seconds to wait before recording."),
    _native("-d --duration", "number", "Seconds to record."),
    _native("--trace-buffer-size", "integer", "Size of the trace buffer, in KB."),
    _native(
        "--trace-fill-policy",
        "text",
        "Action when the trace buffer is full.",
        "discard",
        "ring_buffer",
    ),
    _native("--trace-wait", "number", "Seconds to wait before tracing."),
    _native("--trace-duration", "number", "Seconds to trace."),
    _native("--trace-periods", "list", "Periods to trace, each delay:duration[:repeat[:clock]]."),
    _native("--trace-clock-id", "text", "Clock for trace-wait, -duration and -periods."),
    _native(
        "--profile-format", "list", "Formats to write the profile in.", "text", "json", "console"
    ),
    _native("--process-freq", "number", "Host and device samples per second."),
    _native("--process-wait", "number", "Seconds before the first host or device sample."),
    _native("--process-duration", "number", "Seconds to take host and device samples for."),
    _native("--cpus", "list", "CPUs to sample. Needs host."),
    _native("--gpus", "list", "GPUs to sample. Needs device."),
    _native("-f --freq", "number", "Call-stack samples per second."),
    _native("--sampling-wait", "number", "Seconds before the first call-stack sample."),
    _native("--sampling-duration", "number", "Seconds to take call-stack samples for."),
    _native("-t --tids", "list", "Threads to sample; 0 is the main thread."),
    _native("--cputime", "list", "Sample by CPU time: frequency, delay, threads."),
    _native("--realtime", "list", "Sample by wall-clock time: frequency, delay, threads."),
    _native(
        "-I --include", "list", "Backends of the tool to add, such as rcclp, ompt, mutex-locks."
    ),
    _native("-E --exclude", "list", "Backends of the tool to leave out."),
    _native("-C --cpu-events", "list", "Hardware counters of the CPU to record."),
    _native("-G --gpu-events", "list", "Hardware counters of the GPU to record."),
    _native("-i --inlines", "flag", "Show inlined functions in call stacks."),
    _native("--selected-regions", "list", "Record only inside these roctx ranges.", since="1.6"),
    Argument(
        ("--fork",),
        "flag",
        "Start the worker as a child process of the launcher. Without it, exec the worker.",
        ("run",),
    ),
)

OURS = ("o", "output", "trace-file")
"""The options that gpuprof sets itself, on every launcher."""

DOMAINS = {
    "hip": "hip_runtime_api",
    "hsa": "hsa_api",
    "roctx": "marker_api",
    "kernel": "kernel_dispatch",
    "memcpy": "memory_copy",
}
"""Short names that people give to `T`, and the tool's names."""
_RCCL = {"ROCPROFSYS_USE_RCCLP": "true"}  # becomes a domain in releases that have it
_PROFILE = {"ROCPROFSYS_PROFILE": "true"}  # wall_clock.json and wall_clock.txt
_FORMATS = {
    "json": _PROFILE,
    "text": _PROFILE,
    "txt": _PROFILE,
    "rocpd": {"ROCPROFSYS_USE_ROCPD": "true"},
    "perfetto": {"ROCPROFSYS_TRACE": "true"},
}
EXPECTED = {
    "T": ", ".join((*DOMAINS, "rccl")),
    "trace": ", ".join((*DOMAINS, "rccl")),
    "output-format": ", ".join(_FORMATS),
}
"""Options that other launchers or tools have and that variables replace, and their values."""


def find(key: str, launcher: Launcher) -> Argument | None:
    """The option of a launcher that a key of `args` names."""
    return next((argument for argument in of(launcher) if key in argument.names), None)


def of(launcher: Launcher) -> Iterator[Argument]:
    """The options of a launcher."""
    return (argument for argument in ARGUMENTS if launcher in argument.launchers)


def as_variables(key: str, value: object) -> dict[str, str]:
    """The variables that have the effect of an option that the launcher lacks; empty if unknown.

    >>> as_variables("T", "hip,rccl")
    {'ROCPROFSYS_ROCM_DOMAINS': 'hip_runtime_api,marker_api', 'ROCPROFSYS_USE_RCCLP': 'true'}
    >>> as_variables("output-format", "json")
    {'ROCPROFSYS_PROFILE': 'true'}
    """
    if key not in EXPECTED or not isinstance(value, str):
        return {}
    names = [name.strip() for name in value.split(",")]
    variables: dict[str, str] = {}
    domains = [DOMAINS.get(name, name) for name in names if name != "rccl"]
    if key == "output-format":
        if not set(names) <= _FORMATS.keys():
            return {}
        for name in names:
            variables |= _FORMATS[name]
        return variables
    if not set(domains) <= set(DOMAINS.values()):
        return {}
    if domains:
        # Ranges are markers, and they are what tells the steps apart.
        domains = list(dict.fromkeys([*domains, "marker_api"]))
        variables["ROCPROFSYS_ROCM_DOMAINS"] = ",".join(domains)
    return variables | (_RCCL if "rccl" in names else {})
