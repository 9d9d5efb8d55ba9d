"""Damages what processes answer to `gpuprof stacks`, and reads it as the command does."""

from __future__ import annotations

import copy
import json
import os
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

from gpuprof._artifacts import dumps
from gpuprof._report import standstill
from gpuprof._session.dump import VERSION, snapshot
from gpuprof._shim.node import node_name
from support.fuzzing import within

NAME = "answers"
_SECONDS = 60
"""For one case, which takes milliseconds."""
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 0.5, 2**31, 2**63, 1e308, "", "\0", "..", "\ud800", "ff" * 16, "dead", [],
    {}, [[]], [None], [0, 0, 2**40], ["f", "a.py", "3"], {"path": 1}, {"on": "ray.get"},
    {"runs": "a"},
)  # fmt: skip


def answer(rank: int) -> dict[str, Any]:
    """What a rank answers, with one of each kind of wait."""
    threads = snapshot(time.perf_counter_ns)["threads"]
    key, actor = f"{rank:016x}", "ab" * 16
    threads[0]["waits"] = [{"on": "ray.get", "calls": [[key, actor]]}, {"runs": key, "name": "f"}]
    threads[0]["scope"] = {"path": "train/torch.all_reduce", "seconds": 3.5, "waits_for": None}
    task = {"name": "Task-1", "frames": [["f", "a.py", 3]], "waits": [], "scope": None}
    return {
        "version": VERSION, "name": f"A-{rank}", "group": "A", "rank": rank, "node": node_name(),
        "pid": os.getpid(), "time": time.time(), "step": 3, "quiet": 2.0, "threads": threads,
        "tasks": [task], "ended": 7, "actor": actor, "rank of job": rank,
        "groups": [{"name": "world", "ranks": [[0, 1, 3]], "begun": 4 - rank % 2}],
        "flight": [
            {"name": "world", "group": "world", "between_two": False, "operation": "all_reduce",
             "number": 4, "seconds": 3.0},
        ],
        "workers": [{"worker": "A-7", "node": "n", "pid": 1, "file": "n.A-7.start-1.json"}],
    }  # fmt: skip


def run(seed: int, count: int) -> None:
    """Ask `count` times, twice each, and read damaged answers.

    Raises:
        AssertionError: with the command that repeats the first case that is not read as it should.
    """
    blocked = threading.Event()
    thread = threading.Thread(target=blocked.wait, name="waits")
    thread.start()
    try:
        for number in range(seed, seed + count):
            try:
                with within(_SECONDS):
                    _case(random.Random(number))
            except BaseException as error:
                repeat = f"python tests/fuzz --seed {number} --count 1 {NAME}"
                raise AssertionError(f"{error!r}\nrepeat: {repeat}") from error
    finally:
        blocked.set()
        thread.join()


def _case(chance: random.Random) -> None:
    looks = [_look(chance), _look(chance)]
    waits = standstill.sentences(*looks)
    standstill.text(*looks, waits, [], full=True)
    json.loads(standstill.as_json(*looks, waits, []))


def _look(chance: random.Random) -> list[dumps.Process]:
    with tempfile.TemporaryDirectory() as directory:
        question = Path(directory, "question")
        question.mkdir()
        for rank in range(3):
            content = answer(rank)
            for _ in range(chance.choice((0, 1, 1, 3))):
                _damage(chance, content)
            (question / f"n.A-{rank}.start-1.json").write_text(json.dumps(content))
        with (
            mock.patch.object(dumps, "_question", return_value=str(question)),
            mock.patch.object(dumps, "log"),
        ):
            return dumps.ask(directory, patience=0)


def _damage(chance: random.Random, data: Any) -> None:
    """Another value, or none, somewhere inside."""
    while isinstance(data, (dict, list)) and data:
        key = chance.choice(list(data) if isinstance(data, dict) else range(len(data)))
        if chance.random() < 0.3 or not isinstance(data[key], (dict, list)) or not data[key]:
            if isinstance(data, dict) and chance.random() < 0.3:
                del data[key]
            else:
                data[key] = copy.deepcopy(chance.choice(_VALUES))
            return
        data = data[key]
