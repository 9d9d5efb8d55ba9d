"""Methods that are followed: in C, and in Python."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any
from uuid import UUID

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


@pytest.fixture(params=[COMPILED, PYTHON], ids=["compiled", "python"])
def linked(request: pytest.FixtureRequest) -> Any:
    module: Any = both()[request.param]._linked
    return module


def noting(linked: Any, noted: list[Any], told: list[Any]) -> Any:
    """An object whose calls are noted by the key of their result, an UUID."""

    def send(self: object, result: object, args: Any = None) -> Any:
        return result

    key_of = linked.KeyOf(UUID, lambda uuid: uuid.bytes, noted.append)
    note, then = lambda *call: noted.append(call), lambda *about: told.append(about[1])
    followed = linked.follow(send, iter([7, 9]).__next__, then, key_of, note)
    return type("Sender", (), {"send": followed})()


def test_a_call_is_noted_by_the_key_of_its_result(linked: Any) -> None:
    """With the time before it; nothing else follows."""
    noted: list[Any] = []
    told: list[Any] = []
    noting(linked, noted, told).send(UUID(bytes=b"sixteen of bytes"))
    assert ([(7, b"sixteen ", ())], []) == (noted, told)


@pytest.mark.parametrize(
    ("result", "keywords"), [("no UUID", {}), (UUID(int=1), {"args": [1]})], ids=["other", "args"]
)
def test_other_calls_are_followed_as_ever(
    linked: Any, result: object, keywords: dict[str, Any]
) -> None:
    """Those that take arguments of the job's, and those that return something else."""
    noted: list[Any] = []
    told: list[Any] = []
    noting(linked, noted, told).send(result, **keywords)
    assert ([], [result]) == (noted, told)


def test_a_call_that_cannot_be_noted_is_followed(linked: Any) -> None:
    """What follows knows what to do about a fault; the job does not hear of it."""
    told: list[Any] = []
    key_of = linked.KeyOf(UUID, lambda uuid: uuid.nothing, str)
    followed = linked.follow(UUID, int, lambda *about: told.append(about[1]), key_of, print)
    result = followed("0" * 32)
    assert [result] == told


def test_an_id_that_begins_like_others_is_not_cut(linked: Any) -> None:
    """Its first bytes alone would be no key; nor are any while ids are not short."""
    key_of = linked.KeyOf(bytes, bytes, len)
    alike, other = linked.NOT_RANDOM + b"driver", b"random bytes"
    keys = [key_of(alike), key_of(other), key_of(b"short"), key_of([1])]
    key_of.is_short = False
    assert [14, b"random b", b"short", 1, 12] == [*keys, key_of(other)]
