"""The plan of a whole job: rows, warnings, and that nothing is started or made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof._config.load import load
from gpuprof._plan.advice import oversights
from gpuprof._plan.folding import fold
from gpuprof._plan.groups import Place
from gpuprof._plan.groups import parse as parse_workers
from gpuprof._plan.job import shell_line
from gpuprof._plan.worker import PlannedWorker
from gpuprof.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st

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


NAMED = {
    "nsight": {
        "backend": "nsight",
        "worker_groups": "all",
        "steps": [1, 2, 5],
        "nsight": {"options": {"t": "nvtx", "output": "mine"}},
    },
    "rlinf": {
        "cluster": {
            "profiling": {
                "backend": "nsight",
                "worker_groups": "all",
                "steps": [1, 2, 5],
                "options": {"t": "nvtx", "o": "mine"},
            }
        }
    },
    "verl": {
        "global_profiler": {
            "tool": "nsys",
            "steps": [1, 2, 5],
            "save_path": "/out",
            "global_tool_config": {
                "nsys": {"worker_nsight_options": {"trace": "nvtx", "output": "mine"}}
            },
        },
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True, "all_ranks": True}}},
    },
}


@pytest.mark.parametrize(
    ("system", "group"),
    [("nsight", "ActorGroup"), ("rlinf", "ActorGroup"), ("verl", "actor_rollout_ref")],
)
def test_reports_of_one_name_are_numbered(system: str, group: str) -> None:
    """A name of the user's that tells no windows apart: one file for each window, all the same."""
    made = gpuprof.plan(
        NAMED[system], {group: {"gpus": 1}}, system=None if system == "nsight" else system
    )
    names = [os.path.basename(file) for file in made.rows[0].distinct_files]
    assert ["mine.nsys-rep", "mine.2.nsys-rep", "mine.3.nsys-rep"] == names
    assert "1 of 1 workers profiled with nsight, 3 reports expected" in str(made)


def test_workers_whose_reports_have_one_name() -> None:
    """They share a directory, so only the end of the run tells whose is numbered how."""
    expected = "several workers name a report x.nsys-rep; on one node they become x.2.nsys-rep, …"
    assert expected in warnings({"file_name": "x", "steps": [2]}, "ActorGroup=2:1")
    nodes = {"ActorGroup": {"count": 2, "gpus": 1, "nodes": ["a", "b"]}}
    assert "" == warnings({"file_name": "x", "steps": [2]}, nodes)
    assert "" == warnings({"file_name": "{rank}.{step}"}, "ActorGroup=2:1")
    assert "" == warnings({"file_name": "{pid}.{step}"}, "ActorGroup=2:1")


def test_without_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is profiled, and the plan says why; one that says so itself is a configuration."""
    monkeypatch.delenv("GPUPROF_CONFIG", raising=False)
    assert (
        "warning: no configuration, so nothing is profiled; give one or set GPUPROF_CONFIG"
        in gpuprof.plan().text(200)
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
    assert row["log"].endswith("/{node}/ActorGroup-0.start-{incarnation}.log")
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
        "file_pattern",
        "log",
        "notes",
    } == set(row)


RLINF = {
    "ActorGroup": {"count": 24, "gpus": 1, "nodes": ["a", "b", "c"]},
    "RolloutGroup": {"count": 24, "gpus": 1, "nodes": ["a", "b", "c"]},
    "EnvGroup": {"count": 8, "nodes": ["d"]},
    "Actor": {"count": 4, "gpus": 0},
    "Rollout": {"count": 4, "gpus": 0},
}


@pytest.mark.parametrize("workers", [{"ActorGroup": {"count": 64, "gpus": 1}}, RLINF])
@pytest.mark.parametrize("keys", [{}, {"discrete": True}, {"ranks": ["0:7", 9]}])
def test_a_plan_of_64_ranks_fits_on_a_screen(workers: Any, keys: dict[str, Any]) -> None:
    """With the costliest options, of which there is most to say: 50 lines of 80 columns."""
    selected = ["ActorGroup", "RolloutGroup", "EnvGroup"]
    made = gpuprof.plan({**CONFIG, "steps": ["0:20"], "worker_groups": selected, **keys}, workers)
    lines = made.text(width=80).splitlines()
    assert 64 == len(made.rows)
    assert 50 >= len(lines), f"{len(lines)} lines"
    assert [] == [line for line in lines if len(line) > 80]
    assert [] == sorted(
        note for note, times in Counter(lines).items() if times > 1 and "note" in note
    )


def headings(made: Any) -> list[str]:
    """The lines of a plan that name workers."""
    return [
        line.partition(": ")[0]
        for line in made.text(80).splitlines()
        if ": profiled" in line or ": not profiled" in line
    ]


def test_workers_that_differ_in_rank_only_are_one_row() -> None:
    """Also over several groups; ranks in short."""
    made = gpuprof.plan(
        {**CONFIG, "worker_groups": ["A", "B"], "ranks": [0, "2:5"]}, "A=8:1,B=1:1,C=2"
    )
    assert ["A-[0,2-4], B-0", "A-[1,5-7]", "C-[0,1]"] == headings(made)
    assert "{directory}/{worker}.step-2.nsys-rep and 1 more" in made.text(80)
    made = gpuprof.plan({**CONFIG, "discrete": True}, "ActorGroup=3:1")
    assert ["ActorGroup-[0-2]"] == headings(made)
    assert "--session-new=gpuprof-…-{incarnation}" in made.text(80)


def test_a_number_that_happens_to_be_a_rank() -> None:
    """Steps and counts equal the rank of some worker; only what varies with the rank is one."""
    made = gpuprof.plan(CONFIG, "ActorGroup=8:1")  # at steps 2 and 5
    assert ["ActorGroup-[0-7]"] == headings(made)
    assert "ActorGroup-{rank}.step-2.nsys-rep" in made.text(80)
    assert "--capture-range-end=repeat:2 " in made.text(200)


@given(
    st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 30)), min_size=1, unique=True),
    st.sampled_from([None, "{rank}-{step}", "{worker}_{n}", "{group}.{step}", "x{step}y{rank}{n}"]),
    st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
)
def test_folded_rows_say_what_each_row_says(
    workers: list[tuple[str, int]], template: str | None, steps: list[int]
) -> None:
    """Filling the placeholders of a folded row gives the row of each of its workers."""
    config = {**CONFIG, "worker_groups": "all", "steps": steps, "file_name": template}
    made = gpuprof.plan(config, [Place(group, rank, None, 1) for group, rank in workers])
    expected = {row.worker.name: texts(row) for row in made.rows}
    found = {}
    for each in fold(made.rows):
        row = each.row
        for group, ranks in each.members.items():
            for rank in ranks:
                late = {
                    "{worker}": f"{group}-{rank}",
                    "{rank}": str(rank),
                    "{directory}": row.worker.directory,
                }
                found[f"{group}-{rank}"] = [filled(word, late) for word in texts(row)]
    assert expected == found


def texts(row: PlannedWorker) -> list[str]:
    return [*row.command, *row.files.values(), row.pattern, row.log]


def filled(text: str, late: dict[str, str]) -> str:
    for placeholder, value in late.items():
        text = text.replace(placeholder, value)
    return text


def test_a_whole_row_is_a_worker_s_own() -> None:
    """`--worker` and `--all` show every file and note, and no placeholder for the rank."""
    made = gpuprof.plan(CONFIG, "ActorGroup=2:1")
    assert 2 == made.every_worker(80).count("/ActorGroup-1.step-")
    assert 4 == made.every_worker(80).count("  file  ")
    assert "{rank}" not in made.every_worker(80)


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


def test_a_plan_of_nobody() -> None:
    """Wildcards name nobody: the plan asks for the workers."""
    expected = "worker_groups: all names no worker by itself; give workers: NAME=RANKS"
    assert (expected,) == gpuprof.plan({**CONFIG, "worker_groups": "all"}).warnings


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
        in made.text(200)
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


def test_without_a_profiler_no_rank_has_to_be_profiled() -> None:
    """`backend: none` means that."""
    assert "" == warnings({"backend": "none"}, "ActorGroup=8:1")


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
                    "run selects each process's own group where the key is left out: gpuprof plan "
                    "--for run)"
                )
            ],
        ),
        (
            {"worker_groups": []},
            [
                (
                    "worker_groups: selects no group, so nothing is profiled; name groups, or all "
                    "(gpuprof run selects each process's own group where the key is left out: "
                    "gpuprof plan --for run)"
                )
            ],
        ),
        ({"worker_groups": ["Actr*"], "enabled": False}, []),
        (
            {"worker_groups": ["Actr*"], "backend": "none"},
            ["worker_groups: 'Actr*' matches none of ActorGroup; did you mean 'ActorGroup'?"],
        ),
        ({"backend": "none"}, []),
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
        (
            "Learner",
            (
                "workers: 'Learner' is not valid; expected NAME=RANKS, such as Learner=8, with "
                "GPUs of each rank Learner=8:1; or a YAML file"
            ),
        ),
        ("gone.yaml", "gone.yaml: cannot be read: No such file or directory; expected a YAML file"),
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
