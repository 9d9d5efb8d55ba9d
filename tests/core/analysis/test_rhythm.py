"""Steps where nobody marks them: found in the calls of a driver, or in a loop of the ranks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from gpuprof._analysis import reading
from gpuprof._analysis.rhythm import Call, bursts, rounds
from gpuprof._analysis.run import Run
from gpuprof._artifacts import ledger as ledgers
from gpuprof._report.explain import no_steps
from gpuprof._session.ledger import LIBRARY_STEPS, LOOP
from support.simulated_run import SimulatedLedger, write_run


def calls(text: str) -> list[Call]:
    """A call of a method for each letter; of one that is not alone for a small one."""
    return [
        Call((letter.upper(), letter.upper()), time, frozenset([letter.upper()]), letter.isupper())
        for time, letter in enumerate(text)
    ]


def steps(text: str) -> tuple[int, str, str, str] | None:
    """How many rounds, the methods of each, those of some, and the first round."""
    found = rounds(calls(text))
    if found is None:
        return None
    return (
        len(found.starts) - 1,
        "".join(name for name, _ in found.methods),
        "".join(name for name, _ in found.extra),
        text[found.starts[0] : found.starts[1]],
    )


RANDOM = random.Random(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PU" * 9, (8, "PU", "", "PU")),
        ("PUPUPUPUPUE" * 7, (34, "PU", "E", "PU")),
        (("PU" * 10 + "E") * 4, (39, "PU", "E", "PU")),
        ("PUPUW" * 10, (19, "PU", "W", "PU")),
        ("".join("P" * (1 + n % 3) + "U" for n in range(20)), (18, "PU", "", "PPU")),
        ("".join("P" * (n * n % 11 + 4) + "U" for n in range(20)), (18, "PU", "", "PPPPPU")),
        ("ABCDEPWPW" + "PUPUW" * 10, (19, "PU", "W", "PU")),
        ("U" + "PU" * 12, (11, "PU", "", "PU")),
        ("ABAC" * 10, (9, "ABC", "", "ABAC")),
        ("PU" * 12 + "EEEEE", (11, "PU", "", "PU")),
        ("T" * 9 + "V" + ("T" * 10 + "V") * 9, (98, "T", "V", "T")),
        ("pqpqpqSU" * 12, (11, "SUPQ", "", "SUpqpqpq")),
        ("".join("pq" * (1 + n % 3) + "SU" for n in range(20)), (19, "SUPQ", "", "SUpqpq")),
    ],
    ids=[
        "the same",
        "every fifth evaluates",
        "every tenth evaluates",
        "every second syncs",
        "one call up to three times",
        "one call many times",
        "warm-up",
        "one call before the loop",
        "two calls of one method",
        "evaluation after the loop",
        "one call and a checkpoint",
        "a pool, and two calls in turn",
        "a pool of more or fewer calls, and two in turn",
    ],
)
def test_the_shortest_rounds_are_found(text: str, expected: tuple[int, str, str, str]) -> None:
    """Also where some of them have calls that others do not."""
    assert expected == steps(text)


@pytest.mark.parametrize(
    "text",
    [
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "P" + "p" * 200,
        "PU" * 7,
        "".join(RANDOM.choices("ABCD", k=300)),
        "ABCDEFGHIJKLMNOQRSTVWXYZ" + "PU" * 9,
        "AB" * 12 + "CD" * 12 + "EF" * 12,
        "",
    ],
    ids=["one-off calls", "a pool", "too few", "no order", "mostly others", "three loops", "none"],
)
def test_no_rounds_are_found_where_there_are_none(text: str) -> None:
    """A wrong step is worse than none."""
    assert steps(text) is None


def recorded(directory: Path, sent: Sequence[tuple[str, str, int, int]]) -> Run:
    """A run whose driver has sent calls: the worker, the method, when, and until when it waited."""
    driver, workers = SimulatedLedger("Runner", "driver"), dict[str, SimulatedLedger]()
    for number, (name, method, start, end) in enumerate(sent):
        worker = workers.setdefault(name, SimulatedLedger(name))
        driver.sent(start, start + 1, f"k{number}")
        driver.span("ray.get", start + 2, end, waits=[f"k{number}"])
        worker.span(method, start + 1, end - 2, releases=[f"k{number}"])
        worker.span("ray.serialize", end - 2, end - 1, releases=[f"k{number}"])
    found, _ = ledgers.ledgers(write_run(directory, [driver, *workers.values()]))
    run = reading.assemble("run", found, {})
    run.launched = True
    return run


def test_a_step_begins_with_the_first_call_of_a_round(tmp_path: Path) -> None:
    """And lasts until the first one of the next, so the last round has no known end."""
    run = recorded(
        tmp_path,
        [
            call
            for at in range(0, 1200, 100)
            for call in (
                ("Sim-0", "Sim.play", at, at + 40),
                ("Sim-1", "Sim.play", at + 5, at + 45),
                ("Opt-0", "Opt.update", at + 50, at + 90),
            )
        ],
    )
    assert [100] * 11 == [step.duration for step in run.steps]
    assert run.round == "the driver's calls: Sim.play, Opt.update"


def test_a_loop_over_actors_is_no_round_of_its_own(tmp_path: Path) -> None:
    """Each is called and waited for in turn, and then another one."""
    run = recorded(
        tmp_path,
        [
            call
            for at in range(0, 1200, 100)
            for call in (
                *((f"Sim-{n}", "Sim.play", at + 10 * n, at + 10 * n + 9) for n in range(8)),
                ("Opt-0", "Opt.update", at + 85, at + 90),
            )
        ],
    )
    assert [100] * 11 == [step.duration for step in run.steps]


def test_what_is_sent_at_once_is_one_round(tmp_path: Path) -> None:
    """A few batches through a chain, of which only the last stage is waited for."""
    run = recorded(
        tmp_path,
        [
            call
            for at in range(0, 1200, 100)
            for batch in range(0, 12, 3)
            for call in (
                ("Reader-0", "Reader.read", at + batch, at + 90 + batch),
                ("Writer-0", "Writer.write", at + batch + 1, at + 91 + batch),
            )
        ],
    )
    assert [100] * 11 == [step.duration for step in run.steps]


def test_a_ring_of_calls_is_waited_for_by_its_last_one(tmp_path: Path) -> None:
    """Each takes the result of the one before, which has been waited for, too."""
    driver = SimulatedLedger("Runner", "driver")
    hops = [SimulatedLedger(f"Hop-{rank}") for rank in range(4)]
    for at in range(0, 1200, 100):
        for rank, hop in enumerate(hops):
            key, before = (f"{at}-{number}" for number in (rank, rank - 1))
            driver.sent(at + rank, at + rank + 1, key, [before] if rank else [])
            hop.span("Hop.forward", at + 20 * rank + 10, at + 20 * rank + 29, releases=[key])
        driver.span("ray.wait", at + 10, at + 95, waits=[f"{at}-3"])
    found, _ = ledgers.ledgers(write_run(tmp_path, [driver, *hops]))
    run = reading.assemble("run", found, {})
    assert ([100] * 11, "the driver's calls: Hop.forward") == (
        [step.duration for step in run.steps],
        run.round,
    )


def test_a_step_of_a_pool_begins_with_each_new_call(tmp_path: Path) -> None:
    """It is sent when any of several has ended, and nothing else repeats."""
    run = recorded(tmp_path, [("Tasks-0", "square", at * 10, at * 10 + 35) for at in range(50)])
    assert [40, *[10] * 45] == [step.duration for step in run.steps]
    assert run.round == "the driver's calls: square"


def calling(directory: Path, count: int, rounds_of: Mapping[str, int]) -> Run:
    """A run whose driver has called each of its workers once; these call a server again and again.

    Args:
        count: how many workers are in each group.
        rounds_of: how often a worker of each group calls the server.
    """
    driver, server = SimulatedLedger("Runner", "driver"), SimulatedLedger("Server-0")
    workers = [SimulatedLedger(f"{group}-{rank}") for group in rounds_of for rank in range(count)]
    for number, worker in enumerate(workers):
        driver.sent(1, 2, f"d{number}")
        for at in range(rounds_of[worker.name.rpartition("-")[0]]):
            key, start = f"{worker.name}.{at}", 10 + at * 100 + number * 7
            worker.sent(start, start + 1, key)
            server.span("Server.apply", start + 1, start + 5, releases=[key])
            worker.span("ray.get", start + 2, start + 6, waits=[key])
        worker.span(f"{worker.name[:-2]}.run", 3, 10_000, releases=[f"d{number}"])
    driver.span("ray.get", 3, 10_001, waits=[f"d{number}" for number in range(len(workers))])
    found, _ = ledgers.ledgers(write_run(directory, [driver, server, *workers]))
    return reading.assemble("run", found, {})


def test_workers_that_call_others_have_steps_of_their_own(tmp_path: Path) -> None:
    """The driver has called each of them once, as with a parameter server."""
    run = calling(tmp_path, 3, {"Worker": 12})
    assert [100] * 11 == [int(end - start) for start, end in run.edges[2].T]
    assert (11, None, "calls of Worker: Server.apply") == (len(run.steps), run.driver, run.round)


def test_workers_that_make_few_calls_have_no_steps(tmp_path: Path) -> None:
    """Nothing tells whether they are a loop's."""
    run = calling(tmp_path, 3, {"Worker": 7})
    run.launched = True
    assert ([], "") == (run.steps, run.round)
    assert "step_at=Server.apply -- …, which Worker-0 calls 7 times" in no_steps(run)


def of_pool(rounds_of: Sequence[int]) -> list[Call]:
    """Calls of a pool of three: the next is sent when any has ended, and a round when all have."""
    made = []
    for count in rounds_of:
        for at in range(count - 2):
            about = {"alone": at == 0, "times": 1 if at else 3}
            made.append(Call(("A", "A.score"), len(made), frozenset(["A-0", "A-1"]), **about))
    return made


@pytest.mark.parametrize(
    ("rounds_of", "expected"),
    [
        pytest.param([6] * 12, 11, id="as many in each"),
        pytest.param([6] * 5, None, id="few"),
        pytest.param([4, 7, 5, 9, 6, 8] * 4, None, id="any number in each"),
    ],
)
def test_rounds_of_a_pool_end_once_all_its_calls_have(
    rounds_of: list[int], expected: int | None
) -> None:
    """As with Ray's `ActorPool.map`."""
    found = rounds(of_pool(rounds_of))
    assert expected == (None if found is None else len(found.starts) - 1)


def test_tasks_in_a_loop_are_steps(tmp_path: Path) -> None:
    """Each is sent when the one before has ended, whichever worker runs it."""
    sent = [(f"Tasks-{at % 3}", "square", at * 10, at * 10 + 9) for at in range(50)]
    run = recorded(tmp_path, sent)
    assert [10] * 49 == [step.duration for step in run.steps]


def test_the_most_frequent_call_is_proposed_where_there_are_no_rounds(tmp_path: Path) -> None:
    """As a step that needs no edit of the job."""
    called = [("Env-0", "Env.sample"), ("Opt-0", "Opt.fit")] * 3 + [("Env-0", "Base.sample")] * 4
    sent = [(worker, method, at * 10, at * 10 + 9) for at, (worker, method) in enumerate(called)]
    assert (
        "no step is found; without an edit, name what makes a step: gpuprof run --set "
        "step_at=Env.sample -- …, which the driver calls 4 times; in the job, use `with "
        "profiler.step(i):` in the driver or `with gpuprof.step(i):` in the ranks"
    ) == no_steps(recorded(tmp_path, sent))


def test_a_trainers_call_is_proposed_before_those_of_the_workers_it_takes_from(
    tmp_path: Path,
) -> None:
    """Each of these has steps of its own, though they call more often."""
    queue, trainer = SimulatedLedger("Queue-0"), SimulatedLedger("Trainer-0")
    rollouts = [SimulatedLedger(f"Rollout-{rank}") for rank in range(2)]
    calls = [(trainer, "Queue.get", at * 30) for at in range(4)]
    calls += [(rollout, "Queue.put", at * 10 + 1) for rollout in rollouts for at in range(12)]
    for number, (caller, method, at) in enumerate(calls):
        caller.sent(at, at + 1, f"k{number}")
        caller.span("ray.get", at + 2, at + 8, waits=[f"k{number}"])
        queue.span(method, at + 1, at + 7, releases=[f"k{number}"])
    directory = write_run(tmp_path, [queue, trainer, *rollouts])
    run = reading.assemble("run", ledgers.ledgers(directory)[0], {})
    run.launched = True
    assert "step_at=Queue.get -- …, which Trainer-0 calls 4 times" in no_steps(run)


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        pytest.param([900, 10, 11, 10] * 12, 12, id="a-burst-in-each-iteration"),
        pytest.param([900, 10, 90, 10] * 12, 12, id="a-busy-machine"),
        pytest.param([900, 10, 11, 10, 900, 10, 11] * 6, 12, id="early-stops"),
        pytest.param([900, 10, 11, 10] * 5, 0, id="few"),
        pytest.param(([100] * 19 + [900]) * 12, 0, id="a-checkpoint-now-and-then"),
        pytest.param([100, 104, 98] * 20, 0, id="alike"),
        pytest.param(
            [9 if RANDOM.random() < 0.9 else 900 for _ in range(200)], 0, id="at-any-time"
        ),
        pytest.param([], 0, id="none"),
    ],
)
def test_steps_of_an_optimizer_may_come_in_bursts(durations: list[int], expected: int) -> None:
    """Where it learns several batches after it has collected for a while."""
    found = bursts(durations)
    assert expected == len(found)
    assert {900} >= {durations[at] for at in found}


def test_a_burst_of_steps_is_a_step(tmp_path: Path) -> None:
    """Its number is that of its first one."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(2)]
    for rank in ranks:
        rank.event(LIBRARY_STEPS, 0)
        at = 0
        for number in range(41):
            took = 900 if number % 4 == 1 else 20
            rank.step(number, at, at + took)
            at += took
    run = reading.assemble("run", ledgers.ledgers(write_run(tmp_path, ranks))[0], {})
    assert (4, list(range(1, 41, 4))) == (run.in_a_burst, [step.number for step in run.steps])
    assert {960} == {step.duration for step in run.steps}


Loops = dict[str, list[int]]
"""By where a loop is: `file:line:level:nested`, or with `:epochs`, when its iterations begin."""


def looped(directory: Path, ranks: Sequence[Loops], every: int = 10) -> Run:
    """A run of ranks that meet in a collective every few nanoseconds, and note their loops."""
    made = [SimulatedLedger(f"Worker-{rank}") for rank in range(len(ranks))]
    for rank, loops in zip(made, ranks, strict=True):
        last = max(at for begins in loops.values() for at in begins)
        for at in range(0, last + every, every):
            rank.span("torch.all_reduce", at + every - 2, at + every - 1, meets=[f"{at}"])
        for number, (where, begins) in enumerate(loops.items()):
            file, line, *level = where.split(":")
            rank.event(
                LOOP, begins[0], number=number, file=f"/job/{file}", line=int(line),
                level=[int(n) for n in level[:2]], epochs=level[2:] == ["epochs"],
            )  # fmt: skip
            rank.iterations += [(number, at) for at in begins]
    run = reading.assemble("run", ledgers.ledgers(write_run(directory, made))[0], {})
    run.launched = True
    return run


STEPS = list(range(100, 2100, 100))
INSIDE = [at + inner for at in STEPS for inner in (0, 30, 60)]


@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        ({"job.py:7:3:1": STEPS}, ("the loop at job.py:7", [100] * 19)),
        ({"l.py:2:5:1": INSIDE, "job.py:7:3:1": STEPS}, ("the loop at job.py:7", [100] * 19)),
        (
            {"job.py:3:3:1:epochs": STEPS, "job.py:7:3:2": INSIDE},
            ("the loop at job.py:7", [30, 30, 40] * 19 + [30, 30]),
        ),
        (
            {"job.py:3:3:1": STEPS[:9], "job.py:7:3:2": INSIDE},
            ("the loop at job.py:7", [30, 30, 40] * 19 + [30, 30]),
        ),
        ({"job.py:3:3:1": STEPS[:12]}, ("the loop at job.py:3", [100] * 11)),
        ({"job.py:3:3:1": STEPS[:7]}, ("", [])),
    ],
    ids=["one", "around another one", "in epochs", "in a few others", "a few", "too few"],
)
def test_the_iterations_of_the_ranks_loop_are_steps(
    loops: Loops, expected: tuple[str, list[int]], tmp_path: Path
) -> None:
    """Of the outermost one with many iterations; the first one has no known beginning."""
    run = looped(tmp_path, [loops] * 2)
    assert expected == (run.round, [step.duration for step in run.steps])


def test_loops_one_after_the_other_all_have_steps(tmp_path: Path) -> None:
    """As before and after a warm-up; the time between them is in no step."""
    later = [at + 5000 for at in STEPS]
    loops = {"job.py:7:3:1": STEPS, "job.py:19:3:1": later, "job.py:25:3:1": [3000, 3100]}
    run = looped(tmp_path, [loops] * 2)
    assert "the loops at job.py:7 and job.py:19" == run.round
    assert [100] * 38 == [step.duration for step in run.steps]


def test_a_step_ends_with_its_epoch(tmp_path: Path) -> None:
    """The next one begins with an iteration of its own; validation is in the last one."""
    epochs = list(range(1000, 9000, 1000))
    batches = [epoch + at for epoch in [0, *epochs] for at in (100, 200, 300)]
    loops = {"job.py:3:3:1:epochs": epochs, "job.py:7:3:2": batches}
    durations = [step.duration for step in looped(tmp_path, [loops] * 2).steps]
    assert [100, 100, *[700, 100, 100, 100] * 8] == durations


@pytest.mark.parametrize(("apart", "count"), [(4, 19), (25, 79)], ids=["per step", "in each"])
def test_a_loop_whose_outer_one_is_not_seen_has_the_steps_of_its_long_pauses(
    apart: int, count: int, tmp_path: Path
) -> None:
    """Such as one over tensors, if ranks work between steps; else each iteration is one."""
    moments = [100 * step + apart * part for step in range(1, 21) for part in range(4)]
    ledgers_ = []
    for rank in range(2):
        made = SimulatedLedger(f"Worker-{rank}")
        made.event(LOOP, 0, number=0, file="a.py", line=4, level=[0, 2], inside=3)
        for at in moments:
            made.span("torch.all_reduce", at, at + 3, meets=[f"{at}"])
            made.iterations.append((0, at))
        ledgers_.append(made)
    run = reading.assemble("run", ledgers.ledgers(write_run(tmp_path, ledgers_))[0], {})
    assert abs(len(run.steps) - count) <= 1


def test_ranks_with_a_loop_of_their_own_are_in_step_if_it_has_as_many_iterations(
    tmp_path: Path,
) -> None:
    """As stages of a pipeline; a server that goes round for each of its clients has no steps."""
    stage, other = {"job.py:7:3:1": STEPS}, {"stage.py:9:4:1": STEPS}
    run = looped(tmp_path, [stage, other, {"server.py:5:3:1": INSIDE}])
    assert ({0, 1}, 19) == (run.edges.keys(), len(run.steps))


def test_one_rank_with_a_loop_has_no_steps(tmp_path: Path) -> None:
    """The others do something else."""
    assert [] == looped(tmp_path, [{"job.py:7:3:1": STEPS}, {"job.py:9:3:1": [100]}]).steps


def test_ranks_that_mark_steps_keep_them(tmp_path: Path) -> None:
    """Also if only one of them does."""
    ranks = [SimulatedLedger(f"Worker-{rank}") for rank in range(2)]
    for at in range(20):
        for rank in ranks:
            rank.span("torch.all_reduce", 100 * at + 90, 100 * at + 99, meets=[f"{at}"])
    for rank in ranks:
        rank.event(LOOP, 0, number=0, file="a.py", line=4, level=[0, 1], epochs=False)
        rank.iterations = [(0, at) for at in STEPS]
    ranks[0].step(0, 0, 1000)
    run = reading.assemble("run", ledgers.ledgers(write_run(tmp_path, ranks))[0], {})
    assert (1, "") == (len(run.steps), run.round)
