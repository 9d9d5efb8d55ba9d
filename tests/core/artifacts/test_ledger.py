"""Reading ledgers: damaged files, steps, and clocks that differ."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts import ledger as reader
from gpuprof._artifacts.ledger import Ledger, align, clock_notes, ledgers, read
from gpuprof._session.blocks import header_line
from gpuprof._session.ledger import LedgerWriter, make_header
from gpuprof.errors import OutputError
from gpuprof_timing import Timing
from hypothesis import given
from hypothesis import strategies as st
from support.made_ledgers import MadeLedger
from support.manual_clock import Clock

SECOND = 10**9
MINUTE = 60 * SECOND


def write(
    path: Path,
    *,
    clock_name: str = "here",
    role: str = "worker",
    incarnation: str | None = "1",
    wall: int = 0,
    offset: int = 0,
    drift: float = 0.0,
    events: Callable[[LedgerWriter, Clock], None] | None = None,
    seconds: int = 60,
) -> Path:
    """A ledger with a span of a second at every tenth second of the run.

    Args:
        wall: by how much the wall clock is wrong, in nanoseconds.
        offset: what its monotonic clock shows more than the run's, at the run's beginning.
        drift: how much faster it is.
        events: called each tenth second, with the ledger and the run's clock.
    """
    run = Clock()

    def own() -> int:
        return run.now + offset + round(run.now * drift)

    timing = Timing("t", clock=own)
    path.parent.mkdir(exist_ok=True, parents=True)
    header = make_header("run", path.stem, "A", 0, path.parent.name, incarnation, role)
    header.update(clock=clock_name, monotonic=own(), wall=1_000 * SECOND + wall)
    ledger = LedgerWriter(
        str(path),
        header,
        {"bytes_per_step": 10**6, "total": 10**9},
        pytest.fail,
        own,
        lambda: 1_000 * SECOND + run.now + wall,
    )
    ledger.begin()
    for number in range(seconds // 10):
        if events is not None:
            events(ledger, run)
        ledger.begin_step(number)
        with timing.add_time("work"):
            run.advance(1)
        ledger.end_step(number)
        ledger.drain()
        run.advance(9)
    ledger.end()
    return path


def measure(clock_name: str, offset: int, drift: float, error: int) -> Callable[..., None]:
    """The driver's measurement of a clock, each ten seconds; wrong by a tenth of its bound."""

    def note(ledger: LedgerWriter, run: Clock) -> None:
        true = -(offset + round(run.now * drift))
        wrong = error if (run.now // SECOND) % 20 else -error
        ledger.event(
            "clock", clock=clock_name, at=run.now, offset=true + wrong // 10, bound=abs(error)
        )

    return note


def starts(ledger: Ledger) -> list[int]:
    """When its spans began, in nanoseconds of the run."""
    return [start + ledger.offset - 1_000 * SECOND for start in ledger.spans["start"].tolist()]


EXPECTED = [number * 10 * SECOND for number in range(6)]


def test_one_clock_needs_no_measurement(tmp_path: Path) -> None:
    """Processes of one machine agree exactly, whatever their wall clocks say."""
    write(tmp_path / "a" / "A-0.ledger", wall=7 * SECOND)
    write(tmp_path / "a" / "A-1.ledger")
    found, problems = ledgers(tmp_path)
    assert starts(found[0]) == starts(found[1])
    assert ([0, 0], []) == ([each.bound for each in found], problems)


@pytest.mark.parametrize("drift", [0.0, 40e-6, -40e-6])
@pytest.mark.parametrize("offset", [250_000_000, -5 * MINUTE])
def test_a_measured_clock_is_set_right_within_its_bound(
    tmp_path: Path, offset: int, drift: float
) -> None:
    """A clock that is shifted, and runs faster or slower, and whose wall clock is wrong."""
    note = measure("there", offset, drift, 200_000)
    write(tmp_path / "a" / "Runner.ledger", role="driver", events=note)
    write(
        tmp_path / "b" / "A-0.ledger",
        clock_name="there",
        offset=offset,
        drift=drift,
        wall=3 * SECOND,
    )
    (driver, worker), _ = ledgers(tmp_path)
    assert EXPECTED == starts(driver)
    assert worker.bound is not None
    assert worker.bound < 2_000_000
    errors = [abs(one - other) for one, other in zip(starts(worker), EXPECTED, strict=True)]
    assert max(errors) <= worker.bound


def test_all_times_of_a_ledger_are_set_right(tmp_path: Path) -> None:
    """Steps, readings of clocks and events drift as spans do."""
    note = measure("there", SECOND, 50e-6, 0)
    write(tmp_path / "a" / "Runner.ledger", role="driver", events=note)
    write(tmp_path / "b" / "A-0.ledger", clock_name="there", offset=SECOND, drift=50e-6)
    (driver, worker), _ = ledgers(tmp_path)
    for name in ("edges", "clocks"):
        field = "time" if name == "edges" else "monotonic"
        here, there = (
            (getattr(each, name)[field] + each.offset).tolist() for each in (driver, worker)
        )
        errors = [abs(one - other) for one, other in zip(here, there, strict=True)]
        assert worker.bound is not None
        assert max(errors) <= worker.bound
    here, there = (each.events[-1]["time"] + each.offset for each in (driver, worker))
    assert abs(here - there) <= worker.bound


def test_a_slow_answer_counts_less_than_fast_ones(tmp_path: Path) -> None:
    """A measurement is left out where those around it know more."""

    def note(ledger: LedgerWriter, run: Clock) -> None:
        slow = run.now == 20 * SECOND
        error = 30_000_000 if slow else 0
        ledger.event("clock", clock="there", at=run.now, offset=error, bound=error + 100_000)

    write(tmp_path / "a" / "Runner.ledger", role="driver", events=note)
    write(tmp_path / "b" / "A-0.ledger", clock_name="there")
    (_, worker), _ = ledgers(tmp_path)
    assert EXPECTED == starts(worker)
    assert worker.bound is not None
    assert worker.bound < 2_000_000


def test_the_bound_grows_with_the_time_to_the_next_measurement(tmp_path: Path) -> None:
    """By a tenth of a millisecond for each second."""

    def note(ledger: LedgerWriter, run: Clock) -> None:
        if run.now == 0:
            ledger.event("clock", clock="there", at=0, offset=0, bound=1_000)

    write(tmp_path / "a" / "Runner.ledger", role="driver", events=note)
    write(tmp_path / "b" / "A-0.ledger", clock_name="there")
    (_, worker), _ = ledgers(tmp_path)
    assert 1_000 + 60 * 100_000 == worker.bound


def test_a_clock_that_nobody_measured_follows_its_wall_clock(tmp_path: Path) -> None:
    """Its bound is unknown, and the note says what to do."""
    write(tmp_path / "a" / "Runner.ledger", role="driver")
    write(tmp_path / "b" / "A-0.ledger", clock_name="there", offset=MINUTE, wall=SECOND)
    found, problems = ledgers(tmp_path)
    assert [start + SECOND for start in EXPECTED] == starts(found[1])
    assert (None, []) == (found[1].bound, problems)
    (note,) = clock_notes(found)
    assert note.startswith("b: the clock was not compared with the others")


def test_a_wall_clock_that_is_set_during_the_run_moves_nothing(tmp_path: Path) -> None:
    """What it says most of the time counts."""
    path = write(tmp_path / "a" / "A-0.ledger")
    ledger = read(path)
    ledger.clocks["wall"][0] += 5 * SECOND
    align([ledger])
    assert EXPECTED == starts(ledger)


def barrier(enter: int, leave: int, clock_offset: int = 0) -> Callable[..., None]:
    """Passes a barrier each ten seconds, in nanoseconds after the run's clock."""

    def note(ledger: LedgerWriter, run: Clock) -> None:
        own = run.now + clock_offset
        ledger.event("sync", entered=own + enter, left=own + leave)

    return note


def test_barriers_set_clocks_right_without_a_driver(tmp_path: Path) -> None:
    """However late each process enters and leaves, within the bound."""
    write(tmp_path / "a" / "A-0.ledger", events=barrier(0, 400_000))
    write(tmp_path / "a" / "A-1.ledger", events=barrier(100_000, 350_000))
    write(
        tmp_path / "b" / "A-2.ledger",
        clock_name="there",
        offset=MINUTE,
        wall=SECOND,
        events=barrier(250_000, 500_000, MINUTE),
    )
    found, _ = ledgers(tmp_path)
    worker = found[2]
    assert worker.bound is not None
    assert worker.bound < 2_000_000
    errors = [abs(one - other) for one, other in zip(starts(worker), EXPECTED, strict=True)]
    assert max(errors) <= worker.bound
    assert [] == clock_notes(found)


def test_barriers_that_contradict_each_other_are_not_used(tmp_path: Path) -> None:
    """A rank that has left out one barrier would be set wrong by the time between two."""
    write(tmp_path / "a" / "A-0.ledger", events=barrier(0, 100))
    write(tmp_path / "b" / "A-1.ledger", clock_name="there", events=_uneven)
    (_, worker), _ = ledgers(tmp_path)
    assert worker.bound is None


def _uneven(ledger: LedgerWriter, run: Clock) -> None:
    late = SECOND if run.now else 0
    ledger.event("sync", entered=run.now + late, left=run.now + late + 100)


def test_steps_inside_steps_count_once(tmp_path: Path) -> None:
    """A framework and the user's code may both mark a step."""
    clock = Clock()
    path = tmp_path / "A-0.ledger"
    header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
    budget = {"bytes_per_step": 3_000, "total": 10**9}
    ledger = LedgerWriter(str(path), header, budget, pytest.fail, clock, clock)  # type: ignore[arg-type]
    ledger.begin()
    for number in (1, 1):
        ledger.begin_step(number)
        clock.advance(1)
    ledger.end_step(1)
    ledger.end_step(1)
    ledger.begin_step(2)
    ledger.end()
    assert [(1, 0, 2 * SECOND), (2, 2 * SECOND, None)] == [
        (step.number, step.start, step.end) for step in read(path).steps()
    ]


def test_steps_after_one_that_did_not_end_are_steps(tmp_path: Path) -> None:
    """It is none of their surroundings: its end was lost, or the process was killed in it."""
    made = MadeLedger(tmp_path)
    made.step(1, 0, 10)
    made.step(2, 10, None)
    made.step(3, 20, 40)
    made.step(4, 40, None)
    assert [(1, 0, 10), (2, 10, None), (3, 20, 40), (4, 40, None)] == [
        (step.number, step.start, step.end) for step in read(made.write()).steps()
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a ledger."""
    note = measure("there", SECOND, 0, 100)
    return write(tmp_path_factory.mktemp("run") / "a" / "A-0.ledger", events=note).read_bytes()


def test_a_ledger_cut_anywhere_is_read_to_the_last_whole_block(
    whole: bytes, tmp_path: Path
) -> None:
    """A killed process may have written half a block."""
    path = tmp_path / "A-0.ledger"
    path.write_bytes(whole)
    all_spans = read(path).spans.tolist()
    before = -1
    for size in range(whole.index(b"\n") + 1, len(whole), 7):
        path.write_bytes(whole[:size])
        ledger = read(path)
        found = ledger.spans.tolist()
        assert found == all_spans[: len(found)]
        assert len(found) >= before
        assert 0 <= ledger.damaged < size
        before = len(found)


def test_a_ledger_without_its_whole_first_line_is_refused(whole: bytes, tmp_path: Path) -> None:
    """With its path."""
    path = tmp_path / "A-0.ledger"
    for size in (0, 1, whole.index(b"\n") // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(OutputError, match=r"A-0\.ledger: ignored: not a ledger"):
            read(path)


@given(st.randoms(use_true_random=False))
def test_changed_bytes_are_noticed(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    """What is whole is read; anything else is left out or refused, and nothing crashes."""
    path = tmp_path_factory.getbasetemp() / "changed.ledger"
    path.write_bytes(whole)
    spans = read(path).spans.tolist()
    damaged = bytearray(whole)
    for _ in range(chance.randint(1, 3)):
        where = chance.randrange(len(damaged))
        damaged[where] ^= 1 << chance.randrange(8)
    path.write_bytes(damaged)
    try:
        ledger = read(path)
    except OutputError:
        return
    found = ledger.spans.tolist()
    assert found == spans[: len(found)]
    assert ledger.damaged > 0 or damaged == whole


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (lambda made: made.spans([(1, 1, 9, 8)]), "a call that ends before it begins"),
        (lambda made: made.spans([(1, 1, 0, 2**63 - 1)]), f"end: {2**63 - 1}: expected .*"),
        (lambda made: made.spans([(0, 1, 8, 9)]), "a call at a place that it does not have"),
        (lambda made: made.spans([(2, 1, 8, 9)]), "a call at a place that it does not have"),
        (lambda made: made.spans([(1, 2, 8, 9)]), "a call on a track that it does not have"),
        (lambda made: made.folds([(1, 1, 8, 9, 1, -1)]), "busy: -1: expected 0 to .*"),
        (lambda made: made.step(1, -(2**62), 0), f"time: {-(2**62)}: expected .*"),
        (lambda made: made.clock(1, -1), "wall: -1: expected 0 to .*"),
        (lambda made: made.collections([(2, 9, 8)]), "a call that ends before it begins"),
        (lambda made: made.event("end", 2**62), "expected mappings with event, time"),
    ],
)
def test_rows_that_no_process_writes_are_refused(
    add: Callable[[MadeLedger], None], problem: str, tmp_path: Path
) -> None:
    """With what is wrong, so that no analysis has to expect them."""
    made = MadeLedger(tmp_path)
    made.place("work")
    made.track()
    add(made)
    with pytest.raises(OutputError, match=f"ledger: ignored: damaged: {problem}$"):
        read(made.write())


_VALUES: tuple[Any, ...] = (None, True, -1, 2**64, 1e308, "", "x", [], [[]], {}, {"id": 1}, "\x00")


@given(st.randoms(use_true_random=False))
def test_strange_content_is_refused(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    """Blocks with the right checksum and the wrong content are refused or harmless."""
    path = tmp_path_factory.getbasetemp() / "strange.ledger"
    header: dict[str, Any] = dict(make_header("run", "A-0", "A", 0, "node", "1", "worker"))
    for key in list(header):
        if chance.random() < 0.02:
            header[key] = chance.choice(_VALUES)
    content = header_line(header)
    entry = {
        "plac": {"id": 1, "parent": 0, "key": "a"},
        "trak": {"name": "a", "thread": 1, "native": None, "task": False},
        "evnt": {"event": "clock", "time": 1, "at": 1, "offset": 0, "bound": 1, "clock": "x"},
    }
    for _ in range(chance.randint(1, 4)):
        kind = chance.choice([*entry, *reader.TABLES, "what"])
        if kind in entry and chance.random() < 0.9:
            about: Any = dict(entry[kind])
            if chance.random() < 0.5:
                about[chance.choice(list(about))] = chance.choice(_VALUES)
            data = json.dumps(chance.choice([[about], about, chance.choice(_VALUES)])).encode()
        else:
            data = chance.randbytes(chance.choice([0, 8, 12, 24, 32, 40]))
        checksum = zlib.crc32(data, zlib.crc32(kind.encode()))
        content += struct.pack("<4sII", kind.encode(), len(data), checksum) + data
    path.write_bytes(content)
    try:
        ledger = read(path)
    except OutputError:
        return
    align([ledger])
    ledger.steps()
    assert ledger.last >= 0
