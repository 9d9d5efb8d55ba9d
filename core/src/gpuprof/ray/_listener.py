"""A worker's end of the connection to the driver."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuprof._log import log
from gpuprof._session import public
from gpuprof._session.ledger import clock_id
from gpuprof.backend.types import Window
from gpuprof.ray._wire import (
    Address,
    Answer,
    Challenge,
    ClockAnswer,
    ClockQuestion,
    FlushNote,
    Hello,
    Message,
    StacksAnswer,
    StacksQuestion,
    StepNote,
    keep_alive,
    line,
    proof,
)

if TYPE_CHECKING:
    from gpuprof._session.session import Session


_listening = threading.Lock()
_sending = threading.Lock()
"""Held while a message is sent, as several threads send."""


def start_session(_: object, address: Address) -> str | None:
    """Start the worker's session and connect it to the driver. Ray runs this in the worker.

    Returns the session's name; ``None`` if this process is not a worker. A second call changes
    nothing.
    """
    session = public.session()
    if session is None or session.child:
        return None
    connect(session, address)
    return session.name


def connect(session: Session, address: Address) -> None:
    """Connect a session to the driver, unless it is connected already."""
    if _listening.acquire(blocking=False):
        threading.Thread(
            target=_listen, args=(session, address), name="gpuprof-channel", daemon=True
        ).start()


def _listen(session: Session, address: Address) -> None:
    try:
        with socket.create_connection((address.host, address.port), timeout=30) as connection:
            connection.settimeout(None)
            keep_alive(connection)
            # no delay, because the driver measures this process's clock
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines = connection.makefile("rb")
            first = lines.readline()
            if not first:
                raise ConnectionResetError("it has hung up")
            challenge: Challenge = json.loads(first)
            hello: Hello = {
                "worker": session.name,
                "proof": proof(address.secret, challenge["challenge"], session.name),
                "clock": clock_id(),
                "node": session.row["node"],
                "pid": session.pid,
                "file": session.answerer.file,
            }
            _send(connection, hello)
            for text in lines:
                receive_time = time.perf_counter_ns()
                message: Message | StepNote | FlushNote | ClockQuestion | StacksQuestion
                message = json.loads(text)
                if message["kind"] == "clock":
                    _tell_time(connection, message, receive_time)
                elif message["kind"] == "stacks":
                    _tell_stacks(session, connection, message)
                else:
                    _obey(session, connection, message)
    except (OSError, ValueError, LookupError, TypeError) as error:
        if not session.ended:
            log().warning(
                "%s: cannot reach the driver at %s:%d: %s",
                session.name,
                address.host,
                address.port,
                error,
            )
    finally:
        _listening.release()


def _send(connection: socket.socket, message: Mapping[str, object], content: bytes = b"") -> None:
    with _sending:
        connection.sendall(line(message) + content)


def _tell_stacks(session: Session, connection: socket.socket, question: StacksQuestion) -> None:
    """Ask the processes of this node on another thread, as this one opens windows meanwhile."""

    def tell() -> None:
        from gpuprof.ray._stacks import ask_node

        name = question["question"]
        with contextlib.suppress(OSError):
            for file, content in ask_node(session.answerer.run_directory, name):
                answer: StacksAnswer = {"question": name, "file": file, "size": len(content)}
                _send(connection, answer, content)

    threading.Thread(target=tell, name="gpuprof-stacks", daemon=True).start()


def _tell_time(connection: socket.socket, question: ClockQuestion, receive_time: int) -> None:
    answer: ClockAnswer = {
        "asked": question["asked"],
        "received": receive_time,
        "sent": time.perf_counter_ns(),
    }
    with contextlib.suppress(OSError):
        _send(connection, answer)


def _obey(
    session: Session, connection: socket.socket, message: Message | StepNote | FlushNote
) -> None:
    answer: Answer = {"number": message["number"], "problem": None, "window": None}
    if message["kind"] == "flush":
        if message["last"]:
            session.end_ledger()
        elif session.ledger is not None:
            session.ledger.drain()
        session.write()
    elif message["kind"] == "step":
        session.left_out.driven = True
        if message["withdrawn"]:
            session.left_out.withdraw()
        else:
            session.left_out.mark(message["left_out"])
    else:
        window, plan = Window(*message["window"]), session.windows.planned
        number = window.number
        if plan.numbered(number) is None:  # a window from an order
            plan.add([window])
        problem = session.refuses_orders or (
            session.open(number, message["expiry"])
            if message["kind"] == "open"
            else session.close(number)
        )
        answer = {
            "number": message["number"],
            "problem": problem,
            "window": session.windows.entry(number),
        }
    with contextlib.suppress(OSError):
        _send(connection, answer)
