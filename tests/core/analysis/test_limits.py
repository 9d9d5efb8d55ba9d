"""What a stranger's run may cost: memory and time in proportion to what is read."""

from __future__ import annotations

import json
import os
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from gpuprof._artifacts.ledger import read
from gpuprof._cli import main
from gpuprof._report.explain import answer_of, as_json
from gpuprof._session import ledger as written
from gpuprof._session.blocks import BLOCK
from gpuprof.errors import GpuprofError
from support.fuzzing import within
from support.made_ledgers import MEETS, RELEASES, WAITS, MadeLedger
from support.run_files import run_file, session_file, window_entry

MS = 1_000_000
CONSTANT, FACTOR = 64 * 2**20, 20
"""Bytes that reading may take beside `FACTOR` times what is read."""
SECONDS = 60
"""Of a busy machine; each run here takes a second or two."""


def driver(directory: Path, steps: int, length: int = MS) -> None:
    """A driver with steps that follow each other."""
    made = MadeLedger(directory, "Runner", role="driver")
    for step in range(steps):
        made.step(step, step * length, (step + 1) * length)
    made.write()


def long_spans(directory: Path) -> None:
    """Calls that last for all steps."""
    driver(directory, 500)
    worker = MadeLedger(directory)
    place, track = worker.place("work"), worker.track()
    worker.spans([(place, track, 1 + each, 500 * MS - each) for each in range(5_000)])
    worker.write()


def chain(directory: Path) -> None:
    """Each scope inside the one before."""
    driver(directory, 10)
    worker = MadeLedger(directory)
    track, depth = worker.track(), 5_000
    entries = [{"id": each + 1, "parent": each, "key": "scope"} for each in range(depth)]
    worker._json("plac", *entries)
    worker.spans([(each + 1, track, each, 9 * MS - each) for each in range(depth)])
    worker.write()


def long_names(directory: Path) -> None:
    """One scope of a long name around many."""
    driver(directory, 10)
    worker = MadeLedger(directory)
    track, places = worker.track(), 2_000
    names = [{"id": 1, "parent": 0, "key": "x" * 100_000}]
    worker._json("plac", *names, *({"id": n, "parent": 1, "key": str(n)} for n in range(2, places)))
    worker.spans([(each, track, each * 100, each * 100 + 50) for each in range(2, places)])
    worker.write()


def one_key(directory: Path) -> None:
    """Every call waits for, releases, and meets at one key."""
    driver(directory, 4, 100 * MS)
    for rank in range(4):
        worker = MadeLedger(directory, rank=rank)
        place, track = worker.place("ray.get"), worker.track()
        rows = [(place, track, 1000 * each + rank, 1000 * each + 900) for each in range(2_000)]
        worker.spans(rows)
        for role in (WAITS, RELEASES, MEETS):
            worker.links([(*row, "key", role) for row in rows])
        worker.write()


def many_workers(directory: Path) -> None:
    """Many steps, and many workers that do nothing."""
    driver(directory, 5_000)
    for rank in range(400):
        MadeLedger(directory, rank=rank).write()


def brackets(directory: Path) -> None:
    """An event with lists in lists."""
    driver(directory, 10)
    worker = MadeLedger(directory)
    lists = b",".join([b"[" * 300 + b"]" * 300] * 6_000)
    worker._add("evnt", b'[{"event": "note", "time": 1, "about": [%b]}]' % lists)
    worker.write()


def window_events(directory: Path) -> None:
    """A worker that opens windows and closes none."""
    driver(directory, 10)
    worker, session = MadeLedger(directory), directory / "node-0" / "A-0.start-1.json"
    events = [
        {"event": "window", "time": each, "number": each, "label": f"{each}", "state": "opening"}
        for each in range(50_000)
    ]
    worker._json("evnt", *events)
    worker.write()
    session.write_text(json.dumps(session_file(window_entry())))


def open_steps(directory: Path) -> None:
    """Steps that do not end, among many events."""
    made = MadeLedger(directory, "Runner", role="driver")
    made._json("evnt", *({"event": "note", "time": each} for each in range(50_000)))
    made._add("step", b"".join(written.STEP.pack(each, each * 1000, 1) for each in range(20_000)))
    made.write()


RUNS = [long_spans, chain, long_names, one_key, many_workers, brackets]


def explained(directory: Path) -> str:
    """What ``gpuprof explain`` says of a run."""
    try:
        with within(SECONDS):
            return as_json(answer_of(str(directory)))
    except GpuprofError as error:
        return str(error)


@pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)
def test_reading_takes_memory_in_proportion_to_what_is_read(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    """A small run from a stranger is explained, or refused with a sentence."""
    make(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*.ledger"))
    tracemalloc.start()
    try:
        explained(tmp_path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most <= CONSTANT + FACTOR * size


@pytest.mark.parametrize("command", ["explain", "html", "timeline"])
@pytest.mark.parametrize("make", [window_events, open_steps], ids=lambda make: make.__name__)
def test_many_events_take_time_in_proportion(
    make: Callable[[Path], None], command: str, tmp_path: Path
) -> None:
    """No event is held against all others."""
    make(tmp_path)
    with within(SECONDS):
        done = CliRunner().invoke(main, [command, str(tmp_path)])
    # steps that do not end explain nothing
    assert done.exit_code == 2 * (make is open_steps and command == "explain"), done.output


def test_a_run_with_thousands_of_waits_is_refused(tmp_path: Path) -> None:
    """Each name of a scope would be held against each of them."""
    driver(tmp_path, 10)
    waits = {"waits": {f"*{each}*": "barrier" for each in range(3_000)}}
    (tmp_path / "run.json").write_text(json.dumps(run_file(tmp_path.name, config=waits)))
    said = "/run.json: config.waits: 3,000 entries are not valid; expected at most 200"
    assert f"{tmp_path}{said}" == explained(tmp_path)


def test_a_hole_in_a_ledger_is_not_read(tmp_path: Path) -> None:
    """A block of zeros that takes no room on the disk takes none in memory, either."""
    made = MadeLedger(tmp_path)
    made.step(1, 0, 10)
    path, zeros = made.write(), 60 * 2**20
    before = path.stat().st_size
    with open(path, "ab") as file:
        content = zlib.crc32(bytes(zeros), zlib.crc32(b"clck"))
        file.write(BLOCK.pack(b"clck", zeros, content))
        end = file.tell() + zeros
    os.truncate(path, end)
    tracemalloc.start()
    try:
        ledger = read(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (True, end - before) == (most < zeros // 2, ledger.damaged)


def test_steps_that_cross_are_found_in_one_pass(tmp_path: Path) -> None:
    """Steps that all begin before any of them ends, in the order in which they began."""
    made, steps = MadeLedger(tmp_path, "Runner", role="driver"), 30_000
    begins = [written.STEP.pack(number, number, 1) for number in range(steps)]
    ends = [written.STEP.pack(number, steps + number, 0) for number in range(steps)]
    made._add("step", b"".join(begins + ends))
    ledger = read(made.write())
    with within(SECONDS):
        assert [0] == [step.number for step in ledger.steps() if step.end is not None]
