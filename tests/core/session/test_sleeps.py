"""Which sleeps of the main thread are its own time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from gpuprof._session import instruments
from gpuprof._session.instruments.instrument import NO_HOOKS
from gpuprof_timing import Timing

FAST = 0.001


def straight() -> None:
    """As work that is simulated."""
    time.sleep(FAST)


def in_rounds() -> None:
    """Also if a condition is in the loop."""
    for number in range(3):
        if number:
            time.sleep(FAST)


def in_a_long_loop() -> None:
    """Whose jumps have a prefix."""
    for number in range(2):
        time.sleep(FAST)
        numbers = [number, number + 1, number + 2, number + 3, number + 4, number + 5, number + 6]
        numbers = [each for each in [*numbers, *numbers, *numbers, *numbers] if each % 2 == 0]
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])
        numbers.append(sum(numbers) + max(numbers) + min(numbers) + len(numbers) + numbers[0])


def until_it_is_there() -> None:
    """As a poll."""
    end = time.monotonic() + 3 * FAST
    while time.monotonic() < end:
        time.sleep(FAST)


def a_few_times_at_most() -> None:
    """As a poll that gives up."""
    for number in range(9):
        time.sleep(FAST)
        if number == 2:
            break


def until_it_returns() -> None:
    """The same."""
    for number in range(9):
        if number == 2:
            return
        time.sleep(FAST)


@pytest.fixture
def slept() -> Iterator[list[int]]:
    """What is noted, in nanoseconds."""
    noted: list[int] = []
    hooks = NO_HOOKS._replace(slept=noted.append)
    installed = instruments.begin(["queue"], Timing(), pytest.fail, hooks)
    yield noted
    for instrument in installed:
        instrument.end_marking()


@pytest.mark.parametrize(
    ("function", "times"),
    [
        (straight, 1),
        (in_rounds, 2),
        (in_a_long_loop, 2),
        (until_it_is_there, 0),
        (a_few_times_at_most, 0),
        (until_it_returns, 0),
    ],
)
def test_a_sleep_is_the_threads_own_unless_it_polls(
    function: Callable[[], None], times: int, slept: list[int]
) -> None:
    """Who polls waits for somebody else."""
    function()
    assert times == len(slept)
    assert all(nanoseconds >= FAST * 1e9 for nanoseconds in slept)


def test_other_threads_do_not_count(slept: list[int]) -> None:
    """They may sleep all the time."""
    thread = threading.Thread(target=straight)
    thread.start()
    thread.join()
    assert [] == slept


def test_sleep_raises_what_it_raises(slept: list[int]) -> None:
    """And it takes what it takes."""
    with pytest.raises(ValueError, match="non-negative"):
        time.sleep(-1)
    with pytest.raises(TypeError):
        time.sleep()  # type: ignore[call-arg]
    assert 1 >= len(slept)
