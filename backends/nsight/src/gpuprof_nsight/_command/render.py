"""Rendering `nsys profile`, `nsys launch` and `nsys start`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gpuprof.backend import Command, Tool, Worker
from gpuprof.errors import ConfigError

from gpuprof_nsight._command import known
from gpuprof_nsight._command.gate import choose
from gpuprof_nsight._command.options import NsightOptions, Value
from gpuprof_nsight._names import GATE_DOMAIN, GATE_RANGE, as_output, raw_stem, session_name

UNKNOWN = Tool("nsys")
"""An nsys whose release and options are unknown."""
_SAMPLING = ("sample", "cpuctxsw")
# Without sampling nsys ignores the last two with a warning.
_NEED_SAMPLING = (*_SAMPLING, "cudabacktrace", "backtrace")


def render(worker: Worker, command: Command, tool: Tool, options: NsightOptions) -> list[str]:
    """The command line that runs `command` under nsys.

    Raises:
        ConfigError: nsys would lose reports because of a double quote in their path.
    """
    for key, value in (("output_dir", worker.directory), ("group", worker.group)):
        if '"' in value:  # seen with 2022.4: it loses the first of several reports
            message = (
                f"{key}: {value!r} is not valid with nsight; remove the double quote: with one in "
                "the path, nsys loses reports"
            )
            raise ConfigError([message])
    run = [*command.interpreter, *command.arguments]
    if choose(worker, options).gate == "session":
        return [
            tool.path,
            "launch",
            f"--session-new={session_name(worker)}",
            *launch_options(worker, options, tool),
            *run,
        ]
    return [tool.path, "profile", *words(*effective(worker, options, tool)), *run]


def launch_options(worker: Worker, options: NsightOptions, tool: Tool) -> list[str]:
    """The options of ``nsys launch``; `start_options` has the others."""
    return _options_of("launch", worker, options, tool)


def start_options(worker: Worker, options: NsightOptions, tool: Tool) -> list[str]:
    """The options of ``nsys start`` for each window, without the session and the file."""
    return _options_of("start", worker, options, tool)


def _options_of(
    command: known.Command, worker: Worker, options: NsightOptions, tool: Tool
) -> list[str]:
    options_of_nsys, flags = effective(worker, options)
    of = partial(known.command_of, features=tool.features)
    mine = {
        key: value
        for key, value in options_of_nsys.items()
        if of(key) == command and known.long_name(key) != "output"
    }
    return words(mine, [flag for flag in flags if of(flag) == command])


def words(options: Mapping[str, Value], flags: Sequence[str]) -> list[str]:
    """Render options as ``-k v`` or ``--key=v``, and flags as ``--flag``.

    Flags come first: nsys names one that lacks its value. Last, it would take the program for it.

    >>> words({"t": "cuda,nvtx", "wait": "primary", "gpuctxsw": True}, ["some-flag"])
    ['--some-flag', '-t', 'cuda,nvtx', '--wait=primary', '--gpuctxsw=true']
    """
    result = [f"-{flag}" if len(flag) == 1 else f"--{flag}" for flag in flags]
    for key, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        result += [f"-{key}", text] if len(key) == 1 else [f"--{key}={text}"]
    return result


def effective(
    worker: Worker, options: NsightOptions, tool: Tool = UNKNOWN
) -> tuple[dict[str, Value], list[str]]:
    """The user's options and flags, with those that gpuprof needs.

    The user's own values win.
    """
    own_names = {known.long_name(key) for key in (*options.options, *options.flags)}
    result = {
        key: value for key, value in options.options.items() if known.long_name(key) != "output"
    }
    gate = choose(worker, options).gate
    if not worker.has_gpu and not options.allow_cpu_sampling:
        result = {key: value for key, value in result.items() if not _needs_sampling(key)}
        # Always both: nsys's defaults, too, hang a worker without a GPU.
        result.update((name, "none") for name in _SAMPLING)
    elif _adds_cpuctxsw(options):
        result["cpuctxsw"] = "none"
    if gate in ("nvtx", "cuda"):
        result = {
            key: value for key, value in result.items() if known.long_name(key) != "capture-range"
        }
        result["capture-range"] = "cudaProfilerApi" if gate == "cuda" else "nvtx"
        if gate == "nvtx":
            result["nvtx-capture"] = f"{GATE_RANGE}@{GATE_DOMAIN}"
        if "capture-range-end" not in own_names:
            # An nsys that can write reports after the end of a range does so by default.
            mode = ":sync" if "sync" in tool.features.get("modes", ()) else ""
            result["capture-range-end"] = f"repeat:{len(worker.windows)}{mode}"
    required_trace = "cuda" if gate == "cuda" else "nvtx"
    trace = next((key for key in result if known.long_name(key) == "trace"), "t")
    traces = str(result.get(trace, required_trace))
    if gate != "none" and required_trace not in traces.split(","):
        result[trace] = f"{traces},{required_trace}"
    elif gate != "none":
        result[trace] = traces
    defaults = {"wait": "primary", "kill": "none", "force-overwrite": "true"}
    result.update({name: value for name, value in defaults.items() if name not in own_names})
    result["o"] = as_output(raw_stem(worker))
    return result, list(options.flags)


def notes(worker: Worker, options: NsightOptions, tool: Tool) -> list[str]:
    """Notes on the gate, on changed options, and on windows that are not recorded."""
    choice = choose(worker, options)
    sentences = [f"gate {choice.gate}: {choice.why}"]
    if choice.gate == "cuda" and not worker.has_gpu:
        sentences.append(
            "gate cuda on a worker without a GPU: its first window fails unless the CUDA runtime "
            "is installed; gate: auto needs no CUDA"
        )
    replacements = ", ".join(
        f"{key}={value}" for key, value in not_sampled(worker, options).items()
    )
    if replacements:
        sentences.append(
            f"sample=none and cpuctxsw=none replace {replacements}: without a GPU, sampling can "
            "hang the worker (to keep them, set nsight.allow_cpu_sampling: true)"
        )
    elif _adds_cpuctxsw(options):
        sentences.append(
            "cpuctxsw=none added to sample=none: by default nsys traces context switches, and "
            "2022.4 can hang with them"
        )
    if choice.gate == "session":
        keys = (*options.options, *options.flags)
        keys_left_out = [key for key in keys if known.command_of(key, tool.features) == "profile"]
        if keys_left_out:
            sentences.append(
                f"{', '.join(keys_left_out)} left out: the session gate has no such option"
            )
    end = options.value("capture-range-end")
    if choice.gate in ("nvtx", "cuda") and end == "none" and len(worker.windows) > 1:
        sentences.append(
            "capture-range-end=none: one report covers everything from the first window to the "
            "worker's end"
        )
    elif choice.gate in ("nvtx", "cuda") and end is not None:
        limit, count = known.ranges_recorded(str(end)), len(worker.windows)
        if limit is not None and limit < count:
            first = "the first" if limit == 1 else f"the first {limit}"
            sentences.append(f"capture-range-end={end} records only {first} of {count} windows")
    return sentences


def not_sampled(worker: Worker, options: NsightOptions) -> dict[str, Value]:
    """The user's options that were dropped because the worker has no GPU."""
    effective_options = {
        known.long_name(key): value for key, value in effective(worker, options)[0].items()
    }
    own_options = {key: value for key, value in options.options.items() if _needs_sampling(key)}
    return {
        key: value
        for key, value in own_options.items()
        if effective_options.get(known.long_name(key)) != value
    }


def _adds_cpuctxsw(options: NsightOptions) -> bool:
    """Whether to turn off context switches, which nsys traces by default even without samples."""
    return options.value("sample") == "none" and options.value("cpuctxsw") is None


def _needs_sampling(key: str) -> bool:
    return known.long_name(key) in _NEED_SAMPLING
