"""verl's `tool_config.torch` as options of the backend `torch_profiler`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuprof.settings import Invalid

from gpuprof_verl._roles import Problems, Role, mapping

_CONTENTS = ("cuda", "cpu", "memory", "shapes", "stack")
_SWITCHES = {"shapes": "record_shapes", "memory": "profile_memory", "stack": "with_stack"}
_SCHEDULE = ("skip_first", "wait", "warmup", "active", "repeat")
_TOKENS = ("profile_token_start", "profile_token_end")
_KEYS = ("contents", "discrete", "schedule", *_TOKENS)


def read_torch(
    roles: Sequence[Role], notes: list[str], problems: Problems
) -> tuple[dict[str, Any], str]:
    """The options for a worker with these roles, and their path in verl's settings.

    A process has only one torch profiler, so the options of the first role count.
    """
    first, *others = roles
    path = f"{first.path}.tool_config.torch"
    section = _section(first, problems)
    options = _contents(section, path, problems)
    for other in others:
        theirs, place = _section(other, problems), f"{other.path}.tool_config.torch"
        if _contents(theirs, place, problems) != options:
            notes.append(f"{place}.contents: left out; the worker has those of {path}")
    _say_schedule(section, path, notes, problems)
    return options, path


def say_tokens(roles: Sequence[Role], tool: str, notes: list[str]) -> None:
    """Note limits in response tokens as unsupported: only verl's inference servers count tokens."""
    for role in roles:
        tools = role.profiler.get("tool_config")
        section = tools.get(tool) if isinstance(tools, dict) else None
        limits = section if isinstance(section, dict) else {}
        notes += [
            f"{role.path}.tool_config.{tool}.{key}: {limits[key]!r} is not supported: gpuprof "
            "captures whole steps; set it to null"
            for key in _TOKENS
            if limits.get(key) is not None
        ]


def _section(role: Role, problems: Problems) -> dict[str, Any]:
    path = f"{role.path}.tool_config"
    tools = role.profiler.get("tool_config")
    return mapping(
        tools.get("torch") if isinstance(tools, dict) else None, f"{path}.torch", _KEYS, problems
    )


def _contents(section: Mapping[str, Any], path: str, problems: Problems) -> dict[str, Any]:
    contents = section.get("contents") or []
    if not isinstance(contents, list):
        problems.append(f"{path}.contents: {Invalid(contents, 'a list')}")
        return {}
    wrong = [(place, word) for place, word in enumerate(contents) if word not in _CONTENTS]
    problems += [
        f"{path}.contents[{place}]: {Invalid(word, 'one of ' + ', '.join(_CONTENTS))}"
        for place, word in wrong
    ]
    if not contents or wrong:
        return {}
    return {
        "activities": ["cpu", *(["cuda"] if "cuda" in contents else [])],
        **{ours: True for theirs, ours in _SWITCHES.items() if theirs in contents},
    }


def _say_schedule(
    section: Mapping[str, Any], path: str, notes: list[str], problems: Problems
) -> None:
    """Note the schedule as left out: verl counts mini-batches, gpuprof executions of a range."""
    schedule = mapping(section.get("schedule"), f"{path}.schedule", _SCHEDULE, problems)
    numbers = {key: schedule.get(key) or 0 for key in _SCHEDULE}
    wrong = [
        key
        for key, number in numbers.items()
        if not isinstance(number, int) or isinstance(number, bool) or number < 0
    ]
    problems += [
        f"{path}.schedule.{key}: {Invalid(numbers[key], 'an integer of at least 0')}"
        for key in wrong
    ]
    if wrong or not numbers["active"]:
        return
    ours = {
        "wait": numbers["skip_first"] + numbers["wait"],
        "warmup": numbers["warmup"],
        "active": numbers["active"],
        "repeat": numbers["repeat"] if section.get("discrete") else numbers["repeat"] or 1,
    }
    words = ", ".join(f"{key}: {number}" for key, number in ours.items())
    notes.append(
        f"{path}.schedule: left out, so whole steps are recorded; gpuprof counts executions of one "
        "of your ranges instead of mini-batches: "
        f"torch_profiler.schedule='{{every: RANGE, {words}}}'"
    )
