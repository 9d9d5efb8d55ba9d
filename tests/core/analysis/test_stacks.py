"""Which line of code explain names for a place, from samples of stacks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gpuprof._analysis import reading
from gpuprof._analysis.explain import Explanation
from gpuprof._analysis.stacks import Line
from gpuprof._report.explain import as_dict, explain, text
from gpuprof._report.stacks import words
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


def test_a_place_that_bounds_steps_has_a_line(tmp_path: Path) -> None:
    """The innermost of the user's with most of its time."""
    write(tmp_path / "run", slow=None)
    found = answer(tmp_path / "run")
    assert ("load", "/job/data.py", 41, "data.resize") in {
        (line.scope, line.file, line.line, line.name) for line in found.lines
    }
    assert "Hottest lines\n" in text(found)


def test_what_is_in_no_scope_has_a_line(tmp_path: Path) -> None:
    """A rank that begins late has it as the line of its cause, and it is what to look at.

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
    assert "see data.py:88: A-1 is there while in no scope" == as_dict(found)["helps"]


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
