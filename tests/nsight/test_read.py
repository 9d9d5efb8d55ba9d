"""Reading reports: nsys's own, broken ones, and hand-filled CUDA tables."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from gpuprof._artifacts.receipt import Receipt, ReceiptRow
from gpuprof._cli import main
from gpuprof.backend import RangeTimes
from gpuprof.errors import ToolError
from gpuprof_nsight import Report, ReportError, read
from gpuprof_nsight._reports.export import _digest
from gpuprof_nsight._reports.export import export as export_report
from support.patient_nsys import profile
from support.report_reader import labels
from support.run_files import manifest, run_file
from support.waiting import DEADLINE

PROGRAM = """
import json, sys, time
from gpuprof.backend import Window, Worker
from gpuprof_nsight._nvtx.ranges import Ranges
from gpuprof_timing import Timing, set_range_opener

set_range_opener(Ranges("ActorGroup", 3).open)
timing = Timing()
for _ in range(4):
    with timing.add_time("outer"), timing.add_time("a/b: 'c'"):
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass
json.dump(timing.to_dict(), open(sys.argv[1], "w"))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a program's report, and its tree."""
    directory = tmp_path_factory.mktemp("run")
    command = [
        "nsys",
        "profile",
        "-t",
        "nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "-o",
        str(directory / "report"),
    ]
    profile([*command, sys.executable, "-c", PROGRAM, str(directory / "tree")])
    labels(str(directory / "report.nsys-rep"))  # a fixture is made again only where it fails itself
    return directory


@pytest.mark.nsys
def test_ranges_of_a_real_report(run: Path) -> None:
    """Names, domain, nesting and ids."""
    ranges = list(read(run / "report.nsys-rep").ranges("gpuprof"))
    assert ["outer", "a/b: 'c'"] * 4 == [found.name for found in ranges]
    assert all(
        outer.start <= inner.start < inner.end <= outer.end
        for outer, inner in zip(ranges[::2], ranges[1::2], strict=True)
    )
    assert 1 == len({(found.process, found.thread) for found in ranges})


@pytest.mark.nsys
def test_the_report_and_the_tree_say_the_same(run: Path) -> None:
    """Counts of scopes and ranges agree, and a range lasts as long as its scope."""
    tree = json.loads((run / "tree").read_text())
    (outer,) = tree["children"]
    (inner,) = outer["children"]
    times = {
        found.name: found.durations
        for found in read(run / "report.nsys-rep").range_times("gpuprof")
    }
    for node in (outer, inner):
        durations = times[node["key"]]
        assert node["count"] == len(durations)
        # two clocks: the system may correct the one's rate
        assert node["total"] <= 1.001 * sum(durations)
        # The quickest of each, as a busy machine may take the processor away between the two
        # clocks. Twice is several-fold of it.
        assert min(durations) < 2 * node["minimum"]


@pytest.mark.nsys
def test_the_command_prints_every_range(run: Path) -> None:
    """`gpuprof report --nvtx` prints a row for each name, inside the range around it."""
    printed = CliRunner().invoke(main, ["report", "--nvtx", str(run)]).output.splitlines()
    assert "report.nsys-rep" == printed[0]
    assert ["outer", "4"] == printed[3].split()[:2]
    assert "  a/b: 'c'" == printed[4][:10]
    (window,) = json.loads(
        CliRunner()
        .invoke(main, ["report", "--nvtx", "--json", str(run / "report.nsys-rep")])
        .output
    )["windows"]
    (outer,) = window["ranges"]
    (inner,) = outer["children"]
    assert ["outer", "a/b: 'c'"] == [outer["name"], inner["name"]]
    assert [4, 4] == [len(outer["durations"]), len(inner["durations"])]


@pytest.mark.nsys
def test_nsys_is_where_the_user_says(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's settings and the command line name an nsys; a run's own settings do not."""
    (tmp_path / "else" / "where").mkdir(parents=True)
    nsys, ours = tmp_path / "else" / "where" / "nsys-1", tmp_path / "gpuprof-output" / "a-run"
    nsys.symlink_to(str(shutil.which("nsys")))
    (ours / "node").mkdir(parents=True)
    settings = {"backend": "nsight", "nsight": {"executable": str(nsys)}}
    (ours / "run.json").write_text(json.dumps(run_file("a-run", config=settings)))
    for directory in (ours / "node", tmp_path):
        shutil.copy(run / "report.nsys-rep", directory / "ActorGroup-0.lifetime.nsys-rep")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("gpuprof_nsight._nsys.find.PLACES", ())

    def outer(*words: str) -> int:
        done = CliRunner().invoke(main, ["report", "--nvtx", "--json", *words])
        assert 0 == done.exit_code, done.output
        for export in tmp_path.rglob(".*.sqlite"):
            export.unlink()  # which would be read without nsys
        windows = json.loads(done.stdout)["windows"]
        return sum(len(window["ranges"][0]["durations"]) for window in windows)

    alone = str(tmp_path / "ActorGroup-0.lifetime.nsys-rep")
    for report in (alone, str(ours)):
        assert 4 == outer(report, "--set", f"nsight.executable={nsys}")
        refused = CliRunner().invoke(main, ["report", "--nvtx", report])
        assert 2 == refused.exit_code
        assert "--set nsight.executable=PATH" in refused.output
    own = tmp_path / "own.yaml"
    own.write_text(json.dumps(settings))
    monkeypatch.setenv("GPUPROF_CONFIG", str(own))
    assert 4 == outer(str(ours))


@pytest.mark.nsys
def test_a_run_of_another_machine_is_read_with_the_nsys_of_this_one(
    run: Path, tmp_path: Path
) -> None:
    """Where the run's was is not here; but not where the command line says which."""
    ours = tmp_path / "a-run"
    ours.mkdir()
    settings = {"backend": "nsight", "nsight": {"executable": "/another/machines/nsys"}}
    (ours / "run.json").write_text(json.dumps(run_file("a-run", config=settings)))
    shutil.copy(run / "report.nsys-rep", ours / "ActorGroup-0.lifetime.nsys-rep")
    command = ["report", "--nvtx", str(ours)]
    refused = CliRunner().invoke(main, [*command, "--set", "nsight.executable=/no/nsys"])
    assert 2 == refused.exit_code, refused.output
    assert "'/no/nsys' is not on PATH" in refused.output, refused.output
    assert 0 == CliRunner().invoke(main, [*command, "--set", "nsight.preset=light"]).exit_code
    for export in ours.glob(".*.sqlite"):
        export.unlink()  # which would be read without nsys
    assert 0 == CliRunner().invoke(main, command).exit_code


def test_settings_that_nothing_is_read_with(tmp_path: Path) -> None:
    """Trees are read without a backend, so a backend's key is refused, valid or not."""
    refused = CliRunner().invoke(main, ["report", "--set", "nsight.executable=nsys", str(tmp_path)])
    message = "--set: 'nsight.executable=nsys' needs --nvtx"
    assert 2 == refused.exit_code
    assert message in refused.output


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "nsigt.executable=x",
            "--set: 'nsigt.executable=x' is not valid; expected SECTION.KEY=VALUE",
        ),
        ("nsight.executble=x", "nsight.executble: unknown key; did you mean 'executable'"),
    ],
)
def test_a_key_that_no_backend_has(tmp_path: Path, override: str, message: str) -> None:
    """It is refused, with what there is."""
    (tmp_path / "x.nsys-rep").touch()
    refused = CliRunner().invoke(main, ["report", "--nvtx", "--set", override, str(tmp_path)])
    assert 2 == refused.exit_code
    assert message in refused.output


@pytest.mark.nsys
def test_a_report_without_ranges_is_named(run: Path, tmp_path: Path) -> None:
    """A report without ranges is named beside the table, as nsys can lose a process's ranges."""
    command = [
        "nsys",
        "profile",
        "-t",
        "nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "-o",
        str(tmp_path / "empty"),
        "true",
    ]
    profile(command)
    done = CliRunner().invoke(main, ["report", "--nvtx", str(run), str(tmp_path)])
    assert ["outer", "4"] == done.stdout.splitlines()[3].split()[:2]
    lost = (
        f"{tmp_path / 'empty.nsys-rep'}: no gpuprof range in it: the worker opened none, or "
        "the profiler lost them\n"
    )
    assert 0 == done.exit_code
    assert lost == done.stderr


@pytest.mark.nsys
def test_a_broken_report_does_not_hide_the_others(run: Path, tmp_path: Path) -> None:
    """It is named beside their table; alone it is an error."""
    broken = tmp_path / "ActorGroup-1.step-3.nsys-rep"
    broken.write_bytes((run / "report.nsys-rep").read_bytes()[:20000])
    done = CliRunner().invoke(main, ["report", "--nvtx", str(run), str(tmp_path)])
    assert ["outer", "4"] == done.stdout.splitlines()[3].split()[:2]
    assert 1 == done.exit_code
    assert f"{broken} cannot be read by" == done.stderr[: len(f"{broken} cannot be read by")]
    alone = CliRunner().invoke(main, ["report", "--nvtx", str(broken)])
    assert 2 == alone.exit_code
    assert "cannot be read by" in alone.stderr


@pytest.mark.nsys
def test_a_report_that_is_gone_is_named(run: Path, tmp_path: Path) -> None:
    """The table has the receipt's complete reports, wherever their directory is now."""
    ours = tmp_path / "a-run"
    (ours / "node").mkdir(parents=True)
    shutil.copy(run / "report.nsys-rep", ours / "node" / "A-0.step-3.nsys-rep")
    places = [f"/was/a-run/node/A-{rank}.step-3.nsys-rep" for rank in (0, 1)] + [
        "/tmp/staged/A-2.step-3.nsys-rep"
    ]
    rows = [
        ReceiptRow(f"A-{rank}", "node", "step-3", place, 1, "complete")
        for rank, place in enumerate(places)
    ]
    missing = ReceiptRow("A-3", "node", "step-3", None, 0, "missing")
    receipt = Receipt((*rows, missing), "/was/a-run").to_dict()
    (ours / "manifest.json").write_text(json.dumps(manifest("a-run", receipt)))
    done = CliRunner().invoke(main, ["report", "--nvtx", str(ours)])
    assert ["outer", "4"] == done.stdout.splitlines()[3].split()[:2]
    gone = f"{ours / 'node' / 'A-1.step-3.nsys-rep'}: missing; the receipt lists it as complete\n"
    assert 1 == done.exit_code
    assert gone == done.stderr


@pytest.mark.nsys
def test_nsys_own_summary_has_the_labels(run: Path) -> None:
    """What the user wrote is what nsys prints, whatever its release calls the summary."""
    for summary in ("nvtx_sum", "nvtxsum"):
        command = [
            "nsys",
            "stats",
            "--report",
            summary,
            "--force-export=true",
            str(run / "report.nsys-rep"),
        ]
        printed = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE, check=False
        ).stdout
        if "outer" in printed:
            break
    assert "gpuprof:outer" in printed
    assert "gpuprof:a/b: 'c'" in printed


@pytest.mark.nsys
def test_the_export_is_made_once_for_its_content(run: Path, tmp_path: Path) -> None:
    """A second reading reuses the export; another report of that name is exported anew."""
    report = shutil.copy(run / "report.nsys-rep", tmp_path / "report.nsys-rep")
    list(read(report).ranges())
    (exported,) = tmp_path.glob(".*.sqlite")
    before = exported.stat().st_mtime_ns
    list(read(report).ranges())
    assert before == exported.stat().st_mtime_ns


@pytest.mark.nsys
def test_a_report_of_any_name_is_read(run: Path, tmp_path: Path) -> None:
    """A name may hold percent-encoding, as for discrete windows, or any other character."""
    report = shutil.copy(
        run / "report.nsys-rep", tmp_path / "A-0.step-3.actor%2Frun #1?-1.nsys-rep"
    )
    assert {"outer", "a/b: 'c'"} <= {found.name for found in read(report).ranges()}


@pytest.mark.nsys
@pytest.mark.parametrize("content", ["", "not a report", None])
def test_what_is_no_whole_report(run: Path, tmp_path: Path, content: str | None) -> None:
    """Empty, foreign and truncated files are refused with their name."""
    report = tmp_path / "broken.nsys-rep"
    whole = (run / "report.nsys-rep").read_bytes()
    report.write_bytes(whole[: len(whole) // 2] if content is None else content.encode())
    with pytest.raises(ReportError, match=r"broken\.nsys-rep cannot be read by .*nsys: \S"):
        read(report)


@pytest.mark.nsys
@pytest.mark.skipif(
    os.path.realpath(shutil.which("nsys-trixie") or shutil.which("nsys") or "")
    == os.path.realpath(shutil.which("nsys") or ""),
    reason="a newer nsys than `nsys` is not here (scripts/install-nsys.sh trixie)",
)
def test_a_newer_report_is_refused_by_an_older_nsys(tmp_path: Path) -> None:
    """In nsys's own words; the newer nsys reads it."""
    command = [
        "nsys-trixie",
        "profile",
        "-t",
        "nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "-o",
        str(tmp_path / "new"),
    ]
    profile([*command, sys.executable, "-c", PROGRAM, str(tmp_path / "tree")])
    with pytest.raises(ReportError, match=r"new\.nsys-rep cannot be read by"):
        read(tmp_path / "new.nsys-rep")
    assert 8 == len(list(read(tmp_path / "new.nsys-rep", "nsys-trixie").ranges("gpuprof")))


def test_without_nsys_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the remedy."""
    (tmp_path / "a.nsys-rep").touch()
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(ToolError, match="Install NVIDIA Nsight Systems"):
        read(tmp_path / "a.nsys-rep", "no-such-nsys")


THREAD = (7 << 48) | (1234 << 24) | 1234
OTHER_THREAD = THREAD + 1
PROCESS = (7 << 48) | (1234 << 24)


@pytest.fixture
def filled_by_hand(tmp_path: Path) -> Report:
    """A hand-made export with a GPU's work: nested ranges, and one in another thread."""
    database = tmp_path / "export.sqlite"
    # Closed, which `with` alone does not do: Python 3.13 warns of it.
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript("""
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE NVTX_EVENTS (
                start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
                                      globalTid INTEGER,
                                      domainId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
                start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
                                                      nameId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
                start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,
                shortName INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
                start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
            INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'gemm'),
                (3, 'cudaMemcpyAsync'), (4, 'inner');
        """)
        connection.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (0, None, 75, "gpuprof", None, THREAD, 1),
                (100, 200, 59, "outer", None, THREAD, 1),
                (120, 160, 59, None, 4, THREAD, 1),
                (100, 200, 60, "elsewhere", None, OTHER_THREAD, 1),
                (100, 200, 59, "another domain's", None, THREAD, 0),
            ],
        )
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
            [(130, 131, THREAD, 10, 1), (170, 171, THREAD, 11, 3), (250, 251, THREAD, 12, 1)],
        )
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, 2, 2)",
            [(300, 350, 10, PROCESS), (400, 401, 12, PROCESS)],
        )
        connection.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (310, 330, 0, 7, 11, ?, 4096, 1)",
            (PROCESS,),
        )
    return Report(database)


def test_what_the_gpu_did_belongs_to_the_ranges_that_asked_for_it(filled_by_hand: Report) -> None:
    """GPU time counts for all ranges around its call, by thread and correlation."""
    assert [
        RangeTimes("outer", (100,), {"kernels": 50, "copies": 20}),
        RangeTimes("elsewhere", (100,), {}),
        RangeTimes("inner", (40,), {"kernels": 50}, ("outer",)),
    ] == filled_by_hand.range_times("gpuprof")


def test_started_ranges_hold_nothing(filled_by_hand: Report) -> None:
    """Tasks that overlap by chance are not nested; what was pushed around them is their parent."""
    with contextlib.closing(sqlite3.connect(filled_by_hand._database)) as connection, connection:
        connection.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL, ?, 1)",
            [
                (1000, 2000, 59, "rollout", THREAD),
                (1100, 1900, 60, "episode", THREAD),
                (1200, 1300, 60, "episode", THREAD),
                (1800, 2100, 60, "upload", THREAD),
                (2000, 2050, 59, "next", THREAD),
            ],
        )
    found = {times.name: times for times in filled_by_hand.range_times("gpuprof")}
    assert (800, 100) == found["episode"].durations
    assert ("rollout",) == found["episode"].parents
    assert () == found["upload"].parents
    assert () == found["next"].parents


def test_a_report_without_anything(tmp_path: Path) -> None:
    """No table, no rows, no error."""
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    report = Report(tmp_path / "empty.sqlite")
    assert [] == list(report.ranges())
    assert [] == report.range_times("gpuprof")


def test_paths_that_hold_no_report(tmp_path: Path) -> None:
    """The command says so, with exit code 2."""
    missing = CliRunner().invoke(main, ["report", "--nvtx", str(tmp_path / "none")])
    empty = CliRunner().invoke(main, ["report", "--nvtx", str(tmp_path)])
    assert 2 == missing.exit_code
    assert 2 == empty.exit_code
    assert "none: not found; expected a report or a run directory" in missing.output
    assert "found no report that an installed backend can read" in empty.output


def test_a_missing_executable_is_refused_with_a_cached_export(tmp_path: Path) -> None:
    """A cached export needs no nsys, but one that was asked for has to be there."""
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"content")
    cached = tmp_path / f".a.nsys-rep.{_digest(report)}.sqlite"
    cached.touch(0o600)
    assert cached == export_report(report)
    with pytest.raises(ToolError, match="'nope' is not on PATH"):
        export_report(report, "nope")
