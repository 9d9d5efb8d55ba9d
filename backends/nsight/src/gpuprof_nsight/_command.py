"""Rendering `nsys profile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuprof import Command, Tool, Worker

from gpuprof_nsight._options import SYNONYMS, NsightOptions, Value

GATE_DOMAIN = "gpuprof"
GATE_RANGE = "gate"
_SAMPLING = ("sample", "cpuctxsw")
_NEED_SAMPLING = (*_SAMPLING, "cudabacktrace", "backtrace")  # without sampling nsys ignores the last two, with a warning


def render(worker: Worker, command: Command, tool: Tool, options: NsightOptions) -> list[str]:
    """The argument vector that runs `command` under nsys."""
    return [tool.path, "profile", *words(*effective(worker, options)), *command.interpreter, *command.arguments]


def words(options: Mapping[str, Value], flags: Sequence[str]) -> list[str]:
    """``-k v`` for one letter, ``--key=v`` for more, ``--flag`` for flags.

    >>> words({"t": "cuda,nvtx", "wait": "primary", "gpuctxsw": True}, ["python-backtrace"])
    ['-t', 'cuda,nvtx', '--wait=primary', '--gpuctxsw=true', '--python-backtrace']
    """
    rendered: list[str] = []
    for key, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        rendered += [f"-{key}", text] if len(key) == 1 else [f"--{key}={text}"]
    return rendered + [f"-{flag}" if len(flag) == 1 else f"--{flag}" for flag in flags]


def effective(worker: Worker, options: NsightOptions) -> tuple[dict[str, Value], list[str]]:
    """The user's options and flags, with what gpuprof must have. The user's own value wins wherever one is given."""
    given = {SYNONYMS.get(key, key) for key in options.options} | {SYNONYMS.get(flag, flag) for flag in options.flags}
    merged = dict(options.options)
    if not worker.has_gpu and not options.allow_cpu_sampling:
        merged = {key: value for key, value in merged.items() if not _needs_sampling(key)}
        # Both, also where they were not asked for: nsys's own defaults hang a worker without a GPU as well.
        merged.update((name, "none") for name in _SAMPLING)
    if gated(worker, options):
        trace = next((key for key in merged if SYNONYMS.get(key, key) == "trace"), "t")
        traced = str(merged.get(trace, "nvtx"))
        merged[trace] = traced if "nvtx" in traced.split(",") else f"{traced},nvtx"
        merged["capture-range"] = "nvtx"
        merged["nvtx-capture"] = f"{GATE_RANGE}@{GATE_DOMAIN}"
        if "capture-range-end" not in given:
            merged["capture-range-end"] = f"repeat:{len(worker.windows)}"
    wanted = {"wait": "primary", "kill": "none", "force-overwrite": "true"}
    merged.update({name: value for name, value in wanted.items() if name not in given})
    # nsys expands % in the name, so one that belongs to the path is doubled.
    merged["o"] = f"{worker.directory}/{worker.file_stem}".replace("%", "%%")
    return merged, list(options.flags)


def gated(worker: Worker, options: NsightOptions) -> bool:
    """Whether windows are opened and closed by our NVTX range; otherwise nsys records whenever the user's options say."""
    return worker.windows[0].start is not None and options.value("capture-range") is None


def notes(worker: Worker, options: NsightOptions) -> list[str]:
    """Where the command differs from what was asked for, and what it will not do."""
    found = []
    rendered, _ = effective(worker, options)
    dropped = [f"{key}={value}" for key, value in options.options.items() if rendered.get(key) != value and _needs_sampling(key)]
    if dropped:
        found.append(
            f"sample=none and cpuctxsw=none instead of {', '.join(dropped)}: sampling can hang a worker that has no GPU "
            "(nsight.allow_cpu_sampling: true keeps them)"
        )
    if worker.windows[0].start is not None and not gated(worker, options):
        found.append(f"capture-range={options.value('capture-range')} is yours: gpuprof does not decide which steps are recorded")
    end = options.value("capture-range-end")
    if gated(worker, options) and end is not None and len(worker.windows) > 1 and not str(end).startswith("repeat"):
        found.append(f"capture-range-end={end} records only the first of {len(worker.windows)} windows")
    return found


def _needs_sampling(key: str) -> bool:
    return SYNONYMS.get(key, key) in _NEED_SAMPLING
