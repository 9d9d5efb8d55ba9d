"""Three nodes on one machine: windows on all of them, and their files at home."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof._artifacts.collect import CHUNK, Collection
from gpuprof._artifacts.ledger import ledgers
from gpuprof._artifacts.manifest import checksum
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import read_node
from gpuprof._report import timeline
from gpuprof._shim.ownership import note_owner
from gpuprof.ray import Profiler
from gpuprof.ray._nodes import Nodes
from support.cluster import places, several_nodes
from support.launching import config, start
from support.perfetto_engine import TraceProcessor
from support.report_reader import labels
from support.waiting import wait_until

pytestmark = pytest.mark.nsys


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes."""
    with several_nodes(3) as made:
        yield made


def test_the_doctor_visits_every_node(cluster: Any) -> None:
    """`gpuprof doctor --ray` runs the same checks on each node."""
    command = [
        sys.executable,
        "-m",
        "gpuprof",
        "doctor",
        "backend=nsight",
        "--ray",
        "--address",
        cluster.address,
        "--json",
    ]
    checks = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    )
    nodes = {check["node"] for check in checks}
    assert 3 == len(nodes)
    arrived = [
        check["node"] for check in checks if check["name"] == "nsight ranges" and check["ok"]
    ]
    assert sorted(nodes) == sorted(arrived)


def sha256(path: str | Path) -> str:
    """Of a file that fits into memory."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@attrs.frozen
class Finished:
    """A run of four workers on three nodes, with two windows.

    Args:
        directory: of the run.
        away: where the nodes keep their files during it.
    """

    directory: Path
    away: Path
    receipt: Receipt


@pytest.fixture(scope="module")
def four_workers(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """In each step all workers train and then meet."""
    import ray

    home, away = (tmp_path_factory.mktemp(name) for name in ("home", "away"))
    with Profiler(config(home, staging_dir=str(away))) as profiler:
        actors = [
            start(profiler, "ActorGroup", rank, **place)
            for rank, place in enumerate([*places(1), places(1)[-1]])
        ]
        for step in range(6):
            place = str(tmp_path_factory.mktemp("meeting"))
            with profiler.step(step):
                ray.get([actor.train.remote(step) for actor in actors])
                ray.get([actor.meet.remote(place, len(actors)) for actor in actors])
    return Finished(home / profiler.run, away, profiler.finalize())


def test_windows_on_four_workers_of_three_nodes(four_workers: Finished) -> None:
    """Eight reports come home from all nodes, and the manifest has their checksums."""
    receipt, directory = four_workers.receipt, four_workers.directory
    assert receipt.complete, receipt.table(all_rows=True)
    # actors that live on write their trees there again
    assert [] == list(four_workers.away.rglob("*.nsys-rep"))
    assert {str(directory)} == {str(Path(row.file).parents[1]) for row in receipt.rows}
    # a directory for each node
    count = Counter(Path(row.file).parent.name for row in receipt.rows)
    assert [2, 2, 4] == sorted(count.values())

    manifest = json.loads((directory / "manifest.json").read_text())
    assert [entry["sha256"] for entry in manifest["files"]] == [
        sha256(entry["file"]) for entry in manifest["files"]
    ]
    reports = [entry for entry in manifest["files"] if entry.get("window")]
    assert [("ActorGroup", 2), ("ActorGroup", 5)] * 4 == [
        (entry["group"], entry["step"]) for entry in reports
    ]
    for entry in reports:
        assert entry["window"] == f"step-{entry['step']}"
        assert entry["opened"] < entry["closed"]
        assert 3 == labels(entry["file"])[f"forward-{entry['step']}"]


@attrs.frozen
class Slices:
    """A timeline of the run above, as Perfetto's page sees it.

    Args:
        rows: node, worker, track, category, name, start and end of each slice.
        notes: what the command had to say.
    """

    rows: list[tuple[Any, ...]]
    notes: list[str]

    def of(self, category: str) -> list[tuple[Any, ...]]:
        """Those of a category, without it."""
        return [(*row[:3], *row[4:]) for row in self.rows if row[3] == category]


@pytest.fixture(scope="module")
def slices(four_workers: Finished, tmp_path_factory: pytest.TempPathFactory) -> Slices:
    """All of it."""
    output = tmp_path_factory.mktemp("timeline") / "timeline.gz"
    made = timeline.write(four_workers.directory, output)
    assert [] == made.problems
    processor = TraceProcessor(output.read_bytes())
    assert [] == processor.query(
        "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'"
    )
    return Slices(
        processor.query("""
            SELECT above.name AS node, around.name AS worker, track.name AS track, category,
            slice.name AS name, slice.ts AS start, slice.ts + slice.dur AS end
            FROM slice JOIN track ON track.id = slice.track_id
            LEFT JOIN track AS around ON around.id = track.parent_id
            LEFT JOIN track AS above ON above.id = around.parent_id
        """),
        made.notes,
    )


def test_every_span_is_once_in_the_timeline(four_workers: Finished, slices: Slices) -> None:
    """On its node, in its worker, on its thread, at its time."""
    found, problems = ledgers(four_workers.directory)
    assert [] == problems
    kept = Counter(
        (
            each.header["node"],
            each.name,
            each.tracks[track].name + (", tasks" if each.tracks[track].task else ""),
            each.places[place].key,
            start + each.offset,
            end + each.offset,
        )
        for each in found
        for place, track, start, end in each.spans.tolist()
    )
    assert 6 * 4 <= sum(1 for name in kept.elements() if name[3] == "barrier")
    assert kept == Counter(slices.of("scope"))


def test_steps_and_windows_are_in_the_timeline(slices: Slices) -> None:
    """The driver's steps once, the windows of each worker."""
    assert [f"step {step}" for step in range(6)] == [row[3] for row in slices.of("step")]
    names = Counter(row[3] for row in slices.of("window"))
    assert {"window step-2": 4, "window step-5": 4, "opening": 8, "closing": 8} == names


def test_all_leave_the_barrier_after_the_last_has_come(slices: Slices) -> None:
    """On one line of time, in every step."""
    barriers = sorted(row[4:] for row in slices.of("scope") if row[3] == "barrier")
    for step in range(6):
        here = barriers[4 * step : 4 * step + 4]
        assert max(start for start, _ in here) <= min(end for _, end in here)


def test_ranges_lie_where_their_scopes_are(slices: Slices) -> None:
    """Within a millisecond, by nsys's clock and by the ledger's; else the notes would say so."""
    assert [] == slices.notes
    scopes: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for _, worker, track, name, begun, _ in slices.of("scope"):
        scopes[worker, track, name].append(begun)
    apart = [
        min(abs(begun - scope) for scope in scopes[worker, track.partition(":")[0], name])
        for _, worker, track, name, begun, _ in slices.of("ranges")
        if not name.startswith("annotated")  # a range alone
    ]
    # in each window: training with its three passes, and the barrier
    assert 4 * 2 * 5 == len(apart)
    assert statistics.median(apart) < 1_000_000


def test_without_collecting_the_manifest_says_where_files_lie(cluster: Any, tmp_path: Path) -> None:
    """`collect: none` moves nothing, and lists node and path."""
    import ray

    away = tmp_path / "away"
    settings = config(tmp_path / "home", staging_dir=str(away), steps=[0], collect="none")
    with Profiler(settings) as profiler:
        actor = start(profiler, "ActorGroup", 0, **places(1)[1])
        with profiler.step(0):
            ray.get(actor.train.remote(0))
    (row,) = profiler.finalize().rows
    assert Path(row.file).is_relative_to(away)
    manifest = json.loads(Path(profiler.directory, "manifest.json").read_text())
    (entry,) = [entry for entry in manifest["files"] if entry.get("window")]
    assert row.node == entry["node"]
    assert row.file == entry["file"]
    assert sha256(row.file) == entry["sha256"]


def test_finished_reports_come_home_during_the_run(cluster: Any, tmp_path: Path) -> None:
    """With `collect_every` a report is home while the job still runs."""
    import ray

    home = tmp_path / "home"
    settings = config(
        home,
        staging_dir=str(tmp_path / "away"),
        steps=[0, 1],
        collect_every=1,
        nsight={"gate": "session"},
    )
    with Profiler(settings) as profiler:
        actor = start(profiler, "ActorGroup", 0, **places(1)[2])
        with profiler.step(0):
            ray.get(actor.train.remote(0))
        wait_until(lambda: list(home.rglob("*.nsys-rep")), "at home: the first window's report")
        with profiler.step(1):
            ray.get(actor.train.remote(1))
    receipt = profiler.finalize()
    assert ["complete", "complete"] == [row.state for row in receipt.rows]
    assert () == receipt.faults
    assert [{"forward-0": 3}, {"forward-1": 3}] == [
        {label: count for label, count in labels(row.file).items() if label.startswith("forward")}
        for row in receipt.rows
    ]


def test_a_large_file_needs_little_memory(cluster: Any, tmp_path: Path) -> None:
    """0.5 GB come home unchanged, using less than 256 MB of memory."""
    import ray

    nodes = Nodes()
    other = next(
        node
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] != ray.get_runtime_context().get_node_id()
    )
    away, home = tmp_path / "away", tmp_path / "home"
    directory = away / nodes.name(other)
    (directory / ".gpuprof").mkdir(parents=True)
    note_owner(str(directory / ".gpuprof"), {"home": str(home)})
    home.mkdir()
    with open(directory / "large.nsys-rep", "wb") as file:
        block = os.urandom(999_996)
        for number in range(500):
            file.write(number.to_bytes(4, "big") + block)
    expected = checksum(str(directory / "large.nsys-rep"))
    nodes.ask(read_node, str(away))  # what the first task costs is Ray's
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    collection = Collection(nodes, str(away), str(home), enabled=True)
    came: list[int] = []
    assert [] == collection.bring([read_node(str(away), nodes.name(other))], progress=came.append)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    (filed,) = collection.filed.values()
    assert expected.size == filed.size
    assert expected.sha256 == filed.sha256
    assert expected.sha256 == checksum(filed.file).sha256
    assert 500_000_000 == sum(came)
    assert max(came) <= CHUNK
    assert extra < 256_000_000
    assert [directory / ".gpuprof"] == list(directory.iterdir())


DRIVER = """
import os, signal, sys
import ray
from support.cluster import places
from gpuprof.ray import Profiler
from support.launching import config, start

address, home, away = sys.argv[1:]
ray.init(address=address, log_to_driver=False,
         runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
profiler = Profiler(config(home, staging_dir=away, steps=[0]))
actors = [start(profiler, "ActorGroup", rank, **place) for rank, place in enumerate(places(1))]
with profiler.step(0):
    ray.get([actor.train.remote(0) for actor in actors])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_collect_brings_what_a_dead_driver_left(cluster: Any, tmp_path: Path) -> None:
    """`gpuprof collect --ray` brings closed windows home and writes the missing manifest."""
    home, away = tmp_path / "home", tmp_path / "away"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run(
        [sys.executable, "-c", DRIVER, cluster.address, home, away], env=environment, check=False
    )
    (run,) = home.iterdir()
    assert [] == list(run.rglob("*.nsys-rep"))
    command = [
        sys.executable,
        "-m",
        "gpuprof",
        "collect",
        str(run),
        "--ray",
        "--address",
        cluster.address,
    ]
    subprocess.run(command, check=True)
    reports = sorted(run.rglob("*.nsys-rep"))
    assert ["ActorGroup-0", "ActorGroup-1", "ActorGroup-2"] == sorted(
        path.name.split(".")[0] for path in reports
    )
    assert [3] * 3 == [labels(path)["forward-0"] for path in reports]
    listed = {
        entry["file"]: entry["sha256"]
        for entry in json.loads((run / "manifest.json").read_text())["files"]
    }
    assert {str(path): sha256(path) for path in reports}.items() <= listed.items()
