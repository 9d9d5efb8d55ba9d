"""verl's `tool: torch`, as options of the backend `torch_profiler`."""

from __future__ import annotations

from typing import Any

import gpuprof
import pytest
from gpuprof.settings import read
from support.planning import notes, refused

PATH = "actor_rollout_ref.actor.profiler.tool_config.torch"


def settings(torch: dict[str, Any] | None = None, **tools: Any) -> dict[str, Any]:
    tools = {**tools, "torch": torch or {}}
    return {
        "global_profiler": {"tool": "torch", "steps": [1, 2]},
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True, "tool_config": tools}}},
    }


def test_the_backend() -> None:
    """Only workers have it."""
    found = read("verl", settings()).settings
    assert ("torch_profiler", ["actor_rollout_ref", "WorkerDict"]) == (
        found["backend"],
        found["worker_groups"],
    )


def test_contents_reach_the_backend() -> None:
    """The plan reads them with the backend's own schema."""
    given = settings({"contents": ["cpu", "memory"]})
    row = gpuprof.plan(given, {"actor_rollout_ref": 1}, system="verl").rows[0]
    assert any(note.startswith("profile_memory: ") for note in row.notes)


def test_contents_that_verl_has_not() -> None:
    """By their place."""
    assert [
        f"{PATH}.contents[1]: 'gpu' is not valid; expected one of cuda, cpu, memory, shapes, stack"
    ] == refused("verl", settings({"contents": ["cpu", "gpu"]}))


def test_a_schedule() -> None:
    """It counts mini-batches: left out, and the note has the option for a range."""
    schedule = {"skip_first": 1, "wait": 2, "warmup": 1, "active": 3, "repeat": 0}
    assert [
        (
            f"{PATH}.schedule: left out, so whole steps are recorded; gpuprof counts executions "
            "of one of your ranges instead of mini-batches: "
            "torch_profiler.schedule='{every: RANGE, wait: 3, warmup: 1, active: 3, repeat: 1}'"
        )
    ] == notes("verl", settings({"schedule": schedule}))


def test_the_option_in_the_note_is_valid() -> None:
    """It can be pasted with the name of a range."""
    override = "torch_profiler.schedule={every: train, wait: 3, warmup: 1, active: 3, repeat: 1}"
    plan = gpuprof.plan(settings(), {"actor_rollout_ref": 1}, system="verl", overrides=[override])
    assert plan.rows[0].profiled


def test_a_schedule_that_is_not_valid() -> None:
    """By its key."""
    assert [
        f"{PATH}.schedule.active: -1 is not valid; expected an integer of at least 0"
    ] == refused("verl", settings({"schedule": {"active": -1}}))


@pytest.mark.parametrize("key", ["profile_token_start", "profile_token_end"])
def test_limits_in_tokens(key: str) -> None:
    """They are verl's inference servers', and named one by one."""
    given = settings()
    profiler = {"enable": True, "tool_config": {"torch": {key: 10}}}
    given["actor_rollout_ref"]["rollout"] = {"profiler": profiler}
    path = f"actor_rollout_ref.rollout.profiler.tool_config.torch.{key}"
    assert [f"{path}: 10 is not supported: gpuprof captures whole steps; set it to null"] == notes(
        "verl", given
    )


def test_two_roles_of_a_worker() -> None:
    """torch has one profiler in a process: the actor's contents count, and a note says so."""
    given = settings({"contents": ["cpu"]})
    critic = {"enable": True, "tool_config": {"torch": {"contents": ["cpu", "cuda"]}}}
    given["critic"] = {"profiler": critic}
    found = read("verl", given)
    assert {"activities": ["cpu"]} == found.settings["groups"]["WorkerDict"]["torch_profiler"]
    path = "critic.profiler.tool_config.torch"
    assert (f"{path}.contents: left out; the worker has those of {PATH}",) == found.notes


def test_torch_in_the_supervised_trainer() -> None:
    """Its profiler's own section."""
    torch = {"contents": ["cpu", "stack"], "discrete": True}
    given = {
        "trainer": {"profile_interval": [1, 2]},
        "profiler": {"enable": True, "tool": "torch", "tool_config": {"torch": torch}},
    }
    found = read("verl", given).settings
    assert ({"activities": ["cpu"], "with_stack": True}, True) == (
        found["torch_profiler"],
        found["discrete"],
    )
