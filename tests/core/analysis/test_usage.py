"""What processes use of their machines, and what explain says of those that lack something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from gpuprof._analysis import reading, usage
from gpuprof._analysis.causes import Doubt, Facts
from gpuprof._analysis.explain import Explanation
from gpuprof._analysis.stacks import Line
from gpuprof._report.causes import gain, words
from gpuprof._report.explain import as_dict, explain, helps, text
from gpuprof._session.ledger import MARKS_STEPS
from support.simulated_run import SimulatedLedger, write_run

MS = 1_000_000
SECOND = 1_000 * MS
MB = 2**20


def ranks(directory: Path, *times: tuple[int, int, int, int]) -> Explanation:
    """Two ranks or more that work for so long in each of 100 steps, and meet.

    Args:
        times: for each rank, its milliseconds of work in a step, those of them for which it ran and
            was ready to, and those for which another thread ran.
    """
    ledgers = [SimulatedLedger(f"Rank-{number}") for number in range(len(times))]
    length = (max(work for work, *_ in times) + 4) * MS
    for ledger, (work, ran, ready, other) in zip(ledgers, times, strict=True):
        for step in range(100):
            begin = step * length
            ledger.step(step, begin, begin + length)
            ledger.span("load", begin, begin + (work + step % 3) * MS)
            ledger.span("barrier", begin + (work + step % 3) * MS, begin + length - 1,
                        waits_for="barrier")  # fmt: skip
        for step in range(0, 101, 10):
            ledger.main.append((step * length, step * ran * MS, step * ready * MS))
            if other:
                burner = ledger.threads.setdefault("burner", [])
                burner.append((step * length, step * other * MS, 0))
            ledger.usage.append(
                {
                    "time": step * length,
                    "processor": step * (ran + other) * MS,
                    "processors": 16,
                    "usable": 1 if ready else 16,
                }
            )
    return explain(reading.read(write_run(directory / "run", ledgers)))


def test_a_rank_that_waits_for_a_processor_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    """Not as a slow rank: with a processor of its own it would be as fast as the others."""
    answer = ranks(tmp_path, (40, 40, 0, 0), (120, 40, 80, 0))
    (finding,) = answer.findings
    assert ("processor", "named", "Rank-1") == (finding.cause, finding.grade, finding.worker)
    assert pytest.approx(80 / 124, abs=0.03) == finding.saves
    said = words(finding).says
    assert "Rank-1 waited 65 % of the time for a processor, ready to run" in said
    assert "the others on node node-0 waited 0 %. It may use 1 of 16 processors." in said
    assert helps(answer).startswith("if Rank-1 never waited for a processor, the run would take 6")
    assert "busy" not in text(answer)


def test_on_a_busy_machine_nobody_is_named_for_it(tmp_path: Path) -> None:
    """All wait as long, so that none of them is the cause."""
    answer = ranks(tmp_path, (120, 40, 80, 0), (120, 40, 80, 0), (118, 40, 78, 0))
    assert [] == answer.findings
    said = " ".join(text(answer).split())
    assert "The machine was busy: processes waited 65 % of the time for a processor" in said


def waiting(directory: Path, scope: str, waits_for: str, ready: int) -> Explanation:
    """Two ranks that work for 40 ms in each of 60 steps, and wait for 40 ms in a scope.

    Args:
        ready: for how many milliseconds of a step each is ready to run, without a processor.
    """
    ledgers = [SimulatedLedger(f"Rank-{number}") for number in range(2)]
    length = 81 * MS
    for rank, ledger in enumerate(ledgers):
        for step in range(60):
            begin = step * length
            worked = begin + (40 + (step + rank) % 2) * MS
            ledger.step(step, begin, begin + length)
            ledger.span("forward", begin, worked)
            meets = [f"m{step}"] if waits_for == "barrier" else []
            ledger.span(scope, worked, begin + length, waits_for=waits_for, meets=meets)
        ledger.main = [(0, 0, 0), (60 * length, 60 * 10 * MS, 60 * ready * MS)]
        for second in range(6):
            ledger.usage.append({"time": 10 * second * length, "processors": 2, "usable": 2})
    return explain(reading.read(write_run(directory / "run", ledgers)))


@pytest.mark.parametrize(("ready", "causes"), [(0, ["synchronisation"]), (30, [])])
def test_on_a_busy_machine_a_collective_is_no_cause(
    ready: int, causes: list[str], tmp_path: Path
) -> None:
    """Ranks that have met may only wait for a processor."""
    answer = waiting(tmp_path, "torch.all_reduce", "barrier", ready)
    assert causes == [finding.cause for finding in answer.findings]
    if ready:
        assert helps(answer).endswith(
            "more processors or fewer processes: they waited 37 % of the time for a processor"
        )


@pytest.mark.parametrize(("work", "grade"), [(80, "hint"), (150, "named")])
def test_on_a_busy_machine_a_rank_must_be_slower_to_be_named(
    work: int, grade: str, tmp_path: Path
) -> None:
    """All wait for a third of the time for a processor, and it slows some more than others."""
    answer = ranks(tmp_path, *[(60, 40, 20, 0)] * 3, (work, work - 20, 20, 0))
    slow = next(finding for finding in answer.findings if finding.cause == "rank")
    assert ("Rank-3", grade) == (slow.worker, slow.grade)


@pytest.mark.parametrize(("ready", "grade", "saves"), [(0, "named", 0.5), (30, "hint", 0.125)])
def test_on_a_busy_machine_a_wait_for_data_is_a_hint(
    ready: int, grade: str, saves: float, tmp_path: Path
) -> None:
    """What loads the data may lack a processor as well: 30 of 40 ms that it would need."""
    answer = waiting(tmp_path, "load", "data", ready)
    (finding,) = answer.findings
    assert ("data", grade) == (finding.cause, finding.grade)
    assert pytest.approx(saves, abs=0.02) == finding.saves
    doubt = ", unless the busy machine is why"
    assert ("may" if ready else "would") in helps(answer)
    assert bool(ready) == helps(answer).endswith(doubt)


def test_who_waits_less_for_a_processor_than_others_lacks_none(tmp_path: Path) -> None:
    """Even if it gets a smaller share of what it needs."""
    ledgers = [SimulatedLedger(f"Rank-{number}") for number in range(2)]
    for rank, ledger in enumerate(ledgers):
        for step in range(100):
            ledger.step(step, 100 * step * MS, 100 * (step + 1) * MS)
            ledger.span("work", 100 * step * MS, (100 * step + 60) * MS)
        # rank 0 gets 5 of 35 ms that it needs, rank 1 60 of 100
        ran, ready = ((5, 30), (60, 40))[rank]
        ledger.main = [(0, 0, 0), (10_000 * MS, 100 * ran * MS, 100 * ready * MS)]
        for second in range(11):
            ledger.usage.append({"time": second * SECOND, "processors": 2, "runnable": 2})
    answer = explain(reading.read(write_run(tmp_path / "run", ledgers)))
    assert "processor" not in [finding.cause for finding in answer.findings]


def test_a_process_that_does_none_of_the_steps_work_lacks_nothing(tmp_path: Path) -> None:
    """Whatever it waits for, no step waits for it."""
    ledgers = [SimulatedLedger("Rank-0"), SimulatedLedger("Idle-0")]
    for step in range(100):
        ledgers[0].step(step, 100 * step * MS, 100 * (step + 1) * MS)
        ledgers[0].span("work", 100 * step * MS, (100 * step + 90) * MS)
    for ledger, (ran, ready) in zip(ledgers, ((90, 2), (10, 40)), strict=True):
        ledger.main = [(0, 0, 0), (10_000 * MS, 100 * ran * MS, 100 * ready * MS)]
        for second in range(11):
            ledger.usage.append({"time": second * SECOND, "processors": 2, "runnable": 2})
    answer = explain(reading.read(write_run(tmp_path / "run", ledgers)))
    assert "processor" not in [finding.cause for finding in answer.findings]


def starved(directory: Path, gets: Callable[[int, int], float]) -> Explanation:
    """Two ranks that need 40 ms of a processor in each of 100 steps, on a machine that is busy.

    Args:
        gets: the share of a processor that a rank gets in a step, given both numbers.
    """
    ledgers = [SimulatedLedger(f"Rank-{number}") for number in range(2)]
    time = 0
    totals = [[0, 0], [0, 0]]
    for step in range(101):
        works = [int(40 * MS / gets(rank, step)) for rank in range(2)]
        length = max(works) + 4 * MS
        for rank, (ledger, work) in enumerate(zip(ledgers, works, strict=True)):
            ledger.main.append((time, *totals[rank]))
            ledger.usage.append({"time": time, "processors": 2, "runnable": 20})
            if step < 100:
                ledger.step(step, time, time + length)
                ledger.span("load", time, time + work)
                ledger.span("barrier", time + work, time + length - 1, waits_for="barrier")
            totals[rank][0] += 40 * MS
            totals[rank][1] += work - 40 * MS
        time += length
    return explain(reading.read(write_run(directory / "run", ledgers)))


def test_on_a_busy_machine_a_rank_that_gets_less_all_the_time_is_named(tmp_path: Path) -> None:
    """It lacks hardly more than the others, but gets half as much, and would wait as they do."""
    (finding,) = starved(tmp_path, lambda rank, step: (0.2, 0.1)[rank]).findings
    assert ("processor", "named", "Rank-1") == (finding.cause, finding.grade, finding.worker)
    assert pytest.approx(200 / 404, abs=0.03) == finding.saves
    assert "waited 89 % of the time for a processor" in words(finding).says


def test_a_rank_that_gets_less_now_and_then_is_not_named_for_it(tmp_path: Path) -> None:
    """In half of the steps the other one gets less."""
    answer = starved(tmp_path, lambda rank, step: 0.1 if (step // 10) % 2 == rank else 0.2)
    assert [] == [finding for finding in answer.findings if finding.cause == "processor"]


def test_a_pause_without_a_processor_says_so(tmp_path: Path) -> None:
    """The step is long because its rank waited to run."""
    answer = starved(tmp_path, lambda rank, step: 0.1 if (rank, step) == (1, 50) else 1.0)
    (finding,) = answer.findings
    assert "Rank-1 waited 89 % of its time for a processor: that may be why." in (
        words(finding).says
    )
    assert "Rank-1 waited 89 % of this step for a processor; of all steps, 8 %." in text(answer)
    used = {row["worker"]: row["waited"] for row in as_dict(answer)["paths"][1]["processes"]}
    assert {"Rank-0": 0.0, "Rank-1": pytest.approx(360 / 404)} == used


def faulting(directory: Path, faults: Callable[[int], int], extra: Callable[[int], int]) -> str:
    """What explain says of two ranks of which the second reads a disk in page faults, as one line.

    Args:
        faults: how many it has in a step.
        extra: milliseconds that it works longer in a step.
    """
    ledgers = [SimulatedLedger(f"Rank-{number}") for number in range(2)]
    time, counts = 0, [0, 0]
    for step in range(101):
        length = (48 + extra(step)) * MS
        for rank, ledger in enumerate(ledgers):
            work = (40 + extra(step) * rank + (step + rank) % 3) * MS
            ledger.main.append((time, step * 20 * MS, 0))
            ledger.usage.append({"time": time, "processors": 16, "faults": counts[rank]})
            if step < 100:
                ledger.step(step, time, time + length)
                ledger.span("load", time, time + work)
                ledger.span("barrier", time + work, time + length - 1, waits_for="barrier")
        counts[1] += faults(step)
        time += length
    return " ".join(text(explain(reading.read(write_run(directory / "run", ledgers)))).split())


def test_a_slow_rank_that_swaps_says_so(tmp_path: Path) -> None:
    """It has many page faults that read a disk, and the other rank has none."""
    said = faulting(tmp_path, lambda _: 300, lambda _: 40)
    assert "Rank-1 had 300 more page faults a step that read a disk, as with swapped-out" in said


def test_a_few_page_faults_are_no_reason(tmp_path: Path) -> None:
    """They cannot take as long as the rank takes more."""
    said = faulting(tmp_path, lambda _: 10, lambda _: 40)
    assert "Rank-1 is slow in load" in said
    assert "page faults" not in said


def test_a_slow_step_that_reads_a_disk_in_page_faults_says_so(tmp_path: Path) -> None:
    """The pause that it is, and its critical path."""
    said = faulting(tmp_path, lambda step: 3000 * (step == 50), lambda step: 400 * (step == 50))
    assert "Rank-1 had 3,000 more page faults a step that read a disk" in said
    assert "Rank-1 had 3,000 page faults that read a disk in this step; on average, 30." in said


def test_each_step_has_what_a_process_used_in_it(tmp_path: Path) -> None:
    """Between two readings it grows evenly."""
    ledger = SimulatedLedger("Rank-0")
    for step in range(40):
        ledger.step(step, step * SECOND // 2, (step + 1) * SECOND // 2)
        ledger.span("load", step * SECOND // 2, (step + 1) * SECOND // 2 - 1)
    for second in range(21):
        ledger.main.append((second * SECOND, second * 600 * MS, second * 200 * MS))
        ledger.usage.append(
            {"time": second * SECOND, "resident": second * 10 * MB, "written": second**2 * MB}
        )
    run = reading.read(write_run(tmp_path / "run", [ledger]))
    used = usage.by_step(run, run.processes[0])
    assert used is not None
    shown = [values[:4].tolist() for values in (used.ran, used.ready)]
    assert [[300 * MS] * 4, [100 * MS] * 4] == shown
    assert [5 * MB, 10 * MB, 15 * MB] == used.resident[:3].tolist()
    assert [MB / 2, MB / 2, 1.5 * MB, 1.5 * MB] == used.written[:4].tolist()


def test_a_thread_that_holds_the_gil_is_named(tmp_path: Path) -> None:
    """The rank stands still in its work while that thread of Python runs."""
    answer = ranks(tmp_path, (40, 40, 0, 0), (80, 40, 0, 40))
    (finding,) = answer.findings
    assert ("interpreter", "named", "Rank-1") == (finding.cause, finding.grade, finding.worker)
    assert pytest.approx(40 / 84, abs=0.03) == finding.saves
    assert "Rank-1 stands still for 4" in words(finding).says
    assert "while its thread burner runs: it waits for Python's global lock" in words(finding).says


def test_ranks_that_wait_for_the_same_kind_of_thread_are_one_cause(tmp_path: Path) -> None:
    """Without it in one of them alone, the other one takes as long."""
    answer = ranks(tmp_path, (80, 40, 0, 40), (80, 40, 0, 40))
    (finding,) = answer.findings
    assert ("interpreter", {"Rank-0", "Rank-1"}) == (finding.cause, set(finding.workers))
    assert pytest.approx(40 / 84, abs=0.03) == finding.saves
    assert "stand still in the midst of their work, Rank-" in words(finding).says
    assert "never waited for their other threads, the run would take at least 4" in helps(answer)


def test_a_cause_in_what_is_not_explained_says_what_to_do(tmp_path: Path) -> None:
    """Rather than to mark the part that it is about."""
    answer = ranks(tmp_path, (40, 40, 0, 0), (80, 40, 0, 40))
    (finding,) = answer.findings
    blind = attrs.evolve(answer.confidence, reason="unexplained", worker="Rank-1")
    unsure = attrs.evolve(answer, findings=[attrs.evolve(finding, saves=None)], confidence=blind)
    what = "let the thread burner of Rank-1 work in a process, or in code that releases the GIL"
    assert what == helps(unsure)


def test_a_method_that_waits_for_a_thread_does_not_wait_for_the_gil(tmp_path: Path) -> None:
    """Ray Tune's trials are functions: a thread runs them, and the actor's method waits for it."""
    ledger = SimulatedLedger("trial-0")
    main, thread = (ledger.threads.setdefault(track, []) for track in (1, 2))
    for _, begin in ledger.begin_steps(100):
        ledger.span("forward", begin, begin + 60 * MS, track=2)
    ledger.span("train", 0, 10_000 * MS)
    ledger.span(["train", "queue.get"], 0, 7_000 * MS, waits_for="*")
    for second in range(11):
        main.append((second * SECOND, 0, 0))
        thread.append((second * SECOND, second * SECOND * 6 // 10, 0))
        ledger.usage.append({"time": second * SECOND})
    answer = explain(reading.read(write_run(tmp_path / "run", [ledger])))
    assert [] == answer.findings


def test_the_thread_that_marks_the_steps_is_the_one_that_works(tmp_path: Path) -> None:
    """Although threads of a pool are longer in scopes, for which it waits half of the time."""
    ledger = SimulatedLedger("Rank-0")
    ledger.event(MARKS_STEPS, 0, track=1)
    main, read = (ledger.threads.setdefault(track, []) for track in (1, 2))
    for number, begin in ledger.begin_steps(100):
        ends = begin + 50 * MS
        ledger.span("read (thread)", begin, ends, track=2, releases=[f"{number}"])
        ledger.span("Future.result", begin, ends, waits_for="*", waits=[f"{number}"])
    for second in range(11):
        main.append((second * SECOND, second * SECOND // 2, 0))
        read.append((second * SECOND, second * MS, 0))
        ledger.usage.append({"time": second * SECOND})
    answer = explain(reading.read(write_run(tmp_path / "run", [ledger])))
    (used,) = answer.processes
    assert used.thread is not None
    assert "thread 2" == used.thread.name
    assert pytest.approx((0.5, 0.5), abs=0.01) == (used.ran, used.works)


def test_a_pool_of_native_threads_does_not_hold_the_gil(tmp_path: Path) -> None:
    """The process keeps two processors busy, but no thread of Python runs beside the work."""
    ledger = SimulatedLedger("Rank-0")
    for step in range(100):
        ledger.step(step, 100 * step * MS, (100 * step + 99) * MS)
        ledger.span("load", 100 * step * MS, (100 * step + 98) * MS)
    for second in range(11):
        ledger.main.append((second * SECOND, second * SECOND // 2, 0))
        ledger.usage.append({"time": second * SECOND, "processor": 2 * second * SECOND})
    answer = explain(reading.read(write_run(tmp_path / "run", [ledger])))
    assert [] == answer.findings
    (used,) = as_dict(answer)["processes"]
    assert pytest.approx((2.0, 0.5)) == (used["processors"], used["ran"])
    assert used["thread"] is None


def remembers(
    directory: Path, memory: Callable[[int], float], files: Callable[[int], float] = lambda _: 0
) -> Explanation:
    """A job of 200 steps and 20 seconds, whose memory and files in it are so many MiB by step."""
    ledger = SimulatedLedger("Rank-0")
    for step in range(200):
        ledger.step(step, 100 * step * MS, (100 * step + 100) * MS)
        ledger.span("load", 100 * step * MS, (100 * step + 99) * MS)
    for step in range(0, 201, 10):
        ledger.main.append((100 * step * MS, 100 * step * MS, 0))
        ledger.usage.append(
            {
                "time": 100 * step * MS,
                "resident": int((400 + memory(step) + files(step)) * MB),
                "shared": int(files(step) * MB),
                "available": 10_000 * MB,
            }
        )
    return explain(reading.read(write_run(directory / "run", [ledger])))


def test_memory_that_grows_with_each_step_is_named(tmp_path: Path) -> None:
    """With how much, and when the machine has none left."""
    answer = remembers(tmp_path, lambda step: 5 * step)
    (finding,) = answer.findings
    assert ("leak", "named", "Rank-0") == (finding.cause, finding.grade, finding.worker)
    assert (
        "Rank-0's memory grows by 5.0 MiB with each step, to 1.4 GiB at the end. At this rate, the "
        "9.8 GiB that node node-0 has left are used up after 2,000 steps, 3 min."
    ) == words(finding).says
    assert helps(answer).startswith("make load of Rank-0 faster")


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(lambda step: min(5 * step, 500), id="a cache that fills to a limit"),
        pytest.param(lambda step: 500 * (1 - 0.98**step), id="a cache that fills less and less"),
        pytest.param(lambda step: 500 if step > 5 else 0, id="a warm-up"),
        pytest.param(lambda step: 6 * (step % 50), id="a sawtooth"),
        pytest.param(lambda step: 6 * (step % 190), id="one tooth, which ends"),
        pytest.param(lambda step: 0.05 * step, id="less than anybody would miss"),
        pytest.param(lambda step: -2 * step, id="one that shrinks"),
        pytest.param(lambda step: 400 * (step > 100), id="a step"),
    ],
)
def test_memory_that_comes_and_goes_is_no_leak(
    memory: Callable[[int], float], tmp_path: Path
) -> None:
    """It must grow steadily, in each third of the run."""
    assert [] == remembers(tmp_path, memory).findings


def test_a_leak_under_a_collector_that_runs_now_and_then_is_found(tmp_path: Path) -> None:
    """What the collector gives back does not count."""
    (finding,) = remembers(tmp_path, lambda step: 3 * step + 2 * (step % 30)).findings
    assert finding.facts.usage is not None
    assert pytest.approx(3 * MB, rel=0.1) == finding.facts.usage.growth


def test_a_rank_that_marks_every_other_step_leaks_by_step(tmp_path: Path) -> None:
    """The steps that it lacks are those of the others, and go by all the same."""
    ledgers = [SimulatedLedger("Rank-0"), SimulatedLedger("Rank-1")]
    for step in range(200):
        for rank, ledger in enumerate(ledgers):
            if not (rank and step % 2):
                ledger.step(step, 100 * step * MS, (100 * step + 100) * MS)
                ledger.span("load", 100 * step * MS, (100 * step + 99) * MS)
    for step in range(0, 201, 10):
        ledgers[1].main.append((100 * step * MS, 100 * step * MS, 0))
        ledgers[1].usage.append({"time": 100 * step * MS, "resident": (400 + 5 * step) * MB})
    (used,) = as_dict(explain(reading.read(write_run(tmp_path / "run", ledgers))))["processes"]
    assert pytest.approx(5 * MB, rel=0.02) == used["growth"]


def test_a_file_in_memory_is_no_leak(tmp_path: Path) -> None:
    """A dataset that is mapped grows in memory as it is read, and the kernel takes it back."""
    assert [] == remembers(tmp_path, lambda _: 0, files=lambda step: 5 * step).findings


def test_what_a_card_did_is_for_programs(tmp_path: Path) -> None:
    """Its means over the steps, and for how long it was slowed by heat or power."""
    ledger = SimulatedLedger("Rank-0")
    ledger.event("card", 0, card=0, name="stand-in", memory=80 * 10**9, clock=2_000)
    for step in range(100):
        ledger.step(step, 100 * step * MS, (100 * step + 99) * MS)
        ledger.span("load", 100 * step * MS, (100 * step + 98) * MS)
    for second in range(10):
        ledger.main.append((second * SECOND, second * SECOND // 2, 0))
        ledger.usage.append({"time": second * SECOND})
        heat, power = 0x40 * (second < 5), 0x04 * (second == 7)
        ledger.cards.append((0, second * SECOND, 60, second * 10**9, 1_000, heat | power))
    (used,) = as_dict(explain(reading.read(write_run(tmp_path / "run", [ledger]))))["processes"]
    (card,) = used["cards"]
    assert pytest.approx({"busy": 0.6, "clock": 1_000, "hot": 0.5, "limited": 0.1}, abs=0.08) == {
        name: card[name] for name in ("busy", "clock", "hot", "limited")
    }
    assert ("stand-in", 9 * 10**9, 80 * 10**9, 2_000) == (
        card["name"],
        card["memory"],
        card["of_memory"],
        card["of_clock"],
    )


def test_what_waits_before_the_loop_does_not_wait_in_a_step(tmp_path: Path) -> None:
    """The reading before the first step may be of the seconds in which modules were imported."""
    ledger, start = SimulatedLedger("Rank-0"), 5 * SECOND
    for step in range(40):
        begin = start + step * 100 * MS
        ledger.step(step, begin, begin + 100 * MS)
        ledger.span("load", begin, begin + 90 * MS)
    ledger.main = [(0, 0, 0)]
    ledger.main += [(start + second * SECOND, SECOND, 4 * SECOND) for second in range(1, 5)]
    run = reading.read(write_run(tmp_path / "run", [ledger]))
    (process,) = run.processes
    first = run.usual[:1]
    assert 0 == usage.waited_more(run, process, first)


LOADS = Line("helpers", "Rank-1-loader", "loader", 39, 0.05, 0.9, "parse", "job.py", 7, 0.9, 99)


def test_a_rank_whose_loader_lacks_processors_too_is_told_of_its_line(tmp_path: Path) -> None:
    """What else runs there is its own."""
    (finding,) = ranks(tmp_path, (40, 40, 0, 0), (120, 40, 80, 0)).findings
    action = words(finding, LOADS).action
    assert (
        "Its loader's processes need processors as well: make parse faster, at job.py:7" in action
    )
    assert "top" in words(finding).action


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_loader_on_a_busy_machine_may_cost_more(is_busy: bool, tmp_path: Path) -> None:
    """Its processes take processors from the ranks, and more of them would take more."""
    (of_rank,) = ranks(tmp_path, (40, 40, 0, 0), (120, 40, 80, 0)).findings
    doubt: Doubt = "busy" if is_busy else ""
    finding = attrs.evolve(
        of_rank, cause="data", scope="DataLoader.next", facts=Facts(doubt=doubt), saves=0.09
    )
    assert gain(finding).endswith("from the others" if is_busy else "9 % less")
    assert ("num_workers" in words(finding, LOADS).action) == (not is_busy)


def test_a_reading_of_a_second_does_not_tell_of_a_short_step(tmp_path: Path) -> None:
    """It waited for a processor in that second, and perhaps in the steps around."""
    ledger = SimulatedLedger("Rank-0")
    for step in range(40):
        begin = step * 100 * MS
        ledger.step(step, begin, begin + 100 * MS)
        ledger.span("load", begin, begin + 90 * MS)
    ledger.main = [(second * SECOND, 0, (second > 1) * SECOND // 2) for second in range(5)]
    run = reading.read(write_run(tmp_path / "run", [ledger]))
    (process,) = run.processes
    assert 0 == usage.waited_more(run, process, [12])
    assert 0 < usage.waited_more(run, process, range(10, 20))
