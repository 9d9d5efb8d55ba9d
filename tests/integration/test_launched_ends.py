"""The ends of `gpuprof run`: exit codes, signals, a lost profiler, restarts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.launched import GPUPROF, NSIGHT, environment, reports, run, started
from support.report_reader import labels
from support.waiting import wait_until


@pytest.mark.nsys
def test_a_worker_that_fails_keeps_its_report_and_its_exit_code(tmp_path: Path) -> None:
    """The exit code is the program's, and the report of the window that was open is there."""
    code = "import gpuprof\nwith gpuprof.step(1), gpuprof.timer('work'):\n    raise SystemExit(7)"
    done = run(
        tmp_path, [*GPUPROF, *NSIGHT, "--set", "steps=[1]", "--", sys.executable, "-c", code]
    )
    assert 7 == done.returncode
    assert 1 == labels(str(reports(tmp_path)["Program-0.step-1"]))["work"]


@pytest.mark.nsys
def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """Of the same signal, as launchers ask; and a receipt says what is missing."""
    code = (
        "import os, signal, gpuprof\nwith gpuprof.step(0):\n    pass\nos.kill(os.getpid(), "
        "signal.SIGKILL)"
    )
    done = run(
        tmp_path, [*GPUPROF, *NSIGHT, "--set", "steps=[0,1]", "--", sys.executable, "-c", code]
    )
    assert -signal.SIGKILL == done.returncode
    assert "the window was never opened; its last step was 0" in done.stderr
    assert ["Program-0.step-0"] == list(reports(tmp_path))


LOSES_AGENT = """
import os, signal, gpuprof
from gpuprof._shim.scratch import tool_processes
with gpuprof.step(0), gpuprof.timer("work"):
    pass
launcher = os.getppid()
front = int(open(f"/proc/{launcher}/stat").read().rpartition(")")[2].split()[1])
for pid in tool_processes(os.environ["NSYS_AGENT_TMP_DIR"]):
    if b"--start-agent" in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0"):
        os.kill(pid, signal.SIGKILL)
while os.path.exists(f"/proc/{front}"):  # it ends with 0
    pass
raise SystemExit(7)
"""


@pytest.mark.nsys
@pytest.mark.fault
@pytest.mark.parametrize("gate", [pytest.param("nvtx", marks=pytest.mark.exhaustive), "session"])
def test_a_program_that_outlives_nsys_keeps_its_exit_code(tmp_path: Path, gate: str) -> None:
    """nsys ends with 0 when its agent is killed, while the program goes on."""
    words = [*GPUPROF, *NSIGHT, "--set", "steps=[0,1]", "--set", f"nsight.gate={gate}"]
    done = run(tmp_path, [*words, "--", sys.executable, "-c", LOSES_AGENT])
    assert 7 == done.returncode, done.stderr
    assert "Program-0.step-0" in reports(tmp_path)


def nsys_that_does_not_start(directory: Path) -> list[str]:
    """One that passes every check, and fails once there is something to profile."""
    nsys = directory / "nsys"
    nsys.write_text(
        '#!/bin/sh\ncase "$*" in *" true" | *--version | *--help) exec nsys "$@" ;; esac\nexit 1\n'
    )
    nsys.chmod(0o755)
    return ["--set", f"nsight.executable={nsys}"]


@pytest.mark.nsys
@pytest.mark.parametrize(
    "staged",
    [
        pytest.param([], id="", marks=pytest.mark.exhaustive),
        pytest.param(["--set", "staging_dir=staging"], id="staged"),
    ],
)
def test_without_its_profiler_a_rank_runs_and_says_so_in_the_end(
    tmp_path: Path, staged: list[str]
) -> None:
    """The exit code is the program's, the tree is home, and stderr names what is missing."""
    code = (
        "import gpuprof, sys\nwith gpuprof.timer('work'):\n    print('said', "
        "file=sys.stderr)\nraise SystemExit(7)"
    )
    done = run(
        tmp_path,
        [
            *GPUPROF,
            *NSIGHT,
            *nsys_that_does_not_start(tmp_path),
            *staged,
            "--",
            sys.executable,
            "-c",
            code,
        ],
    )
    assert 7 == done.returncode
    before, after = done.stderr.split("said\n")
    reason = "nsys does not start (exit code 1): "
    assert f"Program-0 on {os.uname().nodename} runs without the profiler: {reason}" in before
    missing = re.escape(f"missing: the worker ran without the profiler: {reason}")
    assert re.search(rf"Program-0 lifetime .* {missing}", " ".join(after.split())), after
    assert "0 of 1 report complete" in after
    (tree,) = tmp_path.glob("gpuprof-output/*/*/Program-0.*.json")
    assert ["work"] == [node["key"] for node in json.loads(tree.read_text())["timing"]["children"]]


@pytest.mark.nsys
def test_without_a_place_for_its_files_a_rank_says_so_in_the_end(tmp_path: Path) -> None:
    """Without a staging directory the tree is written home, and the receipt has the reason."""
    (tmp_path / "staging").touch()
    code = "import gpuprof\nwith gpuprof.timer('work'):\n    pass"
    done = run(
        tmp_path,
        [*GPUPROF, *NSIGHT, "--set", "staging_dir=staging", "--", sys.executable, "-c", code],
    )
    assert 0 == done.returncode
    assert re.search(
        r"Program-0 lifetime .* missing: .*/staging/.* cannot be written: .*Not a directory",
        " ".join(done.stderr.split()),
    ), done.stderr
    assert 1 == len(list(tmp_path.glob("gpuprof-output/*/*/Program-0.*.json")))


@pytest.mark.nsys
@pytest.mark.fault
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive), signal.SIGKILL]
)
def test_without_its_profiler_a_rank_ends_as_it_is_told(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Signals to the wrapper reach the program, and killing the wrapper ends the program."""
    code = "import time\nprint('ready', flush=True)\ntime.sleep(600)\nprint('left behind')"
    command = [
        *GPUPROF,
        *NSIGHT,
        *nsys_that_does_not_start(tmp_path),
        "--",
        sys.executable,
        "-c",
        code,
    ]
    with started(tmp_path, command) as (process, output):
        process.send_signal(number)
        assert "" == output.read()  # the end of the program's output is the end of the program
    assert -number == process.returncode


COUNT_SIGNALS = """
import signal, sys, time
caught = []
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
    signal.signal(getattr(signal, name), lambda number, _: caught.append(number))
print("ready", flush=True)
while not caught:
    time.sleep(0.01)
time.sleep(0.5)  # a repeated signal comes within it; a slow machine may miss it
print(caught, flush=True)
sys.exit(5)
"""


@pytest.mark.nsys
@pytest.mark.parametrize(
    ("number", "to_group"),
    [
        pytest.param(signal.SIGTERM, False, id="SIGTERM-process", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGTERM, True, id="SIGTERM-group", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGINT, False, id="SIGINT-process", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGINT, True, id="SIGINT-group"),
        pytest.param(signal.SIGUSR1, False, id="SIGUSR1-process"),
        pytest.param(signal.SIGUSR1, True, id="SIGUSR1-group", marks=pytest.mark.exhaustive),
    ],
)
def test_a_signal_comes_once(tmp_path: Path, number: signal.Signals, to_group: bool) -> None:
    """A signal to the process or to its group reaches the program exactly once."""
    script = tmp_path / "script.py"
    script.write_text(COUNT_SIGNALS)
    command = [*GPUPROF, *NSIGHT, "--", sys.executable, str(script)]
    with started(tmp_path, command) as (process, output):
        (os.killpg if to_group else os.kill)(process.pid, number)
        printed = output.read()
    assert f"[{number.value}]\n" in printed
    assert 5 == process.returncode
    assert ["Program-0.lifetime"] == list(reports(tmp_path))


@pytest.mark.nsys
def test_files_that_the_launcher_has_open_stay_open(tmp_path: Path) -> None:
    """Ranks of MPI talk to their launcher over one."""
    reader, writer = os.pipe()
    os.write(writer, b"a word")
    os.close(writer)
    command = [
        *GPUPROF,
        *NSIGHT,
        "--",
        sys.executable,
        "-c",
        f"import os; print(os.read({reader}, 9))",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(),
        pass_fds=(reader,),
        stdout=subprocess.PIPE,
        check=True,
    )
    os.close(reader)
    assert b"b'a word'\n" == done.stdout


HANGS = """
import signal, threading, gpuprof
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in range(3):
    with gpuprof.step(number), gpuprof.timer("work"):
        pass
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_run_that_ctrl_c_ends_says_so(tmp_path: Path) -> None:
    """It has an end, but not one of its own."""
    with started(tmp_path, [*GPUPROF, "--", sys.executable, "-c", HANGS]) as (process, output):
        os.killpg(process.pid, signal.SIGINT)
        output.read()
    explained = run(tmp_path, [*GPUPROF[:-1], "explain", "--json"])
    assert "interrupted" == json.loads(explained.stdout)["state"], explained.stderr


FAIL_ONCE = """
import os, gpuprof
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
with gpuprof.step(1), gpuprof.timer(f"attempt-{attempt}"):
    pass
raise SystemExit(0 if attempt else 3)
"""


@pytest.mark.nsys
@pytest.mark.torch
@pytest.mark.fault
def test_a_job_that_torchrun_restarts_overwrites_nothing(tmp_path: Path) -> None:
    """The second attempt is the same run, with reports of its own."""
    script = tmp_path / "script.py"
    script.write_text(FAIL_ONCE)
    wrapper = [
        "-m",
        "gpuprof",
        "run",
        *NSIGHT,
        "--set",
        "steps=[1]",
        "--",
        sys.executable,
        str(script),
    ]
    torchrun = [
        "torchrun",
        "--log-dir",
        str(tmp_path / "log"),
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "1",
    ]
    done = run(tmp_path, [*torchrun, *wrapper])
    assert 0 == done.returncode, done.stderr
    found = {name: dict(labels(str(file))) for name, file in reports(tmp_path).items()}
    expected = {"Worker-0.step-1": "attempt-0", "Worker-0.step-1.2": "attempt-1"}
    assert expected == {
        name: next(label for label in found[name] if label != "gate") for name in sorted(found)
    }
    assert 1 == len(list(tmp_path.glob("gpuprof-output/*")))


HANG = """
import signal, time, gpuprof
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with gpuprof.step(0), gpuprof.timer("work"):
    pass
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.nsys
@pytest.mark.fault
def test_a_rank_that_is_killed_with_its_group(tmp_path: Path) -> None:
    """A killed rank ends at once, and its closed window's report gets its name."""
    script = tmp_path / "script.py"
    script.write_text(HANG)
    command = [*GPUPROF, *NSIGHT, "--set", "steps=[0]", "--", sys.executable, str(script)]
    with started(tmp_path, command) as (process, output):
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGKILL)
        assert "" == output.read()  # the end of the program's output is the end of the program
    settled = "gpuprof-output/*/*/.gpuprof/*.settled"
    wait_until(lambda: list(tmp_path.glob(settled)), f"there: {settled}")
    assert 1 == labels(str(reports(tmp_path)["Program-0.step-0"]))["work"]


STOPPED = """
import os, signal, time, gpuprof

def nsys():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            continue
        if f"TMPDIR={os.environ['NSYS_AGENT_TMP_DIR']}".encode() in environment.split(b"\\0"):
            yield int(pid)

took = []
for step in range(4):
    if step == 1:
        stopped = list(nsys())
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with gpuprof.step(step):
        pass
    took.append(time.monotonic() - began)
for pid in stopped:
    os.kill(pid, signal.SIGCONT)
print(len(stopped) > 0, max(took[1:]))
"""


@pytest.mark.nsys
def test_a_profiler_that_is_stopped_does_not_hold_the_job(tmp_path: Path) -> None:
    """A step waits for some seconds, the later ones not at all, and the receipt says why."""
    words = [*GPUPROF, *NSIGHT, "--set", "steps=[0,1,2]", "--set", "nsight.gate=nvtx"]
    done = run(tmp_path, [*words, "--", sys.executable, "-c", STOPPED])
    stopped, longest = done.stdout.split()[-2:]
    assert "True" == stopped, done.stderr
    assert float(longest) < 20  # 5 here, and 30 for one that waits for an answer
    said = " ".join(done.stderr.split())
    assert "missing: the profiler does not respond; the job goes on" in said
    assert "Program-0.step-0" in reports(tmp_path)
