"""A real Hydra program whose defaults list names our preset."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hydra")
APP = Path(__file__).parents[1] / "support" / "hydra_app.py"


def plans(tmp_path: Path, *overrides: str) -> list[dict[str, Any]]:
    """What the program plans: gpuprof's own reading, and RLinf's."""
    done = subprocess.run(
        [sys.executable, str(APP), *overrides],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_preset_is_found(tmp_path: Path) -> None:
    """One line in the defaults list is enough; groups, options and overrides arrive."""
    for plan in plans(tmp_path, "+cluster.profiling.steps=[3]"):
        actor, critic = plan["workers"]
        assert actor["profiled"] is True
        assert critic["profiled"] is False
        assert ["step-3"] == [window["label"] for window in actor["windows"]]
        options = [
            "-t",
            "cuda,cudnn,cublas,nvtx,osrt",
            "--sample=process-tree",
            "--cpuctxsw=process-tree",
        ]
        assert options == actor["command"][2:6]
        assert {"--cudabacktrace=all", "--osrt-threshold=1000"} < set(actor["command"])


def test_rlinfs_output_directory(tmp_path: Path) -> None:
    """Derived from the logger's, where it is read as RLinf reads it."""
    own, rlinf = plans(tmp_path)
    assert own["workers"][0]["files"][0]["file"].startswith(str(tmp_path))
    assert rlinf["workers"][0]["files"][0]["file"].startswith("/results/libero/profiling/")


def test_the_switch_of_one_word(tmp_path: Path) -> None:
    """Another backend, and the options of the first are nobody's business."""
    for plan in plans(tmp_path, "cluster.profiling.backend=rocprof_sys"):
        assert "rocprof_sys" == plan["backend"]
        assert "env" == plan["workers"][0]["command"][0]


@pytest.mark.parametrize("name", ["default", "light", "standard", "deep", "rocprof_sys"])
def test_every_preset_can_be_named(name: str, tmp_path: Path) -> None:
    """Each file of the package composes to a valid configuration with Hydra's preset."""
    (tmp_path / "app.yaml").write_text(
        f"defaults:\n  - profile/{name}@cluster.profiling\n  - _self_\n"
    )
    own, _ = plans(tmp_path, "--config-path", str(tmp_path), "--config-name", "app")
    assert own["workers"][0]["profiled"]
