"""A backend of each version of the contract that works, which never changes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof._doctor.examine import examine
from gpuprof.backend import CONTRACT, contract, hookspecs
from support.waiting import DEADLINE

FROZEN = Path(__file__).parent / "frozen"
DIGESTS = {
    2: "5ff973e7ca45ac2eb6418c770dfcf815dfcf1a96c5ad27a8bb9c23164198df83",
}
"""Of each version's file."""
WORKER = """
import gpuprof
for number in range(4):
    with gpuprof.step(number), gpuprof.timer(f"train-{number}"):
        pass
"""


@pytest.fixture(params=DIGESTS)
def backend(request: pytest.FixtureRequest, install: Callable[..., str]) -> str:
    """The name of the installed backend of a version."""
    install((FROZEN / f"contract_{request.param}.py").read_text(), frozen="Frozen")
    return "frozen"


@pytest.mark.parametrize("version", sorted(DIGESTS))
def test_the_file_is_what_it_was(version: int) -> None:
    """What is to be proved of it is that nobody had to change it."""
    content = (FROZEN / f"contract_{version}.py").read_bytes()
    assert DIGESTS[version] == hashlib.sha256(content).hexdigest()


def test_every_version_has_a_backend() -> None:
    """From the oldest that works to today's."""
    assert list(range(contract.OLDEST, CONTRACT + 1)) == sorted(DIGESTS)


def test_the_newest_backend_has_every_hook() -> None:
    """A hook that is not there would not be tried."""
    source = (FROZEN / f"contract_{CONTRACT}.py").read_text()
    assert [] == [hook for hook in hookspecs.__all__ if f"    def {hook}(" not in source]


def test_it_records(backend: str, tmp_path: Path) -> None:
    """`gpuprof run` runs a worker under it, and `gpuprof report` reads its ranges."""
    (tmp_path / "worker.py").write_text(WORKER)
    settings = {"backend": backend, "steps": [1, 3], backend: {"title": "a title"}}
    (tmp_path / "job.yaml").write_text(json.dumps(settings))
    gpuprof = [sys.executable, "-m", "gpuprof"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*gpuprof, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    ran = run("run", "--config", "job.yaml", "--", sys.executable, "worker.py")
    assert 0 == ran.returncode, ran.stderr
    assert "Program-0: 2 of 2 reports complete" in ran.stderr
    contents = {
        path.name: json.loads(path.read_text())
        for path in tmp_path.glob("gpuprof-output/*/*/*.frozen.json")
    }
    assert {
        f"Program-0.step-{step}.frozen.json": ["a title", "Program-0", [[f"train-{step}", False]]]
        for step in (1, 3)
    } == contents
    (directory,) = tmp_path.glob("gpuprof-output/*")
    report = run("report", "--nvtx", str(directory))
    assert "train-1" in report.stdout, report.stderr


def test_the_doctor_takes_it(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its preflight and its checks are in the result."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    settings: dict[str, Any] = {"backend": backend, "worker_groups": "all"}
    checks = {check.name: check for check in examine(load(settings, environ={}))}
    assert "1.0 for all-0" == checks["frozen frozen"].detail
    assert [] == [check for check in checks.values() if not check.ok]
