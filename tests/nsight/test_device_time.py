"""GPU time of ranges: the sweep, against its definition and against nsys's own projection."""

from __future__ import annotations

import contextlib
import csv
import io
import random
import re
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof.backend import RangeTimes
from gpuprof_nsight import Report
from gpuprof_nsight._nsys.find import find
from support import cuda_tables
from support.cuda_tables import GRAPHS, RELEASES, fill, make, thread
from support.patient_nsys import profile
from support.waiting import DEADLINE

KINDS = {
    "kernels": "CUPTI_ACTIVITY_KIND_KERNEL",
    "copies": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memsets": "CUPTI_ACTIVITY_KIND_MEMSET",
    "synchronization": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
}
THREADS = [thread(process, number) for process in (100, 200) for number in (0, 1)]


@attrs.define
class Recorded:
    """What a made-up GPU has recorded.

    Args:
        ranges: start, end, thread, name and whether it was pushed.
        calls: start, thread and correlation.
        work: kind, start, end, process's thread and correlation.
    """

    ranges: list[tuple[int, int, int, str, bool]] = attrs.field(factory=list)
    calls: list[tuple[int, int, int]] = attrs.field(factory=list)
    work: list[tuple[str, int, int, int, int]] = attrs.field(factory=list)

    def write(self, database: Path) -> None:
        """Add everything to an export, in the order of the lists."""
        domains = [
            {"start": 0, "eventType": 75, "text": "gpuprof", "globalTid": one, "domainId": 1}
            for one in THREADS[::2]
        ]
        fill(database, "NVTX_EVENTS", domains)
        events = [
            {"start": start, "end": end, "eventType": 59 if pushed else 60, "text": name}
            | {"globalTid": of, "domainId": 1}
            for start, end, of, name, pushed in self.ranges
        ]
        fill(database, "NVTX_EVENTS", events)
        calls = [
            {"start": start, "end": start + 1, "globalTid": of, "correlationId": correlation}
            for start, of, correlation in self.calls
        ]
        fill(database, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)
        for kind, table in KINDS.items():
            rows = [
                {"start": start, "end": end, "globalPid": of & ~0xFFFFFF, "correlationId": number}
                for what, start, end, of, number in self.work
                if what == kind
            ]
            fill(database, table, rows)

    def device(self) -> dict[str, Counter[str]]:
        """By definition: a range has the work of each call of its thread that began in it."""
        found: dict[str, Counter[str]] = {}
        for start, end, of, name, _ in self.ranges:
            sums = found.setdefault(name, Counter())
            for began, caller, correlation in self.calls:
                if caller == of and start <= began < end:
                    for kind, begin, finish, process, number in self.work:
                        if number == correlation and process >> 24 == of >> 24:
                            sums[kind] += finish - begin
        return found


def by_name(times: list[RangeTimes]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for one in times:
        found.setdefault(one.name, Counter()).update(one.device)
    return found


def made_up(seed: int) -> Recorded:
    """Ranges that nest in their thread or are started and overlap, and calls at random."""
    choose = random.Random(seed)
    recorded = Recorded()

    def nest(begin: int, end: int, of: int, depth: int) -> None:
        while begin < end and depth < 4 and choose.random() < 0.8:
            start = choose.randrange(begin, end)
            begin = choose.randrange(start, end) + 1
            recorded.ranges.append((start, begin, of, choose.choice("abc"), True))
            nest(start, begin, of, depth + 1)

    for of in THREADS:
        nest(0, 60, of, 0)
    for _ in range(choose.randrange(20)):
        start = choose.randrange(60)
        end = start + choose.randrange(25)
        recorded.ranges.append((start, end, choose.choice(THREADS), choose.choice("xyz"), False))
    for correlation in range(choose.randrange(40)):
        call = choose.randrange(90), choose.choice(THREADS), correlation
        recorded.calls.append(call)
        for _ in range(choose.randrange(4)):  # a graph's launch has many kernels
            start = choose.randrange(100, 200)
            kind = choose.choice([*KINDS])
            recorded.work.append((kind, start, start + choose.randrange(20), call[1], correlation))
    return recorded


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("sort", [True, False])
def test_a_range_has_the_work_of_the_calls_that_began_in_it(
    tmp_path: Path, release: str, sort: bool
) -> None:
    """In any nesting, thread and order of rows; the definition looks at every pair."""
    for seed in range(20):
        recorded = made_up(seed)
        if sort:
            recorded.ranges.sort(key=lambda one: (one[0], -one[1]))
            recorded.calls.sort()
        database = tmp_path / f"{release}-{seed}.sqlite"
        make(database, release)
        recorded.write(database)
        found = by_name(Report(database).range_times("gpuprof"))
        expected = {name: +sums for name, sums in recorded.device().items()}
        assert expected == {name: +sums for name, sums in found.items()}, seed


@pytest.mark.parametrize("sort", [True, False])
def test_four_times_as_much_is_four_times_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: bool
) -> None:
    """Counted in steps of SQLite's machine, which do not depend on the computer."""
    connect, steps = sqlite3.connect, 0

    def counting(*given: Any, **more: Any) -> sqlite3.Connection:
        def count() -> None:
            nonlocal steps
            steps += 1

        connection = connect(*given, **more)
        connection.set_progress_handler(count, 100)
        return connection

    def work(ranges: int) -> int:
        nonlocal steps
        recorded = Recorded(
            [(10 * number, 10 * number + 9, THREADS[0], "step", True) for number in range(ranges)],
            [(5 * number + 1, THREADS[0], number) for number in range(2 * ranges)],
            [
                ("kernels", 5 * number, 5 * number + 3, THREADS[0], number)
                for number in range(2 * ranges)
            ],
        )
        if not sort:
            recorded.ranges.reverse()
        database = tmp_path / f"{ranges}.sqlite"
        make(database, RELEASES[-1])
        recorded.write(database)
        steps = 0
        monkeypatch.setattr(sqlite3, "connect", counting)
        (times,) = Report(database).range_times("gpuprof")
        monkeypatch.setattr(sqlite3, "connect", connect)
        assert 6 * ranges == times.device["kernels"]
        return steps

    assert 3 < work(4000) / work(1000) < 5


def test_a_graph_recorded_as_a_whole_belongs_to_its_launch(tmp_path: Path) -> None:
    """Newer releases of nsys have a table of graphs."""
    database = tmp_path / "graphs.sqlite"
    make(database, RELEASES[-1])
    of = THREADS[0]
    Recorded([(10, 20, of, "step", True)], [(15, of, 1)]).write(database)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(GRAPHS)
    row = {"start": 30, "end": 37, "correlationId": 1, "globalPid": of & ~0xFFFFFF}
    fill(database, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", [row])
    assert [RangeTimes("step", (10,), {"graphs": 7})] == Report(database).range_times("gpuprof")


def test_a_process_has_domains_of_its_own(tmp_path: Path) -> None:
    """The number of gpuprof's domain may be another domain's in another process."""
    database = tmp_path / "domains.sqlite"
    make(database, RELEASES[0])
    ours, others = thread(100), thread(200)
    Recorded([(10, 20, ours, "step", True), (10, 20, others, "step", True)]).write(database)
    named = {"start": 0, "eventType": 75, "text": "nccl", "globalTid": others, "domainId": 1}
    fill(database, "NVTX_EVENTS", [named])
    assert [RangeTimes("step", (10,))] == Report(database).range_times("gpuprof")
    assert [RangeTimes("step", (10,))] == Report(database).range_times("nccl")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nsys's own export of a program without a GPU, with all tables that nsys knows."""
    directory = tmp_path_factory.mktemp("empty")
    options = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none"]
    profile(["nsys", "profile", *options, "-o", str(directory / "report"), "true"])
    database = directory / "report.sqlite"
    command = ["nsys", "export", "-t", "sqlite", "--lazy=false", "-o", str(database)]
    subprocess.run(
        [*command, str(directory / "report.nsys-rep")], check=True, stdout=subprocess.DEVNULL
    )
    return database


@pytest.mark.nsys
def test_the_tables_are_those_of_nsys(empty: Path, tmp_path: Path) -> None:
    """The tests' tables have the columns that this release exports."""
    tool = find("nsys")
    assert tool is not None
    release = ".".join(str(tool.version).split(".")[:2])
    if release not in RELEASES:
        pytest.skip(f"no tables of nsys {release} in {cuda_tables.SCHEMAS}")
    make(tmp_path / "ours.sqlite", release)
    ours, theirs = cuda_tables.tables_of(tmp_path / "ours.sqlite"), cuda_tables.tables_of(empty)
    assert ours == {name: sql for name, sql in theirs.items() if name in ours}


def busy(threads: int) -> Recorded:
    """Nested ranges whose calls keep a stream of each thread busy without a gap.

    The time from the first work of a range to its last is then the sum of the work's times.
    """
    recorded = Recorded()
    choose = random.Random(1)
    correlation = 0
    for of in THREADS[:threads]:
        clock, device = 1_000, 50_000_000
        for _ in range(20):
            start = clock
            for name in ("forward", "backward"):
                begin = clock
                for _ in range(choose.randrange(1, 6)):
                    correlation += 1
                    recorded.calls.append((clock + 1, of, correlation))
                    kind = choose.choice(["kernels", "copies", "memsets"])
                    end = device + choose.randrange(1, 5_000)
                    recorded.work.append((kind, device, end, of, correlation))
                    clock, device = clock + 10, end
                clock += 5
                recorded.ranges.append((begin, clock, of, name, True))
            recorded.ranges.append((start, clock + 1, of, "step", True))
            clock += 100
    return recorded


@pytest.mark.nsys
def test_nsys_projects_the_same(empty: Path, tmp_path: Path) -> None:
    """nsys's own report scripts find the same ranges and the same GPU time."""
    database = tmp_path / "busy.sqlite"
    database.write_bytes(empty.read_bytes())
    recorded = busy(threads=4)
    recorded.ranges.sort(key=lambda one: (one[0], -one[1]))
    recorded.write(database)
    rows = projection(database)
    found = Report(database).range_times("gpuprof")
    assert {one.name: sum(one.durations) for one in found} == totals(rows, "Orig Duration")
    assert {one.name: sum(one.device.values()) for one in found} == totals(
        rows, "Projected Duration"
    )
    assert {one.name: len(one.durations) for one in found} == Counter(
        row["Name"].removeprefix("gpuprof:") for row in rows
    )


def projection(database: Path) -> list[dict[str, str]]:
    """The projection of each range, by whichever name this release has for the report."""
    said = ""
    for name in ("nvtx_gpu_proj_trace", "nvtxgpuproj"):
        command = ["nsys", "stats", "-q", "-r", name, "-f", "csv", "-o", "-", str(database)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        said += done.stdout + done.stderr
        begin = re.search(r"^Name,", done.stdout, re.MULTILINE)
        if begin:
            return list(csv.DictReader(io.StringIO(done.stdout[begin.start() :])))
    raise AssertionError(said)


def totals(rows: list[dict[str, str]], column: str) -> dict[str, int]:
    (key,) = (key for key in rows[0] if key.startswith(column))
    found: Counter[str] = Counter()
    for row in rows:
        found[row["Name"].removeprefix("gpuprof:")] += int(row[key])
    return dict(found)
