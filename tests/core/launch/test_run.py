"""`gpuprof run` as a process, with backends that need no profiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import journal
from support.waiting import DEADLINE

Install = Callable[..., str]
SOURCE = Path(journal.__file__).read_text()
LOSES_EXIT_CODES = SOURCE.replace(
    "[tool.path, *life, *command.interpreter, *command.arguments]",
    '[tool.path, *life, "/bin/sh", "-c", \'"$@"; exit 0\', "sh", *command.interpreter, '
    "*command.keep_exit_code, *command.arguments]",
)


def gpuprof_run(
    directory: Path, *words: str, backend: str = "none", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory that may have installed backends in `site`."""
    command = [sys.executable, "-m", "gpuprof", "run", "--set", f"backend={backend}", *words]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory / "site"), **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


IN_PROCESS = SOURCE.replace(
    "    @hookimpl\n    def render_command", "    def _render_command"
).replace('"wraps"', '"in_process"')
PLAIN = (
    "import subprocess, sys\n"
    "code = 'import os; print(os.environ[\"PYTHONPATH\"])'\n"
    "subprocess.run([sys.executable, '-c', code])"
)
LOCAL = "import gpuprof\nwith gpuprof.step(1), gpuprof.timer('train'):\n    pass"


@pytest.mark.parametrize(
    "words",
    [["script.py"], ["-c", PLAIN], ["-m", "script"]],
    ids=["script", "code", "module"],
)
def test_the_whole_life_of_a_program_that_never_uses_gpuprof(
    tmp_path: Path, install: Install, words: list[str]
) -> None:
    """gpuprof starts the session for it, and leaves the path of its child processes alone."""
    install(IN_PROCESS, journal="Journal")
    (tmp_path / "script.py").write_text(PLAIN)
    (tmp_path / "sitecustomize.py").write_text("print('own')")
    path = os.pathsep.join([str(tmp_path / "site"), str(tmp_path)])
    done = gpuprof_run(tmp_path, "--", sys.executable, *words, backend="journal", PYTHONPATH=path)
    of_three_processes = "own\n" * 3
    assert (0, f"{of_three_processes}{path}\n") == (done.returncode, done.stdout), done.stderr
    assert "Program-0: 1 of 1 report complete" in done.stderr
    (report,) = tmp_path.glob("gpuprof-output/*/*/Program-0.lifetime.txt")
    assert '["journal"]' == report.read_text()


@pytest.mark.parametrize(
    ("source", "words", "receipt"),
    [
        (LOCAL, ["{python}", "script.py"], "1 of 1 report complete"),
        ("import local", ["{python}", "script.py"], "1 of 1 report complete"),
        ("import statistics", ["{python}", "script.py"], "1 of 1 report complete"),
        ("__import__('local')", ["{python}", "script.py"], "1 of 1 report complete"),
        ("import local", ["sh", "-c", "exec {python} script.py"], "1 of 1 report complete"),
        ("", ["sh", "-c", "true"], "never used gpuprof, so no window was opened; add `import"),
        ("import os", ["{python}", "script.py"], "add `import gpuprof`, and `with gpuprof.step(n)"),
        ("", ["{python}", "-E", "script.py"], "never used gpuprof, so no window was opened; add"),
    ],
)
def test_a_program_that_may_open_windows_gets_a_receipt(
    tmp_path: Path, install: Install, source: str, words: list[str], receipt: str
) -> None:
    """Whether it did, and what to add."""
    install(IN_PROCESS, journal="Journal")
    (tmp_path / "script.py").write_text(source)
    for name in ("local", "statistics"):  # it shadows the standard one
        (tmp_path / f"{name}.py").write_text(LOCAL)
    command = [word.format(python=sys.executable) for word in words]
    done = gpuprof_run(tmp_path, "--set", "steps=[1]", "--", *command, backend="journal")
    assert 0 == done.returncode, done.stderr
    assert receipt in " ".join(done.stderr.split())


USES_GPUPROF = """
import gpuprof, os
for number in range(3):
    with gpuprof.step(number), gpuprof.timer("train"):
        pass
if not os.fork():
    with gpuprof.timer("in a fork"):
        os._exit(0)
os.wait()
"""


def torchrun(rank: int, size: int) -> dict[str, str]:
    """The variables that torchrun sets."""
    sizes = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    return {"TORCHELASTIC_RUN_ID": "job", "RANK": str(rank), **sizes}


@pytest.mark.parametrize(("which", "printed"), [("all", [0, 1, 2]), ("ends", [0, 2]), ("none", [])])
def test_a_rank_that_becomes_the_command_prints_its_tree(
    tmp_path: Path, which: str, printed: list[int]
) -> None:
    """Once, as print_trees says: no process in front of it could."""
    (tmp_path / "script.py").write_text(USES_GPUPROF)
    words = ["--set", f"print_trees={which}", "--", sys.executable, "script.py"]
    said = [gpuprof_run(tmp_path, *words, **torchrun(rank, 3)).stderr for rank in range(3)]
    counts = [text.count(f"Worker-{rank} profile tree view") for rank, text in enumerate(said)]
    assert [int(rank in printed) for rank in range(3)] == counts


@pytest.mark.parametrize(("rank", "step", "expected"), [(0, "1", 1), (1, "1", 0), (0, "", 1)])
def test_where_the_answer_is(tmp_path: Path, rank: int, step: str, expected: int) -> None:
    """The first rank names the command that explains the run; also if nobody marks steps."""
    step = f"with gpuprof.step({step}): pass" if step else "with gpuprof.timer('work'): pass"
    words = ["--set", "worker_groups=all", "--", sys.executable, "-c", f"import gpuprof\n{step}"]
    said = gpuprof_run(tmp_path, *words, **torchrun(rank, 2)).stderr
    assert expected == said.count("gpuprof explain ")


def test_a_rank_with_a_process_in_front_prints_its_tree_once(
    tmp_path: Path, install: Install
) -> None:
    """The process in front does, which outlives a program that is killed."""
    install(LOSES_EXIT_CODES, journal="Journal")
    (tmp_path / "script.py").write_text(USES_GPUPROF)
    done = gpuprof_run(tmp_path, "--", sys.executable, "script.py", backend="journal")
    assert 1 == done.stderr.count("Program-0 profile tree view"), done.stderr


@pytest.mark.parametrize("end", ["os._exit(5)", "os.abort()", "os.kill(os.getpid(), 9)"])
def test_a_lost_exit_code_is_not_zero_and_the_receipt_tells(
    tmp_path: Path, install: Install, end: str
) -> None:
    """A launcher that looks at exit codes does not take a crash for success."""
    install(LOSES_EXIT_CODES, journal="Journal")
    (tmp_path / "script.py").write_text(f"import os\n{end}")
    done = gpuprof_run(tmp_path, "--", sys.executable, "script.py", backend="journal")
    assert os.EX_SOFTWARE == done.returncode, done.stderr
    assert "fault: Program-0: the exit code is unknown: the program was killed" in done.stderr


def test_the_receipt_has_the_exit_code_of_a_command_that_failed(
    tmp_path: Path, install: Install
) -> None:
    """As of a script that is not there."""
    install(SOURCE, journal="Journal")
    done = gpuprof_run(tmp_path, "--", sys.executable, "nowhere.py", backend="journal")
    assert 2 == done.returncode
    assert "fault: Program-0: the command ended with exit code 2" in done.stderr


def test_a_rank_without_a_launcher_is_not_taken_in_silence(tmp_path: Path) -> None:
    """Each of such processes is a run of its own."""
    done = gpuprof_run(tmp_path, "--", sys.executable, "-c", "", RANK="3", WORLD_SIZE="4")
    assert 0 == done.returncode
    assert "RANK=3 ignored: no known launcher" in done.stderr


def test_overrides_may_stand_before_the_command(tmp_path: Path) -> None:
    """As those of `gpuprof plan`."""
    command = [sys.executable, "-c", "print('ran')"]
    done = gpuprof_run(tmp_path, "worker_groups=[Other]", "steps=[1]", "--", *command)
    assert "ran\n" == done.stdout
    assert "Program-0: not profiled: " in done.stderr


def test_variables_of_another_system_are_not_ignored_silently(tmp_path: Path) -> None:
    """Rank 0 says which argument reads them, and the job runs."""
    command = [sys.executable, "-m", "gpuprof", "run", "--", sys.executable, "-c", "print('ran')"]
    for rank, expected in (("0", 1), ("1", 0)):
        launch = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        own = {"NRL_NSYS_WORKER_PATTERNS": "*policy*", "TORCHELASTIC_RUN_ID": "a"}
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **launch, **own},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert "ran\n" == done.stdout
        assert expected == done.stderr.count("NRL_NSYS_WORKER_PATTERNS: set, but not read")


@pytest.mark.parametrize(
    "keys",
    [[], ["armed=true", "steps=[]"], ["staging_dir=staged"]],
    ids=["plain", "armed", "staged"],
)
def test_a_run_that_has_no_room_to_begin(tmp_path: Path, keys: list[str]) -> None:
    """The job goes on without profiling, with one sentence."""
    words = ["backend=none", *keys]
    options = [word for key in words for word in ("--set", key)]
    run = [sys.executable, "-m", "gpuprof", "run", *options]
    done = subprocess.run(
        # Python ignores the signal, so a write fails as on a full disk
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *run, "sh", "-c", "echo done; exit 7"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (7, "done\n") == (done.returncode, done.stdout)
    (line,) = done.stderr.splitlines()
    said = f"output_dir: '{tmp_path}/gpuprof-output' cannot be written: File too large"
    assert said in line
    assert line.endswith("; the job goes on without profiling")


def mounting(options: str) -> list[str]:
    """A command that mounts a file system of its own on `disk`, and becomes the command after it.

    Skips the test where nothing can be mounted.
    """
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    return [*namespace, "sh", "-c", f'mount -t tmpfs -o {options} none disk && exec "$@"', "sh"]


def test_a_current_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """Without a configuration the job goes on, with one sentence."""
    (tmp_path / "disk").mkdir()
    run = ["env", "-C", "disk", sys.executable, "-m", "gpuprof", "run", "--"]
    done = subprocess.run(
        [*mounting("ro"), *run, "sh", "-c", "echo done; exit 7"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (7, "done\n") == (done.returncode, done.stdout)
    (line,) = done.stderr.splitlines()
    assert "disk/gpuprof-output' cannot be written: Read-only file system" in line
    assert line.endswith("; the job goes on without profiling")


FILL = 'cat /dev/zero >disk/filler 2>/dev/null; TMPDIR="$PWD/disk" exec "$@"'


@pytest.mark.nsys
@pytest.mark.parametrize("on_error", ["disable", "raise"])
def test_a_full_temporary_directory(tmp_path: Path, on_error: str) -> None:
    """A job whose profiler has no room there goes on without it, if it may."""
    (tmp_path / "disk").mkdir()
    run = [sys.executable, "-m", "gpuprof", "run", "backend=nsight", f"on_error={on_error}"]
    done = subprocess.run(
        [*mounting("size=64k"), "sh", "-c", FILL, "sh", *run, "--", "sh", "-c", "exit 7"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    reason = f"no temporary directory can be made in {tmp_path}/disk: No space left on device"
    without = f"runs without the profiler: {reason}" in done.stderr
    assert ((2, False) if on_error == "raise" else (7, True)) == (done.returncode, without)


ROOM = [2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13]
"""How many files a disk takes: from none for the run to one too few for all."""


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(count, marks=[] if count in (2, 7, 11) else pytest.mark.exhaustive)
        for count in ROOM
    ],
)
def test_a_disk_that_is_full_at_any_moment_of_the_start(tmp_path: Path, files: int) -> None:
    """The job takes the same course, and no traceback says what went wrong."""
    (tmp_path / "job.py").write_text(
        "import gpuprof\nwith gpuprof.step(0):\n    print('done')\nraise SystemExit(7)\n"
    )
    (tmp_path / "disk").mkdir()
    run = [sys.executable, "-m", "gpuprof", "run", "--set", "backend=none"]
    run += ["--set", "output_dir=disk/out", "--set", "steps=[0]", "--", sys.executable, "job.py"]
    done = subprocess.run(
        [*mounting(f"nr_inodes={files}"), *run],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (7, "done\n") == (done.returncode, done.stdout)
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_integration_needs_no_configuration(tmp_path: Path) -> None:
    """A framework that is named on the command line leaves its trees, and a line says where."""
    command = ["-m", "gpuprof", "run", "--integrate", "sample-factory", "--"]
    done = subprocess.run(
        [sys.executable, *command, sys.executable, "-c", LOCAL],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "GPUPROF_CONFIG"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    (tree,) = tmp_path.glob("gpuprof-output/*/*/Program-0.start-1.json")
    assert f"gpuprof explain {tree.parents[1]}" in done.stderr
