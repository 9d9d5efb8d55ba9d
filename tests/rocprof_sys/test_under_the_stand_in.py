"""The backend with a stand-in for AMD's tool.

Nothing here proves what the real one records: no GPU, no markers, no gating.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof._artifacts.receipt import ReceiptRow
from gpuprof._artifacts.rows import receipt_rows
from gpuprof._artifacts.settle import settle_node
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner, common_tool
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim import PROGRAM
from gpuprof._shim.row import VARIABLE, encode
from gpuprof.backend import Tool, Window, Worker
from gpuprof.errors import ToolError
from gpuprof_rocprof_sys import RocprofSysBackend, _outputs, _tool
from gpuprof_rocprof_sys._options import RocprofSysOptions
from support.waiting import DEADLINE

Release = Callable[[str], None]
RELEASES = ("0.1", "1.2", "1.6", "1.9")
SCRIPT = """
import json, os, sys, threading
import gpuprof
print(json.dumps([sys.executable, sys.argv[1:], sys.flags.dev_mode]))
for step in range(3):
    with gpuprof.step(step), gpuprof.timing().add_time(f"train-{step}"):
        pass
if "die" in sys.argv:
    os.kill(os.getpid(), 9)
if "raise" in sys.argv:
    raise KeyError("the worker's own")
if "exit" in sys.argv:
    sys.exit(7)
"""


class Job:
    """One worker under the stand-in, started as Ray would start it."""

    def __init__(self, directory: Path, **section: Any) -> None:
        self.directory = directory
        data = {
            "backend": "rocprof_sys",
            "worker_groups": "all",
            "steps": [1],
            "rocprof_sys": section,
        }
        self.planner = Planner(load(data), "run", str(directory))

    def plan(self) -> Tool:
        """Plan it. Returns the tool."""
        tool = self.planner.check_tool()
        assert tool is not None
        self.planned = self.planner.worker("A", 0, tool=common_tool([tool]))
        return tool

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Plan it, run it to its end."""
        tool = self.plan()
        row = self.planner.row(self.planned, [sys.executable, "-X", "dev"], tool)
        row["launch"]["environment"] = dict(self.planned.environment)
        script = self.directory / "script.py"
        self.directory.mkdir(exist_ok=True)
        script.write_text(SCRIPT)
        command = [sys.executable, "-S", "-E", PROGRAM, str(script), *arguments]
        environment = {**os.environ, VARIABLE: encode(row)}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    def receipt(self) -> list[ReceiptRow]:
        """What is left of it."""
        record = settle_node(self.planner, {("A", 0): self.planned})
        return receipt_rows(self.planned, [record], self.planner.manager("A"))


@pytest.mark.parametrize(
    ("number", "launcher"),
    [
        pytest.param(
            number,
            launcher,
            marks=() if launcher == "python" or number == RELEASES[-1] else pytest.mark.exhaustive,
        )
        for number in RELEASES
        for launcher in ("python", "module", "sample", "run")
    ],
)
def test_every_launcher_runs_the_worker_and_its_files_are_found(
    release: Release, tmp_path: Path, number: str, launcher: str
) -> None:
    """Interpreter, flags and arguments as without it; one trace, complete, under its final name."""
    release(number)
    job = Job(tmp_path, launcher=launcher)
    done = job.run("a-b")
    assert [sys.executable, ["a-b"], True] == json.loads(done.stdout.splitlines()[-1]), done.stderr
    (row,) = job.receipt()
    assert "step-1" == row.window, row.reason
    assert "complete" == row.state, row.reason
    assert "A-0.lifetime.proto" == Path(str(row.file)).name, row.reason
    assert "one file for the whole process" == row.reason


@pytest.mark.parametrize("launcher", ["python", "module", "sample", "run"])
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=pytest.mark.exhaustive if number != RELEASES[-1] else ())
        for number in RELEASES
    ],
)
def test_the_exit_code_is_the_scripts(
    release: Release, tmp_path: Path, number: str, launcher: str
) -> None:
    """The worker's exit code passes, although two launchers always exit with 0."""
    release(number)
    raised, ended = (Job(tmp_path / how, launcher=launcher).run(how) for how in ("raise", "exit"))
    assert 1 == raised.returncode
    assert 7 == ended.returncode
    assert 'KeyError: "the worker\'s own"' == raised.stderr.splitlines()[-1]


def test_the_calls_that_reach_the_stand_in(release: Release, tmp_path: Path) -> None:
    """A window's range, and the ranges of its scopes in it.

    That AMD's tool would record them is not proved.
    """
    release("1.6")
    job = Job(tmp_path)
    job.run()
    (row,) = job.receipt()
    calls = json.loads(Path(str(row.file)).read_text())["calls"]
    assert [
        ["rangeStart", "gpuprof"],
        ["rangePush", "train-1"],
        ["rangePop"],
        ["rangeStop"],
    ] == calls


def test_awkward_paths_and_arguments_survive(release: Release, tmp_path: Path) -> None:
    """Whatever a shell would touch, in the directory and in the arguments."""
    release("1.2")
    directory = tmp_path / 'it\'s a "$HOME" \N{SNOWMAN}'
    directory.mkdir()
    job = Job(directory)
    done = job.run("a b", "$X", "'", "\N{SNOWMAN}", "%p")
    assert ["a b", "$X", "'", "\N{SNOWMAN}", "%p"] == json.loads(done.stdout.splitlines()[-1])[1]
    assert ["complete"] == [row.state for row in job.receipt()]


def test_a_worker_that_is_killed_is_missed_with_the_reason(
    release: Release, tmp_path: Path
) -> None:
    """The real tool, too, writes nothing then."""
    release("1.2")
    job = Job(tmp_path)
    job.run("die")
    (row,) = job.receipt()
    assert "missing" == row.state
    assert "no metadata file, which the tool writes last" == row.reason[:44]


def test_the_preflight_believes_files_and_not_exit_codes(release: Release) -> None:
    """The preflight refuses the documented form, which runs nothing, and a bad option."""
    release("1.2")
    tool = _tool.find("rocprof-sys-python")
    assert tool is not None
    refusals = [
        RocprofSysBackend(RocprofSysOptions(**options)).diagnose(WORKER, tool, "start")
        for options in (
            {},
            {"interpreter_after_dashes": True},
            {"args": {"T": "hip"}, "strict": False},
        )
    ]
    said = [[check.detail.partition(";")[0] for check in checks] for checks in refusals]
    assert [
        [],
        ["a script under it ended with 0: has not run"],
        ["a script under it ended with 2: has not run"],
    ] == said


def test_the_plan_refuses_what_the_preflight_finds(release: Release, tmp_path: Path) -> None:
    """With the key's path and the tool's last words."""
    release("1.2")
    job = Job(tmp_path, env={"ROCPROFSYS_ROCM_DOMAINS": "hip"})
    tool = job.plan()
    with pytest.raises(
        ToolError,
        match=(
            r"^rocprof_sys: .*1\.2\.0 says, for group A: a script .* ended with 1: .*DOMAINS: "
            r"hip is not"
        ),
    ):
        job.planner.preflight(job.planned, tool)


@pytest.mark.parametrize("number", RELEASES)
def test_the_release_is_asked_of_a_neighbour(release: Release, number: str) -> None:
    """The Python launcher does not say its version."""
    release(number)
    found = _tool.find("rocprof-sys-python")
    assert found is not None
    assert f"{number}.0" == found.version


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("rocprof-sys-python", "rocprof-sys-python"),
        ("rocprof-sys-run", "rocprof-sys-run"),
        ("mine", "rocprof-sys-python"),
    ],
)
def test_a_launcher_behind_a_link(
    release: Release, tmp_path: Path, link: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link is resolved to the program's real directory; it keeps the name it was called by."""
    release("1.2")
    target = Path(str(shutil.which("rocprof-sys-python" if link == "mine" else link)))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / link).symlink_to(target)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert Tool(str(target.parent / expected), "1.2.0") == _tool.find(link)


@pytest.mark.parametrize("launcher", ["python", "module"])
def test_a_worker_under_a_launcher_behind_a_link(
    release: Release, tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs, and its files are there."""
    release("1.2")
    (tmp_path / "rocprof-sys-python").symlink_to(str(shutil.which("rocprof-sys-python")))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = Job(tmp_path / "out", launcher=launcher)
    assert 0 == job.run().returncode
    assert ["complete"] == [row.state for row in job.receipt()]


def test_a_missing_launcher_is_an_error_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the program, where it comes from, and the way round."""
    _tool.find.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ToolError,
        match=r"'rocprof-sys-python' is not on PATH\. It comes with ROCm .* backend: none",
    ):
        Job(tmp_path).planner.check_tool()
    _tool.find.cache_clear()


WORKER = Worker("run", "A", 0, "node", "1", "", (Window(1, 3, 4), Window(2, 7, 8)), pid="12")


def left(directory: Path, metadata: object, **files: str) -> Worker:
    """A worker whose tool has left these files."""
    for name, content in files.items():
        (directory / f"A-0.start-1-{name.replace('__', '.')}").write_text(content)
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    (directory / "A-0.start-1-metadata-12.json").write_text(text)
    return attrs.evolve(WORKER, directory=str(directory))


@pytest.mark.parametrize(
    ("listed", "files", "problem"),
    [
        (
            ["trace__proto"],
            {},
            "A-0.start-1-trace.proto is listed in A-0.start-1-metadata-12.json but missing",
        ),
        (
            ["trace__proto"],
            {"trace__proto": ""},
            "A-0.start-1-trace.proto is listed in A-0.start-1-metadata-12.json but empty",
        ),
        ([], {"trace__proto": "x"}, "A-0.start-1-metadata-12.json lists no file"),
    ],
)
def test_files_that_are_not_complete(
    tmp_path: Path, listed: list[str], files: dict[str, str], problem: str
) -> None:
    """The metadata has the last word, and says which file it is about."""
    paths = [str(tmp_path / f"A-0.start-1-{name.replace('__', '.')}") for name in listed]
    worker = left(
        tmp_path, {"any": {"depth": [{"output": paths}]}, "directory": str(tmp_path)}, **files
    )
    with pytest.raises(ToolError) as caught:
        _outputs.collect(worker, worker.windows, {})
    assert problem == str(caught.value)


def test_metadata_that_was_cut_off(tmp_path: Path) -> None:
    """Not JSON, not complete."""
    worker = left(tmp_path, '{"output": [')
    with pytest.raises(ToolError, match=r"metadata-12\.json cannot be read: Expecting value"):
        _outputs.collect(worker, worker.windows, {})


def test_a_second_start_overwrites_nothing(tmp_path: Path) -> None:
    """The trace of the first one is there already; the second gets a suffix.

    Both windows are in the one file.
    """
    (tmp_path / "A-0.lifetime.proto").write_text("first")
    worker = left(tmp_path, [str(tmp_path / "A-0.start-1-trace.proto")], trace__proto="second")
    final = str(tmp_path / "A-0.lifetime.2.proto")
    assert {1: [final], 2: [final]} == _outputs.collect(worker, worker.windows, {})
    assert "second" == Path(final).read_text()


@pytest.mark.parametrize(
    ("env", "extension"),
    [
        ({}, ".proto"),
        ({"ROCPROFSYS_TRACE": "false", "ROCPROFSYS_USE_ROCPD": "true"}, ".db"),
        ({"ROCPROFSYS_TRACE": "0", "ROCPROFSYS_PROFILE": "ON"}, ".json"),
        ({"ROCPROFSYS_OUTPUT_PATH": "/mine"}, None),
        ({"ROCPROFSYS_TRACE": "false"}, None),
    ],
)
def test_what_is_expected(env: dict[str, str], extension: str | None) -> None:
    """The user's variables decide: a trace, a database, a profile, or no known file."""
    expected = dict.fromkeys((1, 2), f"/A-0.lifetime{extension}") if extension else {}
    assert expected == _outputs.expected(WORKER, WORKER.windows, env)


def test_nodes_with_different_releases_plan_for_the_least() -> None:
    """Which node it will be is not known when the worker is planned."""
    both = common_tool([Tool("/a", "1.6.0"), Tool("/b", "1.2.0")])
    planned: PlannedWorker = Job(Path("/out")).planner.worker("A", 0, tool=both)
    assert "ROCPROFSYS_SELECTED_REGIONS" not in planned.environment
