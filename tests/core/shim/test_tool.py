"""How `gpuprof run` ends: as its program did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpuprof._shim import tool
from gpuprof._shim.processes import process_start
from support.waiting import DEADLINE

END = """
import resource, sys
from gpuprof._shim.tool import end_as
_, most = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
print("said", end="")
sys.exit(end_as(int(sys.argv[1])))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_to_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """A launcher sees the signal that its program died of, all output, and no core file of ours."""
    monkeypatch.chdir(tmp_path)
    reader, writer = os.pipe()
    command = [sys.executable, "-c", END, str(128 + number)]
    pid = os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)]
    )
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    with open(reader) as output:
        assert "said" == output.read()
    assert (number, False) == (os.WTERMSIG(status), os.WCOREDUMP(status))


@pytest.mark.parametrize(
    "code", [0, 1, 128, 128 + signal.SIGSTOP, 128 + signal.SIGCHLD, 128 + 40, 255]
)
def test_other_exit_codes_stay_what_they_are(code: int) -> None:
    """Also of signals that end nobody: stopping or ignored ones, and freely chosen numbers."""
    done = subprocess.run(
        [sys.executable, "-c", END, str(code)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (code, "said") == (done.returncode, done.stdout), done.stderr


def test_a_worker_that_ends_before_a_signal_is_sent_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking whether it runs and sending are two steps: it may end between them."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as worker:
        start = process_start(worker.pid) or ""
    monkeypatch.setattr(tool, "process_start", lambda _: start)
    tool.send((worker.pid, start), signal.SIGTERM)


WAIT = """
import os, sys
from gpuprof._shim.tool import adopt_orphans, start, wait
adopt_orphans(sys.argv[1] == "adopts")
process = start(["/bin/sh", "-c", sys.argv[3], sys.argv[2]], dict(os.environ), apart=False)
print(*wait(process, sys.argv[2], True, False, [])[:2])
"""
OUTLIVES = (
    """sh -c 'read -r stat </proc/$$/stat; echo "$stat" >"$0"; """
    """while [ -e /proc/$FRONT ]; do :; done; exit 7' "$0" &"""
)


@pytest.mark.parametrize(("adopts", "code"), [("adopts", "7 True"), ("", "None True")])
def test_an_exit_code_that_nobody_knows_is_none(tmp_path: Path, adopts: str, code: str) -> None:
    """Where orphans go elsewhere, the 0 of a tool that ends first is not taken for the worker's."""
    script = f'export FRONT=$$; {OUTLIVES} until [ -s "$0" ]; do :; done; exit 0'
    done = subprocess.run(
        [sys.executable, "-c", WAIT, adopts, str(tmp_path / "mark"), script],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert code == done.stdout.strip()


STALLS = """
import os, sys
from gpuprof._shim import tool
tool.PATIENCE = 0.0
tool.adopt_orphans(True)
mark, scratch = sys.argv[1:3]
environment = {**os.environ, "TMPDIR": scratch}
process = tool.start(["/bin/sh", "-c", sys.argv[3], mark], environment, apart=False)
print(*tool.wait(process, mark, True, False, [], scratch))
"""


def test_a_tool_that_has_lost_its_worker_is_not_waited_for(tmp_path: Path) -> None:
    """Like an nsys whose launcher was killed: the exit code is the worker's all the same."""
    worker = (
        """env -u TMPDIR sh -c 'read -r stat </proc/$$/stat; echo "$stat" >"$0"; exit 7' "$0" &"""
    )
    script = f"({worker}); exec sleep 1000000"
    (tmp_path / "scratch").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", STALLS, str(tmp_path / "mark"), str(tmp_path / "scratch"), script],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert "7 True True" == done.stdout.strip()
