"""RLinf's preset, by its name, alone and switched off; and null, which equals a missing key."""

from __future__ import annotations

from typing import Any

import gpuprof
import pytest
from gpuprof.settings import read
from support.planning import parsed, planned, profiled, refused
from support.rlinf_examples import PRESET, WORKERS, command, settings


def test_the_preset() -> None:
    """All six groups, channels included, for their whole life, with the documented options."""
    assert 9 == len(profiled("rlinf", settings(PRESET), WORKERS))
    expected = [
        "-t",
        "cuda,cudnn,cublas,nvtx,osrt",
        "--sample=process-tree",
        "--cpuctxsw=process-tree",
        "--cudabacktrace=all",
    ]
    assert [*expected, "--osrt-threshold=1000"] == command(PRESET)


@pytest.mark.parametrize(
    "entry",
    [
        "profile/default@cluster.profiling",
        {"profile@cluster.profiling": "default"},
        "override /profile/default@cluster.profiling",
    ],
)
def test_the_preset_by_its_name(entry: Any) -> None:
    """An uncomposed file names the preset in its defaults list; the file's own keys win."""
    whole = {
        "defaults": ["training_backend/fsdp@actor.fsdp_config", entry],
        "cluster": {"profiling": {"steps": [3]}},
    }
    row = planned("rlinf", whole, WORKERS, "RolloutGroup-0")
    assert (True, ["step-3"]) == (row.profiled, [window.label for window in row.worker.windows])
    assert "--osrt-threshold=1000" in row.command


def test_the_presets_groups() -> None:
    """The three groups of RLinf's file, without their channels."""
    whole = {"defaults": ["profile/default@cluster.profiling"]}
    names = profiled("rlinf", whole, WORKERS)
    assert ["ActorGroup", "RolloutGroup", "EnvGroup"] == list(
        dict.fromkeys(name.rpartition("-")[0] for name in names)
    )


def test_one_option_over_the_preset() -> None:
    """Leaves the preset's other options, as Hydra does."""
    whole = {
        "defaults": ["profile/default@cluster.profiling"],
        "cluster": {"profiling": {"options": {"osrt-threshold": 5}}},
    }
    words = planned("rlinf", whole, WORKERS, "ActorGroup-0").command
    assert {"--osrt-threshold=5", "--cudabacktrace=all"} <= set(words)


def test_null_switches_the_preset_off() -> None:
    """As `cluster.profiling=null` does on Hydra's command line."""
    whole = {"defaults": ["profile/default@cluster.profiling"]}
    made = gpuprof.plan(whole, WORKERS, system="rlinf", overrides=["cluster.profiling=null"])
    assert ({False}, ("cluster.profiling: missing or null, so nothing is profiled",)) == (
        {row.profiled for row in made.rows},
        made.warnings,
    )


def test_the_preset_alone() -> None:
    """A file that only names it is profiled by it, in whole lives."""
    row = planned(
        "rlinf", {"defaults": ["profile/default@cluster.profiling"]}, WORKERS, "RolloutGroup-0"
    )
    assert (True, ["lifetime"]) == (row.profiled, [window.label for window in row.worker.windows])


@pytest.mark.parametrize("key", ["options", "flags", "args", "env", "steps", "output_dir"])
@pytest.mark.parametrize(
    "text", ["backend: nsight, flags: [python-backtrace]", "backend: rocprof_sys, args: {T: hip}"]
)
def test_null_is_as_if_the_key_were_not_there(text: str, key: str) -> None:
    """Of every key that RLinf itself gives null for what is not set."""
    section = {"worker_groups": ["ActorGroup"], **parsed(f"{{{text}}}")}
    section.pop(key, None)
    without, with_null = (
        planned(
            "rlinf",
            {**settings("{}"), "cluster": {"profiling": {**section, **more}}},
            WORKERS,
            "ActorGroup-0",
        )
        for more in ({}, {key: None})
    )
    assert without.profiled
    assert without == with_null


def test_null_for_the_section_of_the_backend() -> None:
    """A flag that only newer releases have stays one that may be left out."""
    text = "{backend: nsight, flags: [python-backtrace], nsight: null}"
    assert {"optional": ["python-backtrace"]} == read("rlinf", settings(text)).settings["nsight"]


def test_an_experiment_without_a_name() -> None:
    """Its profiles lie in the logger's directory."""
    whole = settings("{backend: nsight}")
    whole["runner"]["logger"]["experiment_name"] = None
    assert "/results/profiling/" in planned("rlinf", whole, WORKERS, "ActorGroup-0").files[1]


def test_a_preset_of_the_jobs_own() -> None:
    """What only the job has, only Hydra can compose."""
    whole = {"defaults": ["profile/mine@cluster.profiling"]}
    assert [
        (
            "defaults: 'profile/mine@cluster.profiling' names a file of the job; run the job "
            "with --cfg job and give its output"
        )
    ] == (refused("rlinf", whole))
