"""The options of nsys that gpuprof knows: their values, their first release, and their cost.

Other options are passed through.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Literal

import attrs
from gpuprof.backend import Key

Kind = Literal["text", "boolean", "integer"]
Command = Literal["launch", "start", "profile"]


@attrs.frozen
class Declared:
    """An option of nsys.

    Args:
        name: its long name.
        help: what it does.
        short: its one-letter name.
        kind: the type of its value.
        values: the valid values, for people to read; nsys checks them.
        since: the oldest release known to have it; empty if 2022.4 has it.
        cost: what it costs the worker or adds to the report; empty if next to nothing.
        command: the command of nsys that takes it under the session gate; ``profile`` means
            neither ``launch`` nor ``start``.
    """

    name: str
    help: str
    short: str = ""
    kind: Kind = "text"
    values: str = ""
    since: str = ""
    cost: str = ""
    command: Command = "launch"

    @property
    def expected(self) -> str:
        """The valid values, to end an error with."""
        values = self.values or {"boolean": "true, false", "integer": "an integer"}.get(self.kind)
        return f"; valid: {values}" if values else ""


DECLARED = (
    Declared(
        "trace",
        "APIs to trace",
        "t",
        values="cuda, nvtx, osrt, cublas, cudnn, mpi, ucx, openmp, …, none, separated by commas",
        cost="low for cuda and nvtx, medium for osrt, high for cublas and cudnn",
    ),
    Declared(
        "sample",
        "Processes to take CPU samples of",
        "s",
        values="process-tree, system-wide, none",
        cost="some; 2022.4 can hang workers without a GPU",
        command="start",
    ),
    Declared(
        "backtrace",
        "Method to unwind sampled stacks",
        "b",
        values="lbr, fp, dwarf, none",
        cost="high for dwarf",
        command="start",
    ),
    Declared(
        "cpuctxsw",
        "Processes whose context switches to trace",
        values="process-tree, system-wide, none",
        cost="some; 2022.4 can hang workers without a GPU",
        command="start",
    ),
    Declared(
        "cudabacktrace",
        "Record call stacks of CUDA calls",
        values="all, kernel, memory, sync, other, none, with a threshold as :<nanoseconds>",
        cost="high with many small kernels",
    ),
    Declared(
        "osrt-threshold",
        "Shortest OS runtime call to keep, in nanoseconds",
        kind="integer",
    ),
    Declared(
        "python-backtrace",
        "Record Python call stacks of CUDA calls",
        values="cuda, none, …",
        since="2023.4",
        cost="some per call",
    ),
    Declared(
        "python-sampling",
        "Sample Python call stacks",
        kind="boolean",
        since="2023.4",
        cost="grows with the frequency",
    ),
    Declared(
        "python-sampling-frequency",
        "Samples of Python call stacks per second",
        kind="integer",
        since="2023.4",
    ),
    Declared(
        "cuda-graph-trace",
        "Record each CUDA graph as a whole or node by node",
        values="graph, node",
        cost="much higher for node than for graph",
    ),
    Declared("cuda-memory-usage", "Record CUDA memory use", kind="boolean", cost="some"),
    Declared(
        "gpu-metrics-device",
        "GPUs to sample metrics of",
        values="all, none, numbers",
        command="start",
    ),
    Declared(
        "gpu-metrics-devices",
        "GPUs to sample metrics of; the name in newer releases",
        values="all, none, numbers",
        since="2024.4",
        command="start",
    ),
    Declared(
        "capture-range",
        "Trigger that starts a capture; set by gpuprof",
        "c",
        values="none, cudaProfilerApi, nvtx, hotkey",
        command="profile",
    ),
    Declared(
        "capture-range-end",
        "Action when a capture range ends; set by gpuprof",
        values=(
            "none, stop, stop-shutdown, repeat[:N], repeat-shutdown:N; in newer releases with "
            "suffix :defer, :sync or :async"
        ),
        command="profile",
    ),
    Declared(
        "kill",
        "Signal to send to the worker when the session ends",
        values="none, sigkill, sigterm, a number",
        command="profile",
    ),
    Declared("wait", "Processes that nsys waits for before it exits", values="primary, all"),
    Declared("output", "Template of the reports' names, like file_name", "o", command="start"),
    Declared(
        "force-overwrite",
        "Overwrite reports; no effect, as gpuprof never overwrites one",
        "f",
        kind="boolean",
        command="start",
    ),
    Declared(
        "env-var", "Environment variables for the worker: NAME=VALUE, separated by commas", "e"
    ),
)
KEYS = tuple(
    Key(
        f"{declared.short} {declared.name}".strip(),
        declared.kind,
        f"{declared.help}."
        + (f" Values: {declared.values}." if declared.values else "")
        + (f" Cost: {declared.cost}." if declared.cost else ""),
        since=declared.since,
    )
    for declared in DECLARED
)
_BY_NAME = {declared.name: declared for declared in DECLARED} | {
    declared.short: declared for declared in DECLARED if declared.short
}
_OTHERS_OF_START = (
    "cpu-core-events", "event-sample", "event-sampling-frequency", "event-sampling-interval",
    "export", "flush-on-cudaprofilerstop", "ftrace", "ftrace-keep-user-config",
    "gpu-metrics-frequency", "gpu-metrics-set", "gpu-video-device", "gpuctxsw", "nic-metrics",
    "os-events", "samples-per-backtrace", "sampling-period", "stats", "stop-on-exit",
)  # fmt: skip
_OTHERS_OF_PROFILE = (
    "delay", "y", "duration", "d", "duration-frames", "start-frame-index", "start-later", "Y",
)  # fmt: skip
_OTHER_LETTERS = {"d": "duration", "x": "stop-on-exit", "y": "delay", "Y": "start-later"}
"""The long names of letters that are not declared: nsys's errors have the long ones."""


_MODE = r"(:(defer|sync|async))?"
_RANGE_END = re.compile(rf"none|stop|stop-shutdown|repeat(:\d+)?{_MODE}|repeat-shutdown:\d+{_MODE}")


def find(key: str) -> Declared | None:
    """The option of this name, long or short."""
    return _BY_NAME.get(key)


def long_name(key: str) -> str:
    """The long name of an option, given by either of its names.

    >>> long_name("t"), long_name("trace"), long_name("x-new")
    ('trace', 'trace', 'x-new')
    """
    declaration = find(key)
    return declaration.name if declaration else _OTHER_LETTERS.get(key, key)


def command_of(key: str, features: Mapping[str, Container[str]]) -> Command:
    """Which command of nsys takes an option under the session gate.

    Args:
        features: the options of each command of the installed nsys; without them, those of 2023.4
            are assumed.
    """
    declaration = find(key)
    if declaration is not None:
        return declaration.command
    commands: tuple[Command, ...] = ("launch", "start", "profile")
    for command in commands:
        if key in features.get(command, ()):
            return command
    if key in _OTHERS_OF_PROFILE:
        return "profile"
    return "start" if key in _OTHERS_OF_START or key == "x" else "launch"


def problem(key: str, value: object) -> str | None:
    """What is wrong with the type of a value, or ``None``.

    >>> problem("osrt-threshold", "fast")
    "'fast' is not valid; expected an integer"
    """
    declaration = find(key)
    if (
        declaration is not None
        and declaration.name == "capture-range-end"
        and not _RANGE_END.fullmatch(str(value))
    ):
        return f"{value!r} is not valid; expected {declaration.values}"
    if declaration is None or declaration.kind == "text":
        return None
    if declaration.kind == "boolean":
        good = isinstance(value, bool) or str(value).lower() in ("true", "false")
        return None if good else f"{value!r} is not valid; expected true or false"
    good = (isinstance(value, int) and not isinstance(value, bool)) or str(value).isdigit()
    return None if good else f"{value!r} is not valid; expected an integer"


def ranges_recorded(end: str) -> int | None:
    """How many ranges nsys records with this ``capture-range-end``; ``None`` means all.

    >>> ranges_recorded("stop"), ranges_recorded("repeat-shutdown:3:sync")
    (1, 3)
    >>> ranges_recorded("repeat:sync")
    """
    kind, *more = end.split(":")
    if more and more[0].isdigit():
        return int(more[0])
    return None if kind == "repeat" else 1
