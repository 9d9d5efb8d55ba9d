"""RLinf's settings: `cluster.profiling`, and the logger's directory for the output."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from gpuprof.errors import ConfigError
from gpuprof.settings import (
    Integers,
    Translation,
    find,
    merge,
    nothing_selected,
    parse_value,
    preset,
    take_output_with_directory,
)

__all__ = ["read"]

SECTION = "cluster.profiling"
_TORCH = (
    "not read; torch's profiler and nsys in one worker compete for the GPU's events: switch one off"
)
_NOT_READ = {
    "cluster.tracer.enable": "not read; RLinf's tracer writes its own file",
    "actor.megatron.use_profiler": _TORCH,
    "critic.megatron.use_profiler": _TORCH,
    "rollout.vllm.torch_profiler_dir": _TORCH,
}
"""The note for each of RLinf's other profilers, by the key that switches the profiler on."""
PATHS = (SECTION, "runner.logger", "defaults", *_NOT_READ)
SIGNS = ("cluster", "runner")
IN_ENVIRONMENT = False

WORKERS = {
    "ActorGroup": {"gpus": 1},
    "RolloutGroup": {"gpus": 1},
    "EnvGroup": {"gpus": 1},
    "Actor": {"gpus": 0},
    "Rollout": {"gpus": 0},
    "Env": {"gpus": 0},
}
"""Groups of the embodied runners; the last three are channels, with workers of their own."""

_FILE_NAME = "rlinf_profile_{group}_{rank}_{pid}"
_BACKENDS = ("nsight", "rocprof_sys")
_ALIAS = "stop-on-range-end"
_ENDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), "stop"),
    **dict.fromkeys(("false", "0", "no", "off"), "none"),
}


def read(settings: dict[str, Any], backends: Collection[str]) -> Translation:
    """Translate RLinf's section; see `gpuprof.settings.read`.

    Nothing is profiled without the section.
    """
    section, notes = _given(settings)
    notes += [f"{path}: {why}" for path, why in _NOT_READ.items() if find(settings, path)[1]]
    if section is None:
        off = f"{SECTION} is missing or null"
        note = f"{SECTION}: missing or null, so nothing is profiled"
        return Translation(
            nothing_selected(),
            SECTION,
            notes=(*notes, note),
            workers=WORKERS,
            off=off,
        )
    if not isinstance(section, dict):
        raise ConfigError([f"{SECTION}: {section!r} is not valid; expected a mapping"])
    native = dict(section)
    problems: list[str] = []
    paths: dict[str, str] = {}
    if native.get("backend", "nsight") in (None, ""):
        choices = " or ".join(_BACKENDS)
        value = "null" if native["backend"] is None else repr(native["backend"])
        problems.append(f"{SECTION}.backend: {value} is not valid; expected {choices}")
        native["backend"] = "none"
    if native.get("output_dir") in (None, ""):
        native.pop("output_dir", None)
        native.update(_output_dir(settings))
    if native.get("worker_groups") == "":
        native["worker_groups"] = []
    if isinstance(native.get("steps"), list):
        native["steps"] = [_integer(step) for step in native["steps"]]
    if native.get("enabled", True) in (None, 0, 1):  # RLinf accepts these as true or false
        native["enabled"] = bool(native.get("enabled", True))
    several = _several(native.get("steps"))
    native.setdefault("file_name", f"{_FILE_NAME}.step-{{step}}" if several else _FILE_NAME)
    # RLinf documents a switch of this one word, and refuses the keys that it leaves behind.
    if native.get("backend") == "nsight":
        for key in ("args", "env"):
            native.pop(key, None)
        notes += _read_nsight(native, native.get("steps") is not None, several, problems)
        notes += _read_output(native, section.get("output_dir"), several, paths, problems)
    elif native.get("backend") == "rocprof_sys":
        for key in ("options", "flags"):
            native.pop(key, None)
        _read_rocprof_sys(native)
    return Translation(
        native, SECTION, paths, tuple(notes), workers=WORKERS, problems=tuple(problems)
    )


def _given(settings: dict[str, Any]) -> tuple[Any, list[str]]:
    """The section merged over the preset in `defaults`, for a file not composed by Hydra."""
    is_present, section = find(settings, SECTION)
    notes: list[str] = []
    if is_present and section is None:
        return None, notes  # null wins over any preset
    for text in _entries(settings.get("defaults")):
        name, _, target = text.removeprefix("override ").partition("@")
        if target != SECTION:
            continue
        defaults = preset(name)
        if defaults is None:
            raise ConfigError(
                [
                    (
                        f"defaults: {text!r} names a file of the job; run the job with --cfg job "
                        "and give its output"
                    )
                ]
            )
        if section is not None and not isinstance(section, dict):
            break  # the caller reports it
        section = merge(defaults, section or {})
        notes.append(
            f"defaults: {name} is read from gpuprof's copy; Hydra prefers the job's own file"
        )
    return section, notes


def _entries(defaults: Any) -> Iterator[str]:
    """The entries of a defaults list in either form, as ``group/name@package``."""
    for entry in defaults if isinstance(defaults, list) else ():
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for group, name in entry.items():
                where, _, package = str(group).partition("@")
                yield f"{where}/{name}@{package}"


def _output_dir(settings: dict[str, Any]) -> dict[str, str]:
    logger = find(settings, "runner.logger")[1]
    if not isinstance(logger, dict) or not isinstance(logger.get("log_path"), str):
        return {}
    parts = [
        logger["log_path"],
        *([str(logger["experiment_name"])] if logger.get("experiment_name") else []),
        "profiling",
    ]
    return {"output_dir": "/".join(part.rstrip("/") for part in parts)}


def _several(steps: Any) -> bool:
    try:
        return steps is not None and Integers.parse(steps).count > 1
    except ConfigError:  # said in full when the whole is read
        return False


def _read_nsight(
    native: dict[str, Any], has_steps: bool, several: bool, problems: list[str]
) -> list[str]:
    notes: list[str] = []
    flags = native.get("flags")
    if isinstance(flags, str):
        native["flags"] = [flags]
    elif flags is None:
        native.pop("flags", None)
    options = native.get("options")
    if options is None:
        native.pop("options", None)
        options = {}
    if not isinstance(options, dict):
        return notes
    options = dict(options)
    _read_alias(options, problems)
    if has_steps:
        notes += _leave_windows_to_us(options, several)
    flags = native.get("flags")
    if isinstance(flags, list) and "python-backtrace" in flags and "python-backtrace" in options:
        problems.append(
            f"{SECTION}.flags: 'python-backtrace' is given by options.python-backtrace too; name "
            "it once"
        )
    elif isinstance(flags, list) and "python-backtrace" in flags:
        native["flags"] = [flag for flag in flags if flag != "python-backtrace"]
        options.setdefault("python-backtrace", "cuda")
        section = native.get("nsight") or {}
        if isinstance(section, dict):
            native["nsight"] = {"optional": ["python-backtrace"], **section}
        notes.append(
            "flags: python-backtrace needs a value; read as options: {python-backtrace: cuda}"
        )
    if "options" in native or options:
        native["options"] = options
    return notes


def _read_output(
    native: dict[str, Any],
    directory: Any,
    several: bool,
    paths: dict[str, str],
    problems: list[str],
) -> tuple[str, ...]:
    """Turn an output option into `output_dir` and `file_name`.

    Args:
        directory: the user's `output_dir`.
        paths: receives the full paths of `output_dir` and `file_name`.
    """
    if not isinstance(native.get("options"), dict):
        return ()
    output = take_output_with_directory(native["options"], f"{SECTION}.options", problems)
    theirs = output.settings.get("output_dir")
    if theirs and directory not in (None, theirs):
        problems.append(
            f"{output.paths['output_dir']}: the directory {theirs!r} conflicts with output_dir: "
            f"{directory!r}; give one"
        )
    native.update(output.numbered(".step-{step}") if several else output.settings)
    paths.update(output.paths)
    return output.notes


def _read_alias(options: dict[str, Any], problems: list[str]) -> None:
    if _ALIAS not in options:
        return
    where = f"{SECTION}.options.{_ALIAS}"
    value = options.pop(_ALIAS)
    if "capture-range-end" in options:
        problems.append(
            f"{where}: {value!r} conflicts with capture-range-end, another name for it; give one"
        )
        return
    end = _ENDS.get(str(value).strip().lower())
    if end is None:
        problems.append(
            f"{where}: {value!r} is not valid; expected true or false (or 1, 0, yes, no, on, off)"
        )
        return
    options["capture-range-end"] = end


def _leave_windows_to_us(options: dict[str, Any], several: bool) -> list[str]:
    """Drop the capture range that RLinf itself uses for steps; complete a range of the user's."""
    if (
        str(options.get("capture-range", "")) == "cudaProfilerApi"
        or options.get("c") == "cudaProfilerApi"
    ):
        options.pop("capture-range", None)
        options.pop("c", None)
    if "capture-range" in options or "c" in options:
        options.setdefault("capture-range-end", "stop")
        return []
    if options.get("capture-range-end", "stop") != "stop":
        return []
    options.pop("capture-range-end", None)
    if not several:
        return []
    return [
        (
            "capture-range-end: stop would record only the first step; every step gets a report of "
            "its own instead"
        )
    ]


def _read_rocprof_sys(native: dict[str, Any]) -> None:
    env = native.get("env")
    if env is None:
        native.pop("env", None)
    elif isinstance(env, dict):
        native["env"] = {str(key): _text(value) for key, value in env.items()}
    args = native.get("args")
    if args is None:
        native.pop("args", None)
    elif isinstance(args, dict):  # RLinf makes strings of all of them
        native["args"] = {
            key: parse_value(value) if isinstance(value, str) else value
            for key, value in args.items()
        }


def _integer(step: Any) -> Any:
    """Convert a step as RLinf does: text and floats to `int` if they are whole numbers.

    Leaves ``010`` alone: Hydra reads it as 8 in a file, RLinf as 10 on the command line.
    """
    whole = (
        re.fullmatch(r"\s*(0|[1-9]\d*)\s*", step, re.ASCII)
        if isinstance(step, str)
        else isinstance(step, float)
    )
    return int(step) if whole and float(step).is_integer() else step


def _text(value: Any) -> Any:
    """Convert a variable's value as RLinf does: `str` of any scalar, so true becomes "True"."""
    return value if isinstance(value, (dict, list)) else str(value)
