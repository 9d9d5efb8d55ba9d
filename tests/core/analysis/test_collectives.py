"""Collectives that nobody recorded, recognised by their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from gpuprof._analysis import reading
from gpuprof._analysis.run import WAIT, Collective
from gpuprof._report.causes import words
from gpuprof._report.explain import bounds, explain
from support.simulated_run import SimulatedLedger, write_run

MS = 1_000_000
Numbers = Callable[[np.random.Generator, int, int], float]


def loader_of_rank_1(random: np.random.Generator, rank: int, step: int) -> float:
    """Milliseconds for a batch: rank 1's loader is slow."""
    return float(random.normal(30 if rank == 1 else 5, 0.5))


def long_backward(random: np.random.Generator, *_: int) -> float:
    """Milliseconds of a backward that takes longer than the loaders differ."""
    return float(random.normal(60, 2))


def ddp(
    directory: Path,
    load: Numbers = loader_of_rank_1,
    meets: bool = True,
    backward: Numbers = lambda random, *_: float(random.normal(8, 0.2)),
    calls: int = 1,
    ranks: int = 4,
    sets: int = 1,
    leaves: Callable[[int], float] = lambda _: 0.0,
    late: float = 0.1,
    group: bool = False,
    around: str = "",
    children: bool = False,
    seed: int = 1,
) -> Path:
    """Ranks that mark their own steps, and meet at the end of `backward` if `meets`.

    Args:
        sets: how many parts of the ranks meet, each for itself.
        leaves: how many milliseconds a rank goes on after they have met.
        late: by how many milliseconds the machine lets a rank go on after that, in the mean.
        group: whether the ranks that meet have noted that they are a process group.
        around: a scope around `backward` alone.
        children: whether they are all processes that rank 0 has started.
    """
    random = np.random.default_rng(seed)
    name, role = ("Worker-0.child-", "child") if children else ("Worker-", "worker")
    ledgers = [SimulatedLedger(f"{name}{rank}", role) for rank in range(ranks)]
    for rank, ledger in enumerate(ledgers if group else []):
        members = [(rank % sets, sets, ranks // sets)]
        ledger.event("process group", 0, name="default_pg", rank=rank, ranks=members)
    scope = (around, "backward") if around else ("backward",)
    now = [0.0] * ranks
    for step in range(30):
        begins = list(now)
        for call in range(calls):
            ready = [now[rank] + load(random, rank, step) for rank in range(ranks)]
            done = [ready[rank] + backward(random, rank, step) for rank in range(ranks)]
            last = call == calls - 1
            # what is left to do after the last rank has come takes all of them as long
            left = float(random.normal(8, 0.2))
            for rank, ledger in enumerate(ledgers):
                end = max(ready[rank % sets :: sets]) + left + leaves(rank)
                out = end + float(random.exponential(late)) if meets and last else done[rank]
                ledger.span("load", int(now[rank] * MS), int(ready[rank] * MS))
                for depth in range(len(scope)):
                    ledger.span(scope[: depth + 1], int(ready[rank] * MS), int(out * MS))
                now[rank] = out
        if group and not meets:  # after backward
            now = [max(now)] * ranks
        for rank, ledger in enumerate(ledgers):
            ledger.step(step, int(begins[rank] * MS), int(now[rank] * MS))
    return write_run(directory, ledgers)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_waits_in_backward_is_not_accused(tmp_path: Path, ranks: int) -> None:
    """The one is whose loader is slow."""
    run = reading.read(ddp(tmp_path, ranks=ranks))
    assert [Collective("Worker", "backward")] == run.recognised
    answer = explain(run)
    assert ["Worker-1"] == [finding.worker for finding in answer.findings]
    assert "load" == answer.findings[0].scope
    assert bounds(answer).startswith("Worker-1")


def test_ranks_that_mostly_come_together_are_recognised(tmp_path: Path) -> None:
    """In every sixth step rank 1 saves before it loads."""

    def load(random: np.random.Generator, rank: int, step: int) -> float:
        return float(random.normal(60 if rank == 1 and step % 6 == 5 else 5, 0.01))

    assert [Collective("Worker", "backward")] == reading.read(ddp(tmp_path, load)).recognised


def test_a_process_group_on_a_busy_machine_is_recognised(tmp_path: Path) -> None:
    """Its ranks end as far apart as the machine lets them, but never before the last begins."""
    run = reading.read(ddp(tmp_path, late=2.5, group=True))
    assert [Collective("Worker", "backward")] == run.recognised
    assert [("Worker-1", "load")] == [(each.worker, each.scope) for each in explain(run).findings]


def test_a_process_group_that_meets_elsewhere_is_not_recognised(tmp_path: Path) -> None:
    """Nobody ends before the last begins, but whoever begins earlier takes no longer."""
    run = reading.read(ddp(tmp_path, meets=False, backward=long_backward, group=True))
    assert [] == run.recognised


def test_ranks_that_begin_together_and_work_differently_do_not_meet(tmp_path: Path) -> None:
    """Whoever begins a little earlier may take longer by chance."""
    for seed in range(12):
        run = ddp(
            tmp_path / str(seed),
            lambda random, *_: float(random.exponential(0.6)),
            meets=False,
            backward=lambda random, *_: float(random.uniform(60, 120)),
            ranks=2,
            group=True,
            seed=seed,
        )
        assert [] == reading.read(run).recognised


def test_ranks_that_meet_in_parts_are_not_accused(tmp_path: Path) -> None:
    """Every other rank waits for rank 1's batch in `backward`."""
    run = reading.read(ddp(tmp_path, ranks=6, sets=2))
    assert [Collective("Worker", "backward")] == run.recognised
    assert [("Worker-1", "load")] == [(each.worker, each.scope) for each in explain(run).findings]


def test_process_groups_on_a_busy_machine_are_recognised(tmp_path: Path) -> None:
    """The ranks of each end as far apart as the machine lets them, and wait for their own last."""
    run = reading.read(ddp(tmp_path, ranks=6, sets=2, late=2.5, group=True))
    assert [Collective("Worker", "backward")] == run.recognised
    assert [("Worker-1", "load")] == [(each.worker, each.scope) for each in explain(run).findings]


def test_the_innermost_scope_has_the_collective(tmp_path: Path) -> None:
    """A scope around it begins and ends with it, and waits no second time."""
    run = reading.read(ddp(tmp_path, around="update"))
    assert [Collective("Worker", "update/backward")] == run.recognised


def test_processes_of_one_rank_are_not_taken_to_meet(tmp_path: Path) -> None:
    """Children of a worker are no ranks, although they may end together."""
    assert [] == reading.read(ddp(tmp_path, children=True)).recognised


def test_the_wait_is_named_after_the_scope_around_it(tmp_path: Path) -> None:
    """Nobody has a scope of the name that analyses give it."""
    [group] = explain(reading.read(ddp(tmp_path))).groups
    assert ("backward", "barrier") == (group.scope, group.waits_for)


def test_only_the_call_with_the_reduction_is_one(tmp_path: Path) -> None:
    """With gradient accumulation that is the last one of a step."""
    run = reading.read(ddp(tmp_path, calls=3))
    assert [Collective("Worker", "backward")] == run.recognised
    waits = [place.path for place in run.places].index(f"backward/{WAIT}")
    assert 1 == run.matrix("calls", waits, run.groups["Worker"][:1]).max()


@pytest.mark.parametrize(
    ("load", "backward"),
    [
        (lambda random, *_: random.normal(5, 0.5), lambda random, *_: random.normal(8, 2)),
        (
            lambda random, rank, step: random.normal(60 if rank == 1 and step % 6 == 5 else 5, 0.1),
            lambda random, *_: random.normal(8, 0.01),
        ),
        # a rank that takes as much longer as it begins earlier, on average
        (
            lambda random, rank, _: random.normal(30 if rank == 1 else 5, 0.5),
            lambda random, rank, _: random.normal(8 if rank == 1 else 33, 0.5),
        ),
    ],
    ids=["each works for itself", "ranks are seldom apart", "ranks that make up for each other"],
)
def test_work_is_no_collective(tmp_path: Path, load: Numbers, backward: Numbers) -> None:
    """Although its ends may lie closer together than its beginnings."""
    assert [] == reading.read(ddp(tmp_path, load, meets=False, backward=backward)).recognised


def test_a_wait_that_somebody_else_ends_is_no_collective(tmp_path: Path) -> None:
    """The ends coincide, but do not follow the last beginning."""
    random = np.random.default_rng(1)
    ledgers = [SimulatedLedger(f"Worker-{rank}") for rank in range(4)]
    now = 0.0
    for step in range(30):
        ready = [now + random.normal(30 if rank == 1 else 5, 3) for rank in range(4)]
        out = now + random.normal(60, 0.1)
        for ledger, begin in zip(ledgers, ready, strict=True):
            ledger.span("load", int(now * MS), int(begin * MS))
            ledger.span("receive", int(begin * MS), int(out * MS))
            ledger.step(step, int(now * MS), int(out * MS))
        now = out
    assert [] == reading.read(write_run(tmp_path, ledgers)).recognised


def test_ranks_that_wake_up_late_have_met_when_the_first_one_leaves(tmp_path: Path) -> None:
    """Where the last one comes early, another one gets a processor late."""
    random = np.random.default_rng(1)
    ledgers = [SimulatedLedger(f"Worker-{rank}") for rank in range(3)]
    for rank, ledger in enumerate(ledgers):
        ledger.event("process group", 0, name="default_pg", rank=rank, ranks=[(0, 1, 3)])
    now = 0.0
    for step in range(40):
        early = step % 6 == 5
        last = random.normal(9.5 if early else 23, 1)
        ready = [random.normal(2, 0.3), random.normal(2, 0.3), last]
        slept = [12.0 if early else random.uniform(1, 3), random.uniform(0, 1), 0.0]
        for ledger, begin, late in zip(ledgers, ready, slept, strict=True):
            ledger.span("load", int(now * MS), int((now + begin) * MS))
            ledger.span("backward", int((now + begin) * MS), int((now + last + 4 + late) * MS))
            ledger.step(step, int(now * MS), int((now + 50) * MS))
        now += 50
    run = reading.read(write_run(tmp_path, ledgers))
    assert [Collective("Worker", "backward")] == run.recognised


def test_equal_beginnings_tell_nothing(tmp_path: Path) -> None:
    """A rank that is slow before the reduction, inside the same scope, cannot be told."""
    run = reading.read(ddp(tmp_path, lambda random, *_: random.normal(5, 0.01)))
    assert [] == run.recognised


@pytest.mark.parametrize("late", [0, 2])
def test_a_loader_that_is_always_as_slow(late: float, tmp_path: Path) -> None:
    """Nothing varies but by noise, and the ends coincide too well for chance.

    The slow rank leaves a little later, as it has to do what the others did while they waited.
    """

    def load(random: np.random.Generator, rank: int, _: int) -> float:
        return float(random.normal(60 if rank == 1 else 5, 0.01))

    run = reading.read(ddp(tmp_path, load, leaves=lambda rank: late if rank == 1 else 0))
    assert [Collective("Worker", "backward")] == run.recognised


def accumulating(
    directory: Path, micro_batches: Sequence[int], meets: bool = True, outside: bool = False
) -> Path:
    """Ranks that go through so many micro-batches a step, and meet in the last `backward`.

    Args:
        outside: whether nearly all of the work is in no scope.
    """
    random = np.random.default_rng(1)
    ledgers = [SimulatedLedger(f"Worker-{rank}") for rank in range(len(micro_batches))]
    now = [0.0] * len(ledgers)
    for step in range(40):
        begins, ready = list(now), list(now)
        for rank, (ledger, count) in enumerate(zip(ledgers, micro_batches, strict=True)):
            for call in range(count):
                ready[rank] = now[rank] + float(random.normal(20, 1))
                begin = ready[rank] - 0.1 if outside else now[rank]
                ledger.span("forward", int(begin * MS), int(ready[rank] * MS))
                now[rank] = ready[rank] + (0.1 if outside else float(random.normal(5, 0.2)))
                if call < count - 1:
                    ledger.span("backward", int(ready[rank] * MS), int(now[rank] * MS))
        met = max(now) + 2
        for rank, ledger in enumerate(ledgers):
            now[rank] = met if meets else now[rank]
            ledger.span("backward", int(ready[rank] * MS), int(now[rank] * MS))
            ledger.step(step, int(begins[rank] * MS), int(now[rank] * MS))
    return write_run(directory, ledgers)


def test_ranks_with_other_numbers_of_micro_batches_meet_in_the_last_one(tmp_path: Path) -> None:
    """So those that have fewer wait there, and the one with more is said to have more to do."""
    run = reading.read(accumulating(tmp_path / "in", [2, 2, 4]))
    assert [Collective("Worker", "backward")] == run.recognised
    (finding,) = explain(run).findings
    assert ("imbalance", ["Worker-2"]) == (finding.cause, finding.workers)
    (finding,) = explain(
        reading.read(accumulating(tmp_path / "out", [2, 2, 4], outside=True))
    ).findings
    assert ("rank", ["Worker-2"]) == (finding.cause, finding.workers)
    said = words(finding).says
    assert "Worker-2 enters forward 4 times a step, and the others 2 times: it may have" in said


def test_other_numbers_of_calls_alone_are_no_collective(tmp_path: Path) -> None:
    """Each goes on by itself."""
    assert [] == reading.read(accumulating(tmp_path, [2, 2, 4], meets=False)).recognised
