"""NeMo-RL's settings: three environment variables."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from gpuprof.errors import ConfigError
from gpuprof.settings import Translation, nothing_selected, take_output

__all__ = ["group_of_class", "read"]

PATTERNS = "NRL_NSYS_WORKER_PATTERNS"
RANGE = "NRL_NSYS_PROFILE_STEP_RANGE"
EXTRA = "NRL_NSYS_EXTRA_OPTIONS"
PATHS = (PATTERNS, RANGE, EXTRA)
SIGNS = PATHS
IN_ENVIRONMENT = True
"""The environment is the configuration."""

DEFAULTS = {"t": "cuda,nvtx", "s": "none", "stop-on-exit": "true", "cuda-graph-trace": "node"}
"""Without ``capture-range`` and ``capture-range-end``: gpuprof opens the windows."""
WORKERS = {
    "dtensor_policy_worker": {"gpus": 1},
    "dtensor_policy_worker_v2": {"gpus": 1},
    "megatron_policy_worker": {"gpus": 1},
    "megatron_quant_policy_worker": {"gpus": 1},
    "vllm_generation_worker": {"gpus": 1},
    "vllm_async_generation_worker": {"gpus": 1},
    "sglang_generation_worker": {"gpus": 1},
    "trtllm_async_generation_worker": {"gpus": 1},
}
CLASSES = {
    "DTensorPolicyWorker": "dtensor_policy_worker",
    "DTensorPolicyWorkerV2": "dtensor_policy_worker_v2",
    "DTensorQuantPolicyWorker": "dtensor_policy_worker",
    "DTensorQuantPolicyWorkerV2": "dtensor_policy_worker_v2",
    "DTensorValueWorkerV2": "dtensor_policy_worker_v2",
    "MegatronPolicyWorker": "megatron_policy_worker",
    "MegatronQuantPolicyWorker": "megatron_quant_policy_worker",
    "MegatronValueWorker": "megatron_policy_worker",
    "SGLangGenerationWorker": "sglang_generation_worker",
    "TrtllmAsyncGenerationWorker": "trtllm_async_generation_worker",
    "VllmAsyncGenerationWorker": "vllm_async_generation_worker",
    "VllmGenerationWorker": "vllm_generation_worker",
    "VllmQuantAsyncGenerationWorker": "vllm_async_generation_worker",
    "VllmQuantGenerationWorker": "vllm_generation_worker",
}
"""The name that NeMo-RL matches its patterns against, for each class of worker."""
QUESTION = "get_nsight_config_if_pattern_matches"
"""NeMo-RL's function that says with which options Ray wraps a worker."""
_NAMES = {"t": "trace", "s": "sample", "x": "stop-on-exit", "c": "capture-range", "o": "output"}


def read(settings: dict[str, Any], backends: Collection[str]) -> Translation:
    """Translate NeMo-RL's variables; see `gpuprof.settings.read`.

    Nothing is profiled without any of them.
    """
    patterns, steps = str(settings.get(PATTERNS) or ""), str(settings.get(RANGE) or "")
    extra: dict[str, Any] = {}
    unreadable: tuple[str, ...] = ()
    try:
        extra = _extra(settings.get(EXTRA, ""))
    except ConfigError as error:
        unreadable = error.problems
    if not patterns and not steps:
        return Translation(
            nothing_selected(),
            notes=(f"{PATTERNS}: not set, so nothing is profiled",),
            workers=WORKERS,
            off=f"{PATTERNS} is not set",
            problems=unreadable,
        )
    problems: list[str] = []
    for name, value, other in [(PATTERNS, patterns, RANGE), (RANGE, steps, PATTERNS)]:
        if not value:
            problems.append(f"{name}: missing; {other} is set: set both, or neither")
    names = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    if steps:
        problems += _range_problems(steps)
    problems += unreadable
    own_names = {_NAMES.get(key, key) for key in extra}
    options = {
        key: value for key, value in DEFAULTS.items() if _NAMES.get(key, key) not in own_names
    } | extra
    if "capture-range" in own_names and "capture-range-end" not in own_names:
        options["capture-range-end"] = "stop"  # NeMo-RL's, with a range of the user's own, too
    output = take_output(options, EXTRA, problems)
    if problems:
        raise ConfigError(problems)

    native = {
        "backend": "nsight",
        "worker_groups": names,
        "steps": [steps.replace(" ", "")],
        "continuous": True,
        "file_name": "{group}_{range}_{pid}",
    }
    return Translation(
        {**native, **output.settings, "nsight": {"options": options}},
        paths={
            "worker_groups": PATTERNS,
            "steps": RANGE,
            "nsight.options": EXTRA,
            "file_name": EXTRA,
        },
        notes=output.notes,
        workers=WORKERS,
        complete=False,
    )


def group_of_class(name: str) -> str:
    """The group of a class of workers: the name that NeMo-RL matches patterns against.

    A class that NeMo-RL does not know how to profile is a group by its own name.

    Args:
        name: the class, with or without its module.

    >>> group_of_class("nemo_rl.models.policy.workers.dtensor_policy_worker.DTensorPolicyWorker")
    'dtensor_policy_worker'
    """
    own = name.rpartition(".")[2]
    return CLASSES.get(own, own)


def _range_problems(steps: str) -> list[str]:
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*:\s*([0-9]{1,18})\s*", steps)
    if match and 1 <= int(match[1]) < int(match[2]):
        return []
    return [
        (
            f"{RANGE}: {steps!r} is not valid; expected start:stop with 1 <= start < stop (stop "
            "exclusive)"
        )
    ]


def _extra(value: Any) -> dict[str, Any]:
    right_form = "a JSON object of options of nsys profile, without dashes"
    original = value
    if isinstance(value, str):
        try:
            value = json.loads(value) if value else {}
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                [f"{EXTRA}: {value!r} is not valid: {error}; expected {right_form}"]
            ) from None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError([f"{EXTRA}: {original!r} is not valid; expected {right_form}"])
    wrong = [
        f"{EXTRA}.{key}: {inner!r} is not valid; expected a value"
        for key, inner in value.items()
        if _nested(inner)
    ]
    if wrong:
        raise ConfigError(wrong)
    return dict(value)


def _nested(value: object) -> bool:
    return value is None or isinstance(value, (dict, list))
