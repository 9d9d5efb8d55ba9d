"""What the processes of a run tell each other in the store of Ray's cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ray.experimental import internal_kv
from ray.runtime_env import RuntimeEnv

from gpuprof._session.session import Session
from gpuprof.ray import _listener
from gpuprof.ray._wire import Address

_SPACE = b"gpuprof-run"
_next: dict[tuple[str, str], int] = {}


def announce(run: str, content: Mapping[str, Any]) -> None:
    """Leave what a worker of the run needs; see `Launched.accept_workers`."""
    text = json.dumps(content).encode()
    internal_kv._internal_kv_put(_key(run, "driver"), text, namespace=_SPACE)


def template(run: str) -> dict[str, Any] | None:
    """The row of a worker that is not profiled, for whoever starts one."""
    row: dict[str, Any] | None = _announced(run).get("row")
    return row


def connect(session: Session) -> None:
    """Connect a session, of a worker or of a process that runs tasks, if the driver listens."""
    address = _announced(session.row["run"]).get("address")
    if address:
        _listener.connect(session, Address(**address))


def next_rank(run: str, group: str) -> int:
    """A rank that no other worker of the group has, whichever process starts it."""
    rank = _next.get((run, group), 0)
    while internal_kv._internal_kv_put(
        _key(run, f"{group}-{rank}"), b"", overwrite=False, namespace=_SPACE
    ):  # somebody has it
        rank += 1
    _next[run, group] = rank + 1
    return rank


def environment(runtime_env: Mapping[str, Any]) -> RuntimeEnv:
    """A runtime environment as Ray hands it on inside of itself."""
    return RuntimeEnv(**runtime_env)


def _announced(run: str) -> Mapping[str, Any]:
    content = internal_kv._internal_kv_get(_key(run, "driver"), namespace=_SPACE)
    announced: Mapping[str, Any] = json.loads(content) if content else {}
    return announced


def _key(run: str, name: str) -> bytes:
    return f"{run}/{name}".encode()
