"""NeMo-RL's engines, whose actors Ray wraps: its functions, built like the released ones."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import gpuprof_nemo_rl as nemo_rl
import pytest
from gpuprof._session.public import VARIABLE
from gpuprof.ray import driver

SETTINGS = {"NRL_NSYS_WORKER_PATTERNS": "*vllm*", "NRL_NSYS_PROFILE_STEP_RANGE": "2:4"}


class GenerationInterface:
    """What an engine's policy derives from."""

    def start_gpu_profiling(self) -> None:
        """Start the profilers of the engine's own actors."""


@pytest.fixture
def nsys(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of NeMo-RL's profiler, with gpuprof; `asked` has what it has seen."""
    monkeypatch.setattr(nemo_rl, "_settings", SETTINGS)
    monkeypatch.setattr(driver, "begin_step", lambda number: None)
    module = ModuleType("nemo_rl.utils.nsys")
    asked: list[str] = []

    def maybe_gpu_profile_step(policy: Any, step: int) -> None:
        asked.append(vars(module)["NRL_NSYS_WORKER_PATTERNS"])

    def get_nsight_config_if_pattern_matches(worker_name: str) -> Any:
        return vars(module)["NRL_NSYS_WORKER_PATTERNS"]

    vars(module).update(
        SETTINGS,
        maybe_gpu_profile_step=maybe_gpu_profile_step,
        get_nsight_config_if_pattern_matches=get_nsight_config_if_pattern_matches,
        asked=asked,
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    interfaces = ModuleType("nemo_rl.models.generation.interfaces")
    vars(interfaces)["GenerationInterface"] = GenerationInterface
    monkeypatch.setitem(sys.modules, interfaces.__name__, interfaces)
    nemo_rl._own_profiler(module)
    nemo_rl._steps(module)
    return module


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is under way, and plans every worker."""
    monkeypatch.setattr(nemo_rl, "_settings", SETTINGS)
    monkeypatch.setattr(driver, "current", lambda: object())
    monkeypatch.setattr(
        driver, "plan", lambda group, rank, env, gpu: {"env_vars": {**env["env_vars"]}}
    )


def started(group: str) -> dict[str, str]:
    """The variables with which a worker of a group is started."""
    making = nemo_rl._Making()
    making.group = group
    runtime_env = {"env_vars": {"RANK": "0"}}
    made = nemo_rl._Initializer(None, making)._plan((), {"runtime_env": runtime_env})
    assert made is not None
    variables: dict[str, str] = made["env_vars"]
    return variables


@pytest.mark.usefixtures("planned")
def test_a_worker_with_an_engine_can_answer_its_own_question() -> None:
    """NeMo-RL has Ray wrap the engine's own actors if the worker's variables say so."""
    assert {"RANK": "0", **SETTINGS} == started("vllm_generation_worker")


@pytest.mark.usefixtures("planned")
def test_a_worker_without_an_engine_has_no_variables() -> None:
    """It starts nobody; NeMo-RL would only change Ray's files."""
    assert {"RANK": "0"} == started("dtensor_policy_worker")


@pytest.mark.parametrize(("row", "kept"), [("row", True), ("", False)], ids=["worker", "other"])
def test_only_a_worker_keeps_the_variables(
    monkeypatch: pytest.MonkeyPatch, row: str, kept: bool
) -> None:
    """An initializer with them, as those of a cluster have, would have Ray wrap the worker."""
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    if row:
        monkeypatch.setenv(VARIABLE, row)
    else:
        monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(nemo_rl, "after_import", lambda *arguments: None)
    nemo_rl.install_in_worker()
    assert kept == all(name in os.environ for name in SETTINGS)


def test_a_step_reaches_the_profilers_of_engines_only(nsys: ModuleType) -> None:
    """Ours are in front of the other workers, and open their windows."""
    for policy in (object(), GenerationInterface(), object()):
        nsys.maybe_gpu_profile_step(policy, 2)
    assert ["", "*vllm*", ""] == nsys.asked


def test_engines_of_sglang_remain_those_of_nemo_rl(nsys: ModuleType) -> None:
    """The driver makes them as actors of no worker group."""
    sglang = ModuleType("nemo_rl.models.generation.sglang.sglang_generation")
    ask = nsys.get_nsight_config_if_pattern_matches
    ask.__module__ = nsys.__name__
    vars(sglang)[ask.__name__] = ask
    nemo_rl._sglang(sglang)
    assert ("*vllm*", "") == (sglang.get_nsight_config_if_pattern_matches("sglang"), ask("sglang"))
