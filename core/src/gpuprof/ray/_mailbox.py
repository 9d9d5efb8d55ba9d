"""How the driver reaches workers that are busy: a named actor that holds messages, and a thread in each worker that waits for them.

A remote call to a worker would wait behind the method that it runs, which may be the whole step.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import ray

from gpuprof import _worker
from gpuprof._log import log

if TYPE_CHECKING:
    from gpuprof._session import Session

NAMESPACE = "gpuprof"
_POLL = 20.0
"""Seconds that a worker's question stays open."""


class Mailbox:
    """Messages from the driver to sessions, by worker name, and their answers. Runs as an asyncio actor."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, str | None]] = {}
        self._changed = asyncio.Condition()

    async def post(self, kind: str, windows: dict[str, int], expiry: float) -> int:
        """Tell workers to open or close a window.

        Args:
            kind: ``open`` or ``close``.
            windows: the window's number by worker.
            expiry: seconds since the epoch.

        Returns:
            The message's number.
        """
        async with self._changed:
            number = len(self._messages) + 1
            self._messages.append({"number": number, "kind": kind, "windows": windows, "expiry": expiry})
            self._answers[number] = {}
            self._changed.notify_all()
        return number

    async def poll(self, worker: str, after: int) -> list[tuple[int, str, int, float]]:
        """Wait for messages to `worker` later than number `after`: (number, kind, window, expiry) each."""

        def mine() -> list[tuple[int, str, int, float]]:
            return [
                (message["number"], message["kind"], message["windows"][worker], message["expiry"])
                for message in self._messages[after:]
                if worker in message["windows"]
            ]

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: bool(mine())), _POLL)
            except asyncio.TimeoutError:
                return []
            return mine()

    async def answer(self, number: int, worker: str, problem: str | None) -> None:
        """Say that `worker` has done what the message asked for, or what kept it from doing so."""
        async with self._changed:
            self._answers[number][worker] = problem
            self._changed.notify_all()

    async def answers(self, number: int, count: int, timeout: float) -> dict[str, str | None]:
        """Wait until `count` workers have answered the message, `timeout` seconds at most. Returns the answers so far."""
        async with self._changed:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(lambda: len(self._answers[number]) >= count), timeout)
            return dict(self._answers[number])


def start(name: str) -> Any:
    """Start the mailbox on the driver's node. It needs no CPU of the cluster's and ends with the driver."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "num_cpus": 0, "max_concurrency": 100_000}
    return ray.remote(Mailbox).options(scheduling_strategy=here, **options).remote()


def start_session(_: object, mailbox: str) -> str | None:
    """Run in a worker: start its session and listen. Returns the session's name."""
    session = _worker.session()
    if session is None or session.child:
        return None
    _listen(session, mailbox)
    return session.name


_listening = False


def _listen(session: Session, mailbox: str) -> None:
    """Wait for messages on a thread of its own, so that a busy method or event loop does not matter."""
    global _listening
    if not _listening:
        _listening = True
        threading.Thread(target=_serve, args=(session, mailbox), name="gpuprof-mailbox", daemon=True).start()


def _serve(session: Session, name: str) -> None:
    after = 0
    try:
        mailbox = ray.get_actor(name, namespace=NAMESPACE)
        while not sys.is_finalizing():
            messages = ray.get(mailbox.poll.remote(session.name, after))
            for position, (number, kind, window, expiry) in enumerate(messages):
                overtaken = any(later == window and other == "close" for _, other, later, _ in messages[position + 1 :])
                problem = None
                if kind == "close":
                    problem = session.close(window)
                elif not overtaken and time.time() < expiry:
                    problem = session.open(window, expiry)
                mailbox.answer.remote(number, session.name, problem)
                after = number
    except Exception as error:
        # The mailbox ends with the driver: then there is nobody left to listen to.
        if not isinstance(error, ray.exceptions.RayError) and not sys.is_finalizing():
            log().warning("%s: windows cannot be opened by the driver any more: %s", session.name, error)
