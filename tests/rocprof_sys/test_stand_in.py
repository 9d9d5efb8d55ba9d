"""The stand-in behaves as the facts about the real tool say.

What the real one records, none of this proves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import DEADLINE

PYTHON = "rocprof-sys-python"
REPORT_SELF = (
    "import json, sys; print(json.dumps([sys.executable, sys.argv, sys.flags.dev_mode, __name__]))"
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(release: Callable[[str], None], tmp_path: Path) -> Run:
    """Runs a command of the stand-in in a directory that has `script.py`; files go to `out`."""
    (tmp_path / "script.py").write_text(REPORT_SELF)

    def run(
        *command: str, number: str = "1.2", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        release(number)
        settings = {
            "ROCPROFSYS_OUTPUT_PATH": str(tmp_path / "out"),
            "ROCPROFSYS_TIME_OUTPUT": "false",
        }
        environment = {**os.environ, "PYTHON_EXECUTABLE": sys.executable, **settings, **variables}
        return subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


def names(directory: Path) -> list[str]:
    """The files, without process ids."""
    return sorted(
        {
            "".join(part for part in file.stem if not part.isdigit()) + file.suffix
            for file in directory.glob("out/*")
        }
    )


def test_a_script_runs_in_the_launchers_process_and_its_exit_code_is_lost(
    run: Run, tmp_path: Path
) -> None:
    """It is `__main__`, has its arguments, and what it ends with nobody learns."""
    (tmp_path / "script.py").write_text(f"{REPORT_SELF}\nsys.exit(7)")
    done = run(PYTHON, "-b", "--", "script.py", "a b")
    script = str(tmp_path / "script.py")
    assert 0 == done.returncode
    assert [sys.executable, [script, "a b"], False, "__main__"] == json.loads(done.stdout)
    assert ["metadata-.json", "perfetto-trace-.proto"] == names(tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", sys.executable, "script.py"], 0, "source code string cannot contain null bytes"),
        (["-T", "hip", "--", "script.py"], 2, "unrecognized arguments: -T hip"),
        (
            ["--output-format=json", "--", "script.py"],
            2,
            "unrecognized arguments: --output-format=json",
        ),
        (["-b", "true", "--", "script.py"], 2, "unrecognized arguments: true"),
        (["-b", "script.py"], 1, "no script"),
        (["--", "-m", "json.tool"], 1, "no script"),
        (["--", "-c", "print(1)"], 0, "source code string cannot contain null bytes"),
    ],
)
def test_what_does_not_run_a_script(
    run: Run, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    """Some of it in silence: an interpreter after the dashes ends with 0."""
    done = run(PYTHON, *words)
    assert code == done.returncode
    assert "" == done.stdout
    assert said in done.stderr


def test_an_interpreter_that_is_not_there_is_looked_for_by_its_base_name(run: Run) -> None:
    """Without a word."""
    done = run(PYTHON, "-b", "--", "script.py", PYTHON_EXECUTABLE="/nowhere/python")
    assert "python" == Path(json.loads(done.stdout)[0]).name


def test_the_first_release_evaluates_its_arguments(run: Run) -> None:
    """Spaces split and variables are expanded, in 0.1 only."""
    old, new = (
        json.loads(run(PYTHON, "-b", "--", "script.py", "a  $X", number=number, X="x").stdout)[1][
            1:
        ]
        for number in ("0.1", "1.2")
    )
    assert ["a", "x"] == old
    assert ["a  $X"] == new


@pytest.mark.parametrize("program", ["rocprof-sys-sample", "rocprof-sys-run"])
def test_the_native_launchers_take_an_interpreter_and_pass_the_exit_code(
    run: Run, tmp_path: Path, program: str
) -> None:
    """They become the command, with its flags."""
    (tmp_path / "script.py").write_text(f"{REPORT_SELF}\nsys.exit(7)")
    done = run(program, "-T", "--", sys.executable, "-X", "dev", "script.py")
    assert 7 == done.returncode
    assert [sys.executable, ["script.py"], True, "__main__"] == json.loads(done.stdout)
    assert ["metadata-.json", "perfetto-trace-.proto"] == names(tmp_path)
    assert 1 == run(program, "--bogus", "--", sys.executable).returncode


def test_a_foreign_root_process_makes_it_write_nothing(run: Run, tmp_path: Path) -> None:
    """As if it were a child of the process of that number."""
    assert 0 == run(PYTHON, "-b", "--", "script.py", ROCPROFSYS_ROOT_PROCESS="1").returncode
    assert [] == names(tmp_path)


def test_a_killed_process_leaves_nothing(run: Run, tmp_path: Path) -> None:
    """SIGKILL gives nobody the time."""
    (tmp_path / "script.py").write_text(f"import os; os.kill(os.getpid(), {signal.SIGKILL})")
    run(PYTHON, "-b", "--", "script.py")
    assert [] == names(tmp_path)


@pytest.mark.parametrize(
    ("number", "variables", "expected"),
    [
        ("1.2", {}, ["metadata-.json", "perfetto-trace-.proto"]),
        ("1.9", {}, ["metadata-.json", "perfetto-trace-.proto", "rocpd-.db"]),
        ("1.9", {"ROCPROFSYS_USE_ROCPD": "false"}, ["metadata-.json", "perfetto-trace-.proto"]),
        (
            "1.2",
            {"ROCPROFSYS_PROFILE": "true"},
            ["metadata-.json", "wall_clock-.json", "wall_clock-.txt"],
        ),
        (
            "1.2",
            {"ROCPROFSYS_OUTPUT_PREFIX": "a-%env{X}%-%p-", "X": "x"},
            ["a-x--metadata-.json", "a-x--perfetto-trace-.proto"],
        ),
    ],
)
def test_which_files_there_are(
    run: Run, tmp_path: Path, number: str, variables: dict[str, str], expected: list[str]
) -> None:
    """By release, by settings, and with the keys of paths expanded."""
    run(PYTHON, "-b", "--", "script.py", number=number, **variables)
    assert expected == names(tmp_path)


def test_a_domain_that_does_not_exist(run: Run) -> None:
    """The native library throws."""
    assert 1 == run(PYTHON, "-b", "--", "script.py", ROCPROFSYS_ROCM_DOMAINS="hip").returncode


@pytest.mark.parametrize(
    ("number", "variables", "calls"),
    [
        ("1.2", {"ROCPROFSYS_SELECTED_REGIONS": "on"}, ["before", "on", "inside", "after"]),
        ("1.6", {"ROCPROFSYS_SELECTED_REGIONS": "on"}, ["on", "inside"]),
        ("0.1", {}, []),
        ("0.1", {"ROCPROFSYS_USE_ROCTX": "true"}, ["before", "on", "inside", "after"]),
    ],
)
def test_which_markers_the_stand_in_lists(
    run: Run, tmp_path: Path, number: str, variables: dict[str, str], calls: list[str]
) -> None:
    """Selected regions from 1.6 on; markers before 1.0 only if asked for.

    Of the real tool this proves nothing.
    """
    script = (
        "import roctx\nroctx.rangePush('before'); roctx.rangePop()\nnumber = "
        "roctx.rangeStart('on')\nroctx.rangePush('inside')\n"
    )
    (tmp_path / "script.py").write_text(
        f"{script}roctx.rangePop(); roctx.rangeStop(number)\nroctx.rangePush('after'); "
        "roctx.rangePop()"
    )
    run(PYTHON, "-b", "--", "script.py", number=number, **variables)
    (trace,) = tmp_path.glob("out/*.proto")
    listed: list[Any] = json.loads(trace.read_text())["calls"]
    assert calls == [call[1] for call in listed if len(call) > 1]


def test_the_regions_of_its_own_are_gone_in_the_last_release(run: Run, tmp_path: Path) -> None:
    """`rocprofsys.user` can be imported until 1.9."""
    (tmp_path / "script.py").write_text("import rocprofsys.user")
    said = {
        number: "ImportError" in run(PYTHON, "-b", "--", "script.py", number=number).stderr
        for number in ("1.6", "1.9")
    }
    assert {"1.6": False, "1.9": True} == said
