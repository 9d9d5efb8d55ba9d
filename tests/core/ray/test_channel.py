"""The driver's end of the connections to workers."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from gpuprof._session import public
from gpuprof._shim.row import VARIABLE, encode
from gpuprof.backend.types import Window
from gpuprof.ray import _channel, _listener, _wire
from gpuprof.ray._channel import ENDED, Channel
from gpuprof.ray._listener import start_session
from support.recorder import Recorder
from support.waiting import DEADLINE, wait_until


@pytest.fixture
def channel() -> Iterator[Channel]:
    channel = Channel("127.0.0.1")
    yield channel
    channel.close()


def test_a_worker_whose_connection_has_ended_does_not_keep_a_close_waiting(
    channel: Channel,
) -> None:
    """The driver answers for it at once, without waiting for the deadline."""
    request = channel.post("close", {"A-0": Window(1, 2, 3)}, 120)
    assert request.wait(30)
    assert {"A-0": (ENDED, None)} == request.answers


def test_a_worker_that_is_not_connected_may_still_open(channel: Channel) -> None:
    """It may be starting: an open is not answered for it."""
    opened = channel.post("open", {"A-0": Window(1, 2, 3)}, 120)
    # by then the open is posted, too
    assert channel.post("close", {"A-0": Window(1, 2, 3)}, 120).wait(30)
    assert {} == opened.answers


@pytest.mark.parametrize(
    "hello",
    [
        b"no JSON\n",
        b"[]\n",
        b"{}\n",
        b'{"proof": "guessed", "worker": "A-0"}\n',
        b"[" * 50_000 + b"\n",
        b"",
    ],
    ids=["no JSON", "no mapping", "empty", "guessed", "deep", "nothing"],
)
def test_strangers_are_hung_up_on(
    channel: Channel, hello: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever does not know the word is told nothing, and disturbs nobody."""
    with socket.create_connection(
        (channel.address.host, channel.address.port), timeout=30
    ) as stranger:
        stranger.sendall(hello)
        stranger.shutdown(socket.SHUT_WR)
        assert 1 == len(stranger.makefile("rb").readlines())  # the challenge
    assert (set(), []) == (channel.connected(), caplog.messages)


def test_who_says_nothing_is_hung_up_on(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds the port holds no connection for the rest of the run."""
    monkeypatch.setattr("gpuprof.ray._channel._HELLO", 0.1)
    with socket.create_connection(
        (channel.address.host, channel.address.port), timeout=30
    ) as stranger:
        assert 1 == len(stranger.makefile("rb").readlines())  # the challenge


def say_hello(caller: socket.socket, channel: Channel, worker: str, clock: str = "clock") -> bytes:
    challenge = json.loads(caller.makefile("rb").readline())["challenge"]
    proof = _wire.proof(channel.address.secret, challenge, worker)
    about = {"node": "node", "pid": 1, "file": f"{worker}.json"}
    hello = _wire.line({"worker": worker, "proof": proof, "clock": clock, **about})
    caller.sendall(hello)
    return hello


@contextlib.contextmanager
def connected(channel: Channel) -> Iterator[socket.socket]:
    """The connection of a worker, A-0, that the channel knows."""
    address = (channel.address.host, channel.address.port)
    with socket.create_connection(address, timeout=30) as worker:
        say_hello(worker, channel, "A-0")
        wait_until(channel.connected, "connected: A-0")
        yield worker


def test_a_repeated_hello_is_not_taken_for_the_worker(channel: Channel) -> None:
    """Whoever has overheard a worker's hello and repeats it does not take its place."""
    address = (channel.address.host, channel.address.port)
    with socket.create_connection(address, timeout=30) as worker:
        overheard = say_hello(worker, channel, "A-0")
        wait_until(lambda: channel.connected() == {"A-0"}, "connected")
        with socket.create_connection(address, timeout=30) as stranger:
            stranger.sendall(overheard)
            assert 1 == len(stranger.makefile("rb").readlines())
        channel.post("open", {"A-0": Window(1, 2, 3)}, 120)
        assert "open" == json.loads(worker.makefile("rb").readline())["kind"]


def test_strangers_are_limited_in_number(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many silent connections take few of the driver's files, and a worker gets through."""
    monkeypatch.setattr("gpuprof.ray._channel._CROWDED", 0.1)
    address = (channel.address.host, channel.address.port)
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            stack.enter_context(socket.create_connection(address, timeout=30))
        wait_until(channel._strangers.locked, "as many strangers as are let in")
        assert len(channel._serving) < 2 * _channel._STRANGERS
        worker = stack.enter_context(socket.create_connection(address, timeout=30))
        say_hello(worker, channel, "A-0")
        wait_until(lambda: channel.connected() == {"A-0"}, "connected")


def test_hanging_up_leaves_no_connection() -> None:
    """No socket stays open: neither an established connection nor one that is being accepted."""
    channel = Channel("127.0.0.1")
    threads = [thread for thread in threading.enumerate() if thread.name == "gpuprof-channel"]
    address = (channel.address.host, channel.address.port)
    with contextlib.ExitStack() as stack:
        callers = [
            stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(20)
        ]
        say_hello(callers[0], channel, "A-0")
        channel.close()
        for thread in threads:
            thread.join(30)
        gc.collect()
        for caller in callers[:1]:
            with contextlib.suppress(ConnectionResetError):  # what it had said was not read
                assert b"" == caller.recv(1)


def test_an_idle_connection_is_kept_alive_at_both_ends(
    channel: Channel, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two windows hours may pass, and firewalls forget whoever is silent that long."""
    kept: list[int] = []
    both = threading.Event()

    def keep_alive(connection: socket.socket) -> None:
        original(connection)
        kept.append(connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        if len(kept) == 2:
            both.set()

    original = _wire.keep_alive
    for end in (_channel, _listener):
        monkeypatch.setattr(end, "keep_alive", keep_alive)
    monkeypatch.setenv(VARIABLE, encode(recorder.row()))
    public._forget()
    assert "A-0" == start_session(None, channel.address)
    assert both.wait(30)
    assert [1, 1] == kept
    public._forget()


def test_a_worker_hears_which_steps_are_left_out(
    channel: Channel, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is not profiled; one that connects in such a step is told then."""
    monkeypatch.setenv(VARIABLE, encode(recorder.row(profiled=False, captured_steps=[])))
    public._forget()
    session = public.session()
    assert session is not None
    channel.tell_step(True, DEADLINE)
    assert "A-0" == start_session(None, channel.address)
    wait_until(lambda: session.left_out.active, "heard: the step is left out")
    # what it says of the step in which it connected may be taken for an answer to the next
    channel.tell_step(True, DEADLINE)
    wait_until(lambda: 2 == session.left_out.steps, "heard: the second one is left out")
    channel.tell_step(False, DEADLINE)
    wait_until(lambda: not session.left_out.active, "heard: the third one is not")
    assert 2 == session.left_out.steps
    public._forget()


def test_a_worker_that_does_not_answer_delays_a_step_by_no_more_than_the_timeout(
    channel: Channel,
) -> None:
    """A worker that hangs must not hang the job."""
    with connected(channel) as silent:
        channel.tell_step(True, 0.01)
        note = json.loads(silent.makefile().readline())
        del note["number"]
        assert {"kind": "step", "left_out": True, "withdrawn": False} == note


def test_the_late_answer_to_one_step_is_not_taken_for_the_answer_to_the_next(
    channel: Channel,
) -> None:
    """Or else the next step would begin before the worker has heard of it."""
    with connected(channel) as worker:
        notes = worker.makefile()
        channel.tell_step(True, 0.0)
        first = json.loads(notes.readline())["number"]
        step = threading.Thread(target=channel.tell_step, args=(False, DEADLINE))
        step.start()
        second = json.loads(notes.readline())["number"]
        opened = channel.post("open", {"A-0": Window(1, 2, 3)}, DEADLINE)
        for number in (first, json.loads(notes.readline())["number"]):
            answer = {"number": number, "problem": None, "window": None}
            worker.sendall(_wire.line(answer))
        assert opened.wait(DEADLINE)  # so the first answer has been read as well
        step.join(0.2)
        assert step.is_alive()
        worker.sendall(_wire.line({"number": second, "problem": None, "window": None}))
        step.join(DEADLINE)
        assert not step.is_alive()
