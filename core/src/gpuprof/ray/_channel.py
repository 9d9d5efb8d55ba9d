"""The driver's connections to busy workers.

Each session keeps a connection to the driver, which a thread of its own reads.

A remote call would wait behind the worker's running method, which may take the whole step. A
long-polling call from the worker would keep it alive: a Ray process cannot end before the calls it
made have returned.

JSON lines over TCP. A worker introduces itself with the run's secret, which it got through Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import socket
import threading
import time
from typing import Literal

import attrs

from gpuprof.backend.types import Window
from gpuprof.ray._wire import STEP, Address, Answer, Hello, Message, StepNote, keep_alive

ENDED = "the worker's connection is gone: it has ended, or the network has lost it"
"""The answer for a worker without a connection. If it lives, it closes its window before its next
one, or when it ends."""
_HELLO, _HANGING_UP = 10.0, 1.0
"""Seconds for a peer to introduce itself, and at the end to read what was sent."""


@attrs.define(eq=False)
class Request:
    """A window to open or close on some workers, and what they have answered.

    Args:
        kind: ``open`` or ``close``.
        windows: the window by worker.
        expiry: seconds since the epoch, after which opening is too late.
        answers: what went wrong, or ``None``, by the workers that have answered.
        open: the workers whose window is open now. A refused window is not an error.
    """

    kind: Literal["open", "close"]
    windows: dict[str, Window]
    expiry: float
    number: int = attrs.field(factory=itertools.count(1).__next__, init=False)
    answers: dict[str, str | None] = attrs.field(factory=dict)
    open: set[str] = attrs.field(factory=set)
    _done: threading.Event = attrs.field(factory=threading.Event)

    def answer(self, worker: str, problem: str | None, is_open: bool = False) -> None:
        """Record an answer; only a worker's first one counts."""
        if is_open and worker not in self.answers:
            self.open.add(worker)
        self.answers.setdefault(worker, problem)
        if len(self.answers) == len(self.windows):
            self._done.set()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for all answers. Returns whether they came."""
        return self._done.wait(timeout)


class Channel:
    """The driver's end: a server on a thread of its own.

    Args:
        host: the address to listen on.
    """

    def __init__(self, host: str) -> None:
        self._secret = secrets.token_hex(16)
        self._connections: dict[str, asyncio.StreamWriter] = {}
        self._requests: dict[int, Request] = {}
        self._left_out = False
        self._unheard: tuple[set[str], threading.Event] = (set(), threading.Event())
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._closed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        listener = socket.create_server((host, 0), backlog=1024)
        self.address = Address(host, listener.getsockname()[1], self._secret)
        threading.Thread(
            target=self._run, args=(listener,), name="gpuprof-channel", daemon=True
        ).start()

    def connected(self) -> set[str]:
        """The connected workers."""
        return set(self._connections)

    def post(
        self, kind: Literal["open", "close"], windows: dict[str, Window], timeout: float
    ) -> Request:
        """Tell workers to open or close a window.

        Workers that connect before `forget` are told then.

        Args:
            kind: ``open`` or ``close``.
            windows: the window by worker.
            timeout: seconds after which opening is too late.
        """
        request = Request(kind, windows, time.time() + timeout)
        self._loop.call_soon_threadsafe(self._post, request)
        return request

    def tell_step(self, left_out: bool, timeout: float) -> None:
        """Tell all workers that a step begins, and whether it is left out of their times.

        A worker that connects during a step that is left out is told then.

        Args:
            timeout: seconds to wait until they have heard it.
        """
        heard = threading.Event()
        self._loop.call_soon_threadsafe(self._tell_step, left_out, heard)
        heard.wait(timeout)

    def forget(self, request: Request) -> None:
        """Ignore further answers to a request."""
        self._loop.call_soon_threadsafe(self._requests.pop, request.number, None)

    def close(self) -> None:
        """Stop listening. Workers go on without further windows."""
        self._loop.call_soon_threadsafe(self._closed.set)

    def _run(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen(listener))
        self._loop.close()

    async def _listen(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._serve, sock=listener)
        await self._closed.wait()
        # Serve accepted connections first: closing the server would leave them open.
        while asyncio.all_tasks() - self._serving.keys() - {asyncio.current_task()}:
            await asyncio.sleep(0)
        server.close()
        for writer in self._serving.values():
            writer.close()  # which ends its reader
        if self._serving:  # a peer that reads no more is not waited for
            await asyncio.wait(self._serving, timeout=_HANGING_UP)

    def _post(self, request: Request) -> None:
        self._requests[request.number] = request
        for worker in request.windows:
            if worker in self._connections:
                self._send(request, worker)
            elif request.kind == "close":
                # a worker that connects later is a new start, without open windows
                request.answer(worker, ENDED)

    def _tell_step(self, left_out: bool, heard: threading.Event) -> None:
        self._left_out = left_out
        self._unheard = set(self._connections), heard
        for writer in self._connections.values():
            _note_step(writer, left_out)
        self._hear("")  # there may be nobody

    def _hear(self, worker: str) -> None:
        """Note that a worker has heard of the step, or has gone."""
        workers, heard = self._unheard
        workers.discard(worker)
        if not workers:
            heard.set()

    def _send(self, request: Request, worker: str) -> None:
        window = request.windows[worker]
        message: Message = {
            "number": request.number,
            "kind": request.kind,
            "expiry": request.expiry,
            "window": window.number,
            "start": window.start,
            "stop": window.stop,
        }
        self._connections[worker].write(json.dumps(message).encode() + b"\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = ""
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        silence = self._loop.call_later(_HELLO, writer.close)
        try:
            hello: Hello = json.loads(await reader.readline())
            silence.cancel()
            if not secrets.compare_digest(str(hello["secret"]), self._secret):
                return
            keep_alive(writer.get_extra_info("socket"))
            worker = hello["worker"]
            self._connections[worker] = writer
            if self._left_out:
                _note_step(writer, True)
            for request in self._requests.values():
                if worker in request.windows and worker not in request.answers:
                    self._send(request, worker)
            while line := await reader.readline():
                answer: Answer = json.loads(line)
                if answer["number"] == STEP:
                    self._hear(worker)
                asked = self._requests.get(answer["number"])
                if asked is not None:
                    asked.answer(worker, answer["problem"], answer["open"])
        except (OSError, ValueError, KeyError, TypeError, asyncio.CancelledError):
            # the worker has died, or a stranger does not know the protocol
            pass
        finally:
            if self._connections.get(worker) is writer:
                del self._connections[worker]
                self._hear(worker)
                for request in self._requests.values():
                    if request.kind == "close" and worker in request.windows:
                        request.answer(worker, ENDED)
            silence.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            del self._serving[task]


def _note_step(writer: asyncio.StreamWriter, left_out: bool) -> None:
    note: StepNote = {"kind": "step", "left_out": left_out}
    writer.write(json.dumps(note).encode() + b"\n")
