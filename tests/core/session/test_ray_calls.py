"""The keys of Ray's calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpuprof._session import instruments
from gpuprof._session.instruments import ray_calls
from gpuprof._session.ledger import key_of
from gpuprof_timing import Timing

ACTOR = bytes(range(16))
CALL = b"a call's" + ACTOR
RESULT = CALL + (1).to_bytes(4, "little")
DRIVER = b"\xff" * 20 + ACTOR[-4:]
START = b"\xff" * 8 + ACTOR
"""Of an actor: the task that makes it."""


@pytest.mark.parametrize("binary", [CALL, RESULT])
def test_a_call_and_its_result_have_the_same_key(binary: bytes) -> None:
    """It is the part of their ids that no other call has."""
    assert b"a call's" == ray_calls._key(binary)


def test_what_a_driver_has_put_is_not_the_start_of_an_actor() -> None:
    """The ids of both begin alike, so that more of them is the key."""
    put = DRIVER + (7).to_bytes(4, "little")
    keys = [ray_calls._key(binary) for binary in (put, START, DRIVER)]
    assert [DRIVER, START, DRIVER] == keys


def test_eight_bytes_are_in_the_ledger_as_they_are() -> None:
    """They have its 64 bits, and need no hash."""
    assert int.from_bytes(b"a call's", "little") == key_of(b"a call's")


def test_other_keys_are_hashed() -> None:
    """All of a key counts, also where the first bytes are the same."""
    keys = (START, DRIVER, CALL, "a call", "a call's result")
    assert len(keys) == len({key_of(key) for key in keys})


class NoModule:
    """As a class that somebody has made by hand."""

    __module__ = None  # type: ignore[assignment]


class Sparse(np.ndarray):
    """As a sparse tensor of torch."""

    __module__ = "torch"

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        raise RuntimeError("nbytes is not defined for sparse tensors")


@pytest.mark.parametrize(
    ("argument", "is_large"),
    [
        (bytes(200_000), True),
        (np.zeros(20_000), True),
        ({"layer": np.zeros(9_000), "other": np.zeros(9_000)}, True),
        ([np.zeros(9_000)] * 2, True),
        ([], False),
        ([1] * 1_000_000, False),  # to look at all of them would take long
        ("short", False),
        (None, False),
        (NoModule(), False),
        (Sparse(200_000), False),
        (np.float64, False),
    ],
)
def test_an_argument_that_ray_puts_into_its_store_is_large(argument: Any, is_large: bool) -> None:
    """As far as its size is known without a look at many parts."""
    assert is_large == ray_calls._is_large(argument)


def test_a_function_that_uses_what_is_replaced_can_be_sent() -> None:
    """As after ``from ray import get`` in the job's script; it gets the receiver's own."""
    import ray
    from ray import cloudpickle

    faults: list[str] = []
    begun = instruments.begin(["ray"], Timing("t"), faults.append)
    try:
        names = {"get": ray.get, "wait": ray.wait, "put": ray.put}
        sent = cloudpickle.dumps(eval("lambda: (get, wait, put)", names))
        assert (ray.get, ray.wait, ray.put) == cloudpickle.loads(sent)()
    finally:
        for instrument in begun:
            instrument.end_marking()
    assert [] == faults


def test_a_function_that_was_made_a_method_has_the_name_by_which_it_is_called() -> None:
    """As verl makes those of the roles that share a worker; all of them are called `func`."""
    from ray._private.function_manager import FunctionActorManager

    def func(self: object) -> None: ...

    class WorkerDict:
        def train(self) -> None: ...

    WorkerDict.actor_update = func  # type: ignore[attr-defined]
    for called, name in (
        ("actor_update", "WorkerDict.actor_update"),
        ("train", "WorkerDict.train"),
    ):
        method = getattr(WorkerDict, called)
        executor = FunctionActorManager._make_actor_method_executor(None, called, method)
        assert name == ray_calls._name(executor, WorkerDict())
    assert "func" == ray_calls._name(func, None)
