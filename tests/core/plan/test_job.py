"""The plan of a whole job: rows, warnings, and that nothing is started or made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof._config.load import load
from gpuprof._plan.advice import oversights
from gpuprof._plan.groups import Place
from gpuprof._plan.groups import parse as parse_workers
from gpuprof._plan.job import shell_line
from gpuprof.errors import ConfigError

CONFIG = {
    "backend": "nsight",
    "worker_groups": ["ActorGroup"],
    "steps": [2, 5],
    "output_dir": "/out",
}


def warnings(config: dict[str, Any], workers: Any) -> str:
    return "\n".join(gpuprof.plan({**CONFIG, **config}, workers).warnings)


def test_a_row_for_each_worker() -> None:
    """Profiled or why not, in the order of the workers."""
    made = gpuprof.plan({**CONFIG, "ranks": [1]}, {"ActorGroup": 2, "EnvGroup": 1})
    assert [
        ("ActorGroup-0", "ranks does not select 0"),
        ("ActorGroup-1", "selected by worker_groups, ranks and steps"),
        ("EnvGroup-0", "worker_groups does not select EnvGroup"),
    ] == [(row.worker.name, row.reason) for row in made.rows]
    assert "1 of 3 workers profiled with nsight, 2 reports expected" in str(made)


def test_a_file_of_several_windows_is_counted_once() -> None:
    """As the receipt has it."""
    made = gpuprof.plan(
        {"backend": "rocprof_sys", "worker_groups": ["A"], "steps": ["0:600"]}, {"A": 1}
    )
    assert "1 of 1 workers profiled with rocprof_sys, 1 report expected" in str(made)
    assert 1 == str(made).count("  file  ")
    assert [] == [warning for warning in made.warnings if "reports are planned" in warning]


def test_without_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is profiled, and the plan says why; one that says so itself is a configuration."""
    monkeypatch.delenv("GPUPROF_CONFIG", raising=False)
    assert (
        "warning: no configuration, so nothing is profiled; give one or set GPUPROF_CONFIG"
        in str(gpuprof.plan())
    )
    assert () == gpuprof.plan({"backend": "none", "enabled": False}).warnings


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    """One in which every line is a comment, say: it was given, so nobody is told that none was."""
    file = tmp_path / "profiling.yaml"
    file.write_text("# backend: nsight\n")
    assert (f"{file}: empty, so nothing is profiled",) == gpuprof.plan(file).warnings


def test_json_has_it_all() -> None:
    """Windows, command, environment without secrets, files and notes of each worker."""
    config = {**CONFIG, "nsight": {"options": {"t": "nvtx"}, "env": {"API_TOKEN": "hunter2"}}}
    made = json.loads(json.dumps(gpuprof.plan(config, "ActorGroup=1:1").to_dict()))
    [row] = made["workers"]
    assert ["step-2", "step-5"] == [window["label"] for window in row["windows"]]
    assert "***" == row["environment"]["API_TOKEN"]
    assert "hunter2" not in json.dumps(made)
    assert [1, 2] == [file["window"] for file in row["files"]]
    assert {
        "group",
        "rank",
        "node",
        "profiled",
        "reason",
        "windows",
        "command",
        "environment",
        "files",
        "notes",
    } == set(row)


def test_a_known_node_is_filled_in() -> None:
    """A known node stands in the paths; a worker on an unselected node is not profiled."""
    made = gpuprof.plan(
        {**CONFIG, "nodes": ["a*"]}, {"ActorGroup": {"count": 2, "nodes": ["a1", "b1"]}}
    )
    assert (True, "/out/{run}/a1/") == (
        made.rows[0].profiled,
        next(iter(made.rows[0].files.values()))[:14],
    )
    assert (False, "nodes does not select b1") == (made.rows[1].profiled, made.rows[1].reason)


def test_without_workers_those_of_the_configuration_are_planned() -> None:
    """Groups by their names, ranks as selected; wildcards name nobody."""
    config = {
        **CONFIG,
        "worker_groups": ["ActorGroup", "Roll*"],
        "groups": {"EnvGroup": {"ranks": [1, 3]}},
    }
    names = [row.worker.name for row in gpuprof.plan(config).rows]
    assert ["ActorGroup-0", "EnvGroup-1", "EnvGroup-3"] == names


def test_reports_of_scopes_are_not_counted() -> None:
    """How many scopes there will be is not known."""
    config = {
        "backend": "nsight",
        "worker_groups": "all",
        "steps": [3],
        "groups": {"B": {"discrete": True}},
    }
    made = gpuprof.plan(config, {"A": 1, "B": 1})
    assert (
        "\n2 of 2 workers profiled with nsight, 1 report expected, plus one per captured scope\n"
        in str(made)
    )


def test_planning_starts_and_makes_nothing(tmp_path: Path) -> None:
    """No file, no process, no Ray: what would start a process or write raises."""
    code = f"""
import sys
allowed = {{"subprocess.Popen", "os.mkdir", "os.fork", "os.posix_spawn", "os.exec"}}
allowed |= {{"socket.connect"}}
def hook(event, arguments):
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    cache = writes and (str(arguments[0]).endswith(".pyc") or "__pycache__" in str(arguments[0]))
    if event in allowed or (writes and not cache):
        raise AssertionError((event, arguments))
import gpuprof
gpuprof.plan({{"backend": "nsight"}})
sys.addaudithook(hook)
config = {{"backend": "nsight", "worker_groups": "all", "output_dir": {str(tmp_path / "out")!r}}}
made = gpuprof.plan(config, {{"A": 2}})
assert made.rows[1].command and "ray" not in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [] == list(tmp_path.iterdir())


def test_a_name_that_no_worker_has() -> None:
    """The nearest name is told."""
    expected = (
        "worker_groups: 'ActorGrp' matches none of ActorGroup, EnvGroup; did you mean 'ActorGroup'?"
    )
    assert expected in warnings({"worker_groups": ["ActorGrp"]}, "ActorGroup=1:1,EnvGroup=1")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ActrGroup", "ActorGroup"),
        ("rolloutgrp", "RolloutGroup"),
        ("RewardGroup", None),
        ("actorgroup", None),
    ],
)
def test_a_misspelt_group_of_another_system(name: str, nearest: str | None) -> None:
    """Also where nobody says who the workers are; a group of the user's own is none."""
    section = {"backend": "nsight", "worker_groups": [name], "steps": [1]}
    made = gpuprof.plan({"cluster": {"profiling": section}}, system="rlinf")
    groups = "ActorGroup, RolloutGroup, EnvGroup, Actor, Rollout, Env"
    problem = (
        f"cluster.profiling.worker_groups: {name!r} matches none of {groups}; did you "
        f"mean {nearest!r}?"
    )
    assert ([problem] if nearest else []) == [
        warning for warning in made.warnings if "matches none" in warning
    ]


def test_a_group_that_is_named_as_a_worker() -> None:
    """Who says that it is there is not told that it is misspelt."""
    section = {"backend": "nsight", "worker_groups": ["ActrGroup"], "steps": [1]}
    made = gpuprof.plan(
        {"cluster": {"profiling": section}}, "ActrGroup=1:1,ActorGroup=1:1", system="rlinf"
    )
    assert [] == [warning for warning in made.warnings if "matches none" in warning]


def test_an_override_for_no_worker() -> None:
    """The same holds for the keys of `groups`."""
    assert "groups: 'Env' matches none of ActorGroup" in warnings(
        {"groups": {"Env": {"steps": [1]}}}, "ActorGroup=1:1"
    )


def test_a_channel_that_is_not_selected() -> None:
    """A group's channel is a group of its own."""
    assert "ActorGroup is selected, but its channel Actor is not" in warnings(
        {}, "ActorGroup=1:1,Actor=1"
    )
    assert "" == warnings({"worker_groups": ["ActorGroup", "Actor"]}, "ActorGroup=1:1,Actor=1:1")


def test_a_group_without_a_profiled_rank() -> None:
    """Selected, and yet nothing will come of it."""
    assert (
        "ActorGroup: selected, but none of its ranks is profiled: ranks does not select 0"
        in warnings({"ranks": [8]}, "ActorGroup=8:1")
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        (
            {"worker_groups": ["Actr*"]},
            ["worker_groups: 'Actr*' matches none of ActorGroup; did you mean 'ActorGroup'?"],
        ),
        (
            {"ranks": [8]},
            ["ActorGroup: selected, but none of its ranks is profiled: ranks does not select 0"],
        ),
        (
            {"worker_groups": None},
            [
                (
                    "worker_groups: not set, so nothing is profiled; name groups, or all (gpuprof "
                    "run selects each process's own group)"
                )
            ],
        ),
        (
            {"worker_groups": []},
            [
                (
                    "worker_groups: selects no group, so nothing is profiled; name groups, or all "
                    "(under gpuprof run, leave it out to select each process's own group)"
                )
            ],
        ),
        ({"worker_groups": ["Actr*"], "enabled": False}, []),
        ({"worker_groups": ["Actr*"], "backend": "none"}, []),
        ({"steps": []}, []),
        ({"ranks": None}, []),
    ],
)
def test_what_a_job_that_has_begun_is_told(given: dict[str, Any], expected: list[str]) -> None:
    """Names that it does not have, unless nothing was to be captured."""
    config = load({**CONFIG, **given})
    rows = gpuprof.plan({**CONFIG, **given}, "ActorGroup=1:1").rows
    assert expected == oversights(config, rows)


def test_gpus_that_nobody_has_spoken_of() -> None:
    """The command depends on them, so the guess is said."""
    assert "ActorGroup: assuming no GPU" in warnings({}, "ActorGroup=1")
    assert "" == warnings({}, "ActorGroup=1:1") == warnings({}, "ActorGroup=1:0")


def test_very_many_reports() -> None:
    """Nobody opens them all."""
    assert "800 reports are planned" in warnings({"steps": ["0:100"]}, "ActorGroup=8:1")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"A": 0}, "workers.A.count: 0 is not valid; expected a number of ranks from 1 to 100000"),
        (
            {"A": "x"},
            (
                "workers.A: 'x' is not valid; expected a number of ranks from 1 to 100000, or a "
                "mapping "
                "with count, gpus, nodes"
            ),
        ),
        (
            {"A": {"cuont": 1}},
            "workers.A.cuont: unknown key; did you mean 'count'? Valid: count, gpus, nodes",
        ),
        ({"A": {"gpus": -1}}, "workers.A.gpus: -1.0 is not valid; expected a number of at least 0"),
        ("A=x", "workers.A.count: 'x' is not valid; expected an integer"),
        ({3: 1}, "workers[3]: 3 is not valid; expected the name of a group"),
    ],
)
def test_workers_that_are_none(spec: Any, problem: str) -> None:
    """The key, the value, and what is valid."""
    with pytest.raises(ConfigError) as caught:
        parse_workers(spec)
    assert [problem] == list(caught.value.problems)


def test_workers_from_a_file(tmp_path: Path) -> None:
    """The same mapping as YAML."""
    file = tmp_path / "workers.yaml"
    file.write_text("ActorGroup: 2\nEnvGroup: {gpus: 0.5}\n")
    assert [
        Place("ActorGroup", 0),
        Place("ActorGroup", 1),
        Place("EnvGroup", 0, None, 0.5),
    ] == parse_workers(str(file))


@pytest.mark.nsys
def test_a_command_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    """The line runs as printed, with a script appended, and leaves the planned report."""
    from gpuprof._config.load import load

    output = tmp_path / "it's here"
    options = {"t": "nvtx", "sample": "none", "cpuctxsw": "none", "capture-range": "none"}
    config = {
        **CONFIG,
        "steps": None,
        "output_dir": str(output),
        "nsight": {"options": options, "env": {"A_KEY": "x y"}},
    }
    line = shell_line(load(config), Place("ActorGroup", 0))
    code = "import os, sys; sys.exit(os.environ['A_KEY'] != 'x y')"
    done = subprocess.run(
        ["sh", "-c", f'{line} -c "{code}"'], env={**os.environ, "A_KEY": "x y"}, check=False
    )
    assert 0 == done.returncode
    assert 1 == len(list(output.glob("plan-*/*/*.nsys-rep")))
