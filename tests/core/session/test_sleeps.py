"""Which sleeps of the main thread are its own time."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuprof._session.sleeps import Sleeps
from gpuprof._session.stacks import LIBRARY
from support.waiting import DEADLINE

LONG = 0.05
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/wchan").exists(), reason="this kernel does not tell where a thread sleeps"
)


def straight() -> None:
    """As work that is simulated."""
    time.sleep(2 * LONG)


def in_rounds() -> None:
    """Also if a condition is in the loop."""
    for number in range(3):
        if number:
            time.sleep(LONG)


def in_a_long_loop() -> None:
    """Whose jumps have a prefix."""
    for number in range(2):
        time.sleep(LONG)
        numbers = [number, number + 1, number + 2, number + 3, number + 4, number + 5, number + 6]
        numbers = [each for each in [*numbers, *numbers, *numbers, *numbers] if each % 2 == 0]
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])


def until_it_is_there() -> None:
    """As a poll."""
    end = time.monotonic() + 2 * LONG
    while time.monotonic() < end:
        time.sleep(LONG)


def a_few_times_in_each_round() -> None:
    """As another poll."""
    end = time.monotonic() + 2 * LONG
    while time.monotonic() < end:
        for _ in range(2):
            time.sleep(LONG)


def a_few_times_at_most() -> None:
    """As a poll that gives up."""
    for number in range(9):
        time.sleep(LONG)
        if number == 2:
            break


def in_a_loop_that_trains() -> None:
    """And ends early."""
    for number in range(9):
        barrier()
        time.sleep(LONG)
        if number == 2:
            break


def in_a_loop_that_answers() -> None:
    """As a server's, for whoever sends it something."""
    far, near = multiprocessing.Pipe()
    for message in (True, True, False):
        far.send(message)
    while near.recv():
        time.sleep(LONG)


def barrier() -> None:
    """As `torch.distributed.barrier`."""


def until_it_raises() -> None:
    """The same."""
    try:
        for number in range(9):
            if number == 2:
                raise StopIteration
            time.sleep(LONG)
    except StopIteration:
        pass


def in_a_library() -> None:
    """As one that waits for a server before it tries again."""
    code = compile(f"time.sleep({LONG})", "/lib/python3.11/site-packages/again.py", "exec")
    exec(code, {"time": time})


def for_a_lock() -> None:
    """As a wait for another thread."""
    threading.Event().wait(2 * LONG)


@pytest.mark.parametrize(
    ("function", "is_own"),
    [
        (straight, True),
        (in_rounds, True),
        (in_a_long_loop, True),
        (until_it_is_there, False),
        (a_few_times_in_each_round, False),
        (a_few_times_at_most, False),
        (in_a_loop_that_trains, True),
        (in_a_loop_that_answers, True),
        (until_it_raises, False),
        (in_a_library, False),
        (for_a_lock, False),
    ],
)
def test_a_sleep_is_the_threads_own_unless_it_polls(
    function: Callable[[], None], is_own: bool
) -> None:
    """Who polls waits for somebody else."""
    sleeps, over = Sleeps(LIBRARY), threading.Event()

    def look() -> None:
        while not over.wait(LONG / 10):
            sleeps.look(1)

    thread = threading.Thread(target=look)
    thread.start()
    end = time.monotonic() + DEADLINE
    function()
    while is_own and not sleeps.nanoseconds and time.monotonic() < end:  # on a busy machine
        function()
    over.set()
    thread.join()
    assert (sleeps.nanoseconds > 0) == is_own


def test_other_threads_do_not_count() -> None:
    """They may sleep all the time, while the main thread works."""
    sleeps = Sleeps(LIBRARY)
    thread = threading.Thread(target=straight)
    thread.start()
    while thread.is_alive():  # the main thread, which looks itself, never sleeps
        sleeps.look(1)
    thread.join()
    assert 0 == sleeps.nanoseconds
