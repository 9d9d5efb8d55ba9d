"""What a process writes into its ledger, read back by the reader."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof._artifacts import ledger as reader
from gpuprof._artifacts.ledger import Ledger
from gpuprof._session import ledger as writer
from gpuprof._session.ledger import LedgerWriter, make_header
from gpuprof._session.usage import Usage, processor_times
from gpuprof._shim.row import VARIABLE, encode
from gpuprof_timing import Timing
from gpuprof_timing._spans import ROOM
from support import stand_in_nvml
from support.manual_clock import Clock
from support.recorder import Recorder
from support.stand_in_nvml import StandInTorch
from support.waiting import DEADLINE

Begin = Callable[..., LedgerWriter]
SECOND = 10**9


@pytest.fixture
def timing(clock: Clock) -> Timing:
    return Timing("t", clock=clock)


@pytest.fixture
def begin(clock: Clock, path: Path, faults: list[str]) -> Iterator[Begin]:
    """Begins a ledger."""
    made: list[LedgerWriter] = []

    def begin(bytes_per_step: int = 3_000, total: int = 10**9) -> LedgerWriter:
        header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
        budget = {"bytes_per_step": bytes_per_step, "total": total}
        ledger = LedgerWriter(
            str(path), header, writer.LedgerLimits(**budget), faults.append, clock, clock
        )
        ledger.begin()
        made.append(ledger)
        return ledger

    yield begin
    for ledger in made:
        ledger.end()


def call(timing: Timing, clock: Clock, *keys: str) -> None:
    """Scopes of a second each, one in the other."""
    if keys:
        with timing.add_time(keys[0]):
            clock.advance(1)
            call(timing, clock, *keys[1:])


def spans(ledger: Ledger) -> list[tuple[str, int, int]]:
    """The kept calls, in seconds."""
    return [
        (ledger.places[place].path, start // SECOND, end // SECOND)
        for place, _, start, end in ledger.spans.tolist()
    ]


def test_calls_are_read_as_they_were(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Each has its place, start and end."""
    ledger = begin()
    call(timing, clock, "train", "forward")
    ledger.end()
    assert [("train/forward", 1, 2), ("train", 0, 2)] == spans(reader.read(path))


def test_a_running_ledger_can_be_read(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """All that is written; it says that the process has not ended it."""
    ledger = begin()
    call(timing, clock, "train")
    ledger.drain()
    read = reader.read(path)
    assert ([("train", 0, 1)], False) == (spans(read), read.ended)


def test_an_ended_ledger_says_so(begin: Begin, path: Path) -> None:
    """A killed process has not said it."""
    begin().end()
    assert reader.read(path).ended


def test_what_is_folded_is_read_with_its_sums(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Place, thread, first start, last end, number and time."""
    ledger = begin()
    ledger.begin_step(0)
    for _ in range(ROOM + 3):
        call(timing, clock, "load")
    ledger.end()
    read = reader.read(path)
    ((place, track, *rest),) = read.folds.tolist()
    assert ("load", threading.get_ident()) == (read.places[place].path, read.tracks[track].thread)
    assert [ROOM * SECOND, (ROOM + 3) * SECOND, 3, 3 * SECOND] == rest


def collect(clock: Clock, seconds: float) -> None:
    """Run the garbage collector, which takes so long, as what it finds has a finalizer."""

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            clock.advance(seconds)

    gc.collect()
    Garbage()
    gc.collect()


def test_a_long_collection_is_noted(begin: Begin, clock: Clock, path: Path) -> None:
    """From when to when the garbage collector stopped the process."""
    ledger = begin()
    clock.advance(5)
    collect(clock, 2)
    ledger.event("kept")  # of pauses alone there is no file
    ledger.end()
    assert [(5 * SECOND, 7 * SECOND)] == reader.read(path).collections[["start", "end"]].tolist()


def test_a_short_collection_is_not_noted(begin: Begin, clock: Clock, path: Path) -> None:
    """There are many, and they cost a step nothing."""
    ledger = begin()
    collect(clock, 0.0009)
    ledger.event("kept")
    ledger.end()
    assert [] == reader.read(path).collections.tolist()


def test_the_collector_is_left_alone_after_the_end(begin: Begin) -> None:
    """Nothing of gpuprof's is called any more."""
    before = list(gc.callbacks)
    begin().end()
    assert before == gc.callbacks


def test_calls_of_several_threads_are_told_apart(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Whether one thread made all calls of a second, another one, or both."""
    ledger = begin()
    expected = []

    def work(*keys: str) -> None:
        for key in keys:
            call(timing, clock, key)
            expected.append((key, threading.get_ident()))

    with ThreadPoolExecutor(1) as pool:
        for here, there in (("a", ""), ("", "ab"), ("bc", "cd"), ("ad", "")):
            work(*here)
            pool.submit(work, *there).result()
            ledger.drain()
    ledger.end()
    read = reader.read(path)
    assert expected == [
        (read.places[place].path, read.tracks[track].thread)
        for place, track, _, _ in read.spans.tolist()
    ]


def test_steps_are_read_with_their_edges(begin: Begin, clock: Clock, path: Path) -> None:
    """In the order in which they began."""
    ledger = begin()
    for number in (7, 8):
        ledger.begin_step(number)
        clock.advance(1)
        ledger.end_step(number)
    ledger.end()
    assert [(7, 0, SECOND), (8, SECOND, 2 * SECOND)] == [
        (step.number, step.start, step.end) for step in reader.read(path).steps()
    ]


def in_thread(function: Callable[[], object], name: str) -> None:
    """Call a function in a thread of this name."""
    thread = threading.Thread(target=function, name=name)
    thread.start()
    thread.join()


def test_the_thread_that_marks_the_steps_is_known(begin: Begin, path: Path) -> None:
    """It need not be the main thread."""
    ledger = begin()

    def train() -> None:
        ledger.begin_step(0)
        ledger.drain()

    in_thread(train, "trains")
    ledger.end()
    read = reader.read(path)
    assert read.marker is not None
    assert "trains" == read.tracks[read.marker].name


def test_an_event_is_read_as_it_was(begin: Begin, clock: Clock, path: Path) -> None:
    """With its time."""
    ledger = begin()
    clock.advance(3)
    ledger.event("window", number=4)
    ledger.end()
    assert {"event": "window", "time": 3 * SECOND, "number": 4} in reader.read(path).events


def test_events_of_another_thread_are_not_lost(begin: Begin, path: Path) -> None:
    """The channel's thread notes events while the control thread writes."""
    ledger = begin()

    def note() -> None:
        for number in range(2_000):
            ledger.event("note", number=number)

    thread = threading.Thread(target=note)
    thread.start()
    while thread.is_alive():
        ledger.drain()
    thread.join()
    ledger.end()
    found = [each["number"] for each in reader.read(path).events if each["event"] == "note"]
    assert list(range(2_000)) == found


def test_a_call_that_does_not_end_is_in_the_file(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """A killed process leaves what it was doing."""
    ledger = begin()
    with timing.add_time("main"), timing.add_time("stuck"):
        clock.advance(2)
        ledger.drain()
        read = reader.read(path)
        found = {(read.places[place].path, start) for place, start in read.open.tolist()}
    assert {("main", 0), ("main/stuck", 0)} == found


def test_a_call_that_has_ended_is_not_open(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """The last word counts."""
    ledger = begin()
    with timing.add_time("long"):
        clock.advance(2)
        ledger.drain()
    ledger.end()
    assert 0 == len(reader.read(path).open)


def test_both_clocks_are_read_now_and_then(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Every five seconds."""
    ledger = begin()
    for _ in range(12):
        call(timing, clock, "a")
        ledger.drain()
    ledger.end()
    assert [1, 6, 11] == [row[0] // SECOND for row in reader.read(path).clocks.tolist()]


def test_several_trees_are_in_one_ledger(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """The job may have made a Timing of its own."""
    other = Timing("other", clock=clock)
    ledger = begin()
    call(timing, clock, "a")
    call(other, clock, "b")
    ledger.end()
    assert [("a", 0, 1), ("b", 1, 2)] == spans(reader.read(path))


def test_a_reset_tree_goes_on_at_the_same_places(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """A place has one number, however often the job empties its tree."""
    ledger = begin()
    for _ in range(3):
        call(timing, clock, "a")
        timing.reset()
    ledger.end()
    read = reader.read(path)
    assert ([("a", 0, 1), ("a", 1, 2), ("a", 2, 3)], 2) == (spans(read), len(read.places))


def test_a_thread_is_a_track_with_its_name(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """And the system's id, by which a profiler knows it."""
    ledger = begin()
    native: list[int] = []

    def load() -> None:
        native.append(threading.get_native_id())
        call(timing, clock, "load")
        ledger.drain()

    in_thread(load, "loader")
    ledger.end()
    read = reader.read(path)
    track = read.tracks[read.spans["track"][0]]
    assert ("loader", native[0], False) == (track.name, track.native, track.task)


def test_a_thread_with_the_id_of_an_ended_one_has_its_own_track(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """The system gives the ids of ended threads to new ones."""
    ledger = begin()
    idents = set()

    def work() -> None:
        idents.add(threading.get_ident())
        call(timing, clock, "a")
        ledger.drain()

    for number in range(5):
        thread = threading.Thread(target=work, name=f"thread {number}")
        thread.start()
        thread.join()
    ledger.end()
    read = reader.read(path)
    names = [read.tracks[track].name for track in read.spans["track"]]
    assert [f"thread {number}" for number in range(5)] == names


def test_tasks_are_tracks_in_their_thread(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Scopes of two tasks may overlap."""
    ledger = begin()

    async def work() -> None:
        with timing.add_time("a"):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(work(), work())

    asyncio.run(main())
    ledger.end()
    read = reader.read(path)
    found = [read.tracks[track] for track in read.spans["track"]]
    assert [(True, threading.get_ident())] * 2 == [(each.task, each.thread) for each in found]
    assert 2 == len(set(read.spans["track"].tolist()))


def test_places_without_end_are_bounded(
    begin: Begin,
    timing: Timing,
    clock: Clock,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys made from data cannot fill the memory: later places share one, and lose no call."""
    monkeypatch.setattr(writer, "_MOST_PLACES", 50)
    ledger = begin(bytes_per_step=10**9)
    for number in range(80):
        call(timing, clock, f"item {number}")
    ledger.end()
    read = reader.read(path)
    assert 80 == len(read.spans)
    assert 30 == [read.places[place].path for place in read.spans["place"]].count("(more)")


def test_names_are_part_of_the_total(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Long keys made from data cannot fill the disk: later places share one, and lose no call."""
    ledger = begin(bytes_per_step=10**9, total=300_000)
    for number in range(100):
        call(timing, clock, f"{number} {'x' * 10_000}")
    ledger.end()
    read = reader.read(path)
    assert 100 == len(read.spans)
    assert 29 == len(read.places) - 2  # all of 10 kB that fit, the root, and `(more)`


def test_the_names_of_a_job_are_written_when_the_total_is_spent(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Other processes have used it up: without names, its steps could not be explained."""
    path.with_name("B-0.ledger").write_bytes(bytes(50_000))
    ledger = begin(total=50_000)
    call(timing, clock, "step")
    clock.advance(10)
    ledger.drain()
    call(timing, clock, "evaluation")
    ledger.end()
    assert ["", "step", "evaluation"] == [place.path for place in reader.read(path).places]


def test_the_names_of_threads_are_part_of_the_total(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """They may be made from data as well."""
    ledger = begin(total=100_000)

    def work() -> None:
        call(timing, clock, "work")
        ledger.drain()  # while the thread lives, and has a name

    for number in range(20):
        thread = threading.Thread(target=work, name=f"{number} {'x' * 10_000}")
        thread.start()
        thread.join()
    ledger.end()
    assert path.stat().st_size < 110_000


def test_twenty_thousand_places_are_written(begin: Begin, clock: Clock, path: Path) -> None:
    """Two trees of ten thousand, which is a tree's most."""
    ledger = begin(bytes_per_step=10**9)
    trees = [Timing(name, clock=clock) for name in ("one", "other")]
    for timing in trees:
        for number in range(100):
            with timing.add_time(f"{timing.name} {number}"):
                for inner in range(99):
                    with timing.add_time(str(inner)):
                        pass
    ledger.end()
    read = reader.read(path)
    assert (20_001, 20_000) == (len(read.places), len(read.spans))


def work_in_steps(
    ledger: LedgerWriter, timing: Timing, clock: Clock, steps: int, places: int = 100
) -> None:
    """Steps with many places at the third level, which cost more than they earn."""
    for step in range(steps):
        ledger.begin_step(step)
        with timing.add_time("step"):
            with timing.add_time("phase"):
                for number in range(places):
                    with timing.add_time(f"part {number}"):
                        pass
            clock.advance(1)
        ledger.end_step(step)
        ledger.drain()


def test_the_deepest_level_is_left_out_when_a_step_takes_too_much(
    begin: Begin, timing: Timing, clock: Clock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other levels go on, and the ledger and the log say so once."""
    caplog.set_level(logging.INFO)
    ledger = begin(bytes_per_step=500)
    work_in_steps(ledger, timing, clock, 100)
    ledger.end()
    read = reader.read(path)
    counts = {
        keys: [read.places[place].path for place in read.spans["place"]].count(keys)
        for keys in ("step", "step/phase", "step/phase/part 0")
    }
    assert (100, 100) == (counts["step"], counts["step/phase"])
    assert counts["step/phase/part 0"] < 50
    assert [3] == [event["depth"] for event in read.events if event["event"] == "thinned"]
    (said,) = caplog.messages
    assert said.startswith(
        "A-0: from now on the ledger leaves out scopes at level 3 and deeper "
        "(ledger.bytes_per_step: 500 bytes are used up)"
    )


def test_a_thinned_ledger_keeps_to_its_budget(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Beyond a burst at the beginning, a step takes no more than it may."""
    ledger = begin(bytes_per_step=500)
    work_in_steps(ledger, timing, clock, 100)
    before = path.stat().st_size
    work_in_steps(ledger, timing, clock, 100)
    assert path.stat().st_size - before < 100 * 500


def test_short_steps_keep_their_calls(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """However many steps there are between two writes: each brings bytes of its own."""
    ledger = begin(bytes_per_step=500)
    for step in range(400):
        ledger.begin_step(step)
        with timing.add_time("step"):
            for number in range(10):
                with timing.add_time(f"part {number}"):
                    pass
        ledger.end_step(step)
    ledger.drain()
    ledger.end()
    read = reader.read(path)
    assert (400 * 11, []) == (
        len(read.spans),
        [event for event in read.events if event["event"] == "thinned"],
    )


def test_steps_and_the_top_level_go_on_when_the_total_is_spent(
    begin: Begin,
    timing: Timing,
    clock: Clock,
    path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of all ledgers of the run on this node together."""
    caplog.set_level(logging.INFO)
    path.with_name("B-0.ledger").write_bytes(bytes(50_000))
    ledger = begin(total=50_000)
    work_in_steps(ledger, timing, clock, 20)
    ledger.end()
    read = reader.read(path)
    late = [
        read.places[place].path
        for place, _, start, _ in read.spans.tolist()
        if start >= 10 * SECOND
    ]
    assert (["step"] * 10, 20) == (late, len(read.steps()))
    assert ["total: 50000 bytes are used up on this node"] == [
        event["why"] for event in read.events if event["event"] == "thinned"
    ]
    assert 1 == len(caplog.messages)


def test_the_top_level_has_no_more_room_than_others_when_the_total_is_spent(
    begin: Begin, timing: Timing, clock: Clock, path: Path
) -> None:
    """Else a loop in a process without steps would go on without bound."""
    path.with_name("B-0.ledger").write_bytes(bytes(50_000))
    ledger = begin(total=50_000)
    for _ in range(2):  # of the first one, the file's directory has not been looked at
        ledger.drain()
        call(timing, clock, "call")
        clock.advance(10)
    ledger.drain()
    before = len(reader.read(path).spans)
    for _ in range(100):
        call(timing, clock, "call")
    ledger.end()
    assert ROOM == len(reader.read(path).spans) - before


def test_a_file_of_that_name_is_left_alone(begin: Begin, path: Path) -> None:
    """Nothing recorded is ever overwritten."""
    path.write_bytes(b"earlier")
    begin().end()
    assert b"earlier" == path.read_bytes()
    assert reader.read(path.with_name("A-0-2.ledger")).ended


def test_a_removed_directory_ends_the_ledger_with_one_sentence(
    begin: Begin, timing: Timing, clock: Clock, path: Path, faults: list[str]
) -> None:
    """The job goes on, and so does its tree."""
    ledger = begin()
    call(timing, clock, "a")
    ledger.drain()
    path.unlink()
    for _ in range(3):
        call(timing, clock, "a")
        ledger.drain()
    ledger.end()
    assert [f"{path}: the ledger ends here: the file was removed; everything else goes on"] == (
        faults
    )
    assert 4.0 == timing["a"]


def test_a_missing_directory_ends_the_ledger_with_one_sentence(
    begin: Begin, timing: Timing, clock: Clock, path: Path, faults: list[str]
) -> None:
    """As where the disk of the run was never mounted."""
    path.parent.rmdir()
    ledger = begin()
    for _ in range(3):
        call(timing, clock, "a")
        ledger.drain()
    path.parent.mkdir()
    assert 1 == len(faults)
    assert faults[0].endswith("No such file or directory; everything else goes on")


PROGRAM = """
import itertools, time, gpuprof

with gpuprof.timer("main"):
    for step in itertools.count():
        with gpuprof.step(step), gpuprof.timer("train"):
            time.sleep(0.05)
        print(time.perf_counter_ns(), flush=True)
"""
FULL_DISK = """
import pathlib, resource, sys, time, gpuprof

def train(first, last):
    for step in range(first, last):
        with gpuprof.step(step), gpuprof.timer("train"):
            pass

train(0, 10)
while not list(pathlib.Path(sys.argv[1]).glob("run/*/*.ledger")):
    time.sleep(0.1)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
train(10, 1000)
time.sleep(2)
train(1000, 1010)
print(gpuprof.timing().to_dict()["children"][0]["count"])
"""


def start(recorder: Recorder, program: str) -> subprocess.Popen[str]:
    """A worker with a ledger."""
    row = recorder.row(
        profiled=False, backend="none", ledger={"bytes_per_step": 3_000, "total": 10**9}
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, str(recorder.directory)],
        env={**os.environ, VARIABLE: encode(row)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def find(recorder: Recorder) -> list[Path]:
    return sorted(recorder.directory.glob("run/*/*.ledger"))


def test_a_killed_worker_loses_at_most_five_seconds(recorder: Recorder) -> None:
    """What came before is read, and what was open is in the file."""
    worker = start(recorder, PROGRAM)
    try:
        assert worker.stdout is not None
        lines: list[Any] = []
        while not find(recorder):
            lines.append(worker.stdout.readline())
        began = time.monotonic()
        while time.monotonic() < began + 3:
            lines.append(worker.stdout.readline())
    finally:
        worker.send_signal(signal.SIGKILL)
        rest, _ = worker.communicate(timeout=DEADLINE)
    last = int([*lines, *rest.splitlines(keepends=True)][-1])
    (path,) = find(recorder)
    read = reader.read(path)
    assert not read.ended
    assert last - read.last < 5 * SECOND
    # the last write may have come in the middle of a short scope, too
    assert "main" == read.places[read.open["place"][0]].path


def test_a_full_disk_costs_the_ledger_and_nothing_else(recorder: Recorder) -> None:
    """The job ends as it would have, and the log has one sentence about the ledger."""
    worker = start(recorder, FULL_DISK)
    out, said = worker.communicate(timeout=DEADLINE)
    assert (0, "1010\n") == (worker.returncode, out)
    assert 1 == said.count("the ledger ends here: File too large")
    (path,) = find(recorder)
    read = reader.read(path)
    assert list(range(10)) == [step.number for step in read.steps()]
    assert read.damaged > 0


BARRIERS = """
import gpuprof
passed = []
gpuprof.sync_mark(lambda: passed.append(None))
print(len(passed))
"""


def test_barriers_are_marked(recorder: Recorder) -> None:
    """With when this process entered and left each."""
    worker = start(recorder, BARRIERS)
    out, _ = worker.communicate(timeout=DEADLINE)
    (path,) = find(recorder)
    marks = [event for event in reader.read(path).events if event["event"] == "sync"]
    assert ("4\n", 4) == (out, len(marks))
    assert all(mark["entered"] <= mark["left"] for mark in marks)


def test_barriers_are_passed_without_a_ledger() -> None:
    """A process that has none must not keep the others waiting."""
    passed: list[None] = []
    gpuprof.sync_mark(lambda: passed.append(None))
    assert 4 == len(passed)


def test_a_fork_writes_a_ledger_of_its_own(recorder: Recorder) -> None:
    """The child's calls are in its file, the parent's in the parent's, and no file is torn."""
    program = """
import os, gpuprof
with gpuprof.timer("parent"):
    child = os.fork()
    if child == 0:
        with gpuprof.timer("child"):
            pass
        raise SystemExit
    os.waitpid(child, 0)
"""
    worker = start(recorder, program)
    worker.communicate(timeout=DEADLINE)
    assert 0 == worker.returncode
    found = {
        (read.header["role"], read.places[place].path)
        for read in map(reader.read, find(recorder))
        for place in read.spans["place"]
    }
    assert {("worker", "parent"), ("child", "child")} == found
    assert [0, 0] == [reader.read(path).damaged for path in find(recorder)]


def test_a_ledger_says_that_timing_was_off(path: Path) -> None:
    """Its steps are there, and a reader need not ask for scopes."""
    header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
    limits = writer.LedgerLimits(bytes_per_step=3_000, total=10**9)
    ledger = LedgerWriter(str(path), header, limits, print)
    ledger.begin(is_timed=False)
    ledger.end()
    assert ["untimed", "end"] == [event["event"] for event in reader.read(path).events]


def test_a_ledger_says_for_how_long_the_main_thread_ran(path: Path, begin: Begin) -> None:
    """From its beginning on, and with each write, as the system has counted it."""
    before = processor_times(os.getpid())
    ledger = begin()
    begun = time.thread_time()
    while time.thread_time() < begun + 0.05:
        pass
    ledger.event("anything")
    ledger.end()
    rows = reader.read(path).main
    ran = rows["ran"].tolist()
    assert ran[-1] - ran[0] >= 0.04 * SECOND
    after = processor_times(os.getpid())
    for name, *counted in zip(("ran", "ready"), before, after, strict=True):
        in_order = [counted[0], *rows[name].tolist(), counted[1]]
        assert sorted(in_order) == in_order


def test_a_ledger_says_what_the_process_used(path: Path, begin: Begin) -> None:
    """Processor time, memory and the machine's room, from its beginning on and with each write."""
    ledger = begin()
    before = time.process_time_ns()
    hoard = bytearray(50_000_000)
    ledger.event("anything")
    ledger.end()
    rows = reader.read(path).usage
    first, last = rows[0], rows[-1]
    assert len(hoard) <= (last["resident"] - last["shared"]) - (first["resident"] - first["shared"])
    assert first["processor"] <= before <= last["processor"]
    assert 1 <= last["usable"] <= last["processors"] == os.cpu_count()
    assert 0 < last["available"]


def test_a_ledger_says_for_how_long_other_threads_ran(path: Path, begin: Begin) -> None:
    """Of each thread that two writes have seen; gpuprof's own threads are left out."""
    over, runs = threading.Event(), threading.Event()

    def burn() -> None:
        begun = time.thread_time()
        while time.thread_time() < begun + 0.05:
            pass
        runs.set()
        over.wait()

    ledger = begin()
    thread = threading.Thread(target=burn, name="burner")
    thread.start()
    try:
        for _ in range(3):
            ledger.event("anything")
            ledger.drain()
            runs.wait(DEADLINE)
    finally:
        over.set()
        thread.join()
        ledger.end()
    read = reader.read(path)
    ran: dict[str, int] = {}
    for track, _, nanoseconds, _ in read.threads.tolist():
        name = read.tracks[track].name
        ran[name] = max(ran.get(name, 0), nanoseconds)
    assert {"MainThread", "burner"} <= ran.keys()
    assert not any(name.startswith("gpuprof-") for name in ran)
    assert ran["burner"] >= 0.04 * SECOND


def test_a_long_job_is_read_more_rarely() -> None:
    """After 300 readings once a second at most, then half as often each time."""
    now = [0]
    usage = Usage(lambda: now[0])
    readings = []
    for second in range(2_000):
        now[0] = second * SECOND
        readings.append(usage.is_due())
    assert [True] * 599 == readings[:599]
    assert 300 == sum(readings[599 : 599 + 600])


def test_a_ledger_says_what_cards_do(
    path: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that the process sees the one of its local rank, as a stand-in for NVML has it."""
    monkeypatch.setitem(sys.modules, "pynvml", stand_in_nvml)
    monkeypatch.setitem(sys.modules, "torch", StandInTorch())
    monkeypatch.setenv("LOCAL_RANK", "1")
    ledger = begin()
    ledger.event("anything")
    ledger.end()
    read = reader.read(path)
    (card,) = (event for event in read.events if event["event"] == "card")
    assert ("stand-in 1", stand_in_nvml.TOTAL, 2_000) == (
        card["name"],
        card["memory"],
        card["clock"],
    )
    assert {(51, 2 * 10**9, 1_500, 0x20)} == {row[2:] for row in read.cards.tolist()}


@pytest.mark.parametrize("torch", [StandInTorch(is_initialized=False), object(), None])
def test_a_process_without_cuda_asks_no_card(
    torch: object, path: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML is not even imported."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    ledger = begin()
    ledger.event("anything")
    ledger.end()
    assert [] == reader.read(path).cards.tolist()


def test_without_nvml_the_ledger_goes_on(
    path: Path, begin: Begin, faults: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that uses CUDA where nvidia-ml-py is not installed has no figures of cards."""
    monkeypatch.setitem(sys.modules, "torch", StandInTorch())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    ledger = begin()
    ledger.event("anything")
    ledger.end()
    read = reader.read(path)
    assert [] == read.cards.tolist()
    assert len(read.usage)
    assert [] == faults
