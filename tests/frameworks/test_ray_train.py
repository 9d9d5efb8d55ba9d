"""The example of Ray Train on docs/ray.md."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpuprof._analysis import reading
from support.waiting import DEADLINE

PAGE = Path(__file__).parents[2] / "docs" / "ray.md"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pandas") is None, reason="Ray Train needs pandas"
)


def test_each_worker_of_ray_train_has_its_steps(address: str, tmp_path: Path) -> None:
    """Both ranks have five steps, and the scopes of the training function."""
    _, _, example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "job.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": address, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (directory,) = (file.parent for file in tmp_path.glob("gpuprof-output/*/run.json"))
    run = reading.read(directory)
    assert [0, 1, 2, 3, 4] == [step.number for step in run.steps]
    assert 2 == len(run.edges)
    assert {"backward", "report"} <= {place.name for place in run.places}
