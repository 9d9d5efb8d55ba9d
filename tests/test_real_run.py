"""The run that the site shows is recorded by a script, and the planted cause is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.scripts import script

# `make docs` records the run, too; tests/integration/test_unmodified.py has a job of its kind
pytestmark = [pytest.mark.torch, pytest.mark.exhaustive]
real_run = script("real_run")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's files of one run."""
    directory = tmp_path_factory.mktemp("real-run")
    real_run.record(directory)
    return directory


def test_the_planted_cause_is_explained(recorded: Path) -> None:
    """Rank 1's reader, as on the page."""
    bound = r"bounds a step:  Worker-1 \d+ % \(DataLoader.next \d+ %\)"
    texts = (recorded / "explain.txt").read_text(), real_run.PAGE.read_text()
    assert [True, True] == [re.search(bound, text) is not None for text in texts]


def test_the_page_and_the_timeline_are_there(recorded: Path) -> None:
    """Both are complete."""
    assert (recorded / "page.html").read_text().rstrip().endswith("</html>")
    assert b"\x1f\x8b" == (recorded / "timeline.perfetto.gz").read_bytes()[:2]
