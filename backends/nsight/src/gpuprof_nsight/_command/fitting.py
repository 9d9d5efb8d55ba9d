"""Which options the installed nsys supports, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from gpuprof.backend import Tool, Worker

from gpuprof_nsight._command import known
from gpuprof_nsight._command.options import NsightOptions, Value

DEFAULT = "process-tree"
"""nsys's own default of `sample`, and of `cpuctxsw` when nothing is sampled."""
COSTLY_TRACES = ("osrt", "cudnn", "cublas")


def fitting(options: NsightOptions, tool: Tool) -> NsightOptions:
    """Drop the options named in `optional` that this nsys is too old for.

    Keeps all of them when the release of nsys is unknown.
    """
    dropped = too_new(options, tool)
    return attrs.evolve(
        options, options={k: v for k, v in options.options.items() if k not in dropped}, preset=None
    )


def too_new(options: NsightOptions, tool: Tool) -> list[str]:
    """The options named in `optional` that this nsys is too old for.

    Its help text decides; without one, its release.
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
    """Notes on options that were dropped, slow the worker down, or make large reports.

    Args:
        rendered: the options as nsys gets them.
        dropped: the options that this nsys is too old for.
    """
    found = [f"{key} left out: nsys {tool.version} has no such option" for key in dropped]
    by_name = {known.long_name(key): str(value) for key, value in rendered.items()}
    sampled = sampling(rendered)
    if sampled:
        whose = "" if "sample" in by_name else " (nsys's default)"
        slow = "slows" if len(sampled) == 1 else "slow"
        remedy = "avoid it with nsight.preset: standard, or with sample=none and cpuctxsw=none"
        found.append(
            f"{' and '.join(sampled)}{whose} {slow} the worker down in every window; {remedy}"
        )
    traces = by_name.get("trace", "").split(",")
    large = [name for name in COSTLY_TRACES if name in traces] + [
        name for name in ("cudabacktrace",) if name in by_name
    ]
    if large:
        whole = worker.windows and worker.windows[0].start is None
        span = "the worker's whole life" if whole else "one step"
        found.append(
            f"{', '.join(large)}: a report of {span} can reach gigabytes; leave them out, as "
            "nsight.preset: light or standard does"
        )
    return found


def sampling(rendered: Mapping[str, Value]) -> list[str]:
    """What nsys samples with these options.

    By default nsys samples; with samples it always traces context switches as well.

    >>> sampling({})
    ['sample=process-tree', 'cpuctxsw=process-tree']
    >>> sampling({"s": "none", "cpuctxsw": "none"})
    []
    >>> sampling({"s": "none", "cpuctxsw": "system-wide"})
    ['cpuctxsw=system-wide']
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
    """A release as numbers, for comparison.

    >>> _release("2022.4.2.1") < _release("2023.4")
    True
    """
    return tuple(int(part) for part in version.split(".") if part.isdigit())
