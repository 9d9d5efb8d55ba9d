"""The stacks of all threads."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from gpuprof_timing.recording import CAN_SAMPLE, stacks

pytestmark = pytest.mark.skipif(not CAN_SAMPLE, reason="Python 3.11 needs the compiled module")
MOST = 50


@pytest.fixture
def waiting() -> object:
    """The id of a thread that waits in `inner`, and what it called."""
    reached, over = threading.Event(), threading.Event()

    def inner() -> None:
        reached.set()
        over.wait()

    def outer() -> None:
        inner()

    thread = threading.Thread(target=outer)
    thread.start()
    reached.wait()
    yield thread.ident
    over.set()
    thread.join()


def names(thread: object, known: dict[int, object], most: int = MOST) -> list[str] | None:
    ((_, frames),) = [each[1:] for each in stacks(known, most) if each[0] == thread]
    return None if frames is None else [code.co_name for code, _, _ in frames]


def test_a_stack_is_that_of_its_thread(waiting: object) -> None:
    """As `sys._current_frames` has it, from the innermost frame out."""
    wanted, frame = [], sys._current_frames()[waiting]  # type: ignore[index]
    while frame is not None:
        wanted.append((frame.f_code, frame.f_globals, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]
    ((_, frames),) = [each[1:] for each in stacks({}, MOST) if each[0] == waiting]
    assert wanted == list(frames or ())


def test_a_known_stack_has_no_frames(waiting: object) -> None:
    """Only its key."""
    (key,) = [key for thread, key, _ in stacks({}, MOST) if thread == waiting]
    assert names(waiting, {key: 1}) is None


def test_a_deep_stack_is_cut(waiting: object) -> None:
    """The innermost frames are left."""
    assert ["wait", "wait", "inner"] == names(waiting, {}, 3)


WORK = """
import gc, sys, threading, time
from gpuprof_timing.recording import stacks

def shallow(count, a=0.5, b="b", c=(), d=None, e=[], f={}, g=1j):
    return count if not count else shallow(count - 1)

def deep(count):
    return count if not count else deep(count - 1)

def work():
    while not over.is_set():
        deep(40)
        shallow(25)

over = threading.Event()
sys.setswitchinterval(1e-5)
gc.set_threshold(50, 1000, 1000)
gc.callbacks.append(lambda *_: time.sleep(0))  # other threads go on
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(1000):
    for _, _, frames in stacks({}, 100):
        for code, variables, instruction in frames:
            assert type(code) is type(work.__code__) and type(variables) is dict
over.set()
for thread in threads:
    thread.join()
print("whole")
"""


def test_threads_that_go_on_while_garbage_is_collected_stay_whole() -> None:
    """In Python 3.11 their frames were overwritten when frame objects were made."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=False)
    assert (0, "whole\n") == (done.returncode, done.stdout), done.stderr
