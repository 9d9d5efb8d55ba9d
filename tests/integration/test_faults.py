"""The fault table: closed windows stay readable, and each loss is named with its cause."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts.runs import runs
from gpuprof._shim.scratch import tool_processes
from gpuprof.ray import Profiler
from support.cluster import make
from support.launching import config, start
from support.report_reader import labels
from support.waiting import DEADLINE, wait_until

pytestmark = [pytest.mark.nsys, pytest.mark.fault]

Fault = Callable[[Any, Any, dict[str, Any]], None]


def scratch_of(worker: int) -> str:
    """The temporary directory of a worker's nsys."""
    return (
        Path(f"/proc/{worker}/environ")
        .read_bytes()
        .split(b"NSYS_AGENT_TMP_DIR=")[1]
        .split(b"\0")[0]
        .decode()
    )


def tools_of(worker: int) -> list[int]:
    """A worker's processes of nsys: command line, launcher and agent."""
    return list(tool_processes(scratch_of(worker)))


def command_line_of(worker: int) -> int:
    """The nsys command-line process above a worker."""
    commands = {
        pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in tools_of(worker)
    }
    (found,) = [pid for pid, words in commands.items() if b"profile" in words or b"launch" in words]
    return found


def kill(number: int) -> Fault:
    """A signal to the worker."""
    return lambda ray, actor, inside: os.kill(inside["pid"], number)


def kill_command_line(ray: Any, actor: Any, inside: dict[str, Any]) -> None:
    """SIGKILL to the nsys command line; then the worker ends by itself."""
    os.kill(command_line_of(inside["pid"]), signal.SIGKILL)
    assert ray.get(actor.train.remote(99)) == 99  # the worker goes on
    actor.__ray_terminate__.options(max_task_retries=0).remote()


def terminate_everything(ray: Any, actor: Any, inside: dict[str, Any]) -> None:
    """SIGTERM to nsys, its agent and the worker at once, as a container that is stopped."""
    for pid in [*tools_of(inside["pid"]), inside["pid"]]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def kill_agent(ray: Any, actor: Any, inside: dict[str, Any]) -> None:
    """SIGKILL to everything of nsys, then to the worker: only raw captures are left."""
    for pid in [*tools_of(inside["pid"]), inside["pid"]]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


FAULTS: dict[str, Fault] = {
    "SIGKILL of the worker": kill(signal.SIGKILL),
    "SIGTERM of the worker": kill(signal.SIGTERM),
    "SEGV of the worker": kill(signal.SIGSEGV),
    "ray.kill": lambda ray, actor, inside: ray.kill(actor),
    "exit_actor": lambda ray, actor, inside: actor.leave.remote(),
    "SIGKILL of the nsys command line": kill_command_line,
    "SIGTERM of all": terminate_everything,
    "SIGKILL of all": kill_agent,
}


SESSION = (
    "SIGKILL of the worker",
    "ray.kill",
    "SIGKILL of the nsys command line",
    "SIGTERM of all",
    "SIGKILL of all",
)
"""Those that the session gate is tried with as well: its reports are written by a command of nsys's
for each window.
"""

EXHAUSTIVE = {
    *(("session", fault) for fault in SESSION),
    ("nvtx", "SIGTERM of the worker"),
    ("nvtx", "SIGTERM of all"),
    ("nvtx", "SIGKILL of all"),
    ("nvtx", "exit_actor"),
    ("nvtx", "ray.kill"),
} - {("session", "SIGTERM of all")}
"""Of the ways in which a process ends alike, and of the gates, each run tries one."""


@pytest.mark.parametrize(
    ("gate", "fault"),
    [
        pytest.param(*each, marks=pytest.mark.exhaustive if each in EXHAUSTIVE else ())
        for each in [
            *(("nvtx", fault) for fault in FAULTS),
            *(("session", fault) for fault in SESSION),
        ]
    ],
)
def test_a_worker_that_ends_early_keeps_its_closed_windows(
    ray: Any, tmp_path: Path, gate: str, fault: str
) -> None:
    """A killed worker keeps its closed window; the receipt accounts for the other two."""
    with Profiler(
        config(tmp_path, steps=[2, 5, 7], on_error="disable", nsight={"gate": gate})
    ) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(4):
            with profiler.step(step):
                assert step == ray.get(actor.train.remote(step))
        inside = ray.get(actor.identity.remote())
        scratch = scratch_of(inside["pid"])
        FAULTS[fault](ray, actor, inside)
    closed, *lost = profiler.finalize().rows
    assert "step-2" == closed.window
    assert "complete" == closed.state
    assert "" == closed.reason
    assert {"forward-2": 3, "actor/run_training": 1}.items() <= labels(closed.file).items()
    assert [("missing", "the window was never opened")] * 2 == [
        (row.state, row.reason.partition(";")[0]) for row in lost
    ]
    assert [] == list(tool_processes(scratch))
    assert not Path(scratch).exists()


@pytest.mark.parametrize(
    ("gate", "fault"),
    [
        ("nvtx", "SIGKILL of the worker"),
        pytest.param("nvtx", "SIGTERM of all", marks=pytest.mark.exhaustive),
        pytest.param("nvtx", "SIGKILL of all", marks=pytest.mark.exhaustive),
        pytest.param("session", "SIGKILL of the worker", marks=pytest.mark.exhaustive),
        pytest.param("session", "SIGTERM of all", marks=pytest.mark.exhaustive),
        pytest.param("session", "SIGKILL of all", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_that_ends_in_its_window_keeps_the_one_before(
    ray: Any, tmp_path: Path, gate: str, fault: str
) -> None:
    """The open window is complete or reported as lost with the cause, never misplaced."""
    with Profiler(config(tmp_path, on_error="disable", nsight={"gate": gate})) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(2):
            ray.get(actor.train.remote(2))
        inside = ray.get(actor.identity.remote())
        scratch = scratch_of(inside["pid"])
        with profiler.step(5):
            ray.get(actor.train.remote(5))
            FAULTS[fault](ray, actor, inside)
    closed, opened = profiler.finalize().rows
    assert "complete" == closed.state
    assert 3 == labels(closed.file)["forward-2"]
    if opened.state == "complete":
        assert 0 == labels(opened.file)["forward-2"]
    else:
        # Where nsys is gone before or while it is told to stop, the reason is in its own words.
        causes = (
            "the worker ended while the window was open",
            "cannot be saved",
            "nsys stop was killed by",
            "nsys stop failed: ",
        )
        assert any(cause in opened.reason for cause in causes), opened.reason
        # it stays: what there is of the window lies there
        shutil.rmtree(scratch, ignore_errors=True)


JOB = """
import os, signal, sys
import ray
from gpuprof.ray import Profiler
from support.launching import config, start

temporary, output, end = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=temporary,
         _node_ip_address="127.0.0.1")
profiler = Profiler(config(output, steps=[2, 5]))
actor = start(profiler, "ActorGroup", 0)
for step in range(4):
    with profiler.step(step):
        ray.get(actor.train.remote(step))
print(profiler.run, ray.get(actor.identity.remote())["pid"], flush=True)
if end == "exception":
    raise RuntimeError("the driver fails")
if end == "SIGKILL":
    os.kill(os.getpid(), signal.SIGKILL)
if end == "ray.shutdown":
    ray.shutdown()
"""


@pytest.mark.parametrize(
    "end",
    # test_ray_shutdown_without_finalize has the last one
    [
        "SIGKILL",
        pytest.param("exception", marks=pytest.mark.exhaustive),
        pytest.param("ray.shutdown", marks=pytest.mark.exhaustive),
    ],
)
def test_a_driver_that_ends_early(tmp_path: Path, end: str) -> None:
    """Without `finalize` the closed window's report is there, and `gpuprof collect` names it."""
    temporary = make()
    command = [sys.executable, "-c", JOB, temporary, str(tmp_path), end]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    run, _ = done.stdout.split()
    collected = subprocess.run(
        [sys.executable, "-m", "gpuprof", "collect", str(tmp_path / run)], check=False
    )
    assert 1 == collected.returncode  # one is missing
    manifest = json.loads((tmp_path / run / "manifest.json").read_text())
    closed, lost = manifest["receipt"]["rows"]
    assert "complete" == closed["state"]
    assert 3 == labels(closed["file"])["forward-2"]
    assert f"{tmp_path}/{run}/{os.uname().nodename}/ActorGroup-0.step-2.nsys-rep" == closed["file"]
    assert "missing" == lost["state"]
    assert "the window was never opened" == lost["reason"]
    (report,) = (entry for entry in manifest["files"] if entry["file"] == closed["file"])
    assert "ActorGroup" == report["group"]
    assert 0 == report["rank"]
    assert "step-2" == report["window"]
    assert 2 == report["step"]
    version = re.search(
        r"\d+(\.\d+)+",
        subprocess.run(["nsys", "--version"], capture_output=True, text=True, check=True).stdout,
    )
    assert version is not None
    assert version[0] == report["tool_version"]
    (listed,) = runs(str(tmp_path))
    assert "1 of 2 reports complete" == listed.state


def test_nsys_that_fails_to_start_at_random(ray: Any, tmp_path: Path) -> None:
    """An nsys of which every third start fails costs no worker its reports."""
    nsys = tmp_path / "nsys"
    nsys.write_text(f"""#!/bin/sh
[ "$1" = profile ] || exec nsys "$@"
count=$(flock "{tmp_path}/lock" sh -c '
    n=$(cat "{tmp_path}/count" 2>/dev/null || echo 0); echo $((n + 1)) | tee "{tmp_path}/count"')
[ $((count % 3)) = 0 ] && {{ echo "Connection reset by peer" >&2; exit 1; }}
exec nsys "$@"
""")
    nsys.chmod(0o755)
    with Profiler(
        config(tmp_path / "out", steps=[0], nsight={"executable": str(nsys)})
    ) as profiler:
        actors = [start(profiler, "ActorGroup", rank) for rank in range(4)]
        with profiler.step(0):
            ray.get([actor.train.remote(0) for actor in actors])
    assert ["complete"] * 4 == [row.state for row in profiler.finalize().rows]
    # four workers, the trial before them, and what was tried again
    assert int((tmp_path / "count").read_text()) > 5


@pytest.fixture
def own_mounts() -> Iterator[Callable[[list[str]], None]]:
    """Mounts things for a test, and unmounts them."""
    mounted: list[str] = []

    def mount(words: list[str]) -> None:
        if subprocess.run(["mount", *words], check=False).returncode:
            pytest.skip("this machine does not let us mount")
        mounted.append(words[-1])

    yield mount
    for place in reversed(mounted):
        subprocess.run(["umount", "-l", place], check=False)


@pytest.mark.exhaustive  # a full disk takes the same path
def test_a_directory_that_becomes_read_only(
    ray: Any, tmp_path: Path, own_mounts: Callable[[list[str]], None]
) -> None:
    """A window that nsys wrote to its refuge is saved, and the job goes on."""
    place = tmp_path / "out"
    place.mkdir()
    own_mounts(["-t", "tmpfs", "-o", "size=64m", "gpuprof-test", str(place)])
    with Profiler(config(place, on_error="disable", nsight={"gate": "session"})) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(7):
            if step == 4:
                # a second mount of it: the first one has a file open for writing, nsys's log
                own_mounts(["--bind", str(place), str(place)])
                subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
            with profiler.step(step):
                assert step == ray.get(actor.train.remote(step))
        subprocess.run(["mount", "-o", "remount,bind,rw", str(place)], check=True)
    closed, late = profiler.finalize().rows
    assert "complete" == closed.state
    assert 3 == labels(closed.file)["forward-2"]
    assert "complete" == late.state
    assert 3 == labels(late.file)["forward-5"]
    assert any(fault.endswith("Read-only file system") for fault in profiler.finalize().faults)


def test_a_full_disk(ray: Any, tmp_path: Path, own_mounts: Callable[[list[str]], None]) -> None:
    """An unsaved window is reported with the place of its data, and the job goes on."""
    place = tmp_path / "out"
    place.mkdir()
    own_mounts(["-t", "tmpfs", "-o", "size=2m", "gpuprof-test", str(place)])
    with Profiler(config(place, on_error="disable", nsight={"gate": "session"})) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        scratch = scratch_of(ray.get(actor.identity.remote())["pid"])
        for step in range(7):
            if step == 4:
                with contextlib.suppress(OSError), (place / "filler").open("wb") as filler:
                    while True:
                        filler.write(bytes(4096))
                        filler.flush()
            with profiler.step(step):
                assert step == ray.get(actor.train.remote(step))
    closed, lost = profiler.finalize().rows
    assert "complete" == closed.state
    assert 3 == labels(closed.file)["forward-2"]
    assert "missing" == lost.state
    assert f"1 capture stays in {scratch}; make room" in lost.reason
    assert list(Path(scratch).rglob("nsys-report*"))
    shutil.rmtree(scratch)
    assert any("No space left on device" in fault for fault in profiler.finalize().faults)


def test_a_deleted_run_directory_is_named(ray: Any, tmp_path: Path) -> None:
    """The receipt says that the reports were deleted, and does not blame another tool."""
    with Profiler(config(tmp_path)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(6):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
        directory = Path(str(profiler.directory))

        def gone() -> bool:  # again if the worker has just written another file
            shutil.rmtree(directory, ignore_errors=True)
            return not directory.exists()

        wait_until(gone, "deleted: the run's directory")
    reason = "the run's directory on its node was deleted while the worker ran"
    assert [reason, reason] == [row.reason for row in profiler.finalize().rows]


def test_a_full_disk_at_home(
    ray: Any, tmp_path: Path, own_mounts: Callable[[list[str]], None]
) -> None:
    """A report without space at home stays on its node, and the receipt says where."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    own_mounts(["-t", "tmpfs", "-o", "size=256k", "gpuprof-test", str(home)])
    (home / "filler").write_bytes(bytes(140 * 1024))  # a report is about 150 KiB
    with Profiler(config(home, staging_dir=str(away), steps=[2])) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(3):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    receipt = profiler.finalize()
    (row,) = receipt.rows
    assert "complete" == row.state
    assert away == Path(row.file).parents[2]
    assert 3 == labels(row.file)["forward-2"]
    (fault,) = receipt.faults
    assert fault.startswith(
        f"{row.node}:{row.file} could not be brought home and lies there: [Errno 28] No space left"
    )
    assert [] == list(home.rglob("*.partial"))


def test_a_profiler_that_does_not_end(ray: Any, tmp_path: Path) -> None:
    """`finalize` stops waiting at its deadline; `collect` later names the profiler's report."""
    nsys, flag = tmp_path / "nsys", tmp_path / "flag"
    wait = f'while ! [ -e "{flag}" ]; do sleep 0.1; done'
    nsys.write_text(
        f'#!/bin/sh\nnsys "$@"; code=$?\ncase "$*" in *default_worker*) {wait} ;; esac\nexit '
        "$code\n"
    )
    nsys.chmod(0o755)
    with Profiler(
        config(tmp_path / "out", steps=None, nsight={"executable": str(nsys)})
    ) as profiler:
        ray.get(start(profiler, "ActorGroup", 0).train.remote(0))
        # nothing ends the wait for the profiler but this: the flag comes later
        (row,) = profiler.finalize(timeout=15).rows
    assert "missing" == row.state
    scratch, _, said = row.reason.removeprefix(
        "the profiler has not written it yet; the unfinished report is in "
    ).partition("; last lines of its log ")
    assert Path(scratch).is_dir()
    # Ray starts a worker again whose nsys has hung at its start
    assert re.match(rf"{row.node}/ActorGroup-0\.start-\d+\.log: ", said)
    flag.touch()
    subprocess.run(
        [sys.executable, "-m", "gpuprof", "collect", str(tmp_path / "out" / profiler.run)],
        check=True,
    )
    (report,) = (tmp_path / "out").rglob("*.nsys-rep")
    assert "ActorGroup-0.lifetime.nsys-rep" == report.name
    assert 3 == labels(str(report))["forward-0"]
