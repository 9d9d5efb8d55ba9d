"""`gpuprof doctor` as a command, on complete and on incomplete machines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from gpuprof._cli import settings
from gpuprof._config.load import load
from gpuprof._doctor import examine as examining
from gpuprof._doctor.examine import examine
from gpuprof._doctor.start_up import registration_limit
from gpuprof._shim.node import has_gpu
from gpuprof.backend import Check, Worker
from gpuprof_nsight._checks import diagnose
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._nsys.find import find
from support.waiting import DEADLINE

FAILS_WITHOUT_ASKING = "nvtx 0.2.12 and later, and nsys up to 2023.4"


class Doctor:
    """What the command has said."""

    def __init__(self, *words: str, **environment: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", "doctor", "--json", *words],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert done.stdout, done.stderr
        self.code = done.returncode
        self.checks: dict[str, dict[str, Any]] = {
            check["name"]: check for check in json.loads(done.stdout)
        }

    @property
    def failed(self) -> list[str]:
        """The names of the checks that fail."""
        return [name for name, check in self.checks.items() if not check["ok"]]


def first(name: str, *words: str) -> Check:
    """One check of a backend, in this process, without those that come after it."""
    checks = examining._try_backend(
        settings.load(words, None), registration_limit(), lambda _: None
    )
    with contextlib.closing(checks):
        return next(check for check in checks if check.name == name)


def diagnosed(options: NsightOptions, has_gpu: bool = False) -> dict[str, Check]:
    """The checks of nsys's own, in this process."""
    tool = find("nsys")
    assert tool is not None
    worker = Worker("run", "A", 0, "node", "1", "/out", has_gpu=has_gpu)
    return {check.name: check for check in diagnose.checks(worker, tool, options)}


@pytest.fixture
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are not tried."""
    monkeypatch.setattr(diagnose, "_ranges_arrive", lambda *_: ())


@pytest.fixture(scope="module")
def light() -> Doctor:
    """The doctor of a machine with nsys."""
    return Doctor("backend=nsight", "nsight.preset=light")


def test_without_the_program_it_says_how_to_install_it(tmp_path: Path) -> None:
    """A PATH without nsys fails one check, with the remedy, and tries nothing that needs it."""
    doctor = Doctor("backend=nsight", PATH=str(tmp_path))
    assert ["nsight tool"] == doctor.failed
    assert "install-nsys.sh" in doctor.checks["nsight tool"]["remedy"]
    assert 1 == doctor.code
    assert "nsight ranges" not in doctor.checks


@pytest.mark.nsys
def test_with_the_program_a_range_arrives(light: Doctor) -> None:
    """Where nsys is, everything is tried and nothing fails."""
    assert [] == light.failed
    assert 0 == light.code
    expected = [
        "nsight tool",
        "nsight records",
        "nsight options",
        "nsight start-up",
        "nsight ranges",
        "nsight nvtx",
        "nsight importer",
        "nsight environment",
    ]
    assert expected == [name for name in light.checks if name.startswith("nsight")]


@pytest.mark.nsys
def test_without_a_configuration_one_backend_is_enough() -> None:
    """On a machine with nsys it is no failure that the other maker's profiler is not there."""
    doctor = Doctor()
    assert [] == doctor.failed
    assert doctor.checks["nsight ranges"]["ok"]
    assert "not needed" in doctor.checks["rocprof_sys tool"]["detail"]


@pytest.mark.nsys
def test_an_old_nvtx_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvtx 0.2.11 asks nobody whether a domain is enabled; the line has both versions."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path),
        "nvtx==0.2.11",
    ]
    subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    checks = diagnosed(NsightOptions(preset="light"))
    assert checks["ranges"].ok
    detail = checks["nvtx"].detail
    assert re.fullmatch(r"nvtx 0\.2\.11 with nsys \S+: compatible", detail)


@pytest.mark.nsys
def test_a_mismatch_is_worked_round_and_said(
    light: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incompatible pair of nvtx and nsys works through the workaround, and fails without."""
    with_it = light.checks["nsight nvtx"]
    if with_it["detail"].endswith(" fit"):
        pytest.skip(f"it takes {FAILS_WITHOUT_ASKING}")
    assert "warning" == with_it["result"]
    assert "gpuprof's ranges work anyway, the job's own are lost" in with_it["detail"]
    assert with_it["remedy"].startswith("pip install 'nvtx==0.2.11'")

    disabled = (
        "import types, gpuprof_nsight._nvtx.package as package\npackage.os = "
        "types.SimpleNamespace(environ={})\n"
    )
    (tmp_path / "sitecustomize.py").write_text(disabled)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GPUPROF_NSIGHT_PURE", "1")
    without = diagnosed(NsightOptions(preset="light"))
    assert ["ranges", "nvtx"] == [name for name, check in without.items() if not check.ok]
    assert "nsys newer than 2023.4" in without["ranges"].remedy


@pytest.mark.nsys
@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize("asked", [{"sample": "process-tree"}, {}])
def test_sampling_is_tried_where_there_will_be_some(asked: dict[str, Any]) -> None:
    """Nsys's own words about this system are in the line; an nsys that is told nothing samples.

    Without, no line.
    """
    sampled = diagnosed(NsightOptions(options={"t": "nvtx", **asked}), has_gpu=True)
    assert ["importer", "environment", "sampling", "gpu"] == list(sampled)
    assert "CPU Profiling Environment (process-tree): " in sampled["sampling"].detail
    unsampled = diagnosed(NsightOptions(options={"t": "nvtx", "s": "none"}), has_gpu=True)
    assert ["importer", "environment", "gpu"] == list(unsampled)


@pytest.mark.nsys
@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize(
    "options", [{"options": {"t": "nvtx", "sample": "process-tree"}}, {"preset": "deep"}]
)
def test_sampling_that_was_asked_for_is_tried_without_a_gpu_too(options: dict[str, Any]) -> None:
    """A line of its own, also where this node's workers would not be sampled."""
    checks = diagnosed(NsightOptions(**options))
    assert "CPU Profiling Environment (process-tree): " in checks["sampling"].detail


@pytest.mark.nsys
def test_on_a_node_with_a_gpu_workers_are_tried_as_having_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default options sample there.

    Stand-ins for the GPU, and for an nsys that would hang without one.
    """
    monkeypatch.setattr(examining, "has_gpu", lambda: True)
    nsys = tmp_path / "nsys"
    nsys.write_text(f"""#!/bin/bash
echo "$@" >>{tmp_path}/calls
exec {shutil.which("nsys")} "${{@//process-tree/none}}"
""")
    nsys.chmod(0o755)
    assert first("options", "backend=nsight", f"nsight.executable={nsys}").ok
    tried = [
        line for line in (tmp_path / "calls").read_text().splitlines() if line.endswith(" true")
    ]
    assert tried
    assert all(
        "--sample=process-tree --cpuctxsw=process-tree --cudabacktrace=all" in line
        for line in tried
    )


@pytest.mark.nsys
@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize(
    ("gate", "has_gpu"), [("session", True), ("cuda", False)], ids=["a worker with one", "gate"]
)
def test_what_needs_a_gpu_wants_one(
    gate: str, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Device files alone are no GPU: the driver is asked."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    checks = diagnosed(NsightOptions(preset="light", gate=gate), has_gpu)
    assert ["gpu"] == [name for name, check in checks.items() if not check.ok]
    assert "no GPU is visible" in checks["gpu"].detail
    assert checks["gpu"].remedy.startswith("make a GPU visible")


@pytest.mark.nsys
def test_an_option_that_the_program_refuses_is_named() -> None:
    """The check of the options has the key and the tool's words."""
    check = first("options", "backend=nsight", "nsight.options={t: nonsense}")
    assert "nsight.options.t: " in check.detail
    assert not check.ok


@pytest.mark.nsys
def test_an_option_for_workers_with_a_gpu_is_read_without_one() -> None:
    """Where it would be left out, a value that nsys refuses is still named."""
    check = first("options", "backend=nsight", "nsight.options={t: nvtx, sample: nonsense}")
    assert "nsight.options.sample: " in check.detail
    assert "Illegal --sample argument: nonsense" in check.detail


@pytest.mark.nsys
def test_a_start_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to start is held against the limit that Ray has on this machine."""
    monkeypatch.setenv("RAY_worker_register_timeout_seconds", "0.1")
    check = first("start-up", "backend=nsight", "nsight.preset=light")
    assert not check.ok
    assert "RAY_worker_register_timeout_seconds" in check.remedy


def said_by(*words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """What the command prints for people, on a machine without nsys."""
    return subprocess.run(
        [sys.executable, "-m", "gpuprof", "doctor", *words],
        env={**os.environ, "PATH": "/nonexistent"},
        text=True,
        timeout=DEADLINE,
        check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


def test_the_table_fits_the_screen() -> None:
    """But for a path that is wider, which stays whole, to be copied; the remedies stand below."""
    done = said_by("backend=nsight", f"output_dir=/tmp/{'x' * 90}")
    lines = done.stdout.splitlines()
    assert [] == [line for line in lines if len(line) > 80 and len(line.split()) > 1]
    assert ["node", "check", "result"] == lines[0].split()
    assert any(line.startswith("remedy for nsight tool on ") for line in lines)


def test_a_line_for_each_check_while_it_works() -> None:
    """On stderr, before each of them: half a minute without a word looks like a hang."""
    done = said_by("backend=nsight")
    assert ["trying directories and pip", "trying nsight tool"] == done.stderr.splitlines()


def test_on_a_terminal_the_line_is_overwritten() -> None:
    """One line, which is gone when the table comes."""
    ours, theirs = os.openpty()
    said_by("backend=nsight", stderr=theirs)
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # EIO: all is read
        while part := os.read(ours, 10_000):
            parts.append(part)
    os.close(ours)
    text = b"".join(parts).decode()
    assert "\r\x1b[Ktrying nsight tool" in text
    assert "\n" not in text
    assert text.endswith("\r\x1b[K")


def test_a_plan_with_gpus_on_a_node_without(tmp_path: Path) -> None:
    """A warning: the node may be the one that only starts the job."""
    file = tmp_path / "composed.yaml"
    file.write_text("cluster: {profiling: {backend: nsight, worker_groups: [ActorGroup]}}\n")
    (tmp_path / "nsys").write_text("#!/bin/sh\n")
    (tmp_path / "nsys").chmod(0o755)
    config = load(file, system="rlinf", overrides=[f"nsight.executable={tmp_path}/nsys"])
    if has_gpu():
        pytest.skip("it takes a machine without a GPU")
    (check,) = (check for check in examine(config) if check.name == "nsight gpu")
    assert "warning" == check.result
    assert "workers of group ActorGroup need one" in check.detail


def test_a_place_that_cannot_be_written_fails() -> None:
    """An output directory below a file is refused by its path, on whichever machine."""
    doctor = Doctor(
        "backend=nsight",
        "output_dir=/dev/null/reports",
        "staging_dir=/dev/null/local",
        PATH="/nonexistent",
    )
    assert not doctor.checks["output directory"]["ok"]
    assert not doctor.checks["staging directory"]["ok"]
    assert "/dev/null/reports cannot be written" in doctor.checks["output directory"]["detail"]


def test_an_old_pip_is_found(tmp_path: Path) -> None:
    """A pip that takes an extra in one spelling only is a warning, with the spelling."""
    metadata = tmp_path / "pip-23.2.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pip\nVersion: 23.2.1\n")
    doctor = Doctor("backend=none", PYTHONPATH=str(tmp_path))
    assert "gpuprof[rocprof-sys]" in doctor.checks["pip"]["detail"]
    assert "warning" == doctor.checks["pip"]["result"]
    assert 0 == doctor.code


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """The doctor leaves nothing behind but the place of nsys's lock."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    # nsys 2022.4 with its lock apart breaks what runs beside it.
    (temporary / "nvidia").symlink_to(Path(tempfile.gettempdir(), "nvidia"))
    Doctor("backend=nsight", f"output_dir={tmp_path / 'output'}", TMPDIR=str(temporary))
    assert ["temporary"] == [path.name for path in tmp_path.iterdir()]
    assert ["nvidia"] == [path.name for path in temporary.iterdir()]
