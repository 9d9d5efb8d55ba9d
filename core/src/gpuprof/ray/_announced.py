"""What the processes of a run tell each other through the key-value store of Ray's cluster."""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from ray.experimental import internal_kv
from ray.runtime_env import RuntimeEnv

from gpuprof.ray import _listener
from gpuprof.ray._wire import Address

if TYPE_CHECKING:
    from gpuprof._plan.worker import PlannedWorker
    from gpuprof._session.session import Session
    from gpuprof.ray._planning import Planning

Key = tuple[str, int]

_SPACE = b"gpuprof-run"
_DRIVER, _PLANNING, _CLASS, _WORKER = "driver", "planning", "class/", "worker/"
_next: dict[tuple[str, str], int] = {}


def announce(run: str, driver: str, address: Address, planning: Planning) -> None:
    """Tell workers where the driver listens, and how to plan the workers that they make.

    Args:
        driver: the driver's worker name, which no actor gets.
    """
    _put(run, _WORKER + driver)
    _put(run, _DRIVER, json.dumps(attrs.asdict(address)).encode())
    _put(run, _PLANNING, pickle.dumps(planning))


@functools.lru_cache(maxsize=1)
def announced_planning(run: str) -> Planning | None:
    """The planning for workers that a worker makes; ``None`` if the driver announced nothing."""
    content = _get(run, _PLANNING)
    planning: Planning | None = pickle.loads(content) if content else None
    return planning


def connect(session: Session) -> None:
    """Connect the session of a worker or of a process that runs tasks, if the driver listens."""
    content = _get(session.row["run"], _DRIVER)
    if content is not None:
        _listener.connect(session, Address(**json.loads(content)))


def note_class(run: str, name: str) -> None:
    """Note that the run has an actor of the class `name`, whether the actor is recorded or not."""
    _put(run, _CLASS + name)


def classes(run: str) -> list[str]:
    """The names of the classes of the run's actors."""
    return sorted(_names(run, _CLASS))


def next_rank(run: str, group: str) -> int:
    """A rank that no other worker of the group has, whichever process started that worker."""
    rank = _next.get((run, group), 0)
    while _put(run, f"{_WORKER}{group}-{rank}", overwrite=False):  # the rank is taken
        rank += 1
    _next[run, group] = rank + 1
    return rank


def note_worker(run: str, worker_plan: PlannedWorker) -> None:
    """Tell the driver about a worker that this worker starts."""
    _put(run, _WORKER + worker_plan.worker.name, pickle.dumps(worker_plan))


def noted_workers(run: str, keys_to_skip: Container[Key]) -> Iterator[PlannedWorker]:
    """The workers that other workers have started."""
    for name in _names(run, _WORKER):
        group, _, rank = name.rpartition("-")
        content = None if (group, int(rank)) in keys_to_skip else _get(run, _WORKER + name)
        if content:
            yield pickle.loads(content)


def environment(runtime_env: Mapping[str, Any]) -> RuntimeEnv:
    """A runtime environment, as the type that Ray itself uses internally."""
    return RuntimeEnv(**runtime_env)


def _put(run: str, name: str, content: bytes = b"", overwrite: bool = True) -> bool:
    """Store a value. Returns whether the key had a value before."""
    key = _key(run, name)
    had_value: bool = internal_kv._internal_kv_put(key, content, overwrite, namespace=_SPACE)
    return had_value


def _get(run: str, name: str) -> bytes | None:
    content: bytes | None = internal_kv._internal_kv_get(_key(run, name), namespace=_SPACE)
    return content


def _names(run: str, prefix: str) -> list[str]:
    whole = _key(run, prefix)
    keys: list[bytes] = internal_kv._internal_kv_list(whole, namespace=_SPACE)
    return [key[len(whole) :].decode() for key in keys]


def _key(run: str, name: str) -> bytes:
    return f"{run}/{name}".encode()
