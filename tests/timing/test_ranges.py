"""The slot for ranges: who gets one, and what happens when opening one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from gpuprof_timing import Timing, annotate, set_range_opener


class Recorder:
    """Remembers what is opened and closed."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.crossing: list[bool] = []

    def __call__(self, name: str, crosses_tasks: bool) -> AbstractContextManager[None]:
        self.crossing.append(crosses_tasks)
        return self._range(name)

    @contextmanager
    def _range(self, name: str) -> Iterator[None]:
        self.events.append(f"+{name}")
        try:
            yield
        finally:
            self.events.append(f"-{name}")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    set_range_opener(recorder)
    yield recorder
    set_range_opener(None)


def test_every_scope_of_every_timing_opens_a_range(recorder: Recorder) -> None:
    """Ranges are named by the scope's own key, nested as the scopes are."""
    with Timing("a").add_time("train"), Timing("b").timeit("forward"):
        pass
    assert ["+train", "+forward", "-forward", "-train"] == recorder.events


def test_a_range_is_closed_by_an_exception(recorder: Recorder) -> None:
    """No range is left open."""
    with pytest.raises(KeyError), Timing().add_time("train"):
        raise KeyError
    assert ["+train", "-train"] == recorder.events


def test_annotate_is_a_range_only(recorder: Recorder) -> None:
    """`annotate` leaves no node behind, as a context manager and as a decorator."""

    @annotate("load")
    def load() -> int:
        return 3

    with annotate("inner"):
        assert 3 == load()
    assert ["+inner", "+load", "-load", "-inner"] == recorder.events


def test_decorated_coroutines_say_that_they_cross_tasks(recorder: Recorder) -> None:
    """The backend must not push and pop round an await."""

    @Timing().add_time("a")
    @annotate("b")
    async def work() -> None:
        pass

    asyncio.run(work())
    assert [True, True] == recorder.crossing


def test_a_range_open_when_the_slot_is_emptied_is_closed(recorder: Recorder) -> None:
    """What was pushed is popped, also after the window."""
    with Timing().add_time("a"):
        set_range_opener(None)
    assert ["+a", "-a"] == recorder.events


def test_without_an_opener_nothing_happens() -> None:
    """The no-op is usable anywhere."""
    with annotate("a"), Timing().add_time("b"):
        pass


def test_a_faulty_opener_is_dropped_and_the_scope_goes_on() -> None:
    """The first exception empties the slot; the timed code does not see it."""
    faults: list[Exception] = []

    def broken(name: str, crosses_tasks: bool) -> AbstractContextManager[None]:
        raise OSError("no profiler")

    set_range_opener(broken, faults.append)
    timing = Timing()
    for _ in range(2):
        with timing.add_time("a"):
            pass
    assert ["no profiler"] == [str(fault) for fault in faults]
    assert 2 == timing.to_dict()["children"][0]["count"]


class Exits:
    """A range that would end the process."""

    def __init__(self, when: str) -> None:
        self.when = when

    def __enter__(self) -> None:
        if self.when == "enter":
            raise SystemExit(3)

    def __exit__(self, *_: object) -> None:
        if self.when == "exit":
            raise SystemExit(3)


@pytest.mark.parametrize("when", ["open", "enter", "exit"])
def test_a_range_that_exits_is_a_fault_of_the_profiler(when: str) -> None:
    """The scope goes on, also where a compiled extension panics, which is no `Exception`."""

    def open_range(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        if when == "open":
            raise SystemExit(3)
        return Exits(when)  # type: ignore[return-value]

    faults: list[BaseException] = []
    set_range_opener(open_range, faults.append)
    timing = Timing()
    with timing.add_time("train"):
        pass
    assert ["train"] == list(timing)
    assert ["SystemExit(3)"] == [repr(fault) for fault in faults]


def test_ctrl_c_inside_a_range_reaches_the_job() -> None:
    """The user ends the job, whatever runs at that moment."""

    def open_range(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        raise KeyboardInterrupt

    set_range_opener(open_range)
    with pytest.raises(KeyboardInterrupt), Timing().add_time("train"):
        pass
    set_range_opener(None)
