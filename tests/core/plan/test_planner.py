"""The plan: who, why, and with what, without starting anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof._config.secrets import masked
from gpuprof._plan.planner import Planner
from gpuprof._shim.row import VARIABLE, decode, encode
from gpuprof.errors import ConfigError


def planner(**data: Any) -> Planner:
    return Planner(
        load({"backend": "nsight", "worker_groups": ["ActorGroup"], "steps": [2, 5], **data}),
        "run",
        "/out",
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"enabled": False}, "enabled is false"),
        ({"worker_groups": "EnvGroup"}, "worker_groups does not select ActorGroup"),
        ({"ranks": [1]}, "ranks does not select 0"),
        ({"ranks": None}, "ranks does not select 0"),
        ({"steps": []}, "steps is empty"),
        ({"nodes": None}, "nodes is null"),
        ({"backend": "none"}, "backend none records timing trees only"),
    ],
)
def test_why_a_worker_is_not_profiled(data: dict[str, Any], reason: str) -> None:
    """A worker that is left out is left out for a reason that is said."""
    planned = planner(**data).worker("ActorGroup", 0)
    assert (False, reason, False) == (planned.profiled, planned.reason, planned.wrapped)


def test_an_armed_worker_is_wrapped_for_windows_that_nobody_has_named() -> None:
    """Nothing is expected of it, and the gate is the one that takes any number of windows."""
    planned = planner(steps=[], armed=True, nsight={"gate": "nvtx"}).worker("ActorGroup", 0)
    assert (True, True, (), {}) == (
        planned.profiled,
        planned.wrapped,
        planned.worker.windows,
        planned.files,
    )
    assert "armed: captures the steps that gpuprof capture names" == planned.reason
    assert "launch" == planned.command[1]
    assert "  windows      on gpuprof capture\n" in str(planned)


@pytest.mark.parametrize("steps", [None, [3]])
def test_armed_with_steps_is_refused(steps: list[int] | None) -> None:
    """Steps are named before the start or after it, not both; the error has the key's full path."""
    with pytest.raises(
        ConfigError, match=r"^armed: true is not valid together with steps; expected steps: \[\]$"
    ):
        planner(steps=steps, armed=True).worker("ActorGroup", 0)


def captured_steps(group: str, **data: Any) -> Any:
    """What a row says that any worker captures; `None` if its own windows are all."""
    plan = planner(**data)
    return plan.row(plan.worker(group, 0), [], None).get("captured_steps")


@pytest.mark.parametrize(
    ("group", "data", "expected"),
    [
        ("ActorGroup", {}, None),
        ("EnvGroup", {}, [(2, 3), (5, 6)]),
        ("ActorGroup", {"ranks": [1]}, [(2, 3), (5, 6)]),
        ("EnvGroup", {"steps": ["2:5", 3, 5]}, [(2, 6)]),
        (
            "ActorGroup",
            {"worker_groups": "all", "groups": {"Env*": {"steps": [5, 8]}}},
            [(2, 3), (5, 6), (8, 9)],
        ),
        ("EnvGroup", {"groups": {"EnvGroup": {"steps": [8]}}}, [(2, 3), (5, 6)]),
        ("EnvGroup", {"steps": None}, None),
        ("EnvGroup", {"ranks": None}, None),
        ("EnvGroup", {"enabled": False}, None),
        ("EnvGroup", {"backend": "none"}, None),
    ],
)
def test_every_row_has_the_steps_that_any_worker_captures(
    group: str, data: dict[str, Any], expected: list[tuple[int, int]] | None
) -> None:
    """Also the row of a worker that is not profiled, which waits for the others."""
    assert expected == captured_steps(group, **data)


def test_slow_ranks_cannot_be_captured_if_nobody_is_armed() -> None:
    """The error names both keys that are missing."""
    expected = "capture_slow: 2: no worker is armed; set armed: true and steps: []"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        planner(steps=[3], capture_slow=2).worker("ActorGroup", 0)


def test_a_run_is_armed_if_any_of_its_groups_is() -> None:
    """Whoever waits for an armed worker has to read its orders."""
    plan = planner(groups={"ActorGroup": {"steps": [], "armed": True}})
    assert (True, False) == (plan.is_armed("EnvGroup"), planner().is_armed("EnvGroup"))


def test_a_row_in_full() -> None:
    """The plan has placeholders for what only the node knows."""
    options = {"t": "nvtx", "sample": "process-tree"}
    planned = planner(nsight={"options": options, "env": {"API_TOKEN": "abc"}}).worker(
        "ActorGroup", 0
    )
    gate = "--capture-range=nvtx --nvtx-capture=gate@gpuprof-gate --capture-range-end=repeat:2"
    ours = f"{gate} --wait=primary --kill=none --force-overwrite=true"
    directory = "/out/run/{node}"
    stem = f"{directory}/ActorGroup-0.start-{{incarnation}}"
    note = (
        "sample=none and cpuctxsw=none replace sample=process-tree: without a GPU, sampling can "
        "hang the worker"
    )
    expected = [
        "ActorGroup-0: profiled: selected by worker_groups, ranks and steps",
        (
            f"  command      '{{tool}}' profile -t nvtx --sample=none --cpuctxsw=none {ours} -o "
            f"'{stem}' '{{interpreter}}'"
        ),
        "  environment  NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
        "  environment  API_TOKEN=***",
        "  windows      step-2, step-5",
        f"  file         {directory}/ActorGroup-0.step-2.nsys-rep",
        f"  file         {directory}/ActorGroup-0.step-5.nsys-rep",
        f"  log          {stem}.log",
        "  note         gate nvtx: the windows are known in advance, and this gate needs no CUDA",
        f"  note         {note} (to keep them, set nsight.allow_cpu_sampling: true)",
    ]
    assert expected == planned.text("ActorGroup-0", width=1000).splitlines()


def test_planning_is_pure() -> None:
    """The same question has the same answer."""
    first = planner()
    assert first.worker("ActorGroup", 0) == first.worker("ActorGroup", 0)


def test_the_row_survives_its_environment_variable() -> None:
    """The encoded row has no character that Ray or a shell would change."""
    made = planner(nsight={"env": {"LIKE": "$HOME {a} 'b' \N{SNOWMAN}"}})
    row = made.row(made.worker("Actor $Group", 0), ["python"], None)
    value = encode(row)
    assert value.replace("-", "").replace("_", "").replace("=", "").isalnum()
    assert json.loads(json.dumps(row)) == decode(value)


def test_a_group_overrides_the_backends_options() -> None:
    """An override changes one option and keeps the others."""
    groups = {"Actor*": {"nsight": {"options": {"t": "osrt"}}}}
    made = planner(
        nsight={"options": {"t": "nvtx", "osrt-threshold": 7}}, worker_groups="all", groups=groups
    )
    assert ("-t", "osrt,nvtx", "--osrt-threshold=7") == made.worker("ActorGroup", 0).command[2:5]
    assert ("-t", "nvtx", "--osrt-threshold=7") == made.worker("EnvGroup", 0).command[2:5]


@pytest.mark.parametrize("group", ["", "a/b", ".hidden", "{node}", "a\0b", 3])
def test_group_names_that_cannot_be_file_names(group: Any) -> None:
    """A name that would break a path is refused."""
    with pytest.raises(ConfigError, match="group: "):
        planner().worker(group, 0)


@pytest.mark.parametrize("rank", [-1, True, "0", 1.0])
def test_ranks_that_are_none(rank: Any) -> None:
    """A rank is an integer of at least 0."""
    with pytest.raises(ConfigError, match="rank: "):
        planner().worker("ActorGroup", rank)


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({"steps": ["0:12"]}, 12 * 32),
        ({"steps": [3], "discrete_labels": [f"operation-{n}" for n in range(40)]}, 40),
        ({"steps": None}, 32),
        ({"steps": [], "armed": True}, 32),
        ({"steps": ["0:12"], "max_windows": 5}, 5),
    ],
)
def test_the_limit_of_discrete_windows_grows_with_the_steps(
    keys: dict[str, object], most: int
) -> None:
    """The plan says it, and the worker's row has it."""
    made = planner(discrete=True, **keys)
    planned = made.worker("ActorGroup", 0)
    assert most == made.row(planned, [], None)["max_windows"]
    assert any(f"discrete: captures at most {most} scopes" in note for note in planned.notes)


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ({"discrete_labels": ["forward"]}, "discrete_labels: no effect without discrete"),
        ({"max_windows": 4}, "max_windows: no effect without discrete"),
        ({"finish_ranks": [0]}, "finish_ranks: no effect without finish_command"),
        (
            {"groups": {"Actor*": {"max_windows": 4}}},
            "groups.Actor*.max_windows: no effect without discrete",
        ),
        (
            {"discrete": True, "continuous": True},
            (
                "continuous: joins nothing with discrete: every scope stays a window of its own, "
                "and its file is named after all the joined steps"
            ),
        ),
    ],
)
def test_a_key_without_effect_has_a_note(keys: dict[str, object], note: str) -> None:
    """The plan says which other key it needs, or contradicts."""
    assert note in planner(**keys).worker("ActorGroup", 0).notes
    assert [] == [text for text in planner().worker("ActorGroup", 0).notes if "no effect" in text]


def test_discrete_windows_are_not_counted_beforehand() -> None:
    """The plan says what is captured, and promises no files."""
    planned = planner(discrete=True).worker("ActorGroup", 0)
    assert (True, {}) == (planned.worker.discrete, planned.files)
    assert (
        "  windows      step-2, step-5, one window per outermost scope" in str(planned).splitlines()
    )


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{stp}", "unknown variable {stp}"),
        ("a/b", "expected a file name"),
        ("{", "invalid template"),
    ],
)
def test_a_file_name_that_is_no_template(template: str, problem: str) -> None:
    """It is refused before anything starts."""
    with pytest.raises(ConfigError, match=f"^file_name: .* is not valid: {problem}"):
        planner(file_name=template)


def test_the_users_template_names_the_files() -> None:
    """Also where it comes as nsys's own option."""
    assert ["/out/run/{node}/ActorGroup-0_{pid}.2.nsys-rep"] == list(
        planner(steps=["2:4"], continuous=False, nsight={"options": {"o": "{worker}_%p.%n"}})
        .worker("ActorGroup", 0)
        .files.values()
    )[1:]


def test_secrets_are_masked() -> None:
    """Names that sound like a secret have their value hidden; an unset variable stays visible."""
    assert {"MY_KEY": "***", "password": "***", "MODE": "x", "TOKEN": None} == masked(
        {"MY_KEY": "a", "password": "b", "MODE": "x", "TOKEN": None}
    )


def test_no_secret_travels_in_the_row(tmp_path: Path) -> None:
    """A secret travels as a variable, is not in the row, and is masked in the plan."""
    from gpuprof.ray import Profiler

    nsys = tmp_path / "nsys-that-only-writes"
    nsys.write_text(
        '#!/bin/sh\nfor word; do [ "$before" = -o ] && echo report >"$word.nsys-rep"; '
        "before=$word; done\n"
    )
    nsys.chmod(0o755)
    env = {"API_TOKEN": "hunter2", "PGPASSWD": "hunter3", "NSYS_MODE": "x"}
    nsight = {"env": env, "executable": str(nsys)}
    profiler = Profiler(
        {"backend": "nsight", "worker_groups": "all", "output_dir": str(tmp_path), "nsight": nsight}
    )
    variables = profiler.worker_options(group="ActorGroup", rank=0)["runtime_env"]["env_vars"]
    profiler.finalize()
    row = decode(variables[VARIABLE])
    assert ("hunter2", "hunter3") == (variables["API_TOKEN"], variables["PGPASSWD"])
    assert "hunter" not in json.dumps(row)
    assert "x" == row["launch"]["environment"]["NSYS_MODE"]
    assert "hunter" not in str(profiler.plan[0])
    assert "hunter" not in Path(str(profiler.directory), "manifest.json").read_text()


@pytest.mark.parametrize("given", [["ray", "torch"], []])
def test_the_row_has_the_instruments(given: list[str]) -> None:
    """If there are any: the row travels in a variable, whose length is limited."""
    made = planner(instruments=given)
    row = made.row(made.worker("ActorGroup", 0), ["python"], None)
    assert given == row.get("instruments", [])
    assert bool(given) == ("instruments" in row)
