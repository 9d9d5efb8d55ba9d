"""Which of the options the installed nsys has, and what they will cost: said before the start."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from gpuprof.backend import Tool, Worker

from gpuprof_nsight._command import known
from gpuprof_nsight._command.options import NsightOptions, Value

DEFAULT = "process-tree"
"""What nsys takes for `sample`, and without samples for `cpuctxsw`, unless it is told."""
COSTLY_TRACES = ("osrt", "cudnn", "cublas")


def fitting(options: NsightOptions, tool: Tool) -> NsightOptions:
    """The options without those named in `optional` that this nsys is too old for.

    Where nothing is known of it, all of them.
    """
    dropped = too_new(options, tool)
    return attrs.evolve(
        options, options={k: v for k, v in options.options.items() if k not in dropped}, preset=None
    )


def too_new(options: NsightOptions, tool: Tool) -> list[str]:
    """The options named in `optional` that this nsys is too old for: by its own help, or else by
    its release.
    """
    named = {known.long_name(key) for key in options.optional}
    return [key for key in options.options if known.long_name(key) in named and _lacks(tool, key)]


def _lacks(tool: Tool, key: str) -> bool:
    if tool.features.get("profile"):
        return key not in tool.features["profile"]
    declared = known.find(key)
    since = declared.since if declared else ""
    return bool(since and tool.version) and _release(str(tool.version)) < _release(since)


def advice(worker: Worker, rendered: dict[str, Value], dropped: list[str], tool: Tool) -> list[str]:
    """What experience has taught about such options.

    Args:
        rendered: the options as nsys gets them.
        dropped: those that it is too old for.
    """
    found = [f"{key} left out: nsys {tool.version} has no such option" for key in dropped]
    by_name = {known.long_name(key): str(value) for key, value in rendered.items()}
    sampled = sampling(rendered)
    if sampled:
        whose = "" if "sample" in by_name else ", nsys's own default,"
        slow = "slows" if len(sampled) == 1 else "slow"
        remedy = "nsight.preset: standard, or sample=none and cpuctxsw=none, does without"
        found.append(
            f"{' and '.join(sampled)}{whose} {slow} the worker down in every window; {remedy}"
        )
    traces = by_name.get("trace", "").split(",")
    large = [name for name in COSTLY_TRACES if name in traces] + [
        name for name in ("cudabacktrace",) if name in by_name
    ]
    if large:
        span = "a whole life" if worker.windows and worker.windows[0].start is None else "a step"
        found.append(
            f"{', '.join(large)}: reports of {span} can reach gigabytes; nsight.preset: light or "
            "standard keeps them small"
        )
    return found


def sampling(rendered: Mapping[str, Value]) -> list[str]:
    """What nsys samples with these options.

    Told nothing it samples, and switches between threads go with the samples.

    >>> sampling({}), sampling({"s": "none", "cpuctxsw": "none"}), sampling({"s": "none", "cpuctxsw": "system-wide"})
    (['sample=process-tree', 'cpuctxsw=process-tree'], [], ['cpuctxsw=system-wide'])
    """
    by_name = {known.long_name(key): value for key, value in rendered.items()}
    sample = by_name.get("sample", DEFAULT)
    switches = by_name.get("cpuctxsw", DEFAULT) if sample == "none" else sample
    return [
        f"{key}={value}"
        for key, value in (("sample", sample), ("cpuctxsw", switches))
        if value != "none"
    ]


def _release(version: str) -> tuple[int, ...]:
    """A release's numbers, to compare.

    >>> _release("2022.4.2.1") < _release("2023.4")
    True
    """
    return tuple(int(part) for part in version.split(".") if part.isdigit())
