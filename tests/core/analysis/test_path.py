"""The critical path: what it follows, what it does not, and that it tiles the step."""

from __future__ import annotations

import collections
import itertools
import tempfile
from bisect import bisect_left
from pathlib import Path

import pytest
from gpuprof._analysis import reading
from gpuprof._analysis.causes import Record
from gpuprof._analysis.path import Graph, Stretch, _Spans
from gpuprof._analysis.run import OUTSIDE, Run
from gpuprof._artifacts import ledger as ledgers
from gpuprof._session.ledger import MARKS_STEPS
from hypothesis import given, settings
from hypothesis import strategies as st
from support.simulated_run import EPOCH, SimulatedLedger, write_run
from support.simulated_service import Load, simulate

OTHER_CLOCK = "another/time"


def read(directory: Path, *made: SimulatedLedger, bound: int | None = None) -> Run:
    """The run of these ledgers; those with another clock are known within a bound."""
    found, _ = ledgers.ledgers(write_run(directory, made))
    for each in found:
        each.bound = bound if each.header["clock"] == OTHER_CLOCK else 0
    return reading.assemble("run", found, {})


def driver(end: int) -> SimulatedLedger:
    """A driver with one step."""
    made = SimulatedLedger("Runner", "driver")
    made.step(0, 0, end)
    return made


def parts(run: Run, path: list[Stretch]) -> list[tuple[str, str, str, int, int]]:
    """Worker, scope, kind, start and end of a path's stretches."""
    return [
        (
            run.processes[each.process].name,
            "" if each.place == OUTSIDE else run.places[each.place].name,
            each.kind,
            each.start - EPOCH,
            each.end - EPOCH,
        )
        for each in path
    ]


def found(run: Run) -> list[tuple[str, str, str, int, int]]:
    """The path of the first step."""
    return parts(run, Graph(run).path(0))


def test_a_wait_is_followed_to_its_releaser(tmp_path: Path) -> None:
    """By the key, whoever else ends nearby."""
    made = driver(100)
    made.span("prepare", 0, 20)
    made.span("get", 20, 90, waits_for="A", waits=["k"])
    made.span("finish", 90, 100)
    one, other = SimulatedLedger("A-0"), SimulatedLedger("A-1")
    one.span("work", 5, 80, releases=["k"])
    other.span("work", 5, 89, releases=["another"])
    assert [
        ("A-0", "", "outside", 0, 5),
        ("A-0", "work", "work", 5, 80),
        ("Runner", "get", "handover", 80, 90),
        ("Runner", "finish", "work", 90, 100),
    ] == found(read(tmp_path, made, one, other))


def test_a_call_is_followed_to_its_caller(tmp_path: Path) -> None:
    """A Ray worker outside any scope waits for its caller, until its call is under way."""
    made = driver(100)
    made.span("prepare", 0, 20)
    made.span("ray.get", 20, 90, waits_for="*", waits=["ray:1"])
    made.span("finish", 90, 100)
    worker = SimulatedLedger("A-0")
    worker.span("A.work", 30, 80, releases=["ray:1"])
    assert [
        ("Runner", "prepare", "work", 0, 20),
        ("A-0", "", "dispatch", 20, 30),
        ("A-0", "A.work", "work", 30, 80),
        ("Runner", "ray.get", "handover", 80, 90),
        ("Runner", "finish", "work", 90, 100),
    ] == found(read(tmp_path, made, worker))


def test_who_polls_waits_for_what_it_gets(tmp_path: Path) -> None:
    """A driver that asks whether anything is ready, again and again, and then gets it."""
    made = driver(100)
    for start in range(0, 90, 10):
        made.span("ray.wait", start, start + 1, waits_for="*")
    made.span("ray.get", 92, 93, waits_for="*", waits=["ray:1"])
    worker = SimulatedLedger("A-0")
    worker.span("A.work", 30, 85, releases=["ray:1"])
    assert [
        ("A-0", "A.work", "work", 30, 85),
        ("Runner", "ray.get", "handover", 85, 93),
        ("Runner", "", "outside", 93, 100),
    ] == found(read(tmp_path, made, worker))[-3:]


def test_the_last_of_several_counts_though_clocks_differ(tmp_path: Path) -> None:
    """Both end a little after the wait for them, as their node's clock has it."""
    made = driver(100)
    made.span("ray.wait", 0, 90, waits_for="*", waits=["ray:0", "ray:1"])
    workers = [SimulatedLedger(f"A-{rank}", clock=OTHER_CLOCK) for rank in range(2)]
    for rank, worker in enumerate(workers):
        worker.span("A.work", 0, 92 + 2 * rank, releases=[f"ray:{rank}"])
    path = found(read(tmp_path, made, *workers, bound=10))
    assert ["A-1"] == [worker for worker, scope, *_ in path if scope == "A.work"]


def prefetching(fetch: int, train: int, steps: int = 20) -> SimulatedLedger:
    """A thread fetches a batch, and puts it into a queue for one; the main thread trains on it.

    Args:
        fetch: how long a batch takes the thread.
        train: how long it takes the main thread.
    """
    ledger = SimulatedLedger("A-0")
    fetched, taken, ended = 0, 0, 0
    thread: list[tuple[int, int, int]] = []
    for step in range(steps):
        since = fetched
        put = since + fetch
        fetched = max(put, taken) + 1  # room comes as the batch before is taken
        thread.append((since, put, fetched))
        taken = max(ended, fetched) + 1
        room = f"{step - 1} taken"
        ledger.span(("fill (thread)", "queue.put"), put, fetched, track=2, waits_for="*",
                    waits=[room] if step else [], releases=[f"{step}"])  # fmt: skip
        ledger.span("queue.get", ended, taken, waits_for="*", waits=[f"{step}"],
                    releases=[f"{step} taken"])  # fmt: skip
        ledger.span("train", taken, taken + train)
        ledger.step(step, ended, taken + train)
        ended = taken + train
    ledger.span("fill (thread)", 0, fetched, track=2)
    return ledger


@pytest.mark.parametrize(
    ("fetch", "train", "share"), [(1, 100, {"train": 0.98}), (100, 1, {"fill (thread)": 0.9})]
)
def test_a_thread_that_waits_for_room_in_a_queue_bounds_no_step(
    fetch: int, train: int, share: dict[str, float], tmp_path: Path
) -> None:
    """The main thread does; unless it waits for the thread's batch, which is slow."""
    run = read(tmp_path, prefetching(fetch, train))
    graph = Graph(run)
    times: collections.Counter[str] = collections.Counter()
    for step in range(5, 15):
        for _, scope, _, start, end in parts(run, graph.path(step)):
            times[scope] += end - start
    ((scope, least),) = share.items()
    assert (scope, True) == (times.most_common(1)[0][0], times[scope] >= least * times.total())


def test_a_wait_in_a_joined_thread_is_the_callers(tmp_path: Path) -> None:
    """A helper thread waits from before it is joined; what the driver did before still counts."""
    made = driver(100)
    made.span("prepare", 0, 40)
    made.span("Thread.join", 42, 91, waits_for="*", waits=["thread:1"])
    made.span("fetch (thread)", 39, 90, track=2, releases=["thread:1"])
    made.span(("fetch (thread)", "ray.get"), 40, 89, track=2, waits_for="*", waits=["ray:1"])
    worker = SimulatedLedger("A-0")
    worker.span("A.work", 45, 85, releases=["ray:1"])
    assert [
        ("Runner", "prepare", "work", 0, 39),
        ("Runner", "fetch (thread)", "work", 39, 40),
        ("A-0", "", "dispatch", 40, 45),
        ("A-0", "A.work", "work", 45, 85),
        ("Runner", "ray.get", "handover", 85, 89),
        ("Runner", "fetch (thread)", "work", 89, 90),
        ("Runner", "Thread.join", "handover", 90, 91),
        ("Runner", "", "outside", 91, 100),
    ] == found(read(tmp_path, made, worker))


def test_an_item_of_a_generator_is_followed_to_the_one_before(tmp_path: Path) -> None:
    """Its consumer asks for it while it is made, and has not called it."""
    made = driver(100)
    made.sent(0, 0, "ray:1")
    made.span("ray.wait", 0, 41, waits_for="*", waits=["ray:1:2"])
    made.span("use", 41, 60)
    made.sent(90, 90, "ray:2")
    made.span("ray.wait", 60, 100, waits_for="*", waits=["ray:1:3"])
    worker = SimulatedLedger("A-0")
    worker.span("A.items", 5, 40, releases=["ray:1:2", "ray:1"])
    worker.span("A.items", 45, 98, releases=["ray:1:3"])
    assert [
        ("A-0", "", "dispatch", 0, 5),
        ("A-0", "A.items", "work", 5, 40),
        ("A-0", "", "outside", 40, 45),
        ("A-0", "A.items", "work", 45, 98),
        ("Runner", "ray.wait", "handover", 98, 100),
    ] == found(read(tmp_path, made, worker))


def test_a_call_ends_with_the_pickling_of_its_result(tmp_path: Path) -> None:
    """That is no call of its own: the path goes on to the method, and to its caller."""
    made = driver(100)
    made.sent(0, 5, "ray:1")
    made.span("ray.get", 5, 97, waits_for="*", waits=["ray:1"])
    worker = SimulatedLedger("A-0")
    worker.span("A.work", 10, 40, releases=["ray:1"])
    worker.span("ray.serialize", 41, 95, releases=["ray:1"])
    run = read(tmp_path, made, worker)
    assert [
        ("Runner", "", "outside", 0, 5),
        ("A-0", "", "dispatch", 5, 10),
        ("A-0", "A.work", "work", 10, 40),
        ("A-0", "", "outside", 40, 41),
        ("A-0", "ray.serialize", "work", 41, 95),
        ("Runner", "ray.get", "handover", 95, 97),
        ("Runner", "", "outside", 97, 100),
    ] == found(run)


def loop(name: str = "A-0") -> SimulatedLedger:
    """A worker with an event loop, whose tracks are tasks."""
    made = SimulatedLedger(name)
    made.loops = dict.fromkeys((1, 2, 3), 1)
    return made


def ms(*times: int) -> list[int]:
    """Milliseconds as nanoseconds."""
    return [time * 1_000_000 for time in times]


def over_at(time: int) -> bytes:
    """The key of a sleep that is over at a time in milliseconds."""
    return (time * 1_000_000).to_bytes(8, "little")


def found_ms(run: Run) -> list[tuple[str, str, str, int, int]]:
    """The path of the first step, in milliseconds."""
    return [(*about, start // 10**6, end // 10**6) for *about, start, end in found(run)]  # type: ignore[misc]


def test_a_suspended_method_is_followed_to_the_call_that_it_awaits(tmp_path: Path) -> None:
    """The router only forwards."""
    made = driver(*ms(100))
    made.span("ray.get", *ms(0, 100), waits_for="*", waits=["ray:1"])
    made.sent(0, 0, "ray:1")
    router, model = loop(), SimulatedLedger("B-0")
    router.span("A.route", *ms(1, 98), releases=["ray:1"])
    router.span(("A.route", "await"), *ms(2, 97), waits_for="*", waits=["ray:2"])
    router.sent(*ms(1, 2), "ray:2")
    model.span("B.work", *ms(4, 95), releases=["ray:2"])
    assert [
        ("A-0", "", "dispatch", 0, 1),
        ("A-0", "A.route", "work", 1, 2),
        ("B-0", "", "dispatch", 2, 4),
        ("B-0", "B.work", "work", 4, 95),
        ("A-0", "await", "handover", 95, 97),
        ("A-0", "A.route", "work", 97, 98),
        ("Runner", "ray.get", "handover", 98, 100),
    ] == found_ms(read(tmp_path, made, router, model))


def asynchronous(directory: Path) -> Run:
    """A call that waits for an answer, and sleeps, while others block its event loop."""
    made = driver(*ms(100))
    made.span("ray.get", *ms(0, 100), waits_for="*", waits=["ray:1"])
    made.sent(0, 0, "ray:1")
    worker = loop()
    worker.span("A.blocks", *ms(0, 30), track=2)
    worker.span("A.answer", *ms(30, 100), releases=["ray:1"])  # came at 0
    worker.span(("A.answer", "await"), *ms(31, 90), waits_for="*", waits=["ray:2"])
    worker.sent(*ms(31, 31), "ray:2")
    worker.span("A.blocks", *ms(50, 70), track=2, releases=["ray:3"])
    worker.span("A.blocks", *ms(70, 90), track=3, releases=["ray:4"])
    worker.span(("A.answer", "asyncio.sleep"), *ms(91, 99), waits_for="*", waits=[over_at(96)])
    worker.span("A.blocks", *ms(95, 99), track=2, releases=["ray:5"])
    asked, client = SimulatedLedger("B-0"), SimulatedLedger("C-0")
    asked.span("B.work", *ms(31, 60), releases=["ray:2"])
    client.span("C.work", *ms(0, 100))
    client.sent(*ms(48, 48), "ray:3")
    client.sent(*ms(51, 51), "ray:4")
    client.sent(*ms(93, 93), "ray:5")
    return read(directory, made, worker, asked, client)


def test_a_task_that_is_ready_waits_for_what_blocks_its_loop(tmp_path: Path) -> None:
    """The path goes on with the call that made the loop busy."""
    assert [
        ("C-0", "C.work", "work", 0, 93),
        ("A-0", "", "dispatch", 93, 95),
        ("A-0", "A.blocks", "work", 95, 99),
        ("A-0", "A.answer", "work", 99, 100),
    ] == found_ms(asynchronous(tmp_path))


@pytest.mark.parametrize(("factor", "milliseconds"), [(1.0, 100), (0.75, 87), (0.6, 75), (0.0, 37)])
def test_an_event_loop_runs_tasks_as_they_become_ready(
    factor: float, milliseconds: int, tmp_path: Path
) -> None:
    """With less blocking, what is asked takes as long, a sleep too, and others may be overtaken."""
    run = asynchronous(tmp_path)
    blocks = [
        (process.number, place)
        for process in run.processes
        for place in process.places[1:].tolist()
        if run.places[place].name == "A.blocks"
    ]
    replayed = Graph(run).replay((0, 0), lambda _: dict.fromkeys(blocks, factor))
    assert pytest.approx(milliseconds) == replayed / 1e6


@pytest.mark.parametrize(
    "load",
    [
        Load(clients=4, calls=5, work=4, sleep=10, block=8),
        Load(clients=3, calls=5, work=2, sleep=12, block=4),
        Load(clients=8, calls=3, work=10, sleep=5, block=2),
    ],
)
def test_half_the_blocking_saves_what_it_is_said_to(load: Load, tmp_path: Path) -> None:
    """Of clients that wait for an asynchronous actor."""
    before = simulate(load, directory=tmp_path)
    after = simulate(load, faster=0.5)
    record = Record(reading.read(tmp_path))
    run = record.run
    (service,) = run.groups["Service"]
    (serve,) = (place for place in service.places[1:].tolist() if run.places[place].name == "serve")
    saves = record.saves(lambda _: {(service.number, serve): 0.5})
    assert 1 - after / before == pytest.approx(saves, abs=0.015)


def test_a_result_leaves_when_the_loop_is_free(tmp_path: Path) -> None:
    """Calls that were ready as its call ended go first."""
    made = driver(*ms(100))
    made.span("ray.get", *ms(0, 91), waits_for="*", waits=["ray:1"])
    made.sent(0, 0, "ray:1")
    worker = loop()
    worker.span("A.answer", *ms(1, 30), releases=["ray:1"])
    worker.span("A.blocks", *ms(30, 60), track=2)
    worker.span("A.blocks", *ms(60, 90), track=3)
    worker.span("A.blocks", *ms(90, 100), track=2)
    assert [
        ("A-0", "", "dispatch", 0, 1),
        ("A-0", "A.answer", "work", 1, 30),
        ("A-0", "A.blocks", "work", 30, 60),
        ("A-0", "A.blocks", "work", 60, 90),
        ("Runner", "ray.get", "handover", 90, 91),
        ("Runner", "", "outside", 91, 100),
    ] == found_ms(read(tmp_path, made, worker))


def test_a_task_is_followed_to_the_thread_that_runs_its_loop(tmp_path: Path) -> None:
    """Which waits for it."""
    made = driver(*ms(100))
    made.span("prepare", *ms(0, 10))
    made.span("asyncio.run", *ms(10, 100), waits_for="*", waits=["task:1"])
    made.loops = {2: 1}
    made.span("main", *ms(12, 99), track=2, releases=["task:1"])
    assert [
        ("Runner", "prepare", "work", 0, 10),
        ("Runner", "", "dispatch", 10, 12),
        ("Runner", "main", "work", 12, 99),
        ("Runner", "asyncio.run", "handover", 99, 100),
    ] == found_ms(read(tmp_path, made))


def test_a_call_in_a_pool_is_followed_to_the_task_that_awaits_it(tmp_path: Path) -> None:
    """Also where that process records the calls of Ray that it sends."""
    made = driver(*ms(100))
    made.span("ray.get", *ms(0, 100), waits_for="*", waits=["ray:1"])
    made.sent(0, 0, "ray:1")
    worker = loop()
    del worker.loops[3]
    worker.span("A.answer", *ms(0, 100), releases=["ray:1"])
    worker.span(("A.answer", "await"), *ms(10, 99), waits_for="*", waits=["thread:1"])
    worker.span("parse (thread)", *ms(11, 98), track=3, releases=["thread:1"])
    worker.sent(*ms(99, 99), "ray:2")
    assert [
        ("A-0", "A.answer", "work", 0, 10),
        ("A-0", "", "dispatch", 10, 11),
        ("A-0", "parse (thread)", "work", 11, 98),
        ("A-0", "await", "handover", 98, 99),
        ("A-0", "A.answer", "work", 99, 100),
    ] == found_ms(read(tmp_path, made, worker))


def test_a_wait_without_a_key_ends_by_the_task_before_it(tmp_path: Path) -> None:
    """As for a queue's item; where the loop was at rest, nobody knows."""
    made = driver(*ms(100))
    made.span("ray.get", *ms(0, 100), waits_for="*", waits=["ray:1"])
    made.sent(0, 0, "ray:1")
    worker = loop()
    worker.span("A.answer", *ms(0, 100), releases=["ray:1"])
    worker.span(("A.answer", "await"), *ms(0, 40), waits_for="*")
    worker.span(("A.answer", "await"), *ms(41, 99), waits_for="*")
    worker.span("await", *ms(0, 60), track=2, waits_for="*")
    worker.span("A.loop", *ms(60, 99), track=2)
    assert [
        ("A-0", "await", "unexplained", 0, 60),
        ("A-0", "A.loop", "work", 60, 99),
        ("A-0", "A.answer", "work", 99, 100),
    ] == found_ms(read(tmp_path, made, worker))


def test_a_call_that_was_queued_follows_the_one_before(tmp_path: Path) -> None:
    """Two calls of one worker: it is the worker that takes so long."""
    made = driver(100)
    made.span("ray.get", 10, 90, waits_for="*", waits=["ray:1", "ray:2"])
    worker = SimulatedLedger("A-0")
    worker.span("A.one", 12, 40, releases=["ray:1"])
    worker.span("A.two", 41, 88, releases=["ray:2"])
    assert [
        ("Runner", "", "outside", 0, 10),
        ("A-0", "", "dispatch", 10, 12),
        ("A-0", "A.one", "work", 12, 40),
        ("A-0", "", "dispatch", 40, 41),
        ("A-0", "A.two", "work", 41, 88),
        ("Runner", "ray.get", "handover", 88, 90),
        ("Runner", "", "outside", 90, 100),
    ] == found(read(tmp_path, made, worker))


def test_the_last_to_enter_a_barrier_releases_it(tmp_path: Path) -> None:
    """Also without a key: time decides for barriers."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(3)]
    for rank, late in enumerate((40, 70, 50)):
        ranks[rank].step(0, 0, 100)
        ranks[rank].span("work", 0, late)
        ranks[rank].span("meet", late, 75, waits_for="barrier")
        ranks[rank].span("after", 75, 100 if rank == 0 else 90)
    assert [
        ("A-1", "work", "work", 0, 70),
        ("A-0", "meet", "handover", 70, 75),
        ("A-0", "after", "work", 75, 100),
    ] == found(read(tmp_path, *ranks))


def test_a_barrier_within_the_clocks_bound_is_unexplained(tmp_path: Path) -> None:
    """Who was last is not known if the clocks may differ by more than that."""
    ranks = [SimulatedLedger("A-0"), SimulatedLedger("A-1", node="b", clock=OTHER_CLOCK)]
    for rank, late in enumerate((40, 70)):
        ranks[rank].step(0, 0, 100 - rank)
        ranks[rank].span("work", 0, late)
        ranks[rank].span("meet", late, 75, waits_for="barrier")
        ranks[rank].span("after", 75, 100 - rank)
    expected = {29: "handover", 30: "unexplained", None: "unexplained"}
    got = {
        bound: found(read(tmp_path / str(bound), *ranks, bound=bound))[-2][2] for bound in expected
    }
    assert expected == got


def test_a_wait_without_a_key_is_unexplained(tmp_path: Path) -> None:
    """Even if only one could have ended it: nobody is guessed."""
    made = driver(100)
    made.span("get", 0, 90, waits_for="A")
    worker = SimulatedLedger("A-0")
    worker.span("work", 0, 90)
    assert [
        ("Runner", "get", "unexplained", 0, 90),
        ("Runner", "", "outside", 90, 100),
    ] == found(read(tmp_path, made, worker))[:2]


def test_one_key_of_several_that_is_not_known_leaves_a_wait_unexplained(tmp_path: Path) -> None:
    """The unknown one may have been the last."""
    made = driver(100)
    made.span("ray.get", 0, 100, waits_for="*", waits=["ray:1", "ray:2"])
    worker = SimulatedLedger("A-0")
    worker.span("A.work", 0, 90, releases=["ray:1"])
    assert [("Runner", "ray.get", "unexplained", 0, 100)] == found(read(tmp_path, made, worker))


def test_a_drivers_scope_without_keys_is_its_own_only_while_workers_rest(tmp_path: Path) -> None:
    """It may wait in it for whoever works meanwhile."""
    made = driver(100)
    made.span("train", 0, 100)
    worker = SimulatedLedger("A-0")
    worker.span("work", 20, 70)
    assert [
        ("Runner", "train", "work", 0, 20),
        ("Runner", "train", "unexplained", 20, 70),
        ("Runner", "train", "work", 70, 100),
    ] == found(read(tmp_path, made, worker))


def test_a_step_ends_on_the_track_that_has_most_of_it(tmp_path: Path) -> None:
    """Also if the scopes there began before the step, as where a framework's hook marks it."""
    made = SimulatedLedger("Runner", "driver")
    made.step(0, 10, 100)
    made.span("fit", 1, 200)
    made.span(("fit", "step"), 5, 95)
    made.span("await", 60, 70, track=2)
    worker = SimulatedLedger("A-0")
    worker.span("work", 0, 9)
    assert [("Runner", "step", "work", 10, 95), ("Runner", "", "outside", 95, 100)] == found(
        read(tmp_path, made, worker)
    )


def test_a_step_ends_on_the_thread_that_marks_it(tmp_path: Path) -> None:
    """Whatever is longer meanwhile; it runs all the time, so it works where it is in no scope."""
    made = SimulatedLedger("A-0")
    made.event(MARKS_STEPS, 0, track=1)
    for number in range(3):
        made.step(number, 100 * number, 100 * number + 100)
        made.span("beat (thread)", 100 * number, 100 * number + 99, track=2)
    made.main = [(0, 0, 0), (300, 300, 0)]
    assert [("A-0", "", "work", 0, 100)] == found(read(tmp_path, made))


def test_folds_are_crossed_by_their_shares(tmp_path: Path) -> None:
    """Never through them: what they waited for stays unexplained."""
    made = SimulatedLedger("A-0")
    made.step(0, 0, 100)
    made.span("loop", 0, 100)
    made.fold(("loop", "env/recv_actions"), 0, 100, 50, 60)
    made.fold(("loop", "predict"), 0, 100, 50, 30)
    assert {
        ("env/recv_actions", "unexplained"): 60,
        ("predict", "work"): 30,
        ("loop", "work"): 10,
    } == {(scope, kind): end - start for _, scope, kind, start, end in found(read(tmp_path, made))}


def test_a_fold_has_what_its_inner_folds_have_not(tmp_path: Path) -> None:
    """And one whose calls took no time has nothing."""
    made = SimulatedLedger("A-0")
    made.step(0, 0, 100)
    made.span("loop", 0, 100)
    made.fold(("loop", "batch"), 0, 100, 50, 90)
    made.fold(("loop", "batch", "decode"), 10, 80, 50, 60)
    made.fold(("loop", "poll"), 50, 50, 3, 0)
    assert {"batch": 30, "decode": 60, "loop": 10} == {
        scope: end - start for _, scope, _, start, end in found(read(tmp_path, made))
    }


def test_a_wait_for_data_is_one(tmp_path: Path) -> None:
    """What brings the data is outside of the job."""
    made = driver(100)
    made.span("ray.get", 0, 0, waits_for="*", waits=["ray:1"])  # so that its scopes are its own
    made.span("next", 0, 100, waits_for="data")
    assert [("Runner", "next", "data", 0, 100)] == found(read(tmp_path, made))


@pytest.mark.parametrize(("begin", "end"), [(5, 91), (95, 96)])
def test_a_key_that_was_released_later_explains_nothing(
    begin: int, end: int, tmp_path: Path
) -> None:
    """It is another one of the same name: this wait was over by then."""
    made = driver(100)
    made.span("get", 0, 90, waits_for="A", waits=["k"])
    worker = SimulatedLedger("A-0")
    worker.span("work", begin, end, releases=["k"])
    assert ("Runner", "get", "unexplained", 0, 90) in found(read(tmp_path, made, worker))


def test_two_that_wait_for_each_other_are_unexplained(tmp_path: Path) -> None:
    """Keys can say so, if clocks differ; the path ends nevertheless."""
    made = driver(100)
    made.span("one", 0, 100, waits_for="A", waits=["a"], releases=["b"])
    worker = SimulatedLedger("A-0")
    worker.span("other", 0, 100, waits_for="Runner", waits=["b"], releases=["a"])
    ((_, _, kind, start, end),) = found(read(tmp_path, made, worker))
    assert ("unexplained", 0, 100) == (kind, start, end)


def test_a_barrier_of_a_child_process_is_unexplained(tmp_path: Path) -> None:
    """Nobody knows how many are in it."""
    made = driver(100)
    made.span("ray.get", 0, 100, waits_for="*", waits=["ray:1"])
    child = SimulatedLedger("A-0", "child")
    child.span("barrier", 0, 90, waits_for="barrier")
    child.span("send", 90, 100, releases=["ray:1"])
    path = found(read(tmp_path, made, SimulatedLedger("A-1"), child))
    assert ("A-0", "barrier", "unexplained", 0, 90) in path


def test_a_driver_without_scopes_is_outside(tmp_path: Path) -> None:
    """All that is known of its step is how long it took."""
    assert [("Runner", "", "outside", 0, 100)] == found(read(tmp_path, driver(100)))


@pytest.mark.parametrize(("ran", "kind"), [(1.0, "work"), (0.1, "outside")])
def test_who_runs_in_one_call_all_the_time_works(ran: float, kind: str, tmp_path: Path) -> None:
    """Such as a producer behind a queue's actor, unless its thread waits for something unseen."""
    made, queue, producer = driver(*ms(100)), SimulatedLedger("Q-0"), SimulatedLedger("P-0")
    made.span("ray.get", *ms(0, 99), waits_for="*", waits=["ray:get"])
    queue.span("Queue.put", *ms(90, 95), releases=["ray:put", "ray:get"])
    producer.span("Producer.run", *ms(-50, 150), releases=["ray:run"])
    producer.main = [(*ms(-50), 0, 0), (*ms(150), *ms(int(200 * ran)), 0)]
    producer.sent(*ms(89, 90), "ray:put")
    path = found(read(tmp_path, made, queue, producer))
    assert [("P-0", "", kind)] == [part[:3] for part in path if part[0] == "P-0"]


def test_a_replay_finds_the_next_to_bound_the_step(tmp_path: Path) -> None:
    """With the slow rank at half its time, the other one decides."""
    made = driver(100)
    made.span("ray.get", 0, 100, waits_for="*", waits=["ray:0", "ray:1"])
    for rank, end in enumerate((100, 70)):
        worker = SimulatedLedger(f"A-{rank}")
        worker.span("A.work", 0, end, releases=[f"ray:{rank}"])
        write_run(tmp_path, [worker])
    run = read(tmp_path, made)
    graph = Graph(run)
    slow = next(process.number for process in run.processes if process.name == "A-0")
    place = next(number for number, place in enumerate(run.places) if place.name == "A.work")
    assert (100.0, 70.0) == (
        graph.replay((0, 0), lambda _: {}),
        graph.replay((0, 0), lambda _: {(slow, place): 0.5}),
    )


def place_of(run: Run, name: str) -> int:
    """The place of a name that only one place has."""
    return next(number for number, place in enumerate(run.places) if place.name == name)


def served(directory: Path, *workers: tuple[int, int, int]) -> Run:
    """Workers who send one message each to a server, which takes 40 for each, as they come.

    Args:
        workers: for each when it sends, and when the server begins and ends with it.
    """
    made, server = driver(300), SimulatedLedger("Server-0")
    ledgers, free, last = [], 0, 0
    for rank, (sent, begins, ends) in sorted(enumerate(workers), key=lambda each: each[1][1]):
        worker = SimulatedLedger(f"A-{rank}")
        worker.span("work", 0, sent, releases=[f"push:{rank}"])
        worker.span("wait", sent, ends, waits_for="Server", waits=[f"reply:{rank}"])
        worker.span("end", ends, ends + 10, releases=[f"end:{rank}"])
        server.span("receive", free, begins, waits_for="A", waits=[f"push:{rank}"])
        server.span("apply", begins, ends, releases=[f"reply:{rank}"])
        ledgers.append(worker)
        free, last = ends, max(last, ends + 10)
    keys = [f"end:{rank}" for rank in range(len(workers))]
    made.span("get", 0, last, waits_for="A", waits=keys)
    made.span("finish", last, 300)
    return read(directory, made, server, *ledgers)


def test_a_faster_server_waits_for_what_it_is_sent(tmp_path: Path) -> None:
    """Also for a message that was there before it was ready: at half its time it is not."""
    run = served(tmp_path, (10, 10, 50), (45, 52, 92))
    server = run.groups["Server"][0].number
    graph, apply = Graph(run), place_of(run, "apply")
    assert (300, 275) == (
        graph.replay((0, 0), lambda _: {}),
        graph.replay((0, 0), lambda _: {(server, apply): 0.5}),
    )


def test_a_server_takes_first_what_comes_first(tmp_path: Path) -> None:
    """A worker that is faster than it was is served sooner, and not after the same others."""
    run = served(tmp_path, (10, 10, 50), (20, 52, 92), (200, 200, 240))
    slow = next(each.number for each in run.groups["A"] if each.name == "A-2")
    work = place_of(run, "work")
    assert 187 == Graph(run).replay((0, 0), lambda _: {(slow, work): 0.025})


def test_who_receives_in_an_order_of_its_own_keeps_it(tmp_path: Path) -> None:
    """The first message that it takes is the last to come."""
    run = served(tmp_path, (90, 90, 130), (20, 132, 172), (10, 174, 214))
    first = next(each.number for each in run.groups["A"] if each.name == "A-1")
    work = place_of(run, "work")
    assert 300 == Graph(run).replay((0, 0), lambda _: {(first, work): 0.5})


def test_a_rank_that_waits_for_nobody_bounds_what_others_save(tmp_path: Path) -> None:
    """Two ranks on their own: without the slow one, the steps end with the other.

    The other has ended its last step before the slow one begins it.
    """
    slow, other = SimulatedLedger("A-0"), SimulatedLedger("A-1")
    for step in range(4):
        for ledger, took in ((slow, 100), (other, 70)):
            begin = took * step
            ledger.step(step, begin, begin + took)
            ledger.span("work", begin, begin + took)
    run = read(tmp_path, slow, other)
    number = next(each.number for each in run.processes if each.name == "A-0")
    place = place_of(run, "work")
    window = 0, 3
    everywhere = {(process.number, place): 0.5 for process in run.processes}
    assert (400, 280, 200) == (
        Graph(run).replay(window, lambda _: {}),
        Graph(run).replay(window, lambda _: {(number, place): 0.5}),
        Graph(run).replay(window, lambda _: everywhere),
    )


Operation = tuple[str, int, int]


class Program:
    """Processes that work, send each other messages, and meet: a random graph without circles.

    Args:
        processes: how many.
        operations: each a kind, a process, and a number that says how long or which message.
        keys: whether the two sides of a message share a key.
    """

    def __init__(self, processes: int, operations: list[Operation], keys: bool = True) -> None:
        self.made = [SimulatedLedger(f"A-{number}") for number in range(processes)]
        self.now = [0] * processes
        self.sent: list[tuple[int, int]] = []
        self.waits: list[tuple[int, int, int, int]] = []  # process, start, end, released
        self.meetings = 0
        for kind, who, number in operations:
            self.operate(kind, who % processes, number, keys)
        for who in range(processes):
            self.work(who, 1)
        self.made[0].step(0, 0, max(self.now))
        self.end = max(self.now)
        if self.now[0] < self.end:
            self.made[0].span("last", self.now[0], self.end)

    def work(self, who: int, length: int) -> None:
        self.made[who].span("work", self.now[who], self.now[who] + length)
        self.now[who] += length

    def operate(self, kind: str, who: int, number: int, keys: bool) -> None:
        made, now = self.made[who], self.now[who]
        if kind == "work":
            self.work(who, 1 + number)
        elif kind == "rest":
            self.now[who] += number
        elif kind == "send":
            end = now + 1 + number
            made.span("send", now, end, releases=[f"m{len(self.sent)}"] if keys else [])
            self.sent.append((who, end))
            self.now[who] = end
        elif kind == "receive" and self.sent:
            chosen = number % len(self.sent)
            sender, ready = self.sent[chosen]
            if sender == who:
                return
            end = max(now, ready) + 1
            made.span(
                ("outer", "receive"), now, end, waits_for="*", waits=[f"m{chosen}"] if keys else []
            )
            made.span("outer", now, end + 1)
            self.waits.append((who, now, end, ready))
            self.now[who] = end + 1
        elif kind == "meet":
            end = max(self.now) + 1
            for each, ledger in enumerate(self.made):
                if keys:
                    meets = [f"b{self.meetings}"]
                    ledger.span("meet", self.now[each], end, waits_for="*", meets=meets)
                else:
                    ledger.span("meet", self.now[each], end, waits_for="*")
                self.now[each] = end
            self.meetings += 1


programs = st.tuples(
    st.integers(2, 4),
    st.lists(
        st.tuples(
            st.sampled_from(["work", "work", "rest", "send", "receive", "receive", "meet"]),
            st.integers(0, 3),
            st.integers(0, 9),
        ),
        max_size=40,
    ),
)


@settings(deadline=None)
@given(programs)
def test_the_path_tiles_the_step_and_passes_through_nothing_that_ended_later(
    drawn: tuple[int, list[Operation]],
) -> None:
    """Stretches follow each other; a hop to another process lands where something has ended."""
    program = Program(*drawn)
    with tempfile.TemporaryDirectory() as place:
        run = read(Path(place), *program.made)
        path = Graph(run).path(0)
    times = [(part.start - EPOCH, part.end - EPOCH) for part in path]
    assert 0 == times[0][0]
    assert program.end == times[-1][1]
    assert [end for _, end in times[:-1]] == [start for start, _ in times[1:]]
    assert "unexplained" not in {part.kind for part in path}
    for part, after in itertools.pairwise(path):
        if part.process != after.process and part.place != OUTSIDE:
            spans = program.made[part.process].spans
            there = [end for _, _, start, end in spans if start + EPOCH < part.end <= end + EPOCH]
            assert min(there) + EPOCH <= after.start


@settings(deadline=None)
@given(programs)
def test_without_keys_no_wait_is_followed(drawn: tuple[int, list[Operation]]) -> None:
    """The path never leaves its process: it abstains."""
    program = Program(*drawn, keys=False)
    with tempfile.TemporaryDirectory() as place:
        run = read(Path(place), *program.made)
        path = Graph(run).path(0)
    assert {0} == {part.process for part in path}
    waits = [(part.start - EPOCH, part.end - EPOCH) for part in path if part.kind == "unexplained"]
    spans = program.made[0].spans
    waiting = {program.made[0].place("meet"), program.made[0].place("outer", "receive")}
    assert waits == sorted((start, end) for place, _, start, end in spans if place in waiting)


@settings(deadline=None)
@given(programs)
def test_a_replay_of_nothing_changes_nothing(drawn: tuple[int, list[Operation]]) -> None:
    """With every time as it was, a step takes as long as it took."""
    program = Program(*drawn)
    with tempfile.TemporaryDirectory() as place:
        run = read(Path(place), *program.made)
        graph = Graph(run)
        assert pytest.approx(program.end) == graph.replay((0, 0), lambda _: {})


def chain(directory: Path, begins: int = 2) -> Run:
    """A driver that hands the result of A's call to B's, which A's end lets begin."""
    made = driver(100)
    made.sent(0, 1, "a")
    made.sent(begins - 1, begins, "b", ["a"])
    made.span("ray.get", begins, 99, waits_for="*", waits=["b"])
    first, second = SimulatedLedger("A-0"), SimulatedLedger("B-0")
    first.span("A.load", 3, 70, releases=["a"])
    second.span("B.train", 74, 95, releases=["b"])
    return read(directory, made, first, second)


def test_a_call_begins_after_what_it_takes(tmp_path: Path) -> None:
    """The path goes to the producer of its argument, not to the caller."""
    assert [
        ("Runner", "", "outside", 0, 1),
        ("A-0", "", "dispatch", 1, 3),
        ("A-0", "A.load", "work", 3, 70),
        ("B-0", "", "dispatch", 70, 74),
        ("B-0", "B.train", "work", 74, 95),
        ("Runner", "ray.get", "handover", 95, 99),
        ("Runner", "", "outside", 99, 100),
    ] == found(chain(tmp_path))


def test_a_faster_producer_lets_its_consumer_begin_sooner(tmp_path: Path) -> None:
    """So the slow stage of a chain is what saves."""
    run = chain(tmp_path)
    load = next(number for number, place in enumerate(run.places) if place.name == "A.load")
    assert 100 - 67 == Graph(run).replay((0, 0), lambda _: {(0, load): 0.0})


def test_a_call_begins_after_it_was_sent(tmp_path: Path) -> None:
    """Also where its argument was there before."""
    assert ("Runner", "", "outside", 0, 72) in found(chain(tmp_path, begins=72))


def test_a_driver_whose_workers_left_no_ledger_may_wait_in_any_scope(tmp_path: Path) -> None:
    """So that nothing of it is called its own work."""
    made = driver(100)
    made.span("train", 0, 100)
    assert {"unexplained"} == {kind for _, _, kind, _, _ in found(read(tmp_path, made))}


def agent_loop(directory: Path, *, noted: bool) -> Run:
    """A worker whose task awaits an engine without a ledger, from 15 to 90, while others end.

    The scope around that begins in one part of its coroutine and ends in the next one.
    """
    made = driver(100)
    made.span("ray.get", 2, 98, waits_for="*", waits=["ray:1"])
    made.sent(1, 2, "ray:1")
    worker = SimulatedLedger("Worker-0")
    worker.loops[2] = 1
    worker.span("rollout", 10, 15, track=2)
    worker.span("generate", 12, 92, track=2)
    worker.span(("generate", "await"), 15, 90, track=2, waits_for="*")
    worker.span("rollout", 93, 96, track=2, releases=["ray:1"])
    if noted:
        worker.sample("short", "generate", 12, 30)
        worker.sample("long", "generate", 12, 92)
        worker.sample("short", "reward", 30, 40)
    return read(directory, made, worker)


def test_a_scope_may_end_after_the_part_of_a_coroutine_in_which_it_began(tmp_path: Path) -> None:
    """The path goes through it, and not past it."""
    assert [
        ("Worker-0", "generate", "work", 12, 15),
        ("Worker-0", "await", "unexplained", 15, 90),
        ("Worker-0", "generate", "work", 90, 92),
        ("Worker-0", "", "dispatch", 92, 93),
        ("Worker-0", "rollout", "work", 93, 96),
    ] == found(agent_loop(tmp_path, noted=False))[2:7]


def test_a_worker_with_samples_is_in_their_phase(tmp_path: Path) -> None:
    """Where no scope and no key says more."""
    assert ("Worker-0", "generate", "samples", 15, 90) in found(agent_loop(tmp_path, noted=True))


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=40),
    st.integers(0, 125),
)
def test_the_way_out_of_many_spans_is_short(rows: list[tuple[int, int]], time: int) -> None:
    """And ends where going out one by one does, also where spans overlap in odd ways."""
    ordered = sorted(
        ((start, start + length) for start, length in rows), key=lambda r: (r[0], -r[1])
    )
    starts, ends = [row[0] for row in ordered], [row[1] for row in ordered]
    spans = _Spans([0] * len(rows), starts, ends, [False], {})
    inner, last = bisect_left(starts, time) - 1, -1
    while inner >= 0 and ends[inner] < time:
        last, inner = max(last, ends[inner]), spans.parents[inner]
    assert (inner, None if last < 0 else last) == spans.at(time)


def messages(directory: Path, sends_at: int, receives_at: int, sent: int, got: int) -> Run:
    """Rank 0 sends a message to rank 1, which then works until the step's end."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    ranks[0].span("forward", 0, sends_at)
    ranks[0].span("torch.send", sends_at, sent, waits_for="barrier", meets=["m"])
    ranks[1].span("prepare", 0, receives_at)
    ranks[1].span("torch.recv", receives_at, got, waits_for="barrier", meets=["m"])
    ranks[1].span("forward", got, 100)
    ranks[0].step(0, 0, sent)
    ranks[1].step(0, 0, 100)
    return read(directory, *ranks)


@pytest.mark.parametrize(
    ("sends_at", "receives_at", "sent", "got", "before"),
    [
        pytest.param(60, 20, 61, 61, ("A-0", "forward"), id="the-receiver-waits"),
        pytest.param(20, 60, 61, 61, ("A-1", "prepare"), id="the-sender-waits"),
        pytest.param(20, 60, 21, 61, ("A-1", "prepare"), id="nobody-waits"),
    ],
)
def test_a_message_is_followed_to_who_comes_last(
    sends_at: int,
    receives_at: int,
    sent: int,
    got: int,
    before: tuple[str, str],
    tmp_path: Path,
) -> None:
    """The sender, unless it has gone on long before."""
    path = found(messages(tmp_path, sends_at, receives_at, sent, got))
    assert [before, ("A-1", "torch.recv"), ("A-1", "forward")] == [each[:2] for each in path]


def test_who_waits_for_an_asynchronous_message_waits_for_its_sender(tmp_path: Path) -> None:
    """One side may wait for what the other has only begun."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    ranks[0].span("forward", 0, 60)
    ranks[0].span("torch.send", 60, 62, waits_for="barrier", meets=["m"])
    ranks[1].span("torch.irecv", 5, 6, releases=["m"])
    ranks[1].span("torch.wait", 10, 62, waits_for="*", waits=["m"])
    ranks[1].span("forward", 62, 100)
    ranks[0].step(0, 0, 62)
    ranks[1].step(0, 0, 100)
    path = found(read(tmp_path, *ranks))
    assert [("A-0", "forward", "work", 0, 60), ("A-1", "torch.wait", "handover", 60, 62)] == path[
        :2
    ]
