"""What explain says of runs in which the cause of slow steps is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import attrs
import numpy as np
import pytest
from gpuprof._analysis import causes, levels, odds, reading, stragglers
from gpuprof._analysis.explain import Explanation
from gpuprof._analysis.loop import Loop
from gpuprof._analysis.run import OUTSIDE
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.receipt import Receipt
from gpuprof._report.causes import config, what_if, words
from gpuprof._report.explain import as_dict, bounds, explain, helps, remedy, text, waits
from gpuprof._report.words import duration
from gpuprof._session.instruments.collectives import runs
from gpuprof._session.ledger import STARTS_RANKS
from gpuprof.errors import ConfigError
from support.json_output import faults
from support.made_stacks import write_stacks
from support.run_files import manifest, run_file, session_file
from support.simulated_job import CAUSES, Job, found_as_planted
from support.simulated_run import SimulatedLedger, write_run
from support.simulated_service import Load, simulate
from support.stacked_run import MAIN

MS = 1_000_000


def answer(directory: Path, job: Job) -> Explanation:
    """Simulate a run and explain it."""
    return explain(reading.read(job.write(directory / "run")))


HELPS = {
    "slow rank": "if RolloutGroup-1 were as fast as the others' median, the run would take ",
    "slow node": "if node node-1 were as fast as the others, the run would take ",
    "slow environment": "if EnvGroup-1 were as fast as the others' median, the run would take ",
    "serial driver": "without what Runner does by itself, the run would take ",
    "data stall": "without next_batch in ActorGroup, the run would take ",
    "late start": "if RolloutGroup-1 began its first scope when the others do, the run would take ",
    "slow weight sync": "without actor/sync_model_to_rollout in ActorGroup-0, the run would take ",
    "pauses": "without the pauses of EnvGroup-1, the run would take ",
    "garbage collection": "without the garbage collector in EnvGroup-1, the run would take ",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_planted_cause_is_named(cause: str, tmp_path: Path) -> None:
    """The right worker and the right scope, as the most expensive cause, and what would help."""
    found = answer(tmp_path, Job(cause, seed=3, ranks=2))
    assert found_as_planted(cause, found.findings[0]), words(found.findings[0]).says
    assert helps(found).startswith(HELPS[cause])


@pytest.mark.parametrize("ranks", [2, 4])
def test_without_a_cause_nobody_is_named(ranks: int, tmp_path: Path) -> None:
    """Some rank is always the slowest, by chance."""
    assert [] == answer(tmp_path, Job(None, seed=3, ranks=ranks)).findings


@pytest.mark.parametrize(("keys", "first"), [(True, "Runner"), (False, "ActorGroup")])
def test_the_driver_is_a_group_if_its_work_is_known(keys: bool, first: str, tmp_path: Path) -> None:
    """Without keys it may wait in any of its scopes."""
    assert first == answer(tmp_path, Job(None, seed=1, steps=10, keys=keys)).groups[0].group


def test_what_bounds_equal_ranks_accuses_none_of_them(tmp_path: Path) -> None:
    """A group whose ranks all work as long bounds the run, as the first cause that is printed."""
    ranks = [SimulatedLedger(f"Env-{rank}") for rank in range(2)]
    for ledger in ranks:
        for number in range(12):
            begin = 100 * number * MS
            ledger.step(number, begin, begin + 100 * MS)
            ledger.span("sample", begin, begin + 80 * MS)
            ledger.span("update", begin + 80 * MS, begin + 100 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", ranks)))
    first = as_dict(found)["findings"][0]
    assert found.findings == []
    assert (first["cause"], first["group"], first["scope"]) == ("bottleneck", "Env", "sample")
    assert "1. Env (2 workers) bound the run in sample: 80 ms a step" in text(found)


def test_calls_that_a_pool_gets_in_a_bad_order_are_dealt_by_their_length(tmp_path: Path) -> None:
    """The longest comes last, after three others in its rank: 70 ms, where 50 are enough."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"Scorer-{rank}") for rank in range(3)]
    random = np.random.default_rng(2)
    for step, begin in driver.begin_steps(40):
        ends, keys, now = [begin + MS] * 3, [""] * 3, begin
        lengths = [*(int(length * MS) for length in random.uniform(9, 11, 11)), 40 * MS]
        for number, length in enumerate(lengths):
            rank = int(np.argmin(ends))
            if keys[rank]:
                driver.span("ray.wait", now + 1, ends[rank] + 10, waits_for="*", waits=[keys[rank]])
                now = ends[rank] + 10
            keys[rank] = f"{step}.{number}"
            driver.sent(now + 2, now + 4, keys[rank])
            start = max(ends[rank], now) + 1000
            ends[rank] = start + length
            ranks[rank].span("score", start, ends[rank], releases=[keys[rank]])
        for end, key in sorted(zip(ends, keys, strict=True)):
            driver.span("ray.wait", now + 5, end + 10, waits_for="*", waits=[key])
            now = end + 10
    found = explain(reading.read(write_run(tmp_path / "run", [driver, *ranks])))
    (finding,) = found.findings
    assert ("imbalance", "score") == (finding.cause, finding.scope)
    assert pytest.approx((70 - 51) / 100, abs=0.03) == finding.saves


@pytest.mark.parametrize(("slower", "is_weak"), [(4, True), (12, False)])
def test_a_weak_hint_comes_after_what_takes_most_of_the_run(
    slower: int, is_weak: bool, tmp_path: Path
) -> None:
    """The hint saves a few percent, and the place that bounds the run takes nearly all of it."""
    times = [[100 + rank for rank in range(4)] for _ in range(40)]
    for step in range(20, 40):
        times[step][3] += 2 * slower
    found = spmd(tmp_path, times)
    assert [["Rank-3"]] == [finding.workers for finding in found.findings]
    assert is_weak == (as_dict(found)["findings"][0]["cause"] == "bottleneck")


def test_work_beside_which_others_take_as_long_is_no_advice(tmp_path: Path) -> None:
    """A producer makes the next item meanwhile, and is hardly ever waited for."""
    learner, producer = SimulatedLedger("Learner-0"), SimulatedLedger("Producer-0")
    for step in range(40):
        begin = 100 * step * MS
        producer.span("produce", begin, begin + 100 * MS, releases=[f"{step}"])
        got = begin + 100 * MS
        learner.step(step, begin + 90 * MS, got + 90 * MS)
        learner.span("get", begin + 90 * MS, got, waits_for="*", waits=[f"{step}"])
        learner.span("update", got, got + 90 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [learner, producer])))
    assert found.bottleneck is None
    assert re.fullmatch(
        r"no single place: update of Learner-0 takes \d+ % of a step, but without it the run would "
        r"take only \d % less, as others take about as long meanwhile",
        helps(found),
    )


def test_what_equally_long_work_would_save_is_said(tmp_path: Path) -> None:
    """Work varies, and all wait for whoever has most of it: a different rank in each step."""
    random = np.random.default_rng(3)
    ranks, now, evenly = [SimulatedLedger(f"Env-{rank}") for rank in range(8)], 0, 0
    for number in range(40):
        took = (50 * MS * random.lognormal(0, 0.5, len(ranks))).astype(int).tolist()
        end, evenly = now + max(took), evenly + sum(took) // len(took)
        for ledger, work in zip(ranks, took, strict=True):
            ledger.step(number, now, end)
            ledger.span("sample", now, now + work)
            ledger.span("all_reduce", now + work, end, waits_for="barrier", meets=[f"{number}"])
        now = end
    found = explain(reading.read(write_run(tmp_path / "run", ranks)))
    assert found.bottleneck is not None
    less = found.bottleneck.facts.even
    assert pytest.approx(1 - evenly / now, abs=0.02) == less
    assert "A different rank is the last in each step" in " ".join(text(found).split())
    assert f"if its ranks took equally long there, the run would take {less:.0%} less" in (
        helps(found).replace(" %", "%")
    )


def test_what_if_is_what_removal_saves(tmp_path: Path) -> None:
    """Beside the same run without the cause."""
    slow = answer(tmp_path / "slow", Job("slow rank", seed=3, ranks=4))
    usual = answer(tmp_path / "usual", Job(None, seed=3, ranks=4))
    saved = 1 - usual.seconds["mean"] / slow.seconds["mean"]
    assert pytest.approx(saved, abs=0.02) == slow.findings[0].saves


def test_without_keys_it_abstains(tmp_path: Path) -> None:
    """It says what bounds a step only if the path is explained, and what to add."""
    found = answer(tmp_path, Job("slow rank", seed=3, keys=False))
    assert bounds(found).startswith("not known: ")
    assert "GPUPROF_INSTRUMENTS=ray" in remedy(found)


@pytest.mark.parametrize(
    ("instruments", "thinned", "launched", "advice"),
    [
        ([], False, False, "set GPUPROF_INSTRUMENTS=ray: "),
        (["ray"], True, False, "raise the key ledger.bytes_per_step"),
        (
            ["ray"],
            False,
            False,
            "record the actors that ray.get of Runner waits for: `gpuprof run -- COMMAND`",
        ),
        (["ray"], False, True, ""),
    ],
)
def test_a_wait_without_a_key_gets_advice_that_can_be_followed(
    instruments: list[str], thinned: bool, launched: bool, advice: str, tmp_path: Path
) -> None:
    """What is switched on already is no advice, nor is `gpuprof run` where it was used."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step, begin in driver.begin_steps(10):
        driver.span("ray.get", begin, begin + 90 * MS, waits_for="*", waits=[f"ray:{step}"])
    if thinned:
        driver.event("thinned", 5, depth=2)
    run = reading.assemble("run", ledgers.ledgers(write_run(tmp_path, [driver, worker]))[0], {})
    run.instruments, run.launched = frozenset(instruments), launched
    given = remedy(explain(run))
    assert given.startswith(advice)
    assert bool(given) == bool(advice)


def test_a_wait_inside_of_a_wait_is_not_named(tmp_path: Path) -> None:
    """The group waits in the loader, whatever queue that reads."""
    ledger = SimulatedLedger("A-0")
    for _, begin in ledger.begin_steps(10):
        ledger.span("DataLoader.next", begin, begin + 90 * MS, waits_for="data")
        ledger.span(["DataLoader.next", "queue.get"], begin, begin + 90 * MS, waits_for="*")
    (group,) = explain(reading.read(write_run(tmp_path, [ledger]))).groups
    assert ("DataLoader.next", "data") == (group.scope, group.waits_for)


def test_the_path_is_that_of_a_thread_that_works(tmp_path: Path) -> None:
    """Not that of the method that waits for it, as in a trial of Ray Tune."""
    ledger = SimulatedLedger("trial-0")
    for _, begin in ledger.begin_steps(10):
        ledger.span("augment", begin, begin + 60 * MS, track=2)
        ledger.span("train", begin + MS, begin + 101 * MS)
        ledger.span(["train", "queue.get"], begin + MS, begin + 101 * MS, waits_for="*")
    path = explain(reading.read(write_run(tmp_path, [ledger]))).paths[0]
    assert ["(outside any scope)", "augment"] == sorted(part.scope for part in path.parts)


def test_a_running_job_that_stands_still_is_not_explained_as_a_healthy_one(tmp_path: Path) -> None:
    """What the watchdog knows comes before what bounds its steps."""
    ledger = SimulatedLedger("A-0")
    for step in range(10):
        ledger.step(step, 100 * step * MS, 100 * (step + 1) * MS)
        ledger.span("train", 100 * step * MS, 100 * (step + 1) * MS)
    run = reading.read(write_run(tmp_path, [ledger]))
    run.state, run.quiet, run.stall = "running", 79.0, "rank 1 waits"
    expected = (
        "It has not ended, and nothing has ended in any process for 79 s: what follows is about "
        "the time before. The watchdog's last report: rank 1 waits. "
        f"`gpuprof stacks {run.name}` shows what its processes do now."
    )
    assert expected == " ".join(text(explain(run)).split("\n\n")[1].split())


def test_the_last_end_in_any_process_ends_the_silence(tmp_path: Path) -> None:
    """Times are those of the wall clock."""
    early, late = SimulatedLedger("A-0"), SimulatedLedger("A-1")
    early.span("train", 0, 10 * MS)
    late.span("train", 0, 30_000 * MS)
    one, other = ledgers.ledgers(write_run(tmp_path, [early, late]))[0]
    assert 29.99 == pytest.approx(reading._quiet([one]) - reading._quiet([one, other]), abs=0.5)


@pytest.mark.parametrize(("steps_at_the_end", "quiet"), [(10, 0.1), (0, 30.0)])
def test_a_short_job_that_ends_is_no_hang(
    steps_at_the_end: int, quiet: float, tmp_path: Path
) -> None:
    """It takes long to start, and then less than the last moments, in which a hung one is ended."""
    ledger = SimulatedLedger("A-0")
    ledger.span("load", 0, 10)
    for step in range(steps_at_the_end):
        start = 29_000 + 100 * step
        ledger.step(step, start * MS, (start + 50) * MS)
    ledger.span("exit", 29_950 * MS, 30_000 * MS)
    directory = write_run(tmp_path, [ledger])
    run = reading.assemble("run", ledgers.ledgers(directory)[0], {})
    found = reading._quiet_at_end([p.ledger for p in run.processes], run.steps)
    assert quiet == pytest.approx(found, abs=0.1)


def test_where_a_group_waits_is_where_it_waits_most(tmp_path: Path) -> None:
    """As in the table, whose waits and time outside of scopes it adds."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("Learner-0")
    for _, begin in driver.begin_steps(10):
        worker.span("fit", begin, begin + 7 * MS)
        worker.span("ray.get", begin + 7 * MS, begin + 13 * MS, waits_for="*")
    answer = explain(reading.read(write_run(tmp_path, [driver, worker])))
    assert "Learner 93 % (between calls 87 %)" == waits(answer)


def test_a_helper_threads_wait_is_not_the_workers(tmp_path: Path) -> None:
    """It fetches ahead, and waits for room, while the main thread trains."""
    ledger = SimulatedLedger("A-0")
    for _, begin in ledger.begin_steps(10):
        ledger.span("train", begin, begin + 60 * MS)
        ledger.span(("fill (thread)", "queue.put"), begin, begin + 99 * MS, track=2, waits_for="*")
    ledger.span("fill (thread)", 0, 1000 * MS, track=2)
    ledger.threads = {1: [(0, 0, 0), (1000 * MS, 600 * MS, 0)], 2: [(0, 0, 0), (1000 * MS, MS, 0)]}
    (group,) = explain(reading.read(write_run(tmp_path, [ledger]))).groups
    assert (0.6, 0.0) == (pytest.approx(group.work), group.waits)


def test_equal_names_on_a_path_have_the_scopes_around_them(tmp_path: Path) -> None:
    """A model's forward is called for the loss, and to generate."""
    ledger = SimulatedLedger("A-0")
    for _, begin in ledger.begin_steps(10):
        ledger.span(["generate", "forward"], begin, begin + 60 * MS)
        ledger.span(["loss", "forward"], begin + 60 * MS, begin + 90 * MS)
    path = explain(reading.read(write_run(tmp_path, [ledger]))).paths[0]
    assert ["generate/forward", "loss/forward"] == [part.scope for part in path.parts[:2]]


@pytest.mark.parametrize("marked", [False, True])
def test_what_a_task_awaits_outside_of_ray_can_be_marked(marked: bool, tmp_path: Path) -> None:
    """With a timer around it, as the advice says."""
    driver = SimulatedLedger("Runner", "driver")
    driver.loops = {1: 1}
    around = ["fetch"] if marked else []
    for _, begin in driver.begin_steps(10):
        for scope in around:
            driver.span(scope, begin, begin + 90 * MS, waits_for="data")
        driver.span([*around, "await"], begin, begin + 90 * MS, waits_for="*")
    run = reading.read(write_run(tmp_path, [driver]))
    run.instruments = frozenset({"ray"})
    found = explain(run)
    assert marked == (found.confidence.explained > 0.85)
    advice = 'mark what Runner awaits with gpuprof.timer("…", waits_for="data")'
    assert marked == (remedy(found) != advice)


@pytest.mark.parametrize(
    ("scope", "cause"), [("sync_weights", "synchronisation"), ("asyncio.sleep", None)]
)
def test_asynchronous_code_is_no_synchronisation(
    scope: str, cause: str | None, tmp_path: Path
) -> None:
    """Although one word is in the other."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step, begin in driver.begin_steps(32):
        driver.span("ray.get", begin, begin + 99 * MS, waits=[f"{step}"], waits_for="*")
        worker.span("work", begin, begin + 50 * MS)
        worker.span(scope, begin + 50 * MS, begin + 98 * MS, releases=[f"{step}"])
    found = explain(reading.read(write_run(tmp_path, [driver, worker]))).findings
    assert [cause] == ([finding.cause for finding in found] or [None])


def test_the_name_of_a_thread_keeps_its_brackets(tmp_path: Path) -> None:
    """Only a name that is nothing but brackets loses them."""
    driver = SimulatedLedger("Runner", "driver")
    for step, begin in driver.begin_steps(10):
        driver.span("Thread.join", begin, begin + 99 * MS, waits=[f"{step}"], waits_for="*")
        driver.span("parse (thread)", begin, begin + 98 * MS, track=2, releases=[f"{step}"])
    found = explain(reading.read(write_run(tmp_path, [driver])))
    assert "(parse (thread) 98 %)" in bounds(found)


def test_ranks_that_start_apart_are_neither_slow_nor_late(tmp_path: Path) -> None:
    """Ranks that do not wait for each other: what lies between their starts is in no step."""
    made = [SimulatedLedger(f"Rank-{rank}") for rank in range(2)]
    for rank, ledger in enumerate(made):
        for number in range(20):
            begin = (5_000 * rank + 100 * number) * MS
            ledger.step(number, begin, begin + 100 * MS)
            ledger.span("work", begin + MS, begin + (80 + (number + rank) % 3) * MS)
    found = explain(reading.read(write_run(tmp_path / "run", made)))
    assert (0.1, []) == (found.seconds["median"], found.findings)


def test_a_rank_that_was_started_again_is_one_rank(tmp_path: Path) -> None:
    """Its processes work in turn, so that the group is as even as its ranks are."""
    driver, other = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-1")
    starts = SimulatedLedger("A-0"), SimulatedLedger("A-0")
    starts[1].incarnation = "2"
    for step, begin in driver.begin_steps(20):
        for worker in (starts[step >= 10], other):
            worker.span("work", begin, begin + 50 * MS)
    starts[1].write(tmp_path).rename(tmp_path / "node-0" / "A-0.start-2.ledger")
    found = explain(reading.read(write_run(tmp_path, [driver, starts[0], other])))
    (group,) = (each for each in found.groups if each.group == "A")
    assert (2, 1.0) == (group.workers, group.imbalance)


def restarted(directory: Path, names: Sequence[Sequence[str]]) -> Explanation:
    """A job without a driver whose launcher has started these ranks, one lot after the other."""
    for number, start in reversed(list(enumerate(names, 1))):
        for name in start:
            ledger = SimulatedLedger(name)
            ledger.incarnation = str(number)
            for step in range(40 // number):
                begin = (10_000 * number + 100 * step) * MS
                ledger.step(step, begin, begin + 100 * MS)
                ledger.span("work", begin, begin + 90 * MS)
            file = ledger.write(directory)
            file.rename(file.with_name(f"{name}.start-{number}.ledger"))
    return explain(reading.read(directory))


def test_ranks_of_another_start_are_left_out(tmp_path: Path) -> None:
    """An elastic launcher goes on with fewer: a rank that is in both is not slower for it."""
    found = restarted(tmp_path, [["A-0", "A-1", "A-2"], ["A-0", "A-1"]])
    said = " ".join(text(found).split())
    assert "40 of 60 steps; left out: 20 with other workers." in said
    (group,) = found.groups
    assert (3, 1.0, []) == (group.workers, group.imbalance, found.findings)


def test_the_same_ranks_go_on_after_a_restart(tmp_path: Path) -> None:
    """With steps of their own, of whatever number."""
    found = restarted(tmp_path, [["A-0", "A-1"], ["A-0", "A-1"]])
    assert (60, 0) == (found.steps["all"], found.steps["other_workers"])
    assert 0.1 == pytest.approx(found.seconds["median"])


@pytest.mark.parametrize(("usually", "named"), [(0.3, []), (12, ["late start"])])
def test_a_rank_is_late_if_it_usually_is(usually: float, named: list[str], tmp_path: Path) -> None:
    """Ranks are called in turn, so the last is always late by a little, and sometimes by much."""
    driver = SimulatedLedger("Runner", "driver")
    workers = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    end = 0
    for step in range(30):
        begin = end
        keys = [f"ray:{step}:{rank}" for rank in range(2)]
        for rank, worker in enumerate(workers):
            late = rank * (80 if step % 7 == 3 else usually)
            start = begin + MS + int(late * MS)
            end = start + MS + (step * 7 + rank * 3) % 5
            worker.span("work", start, end, releases=[keys[rank]])
        driver.span("ray.get", begin, end, waits_for="*", waits=keys)
        driver.step(step, begin, end)
    found = explain(reading.read(write_run(tmp_path, [driver, *workers])))
    assert named == [finding.cause for finding in found.findings]


def test_a_node_is_slow_though_none_of_its_ranks_stands_out(tmp_path: Path) -> None:
    """Each of four is the slowest in turn; a group that is only there has no peers."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}", node=f"node-{rank // 4}") for rank in range(12)]
    loader = SimulatedLedger("Loader-0", node="node-1")
    for step, begin in driver.begin_steps(32):
        loader.span("load", begin, begin + 5 * MS)
        for rank, worker in enumerate(ranks):
            milliseconds = 50 + 20 * (rank // 4 == 1) + (rank + step) % 4
            worker.span("work", begin, begin + milliseconds * MS)
    found = explain(reading.read(write_run(tmp_path, [driver, loader, *ranks])))
    assert [("node", "node-1", "work")] == [
        (finding.cause, finding.worker, finding.scope) for finding in found.findings
    ]


def test_a_process_that_runs_tasks_is_not_late(tmp_path: Path) -> None:
    """Whichever is free gets the next task, and here one of them always gets the second."""
    driver = SimulatedLedger("Runner", "driver")
    workers = [SimulatedLedger(f"Tasks-0.child-{pid}", "child") for pid in (7, 8)]
    for step, begin in driver.begin_steps(32):
        keys = [f"ray:{step}:{task}" for task in range(2)]
        driver.span("ray.get", begin, begin + 90 * MS, waits_for="*", waits=keys)
        for task, worker in enumerate(workers):
            start = begin + (1 + 40 * task) * MS + (step * 7 + task * 3) % 5
            worker.span("preprocess", start, start + 40 * MS, releases=[keys[task]])
    found = explain(reading.read(write_run(tmp_path, [driver, *workers]))).findings
    assert "late start" not in [finding.cause for finding in found]


@pytest.mark.parametrize(
    ("late", "named"), [(30, {"late start", "rank"}), (10, {"rank"})], ids=["more", "less"]
)
def test_a_rank_that_is_later_than_it_is_slow_is_both(
    late: int, named: set[str], tmp_path: Path
) -> None:
    """It is slow by 20 ms in its scope; a smaller delay may come from that."""
    driver = SimulatedLedger("Runner", "driver")
    workers = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    end = 0
    for step in range(32):
        begin = end
        keys = [f"ray:{step}:{rank}" for rank in range(2)]
        for rank, worker in enumerate(workers):
            start = begin + MS + rank * late * MS
            end = start + (50 + 20 * rank) * MS + (step * 7 + rank * 3) % 5
            worker.span("work", start, end, releases=[keys[rank]])
        driver.span("ray.get", begin, end, waits_for="*", waits=keys)
        driver.step(step, begin, end)
    found = explain(reading.read(write_run(tmp_path, [driver, *workers]))).findings
    assert named == {finding.cause for finding in found}
    assert {"A-1"} == {finding.worker for finding in found}


@pytest.mark.parametrize(
    ("on_its_way", "named"),
    [(0, {("rank", "A-1")}), (15, {("rank", "A-1"), ("late start", "B-1")})],
)
def test_a_rank_is_not_late_because_its_caller_is_slow(
    on_its_way: int, named: set[tuple[str, str]], tmp_path: Path
) -> None:
    """From the call on it is its own delay. Before, A-1 works 20 ms longer than A-0."""
    driver = SimulatedLedger("Runner", "driver")
    callers = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    called = [SimulatedLedger(f"B-{rank}") for rank in range(2)]
    for step in range(32):
        begin = 200 * step * MS
        driver.step(step, begin, begin + 200 * MS)
        for rank in range(2):
            jitter = (step * 7 + rank * 3) % 5
            call = begin + (50 + 20 * rank) * MS + jitter
            start = call + MS + rank * on_its_way * MS + jitter
            end = start + 10 * MS + (step + rank) % 2
            callers[rank].span("work", begin, call)
            callers[rank].span("ray.get", call, end, waits=[f"ray:{step}-{rank}"], waits_for="*")
            called[rank].span("act", start, end, releases=[f"ray:{step}-{rank}"])
    found = explain(reading.read(write_run(tmp_path, [driver, *callers, *called]))).findings
    assert named == {(finding.cause, finding.worker) for finding in found}


def test_a_rank_is_not_late_because_its_arguments_are(tmp_path: Path) -> None:
    """In a ring each call takes the result of the one before; all are sent at once."""
    driver = SimulatedLedger("Runner", "driver")
    hops = [SimulatedLedger(f"Hop-{rank}") for rank in range(4)]
    for step in range(32):
        begin = now = 200 * step * MS
        driver.step(step, begin, begin + 200 * MS)
        for rank, hop in enumerate(hops):
            needs = [f"ray:{step}-{rank - 1}"] if rank else []
            driver.sent(begin, begin, f"ray:{step}-{rank}", needs)
            now += MS
            end = now + (100 if rank == 2 else 10) * MS + (step * 7 + rank * 3) % 5
            hop.span("forward", now, end, releases=[f"ray:{step}-{rank}"])
            now = end
        driver.span("ray.wait", begin, now, waits=[f"ray:{step}-3"], waits_for="*")
    found = explain(reading.read(write_run(tmp_path, [driver, *hops]))).findings
    assert [("rank", "Hop-2")] == [(finding.cause, finding.worker) for finding in found]


def ranks_that_do(directory: Path, scopes: dict[str, tuple[int, int]], **about: str) -> Explanation:
    """Two ranks that are in each scope for so many milliseconds in each step, one by one."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for step, begin in driver.begin_steps(32):
        for rank, worker in enumerate(ranks):
            now = begin + (step * 7 + rank * 3) % 5
            for scope, milliseconds in scopes.items():
                worker.span(scope, now, now + milliseconds[rank] * MS, waits_for=about.get(scope))
                now += milliseconds[rank] * MS
    return explain(reading.read(write_run(directory / "run", [driver, *ranks])))


def test_a_rank_that_waits_longer_for_data_is_slow(tmp_path: Path) -> None:
    """Nobody else makes it wait."""
    found = ranks_that_do(tmp_path, {"load": (1, 40), "work": (50, 50)}, load="data").findings
    assert ("rank", "A-1", "load") in [(each.cause, each.worker, each.scope) for each in found]


def test_no_rank_is_slow_if_all_wait_for_data(tmp_path: Path) -> None:
    """A rank that waits for the others meanwhile finds its next batch ready."""
    found = ranks_that_do(tmp_path, {"load": (10, 40), "work": (50, 50)}, load="data").findings
    assert "rank" not in [each.cause for each in found]


def test_a_rank_may_be_slow_in_many_small_scopes(tmp_path: Path) -> None:
    """In none of them by enough; all in all by 10 % of a step."""
    scopes = {f"scope {number}": (1, 2) for number in range(10)}
    (finding,) = ranks_that_do(tmp_path, {**scopes, "work": (50, 50)}).findings
    assert ("rank", "A-1", "(several scopes)") == (finding.cause, finding.worker, finding.scope)


def on_nodes(directory: Path, workers: dict[str, tuple[str, int]]) -> Explanation:
    """Workers of a driver that work in each step; by name their node and how many milliseconds."""
    driver = SimulatedLedger("Runner", "driver")
    made = {name: SimulatedLedger(name, node=node) for name, (node, _) in workers.items()}
    for step in range(32):
        begin = 200 * step * MS
        driver.step(step, begin, begin + 200 * MS)
        for number, (name, (_, milliseconds)) in enumerate(workers.items()):
            end = begin + milliseconds * MS + (step * 7 + number * 3) % 5
            made[name].span("work", begin, end)
    return explain(reading.read(write_run(directory / "run", [driver, *made.values()])))


NODE_SLOW = {"A-0": ("node-0", 100), "A-1": ("node-1", 150)}
ALONE = "It or its node, node-1: nothing else there can be compared."


@pytest.mark.parametrize(
    ("workers", "alone"),
    [
        (NODE_SLOW, True),
        ({**NODE_SLOW, "B-0": ("node-1", 100)}, True),
        ({**NODE_SLOW, "B-0": ("node-0", 100), "B-1": ("node-1", 100)}, False),
        ({"A-0": ("node-0", 100), "A-1": ("node-0", 150)}, False),
    ],
    ids=["no other worker", "one without peers", "one as fast as its peer", "one node"],
)
def test_a_slow_rank_may_be_its_node_if_nothing_there_tells(
    workers: dict[str, tuple[str, int]], alone: bool, tmp_path: Path
) -> None:
    """Another worker on the node tells, if its group has others elsewhere."""
    (finding,) = on_nodes(tmp_path, workers).findings
    assert ("rank", "A-1", alone) == (finding.cause, finding.worker, ALONE in words(finding).says)


@pytest.mark.parametrize(
    ("other", "named"), [(150, ("node", "node-1")), (110, ("rank", "A-1"))], ids=["alike", "less"]
)
def test_a_node_is_slow_if_all_on_it_are_as_slow(
    other: int, named: tuple[str, str], tmp_path: Path
) -> None:
    """Not if one of them has less than half of the other's excess."""
    found = on_nodes(
        tmp_path, {**NODE_SLOW, "B-0": ("node-0", 100), "B-1": ("node-1", other)}
    ).findings
    assert named == (found[0].cause, found[0].worker)


PAUSED = {1, 4, 6, 11, 13, 18, 22, 25, 30, 33, 37, 42, 44, 49}
"""Steps of 56."""


def test_pauses_cost_what_they_last(tmp_path: Path) -> None:
    """Beyond what the other rank takes: 60 ms, though the rank is 80 ms longer than usually."""
    times = [[100, 160 if step in PAUSED else 78 + step % 3] for step in range(56)]
    (finding,) = spmd(tmp_path, times).findings
    assert ("pauses", "Rank-1", pytest.approx(14 * 60 / (56 * 101 + 14 * 60), rel=0.1)) == (
        finding.cause,
        finding.worker,
        finding.saves,
    )


def test_a_rank_that_pauses_is_not_slow_in_general(tmp_path: Path) -> None:
    """Though it is the slowest in each step, and pauses are most of what it costs."""
    times = [[100, 160 if step in PAUSED else 102 + step % 3] for step in range(56)]
    assert ["pauses"] == [finding.cause for finding in spmd(tmp_path, times).findings]


@pytest.mark.parametrize(("other", "expected"), [(200, "named"), (400, "hint"), (600, "")])
def test_pauses_stand_out_from_those_of_others(other: int, expected: str, tmp_path: Path) -> None:
    """Where others pause nearly as long, chance may decide who pauses longest."""
    pauses = {(15, 0): other, (8, 1): 500, (30, 1): 500, (41, 2): other, (22, 3): other}
    times = [[100 + pauses.get((step, rank), 0) for rank in range(4)] for step in range(56)]
    answer = spmd(tmp_path, times)
    grades = [(each.worker, each.grade) for each in answer.findings if each.cause == "pauses"]
    assert ([("Rank-1", expected)] if expected else []) == grades
    assert ("other ranks pause as well" in text(answer)) == (expected == "hint")


def test_a_pause_is_in_the_scope_that_is_longer_then(tmp_path: Path) -> None:
    """Not in the one that is always longer."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    end = 0
    for step in range(56):
        begin, paused = end, step in PAUSED
        end += (101 + 58 * paused) * MS
        driver.step(step, begin, end)
        for rank, worker in enumerate(ranks):
            forward = begin + (30 + 10 * rank) * MS + step % 3
            backward = 70 - 12 * rank + 60 * (rank == 1 and paused)
            worker.span("forward", begin, forward)
            worker.span("backward", forward, forward + backward * MS)
    found = explain(reading.read(write_run(tmp_path, [driver, *ranks]))).findings
    assert [("pauses", "A-1", "backward")] == [
        (finding.cause, finding.worker, finding.scope) for finding in found
    ]


@pytest.mark.parametrize("foreign", [20, 90])
def test_a_pause_of_another_rank_hides_no_others(foreign: int, tmp_path: Path) -> None:
    """Ten of 60 ms are one rank's: whether that is chance or not, they cost what they cost."""
    paused = {1, 4, 11, 18, 25, 30, 33, 37, 42, 49}
    times = [[100 + foreign * (step == 15), 100 + 60 * (step in paused)] for step in range(56)]
    found = spmd(tmp_path, times).findings
    assert [("pauses", "Rank-1")] == [(each.cause, each.worker) for each in found]


def collected(
    directory: Path, pauses: dict[int, range], steps: int = 10, milliseconds: int = 30
) -> Explanation:
    """A driver calls two ranks, which work for 50 ms; the garbage collector stops them in steps."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    begin = 0
    for step in range(steps):
        ends, keys = [], []
        for rank, ledger in enumerate(ranks):
            paused = milliseconds if step in pauses.get(rank, ()) else 0
            end = begin + (50 + (step * 3 + rank) % 2 + paused) * MS
            if paused:
                ledger.collections.append((2, begin + 10 * MS, begin + (10 + paused) * MS))
            keys.append(f"ray:{step}:{rank}")
            ledger.span("work", begin, end, releases=[keys[-1]])
            ends.append(end)
        driver.span("ray.get", begin, max(ends), waits_for="*", waits=keys)
        driver.step(step, begin, max(ends))
        begin = max(ends)
    return explain(reading.read(write_run(directory / "run", [driver, *ranks])))


def test_few_pauses_of_the_garbage_collector_are_no_guess(tmp_path: Path) -> None:
    """They were recorded, so that three say as much as thirty; other pauses would need more."""
    (found,) = collected(tmp_path, {1: range(4, 7)}).findings
    assert ("garbage collection", "A-1", "work", 3) == (
        found.cause, found.worker, found.scope, found.steps,
    )  # fmt: skip


def test_what_the_garbage_collector_costs_is_known(tmp_path: Path) -> None:
    """What the run would take less is its pauses on the path: 3 of 30 ms in 10 steps of 51."""
    (found,) = collected(tmp_path, {1: range(4, 7)}).findings
    assert pytest.approx(90 / (10 * 51 + 90), abs=0.005) == found.saves


def test_pauses_of_all_ranks_by_turns_are_one_cause(tmp_path: Path) -> None:
    """No rank is slower than the others, and each holds all up."""
    (found,) = collected(tmp_path, {0: range(0, 10, 2), 1: range(1, 10, 2)}).findings
    assert found.cause == "garbage collection"
    assert words(found).says.startswith(f"The garbage collector stops {found.worker} and 1 more")


def test_a_rank_that_the_garbage_collector_slows_is_not_slow_by_itself(tmp_path: Path) -> None:
    """In so many steps that chance is out of the question, it is named once, for its reason."""
    (found,) = collected(tmp_path, {1: range(30)}, steps=30).findings
    assert ("garbage collection", "A-1", "work") == (found.cause, found.worker, found.scope)


def test_short_pauses_of_the_garbage_collector_are_no_cause(tmp_path: Path) -> None:
    """Below 3 % of a step."""
    assert [] == collected(tmp_path, {1: range(10)}, milliseconds=1).findings


def test_what_the_garbage_collector_does_between_calls_costs_nothing(tmp_path: Path) -> None:
    """A worker that waits for its next call may well be stopped."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step, begin in driver.begin_steps(10):
        driver.span("ray.get", begin, begin + 50 * MS, waits_for="*", waits=[f"ray:{step}"])
        driver.span("own", begin + 50 * MS, begin + 100 * MS)
        worker.span("work", begin, begin + 50 * MS, releases=[f"ray:{step}"])
        worker.collections.append((2, begin + 55 * MS, begin + 95 * MS))
    found = explain(reading.read(write_run(tmp_path / "run", [driver, worker])))
    assert "garbage collection" not in [finding.cause for finding in found.findings]


def alone(directory: Path, *, paused: int = 0, between: int = 0, ranks: int = 1) -> Explanation:
    """A process that works for 40 ms of each step in no scope, and for 10 ms in one.

    Args:
        paused: for how many milliseconds more the garbage collector stops it, in no scope.
        between: how many milliseconds lie between its steps.
        ranks: how many ranks its process group has. The ledgers of the others are missing.
    """
    ledger, now = SimulatedLedger("Program-0"), 0
    ledger.event("process group", 0, name="default_pg", rank=0, ranks=runs(range(ranks)))
    for step in range(20):
        end = now + (50 + paused) * MS
        ledger.span("forward", now, now + 10 * MS)
        if paused:
            ledger.collections.append((2, now + 20 * MS, now + (20 + paused) * MS))
        ledger.step(step, now, end)
        now = end + between * MS
    return explain(reading.read(write_run(directory / "run", [ledger])))


def test_what_the_garbage_collector_does_outside_scopes_is_named(tmp_path: Path) -> None:
    """As much as in a scope, in a process that nobody calls."""
    (found,) = alone(tmp_path, paused=50).findings
    assert ("garbage collection", "(outside any scope)") == (found.cause, found.scope)
    assert pytest.approx(0.5, abs=0.01) == found.saves


@pytest.mark.parametrize(("run", "grade"), [(True, "named"), (False, "hint")])
def test_processes_that_run_a_function_of_the_jobs_work_outside_of_scopes(
    run: bool, grade: str, tmp_path: Path
) -> None:
    """Nobody calls them: if they run, what they do between message and answer is their own."""
    learner = SimulatedLedger("Learner-0")
    servers = [SimulatedLedger(f"serve-{rank}") for rank in range(3)]
    learner.event(STARTS_RANKS, 0, group="serve")
    for step in range(40):
        begin = step * 100 * MS
        learner.step(step, begin, begin + 100 * MS)
        for rank, server in enumerate(servers):
            sent = begin + (rank + 1) * MS
            answered = sent + (80 if rank == 1 else 40) * MS
            learner.span("pipe.send", sent - MS // 2, sent, releases=[f"{step}.{rank}"])
            since = max(0, begin - (17 if rank == 1 else 58 - rank) * MS)
            server.span("pipe.recv", since, sent, waits_for="*", waits=[f"{step}.{rank}"])
            # the answer may be there before the scope that sends it ends
            server.span("pipe.send", answered, answered + MS, releases=[f"{step}.{rank}!"])
        for rank in (0, 1, 2):
            since = begin + (10 if rank == 0 else 41 + 40 * (rank == 2)) * MS
            until = begin + (rank + 1 + (80 if rank == 1 else 40)) * MS + MS // 2
            if until > since:
                key = f"{step}.{rank}!"
                learner.span("pipe.recv", since, until, waits_for="*", waits=[key])
    for server in servers:
        server.main = [(0, 0, 0), (40 * 100 * MS, run * 40 * 100 * MS, 0)]
    found = explain(reading.read(write_run(tmp_path / "run", [learner, *servers])))
    assert [("rank", "serve-1", grade)] == [
        (finding.cause, finding.worker, finding.grade) for finding in found.findings
    ]


def test_a_process_that_is_alone_waits_for_nobody(tmp_path: Path) -> None:
    """What it does in no scope is its own, though it may sleep there."""
    found = alone(tmp_path)
    assert "Program-0 100 % (outside any scope 80 %)" == bounds(found)
    assert found.bottleneck is not None
    assert "Program-0 bounds the run outside any scope: 40 ms a step, 80 % of the run." == (
        words(found.bottleneck).says
    )


def test_what_is_saved_in_steps_is_no_more_than_they_last(tmp_path: Path) -> None:
    """Outside scopes, the path goes back through the time between steps."""
    ledger = SimulatedLedger("Program-0")
    for step in range(20):
        ledger.step(step, 70 * step * MS, (70 * step + 10) * MS)
    record = causes.Record(reading.read(write_run(tmp_path, [ledger])))
    in_steps = causes._within_steps(record, {(0, OUTSIDE): np.zeros(len(record.run.steps))})
    assert pytest.approx(10 / 70, abs=0.01) == record.saves(causes._by_step(in_steps))


def test_the_pickling_of_results_is_a_cause(tmp_path: Path) -> None:
    """It is part of each call, and nobody's slowness."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step, begin in driver.begin_steps(20):
        worker.span("act", begin, begin + 50 * MS)
        keys = [f"ray:{step}"]
        worker.span("ray.serialize", begin + 50 * MS, begin + 90 * MS, releases=keys)
        driver.span("ray.get", begin, begin + 91 * MS, waits_for="*", waits=keys)
    found = explain(reading.read(write_run(tmp_path, [driver, worker]))).findings
    assert ("synchronisation", "ray.serialize") == (found[0].cause, found[0].scope)


def test_one_rank_of_several_may_wait_for_the_others(tmp_path: Path) -> None:
    """Their ledgers are on nodes that share no directory."""
    assert bounds(alone(tmp_path, ranks=2)).startswith("not known: ")


def test_a_part_of_a_step_is_not_taken_for_one(tmp_path: Path) -> None:
    """Where little of the loop is in steps, no saving is claimed for what lies between them."""
    (found,) = alone(tmp_path, between=450).findings
    assert ("between steps", None, "hint") == (found.cause, found.saves, found.grade)
    assert words(found).says.endswith("What is marked may be only a part of a step.")


def test_workers_that_take_turns_are_said_to(tmp_path: Path) -> None:
    """A driver that waits for each of two calls before it makes the next one."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for step, begin in driver.begin_steps(20):
        for rank, worker in enumerate(ranks):
            start, key = begin + 45 * rank * MS, f"ray:{step}:{rank}"
            worker.span("act", start, start + 40 * MS, releases=[key])
            driver.span("ray.get", start, start + 41 * MS, waits_for="*", waits=[key])
    found = explain(reading.read(write_run(tmp_path, [driver, *ranks])))
    assert found.bottleneck is not None
    assert "the run would take 40 % less with all of them" in words(found.bottleneck).says


def test_a_stage_that_begins_with_work_is_not_late(tmp_path: Path) -> None:
    """The others begin to wait for it at once, and nothing tells for how long."""
    ranks = [SimulatedLedger(f"Rank-{rank}") for rank in range(3)]
    for step in range(30):
        begin = 100 * step * MS
        for rank, ledger in enumerate(ranks):
            now = begin + (10 + 25 * rank) * MS
            if rank:
                ledger.span("recv", begin + MS // 10, now, waits_for="Rank")
            ledger.span("forward", now, now + 20 * MS)
            ledger.span("recv", now + 20 * MS, begin + 99 * MS, waits_for="Rank")
            ledger.step(step, begin, begin + 100 * MS)
    found = stragglers.find(reading.read(write_run(tmp_path, ranks)))
    assert "late start" not in [straggler.kind for straggler in found]


@pytest.mark.parametrize(
    ("profiled", "said"), [([], False), ([1], True), ([0], False), ([0, 1], False)]
)
def test_a_slow_rank_that_alone_has_a_profiler_is_said_to_have_one(
    profiled: list[int], said: bool, tmp_path: Path
) -> None:
    """The profiler may be why it is slow, which no comparison with those that have none tells."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    directory = tmp_path / "run"
    for rank, ledger in enumerate(ranks):
        for step in range(20):
            begin = 90 * step * MS
            ledger.step(step, begin, begin + 90 * MS)
            ledger.span("work", begin, begin + (40 + 30 * rank) * MS)
        ledger.write(directory)
        session = session_file(
            name=f"A-{rank}", rank=rank, node="node-0", profiled=rank in profiled
        )
        (directory / "node-0" / f"A-{rank}.start-1.json").write_text(json.dumps(session))
    (found,) = explain(reading.read(directory)).findings
    assert said == ("had a profiler" in words(found).says)
    assert ("profiled" if said else "path") == found.facts.doubt


def test_what_saves_most_stands_first(tmp_path: Path) -> None:
    """A driver that works for 80 ms a step before a rank that takes 20 ms longer."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for step in range(30):
        begin, keys = step * 200 * MS, [f"ray:{step}:{rank}" for rank in range(2)]
        for rank, ledger in enumerate(ranks):
            ledger.span("work", begin, begin + (90 + 20 * rank) * MS, releases=[keys[rank]])
        driver.span("ray.get", begin, begin + 110 * MS, waits_for="*", waits=keys)
        driver.span("reward", begin + 110 * MS, begin + 190 * MS)
        driver.step(step, begin, begin + 190 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [driver, *ranks])))
    assert ["driver", "rank"] == [finding.cause for finding in found.findings]


def test_ranks_that_are_slow_in_different_scopes_are_both_named(tmp_path: Path) -> None:
    """All in all they take as long, and each waits for the other."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for step, begin in driver.begin_steps(32):
        for rank, worker in enumerate(ranks):
            forward = begin + (20 + 20 * rank) * MS + (rank + step) % 2
            backward = begin + (90 - 20 * rank) * MS
            worker.span("forward", begin, forward)
            worker.span("backward", begin + 50 * MS, backward)
    found = explain(reading.read(write_run(tmp_path, [driver, *ranks])))
    assert {("A-1", "forward"), ("A-0", "backward")} == {
        (finding.worker, finding.scope) for finding in found.findings
    }


@pytest.mark.parametrize(("steps", "named"), [(7, []), (8, ["Rank-1"])])
def test_few_steps_name_nobody(steps: int, named: list[str], tmp_path: Path) -> None:
    """However slow somebody is in them."""
    times = [
        [100 + (step + rank) % 3 + 60 * (rank == 1) for rank in range(4)] for step in range(steps)
    ]
    assert named == [finding.worker for finding in spmd(tmp_path, times).findings]


def test_without_keys_a_straggler_is_still_named(tmp_path: Path) -> None:
    """Who is slower than the others needs no path; what it saves does."""
    first = answer(tmp_path, Job("slow rank", seed=3, keys=False)).findings[0]
    assert ("RolloutGroup-1", "rollout/predict", None) == (first.worker, first.scope, first.saves)


def test_what_is_far_apart_is_so_although_it_resembles_what_came_before() -> None:
    """One of two ranks gets slower, and the other takes 50 times as long, or twice."""
    slower = np.linspace(1, 3, 9)
    assert odds.apart(150 + slower, slower) < 1e-4
    assert odds.apart(6 + slower, slower) > 1e-3


def test_two_slow_scopes_that_wait_for_each_other_are_one_cause(tmp_path: Path) -> None:
    """The rank that waits is not slow, though its step is as long."""
    found = answer(tmp_path, Job("slow environment", seed=4, ranks=2))
    assert ["EnvGroup-1"] == [finding.worker for finding in found.findings]


@pytest.mark.parametrize(
    ("handed", "advice"),
    [
        (
            60,
            "no rank stands out; handing over what was waited for takes 60 % of a step",
        ),
        (30, "make act of A-0 faster: it takes 70 % of a step"),
    ],
)
def test_what_a_step_spends_on_handing_over_is_said(
    handed: int, advice: str, tmp_path: Path
) -> None:
    """The driver has a result so many milliseconds after the worker has ended."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step in range(32):
        begin, end = 100 * step * MS, 100 * (step + 1) * MS
        driver.step(step, begin, end)
        worker.span("act", begin, end - handed * MS, releases=[f"ray:{step}"])
        driver.span("ray.get", begin, end, waits=[f"ray:{step}"], waits_for="*")
    found = explain(reading.read(write_run(tmp_path, [driver, worker])))
    assert helps(found).startswith(advice)


@pytest.mark.parametrize("alike", [True, False], ids=["all ranks", "one rank"])
def test_what_calls_take_on_their_way_is_said_if_it_is_the_same_for_all_ranks(
    alike: bool, tmp_path: Path
) -> None:
    """Their arguments are unpickled before they begin; of one rank, something else is slow."""
    driver = SimulatedLedger("Runner", "driver")
    workers = [SimulatedLedger(f"A-{rank}") for rank in range(3)]
    for step in range(32):
        begin = 100 * step * MS
        driver.step(step, begin, begin + 100 * MS)
        keys = [f"ray:{step}:{rank}" for rank in range(3)]
        for rank, (worker, key) in enumerate(zip(workers, keys, strict=True)):
            driver.sent(begin, begin + MS, key)
            unpickled = 30 if alike or rank == 1 else 1
            start = begin + (1 + unpickled) * MS + (step * 7 + rank * 3) % 5 * MS // 10
            worker.span("A.act", start, begin + 99 * MS, releases=[key])
        driver.span("ray.get", begin + MS, begin + 100 * MS, waits=keys, waits_for="*")
    found = explain(reading.read(write_run(tmp_path, [driver, *workers])))
    causes = [finding.cause for finding in found.findings]
    assert alike == ("synchronisation" in causes)
    if alike:
        assert helps(found).startswith(
            "if calls, their arguments and their results took no time on their way, the run would "
            "take 3"
        )
        assert words(found.findings[causes.index("synchronisation")]).says.startswith(
            "Calls take 3"
        )


def test_a_change_in_a_long_run_is_found() -> None:
    """There are more ways for it than fit into a float."""
    random = np.random.default_rng(0)
    values = random.normal(0, 0.1, 3000) + (np.arange(3000) >= 2000)
    assert 2000 == levels.higher_since(values)
    assert levels.higher_since(random.normal(0, 0.1, 3000)) is None


def test_steps_that_are_longer_from_one_on_are_said_with_its_number(tmp_path: Path) -> None:
    """All ranks alike: nobody is slow."""
    times = [[(30 if step < 50 else 50) + (step * 7 + rank) % 3 for rank in range(3)]
             for step in range(80)]  # fmt: skip
    found = spmd(tmp_path, times)
    assert found.trend is not None
    assert 50 == found.trend.since
    said = " ".join(text(found).split())
    assert (
        "From step 50 on, steps are longer: 33 ms before, 53 ms since, most of it in work" in said
    )


def spmd(
    directory: Path,
    times: list[list[int]],
    groups: Sequence[Sequence[int]] = (),
    calls: Sequence[int] = (),
) -> Explanation:
    """Ranks that work for so many milliseconds in each step and meet; by step and rank.

    Args:
        groups: process groups, by their ranks.
        calls: into how many calls each rank divides its work, equally; none: into one.
    """
    made = [SimulatedLedger(f"Rank-{rank}") for rank in range(len(times[0]))]
    begin = 0
    for number, of_step in enumerate(times):
        end = begin + max(of_step) * MS + MS
        for ledger, taken, count in zip(made, of_step, calls or [1] * len(made), strict=True):
            ledger.step(number, begin, end)
            edges = [begin + taken * MS * part // count for part in range(count + 1)]
            for edge, after in pairwise(edges):
                ledger.span("work", edge + 1, after)
            ledger.span("barrier", begin + taken * MS, end - 1, waits_for="barrier")
        begin = end
    for ranks in groups:
        for rank in ranks:
            made[rank].event("process group", 0, name="pp", rank=rank, ranks=runs(ranks))
    return explain(reading.read(write_run(directory / "run", made)))


@pytest.mark.parametrize(("ranks", "slow"), [(6, {1, 3}), (8, {2, 7})])
def test_slow_ranks_that_only_together_cost_anything_are_one_cause(
    ranks: int, slow: set[int], tmp_path: Path
) -> None:
    """Without one of them, the other takes as long; without both, it is 40 of 141 ms less."""
    times = [
        [100 + (step + rank) % 3 + 40 * (rank in slow) for rank in range(ranks)]
        for step in range(40)
    ]
    (finding,) = spmd(tmp_path, times).findings
    assert {f"Rank-{rank}" for rank in slow} == set(finding.workers)
    assert pytest.approx(0.28, abs=0.01) == finding.saves


def uneven(ranks: int, heavy: set[int]) -> list[list[int]]:
    """40 steps in which some ranks take 140 ms, and others 100 ms."""
    return [
        [100 + (step + rank) % 3 + 40 * (rank in heavy) for rank in range(ranks)]
        for step in range(40)
    ]


PIPELINES = [[first, first + 2, first + 4, first + 6] for first in (0, 1)]
"""Of eight ranks: each two in a row are a stage."""


@pytest.mark.parametrize(
    ("ranks", "heavy", "groups", "calls"),
    [
        (4, {1, 3}, [], []),
        (32, set(range(16, 32)), [], []),
        (8, {2, 3}, PIPELINES, []),
        (8, {2, 3}, [], [1, 1, 2, 2, 1, 1, 1, 1]),
        (8, {0}, [], [3, 2, 2, 2, 2, 2, 2, 2]),
    ],
    ids=["half", "half of many", "stage", "more calls", "more calls of one"],
)
def test_ranks_that_may_have_more_to_do_are_not_said_to_be_slow(
    ranks: int, heavy: set[int], groups: list[list[int]], calls: list[int], tmp_path: Path
) -> None:
    """It may be their part of the job: that is said, with what an even share would save."""
    (finding,) = spmd(tmp_path, uneven(ranks, heavy), groups, calls).findings
    assert ("imbalance", "", "hint") == (finding.cause, finding.worker, finding.grade)
    assert {f"Rank-{rank}" for rank in heavy} == set(finding.workers)
    assert pytest.approx(0.28 * (1 - len(heavy) / ranks), abs=0.01) == finding.saves
    assert "part of the job, which may not be balanced" in words(finding).says


def test_a_pair_that_is_no_stage_is_slow(tmp_path: Path) -> None:
    """Ranks 2 and 5 of eight have the same part as others that are not slow."""
    (finding,) = spmd(tmp_path, uneven(8, {2, 5}), PIPELINES).findings
    assert ("rank", {"Rank-2", "Rank-5"}) == (finding.cause, set(finding.workers))


@pytest.mark.parametrize(("ranks", "spread"), [(2, 0.25), (8, None)])
def test_a_slow_rank_of_few_may_have_more_to_do(
    ranks: int, spread: float | None, tmp_path: Path
) -> None:
    """Its share, spread over two ranks, still takes longer than the other one takes now."""
    times = [[100 + (step + rank) % 3 for rank in range(ranks - 1)] + [200] for step in range(40)]
    (finding,) = (found := spmd(tmp_path, times)).findings
    assert finding.facts.even == (pytest.approx(spread, abs=0.01) if spread else 0)
    said = " ".join(text(found).split())
    assert bool(spread) == ("spreading the work evenly would save 25 %" in said)


def test_who_pauses_where_all_wait_unseen_is_not_guessed(tmp_path: Path) -> None:
    """Each rank took as long in that step: one of them did, and the others waited for it."""
    times = [[100 + (step + rank) % 3 for rank in range(4)] for step in range(40)]
    times[12] = [1500] * 4
    assert [] == spmd(tmp_path, times).findings


def test_the_slowest_rank_is_not_named_if_the_next_one_takes_nearly_as_long(tmp_path: Path) -> None:
    """It is 4 % slower than the others' median in each step, and 2 % than the second one."""
    assert [] == spmd(tmp_path, [[100, 101, 102, 104]] * 40).findings


def test_ranks_that_differ_evenly_are_no_set(tmp_path: Path) -> None:
    """No line can be drawn between slow ones and others."""
    assert [] == spmd(tmp_path, [[100 + 2 * rank for rank in range(8)]] * 40).findings


def test_a_slow_rank_that_holds_nobody_up_is_not_named(tmp_path: Path) -> None:
    """The driver works on while it has time, and waits for it last."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(4)]
    for step in range(32):
        begin, keys = 200 * step * MS, [f"ray:{step}:{rank}" for rank in range(4)]
        for rank, ledger in enumerate(ranks):
            end = begin + (50 + 40 * (rank == 2) + (step + rank) % 3) * MS
            ledger.span("work", begin, end, releases=[keys[rank]])
        driver.span("reward", begin, begin + 100 * MS)
        driver.span("ray.get", begin + 100 * MS, begin + 101 * MS, waits_for="*", waits=keys)
        driver.step(step, begin, begin + 200 * MS)
        driver.span("log", begin + 101 * MS, begin + 200 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [driver, *ranks]))).findings
    assert ["driver"] == [finding.cause for finding in found]


def test_one_slow_step_is_said_as_once(tmp_path: Path) -> None:
    """Who took so long in it, and that it is no pattern."""
    times = [[100 + (step + rank) % 3 for rank in range(2)] for step in range(40)]
    times[12][1] = 250
    found = spmd(tmp_path, times).findings
    assert [("once", "Rank-1", "work")] == [(each.cause, each.worker, each.scope) for each in found]


@pytest.mark.parametrize(("milliseconds", "named"), [(160, []), (250, ["once"]), (500, ["pauses"])])
def test_one_slow_step_counts_by_what_it_costs(
    milliseconds: int, named: list[str], tmp_path: Path
) -> None:
    """Of a run of 4 s, 60 ms are not worth a sentence, 150 ms are, and 400 ms are a cause."""
    times = [[100 + (step + rank) % 3 for rank in range(2)] for step in range(40)]
    times[12][1] = milliseconds
    assert named == [finding.cause for finding in spmd(tmp_path, times).findings]


def test_rare_pauses_count_by_their_sum(tmp_path: Path) -> None:
    """Two of 2 s in 60 steps of 100 ms."""
    times = [[100 + (step + rank) % 3 for rank in range(4)] for step in range(60)]
    times[17][2] = times[41][2] = 2100
    (finding,) = spmd(tmp_path, times).findings
    assert ("pauses", "Rank-2", "work", 2) == (
        finding.cause, finding.worker, finding.scope, finding.steps,
    )  # fmt: skip
    assert pytest.approx(4000 / 10180, abs=0.01) == finding.share
    assert pytest.approx(finding.share, abs=0.01) == finding.saves
    assert "2 of 60 steps (17, 41), 4.00 s in all, 39 % of the run" in words(finding).says


def some_steps(
    directory: Path, ranks: set[int], every: int = 10, scope: str = "save"
) -> Explanation:
    """Four ranks that meet after 100 ms; some of them do something else for 400 ms now and then.

    Args:
        scope: in which; empty for none.
    """
    made = [SimulatedLedger(f"Rank-{rank}") for rank in range(4)]
    begin = 0
    for number in range(60):
        also = 400 * MS * (number % every == every - 1)
        end = begin + 103 * MS + also
        for rank, ledger in enumerate(made):
            worked = begin + (100 + (number + rank) % 3) * MS
            ledger.step(number, begin, end)
            ledger.span("work", begin + MS, worked)
            if also and rank in ranks:
                if scope:
                    ledger.span(scope, worked, worked + also)
                worked += also
            ledger.span("barrier", worked, end, waits_for="barrier")
        begin = end
    return explain(reading.read(write_run(directory / "run", made)))


def test_what_recurs_is_one_cause_with_its_period(tmp_path: Path) -> None:
    """A checkpoint every 10th step is not six slow steps."""
    (finding,) = some_steps(tmp_path, {0}).findings
    assert ("recurring", "Rank-0", "save") == (finding.cause, finding.worker, finding.scope)
    assert words(finding).says == (
        "Rank-0 takes 400 ms in save every 10th step: 2.40 s in all, 28 % of the run."
    )
    assert pytest.approx(0.28, abs=0.01) == finding.saves


def test_what_recurs_is_named_by_the_scope_that_has_most_of_it(tmp_path: Path) -> None:
    """A call that does nothing itself says less than what it does."""
    made = [SimulatedLedger(f"Rank-{rank}") for rank in range(4)]
    begin = 0
    for number in range(60):
        end = begin + (500 if number % 10 == 9 else 100) * MS
        for rank, ledger in enumerate(made):
            worked = begin + (95 + (number + rank) % 3) * MS
            ledger.step(number, begin, end)
            ledger.span("work", begin, worked)
            if end > worked + 10 * MS and rank == 0:
                ledger.span("save", worked, end - MS)
                ledger.span(("save", "to_disk"), worked + MS, end - 2 * MS)
                worked = end - MS
            ledger.span("barrier", worked, end, waits_for="barrier")
        begin = end
    (finding,) = explain(reading.read(write_run(tmp_path / "run", made))).findings
    assert ("recurring", "to_disk") == (finding.cause, finding.scope)


def test_ranks_that_take_turns_are_not_the_only_ones(tmp_path: Path) -> None:
    """Two of four work in each step; one of them in most steps, and none in all."""
    driver = SimulatedLedger("Runner", "driver")
    clients = [SimulatedLedger(f"Client-{rank}") for rank in range(4)]
    for step in range(32):
        begin, keys = 100 * step * MS, [f"ray:{step}:{place}" for place in range(2)]
        chosen = (1 + step % 3, 0 if step % 3 else 1 + (step + 1) % 3)
        for rank, key in zip(chosen, keys, strict=True):
            clients[rank].span("fit", begin, begin + (98 + step % 2) * MS, releases=[key])
        driver.span("ray.get", begin, begin + 100 * MS, waits_for="*", waits=keys)
        driver.step(step, begin, begin + 100 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [driver, *clients]))).findings
    assert "only this rank" not in [each.cause for each in found]


def test_what_recurs_outside_of_all_scopes_is_said_to(tmp_path: Path) -> None:
    """Nobody has marked it, and it has a period all the same."""
    (finding,) = some_steps(tmp_path, {0}, scope="").findings
    assert words(finding).says == (
        "Rank-0 takes 400 ms longer than usual outside any scope every 10th step: 2.40 s in all, "
        "28 % of the run."
    )
    assert pytest.approx(0.28, abs=0.01) == finding.saves


def test_what_all_ranks_do_in_every_20th_step_is_a_cause_though_it_is_rare(tmp_path: Path) -> None:
    """Such as an evaluation, in no scope."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(3)]
    begin = 0
    for step in range(90):
        end = begin + (650 if step % 20 == 19 else 50) * MS
        for rank, ledger in enumerate(ranks):
            ledger.step(step, begin, end)
            ledger.span("forward", begin, begin + 10 * MS + (step + rank) % 3 * MS)
        begin = end
    found = explain(reading.read(write_run(tmp_path / "run", ranks)))
    (finding,) = found.findings
    assert ("recurring", 20, 3) == (finding.cause, finding.facts.every, len(finding.workers))
    assert pytest.approx(4 * 600 / (90 * 50 + 4 * 600), abs=0.01) == finding.share
    assert words(finding).says.startswith(
        "Worker (3 workers) takes 601 ms longer than usual outside"
    )
    assert "Worker-" not in bounds(found) + helps(found)


def test_what_all_ranks_do_in_some_steps_is_a_kind_of_step(tmp_path: Path) -> None:
    """An evaluation is nobody's fault, and has its share."""
    found = some_steps(tmp_path, {0, 1, 2, 3})
    (kind,) = found.kinds
    assert [] == found.findings
    assert ("Rank", "save", 6, 10) == (kind.group, kind.scope, kind.steps, kind.every)
    assert "Every 10th step has save, 28 % of the run." in " ".join(text(found).split())


@pytest.mark.parametrize("scope", ["", "metrics"])
def test_the_time_between_steps_is_a_place(scope: str, tmp_path: Path) -> None:
    """60 of 100 ms, in a scope of the driver or in none."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step in range(20):
        begin = 100 * step * MS
        driver.step(step, begin, begin + 40 * MS)
        worker.span("work", begin, begin + 40 * MS, releases=[f"ray:{step}"])
        driver.span("ray.get", begin, begin + 40 * MS, waits_for="*", waits=[f"ray:{step}"])
        if scope:
            driver.span(scope, begin + 40 * MS, begin + 100 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [driver, worker])))
    (finding,) = found.findings
    assert ("between steps", "Runner", "(between steps)") == (
        finding.cause, finding.worker, finding.scope,
    )  # fmt: skip
    assert pytest.approx(19 * 60 / 1940) == finding.saves == 1 - found.seconds["in_steps"]
    assert ("most of it Runner in metrics" in words(finding).says) == bool(scope)
    assert bounds(found).startswith("between steps 59 %, A-0 41 %")


def test_a_rank_that_gets_slower_is_named_with_its_slope(tmp_path: Path) -> None:
    """From 100 ms in the first step to 157 in the last one."""
    times = [
        [100 + (step + rank) % 3 + step * (rank == 2) for rank in range(4)] for step in range(58)
    ]
    (finding,) = spmd(tmp_path, times).findings
    assert ("drift", "Rank-2", "work") == (finding.cause, finding.worker, finding.scope)
    assert "1 ms more with each step" in words(finding).says


def test_a_slow_rank_is_slow_also_while_all_ranks_get_slower(tmp_path: Path) -> None:
    """That its excess grows with theirs makes it no single event."""
    times = [[step + 50 + step % 2, step + 51, 2 * (step + 50)] for step in range(60)]
    assert [("rank", "Rank-2")] == [
        (finding.cause, finding.worker) for finding in spmd(tmp_path, times).findings
    ]


def test_another_rank_slow_in_each_step_is_an_imbalance(tmp_path: Path) -> None:
    """Nobody is named; evenly spread, 60 of 164 ms would be 60 / 8."""
    times = [
        [100 + (step * 5 + rank * 3) % 7 / 4 + 60 * (rank == step * 3 % 8) for rank in range(8)]
        for step in range(40)
    ]
    (finding,) = spmd(tmp_path, [[int(each) for each in of_step] for of_step in times]).findings
    assert ("imbalance", "Rank", "work") == (finding.cause, finding.group, finding.scope)
    assert [] == finding.workers
    assert pytest.approx(0.32, abs=0.02) == finding.saves


def test_an_imbalance_is_told_from_work_that_varies(tmp_path: Path) -> None:
    """Of 34 ranks one takes 3.8 times as long in each step; alone, the slowest takes 2.3 times."""
    random = np.random.default_rng(2)
    varied = random.lognormal(0, 0.4, (30, 34)) * 100
    varied[np.arange(30), random.integers(0, 34, 30)] *= 3.8
    found = spmd(tmp_path, varied.astype(int).tolist()).findings
    assert [("imbalance", [])] == [(each.cause, each.workers) for each in found]


@pytest.mark.parametrize(
    ("waited", "others", "grade", "says"),
    [(0.4, 0.0, "hint", True), (0.2, 0.0, "hint", False), (0.4, 0.4, "named", False)],
)
def test_a_slow_rank_that_waits_longer_for_a_processor_is_a_hint(
    waited: float, others: float, grade: str, says: bool, tmp_path: Path
) -> None:
    """On an idle machine it may be faster; that may be all only if it waited for half of it."""
    made = [SimulatedLedger(f"Rank-{rank}") for rank in range(4)]
    for step in range(30):
        begin = 100 * step * MS
        for rank, ledger in enumerate(made):
            worked = begin + (90 if rank == 1 else 40 + (step + rank) % 3) * MS
            ledger.step(step, begin, begin + 100 * MS)
            ledger.span("work", begin, worked)
            ledger.span("barrier", worked, begin + 100 * MS, waits_for="barrier")
            ready = int(3000 * (waited if rank == 1 else others)) * MS
            ledger.main = [(0, 0, 0), (3000 * MS, 0, ready)]
    (finding,) = explain(reading.read(write_run(tmp_path / "run", made))).findings
    assert ("rank", grade) == (finding.cause, finding.grade)
    assert says == ("Rank-1 waited 40 % of its time for a processor" in words(finding).says)


@pytest.mark.parametrize(("longer", "grade"), [(14, "hint"), (30, "named")])
def test_of_two_ranks_one_that_is_a_little_slower_is_a_hint(
    longer: int, grade: str, tmp_path: Path
) -> None:
    """Each is the only one that the other can be compared with."""
    times = [[100 + step % 3, 100 + longer + step % 2] for step in range(40)]
    (finding,) = spmd(tmp_path, times).findings
    assert ("rank", "Rank-1", grade) == (finding.cause, finding.worker, finding.grade)
    doubt = " Not certain: perhaps the other one is unusually fast." * (grade == "hint")
    assert words(finding).says.endswith(f" a step meanwhile.{doubt}")


@pytest.mark.parametrize("ranks", [4, 16, 256])
def test_equal_ranks_are_no_imbalance(ranks: int, tmp_path: Path) -> None:
    """The more there are, the slower is the slowest of them, by chance."""
    random = np.random.default_rng(ranks)
    times = random.lognormal(5, 0.3, (30, ranks)).astype(int).tolist()
    assert [] == spmd(tmp_path, times).findings


def test_what_only_one_rank_does_in_each_step_is_named(tmp_path: Path) -> None:
    """Rank 0 saves for 400 ms while the others wait."""
    (finding,) = some_steps(tmp_path, {0}, every=1).findings
    assert ("only this rank", "Rank-0", "save") == (finding.cause, finding.worker, finding.scope)
    assert pytest.approx(400 / 503, abs=0.01) == finding.saves


def test_who_has_a_scope_of_the_same_name_in_another_group_is_not_meant(tmp_path: Path) -> None:
    """As `ray.serialize` is a scope of every group of Ray's actors."""
    driver = SimulatedLedger("Runner", "driver")
    learners = [SimulatedLedger(f"Learner-{rank}") for rank in range(4)]
    envs = [SimulatedLedger(f"Env-{rank}") for rank in range(2)]
    for step, begin in driver.begin_steps(30):
        for ledger in (*learners, *envs):
            took = 40 if ledger is learners[0] else 1
            if took > 1 or ledger in envs:
                key = f"{ledger.name}.{step}"
                end = begin + (50 + took) * MS
                ledger.span("log", begin + 50 * MS, end, releases=[key])
            ledger.span("work", begin, begin + 50 * MS)
        waits = [f"{name}.{step}" for name in ("Learner-0", "Env-0", "Env-1")]
        driver.span("ray.get", begin, begin + 92 * MS, waits=waits, waits_for="*")
    (found,) = explain(reading.read(write_run(tmp_path, [driver, *learners, *envs]))).findings
    assert ("only this rank", ["Learner-0"]) == (found.cause, found.workers)


@pytest.mark.parametrize(
    ("longer", "grade", "slow"), [(4, "hint", "may be slow"), (40, "named", "is slow")]
)
def test_what_saves_little_is_a_hint(longer: int, grade: str, slow: str, tmp_path: Path) -> None:
    """Below 7 % of the run."""
    times = [
        [100 + (step + rank) % 2 + longer * (rank == 1) for rank in range(4)] for step in range(40)
    ]
    (finding,) = spmd(tmp_path, times).findings
    assert grade == finding.grade
    assert f"Rank-1 {slow} in work" in words(finding).says
    is_said = "Not certain: a saving below 7 % may be chance." in words(finding).says
    assert is_said == (grade == "hint")


def prepared(
    directory: Path, runs: bool, served: bool = False, sleeps: bool = False
) -> Explanation:
    """Two ranks that meet in `backward`, unseen; rank 0 prepares 120 ms before, in no scope.

    Args:
        runs: whether its main thread is seen to run meanwhile.
        served: whether there is another process, for which it may wait.
        sleeps: whether its main thread is seen to sleep meanwhile, and not to poll.
    """
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(2)]
    for step in range(40):
        begin = 150 * step * MS
        for rank, ledger in enumerate(ranks):
            late = begin + (120 + step % 2) * MS * (rank == 0)
            ledger.step(step, begin, begin + 150 * MS)
            ledger.span("forward", late + MS, late + 9 * MS)
            ledger.span("backward", late + 9 * MS, begin + 149 * MS)
    last = 40 * 150 * MS
    for rank, ledger in enumerate(ranks):
        ran = last if runs and rank == 0 else last // 10
        ledger.main = [(0, 0, 0), (last, ran, 0)]
        ledger.sleeps = [(0, 0), (last, last * (sleeps and rank == 0))]
    if served:
        ranks.append(SimulatedLedger("Data-0"))
        for step in range(40):
            ranks[-1].step(step, 150 * step * MS, 150 * (step + 1) * MS)
            ranks[-1].span("serve", 150 * step * MS, (150 * step + 5) * MS)
    return explain(reading.read(write_run(directory / "run", ranks)))


def test_a_rank_that_sleeps_of_its_own_accord_waits_for_nobody(tmp_path: Path) -> None:
    """The kernel cannot tell, but a call of `time.sleep` that is no poll can."""
    said = [
        (bounds(answer), helps(answer), [finding.grade for finding in answer.findings])
        for answer in (
            prepared(tmp_path / "runs", runs=True),
            prepared(tmp_path / "sleeps", runs=False, sleeps=True),
        )
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("runs", "cause", "answer", "would_help"),
    [
        (
            True,
            "rank",
            "Worker-0 100 % (outside any scope 82 %)",
            "if Worker-0 were as fast as the others' median, the run would take 80 % less",
        ),
        (
            False,
            "late start",
            "Worker-0 82 % (outside any scope)",
            "if Worker-0 began forward when the others do, the run would take 80 % less",
        ),
    ],
)
def test_what_a_rank_does_in_no_scope_is_the_answer(
    runs: bool, cause: str, answer: str, would_help: str, tmp_path: Path
) -> None:
    """Its main thread tells that it works there, or all others that they wait for nobody else."""
    found = prepared(tmp_path, runs)
    (finding,) = found.findings
    assert (cause, "Worker-0", "named") == (finding.cause, finding.worker, finding.grade)
    assert pytest.approx(0.8, abs=0.02) == finding.saves
    assert answer == bounds(found)
    assert would_help == helps(found)


def test_a_rank_is_awaited_also_beside_processes_that_do_nothing_recorded(tmp_path: Path) -> None:
    """Such as the environments that it steps."""
    prepared(tmp_path, runs=False)
    child = SimulatedLedger("environment-0", "child")
    child.event("something", 0)
    child.write(tmp_path / "run")
    (finding,) = explain(reading.read(tmp_path / "run")).findings
    assert ("Worker-0", "named") == (finding.worker, finding.grade)


def test_what_is_not_explained_is_not_what_another_scope_is_about(tmp_path: Path) -> None:
    """A rank that is slow in a scope does outside of all scopes what all ranks do."""
    found = prepared(tmp_path, runs=False)
    (finding,) = found.findings
    in_scope = attrs.evolve(finding, cause="rank", scope="forward")
    said = bounds(attrs.evolve(found, findings=[in_scope]))
    assert said.startswith("not known: ")
    assert said.endswith(" Worker-0 outside any scope")


def test_who_may_wait_for_another_group_is_not_named(tmp_path: Path) -> None:
    """The others wait for it, but it may itself wait for a process that is no rank."""
    (finding,) = prepared(tmp_path, runs=False, served=True).findings
    assert ("Worker-0", "hint") == (finding.worker, finding.grade)


@pytest.mark.parametrize(
    ("late", "queued"),
    [((1, 2), False), ((2, 2), False), ((1, 2), True)],
    ids=["another one before each", "one", "none waits in the calls"],
)
def test_a_rank_is_late_for_one_of_several_collectives(
    late: tuple[int, int], queued: bool, tmp_path: Path
) -> None:
    """In no scope, one rank comes 20 ms late to the first, and one 30 ms late to the second.

    Where the calls return at once, as on a GPU, nobody knows whether the others wait for it.
    """
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(4)]
    random = np.random.default_rng(4)
    now = 0
    for step in range(40):
        begin = now
        for name, who, by in (("broadcast", late[0], 20), ("all_reduce", late[1], 30)):
            works = [
                int((40 + by * (rank == who) + random.normal(0, 0.3)) * MS) for rank in range(4)
            ]
            end = now + max(works) + MS
            for rank, work in zip(ranks, works, strict=True):
                meets = [f"{name}:{step}"]
                until = now + work + MS if queued else end
                rank.span(f"torch.{name}", now + work, until, waits_for="barrier", meets=meets)
            now = end
        for rank in ranks:
            if rank is not ranks[0] or step != 20:  # one that it does not mark
                rank.step(step, begin, now)
    found = explain(reading.read(write_run(tmp_path, ranks)))
    saved = [(f.cause, f.worker, f.scope, f.grade, f.saves) for f in found.findings]
    all_reduce, broadcast = "(before torch.all_reduce)", "(before torch.broadcast)"
    if queued:
        assert "named" not in [grade for *_, grade, _ in saved]
    elif late[0] == late[1]:
        ((cause, *who, saves),) = saved
        assert ("rank", "Worker-2") == (cause, who[0])
        assert pytest.approx(50 / 132, abs=0.03) == saves
    else:
        assert [
            ("late start", "Worker-2", all_reduce, "named", pytest.approx(30 / 132, abs=0.03)),
            ("late start", "Worker-1", broadcast, "named", pytest.approx(20 / 132, abs=0.03)),
        ] == saved
        assert "Worker-2 begins torch.all_reduce 30" in words(found.findings[0]).says
        assert "; if Worker-1 began torch.broadcast when the others do, the run would " in helps(
            found
        )


def test_a_rank_is_late_for_a_collective_in_one_part_of_the_run(tmp_path: Path) -> None:
    """In no scope, from a step on; the others wait for it meanwhile."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(4)]
    now = 0
    for step in range(40):
        works = [
            (40 + 30 * (rank == 2 and step >= 25)) * MS + (step * 7 + rank * 3) % 5 * MS // 10
            for rank in range(4)
        ]
        end = now + max(works) + MS
        for rank, work in zip(ranks, works, strict=True):
            meets = [f"all_reduce:{step}"]
            rank.span("torch.all_reduce", now + work, end, waits_for="barrier", meets=meets)
            rank.step(step, now, end)
        now = end
    (found,) = explain(reading.read(write_run(tmp_path, ranks))).findings
    assert ("late start", "Worker-2", "named") == (found.cause, found.worker, found.grade)
    assert found.saves == pytest.approx(15 * 30 / (now / MS), abs=0.02)
    assert words(found).says.startswith(
        "Worker-2 begins torch.all_reduce later than the others from step 25 on: after 70"
    )


@pytest.mark.parametrize(
    ("runs", "late"), [(True, ["Worker-2", "Worker-0"]), (False, ["Worker-0"])]
)
def test_what_a_rank_does_before_another_scope_makes_it_late_for_the_next_meeting(
    runs: bool, late: list[str], tmp_path: Path
) -> None:
    """It reads, in no scope, before `forward`; another one logs before the barrier.

    If it is not seen to work, it may wait there for somebody.
    """
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(4)]
    barrier = end = 0
    for step in range(40):
        forwards = [
            barrier + (40 if rank == 2 else 15) * MS + (step + rank) % 2 * MS for rank in range(4)
        ]
        begin, end = end, max(forwards) + 21 * MS
        barrier = end + 20 * MS
        for rank, (ledger, forward) in enumerate(zip(ranks, forwards, strict=True)):
            reduce = forward + 20 * MS
            logged = end + (17 if rank == 0 else 1) * MS
            ledger.step(step, begin, end)
            ledger.span("forward", forward, reduce)
            for name, since, until in (("all_reduce", reduce, end), ("barrier", logged, barrier)):
                meets = [f"{name}:{step}"]
                ledger.span(f"torch.{name}", since, until, waits_for="barrier", meets=meets)
    for rank, ledger in enumerate(ranks):
        ledger.main = [(0, 0, 0), (end, end if runs and rank else end // 10, 0)]
    found = explain(reading.read(write_run(tmp_path, ranks))).findings
    assert late == [finding.worker for finding in found if finding.cause == "late start"]


def test_the_last_stage_of_a_pipeline_is_not_late(tmp_path: Path) -> None:
    """It gets its last input last, and the others wait for it in a barrier."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(3)]
    for step in range(40):
        now = step * 100 * MS
        for rank, ledger in enumerate(ranks):
            begin = now + 25 * rank * MS
            if rank:
                ledger.span("torch.recv", now, begin, waits_for="barrier", meets=[f"{step}:{rank}"])
            if rank < 2:
                meets = [f"{step}:{rank + 1}"]
                ledger.span(
                    "torch.send", begin + 24 * MS, begin + 25 * MS, waits_for="barrier", meets=meets
                )
            last = (begin + 25 * MS) if rank < 2 else now + 80 * MS
            meets = [f"barrier:{step}"]
            ledger.span("torch.barrier", last, now + 81 * MS, waits_for="barrier", meets=meets)
            ledger.step(step, now, now + 81 * MS)
    found = explain(reading.read(write_run(tmp_path, ranks)))
    assert "(before torch.barrier)" not in [finding.scope for finding in found.findings]


def called_now_and_then(
    directory: Path, milliseconds: Callable[[int, int], float], every: int, steps: int = 100
) -> Explanation:
    """A driver that calls three ranks in each step, and in some steps a second group of three.

    Args:
        milliseconds: what a rank of the second group takes, by step and rank.
    """
    random = np.random.default_rng(2)
    driver = SimulatedLedger("Runner", "driver")
    groups = {name: [SimulatedLedger(f"{name}-{r}") for r in range(3)] for name in ("A", "B")}
    now = 0
    for step in range(steps):
        begin = now
        for name, workers in groups.items():
            if name == "B" and step % every:
                continue
            keys = [f"{name}:{step}:{rank}" for rank in range(3)]
            ends = []
            for rank, worker in enumerate(workers):
                took = random.normal(40, 1.5) if name == "A" else milliseconds(step, rank)
                ends.append(now + int(took * MS))
                driver.sent(now, now, keys[rank])
                worker.span(f"{name}.work", now + 1000, ends[-1], releases=[keys[rank]])
            driver.span("ray.get", now, max(ends) + 1000, waits_for="*", waits=keys)
            now = max(ends) + 2000
        driver.step(step, begin, now)
    ledgers = [driver, *groups["A"], *groups["B"]]
    return explain(reading.read(write_run(directory / "run", ledgers)))


def test_a_rank_is_slow_in_what_only_some_steps_have(tmp_path: Path) -> None:
    """As an evaluator of which another one is twice as fast."""
    found = called_now_and_then(tmp_path, lambda _, rank: 140 if rank == 1 else 70, every=5)
    finding = found.findings[0]
    assert ("rank", "B-1", "B.work", "named") == (
        finding.cause, finding.worker, finding.scope, finding.grade,
    )  # fmt: skip


@pytest.mark.parametrize("all_ranks", [True, False], ids=["all-at-once", "each-in-turn"])
def test_pauses_of_any_rank_are_a_cause_if_they_have_a_period(
    all_ranks: bool, tmp_path: Path
) -> None:
    """Nobody is accused: it is the group's."""

    def milliseconds(step: int, rank: int) -> float:
        pauses = step % 10 == 9 and (all_ranks or rank == step // 10 % 3)
        return 30 + (step * 7 + rank * 3) % 5 + 200 * pauses

    found = called_now_and_then(tmp_path, milliseconds, every=1)
    finding = found.findings[0]
    assert ("recurring", "B.work", 10) == (finding.cause, finding.scope, finding.facts.every)
    assert 3 == len(finding.workers)
    assert helps(found).startswith("without the extra time of B.work in B every 10th step, ")


def test_what_a_group_does_in_many_steps_is_a_cause_without_a_period(tmp_path: Path) -> None:
    """As compiling for each new shape: by as much each time, on all ranks."""
    random = np.random.default_rng(4)
    slow = set(random.choice(100, 30, replace=False).tolist())
    found = called_now_and_then(
        tmp_path, lambda step, rank: 50 + (step + rank) % 3 + 120 * (step in slow), every=1
    )
    finding = found.findings[0]
    assert ("recurring", "B.work", None) == (finding.cause, finding.scope, finding.facts.every)
    assert pytest.approx(30 * 120 / (100 * 94 + 30 * 120), abs=0.03) == finding.saves


def test_a_period_is_known_though_some_of_its_steps_are_not_seen(tmp_path: Path) -> None:
    """A checkpoint of rank 1 every eighth step, of which two took no time."""
    saved = set(range(8, 100, 8)) - {16, 56}
    found = called_now_and_then(
        tmp_path, lambda step, rank: 50 + 300 * (rank == 1 and step in saved), every=1
    )
    (finding,) = found.findings
    assert ("recurring", ["B-1"], 8) == (finding.cause, finding.workers, finding.facts.every)


def test_steps_that_become_longer_are_said(tmp_path: Path) -> None:
    """On all ranks, so that nobody is slow."""
    found = called_now_and_then(tmp_path, lambda step, _: 50 + 2 * step, every=1)
    assert found.trend is not None
    assert found.trend.last > 1.5 * found.trend.first
    first, last = (duration(seconds) for seconds in found.trend.took)
    said = " ".join(text(found).split())
    assert f"most of it in B.work, from {first} to {last} a step." in said
    assert helps(found).startswith("no rank stands out; see what grows in B.work")
    assert called_now_and_then(tmp_path / "equal", lambda *_: 50, every=1).trend is None


def test_what_ranks_vary_by_chance_is_not_saved(tmp_path: Path) -> None:
    """Of two ranks, one is slower, and both vary by more: the claim is for the mean difference."""
    random = np.random.default_rng(6)
    times = [[int(100 + random.normal(0, 15)), int(120 + random.normal(0, 15))] for _ in range(80)]
    (finding,) = spmd(tmp_path, times).findings
    first, second = np.array(times).T
    without = np.maximum(first, second - (second - first).mean()).sum()
    assert ("rank", "Rank-1") == (finding.cause, finding.worker)
    saved = 1 - without / np.maximum(first, second).sum()
    assert pytest.approx(saved, abs=0.03) == finding.saves


def test_ranks_with_scopes_of_their_own_are_not_compared(tmp_path: Path) -> None:
    """Rank 0 learns, the others roll out: its `forward` is another one than theirs."""
    ranks = [SimulatedLedger(f"Rank-{number}") for number in range(4)]
    for step in range(30):
        begin = 100 * step * MS
        for number, rank in enumerate(ranks):
            rank.step(step, begin, begin + 100 * MS)
            took = (60 if number == 0 else 8) * MS + (step * 7 + number * 3) % 5
            rank.span("forward", begin, begin + took)
            rank.span("backward" if number == 0 else "rollout", begin + took, begin + 70 * MS)
            rank.span("all_reduce", begin + 70 * MS, begin + 99 * MS, waits_for="barrier")
    found = explain(reading.read(write_run(tmp_path / "run", ranks))).findings
    assert [] == [finding for finding in found if finding.cause in ("rank", "imbalance")]


@pytest.mark.parametrize(("milliseconds", "causes"), [(30, ["data"]), (5, [])])
def test_ranks_that_load_their_data_themselves_are_a_hint(
    milliseconds: int, causes: list[str], tmp_path: Path
) -> None:
    """Nothing else runs in them meanwhile."""
    ranks = [SimulatedLedger(f"Rank-{number}") for number in range(2)]
    for step in range(30):
        begin = 100 * step * MS
        for number, rank in enumerate(ranks):
            loaded = begin + (milliseconds + (step + number) % 2) * MS
            rank.step(step, begin, begin + 100 * MS)
            rank.span("DataLoader.next", begin, loaded, waits_for="nothing")
            rank.span("forward", loaded, begin + 95 * MS)
            rank.span("all_reduce", begin + 95 * MS, begin + 100 * MS - 1, waits_for="barrier")
    found = explain(reading.read(write_run(tmp_path / "run", ranks)))
    assert causes == [finding.cause for finding in found.findings]
    if causes:
        said = words(found.findings[0])
        assert said.says.startswith("Loading data in DataLoader.next takes Rank (2 workers) ")
        assert "num_workers" in said.action


def test_what_a_slow_rank_loads_is_not_saved_twice(tmp_path: Path) -> None:
    """It loads for 60 ms in three of four steps; the others, and it else, for 15 ms in each."""
    ranks = [SimulatedLedger(f"Rank-{number}") for number in range(3)]
    begin = 0
    for step in range(60):
        slow = step % 4 != 3
        end = begin + (101 if slow else 57) * MS
        for number, rank in enumerate(ranks):
            loaded = begin + (60 if number == 2 and slow else 15 + (step + number) % 2) * MS
            rank.step(step, begin, end)
            rank.span("DataLoader.next", begin, loaded, waits_for="nothing")
            rank.span("forward", loaded, loaded + 40 * MS)
            rank.span("all_reduce", loaded + 40 * MS, end - 1, waits_for="barrier",
                      meets=[f"dist:{step}"])  # fmt: skip
        begin = end
    straggler, data = explain(reading.read(write_run(tmp_path / "run", ranks))).findings
    assert ("rank", ["Rank-2"]) == (straggler.cause, straggler.workers)
    assert pytest.approx(0.36, abs=0.03) == straggler.saves
    assert "data" == data.cause
    assert pytest.approx(0.17, abs=0.04) == data.saves


def test_synchronisation_is_in_the_scope_that_has_most_of_it_in_all_ranks(tmp_path: Path) -> None:
    """They are the last to gather by turns; the same one is always the last to scatter."""
    ranks = [SimulatedLedger(f"Rank-{number}") for number in range(3)]
    for step in range(30):
        begin = 100 * step * MS
        ended = begin + 70 * MS
        for number, rank in enumerate(ranks):
            rank.step(step, begin, begin + 100 * MS)
            came = begin + (30 if step % 3 == number else 28) * MS
            rank.span("forward", begin, came)
            rank.span("all_gather", came, ended, waits_for="barrier", meets=[f"a:{step}"])
            came = ended + (4 if number == 0 else 3) * MS
            rank.span("backward", ended, came)
            rank.span("reduce_scatter", came, begin + 100 * MS - 1, waits_for="barrier",
                      meets=[f"b:{step}"])  # fmt: skip
    found = explain(reading.read(write_run(tmp_path / "run", ranks)))
    (finding,) = (one for one in found.findings if one.cause == "synchronisation")
    assert "all_gather" == finding.scope
    assert what_if(finding).startswith("without synchronisation such as all_gather in Rank, ")


@pytest.mark.parametrize("meet", [1, 8], ids=["in each step", "in each eighth"])
def test_a_rank_is_awaited_where_all_others_meet_it(meet: int, tmp_path: Path) -> None:
    """With local SGD they meet in some steps only, and wait there for what came before."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(3)]
    free = [0] * 3
    for step in range(80):
        for rank, ledger in enumerate(ranks):
            begin = free[rank]
            at = begin + ((15 if rank == 0 else 0) + (step * 7 + rank) % 3) * MS
            ledger.span("forward", at, at + 10 * MS)
            free[rank] = at + 10 * MS
        met = max(free)
        for rank, ledger in enumerate(ranks):
            if step % meet == meet - 1:
                ledger.span("all_reduce", free[rank], met + MS, waits_for="barrier",
                            meets=[f"dist:{step}"])  # fmt: skip
                free[rank] = met + MS
        for rank, ledger in enumerate(ranks):
            previous = ledger.until if step else 0
            ledger.step(step, previous, free[rank])
            ledger.until = free[rank]
    for ledger in ranks:
        ledger.main = [(0, 0, 0), (free[0], free[0] // 10, 0)]
    (finding,) = explain(reading.read(write_run(tmp_path / "run", ranks))).findings
    assert ("late start", "Worker-0", "named") == (finding.cause, finding.worker, finding.grade)


def test_half_of_the_ranks_that_all_others_await_may_be_slow_in_no_scope(tmp_path: Path) -> None:
    """Such as those of one of two nodes."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(4)]
    for step in range(40):
        begin = 60 * step * MS
        for rank, ledger in enumerate(ranks):
            ready = begin + ((45 if rank > 1 else 30) + (step + rank) % 2) * MS
            ledger.step(step, begin, begin + 60 * MS)
            ledger.span("forward", begin, begin + MS)
            ledger.span("all_reduce", ready, begin + 59 * MS, waits_for="barrier",
                        meets=[f"dist:{step}"])  # fmt: skip
    for ledger in ranks:
        ledger.main = [(0, 0, 0), (40 * 60 * MS, 40 * 6 * MS, 0)]
    found = explain(reading.read(write_run(tmp_path / "run", ranks)))
    (finding,) = found.findings
    assert ("imbalance", "hint") == (finding.cause, finding.grade)
    assert {"Worker-2", "Worker-3"} == set(finding.workers)
    assert helps(found).startswith("if Worker were balanced outside any scope, the run may take ")


def test_steps_that_vary_by_chance_have_no_trend(tmp_path: Path) -> None:
    """Of a hundred such runs, the quarters' medians of eight fall or rise."""
    random = np.random.default_rng(1)
    runs = [random.exponential(20, (40, 2)).astype(int) + 10 for _ in range(60)]
    trends = [
        spmd(tmp_path / str(number), times.tolist()).trend for number, times in enumerate(runs)
    ]
    assert len(trends) - trends.count(None) <= 2


def test_pauses_by_chance_are_no_habit_of_a_group(tmp_path: Path) -> None:
    """Now of this rank and now of that one, and never as long."""
    random = np.random.default_rng(5)
    found = called_now_and_then(
        tmp_path, lambda *_: 30 + (random.random() < 0.03) * random.exponential(200), every=1
    )
    assert "recurring" not in [finding.cause for finding in found.findings]


def judged(
    directory: Path, judges: int = 1, clients: int = 4, slow: int = 40, queue: bool = True
) -> Explanation:
    """Clients that call a judge in each of 20 steps, and queue for it.

    Args:
        slow: how many milliseconds a call takes.
        queue: whether they do; else each calls when the judge has answered the one before.
    """
    driver = SimulatedLedger("Runner", "driver")
    servers = [SimulatedLedger(f"Judge-{number}") for number in range(judges)]
    workers = [SimulatedLedger(f"Client-{rank}") for rank in range(clients)]
    now = MS
    for step in range(20):
        begin, free, keys = now, [0] * judges, []
        for rank, worker in enumerate(workers):
            key, called = f"ray:{step}:{rank}", begin + (30 + rank) * MS
            server = rank % judges
            called = called if queue else max(begin + 8 * MS, free[server])
            at = max(called, free[server]) + MS // 10
            free[server] = at + slow * MS
            worker.span(("Client.act", "work"), begin, called - MS)
            worker.sent(called - MS, called, key)
            waited = free[server] + MS
            worker.span(("Client.act", "ray.get"), called, waited, waits_for="*", waits=[key])
            worker.span("Client.act", begin, waited, releases=[f"{key}:act"])
            servers[server].span("Judge.evaluate", at, free[server], releases=[key])
            driver.sent(begin - MS // 2, begin - MS // 2, f"{key}:act")
            keys.append(f"{key}:act")
        now = max(free) + 2 * MS
        driver.span("ray.get", begin, now - MS // 2, waits_for="*", waits=keys)
        driver.step(step, begin - MS // 2, now - MS // 2)
    return explain(reading.read(write_run(directory / "run", [driver, *servers, *workers])))


def test_a_worker_that_others_queue_for_is_named(tmp_path: Path) -> None:
    """With what half the time of its calls would save: 80 of 192 ms a step."""
    found = judged(tmp_path)
    (finding,) = found.findings
    assert ("server", "Judge-0", "Judge.evaluate") == (
        finding.cause, finding.worker, finding.scope,
    )  # fmt: skip
    assert "named" == finding.grade
    assert pytest.approx(80 / 192, abs=0.01) == finding.saves
    assert words(finding).says == (
        "Judge-0 bounds the run: calls of Judge.evaluate wait 59 % of their time in its queue, "
        "58.6 ms each."
    )
    assert "if calls of Judge-0 took half the time, the run would take 42 % less" == helps(found)
    little = attrs.evolve(finding, saves=0.08)  # another worker bounds most of a step
    assert words(little).says.startswith("Judge-0 slows the run: calls of Judge.evaluate ")


def test_the_items_of_one_stream_do_not_queue(tmp_path: Path) -> None:
    """The driver calls a generator once a step, and takes its items as they come."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("Rollout-0")
    for step, begin in driver.begin_steps(20):
        call = f"ray:{step}"
        driver.sent(begin, begin, call)
        for item in range(5):
            since = begin + 20 * item * MS
            item_ends = since + 18 * MS + (step * 7 + item * 3) % 5
            keys = [f"{call}:{item}", *([call] if item in (0, 4) else [])]  # the first and the last
            worker.span("Rollout.stream", since + MS, item_ends, releases=keys)
            driver.span("ray.wait", since, item_ends + MS, waits_for="*", waits=[f"{call}:{item}"])
    found = explain(reading.read(write_run(tmp_path, [driver, worker])))
    assert "server" not in [finding.cause for finding in found.findings]


@pytest.mark.parametrize(
    ("limit", "action"),
    [
        ("Semaphore", "Let its semaphore admit more calls, or add workers to Reward."),
        ("Lock", "Hold its lock for less time, or add workers to Reward."),
    ],
)
def test_calls_that_wait_for_a_limit_of_their_event_loop(
    limit: str, action: str, tmp_path: Path
) -> None:
    """Four calls a step come at once, and sleep 20 ms one after the other."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("Reward-0")
    worker.loops = dict.fromkeys(range(1, 5), 1)
    for step, begin in driver.begin_steps(20):
        keys = [f"ray:{step}:{call}" for call in range(4)]
        for call, key in enumerate(keys):
            track, came = call + 1, begin + 2 * MS + call * MS // 100
            since = max(came + 1000, begin + (2 + 21 * call) * MS)
            over = since + 20 * MS
            driver.sent(begin + MS, begin + MS, key)
            worker.span("score", came, over + MS // 2, track=track, releases=[key])
            if call:
                worker.span(("score", f"{limit}.acquire"), came + 1000, since, track=track,
                            waits_for="*", waits=[f"free:{step}:{call}"])  # fmt: skip
            worker.span(("score", "asyncio.sleep"), since + 1000, over, track=track,
                        waits_for="*", waits=[over.to_bytes(8, "little")])  # fmt: skip
            worker.span(("score", f"{limit}.release"), over + 1000, over + 2000, track=track,
                        releases=[f"free:{step}:{call + 1}"])  # fmt: skip
        end = begin + 86 * MS
        driver.span("ray.get", begin + MS, end, waits_for="*", waits=keys)
    found = explain(reading.read(write_run(tmp_path, [driver, worker])))
    (finding,) = found.findings
    assert words(finding).says == (
        f"Reward-0 bounds the run: calls of score wait 61 % of their time for its {limit.lower()}, "
        "31.5 ms each."
    )
    assert words(finding).action == action
    assert pytest.approx(40 / 100, abs=0.02) == finding.saves


def test_what_only_sleeps_is_not_to_be_made_faster(tmp_path: Path) -> None:
    """An engine of which every call sleeps in its event loop."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("Engine-0")
    worker.loops[1] = 1
    for step, begin in driver.begin_steps(20):
        driver.sent(begin, begin, f"ray:{step}")
        over = begin + 90 * MS
        worker.span("generate", begin + MS, over + MS, releases=[f"ray:{step}"])
        worker.span(("generate", "asyncio.sleep"), begin + 2 * MS, over, waits_for="*",
                    waits=[over.to_bytes(8, "little")])  # fmt: skip
        driver.span("ray.get", begin, begin + 92 * MS, waits_for="*", waits=[f"ray:{step}"])
    found = explain(reading.read(write_run(tmp_path, [driver, worker])))
    assert None is found.bottleneck
    assert helps(found) == ("see what Engine-0 awaits in asyncio.sleep: it takes 88 % of a step")


def test_a_worker_that_is_busy_for_others_is_named(tmp_path: Path) -> None:
    """Also if their calls arrive just as it has answered the one before: it saves half a call."""
    (finding,) = judged(tmp_path, queue=False).findings
    assert ("server", "named") == (finding.cause, finding.grade)
    assert pytest.approx(20 / 170, abs=0.01) == finding.saves
    assert words(finding).says == (
        "Judge-0 bounds the run: it works 94 % of the time, for several processes."
    )


def test_calls_wait_for_a_blocked_event_loop(tmp_path: Path) -> None:
    """Which the answer says, with what to do about it."""
    simulate(Load(clients=3, calls=5, work=2, sleep=12, block=4), directory=tmp_path)
    (finding,) = explain(reading.read(tmp_path)).findings
    assert ("server", "Service-0", "named") == (finding.cause, finding.worker, finding.grade)
    assert "of their time for its event loop" in words(finding).says
    assert "asyncio.to_thread" in words(finding).action


def test_a_group_that_others_queue_for_is_a_hint(tmp_path: Path) -> None:
    """Of two equal judges neither alone saves anything."""
    (finding,) = judged(tmp_path, judges=2).findings
    assert ("server", "Judge", "hint") == (finding.cause, finding.group, finding.grade)
    assert words(finding).says.startswith("Judge (2 workers) may bound the run: ")


def test_a_worker_that_nobody_queues_for_is_no_server(tmp_path: Path) -> None:
    """Its calls begin when they come."""
    assert [] == judged(tmp_path, slow=1).findings


def test_what_costs_in_one_half_of_the_run_is_a_hint(tmp_path: Path) -> None:
    """A driver that works in the last steps only."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step in range(40):
        begin, key = 200 * step * MS, f"ray:{step}"
        worker.span("work", begin, begin + 80 * MS, releases=[key])
        driver.span("ray.get", begin, begin + 80 * MS, waits_for="*", waits=[key])
        driver.span("metrics", begin + 80 * MS, begin + (81 + 60 * (step > 25)) * MS)
        driver.step(step, begin, begin + (81 + 60 * (step > 25)) * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [driver, worker]))).findings
    assert [("driver", "hint")] == [
        (finding.cause, finding.grade) for finding in found if finding.cause == "driver"
    ]


def test_a_large_ratio_is_no_factor(tmp_path: Path) -> None:
    """That somebody takes 300 times as long as next to nothing says nothing."""
    (finding,) = spmd(tmp_path, [[1, 1, 300, 1]] * 40).findings
    assert "times the others' median" not in words(finding).says


def test_a_send_without_a_key_may_wait(tmp_path: Path) -> None:
    """Until the receiver comes: nobody is slow in it, and it is not explained."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for step in range(30):
        begin, keys = 100 * step * MS, [f"ray:{step}:{rank}" for rank in range(2)]
        for rank, ledger in enumerate(ranks):
            ledger.span("act", begin, begin + (20 + 78 * rank) * MS, releases=[keys[rank]])
            ledger.span(("act", "torch.send"), begin + MS, begin + (10 + 80 * rank) * MS)
        driver.span("ray.get", begin, begin + 99 * MS, waits_for="*", waits=keys)
        driver.step(step, begin, begin + 100 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [driver, *ranks])))
    assert bounds(found).startswith("not known: 90 % of the critical path is unexplained")
    assert "set GPUPROF_INSTRUMENTS=torch" in remedy(found)
    assert [] == [finding.scope for finding in found.findings if finding.scope == "torch.send"]


def test_a_scope_that_reads_a_device_may_wait(tmp_path: Path) -> None:
    """The host has queued all work at once: what the device does meanwhile is not recorded."""
    ranks = [SimulatedLedger(f"Rank-{rank}") for rank in range(2)]
    for step in range(30):
        begin = 100 * step * MS
        for rank, ledger in enumerate(ranks):
            ledger.step(step, begin, begin + 100 * MS)
            ledger.span("forward", begin, begin + 2 * MS)
            ledger.span("loss.item", begin + 2 * MS, begin + (60 + 40 * rank) * MS)
    found = explain(reading.read(write_run(tmp_path / "run", ranks)))
    assert [] == found.findings
    assert bounds(found).startswith("not known: ")
    assert "a profiler in Rank-" in remedy(found)


def test_who_is_slowest_by_turns_is_no_straggler(tmp_path: Path) -> None:
    """The same excess in every step, and another rank has it each time."""
    times = [[150 if step % 2 == rank else 100 for rank in range(2)] for step in range(30)]
    found = spmd(tmp_path, times)
    assert [("imbalance", [])] == [(each.cause, each.workers) for each in found.findings]
    assert pytest.approx(1.2, abs=0.01) == found.groups[0].imbalance


def test_who_leads_in_few_steps_by_chance_takes_no_turns(tmp_path: Path) -> None:
    """Three ranks whose work varies, forty times."""
    turns = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        times = random.normal(100, 15, (10, 3)).round().astype(int).tolist()
        found = spmd(tmp_path / str(seed), times)
        turns += "imbalance" in [finding.cause for finding in found.findings]
    assert turns <= 1


def test_without_any_known_call_nobody_is_late(tmp_path: Path) -> None:
    """One of a chain begins last, and no key tells that it takes what the others made."""
    driver = SimulatedLedger("Runner", "driver")
    stages = [SimulatedLedger(f"A-{rank}") for rank in range(3)]
    for step in range(30):
        now = 100 * step * MS
        driver.step(step, now, now + 100 * MS)
        for rank, stage in enumerate(stages):
            stage.span("work", now, now + 10 * MS + (step * 7 + rank * 3) % 5)
            now += (10 if rank == 0 else 40) * MS + step % 2
    assert [] == explain(reading.read(write_run(tmp_path, [driver, *stages]))).findings


@pytest.mark.parametrize(
    ("ranks", "slow", "when"),
    [
        pytest.param(6, range(10, 27), "from step 10 to step 26", id="for a while"),
        pytest.param(2, range(10, 27), "from step 10 to step 26", id="for a while, of two"),
        pytest.param(6, range(20, 40), "from step 20 on", id="since"),
        pytest.param(2, range(20, 40), "from step 20 on", id="since, of two"),
        pytest.param(6, range(18), "until step 17", id="until"),
    ],
)
def test_who_is_slow_in_one_part_of_the_run_is_said_with_its_steps(
    ranks: int, slow: range, when: str, tmp_path: Path
) -> None:
    """Neither in all steps nor ever slower. Many ranks show that all of them get slower, too."""
    grows = [1 + step / 100 * (ranks > 2) for step in range(40)]
    times = [
        [round(grow * (100 + (step * 7 + rank * 3) % 5 + 50 * (rank == 1 and step in slow)))
         for rank in range(ranks)]
        for step, grow in enumerate(grows)
    ]  # fmt: skip
    (found,) = spmd(tmp_path, times).findings
    assert ("drift", "Rank-1", "named") == (found.cause, found.worker, found.grade)
    assert f"Rank-1 is slow in work {when}: " in words(found).says


def test_who_is_slow_twice_is_said_with_all_its_steps(tmp_path: Path) -> None:
    """Two parts of the run, and a single slow step between them that belongs to neither."""
    slow = {*range(25, 45), 60, *range(80, 100)}
    times = [
        [100 + (step * 7 + rank * 3) % 5 + 60 * (rank == 2 and step in slow) for rank in range(3)]
        for step in range(120)
    ]
    (found,) = spmd(tmp_path, times).findings
    assert "Rank-2 is slow in work from step 25 to step 44 and from step 80 to step 99: " in (
        words(found).says
    )


def test_two_that_are_slow_in_other_parts_of_the_run_are_two_causes(tmp_path: Path) -> None:
    """Each with its own steps."""
    times = [
        [
            100 + 50 * (rank == 1 and step < 20) + 60 * (rank == 3 and step >= 30)
            for rank in range(5)
        ]
        for step in range(60)
    ]
    said = [words(found).says for found in spmd(tmp_path, times).findings]
    assert 2 == len(said)
    assert said[0].startswith("Rank-3 is slow in work from step 30 on: 160 ms a step, and 100 ms")
    assert said[1].startswith("Rank-1 is slow in work until step 19: 150 ms a step, and 100 ms")


def test_all_that_are_slow_for_a_while_are_no_stragglers(tmp_path: Path) -> None:
    """As the speeds of a busy machine's processors wander."""
    times = [
        [140 if 8 * rank <= step < 8 * rank + 10 else 100 for rank in range(4)]
        for step in range(40)
    ]
    causes = [(found.cause, found.workers) for found in spmd(tmp_path, times).findings]
    assert [] == [cause for cause in causes if cause[0] == "drift"]


def test_too_few_steps_name_nobody(tmp_path: Path) -> None:
    """Five of five is chance."""
    assert [] == spmd(tmp_path, [[100, 150]] * 5).findings


def test_a_small_excess_is_not_named(tmp_path: Path) -> None:
    """However certain: it costs less than three per cent of a step."""
    assert [] == spmd(tmp_path, [[1000, 1020]] * 30).findings


def test_the_parts_of_a_path_add_up(tmp_path: Path) -> None:
    """To the step, with those that are left out of the list."""
    path = answer(tmp_path, Job(None, seed=1)).paths[0]
    assert path.others > 0
    assert sum(part.share for part in path.parts) <= 1


def test_a_chosen_step_has_its_path(tmp_path: Path) -> None:
    """Also one that is left out of the figures."""
    run = reading.read(Job(None, seed=1, steps=12).write(tmp_path / "run"))
    assert [(0, "chosen")] == [(path.step, path.why) for path in explain(run, 0).paths]


def test_a_step_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With those that are."""
    run = reading.read(Job(None, seed=1, steps=12).write(tmp_path / "run"))
    with pytest.raises(ConfigError, match="--step: 12 is not valid; expected 0 to 11"):
        explain(run, 12)


def test_steps_that_are_all_left_out_are_counted_by_why(tmp_path: Path) -> None:
    """Here, as the reader has asked for."""
    rank = SimulatedLedger("Rank-0")
    for step in range(3):
        rank.step(step, step * 100 * MS, (step + 1) * 100 * MS)
        rank.span("work", step * 100 * MS, step * 100 * MS + 50 * MS)
    with pytest.raises(ConfigError, match="of 3, left out are 3 warm-up; run more steps"):
        explain(reading.read(write_run(tmp_path, [rank]), warm_up=3))


def test_a_run_without_steps_is_refused(tmp_path: Path) -> None:
    """With what marks them."""
    made = SimulatedLedger("A-0")
    made.span("work", 0, 10)
    with pytest.raises(ConfigError, match=r"gpuprof\.step"):
        explain(reading.read(write_run(tmp_path / "run", [made])))


def test_json_has_what_the_page_describes(tmp_path: Path) -> None:
    """Every key is in the schema, and nothing that JSON does not know."""
    written = json.loads(
        json.dumps(as_dict(answer(tmp_path, Job("slow rank", seed=3))), allow_nan=False)
    )
    assert [] == faults("explain", written)


def test_durations_have_a_unit() -> None:
    """From microseconds to seconds."""
    assert ["45 µs", "12.3 ms", "3.14 s"] == [
        duration(seconds) for seconds in (0.000045, 0.0123, 3.14)
    ]


def test_the_others_of_a_killed_rank_are_not_slow(tmp_path: Path) -> None:
    """A rank that does nothing any more is no measure for them."""
    made = [SimulatedLedger("Runner", "driver"), *(SimulatedLedger(f"A-{r}") for r in range(3))]
    for number in range(60):
        begin = number * 1000 * MS
        made[0].step(number, begin, begin + 1000 * MS)
        for rank in made[1 : 4 if number < 5 else 3]:
            rank.span("work", begin, begin + (600 + number % 2 * (rank is made[1])) * MS)
    for each in made:
        each.write(tmp_path, each.name != "A-2")
    found = explain(reading.read(tmp_path, 0))
    assert ["A-2"] == [each["worker"] for each in found.ended_early]
    assert [] == found.findings
    assert "A-2 ended early on node node-0, killed or crashed" in text(found)
    assert "left out: 3 incomplete, or cut short by a worker's end." in " ".join(
        text(found).split()
    )


def test_a_slow_rank_that_the_job_ends_after_its_last_step_is_named(tmp_path: Path) -> None:
    """As libraries do with their actors when a job is over: what it did before counts."""
    end = EarlyEnd(worker="A-2", node="node-0", incarnation="1", step=59, restarted=False)
    about = manifest(tmp_path.name, Receipt((), str(tmp_path)).to_dict())
    (tmp_path / "run.json").write_text(json.dumps(run_file(tmp_path.name)))
    (tmp_path / "manifest.json").write_text(json.dumps({**about, "ended_by_job": [end]}))
    made = [SimulatedLedger("Runner", "driver"), *(SimulatedLedger(f"A-{r}") for r in range(3))]
    for number in range(60):
        begin = number * 1000 * MS
        made[0].step(number, begin, begin + 1000 * MS)
        for rank in made[1:]:
            rank.span("work", begin, begin + (900 if rank is made[3] else 300 + number % 2) * MS)
    for each in made:
        each.write(tmp_path, each.name != "A-2")
    run = reading.read(tmp_path, 0)
    assert {"A-2"} == {run.processes[number].name for number in run.killed}
    assert ["A-2"] == [each.worker for each in explain(run).findings]


def test_a_second_process_of_a_rank_is_named(tmp_path: Path) -> None:
    """It is in no row of the groups, and in none if it did nothing."""
    made = [
        SimulatedLedger("Runner", "driver"),
        SimulatedLedger("A-0"),
        SimulatedLedger("A-0.child-7", "child"),
        SimulatedLedger("A-0.child-8", "child"),
    ]
    for number in range(4):
        begin = number * 1000 * MS
        made[0].step(number, begin, begin + 1000 * MS)
        for each in made[1:3]:
            each.span("work", begin, begin + 600 * MS)
    made[3].event("untimed", 0)
    for each in made:
        each.write(tmp_path)
    found = explain(reading.read(tmp_path, 0))
    assert ["A-0.child-7"] == found.uncounted
    assert (
        "A-0.child-7 is in no row: a group counts one process for each rank, and not its children."
    ) in " ".join(text(found).split())


def test_timing_that_was_off_is_the_reason(tmp_path: Path) -> None:
    """Instead of scopes that nobody could have recorded."""
    made = [SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")]
    for number in range(4):
        made[0].step(number, number * 100 * MS, (number + 1) * 100 * MS)
    for each in made:
        each.event("untimed", 0)
        each.write(tmp_path)
    found = explain(reading.read(tmp_path, 0))
    assert "not known: GPUPROF_TIMING=0 switched timing off in A-0, Runner" == bounds(found)
    assert "unset GPUPROF_TIMING, which is 0 and switches timing off" == helps(found)


def test_without_timing_there_are_no_figures(tmp_path: Path) -> None:
    """A table would say that all ranks do nothing."""
    made = [SimulatedLedger("A-0"), SimulatedLedger("A-1")]
    for each in made:
        each.event("untimed", 0)
        for number in range(10):
            each.step(number, number * 100 * MS, (number + 1) * 100 * MS)
    said = text(explain(reading.read(write_run(tmp_path / "run", made), 0)))
    assert "Nothing was timed" in said
    assert "0 %" not in said


def test_all_ranks_of_a_group_are_not_slow(tmp_path: Path) -> None:
    """Each is slow where the other waits unseen: there is nobody to be slower than."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for number in range(40):
        begin, mine = 100 * number * MS, 60 + number % 7
        for rank, ledger in enumerate(ranks):
            ledger.step(number, begin, begin + 100 * MS)
            middle = begin + (mine if rank else 100 - mine - number % 3) * MS
            ledger.span("load", begin, middle)
            ledger.span("backward", middle, begin + 100 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", ranks), 0))
    assert [] == [finding.workers for finding in found.findings if len(finding.workers) > 1]


@pytest.mark.parametrize(("slowest", "printed"), [(140, False), (160, True)])
def test_a_path_that_tells_nothing_new_is_not_printed(
    slowest: int, printed: bool, tmp_path: Path
) -> None:
    """That of the slowest step, unless it takes half as long again as the median one."""
    rank, begin = SimulatedLedger("A-0"), 0
    for number in range(20):
        end = begin + (slowest if number == 15 else 100) * MS
        rank.step(number, begin, end)
        rank.span("work", begin, end)
        begin = end
    found = explain(reading.read(write_run(tmp_path / "run", [rank]), 0))
    assert ["median", "slowest"] == [path.why for path in found.paths]
    assert printed == ("the slowest one" in text(found))


def test_parts_of_a_path_without_a_share_have_no_row(tmp_path: Path) -> None:
    """Less than half a percent of the step is among the others."""
    rank = SimulatedLedger("A-0")
    for number in range(20):
        begin = 1000 * number * MS
        rank.step(number, begin, begin + 1000 * MS)
        rank.span("work", begin, begin + 996 * MS)
        rank.span("log", begin + 996 * MS, begin + 1000 * MS)
    said = text(explain(reading.read(write_run(tmp_path / "run", [rank]), 0)))
    assert " log" not in said
    assert "(1 more)" in said


def test_a_rank_without_timing_is_not_compared(tmp_path: Path) -> None:
    """Who is timed beside one that is not does more in each step, as far as anybody knows."""
    made = [SimulatedLedger("A-0"), SimulatedLedger("A-1")]
    made[0].event("untimed", 0)
    for number in range(20):
        for each in made:
            each.step(number, number * 100 * MS, (number + 1) * 100 * MS)
        made[1].span("work", number * 100 * MS + MS, (number + 1) * 100 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", made), 0))
    assert ([], [1]) == (found.findings, [each.workers for each in found.groups])


def test_clocks_that_may_be_half_a_step_apart_are_the_reason(tmp_path: Path) -> None:
    """Who came before whom on two nodes is not known then."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0", clock="there")
    driver.event("clock", 0, clock="there", at=500 * MS, offset=0, bound=60 * MS)
    for number in range(10):
        begin = number * 100 * MS
        driver.step(number, begin, begin + 100 * MS)
        driver.span("ray.get", begin, begin + 90 * MS, waits_for="*", waits=[f"ray:{number}"])
        driver.span("reward", begin + 90 * MS, begin + 100 * MS)
        worker.span("work", begin + MS, begin + 89 * MS, releases=[f"ray:{number}"])
    found = explain(reading.read(write_run(tmp_path / "run", [driver, worker]), 0))
    assert bounds(found).startswith("not known: the nodes' clocks may be 60 ms apart")


def test_the_steps_to_capture_are_typical_and_apart(tmp_path: Path) -> None:
    """What happened once will not be there again, and a window disturbs the step after it."""
    made = [SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0"), SimulatedLedger("A-1")]
    for number in range(40):
        begin = number * 1000 * MS
        made[0].step(number, begin, begin + 1000 * MS)
        made[1].span("work", begin, begin + 300 * MS)
        extra = 300 if number in (10, 11) else 20 + number
        made[2].span("work", begin, begin + (500 + extra) * MS)
    for each in made:
        each.write(tmp_path)
    (finding, *_) = explain(reading.read(tmp_path, 0)).findings
    *keys, steps = config(finding, rounds=False, launched=False).split()
    assert ["GPUPROF_BACKEND=PROFILER", "GPUPROF_WORKER_GROUPS=A", "GPUPROF_RANKS=0,1"] == keys
    captured = [int(number) for number in steps.removeprefix("GPUPROF_STEPS=").split(",")]
    assert not {10, 11} & set(captured)
    assert captured[1] - captured[0] > 2


def test_a_job_under_gpuprof_run_is_captured_by_its_command(tmp_path: Path) -> None:
    """It has no other place for settings that can be copied as they are."""
    run = reading.read(Job("slow rank", seed=3).write(tmp_path / "run"))
    run.launched = True
    (finding, *_) = as_dict(explain(run))["findings"]
    assert re.fullmatch(
        "gpuprof run --set backend=PROFILER --set worker_groups=RolloutGroup "
        r"--set ranks=\d,\d --set steps=\d+,\d+ -- COMMAND",
        finding["config"],
    )


def test_a_group_that_has_no_part_in_a_step_does_not_wait(tmp_path: Path) -> None:
    """Such as a process that has only started the others."""
    made = [SimulatedLedger(name) for name in ("A-0", "controller-0")]
    driver = SimulatedLedger("Runner", "driver")
    for step, begin in driver.begin_steps(10):
        driver.span("ray.get", begin, begin + 100 * MS, waits_for="*", waits=[f"k{step}"])
        made[0].span("work", begin, begin + 80 * MS, releases=[f"k{step}"])
    run = reading.assemble("run", ledgers.ledgers(write_run(tmp_path, [driver, *made]))[0], {})
    assert waits(explain(run)) == "A 20 % (between calls)"


def test_who_waits_is_said_by_all_its_waiting(tmp_path: Path) -> None:
    """In scopes that wait and between calls; with the place of most of it, and its part."""
    driver = SimulatedLedger("Runner", "driver")
    made = [SimulatedLedger(name) for name in ("A-0", "B-0")]
    for _, begin in driver.begin_steps(10):
        for worker, (received, ended) in zip(made, ((50, 80), (20, 40)), strict=True):
            worker.span("recv", begin, begin + received * MS, waits_for="C")
            worker.span("work", begin + received * MS, begin + ended * MS)
    run = reading.assemble("run", ledgers.ledgers(write_run(tmp_path, [driver, *made]))[0], {})
    assert waits(explain(run)) == "B 80 % (between calls 60 %), A 70 % (recv 50 %, for C)"


@pytest.mark.parametrize("ends", [True, False])
def test_who_is_in_one_call_does_not_wait_between_calls(ends: bool, tmp_path: Path) -> None:
    """Such as a method that collects samples while the steps go on, until the job ends or before.

    The learner waits between its calls.
    """
    driver, learner = SimulatedLedger("Runner", "driver"), SimulatedLedger("Learner-0")
    collector = SimulatedLedger("Collector-0")
    for step, begin in driver.begin_steps(10):
        driver.span("ray.get", begin, begin + 99 * MS, waits_for="*", waits=[f"k{step}"])
        learner.span("Learner.train", begin, begin + 60 * MS, releases=[f"k{step}"])
        collector.span(
            ("Collector.collect", "ray.get"), begin, begin + 5 * MS,
            waits_for="*", waits=[f"add{step}"],
        )  # fmt: skip
    if ends:
        collector.span("Collector.collect", 0, 1000 * MS, releases=["collect"])
    else:
        collector.open.append((collector.place("Collector.collect"), 0))
    found = explain(reading.read(write_run(tmp_path, [driver, learner, collector])))
    assert waits(found) == "Learner 40 % (between calls), Collector 5 % (ray.get)"


def test_the_calls_of_a_killed_worker_are_why_a_path_is_lost(tmp_path: Path) -> None:
    """Nothing that could be added would show them."""
    made = [SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0"), SimulatedLedger("A-1")]
    for number in range(20):
        begin = number * 1000 * MS
        made[0].step(number, begin, begin + 1000 * MS)
        made[0].span("ray.get", begin, begin + 990 * MS, waits_for="*", waits=[f"call-{number}"])
        if number < 3:
            made[2].span("work", begin, begin + 900 * MS, releases=[f"call-{number}"])
    for each in made:
        each.write(tmp_path, each.name != "A-1")
    run = reading.read(tmp_path, 0)
    run.instruments = frozenset({"ray"})
    assert "a run in which A-1 does not end early: its ledger lacks these calls" == remedy(
        explain(run)
    )


@pytest.mark.parametrize(("ran", "known"), [(42, True), (3, False)])
def test_a_driver_that_runs_between_its_calls_is_named(
    ran: int, known: bool, tmp_path: Path
) -> None:
    """Its main thread must have run: else it may wait for what nobody recorded."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step, begin in driver.begin_steps(40):
        driver.span("ray.get", begin, begin + 60 * MS, waits_for="*", waits=[f"ray:{step}"])
        worker.span("A.work", begin, begin + 59 * MS, releases=[f"ray:{step}"])
        if step % 10 == 5:
            driver.main.append((begin, ran * step * MS, 0))
    found = explain(reading.read(write_run(tmp_path, [driver, worker])))
    bound = "A-0 59 % (A.work 59 %), Runner 41 % (between its calls 40 %)"
    assert known == (bound == bounds(found))
    assert known == (["driver"] == [finding.cause for finding in found.findings])
    gain = "the run would take 40 % less"
    assert known == (f"without what Runner does by itself, {gain}" == helps(found))
    assert known == (f"saves   {gain}" in text(found))


def test_a_scope_has_the_bytes_that_it_moves(tmp_path: Path) -> None:
    """The mean of a step, for people and for programs; of steps that count."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step, begin in driver.begin_steps(10):
        driver.span("ray.get", begin, begin + 2 * MS, waits_for="*", waits=[f"{step}"])
        worker.span("A.work", begin, begin + MS, releases=[f"{step}"])
        for put in range(2):
            start = begin + (2 + 49 * put) * MS
            driver.span("ray.put", start, start + 49 * MS)
            driver.sizes.append((driver.place("ray.put"), start + 48 * MS, (2 + put) * 2**20))
    found = explain(reading.read(write_run(tmp_path, [driver, worker])))
    assert {"ray.get": None, "A.work": None, "ray.put": 5 * 2**20} == {
        each.scope: each.bytes for each in found.scopes
    }
    assert "\nray.put in Runner: 5.0 MiB a step.\n" in text(found)


@pytest.mark.parametrize(("of_a_call", "slow"), [(5, []), (10, ["A-0"])])
def test_who_makes_more_calls_is_slow_only_if_they_take_longer(
    of_a_call: int, slow: list[str], tmp_path: Path
) -> None:
    """As of environments that run freely, of which another one is slow: it has fewer calls."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for step, begin in driver.begin_steps(40):
        driver.span("ray.get", begin, begin + 99 * MS, waits=[f"{step}"], waits_for="*")
        calls = 6 + 7 * step % 3, 2 + step % 2
        for rank, (ledger, times, each) in enumerate(
            zip(ranks, calls, (of_a_call, 5), strict=True)
        ):
            end = begin + (98 - 18 * rank) * MS
            ledger.span("sample", begin, end, releases=[f"{step}"][rank:])
            for call in range(times):
                start = begin + 11 * call * MS
                ledger.span(["sample", "forward"], start, start + each * MS)
    found = explain(reading.read(write_run(tmp_path, [driver, *ranks])))
    assert slow == [finding.worker for finding in found.findings]


def test_a_slow_rank_of_a_pool_is_named(tmp_path: Path) -> None:
    """It works as long as the others, on a quarter of their calls: the others could have more."""
    workers = [SimulatedLedger(f"Rollout-{rank}") for rank in range(4)]
    driver = SimulatedLedger("Runner", "driver")
    for step in range(40):
        begin = step * 80 * MS
        for rank, worker in enumerate(workers):
            took = 80 if rank == 2 else 20
            for at in range(0, 80, took):
                key = f"{rank}-{step}-{at}"
                start = begin + at * MS
                worker.span("run", start, start + took * MS - 1000, releases=[key])
        driver.span("ray.get", begin, begin + 80 * MS, waits=[f"{step % 4}-{step}-0"])
        driver.step(step, begin, begin + 80 * MS)
    (found,) = explain(reading.read(write_run(tmp_path, [driver, *workers]))).findings
    assert ("rank", "Rollout-2", "named") == (found.cause, found.worker, found.grade)
    assert pytest.approx(1 - 13 / 16, abs=0.01) == found.saves
    assert 4.0 == pytest.approx(found.ratio, abs=0.01)


def test_a_rank_of_a_pool_may_work_a_call_longer_than_the_others(tmp_path: Path) -> None:
    """It takes its last call while there are any: that it always makes three is not its part."""
    workers = [SimulatedLedger(f"Judge-{rank}") for rank in range(4)]
    driver = SimulatedLedger("Runner", "driver")
    for step, begin in driver.begin_steps(40):
        for rank, worker in enumerate(workers):
            took = 20 if rank == 2 else 6
            for at in range(0, 60 if rank == 2 else 42, took):
                start = begin + at * MS
                worker.span("score", start, start + took * MS - 1000, releases=[f"{step}-{rank}"])
        driver.span("ray.get", begin, begin + 60 * MS, waits=[f"{step}-2"])
    (found,) = explain(reading.read(write_run(tmp_path, [driver, *workers]))).findings
    assert ("rank", "Judge-2") == (found.cause, found.worker)


@pytest.mark.parametrize(("calls", "expected"), [(20, "load (thread)"), (1, None)])
def test_what_threads_of_a_pool_do_may_bound_the_run(
    calls: int, expected: str | None, tmp_path: Path
) -> None:
    """Not a thread that runs as long as the job: nothing tells what it does for a step."""
    ledger = SimulatedLedger("Program-0")
    for step, begin in ledger.begin_steps(20):
        key = f"{step * calls // 20}"
        ledger.span("Future.result", begin, begin + 80 * MS, waits_for="*", waits=[key])
        ledger.span("train", begin + 80 * MS, begin + 99 * MS)
        if calls > 1 or not step:
            end = begin + (79 if calls > 1 else 1990) * MS
            ledger.span("load (thread)", begin, end, track=2, releases=[key])
    found = explain(reading.read(write_run(tmp_path, [ledger])))
    assert expected == (found.bottleneck and found.bottleneck.scope)


def test_a_stall_that_the_watchdog_has_written_down_is_named(tmp_path: Path) -> None:
    """An explanation of the steps that ended would not tell that others took so long."""
    driver = SimulatedLedger("Runner", "driver")
    for step in range(10):
        driver.step(step, 100 * step * MS, 100 * (step + 1) * MS)
    directory = write_run(tmp_path, [driver])
    (directory / "stall-1.txt").write_text("rank 1 is in flush\n")
    (problem,) = explain(reading.read(directory)).problems
    assert problem.startswith("nothing ended in any process for long; ")


@pytest.mark.parametrize(("replayed", "claimed"), [(0.05, None), (0.4, 0.4)])
def test_a_saving_that_contradicts_a_blind_record_is_not_claimed(
    replayed: float, claimed: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer's checkpoint, in which a full queue keeps others waiting, unseen."""
    trainer, other = SimulatedLedger("Trainer-0"), SimulatedLedger("Queue-0")
    begin = 0
    for step in range(64):
        end = begin + (60 + step % 2 + 400 * (step % 8 == 7)) * MS
        trainer.step(step, begin, end)
        other.span("await", begin, end, waits_for="*")
        begin = end
    monkeypatch.setattr(Loop, "saves", lambda *_: replayed)
    found = explain(reading.read(write_run(tmp_path / "run", [trainer, other])))
    (finding,) = found.findings
    assert ("recurring", "Trainer-0", claimed) == (finding.cause, finding.worker, finding.saves)
    assert finding.share > 0.4


def test_what_one_rank_does_now_and_then_in_no_scope_is_named_if_all_others_wait(
    tmp_path: Path,
) -> None:
    """Rank 0 evaluates in every tenth step before its forward; all meet in `backward`, unseen."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(3)]
    now = 0
    for step in range(60):
        works = [(20 + 200 * (rank == 0 and step % 10 == 5)) * MS for rank in range(3)]
        end = now + max(works) + 10 * MS
        for rank, ledger in enumerate(ranks):
            begin = now + works[rank] + (step * 7 + rank * 3) % 5 * MS // 10
            ledger.step(step, now, end)
            ledger.span("forward", begin, begin + MS)
            ledger.span("backward", begin + MS, end)
        now = end
    for ledger in ranks:
        ledger.main = [(0, 0, 0), (now, now // 10, 0)]
    found = explain(reading.read(write_run(tmp_path, ranks)))
    (finding,) = found.findings
    assert ("recurring", "Worker-0", "named") == (finding.cause, finding.worker, finding.grade)
    assert pytest.approx(6 * 200 * MS / now, abs=0.03) == finding.saves
    assert bounds(found).startswith("Worker-0 ")
    at = "{run}/train.py:3"  # a path may have braces
    assert f"without what Worker-0 does at {at} every 10th step" in what_if(finding, at)


@pytest.mark.parametrize(("silent", "hung"), [(12, False), (40, True)])
def test_a_run_that_hung_until_it_was_ended_says_so(
    silent: int, hung: bool, tmp_path: Path
) -> None:
    """Its last step never ended, and the others were as usual."""
    ranks = [SimulatedLedger(f"Rank-{rank}") for rank in range(2)]
    over = 30 * 100 * MS + silent * 1000 * MS
    for ledger in ranks:
        for step in range(30):
            ledger.step(step, step * 100 * MS, (step + 1) * 100 * MS)
            ledger.span("work", step * 100 * MS, (step * 100 + 90) * MS)
        ledger.span("barrier", 3000 * MS, over - 1000 * MS, waits_for="barrier")
        ledger.span("teardown", over - 1000 * MS, over)
        path = ledger.write(tmp_path / "run")
        meets = ("meet", "__main__", "/job/train.py", 9)
        seconds = over - 1000 * MS
        write_stacks(path, [([MAIN], 1, 1, 9, 0, 3000 * MS), ([meets], 1, 2, 9, 3000, seconds)])
    gone = SimulatedLedger("Rank-2")
    gone.span("work", 0, 2000 * MS)
    write_stacks(gone.write(tmp_path / "run"), [([MAIN], 1, 1, 9, 0, 2000 * MS)])
    found = explain(reading.read(tmp_path / "run"))
    assert "last_places" not in as_dict(found)
    said = " ".join(text(found).split())
    assert "Rank-2" not in said  # it had ended before
    assert hung == ("In its last 40 s, nothing ended in any process: it may have hung." in said)
    where = "Rank-0, Rank-1 were in barrier, at meet (train.py:9)"
    assert hung == (f"Meanwhile {where}." in said)
    assert "hung" not in helps(found)  # it may have saved a model at its end
    killed = attrs.evolve(found, state="killed")
    assert hung == (f"see why it may have hung: {where}" == helps(killed))


@pytest.mark.parametrize(("ranks", "cause"), [(2, ["driver"]), (17, [])])
def test_a_driver_that_works_a_little_in_a_scope_is_named_beside_few_workers(
    ranks: int, cause: list[str], tmp_path: Path
) -> None:
    """To call many of them takes it as long."""
    driver = SimulatedLedger("Runner", "driver")
    workers = [SimulatedLedger(f"A-{rank}") for rank in range(ranks)]
    for step in range(30):
        begin, keys = step * 108 * MS, [f"ray:{step}:{rank}" for rank in range(ranks)]
        driver.span("advantage", begin, begin + 8 * MS)
        for worker, key in zip(workers, keys, strict=True):
            driver.sent(begin + 8 * MS, begin + 8 * MS + 1, key)
            worker.span("act", begin + 8 * MS, begin + 108 * MS, releases=[key])
        driver.span("ray.get", begin + 8 * MS + 1, begin + 108 * MS, waits=keys, waits_for="*")
        driver.step(step, begin, begin + 108 * MS)
    found = explain(reading.read(write_run(tmp_path / "run", [driver, *workers])))
    assert cause == [finding.cause for finding in found.findings]


def test_a_driver_that_copies_large_arguments_is_told_to_do_so_once(tmp_path: Path) -> None:
    """Ray puts them into its store for each call."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for step in range(30):
        begin = step * 100 * MS
        driver.span("ray.put", begin, begin + 30 * MS)
        driver.sent(begin, begin + 30 * MS, f"{step}")
        worker.span("act", begin + 30 * MS, begin + 99 * MS, releases=[f"{step}"])
        driver.span("ray.get", begin + 31 * MS, begin + 99 * MS, waits=[f"{step}"], waits_for="*")
        driver.step(step, begin, begin + 100 * MS)
    (finding,) = explain(reading.read(write_run(tmp_path, [driver, worker]))).findings
    assert ("driver", "ray.put") == (finding.cause, finding.scope)
    assert words(finding).action.startswith(
        "Put a large argument of several calls into Ray's store"
    )
