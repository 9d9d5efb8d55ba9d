"""Time on the GPU's stream: the logic, with events that stand in for a card's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from gpuprof_timing import Timing
from support.manual_clock import Clock
from support.stand_in_events import StandInEvents

SECOND = 10**9


@pytest.fixture
def events() -> StandInEvents:
    return StandInEvents()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timing(clock: Clock, events: StandInEvents) -> Timing:
    return Timing("t", clock=clock, device_events=events)


def without_waiting(timing: Timing) -> dict[str, tuple[int, int]]:
    """What is known of the device's time now, by key at the root."""
    return {
        key: (node.device_count, node.device_total)
        for key, node in timing._recording.root.children.items()
    }


def test_a_scope_never_waits(timing: Timing, events: StandInEvents) -> None:
    """However far the GPU is behind, scopes only record events."""
    for _ in range(100):
        with timing.add_time("a", device="cuda"):
            events.now += 1
    assert [] == events.waited
    assert ["begin", "end"] * 100 == events.log
    assert {"a": (0, 0)} == without_waiting(timing)


def test_pairs_are_read_in_order_when_they_are_ready(timing: Timing, events: StandInEvents) -> None:
    """The end of a scope reads what the GPU has passed, and stops at what it has not."""
    for key, duration in [("a", 1), ("b", 2), ("c", 4)]:
        with timing.add_time(key, device="cuda"):
            events.now += duration
    events.passed = 2
    with timing.add_time("d", device="cuda"):
        events.now += 8
    assert {"a": (1, 1), "b": (1, 2), "c": (0, 0), "d": (0, 0)} == without_waiting(timing)


def test_pairs_do_not_pile_up(timing: Timing, events: StandInEvents) -> None:
    """A backlog of a slow moment is worked off by later scopes."""
    for _ in range(20):
        with timing.add_time("a", device="cuda"):
            events.now += 1
    events.passed = 10**6
    for _ in range(10):
        with timing.add_time("a", device="cuda"):
            events.now += 1
    assert {"a": (30, 30)} == without_waiting(timing)
    assert [] == events.waited


@pytest.mark.parametrize("report", ["table", "to_dict", "snapshot"])
def test_a_report_waits_for_the_gpu(timing: Timing, events: StandInEvents, report: str) -> None:
    """What is still under way is waited for when it is asked for, once each."""
    for _ in range(3):
        with timing.add_time("a", device="cuda"):
            events.now += SECOND
    getattr(timing, report)()
    assert ["wait 1", "wait 2", "wait 3"] == events.waited
    assert {"a": (3, 3 * SECOND)} == without_waiting(timing)


@pytest.mark.parametrize(
    ("device", "expected", "asked", "waited"),
    [("known", (0, 0), 0, 0), ("ready", (2, 2), 3, 0), ("wait", (3, 3), 3, 3)],
)
def test_how_much_of_the_device_a_file_has(
    timing: Timing,
    events: StandInEvents,
    device: Any,
    expected: tuple[int, int],
    asked: int,
    waited: int,
) -> None:
    """What is known without a call on the device, what is ready on it, or all of it."""
    for _ in range(3):
        with timing.add_time("a", device="cuda"):
            events.now += 1
    events.passed, events.asked = 2, 0
    node = timing.to_dict(device)["children"][0]
    assert expected == (node["device_count"], node["device_total"])
    assert asked == events.asked
    assert waited == len(events.waited)


def test_another_word_for_the_device_is_refused(timing: Timing) -> None:
    """The error has the value and what would be valid."""
    with pytest.raises(ValueError, match="device='now': expected 'wait', 'ready' or 'known'"):
        timing.to_dict("now")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "report", [str, repr, dict, Timing.metrics, Timing.flat_str], ids=lambda report: report.__name__
)
def test_a_glance_does_not_wait(timing: Timing, events: StandInEvents, report: Any) -> None:
    """Reports that say nothing of the device do not wait for it."""
    with timing.add_time("a", device="cuda"):
        pass
    report(timing)
    assert [] == events.waited


def test_the_table_shows_both_times_side_by_side(
    timing: Timing, clock: Clock, events: StandInEvents
) -> None:
    """A row has the CPU's and the stream's total; without device time the cell is empty."""
    with timing.add_time("launch", device="cuda"):
        clock.advance(1)
        events.now += 5 * SECOND
    with timing.add_time("plain"):
        clock.advance(2)
    head, *rows = [
        [cell.strip() for cell in line.split("\t")] for line in timing.table("tsv").splitlines()
    ]
    cells = {row[0]: dict(zip(head, [*row, ""], strict=False)) for row in rows}
    assert [("1.0000", "5.0000"), ("2.0000", "")] == [
        (cells[key]["total"], cells[key]["device"]) for key in ("launch", "plain")
    ]


def test_where_no_event_can_be_recorded_the_cpu_is_measured(
    timing: Timing, clock: Clock, events: StandInEvents
) -> None:
    """While a CUDA graph is captured there is no pair, and no end of one."""
    events.possible = False
    with timing.add_time("a", device="cuda"):
        clock.advance(1)
    assert 1.0 == timing["a"]
    assert {"a": (0, 0)} == without_waiting(timing)
    assert ["begin"] == events.log


def test_a_capture_that_begins_inside_a_scope(
    timing: Timing, clock: Clock, events: StandInEvents
) -> None:
    """A scope that ends during a graph's capture records no event and reads none."""
    with timing.add_time("before", device="cuda"):
        events.now += 1
    events.asked = 0
    with timing.add_time("around", device="cuda"):
        clock.advance(1)
        events.passed, events.possible = 10, False
    asked, events.possible = events.asked, True
    with timing.add_time("after", device="cuda"):
        events.now += 2
    assert 0 == asked
    assert 1.0 == timing["around"]
    assert {"before": (1, 1), "around": (0, 0), "after": (1, 2)} == without_waiting(timing)


def test_an_exception_ends_the_pair(timing: Timing, clock: Clock, events: StandInEvents) -> None:
    """A body that raises is measured as far as it got, and the exception passes."""
    with pytest.raises(KeyError, match="body"), timing.add_time("a", device="cuda"):
        clock.advance(1)
        events.now += 7
        raise KeyError("body")
    node = timing.to_dict()["children"][0]
    assert (1, SECOND, 0, 1, 7) == tuple(
        node[name] for name in ("count", "total", "open", "device_count", "device_total")
    )


def test_a_decorated_function(timing: Timing, events: StandInEvents) -> None:
    """Each call has a pair of its own."""

    @timing.add_time("a", device="cuda")
    def launch(duration: int) -> int:
        events.now += duration
        return duration

    assert [1, 2] == [launch(1), launch(2)]
    assert (2, 3) == tuple(
        timing.to_dict()["children"][0][name] for name in ("device_count", "device_total")
    )


def test_concurrent_tasks_keep_their_pairs_apart(timing: Timing, events: StandInEvents) -> None:
    """Scopes that overlap end their own pairs."""

    @timing.add_time("a", device="cuda")
    async def launch(duration: int) -> None:
        await asyncio.sleep(0)
        events.now += duration

    async def main() -> None:
        await asyncio.gather(launch(1), launch(10))

    asyncio.run(main())
    assert (2, 1 + 11) == tuple(
        timing.to_dict()["children"][0][name] for name in ("device_count", "device_total")
    )


def test_recursion_takes_the_outermost_time_on_the_device(
    timing: Timing, events: StandInEvents
) -> None:
    """A scope inside one of the same key lies inside the outer one's time on the stream already."""
    with timing.add_time("a", device="cuda"), timing.add_time("a", device="cuda"):
        events.now += 5
    assert 5 == timing.to_dict()["children"][0]["device_total"]


def test_device_times_travel(timing: Timing, events: StandInEvents) -> None:
    """They survive JSON, add in a merge, and are taken apart by a delta."""
    with timing.add_time("a", device="cuda"):
        events.now += 3
    before = Timing.from_dict(json.loads(json.dumps(timing.to_dict())))
    with timing.add_time("a", device="cuda"):
        events.now += 4
    merged, delta = Timing.merge([before, timing]), timing.delta(before)
    assert [(1, 3), (3, 10), (1, 4)] == [
        tuple(tree.to_dict()["children"][0][name] for name in ("device_count", "device_total"))
        for tree in (before, merged, delta)
    ]


def test_reset_forgets_what_is_under_way(timing: Timing, events: StandInEvents) -> None:
    """Pairs of the old tree are neither waited for nor counted in the new one."""
    with timing.add_time("a", device="cuda"):
        pass
    timing.reset()
    assert [] == timing.to_dict()["children"]
    assert [] == events.waited


def test_a_scope_open_across_a_reset_leaves_the_new_tree_alone(
    timing: Timing, events: StandInEvents
) -> None:
    """Its pair goes where its time goes: into the old tree."""
    with timing.add_time("a", device="cuda"):
        timing.reset()
        events.now += 5
    assert [] == timing.to_dict()["children"]


def test_switched_off_no_event_is_recorded(events: StandInEvents) -> None:
    """A `Timing` that does nothing does nothing on the device."""
    with Timing(enabled=False, device_events=events).add_time("a", device="cuda"):
        pass
    assert [] == events.log


def test_without_cuda_the_cpu_is_measured(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch was never imported the scope is one like any other, and nobody imports it."""
    import sys

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    timing = Timing("t", clock=clock)
    with timing.add_time("a", device="cuda"):
        clock.advance(1)
    node = timing.to_dict()["children"][0]
    assert 1.0 == timing["a"]
    assert 0 == node["device_count"]
    assert "torch" not in sys.modules


def test_an_unknown_device_is_refused(clock: Clock) -> None:
    """The error has the value and what would be valid."""
    with pytest.raises(ValueError, match="device='tpu': expected 'cuda'"):
        Timing("t", clock=clock).add_time("a", device="tpu")


def test_an_unknown_device_is_refused_where_there_are_events(timing: Timing) -> None:
    """A word that is no device is one also where time on a device is measured already."""
    with pytest.raises(ValueError, match="device='tpu': expected 'cuda'"):
        timing.add_time("a", device="tpu")


class BrokenEvents(StandInEvents):
    """Stands in for a card that fails in the middle of a job."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self.broken = broken

    def begin(self) -> int | None:
        if self.broken == "begin":
            raise RuntimeError("CUDA error: begin")
        return super().begin()

    def end(self, begun: int) -> tuple[int, int] | None:
        if self.broken == "end":
            raise RuntimeError("CUDA error: end")
        return super().end(begun)

    def elapsed(self, pair: tuple[int, int]) -> int | None:
        if self.broken == "elapsed":
            raise RuntimeError("CUDA error: elapsed")
        return super().elapsed(pair)


@pytest.mark.parametrize("broken", ["begin", "end", "elapsed"])
def test_events_that_fail_break_neither_the_job_nor_the_tree(clock: Clock, broken: str) -> None:
    """A failing provider does no harm: the scope is closed, the next one has its own place."""
    timing = Timing("t", clock=clock, device_events=BrokenEvents(broken))
    ran = []
    with timing.add_time("a", device="cuda"):
        ran.append("a")
    with timing.add_time("b"):
        ran.append("b")
    assert ["a", "b"] == ran
    assert ["a", "b"] == list(timing.metrics())


def test_events_that_fail_do_not_hide_the_jobs_own_exception(clock: Clock) -> None:
    """After a failed kernel the next event fails, too; the first exception is kept."""
    timing = Timing("t", clock=clock, device_events=BrokenEvents("end"))
    with pytest.raises(KeyError, match="the job's"), timing.add_time("a", device="cuda"):
        raise KeyError("the job's")
