"""Trial runs of nsys that fail at random."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof_nsight._nsys import trial


@pytest.mark.parametrize(
    "said",
    [
        "Dynamic exception type: boost::exception",
        "Connection refused",
        "Connection reset by peer",
        "Connection to the Agent lost.",
    ],
)
def test_a_start_that_failed_at_random_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """Where nsys's agent came too late, nsys's words say nothing about the options."""
    monkeypatch.setattr(trial, "_PAUSES", (0.0, 0.0, 0.0))
    begun = tmp_path / "begun"
    script = f'if [ -e "{begun}" ]; then echo well; else touch "{begun}"; echo "{said}"; fi'
    assert "well\n" == trial.output_of(["sh", "-c", script], str(tmp_path))


def test_options_that_nsys_refuses_are_tried_once(tmp_path: Path) -> None:
    """Its words are the answer."""
    script = f'echo again >>"{tmp_path}/count"; echo "usage: nsys"'
    assert "usage: nsys\n" == trial.output_of(["sh", "-c", script], str(tmp_path))
    assert "again\n" == (tmp_path / "count").read_text()
