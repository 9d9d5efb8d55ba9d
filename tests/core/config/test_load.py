"""Reading a configuration: what is accepted, and what every refusal says."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from gpuprof._config.dump import shown
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof.errors import ConfigError, OutputError, PluginError, ToolError
from hypothesis import given
from hypothesis import strategies as st

NSIGHT = {"backend": "nsight", "worker_groups": ["ActorGroup"]}


def problems(data: Any, path: str = "") -> list[str]:
    """Everything that is wrong with a configuration, its backend's section included."""
    with pytest.raises(ConfigError) as caught:
        Planner(load(data, path), "run", "/out")
    return list(caught.value.problems)


def test_no_configuration_selects_nothing() -> None:
    """Without a configuration nothing is profiled."""
    assert load(None).selects_nothing


def test_defaults() -> None:
    """Only the backend is required; no group is selected by default."""
    config = load({"backend": "nsight"})
    selection = config.selection("ActorGroup")
    assert (True, None, "disable", "ends") == (
        config.enabled,
        config.worker_groups,
        config.on_error,
        config.print_trees,
    )
    assert (None, False, ("all",)) == (selection.steps, selection.continuous, selection.nodes)
    assert 12345 in (selection.ranks or ())


def test_every_problem_is_reported_with_its_full_path() -> None:
    """One look at the message is enough to mend the whole file."""
    found = problems(
        {
            "backend": "nsight",
            "grups": {},
            "steps": [3, -1, "a"],
            "enabled": "yes",
            "on_error": "stop",
            "worker_groups": [1],
        },
        "cluster.profiling",
    )
    integer = 'expected an integer of at least 0 or a slice "start:stop" (stop exclusive)'
    assert [
        (
            "cluster.profiling.grups: unknown key; did you mean 'groups'? All keys: docs/keys.md, "
            "or gpuprof config schema"
        ),
        f"cluster.profiling.steps[1]: -1 is not valid; {integer}",
        f"cluster.profiling.steps[2]: 'a' is not valid; {integer}",
        "cluster.profiling.enabled: 'yes' is not valid; expected true or false",
        "cluster.profiling.worker_groups[0]: 1 is not valid; expected a name",
        "cluster.profiling.on_error: 'stop' is not valid; expected disable or raise",
    ] == found


def test_values_are_looked_at_beside_wrong_types() -> None:
    """Invalid values and values of a wrong type are reported together."""
    own = {
        "max_bytes": "10GB",
        "collect_every": -1,
        "discrete": "no",
        "max_windows": 0,
        "file_name": "{rnk}",
    }
    found = problems(
        {**NSIGHT, **own, "groups": {"A": {"ranks": "x", "max_windows": -1}}}, "profiling"
    )
    assert [
        "discrete",
        "max_windows",
        "file_name",
        "max_bytes",
        "collect_every",
        "groups.A.ranks[0]",
        "groups.A.max_windows",
    ] == [problem.removeprefix("profiling.").partition(":")[0] for problem in found]
    assert ["backend: 3 is not valid; expected a string"] == problems({"backend": 3})


def test_options_are_checked_before_a_group_is_selected() -> None:
    """A misspelt one is refused without `worker_groups`, too."""
    (problem,) = problems({"backend": "nsight", "nsight": {"executabel": "nsys"}})
    assert problem.startswith("nsight.executabel: unknown key; did you mean 'executable'?")


def test_the_backend_is_required() -> None:
    """A configuration without a backend is told the choice."""
    (problem,) = problems({"worker_groups": "all"})
    valid = problem.removeprefix("backend: missing; valid: ").split(", ")
    assert {"nsight", "rocprof_sys", "none"} <= set(valid)


def test_unknown_backend() -> None:
    """A backend that is not installed is refused by name, with what is."""
    with pytest.raises(
        PluginError,
        match=(
            r"^backend: 'nsigt' is not installed; did you mean 'nsight'\? Valid: none, nsight, "
            r".*rocprof_sys"
        ),
    ):
        Planner(load({"backend": "nsigt", "worker_groups": "all"}), "run", "/out")


def test_the_program_s_name_leads_to_its_backend() -> None:
    """Who names the tool is told the backend that runs it, also beside other problems."""
    expected = "backend: 'nsys' is not installed; did you mean 'nsight', which runs nsys? Valid: "
    with pytest.raises(PluginError) as caught:
        Planner(load({"backend": "nsys", "worker_groups": "all"}), "run", "/out")
    assert str(caught.value).startswith(f"{expected}none, nsight, ")
    first, second = problems({"backend": "nsys", "stpes": [1]})
    assert first.startswith(expected)
    assert second.startswith("stpes: unknown key; did you mean 'steps'? All keys: ")
    assert "nsys" not in second
    assert 1 == len(problems({"backend": "nsys", "stpes": [1], "enabled": False}))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("nodes", "", "a name, names separated by commas, a list of names, or null"),
        ("worker_groups", "  ", "a name, names separated by commas, a list of names, or null"),
        ("worker_groups", ["A", ""], "a name"),
        ("output_dir", "", "a directory, such as ."),
        ("staging_dir", " ", "a directory, such as ."),
        ("steps", ["7:3"], "its start is not below its stop"),
    ],
)
def test_a_value_that_says_nothing_is_refused(key: str, value: object, expected: str) -> None:
    """Empty names and directories, and slices that hold no step."""
    (problem,) = problems({**NSIGHT, key: value})
    assert problem.startswith(key)
    assert expected in problem


@pytest.mark.parametrize("given", ["A,B", " A , B,", ["A", "B"]])
def test_names_may_be_separated_by_commas(given: object) -> None:
    """On a command line nobody writes brackets."""
    assert load({**NSIGHT, "worker_groups": given}).worker_groups == ("A", "B")
    assert load(NSIGHT, overrides=["worker_groups=A,B"]).worker_groups == ("A", "B")
    assert [3, 5, 6] == list(load(NSIGHT, overrides=["steps=3,5:7"]).defaults.steps or ())


@pytest.mark.parametrize(
    "data", [{**NSIGHT, "enabled": False}, {"backend": "nsight", "worker_groups": None}]
)
def test_what_is_off_needs_no_backend(data: dict[str, Any]) -> None:
    """Switched off or without a group, neither backend nor tool has to be there."""
    Planner(load({**data, "backend": "not_installed"}), "run", "/out")


def test_the_other_backends_section_is_ignored() -> None:
    """Switching backends is one word: whatever the other one's section holds does not matter."""
    sections = {"nsight": {"options": {"t": "nvtx"}}, "rocprof_sys": {"no_such_key": [1, 2]}}
    Planner(load({**NSIGHT, **sections}), "run", "/out")
    valid = (
        "args, env, executable, interpreter_after_dashes, launcher, preset, python_frames, strict"
    )
    assert [f"rocprof_sys.no_such_key: unknown key; valid: {valid}"] == problems(
        {**NSIGHT, **sections, "backend": "rocprof_sys"}
    )


def test_flags_and_options_naming_the_same() -> None:
    """An option is named once, by whichever of its names."""
    assert ["nsight.flags: 'trace' is given by options.t too; name it once"] == problems(
        {**NSIGHT, "nsight": {"options": {"t": "nvtx"}, "flags": ["trace"]}}
    )


def test_values_are_not_converted() -> None:
    """A number where a string is wanted is an error, not a string."""
    assert ["nsight.executable: 3 is not valid; expected a string"] == problems(
        {**NSIGHT, "nsight": {"executable": 3}}
    )


def test_an_override_of_a_group_is_checked() -> None:
    """Groups' overrides are held to the same rules, at load time."""
    found = problems({**NSIGHT, "groups": {"Env*": {"ranks": [-2]}}})
    assert found[0].startswith("groups.Env*.ranks[0]: -2 is not valid")
    assert problems({**NSIGHT, "groups": {"Env*": {"stps": 1}}})[0].startswith(
        "groups.Env*.stps: unknown key; did you mean 'steps'?"
    )


def test_groups_override_in_order() -> None:
    """Wildcards apply in the file's order, in any case; keys that an override leaves out stay."""
    config = load(
        {
            **NSIGHT,
            "steps": [1],
            "groups": {"*group": {"ranks": [0], "steps": [2]}, "ActorGroup": {"ranks": [1, 2]}},
        }
    )
    actor, other = config.selection("ActorGroup"), config.selection("EnvGroup")
    assert ([1, 2], [2]) == (list(actor.ranks or ()), list(actor.steps or ()))
    assert ([0], [2]) == (list(other.ranks or ()), list(other.steps or ()))


@pytest.mark.parametrize(
    "settings",
    [
        {"overrides": ["groups.*Runner.name=Env", "groups.Monitor.record=false"]},
        {"environ": {"GPUPROF_GROUPS": "{'*Runner': {name: Env}, Monitor: {record: false}}"}},
    ],
)
def test_groups_of_a_job_on_ray_are_renamed_and_left_out(settings: dict[str, Any]) -> None:
    """By the names of the actors' classes; others keep theirs."""
    config = load(NSIGHT, **{"environ": {}, **settings})
    names = ("EvalRunner", "SingleAgentEnvRunner", "monitor", "Learner")
    assert ["Env", "Env", None, "Learner"] == [config.recorded_as(name) for name in names]


def test_a_later_entry_can_record_a_group_after_all() -> None:
    """As with every other key of a group."""
    groups = {"*": {"record": False}, "Learner": {"record": True, "ranks": [0]}}
    config = load({**NSIGHT, "groups": groups})
    assert [None, "Learner"] == [config.recorded_as(name) for name in ("Env", "Learner")]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ({"nam": "Env"}, "nam: unknown key; did you mean 'name'?"),
        ({"name": 3}, "name: 3 is not valid; expected a string or null"),
        ({"name": "a/b"}, "name: 'a/b' is not valid; expected a name without / { }"),
        ({"record": "no way"}, "record: 'no way' is not valid; expected true or false"),
        ({"name": "Env", "ranks": [0]}, "ranks: no effect with name; move it to groups.Env"),
        ({"record": False, "ranks": [0]}, "ranks: no effect with record: false; remove one"),
    ],
)
def test_a_rule_for_a_group_that_is_not_valid(override: dict[str, Any], problem: str) -> None:
    """The full path is named."""
    (found,) = problems({**NSIGHT, "groups": {"Runner*": override}})
    assert found.startswith(f"groups.Runner*.{problem}")


def test_yaml_file(tmp_path: Path) -> None:
    """A file is read as the mapping that it holds."""
    file = tmp_path / "profiling.yaml"
    file.write_text("backend: nsight\nworker_groups: all\nsteps: [2, '5:7']\n")
    assert [2, 5, 6] == list(load(file).selection("any").steps or ())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The file is named."""
    with pytest.raises(
        ConfigError,
        match=r"missing\.yaml: cannot be read: No such file or directory; expected a YAML file",
    ):
        load(tmp_path / "missing.yaml")


def test_missing_tool_says_how_to_install_it() -> None:
    """The error names the program, the command that installs it, and the way round."""
    planner = Planner(load({**NSIGHT, "nsight": {"executable": "no-such-nsys"}}), "run", "/out")
    with pytest.raises(
        ToolError,
        match=r"backend: 'nsight': 'no-such-nsys' is not on PATH\. Install .* backend: none",
    ):
        planner.check_tool()


def test_output_directory_below_a_file(tmp_path: Path) -> None:
    """A directory that cannot be made is refused before anything starts."""
    from gpuprof.ray import Profiler

    file = tmp_path / "file"
    file.touch()
    with pytest.raises(
        OutputError,
        match=r"^profiling\.output_dir: '.*/file/run' cannot be written: Not a directory \(.*\)",
    ):
        Profiler(
            {"backend": "none", "worker_groups": "all", "output_dir": str(file / "run")},
            path="profiling",
        )


def test_nothing_is_made_when_nothing_is_selected(tmp_path: Path) -> None:
    """No group, no directory."""
    from gpuprof.ray import Profiler

    Profiler({"backend": "nsight", "output_dir": str(tmp_path / "out")}).finalize()
    assert [] == list(tmp_path.iterdir())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
keys = st.sampled_from(
    [
        "backend",
        "enabled",
        "worker_groups",
        "ranks",
        "nodes",
        "steps",
        "continuous",
        "groups",
        "nsight",
        "plugins",
    ]
)


@given(st.dictionaries(keys | st.text(), json_values))
def test_whatever_is_wrong_is_a_config_error(data: dict[str, Any]) -> None:
    """No mapping, however strange, gives another exception than ours."""
    with contextlib.suppress(ConfigError, PluginError):
        Planner(load(data), "run", "/out")


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        ("verl", {"global_profiler": {"steps": [3]}, "trainer": {}}),
        ("verl", {"trainer": {"profile_steps": [3]}, "actor_rollout_ref": {}}),
        ("verl", {"trainer": {"profile_steps": [3]}}),
        ("rlinf", {"defaults": ["profile/default@cluster.profiling"], "runner": {}}),
        ("rlinf", {"cluster": {"num_nodes": 1}}),
        ("nemo-rl", {"NRL_NSYS_WORKER_PATTERNS": "*policy*"}),
    ],
)
def test_settings_of_another_system_are_recognised(system: str, settings: dict[str, Any]) -> None:
    """One line says how to read them, and not each of their keys that it is unknown."""
    with pytest.raises(ConfigError) as caught:
        load(settings)
    (problem,) = caught.value.problems
    assert problem.endswith(f"to read it as such, give --from {system} (system={system!r})")


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("verl", "trainer: {profile_steps: '${not.there}'}"),
        ("rlinf", "runner: {logger: '${not.there}'}\ncluster: {profiling: '${not.there}'}"),
        (
            "rlinf",
            "runner: {x: '???'}\ncluster: {profiling: {backend: nsight, steps: '${runner.x}'}}",
        ),
    ],
)
def test_the_hint_comes_before_values_that_cannot_be_resolved(
    system: str, text: str, tmp_path: Path
) -> None:
    """Whoever forgot --from learns that first."""
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert caught.value.problems[0].startswith(f"{file}: looks like settings of {system}")
    assert f"--from {system}" in caught.value.problems[0]


RLINF = {"runner": {}, "cluster": {"num_nodes": 1, "profiling": {"backend": "nsight"}}}


def test_rlinfs_section_without_its_system() -> None:
    """It is read as gpuprof's, and a note says that RLinf would read it otherwise."""
    (note,) = load(RLINF, environ={}).source.notes
    assert note.startswith("configuration: looks like settings of rlinf, but cluster.profiling is")
    assert "--from rlinf" in note


@pytest.mark.parametrize(
    ("settings", "system"),
    [
        (RLINF, "gpuprof"),
        ({"cluster": {"profiling": {"backend": "nsight"}}}, None),
        ({"trainer": {}, "profiling": {"backend": "nsight"}}, None),
    ],
)
def test_a_section_that_is_gpuprofs(settings: dict[str, Any], system: str | None) -> None:
    """Because the user says so, or nothing else in the file is RLinf's, or at a place of ours."""
    assert () == load(settings, system=system, environ={}).source.notes


@pytest.mark.parametrize("source", [None, {"backend": "nsight", "worker_groups": "all"}])
def test_nemo_rls_variables_that_nobody_reads(source: Any) -> None:
    """They are named, with or without a configuration of gpuprof's."""
    environ = {"NRL_NSYS_WORKER_PATTERNS": "*", "NRL_NSYS_PROFILE_STEP_RANGE": "1:2"}
    (note,) = load(source, environ=environ).source.notes
    assert note.startswith("NRL_NSYS_WORKER_PATTERNS, NRL_NSYS_PROFILE_STEP_RANGE: set, but not")
    assert "--from nemo-rl" in note
    assert () == load(source, system="gpuprof", environ=environ).source.notes


@pytest.mark.parametrize("backend", ["", " "])
def test_a_backend_without_a_name(backend: str) -> None:
    """Is refused with the names that are valid."""
    with pytest.raises(ConfigError) as caught:
        load({"backend": backend})
    (problem,) = caught.value.problems
    assert problem.startswith(f"backend: {backend!r} is not valid; valid: ")


@pytest.mark.parametrize(
    "settings", [{"profiling": {"global_profiler": 1}}, {"backend": "none", "global_profiler": 1}]
)
def test_settings_of_gpuprof_are_not_taken_for_anothers(settings: dict[str, Any]) -> None:
    """A key that another system has too is one that gpuprof does not know."""
    with pytest.raises(ConfigError, match="global_profiler: unknown key"):
        load(settings)


@pytest.mark.parametrize("given", [["ray", "queue", "ray"], "ray, queue"])
def test_instruments(given: object) -> None:
    """Each counts once."""
    assert ("ray", "queue") == load({"backend": "none", "instruments": given}).instruments


def test_an_unknown_instrument() -> None:
    """The error has its place, and those that there are."""
    (found,) = problems({"backend": "none", "instruments": ["ray", "jax"]}, "cluster.profiling")
    assert found == (
        "cluster.profiling.instruments[1]: 'jax' is not valid; expected ray, torch, or queue"
    )


@pytest.mark.parametrize("ledger", [False, {"bytes_per_step": "16KB"}])
def test_the_ledger_of_a_run_is_read_back(ledger: Any) -> None:
    """`run.json` has all of the key, and commands that read reports load it."""
    config = load({"backend": "none", "ledger": ledger})
    assert config.ledger == load(shown(config)).ledger


@pytest.mark.parametrize("name", ["train:step", "a.b:Trainer.step", "Learner.train"])
def test_step_at(name: str) -> None:
    """A function, a method, or a method of an actor."""
    assert name == load({"backend": "none", "step_at": name}).step_at


@pytest.mark.parametrize("name", ["step", "a b", "train:", ":step", "Learner.train()", ""])
def test_step_at_is_a_name(name: str) -> None:
    """Anything else is an error before the job starts."""
    (found,) = problems({"backend": "none", "step_at": name}, "profiling")
    assert (
        f"profiling.step_at: {name!r} is not valid; expected MODULE:FUNCTION, MODULE:CLASS.METHOD, "
        "or CLASS.METHOD for a method of an actor"
    ) == found


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"capture_slow": -1}, "-1 is not valid; expected a number of ranks, or 0 for none"),
        ({"capture_slow": 2, "ledger": False},
         "2: not valid with ledger: false, which shows who is slow; remove one of the two"),
        ({"capture_slow": 2, "staging_dir": "staged"},
         ("2: not valid with staging_dir: gpuprof looks for slow ranks in output_dir; remove one "
          "of the two")),
    ],
)  # fmt: skip
def test_slow_ranks_need_a_ledger_in_the_output_directory(
    keys: dict[str, object], problem: str
) -> None:
    """The search reads the ledgers there."""
    assert [f"capture_slow: {problem}"] == problems({"backend": "none", **keys})


def test_step_at_an_actors_method_needs_the_instrument() -> None:
    """The one that sees the calls of actors."""
    config = {"backend": "none", "step_at": "Learner.train", "instruments": ["torch"]}
    (found,) = problems(config, "profiling")
    assert (
        "profiling.step_at: Learner.train: needs the instrument ray, which sees an actor's calls; "
        "add it to instruments"
    ) == found


def test_instruments_need_a_ledger() -> None:
    """They write nowhere else."""
    (found,) = problems({"backend": "none", "instruments": ["ray"], "ledger": False}, "profiling")
    assert found == (
        "profiling.instruments: ray: not valid with ledger: false, which they write to; remove one "
        "of the two"
    )
