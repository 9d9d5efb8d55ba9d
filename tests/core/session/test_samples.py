"""What a process writes of the samples that it works on, read back by the reader."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import gpuprof
import pytest
from gpuprof._artifacts import ledger as reader
from gpuprof._artifacts.ledger import Ledger
from gpuprof._session import public, samples
from gpuprof._session.ledger import LedgerWriter, make_header
from gpuprof._session.samples import TAIL
from gpuprof._shim.row import VARIABLE, encode
from support.manual_clock import Clock
from support.recorder import Recorder

Begin = Callable[..., LedgerWriter]
SECOND = 10**9


@pytest.fixture
def begin(clock: Clock, path: Path, faults: list[str]) -> Iterator[Begin]:
    """Begins a ledger."""
    ledgers: list[LedgerWriter] = []

    def begin(total: int = 10**9) -> LedgerWriter:
        header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
        budget = {"bytes_per_step": 3_000, "total": total}
        ledger = LedgerWriter(
            str(path), header, samples_limits(budget), faults.append, clock, clock
        )
        ledger.begin()
        ledgers.append(ledger)
        return ledger

    yield begin
    for ledger in ledgers:
        ledger.end()
    assert [] == faults


def samples_limits(budget: dict[str, int]) -> Any:
    """A budget of the type that the writer takes."""
    return budget


@pytest.fixture
def worker(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[LedgerWriter]:
    """This process is a worker with a session; its ledger."""
    row = recorder.row()
    row["ledger"] = {"bytes_per_step": 3_000, "total": 10**9}
    monkeypatch.setenv(VARIABLE, encode(row))
    public._forget()
    session = public.session()
    assert session is not None
    assert session.ledger is not None
    yield session.ledger
    session.end()
    public._forget()


class Hostile:
    """A value of the job's own, which must not be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("read")

    __str__ = __eq__ = __hash__ = __int__ = __repr__  # type: ignore[assignment]


def phases(ledger: Ledger) -> list[tuple[str, str, int, int]]:
    """Id, phase, start and end in seconds of the phases that ended."""
    return [
        (ledger.sample_ids[sample], ledger.words[phase], start // SECOND, end // SECOND)
        for _, sample, phase, _, start, end in ledger.samples.tolist()
    ]


def names(ledger: Ledger) -> list[tuple[str, str]]:
    """Id and phase of the phases that ended."""
    return [row[:2] for row in phases(ledger)]


def notes(ledger: Ledger) -> dict[str, float]:
    """The notes of all phases; of each name the last one."""
    return {ledger.words[name]: value for _, name, value in ledger.notes.tolist()}


def test_phases_are_read_as_they_were(begin: Begin, clock: Clock, path: Path) -> None:
    """A tool inside a generation is a phase of its own."""
    ledger = begin()
    with ledger.sample("a", "generate"):
        clock.advance(1)
        with ledger.sample("a", "tool"):
            clock.advance(2)
        clock.advance(3)
    ledger.end()
    assert [("a", "generate", 0, 6), ("a", "tool", 1, 3)] == phases(reader.read(path))


def test_notes_of_a_phase_are_kept(begin: Begin, path: Path) -> None:
    """Any names; the last value of a name counts."""
    ledger = begin()
    with ledger.sample("a", "generate") as sample:
        sample.note(tokens=1, version=7)
        sample.note(tokens=512)
    ledger.end()
    assert {"tokens": 512.0, "version": 7.0} == notes(reader.read(path))


def test_a_note_may_come_after_the_phase_was_written(begin: Begin, path: Path) -> None:
    """The result is often known only after the with block."""
    ledger = begin()
    with ledger.sample("a", "generate") as sample:
        pass
    ledger.drain()
    sample.note(tokens=512)
    ledger.end()
    assert {"tokens": 512.0} == notes(reader.read(path))


def test_an_exception_ends_the_phase_and_is_raised(begin: Begin, path: Path) -> None:
    """The job sees its own error."""
    ledger = begin()
    with pytest.raises(KeyError, match="theirs"), ledger.sample("a", "generate"):
        raise KeyError("theirs")
    ledger.end()
    assert [("a", "generate")] == names(reader.read(path))


def test_a_phase_that_goes_on_for_a_second_is_written(
    begin: Begin, clock: Clock, path: Path
) -> None:
    """So a killed process leaves it."""
    ledger = begin()
    with ledger.sample("a", "generate"):
        clock.advance(2)
        ledger.drain()
        ledger.drain()
        (row,) = reader.read(path).begun.tolist()
    assert 0 == row[-1]


def test_a_number_and_its_text_are_one_sample(begin: Begin, path: Path) -> None:
    """One process may hold the id as an int, another as a str."""
    ledger = begin()
    for sample in (17, "17", UUID(int=17)):
        with ledger.sample(sample, "generate"):
            pass
    ledger.end()
    assert ["17", "17", str(UUID(int=17))] == [name for name, _ in names(reader.read(path))]


@pytest.mark.parametrize(
    ("sample", "phase", "problem"),
    [
        (None, "generate", "an id of type NoneType is not valid; expected a str or an int"),
        (True, "generate", "an id of type bool is not valid"),
        (1.5, "generate", "an id of type float is not valid"),
        (Hostile(), "generate", "an id of type Hostile is not valid"),
        ("a", Hostile(), "a phase of type Hostile is not valid"),
        ("a", 3, 'a phase of type int is not valid; expected a str such as "generate"'),
        ("a", "", "an empty phase is not valid"),
    ],
)
def test_a_wrong_argument_is_logged_once(
    sample: Any, phase: Any, problem: str, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on."""
    ledger = begin()
    for _ in range(3):
        with ledger.sample(sample, phase):
            pass
        ledger.drain()
    assert 1 == caplog.text.count(problem)


def test_a_note_that_is_no_number_is_logged_and_left_out(
    begin: Begin, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its phase and its other notes are kept."""
    ledger = begin()
    wrong: Any = "many"
    with ledger.sample("a", "generate") as sample:
        sample.note(tokens=wrong, turns=2, version=float("nan"))
    ledger.end()
    assert {"turns": 2.0} == notes(reader.read(path))
    assert "note tokens: str is not valid" in caplog.text


def test_a_long_id_is_cut(begin: Begin, path: Path) -> None:
    """A whole prompt as an id does not fill the ledger; two of them remain two samples."""
    ledger = begin()
    for end in ("x", "y"):
        with ledger.sample("p" * 5_000 + end, "generate"):
            pass
    ledger.end()
    ids = [name for name, _ in names(reader.read(path))]
    assert (2, 100) == (len(set(ids)), max(map(len, ids)))


def record_many(ledger: LedgerWriter, count: int) -> None:
    """One after the other; each thousandth one takes much longer."""
    for number in range(count):
        start = number * 1_000
        ledger.samples.add(
            f"sample {number}",
            "generate",
            start,
            start + (SECOND if number % 1_000 == 0 else 500),
            {"tokens": 2},
        )


def test_thinned_samples_have_exact_totals(begin: Begin, path: Path) -> None:
    """Phases, nanoseconds and tokens."""
    ledger = begin(total=10**5)
    record_many(ledger, 10_000)
    ledger.end()
    read = reader.read(path)
    kept, folds = read.samples, read.sample_folds
    assert 0 < len(kept) < 2_000
    assert 10_000 == len(kept) + folds["count"].sum()
    assert 10 * SECOND + 9_990 * 500 == (kept["end"] - kept["start"]).sum() + folds["busy"].sum()
    assert 20_000 == read.notes["value"].sum()


def test_the_weights_of_thinned_samples_add_up_to_all(begin: Begin, path: Path) -> None:
    """Each stands for those that are left out beside it."""
    ledger = begin(total=10**5)
    record_many(ledger, 10_000)
    ledger.end()
    assert 10_000 == reader.read(path).samples["weight"].sum()


def test_thinning_keeps_the_tail(begin: Begin, path: Path) -> None:
    """A step waits for its longest samples."""
    ledger = begin(total=10**5)
    record_many(ledger, 1_000 * (TAIL - 1))
    ledger.end()
    rows = reader.read(path).samples
    assert TAIL - 1 == (rows["end"] - rows["start"] == SECOND).sum()


def test_two_processes_keep_the_same_samples(
    clock: Clock, tmp_path: Path, faults: list[str]
) -> None:
    """A sample has all its phases, or none."""
    ids = []
    for name in ("A-0", "A-1"):
        header = make_header("run", name, "A", 0, "node", "1", "worker")
        path = tmp_path / f"{name}.ledger"
        limits = samples_limits({"bytes_per_step": 3_000, "total": 10**5})
        ledger = LedgerWriter(str(path), header, limits, faults.append, clock, clock)
        for number in range(10_000):
            ledger.samples.add(f"sample {number}", "generate", 0, 500)
        ledger.drain()
        read = reader.read(path)
        ids.append({read.sample_ids[key] for key in read.samples["sample"].tolist()})
    assert ids[0] - ids[1] == ids[1] - ids[0] == set()


def test_the_ledger_stays_within_bounds(begin: Begin, path: Path) -> None:
    """100,000 samples in each of three steps."""
    ledger = begin(total=2**20)
    for _ in range(3):
        record_many(ledger, 100_000)
        ledger.drain()
    ledger.end()
    assert path.stat().st_size < 2**20


def test_a_long_run_keeps_the_longest_phase_of_each_write(begin: Begin, path: Path) -> None:
    """When much is written already, nothing else is kept."""
    ledger = begin(total=2**16)
    for _ in range(300):
        record_many(ledger, 100)
        ledger.drain()
    size = path.stat().st_size
    record_many(ledger, 100)
    ledger.end()
    rows = reader.read(path).samples
    assert SECOND == rows["end"][-1] - rows["start"][-1]
    assert path.stat().st_size - size < 600


def test_a_process_that_writes_nothing_does_not_grow(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profiler may hold the control thread; phases in memory are thinned meanwhile."""
    monkeypatch.setattr(samples, "_MOST", 100)
    ledger = begin()
    for number in range(10_000):
        with ledger.sample(number, "generate"):
            pass
    own = ledger.samples
    assert len(own.rows) + len(own._ended) + len(own._going_on) <= 200
    in_memory = len(own.rows) + len(own._ended) + len(own._going_on)
    assert 10_000 == in_memory + sum(fold.count for fold in own._folds.values())


def test_threads_and_tasks_record_at_once(worker: LedgerWriter) -> None:
    """Each has its own phases, also across an await."""

    async def rollout(number: int) -> None:
        with gpuprof.sample(f"task {number}") as sample:
            await asyncio.sleep(0)
            sample.note(tokens=number)

    async def rollouts() -> None:
        await asyncio.gather(*(rollout(number) for number in range(100)))

    def run() -> None:
        with gpuprof.sample("thread", phase="reward"):
            pass

    asyncio.run(rollouts())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    worker.drain()
    read = reader.read(Path(worker.path))
    assert [("thread", "reward")] == [row for row in names(read) if row[1] == "reward"]
    assert sum(range(100)) == read.notes["value"].sum()


def test_without_a_recorded_process_nothing_happens() -> None:
    """Off is off."""
    with gpuprof.sample("a") as sample:
        sample.note(tokens=3)
    assert gpuprof.sample("a") is gpuprof.sample("b")


def test_an_ended_session_records_nothing(worker: LedgerWriter) -> None:
    """The same as without one."""
    worker.end()
    assert public._NO_PHASE is gpuprof.sample("a")


def test_a_forked_child_leaves_its_parents_phases_alone(worker: LedgerWriter) -> None:
    """It may leave the with block, too: the parent's phase ends once, in the parent."""
    with gpuprof.sample("a"):
        child = os.fork()
        if not child:
            os._exit(0 if gpuprof.sample("b") is not None else 1)
        assert 0 == os.waitpid(child, 0)[1]
    worker.drain()
    assert [("a", "generate")] == names(reader.read(Path(worker.path)))


KILLED = """
import os, sys, time, gpuprof
from gpuprof._session import public
with gpuprof.sample("done", "generate"):
    pass
with gpuprof.sample("killed", "generate"):
    ledger = public.session().ledger
    time.sleep(1.1)  # a phase that goes on for a second is written
    ledger.drain()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_leaves_what_had_begun(recorder: Recorder) -> None:
    """The one that ended, and the one that never does."""
    row = recorder.row()
    row["ledger"] = {"bytes_per_step": 3_000, "total": 10**9}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED],
        env={**os.environ, VARIABLE: encode(row)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert b"ready\n" == process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    (path,) = recorder.directory.rglob("*.ledger")
    read = reader.read(path)
    assert [("done", "generate")] == names(read)
    assert ["killed"] == [read.sample_ids[key] for key in read.begun["sample"].tolist()]


def test_attributes_of_a_step_are_in_the_ledger(worker: LedgerWriter) -> None:
    """With the step's number."""
    with gpuprof.step(3, tokens=512, buffer=2):
        pass
    worker.drain()
    read = reader.read(Path(worker.path))
    rows = {(read.words[name], step, value) for name, step, _, value in read.attributes.tolist()}
    assert {("tokens", 3, 512.0), ("buffer", 3, 2.0)} == rows


def test_a_buffer_is_not_added_up(worker: LedgerWriter) -> None:
    """It says how things are in a step."""
    for number in range(3):
        with gpuprof.step(number, tokens=2, buffer=40, peak_flops=1e15):
            pass
    session = public.session()
    assert session is not None
    assert {"tokens": 6} == session.snapshot()["totals"]["sums"]
