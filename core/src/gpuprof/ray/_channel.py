"""The driver's connections to busy workers.

Each session keeps a connection to the driver. A separate thread of the worker reads it.

Ray's own calls would not do. A remote call would wait behind the worker's running method, which may
take the whole step. A long-polling call from the worker would keep the worker alive: a Ray process
cannot end before the calls that it made have returned.

The messages are lines of JSON over TCP. A worker gets the run's secret through Ray, and proves that
it knows the secret by answering a challenge. A recorded answer cannot be replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import attrs

from gpuprof._session.file import WindowEntry
from gpuprof._session.ledger import clock_id
from gpuprof._shim.safe import LARGEST
from gpuprof.backend.types import Window
from gpuprof.ray._wire import (
    Address,
    Answer,
    Challenge,
    ClockAnswer,
    ClockQuestion,
    FlushNote,
    Hello,
    Measurement,
    Message,
    StacksAnswer,
    StacksQuestion,
    StepNote,
    keep_alive,
    line,
    measure,
    proof,
)

ENDED = "the worker's connection is gone: it has ended, or the network has lost it"
"""The answer on behalf of a worker without a connection. If the worker is still alive, it closes
its window before it opens the next one, or when it ends."""
_HELLO, _CROWDED, _HANGING_UP = 10.0, 1.0, 1.0
"""Timeouts in seconds: for a peer's introduction; for a peer's introduction while the limit
`_STRANGERS` is reached; and, at the end, for peers to read the last messages."""
_STRANGERS = 128
"""The most peers that may await introduction. Each takes a file descriptor that the training may
need, so further peers wait in the system's queue."""
_STACKS = 30.0
"""Seconds after which answers to a question for stacks are ignored."""
_ENOUGH = 3
"""How many workers stay connected for each clock. It is more than one, because workers may end."""
_QUESTIONS, _PAUSE, _CLOCK_INTERVAL, _CLOCK_SHARE = 8, 0.02, 10.0, 0.1
"""For measuring a clock: the number of questions, of which the fastest answer counts; the seconds
between two questions; the seconds between two measurements; and the seconds by which each clock
lengthens the time between two measurements, so that there are at most ten measurements a second."""


_number = itertools.count(1).__next__
"""Numbers all messages that workers answer, so that no answer counts for a later message."""


@attrs.define(eq=False)
class Request:
    """A request to open or close a window on some workers, and the workers' answers.

    Args:
        expiry: seconds since the epoch, after which it is too late to open the window.
        answers: by worker, what went wrong or ``None``, and the window's entry if the worker has
            one.
    """

    kind: Literal["open", "close"]
    windows: dict[str, Window]
    expiry: float
    number: int = attrs.field(factory=_number, init=False)
    answers: dict[str, tuple[str | None, WindowEntry | None]] = attrs.field(factory=dict)
    _done: threading.Event = attrs.field(factory=threading.Event)

    def answer(self, worker: str, problem: str | None, entry: WindowEntry | None = None) -> None:
        """Record an answer; only a worker's first one counts."""
        self.answers.setdefault(worker, (problem, entry))
        if len(self.answers) == len(self.windows):
            self._done.set()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for all answers. Returns whether they came."""
        return self._done.wait(timeout)


@attrs.define(eq=False)
class _Unheard:
    """The workers that have not yet answered the latest message to all workers.

    Attributes:
        nobody: set when all have answered or disconnected.
    """

    number: int = 0
    workers: set[str] = attrs.field(factory=set)
    nobody: threading.Event = attrs.field(factory=threading.Event)

    def hear(self, worker: str) -> None:
        """Note that a worker has answered or disconnected."""
        self.workers.discard(worker)
        if not self.workers:
            self.nobody.set()


class Channel:
    """The driver's end of the connections: a server on a separate thread.

    Args:
        on_clock: called on the channel's thread with each measurement of a worker's monotonic
            clock; ``None`` means that no clock is measured. One worker is asked for all workers
            that share its clock, and none for the clock of this process.

    Attributes:
        address: the address and the secret with which workers connect.
        keeps_all: whether all workers stay connected. Otherwise only the few stay that are needed
            to measure each clock, since each connection takes a file descriptor that the job may
            need.
        disconnected: by name, the workers that were connected and no longer are: how each has
            introduced itself, and when it was lost, in seconds since the epoch.
    """

    def __init__(self, host: str, on_clock: Callable[[Measurement], object] | None = None) -> None:
        self.keeps_all = True
        self.disconnected: dict[str, tuple[Hello, float]] = {}
        self._on_clock = on_clock
        self._own_clock = clock_id()
        self._hellos: dict[str, Hello] = {}
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[str, list[Measurement]] = {}
        self._secret = secrets.token_hex(16)
        self._connections: dict[str, asyncio.StreamWriter] = {}
        self._requests: dict[int, Request] = {}
        self._questions: dict[str, Callable[[str, bytes], object]] = {}
        self._left_out = False
        self._unheard = _Unheard()
        self._late: set[str] = set()
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter | None] = {}
        self._closed = asyncio.Event()
        self._strangers = asyncio.Semaphore(_STRANGERS)
        self._loop = asyncio.new_event_loop()
        listener = socket.create_server((host, 0), backlog=1024)
        listener.setblocking(False)
        self.address = Address(host, listener.getsockname()[1], self._secret)
        threading.Thread(
            target=self._run, args=(listener,), name="gpuprof-channel", daemon=True
        ).start()

    def connected(self) -> set[str]:
        """The connected workers."""
        return set(self._connections)

    def workers(self) -> list[dict[str, Any]]:
        """How `gpuprof stacks` names the connected workers."""
        return [
            {key: value for key, value in hello.items() if key != "proof"}
            for hello in list(self._hellos.values())
        ]

    def ask_nodes(self, question: str, write: Callable[[str, bytes], object]) -> None:
        """Ask the connected workers for the stacks of all processes of their nodes.

        Args:
            write: called on another thread with the name and the content of each answer.
        """
        self._loop.call_soon_threadsafe(self._ask_nodes, question, write)

    def post(
        self, kind: Literal["open", "close"], windows: dict[str, Window], timeout: float
    ) -> Request:
        """Tell workers to open or close a window.

        A worker that is not connected yet gets the request when it connects, unless `forget` was
        called before.

        Args:
            timeout: seconds after which it is too late to open the window.
        """
        request = Request(kind, windows, time.time() + timeout)
        self._loop.call_soon_threadsafe(self._post, request)
        return request

    def tell_step(self, left_out: bool, timeout: float, withdrawn: bool = False) -> None:
        """Announce a step to all workers, and whether they leave the step out of their trees.

        A worker that connects while a step is left out gets the announcement late.

        Args:
            timeout: seconds to wait for the workers' answers.
            withdrawn: whether this withdraws an earlier announcement that the step is left out.
        """
        self._left_out = left_out
        note: StepNote = {
            "number": _number(),
            "kind": "step",
            "left_out": left_out,
            "withdrawn": withdrawn,
        }
        self._tell_all(note, timeout)

    def flush(self, last: bool, timeout: float) -> None:
        """Have all workers write what they have recorded.

        Args:
            last: whether the workers also end their ledgers.
        """
        self._tell_all({"number": _number(), "kind": "flush", "last": last}, timeout)

    def _tell_all(self, note: StepNote | FlushNote, timeout: float) -> None:
        unheard = _Unheard(note["number"])
        self._loop.call_soon_threadsafe(self._tell, note, unheard)
        if not unheard.nobody.wait(timeout) and timeout:
            with contextlib.suppress(RuntimeError):  # the channel was closed meanwhile
                self._loop.call_soon_threadsafe(self._late.update, unheard.workers)

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
        accepting = asyncio.create_task(self._accept(listener))
        await self._closed.wait()
        accepting.cancel()
        await asyncio.wait([accepting])
        listener.close()
        for task in self._watched.values():
            task.cancel()
        if self._watched:
            await asyncio.wait(self._watched.values())
        while None in self._serving.values():  # these connections are just getting their streams
            await asyncio.sleep(0)
        for writer in self._serving.values():
            if writer is not None:
                writer.close()  # this also ends the reader
        if self._serving:  # do not wait forever for a peer that no longer reads
            await asyncio.wait(self._serving, timeout=_HANGING_UP)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await self._strangers.acquire()
            try:
                # `sock_accept` would lose a connection that comes as it is cancelled
                connection, _ = listener.accept()
            except BlockingIOError:
                self._strangers.release()
                await self._readable(listener)
                continue
            except OSError:  # the process has reached its limit of open files
                self._strangers.release()
                await asyncio.sleep(_CROWDED)
                continue
            connection.setblocking(False)
            task = asyncio.create_task(self._serve(connection))
            self._serving[task] = None
            task.add_done_callback(functools.partial(self._end, connection))

    async def _readable(self, listener: socket.socket) -> None:
        ready = asyncio.Event()
        self._loop.add_reader(listener, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(listener)

    def _end(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._serving.pop(task, None)
        connection.close()

    def _post(self, request: Request) -> None:
        self._requests[request.number] = request
        for worker in request.windows:
            if worker in self._connections:
                self._send(request, worker)
            elif request.kind == "close":
                # a worker that connects later is a new start, without open windows
                request.answer(worker, ENDED)

    def _tell(self, note: StepNote | FlushNote, unheard: _Unheard) -> None:
        self._unheard = unheard
        # a step waits only once for a worker that does not answer
        late = self._late if note["kind"] == "step" else set()
        unheard.workers.update(self._connections.keys() - late)
        for writer in self._connections.values():
            writer.write(line(note))
        unheard.hear("")  # if no worker is connected, nothing needs to be acknowledged

    def _ask_nodes(self, question: str, write: Callable[[str, bytes], object]) -> None:
        self._questions[question] = write
        self._loop.call_later(_STACKS, self._questions.pop, question, None)
        message: StacksQuestion = {"kind": "stacks", "question": question}
        for writer in self._connections.values():
            writer.write(line(message))

    async def _take_stacks(self, reader: asyncio.StreamReader, answer: StacksAnswer) -> None:
        if answer["size"] > LARGEST:
            raise ValueError("the answer is too large")
        content = await reader.readexactly(answer["size"])
        write = self._questions.get(answer["question"])
        if write is not None:
            await asyncio.to_thread(write, answer["file"], content)

    def _send(self, request: Request, worker: str) -> None:
        window = request.windows[worker]
        message: Message = {
            "number": request.number,
            "kind": request.kind,
            "expiry": request.expiry,
            "window": (window.number, window.start, window.stop),
        }
        self._connections[worker].write(line(message))

    def _has_enough(self, clock: str) -> bool:
        clocks = [hello["clock"] for hello in self._hellos.values()]
        return clock == self._own_clock or clocks.count(clock) >= _ENOUGH

    def _watch_clock(self, worker: str) -> None:
        clock = self._hellos[worker]["clock"]
        if self._on_clock is not None and clock != self._own_clock and clock not in self._watched:
            task = asyncio.create_task(self._measure_clock(clock, self._on_clock))
            self._watched[clock] = task
            task.add_done_callback(lambda _: self._watched.pop(clock, None))

    async def _measure_clock(self, clock: str, on_clock: Callable[[Measurement], object]) -> None:
        while worker := next(
            (name for name, hello in self._hellos.items() if hello["clock"] == clock), None
        ):
            for _ in range(_QUESTIONS):
                if worker in self._connections:
                    question: ClockQuestion = {"kind": "clock", "asked": time.perf_counter_ns()}
                    self._connections[worker].write(line(question))
                await asyncio.sleep(_PAUSE)
            answers = self._answers.pop(clock, [])
            if answers:
                on_clock(min(answers, key=lambda answer: answer.bound))
            await asyncio.sleep(max(_CLOCK_INTERVAL, _CLOCK_SHARE * len(self._watched)))

    async def _introduce(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Hello | None:
        """The introduction of the worker at the other end; ``None`` if it is not a worker."""
        challenge: Challenge = {"challenge": secrets.token_hex(16)}
        writer.write(line(challenge))
        patience = _CROWDED if self._strangers.locked() else _HELLO
        silence = self._loop.call_later(patience, writer.close)
        try:
            hello: Hello = json.loads(await reader.readline())
        finally:
            silence.cancel()
        worker = hello["worker"]
        if not isinstance(worker, str) or not isinstance(hello["clock"], str):
            return None
        right_proof = proof(self._secret, challenge["challenge"], worker)
        proof_matches = secrets.compare_digest(hello["proof"].encode(), right_proof.encode())
        return hello if proof_matches else None

    async def _serve(self, connection: socket.socket) -> None:
        worker: str | None = None
        reader, writer = await asyncio.open_connection(sock=connection)
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            try:
                hello = await self._introduce(reader, writer)
            finally:
                self._strangers.release()
            if hello is None:
                return
            if not self.keeps_all and self._has_enough(hello["clock"]):
                return
            keep_alive(connection)
            worker = hello["worker"]
            self._connections[worker] = writer
            self.disconnected.pop(worker, None)
            self._hellos[worker] = hello
            self._watch_clock(worker)
            if self._left_out:
                note: StepNote = {
                    "number": _number(),
                    "kind": "step",
                    "left_out": True,
                    "withdrawn": False,
                }
                writer.write(line(note))
            for request in self._requests.values():
                if worker in request.windows and worker not in request.answers:
                    self._send(request, worker)
            while text := await reader.readline():
                answer_time = time.perf_counter_ns()
                message = json.loads(text)
                if "file" in message:
                    await self._take_stacks(reader, message)
                    continue
                if "asked" in message:
                    clock = hello["clock"]
                    stamps: ClockAnswer = message
                    self._answers.setdefault(clock, []).append(measure(clock, stamps, answer_time))
                    continue
                answer: Answer = message
                if answer["number"] == self._unheard.number:  # so it is not late any more
                    self._late.discard(worker)
                    self._unheard.hear(worker)
                match = self._requests.get(answer["number"])
                if match is not None and worker in match.windows:
                    match.answer(worker, answer["problem"], answer["window"])
        except (Exception, asyncio.CancelledError):
            # the worker has died, or a stranger does not know the protocol
            pass
        finally:
            if worker is not None and self._connections.get(worker) is writer:
                del self._connections[worker]
                self.disconnected[worker] = self._hellos.pop(worker), time.time()
                self._late.discard(worker)
                self._unheard.hear(worker)
                for request in self._requests.values():
                    if request.kind == "close" and worker in request.windows:
                        request.answer(worker, ENDED)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
