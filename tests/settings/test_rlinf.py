"""RLinf's settings: every example that its page documents, and what the page promises of it."""

from __future__ import annotations

from typing import Any

import gpuprof
import pytest
from gpuprof._plan.worker import PlannedWorker
from gpuprof.settings import read
from support.planning import notes, planned, profiled, refused
from support.rlinf_examples import GROUPS, WORKERS, command, settings


def test_disabled() -> None:
    """Nothing is wrapped, and the rest of the section may stay."""
    made = gpuprof.plan(settings("{backend: nsight, enabled: false}"), WORKERS, system="rlinf")
    assert {"cluster.profiling.enabled is false"} == {row.reason for row in made.rows}
    assert {()} == {row.command for row in made.rows}


def test_disabled_makes_no_directory(tmp_path: Any) -> None:
    """Also when the run is real."""
    from gpuprof.ray import Profiler

    whole = settings("{backend: nsight, enabled: false}", output_dir=str(tmp_path / "out"))
    Profiler(whole, system="rlinf").finalize()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [{}, {"output_dir": None}])
def test_the_output_directory_without_a_logger(given: dict[str, Any]) -> None:
    """Nothing to derive it from: gpuprof's own default."""
    whole = {"cluster": {"profiling": {"backend": "nsight", "worker_groups": "all", **given}}}
    assert "/gpuprof-output/" in planned("rlinf", whole, WORKERS, "ActorGroup-0").files[1]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (
            ["ActorGroup", "RolloutGroup"],
            ["ActorGroup-0", "ActorGroup-1", "RolloutGroup-0", "RolloutGroup-1"],
        ),
        ("actorgroup", ["ActorGroup-0", "ActorGroup-1"]),
        ("Actor", ["Actor-0"]),
        (["Env", "envgroup"], ["EnvGroup-0", "EnvGroup-1", "Env-0"]),
        (None, []),
    ],
)
def test_worker_groups(groups: Any, expected: list[str]) -> None:
    """A name or a list, in any case; a channel is a group of its own; null is nobody."""
    assert expected == profiled(
        "rlinf", settings("{backend: nsight}", worker_groups=groups), WORKERS
    )


def test_a_channel_that_was_forgotten() -> None:
    """The page warns of it, and so does the plan, where the groups are RLinf's own."""
    made = gpuprof.plan(settings("{backend: nsight, worker_groups: [ActorGroup]}"), system="rlinf")
    assert (
        "cluster.profiling.worker_groups: ActorGroup is selected, but its channel Actor is not; "
        "add Actor to profile both sides" in made.warnings
    )


def test_a_step_with_a_leading_zero() -> None:
    """Hydra reads 8 in a file, and RLinf 10 on the command line: nobody means either."""
    (problem,) = refused("rlinf", settings("{backend: nsight, steps: ['010']}"))
    assert "cluster.profiling.steps[0]: '010' is not valid" in problem


def test_all_steps_are_recorded() -> None:
    """RLinf would stop after the first range and lose the others; one note says so."""
    text = (
        "{backend: nsight, steps: [3, 10, 50], options: {capture-range: cudaProfilerApi, "
        "capture-range-end: stop}}"
    )
    assert "--capture-range-end=repeat:3" in command(text)
    assert 1 == len(
        [note for note in notes("rlinf", settings(text)) if "only the first step" in note]
    )


def test_python_backtrace() -> None:
    """A flag in the documentation, an option with a value in nsys; one warning."""
    text = "{backend: nsight, options: {t: nvtx}, flags: [python-backtrace]}"
    assert "--python-backtrace=cuda" in command(text)
    assert [
        "flags: python-backtrace needs a value; read as options: {python-backtrace: cuda}"
    ] == notes("rlinf", settings(text))


def test_what_gpuprof_adds_to_rlinfs_keys() -> None:
    """Its own sections and keys may stand beside RLinf's, and are not lost on the way."""
    text = (
        "{backend: nsight, options: {t: nvtx}, flags: [python-backtrace], nsight: {executable: "
        "/opt/nsys}, ranks: [1]}"
    )
    assert ["ActorGroup-1"] == profiled("rlinf", settings(text), WORKERS)
    assert {"executable": "/opt/nsys", "optional": ["python-backtrace"]} == read(
        "rlinf", settings(text)
    ).settings["nsight"]


def test_the_alias_beside_the_name() -> None:
    """One of them too many."""
    text = "{backend: nsight, options: {stop-on-range-end: true, capture-range-end: none}}"
    [problem] = refused("rlinf", settings(text))
    assert problem.startswith(
        "cluster.profiling.options.stop-on-range-end: True conflicts with capture-range-end"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "{backend: nsight, options: {t: nvtx}, flags: [t]}",
            "cluster.profiling.flags: 't' is given by options.t too",
        ),
        (
            "{backend: nsight, options: {o: a, output: b}}",
            "cluster.profiling.options.output: 'output' is given by options.o too",
        ),
        ("{backend: nsight, steps: [-1]}", "cluster.profiling.steps[0]: -1 is not valid"),
        (
            "{backend: nsight, stpes: [1]}",
            "cluster.profiling.stpes: unknown key; did you mean 'steps'?",
        ),
        ("{enabled: true}", "cluster.profiling.backend: missing"),
        ("{backend: rocprof_sys, args: [T]}", "cluster.profiling.args: ['T'] is not valid"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    """With the path that it has in RLinf's configuration."""
    assert any(found.startswith(problem) for found in refused("rlinf", settings(text)))


def test_everything_that_is_wrong_at_once() -> None:
    """Whether RLinf's own words are wrong or gpuprof's."""
    text = (
        "{backend: nsight, stepz: [1], ranks: [x], options: {t: nvtx, stop-on-range-end: "
        "maybe}, flags: [t]}"
    )
    expected = [
        "cluster.profiling.options.stop-on-range-end: 'maybe' is not valid; expected true or false",
        "cluster.profiling.stepz: unknown key; did you mean 'steps'?",
        "cluster.profiling.ranks[0]: 'x' is not valid",
        "cluster.profiling.flags: 't' is given by options.t too",
    ]
    found = refused("rlinf", settings(text))
    assert expected == [
        problem[: len(start)] for problem, start in zip(found, expected, strict=True)
    ]


@pytest.mark.parametrize("switched", ["rocprof_sys", "nsight"])
def test_the_switch_of_one_word(switched: str) -> None:
    """The documented override of the backend; what belongs to the other one is left alone."""
    env = "env: {ROCPROFSYS_USE_SAMPLING: 'true'}"
    both = settings(
        f"{{backend: rocprof_sys, args: {{b: true}}, {env}, options: {{t: nvtx}}, flags: [x], "
        f"steps: null}}"
    )
    row = gpuprof.plan(
        both, GROUPS, system="rlinf", overrides=[f"cluster.profiling.backend={switched}"]
    ).rows[0]
    assert row.profiled
    assert ("-t" in row.command) == (switched == "nsight")
    assert ("ROCPROFSYS_USE_SAMPLING" in row.environment) == (switched == "rocprof_sys")


def of_arguments(row: PlannedWorker) -> list[str]:
    """The arguments that the notes of a worker are about."""
    return [note.partition(":")[0] for note in row.notes if note.startswith("args.")]


def test_amd_minimal() -> None:
    """The documented form cannot run; the domain that it means is traced, with one warning."""
    text = (
        "{backend: rocprof_sys, enabled: true, worker_groups: [ActorGroup, RolloutGroup, "
        "EnvGroup], args: {T: hip}}"
    )
    row = planned("rlinf", settings(text), WORKERS, "ActorGroup-0")
    assert "hip_runtime_api,marker_api" == row.environment["ROCPROFSYS_ROCM_DOMAINS"]
    assert [] == [word for word in row.command if word.startswith("-T")]
    assert ["args.T"] == of_arguments(row)


def test_amd_arguments() -> None:
    """What the launcher lacks becomes a variable; one warning for each."""
    text = "{backend: rocprof_sys, args: {T: 'hip,hsa,rccl', output-format: json, v: 1}}"
    row = planned("rlinf", settings(text), WORKERS, "ActorGroup-0")
    expected = {
        "ROCPROFSYS_ROCM_DOMAINS": "hip_runtime_api,hsa_api,marker_api",
        "ROCPROFSYS_USE_RCCLP": "true",
        "ROCPROFSYS_PROFILE": "true",
    }
    assert expected == {name: row.environment[name] for name in expected}
    assert [] == [word for word in row.command if "output-format" in word]
    assert ["-v", "1"] == [word for word in row.command if word in ("-v", "1")]
    assert ["args.T", "args.output-format"] == of_arguments(row)


def test_file_names() -> None:
    """The worker and its process; where there are several reports of it, the step as well."""
    one = planned("rlinf", settings("{backend: nsight, steps: [3]}"), WORKERS, "ActorGroup-1").files
    two = planned(
        "rlinf", settings("{backend: nsight, steps: [3, 4]}"), WORKERS, "ActorGroup-1"
    ).files
    assert one[1].endswith("/rlinf_profile_ActorGroup_1_{pid}.nsys-rep")
    assert [True, True] == [
        two[number].endswith(f"/rlinf_profile_ActorGroup_1_{{pid}}.step-{step}.nsys-rep")
        for number, step in [(1, 3), (2, 4)]
    ]


@pytest.mark.parametrize(("steps", "name"), [("[3]", "r_{pid}"), ("[3, 4]", "r_{pid}.step-3")])
def test_an_output_with_a_directory(steps: str, name: str) -> None:
    """An output option sets the directory and the template; several reports are told apart."""
    whole = settings(f"{{backend: nsight, steps: {steps}, options: {{t: nvtx, o: /mnt/r_%p}}}}")
    file = planned("rlinf", whole, WORKERS, "ActorGroup-0").files[1]
    assert ("/mnt/{run}/{node}", f"{name}.nsys-rep") == tuple(file.rsplit("/", 1))
    assert "cluster.profiling.options.o: '/mnt/r_%p' is read as output_dir and file_name" in str(
        notes("rlinf", whole)
    )


def test_two_directories() -> None:
    """One in the options, and another as the output directory: which is meant, nobody knows."""
    text = "{backend: nsight, output_dir: /out, options: {output: /mnt/r}}"
    expected = (
        "cluster.profiling.options.output: the directory '/mnt' conflicts with output_dir: "
        "'/out'; give one"
    )
    assert [expected] == refused("rlinf", settings(text))


@pytest.mark.parametrize(
    "whole", [{}, {"cluster": {"num_nodes": 1}}, {"cluster": {"profiling": None}}]
)
def test_no_section_profiles_nothing(whole: dict[str, Any]) -> None:
    """And it is said, for a path may be misspelt."""
    assert [] == profiled("rlinf", whole, WORKERS)
    assert ["cluster.profiling: missing or null, so nothing is profiled"] == notes("rlinf", whole)


@pytest.mark.parametrize("value", [None, ""])
def test_no_backend(value: Any) -> None:
    """RLinf refuses it, whether profiling is enabled or not."""
    shown = "null" if value is None else "''"
    for enabled in (True, False):
        assert [
            f"cluster.profiling.backend: {shown} is not valid; expected nsight or rocprof_sys"
        ] == refused("rlinf", settings("{}", backend=value, enabled=enabled))


def test_a_variable_that_is_a_mapping() -> None:
    """Is refused by its path."""
    (problem,) = refused("rlinf", settings("{backend: rocprof_sys, env: {A: {b: 1}}}"))
    assert problem.startswith("cluster.profiling.env.A: ")


def test_a_capture_range_of_the_users_own_beside_steps() -> None:
    """It ends as RLinf ends it, unless the user says how."""
    own = "{backend: nsight, steps: [3], options: {t: nvtx, capture-range: nvtx%s}}"
    assert "--capture-range-end=stop" in command(own % "")
    assert "--capture-range-end=none" in command(own % ", capture-range-end: none")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"cluster": {"tracer": {"enable": True}}}, "cluster.tracer.enable"),
        ({"actor": {"megatron": {"use_profiler": True}}}, "actor.megatron.use_profiler"),
        ({"critic": {"megatron": {"use_profiler": True}}}, "critic.megatron.use_profiler"),
        ({"rollout": {"vllm": {"torch_profiler_dir": "/x"}}}, "rollout.vllm.torch_profiler_dir"),
    ],
)
def test_rlinfs_other_profilers_are_named(more: dict[str, Any], named: str) -> None:
    """They are not read: with the section and without."""
    assert [named] == [note.partition(": not read;")[0] for note in notes("rlinf", more)][:1]
    whole = settings("{backend: nsight, options: {t: nvtx}}")
    whole = {**whole, **more, "cluster": {**whole["cluster"], **more.get("cluster", {})}}
    assert [named] == [note.partition(": not read;")[0] for note in notes("rlinf", whole)]


def test_rlinfs_other_profilers_that_are_off() -> None:
    """Are no news."""
    more = {"actor": {"megatron": {"use_profiler": False}}}
    assert [] == notes("rlinf", {**settings("{backend: nsight}"), **more})


def test_python_backtrace_as_flag_and_option() -> None:
    """One of them too many, as for RLinf."""
    text = "{backend: nsight, options: {python-backtrace: cuda}, flags: [python-backtrace]}"
    (problem,) = refused("rlinf", settings(text))
    assert problem.startswith("cluster.profiling.flags: 'python-backtrace' is given by options.")


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        (None, "cluster.profiling.worker_groups is not set"),
        ([], "cluster.profiling.worker_groups is empty"),
        (["EnvGroup"], "cluster.profiling.worker_groups does not select ActorGroup"),
    ],
)
def test_reasons_name_rlinfs_keys(groups: Any, reason: str) -> None:
    """By the path that they have in RLinf's configuration."""
    whole = settings("{backend: nsight}", worker_groups=groups)
    assert reason == planned("rlinf", whole, WORKERS, "ActorGroup-0").reason


def test_no_section_is_a_reason() -> None:
    """In RLinf's words: there is no key `enabled` that is false."""
    row = planned("rlinf", {"runner": {}}, WORKERS, "ActorGroup-0")
    assert "cluster.profiling is missing or null" == row.reason
