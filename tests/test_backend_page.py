"""The page on writing a backend, run as it stands: its files pass the conformance kit."""

from __future__ import annotations

import os
import pstats
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import plugins

PAGE = Path(__file__).parents[1] / "docs" / "write-a-backend.md"
BLOCK = re.compile(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", re.DOTALL)
FEW = "its_entry_point or pure or command or option or refused or a_whole_life_is_captured"
"""Checks of all that the page writes; most others start workers, as for the suite's own backends.
"""
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files of the page, each made of its blocks in order."""
    directory = tmp_path_factory.mktemp("gpuprof-memray")
    for name, text in BLOCK.findall(PAGE.read_text()):
        with open(directory / name, "a") as file:
            file.write(
                "\n" + textwrap.indent(text, "    ") if text.startswith("@hookimpl") else text
            )
    return directory


@pytest.fixture(scope="module")
def environment(project: Path) -> Mapping[str, str]:
    """Variables with which a new interpreter finds the distribution, installed as a wheel."""
    site = project / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
    ]
    subprocess.run([*command, str(project)], check=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    (project / "tmp").mkdir()  # pytest leaves the directories of its last runs there
    return {**os.environ, "PYTHONPATH": str(site), "PATH": path, "TMPDIR": str(project / "tmp")}


def run(command: list[str], project: Path, environment: Mapping[str, str]) -> str:
    """Run a command in the project; everything that it prints."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(
        command, cwd=project, env=dict(environment), text=True, check=False, **streams
    )  # type: ignore[call-overload]
    assert 0 == done.returncode, done.stdout
    return str(done.stdout)


@pytest.mark.parametrize(
    "checks", [FEW, pytest.param("test", marks=pytest.mark.exhaustive)], ids=["few", "all"]
)
def test_the_pages_backend_conforms(
    checks: str, project: Path, environment: Mapping[str, str]
) -> None:
    """Its own tests, which are the kit, pass with the installed memray; none is skipped."""
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-k", checks]
    printed = run(command, project, environment)
    assert re.search(r"\d\d passed", printed), printed
    assert "memray is not installed" not in printed


def test_the_pages_backend_is_listed(project: Path, environment: Mapping[str, str]) -> None:
    """Lists it with its version, distribution and memray, and its options with their help."""
    row = next(
        line
        for line in run(["gpuprof", "backends"], project, environment).splitlines()
        if line.startswith("memray")
    )
    assert {"0.1.0", "gpuprof-memray"} <= set(row.split())
    assert "record C and C++ frames too" in run(
        ["gpuprof", "backends", "--options", "memray"], project, environment
    )


def test_the_pages_commands_of_gpuprof_work(project: Path, environment: Mapping[str, str]) -> None:
    """What the page shows of the command line, word for word."""
    lines = [line for block in SHELL.findall(PAGE.read_text()) for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("gpuprof ")]
    assert commands
    printed = [run(command, project, environment) for command in commands]
    assert "-m memray run --quiet --native -o" in printed[-1]
    assert "memray records the whole life of a worker" in printed[-1]


JOB = """
import gpuprof

def work(): sum(range(1000))

for number in range(4):
    with gpuprof.step(number):
        work()
"""


def test_the_pages_profiler_inside_the_process_records_a_step(tmp_path: Path) -> None:
    """Its block is a backend as it stands."""
    (source,) = re.findall(r"```python\n(import cProfile\n.*?)```", PAGE.read_text(), re.DOTALL)
    plugins.install(tmp_path, source, cprofile="CProfileBackend")
    (tmp_path / "job.py").write_text(JOB)
    settings = ["--set", "backend=cprofile", "--set", "steps=[2]"]
    command = [sys.executable, "-m", "gpuprof", "run", *settings, "--", sys.executable, "job.py"]
    run(command, tmp_path, {**os.environ, "PYTHONPATH": str(tmp_path)})
    (file,) = tmp_path.rglob("*.pstats")
    assert file.name.endswith(".step-2.pstats")
    stats: Any = pstats.Stats(str(file))
    ((calls, *_),) = (row for (_, _, name), row in stats.stats.items() if name == "work")
    assert 1 == calls
