"""NeMo-RL's variables: every example that its page documents, and what the page promises of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof.settings import read
from gpuprof_nemo_rl.settings import CLASSES, group_of_class
from support.planning import notes, planned, profiled, refused

PATTERNS, RANGE, EXTRA = (
    "NRL_NSYS_WORKER_PATTERNS",
    "NRL_NSYS_PROFILE_STEP_RANGE",
    "NRL_NSYS_EXTRA_OPTIONS",
)
WORKERS = {
    name: {"count": 2, "gpus": 1}
    for name in ("dtensor_policy_worker", "megatron_policy_worker", "vllm_generation_worker")
}


def variables(patterns: str, steps: str = "3:5", extra: Any = None) -> dict[str, Any]:
    return {PATTERNS: patterns, RANGE: steps} | ({} if extra is None else {EXTRA: extra})


def command(extra: Any = None) -> list[str]:
    """What is rendered of the options."""
    words = list(
        planned(
            "nemo-rl", variables("*policy*", extra=extra), WORKERS, "dtensor_policy_worker-0"
        ).command
    )
    return words[2 : words.index("--wait=primary")]


@pytest.mark.parametrize(
    ("steps", "label"),
    [("3:5", "steps-3-4"), ("2:3", "step-2"), ("1:2", "step-1"), ("3:10", "steps-3-9")],
)
def test_the_range_is_one_window(steps: str, label: str) -> None:
    """Each worker gets one report, from the first step up to the stop, which is exclusive."""
    row = planned("nemo-rl", variables("*", steps), WORKERS, "vllm_generation_worker-1")
    assert ([label], 1) == ([window.label for window in row.worker.windows], len(row.files))
    assert [f"vllm_generation_worker_{steps}_{{pid}}.nsys-rep"] == [
        Path(file).name for file in row.files.values()
    ]


@pytest.mark.parametrize("steps", ["0:10", "5:5", "5:3", "3", "a:b", "3:5:7", "-1:4", ":", "1:"])
def test_ranges_that_are_none(steps: str) -> None:
    """Refused with the variable's name; steps count from 1."""
    [problem] = refused("nemo-rl", variables("*policy*", steps))
    assert (
        f"{RANGE}: {steps!r} is not valid; expected start:stop with 1 <= start < stop (stop "
        "exclusive)" == problem
    )


def test_both_or_neither() -> None:
    """One without the other is refused; without both nothing is profiled."""
    assert [f"{RANGE}: missing; {PATTERNS} is set: set both, or neither"] == refused(
        "nemo-rl", {PATTERNS: "*"}
    )
    assert [f"{PATTERNS}: missing; {RANGE} is set: set both, or neither"] == refused(
        "nemo-rl", {RANGE: "1:2"}
    )
    assert [] == profiled("nemo-rl", {}, WORKERS)
    assert [] == profiled("nemo-rl", {PATTERNS: "", RANGE: ""}, WORKERS)
    assert (f"{PATTERNS}: not set, so nothing is profiled",) == gpuprof.plan(
        {}, WORKERS, system="nemo-rl"
    ).warnings


def test_the_users_output() -> None:
    """Its directory is ours, and its name our template."""
    row = planned(
        "nemo-rl",
        variables("*policy*", extra='{"o": "/results/nsys/%p"}'),
        WORKERS,
        "dtensor_policy_worker-0",
    )
    assert row.files[1].startswith("/results/nsys/{run}/")
    assert row.files[1].endswith("/{pid}.nsys-rep")
    assert 1 == len(notes("nemo-rl", variables("*", extra='{"o": "/results/nsys/%p"}')))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("/r/%%/%h_%n_100%%", {"output_dir": "/r/%", "file_name": "{node}_{n}_100%"}),
        ("%p", {"file_name": "{pid}"}),
        ("/r/", {"output_dir": "/r", "file_name": "{group}_{range}_{pid}"}),
    ],
)
def test_what_nsys_would_replace_in_an_output(output: str, expected: dict[str, str]) -> None:
    """What we have a variable for is read as that; two per cent signs are one."""
    native = read("nemo-rl", variables("*", extra=json.dumps({"output": output}))).settings
    assert expected == {key: native[key] for key in ("output_dir", "file_name") if key in native}


@pytest.mark.parametrize(
    ("output", "wrong"),
    [
        ("/r/%h/x_%p", "%h cannot be filled in; expected only %% in the directory"),
        (
            "/r/%q{USER}_%x",
            "%q{USER}, %x cannot be filled in; expected only %p, %h, %n, %% in the name",
        ),
        ("/r/100%", "% cannot be filled in; expected only %p, %h, %n, %% in the name"),
    ],
)
def test_what_we_cannot_replace_in_an_output(output: str, wrong: str) -> None:
    """It is refused by its name: it would become a directory that is called so."""
    expected = f"{EXTRA}.output: {output!r} is not valid: {wrong}"
    assert [expected] == refused("nemo-rl", variables("*", extra=json.dumps({"output": output})))


@pytest.mark.parametrize("extra", ["{", "[]", "3", "null", " ", '{"a": {"b": 1}}', '{"a": null}'])
def test_extra_options_that_are_none(extra: str) -> None:
    """Refused with the variable's name."""
    assert [EXTRA] == [
        problem.split(":")[0].split(".")[0]
        for problem in refused("nemo-rl", variables("*", extra=extra))
    ]


def test_everything_at_once() -> None:
    """All that is wrong, each with the name of its variable."""
    assert [RANGE, EXTRA] == [
        problem.split(":")[0] for problem in refused("nemo-rl", variables("*", "0:1", "["))
    ]


def test_the_environment_is_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NeMo-RL's users set it, without a file."""
    monkeypatch.setenv(PATTERNS, "*policy*")
    monkeypatch.setenv(RANGE, "2:3")
    made = gpuprof.plan(system="nemo-rl", overrides=["output_dir=/out"])
    assert [
        "dtensor_policy_worker-0",
        "dtensor_policy_worker_v2-0",
        "megatron_policy_worker-0",
        "megatron_quant_policy_worker-0",
    ] == [row.worker.name for row in made.rows if row.profiled]


def test_a_pattern_that_matches_nobody() -> None:
    """The plan says so, with the nearest name."""
    made = gpuprof.plan(variables("dtensor_policy"), WORKERS, system="nemo-rl")
    assert f"{PATTERNS}: 'dtensor_policy' matches none of" in made.warnings[0]
    assert made.warnings[0].endswith("did you mean 'dtensor_policy_worker'?")


@pytest.mark.parametrize(
    "name",
    [
        "dtensor_policy_worker_v2",
        "megatron_quant_policy_worker",
        "vllm_async_generation_worker",
        "sglang_generation_worker",
        "trtllm_async_generation_worker",
    ],
)
def test_todays_workers_are_known(name: str) -> None:
    """With a GPU, so the plan has nothing to warn of."""
    made = gpuprof.plan(variables(name), system="nemo-rl")
    assert ([f"{name}-0"], ()) == (
        [row.worker.name for row in made.rows if row.profiled],
        made.warnings,
    )


def test_a_name_that_gpuprof_does_not_know() -> None:
    """Is no misspelt one: NeMo-RL may have it since yesterday."""
    made = gpuprof.plan(variables("dtensor_policy_worker_v3"), system="nemo-rl")
    assert [] == [warning for warning in made.warnings if "matches none" in warning]
    assert ["dtensor_policy_worker_v3-0"] == [row.worker.name for row in made.rows if row.profiled]


def test_a_pattern_for_workers_that_gpuprof_does_not_know() -> None:
    """The plan says what it cannot tell, and how to have it checked."""
    made = gpuprof.plan(variables("*mine*"), system="nemo-rl")
    (warning,) = made.warnings
    assert warning.startswith(f"{PATTERNS}: gpuprof knows no group for '*mine*'; to check it, give")


def test_extra_options_are_read_also_without_patterns() -> None:
    """NeMo-RL reads them whenever it starts."""
    assert [EXTRA] == [problem.split(":")[0] for problem in refused("nemo-rl", {EXTRA: "{"})]


def test_a_range_of_many_steps() -> None:
    """The plan advises to capture few."""
    workers = {"dtensor_policy_worker": {"count": 64, "gpus": 1}}
    made = gpuprof.plan(variables("*policy*", "1:10000"), workers, system="nemo-rl")
    assert (
        f"{RANGE}: a report of 9999 steps becomes too large to open; capture few steps, such as 10",
    ) == made.warnings
    assert () == gpuprof.plan(variables("*policy*", "1:11"), workers, system="nemo-rl").warnings


def test_the_group_of_a_class() -> None:
    """By its name with the module or without; an unknown class is a group of its own."""
    name = "nemo_rl.models.value.workers.dtensor_value_worker_v2.DTensorValueWorkerV2"
    assert "dtensor_policy_worker_v2" == group_of_class(name)
    assert "MyWorker" == group_of_class("mine.MyWorker")


def test_the_page_lists_every_class() -> None:
    """Each in the row of its group."""
    page = Path(__file__).parents[2] / "docs" / "frameworks" / "nemo-rl.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    for name, group in CLASSES.items():
        assert any(f"`{name}`" in row and row.endswith(f"| `{group}` |") for row in rows), name


def test_reasons_name_the_variables() -> None:
    """And not keys that nobody has written."""
    row = planned("nemo-rl", variables("*vllm*"), WORKERS, "dtensor_policy_worker-0")
    assert f"{PATTERNS} does not select dtensor_policy_worker" == row.reason
    assert f"{PATTERNS} is not set" == gpuprof.plan({}, WORKERS, system="nemo-rl").rows[0].reason
