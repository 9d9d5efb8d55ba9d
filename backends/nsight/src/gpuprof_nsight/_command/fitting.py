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
    keys_to_drop = too_new(options, tool)
    return attrs.evolve(
        options,
        options={k: v for k, v in options.options.items() if k not in keys_to_drop},
        preset=None,
    )


def too_new(options: NsightOptions, tool: Tool) -> list[str]:
    """The options named in `optional` that this nsys is too old for.

    Its help text decides; without one, its release.
    """
    names = {known.long_name(key) for key in options.optional}
    return [key for key in options.options if known.long_name(key) in names and _lacks(tool, key)]


def _lacks(tool: Tool, key: str) -> bool:
    if tool.features.get("profile"):
        return key not in tool.features["profile"]
    declaration = known.find(key)
    since = declaration.since if declaration else ""
    return bool(since and tool.version) and _release(str(tool.version)) < _release(since)


def advice(
    worker: Worker, effective_options: dict[str, Value], keys_left_out: list[str], tool: Tool
) -> list[str]:
    """Notes on options that were dropped, slow the worker down, or make large reports.

    Args:
        effective_options: the options as nsys gets them.
        keys_left_out: the options that this nsys is too old for.
    """
    notes = [f"{key} left out: nsys {tool.version} has no such option" for key in keys_left_out]
    by_name = {known.long_name(key): str(value) for key, value in effective_options.items()}
    sampling_options = sampling(effective_options)
    if sampling_options:
        whose = "" if "sample" in by_name else " (nsys's default)"
        slow = "slows" if len(sampling_options) == 1 else "slow"
        remedy = "avoid it with nsight.preset: standard, or with sample=none and cpuctxsw=none"
        notes.append(
            f"{' and '.join(sampling_options)}{whose} {slow} the worker down in every "
            f"window; {remedy}"
        )
    traces = by_name.get("trace", "").split(",")
    large = [name for name in COSTLY_TRACES if name in traces] + [
        name for name in ("cudabacktrace",) if name in by_name
    ]
    if large:
        whole = worker.windows and worker.windows[0].start is None
        span = "the worker's whole life" if whole else "one step"
        notes.append(
            f"{', '.join(large)}: a report of {span} can reach gigabytes; leave them out, as "
            "nsight.preset: light or standard does"
        )
    return notes


def sampling(effective_options: Mapping[str, Value]) -> list[str]:
    """What nsys samples with these options.

    By default nsys samples; with samples it always traces context switches as well.

    >>> sampling({})
    ['sample=process-tree', 'cpuctxsw=process-tree']
    >>> sampling({"s": "none", "cpuctxsw": "none"})
    []
    >>> sampling({"s": "none", "cpuctxsw": "system-wide"})
    ['cpuctxsw=system-wide']
    """
    by_name = {known.long_name(key): value for key, value in effective_options.items()}
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
