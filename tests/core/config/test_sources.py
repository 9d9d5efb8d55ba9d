"""Where settings come from, and which of two sources wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof.errors import ConfigError

BASE = {"backend": "none", "worker_groups": "all", "steps": [1]}


def steps(*arguments: Any, **more: Any) -> list[int] | None:
    """The steps that a configuration selects; None is the whole life."""
    found = load(*arguments, **{"environ": {}, **more}).defaults.steps
    return None if found is None else list(found)


def problems(*arguments: Any, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(*arguments, **{"environ": {}, **more})
    return list(caught.value.problems)


def test_precedence() -> None:
    """Overrides beat the environment, which beats the file, which beats the defaults."""
    environ = {"GPUPROF_STEPS": "2"}
    assert None is steps({"backend": "none"})
    assert [1] == steps(BASE)
    assert [2] == steps(BASE, environ=environ)
    assert [3] == steps(BASE, environ=environ, overrides=["steps=[3]"])


@pytest.mark.parametrize(
    "text",
    [
        "steps=[3,10]",
        "+steps=[3,10]",
        "++profiling.steps=[3,10]",
        "cluster.profiling.steps=[3,10]",
        "steps=[3, 10:11]",
    ],
)
def test_overrides_in_hydras_form(text: str) -> None:
    """With or without a plus, and with or without the path of the section."""
    assert [3, 10] == steps(BASE, overrides=[text])


def test_an_override_below_a_key() -> None:
    """Mappings on the way are made, and what stands beside the key stays."""
    config = load(
        {**BASE, "groups": {"A": {"ranks": [0]}}},
        environ={},
        overrides=["groups.A.steps=[7]", "nsight.options.t=cuda,nvtx"],
    )
    assert ([0], [7]) == (
        list(config.selection("A").ranks or ()),
        list(config.selection("A").steps or ()),
    )


def test_an_override_removes_a_key() -> None:
    """A tilde takes a key out; one that is not there is said."""
    assert None is steps(BASE, overrides=["~steps"])
    assert ["ranks: not set, so '~ranks' cannot remove it"] == problems(BASE, overrides=["~ranks"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("instruments=", "names of ray, torch, queue, as a list or separated by commas or null"),
        ("watchdog= ", "a number or null"),
        ("output_dir=", "a directory, such as ."),
    ],
)
def test_an_empty_override_is_not_null(text: str, expected: str) -> None:
    """Null would set the default, such as all instruments; an empty text is refused."""
    key = text.partition("=")[0]
    assert [f"{key}: '' is not valid; expected {expected}"] == problems(BASE, overrides=[text])


@pytest.mark.parametrize("text", ["steps", "=3", "a..b=1", "+", "~"])
def test_what_is_no_override(text: str) -> None:
    """An override without a key or a value is refused in the words that were given."""
    assert [
        f"{text!r} is not valid as an override; expected key.key=value, +key=value or ~key"
    ] == problems(BASE, overrides=[text])


def test_an_override_cannot_go_through_a_value() -> None:
    """What is no mapping has no keys."""
    assert ["steps: [1] is not a mapping, so 'steps.a=1' cannot be applied"] == problems(
        BASE, overrides=["steps.a=1"]
    )


@pytest.mark.parametrize(
    ("variable", "value", "key", "expected"),
    [
        ("GPUPROF_BACKEND", "none", "backend", "none"),
        ("GPUPROF_ENABLED", "false", "enabled", False),
        ("GPUPROF_ENABLED", "0", "enabled", False),
        ("GPUPROF_ENABLED", "1", "enabled", True),
        ("GPUPROF_MAX_BYTES", "1", "max_bytes", 1),
        ("GPUPROF_WORKER_GROUPS", "Actor*,Env", "worker_groups", ("Actor*", "Env")),
        ("GPUPROF_WORKER_GROUPS", "*policy*, *vllm*", "worker_groups", ("*policy*", "*vllm*")),
        ("GPUPROF_WORKER_GROUPS", "*", "worker_groups", ("*",)),
        ("GPUPROF_WORKER_GROUPS", "all", "worker_groups", ("all",)),
        ("GPUPROF_WORKER_GROUPS", "null", "worker_groups", None),
        ("GPUPROF_OUTPUT_DIR", "123", "output_dir", "123"),
        ("GPUPROF_ON_ERROR", "raise", "on_error", "raise"),
    ],
)
def test_variables(variable: str, value: str, key: str, expected: object) -> None:
    """Keys by their names in capitals; commas make lists, and what is text stays text."""
    assert expected == getattr(load(BASE, environ={variable: value}), key)


def test_variables_of_ranks_and_steps() -> None:
    """Integers and slices, with commas or in brackets, and null."""
    config = load(BASE, environ={"GPUPROF_RANKS": "0,2:4", "GPUPROF_STEPS": "[7]"})
    assert ([0, 2, 3], [7]) == (
        list(config.defaults.ranks or ()),
        list(config.defaults.steps or ()),
    )
    assert None is load(BASE, environ={"GPUPROF_RANKS": "null"}).defaults.ranks


def test_an_empty_variable_sets_nothing() -> None:
    """It is how shells unset."""
    assert [1] == steps(BASE, environ={"GPUPROF_STEPS": ""})


def test_a_wrong_variable_is_named() -> None:
    """The message has the variable, not a key that nobody wrote."""
    found = problems(BASE, environ={"GPUPROF_STEPS": "3,-1", "GPUPROF_ENABLED": "maybe"})
    assert "GPUPROF_STEPS[1]: -1 is not valid" == found[0].partition(";")[0]
    assert "GPUPROF_ENABLED: 'maybe' is not valid; expected true or false" == found[1]


def test_a_misspelt_variable() -> None:
    """Nearly a key is an error; anything else may be another program's."""
    assert ["GPUPROF_STPES: unknown variable; did you mean GPUPROF_STEPS?"] == problems(
        BASE, environ={"GPUPROF_STPES": "3"}
    )
    assert [1] == steps(
        BASE, environ={"GPUPROF_REQUIRE_NSYS": "1", "GPUPROF_RUN": "x", "GPUPROF_WORKER": "y"}
    )


def test_the_file_of_the_environment(tmp_path: Path) -> None:
    """Read where no other is given."""
    file = tmp_path / "a.yaml"
    file.write_text("backend: none\nsteps: [4]\n")
    assert [4] == steps(environ={"GPUPROF_CONFIG": str(file)})
    assert [1] == steps(BASE, environ={"GPUPROF_CONFIG": str(file)})


def test_the_environment_alone() -> None:
    """Without a file, variables make a configuration; without those there is none."""
    assert [2] == steps(environ={"GPUPROF_BACKEND": "none", "GPUPROF_STEPS": "2"})
    assert problems(environ={"GPUPROF_STEPS": "2"})[0].startswith("backend: missing")
    assert load(environ={}).selects_nothing


@pytest.mark.parametrize("path", ["profiling", "cluster.profiling"])
def test_a_section_of_a_larger_file(path: str, tmp_path: Path) -> None:
    """Found by its name, and errors have its whole path."""
    keys = path.split(".")
    body = "".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(keys))
    file = tmp_path / "all.yaml"
    file.write_text(f"training: {{lr: 1}}\n{body}{'  ' * len(keys)}{{backend: none, steps: [5]}}\n")
    assert [5] == steps(file)
    file.write_text(f"{body}{'  ' * len(keys)}{{backend: none, stpes: [5]}}\n")
    assert problems(file)[0].startswith(f"{file}: {path}.stpes: unknown key; did you mean 'steps'?")


def test_an_empty_section_profiles_nothing() -> None:
    """As a configuration that is not there."""
    assert load({"cluster": {"profiling": None}}, environ={}).selects_nothing


def test_slices_need_no_quotes(tmp_path: Path) -> None:
    """YAML 1.1 would read 10:13 as ten minutes and thirteen seconds."""
    file = tmp_path / "a.yaml"
    file.write_text("backend: none\nsteps: [10:13]\nranks: 2:4\n")
    assert [10, 11, 12] == steps(file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("backend: none\nsteps: [1]\nsteps: [2]\n", "duplicate key 'steps'"),
        ("backend: [\n", "cannot be read as YAML"),
        ("? [1]\n: 2\n", "cannot be read as YAML"),
        ("a: 2026-02-30\n", "cannot be read as YAML"),
        ("\0", "cannot be read as YAML"),
    ],
)
def test_files_that_are_not_read(text: str, reason: str, tmp_path: Path) -> None:
    """The file is named, and what is wrong with it."""
    file = tmp_path / "a.yaml"
    file.write_text(text)
    [problem] = problems(file)
    assert problem.startswith(str(file))
    assert reason in problem


def test_a_mapping_that_contains_itself() -> None:
    """No end is looked for."""
    data: dict[str, Any] = {"backend": "none"}
    data["groups"] = {"A": data}
    assert "contains itself" in problems(data)[0]


def test_interpolations_of_a_file(tmp_path: Path) -> None:
    """Resolved by OmegaConf; what is not read need not be resolvable."""
    file = tmp_path / "a.yaml"
    file.write_text(
        "n: 6\nrest: ${nowhere}\nprofiling: {backend: none, steps: ['${n}'], output_dir: "
        "'${oc.env:HOME}/x'}\n"
    )
    assert [6] == steps(file)
    file.write_text("profiling: {backend: none, steps: ['${nowhere}'], ranks: '???'}\n")
    found = problems(file)
    assert "profiling.steps[0]: Interpolation key 'nowhere' not found" in found[0]
    assert found[1].startswith(f"{file}: profiling.ranks: Missing mandatory value")


def test_an_object_of_omegaconf() -> None:
    """Read as the mapping that it resolves to, in part or whole."""
    omegaconf = pytest.importorskip("omegaconf")
    whole = omegaconf.OmegaConf.create(
        {"n": [3, 4], "cluster": {"profiling": {**BASE, "steps": "${n}"}}}
    )
    assert [3, 4] == steps(whole)
    assert [3, 4] == steps(whole.cluster.profiling, "cluster.profiling")


def test_options_beside_the_backend() -> None:
    """Flat keys belong to the backend's section; keys it lacks are another backend's."""
    from gpuprof_nsight import NsightBackend
    from gpuprof_rocprof_sys import RocprofSysBackend

    flat = {
        "worker_groups": "all",
        "options": {"t": "nvtx"},
        "flags": ["x"],
        "args": {"b": None},
        "env": {"A": "1"},
    }
    nsight = load({"backend": "nsight", **flat}, environ={}).options("A", NsightBackend.Options)
    rocprof = load({"backend": "rocprof_sys", **flat}, environ={}).options(
        "A", RocprofSysBackend.Options
    )
    assert ({"t": "nvtx"}, ["x"], {"A": "1"}) == (nsight.options, nsight.flags, nsight.env)
    assert ({"b": None}, {"A": "1"}) == (rocprof.args, rocprof.env)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"options": {"t": []}}, "x.options.t: "),
        ({"nsight": {"options": {"t": []}}}, "x.nsight.options.t: "),
        ({"options": {"t": "nvtx"}, "nsight": {"executable": 3}}, "x.nsight.executable: 3"),
        ({"options": {"s": "none"}, "nsight": {"options": {"t": []}}}, "x.nsight.options.t: "),
        ({"groups": {"A*": {"nsight": {"options": {"t": []}}}}}, "x.groups.A*.nsight.options.t: "),
    ],
)
def test_wrong_options_are_named_where_they_stand(data: dict[str, Any], expected: str) -> None:
    """Beside the backend, in its section, or in a group's."""
    [problem] = problems({"backend": "nsight", "worker_groups": "all", **data}, "x")
    assert problem.startswith(expected)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """The schema's problems and the backend's, at the top and below groups."""
    found = problems(
        {
            "backend": "nsight",
            "worker_groups": "all",
            "stpes": [1],
            "nsight": {"flgs": []},
            "groups": {"A": {"ranks": [-1]}},
        }
    )
    assert ["stpes", "groups.A.ranks[0]", "nsight.flgs"] == [
        problem.partition(":")[0] for problem in found
    ]


def test_the_options_of_a_backend_that_is_off_are_not_read() -> None:
    """Nor need it be installed."""
    assert not load(
        {"backend": "nsight", "enabled": False, "nsight": {"flgs": []}}, environ={}
    ).enabled
    assert "nowhere" == load({"backend": "nowhere", "enabled": False}, environ={}).backend
