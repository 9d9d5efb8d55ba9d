"""The tutorial's commands and files, as they stand, and what they print of a planted slow rank."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "tutorial"
FIRST, LINE = "first-profile.md", "from-step-to-line.md"
STRAGGLER, COMPARED = "find-a-straggler.md", "compare-two-runs.md"


class Reader:
    """Somebody who follows the tutorial in a directory.

    Args:
        directory: an empty one.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        text = (PAGES / FIRST).read_text() + (PAGES / LINE).read_text()
        for name, body in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', text, re.M | re.S):
            (directory / name).write_text(body)

    def follow(self, page: str, heading: str) -> list[subprocess.CompletedProcess[str]]:
        """Run the commands below a heading, those that install something aside."""
        part = (PAGES / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
        blocks = re.findall(r"^```sh\n(.*?)^```", part, re.M | re.S)
        lines = [line for block in blocks for line in block.splitlines()]
        assert lines
        return [self.type(line) for line in lines if not line.startswith("pip ")]

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run one command line."""
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith("GPUPROF_")
        }
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env={**variables, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader who has run the job, with its parts named."""
    reader = Reader(tmp_path_factory.mktemp("tutorial"))
    (done,) = reader.follow(FIRST, "Name the parts")
    assert 0 == done.returncode, done.stderr
    assert "bounds a step:  Trainer" in done.stderr
    assert "backward" in done.stderr
    return reader


@pytest.fixture(scope="module")
def comparer(reader: Reader) -> Reader:
    """The same with a second run, of which one rank is slow."""
    (done,) = reader.follow(STRAGGLER, "Make a rank slow")
    assert 0 == done.returncode, done.stderr
    return reader


def test_the_first_page_begins_without_an_edit(tmp_path: Path) -> None:
    """Its job imports nothing of gpuprof, and its method is named."""
    reader = Reader(tmp_path)
    assert "gpuprof" not in (tmp_path / "job.py").read_text()
    (done,) = reader.follow(FIRST, "Run it")
    assert "bounds a step:  Trainer" in done.stderr
    assert "Trainer.train" in done.stderr


@pytest.mark.exhaustive
def test_the_first_page_names_the_slow_loader(tmp_path: Path) -> None:
    """Not the rank that waits for it in `backward`."""
    *_, done = Reader(tmp_path).follow(FIRST, "Under torchrun")
    assert "bounds a step:  Worker-1" in done.stdout
    assert "if Worker-1 were as fast" in done.stdout


@pytest.mark.exhaustive
def test_the_second_page_names_the_line(tmp_path: Path) -> None:
    """In two commands, in a job that imports nothing of gpuprof."""
    run, explained = Reader(tmp_path).follow(LINE, "Run it, and ask")
    assert 0 == run.returncode, run.stderr
    assert "of DataLoader.next: copy.deepcopy, slow.py:11" in explained.stdout


@pytest.mark.exhaustive
def test_the_third_page_finds_the_slow_rank(comparer: Reader) -> None:
    """By name, with the scope in which it is slow."""
    (done,) = comparer.follow(STRAGGLER, "Ask why")
    assert "Trainer-2 is slow in backward" in done.stdout
    assert 0 == done.returncode


@pytest.mark.exhaustive
def test_the_fourth_page_fails_for_the_slow_rank(comparer: Reader) -> None:
    """Its scope is named with the rank; against the baseline, the exit code says so.

    By how much a whole step became slower, the machine's other work decides, too.
    """
    (compared,) = comparer.follow(COMPARED, "What became slower?")
    assert re.search(r"Trainer\.train/backward +2: \+", compared.stdout)
    kept, against = comparer.follow(COMPARED, "Fail a CI job")
    assert [0, 1] == [each.returncode for each in (kept, against)]
    assert json.loads((comparer.directory / "perf.json").read_text())


@pytest.mark.nsys
@pytest.mark.exhaustive
def test_the_first_page_records_reports(tmp_path: Path) -> None:
    """The same job under nsys, without a change of its files."""
    reader = Reader(tmp_path)
    job, ranges = reader.follow(FIRST, "Add a profiler")
    assert 0 == job.returncode, job.stderr
    assert "3 of 3 reports complete" in job.stderr + job.stdout
    assert "backward" in ranges.stdout
