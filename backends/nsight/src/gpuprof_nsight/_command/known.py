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


DECLARED = (
    Declared(
        "trace",
        "which APIs are traced",
        "t",
        values="cuda, nvtx, osrt, cublas, cudnn, mpi, ucx, openmp, …, none; separated by commas",
        cost="cuda and nvtx little; osrt some; cublas and cudnn more",
    ),
    Declared(
        "sample",
        "where CPU samples are taken",
        "s",
        values="process-tree, system-wide, none",
        cost="some; hangs workers without a GPU under 2022.4",
        command="start",
    ),
    Declared(
        "backtrace",
        "how sampled stacks are unwound",
        "b",
        values="lbr, fp, dwarf, none",
        cost="dwarf much",
        command="start",
    ),
    Declared(
        "cpuctxsw",
        "whose switches between threads are traced",
        values="process-tree, system-wide, none",
        cost="some; hangs workers without a GPU under 2022.4",
        command="start",
    ),
    Declared(
        "cudabacktrace",
        "stacks of CUDA calls",
        values="all, kernel, memory, sync, other, none; with :<nanoseconds>",
        cost="much with many small kernels",
    ),
    Declared(
        "osrt-threshold",
        "shortest call of the OS runtime that is kept, in nanoseconds",
        kind="integer",
    ),
    Declared(
        "python-backtrace",
        "Python stacks of CUDA calls",
        values="cuda, none, …",
        since="2023.4",
        cost="some for each call",
    ),
    Declared(
        "python-sampling",
        "samples of Python stacks",
        kind="boolean",
        since="2023.4",
        cost="grows with the frequency",
    ),
    Declared("python-sampling-frequency", "samples a second", kind="integer", since="2023.4"),
    Declared(
        "cuda-graph-trace",
        "what is recorded of a CUDA graph",
        values="graph, node",
        cost="node much more than graph",
    ),
    Declared("cuda-memory-usage", "memory use of CUDA", kind="boolean", cost="some"),
    Declared(
        "gpu-metrics-device",
        "GPUs of which metrics are sampled",
        values="all, none, numbers",
        command="start",
    ),
    Declared(
        "gpu-metrics-devices",
        "the same, as newer releases call it",
        values="all, none, numbers",
        since="2024.4",
        command="start",
    ),
    Declared(
        "capture-range",
        "what begins a capture; gpuprof sets it",
        "c",
        values="none, cudaProfilerApi, nvtx, hotkey",
        command="profile",
    ),
    Declared(
        "capture-range-end",
        "what happens when it ends; gpuprof sets it",
        values=(
            "none, stop, stop-shutdown, repeat[:N], repeat-shutdown:N; newer releases: :defer, "
            ":sync, :async behind them"
        ),
        command="profile",
    ),
    Declared(
        "kill",
        "what the end of the session does to the worker",
        values="none, sigkill, sigterm, a number",
        command="profile",
    ),
    Declared("wait", "what nsys waits for before it ends", values="primary, all"),
    Declared("output", "template of the reports' names, as file_name", "o", command="start"),
    Declared(
        "force-overwrite",
        "gpuprof never overwrites a report, whatever this says",
        "f",
        kind="boolean",
        command="start",
    ),
    Declared(
        "env-var", "environment variables of the worker, NAME=VALUE, separated by commas", "e"
    ),
)
KEYS = tuple(
    Key(
        f"{declared.short} {declared.name}".strip(),
        declared.kind,
        "; ".join(
            filter(
                None, (declared.help, declared.values, declared.cost and f"cost: {declared.cost}")
            )
        ),
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
    declared = find(key)
    return declared.name if declared else key


def command_of(key: str, features: Mapping[str, Container[str]]) -> Command:
    """Which command of nsys takes an option under the session gate.

    Args:
        features: the options of each command of the installed nsys; without them, those of 2023.4
            are assumed.
    """
    declared = find(key)
    if declared is not None:
        return declared.command
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
    declared = find(key)
    if (
        declared is not None
        and declared.name == "capture-range-end"
        and not _RANGE_END.fullmatch(str(value))
    ):
        return f"{value!r} is not valid; expected {declared.values}"
    if declared is None or declared.kind == "text":
        return None
    if declared.kind == "boolean":
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
