"""The page on programs that attach: its code is the example's, and its program is profiled."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "attach.md").read_text()
plugin = pytest.importorskip("gpuprof_py_spy.plugin")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_the_pages_code_is_the_examples(block: str) -> None:
    """Each block after the program, at whatever depth it is indented."""
    lines = [line.strip() for line in inspect.getsource(plugin).splitlines()]
    assert textwrap.dedent(block).strip().replace("    ", "") in "\n".join(lines)


def test_the_pages_command_prints_what_it_shows(tmp_path: Path) -> None:
    """Both windows of the page's program have a report."""
    (tmp_path / "train.py").write_text(BLOCKS[0])
    (command,) = re.findall(r"^```sh\n(.*)\n```", PAGE, re.MULTILINE)
    (expected,) = re.findall(r"^```text\n(.*)\n```", PAGE, re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        shlex.split(command),
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == process.returncode, process.stderr
    assert expected in process.stderr
