"""What makes reports of the captures that a killed nsys leaves, and where it is looked for."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from gpuprof.backend import Tool, Window, Worker
from gpuprof_nsight import NsightBackend
from gpuprof_nsight._checks.diagnose import _importer
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._names import GATE_RANGE
from gpuprof_nsight._nsys import find
from gpuprof_nsight._reports.leftovers import import_capture
from gpuprof_nsight._reports.read import read
from support.patient_nsys import profile

ONE_WINDOW = """
import glob, os, shutil, sys
from gpuprof.backend import Window, Worker
from gpuprof_nsight._gates.nvtx import NvtxGate
here = Worker("run", "ActorGroup", 0, "", "1", ""), Window(1, 0, 1)
gate = NvtxGate()
gate.open(*here)
gate.close(*here)
(capture,) = glob.glob(os.environ["TMPDIR"] + "/*.qdstrm")
shutil.copy(capture, sys.argv[1])
"""


def whole(number: int) -> bytes:
    """The bytes of a report that counts as whole."""
    return (
        b"NVIDIA Tegra Profiler Report 1."
        + bytes(64)
        + bytes([40 + number, *bytes(7)])
        + b"U3w[END]"
    )


def program(path: Path, lines: str = "") -> Path:
    """A script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


@pytest.mark.nsys
def test_a_capture_is_imported_also_where_nsys_is_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in CUDA's toolkits: the importer is not beside it then, but where nsys is installed.

    The report has the gate's range.
    """
    capture, report = tmp_path / "left.qdstrm", tmp_path / "left.nsys-rep"
    ours = [
        "-t",
        "nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=nvtx",
        "--nvtx-capture=gate@gpuprof-gate",
    ]
    command = [
        "nsys",
        "profile",
        *ours,
        "--capture-range-end=repeat",
        "-f",
        "true",
        "-o",
        str(tmp_path / "whole"),
    ]
    profile(
        [*command, sys.executable, "-c", ONE_WINDOW, str(capture)],
        {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"},
    )
    script = program(tmp_path / "bin" / "nsys", 'exec nsys "$@"')
    monkeypatch.setattr("gpuprof_nsight._nsys.find.PLACES", ())
    problem = import_capture(str(capture), str(report), str(script))
    assert f"no host-linux-*/QdstrmImporter beside {script}" == problem
    assert not report.exists()
    monkeypatch.setattr("gpuprof_nsight._nsys.find.PLACES", (str(shutil.which("nsys")),))
    assert import_capture(str(capture), str(report), str(script)) is None
    assert [GATE_RANGE] == [found.name for found in read(report).ranges()]


def test_a_capture_in_the_place_of_a_report_is_that_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nsys moves a capture there that it could not import. A stand-in for the importer."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    windows = tuple(Window(number, number, number + 1) for number in (1, 2, 3))
    worker = Worker("run", "A", 0, "node", "1", str(tmp_path), windows)
    places = {2: tmp_path / "A-0.start-1.2", 1: scratch / "a", 3: scratch / "b"}
    for number, place in places.items():
        place.with_name(f"{place.name}.qdstrm").write_bytes(whole(number))
    importer = program(tmp_path / "importer-stand-in", 'cp "$2" "$4"')
    monkeypatch.setattr("gpuprof_nsight._nsys.find.importers", lambda tool: [str(importer)])
    backend = NsightBackend(NsightOptions(options={"t": "nvtx"}))
    collected = backend.collect_files(worker, windows, {}, ended=True, scratch=str(scratch))
    names = {number: Path(path).name for number, (path,) in collected.files.items()}
    assert {number: f"A-0.step-{number}.nsys-rep" for number in (1, 2, 3)} == names
    contents = {number: (tmp_path / name).read_bytes() for number, name in names.items()}
    assert {number: whole(number) for number in (1, 2, 3)} == contents
    assert "" == collected.problem
    assert [] == list(tmp_path.rglob("*.qdstrm"))


@pytest.mark.parametrize("machine", ["x64", "armv8", "sbsa-armv8"])
def test_the_importer_of_any_machine_is_found(
    tmp_path: Path, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the program, and beside a link to it."""
    monkeypatch.setattr("gpuprof_nsight._nsys.find.PLACES", ())
    importer = program(tmp_path / f"host-linux-{machine}" / "QdstrmImporter")
    nsys = program(tmp_path / f"target-linux-{machine}" / "nsys")
    (tmp_path / "link").symlink_to(nsys)
    assert [[str(importer)]] * 2 == [
        find.importers(str(path)) for path in (nsys, tmp_path / "link")
    ]
    assert _importer(Tool(str(nsys))).ok is True
    assert str(importer) == _importer(Tool(str(nsys))).detail


def test_the_newest_installed_one_is_tried_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2023.10 is newer than 2023.4."""
    monkeypatch.setattr(
        "gpuprof_nsight._nsys.find.PLACES", (f"{tmp_path}/nsight-systems/*/bin/nsys",)
    )
    for release in ("2023.4", "2023.10", "2022.4"):
        program(tmp_path / "nsight-systems" / release / "bin" / "nsys")
        program(tmp_path / "nsight-systems" / release / "host-linux-x64" / "QdstrmImporter")
    found = find.importers(str(program(tmp_path / "cuda" / "bin" / "nsys")))
    assert ["2023.10", "2023.4", "2022.4"] == [Path(path).parents[1].name for path in found]


def test_doctor_says_where_no_importer_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do about it."""
    monkeypatch.setattr("gpuprof_nsight._nsys.find.PLACES", ())
    check = _importer(Tool(str(program(tmp_path / "bin" / "nsys"))))
    assert check.ok is False
    assert check.remedy.startswith("set executable to the program nsys")
