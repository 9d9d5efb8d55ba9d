"""Who waits for whom, from what processes answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof._analysis.standstill import doings
from gpuprof._artifacts.dumps import Process
from gpuprof._report.standstill import sentences
from support.simulated_run import SimulatedLedger

NOT_AN_ACTOR = "ff" * 12 + "01000000"


def process(name: str, *waits: Mapping[str, Any], function: str = "work", **answer: Any) -> Process:
    """One whose main thread is in a function of the job's."""
    group, _, rank = name.rpartition("-")
    main = {
        "id": 1, "name": "MainThread", "main": True, "scope": None, "cpu": 0.0,
        "frames": [[function, "/home/me/train.py", 7]], "waits": list(waits),
    }  # fmt: skip
    known = {"threads": [main], "tasks": [], "ended": 1, "time": 0.0, **answer}
    return Process(name, group, int(rank), "node", 1, "1", f"{name}.json", "answered", known)


def gets(key: str, actor: str = NOT_AN_ACTOR) -> dict[str, Any]:
    """A wait for a call."""
    return {"on": "ray.get", "calls": [[key, actor]]}


def runs(key: str) -> dict[str, Any]:
    return {"runs": key, "name": "A.call"}


def said(*processes: Process) -> list[str]:
    return sentences(processes, ())


def test_the_end_of_a_chain_is_named() -> None:
    """With all that wait for it, directly or not."""
    found = said(
        process("Runner-0", gets("01")),
        process("A-0", gets("02"), runs("01")),
        process("B-0", runs("02"), function="slow"),
    )
    assert ["A-0 and Runner-0 wait for B-0 (slow at train.py:7)"] == found


def test_the_actor_behind_a_queue_keeps_nobody_waiting() -> None:
    """Who waits for the queue is the end of the chain."""
    item = {"runs": "03", "name": "_QueueActor.get"}
    room = {"runs": "04", "name": "_QueueActor.put"}
    queue = process("_QueueActor-0", function="main_loop")
    queue.answer["tasks"] = [
        {"name": str(number), "frames": [["get", "queue.py", 9]], "waits": [call]}
        for number, call in enumerate((item, room))
    ]
    found = said(
        process("Runner-0", gets("01")),
        process("A-0", gets("03"), runs("01"), function="fit"),
        process("B-0", gets("04"), runs("02"), function="fill"),
        queue,
    )
    assert found == [
        "A-0 (fit at train.py:7) waits for an item of an empty queue (_QueueActor-0)",
        "B-0 (fill at train.py:7) waits for room in a full queue (_QueueActor-0)",
        "Runner-0 waits for A-0 (fit at train.py:7)",
    ]


def test_a_call_that_waits_for_itself_waits_for_no_queue() -> None:
    """The answers of a process may be anything."""
    itself = process("A-0", gets("01"), runs("01"))
    assert ["deadlock: A-0 (work at train.py:7) waits for A-0"] == said(itself)


def test_three_in_a_circle_are_a_deadlock() -> None:
    """In the order in which they wait."""
    found = said(
        process("A-0", gets("02"), runs("01")),
        process("B-0", gets("03"), runs("02")),
        process("C-0", gets("01"), runs("03")),
    )
    at = "(work at train.py:7) waits for"
    assert [f"deadlock: A-0 {at} B-0 {at} C-0 {at} A-0"] == found


def test_calls_of_actors_that_run_several_at_once_are_no_deadlock() -> None:
    """A waits for B in one task, and B for A in another, which does not wait for the first."""
    first = process("A-0", function="main_loop")
    second = process("B-0", function="main_loop")
    for actor, waiter, runner in ((first, ("01", "02"), "03"), (second, ("04", "03"), "02")):
        frames = [["serve", "/home/me/train.py", 9]]
        actor.answer["tasks"] = [
            {"name": "1", "frames": frames, "waits": [gets(waiter[1]), runs(waiter[0])]},
            {"name": "2", "frames": frames, "waits": [runs(runner)]},
        ]
    waits_for = "(serve at train.py:9)"
    assert [f"B-0 waits for A-0 {waits_for}", f"A-0 waits for B-0 {waits_for}"] == said(
        first, second
    )


def test_a_call_that_waits_in_line_waits_for_the_actor() -> None:
    """It has not begun, and its actor runs another."""
    found = said(
        process("Runner-0", gets("09", "ab")),
        process("A-0", runs("01"), function="slow", actor="ab"),
    )
    assert ["Runner-0 waits for A-0 (slow at train.py:7)"] == found


def test_one_of_several_calls_may_have_ended() -> None:
    """So a busy actor says nothing."""
    several = {"on": "ray.get", "calls": [["08", "ab"], ["09", "ab"]]}
    found = said(
        process("Runner-0", several), process("A-0", runs("01"), function="slow", actor="ab")
    )
    assert [] == found


def test_nobody_is_said_to_run_what_a_silent_process_may_run() -> None:
    """It is named instead."""
    silent = Process("A-0", "A", 0, "node", 2, "1", "A-0.json", "stopped")
    (sentence,) = said(process("Runner-0", gets("01")), silent)
    assert sentence.endswith("a task; no process that answered runs it, and A-0 did not answer")


def rank(
    number: int, begun: int | None, function: str, operation: str = "", flying: str = ""
) -> Process:
    """A rank of three.

    Args:
        begun: how many collectives it says to have begun; ``None`` if it says nothing.
        operation: the collective on its stack.
        flying: the one in torch's flight recorder, which has the number 5.
    """
    groups = [{"name": "0", "ranks": [[0, 1, 3]], "begun": begun}] if begun is not None else []
    answer: dict[str, Any] = {"rank of job": number, "groups": groups}
    if flying:
        answer["flight"] = [
            {"name": "0", "group": "default_pg", "between_two": False, "operation": flying,
             "number": 5, "seconds": 9.0}
        ]  # fmt: skip
    rank_process = process(f"Worker-{number}", function=function, **answer)
    if operation:
        c10d = "/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
        rank_process.answer["threads"][0]["frames"].insert(0, [operation, c10d, 1])
    return rank_process


def test_a_rank_that_is_in_another_collective_is_named() -> None:
    """It has skipped one, and so begun as many as the others that are in the next."""
    ranks = (
        rank(0, 5, "train", "all_reduce"),
        rank(1, 5, "ends", "barrier"),
        rank(2, 5, "train", "all_reduce"),
    )
    expected = (
        "the ranks are in different operations, #5 of their group for each: ranks 0,2 all_reduce "
        "(train.py:7), rank 1 barrier (train.py:7); a rank has skipped a collective, or has "
        "called one more"
    )
    assert [expected] == said(*ranks)


def test_a_collective_that_torch_has_begun_itself_is_known_from_its_recorder() -> None:
    """It is not on the stack, and it is the oldest of those that the rank has begun."""
    ranks = (
        rank(0, 7, "train", flying="all_reduce"),
        rank(1, 5, "ends", "barrier"),
        rank(2, 7, "train", flying="all_reduce"),
    )
    expected = (
        "the ranks are in different operations, #5 of their group for each: ranks 0,2 all_reduce "
        "(train.py:7), rank 1 barrier (train.py:7); a rank has skipped a collective, or has "
        "called one more"
    )
    assert [expected] == said(*ranks)


def test_operations_of_other_groups_are_no_difference() -> None:
    """Each rank is in several groups, and nothing tells whose collective it is in."""
    ranks = [
        rank(number, 5, "train", name)
        for number, name in enumerate(("barrier", "reduce", "reduce"))
    ]
    for process_of_rank in ranks:
        groups = process_of_rank.answer["groups"]
        groups.append({"name": "1", "ranks": [[0, 1, 3]], "begun": 3})
    assert [] == said(*ranks)


def test_a_late_rank_and_what_the_others_are_in_are_told_once() -> None:
    """Whatever the recorder says of the same collective."""
    ranks = (
        rank(0, 5, "train", flying="all_reduce"),
        rank(1, 4, "loads"),
        rank(2, 5, "train", flying="all_reduce"),
    )
    expected = (
        "2 of 3 (ranks 0,2) are in all_reduce #5 of their group; rank 1 (Worker-1) is in loads at "
        "train.py:7; its last one was #4"
    )
    assert [expected] == said(*ranks)


def test_a_rank_that_tells_no_number_gets_none() -> None:
    """Another process group of the same ranks may be all that it knows."""
    ranks = (rank(0, 5, "train", "barrier"), rank(1, None, "loads"), rank(2, 5, "train", "barrier"))
    expected = (
        "2 of 3 (ranks 0,2) are in barrier #5 of their group; rank 1 (Worker-1) is in loads at "
        "train.py:7"
    )
    assert [expected] == said(*ranks)


@pytest.mark.parametrize("lives", [False, True])
def test_a_thread_that_has_ended_puts_no_more_items(lives: bool, tmp_path: Path) -> None:
    """The process that waits for one is named with it, unless such a thread lives."""
    ledger = SimulatedLedger("Worker-2")
    ledger.span(("fill (thread)", "queue.put"), 0, 10, track=2, waits_for="*")
    ledger.span("fill (thread)", 0, 20, track=2)
    if lives:
        ledger.open = [(ledger.place("fill (thread)"), 30)]
    path = ledger.write(tmp_path, ended=False)
    waiter = process("Worker-2")
    waiter.answer["threads"][0]["frames"].insert(0, ["Queue.get", "/lib/python3.11/queue.py", 1])
    sentences_about_it = said(attrs.evolve(waiter, path=path.with_suffix(".json")))
    expected = (
        "Worker-2 (queue.get < work at train.py:7) waits for an item; its thread thread 2, which "
        "has put items into a queue, ended …"
    )
    assert ([] if lives else [expected]) == [
        re.sub("ended .* ago", "ended …", sentence) for sentence in sentences_about_it
    ]


def test_ranks_that_have_begun_as_many_collectives_are_not_late() -> None:
    """All are in the same one."""
    assert [] == said(*(rank(number, 5, "work") for number in range(3)))


def test_a_process_that_moves_is_not_said_to_wait() -> None:
    """Both looks see it in the same call, and scopes have ended in between."""
    first = [process("Runner-0", gets("01")), process("A-0", runs("01"), function="slow")]
    later = [
        process("Runner-0", gets("01"), ended=2, time=5.0),
        process("A-0", runs("01"), function="slow", time=5.0),
    ]
    assert "moves" == doings(first, later)[0].state
    assert [] == sentences(first, later)
