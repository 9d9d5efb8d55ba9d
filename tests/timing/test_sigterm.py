"""SIGTERM: the tree is left, and the program's own handling of the signal is as it was.

Each program is a process of its own.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import HEAD, nodes, run, terminate
from support.waiting import DEADLINE

INTERRUPTED = """
import time
# a shell starts background jobs with Ctrl-C ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
def once():  # the clock: asked when the tree is written
    timing._recording.clock = time.perf_counter_ns
    signal.raise_signal({by})
    return time.perf_counter_ns()
timing._recording.clock = once
"""
"""A signal comes in the middle of leaving the tree."""


def test_sigterm_writes_the_tree_and_ends_the_process(tmp_path: Path) -> None:
    """The process dies of the signal, as without a tree."""
    path = tmp_path / "tree.json"
    status, _, errors = terminate(
        "timing.write_at_exit(path)\nwith timing.add_time('a'): pass\nready()", path
    )
    assert -signal.SIGTERM == status
    assert "" == errors
    assert 1 == nodes(path)["a"]["count"]


def test_sigterm_while_the_process_pauses(tmp_path: Path) -> None:
    """A process that waits for a signal gets this one."""
    path = tmp_path / "tree.json"
    program = """
timing.write_at_exit(path)
signal.signal(signal.SIGALRM, lambda *_: None)
# wakes `pause`, in which a SIGTERM just before it would not be handled
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
print("ready", flush=True)
while True: signal.pause()
"""
    status, _, _ = terminate(program, path)
    assert -signal.SIGTERM == status
    assert {} == nodes(path)


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
    assert -signal.SIGTERM == status
    assert "t tree view:" == title
    assert ["done", "train", "fwd"] == keys
    assert "open: train/fwd" == last


def test_open_scopes_are_in_the_tree_of_a_terminated_process(tmp_path: Path) -> None:
    """Each open scope says that it is open and how long it has been."""
    path = tmp_path / "tree.json"
    terminate(
        "timing.write_at_exit(path)\nwith timing.add_time('a'), timing.timeit('b'): ready()", path
    )
    outer = nodes(path)["a"]
    (inner,) = outer["children"]
    assert [(0, 1, True)] * 2 == [
        (node["count"], node["open"], node["open_elapsed"] > 0) for node in (outer, inner)
    ]


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
    assert -signal.SIGTERM == status
    assert 1 == nodes(path)["in_thread"]["open"]


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
    """After a handler that returns, later scopes are in the file and in print."""
    path = tmp_path / "tree.json"
    status, _, errors = terminate(GOES_ON.format(handler=handler), path)
    assert 0 == status
    assert ["checkpoint"] == list(nodes(path))
    assert "\ncheckpoint: " in errors


@pytest.mark.parametrize("stop", ["Stop", "SystemExit"])
def test_a_process_whose_handler_raises_leaves_the_tree_again(tmp_path: Path, stop: str) -> None:
    """After a handler that raises to save a checkpoint, that time is in the file."""
    path = tmp_path / "tree.json"
    program = f"""
class Stop(Exception): pass
def mine(number, frame): raise {stop}
signal.signal(signal.SIGTERM, mine)
timing.print_at_exit()
timing.write_at_exit(path)
try:
    with timing.add_time("train"): ready()
except {stop}: pass
with timing.add_time("checkpoint"): pass
"""
    status, _, errors = terminate(program, path)
    left = {key: (node["count"], node["open"]) for key, node in nodes(path).items()}
    assert 0 == status
    assert {"train": (1, 0), "checkpoint": (1, 0)} == left
    assert [["train"], ["train", "checkpoint"]] == [
        re.findall(r"(\w+): \d", tree) for tree in errors.split("t tree view:")[1:]
    ]


def test_a_tree_that_ctrl_c_interrupts_is_left_at_the_next_chance(tmp_path: Path) -> None:
    """A process that survives it hears SIGTERM as before, and leaves its tree."""
    path = tmp_path / "tree.json"
    program = f"""
{INTERRUPTED.format(by="signal.SIGINT")}
# ignored in children of `nohup` and of `&`
signal.signal(signal.SIGINT, signal.default_int_handler)
def mine(number, frame): print("mine")
signal.signal(signal.SIGTERM, mine)
timing.write_at_exit(path)
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt: pass
with timing.add_time("a"): pass
signal.raise_signal(signal.SIGTERM)
"""
    assert "mine\n" == run(program, path).stdout
    assert ["a"] == list(nodes(path))


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
    assert -signal.SIGTERM == status
    assert ["t", "other"] == names
    assert "other tree view:\n" == errors


def test_a_tree_that_cannot_be_written_does_not_keep_sigterm_from_ending_the_process(
    tmp_path: Path,
) -> None:
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
    """A signal during a half-entered scope still leaves the tree."""
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
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program, str(path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert -signal.SIGTERM == done.returncode
    assert ["a"] == (list(nodes(path)) if path.exists() and path.stat().st_size else done.stderr)


@pytest.mark.parametrize(
    "begin",
    ["signal.raise_signal(signal.SIGTERM)", "sys.exit()"],
    ids=["after SIGTERM", "after exit"],
)
def test_sigterm_while_the_tree_is_being_written(tmp_path: Path, begin: str) -> None:
    """Whoever ends jobs often says so twice: the tree is in the file all the same."""
    path = tmp_path / "tree.json"
    program = f"""
timing.write_at_exit(path)
with timing.add_time("a"): pass
{INTERRUPTED.format(by="signal.SIGTERM")}
{begin}
"""
    run(program, path, expected=-signal.SIGTERM)
    assert ["a"] == list(nodes(path))


@pytest.mark.parametrize(
    ("begin", "signals"), [("signal.raise_signal(signal.SIGTERM)", 2), ("sys.exit()", 1)]
)
def test_a_handler_hears_every_sigterm_once(tmp_path: Path, begin: str, signals: int) -> None:
    """A handler that counts signals counts right while the tree is being written."""
    path = tmp_path / "tree.json"
    program = f"""
def mine(number, frame): print("mine")
signal.signal(signal.SIGTERM, mine)
timing.write_at_exit(path)
{INTERRUPTED.format(by="signal.SIGTERM")}
{begin}
"""
    assert "mine\n" * signals == run(program, path).stdout
