"""The shared model: steps, sums, and what is left out of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gpuprof._analysis import reading
from gpuprof._analysis import run as runs
from gpuprof._analysis.reading import Captured
from gpuprof._analysis.run import Process, Run
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.receipt import Receipt
from gpuprof._session.ledger import LedgerWriter, clock_id, make_header
from gpuprof.errors import ConfigError
from gpuprof_timing import Timing
from support.manual_clock import Clock
from support.run_files import manifest, run_file, session_file, window_entry
from support.simulated_run import CLOCK, EPOCH, SimulatedLedger, write_run

MS = 1_000_000


def read(directory: Path, *made: SimulatedLedger, captured: tuple[Captured, ...] = ()) -> Run:
    """The run of these ledgers."""
    found, _ = ledgers.ledgers(write_run(directory, made))
    return reading.mark(reading.assemble("run", found, {}), captured, 0)


def driver(*steps: tuple[int, int | None]) -> SimulatedLedger:
    """A driver with steps from and to these times."""
    made = SimulatedLedger("Runner", "driver")
    for number, (start, end) in enumerate(steps):
        made.step(number, start, end)
    return made


def process(run: Run, name: str) -> Process:
    """The process of that name."""
    return next(process for process in run.processes if process.name == name)


def sums(run: Run, name: str) -> dict[tuple[int, str], tuple[float, float, float, float]]:
    """Busy, own, waiting and calls of a process, by step and path."""
    return {
        (int(row["step"]), run.places[row["place"]].path): (
            float(row["busy"]),
            float(row["own"]),
            float(row["waiting"]),
            float(row["calls"]),
        )
        for row in run.sums
        if run.processes[row["process"]].name == name
    }


def test_steps_of_a_set_length_give_way_to_those_of_the_workers(tmp_path: Path) -> None:
    """As of RLlib's APPO, whose iterations take a second whatever its learner does."""
    paced = driver((0, 1000), (1000, 2000))
    paced.event("paced steps", 0)
    learner = SimulatedLedger("Learner-0")
    learner.event("library steps", 0)
    for number in range(1, 4):
        learner.step(number, 300 * number, 300 * number + 300)
    run = read(tmp_path, paced, learner)
    assert [300, 300, 300] == [step.duration for step in run.steps]


def test_steps_of_a_set_length_count_where_workers_have_none(tmp_path: Path) -> None:
    """There is nothing better."""
    paced = driver((0, 1000), (1000, 2000))
    paced.event("paced steps", 0)
    run = read(tmp_path, paced, SimulatedLedger("Learner-0"))
    assert [1000, 1000] == [step.duration for step in run.steps]


def test_the_garbage_collector_counts_in_the_innermost_scope(tmp_path: Path) -> None:
    """Of a pause across the edge of a scope or a step, each has its part."""
    worker = SimulatedLedger("A-0")
    worker.span(("work", "part"), 10, 30)
    worker.span("work", 0, 140)
    worker.collections = [(2, 20, 50), (1, 90, 120)]
    run = read(tmp_path, driver((0, 100), (100, 200)), worker)
    assert {(0, "work"): 30, (0, "work/part"): 10, (1, "work"): 20} == {
        (int(row["step"]), run.places[row["place"]].path): float(row["collecting"])
        for row in run.sums
    }


def test_the_garbage_collector_has_its_share_of_folded_calls(tmp_path: Path) -> None:
    """Of calls that took half of the time, half of the pause."""
    worker = SimulatedLedger("A-0")
    worker.fold("load", 0, 80, 20, 40)
    worker.collections = [(2, 10, 30)]
    run = read(tmp_path, driver((0, 100)), worker)
    assert [10] == run.sums["collecting"].tolist()


def test_time_counts_where_it_was_spent(tmp_path: Path) -> None:
    """A scope that crosses an edge has its shares in both steps."""
    worker = SimulatedLedger("A-0")
    worker.span("work", 10, 40)
    worker.span(("work", "part"), 10, 20)
    worker.span("work", 80, 120)
    run = read(tmp_path, driver((0, 100), (100, 200)), worker)
    assert {
        (0, "work"): (50, 40, 0, 1.5),
        (0, "work/part"): (10, 10, 0, 1),
        (1, "work"): (20, 20, 0, 0.5),
    } == sums(run, "A-0")


def test_a_fold_counts_by_its_share(tmp_path: Path) -> None:
    """Calls that are known only together are spread evenly."""
    worker = SimulatedLedger("A-0")
    worker.fold("work", 50, 150, 10, 60)
    run = read(tmp_path, driver((0, 100), (100, 200)), worker)
    assert {(0, "work"): (30, 30, 0, 5), (1, "work"): (30, 30, 0, 5)} == sums(run, "A-0")
    assert [30, 30] == run.tracked[:, process(run, "A-0").number].tolist()


def test_short_steps_of_the_driver_are_told_apart_in_workers(tmp_path: Path) -> None:
    """A Ray worker hears of no step, and yet each call of a step of 5 ms counts in its step."""
    clock = Clock()
    timing = Timing("t", clock=clock)
    writer = LedgerWriter(
        str(tmp_path / "node-0" / "A-0.start-1.ledger"),
        make_header("run", "A-0", "A", 0, "node-0", "1", "worker"),
        {"bytes_per_step": 3_000, "total": 10**9},
        pytest.fail,
        clock,
        clock,
        lambda: (tmp_path / "node-0").mkdir(),
    )
    writer.begin()
    made = SimulatedLedger("Runner", "driver", clock=clock_id())
    for step in range(400):
        begin = clock.now
        with timing.add_time("train"):
            for _ in range(4):
                with timing.add_time("batch"):
                    clock.now += (9 if step == 77 else 1) * MS
        clock.now += MS
        made.step(step, begin, clock.now)
        if step % 200 == 199:
            writer.drain()
    writer.end()
    found = sums(read(tmp_path, made), "A-0")
    assert {
        (step, place): ((36 if step == 77 else 4) * MS, calls)
        for step in range(400)
        for place, calls in (("train", 1), ("train/batch", 4))
    } == {key: (busy, calls) for key, (busy, _, _, calls) in found.items()}


def test_what_lies_between_steps_is_in_none(tmp_path: Path) -> None:
    """An evaluation after a step belongs to no step."""
    worker = SimulatedLedger("A-0")
    worker.span("evaluate", 100, 150)
    run = read(tmp_path, driver((0, 100), (150, 200)), worker)
    assert {} == sums(run, "A-0")


def test_a_scope_around_a_step_is_left_out(tmp_path: Path) -> None:
    """One around the whole loop says nothing about a step."""
    made = driver((0, 100), (100, 200))
    made.span("main_loop", -5, 300)
    made.span(("main_loop", "train"), 20, 60)
    run = read(tmp_path, made)
    assert {(0, "main_loop/train"): (40, 40, 0, 1)} == sums(run, "Runner")
    assert [40, 0] == run.tracked[:, process(run, "Runner").number].tolist()


def test_a_call_that_takes_several_steps_counts_in_all_of_them(tmp_path: Path) -> None:
    """In a worker, which the driver calls; one that lasts for half of the run is a loop."""
    steps = [(number * 10, (number + 1) * 10) for number in range(10)]
    worker = SimulatedLedger("A-0")
    worker.span("work", 5, 45)
    worker.span("loop", 0, 100)
    run = read(tmp_path, driver(*steps), worker)
    names = [place.name for place in run.places]
    times = {
        name: run.matrix("busy", names.index(name), [process(run, "A-0")])[:, 0].tolist()
        for name in ("work", "loop")
    }
    assert [5, 10, 10, 10, 5, 0, 0, 0, 0, 0] == times["work"]
    assert 0 == sum(times["loop"][1:-1])


def test_time_in_no_scope_is_a_place(tmp_path: Path) -> None:
    """With a call in each step."""
    ranks = [SimulatedLedger(f"A-{number}") for number in range(2)]
    for number, rank in enumerate(ranks):
        for step in range(2):
            rank.step(step, 100 * step, 100 * (step + 1))
            rank.span("work", 100 * step, 100 * step + 60 + 10 * number)
    run = read(tmp_path, *ranks)
    assert [[40, 30], [40, 30]] == run.matrix("own", runs.OUTSIDE, run.processes).tolist()
    assert [[1, 1], [1, 1]] == run.matrix("calls", runs.OUTSIDE, run.processes).tolist()


def test_waiting_is_inherited(tmp_path: Path) -> None:
    """A scope inside one that waits waits as well, and a name can say that it waits."""
    worker = SimulatedLedger("A-0")
    worker.span("collect", 0, 40, waits_for="B")
    worker.span(("collect", "decode"), 10, 20)
    worker.span("env/recv_actions", 50, 60)
    run = read(tmp_path, driver((0, 100)), worker)
    assert {
        (0, "collect"): (40, 30, 30, 1),
        (0, "collect/decode"): (10, 10, 10, 1),
        (0, "env/recv_actions"): (10, 10, 10, 1),
    } == sums(run, "A-0")
    assert [[0]] == run.work([process(run, "A-0")]).tolist()


def test_a_name_says_more_than_a_scope_that_waits_for_anybody(tmp_path: Path) -> None:
    """An instrument knows that a call waits, and its name for whom."""
    worker = SimulatedLedger("A-0")
    worker.span("env/recv_actions", 0, 40, waits_for="*")
    worker.span("pull", 50, 60, waits_for="*")
    run = read(tmp_path, driver((0, 100)), worker)
    assert {"env/recv_actions": "RolloutGroup", "pull": "*"} == {
        place.path: place.waits_for for place in run.places
    }


def test_a_call_that_took_no_time_counts(tmp_path: Path) -> None:
    """In the step in which it was, or which it began."""
    worker = SimulatedLedger("A-0")
    for time in (0, 50, 100):
        worker.span("poll", time, time)
    run = read(tmp_path, driver((0, 100), (100, 200)), worker)
    assert {(0, "poll"): (0, 0, 0, 2), (1, "poll"): (0, 0, 0, 1)} == sums(run, "A-0")


@pytest.mark.parametrize(
    ("clocks", "bound"), [(["driver"], 0), (["b"], 8), (["b", "c"], 14), (["b", "unknown"], None)]
)
def test_times_of_two_processes_are_as_far_apart_as_the_worst_two_clocks(
    clocks: list[str], bound: int | None, tmp_path: Path
) -> None:
    """With a nanosecond each for what they drift. What nobody has measured is not known."""
    made = SimulatedLedger("Runner", "driver", clock="driver")
    made.step(0, 0, 100)
    for clock, wrong_by in (("b", 7), ("c", 5)):
        made.event("clock", 50, clock=clock, at=50, offset=0, bound=wrong_by)
    workers = [
        SimulatedLedger(f"A-{rank}", node=f"node-{rank}", clock=clock)
        for rank, clock in enumerate(clocks)
    ]
    for worker in workers:
        worker.span("work", 50, 50)
    assert bound == read(tmp_path, made, *workers).bound


def test_threads_at_once_are_covered_once(tmp_path: Path) -> None:
    """Two threads in scopes at once take the process's time once."""
    worker = SimulatedLedger("A-0")
    worker.span("one", 0, 50, track=1)
    worker.span("two", 30, 60, track=2)
    run = read(tmp_path, driver((0, 100)), worker)
    assert [60] == run.tracked[:, process(run, "A-0").number].tolist()


def test_a_scope_around_a_thread_is_no_work(tmp_path: Path) -> None:
    """It may wait where nothing marks it; what is marked in it counts."""
    made = SimulatedLedger("Runner", "driver")
    made.step(0, 0, 100)
    made.span("serve (thread)", 10, 90, track=2)
    made.span(("serve (thread)", "answer"), 20, 30, track=2)
    run = read(tmp_path, made)
    assert ([[10.0]], [[10.0]]) == (run.work(run.processes).tolist(), run.tracked.tolist())


def test_ranks_without_a_driver_have_their_own_steps(tmp_path: Path) -> None:
    """The run's step ends with the last, and lasts as long as in the slowest."""
    made = [SimulatedLedger(f"Rank-{rank}") for rank in range(2)]
    for rank, ledger in enumerate(made):
        for number in range(2):
            begin = 100 * number + 30 * rank
            ledger.step(number, begin, begin + 100)
            ledger.span("work", begin + 10, begin + 90)
    run = read(tmp_path, *made)
    assert [(EPOCH + 30, EPOCH + 130), (EPOCH + 130, EPOCH + 230)] == [
        (step.start, step.end) for step in run.steps
    ]
    assert {(0, "work"): (80, 80, 0, 1), (1, "work"): (80, 80, 0, 1)} == sums(run, "Rank-1")


def test_what_happens_in_a_window_is_disturbed(tmp_path: Path) -> None:
    """By its times: the steps in which it opens, records and closes, whatever their numbers."""
    made = SimulatedLedger("Runner", "driver")
    for position, number in enumerate((0, 1, 2, 1, 3)):
        made.step(number, 10 * position, 10 * position + 10)
    run = read(tmp_path, made, captured=(Captured(range(1, 2), (EPOCH + 22, EPOCH + 41)),))
    assert [(False, False), (False, False), (False, True), (True, True), (False, True)] == [
        (step.captured, step.disturbed) for step in run.steps
    ]


@pytest.mark.parametrize(
    ("bound", "disturbed"),
    [(0, [1]), (200_000, [1]), (2 * MS, [0, 1, 2]), (None, [1, 2])],
)
def test_a_run_knows_from_ledgers_when_windows_took_place(
    tmp_path: Path, bound: int | None, disturbed: list[int]
) -> None:
    """As far as clocks can be compared; if nobody knows how far, the next step is slow as well."""
    made = driver(*((begin * MS, (begin + 9) * MS) for begin in (0, 10, 20, 30)))
    worker = SimulatedLedger("A-0", clock=CLOCK if bound == 0 else "another")
    for time, state in ((11, "opening"), (12, "open"), (18, "closing"), (19, "closed")):
        worker.event("window", time * MS, number=1, label="step-1", state=state)
    if bound:
        made.event("clock", 15 * MS, clock="another", at=15 * MS, offset=0, bound=bound)
    write_run(tmp_path, [made, worker])
    file = session_file(window_entry(start=1), node="node-0")
    (tmp_path / "node-0" / "A-0.start-1.json").write_text(json.dumps(file))
    run = reading.read(tmp_path, warm_up=0)
    assert ([1], disturbed) == (
        [step.number for step in run.steps if step.captured],
        [step.number for step in run.steps if step.disturbed],
    )


@pytest.mark.parametrize(("given", "marked"), [(None, [0, 1]), (0, []), (1, [0]), (3, [0, 1, 2])])
def test_a_given_warm_up_replaces_the_one_that_is_found(
    tmp_path: Path, given: int | None, marked: list[int]
) -> None:
    """Also if it is shorter."""
    ends = np.cumsum([900, 300, *[100] * 8]).tolist()
    write_run(tmp_path, [driver(*zip([0, *ends], ends, strict=False))])
    run = reading.read(tmp_path, given)
    assert marked == [step.number for step in run.steps if step.warm_up]


def test_without_times_captured_steps_and_those_after_them_are_disturbed(tmp_path: Path) -> None:
    """A window that closes slows the step after it; a number that comes again is not captured."""
    made = SimulatedLedger("Runner", "driver")
    for position, number in enumerate((0, 1, 2, 1, 3)):
        made.step(number, 10 * position, 10 * position + 10)
    run = read(tmp_path, made, captured=(Captured(range(1, 2)),))
    assert [(False, False), (True, True), (False, True), (False, False), (False, False)] == [
        (step.captured, step.disturbed) for step in run.steps
    ]


def test_a_step_that_did_not_end_is_incomplete(tmp_path: Path) -> None:
    """It ends where the ledger does, and no figure uses it."""
    run = read(tmp_path, driver((0, 100), (100, None)))
    assert [0] == run.usual


def test_a_step_that_did_not_end_ends_before_the_next(tmp_path: Path) -> None:
    """Its driver went on with another one, after an exception."""
    run = read(tmp_path, driver((0, 100), (100, None), (180, 300)))
    assert [(EPOCH + 100, EPOCH + 180, False)] == [
        (step.start, step.end, step.complete) for step in run.steps if step.number == 1
    ]


def test_an_open_call_lasts_until_the_ledger_ends(tmp_path: Path) -> None:
    """What a killed worker was in counts as far as it is known."""
    worker = SimulatedLedger("A-0")
    worker.span("before", 0, 60)
    worker.open.append((worker.place("train"), 30))
    path = worker.write(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])  # its last block, the end, is torn
    run = read(tmp_path, driver((0, 100)))
    assert (30, 30, 0, 1) == sums(run, "A-0")[0, "train"]


def test_a_matrix_is_by_step_and_process(tmp_path: Path) -> None:
    """In the order of the processes that were asked for, without the others."""
    workers = []
    for rank in range(3):
        worker = SimulatedLedger(f"A-{rank}")
        worker.span("work", 0, 10 + rank)
        worker.span("work", 100, 120 + rank)
        workers.append(worker)
    run = read(tmp_path, driver((0, 100), (100, 200)), *workers)
    place = next(number for number, place in enumerate(run.places) if place.path == "work")
    found = run.matrix("busy", place, [process(run, "A-1"), process(run, "A-0")])
    np.testing.assert_array_equal([[11, 10], [21, 20]], found)


def test_a_run_without_a_ledger_is_refused(tmp_path: Path) -> None:
    """With the key that would make one."""
    with pytest.raises(ConfigError, match="the key ledger"):
        reading.read(tmp_path)


def with_a_killed_rank(directory: Path, lasts: int, ended: bool = True) -> Run:
    """A run of steps of a second, in which three ranks work, and one was killed after the second.

    Args:
        lasts: how many steps.
        ended: whether the others closed their ledgers.
    """
    made = [SimulatedLedger("Runner", "driver"), *(SimulatedLedger(f"A-{r}") for r in range(3))]
    for number in range(lasts):
        begin = number * 1000 * MS
        made[0].step(number, begin, begin + 1000 * MS)
        for rank in made[1 : 4 if number < 2 else 3]:
            rank.span("work", begin, begin + 600 * MS)
    for each in made:
        each.write(directory, ended and each.name != "A-2")
    return reading.read(directory, 0)


def test_a_rank_that_was_killed_is_named(tmp_path: Path) -> None:
    """With the step of its last record, once it has been silent for a while."""
    run = with_a_killed_rank(tmp_path, 12)
    assert [("A-2", 1)] == [(each["worker"], each["step"]) for each in run.ended_early]


def test_a_rank_that_may_only_be_idle_is_not_named(tmp_path: Path) -> None:
    """An idle process notes its clocks every five seconds."""
    assert [] == with_a_killed_rank(tmp_path, 8).ended_early


def test_ranks_of_a_run_that_goes_on_are_not_named(tmp_path: Path) -> None:
    """They have not closed their ledgers either."""
    run = with_a_killed_rank(tmp_path, 12, ended=False)
    assert ["A-2"] == [each["worker"] for each in run.ended_early]


def test_a_rank_that_was_killed_is_not_idle(tmp_path: Path) -> None:
    """Later steps have no time of it, outside of scopes either."""
    run = with_a_killed_rank(tmp_path, 12)
    lengths = run.lengths[:, process(run, "A-2").number]
    assert [1000 * MS] * 2 + [0] * 10 == lengths.tolist()


def test_a_rank_that_began_later_was_not_idle_before(tmp_path: Path) -> None:
    """As where a group of actors grows while the job runs."""
    late = SimulatedLedger("A-1")
    late.span("work", 250 * MS, 290 * MS)
    steps = [(100 * MS * number, 100 * MS * (number + 1)) for number in range(3)]
    run = read(tmp_path, driver(*steps), late)
    process(run, "A-1").ledger.header["monotonic"] = 200 * MS
    assert [0, 0, 100 * MS] == run.lengths[:, process(run, "A-1").number].tolist()


def test_a_rank_that_the_job_ended_is_not_idle_either(tmp_path: Path) -> None:
    """It is not among those that crashed."""
    end = EarlyEnd(worker="A-2", node="node-0", incarnation="1", step=1, restarted=False)
    about = manifest(tmp_path.name, Receipt((), str(tmp_path)).to_dict())
    about = {**about, "ended_early": [], "ended_by_job": [end]}
    (tmp_path / "run.json").write_text(json.dumps(run_file(tmp_path.name)))
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    run = with_a_killed_rank(tmp_path, 12)
    lengths = run.lengths[:, process(run, "A-2").number]
    assert [1000 * MS] * 2 + [0] * 10 == lengths.tolist()
    assert [] == run.ended_early


def test_the_steps_in_which_a_rank_may_have_been_killed_do_not_count(tmp_path: Path) -> None:
    """The one of its last record, and two seconds more, whose records may be lost."""
    run = with_a_killed_rank(tmp_path, 12)
    assert [1, 2, 3] == [step.number for step in run.steps if not step.usual]


def test_a_restarted_rank_is_missing_until_its_next_record(tmp_path: Path) -> None:
    """However long the restart takes."""
    made = [driver(*((number * 1000 * MS, (number + 1) * 1000 * MS) for number in range(20)))]
    starts = [SimulatedLedger("A-0"), SimulatedLedger("A-0")]
    starts[1].incarnation = "2"
    for number in [*range(4), *range(14, 20)]:
        starts[number > 4].span("work", number * 1000 * MS, (number * 1000 + 600) * MS)
    starts[1].write(tmp_path).rename(tmp_path / "node-0" / "A-0.start-2.ledger")
    made[0].write(tmp_path)
    starts[0].write(tmp_path, ended=False)
    run = reading.read(tmp_path, 0)
    assert list(range(3, 14)) == [step.number for step in run.steps if not step.usual]


def test_imbalance_is_of_the_ranks_that_are_there() -> None:
    """One that is gone takes no part in the mean."""
    work = np.array([[2.0, 2.0, 0.0]])
    assert 1.5 == runs.imbalance(work, np.array([[True, True, True]]))
    assert 1.0 == runs.imbalance(work, np.array([[True, True, False]]))


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_the_other_ranks_have_a_median(ranks: int) -> None:
    """Of each rank, without itself; also where several are alike."""
    times = np.random.default_rng(1).integers(0, 4, (50, ranks)).astype(float)
    expected = [np.median(np.delete(times, rank, axis=1), axis=1) for rank in range(ranks)]
    assert np.array_equal(np.stack(expected, axis=1), runs.of_others(times))
