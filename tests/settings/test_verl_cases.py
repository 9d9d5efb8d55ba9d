"""gpuprof reads real settings as verl's own code does, or differs as its page says."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gpuprof
import pytest
import yaml
from gpuprof._config import sources
from gpuprof.errors import ConfigError
from gpuprof.settings import read

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "frameworks" / "verl.md"
BASES = {"ppo": HERE / "verl_today.yaml", "sft": HERE / "verl_sft.yaml"}
DATA = yaml.load((HERE / "data" / "verl.yaml").read_text(), yaml.CSafeLoader)
CASES = DATA["cases"]
RANKS = range(4)


def cases(*keys: str, captured: bool = False) -> Any:
    """Cases that verl runs and that have these keys, or in which it captures a worker.

    Every third one in each run.
    """
    found = [case for case in CASES if "error" not in case["verl"] and "refused" not in case]
    wanted = [
        case
        for case in found
        if all(case["verl"].get(key) for key in keys)
        and (not captured or any(worker["ranks"] for worker in case["verl"]["workers"].values()))
    ]
    some = [
        pytest.param(case, marks=pytest.mark.exhaustive if number % 3 else ())
        for number, case in enumerate(wanted)
    ]
    return pytest.mark.parametrize("case", some, ids=lambda case: case["name"])


@cache
def plan(name: str) -> Any:
    case = next(case for case in CASES if case["name"] == name)
    groups = {
        group: {"count": len(RANKS), "gpus": 1}
        for group in ("actor_rollout_ref", "critic", "WorkerDict", "TrainingWorker")
    }
    return gpuprof.plan(
        base(case["base"]),
        {"controller": {"gpus": 0}, **groups} if case["base"] == "ppo" else groups,
        system="verl",
        overrides=case["overrides"],
    )


def rows(case: Any, group: str) -> list[Any]:
    return [row for row in plan(case["name"]).rows if row.worker.group == group and row.profiled]


def test_the_revision() -> None:
    """The page says which revision of verl it was read against."""
    assert DATA["revision"][:12] in PAGE.read_text()


def test_there_are_enough_cases() -> None:
    """From launch scripts, configurations, pages and tests of verl."""
    assert 60 < len({case["name"] for case in CASES})
    kinds = {case["source"].split("/")[0] for case in CASES}
    assert {"examples", "verl", "docs", "tests"} == kinds


@pytest.mark.parametrize(
    "case", [case for case in CASES if "difference" in case], ids=lambda case: case["name"]
)
def test_differences_are_documented(case: Any) -> None:
    """Each by the row of the page that begins so."""
    assert f"| {case['difference']}" in PAGE.read_text()


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if "refused" in case or ("error" in case["verl"] and "difference" not in case)
    ],
    ids=lambda case: case["name"],
)
def test_errors(case: Any) -> None:
    """What ends verl is refused before anything starts, and so is what gpuprof cannot do."""
    with pytest.raises(ConfigError) as caught:
        plan(case["name"])
    assert case.get("refused", "") in caught.value.problems[0]


@cases()
def test_the_controller(case: Any) -> None:
    """Captured or not."""
    assert bool(case["verl"]["controller"]) == bool(rows(case, "controller"))


@cases("controller")
def test_the_controllers_options(case: Any) -> None:
    """Each of verl's is on the command line."""
    given = case["verl"]["controller"]
    options = DATA["defaults"]["controller"] if given == "default" else given
    assert {f"--{key}={value}" for key, value in options.items()} <= set(
        rows(case, "controller")[0].command
    )


@cases("options")
def test_the_options_of_workers(case: Any) -> None:
    """Each of verl's but the capture range, which gpuprof plans, and what a gate has not."""
    given = case["verl"]["options"]
    options = DATA["defaults"]["workers"] if given == "default" else given
    left = {"capture-range", "capture-range-end"}
    groups = [group for group, worker in case["verl"]["workers"].items() if worker["ranks"]]
    row = rows(case, groups[0])[0]
    if row.worker.discrete:
        left.add("kill")
    said = set(row.command)
    assert [] == [
        f"--{key}={value}"
        for key, value in options.items()
        if key not in left and f"--{key}={value}" not in said
    ]


@cases()
def test_ranks(case: Any) -> None:
    """Of each group of workers that the job has."""
    for group, worker in case["verl"]["workers"].items():
        assert worker["ranks"] == [row.worker.rank for row in rows(case, group)]


@cases(captured=True)
def test_ranks_of_merged_workers(case: Any) -> None:
    """A process of actor and critic is captured if either is."""
    workers = case["verl"]["workers"]
    if "critic" in workers:
        expected = sorted({rank for worker in workers.values() for rank in worker["ranks"]})
        assert expected == [row.worker.rank for row in rows(case, "WorkerDict")]


@cases(captured=True)
def test_windows(case: Any) -> None:
    """From which step to which, and whether each operation has a window of its own."""
    for group, worker in case["verl"]["workers"].items():
        for row in rows(case, group):
            found = [[window.start, window.stop - 1] for window in row.worker.windows]
            assert worker["discrete"] == row.worker.discrete
            if not worker["discrete"]:
                assert worker["windows"] == found
            else:
                steps = {step for first, last in found for step in range(first, last + 1)}
                assert {first for first, _ in worker["windows"]} == steps


@cases(captured=True)
def test_reports(case: Any) -> None:
    """One for each window, numbered from 1; or a name for each operation's."""
    for group, worker in case["verl"]["workers"].items():
        for row in rows(case, group):
            names = [Path(file).name.split(".")[1] for file in row.distinct_files]
            if worker["discrete"]:
                assert "worker_process_{pid}.{n}" in row.pattern
            else:
                assert [str(number + 1) for number in range(len(worker["windows"]))] == names


@cases(captured=True)
def test_the_directory(case: Any) -> None:
    """The one of `save_path`, unless roles have others."""
    place = case["verl"]["save_path"]
    found = [
        row for row in plan(case["name"]).rows if row.profiled and row.worker.group != "controller"
    ]
    if isinstance(place, str) and found:
        assert found[0].worker.directory.startswith(str(Path(place).resolve()))


@cases(captured=True)
def test_finish_hooks(case: Any) -> None:
    """Which commands run on which ranks: the planned command of each group, run by a shell."""
    top = translated(case["name"])
    groups = top.get("groups", {})
    for group, worker in case["verl"]["workers"].items():
        expected = worker.get("hooks", {})
        given = {**top, **groups.get(group, {})}
        assert {rank: [] for rank in RANKS} | {
            rank: [command] for command, ranks in expected.items() for rank in ranks
        } == {rank: run(given, rank, worker["ranks"]) for rank in RANKS}


@cases(captured=True)
def test_torch(case: Any) -> None:
    """What torch.profiler records, and that a schedule is said to be left out."""
    found = translated(case["name"])
    for group, worker in case["verl"]["workers"].items():
        if "contents" not in worker:
            continue
        options = {**found, **found.get("groups", {}).get(group, {})}.get("torch_profiler", {})
        assert activities(worker["contents"]) == options.get("activities")
        for content, key in [
            ("stack", "with_stack"),
            ("shapes", "record_shapes"),
            ("memory", "profile_memory"),
        ]:
            assert (content in worker["contents"]) == options.get(key, False)
        left_out = any(".schedule: left out" in warning for warning in plan(case["name"]).warnings)
        assert bool(worker["schedule"]) == left_out


def activities(contents: list[str]) -> list[str] | None:
    """Without contents verl traces all activities; the CPU always."""
    return ["cpu", *(["cuda"] if "cuda" in contents else [])] if contents else None


@cache
def base(kind: str) -> Any:
    return sources.read_file(BASES[kind])


@cache
def translated(name: str) -> dict[str, Any]:
    """The translation of a case."""
    case = next(case for case in CASES if case["name"] == name)
    theirs = [text for text in case["overrides"] if "profil" in text.partition("=")[0]]
    return dict(read("verl", sources.with_overrides(base(case["base"]), theirs)).settings)


def run(given: Mapping[str, Any], rank: int, profiled: list[int]) -> list[str]:
    """What a rank's finish command prints, with stand-ins for the commands of the cases."""
    ranks = given.get("finish_ranks", profiled)
    if "finish_command" not in given or not (ranks == "all" or rank in ranks):
        return []
    stand_ins = "upload() { echo upload; }\nmine() { echo mine; }\n"
    done = subprocess.run(
        ["/bin/sh", "-c", stand_ins + given["finish_command"]],
        env={"GPUPROF_HOOK_RANK": str(rank)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()
