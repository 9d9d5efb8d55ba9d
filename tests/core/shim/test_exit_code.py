"""Scripts that a tool runs in its own process: their surroundings and their exit code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpuprof._shim import exit_code
from support.waiting import DEADLINE

# As such tools do: the file is executed as `__main__` inside a module that is `__main__` already,
# and its end is forgotten.
TOOL = """
import os, sys
words = sys.argv[1:]
sys.path.insert(0, os.path.dirname(words[0]))
sys.argv[:] = words
try:
    names = {"__name__": "__main__", "__file__": words[0]}
    exec(compile(open(words[0]).read(), words[0], "exec"), names)
except BaseException as error:
    print("reached the tool:", repr(error), file=sys.stderr)
"""


def run(directory: Path, source: str | None, *arguments: str) -> tuple[str, str, int | None]:
    """Run a script under the tool.

    Returns its output, its errors and the exit code that was noted.
    """
    script, path, tool = directory / "script.py", directory / "note", directory / "tool.py"
    note = exit_code.Note(str(path))
    tool.write_text(TOOL)
    if source is not None:
        script.write_text(source)
    command = [sys.executable, str(tool), exit_code.__file__, str(path), "script.py", *arguments]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (0, False) == (done.returncode, "reached the tool" in done.stderr), done.stderr
    return done.stdout, done.stderr, note.read()


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import sys; sys.exit('no data')", 1, "no data"),
        ("raise KeyError(1)", 1, "KeyError: 1"),
        ("raise KeyboardInterrupt", 128 + signal.SIGINT, "KeyboardInterrupt"),
        ("1 +", 1, "SyntaxError: invalid syntax"),
        (
            (
                "import sys; sys.excepthook = lambda *_: print('mine', file=sys.stderr); raise "
                "KeyError"
            ),
            1,
            "mine",
        ),
        (None, 2, "No such file or directory: "),
    ],
)
def test_what_a_script_ends_with(tmp_path: Path, source: str | None, code: int, said: str) -> None:
    """As the interpreter would have it, with the interpreter's words."""
    _, errors, found = run(tmp_path, source)
    assert code == found
    assert said in (errors.splitlines()[-1] if errors else "")


def test_an_excepthook_that_fails(tmp_path: Path) -> None:
    """Whatever reaches the tool, the script has not ended well."""
    with pytest.raises(AssertionError, match="reached the tool: FileNotFoundError"):
        run(
            tmp_path, "import sys; sys.excepthook = lambda *_: open('/nowhere/log'); raise KeyError"
        )
    assert "1" == (tmp_path / "note").read_text().strip()


def test_a_traceback_is_of_the_script(tmp_path: Path) -> None:
    """Nobody looks for the fault in a file of ours."""
    _, errors, _ = run(tmp_path, "def f():\n    raise KeyError\nf()")
    assert ["script.py", "script.py"] == [
        Path(file).name for file in re.findall('^  File "(.*)"', errors, re.MULTILINE)
    ]


def test_what_a_script_sees(tmp_path: Path) -> None:
    """It is the main module, with its own arguments and directory, and not our path."""
    source = (
        "import pickle, sys\n"
        "class Own: pass\n"
        "def annotated(x: int): ...\n"
        "own = pickle.loads(pickle.dumps(Own()))\n"
        "print(__name__, type(own) is Own, sys.modules['__main__'].__file__, __file__)\n"
        "print(sys.argv)\n"
        "print(sys.path[0])\n"
        "print(annotated.__annotations__['x'])\n"
        f"print({str(Path(exit_code.__file__).parent)!r} in sys.path)"
    )
    script = tmp_path / "script.py"
    output, _, _ = run(tmp_path, source, "a b")
    expected = [
        f"__main__ True {script} {script}",
        "['script.py', 'a b']",
        str(tmp_path),
        "<class 'int'>",
        "False",
    ]
    assert expected == output.splitlines()


def test_a_fork_does_not_end_for_its_parent(tmp_path: Path) -> None:
    """What a forked process ends with is no business of the note."""
    source = (
        "import os, sys\npid = os.fork()\nif not pid:\n    sys.exit(3)\nos.waitpid(pid, "
        "0)\nsys.exit(7)"
    )
    assert 7 == run(tmp_path, source)[2]


@pytest.mark.parametrize(
    "directory_goes",
    ["import os, shutil; shutil.rmtree(os.getcwd())", "import os; os.remove('note')"],
)
def test_the_exit_code_of_a_run_whose_directory_is_removed(
    tmp_path: Path, directory_goes: str
) -> None:
    """It still arrives."""
    assert 7 == run(tmp_path, f"{directory_goes}\nraise SystemExit(7)")[2]


def test_files_that_the_script_opens_stay_its_own(tmp_path: Path) -> None:
    """A script that closes all files and opens others finds nothing of ours in them."""
    source = "import os; os.closerange(3, 50); own = [open(f'own-{n}', 'w') for n in range(9)]"
    code = run(tmp_path, source)[2]
    assert [0] * 9 == [file.stat().st_size for file in sorted(tmp_path.glob("own-*"))]
    assert code is None
