"""`gpuprof timeline` in the engine of ui.perfetto.dev: every span once, on the right track."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof._cli import main
from gpuprof._report import timeline
from gpuprof.errors import ConfigError, OutputError
from support.made_ledgers import BEGAN, MEETS, RELEASES, WAITS, MadeLedger
from support.made_stacks import Frame, write_stacks
from support.perfetto_engine import TraceProcessor
from support.run_files import run_file, session_file, window_entry
from support.simulated_run import SimulatedLedger, write_run

COMPLAINTS = "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'"
SLICES = """
    SELECT coalesce(above.name, '') AS above, around.name AS around, track.name AS track,
           slice.name AS slice, slice.ts - {began} AS start, slice.ts + slice.dur - {began} AS end,
           slice.depth AS depth
    FROM slice JOIN track ON track.id = slice.track_id
    LEFT JOIN track AS around ON around.id = track.parent_id
    LEFT JOIN track AS above ON above.id = around.parent_id ORDER BY slice.ts, slice.depth
"""
ARROWS = """
    SELECT around.name AS source, source.name AS mark, source.ts - {began} AS begin,
           inside.name AS target, target.name AS other, target.ts - {began} AS end FROM flow
    JOIN slice AS source ON source.id = slice_out JOIN slice AS target ON target.id = slice_in
    JOIN slice AS around ON around.id = source.parent_id
    JOIN slice AS inside ON inside.id = target.parent_id
"""
Opened = Callable[..., TraceProcessor]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory."""
    return tmp_path / "run"


@pytest.fixture
def opened(run: Path, tmp_path: Path) -> Opened:
    """Writes the run's timeline and opens it, as the page does."""

    def open_it(*steps: int) -> TraceProcessor:
        output = tmp_path / "timeline.gz"
        timeline.write(run, output, *steps)
        processor = TraceProcessor(output.read_bytes())
        assert [] == processor.query(COMPLAINTS)
        return processor

    return open_it


def slices(processor: TraceProcessor) -> list[tuple[Any, ...]]:
    """The slices: node, process, track, name, start, end, depth. Times count from `BEGAN`."""
    return processor.query(SLICES.format(began=BEGAN))


def arrows(processor: TraceProcessor) -> list[tuple[Any, ...]]:
    """The arrows: slice, text and time, of both ends."""
    return sorted(processor.query(ARROWS.format(began=BEGAN)))


def test_rounds_of_the_drivers_calls_are_steps(run: Path, opened: Opened) -> None:
    """Where nobody marks any, with the numbers that `gpuprof explain` gives them."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for number in range(12):
        begin = 100 * number
        for method, start in (("A.sample", begin), ("A.train", begin + 50)):
            key = f"{method}-{number}"
            driver.sent(start, start + 1, key)
            driver.span("ray.get", start + 2, start + 40, waits=[key])
            worker.span(method, start + 1, start + 39, releases=[key])
    write_run(run, [driver, worker])
    found = opened(3, 3).query(
        "SELECT slice.name, slice.dur FROM slice JOIN track ON track.id = slice.track_id "
        "WHERE track.name = 'steps' ORDER BY slice.ts"
    )
    assert ("step 3", 100) in found
    with pytest.raises(ConfigError, match="step 99: not in this run; it has steps 0 to 10"):
        opened(99, 99)


def test_what_a_process_used_is_drawn_as_curves(run: Path, opened: Opened) -> None:
    """By the second: processors, memory and what its thread waited; of the machine, its load."""
    worker, second = SimulatedLedger("A-0"), 10**9
    worker.span("work", 0, 4 * second)
    for time in range(5):
        worker.main.append((time * second, 0, time * second // 4))
        worker.usage.append(
            {
                "time": time * second,
                "processor": 2 * time * second,
                "resident": (1 + time) * 10**9,
                "faults": 3 * time,
                "runnable": 7,
            }
        )
    write_run(run, [worker])
    curves = opened().query(
        "SELECT around.name AS around, track.name AS track, min(counter.value) AS least, "
        "max(counter.value) AS most, count(*) AS points "
        "FROM counter JOIN track ON track.id = counter.track_id "
        "JOIN track AS around ON around.id = track.parent_id GROUP BY track.id ORDER BY track.name"
    )
    assert [
        ("A-0", "memory, GB", 1.0, 5.0, 5),
        ("A-0", "page faults from a disk, 1/s", 3.0, 3.0, 5),
        ("A-0", "processors in use", 2.0, 2.0, 5),
        ("node-0", "threads that run or are ready to", 7.0, 7.0, 5),
        ("A-0", "waits for a processor, %", 25.0, 25.0, 5),
    ] == curves


def write_samples(run: Path) -> None:
    """A thread that reads two files and one thread that waits for work."""
    made = MadeLedger(run)
    main, pool = made.track(), made.track("pool", 2)
    made.spans([(made.place("load"), main, 0, 50)])
    train: Frame = ("train", "__main__", "/job/train.py", 12)
    loads: Frame = ("loads", "json", "/usr/lib/python3.11/json/__init__.py", 346)
    own: Frame = ("wait", "gpuprof._session.public", "/gpuprof/public.py", 1)
    wait: Frame = ("_worker", "concurrent.futures.thread", "/usr/lib/python3.11/thread.py", 81)
    stretches = [
        ([train, loads], main, 0, 20),
        ([wait], pool, 0, 50),
        ([train], main, 20, 30),
        ([train, own, loads], main, 30, 40),
        ([train], main, 45, 50),
    ]
    samples = [(stack, track, 0, 1, start, end) for stack, track, start, end in stretches]
    write_stacks(made.write(), samples)


def test_stacks_are_a_track_of_their_thread(run: Path, opened: Opened) -> None:
    """A function lasts while samples in a row see it; a thread that waits for work has no track."""
    write_samples(run)
    assert [
        ("train (train.py:12)", 0, 40, 0),
        ("json.loads (json/__init__.py:346)", 0, 20, 1),
        ("json.loads (json/__init__.py:346)", 30, 40, 1),
        ("train (train.py:12)", 45, 50, 0),
    ] == [row[3:] for row in slices(opened()) if row[2].endswith("stacks")]


def test_the_longest_slices_of_stacks_are_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a note counts those that are left out."""
    monkeypatch.setattr(timeline, "_MOST_SAMPLED", 2)
    monkeypatch.setattr(timeline, "_FEWEST_SAMPLED", 0)
    write_samples(run)
    written = timeline.write(run, tmp_path / "timeline.gz")
    assert ["2 short slices of stacks are left out; fewer steps show them: see --steps"] == [
        note for note in written.notes if "stacks" in note
    ]


def test_every_span_is_there_once_on_its_thread(run: Path, opened: Opened) -> None:
    """Workers are in their node's group, and threads in their worker's."""
    for rank in range(2):
        made = MadeLedger(run, rank=rank, node=f"node-{rank}")
        main, other = made.track(), made.track("loader", 2)
        train, forward = made.place("train"), made.place("train", "forward")
        made.spans([(forward, main, 10, 20), (forward, main, 20, 30), (train, main, 0, 40)])
        made.spans([(made.place("load"), other, 5, 35)])
        made.write()
    expected = [
        ("train", "MainThread", 0, 40, 0),
        ("load", "loader", 5, 35, 0),
        ("forward", "MainThread", 10, 20, 1),
        ("forward", "MainThread", 20, 30, 1),
    ]
    assert Counter(
        (f"node-{rank}", f"A-{rank}", track, name, *times)
        for rank in range(2)
        for name, track, *times in expected
    ) == Counter(slices(opened()))


def test_what_overlaps_without_nesting_keeps_its_length(run: Path, opened: Opened) -> None:
    """Spans of a generator that outlive what is around them go to a further track of the name."""
    made = MadeLedger(run)
    first, second, main = made.place("first"), made.place("second"), made.track()
    made.spans([(first, main, 0, 20), (second, main, 10, 30)])
    made.write()
    assert [
        ("node-0", "A-0", "MainThread", "first", 0, 20, 0),
        ("node-0", "A-0", "MainThread", "second", 10, 30, 0),
    ] == slices(opened())


def test_a_span_without_length_stays_inside(run: Path, opened: Opened) -> None:
    """A call that took less than the clock's tick is in its parent."""
    made = MadeLedger(run)
    outer, inner, main = made.place("outer"), made.place("outer", "inner"), made.track()
    made.spans([(inner, main, 0, 0), (inner, main, 10, 10), (outer, main, 0, 20)])
    made.write()
    assert [("outer", 0), ("inner", 1), ("inner", 1)] == [
        (found[3], found[6]) for found in slices(opened())
    ]


def test_tasks_of_one_thread_do_not_nest_in_each_other(run: Path, opened: Opened) -> None:
    """Each task has a track; all of a thread's have one row on the screen."""
    made = MadeLedger(run)
    place = made.place("generate")
    tasks = [made.track(task=True), made.track(task=True)]
    made.spans([(place, tasks[0], 0, 30), (place, tasks[1], 10, 20)])
    made.write()
    processor = opened()
    assert [
        ("node-0", "A-0", "MainThread, tasks", "generate", 0, 30, 0),
        ("node-0", "A-0", "MainThread, tasks", "generate", 10, 20, 0),
    ] == slices(processor)
    groups = processor.query("SELECT DISTINCT track_group_id FROM track WHERE name LIKE '%tasks'")
    assert 1 == len(groups)


def test_tasks_that_are_cut_keep_their_row(run: Path, opened: Opened) -> None:
    """Also where a step is shown that they outlive, and for calls that are folded."""
    driver = MadeLedger(run, "Runner", role="driver")
    driver.step(1, 10, 20)
    driver.write()
    made = MadeLedger(run)
    place, main = made.place("generate"), made.track()
    made.spans([(place, main, 12, 13)])
    for _ in range(2):
        task = made.track(task=True)
        made.spans([(place, task, 0, 30)])
        made.folds([(place, task, 0, 30, 2, 30)])
    made.write()
    groups = opened(1, 1).query("SELECT name, track_group_id AS number FROM track")
    numbers = {name: {number for other, number in groups if other == name} for name, _ in groups}
    assert [1, 1] == [len(numbers[f"MainThread, tasks{more}"]) for more in ("", ", folded")]
    rows = ("steps", "MainThread", "MainThread, tasks", "MainThread, tasks, folded")
    assert 4 == len(set.union(*(numbers[name] for name in rows)))


def test_folded_calls_are_one_slice_that_says_how_many(run: Path, opened: Opened) -> None:
    """Beside their thread: where they lie exactly is not known."""
    made = MadeLedger(run)
    made.folds([(made.place("decode"), made.track(), 0, 2 * 10**9, 284, 1_200_000_000)])
    made.write()
    name = "decode \N{MULTIPLICATION SIGN}284, busy 1.2 s"
    assert [("node-0", "A-0", "MainThread, folded", name, 0, 2 * 10**9, 0)] == slices(opened())


def test_a_scope_that_never_ended_is_marked(run: Path, opened: Opened) -> None:
    """It lasts until the last thing that the ledger knows. One that has ended is shown once."""
    made = MadeLedger(run)
    loop, train, main = made.place("loop"), made.place("loop", "train"), made.track()
    made.still_open([(loop, 5), (train, 10)])
    made.spans([(train, main, 10, 90)])
    made.write()
    assert [
        ("node-0", "A-0", "unfinished", "loop (unfinished)", 5, 90, 0),
        ("node-0", "A-0", "MainThread", "train", 10, 90, 0),
    ] == slices(opened())


def test_the_garbage_collector_s_runs_have_a_track(run: Path, opened: Opened) -> None:
    """It stops all threads, whichever runs it."""
    made = MadeLedger(run)
    made.spans([(made.place("train"), made.track(), 0, 40)])
    made.collections([(2, 10, 30)])
    made.write()
    assert ("node-0", "A-0", "garbage collection", "generation 2", 10, 30, 0) in slices(opened())


def test_windows_with_their_opening_and_closing(run: Path, opened: Opened) -> None:
    """The profiler's own work is seen; a window of a killed worker is not closed."""
    made = MadeLedger(run)
    states = ("opening", 0), ("open", 10), ("closing", 50), ("closed", 70)
    for state, time in states:
        made.event("window", time, number=1, label="step-3", state=state)
    made.event("window", 80, number=2, label="step-4", state="opening")
    made.event("window", 90, number=2, label="step-4", state="open")
    made.write()
    assert [
        ("window step-3", 0, 70, 0),
        ("opening", 0, 10, 1),
        ("closing", 50, 70, 1),
        ("window step-4 (not closed)", 80, 90, 0),
        ("opening", 80, 90, 1),
    ] == [found[3:] for found in slices(opened())]


def test_the_driver_s_steps_stand_above_everything(run: Path, opened: Opened) -> None:
    """They are a track of no node, the first of all."""
    driver = MadeLedger(run, "Runner", role="driver", node="node-9")
    driver.step(7, 0, 100)
    driver.step(8, 100, None)
    driver.event("end", 130)
    driver.write()
    for node in ("node-1", "node-9"):
        made = MadeLedger(run, node=node)
        made.spans([(made.place("train"), made.track(), 200, 300)])
        made.write()
    processor = opened()
    assert [
        ("", None, "steps", "step 7", 0, 100, 0),
        ("", None, "steps", "step 8", 100, 130, 0),
    ] == slices(processor)[:2]
    order = """
        SELECT name FROM track LEFT JOIN args ON args.arg_set_id = track.source_arg_set_id
        AND key = 'sibling_order_rank' WHERE parent_id IS NULL ORDER BY int_value
    """
    assert [("steps",), ("node-9",), ("node-1",)] == processor.query(order)


def three_steps(run: Path, **more: Any) -> None:
    """A driver with steps 4 to 6, of 100 ns each, and a worker that trains in each."""
    driver = MadeLedger(run, "Runner", role="driver")
    worker = MadeLedger(run, **more)
    loop, train, main = worker.place("loop"), worker.place("loop", "train"), worker.track()
    for step in (4, 5, 6):
        begin = 100 * (step - 4)
        driver.step(step, begin, begin + 99)
        worker.spans([(train, main, begin + 10, begin + 90)])
    worker.spans([(loop, main, 0, 300)])
    driver.write()
    worker.write()


def test_one_step(run: Path, opened: Opened) -> None:
    """What is longer is cut, and says how long it is."""
    three_steps(run)
    processor = opened(5, 5)
    assert [("loop", 100, 199), ("step 5", 100, 199), ("train", 110, 190)] == sorted(
        found[3:6] for found in slices(processor)
    )
    about = """
        SELECT args.key AS key, args.real_value AS value FROM slice
        JOIN args ON args.arg_set_id = slice.arg_set_id WHERE slice.name = 'loop'
    """
    assert {
        "debug.whole seconds": 300e-9,
        "debug.began before, seconds": 100e-9,
    } == dict(processor.query(about))


def test_several_steps(run: Path, opened: Opened) -> None:
    """From the first to the last."""
    three_steps(run)
    assert [110, 210] == [found[4] for found in slices(opened(5, 6)) if found[3] == "train"]


def test_a_step_that_is_not_there(run: Path, tmp_path: Path) -> None:
    """The message says which there are."""
    three_steps(run)
    with pytest.raises(ConfigError, match="step 9: not in this run; it has steps 4 to 6"):
        timeline.write(run, tmp_path / "timeline.gz", 9, 9)


def test_workers_that_count_their_own_steps(run: Path, opened: Opened) -> None:
    """Without a driver a step lasts from its first worker's beginning to its last one's end."""
    for rank in range(2):
        made = MadeLedger(run, rank=rank)
        place, main = made.place("train"), made.track()
        for step in range(2):
            begin = 100 * step + 10 * rank
            made.step(step, begin, begin + 95)
            made.spans([(place, main, begin, begin + 95)])
        made.write()
    found = [row[2:6] for row in slices(opened(0, 0)) if row[1] == "A-1"]
    assert [
        ("MainThread", "train", 10, 105),
        ("steps", "step 0", 10, 105),
    ] == sorted(found)


def test_nodes_are_on_one_line_of_time(run: Path, opened: Opened) -> None:
    """A node whose monotonic clock began elsewhere is moved to where it belongs."""
    for node, began, start in (("node-0", BEGAN, 100), ("node-1", BEGAN - 5000, 5100)):
        made = MadeLedger(run, node=node, began=began)
        made.spans([(made.place("train"), made.track(), start, start + 50)])
        made.write()
    assert [("node-0", 100, 150), ("node-1", 100, 150)] == sorted(
        (found[0], *found[4:6]) for found in slices(opened())
    )


def test_clocks_that_nobody_compared_are_named(run: Path, tmp_path: Path) -> None:
    """A reader must know that two nodes may be apart."""
    for node in ("node-0", "node-1"):
        MadeLedger(run, node=node).write()
    (note,) = timeline.write(run, tmp_path / "timeline.gz").notes
    assert note.startswith("node-1: the clock was not compared with the others")


def test_an_arrow_from_what_releases_to_what_waits(run: Path, opened: Opened) -> None:
    """From end to end, at the wait with the same key and at no other."""
    driver = MadeLedger(run, "Runner", role="driver")
    get, main = driver.place("get"), driver.track()
    driver.spans([(get, main, 0, 60), (get, main, 70, 90)])
    driver.links([(get, main, 0, 60, "ray:1", WAITS), (get, main, 70, 90, "ray:2", WAITS)])
    driver.write()
    worker = MadeLedger(run)
    train, main = worker.place("train"), worker.track()
    worker.spans([(train, main, 10, 50)])
    worker.links([(train, main, 10, 50, "ray:1", RELEASES)])
    worker.write()
    assert [("train", "releases Runner", 50, "get", "released by A-0", 60)] == arrows(opened())


def test_arrows_of_a_collective_come_from_whoever_was_last(run: Path, opened: Opened) -> None:
    """The last that begins releases all others."""
    for rank, begin in enumerate((10, 40, 20)):
        made = MadeLedger(run, rank=rank)
        row = (made.place(f"barrier of {rank}"), made.track(), begin, 50 + rank)
        made.spans([row])
        made.links([(*row, "dist:world:7", MEETS)])
        made.write()
    source = "barrier of 1", "releases A-0, A-2", 40
    assert [
        (*source, "barrier of 0", "released by A-1", 50),
        (*source, "barrier of 2", "released by A-1", 52),
    ] == arrows(opened())


def test_a_key_that_comes_again_is_another_meeting(run: Path, opened: Opened) -> None:
    """As in every step, where the job has no number for its barrier."""
    for rank in range(2):
        made = MadeLedger(run, rank=rank)
        place, main = made.place("barrier"), made.track()
        for step in range(2):
            row = (place, main, 100 * step + 10 * rank, 100 * step + 50)
            made.spans([row])
            made.links([(*row, "barrier", MEETS)])
        made.write()
    assert [(10, "released by A-1", 50), (110, "released by A-1", 150)] == [
        found[2:3] + found[4:] for found in arrows(opened())
    ]


def test_an_arrow_never_goes_back_in_time(run: Path, opened: Opened) -> None:
    """Clocks that are wrong by more than the wait make no arrow, and nothing is lost."""
    for node, role, began in (("node-0", WAITS, BEGAN), ("node-1", RELEASES, BEGAN + 1000)):
        made = MadeLedger(run, node=node, began=began)
        row = (made.place("exchange"), made.track(), 0, 50)
        made.spans([row])
        made.links([(*row, "key", role)])
        made.write()
    processor = opened()
    assert [] == arrows(processor)
    assert 2 == len(slices(processor))


def test_a_restarted_worker_has_a_group_for_each_start(run: Path, opened: Opened) -> None:
    """Both are named by their start."""
    for start in ("1", "2"):
        made = MadeLedger(run, incarnation=start)
        made.path = made.path.with_name(f"A-0.start-{start}.ledger")
        made.spans([(made.place("train"), made.track(), 0, 10)])
        made.write()
    assert ["A-0 (start 1)", "A-0 (start 2)"] == sorted(found[1] for found in slices(opened()))


def test_what_was_thinned_is_said_where_it_happened(run: Path, opened: Opened) -> None:
    """A moment in the worker's group."""
    made = MadeLedger(run)
    made.event("thinned", 50, depth=3, why="bytes_per_step: 3000 bytes are used up")
    made.write()
    (found,) = slices(opened())
    assert "only sums from level 3 on: bytes_per_step: 3000 bytes are used up" == found[3]


def test_a_damaged_ledger_is_shown_as_far_as_it_can_be_read(run: Path, tmp_path: Path) -> None:
    """The timeline says what is left out."""
    made = MadeLedger(run)
    made.spans([(made.place("train"), made.track(), 0, 10)])
    made.content += b"spanxxxxxxxxxxxx"
    made.write()
    found = timeline.write(run, tmp_path / "timeline.gz")
    assert 1 == found.slices
    assert [f"{made.path}: its last 16 bytes are damaged and left out"] == found.notes


def test_what_is_no_ledger_is_named(run: Path, tmp_path: Path) -> None:
    """The others are shown."""
    three_steps(run)
    (run / "node-0" / "B-0.start-1.ledger").write_text("hello\n")
    found = timeline.write(run, tmp_path / "timeline.gz")
    assert [f"{run}/node-0/B-0.start-1.ledger: ignored: not a ledger"] == found.problems
    assert 2 == found.processes


def test_a_directory_with_nothing_to_show(tmp_path: Path) -> None:
    """An error, and no file."""
    with pytest.raises(ConfigError, match="nothing to show"):
        timeline.write(tmp_path, tmp_path / "timeline.gz")
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written(run: Path, tmp_path: Path) -> None:
    """The error has the reason."""
    three_steps(run)
    with pytest.raises(OutputError, match="cannot be written: No such file or directory"):
        timeline.write(run, tmp_path / "missing" / "timeline.gz")


# What a profiler recorded

READER = """
import json
from gpuprof.backend import RecordedTrack, hookimpl

class Reader:
    @hookimpl
    def read_ranges(self, path):
        return None

    @hookimpl
    def read_spans(self, path):
        if not path.endswith(".spans"):
            return None
        with open(path) as file:
            return [
                RecordedTrack(kind, [tuple(span) for span in spans], *where)
                for kind, spans, *where in json.load(file)
            ]
"""
RANGES = [(100, 130), (300, 390), (500, 520), (900, 960)]
"""Milliseconds."""
REPORT = "A-0.step-3.spans"


@pytest.fixture
def recorded_by_both(run: Path, install: Callable[..., str]) -> Callable[[int], None]:
    """Makes a worker, whose scopes and ranges are the same, and a GPU's kernel inside of one.

    The argument is by how many milliseconds the profiler's clock is ahead.
    """
    install(READER, reader="Reader")

    def make(wrong_by: int) -> None:
        made = MadeLedger(run)
        place, main = made.place("train"), made.track()
        made.spans((place, main, start * 10**6, end * 10**6) for start, end in RANGES)
        made.clock(50 * 10**6, BEGAN + 50 * 10**6)
        made.write()
        window = window_entry(
            files=[f"/was/{REPORT}"],
            seconds=0.3,
            opened=BEGAN / 1e9 + 0.2,
            closed=BEGAN / 1e9 + 0.6,
        )
        session = session_file(window, run="run", group="A", rank=0)
        (run / "node-0" / "A-0.start-1.json").write_text(json.dumps(session))
        (run / "node-0" / ".gpuprof").mkdir()
        (run / "run.json").write_text(json.dumps(run_file("run", config={"backend": "reader"})))
        zero = BEGAN + wrong_by * 10**6
        ranges = [("train", zero + start * 10**6, zero + end * 10**6) for start, end in RANGES[1:3]]
        work = zero + 310 * 10**6, zero + 320 * 10**6
        tracks = [
            ("ranges", ranges, 1000, 1000),
            ("kernels", [("gemm", *work)], 0, 0, "GPU 0, stream 7"),
            ("OS runtime", [("poll", *work)], 1000, 4321),
        ]
        (run / "node-0" / REPORT).write_text(json.dumps(tracks))

    return make


SHOWN = [
    ("node-0", "A-0", "GPU 0, stream 7: kernels", "gemm", 310, 320),
    ("node-0", "A-0", "MainThread: ranges", "train", 300, 390),
    ("node-0", "A-0", "MainThread: ranges", "train", 500, 520),
    ("A-0", "OS runtime", "thread 4321", "poll", 310, 320),
]


def of_the_profiler(processor: TraceProcessor) -> list[tuple[Any, ...]]:
    """Two groups, track, name, and milliseconds of what has not the ledger's tracks."""
    found = [(*row[:4], row[4] / 1e6, row[5] / 1e6) for row in slices(processor)]
    return sorted((row for row in found if row[2] != "MainThread"), key=lambda row: row[2])


def test_what_a_profiler_recorded_is_in_its_worker(
    recorded_by_both: Callable[[int], None], opened: Opened
) -> None:
    """Ranges and calls are named by their thread, the GPU's work by its stream."""
    recorded_by_both(0)
    assert SHOWN == of_the_profiler(opened())


def test_a_profiler_whose_clock_is_wrong_is_corrected(
    run: Path, recorded_by_both: Callable[[int], None], opened: Opened, tmp_path: Path
) -> None:
    """By the ranges that the ledger has, too; the command and the file say by how much."""
    recorded_by_both(250)
    assert SHOWN == of_the_profiler(opened())
    note = f"{REPORT}: the profiler's clock is 250.000 ms ahead of the ledger's"
    assert [f"{note}; shown by the ledger's"] == timeline.write(run, tmp_path / "again").notes


def test_a_millisecond_is_not_corrected(
    run: Path, recorded_by_both: Callable[[int], None], tmp_path: Path
) -> None:
    """Nothing is said of clocks that agree within it."""
    recorded_by_both(1)
    assert [] == timeline.write(run, tmp_path / "timeline.gz").notes


def test_a_report_without_a_ledger(
    run: Path, recorded_by_both: Callable[[int], None], opened: Opened
) -> None:
    """It is shown by the wall clock of its node."""
    recorded_by_both(0)
    (run / "node-0" / "A-0.start-1.ledger").unlink()
    found = of_the_profiler(opened())
    assert {"GPU 0, stream 7: kernels", "process 1000, thread 1000: ranges"} == {
        row[2] for row in found if row[1] == "A-0"
    }
    assert [row[3:] for row in SHOWN] == [row[3:] for row in found]


def test_reports_of_other_steps_are_not_read(
    run: Path, recorded_by_both: Callable[[int], None], opened: Opened
) -> None:
    """Reading takes long: a window that had closed before the steps is left out."""
    recorded_by_both(0)
    (run / "node-0" / REPORT).write_text("would be an error")
    driver = MadeLedger(run, "Runner", role="driver")
    driver.step(9, 800 * 10**6, 10**9)
    driver.write()
    assert ["step 9", "train"] == sorted(found[3] for found in slices(opened(9, 9)))


# The command


def gpuprof(*words: str) -> Result:
    """`gpuprof timeline`."""
    return CliRunner().invoke(main, ["timeline", *words])


def test_the_command_says_what_it_wrote(run: Path) -> None:
    """By default beside the run's other files, named by the steps."""
    three_steps(run)
    done = gpuprof(str(run), "--steps", "4:6")
    assert 0 == done.exit_code, done.output
    file = run / "timeline.steps-4-5.perfetto.gz"
    assert done.stdout.startswith(f"{file}: 0.000 s of 2 processes in 5 slices, ")
    assert done.stdout.endswith("; open it in https://ui.perfetto.dev\n")
    assert file.read_bytes().startswith(b"\x1f\x8b")


def test_the_latest_run(run: Path) -> None:
    """Without an argument, and the command says which that is."""
    three_steps(run)
    (run / "run.json").write_text(json.dumps(run_file("run", config={"backend": "none"})))
    done = gpuprof("--output-dir", str(run.parent), "--step", "4")
    assert 0 == done.exit_code, done.output
    assert f"run: {run}\n" == done.stderr
    assert (run / "timeline.step-4.perfetto.gz").exists()


def test_a_broken_file_is_named_and_fails_the_command(run: Path) -> None:
    """The timeline of the others is written."""
    three_steps(run)
    (run / "node-0" / "B-0.start-1.ledger").write_text("hello\n")
    done = gpuprof(str(run), "-o", str(run / "here.gz"))
    assert 1 == done.exit_code
    assert f"{run}/node-0/B-0.start-1.ledger: ignored: not a ledger\n" == done.stderr
    assert (run / "here.gz").exists()


@pytest.mark.parametrize("steps", ["5", "6:5", "a:b", "-1:4", ":"])
def test_steps_that_are_none(run: Path, steps: str) -> None:
    """The message has the form that is expected."""
    three_steps(run)
    done = gpuprof(str(run), f"--steps={steps}")
    assert 2 == done.exit_code
    expected = f"gpuprof: --steps: {steps!r} is not valid; expected A:B with 0 <= A < B\n"
    assert expected == done.stderr


def test_without_the_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = gpuprof(str(run))
    assert 2 == done.exit_code
    assert "pip install perfetto" in done.stderr


def test_the_samples_that_were_done_last_come_first(
    run: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each step, with their phases inside them; the others are left out."""
    monkeypatch.setattr(timeline, "_MOST_SAMPLE_ROWS", 1)
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for number in range(2):
        begin = 100 * number
        driver.step(number, begin, begin + 100)
        worker.sample(f"{number}/short", "generate", begin + 1, begin + 20)
        worker.sample(f"{number}/long", "generate", begin + 1, begin + 80, tokens=7)
        worker.sample(f"{number}/long", "tool", begin + 10, begin + 30)
    write_run(run, [driver, worker])
    samples = opened().query(
        "SELECT slice.name, slice.dur, slice.depth FROM slice "
        "JOIN track ON track.id = slice.track_id WHERE track.name = 'done last' "
        "ORDER BY slice.ts, slice.depth"
    )
    assert [
        *(("0/long", 79, 0), ("generate", 79, 1), ("tool", 20, 2)),
        *(("1/long", 79, 0), ("generate", 79, 1), ("tool", 20, 2)),
    ] == samples
