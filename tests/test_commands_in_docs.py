"""The commands in pages about settings run as they stand, and their Python compiles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/configuration.md",
    *(f"docs/frameworks/{name}.md" for name in ("rlinf", "verl", "nemo-rl")),
]
COMPOSED = """
defaults: [profile/default@cluster.profiling]
runner: {logger: {log_path: ../results, experiment_name: libero}}
cluster: {num_nodes: 1}
"""
CONFIG = "profiling: {backend: nsight, worker_groups: [ActorGroup], steps: [3]}\n"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page that are in a language, which may be empty."""
    found = re.findall(
        r"^```(\w*)[^\n]*\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    return [body for name, body in found if name == language]


def commands(page: str) -> list[str]:
    """The lines that call gpuprof to look at settings."""
    shells = [*blocks(page, ""), *blocks(page, "sh")]
    lines = [line for block in shells for line in block.splitlines()]
    lines += re.findall(r"`(gpuprof (?:plan|config) [^`\n]+)`", (ROOT / page).read_text())
    return [line for line in lines if re.match(r"(\w+=\S+ )*gpuprof (plan|config) ", line)]


@pytest.mark.parametrize(
    ("page", "line"), [(page, line) for page in PAGES for line in commands(page)]
)
def test_a_command_runs(page: str, line: str, tmp_path: Path) -> None:
    """In a directory with the files that it names."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "composed.yaml").write_text(COMPOSED)
    for name, copy in [("verl_today", "ppo"), ("verl_sft", "sft")]:
        shutil.copy(ROOT / "tests" / "settings" / f"{name}.yaml", tmp_path / f"{copy}.yaml")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert "profiled with" in done.stdout or "plan" not in line.split()


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_commands(page: str) -> None:
    """No page passes because nothing of it was found."""
    assert commands(page)


@pytest.mark.parametrize("page", PAGES)
def test_python_compiles(page: str) -> None:
    """What a reader would paste is Python."""
    for block in blocks(page, "python"):
        compile(block, page, "exec")
