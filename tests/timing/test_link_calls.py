"""Functions whose calls are linked by their first argument: in C, and in Python."""

from __future__ import annotations

import functools
import pickle
import sys
from typing import Any
from uuid import UUID

import pytest
from support.both_timings import both

COMPILED, PYTHON = 0, 1
CALL = UUID(bytes=b"sixteen of bytes")


def wait(call: object, fails: bool = False) -> str:
    """Wait for a call."""
    if fails:
        raise KeyError(call)
    return f"the result of {call}"


class Linked:
    """`wait`, its calls linked, in a tree whose spans are recorded.

    Args:
        package: the compiled `gpuprof_timing`, or the one in Python.
        id_of: see `KeyOf`.
    """

    def __init__(self, package: Any, id_of: Any) -> None:
        self.timing = package.Timing("t")
        self.spans = package._spans.SpanLog()
        self.faults: list[Exception] = []
        self.others: list[object] = []
        self.key_of = package._linked.KeyOf(UUID, id_of, self.faults.append)
        linked = package._linked.link_calls(
            wait, self.timing._recording, "wait", "*", self.key_of, self.others.append,
            self.faults.append,
        )  # fmt: skip
        self.wait = functools.wraps(wait)(linked)

    def keys(self) -> list[object]:
        """The keys of the calls that were recorded."""
        return [getattr(track, "keys", None) for track in self.spans.take().tracks]


@pytest.fixture(params=[COMPILED, PYTHON], ids=["compiled", "python"])
def package(request: pytest.FixtureRequest) -> Any:
    return both()[request.param]


@pytest.fixture
def linked(package: Any) -> Any:
    linked = Linked(package, lambda uuid: uuid.bytes)
    linked.spans.begin()
    yield linked
    linked.spans.end()


def test_a_call_is_linked_by_its_first_argument(linked: Linked) -> None:
    """Also the first one, whose place is new."""
    assert [f"the result of {CALL}"] * 3 == [linked.wait(CALL) for _ in range(3)]
    assert [(b"sixteen ",)] * 3 == linked.keys()


def test_a_call_that_fails_has_no_key(linked: Linked) -> None:
    """Its exception is the caller's, and its scope ends."""
    for _ in range(2):
        with pytest.raises(KeyError):
            linked.wait(CALL, fails=True)
    assert [None, None] == linked.keys()


def test_a_call_with_another_argument_is_called_elsewhere(linked: Linked) -> None:
    """Or with none at all; and any, once there are no such objects any more."""
    linked.wait(1)
    linked.key_of.kind = None
    linked.wait(CALL)
    assert [1, CALL] == linked.others
    assert [] == linked.keys()


def test_a_key_that_cannot_be_made_is_no_fault_of_the_job(package: Any) -> None:
    """The function is called without a scope, and the fault is told."""
    linked = Linked(package, lambda uuid: uuid.nothing)
    assert f"the result of {CALL}" == linked.wait(CALL)
    assert [AttributeError] == [type(fault) for fault in linked.faults]


def test_it_is_pickled_by_its_name(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may send a function to another process that refers to it."""
    monkeypatch.setattr(sys.modules[__name__], "wait", linked.wait)
    assert pickle.loads(pickle.dumps(linked.wait)) is linked.wait
