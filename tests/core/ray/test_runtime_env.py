"""The runtime environment of a worker, and its command, run by Ray's shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._shim.row import VARIABLE, VERSION, encode
from gpuprof.errors import ConfigError
from gpuprof.ray._runtime_env import interpreter, merge
from support.waiting import DEADLINE

Env = dict[str, Any]
OURS = {VARIABLE: "row"}


@pytest.mark.parametrize(
    ("actor", "job", "expected"),
    [
        ({}, {}, []),
        ({"working_dir": "/w"}, {"env_vars": {"A": "1"}}, []),
        ({"py_executable": "'/a b/python' -X dev"}, {}, ["/a b/python", "-X", "dev"]),
        ({}, {"py_executable": "uv run"}, ["uv", "run"]),
        ({"py_executable": "/own/python"}, {"py_executable": "uv run"}, ["/own/python"]),
        ({"pip": ["x"]}, {}, ["python"]),
        ({}, {"uv": ["x"]}, ["python"]),
        ({}, {"conda": "named"}, ["python"]),
        ({"pip": ["x"]}, {"py_executable": "uv run"}, ["uv", "run"]),
    ],
)
def test_the_interpreter_is_what_ray_would_start(actor: Env, job: Env, expected: list[str]) -> None:
    """The actor's own, else the job's, else that of an environment, else none."""
    assert expected == interpreter(actor, job)


def test_a_profiled_controllers_shim_is_not_its_workers_interpreter() -> None:
    """It is in the runtime environment that the controller's job seems to have."""
    inherited = merge({}, {}, OURS, True, "runtime_env")
    assert [] == interpreter({}, inherited)
    assert ["/own/python"] == interpreter({"py_executable": "/own/python"}, inherited)


def test_what_is_not_ours_is_kept() -> None:
    """The caller's options and variables stay; an unwrapped worker gets nothing else."""
    given = {"working_dir": "/w", "excludes": ["x"], "env_vars": {"MINE": "1"}, "pip": ["x"]}
    assert {**given, "env_vars": {"MINE": "1", **OURS}} == merge(
        given, {"working_dir": "/job"}, OURS, False, "runtime_env"
    )
    assert {*given, "py_executable"} == merge(given, {}, OURS, True, "runtime_env").keys()
    assert {"MINE": "1"} == given["env_vars"]


@pytest.mark.parametrize(
    "key", ["nsight", "_nsight", "rocprof_sys", "_rocprof_sys", "image_uri", "container"]
)
def test_another_wrapper_is_refused_wherever_it_was_given(key: str) -> None:
    """A worker inherits the job's, too; the message says whose it is.

    One that is not wrapped may have it.
    """
    with pytest.raises(
        ConfigError, match=rf"^runtime_env\.{key}: 'default' is not valid together with gpuprof"
    ):
        merge({key: "default"}, {}, OURS, True, "runtime_env")
    with pytest.raises(
        ConfigError,
        match=rf"^the job's runtime_env\.{key}: 'default' is not valid together with gpuprof",
    ):
        merge({}, {key: "default"}, OURS, True, "runtime_env")
    assert "default" == merge({key: "default"}, {}, OURS, False, "runtime_env")[key]


def test_a_variable_of_ours_is_refused() -> None:
    """Nobody else can know what is in it."""
    with pytest.raises(
        ConfigError,
        match=rf"^runtime_env\.env_vars\.{VARIABLE}: 'theirs' is not valid; gpuprof sets",
    ):
        merge({"env_vars": {VARIABLE: "theirs"}}, {}, OURS, False, "runtime_env")


PYTHON = sys.executable
AWKWARD = ["a b", "$HOME", "'", '"', "\\", ""]
SEEN = (
    "import os, sys; print([os.environ.get('WRAPPED'), sys.executable, sys.flags.dev_mode, "
    "*sys.argv[1:]])"
)


def run(
    directory: Path, given: Env | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start a worker as Ray does, whose profiler is a program that only sets a variable."""
    row = {
        "version": VERSION,
        "run": "run",
        "group": "A",
        "rank": 0,
        "output_dir": str(directory),
        "nodes": ["all"],
    }
    launch = {
        "command": ["{tool}", "WRAPPED=1", "{interpreter}"],
        "environment": {},
        "interpreter": interpreter(given or {}, {}),
    }
    row["launch"] = {
        **launch,
        "tool": "env",
        "tool_version": None,
        "shared_temporary": [],
        "disposable_temporary": [],
    }
    variables = {**os.environ, VARIABLE: encode(row), **environment}
    command = merge(given or {}, {}, OURS, True, "runtime_env")["py_executable"]
    line = " ".join(["exec", command, *(shlex.quote(word) for word in ["-c", SEEN, *AWKWARD])])
    return subprocess.run(
        ["bash", "-c", line],
        env=variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has neither of the driver's paths."""
    monkeypatch.setattr(sys, "executable", "/nowhere/bin/python")
    monkeypatch.setattr("gpuprof.ray._runtime_env.PROGRAM", "/nowhere/gpuprof/_shim/__main__.py")


def make_python(file: Path, script: str = "") -> Path:
    """A Python that is a script: ours, after `script`."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'#!/bin/sh\n{script}\nexec {shlex.quote(PYTHON)} "$@"\n')
    file.chmod(0o755)
    return file


def test_the_worker_is_started_behind_its_profiler(tmp_path: Path) -> None:
    """With every argument as it was, whatever a shell would make of it."""
    done = run(tmp_path)
    assert (repr(["1", PYTHON, False, *AWKWARD]), "") == (done.stdout.strip(), done.stderr)


def test_a_node_of_other_paths_uses_rays_own_python_there(nowhere: None, tmp_path: Path) -> None:
    """The raylet's command names the Python, and its gpuprof runs, not the driver's."""
    python = make_python(tmp_path / "ray" / "python", f'echo "$1" >>{tmp_path}/used')
    raylet = [PYTHON, "-c", "input()", f"--python_worker_command={python} setup_worker.py --more"]
    with subprocess.Popen(raylet, stdin=subprocess.PIPE) as process:
        done = run(tmp_path, RAY_RAYLET_PID=str(process.pid))
        process.communicate(b"\n")
    assert (repr(["1", PYTHON, False, *AWKWARD]), "") == (done.stdout.strip(), done.stderr)
    assert ["-c", "-S"] == (tmp_path / "used").read_text().split()  # looks for the shim, runs it


def test_a_node_of_other_paths_uses_what_is_on_path(nowhere: None, tmp_path: Path) -> None:
    """Where no raylet tells its Python either."""
    path = make_python(tmp_path / "bin" / "python3").parent
    done = run(tmp_path, PATH=f"{path}:{os.environ['PATH']}")
    assert (repr(["1", PYTHON, False, *AWKWARD]), "") == (done.stdout.strip(), done.stderr)


@pytest.mark.parametrize(
    ("given", "dev_mode"), [({}, False), ({"py_executable": f"{PYTHON} -X dev"}, True)]
)
def test_a_node_without_gpuprof_runs_the_worker(
    nowhere: None, tmp_path: Path, given: Env, dev_mode: bool
) -> None:
    """It runs unwrapped, with a warning; otherwise Ray would wait for it in vain."""
    path = make_python(
        tmp_path / "bin" / "python3", 'case "$*" in *"import gpuprof"*) exit 1; esac'
    ).parent
    done = run(tmp_path, given, PATH=f"{path}:{os.environ['PATH']}")
    assert repr([None, PYTHON, dev_mode, *AWKWARD]) == done.stdout.strip()
    said = (
        f"gpuprof: {os.uname().nodename}: not installed for python3; "
        "the worker runs without a profiler\n"
    )
    assert said == done.stderr


def test_a_given_interpreter_that_a_node_lacks_is_replaced(tmp_path: Path) -> None:
    """By the Python that the shim runs in, arguments and all, and said."""
    done = run(tmp_path, {"py_executable": "/nowhere/python -X dev"})
    assert repr(["1", PYTHON, True, *AWKWARD]) == done.stdout.strip()
    assert (
        f"gpuprof: A-0 runs in {PYTHON}: /nowhere/python is not on {os.uname().nodename}\n"
        == done.stderr
    )
