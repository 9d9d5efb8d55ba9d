"""Which processes of a program are recorded, and under which names."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from multiprocessing import managers, pool
from typing import Any

import pytest
from gpuprof._launch import children
from gpuprof._launch.children import _process_row, _spawned_row

CONTEXT = multiprocessing.get_context("spawn")


def sample() -> None:
    """What the program has another process do."""


class Worker(CONTEXT.Process):  # type: ignore[name-defined, misc]
    """A process of the program's own."""


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that this one starts are counted from none."""
    monkeypatch.setattr(children, "_process", (os.getpid(), None))
    monkeypatch.setattr(children, "_started", Counter())
    monkeypatch.setattr(children, "_helpers", Counter())


def name(process: Any, **row: Any) -> str:
    """The name of the worker that a process is; empty if it is not recorded."""
    own: Any = {"group": "Worker", "rank": 0, "profiled": False, **row}
    made = _process_row(own, process)
    return "" if made is None else f"{made['group']}-{made['rank']}"


def test_a_group_is_named_after_its_function() -> None:
    """Its ranks are counted as they start."""
    process = CONTEXT.Process(target=sample)
    assert ["sample-0", "sample-1"] == [name(process), name(process)]


def test_a_group_of_a_function_without_a_name_is_a_valid_name() -> None:
    """A fork may run a lambda."""
    assert "lambda-0" == name(CONTEXT.Process(target=lambda: None))


def test_a_class_with_the_starters_name_is_another_group() -> None:
    """Or its ranks would be those of the program that starts them."""
    assert "WorkerProcess-0" == name(Worker())


def test_processes_of_libraries_are_not_recorded() -> None:
    """The server of a manager, for one."""
    assert "" == name(CONTEXT.Process(target=managers.BaseManager._run_server))


def test_the_processes_of_a_pool_help_the_one_that_started_it() -> None:
    """They run its functions, and it may make new ones all the time."""
    process = CONTEXT.Process(target=pool.worker)
    assert "Worker-0-pool-0" == name(process)
    own: Any = {"group": "Learner", "rank": 3, "profiled": False, "instruments": ["torch"]}
    made = _process_row(own, process)
    assert made is not None
    assert ("Learner-3-pool", 0, True) == (made["group"], made["rank"], made["helps"])
    assert "instruments" not in made
    names = [name(process) for _ in range(children._MOST_HELPERS)]
    assert ["Worker-0-pool-31", ""] == names[-2:]


def test_below_a_profiler_nothing_is_recorded() -> None:
    """It follows the processes itself."""
    assert "" == name(CONTEXT.Process(target=sample), profiled=True)


def test_no_more_than_so_many_are_recorded() -> None:
    """A program may start one for each piece of work."""
    process = CONTEXT.Process(target=sample)
    names = [name(process) for _ in range(children._MOST + 1)]
    assert ["sample-255", ""] == names[-2:]


def test_a_step_of_the_script_is_one_in_its_processes() -> None:
    """There the script is another module."""
    row: Any = {"group": "Worker", "profiled": False, "step_at": "__main__:train"}
    made = _spawned_row(row, CONTEXT.Process(target=sample))
    assert made is not None
    assert "__mp_main__:train" == made["step_at"]
