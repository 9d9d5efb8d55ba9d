"""`gpuprof run` under real launchers and a real nsys."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuprof._artifacts.runs import runs
from gpuprof._shim.ownership import OWNER, note_owner
from gpuprof._shim.scratch import _prefix
from support import slurm_cluster
from support.launched import GPUPROF, NSIGHT, ROOT, STAND_IN, environment, reports, run
from support.ports import free_ports
from support.report_reader import labels


def commands_of_the_page() -> list[str]:
    """Every command of docs/launchers.md."""
    return [
        block.strip()
        for block in re.findall(
            r"```sh\n(.*?)```", (ROOT / "docs" / "launchers.md").read_text(), re.DOTALL
        )
    ]


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """A cluster for `srun`."""
    if not slurm_cluster.installed():
        pytest.skip("SLURM is not installed")
    with slurm_cluster.slurm() as variables:
        yield variables


@pytest.mark.nsys
@pytest.mark.parametrize("ranks", ["all", "[]"], ids=["wrapped", "as it is"])
def test_a_run_goes_on_from_its_beginning_to_its_end(tmp_path: Path, ranks: str) -> None:
    """A run is visibly running at once, even while its profiler is still tried."""
    listing = f"{sys.executable} -m gpuprof runs --json --output-dir {tmp_path}/gpuprof-output"
    nsys = tmp_path / "nsys"
    nsys.write_text(
        f"#!/bin/sh\n{listing} >>{tmp_path}/seen; echo >>{tmp_path}/seen; exec "
        f'{shutil.which("nsys")} "$@"\n'
    )
    nsys.chmod(0o755)
    settings = [
        *NSIGHT,
        "--set",
        f"nsight.executable={nsys}",
        "--set",
        f"ranks={ranks}",
        "--set",
        "steps=[1]",
    ]
    for _ in range(2):
        done = run(
            tmp_path,
            [*GPUPROF, *settings, "--", "sh", "-c", f"{listing} >>{tmp_path}/seen"],
            GPUPROF_RUN="a",
        )
        assert 0 == done.returncode, done.stderr
        assert {"running"} == set(re.findall(r'"state": "(.*?)"', (tmp_path / "seen").read_text()))
        assert [False] == [found.goes_on for found in runs(str(tmp_path / "gpuprof-output"))]


OTHERS = ("mpirun", "srun")


@pytest.mark.nsys
@pytest.mark.parametrize(
    "command",
    [
        # the variables of the others have unit tests
        pytest.param(command, marks=pytest.mark.exhaustive if command.startswith(OTHERS) else ())
        for command in commands_of_the_page()
    ],
    ids=lambda command: command.partition(" ")[0],
)
def test_the_pages_commands_do_what_they_say(
    tmp_path: Path, command: str, request: pytest.FixtureRequest
) -> None:
    """Each selected rank has a report for each step; without steps, for its whole life."""
    launcher = shlex.split(command)[0]
    if launcher != "gpuprof" and shutil.which(launcher, path=environment()["PATH"]) is None:
        pytest.skip(f"{launcher} is not installed")
    if "train.py" in command:
        pytest.importorskip("torch")
    variables = request.getfixturevalue("slurm") if launcher == "srun" else {}
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    variables = {**variables, "MASTER_PORT": str(*free_ports(1))}  # others train at the same time
    done = run(tmp_path, ["sh", "-c", command], PYTHONUNBUFFERED="1", **variables)
    assert 0 == done.returncode, done.stderr
    found = reports(tmp_path)
    if "any program" in command:
        assert ["Program-0.lifetime"] == list(found)
        return
    ranks = range(1 if launcher == "gpuprof" else 2)
    assert {f"Trainer-{rank}.step-{step}" for rank in ranks for step in (3, 10)} == set(found)
    for report in found.values():
        expected = {"train_step": 1, "forward": 1, "backward": 1, "update": 1}
        assert expected == {
            label: count for label, count in labels(str(report)).items() if label in expected
        }
    (listed,) = runs(str(tmp_path / "gpuprof-output"))  # one run, however many ranks
    assert "nsight" == listed.backend
    for rank in ranks:
        assert f"rank {rank}: loss " in done.stdout
        said = rf"Trainer-{rank}: 2 of 2 reports complete, .* in total, in .*"
        assert re.search(said, done.stderr)


@pytest.mark.nsys
def test_the_manifest_knows_what_a_report_without_gpuprof_holds(tmp_path: Path) -> None:
    """For a program without gpuprof, the launcher records whose report it is, and of what."""
    done = run(tmp_path, [*GPUPROF, *NSIGHT, "--set", "steps=null", "--", sys.executable, "-c", ""])
    assert 0 == done.returncode, done.stderr
    (directory,) = tmp_path.glob("gpuprof-output/*")
    assert ["finished, no receipt; run gpuprof collect RUN"] == [
        found.state for found in runs(str(tmp_path / "gpuprof-output"))
    ]
    collected = run(tmp_path, [sys.executable, "-m", "gpuprof", "collect", str(directory)])
    assert 0 == collected.returncode, collected.stderr
    files = json.loads((directory / "manifest.json").read_text())["files"]
    (entry,) = (file for file in files if file["file"].endswith(".nsys-rep"))
    expected = {
        "group": "Program",
        "rank": 0,
        "incarnation": "1",
        "window": "lifetime",
        "step": None,
        "steps_end": None,
    }
    assert expected == {key: entry[key] for key in expected}
    version = subprocess.run(
        ["nsys", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert entry["tool_version"] in version


@pytest.mark.nsys
def test_the_output_is_the_programs_own(tmp_path: Path) -> None:
    """The profiler's output goes to its log, so a pipe sees only the program's."""
    code = "import gpuprof\nwith gpuprof.step(0):\n    print('a result')"
    done = run(
        tmp_path, [*GPUPROF, *NSIGHT, "--set", "steps=[0]", "--", sys.executable, "-c", code]
    )
    assert "a result\n" == done.stdout
    assert "Generated:" not in done.stderr  # nsys's own word


@pytest.mark.nsys
def test_the_lock_of_all_profilers_is_where_all_find_it(tmp_path: Path) -> None:
    """Each nsys has its own temporary directory but shares the lock of nsys 2022.4."""
    code = (
        "import os\n"
        "variables = open(f'/proc/{os.getppid()}/environ').read().split(chr(0))\n"
        "directory = dict(line.split('=', 1) for line in variables if '=' in line)['TMPDIR']\n"
        "print(directory, os.path.realpath(os.path.join(directory, 'nvidia')))"
    )
    done = run(tmp_path, [*GPUPROF, *NSIGHT, "--", sys.executable, "-c", code])
    assert ["Program-0.lifetime"] == list(reports(tmp_path)), done.stderr
    of_its_own, lock = map(Path, done.stdout.split())
    assert tempfile.gettempdir() == str(of_its_own.parent)
    assert "gpuprof-" == of_its_own.name[:8]
    old = (
        " 2022."
        in subprocess.run(["nsys", "--version"], capture_output=True, text=True, check=True).stdout
    )
    assert os.path.realpath((Path(tempfile.gettempdir()) if old else of_its_own) / "nvidia") == str(
        lock
    )
    assert not of_its_own.exists()


@pytest.mark.nsys
def test_what_killed_runs_have_left_is_removed(tmp_path: Path) -> None:
    """A dead worker's directory is removed unless it holds an unfinished report."""
    temporary = tmp_path / "temporary"
    names = {
        f"{_prefix()}{2**22 + 1}-1": "nsys_termination_status_1",
        f"{_prefix()}{2**22 + 2}-1": "a.qdstrm",
    }
    for directory, name in names.items():
        (temporary / directory).mkdir(parents=True)
        owner = {"start": "Program-0.start-1", "disposable": ["nsys_termination_status_*"]}
        note_owner(str(temporary / directory), owner)
        (temporary / directory / name).write_text("5")
    done = run(tmp_path, [*GPUPROF, *NSIGHT, "--", sys.executable, "-c", ""], TMPDIR=str(temporary))
    assert ["Program-0.lifetime"] == list(reports(tmp_path)), done.stderr
    assert {OWNER, "a.qdstrm"} == {path.name for path in temporary.glob("gpuprof-*/*")}


@pytest.mark.nsys
def test_two_processes_of_one_rank_do_not_end_each_other(tmp_path: Path) -> None:
    """Under an unknown launcher the second process becomes its command."""
    wait = (
        "import pathlib, time\npathlib.Path('up').touch()\nwhile not "
        "pathlib.Path('flag').exists():\n    time.sleep(0.01)"
    )
    command = [*GPUPROF, *NSIGHT, "--", sys.executable, "-c"]
    variables = environment(GPUPROF_RUN="shared")
    with subprocess.Popen([*command, wait], cwd=tmp_path, env=variables) as first:
        while not (tmp_path / "up").exists():
            assert first.poll() is None
        second = run(tmp_path, [*command, "print('second')"], GPUPROF_RUN="shared")
        assert 0 == second.returncode
        assert "second\n" == second.stdout
        (tmp_path / "flag").touch()
    assert 0 == first.returncode
    assert ["Program-0.lifetime"] == list(reports(tmp_path))


@pytest.fixture(scope="module")
def whole_life(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Counter[str]]:
    """What a worker and its child process print in one lifetime window, and the report's labels."""
    directory = tmp_path_factory.mktemp("whole-life")
    child = "import gpuprof\nwith gpuprof.timer('in_child'):\n    pass"
    code = (
        "import os, subprocess, sys, gpuprof\nwith gpuprof.timer('work'):\n    print(os.getpid())\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    done = run(directory, [*GPUPROF, *NSIGHT, "--", sys.executable, "-c", code])
    return done.stdout, done.stderr, labels(str(reports(directory)["Program-0.lifetime"]))


@pytest.mark.nsys
def test_a_worker_that_is_profiled_for_its_whole_life_says_where(
    whole_life: tuple[str, str, Counter[str]],
) -> None:
    """A lifetime report comes at the end; a note names the process to end."""
    printed, log, _ = whole_life
    expected = (
        f"Program-0 is profiled for its whole life: node {os.uname().nodename}, process "
        f"{printed.strip()}\n"
    )
    assert 1 == log.count(expected), log


@pytest.mark.nsys
def test_a_lifetime_report_has_the_ranges_of_child_processes(
    whole_life: tuple[str, str, Counter[str]],
) -> None:
    """The profiler follows the process tree, so a child opens ranges as the worker does."""
    assert {"work": 1, "in_child": 1} == whole_life[2]


@pytest.mark.nsys
@pytest.mark.torch
def test_reports_come_home_from_the_staging_directory(tmp_path: Path) -> None:
    """Each rank moves its own reports, and an unselected rank its tree at once."""
    code = (
        "import glob, gpuprof, time\n"
        "for number in range(3):\n"
        "    with gpuprof.step(number), gpuprof.timer('work'):\n"
        "        pass\n"
        "while not glob.glob('gpuprof-output/*/*/Worker-0.step-0.nsys-rep'):\n"
        "    time.sleep(0.01)\n"
    )
    staged = [
        "--set",
        "staging_dir=staging",
        "--set",
        "collect_every=0.2",
        "--set",
        "nsight.gate=session",
    ]
    selected = ["--set", "steps=[0,2]", "--set", "ranks=[0]"]
    launcher = [
        "torchrun",
        "--log-dir",
        str(tmp_path / "log"),
        "--nproc-per-node",
        "2",
        "--no-python",
    ]
    done = run(
        tmp_path,
        [*launcher, *GPUPROF, *NSIGHT, *staged, *selected, "--", sys.executable, "-c", code],
    )
    assert 0 == done.returncode, done.stderr
    assert "Worker-0: 2 of 2 reports complete" in done.stderr
    assert ["Worker-0.step-0", "Worker-0.step-2"] == sorted(reports(tmp_path))
    assert [1, 1] == [labels(str(report))["work"] for report in reports(tmp_path).values()]
    trees = sorted(file.name for file in tmp_path.glob("gpuprof-output/*/*/*.json"))
    assert ["Worker-0.start-1.json", "Worker-1.start-1.json"] == trees
    assert [] == [
        path
        for path in (tmp_path / "staging").rglob("*")
        if path.is_file() and ".gpuprof" not in path.parts
    ]
    (directory,) = tmp_path.glob("gpuprof-output/*")
    collected = run(tmp_path, [sys.executable, "-m", "gpuprof", "collect", str(directory)])
    assert re.search(
        r"Worker-0 +step-2 +[^ /]+/Worker-0.step-2.nsys-rep .* complete\n2 of 2 reports complete",
        collected.stdout,
    )


def test_ranks_that_are_not_selected_become_the_command(tmp_path: Path) -> None:
    """The same process: no shim, no profiler, not even a fork; the tree is left all the same."""
    code = "import os, gpuprof\nwith gpuprof.timer('work'):\n    print(os.getpid())"
    command = [*GPUPROF, *NSIGHT, "--set", "ranks=[1]", "--", sys.executable, "-c", code]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.pid == int(process.stdout.read())
    assert ["Program-0.start-1.json"] == [
        file.name for file in tmp_path.glob("gpuprof-output/*/*/*.json")
    ]


def test_without_anything_to_profile_it_is_the_command(tmp_path: Path) -> None:
    """A configuration that is switched off: nothing is made and nothing is set."""
    code = "import os; print([name for name in os.environ if name == 'GPUPROF_WORKER'])"
    off = ["--set", "backend=nsight", "--set", "enabled=false"]
    done = run(tmp_path, [*GPUPROF, *off, "--", sys.executable, "-c", code])
    assert 0 == done.returncode
    assert "[]\n" == done.stdout
    assert [] == list(tmp_path.iterdir())


def test_a_group_that_is_not_selected_is_said_once(tmp_path: Path) -> None:
    """Rank 0 reports that a process without --group is of the group Worker."""
    command = [*GPUPROF, *NSIGHT, "--set", "worker_groups=[Trainer]", "--", "true"]
    torchrun = {"TORCHELASTIC_RUN_ID": "one", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    first, second = (run(tmp_path, command, **torchrun, RANK=rank).stderr for rank in "01")
    assert first.endswith(
        "not profiled: worker_groups does not select Worker; --group sets this process's group\n"
    )
    assert "" == second


@pytest.mark.nsys
def test_a_second_process_of_a_rank_says_that_it_is_not_profiled(tmp_path: Path) -> None:
    """As when GPUPROF_RUN is still set from another job that runs."""
    variables = {"GPUPROF_RUN": "mine"}
    code = "import subprocess, sys\nsubprocess.run(sys.argv[1:], check=True)"
    inner = ["env", "-u", "GPUPROF_WORKER", *GPUPROF, *NSIGHT, "--", "echo", "ran"]
    done = run(tmp_path, [*GPUPROF, *NSIGHT, "--", sys.executable, "-c", code, *inner], **variables)
    said = (
        f"Program-0 on {os.uname().nodename} runs without the profiler: another live "
        "process is this rank of this run\n"
    )
    assert 0 == done.returncode, done.stderr
    assert "ran\n" == done.stdout, done.stderr
    assert 1 == done.stderr.count(said), done.stderr


def test_inside_a_worker_it_is_the_command(tmp_path: Path) -> None:
    """A profiled worker that starts `gpuprof run` is not profiled a second time."""
    command = [*GPUPROF, *NSIGHT, "--", sys.executable, "-c", "print('worked')"]
    assert (0, "worked\n") == (
        (done := run(tmp_path, command, GPUPROF_WORKER="of somebody")).returncode,
        done.stdout,
    )
    assert [] == list(tmp_path.iterdir())


def test_a_script_is_asked_for_where_only_scripts_are_run(tmp_path: Path) -> None:
    """The launcher that runs Python refuses a program, before anything starts."""
    command = [*GPUPROF, "--set", "backend=rocprof_sys", "--", "touch", "started"]
    done = run(tmp_path, command, PATH=f"{STAND_IN}{os.pathsep}{os.environ['PATH']}")
    assert 2 == done.returncode
    assert "" == done.stdout
    assert (
        "gpuprof: rocprof_sys.launcher: 'python' is not valid for this command: it only runs "
        "Python scripts" in done.stderr
    )
    assert [] == list(tmp_path.iterdir())


def test_ranks_without_a_common_id_are_refused(tmp_path: Path) -> None:
    """Ranks without a common run id are refused with the variable to set."""
    torchrun = {
        "TORCHELASTIC_RUN_ID": "none",
        "RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
    }
    done = run(tmp_path, [*GPUPROF, *NSIGHT, "--", "touch", "started"], **torchrun)
    assert 2 == done.returncode
    assert (
        "GPUPROF_RUN: is not set, and the 8 ranks of torchrun have no common run id" in done.stderr
    )
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            ["nsight.executable=/nowhere/nsys"],
            "Worker-3 on {node}: backend: 'nsight': '/nowhere/nsys' is not on PATH",
        ),
        (
            ["output_dir=taken", "nsight.executable=/nowhere/nsys"],
            "Worker-3 on {node}: output_dir: '{taken}' cannot be written",
        ),
        (["nsight.presett=light"], "nsight.presett: "),
    ],
    ids=["profiler", "output", "configuration"],
)
def test_a_refusal_says_which_rank_of_which_node(
    tmp_path: Path, keys: list[str], said: str
) -> None:
    """A fault of one node is reported by each rank, a misspelt key once."""
    (tmp_path / "taken").touch()
    srun = {
        "SLURM_PROCID": "3",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_JOB_ID": "12",
        "SLURM_STEP_ID": "0",
    }
    settings = [word for key in ["backend=nsight", *keys] for word in ("--set", key)]
    done = run(tmp_path, [*GPUPROF, *settings, "--", "touch", "started"], **srun)
    assert 2 == done.returncode
    assert not (tmp_path / "started").exists()
    assert done.stderr.startswith(
        f"gpuprof: {said.format(node=os.uname().nodename, taken=tmp_path / 'taken')}"
    ), done.stderr


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """As from a shell."""
    done = run(tmp_path, [*GPUPROF, "--", "no-such-program"])
    assert 127 == done.returncode
    assert "gpuprof: no-such-program: command not found\n" == done.stderr
