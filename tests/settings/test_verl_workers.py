"""Which workers verl captures, since its roles have `enable`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof.settings import read
from support.planning import notes, planned, profiled, refused
from support.verl_examples import WORKERS

TODAY = Path(__file__).with_name("verl_today.yaml")
NSYS = ["global_profiler.tool=nsys", "global_profiler.steps=[2,5]"]
ACTOR = "actor_rollout_ref.actor.profiler"
REF = "actor_rollout_ref.ref.profiler"


def plan(*overrides: str) -> Any:
    """The default configuration with nsys and overrides as on verl's command line."""
    return gpuprof.plan(str(TODAY), WORKERS, system="verl", overrides=[*NSYS, *overrides])


def names(*overrides: str) -> list[str]:
    return [row.worker.name for row in plan(*overrides).rows if row.profiled]


def reference(**trainer: str) -> dict[str, Any]:
    """A job with a reference model, whose profiler is on for another rank than the actor's."""
    actor = {"use_kl_loss": True, "profiler": {"enable": True, "ranks": [0]}}
    ref = {"profiler": {"enable": True, "ranks": [2]}}
    return {
        "global_profiler": {"tool": "nsys", "steps": [1]},
        "actor_rollout_ref": {"actor": actor, "ref": ref},
        "trainer": trainer,
    }


def test_a_worker_of_several_roles_follows_the_actor() -> None:
    """The reference's and the rollout's own settings do not count, and a warning says so."""
    made = plan(f"{ACTOR}.enable=true", f"{REF}.enable=true", f"{REF}.ranks=[2]")
    assert ["controller-0", "actor_rollout_ref-0", "WorkerDict-0"] == [
        row.worker.name for row in made.rows if row.profiled
    ]
    assert f"{REF}: left out; the workers of actor_rollout_ref read only {ACTOR}" in made.warnings


def test_a_reference_with_a_worker_of_its_own() -> None:
    """verl 0.6 and 0.7 make one unless told otherwise; it shares the actor's process."""
    both = ["actor_rollout_ref-0", "actor_rollout_ref-2"]
    assert both == profiled("verl", reference(use_legacy_worker_impl="auto"), WORKERS)[1:3]
    assert both[:1] == profiled("verl", reference(use_legacy_worker_impl="disable"), WORKERS)[1:2]


def test_a_reference_without_the_hybrid_engine() -> None:
    """Actor and reference are workers of their own that may share a pool."""
    settings = reference()
    settings["actor_rollout_ref"]["hybrid_engine"] = False
    workers = dict.fromkeys(("actor", "ref", "actor_rollout_ref"), 3)
    assert ["actor-0", "ref-2", "actor_rollout_ref-0", "actor_rollout_ref-2"] == profiled(
        "verl", settings, workers
    )


def test_a_critic_that_does_not_say_whether_it_is_discrete() -> None:
    """It follows the roles that share its worker."""
    actor = {"enable": True, "tool_config": {"nsys": {"discrete": True}}}
    critic = {"enable": True, "tool_config": {"torch": {"discrete": False}}}
    settings = {
        "global_profiler": {"tool": "nsys", "steps": [1]},
        "actor_rollout_ref": {"actor": {"profiler": actor}},
        "critic": {"profiler": critic},
    }
    assert planned("verl", settings, WORKERS, "WorkerDict-0").worker.discrete


def test_steps_without_a_role() -> None:
    """verl captures its controller as soon as there are a tool and steps."""
    made = plan()
    assert ["controller-0"] == [row.worker.name for row in made.rows if row.profiled]
    assert "no role selects a rank, so only controller is profiled, as verl does" in made.warnings


def test_steps_without_a_role_with_torch() -> None:
    """torch.profiler is in workers only."""
    assert [] == names("global_profiler.tool=torch")


def test_step_0() -> None:
    """verl counts from 1, so no window is planned for it."""
    made = plan(f"{ACTOR}.enable=true", "global_profiler.steps=[0,1]")
    assert ["step-1"] == [window.label for window in made.rows[1].worker.windows]
    assert "global_profiler.steps: 0 is left out; verl counts steps from 1" in made.warnings


def test_a_reward_model_that_verl_no_longer_reads() -> None:
    """Since its settings moved to the section `reward`, it has no profiler."""
    settings = {
        "global_profiler": {"tool": "nsys", "steps": [1]},
        "reward": {"num_workers": 8},
        "reward_model": {"profiler": {"enable": True}},
    }
    assert ["controller-0"] == profiled("verl", settings, WORKERS)
    assert any(
        note.startswith("reward_model.profiler: left out") for note in notes("verl", settings)
    )


def test_reasons_in_verls_words() -> None:
    """Each names the keys that the user wrote."""
    rows = {row.worker.name: row for row in plan(f"{ACTOR}.enable=true").rows}
    assert {
        "controller-0": "selected by global_profiler.tool and global_profiler.steps",
        "actor_rollout_ref-0": (
            f"selected by {ACTOR}.enable, {ACTOR}.ranks and global_profiler.steps"
        ),
        "actor_rollout_ref-1": f"{ACTOR}.ranks does not select 1",
        "critic-0": "critic.profiler.enable does not select critic",
    } == {
        name: rows[name].reason
        for name in ("controller-0", "actor_rollout_ref-0", "actor_rollout_ref-1", "critic-0")
    }


def test_gpuprofs_own_keys_have_their_own_names() -> None:
    """The limit of discrete windows is no key of verl's."""
    made = plan(f"{ACTOR}.enable=true", "global_profiler.global_tool_config.nsys.discrete=true")
    assert any("; set max_windows to change the limit" in note for note in made.rows[1].notes)


def test_the_names_of_discrete_reports() -> None:
    """The plan names them with the variables that only the run knows."""
    made = plan(f"{ACTOR}.enable=true", "global_profiler.global_tool_config.nsys.discrete=true")
    row = made.rows[1]
    assert "worker_process_{pid}.{n}.nsys-rep" == Path(row.pattern).name
    assert f"  file         {row.pattern} for each scope" in row.text("x", 1000).splitlines()
    assert row.pattern == row.to_dict()["file_pattern"]


def sft(interval: Any = (3, 5), **profiler: Any) -> dict[str, Any]:
    """Settings of verl's supervised trainer."""
    return {
        "trainer": {"profile_interval": list(interval), "total_epochs": 4},
        "profiler": {"tool": "nsys", "enable": True, "save_path": "out", **profiler},
    }


def test_the_supervised_trainer() -> None:
    """One window from the first to the last step, on the selected ranks."""
    row = planned("verl", sft(ranks=[0, 1]), {"TrainingWorker": 3}, "TrainingWorker-1")
    assert ["steps-3-5"] == [window.label for window in row.worker.windows]
    assert "worker_process_{pid}.1.nsys-rep" == Path(row.files[1]).name
    assert ["TrainingWorker-0", "TrainingWorker-1"] == profiled(
        "verl", sft(ranks=[0, 1]), {"TrainingWorker": 3}
    )


def test_the_supervised_trainer_in_verls_words() -> None:
    """Its profiler stands at the top, and its steps in `trainer`."""
    row = planned("verl", sft(), {"TrainingWorker": 2}, "TrainingWorker-0")
    assert "selected by profiler.enable, profiler.ranks and trainer.profile_interval" == row.reason
    assert "profiler.ranks does not select 1" == (
        planned("verl", sft(), {"TrainingWorker": 2}, "TrainingWorker-1").reason
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (sft((-1, -1)), "trainer.profile_interval: selects no step"),
        (sft((0, 2)), "trainer.profile_interval: selects no step"),
        (sft(enable=False), "profiler.enable: is not true"),
        (sft(tool=None), "profiler.tool: is null"),
    ],
)
def test_a_supervised_trainer_that_profiles_nothing(settings: Any, reason: str) -> None:
    """verl's default interval and a switch that is off, each said in verl's words."""
    assert [f"{reason}, so nothing is profiled"] == notes("verl", settings)
    assert [] == profiled("verl", settings, {"TrainingWorker": 2})


@pytest.mark.parametrize("interval", [[5, 3], [3], [-1, 3], ["a", "b"], [1, 2, 3]])
def test_an_interval_that_is_none(interval: list[Any]) -> None:
    """verl ends with an assertion; the error names the key and both forms."""
    assert [
        (
            f"trainer.profile_interval: {interval!r} is not valid; expected [first, last] with "
            "1 <= first <= last, or [-1, -1] for none"
        )
    ] == refused("verl", sft(interval))


def test_discrete_of_the_supervised_trainer() -> None:
    """Of its own profiler; there are no settings for all roles."""
    settings = sft(tool_config={"nsys": {"discrete": True}})
    assert read("verl", settings).settings["discrete"]
