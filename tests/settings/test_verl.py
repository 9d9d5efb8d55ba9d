"""verl's settings in all spellings: every example in its documentation does as promised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof.settings import read
from gpuprof_verl import settings as verl
from support.planning import notes, parsed, planned, profiled, refused
from support.verl_examples import OLD, OLDEST, WORKERS

TODAY = Path(__file__).with_name("verl_today.yaml")
ON = [
    "global_profiler.tool=nsys",
    "global_profiler.steps=[1,2,5]",
    "actor_rollout_ref.actor.profiler.enable=True",
]


def labels(settings: Any, worker: str) -> list[str]:
    return [window.label for window in planned("verl", settings, WORKERS, worker).worker.windows]


def today(*overrides: str) -> Any:
    """The default configuration with overrides as on verl's command line."""
    return gpuprof.plan(str(TODAY), WORKERS, system="verl", overrides=overrides)


def names(plan: Any) -> list[str]:
    return [row.worker.name for row in plan.rows if row.profiled]


@pytest.mark.parametrize("steps", ["null", "[]"])
@pytest.mark.parametrize(
    "form",
    ["trainer: {{profile_steps: {}}}", "global_profiler: {{steps: {}}}", "profiler: {{steps: {}}}"],
)
def test_no_steps_is_nothing(form: str, steps: str) -> None:
    """Whichever way they are none, and in every spelling."""
    settings = {**parsed(OLD), "trainer": {}, **parsed(form.format(steps))}
    assert [] == profiled("verl", settings, WORKERS)
    assert ["no steps are given, so nothing is profiled"] == notes("verl", settings)


def test_the_oldest_spelling() -> None:
    """Steps, ranks of each role, and the controller.

    Null is no rank, though a comment beside the example says all.
    """
    settings = parsed(OLDEST)
    expected = [
        "controller-0",
        "actor_rollout_ref-0",
        "actor_rollout_ref-1",
        "critic-0",
        "WorkerDict-0",
        "WorkerDict-1",
    ]
    assert expected == profiled("verl", settings, WORKERS)
    assert ["step-1", "step-2", "step-5"] == labels(settings, "critic-0")


def test_the_oldest_spelling_discrete() -> None:
    """A role that selects no rank has no say in it."""
    settings = parsed(OLDEST.replace("discrete: False", "discrete: True"))
    settings["actor_rollout_ref"]["ref"]["profile_discrete"] = False
    assert planned("verl", settings, WORKERS, "actor_rollout_ref-0").worker.discrete
    assert not planned("verl", settings, WORKERS, "controller-0").worker.discrete


def test_all_ranks_in_the_oldest_spelling() -> None:
    """By their own key."""
    settings = {"trainer": {"profile_steps": [1]}, "critic": {"profile_ranks_all": True}}
    assert ["controller-0", "critic-0", "critic-1", "critic-2"] == profiled(
        "verl", settings, WORKERS
    )[:4]


def test_step_0_is_none() -> None:
    """The note does not say that nothing was given."""
    said = notes("verl", {"global_profiler": {"tool": "nsys", "steps": [0]}})
    expected = "global_profiler.steps has no step: verl counts from 1, so nothing is profiled"
    assert [expected] == said


def test_critic_and_reward_model_below_actor_rollout_ref() -> None:
    """As the documentation has them, though no configuration of verl does."""
    roles = {"hybrid_engine": True, "critic": {"profile_ranks": [0]}, "rm": {"profile_ranks": [2]}}
    settings = {"trainer": {"profile_steps": [1]}, "actor_rollout_ref": roles}
    assert ["controller-0", "critic-0", "reward_model-2"] == profiled("verl", settings, WORKERS)[:3]


def test_the_default_configuration_profiles_nothing() -> None:
    """As verl ships it."""
    assert [] == names(today())
    assert any("so nothing is profiled" in warning for warning in today().warnings)


def test_steps_without_a_tool() -> None:
    """verl needs the tool as well, and the plan says what is missing."""
    assert "global_profiler.tool: is null, so nothing is profiled" in today(ON[1], ON[2]).warnings


def test_without_the_hybrid_engine() -> None:
    """Each role has workers of its own."""
    settings = parsed(OLD)
    settings["actor_rollout_ref"]["hybrid_engine"] = False
    assert "rollout-1" in profiled("verl", settings, {"rollout": 2})


def test_a_number_of_ranges_that_was_computed_by_hand() -> None:
    """It is left out, and that is said: the worker would be ended after so many."""
    options = "global_profiler.global_tool_config.nsys.worker_nsight_options"
    override = f"{options}.capture-range-end=repeat-shutdown:18"
    plan = today(*ON, override)
    assert "--capture-range-end=repeat:3" in plan.rows[1].command
    assert 1 == len(
        [warning for warning in plan.warnings if "repeat-shutdown:18 is left out" in warning]
    )


def test_a_reward_model_of_its_own_need_not_agree() -> None:
    """It shares no worker, so the others are as they would be without it."""
    pool = {"enable_resource_pool": True, "profiler": {"discrete": True, "ranks": [2]}}
    settings = {**parsed(OLD), "reward_model": pool}
    rows = {
        row.worker.name: row
        for row in gpuprof.plan(settings, WORKERS, system="verl").rows
        if row.profiled
    }
    assert {"controller", "actor_rollout_ref", "critic", "WorkerDict"} == {
        row.worker.group for row in rows.values() if not row.worker.discrete
    }
    assert (True, False) == (rows["reward_model-2"].worker.discrete, "WorkerDict-2" in rows)
    [note] = notes("verl", settings)
    assert note.startswith(
        "reward_model.enable_resource_pool: the reward model's workers are the group reward_model; "
        "WorkerDict has the other"
    )


@pytest.mark.parametrize(
    ("pools", "hybrid", "groups"),
    [
        ([["actor_rollout", "critic", "ref", "rm"]], True, ["WorkerDict"]),
        ([["actor_rollout_ref", "critic"], ["rm"]], True, ["WorkerDict", "reward_model"]),
        (
            [["actor_rollout", "ref"], ["critic"], ["rm"]],
            True,
            ["actor_rollout_ref", "critic", "reward_model"],
        ),
        ([["actor"], ["rollout"], ["ref"]], False, ["actor", "rollout", "ref"]),
    ],
)
def test_the_groups_of_pools(pools: list[list[str]], hybrid: bool, groups: list[str]) -> None:
    """The pools of a job have different groups, each of which the settings speak of."""
    assert groups == [verl.group_of_pool(dict.fromkeys(pool)) for pool in pools]
    assert set(groups) <= set(
        read("verl", {"actor_rollout_ref": {"hybrid_engine": hybrid}}).workers
    )


def with_outputs(worker: str, controller: str | None = None) -> dict[str, Any]:
    """Settings with outputs among the options of nsys."""
    options: dict[str, Any] = {"worker_nsight_options": {"trace": "nvtx", "output": worker}}
    if controller is not None:
        options["controller_nsight_options"] = {"trace": "nvtx", "o": controller}
    control = {
        "tool": "nsys",
        "steps": [1, 3],
        "save_path": "outputs/profile",
        "global_tool_config": {"nsys": options},
    }
    return {
        "global_profiler": control,
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True}}},
    }


def test_an_output_with_a_directory() -> None:
    """The output's directory wins over `save_path`; reports are numbered as nsys does."""
    whole = with_outputs("/data/x_%p", "/data/loop")
    files = [
        planned("verl", whole, WORKERS, worker).files
        for worker in ("actor_rollout_ref-0", "controller-0")
    ]
    assert [["x_{pid}.1", "x_{pid}.2"], ["loop"]] == [
        [
            file.removeprefix("/data/{run}/{node}/").removesuffix(".nsys-rep")
            for file in found.values()
        ]
        for found in files
    ]
    assert "worker_nsight_options.output: '/data/x_%p' is read as output_dir and file_name" in str(
        notes("verl", whole)
    )


def test_outputs_with_two_directories() -> None:
    """A run has one; both are named."""
    place = "global_profiler.global_tool_config.nsys"
    problem = (
        f"{place}.controller_nsight_options.o: '/other' conflicts with "
        f"{place}.worker_nsight_options.output: '/data'"
    )
    assert [f"{problem}; a run has one directory"] == refused(
        "verl", with_outputs("/data/x_%p", "/other/loop")
    )


@pytest.mark.parametrize(
    ("actor", "reason"),
    [
        ({"profiler": {"enable": True, "ranks": [1]}}, "actor_rollout_ref.actor.profiler.ranks"),
        ({"profile_ranks": [1]}, "actor_rollout_ref.actor.profile_ranks"),
    ],
)
def test_reasons_name_verls_keys(actor: dict[str, Any], reason: str) -> None:
    """Of the role that decides, in the spelling that the settings have."""
    whole = {
        "global_profiler": {"tool": "nsys", "steps": [1]},
        "actor_rollout_ref": {"actor": actor},
    }
    rows = gpuprof.plan(whole, {"actor_rollout_ref": 1, "critic": 1}, system="verl").rows
    assert [
        f"{reason} does not select 0",
        "critic.profiler.enable does not select critic",
    ] == [row.reason for row in rows]


def test_no_steps_is_a_reason() -> None:
    """In verl's words: it has no key `enabled` for all."""
    (row,) = gpuprof.plan({"global_profiler": {"tool": "nsys"}}, {"critic": 1}, system="verl").rows
    assert "no steps are given" == row.reason
