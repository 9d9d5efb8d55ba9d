"""Record the run of docs/real-run.md: its explanation, its page and its timeline.

Usage: python scripts/real_run.py DIRECTORY

The site's build calls it; DIRECTORY gets explain.txt, page.html and timeline.perfetto.gz.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "real-run.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^gpuprof run -- (.*)$", re.MULTILINE)
MOST = 2_000_000
"""Bytes of everything: a site that a reader loads."""


def record(directory: Path) -> None:
    """Run the page's program by the page's command.

    Raises:
        SystemExit: a command failed, or the files are too large.
    """
    text = PAGE.read_text(encoding="utf-8")
    (program,), (command,) = PROGRAM.findall(text), COMMAND.findall(text)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        Path(place, "train.py").write_text(program, encoding="utf-8")
        _gpuprof(place, "run", "--", *command.split())
        (run,) = Path(place, "gpuprof-output").iterdir()
        explanation = _gpuprof(place, "explain")
        _gpuprof(place, "html", "--output", "page.html")
        _gpuprof(place, "timeline", "--output", "timeline.perfetto.gz")
        # the page on the site leaves out where it was made
        explanation = explanation.replace(str(run), f"gpuprof-output/{run.name}")
        (directory / "explain.txt").write_text(explanation, encoding="utf-8")
        for name in ("page.html", "timeline.perfetto.gz"):
            shutil.copy(Path(place, name), directory)
    size = sum(path.stat().st_size for path in directory.iterdir())
    if size > MOST:
        sys.exit(f"{directory}: {size} bytes; at most {MOST} are meant for the site")


def _gpuprof(place: str, *arguments: str) -> str:
    folder = os.path.dirname(sys.executable)
    path = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    process = subprocess.run(
        [sys.executable, "-m", "gpuprof", *arguments],
        cwd=place,
        env={**os.environ, "PATH": path, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        sys.exit(f"gpuprof {' '.join(arguments)}: {process.stdout}{process.stderr}")
    return process.stdout


if __name__ == "__main__":
    record(Path(sys.argv[1]))
