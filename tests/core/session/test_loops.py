"""Which loops around collectives are noted, and their iterations."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from gpuprof._session.instruments.instrument import Hooks, Instrument
from gpuprof._session.instruments.loops import Loops
from gpuprof_timing import Timing

Meet = Callable[[], None]


def layers_inside(meet: Meet) -> None:
    for _step in range(20):
        for _layer in range(4):
            meet()
        meet()


def only_layers_inside(meet: Meet) -> None:
    for _step in range(20):
        for _layer in range(4):
            meet()


def layers_in_a_function(meet: Meet) -> None:
    def forward() -> None:
        for _layer in range(4):
            meet()

    for _step in range(20):
        forward()


def two_calls_of_a_function(meet: Meet) -> None:
    def sync() -> None:
        meet()

    step = 0
    while step < 20:
        sync()
        sync()
        step += 1


def evaluation_now_and_then(meet: Meet) -> None:
    for step in range(20):
        meet()
        if step % 5 == 4:
            for _part in range(3):
                meet()


def after_others(meet: Meet) -> None:
    for _parameter in range(12):
        meet()
    meet()
    for _step in range(20):
        meet()
    meet()


def in_a_coroutine(meet: Meet) -> None:
    async def train() -> None:
        for _step in range(20):
            meet()
            await asyncio.sleep(0)

    asyncio.run(train())


def noted(program: Callable[[Meet], None]) -> dict[str, int]:
    """How many iterations each loop has begun, by the text after `for` or `while`; outer first."""
    found: list[dict[str, Any]] = []
    counts: Counter[int] = Counter()
    hooks = Hooks(
        event=lambda _, **about: found.append(about), iterated=lambda loop: counts.update([loop])
    )
    loops = Loops(Instrument("torch", Timing("t"), pytest.fail, hooks))
    program(lambda: loops.note(2))
    with open(__file__) as file:
        lines = file.readlines()
    return {
        lines[about["line"] - 1].split()[1]: counts[about["number"]]
        for about in sorted(found, key=lambda about: about["level"])
    }


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (layers_inside, {"_step": 19, "_layer": 60}),
        (only_layers_inside, {"_layer": 79}),  # nothing tells the iterations of the loop around it
        (layers_in_a_function, {"_step": 19, "_layer": 60}),
        (two_calls_of_a_function, {"step": 19}),
        (evaluation_now_and_then, {"step": 19, "_part": 8}),
        (after_others, {"_parameter": 11, "_step": 19}),
        (in_a_coroutine, {"_step": 19}),
    ],
)
def test_each_iteration_but_the_first_is_noted(
    program: Callable[[Meet], None], expected: dict[str, int]
) -> None:
    """Of the loop that has begun another one, outer loops before those inside them."""
    assert expected == noted(program)
    assert [*expected] == [*noted(program)]


def test_a_loop_over_epochs_says_so() -> None:
    """There is one over batches inside."""
    events: list[dict[str, Any]] = []
    hooks = Hooks(event=lambda _, **about: events.append(about))
    loops = Loops(Instrument("torch", Timing("t"), pytest.fail, hooks))
    for _epoch in range(3):
        for _batch in range(3):
            loops.note(1)
        loops.note(1)
    assert {True, False} == {event["epochs"] for event in events}


def test_inside_a_loop_of_many_iterations_others_are_not_noted() -> None:
    """They would only take space."""

    def program(meet: Meet) -> None:
        for _step in range(300):
            for _layer in range(4):
                meet()
            meet()

    counts = noted(program)
    assert 299 == counts["_step"]
    assert counts["_layer"] < 350


def test_a_loop_after_one_of_many_iterations_is_noted() -> None:
    """Also if it is in a function that another one calls: it is not inside."""

    def second(meet: Meet) -> None:
        for _later in range(20):
            meet()

    def program(meet: Meet) -> None:
        for _step in range(300):
            meet()
        second(meet)

    assert {"_step": 299, "_later": 19} == noted(program)


def test_under_a_debugger_nothing_is_noted() -> None:
    """It has its own marks in the calls."""
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        counts = noted(layers_inside)
    finally:
        sys.settrace(before)
    assert {} == counts


def test_a_debugger_that_starts_later_is_not_in_the_way() -> None:
    """It may call what we have left in a call that goes on, as if it were its own."""
    seen = []

    def trace(frame: Any, event: str, _: object) -> Any:
        seen.append(event)
        return trace

    def program(meet: Meet) -> None:
        before = sys.gettrace()
        for step in range(3):
            if step == 2:
                sys.settrace(trace)
            meet()
        sys.settrace(before)

    noted(program)
    assert "call" in seen
