"""Rendering the launchers' commands and their environment.

Nothing here proves that AMD's tool accepts them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Any

import attrs
import pytest
from gpuprof._config.load import load
from gpuprof._config.structure import structure
from gpuprof._plan.planner import Planner
from gpuprof.backend import Command, Tool, Window, Worker
from gpuprof.errors import ConfigError
from gpuprof_rocprof_sys._arguments import ARGUMENTS
from gpuprof_rocprof_sys._command import render, words
from gpuprof_rocprof_sys._environment import environment
from gpuprof_rocprof_sys._notes import notes
from gpuprof_rocprof_sys._options import RocprofSysOptions

WORKER = Worker("run", "ActorGroup", 0, "node", "1", "/out/run/node", (Window(1, 3, 4),))
LIFETIME = attrs.evolve(WORKER, windows=(Window(1, None, None),))
COMMAND = Command(("/venv/bin/python", "-X", "dev"), ("train.py",))
TOOL = Tool("/opt/rocm/bin/rocprof-sys-python")
PYTHON = "rocprof-sys-python"
BOOLEAN = "expected true or false, or null for it alone"
CLEAN = "env -u ROCPROFSYS_ROOT_PROCESS -u ROCPROFSYS_PYTHON_SCRIPT_FILE"


def rendered(**options: Any) -> str:
    return shlex.join(render(WORKER, COMMAND, TOOL, RocprofSysOptions(**options)))


def test_the_script_follows_the_dashes_and_the_interpreter_is_a_variable() -> None:
    """The real launcher would run an interpreter after `--` as source code, and end with 0."""
    args = {
        "label": ["file", "line"],
        "v": 2,
        "trace-c": None,
        "full-filepath": True,
        "MI": ["a b.py"],
    }
    expected = (
        f"{CLEAN} PYTHON_EXECUTABLE=/venv/bin/python {TOOL.path} -b --label file line -v 2 "
        "--trace-c"
    )
    assert f"{expected} --full-filepath=true -MI 'a b.py' -- train.py" == rendered(args=args)


def test_the_module_needs_no_launcher() -> None:
    """`module` runs the package beside the launcher with the worker's own Python and flags."""
    line = rendered(launcher="module", args={"b": None})
    assert line.startswith(f"{CLEAN} /bin/sh -c ")
    assert line.endswith(f"{TOOL.path} /venv/bin/python -X dev -m rocprofsys -b -- train.py")


@pytest.mark.parametrize(("own", "entries"), [(None, 1), ("", 1), ("/own", 2)])
def test_the_module_adds_nothing_but_the_package(own: str | None, entries: int) -> None:
    """No entry of the path is empty, which would be the working directory."""
    prefix = render(WORKER, Command(("printenv",)), TOOL, RocprofSysOptions(launcher="module"))
    shell = prefix[prefix.index("/bin/sh") : prefix.index("printenv")]
    environment = {"PATH": os.environ["PATH"], **({} if own is None else {"PYTHONPATH": own})}
    done = subprocess.run(
        [*shell, "printenv", "PYTHONPATH"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = ["/opt/rocm/bin/../lib/python/site-packages", "/own"][:entries]
    assert expected == done.stdout.strip().split(":")


@pytest.mark.parametrize("launcher", ["sample", "run"])
def test_the_native_launchers_take_an_interpreter(launcher: Any) -> None:
    """What follows `--` is an ordinary command."""
    expected = f"{CLEAN} {TOOL.path} -T true --freq=50 -- /venv/bin/python -X dev train.py"
    assert expected == rendered(launcher=launcher, args={"T": True, "freq": 50})


@pytest.mark.parametrize(
    ("args", "launcher", "variables", "words"),
    [
        ({"T": "hip"}, "python", {"ROCM_DOMAINS": "hip_runtime_api,marker_api"}, []),
        ({"T": "hip"}, "sample", {"ROCM_DOMAINS": "hip_runtime_api,marker_api"}, []),
        (
            {"T": "hip,hsa,rccl", "output-format": "json"},
            "module",
            {
                "ROCM_DOMAINS": "hip_runtime_api,hsa_api,marker_api",
                "USE_RCCLP": "true",
                "PROFILE": "true",
            },
            [],
        ),
        ({"output-format": "rocpd"}, "python", {"USE_ROCPD": "true"}, []),
        ({"F": "true"}, "python", {}, ["-F", "true"]),
    ],
)
def test_arguments_of_rlinfs_documentation(
    args: dict[str, Any], launcher: Any, variables: dict[str, str], words: list[str]
) -> None:
    """Each is rendered, or becomes the variable that has its effect, with a note."""
    options = structure({"args": args, "launcher": launcher}, RocprofSysOptions)
    named = {f"ROCPROFSYS_{name}": value for name, value in variables.items()}
    assert named == options.env
    line = rendered(launcher=launcher, args=args).split()
    assert words == [word for word in line if word in {"-T", "-F", "true"}]
    said = [note.partition(":")[0] for note in notes(LIFETIME, Tool("t", "1.6.0"), options)]
    assert [f"args.{key}" for key in args if not words] == said


def test_your_own_variables_beat_arguments() -> None:
    """The note says so."""
    env = {"ROCPROFSYS_ROCM_DOMAINS": "marker_api"}
    options = structure({"args": {"T": "hip"}, "env": env}, RocprofSysOptions)
    assert env == options.env
    assert [
        (
            "args.T: 'hip' is read as env ROCPROFSYS_ROCM_DOMAINS=hip_runtime_api,marker_api: "
            "rocprof-sys-python has no such option; your env wins: "
            "ROCPROFSYS_ROCM_DOMAINS=marker_api"
        )
    ] == notes(LIFETIME, Tool("t", "1.6.0"), options)


def test_the_documented_form_on_request() -> None:
    """The form that other systems document is rendered literally, for wrappers."""
    line = rendered(
        args={"T": "hip,hsa,rccl", "output-format": "json", "x": True},
        interpreter_after_dashes=True,
    )
    assert (
        f"{TOOL.path} -T hip,hsa,rccl --output-format=json -x true -- /venv/bin/python -X dev "
        "train.py" == line
    )


def test_python_functions_of_a_whole_life() -> None:
    """Without steps Python frames are traced from the start, with steps from the window on."""
    options = RocprofSysOptions(python_frames=True)
    assert "-b" not in render(LIFETIME, COMMAND, TOOL, options)
    assert "-b" in render(WORKER, COMMAND, TOOL, options)


def test_nothing_renders_to_nothing() -> None:
    """No arguments, no words; a flag that is false neither."""
    assert [] == words({})
    assert [] == words({"builtin": False})


def test_the_environment_and_the_users_own() -> None:
    """The worker sets output path and prefix, the user's values win, markers are removed."""
    options = RocprofSysOptions(
        env={"ROCPROFSYS_SAMPLING_FREQ": "100", "ROCPROFSYS_OUTPUT_PATH": "/mine"}
    )
    assert {
        "ROCPROFSYS_OUTPUT_PATH": "/mine",
        "ROCPROFSYS_OUTPUT_PREFIX": "ActorGroup-0.start-1-",
        "ROCPROFSYS_TIME_OUTPUT": "false",
        "ROCPROFSYS_USE_PID": "true",
        "ROCPROFSYS_TRACE": "true",
        "ROCPROFSYS_PROFILE": "false",
        "ROCPROFSYS_USE_ROCPD": "false",
        "ROCPROFSYS_ROOT_PROCESS": None,
        "ROCPROFSYS_PYTHON_SCRIPT_FILE": None,
        "ROCPROFSYS_SAMPLING_FREQ": "100",
    } == environment(WORKER, TOOL, options)


@pytest.mark.parametrize(
    ("version", "added"),
    [
        (None, {}),
        ("0.1.0", {"ROCPROFSYS_USE_ROCTX": "true"}),
        ("1.2.0", {}),
        ("1.6.0", {"ROCPROFSYS_SELECTED_REGIONS": "gpuprof"}),
        ("1.9.1", {"ROCPROFSYS_SELECTED_REGIONS": "gpuprof"}),
    ],
)
def test_what_a_release_adds_to_the_environment(version: str | None, added: dict[str, str]) -> None:
    """Regions are selected only with windows and a release that can, not an unknown one."""
    plain = environment(WORKER, TOOL, RocprofSysOptions())
    tool = Tool(TOOL.path, version)
    assert {**plain, **added} == environment(WORKER, tool, RocprofSysOptions())
    assert "ROCPROFSYS_SELECTED_REGIONS" not in environment(LIFETIME, tool, RocprofSysOptions())


@pytest.mark.parametrize("directory", ["/out/100%", "/out/$env{HOME}"])
def test_a_path_that_the_tool_would_expand_is_refused(directory: str) -> None:
    """There is no way to say a per cent sign to it."""
    with pytest.raises(
        ConfigError, match=r"^output_dir: '.*' is not valid with rocprof_sys; expected no %"
    ):
        environment(attrs.evolve(WORKER, directory=directory), TOOL, RocprofSysOptions())


def test_the_plan_says_that_steps_are_not_separated() -> None:
    """What the backend does not do is in the plan, and why."""
    planner = Planner(
        load({"backend": "rocprof_sys", "worker_groups": "all", "steps": [3]}), "run", "/out"
    )
    (unknown,) = planner.worker("ActorGroup", 0).notes
    assert unknown.startswith(
        "whole-process capture: the release is unknown, so assuming no gate for the GPU (1.6 "
        "has one)"
    )
    assert () == planner.worker("ActorGroup", 0, tool=Tool("t", "1.6.0")).notes


@pytest.mark.parametrize(
    ("options", "version", "note"),
    [
        (
            {"args": {"T": "hip"}, "strict": False},
            "1.6.0",
            "passed on anyway: args.T: rocprof-sys-python has no such option",
        ),
        (
            {"launcher": "run", "args": {"selected-regions": "a"}},
            "1.2.0",
            "args.selected-regions: needs release 1.6; 1.2.0 is installed",
        ),
        (
            {"interpreter_after_dashes": True},
            "1.6.0",
            "interpreter_after_dashes: AMD's own launcher exits with 0",
        ),
        ({}, "0.1.0", "rocprof-sys-python of release 0.1.0 splits arguments at spaces"),
        (
            {"preset": "deep"},
            "1.6.0",
            "ROCPROFSYS_USE_SAMPLING interrupts every thread 100 times a second",
        ),
        (
            {"env": {"ROCPROFSYS_USE_SAMPLING": "ON"}},
            "1.6.0",
            "ROCPROFSYS_USE_SAMPLING interrupts every thread 300 times a second",
        ),
        (
            {"env": {"ROCPROFSYS_ROCM_DOMAINS": "hip_runtime_api,kernel_dispatch"}},
            "1.6.0",
            "your ROCPROFSYS_ROCM_DOMAINS records no ranges",
        ),
    ],
)
def test_what_the_plan_warns_of(options: dict[str, Any], version: str, note: str) -> None:
    """Each warning names its key or its release."""
    found = notes(LIFETIME, Tool("t", version), structure(options, RocprofSysOptions))
    assert [note] == [text[: len(note)] for text in found]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"args": {"": 1}},
            "args.: '' is not valid; expected an option's name without dashes or =",
        ),
        (
            {"args": {"-T": 1}},
            "args.-T: '-T' is not valid; expected an option's name without dashes or =",
        ),
        ({"args": {"o": "x"}}, "args.o: gpuprof names the files itself; set output_dir"),
        (
            {"args": {"T": "hip,hpi"}},
            (
                "args.T: 'hip,hpi' is not valid; expected one or more of hip, hsa, roctx, kernel, "
                "memcpy, rccl"
            ),
        ),
        (
            {"args": {"T": "hpi"}, "launcher": "sample"},
            f"args.T: 'hpi' is not valid; {BOOLEAN}",
        ),
        (
            {"args": {"output-format": "csv"}},
            (
                "args.output-format: 'csv' is not valid; expected one or more of json, text, txt, "
                "rocpd, perfetto"
            ),
        ),
        (
            {"args": {"lable": "file"}},
            "args.lable: rocprof-sys-python has no such option; did you mean 'label'?",
        ),
        (
            {"args": {"cpus": [1]}},
            "args.cpus: rocprof-sys-python has no such option; launcher sample and run have it",
        ),
        (
            {"args": {"fork": None}, "launcher": "sample"},
            "args.fork: rocprof-sys-sample has no such option; launcher run has it",
        ),
        ({"args": {"v": "much"}}, "args.v: 'much' is not valid; expected an integer"),
        (
            {"args": {"label": ["file", "names"]}},
            "args.label: ['file', 'names'] is not valid; expected args or file or line",
        ),
        (
            {"args": {"b": "true"}},
            (
                "args.b: 'true' is not valid; expected null, which renders it, or false, which "
                "leaves "
                "it out"
            ),
        ),
        (
            {"launcher": "run", "interpreter_after_dashes": True},
            (
                "interpreter_after_dashes: true is not valid with launcher run; the others take an "
                "interpreter anyway"
            ),
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    """Each refusal names the key, the value and what would be valid, or what was probably meant."""
    with pytest.raises(ConfigError) as caught:
        structure(options, RocprofSysOptions)
    assert [message] == list(caught.value.problems)


def test_a_launcher_that_does_not_exist() -> None:
    """The valid ones are listed."""
    with pytest.raises(
        ConfigError,
        match=(
            r"rocprof_sys\.launcher: 'shell' is not valid; expected python, module, sample, "
            r"or run"
        ),
    ):
        load_section({"launcher": "shell"})


def load_section(section: dict[str, Any]) -> Planner:
    return Planner(
        load({"backend": "rocprof_sys", "worker_groups": "all", "rocprof_sys": section}),
        "run",
        "/out",
    )


def test_no_option_is_declared_twice() -> None:
    """A key means one option of a launcher."""
    for launcher in ("python", "module", "sample", "run"):
        names = [
            name
            for argument in ARGUMENTS
            if launcher in argument.launchers
            for name in argument.names
        ]
        assert sorted(set(names)) == sorted(names)


def test_a_path_that_is_refused_is_named_by_its_key() -> None:
    """Where the configuration is a part of a larger one, with the whole way to it."""
    config = load({"backend": "rocprof_sys", "worker_groups": "all"}, "cluster.profiling")
    with pytest.raises(
        ConfigError,
        match=(
            r"^cluster\.profiling\.output_dir: '/100%/run/\{node\}' is not valid with "
            r"rocprof_sys"
        ),
    ):
        Planner(config, "run", "/100%").worker("A", 0)
