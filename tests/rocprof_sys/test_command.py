"""Rendering `rocprof-sys-python` and its environment. Nothing here proves that AMD's tool accepts them."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof import Command, Tool, Window, Worker
from gpuprof._config import load
from gpuprof._plan import Planner
from gpuprof.errors import ConfigError, ToolError
from gpuprof_rocprof_sys._command import environment, render, words
from gpuprof_rocprof_sys._options import RocprofSysOptions

WORKER = Worker("run", "ActorGroup", 0, "node", "1", "/out/run/node", (Window(1, 3, 4),))
COMMAND = Command(("/venv/bin/python",), ("train.py",))
TOOL = Tool("/opt/rocm/bin/rocprof-sys-python")


def test_the_script_follows_the_dashes_and_the_interpreter_is_a_variable() -> None:
    """The real launcher would run an interpreter after `--` as source code, and end with 0."""
    options = RocprofSysOptions(args={"label": "file", "v": 2, "trace-c": None, "full-filepath": True})
    expected = "env -u ROCPROFSYS_ROOT_PROCESS -u ROCPROFSYS_PYTHON_SCRIPT_FILE PYTHON_EXECUTABLE=/venv/bin/python"
    expected += f" {TOOL.path} -b --label=file -v 2 --trace-c --full-filepath=true -- train.py"
    assert expected.split() == render(COMMAND, TOOL, options)


def test_the_documented_form_on_request() -> None:
    """Letter by letter what other systems document, for wrappers that accept it."""
    options = RocprofSysOptions(args={"T": "hip,hsa,rccl", "output-format": "json"}, interpreter_after_dashes=True)
    expected = [TOOL.path, "-T", "hip,hsa,rccl", "--output-format=json", "--", "/venv/bin/python", "train.py"]
    assert expected == render(COMMAND, TOOL, options)


def test_the_environment_and_the_users_own() -> None:
    """Output path and prefix come from the worker; what the user gives wins; inherited markers are removed."""
    made = environment(WORKER, RocprofSysOptions(env={"ROCPROFSYS_SAMPLING_FREQ": "100", "ROCPROFSYS_OUTPUT_PATH": "/mine"}))
    assert ("/mine", "ActorGroup-0.start-1-", "100") == (
        made["ROCPROFSYS_OUTPUT_PATH"],
        made["ROCPROFSYS_OUTPUT_PREFIX"],
        made["ROCPROFSYS_SAMPLING_FREQ"],
    )
    assert {None} == {made["ROCPROFSYS_ROOT_PROCESS"], made["ROCPROFSYS_PYTHON_SCRIPT_FILE"]}


def test_nothing_renders_to_nothing() -> None:
    """No arguments, no words."""
    assert [] == words({})


def test_the_plan_says_that_steps_are_not_separated() -> None:
    """What the backend does not do is in the plan."""
    config = load({"backend": "rocprof_sys", "worker_groups": "all", "steps": [3]})
    planned = Planner(config, "run", "/out").worker("ActorGroup", 0)
    assert (True, ("whole-process capture: the steps are not separated",)) == (planned.profiled, planned.notes)


@pytest.mark.parametrize("name", ["", "-T", "a=b", "a b"])
def test_arguments_that_cannot_be(name: str) -> None:
    """A name is a name, without its dashes and value."""
    with pytest.raises(ConfigError, match=r"args\."):
        RocprofSysOptions(args={name: "x"})


def test_a_missing_launcher_is_an_error_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the program, where it comes from, and the way round."""
    monkeypatch.setenv("PATH", str(tmp_path))
    planner = Planner(load({"backend": "rocprof_sys", "worker_groups": "all"}), "run", "/out")
    with pytest.raises(ToolError, match=r"'rocprof-sys-python' is not on PATH\. It comes with ROCm .* backend: none"):
        planner.check_tool()
