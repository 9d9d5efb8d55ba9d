"""The record of a worker's windows: which states a window can have, one after the other."""

from __future__ import annotations

import json

import pytest
from gpuprof._session.file import WindowEntry, WindowState, new_entry, window_of
from gpuprof._session.windows import BUSY, Windows
from gpuprof.backend.types import Window
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

ENDS: tuple[WindowState, ...] = ("closed", "refused", "failed")
PLANNED = (Window(1, 2, 3), Window(2, 5, 7), Window(3, 7, 8))
FOLLOWING: dict[WindowState, set[WindowState]] = {
    "planned": {"asked", "opening", "refused", "failed"},
    "asked": {"opening", "refused", "failed"},
    "opening": {"open", "closing", "failed"},
    "open": {"closing", "failed"},
    "closing": {"closed", "failed"},
}
"""Which states may follow a state that is no end."""
windows = st.sampled_from(PLANNED)


class Transitions(RuleBasedStateMachine):
    """A worker's record, and the driver's copy of it, under calls in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[int, str]] = []
        self.blamed: set[Window] = set()
        self.worker = Windows(PLANNED, self.note)
        self.driver = Windows(PLANNED)
        self.before: dict[int, WindowState] = {window.number: "planned" for window in PLANNED}

    def note(self, window: Window, state: str) -> None:
        """For the ledger."""
        self.noted.append((window.number, state))

    @rule(window=windows)
    def ask(self, window: Window) -> None:
        self.driver.ask(window)
        self.worker.ask(window)

    @rule(window=windows)
    def begin(self, window: Window) -> None:
        may_open = self.worker.current is None and self.worker.can_open(window.number)
        assert may_open == self.worker.begin(window)

    @rule()
    def opened(self) -> None:
        self.worker.opened()

    @rule(window=windows)
    def capture(self, window: Window) -> None:
        """A whole window, which is seldom met by chance."""
        if self.worker.begin(window):
            for step in (self.worker.opened, self.worker.begin_closing, self.worker.end):
                self.a_state_follows_from_the_one_before()
                self.answer(window)
                step()

    @rule(fails=st.booleans())
    def begin_closing(self, fails: bool) -> None:
        if fails and self.worker.current is not None:
            self.blamed.add(self.worker.current)
            self.worker.blame(self.worker.current, "the backend failed")
        self.worker.begin_closing()

    @rule()
    def end(self) -> None:
        if self.worker.current is not None and "closing" == self.worker.state(
            self.worker.current.number
        ):
            self.worker.end()

    @rule(window=windows)
    def refuse(self, window: Window) -> None:
        self.worker.refuse(window, "no room")

    @rule(window=windows)
    def answer(self, window: Window) -> None:
        """The worker's whole entry travels to the driver."""
        entry: WindowEntry | None = json.loads(json.dumps(self.worker.entry(window.number)))
        if entry is not None:
            self.driver.take(window, entry)
            assert entry == self.driver.entry(window.number)

    @rule(window=windows)
    def lose(self, window: Window) -> None:
        """The worker has not answered."""
        ended = self.driver.state(window.number) in ENDS
        self.driver.fail(window, "no answer")
        assert ended or "failed" == self.driver.state(window.number)

    @rule()
    def start_again(self) -> None:
        """The worker's process was replaced: its record begins anew, the driver's goes on."""
        self.worker = Windows(PLANNED, self.note)
        self.noted.clear()
        self.blamed.clear()
        self.before = dict.fromkeys(self.before, "planned")

    @invariant()
    def a_state_follows_from_the_one_before(self) -> None:
        for number, before in self.before.items():
            state = self.worker.state(number)
            assert state == before or state in FOLLOWING.get(before, set())
            self.before[number] = state

    @invariant()
    def at_most_one_window_is_open(self) -> None:
        busy = [window for window in PLANNED if self.worker.state(window.number) in BUSY]
        assert busy == ([] if self.worker.current is None else [self.worker.current])
        current = self.driver.current  # the driver learns later how others have ended
        assert current is None or self.driver.state(current.number) in BUSY

    @invariant()
    def times_and_errors_are_those_of_the_state(self) -> None:
        for entry in self.worker.entries:
            state = entry["state"]
            assert (entry["opened"] is None) == (state == "refused")
            assert (entry["closed"] is not None) == (state in ("closed", "failed"))
            assert (state in ("refused", "failed")) <= bool(entry["error"])
            assert state != "closed" or window_of(entry) not in self.blamed

    @invariant()
    def the_ledger_has_each_state_once(self) -> None:
        assert len(self.noted) == len(set(self.noted))
        assert {state for _, state in self.noted} <= {*BUSY, "closed", "failed"}


Transitions.TestCase.settings = settings(stateful_step_count=40)
test_any_order_of_calls_leaves_one_state = Transitions.TestCase


def test_a_step_does_not_undo_what_the_driver_opens_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step asks on the job's thread, the driver's request runs on the control thread."""
    record = Windows(PLANNED)

    def interrupted(window: Window, *state: WindowState) -> WindowEntry:
        monkeypatch.undo()
        record.begin(window)
        return new_entry(window, *state)

    monkeypatch.setattr("gpuprof._session.windows.new_entry", interrupted)
    record.ask(PLANNED[0])
    assert "opening" == record.state(1)


def test_a_refused_window_is_not_an_error() -> None:
    """Its entry has the reason."""
    windows = Windows(PLANNED)
    windows.refuse(PLANNED[0], "too late")
    entry = windows.entry(1)
    assert (None, "too late") == (windows.problem(1), entry and entry["error"])


@pytest.mark.parametrize(("opens", "seconds"), [(True, 2.0), (False, 7.0)])
def test_a_window_is_as_long_as_it_was_open(
    opens: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the time in which the profiler opened it, unless it never said that it did."""
    now = 100.0
    monkeypatch.setattr("gpuprof._session.windows.time.perf_counter", lambda: now)
    record = Windows(PLANNED)
    record.begin(PLANNED[0])
    now += 5.0
    if opens:
        record.opened()
    now += 2.0
    record.begin_closing()
    now += 3.0
    record.end()
    entry = record.entry(1)
    assert seconds == (entry and entry["seconds"])
