"""Queues: who gets an item waits for whoever puts it; who puts one into a full queue, for room.

And pipes between processes: who receives a message waits for whoever sends it.
"""

from __future__ import annotations

import collections
import functools
import os
import socket
import stat
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuprof_timing.instrument import Released

from gpuprof._session.instruments.instrument import Call, Instrument, Key, is_marked, new_key

_here = threading.local()
"""The key of the item that this thread last put into a queue or got from one, or all its keys."""
_STATE, _LAST = "_gpuprof_items", "_gpuprof_last"


def _take(_: Any = None) -> Key | None:
    """Return the keys of the item that this thread last put or got, and forget them."""
    key: Key | None = getattr(_here, "key", None)
    _here.key = None
    return key


# A bounded queue has room for an item once the one that is `maxsize` before it has been taken out.


def _room(key: str) -> str:
    """The key of the room that an item leaves."""
    return f"{key} taken"


def _keys_of_put(key: str, leaving: str | None) -> tuple[str, ...]:
    """The keys of a call that puts an item into a bounded queue, in the place of another item."""
    return (Released(key),) if leaving is None else (_room(leaving), Released(key))


def _keys_of_get(key: str) -> tuple[str, ...]:
    return key, Released(_room(key))


# Queues inside one process are first in, first out, so numbers identify the items.


class _Items:
    """Counts the items that have gone into a queue and come out of it."""

    def __init__(self, waiting: int) -> None:
        self.name = os.urandom(8).hex()
        self.come = waiting  # the keys of the items put before are not known
        self.gone = 0

    def key(self, number: int) -> str:
        return f"queue:{self.name}.{os.getpid()}:{number}"  # a fork has a copy


def _items_of(queue: Any) -> _Items:
    # not an attribute: a subclass may refuse new ones, or answer to any name
    items: _Items | None = queue.__dict__.get(_STATE)
    if items is None:
        items = queue.__dict__[_STATE] = _Items(queue._qsize())
    return items


def _items(instrument: Instrument, queue: Any) -> _Items | None:
    """The counts of a queue's items, before one more is put or got. Never raises."""
    return instrument.guarded(_items_of, queue) if instrument.on else None


def _install_threads(instrument: Instrument, queue: ModuleType) -> None:
    def make_put(original: Any) -> Any:
        def _put(self: Any, item: Any) -> None:  # the caller holds the queue's lock
            items = _items(instrument, self)
            original(self, item)
            if items is not None:
                key, before = items.key(items.come), items.come - self.maxsize
                leaving = items.key(before) if before >= 0 else None
                _here.key = _keys_of_put(key, leaving) if self.maxsize > 0 else key
                items.come += 1

        return _put

    def make_get(original: Any) -> Any:
        def _get(self: Any) -> Any:
            items = _items(instrument, self)
            item = original(self)
            if items is not None:
                key = items.key(items.gone)
                _here.key = _keys_of_get(key) if self.maxsize > 0 else key
                items.gone += 1
            return item

        return _get

    # queues in another order have their own `_put` and `_get`, and so no keys
    instrument.replace([queue.Queue], "_put", make_put)
    instrument.replace([queue.Queue], "_get", make_get)
    instrument.around([queue.Queue], "put", _putting)
    instrument.around([queue.Queue], "get", _getting)


_PUT, _GET = Call("queue.put", None, _take), Call("queue.get", "*", _take)
_PUT_INTO_BOUNDED = Call("queue.put", "*", _take)


def _putting(queue: Any, *_: Any, **__: Any) -> Call:
    _take()  # forget a key that an unmarked call may have left
    return _PUT_INTO_BOUNDED if queue.maxsize > 0 else _PUT


def _getting(_: Any, block: bool = True, timeout: float | None = None) -> Call | None:
    _take()
    return _GET if block else None


# Between processes the key travels with the item. Room is known to the process that puts all items.


class _Sent:
    """An item with its key, which becomes known to the thread that receives the item.

    It is pickled as a call that returns the item, so a receiver without instruments gets the plain
    item.
    """

    def __init__(self, key: str, item: Any) -> None:
        self.key = key
        self.item = item

    def __reduce__(self) -> Any:
        return received, (self.key, self.item)


def received(key: str, item: Any) -> Any:
    """Unpickle an item, and note its key for this thread."""
    _here.key = key
    return item


def _install_processes(instrument: Instrument, queues: ModuleType) -> None:
    unbounded = queues._multiprocessing.SemLock.SEM_VALUE_MAX

    def put(queue: Any, *args: Any, **_: Any) -> Call | None:
        is_bounded = queue._maxsize < unbounded
        waits_for = "*" if is_bounded else None
        if type(queue) is not queues.Queue or not args:  # subclasses may look at their items
            return Call("queue.put", waits_for)
        key = new_key("queue")
        sent = (queue, _Sent(key, args[0]), *args[1:])
        return Call("queue.put", waits_for, keys_of_put(queue, key) if is_bounded else key, sent)

    def keys_of_put(queue: Any, key: str) -> Callable[[Any], Key]:
        def keys(_: Any) -> Key:  # after the call: one that raises has put nothing
            inside = queue.__dict__.setdefault(_STATE, collections.deque(maxlen=queue._maxsize))
            leaving = inside[0] if len(inside) == inside.maxlen else None
            inside.append(key)
            return _keys_of_put(key, leaving)

        return keys

    def keys_of_get(_: Any) -> Key | None:
        key = _take()
        return _keys_of_get(key) if isinstance(key, str) else None

    getting = Call("queue.get", "*", keys_of_get)

    def get(queue: Any, *args: Any, **options: Any) -> Call | None:
        call = _getting(queue, *args, **options)
        return getting if call and queue._maxsize < unbounded else call

    instrument.around([queues.Queue], "put", put)
    instrument.around([queues.Queue], "get", get)


# Of a pipe, messages are numbered, so the key of the next one is known before it has come.


class _Messages:
    """Counts the messages that this process has sent through its end of a pipe.

    Args:
        has_keys: whether the other end is a relative's of this process, which can import gpuprof.
    """

    def __init__(self, has_keys: bool) -> None:
        self.name, self.pid = os.urandom(8).hex(), os.getpid()
        self.has_keys = has_keys
        self.sent = 0


def _is_pair(number: int) -> bool:
    """Whether a file is a pipe or one of a pair of sockets: a related process has its other end.

    Any program may connect to a socket with a name.
    """
    mode = os.fstat(number).st_mode
    if not stat.S_ISSOCK(mode):
        return stat.S_ISFIFO(mode)
    end = socket.socket(fileno=number)
    try:
        names = (end.getsockname(), end.getpeername())
        return end.family == socket.AF_UNIX and not any(names)
    except OSError:  # the other end is closed
        return False
    finally:
        end.detach()


def _install_pipes(instrument: Instrument, connection: ModuleType) -> None:
    def send(pipe: Any, *args: Any, **_: Any) -> Call | None:
        if type(pipe) is not connection.Connection or not args:
            return None
        messages = pipe.__dict__.get(_STATE)
        if messages is None or messages.pid != os.getpid():  # a fork has a copy
            messages = pipe.__dict__[_STATE] = _Messages(_is_pair(pipe.fileno()))
        if not messages.has_keys:
            return Call("pipe.send")
        key = f"pipe:{messages.name}:{messages.sent}"
        messages.sent += 1
        return Call("pipe.send", None, key, (pipe, _Sent(key, args[0]), *args[1:]))

    def receive(pipe: Any) -> Call:
        _take()

        def key(_: Any) -> Key | None:
            key = pipe.__dict__[_LAST] = _take()
            return key

        return Call("pipe.recv", "*", key)

    def following(pipe: Any) -> str | None:
        """The key of the message that comes after the last one."""
        last = getattr(pipe, _LAST, None)
        if not isinstance(last, str) or not last.startswith("pipe:"):
            return None
        name, _, number = last.rpartition(":")
        return f"{name}:{int(number) + 1}"

    def poll(pipe: Any, timeout: float | None = 0.0) -> Call | None:
        if timeout == 0:
            return None
        return Call("pipe.recv", "*", lambda ready: following(pipe) if ready else None)

    def wait(_: Any, timeout: float | None = None) -> Call | None:
        if timeout == 0:
            return None
        return Call(
            "pipe.recv", "*", lambda ready: tuple(filter(None, map(following, ready))) or None
        )

    instrument.around([connection._ConnectionBase], "send", send)
    instrument.around([connection._ConnectionBase], "recv", receive)
    instrument.around([connection._ConnectionBase], "poll", poll)
    instrument.around([connection], "wait", wait)


def _install_ray(instrument: Instrument, queue: ModuleType) -> None:
    """An actor is in between: only the calls of it, which are marked in other scopes, have keys."""

    def get(*args: Any, **options: Any) -> Call | None:
        is_known = is_marked(queue.ray.get)  # else the whole scope waits
        return Call("queue.get") if is_known else _getting(*args, **options)

    instrument.around([queue.Queue], "put", lambda *_, **__: Call("queue.put"))
    instrument.around([queue.Queue], "get", get)


# Buffers return items in any order, and the same item several times, so its id identifies it.

_MOST_ITEMS = 10_000
"""The most items of a buffer whose keys are remembered; the oldest are forgotten first."""


def _install_buffer(name: str, instrument: Instrument, module: ModuleType) -> None:
    def keys(buffer: Any) -> dict[int, str]:
        by_item: dict[int, str] = buffer.__dict__.setdefault(_STATE, {})
        return by_item

    def put(buffer: Any, item: Any, *_: Any, **__: Any) -> Call:
        key, by_item = new_key("queue"), keys(buffer)
        by_item[id(item)] = key
        if len(by_item) > _MOST_ITEMS:
            del by_item[next(iter(by_item))]
        return Call("queue.put", None, key)

    def get(buffer: Any, block: bool = True, *_: Any, **__: Any) -> Call | None:
        by_item = keys(buffer)
        return Call("queue.get", "*", lambda item: by_item.get(id(item))) if block else None

    kind = getattr(module, name, None)
    if kind is not None:  # another release may have none
        instrument.around([kind], "put", put)
        instrument.around([kind], "get", get)


INSTALL = {
    # the buffer of APPO's learner, which polls it
    "ray.rllib.algorithms.appo.utils": functools.partial(_install_buffer, "CircularBuffer"),
    "queue": _install_threads,
    "multiprocessing.queues": _install_processes,
    "multiprocessing.connection": _install_pipes,
    "ray.util.queue": _install_ray,
}
