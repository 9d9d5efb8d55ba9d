"""Methods that are followed: in C, and in Python."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from support.both_timings import both

COMPILED, PYTHON = 0, 1
Follow = Callable[..., Any]


@pytest.fixture(params=[COMPILED, PYTHON], ids=["compiled", "python"])
def follow(request: pytest.FixtureRequest) -> Follow:
    made: Follow = both()[request.param]._linked.follow
    return made


def sender(follow: Follow, then: Callable[..., object]) -> Any:
    """An object with a method that is followed."""

    def send(self: object, method: str, args: Any = None, kwargs: Any = None, **more: Any) -> Any:
        """Send a call."""
        if method == "fails":
            raise KeyError(method)
        return method, args, kwargs, more

    return type("Sender", (), {"send": follow(send, iter([7, 9]).__next__, then)})()


def test_a_followed_method_returns_what_it_did(follow: Follow) -> None:
    """Whatever it is given, and however."""
    made = sender(follow, lambda *_: None)
    calls = [made.send("a", args=[1], kwargs={"b": 2}, name="c"), type(made).send(made, "a", [1])]
    assert [("a", [1], {"b": 2}, {"name": "c"}), ("a", [1], None, {})] == calls


def test_what_follows_gets_the_time_and_the_result(follow: Follow) -> None:
    """The time is that before the call."""
    told: list[Any] = []
    result = sender(follow, lambda *about: told.append(about[:2])).send("a")
    assert [(7, result)] == told


@pytest.mark.parametrize(
    "keywords", [{"args": [1]}, {"kwargs": {"b": 2}}, {"args": (), "kwargs": {"b": 2}, "more": 3}]
)
def test_what_follows_gets_the_arguments(follow: Follow, keywords: dict[str, Any]) -> None:
    """All of them, if the job has given any."""
    told: list[Any] = []
    made = sender(follow, lambda *about: told.append(about[2:]))
    made.send("a", **keywords)
    assert [((made, "a"), keywords)] == told


def test_more_than_two_arguments_are_given_on(follow: Follow) -> None:
    """The third one may be the job's."""
    told: list[Any] = []
    made = sender(follow, lambda *about: told.append(about[2:]))
    made.send("a", [1])
    assert [((made, "a", [1]), {})] == told


def test_nothing_follows_a_call_that_fails(follow: Follow) -> None:
    """Its exception is the caller's."""
    told: list[Any] = []
    with pytest.raises(KeyError, match="fails"):
        sender(follow, told.append).send("fails")
    assert [] == told


def test_an_exception_of_what_follows_is_raised(follow: Follow) -> None:
    """Such as Ctrl-C."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sender(follow, interrupted).send("a")


def test_a_followed_method_is_forgotten_with_its_class(follow: Follow) -> None:
    """It refers to what refers to it."""

    class Kept:
        method: Any

    def make() -> weakref.ref[Kept]:
        kept = Kept()
        kept.method = follow(lambda: kept, int, lambda *_: kept)
        return weakref.ref(kept)

    gone = make()
    gc.collect()
    assert gone() is None
