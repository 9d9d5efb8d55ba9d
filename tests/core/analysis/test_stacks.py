"""Which line of code explain names for a place, from samples of stacks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpuprof._analysis import reading, stacks
from gpuprof._analysis.explain import Explanation
from gpuprof._analysis.stacks import Line
from gpuprof._artifacts import stacks as artifacts
from gpuprof._report.explain import as_dict, explain, helps, text
from gpuprof._report.stacks import words
from gpuprof._session.ledger import MARKS_STEPS
from gpuprof.errors import ConfigError
from support.made_stacks import Frame, write_stacks
from support.simulated_run import SimulatedLedger

MS = 1_000_000
STEP = 100
"""Milliseconds."""
MAIN: Frame = ("<module>", "__main__", "/job/train.py", 12)
BATCH: Frame = ("batch", "data", "/job/data.py", 88)
LOADS: Frame = ("loads", "json", "/usr/lib/python3.11/json/__init__.py", 346)
DECODE: Frame = ("JSONDecoder.decode", "json.decoder", "/usr/lib/python3.11/json/decoder.py", 337)
IDLE: list[Frame] = [
    ("Collector.run", "ray.collector", "/usr/lib/python3.11/site-packages/ray/collector.py", 9),
    ("Condition.wait", "threading", "/usr/lib/python3.11/threading.py", 327),
]
PUMP: Frame = ("pump", "data", "/job/data.py", 7)
RESIZE: Frame = ("resize", "data", "/job/data.py", 41)


def write(directory: Path, slow: int | None, steps: int = 60, sampled_ms: int = 10) -> None:
    """Four ranks that load for 40 ms a step, of which one takes 30 ms longer to read JSON."""
    for rank in range(4):
        noise = random.Random(rank)
        ledger = SimulatedLedger(f"A-{rank}")
        samples = []
        for step in range(steps):
            begin = step * STEP * MS
            usual = 40 + noise.randrange(3)
            long = usual + (30 if rank == slow else 0)
            ledger.span("load", begin, begin + long * MS)
            ledger.span("rest", begin + long * MS, begin + (STEP - 1) * MS)
            ledger.step(step, begin, begin + (STEP - 1) * MS)
            for at in range(noise.randrange(sampled_ms), long, sampled_ms):
                reads = at >= usual
                stack = [MAIN, BATCH, LOADS, DECODE] if reads else [MAIN, (*BATCH[:3], 85), RESIZE]
                start = begin + at * MS
                samples.append((stack, 1, 1, 1, start - sampled_ms * MS, start))
        write_stacks(ledger.write(directory), samples)


def test_wrappers_around_an_actors_methods_are_in_no_stack() -> None:
    """Neither Ray's nor gpuprof's, nor a context manager: they only call what is meant."""
    functions = [artifacts.Function("", "", "")]
    names = (
        ("evaluate", "job"),
        ("wrapper.<locals>._resume_span", "ray.util.tracing.tracing_helper"),
        ("call", "gpuprof._session.instruments.instrument"),
        ("normalise", "job"),
        ("_GeneratorContextManager.__exit__", "contextlib"),
    )
    functions += [artifacts.Function(name, module, "/job.py") for name, module in names]
    rows = np.zeros(len(functions), artifacts.STACK)
    for number in range(1, len(functions)):
        rows[number] = number - 1, number, number
    read = artifacts.Stacks(functions, rows, np.zeros(0, artifacts.SAMPLE))
    names_of_last = [function.function for function, _ in stacks.numbered(read)[-1]]
    assert ["evaluate", "normalise"] == names_of_last


def answer(directory: Path) -> Explanation:
    return explain(reading.read(directory))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    """A run with a slow rank."""
    directory = tmp_path_factory.mktemp("slow") / "run"
    write(directory, slow=2)
    return answer(directory)


@pytest.fixture(scope="module")
def line(slow: Explanation) -> Line:
    """The line of its first cause."""
    assert slow.extra[0] is not None
    return slow.extra[0]


def test_a_slow_rank_has_a_line(line: Line) -> None:
    """The user's, and what it calls."""
    assert ("A-2", "load", "/job/data.py", 88, "json.loads") == (
        line.worker, line.scope, line.file, line.line, line.name,
    )  # fmt: skip


def test_its_share_is_that_of_the_difference(line: Line) -> None:
    """To the others' median, and not of all that the place takes."""
    assert pytest.approx(0.030, abs=0.006) == line.seconds
    assert line.share > 0.8


def test_the_line_is_among_the_words_of_its_cause(slow: Explanation, line: Line) -> None:
    """And in the JSON."""
    assert f"   line    {words(line)}\n" in text(slow)
    assert 88 == as_dict(slow)["findings"][0]["line"]["line"]


def test_the_line_of_a_slow_rank_is_what_to_look_at_first(slow: Explanation) -> None:
    """A capture would show the same, later."""
    action = as_dict(slow)["findings"][0]["action"]
    assert action.startswith("See data.py:88. If that is not it, capture A-2 and another rank")


def test_a_place_that_bounds_steps_has_a_line(tmp_path: Path) -> None:
    """The innermost of the user's with most of its time."""
    write(tmp_path / "run", slow=None)
    found = answer(tmp_path / "run")
    assert ("load", "/job/data.py", 41, "data.resize") in {
        (line.scope, line.file, line.line, line.name) for line in found.lines
    }
    assert "Hottest lines\n" in text(found)


def test_a_place_of_several_ranks_has_its_two_hottest_lines_once(tmp_path: Path) -> None:
    """Also beside a cause in another group, which saves less than they take."""
    driver = SimulatedLedger("Runner", "driver")
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(3)]
    samples: list[list[Any]] = [[] for _ in ranks]
    for step in range(40):
        begin, keys = step * 120 * MS, [f"ray:{step}:{rank}" for rank in range(3)]
        driver.step(step, begin, begin + 120 * MS)
        driver.span("advantage", begin, begin + 20 * MS)
        driver.span("ray.get", begin + 20 * MS, begin + 120 * MS, waits_for="*", waits=keys)
        for rank, (ledger, key) in enumerate(zip(ranks, keys, strict=True)):
            driver.sent(begin + 20 * MS - 1, begin + 20 * MS, key)
            end = begin + (117 + (step + rank) % 3) * MS
            ledger.span("A.sample", begin + 20 * MS, end, releases=[key])
            for at in range(20, 117, 10):
                stack = [MAIN, BATCH if at < 80 else RESIZE]
                start = begin + at * MS
                samples[rank].append((stack, 1, 1, 1, start, start + 10 * MS))
    driver.write(tmp_path / "run")
    for ledger, mine in zip(ranks, samples, strict=True):
        write_stacks(ledger.write(tmp_path / "run"), mine)
    found = answer(tmp_path / "run")
    assert ["driver"] == [finding.cause for finding in found.findings]
    lines = [(line.name, line.line) for line in found.lines if line.scope == "A.sample"]
    assert [("data.batch", 88), ("data.resize", 41)] == lines
    assert "; data.batch at data.py:88 takes 49 % of a step" in helps(found)


def test_what_is_in_no_scope_has_a_line(tmp_path: Path) -> None:
    """A rank that begins late has it as the line of its cause, and of what bounds a step.

    Threads of a library that wait for work are nobody's time.
    """
    for rank in range(3):
        ledger = SimulatedLedger(f"A-{rank}")
        samples = []
        for step in range(40):
            begin = step * STEP * MS
            loads = begin + (60 if rank == 1 else 5) * MS
            ledger.span("torch.all_reduce", loads, begin + STEP * MS, meets=[f"{step}"])
            ledger.step(step, begin, begin + STEP * MS)
            samples += [
                (stack, 1, 0, 1, at, at + 5 * MS)
                for at in range(begin, loads, 10 * MS)
                for stack in ([MAIN, BATCH], *[IDLE] * 3)
            ]
        write_stacks(ledger.write(tmp_path / "run"), samples)
    found = answer(tmp_path / "run")
    (line,) = found.extra
    assert line is not None
    assert ("A-1", "/job/data.py", 88) == (line.worker, line.file, line.line)
    bounds = as_dict(found)["bounds"]
    # the others wait for it meanwhile
    assert bounds.endswith("(outside any scope, slow at data.py:88)")


def outside(
    directory: Path, main: list[Frame], other: Frame = PUMP, marks: bool = False
) -> list[Line]:
    """A rank outside any scope, while another thread runs; the main thread works every fifth ms.

    Args:
        marks: whether the main thread is known to mark the steps.
    """
    ledger = SimulatedLedger("A-0")
    if marks:
        ledger.event(MARKS_STEPS, 0, track=1)
    place = ledger.place("pump (thread)")
    samples = []
    for step in range(40):
        begin = step * STEP * MS
        ledger.step(step, begin, begin + STEP * MS)
        for at in range(begin, begin + STEP * MS, 5 * MS):
            samples.append(([other], 2, place, 1, at, at + 5 * MS))
            samples.append((main, 1, 0, 1, at, at + 4 * MS))
            samples.append(([MAIN, RESIZE], 1, 0, 1, at + 4 * MS, at + 5 * MS))
    write_stacks(ledger.write(directory), samples)
    return answer(directory).lines


def test_other_threads_have_no_line_while_the_main_one_works(tmp_path: Path) -> None:
    """Such as one that holds the lock that the main thread wants."""
    lines = outside(tmp_path / "run", [MAIN, BATCH])
    assert [("data.batch", 88), ("data.resize", 41)] == [(each.name, each.line) for each in lines]
    assert [pytest.approx(0.8), pytest.approx(0.2)] == [each.share for each in lines]


def test_what_the_main_thread_waits_for_has_a_line(tmp_path: Path) -> None:
    """If it only waits, the line is another thread's."""
    (line,) = outside(tmp_path / "run", [MAIN, IDLE[-1]])
    assert ("data.pump", 7) == (line.name, line.line)


def test_the_thread_that_marks_the_steps_has_the_line_although_it_waits(tmp_path: Path) -> None:
    """Nobody knows whether it waits for another thread, such as one that beats for ever."""
    (line,) = outside(tmp_path / "run", [MAIN, IDLE[-1]], marks=True)
    assert ("threading.Condition.wait", 12) == (line.name, line.line)
    assert pytest.approx(0.8) == line.share


def test_a_thread_that_watches_another_has_no_line(tmp_path: Path) -> None:
    """Ray Train's waits for an error of the training, in a function of C."""
    runner = "ray.train.v2._internal.execution.worker_group.thread_runner"
    file = f"/usr/lib/python3.11/site-packages/{runner.replace('.', '/')}.py"
    watch: Frame = ("ThreadRunner._monitor_target", runner, file, 72)
    (line,) = outside(tmp_path / "run", IDLE, watch)
    assert ("data.resize", 41) == (line.name, line.line)


def test_a_line_that_leads_everywhere_is_nobodys_answer(tmp_path: Path) -> None:
    """As that of a script with one call of a library: the function in the library is named."""
    library = "/usr/lib/python3.11/site-packages/trainer.py"
    train: Frame = ("Trainer.train", "trainer", library, 5)
    functions = {name: (f"Trainer.{name}", "trainer", library, 9) for name in ("load", "update")}
    ledger, samples = SimulatedLedger("A-0"), []
    for step in range(40):
        begin = step * STEP * MS
        ledger.step(step, begin, begin + STEP * MS)
        for number, (name, function) in enumerate(functions.items()):
            start = begin + number * 30 * MS
            end = start + (30 + number * 40) * MS
            ledger.span(name, start, end)
            samples.append(([MAIN, train, function], 1, number + 1, 5, start, end))
    write_stacks(ledger.write(tmp_path / "run"), samples)
    assert {("trainer.Trainer.load", library, 9), ("trainer.Trainer.update", library, 9)} == {
        (line.name, line.file, line.line) for line in answer(tmp_path / "run").lines
    }


def test_the_time_between_steps_has_a_line(tmp_path: Path) -> None:
    """The driver's, in its cause."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    samples = []
    for step in range(20):
        begin = STEP * step * MS
        end = begin + 40 * MS
        driver.step(step, begin, end)
        worker.span("work", begin, end, releases=[f"ray:{step}"])
        driver.span("ray.get", begin, end, waits_for="*", waits=[f"ray:{step}"])
        samples.append(([MAIN, BATCH, LOADS], 1, 0, 6, end, begin + STEP * MS))
    worker.write(tmp_path / "run")
    write_stacks(driver.write(tmp_path / "run"), samples)
    found = answer(tmp_path / "run")
    (line,) = found.extra
    assert line is not None
    assert "100 % of (between steps): json.loads, data.py:88" == words(line)


def test_a_sample_says_nothing_of_the_time_before_it(tmp_path: Path) -> None:
    """The first one in a step is not of what came between the steps."""
    ledger, samples = SimulatedLedger("A-0"), []
    for step in range(40):
        begin = step * STEP * MS
        ledger.step(step, begin, begin + 80 * MS)
        for at in range(begin + 5 * MS, begin + STEP * MS, 20 * MS):  # the last is between steps
            stack = [MAIN, BATCH] if at < begin + 80 * MS else [MAIN, RESIZE]
            samples.append((stack, 1, 0, 1, at - 20 * MS, at))
    write_stacks(ledger.write(tmp_path / "run"), samples)
    found = answer(tmp_path / "run")
    (line,) = found.extra
    assert line is not None
    assert "100 % of (between steps): data.resize, data.py:41" == words(line)
    assert ["100 % of (outside any scope): data.batch, data.py:88"] == list(map(words, found.lines))


def test_a_share_is_of_what_the_place_takes(tmp_path: Path) -> None:
    """A task that is suspended in its scope is on no stack."""
    ledger, samples = SimulatedLedger("A-0"), []
    for step in range(40):
        begin = step * STEP * MS
        ledger.step(step, begin, begin + STEP * MS)
        ledger.span("ask", begin, begin + STEP * MS)
        times = range(begin + 70 * MS, begin + STEP * MS, 10 * MS)
        samples += [([MAIN, BATCH], 1, 1, 1, at, at + 10 * MS) for at in times]
    write_stacks(ledger.write(tmp_path / "run"), samples)
    assert ["30 % of ask: data.batch, data.py:88"] == [
        words(line) for line in answer(tmp_path / "run").lines
    ]


def test_the_share_of_a_slow_rank_is_of_what_it_takes_longer(tmp_path: Path) -> None:
    """Not of what its samples saw of that."""
    for rank in range(4):
        ledger, samples = SimulatedLedger(f"A-{rank}"), []
        for step in range(60):
            begin, long = step * STEP * MS, 80 if rank == 2 else 40
            ledger.step(step, begin, begin + STEP * MS)
            ledger.span("ask", begin, begin + long * MS)
            times = range(begin + (10 if rank == 2 else 20) * MS, begin + 40 * MS, 10 * MS)
            samples += [([MAIN, BATCH], 1, 1, 1, at, at + 10 * MS) for at in times]
        write_stacks(ledger.write(tmp_path / "run"), samples)
    (line,) = answer(tmp_path / "run").extra
    assert line is not None
    assert "25 % of the extra 40 ms: data.batch, data.py:88" == words(line)


def paused(directory: Path, runs: list[Frame]) -> str:
    """What to do about pauses of a rank, given what it runs in them."""
    now = 0
    ledger, samples = SimulatedLedger("A-0"), []
    for step in range(60):
        pause = 400 if step in (7, 12, 26, 31, 45, 53) else 0
        ledger.step(step, now, now + (STEP + pause) * MS)
        ledger.span("load", now, now + (STEP + pause) * MS)
        times = range(now, now + (STEP + pause) * MS, 20 * MS)
        for each in times:
            stack = [MAIN, BATCH] if each < now + STEP * MS else runs
            samples.append((stack, 1, 1, 1, each, each + 20 * MS))
        now += (STEP + pause) * MS
    write_stacks(ledger.write(directory), samples)
    (cause,) = as_dict(answer(directory))["findings"]
    assert "pauses" == cause["cause"]
    return str(cause["action"])


def test_the_line_of_pauses_is_what_to_look_at(tmp_path: Path) -> None:
    """If it is the user's own: else the machine may be slow there."""
    way = "do it less often, in smaller parts, or while the next step runs."
    assert f"See data.py:41: {way}" == paused(tmp_path / "run", [MAIN, RESIZE])


def test_a_librarys_line_of_pauses_is_no_advice(tmp_path: Path) -> None:
    """The user cannot change it."""
    action = paused(tmp_path / "run", [LOADS, DECODE])
    assert action.startswith("Look for other processes on its cores")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    """A worker without peers in a library's loop that does several things, one by the user."""
    directory = tmp_path_factory.mktemp("alone") / "run"
    file = "/usr/lib/python3.11/site-packages/runner.py"
    sample: Frame = ("Runner.sample", "runner", file, 5)
    parts: list[list[Frame]] = [
        [("Env.step", "runner", file, 20), BATCH],
        [("Connectors.call", "runner", file, 40)],
        [("log", "runner", file, 60)],
    ]
    ledger, samples = SimulatedLedger("A-0"), []
    place = ledger.place("sample")
    for step in range(40):
        begin = step * STEP * MS
        ledger.span("sample", begin, begin + STEP * MS)
        ledger.step(step, begin, begin + STEP * MS)
        for at, part in enumerate([parts[0]] * 4 + [parts[1]] * 4 + [parts[2]] * 2):
            start = begin + at * 10 * MS
            samples.append(([sample, *part], 1, place, 1, start, start + 10 * MS))
    write_stacks(ledger.write(directory), samples)
    return answer(directory)


def test_the_users_part_of_what_a_library_does_has_the_line(alone: Explanation) -> None:
    """Of many things at once, such as an environment's step and the connectors around it."""
    (line,) = alone.lines
    assert ("data.batch", 88) == (line.name, line.line)
    assert pytest.approx(0.4) == line.share


def test_the_line_of_a_worker_without_peers_would_help(alone: Explanation) -> None:
    """Nothing else can: it is slower than nobody."""
    expected = "make sample of A-0 faster: it takes 100 % of a step, 40 % of that in data.batch"
    assert f"{expected} at data.py:88" == helps(alone)


def test_a_scope_around_the_loop_is_no_place_of_its_own(tmp_path: Path) -> None:
    """As the driver's main loop; threads of a library that poll meanwhile are nobody's time."""
    driver, samples = SimulatedLedger("Runner", "driver"), []
    poll: Frame = ("Worker.print_logs", "ray", "/usr/lib/python3.11/site-packages/ray/w.py", 9)
    driver.span("main_loop", -1, 40 * STEP * MS + 1)
    loop = driver.place("main_loop")
    for step in range(40):
        begin = step * STEP * MS
        driver.step(step, begin, begin + STEP * MS)
        for start in range(begin, begin + STEP * MS, 20 * MS):
            samples += [
                ([MAIN, BATCH], 1, loop, 1, start, start + 20 * MS),
                ([poll], 2, 0, 1, start, start + 20 * MS),
            ]
    write_stacks(driver.write(tmp_path / "run"), samples)
    (line,) = answer(tmp_path / "run").lines
    assert ("data.batch", 88, pytest.approx(1.0)) == (line.name, line.line, line.share)


def test_too_few_samples_say_nothing(tmp_path: Path) -> None:
    """Of 20 steps, one in four is seen."""
    write(tmp_path / "run", slow=2, steps=20, sampled_ms=400)
    found = answer(tmp_path / "run")
    assert ([None], []) == (found.extra, found.lines)


def test_samples_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    """The rest of the answer stays."""
    write(tmp_path / "run", slow=2)
    (path,) = (tmp_path / "run").glob("*/A-2.*.stacks")
    path.write_bytes(b"damaged")
    found = answer(tmp_path / "run")
    assert [f"{path}: ignored: not a ledger"] == found.problems
    assert "A-2" == found.findings[0].worker


def test_a_run_without_samples_says_why_no_line_is_named(tmp_path: Path, slow: Explanation) -> None:
    """Nobody would look for what nobody mentions."""
    write(tmp_path / "run", slow=2)
    for path in (tmp_path / "run").glob("*/*.stacks"):
        path.unlink()
    assert [True, False] == [
        "No stacks were sampled" in text(one) for one in (answer(tmp_path / "run"), slow)
    ]


def test_what_grows_has_a_line(tmp_path: Path) -> None:
    """Not the one that takes most of the time, which always takes as long."""
    ledger, samples, begin = SimulatedLedger("A-0"), [], 0
    for step in range(60):
        usual, long = 60, 60 + 2 * step
        ledger.span("load", begin, begin + long * MS)
        ledger.step(step, begin, begin + long * MS)
        for at in range(step % 10, long, 10):
            stack = [MAIN, (*BATCH[:3], 85), RESIZE] if at < usual else [MAIN, BATCH, LOADS]
            start = begin + at * MS
            samples.append((stack, 1, 1, 1, start - 10 * MS, start))
        begin += long * MS
    write_stacks(ledger.write(tmp_path / "run"), samples)
    found = answer(tmp_path / "run")
    assert found.trend is not None
    assert found.trend.line is not None
    assert 88 == found.trend.line.line
    assert helps(found).startswith("see what grows in load of A, from ")
    assert helps(found).endswith(" at data.py:88")
    assert 88 == as_dict(found)["trend"]["line"]["line"]


def test_a_run_without_steps_has_the_lines_where_its_time_went(tmp_path: Path) -> None:
    """Of the thread with the most samples in the user's own code, whatever library it calls."""
    ledger = SimulatedLedger("Program-0")
    ledger.span("load", 0, 900 * MS)
    seen = [([MAIN, BATCH, LOADS, DECODE], 1, 60), ([MAIN, RESIZE], 1, 35), ([MAIN], 1, 5)]
    seen += [(IDLE, 2, 900), ([PUMP], 3, 20)]
    samples = [(stack, track, 0, count, 0, count * MS) for stack, track, count in seen]
    for track in (1, 2, 3):
        ledger.span("load", 900 * MS, 901 * MS, track=track)
    write_stacks(ledger.write(tmp_path), samples)
    with pytest.raises(ConfigError) as caught:
        answer(tmp_path)
    went = (
        "where the time of Program-0 went: data.batch, data.py:88 (60 %); data.resize, data.py:41"
    )
    assert f"{went} (35 %)" in str(caught.value)


def test_a_run_without_steps_has_the_longest_wait_of_each_group(tmp_path: Path) -> None:
    """Beside the line that waits, which has the work, too."""
    for name, waits in (("Learner-0", 600), ("Producer-0", 10)):
        ledger = SimulatedLedger(name)
        ledger.span("queue.get", 0, waits * MS, waits_for="*")
        ledger.span("work", waits * MS, 1000 * MS)
        for track in (2, 3, 4):  # its other threads wait all the time
            ledger.span("queue.get", 0, 1000 * MS, track=track, waits_for="*")
        write_stacks(ledger.write(tmp_path), [([MAIN, BATCH], 1, 0, 100, 0, 1000 * MS)])
    with pytest.raises(ConfigError) as caught:
        answer(tmp_path)
    line = "went: data.batch, data.py:88 (100 %)"
    said = str(caught.value).splitlines()
    assert f"where the time of Learner-0 {line}; it waits in queue.get for 60 % of it" in said
    assert f"where the time of Producer-0 {line}" in said


RECEIVE: Frame = (
    "Connection._recv", "multiprocessing.connection",
    "/usr/lib/python3.11/multiprocessing/connection.py", 379,
)  # fmt: skip
RENDER: Frame = ("render", "__main__", "/job/train.py", 40)


def vectorised(
    directory: Path, works: list[int], waits: int = 90, scope: str = "", learns: int = 0
) -> Explanation:
    """A process that waits for others over pipes, which work for so many of 100 ms.

    Args:
        waits: for how many ms the process itself waits.
        scope: a scope in the others; empty for none.
        learns: for how many ms the process is in a scope of its own first.
    """
    parent = SimulatedLedger("Program-0")
    parent.event(MARKS_STEPS, 0, track=1)
    others = [SimulatedLedger(f"environment-{number}", "child") for number in range(len(works))]
    of_parent, of_others = [], [[] for _ in works]
    for step in range(40):
        begin = step * STEP * MS
        parent.step(step, begin, begin + STEP * MS)
        if learns:
            parent.span("learn", begin, begin + learns * MS)
        for at in range(0, STEP, 10):
            times = 1, 0, 1, begin + at * MS, begin + (at + 10) * MS
            in_scope = 1, 1, *times[2:]
            received = [MAIN, RECEIVE] if learns <= at < waits + learns else [MAIN]
            of_parent.append((received, *(in_scope if at < learns else times)))
            for samples, worked in zip(of_others, works, strict=True):
                samples.append(([MAIN, RENDER] if at < worked else [MAIN, RECEIVE], *times))
        if scope:
            for other in others:
                other.span(scope, begin, begin + 5 * MS)
    write_stacks(parent.write(directory), of_parent)
    for other, samples in zip(others, of_others, strict=True):
        write_stacks(other.write(directory), samples)
    return answer(directory)


def test_the_child_that_works_longest_is_a_hint(tmp_path: Path) -> None:
    """Its parent waits for it, as far as stacks tell."""
    found = vectorised(tmp_path, [30, 30, 80])
    (cause,) = found.findings
    assert ("rank", "environment-2", "hint") == (cause.cause, cause.worker, cause.grade)
    assert pytest.approx(0.5, abs=0.01) == cause.saves
    (line,) = found.extra
    assert line is not None
    assert ("render", 40) == (line.name, line.line)
    assert "environment-2 works for 80 % of the time, by its stacks, and the others" in " ".join(
        text(found).split()
    )


def test_a_child_saves_no_more_than_its_parent_waits(tmp_path: Path) -> None:
    """It works for half of the time longer, while its parent learns for most of it."""
    (cause,) = vectorised(tmp_path, [30, 30, 80], learns=60).findings
    assert pytest.approx(0.4, abs=0.01) == cause.saves


@pytest.mark.parametrize(
    "about",
    [
        {"works": [70, 70, 80]},
        {"works": [30, 80]},
        {"works": [30, 60, 80]},
        {"works": [30, 30, 80], "waits": 20},
        {"works": [30, 30, 80], "scope": "step"},
    ],
    ids=["as long", "of two", "all differ", "the parent works", "they have scopes"],
)
def test_no_child_is_accused_without_need(about: dict[str, Any], tmp_path: Path) -> None:
    """Where it works hardly longer, or nothing tells which one is usual, or nobody waits."""
    assert "rank" not in [finding.cause for finding in vectorised(tmp_path, **about).findings]


def test_a_process_that_waits_for_what_nobody_records_is_not_to_be_made_faster(
    tmp_path: Path,
) -> None:
    """It is alone in the record, but its stacks tell that it waits, as for a pool."""
    found = vectorised(tmp_path, [])
    wait = "multiprocessing.connection.Connection._recv"
    assert f"see what Program-0 waits for in {wait} at " in helps(found)
    said = " ".join(text(found).split())
    assert (
        f"mostly waits there, in {wait}, for what no scope records, such as another process."
        in said
    )
