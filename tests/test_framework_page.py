"""The page on supporting a framework, run as it stands: a job of its framework is recorded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "frameworks" / "support.md"
FIRST = re.compile(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", re.DOTALL)
FURTHER = re.compile(r"```python\n(def timers.*?)```", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the page's commands print, where its files are installed."""
    place = tmp_path_factory.mktemp("tinyrl")
    text = PAGE.read_text()
    for name, source in FIRST.findall(text):
        (place / name).write_text(source)
    with open(place / "gpuprof_tinyrl.py", "a") as file:
        file.writelines(FURTHER.findall(text))
    points = re.findall(r'\[project\.entry-points\."(.+?)"\]\n(.+)', text)
    for name, version in (("tinyrl", "1.0"), ("gpuprof-tinyrl", "0.1.0")):
        about = place / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(METADATA.format(name=name, version=version))
    group, line = points[0]
    (about / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    (commands,) = COMMANDS.findall(text)
    done = subprocess.run(
        ["sh", "-euc", commands],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    return done.stdout


@pytest.mark.parametrize("scope", ["collect", "update"])
def test_the_frameworks_timers_are_scopes(printed: str, scope: str) -> None:
    """Each by its own name, once in each step."""
    assert re.search(rf"^{scope} +20 ", printed, re.MULTILINE), printed


def test_the_frameworks_steps_are_steps(printed: str) -> None:
    """`gpuprof explain` counts them, and knows what bounds them."""
    assert re.search(r"of 20 steps", printed), printed
    assert "collect" in printed.partition("bounds a step:")[2].splitlines()[0]
