"""The shim, as a process in front of a process.

The profiler is a small program that starts its target, or fails to.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._shim import PROGRAM
from gpuprof._shim.processes import process_start
from gpuprof._shim.row import VARIABLE, decode, encode
from support.waiting import DEADLINE, wait_until

REPORT_SELF = (
    "import json, os, sys; print(json.dumps([sys.executable, sys.argv, "
    "sys.flags.dev_mode, dict(os.environ)]))"
)


LAUNCH: dict[str, Any] = {
    "environment": {},
    "interpreter": [sys.executable],
    "tool": "env",
    "tool_version": "1",
    "shared_temporary": [],
    "disposable_temporary": [],
}


def prepare(
    directory: Path, launch: dict[str, Any], *arguments: str, **row: Any
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of the shim, as Ray would run it."""
    made: dict[str, Any] = {
        "version": 1,
        "run": "run",
        "group": "A",
        "rank": 0,
        "output_dir": str(directory),
        "nodes": ["all"],
    }
    made["launch"] = {
        "environment": {},
        "interpreter": [sys.executable],
        "tool": "env",
        "tool_version": "1",
        "shared_temporary": [],
        "disposable_temporary": [],
        **launch,
    }
    environment = {**os.environ, VARIABLE: encode({**made, **row})}
    return [sys.executable, "-S", "-E", str(PROGRAM), *arguments], environment


def run(
    directory: Path, launch: dict[str, Any], *arguments: str, **row: Any
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command, environment = prepare(directory, launch, *arguments, **row)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )


def tool(directory: Path, script: str) -> str:
    """A profiler: a shell script that is given the target as its arguments."""
    file = directory / "tool"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def inside(
    done: subprocess.CompletedProcess[str],
) -> tuple[str, list[str], bool, dict[str, str], dict[str, Any]]:
    """What the worker saw, and its row."""
    executable, arguments, dev_mode, environment = json.loads(done.stdout.splitlines()[-1])
    return executable, arguments, dev_mode, environment, decode(environment[VARIABLE])


def status(directory: Path) -> dict[str, Any]:
    """What the shim left behind of its first start."""
    (file,) = directory.glob("run/*/.gpuprof/A-0.start-1.tool")
    content: dict[str, Any] = json.loads(file.read_text())
    return {
        key: value
        for key, value in content.items()
        if key == "state" or (value and key in ("reason", "exit_code"))
    }


def test_the_worker_sees_what_it_would_have_seen(tmp_path: Path) -> None:
    """Interpreter, its flags, and arguments with every character that a shell would touch."""
    awkward = ["a b", "$HOME", "'", '"', "\\", "%p", "{node}", "\N{SNOWMAN}", ""]
    launch = {"command": ["{tool}", "{interpreter}"], "interpreter": [sys.executable, "-X", "dev"]}
    executable, arguments, dev_mode, _, row = inside(
        run(tmp_path, launch, "-c", REPORT_SELF, *awkward)
    )
    assert (sys.executable, ["-c", *awkward], True) == (executable, arguments, dev_mode)
    assert ("owner", "1", os.uname().nodename) == (row["role"], row["incarnation"], row["node"])
    assert {"state": "ended"} == status(tmp_path)


def test_late_values(tmp_path: Path) -> None:
    """Node and incarnation are known on the node only; a value of None unsets."""
    values = {"SET": "{node} {incarnation} $HOME", "HOME": None}
    *_, environment, _ = inside(
        run(
            tmp_path,
            {"command": ["{tool}", "{interpreter}"], "environment": values},
            "-c",
            REPORT_SELF,
        )
    )
    assert (f"{os.uname().nodename} 1 $HOME", None) == (environment["SET"], environment.get("HOME"))


@pytest.mark.parametrize("code", [0, 3, 143])
def test_the_exit_code_passes(tmp_path: Path, code: int) -> None:
    """Whoever waits for the worker learns how it ended."""
    assert (
        code
        == run(
            tmp_path, {"command": ["{tool}", "{interpreter}"]}, "-c", f"raise SystemExit({code})"
        ).returncode
    )


LOSES_EXIT_CODES = f'{sys.executable} "$@"; exit 0'


@pytest.mark.parametrize(
    ("end", "code"), [("raise SystemExit(3)", 3), ("raise KeyError(1)", 1), ("pass", 0)]
)
def test_the_exit_code_passes_a_tool_that_loses_it(tmp_path: Path, end: str, code: int) -> None:
    """The words in front of the script note it."""
    script = tmp_path / "script.py"
    script.write_text(end)
    launch = {"command": ["{tool}", "{keep_exit_code}"], "tool": tool(tmp_path, LOSES_EXIT_CODES)}
    assert code == run(tmp_path / "out", launch, str(script)).returncode
    assert {"state": "ended", **({"exit_code": code} if code else {})} == status(tmp_path / "out")


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(5)",
        "os.abort()",
        *(f"os.kill(os.getpid(), signal.{name})" for name in ("SIGSEGV", "SIGKILL", "SIGTERM")),
    ],
)
def test_a_worker_whose_exit_code_is_lost_has_not_ended_well(tmp_path: Path, end: str) -> None:
    """What ends past Python's own ways leaves no exit code, and stderr says so."""
    script = tmp_path / "script.py"
    script.write_text(f"import os, signal\n{end}")
    launch = {"command": ["{tool}", "{keep_exit_code}"], "tool": tool(tmp_path, LOSES_EXIT_CODES)}
    done = run(tmp_path / "out", launch, str(script))
    assert os.EX_SOFTWARE == done.returncode
    assert "ends with 70: the exit code is unknown: the program was killed" in done.stderr
    (file,) = (tmp_path / "out").glob("run/*/.gpuprof/A-0.start-1.tool")
    assert json.loads(file.read_text())["exit_code"] is None


def test_a_tool_that_fails_after_its_script_does_not_fail_the_job(tmp_path: Path) -> None:
    """The script has noted its exit code before."""
    script = tmp_path / "script.py"
    script.write_text("pass")
    launch = {
        "command": ["{tool}", "{keep_exit_code}"],
        "tool": tool(tmp_path, f'{sys.executable} "$@"; exit 3'),
    }
    assert 0 == run(tmp_path / "out", launch, str(script)).returncode


AS_LAUNCHED = (
    "import json, os, signal; mask = os.umask(0); "
    "numbers = [n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN]; "
    "print(json.dumps([mask, numbers]))"
)


def ignore_some() -> None:
    """As `nohup` and a shell's `&` do, and a server that does not wait for its children."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize(
    "script",
    [
        'umask 0\nexec "$@"',
        # lets the target die of signals that it does not know, as nsys does
        (
            f"exec {sys.executable} -c 'import os, signal, sys; "
            "[signal.signal(n, signal.SIG_DFL) for n in (1, 2, 3, 17)]; "
            'os.execvp(sys.argv[1], sys.argv[1:])\' "$@"'
        ),
        "exit 1",
    ],
    ids=["sets-the-umask", "resets-signals", "does-not-start"],
)
def test_the_worker_has_the_umask_and_the_signals_of_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Whatever the profiler makes of them, and also where the worker runs without it."""
    launch = {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, script)}
    command, environment = prepare(tmp_path, launch, "-c", AS_LAUNCHED)
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        umask=0o027,
        preexec_fn=ignore_some,
        timeout=DEADLINE,
        check=False,
    )
    ignored = sorted({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD})
    pythons_own = [signal.SIGPIPE, signal.SIGXFSZ]
    assert [0o027, sorted([*ignored, *pythons_own])] == json.loads(done.stdout), done.stderr


def test_a_signal_passes(tmp_path: Path) -> None:
    """A worker that kills its parent with SIGTERM gets the signal itself."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "signal.pause()"
    )
    assert 9 == run(tmp_path, {"command": ["{tool}", "{interpreter}"]}, "-c", code).returncode


@pytest.mark.parametrize("apart", [False, True])
def test_a_signal_passes_a_tool_that_ends_well_by_it(tmp_path: Path, apart: bool) -> None:
    """As nsys does, which then ends with 0: the worker's own exit code is the launcher's."""
    launch = {
        "command": ["{tool}", "{interpreter}"],
        "tool": tool(tmp_path, '"$@" & trap "kill -TERM $!; wait; exit 0" TERM; wait $!; exit $?'),
        "apart": apart,
    }
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "launcher = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
        "os.kill(launcher, signal.SIGTERM)\n"
        "signal.pause()"
    )
    assert 9 == run(tmp_path / "out", launch, "-c", code).returncode


@pytest.mark.parametrize(
    ("script", "code"),
    [('trap "exit 0" TERM; "$@" & wait $!; exit $?', 9), ('exec "$@"', 0)],
    ids=["a tool that would end by it", "a tool that is the worker"],
)
def test_a_signal_to_the_group_passes_the_tool_by(tmp_path: Path, script: str, code: int) -> None:
    """It is meant for the worker, and the exit code is the worker's."""
    launch = {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, script)}
    end = (
        "import os, signal\n"
        f"signal.signal(signal.SIGTERM, lambda *_: os._exit({code}))\n"
        "os.killpg(0, signal.SIGTERM)\n"
        "signal.pause()"
    )
    command, environment = prepare(tmp_path / "out", launch, "-c", end)
    done = subprocess.run(
        command, env=environment, start_new_session=True, timeout=DEADLINE, check=False
    )
    assert code == done.returncode


END_GROUP = "import os, signal; print(os.getpgrp(), flush=True); os.killpg(0, signal.SIGKILL)"


def test_a_report_that_is_written_after_the_group_was_killed(tmp_path: Path) -> None:
    """As Ray kills the group of a worker that has ended: the tool goes on without the shim."""
    report, release = tmp_path / "report", tmp_path / "release"
    os.mkfifo(release)
    script = f'"$@"; read line <{release}; echo written >{report}'
    launch = {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, script)}
    command, environment = prepare(tmp_path / "out", launch, "-c", END_GROUP)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as shim:
        assert shim.stdout is not None
        assert f"{shim.pid}\n" == shim.stdout.readline()  # the worker is in the shim's group
        assert -signal.SIGKILL == shim.wait(DEADLINE)
        release.write_text("go\n")  # waits for the tool to read it
        wait_until(lambda: report.exists() and report.read_text(), "written: the report")
    assert "written\n" == report.read_text()


IN_TERMINAL = """
import os, signal
print("owns it:", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
signal.signal(signal.SIGINT, lambda *_: os._exit(5))
print("read:", input(), flush=True)
signal.pause()
"""


def test_a_worker_in_a_terminal(tmp_path: Path) -> None:
    """It can read, and gets Ctrl-C; a tool that prints in the background is not stopped."""
    script = 'exec 3>/dev/tty; stty tostop <&3; echo begins >&3; "$@"; c=$?; echo ends >&3; exit $c'
    launch = {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, script)}
    command, environment = prepare(tmp_path / "out", launch, "-c", IN_TERMINAL)
    shim, terminal = pty.fork()
    if not shim:
        os.execve(command[0], command, environment)
    shown = b""

    def show(until: bytes) -> None:
        nonlocal shown
        while until not in shown:
            assert select.select([terminal], [], [], DEADLINE)[0], shown
            shown += os.read(terminal, 1024)

    show(b"owns it: True")
    os.write(terminal, b"a line\n")
    show(b"read: a line")
    os.write(terminal, b"\x03")
    show(b"ends")
    assert 5 == os.waitstatus_to_exitcode(os.waitpid(shim, 0)[1])
    os.close(terminal)


def test_a_worker_that_dies_by_a_signal(tmp_path: Path) -> None:
    """128 and the signal's number, as shells say it."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert (
        128 + signal.SIGKILL
        == run(tmp_path, {"command": ["{tool}", "{interpreter}"]}, "-c", code).returncode
    )


BY_PATH = ["env", "INTERPRETER={interpreter}", "{tool}"]
"""A tool that is told the interpreter, as launchers that are scripts are."""


def test_an_interpreter_that_is_told_keeps_its_flags(tmp_path: Path) -> None:
    """The variable has the path of a program that becomes the interpreter, in any directory."""
    launch = {
        "command": BY_PATH,
        "tool": tool(tmp_path, 'exec "$INTERPRETER" "$@"'),
        "interpreter": [sys.executable, "-X", "dev"],
    }
    directory = tmp_path / "it's $HOME"
    executable, arguments, dev_mode, _, row = inside(
        run(directory, launch, "-c", REPORT_SELF, "a b")
    )
    assert (sys.executable, ["-c", "a b"], True, "owner") == (
        executable,
        arguments,
        dev_mode,
        row["role"],
    )
    assert {"state": "ended"} == status(directory)


def test_a_signal_reaches_the_worker_behind_a_script(tmp_path: Path) -> None:
    """The worker gets the signal, of which the tool's shell would die; the shim outlives both."""
    launch = {"command": BY_PATH, "tool": tool(tmp_path, '"$INTERPRETER" "$@"; exit $?')}
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "launcher = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
        "os.kill(launcher, signal.SIGTERM)\n"
        "signal.pause()"
    )
    assert 9 == run(tmp_path / "out", launch, "-c", code).returncode


def test_whoever_uses_the_interpreters_path_again_is_not_the_worker(tmp_path: Path) -> None:
    """The variable is inherited; a child that uses it does not take the worker's mark."""
    launch = {"command": BY_PATH, "tool": tool(tmp_path, 'exec "$INTERPRETER" "$@"')}
    code = (
        "import os, subprocess; print(os.getpid(), flush=True); "
        "subprocess.run([os.environ['INTERPRETER'], '-c', ''])"
    )
    worker = int(run(tmp_path / "out", launch, "-c", code).stdout)
    (mark,) = tmp_path.glob("out/run/*/.gpuprof/A-0.start-1.target")
    assert worker == int(mark.read_text().split()[0])


def test_a_flaky_start_is_tried_again(tmp_path: Path) -> None:
    """A tool that fails twice before its target starts is run again; the worker runs once."""
    script = (
        f'echo try >>{tmp_path}/tries; [ $(wc -l <{tmp_path}/tries) -ge 3 ] || exit 1\nexec "$@"'
    )
    done = run(
        tmp_path / "out",
        {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, script)},
        "-c",
        "print('worked')",
    )
    assert (0, "worked\n", "") == (done.returncode, done.stdout, done.stderr)
    assert 3 == (tmp_path / "tries").read_text().count("try")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_runs_once_whoever_removes_the_directory(tmp_path: Path, when: str) -> None:
    """The mark disappears with the directory, yet a started worker is not started again."""
    # Again where the shim writes a file into it at that moment.
    again = f"until rm -rf {tmp_path}/out/run 2>/dev/null; do :; done\n"
    remove = again if when == "before" else ""
    launch = {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, f'{remove}exec "$@"')}
    # The shim looks for the mark every tenth of a second.
    code = (
        "import shutil, time; print('worked'); time.sleep(2); "
        f"shutil.rmtree({str(tmp_path / 'out/run')!r})"
    )
    done = run(tmp_path / "out", launch, "-c", code)
    assert (0, "worked\n", "") == (done.returncode, done.stdout, done.stderr)


def test_a_full_disk_takes_an_empty_mark(tmp_path: Path) -> None:
    """Which says that the worker has started, as well, if not as which process."""
    empty = 'mkdir -p "$(dirname "$4")"; : >"$4"; exec "$@"'  # sh -c SCRIPT MARK
    launch = {
        "command": ["{tool}", "{interpreter}"],
        "tool": tool(tmp_path, f'[ "$1" = /bin/sh ] || exit 9\n{empty}'),
    }
    done = run(tmp_path / "out", launch, "-c", "print('worked'); raise SystemExit(7)")
    assert (7, "worked\n") == (done.returncode, done.stdout)


def test_what_an_attempt_has_left_is_ended(tmp_path: Path) -> None:
    """It would otherwise be waited for after the worker's end, as if it wrote the report."""
    tries, agent = tmp_path / "tries", tmp_path / "agent"
    late = f"{{ read line <{agent}; }} >/dev/null 2>&1 & echo $! >{tmp_path}/pid; exit 2"
    os.mkfifo(agent)
    script = f'echo >>{tries}; [ $(wc -l <{tries}) -eq 2 ] && exec "$@"; {late}'
    done = run(
        tmp_path / "out",
        {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, script)},
        "-c",
        REPORT_SELF,
    )
    assert 0 == done.returncode, done.stderr
    assert "unwrapped" not in inside(done)[-1]
    assert process_start(int((tmp_path / "pid").read_text())) is None


@pytest.mark.parametrize(
    "fails",
    [
        "(while [ -e /proc/$$ ]; do :; done; kill -TERM $PPID) >/dev/null 2>&1 & exit 2",
        "kill -TERM $PPID; read never",
    ],
    ids=["between", "within"],
)
def test_a_signal_before_the_worker_has_started_ends_it(tmp_path: Path, fails: str) -> None:
    """A worker that was told to end between two attempts is not started; nothing is left."""
    tries, temporary = tmp_path / "tries", tmp_path / "temporary"
    temporary.mkdir()
    script = (
        f"echo >>{tries}; [ $(wc -l <{tries}) -eq 2 ] || exit 2\nmkfifo {tmp_path}/fifo; exec "
        f"0<>{tmp_path}/fifo\n{fails}"
    )
    environment = {"TMPDIR": str(temporary)}
    launch = {
        "command": ["{tool}", "{interpreter}"],
        "tool": tool(tmp_path, script),
        "environment": environment,
    }
    done = run(tmp_path / "out", launch, "-c", REPORT_SELF)
    assert (128 + signal.SIGTERM, "") == (done.returncode, done.stdout)
    assert 2 == len(tries.read_text().splitlines())
    assert [] == list(temporary.iterdir())


def test_a_tool_that_refuses_is_left_out(tmp_path: Path) -> None:
    """The worker runs without it; stderr, the row and the disk have the tool's own words."""
    launch = {
        "command": ["{tool}", "--bogus", "{interpreter}"],
        "tool": tool(tmp_path, "echo unrecognised option $1 >&2; exit 2"),
    }
    done = run(tmp_path / "out", launch, "-c", REPORT_SELF)
    *_, row = inside(done)
    reason = "tool does not start (exit code 2): unrecognised option --bogus"
    assert (reason, {"state": "unwrapped", "reason": reason}) == (
        row["unwrapped"],
        status(tmp_path / "out"),
    )
    assert (
        f"gpuprof: A-0 on {os.uname().nodename} runs without the profiler: {reason}" in done.stderr
    )


SPEAK = "import os, sys; os.write(1, b'out '); os.write(2, b'err '); print(os.isatty(1))"


@pytest.mark.parametrize("apart", [False, True])
def test_what_the_tool_prints_goes_to_its_log(tmp_path: Path, apart: bool) -> None:
    """The worker's outputs have the worker's words only, also if the tool copies its outputs."""
    script = 'echo begins; echo fails >&2; { "$@"; } 2>&1 | cat; echo ends'
    launch = {
        "command": ["{tool}", "{interpreter}"],
        "tool": tool(tmp_path, script),
        "apart": apart,
    }
    done = run(tmp_path / "out", launch, "-c", SPEAK)
    (log,) = (tmp_path / "out").glob("run/*/A-0.start-1.log")
    assert ("out False\n", "err ") == (done.stdout, done.stderr)
    assert "begins\nfails\nends\n" == log.read_text()


def test_the_log_follows_the_umask(tmp_path: Path) -> None:
    """It is as private as the other files of the worker."""
    usual = os.umask(0o077)
    try:
        launch = {
            "command": ["{tool}", "{interpreter}"],
            "tool": tool(tmp_path, 'umask 0; echo hello; "$@"'),
        }
        run(tmp_path / "out", launch, "-c", "pass")
    finally:
        os.umask(usual)
    (log,) = (tmp_path / "out").glob("run/*/A-0.start-1.log")
    assert 0o600 == log.stat().st_mode & 0o777


def test_a_tool_that_prints_nothing_leaves_no_log(tmp_path: Path) -> None:
    """An empty file would tell nobody anything."""
    launch = {"command": ["{tool}", "{interpreter}"]}
    assert 0 == run(tmp_path / "out", launch, "-c", "pass").returncode
    assert [] == list((tmp_path / "out").glob("run/*/*.log"))


def test_a_tool_that_closes_what_it_inherits(tmp_path: Path) -> None:
    """The worker gets its outputs all the same, and not the tool's log."""
    script = 'echo begins; "$@" 3>&- 4</dev/null'
    launch = {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, script)}
    done = run(tmp_path / "out", launch, "-c", SPEAK)
    (log,) = (tmp_path / "out").glob("run/*/A-0.start-1.log")
    assert ("out False\n", "err ") == (done.stdout, done.stderr)
    assert "begins\n" == log.read_text()


def test_without_free_numbers_the_tool_shares_the_outputs(tmp_path: Path) -> None:
    """A shell redirects numbers of one digit only; nothing that the worker prints is lost."""
    launch = {"command": ["{tool}", "{interpreter}"], "tool": tool(tmp_path, 'echo begins; "$@"')}
    command, environment = prepare(tmp_path / "out", {**launch, "apart": True}, "-c", SPEAK)
    taken = " ".join(f"{number}</dev/null" for number in range(3, 10))
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {taken}', "sh", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ("begins\nout False\n", "err ") == (done.stdout, done.stderr)


def test_a_tool_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    """A node without the tool runs the worker all the same."""
    done = run(
        tmp_path,
        {"command": ["{tool}", "{interpreter}"], "tool": "/nowhere/profiler"},
        "-c",
        REPORT_SELF,
    )
    *_, row = inside(done)
    assert "/nowhere/profiler cannot be run: No such file or directory" == row["unwrapped"]


def test_a_tool_at_another_place_is_found_on_path(tmp_path: Path) -> None:
    """The planned path is the driver's; a node may have the program elsewhere."""
    done = run(
        tmp_path,
        {"command": ["{tool}", "{interpreter}"], "tool": "/elsewhere/env"},
        "-c",
        REPORT_SELF,
    )
    assert "unwrapped" not in inside(done)[-1]


def test_an_unwritable_directory_is_no_reason_not_to_work(tmp_path: Path) -> None:
    """The worker runs, unwrapped, and says why."""
    (tmp_path / "out").touch()
    done = run(tmp_path / "out", {"command": ["{tool}", "{interpreter}"]}, "-c", "print('worked')")
    assert (0, "worked\n") == (done.returncode, done.stdout)
    assert "cannot be written" in done.stderr


def test_a_node_that_is_not_selected(tmp_path: Path) -> None:
    """A node that `nodes` does not select runs the worker with no process in front."""
    launch = {"command": ["{tool}", "{interpreter}"]}
    *_, row = inside(run(tmp_path, launch, "-c", REPORT_SELF, nodes=["other-*"], profiled=True))
    assert (False, "owner") == (row["profiled"], row["role"])
    assert {"state": "unselected"} == status(tmp_path)


def test_a_child_of_a_living_worker_runs_unwrapped(tmp_path: Path) -> None:
    """A worker that starts a worker with its own row has one profiler, not two."""
    launch = {"command": ["{tool}", "{interpreter}"]}
    original = encode({
        "version": 1, "run": "run", "group": "A", "rank": 0, "output_dir": str(tmp_path),
        "nodes": ["all"], "launch": {**LAUNCH, **launch},
    })  # fmt: skip
    code = (
        "import os, subprocess, sys\n"
        f"os.environ['{VARIABLE}'] = '{original}'\n"
        f"subprocess.run([sys.executable, '-S', '-E', {PROGRAM!r}, '-c', {REPORT_SELF!r}], "
        "check=True)"
    )
    *_, row = inside(run(tmp_path, launch, "-c", code))
    assert "child" == row["role"]
    assert ["A-0.start-1.tool"] == [file.name for file in tmp_path.glob("run/*/.gpuprof/*.tool")]


def test_the_users_own_variables_have_no_placeholders(tmp_path: Path) -> None:
    """A value that the user gave stays as it is, also with what a plan's placeholder looks like."""
    launch = {
        "command": [tool(tmp_path, 'exec "$@"'), "{interpreter}"],
        "environment": {"USERS": "{incarnation}", "OURS": "{incarnation}"},
        "verbatim": ["USERS"],
    }
    environment = inside(run(tmp_path, launch, "-c", REPORT_SELF))[3]
    assert ("{incarnation}", "1") == (environment["USERS"], environment["OURS"])


def test_a_second_start_is_a_new_incarnation(tmp_path: Path) -> None:
    """Once the first worker is gone, the same identity starts anew, under another name."""
    launch = {"command": ["{tool}", "{interpreter}"]}
    rows = [inside(run(tmp_path, launch, "-c", REPORT_SELF))[-1] for _ in range(2)]
    assert [("owner", "1"), ("owner", "2")] == [(row["role"], row["incarnation"]) for row in rows]


def test_a_tool_shares_of_its_temporary_directory_what_it_must(tmp_path: Path) -> None:
    """A lock is shared with other tools; all else is the tool's own, and removed with it."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script = (
        'mkdir -p "$TMPDIR/vendor/locks"; touch "$TMPDIR/vendor/locks/lock" "$TMPDIR/own"; '
        'exec "$@"'
    )
    launch = {"command": [tool(tmp_path, script), "{interpreter}"], "shared_temporary": ["vendor"]}
    for _ in range(2):
        environment = inside(
            run(tmp_path, {**launch, "environment": {"TMPDIR": str(temporary)}}, "-c", REPORT_SELF)
        )[3]
        assert str(temporary) == environment["TMPDIR"]
    assert ["vendor", "vendor/locks", "vendor/locks/lock"] == sorted(
        str(path.relative_to(temporary)) for path in temporary.rglob("*")
    )
    assert 0o777 == (temporary / "vendor").stat().st_mode & 0o777


def test_a_worker_outlives_the_front_of_its_tool(tmp_path: Path) -> None:
    """We end when the worker does, and signals still reach it."""
    script = (
        'export FRONT=$$; ("$@" &) ; while ! ls "$(dirname "$0")"/run/*/.gpuprof/*.target '
        ">/dev/null 2>&1; do :; done; exit 3"
    )
    # until then it is the front that is told
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('told', flush=True), sys.exit()))\n"
        "while os.path.exists('/proc/' + os.environ['FRONT']): pass\n"
        "print('up', flush=True)\n"
        "signal.pause()"
    )
    command, environment = prepare(
        tmp_path, {"command": [tool(tmp_path, script), "{interpreter}"]}, "-c", code
    )
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "up\n" == process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert "told\n" == process.stdout.read()
    assert 0 == process.returncode


OUTLIVES = (
    'export FRONT=$$; {start} & while ! ls "$(dirname "$0")"/run/*/.gpuprof/*.target '
    ">/dev/null 2>&1; do :; done; exit {code}"
)
"""A tool that ends with some exit code once the worker has started, whatever becomes of it."""


def outliving(end: str) -> str:
    """A worker that waits for the end of its tool's front process."""
    alive = "os.path.exists('/proc/' + os.environ['FRONT'])"
    return f"import os, signal\nwhile {alive}: pass\n{end}"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise SystemExit(7)", 7),
        ("pass", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
@pytest.mark.parametrize("start", ['"$@"', """sh -c '"$@"; exit $?' sh "$@\""""])
@pytest.mark.parametrize("apart", [False, True])
def test_a_worker_that_outlives_its_tool_keeps_its_exit_code(
    tmp_path: Path, end: str, code: int, start: str, apart: bool
) -> None:
    """As nsys ends when its agent dies: well, however the program ends."""
    front = OUTLIVES.format(start=start, code=0 if code else 5)
    launch = {
        "command": ["{tool}", "{interpreter}"],
        "tool": tool(tmp_path, front),
        "apart": apart,
    }
    assert code == run(tmp_path, launch, "-c", outliving(end)).returncode


def test_a_row_of_another_version_costs_the_worker_its_profiler_only(tmp_path: Path) -> None:
    """The worker runs in its own Python, with its own arguments."""
    launch = {"command": ["false"], "interpreter": [sys.executable, "-X", "dev"]}
    done = run(tmp_path, launch, "-c", "import sys; print(sys.flags.dev_mode, sys.argv)", version=2)
    assert (0, "True ['-c']\n") == (done.returncode, done.stdout)


def test_a_row_of_another_version_is_named_in_one_line(tmp_path: Path) -> None:
    """The process after it finds no row, and says nothing again."""
    program = f"import os, gpuprof; gpuprof.timing(); print({VARIABLE!r} in os.environ)"
    done = run(tmp_path, {"command": ["false"]}, "-c", program, version=2)
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        "runs without gpuprof: GPUPROF_WORKER has version 2, expected 1: install the same release "
        "of gpuprof here and where the job is launched"
    )
    assert "False\n" == done.stdout


@pytest.mark.parametrize("value", ["", "%%%", "bm8=", "W10=", "eyJsYXVuY2giOiAzfQ=="])
def test_a_value_that_is_no_row_costs_the_worker_its_profiler_only(value: str) -> None:
    """Whatever the variable holds, the worker runs."""
    done = subprocess.run(
        [sys.executable, "-S", "-E", str(PROGRAM), "-c", "print('ran')"],
        env={**os.environ, VARIABLE: value},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (0, "ran\n") == (done.returncode, done.stdout)
