"""How a process ends or forks, and what is left of its tree. Each program is a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextvars import Context
from pathlib import Path

import pytest
from gpuprof_timing import Timing
from gpuprof_timing._render import open_places
from programs import HEAD, nodes, run, terminate


def test_a_normal_end_writes_the_tree(tmp_path: Path) -> None:
    """The file is what `from_dict` reads."""
    path = tmp_path / "tree.json"
    run("timing.write_at_exit(path)\nwith timing.add_time('a'): pass", path)
    tree = Timing.from_dict(json.loads(path.read_text()))
    assert ("t", ["a"], 1) == (tree.name, list(tree), nodes(path)["a"]["count"])


def test_a_normal_end_prints_the_tree(tmp_path: Path) -> None:
    """Standard error has the tree, once."""
    done = run("timing.print_at_exit()\nwith timing.add_time('a'): pass", tmp_path)
    assert ("", "t tree view:", 1) == (done.stdout, done.stderr.splitlines()[0], done.stderr.count("a: "))


def test_the_tree_is_printed_where_it_was_asked_for(tmp_path: Path) -> None:
    """Another file than standard error can be given."""
    done = run("timing.print_at_exit(sys.stdout)\nwith timing.add_time('a'): pass", tmp_path)
    assert (True, "") == (done.stdout.startswith("t tree view:\na: "), done.stderr)


def test_an_uncaught_exception_writes_the_tree(tmp_path: Path) -> None:
    """Scopes that the exception left are closed, and the traceback is the program's own."""
    path = tmp_path / "tree.json"
    done = run("timing.write_at_exit(path)\nwith timing.add_time('a'):\n    raise KeyError('mine')", path, expected=1)
    assert (1, 0, "KeyError: 'mine'") == (nodes(path)["a"]["count"], nodes(path)["a"]["open"], done.stderr.splitlines()[-1])


def test_sys_exit_keeps_its_status(tmp_path: Path) -> None:
    """Writing the tree does not change how the process ends."""
    path = tmp_path / "tree.json"
    run("timing.write_at_exit(path)\nwith timing.add_time('a'):\n    sys.exit(7)", path, expected=7)
    assert 1 == nodes(path)["a"]["count"]


def test_sigterm_writes_the_tree_and_ends_the_process(tmp_path: Path) -> None:
    """The process dies of the signal, as without a tree."""
    path = tmp_path / "tree.json"
    status, _, errors = terminate("timing.write_at_exit(path)\nwith timing.add_time('a'): pass\nready()", path)
    assert (-signal.SIGTERM, "", 1) == (status, errors, nodes(path)["a"]["count"])


def test_sigterm_while_the_process_pauses(tmp_path: Path) -> None:
    """A process that waits for a signal gets this one."""
    path = tmp_path / "tree.json"
    status, _, _ = terminate("timing.write_at_exit(path)\nprint('ready', flush=True)\nwhile True: signal.pause()", path)
    assert (-signal.SIGTERM, {}) == (status, nodes(path))


def test_sigterm_prints_the_tree(tmp_path: Path) -> None:
    """What is open is printed as far as it got, and said to be open."""
    program = """
timing.print_at_exit()
with timing.add_time("done"): pass
with timing.add_time("train"), timing.timeit("fwd"): ready()
"""
    status, _, errors = terminate(program, tmp_path)
    title, *entries, last = errors.splitlines()
    keys = [line.split(": ")[0].strip() for line in entries]
    assert (-signal.SIGTERM, "t tree view:", ["done", "train", "fwd"]) == (status, title, keys)
    assert "open: train/fwd" == last


def test_only_the_innermost_open_places_are_printed(timing: Timing) -> None:
    """Each thread's, also where the scope around has ended already; nothing where nothing is open."""
    outer, inner = timing.add_time("outer"), timing.add_time("inner")
    with timing.add_time("a"), timing.add_time("b"):
        Context().run(outer.__enter__)
        inner.__enter__()
        assert ["a/b/inner", "outer"] == list(open_places(timing._recording.root))
    assert ["a/b/inner", "outer"] == list(open_places(timing._recording.root))
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    assert [] == list(open_places(timing._recording.root))


def test_open_scopes_are_in_the_tree_of_a_terminated_process(tmp_path: Path) -> None:
    """Each open scope says that it is open and how long it has been."""
    path = tmp_path / "tree.json"
    terminate("timing.write_at_exit(path)\nwith timing.add_time('a'), timing.timeit('b'): ready()", path)
    outer = nodes(path)["a"]
    (inner,) = outer["children"]
    assert [(0, 1, True)] * 2 == [(node["count"], node["open"], node["open_elapsed"] > 0) for node in (outer, inner)]


def test_what_other_threads_have_open_is_in_the_tree(tmp_path: Path) -> None:
    """A thread that never ends is in the tree of a process that is terminated."""
    path = tmp_path / "tree.json"
    program = """
def work():
    with timing.add_time("in_thread"):
        entered.set()
        threading.Event().wait()
entered = threading.Event()
timing.write_at_exit(path)
threading.Thread(target=work, daemon=True).start()
entered.wait()
ready()
"""
    status, _, _ = terminate(program, path)
    assert (-signal.SIGTERM, 1) == (status, nodes(path)["in_thread"]["open"])


def test_a_handler_of_sigterm_is_called_afterwards(tmp_path: Path) -> None:
    """The tree is written first; then the program's own handler decides how it ends."""
    path = tmp_path / "tree.json"
    program = """
def mine(number, frame):
    print("mine", number, os.path.exists(path), frame is not None, flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, mine)
timing.write_at_exit(path)
ready()
"""
    assert (3, f"mine {int(signal.SIGTERM)} True True\n") == terminate(program, path)[:2]


def test_an_ignored_sigterm_stays_ignored(tmp_path: Path) -> None:
    """A program that ignores the signal goes on."""
    path = tmp_path / "tree.json"
    program = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
timing.write_at_exit(path)
print("ready", flush=True)
while not os.path.exists(path):
    pass
print("went on")
"""
    assert (0, "went on\n") == terminate(program, path)[:2]


GOES_ON = """
def mine(number, frame): pass
signal.signal(signal.SIGTERM, {handler})
timing.print_at_exit()
timing.write_at_exit(path)
print("ready", flush=True)
while not os.path.exists(path):
    pass
with timing.add_time("checkpoint"): pass
"""


@pytest.mark.parametrize("handler", ["mine", "signal.SIG_IGN"])
def test_a_process_that_goes_on_leaves_the_tree_again(tmp_path: Path, handler: str) -> None:
    """The usual handler returns, having set a flag; what is done after it is in the file and in print."""
    path = tmp_path / "tree.json"
    status, _, errors = terminate(GOES_ON.format(handler=handler), path)
    assert (0, ["checkpoint"], True) == (status, list(nodes(path)), "\ncheckpoint: " in errors)


def test_the_file_is_where_its_path_led(tmp_path: Path) -> None:
    """A job that changes its directory later, as Hydra's do, does not take the file along."""
    (tmp_path / "later").mkdir()
    program = f"os.chdir({str(tmp_path)!r})\ntiming.write_at_exit('tree.json')\nos.chdir('later')"
    run(program, tmp_path)
    assert ["t"] == [json.loads(found.read_text())["name"] for found in tmp_path.glob("*.json")]


def test_two_trees_are_both_left(tmp_path: Path) -> None:
    """Each asks for itself, and the signal reaches both."""
    path = tmp_path / "tree.json"
    program = """
timing.write_at_exit(path)
other = Timing("other")
other.write_at_exit(path + ".other")
other.print_at_exit()
ready()
"""
    status, _, errors = terminate(program, path)
    names = [json.loads(Path(f"{path}{end}").read_text())["name"] for end in ("", ".other")]
    assert (-signal.SIGTERM, ["t", "other"], "other tree view:\n") == (status, names, errors)


def test_off_the_main_thread_only_the_end_counts(tmp_path: Path) -> None:
    """Python allows no handlers there: nothing is raised, the signal's handling is as it was, the end writes the tree."""
    path = tmp_path / "tree.json"
    program = """
thread = threading.Thread(target=timing.write_at_exit, args=(path,))
thread.start()
thread.join()
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
with timing.add_time("a"): pass
"""
    assert ("True\n", ["a"]) == (run(program, path).stdout, list(nodes(path)))


def test_nothing_is_installed_unasked(tmp_path: Path) -> None:
    """Importing, making and using a `Timing` touches no signal, no `atexit` and no file."""
    program = """
import atexit
before = [signal.getsignal(number) for number in signal.valid_signals()], atexit._ncallbacks()
fresh = Timing("fresh", events=3)
with fresh.add_time("a"), fresh.timeit("b"), annotate("c"): pass
fresh.to_dict(), fresh.snapshot(), Timing.merge([fresh])
print(before == ([signal.getsignal(number) for number in signal.valid_signals()], atexit._ncallbacks()))
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""
    assert ("True\nTrue\n", []) == (run(program, tmp_path / "tree.json").stdout, list(tmp_path.iterdir()))


def test_a_tree_that_cannot_be_written_does_not_keep_sigterm_from_ending_the_process(tmp_path: Path) -> None:
    """A full disk or a missing directory is a fault of the profile, not of the job."""
    program = """
timing.write_at_exit(path)
try:
    ready()
except Exception as error:  # the job's own handling must never see it
    print("raised in the job:", type(error).__name__, flush=True)
"""
    assert (-signal.SIGTERM, "") == terminate(program, tmp_path / "missing" / "tree.json")[:2]


def test_a_tree_that_cannot_be_written_keeps_a_handler_from_nothing(tmp_path: Path) -> None:
    """The program's own handler of SIGTERM is called also where the tree cannot be written."""
    program = """
def mine(number, frame):
    print("mine", flush=True)
    os._exit(3)
signal.signal(signal.SIGTERM, mine)
timing.write_at_exit(path)
ready()
"""
    assert (3, "mine\n") == terminate(program, tmp_path / "missing" / "tree.json")[:2]


def test_sigterm_in_the_middle_of_entering_a_scope(tmp_path: Path) -> None:
    """The clock's call is where a signal can come in while a scope is half entered: the tree is left all the same."""
    path = tmp_path / "tree.json"
    program = """
import time
timing.write_at_exit(path)
def once():
    timing._recording.clock = time.perf_counter_ns
    os.kill(os.getpid(), signal.SIGTERM)
    return time.perf_counter_ns()
timing._recording.clock = once
timing.add_time("a").__enter__()
"""
    done = subprocess.run([sys.executable, "-c", HEAD + program, str(path)], capture_output=True, text=True, timeout=60)
    assert (-signal.SIGTERM, ["a"]) == (
        done.returncode,
        list(nodes(path)) if path.exists() and path.stat().st_size else done.stderr,
    )


@pytest.mark.parametrize("begin", ["os.kill(os.getpid(), signal.SIGTERM)", "sys.exit()"], ids=["after SIGTERM", "after exit"])
def test_sigterm_while_the_tree_is_being_written(tmp_path: Path, begin: str) -> None:
    """Whoever ends jobs often says so twice: the tree is in the file all the same."""
    path = tmp_path / "tree.json"
    program = f"""
import time
timing.write_at_exit(path)
with timing.add_time("a"): pass
def once():
    timing._recording.clock = time.perf_counter_ns
    os.kill(os.getpid(), signal.SIGTERM)
    return time.perf_counter_ns()
timing._recording.clock = once  # asked when the tree is written
{begin}
"""
    subprocess.run([sys.executable, "-c", HEAD + program, str(path)], capture_output=True, text=True, timeout=60)
    assert ["a"] == list(nodes(path) if path.exists() and path.read_text() else {})


# Forks


def test_a_fork_begins_an_empty_tree(tmp_path: Path) -> None:
    """The child measures its own time, the parent keeps what it has, and scopes open across the fork end without harm in both."""
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
    assert ["child child", "parent before around around/parent"] == run(program, tmp_path).stdout.splitlines()


def test_a_delta_in_the_child_is_all_that_it_did(tmp_path: Path) -> None:
    """A snapshot that was taken before the fork stays, and is of the parent's tree."""
    program = """
for _ in range(3):
    with timing.add_time("a"): pass
before = timing.snapshot()
child = os.fork()
if child: os.waitpid(child, 0)
with timing.add_time("a"): pass
print(before.to_dict()["children"][0]["count"], timing.delta(before).to_dict()["children"][0]["count"], flush=True)
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
    assert ("False\n", ["parent"]) == (run(program, path).stdout, list(nodes(path)))


def test_a_terminated_child_leaves_the_file_alone(tmp_path: Path) -> None:
    """The handler that a child inherits ends it and writes nothing."""
    path = tmp_path / "tree.json"
    program = """
timing.write_at_exit(path)
receive, send = os.pipe()
child = os.fork()
if child == 0:
    os.write(send, b"r")
    while True: signal.pause()
os.read(receive, 1)
os.kill(child, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(child, 0)[1]), os.path.exists(path))
"""
    assert f"{int(signal.SIGTERM)} False\n" == run(program, path).stdout
