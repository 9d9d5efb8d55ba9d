"""How a process ends or forks, and what is left of its tree.

Each program is a process of its own.
"""

from __future__ import annotations

import json
import signal
from contextvars import Context
from pathlib import Path

import pytest
from gpuprof_timing import Timing
from gpuprof_timing._render import open_places
from support.programs import nodes, run


def test_a_normal_end_writes_the_tree(tmp_path: Path) -> None:
    """The file is what `from_dict` reads."""
    path = tmp_path / "tree.json"
    run("timing.write_at_exit(path)\nwith timing.add_time('a'): pass", path)
    tree = Timing.from_dict(json.loads(path.read_text()))
    assert "t" == tree.name
    assert ["a"] == list(tree)
    assert 1 == nodes(path)["a"]["count"]


def test_a_normal_end_prints_the_tree(tmp_path: Path) -> None:
    """Standard error has the tree, once."""
    done = run("timing.print_at_exit()\nwith timing.add_time('a'): pass", tmp_path)
    assert "" == done.stdout
    assert "t tree view:" == done.stderr.splitlines()[0]
    assert 1 == done.stderr.count("a: ")


def test_the_tree_is_printed_where_it_was_asked_for(tmp_path: Path) -> None:
    """Another file than standard error can be given."""
    done = run("timing.print_at_exit(sys.stdout)\nwith timing.add_time('a'): pass", tmp_path)
    assert done.stdout.startswith("t tree view:\na: ")
    assert "" == done.stderr


def test_an_uncaught_exception_writes_the_tree(tmp_path: Path) -> None:
    """Scopes that the exception left are closed, and the traceback is the program's own."""
    path = tmp_path / "tree.json"
    done = run(
        "timing.write_at_exit(path)\nwith timing.add_time('a'):\n    raise KeyError('mine')",
        path,
        expected=1,
    )
    assert 1 == nodes(path)["a"]["count"]
    assert 0 == nodes(path)["a"]["open"]
    assert "KeyError: 'mine'" == done.stderr.splitlines()[-1]


def test_sys_exit_keeps_its_status(tmp_path: Path) -> None:
    """Writing the tree does not change how the process ends."""
    path = tmp_path / "tree.json"
    run("timing.write_at_exit(path)\nwith timing.add_time('a'):\n    sys.exit(7)", path, expected=7)
    assert 1 == nodes(path)["a"]["count"]


def test_only_the_innermost_open_places_are_printed(timing: Timing) -> None:
    """Each thread's innermost open place is named, also inside a scope that has ended."""
    outer, inner = timing.add_time("outer"), timing.add_time("inner")
    with timing.add_time("a"), timing.add_time("b"):
        Context().run(outer.__enter__)
        inner.__enter__()
        assert ["a/b/inner", "outer"] == list(open_places(timing._recording.root))
    assert ["a/b/inner", "outer"] == list(open_places(timing._recording.root))
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    assert [] == list(open_places(timing._recording.root))


def test_the_file_is_where_its_path_led(tmp_path: Path) -> None:
    """A job that changes its directory later, as Hydra's do, does not take the file along."""
    (tmp_path / "later").mkdir()
    program = f"os.chdir({str(tmp_path)!r})\ntiming.write_at_exit('tree.json')\nos.chdir('later')"
    run(program, tmp_path)
    assert ["t"] == [json.loads(found.read_text())["name"] for found in tmp_path.glob("*.json")]


def test_off_the_main_thread_only_the_end_counts(tmp_path: Path) -> None:
    """Outside the main thread no handler is set, and the tree is written at the end."""
    path = tmp_path / "tree.json"
    program = """
thread = threading.Thread(target=timing.write_at_exit, args=(path,))
thread.start()
thread.join()
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
with timing.add_time("a"): pass
"""
    assert "True\n" == run(program, path).stdout
    assert ["a"] == list(nodes(path))


def test_nothing_is_installed_unasked(tmp_path: Path) -> None:
    """Importing, making and using a `Timing` touches no signal, no `atexit` and no file."""
    program = """
import atexit
before = [signal.getsignal(number) for number in signal.valid_signals()], atexit._ncallbacks()
fresh = Timing("fresh")
with fresh.add_time("a"), fresh.timeit("b"), annotate("c"): pass
fresh.to_dict(), fresh.snapshot(), Timing.merge([fresh])
print(before == ([signal.getsignal(number) for number in signal.valid_signals()],
                 atexit._ncallbacks()))
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""
    assert "True\nTrue\n" == run(program, tmp_path / "tree.json").stdout
    assert [] == list(tmp_path.iterdir())


# Forks


def test_a_fork_begins_an_empty_tree(tmp_path: Path) -> None:
    """After a fork parent and child time themselves; scopes open across it end without harm."""
    program = """
with timing.add_time("before"): pass
with timing.add_time("around"):
    child = os.fork()
    with timing.add_time("child" if child == 0 else "parent"): pass
if child == 0:
    print("child", *timing.metrics(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent", *timing.metrics(), flush=True)
"""
    assert ["child child", "parent before around around/parent"] == run(
        program, tmp_path
    ).stdout.splitlines()


CHILD = """
import sys
from gpuprof_timing import Timing
mine = Timing("child")
mine.print_at_exit(sys.stdout)
mine.write_at_exit(path)
with mine.add_time("load"): pass
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_of_multiprocessing_leaves_its_tree(tmp_path: Path, method: str) -> None:
    """A forked process writes its tree once, and never its parent's."""
    program = f"""
import multiprocessing
timing.print_at_exit(sys.stdout)
child = multiprocessing.get_context({method!r}).Process(
    target=exec, args=({CHILD!r}, {{"path": path}}))
child.start()
child.join()
"""
    path = tmp_path / "tree.json"
    titles = [line for line in run(program, path).stdout.splitlines() if line.endswith("view:")]
    assert ["child tree view:", "t tree view:"] == titles
    assert ["load"] == list(nodes(path))


def test_a_delta_in_the_child_is_all_that_it_did(tmp_path: Path) -> None:
    """A snapshot that was taken before the fork stays, and is of the parent's tree."""
    program = """
for _ in range(3):
    with timing.add_time("a"): pass
before = timing.snapshot()
child = os.fork()
if child: os.waitpid(child, 0)
with timing.add_time("a"): pass
print(before.to_dict()["children"][0]["count"],
      timing.delta(before).to_dict()["children"][0]["count"], flush=True)
if child == 0: os._exit(0)
"""
    assert "3 1\n3 1\n" == run(program, tmp_path).stdout


def test_the_file_is_the_parents(tmp_path: Path) -> None:
    """A child that ends normally does not overwrite the file that its parent asked for."""
    path = tmp_path / "tree.json"
    program = """
timing.write_at_exit(path)
with timing.add_time("parent"): pass
child = os.fork()
if child == 0:
    with timing.add_time("child"): pass
    sys.exit(0)
os.waitpid(child, 0)
print(os.path.exists(path))
"""
    assert "False\n" == run(program, path).stdout
    assert ["parent"] == list(nodes(path))


def test_a_terminated_child_leaves_the_file_alone(tmp_path: Path) -> None:
    """The handler that a child inherits ends it and writes nothing."""
    path = tmp_path / "tree.json"
    program = """
timing.write_at_exit(path)
child = os.fork()
if child == 0:
    signal.raise_signal(signal.SIGTERM)
    os._exit(0)
print(os.WTERMSIG(os.waitpid(child, 0)[1]), os.path.exists(path))
"""
    assert f"{int(signal.SIGTERM)} False\n" == run(program, path).stdout
