"""A report that nsys would refuse is not called complete."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpuprof_nsight._nsys.find import environment, find
from gpuprof_nsight._nsys.trial import output_of, trial_directory
from gpuprof_nsight._reports import leftovers
from gpuprof_nsight._reports.damage import damage

WHOLE = b"NVIDIA Tegra Profiler Report 1." + bytes(64) + (40).to_bytes(8, "little") + b"U3w[END]"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (WHOLE, None),
        (WHOLE[:-1], "cut short"),
        (WHOLE[:40], "cut short"),
        (WHOLE[:5], "header is missing"),
        (b"", "header is missing"),
        (bytes(1000), "header is missing"),
        (WHOLE[:-16] + (10**6).to_bytes(8, "little") + WHOLE[-8:], "section table is missing"),
    ],
)
def test_what_is_cut_short_is_found(tmp_path: Path, content: bytes, problem: str | None) -> None:
    """By the marks at both ends."""
    (tmp_path / "a.nsys-rep").write_bytes(content)
    found = damage(str(tmp_path / "a.nsys-rep"))
    assert found == problem if problem is None else problem in (found or "")


@pytest.mark.nsys
def test_nsys_refuses_the_same(tmp_path: Path) -> None:
    """At every length that was tried, the whole one included."""
    whole = tmp_path / "whole.nsys-rep"
    command = ["nsys", "profile", "-t", "nvtx", "--sample=none", "--cpuctxsw=none"]
    tool = find("nsys")
    assert tool is not None
    with trial_directory(tool) as directory:
        output_of([*command, "-o", str(whole), "true"], directory)
    content = whole.read_bytes()
    refused, found = [], []
    for length in (0, 100, len(content) // 2, len(content) - 8, len(content) - 1, len(content)):
        report = tmp_path / f"{length}.nsys-rep"
        report.write_bytes(content[:length])
        export = ["nsys", "export", "-t", "sqlite", "-o", f"{report}.sqlite", str(report)]
        refused.append(subprocess.run(export, env=environment()).returncode != 0)
        found.append(damage(str(report)) is not None)
    assert [True] * 5 + [False] == refused
    assert refused == found


IMPORTER = """#!/bin/sh
[ -e "$4" ] && {{ echo "Output file already exists."; exit 0; }}
cp {source} "$4"
"""


def test_what_an_earlier_attempt_has_left_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the importer, which refuses to overwrite, as the real one does."""
    (tmp_path / "good").write_bytes(WHOLE)
    importer = tmp_path / "importer-stand-in"
    importer.write_text(IMPORTER.format(source=tmp_path / "good"))
    importer.chmod(0o755)
    monkeypatch.setattr("gpuprof_nsight._nsys.find.importers", lambda tool: [str(importer)])
    report = tmp_path / "A-0.start-1.recovered.nsys-rep"
    report.touch()
    assert None is leftovers.import_capture("x.qdstrm", str(report), "nsys")
    assert WHOLE == report.read_bytes()


def test_half_a_report_of_the_importer_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture is kept, and can be imported when there is room."""
    (tmp_path / "half").write_bytes(WHOLE[:40])
    importer = tmp_path / "importer-stand-in"
    importer.write_text(IMPORTER.format(source=tmp_path / "half"))
    importer.chmod(0o755)
    monkeypatch.setattr("gpuprof_nsight._nsys.find.importers", lambda tool: [str(importer)])
    report = tmp_path / "A-0.start-1.recovered.nsys-rep"
    assert "cut short" in str(leftovers.import_capture("x.qdstrm", str(report), "nsys"))
    assert not report.exists()


SMALL = """
mount -t tmpfs -o size=500k tmpfs "$1/out" || exit 77
cd "$1"
PATH="$2:$PATH" "$3" -m gpuprof run --config c.yaml "$3" job.py
PATH="$2:$PATH" "$3" -m gpuprof collect out/full >"$1/full.txt" 2>&1
echo $? >"$1/full.code"
mount -o remount,size=100m "$1/out"
PATH="$2:$PATH" "$3" -m gpuprof collect out/full >"$1/room.txt" 2>&1
echo $? >"$1/room.code"
"""
JOB = """
import gpuprof
for number in range(4):
    with gpuprof.step(number), gpuprof.timing().add_time("work"):
        pass
"""


@pytest.mark.nsys
def test_a_full_disk_is_said_and_costs_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once there is room, `collect` makes the reports of all captures that nsys has kept.

    A report is 150 to 280 kB.
    """
    unshare = shutil.which("unshare")
    command = [str(unshare), "--user", "--map-root-user", "--mount"]
    if unshare is None or subprocess.run([*command, "true"]).returncode:
        pytest.skip("this user cannot make a mount namespace")
    (tmp_path / "out").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "c.yaml").write_text(
        "backend: nsight\nworker_groups: all\nsteps: ['0:4']\n"
        f"output_dir: {tmp_path / 'out'}\nnsight: {{preset: light, gate: nvtx}}\n"
    )
    monkeypatch.setenv("GPUPROF_RUN", "full")
    nsys = str(Path(str(shutil.which("nsys"))).parent)
    done = subprocess.run([*command, "sh", "-c", SMALL, "sh", str(tmp_path), nsys, sys.executable])
    if done.returncode == 77:
        pytest.skip("this user cannot mount a file system")
    full, room = ((tmp_path / f"{name}.txt").read_text() for name in ("full", "room"))
    assert "4 of 4" not in full
    assert "full" in full.replace("out/full", "")
    assert "1\n" == (tmp_path / "full.code").read_text()
    assert "4 of 4 reports complete" in room, room
    assert "0\n" == (tmp_path / "room.code").read_text()
