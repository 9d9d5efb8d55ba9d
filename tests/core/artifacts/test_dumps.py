"""What processes answer to `gpuprof stacks`, as the command reads it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts import dumps
from gpuprof._session.dump import VERSION


def answer(rank: int, **changes: Any) -> dict[str, Any]:
    thread = {"id": 1, "name": "MainThread", "main": True, "frames": [["load", "a.py", 3]],
              "scope": None, "waits": [], "cpu": None}  # fmt: skip
    about = {"name": f"A-{rank}", "group": "A", "rank": rank, "node": "n", "pid": 1}
    return {"version": VERSION, **about, "threads": [thread], **changes}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"threads": [{"name": "MainThread"}]}, "threads[0].frames: missing"),
        (
            {"tasks": [{"name": "t", "frames": [["f", "a.py"]], "scope": None, "waits": []}]},
            "tasks[0].frames[0]: ['f', 'a.py'] is not valid; expected a list of function, file ",
        ),
        ({"workers": [7]}, "workers[0]: 7 is not valid; expected a mapping"),
        ({"state": "asleep"}, "state: 'asleep' is not valid; expected answered, by signal, "),
    ],
)
def test_a_damaged_answer_is_one_sentence(
    changes: dict[str, Any],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It names the file and the key, and the other processes' answers are read."""
    question = tmp_path / "question"
    question.mkdir()
    for rank, content in enumerate((answer(0), answer(1, **changes))):
        (question / f"n.A-{rank}.start-1.json").write_text(json.dumps(content))
    monkeypatch.setattr(dumps, "_question", lambda *_: str(question))
    with caplog.at_level(logging.WARNING, "gpuprof"):
        (process,) = dumps.ask(str(tmp_path), patience=0)
    assert "A-0" == process.name
    (sentence,) = caplog.messages
    assert sentence.startswith(f"{question}/n.A-1.start-1.json: ignored: damaged: {problem}")
