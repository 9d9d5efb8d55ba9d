"""Which interpreter a worker runs in, and with which variables: as if it were not wrapped."""

from __future__ import annotations

import os
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from gpuprof.ray import Profiler
from support.integration_workers import Worker
from support.launching import config, start
from support.report_reader import labels

pytestmark = pytest.mark.nsys


@pytest.mark.exhaustive  # as in every other test on Ray
def test_the_interpreter_is_the_drivers_by_default(ray: Any, tmp_path: Path) -> None:
    """Where Ray runs in the driver's virtual environment, the worker runs in the same one."""
    with Profiler(config(tmp_path, steps=[0])) as profiler:
        inside = ray.get(start(profiler, "ActorGroup", 0).identity.remote())
    assert inside["wrapped"] is True
    assert sys.executable == inside["executable"]
    assert sys.prefix == inside["prefix"]


def test_a_node_that_has_not_the_drivers_paths(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker in Ray's own Python environment is captured without the driver's Python."""
    with Profiler(config(tmp_path, steps=[0])) as profiler:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(sys, "executable", "/nowhere/bin/python")
            elsewhere.setattr(
                "gpuprof.ray._runtime_env.PROGRAM", "/nowhere/gpuprof/_shim/__main__.py"
            )
            options = profiler.worker_options(group="ActorGroup", rank=0, num_cpus=0)
        assert "/nowhere/gpuprof/_shim/__main__.py" in options["runtime_env"]["py_executable"]
        actor = ray.remote(Worker).options(**options).remote()
        profiler.add(actor, group="ActorGroup", rank=0)
        with profiler.step(0):
            ray.get(actor.train.remote(0))
        inside = ray.get(actor.identity.remote())
    assert inside["wrapped"] is True
    assert sys.executable == inside["executable"]
    assert sys.prefix == inside["prefix"]
    (row,) = profiler.finalize().rows
    assert 3 == labels(row.file)["forward-0"]


def test_the_users_variables_win(ray: Any, tmp_path: Path) -> None:
    """The actor's and the job's variables win over the configuration's."""
    settings = config(
        tmp_path,
        steps=[0],
        nsight={"env": {"OWN": "config", "PYTHONPATH": "/nowhere", "OTHER": "config"}},
    )
    with Profiler(settings) as profiler:
        actor = start(profiler, "ActorGroup", 0, runtime_env={"env_vars": {"OWN": "actor"}})
        environment = (
            Path(f"/proc/{ray.get(actor.identity.remote())['pid']}/environ").read_text().split("\0")
        )
    expected = {"OWN": "actor", "PYTHONPATH": str(Path(__file__).parents[1]), "OTHER": "config"}
    assert expected == {
        name: value
        for name, _, value in (entry.partition("=") for entry in environment)
        if name in expected
    }


def test_a_given_py_executable_is_kept(ray: Any, tmp_path: Path) -> None:
    """A `py_executable` of the caller's own, options included, is what runs behind nsys."""
    own = tmp_path / "own environment"
    venv.create(own, with_pip=False, symlinks=True)
    paths = os.pathsep.join(path for path in sys.path if path)
    runtime_env = {"py_executable": f"'{own}/bin/python' -X dev", "env_vars": {"PYTHONPATH": paths}}
    with Profiler(config(tmp_path / "out", steps=[0])) as profiler:
        inside = ray.get(
            start(profiler, "ActorGroup", 0, runtime_env=runtime_env).identity.remote()
        )
    assert inside["wrapped"] is True
    assert str(own) == inside["prefix"]
    assert inside["dev_mode"] is True


def test_the_interpreter_of_a_pip_environment_is_kept(ray: Any, tmp_path: Path) -> None:
    """With `pip` in the runtime environment the worker runs in the environment that Ray makes."""
    wheel = tmp_path / "only_there-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("only_there.py", "")
        archive.writestr(
            "only_there-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: only_there\nVersion: 1.0\n",
        )
        archive.writestr(
            "only_there-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("only_there-1.0.dist-info/RECORD", "")
    runtime_env = {
        "pip": {"packages": [str(wheel)], "pip_install_options": ["--no-index", "--no-deps"]}
    }
    with Profiler(config(tmp_path / "out", steps=[0])) as profiler:
        inside = ray.get(
            start(profiler, "ActorGroup", 0, runtime_env=runtime_env).identity.remote()
        )
    assert inside["wrapped"]
    assert (
        Path(inside["prefix"])
        / "lib"
        / f"python3.{sys.version_info.minor}"
        / "site-packages"
        / "only_there.py"
    ).exists()
