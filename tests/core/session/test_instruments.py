"""Instruments: queues, DataLoader and collectives, on the libraries themselves."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import multiprocessing
import multiprocessing.connection
import os
import queue
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent import futures
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gpuprof._session import instruments
from gpuprof._session.instruments.coroutines import Driven, Tasks
from gpuprof._session.instruments.generators import Stream
from gpuprof._session.instruments.instrument import Call, Instrument, UnexpectedError
from gpuprof._session.instruments.queues import _Sent
from gpuprof_timing import Timing
from gpuprof_timing._spans import Linked, Released, SpanLog
from support.manual_clock import Clock
from support.waiting import wait_until


class Recording:
    """A tree whose spans are recorded, and the instruments that write to it."""

    def __init__(self) -> None:
        clock = Clock()
        self.timing = Timing("t", clock=clock)
        self.log = SpanLog(clock)
        self.log.begin()
        self.faults: list[str] = []
        self.begun: list[Instrument] = []
        self.threads = {threading.get_ident()}

    def begin(self, *names: str) -> None:
        """Install instruments."""
        self.begun += instruments.begin(names, self.timing, self.faults.append)

    def instrument(self) -> Instrument:
        """An instrument of no library."""
        made = Instrument("test", self.timing, self.faults.append)
        self.begun.append(made)
        return made

    def end(self) -> None:
        """Remove the instruments, and stop recording."""
        for each in self.begun:
            each.end_marking()
        self.log.end()

    def in_thread(self, function: Callable[[], object]) -> None:
        """Run a function in a thread of its own."""
        thread = threading.Thread(target=function)
        thread.start()
        assert thread.ident is not None
        self.threads.add(thread.ident)
        thread.join()

    def spans(self) -> list[tuple[str, str | None, tuple[str, ...]]]:
        """Name, role and keys of what the test's threads have recorded; ends it.

        Whatever runs the tests has threads and queues, too.
        """
        self.end()
        found: list[tuple[str, str | None, tuple[str, ...]]] = []
        taken = self.log.take()
        for node, track in zip(taken.nodes, taken.tracks, strict=True):
            linked = track if isinstance(track, Linked) else Linked(track, "", ())
            if linked.track in self.threads:
                found.append((node.key, linked.role or None, linked.keys))
        return found


@pytest.fixture
def recording() -> Iterator[Recording]:
    recording = Recording()
    yield recording
    recording.end()


@pytest.fixture
def library() -> ModuleType:
    """A library with a function that returns what it gets, or raises it."""
    module = ModuleType("library")

    def work(value: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    module.work = work  # type: ignore[attr-defined]
    return module


def test_what_is_configured_is_what_there_is() -> None:
    """Each name that a configuration takes has an instrument."""
    from gpuprof._config.selection import INSTRUMENTS

    assert tuple(instruments.KNOWN) == INSTRUMENTS


def test_a_marked_function_returns_what_it_returned(
    recording: Recording, library: ModuleType
) -> None:
    """Its key may be made of the result."""
    recording.instrument().around(
        [library], "work", lambda value: Call("work", "*", lambda result: f"got-{result}")
    )
    assert library.work(3) == 3
    assert recording.spans() == [("work", "waits", ("got-3",))]


def test_a_marked_function_raises_what_it_raised(recording: Recording, library: ModuleType) -> None:
    """Its scope ends, without a key."""
    recording.instrument().around(
        [library], "work", lambda value: Call("work", "*", lambda result: "never")
    )
    with pytest.raises(LookupError, match="theirs"):
        library.work(LookupError("theirs"))
    assert recording.spans() == [("work", None, ())]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_of_ours_switches_the_instrument_off(
    recording: Recording, library: ModuleType, when: str
) -> None:
    """It is reported once, the library's function is called once, and is itself again."""
    original, calls = library.work, []

    def before(value: Any) -> Call:
        if when == "before":
            raise ZeroDivisionError("ours")
        return Call("work", "*", lambda result: result / 0)

    library.work = lambda value: calls.append(value) or value
    original = library.work
    recording.instrument().around([library], "work", before)
    marked = library.work
    assert [1, 2] == [marked(1), marked(2)]
    assert [1, 2] == calls
    assert library.work is original
    assert len(recording.faults) == 1
    assert recording.faults[0].startswith(
        "instruments: test is switched off here, the job goes on: ZeroDivisionError: "
    )


def test_a_wrong_call_is_the_jobs(recording: Recording, library: ModuleType) -> None:
    """The function raises its own error, and the next call is marked."""
    recording.instrument().around([library], "work", lambda value: Call("work"))
    with pytest.raises(TypeError) as raised:
        library.work(1, 2)
    assert "work() takes 1 positional argument but 2 were given" in str(raised.value)
    assert raised.value.__context__ is None
    assert library.work(3) == 3
    assert [("work", None, ())] == recording.spans()
    assert [] == recording.faults


def test_a_wrong_call_of_a_coroutine_is_the_jobs(recording: Recording) -> None:
    """What it raises reaches the job, and the instrument stays on."""
    made = recording.instrument()

    async def work() -> None:
        raise LookupError("theirs")

    def before() -> Call:
        raise TypeError("of the same call")

    with pytest.raises(LookupError, match="theirs"):
        asyncio.run(made.call_coroutine(before, work()))
    assert made.on


def test_a_marked_coroutine(recording: Recording) -> None:
    """Its scope is open until the coroutine has ended, or has raised."""
    made = recording.instrument()

    async def work(fails: bool) -> int:
        await asyncio.sleep(0)
        if fails:
            raise LookupError("theirs")
        return 3

    def run(fails: bool) -> object:
        return asyncio.run(
            made.call_coroutine(lambda: Call("work", None, lambda result: f"{result}"), work(fails))
        )

    assert run(fails=False) == 3
    with pytest.raises(LookupError, match="theirs"):
        run(fails=True)
    recording.end()
    tracks = recording.log.take().tracks
    assert [("3",), None] == [getattr(track, "keys", None) for track in tracks]


class Awaited:
    """Something with a future and a key, as a reference of Ray is."""

    def __init__(self) -> None:
        self.future: Future[int] = Future()
        self.future.object_ref = self  # type: ignore[attr-defined]

    def __await__(self) -> Generator[Any, None, int]:
        return asyncio.wrap_future(self.future).__await__()


@pytest.fixture
def driven(recording: Recording) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine in a scope of the name "method", with all tasks of its loop followed."""
    made = recording.instrument()
    tasks = Tasks(made, asyncio, lambda ref: "ray:1" if isinstance(ref, Awaited) else None)

    def before() -> Call:
        tasks.follow()
        return Call("method")

    # as Ray's own coroutines, which are compiled, it is none of the job's
    nobodys = Instrument("off", recording.timing, recording.faults.append)
    nobodys.on = False
    return lambda job: asyncio.run(Driven(nobodys, made.call_coroutine(before, Driven(made, job))))


def of_tasks(recording: Recording) -> list[tuple[str, tuple[str | bytes, ...]]]:
    """Path and keys of what was recorded."""
    recording.end()
    taken = recording.log.take()
    return [
        ("/".join(path_of(node)), getattr(track, "keys", ()))
        for node, track in zip(taken.nodes, taken.tracks, strict=True)
    ]


def path_of(node: Any) -> list[str]:
    """The names of the scopes around a node and its own."""
    return [] if node.parent is None else [*path_of(node.parent), node.key]


Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_a_suspended_coroutine_waits(recording: Recording, driven: Run) -> None:
    """Each suspension is a scope, with the key of what it waited for: a sleep with its end."""
    ref = Awaited()

    async def job() -> int:
        await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_soon(ref.future.set_result, 7)
        return await ref

    assert 7 == driven(job())
    assert [
        ("method/asyncio.sleep", (over_at(1_000_000),)),
        ("method/await", ("ray:1",)),
        ("method", ()),
    ] == of_tasks(recording)


@pytest.mark.parametrize("kind", ["Lock", "Semaphore"])
def test_whoever_waits_for_a_limit_has_the_key_of_its_release(
    kind: str, recording: Recording, driven: Run
) -> None:
    """A release that wakes nobody is no scope."""

    async def part(limit: Any) -> None:
        async with limit:
            await asyncio.sleep(0.001)

    async def job() -> None:
        limit = getattr(asyncio, kind)()
        await asyncio.gather(part(limit), part(limit))

    driven(job())
    rows = of_tasks(recording)
    (wait,) = (keys for path, keys in rows if path == f"{kind}.acquire")
    (release,) = (keys for path, keys in rows if path == f"part/{kind}.release")
    assert wait == release != ()
    assert [] == recording.faults


def over_at(time: int) -> bytes:
    """The key of a sleep that is over at a time in nanoseconds."""
    return time.to_bytes(8, "little")


@pytest.mark.parametrize(("seconds", "over"), [(-1.0, 0), (float("inf"), 10**15)])
def test_a_sleep_of_any_length_has_a_key(
    seconds: float, over: int, recording: Recording, driven: Run
) -> None:
    """The job's sleep is the job's: no fault of ours."""

    async def job() -> None:
        sleep = asyncio.ensure_future(asyncio.sleep(seconds))
        await asyncio.wait([sleep], timeout=0.001)
        sleep.cancel()

    driven(job())
    assert [("asyncio.sleep", (over_at(over),))] == [
        row for row in of_tasks(recording) if row[0] == "asyncio.sleep"
    ]
    assert [] == recording.faults


@pytest.mark.parametrize("how", ["gather", "wait", "wait_for", "nested", "task"])
def test_whoever_waits_for_several_has_the_keys_of_all(
    how: str, recording: Recording, driven: Run
) -> None:
    """Of references and of tasks, whose last step releases theirs."""
    ref = Awaited()

    async def part() -> int:
        return await ref

    async def job() -> None:
        asyncio.get_running_loop().call_later(0.001, ref.future.set_result, 7)
        if how == "gather":
            await asyncio.gather(ref, part())
        elif how == "nested":
            await asyncio.gather(asyncio.gather(ref, part()))
        elif how == "wait":
            await asyncio.wait([asyncio.ensure_future(ref), asyncio.create_task(part())])
        elif how == "wait_for":
            await asyncio.wait_for(part(), 60)
        else:
            await asyncio.create_task(part())

    driven(job())
    spans = of_tasks(recording)
    (released,) = (keys for path, keys in spans if path.endswith("part") and keys)
    (waited,) = (keys for path, keys in spans if path == "method/await")
    both = how in ("gather", "wait", "nested")
    assert {*released, *(["ray:1"] if both else [])} == set(waited)


def test_a_task_is_recorded_in_steps_at_the_top(recording: Recording, driven: Run) -> None:
    """What made it goes on meanwhile, and may end before it."""

    async def forever() -> None:
        while True:
            await asyncio.sleep(0)

    async def job() -> None:
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()

    driven(job())
    paths = [path for path, _ in of_tasks(recording)]
    assert {"forever", "asyncio.sleep", "method", "method/asyncio.sleep"} == {
        path.rpartition("<locals>.")[2] for path in paths
    }


def test_a_scope_of_the_jobs_in_a_task(recording: Recording, driven: Run) -> None:
    """It is around the suspensions in it, and no step is around it again."""

    async def part() -> None:
        with recording.timing.add_time("load"):
            await asyncio.sleep(0.001)
            with recording.timing.add_time("parse"):
                pass
        await asyncio.sleep(0.001)
        with recording.timing.add_time("load"):
            await asyncio.sleep(0.001)

    async def job() -> None:
        await asyncio.create_task(part())

    driven(job())
    *spans, last, _, _ = of_tasks(recording)
    assert [
        "part",
        "part/load/asyncio.sleep",
        "part/load/parse",
        "part/load",
        "asyncio.sleep",
        "part",
        "part/load/asyncio.sleep",
        "part/load",
    ] == [path.removeprefix("test_a_scope_of_the_jobs_in_a_task.<locals>.") for path, _ in spans]
    assert ("part", True) == (last[0], bool(last[1]))


def test_a_future_without_a_key_leaves_a_wait_without_keys(
    recording: Recording, driven: Run
) -> None:
    """Half of what was waited for would tell the wrong one."""
    ref = Awaited()

    async def job() -> None:
        loop = asyncio.get_running_loop()
        unknown = loop.create_future()
        ref.future.set_result(7)
        loop.call_later(0.001, unknown.set_result, 1)
        await asyncio.gather(ref, unknown)

    driven(job())
    assert ("method/await", ()) in of_tasks(recording)


def test_a_driven_coroutine_runs_as_alone(recording: Recording, driven: Run) -> None:
    """Values, errors, cancellation, and what others see of its tasks."""
    seen: list[object] = []

    async def part(value: int) -> int:
        try:
            await asyncio.sleep(value)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        if not value:
            raise LookupError("theirs")
        return value

    async def job() -> str:
        with pytest.raises(LookupError, match="theirs"):
            await asyncio.create_task(part(0))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(part(60), 0.001)
        task = asyncio.create_task(part(60))
        seen.append(task.get_coro().__qualname__.rpartition(".")[2])
        task.cancel()  # before its first step
        with pytest.raises(asyncio.CancelledError):
            await task
        seen.extend(["part" in repr(task), task.get_stack()])
        return "done"

    assert "done" == driven(job())
    assert ["cancelled", "part", True, []] == seen
    assert [] == recording.faults


def test_a_fault_while_a_coroutine_is_suspended(recording: Recording, driven: Run) -> None:
    """It is said once, and the coroutine ends as alone."""
    made = recording.begun[0]

    async def job() -> int:
        await asyncio.sleep(0)
        made.recording = None  # type: ignore[assignment]
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        return 3

    assert 3 == driven(job())
    assert 1 == len(recording.faults)


def test_whoever_runs_a_loop_waits_for_its_task(recording: Recording) -> None:
    """Its steps and suspensions are scopes, too."""
    ref, made = Awaited(), recording.instrument()
    Tasks(made, asyncio, lambda ref: "ray:1" if isinstance(ref, Awaited) else None)

    async def job() -> int:
        asyncio.get_running_loop().call_soon(ref.future.set_result, 7)
        return await ref

    assert 7 == asyncio.run(job())
    spans = [(path.rpartition("<locals>.")[2], keys) for path, keys in of_tasks(recording)]
    key = spans[-1][1]
    assert [("job", ()), ("await", ("ray:1",)), ("job", key), ("asyncio.run", key)] == spans
    assert key


def test_whoever_runs_a_coroutine_in_a_loop_waits_for_its_task(recording: Recording) -> None:
    """The loop makes the task itself."""
    Tasks(recording.instrument(), asyncio, lambda _: None)

    async def job() -> int:
        return 7

    loop = asyncio.new_event_loop()
    assert 7 == loop.run_until_complete(job())
    loop.close()
    (task, made), (run, waited_for) = of_tasks(recording)
    assert (True, "asyncio.run") == (task.endswith("job"), run)
    assert made == waited_for != ()


@pytest.mark.parametrize("with_ray", [False, True])
def test_asyncio_is_followed_without_ray(with_ray: bool, recording: Recording) -> None:
    """An instrument that knows more keys, as Ray's, takes its place."""
    recording.begin("queue")
    if with_ray:
        Tasks(recording.instrument(), asyncio, lambda _: "ray:1")
    ref = Awaited()

    async def job() -> int:
        asyncio.get_running_loop().call_soon(ref.future.set_result, 7)
        return await ref

    assert 7 == asyncio.run(job())
    waits = [keys for name, keys in of_tasks(recording) if name == "await"]
    assert [("ray:1",) if with_ray else ()] == waits


def test_a_loop_that_runs_already_is_left_alone(recording: Recording) -> None:
    """As in a notebook, where what begins the recording is itself a task."""

    async def cell() -> None:
        Tasks(recording.instrument(), asyncio, lambda _: "ray:1")
        await asyncio.create_task(asyncio.sleep(0))

    asyncio.run(cell())
    assert [] == of_tasks(recording)


def stream(recording: Recording) -> Stream:
    """Of a call with the key "call"."""
    made = recording.instrument()
    return Stream(made, "part", lambda number: "call" if number is None else f"item {number}")


ITEMS = [
    ("part", ("item 2", "call")),
    ("part", ("item 3",)),
    ("part", ("item 4", "call")),
]
"""What the generators below record: two items and their end."""


def test_each_item_of_a_generator_is_released_by_a_scope(recording: Recording) -> None:
    """The first and the last one release the call's key, too; errors are the generator's."""

    def generator() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("theirs")

    items = stream(recording).items(generator(), done=str)
    assert [1, 2] == [next(items), next(items)]
    with pytest.raises(LookupError, match="theirs"):
        next(items)
    assert ITEMS == of_tasks(recording)


def test_each_item_of_an_asynchronous_generator_is_released_by_a_scope(
    recording: Recording,
) -> None:
    """It waits while it is suspended."""

    async def generator() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.sleep(0)
        yield 2

    async def job() -> list[int]:
        made = stream(recording)
        return [item async for item in made.async_items(generator(), lambda: None)]

    assert [1, 2] == asyncio.run(job())
    sleep = ("part/asyncio.sleep", (over_at(0),))
    assert [ITEMS[0], sleep, *ITEMS[1:]] == of_tasks(recording)


def test_a_generator_that_is_left_is_closed(recording: Recording) -> None:
    """As alone."""
    closed: list[str] = []

    def generator() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append("generator")

    async def async_generator() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            closed.append("asynchronous")

    async def job() -> None:
        items = stream(recording).async_items(async_generator(), lambda: None)
        await anext(items)
        await items.aclose()

    items = stream(recording).items(generator(), done=str)
    next(items)
    items.close()
    asyncio.run(job())
    assert ["generator", "asynchronous"] == closed


def test_a_generator_gets_what_it_is_sent(recording: Recording) -> None:
    """As alone: Ray tells generators how long it took to store their items, which ray.data asserts.

    Nothing is sent before the first item.
    """

    def generator() -> Generator[int, int, None]:
        yield (yield (yield 1))

    async def async_generator() -> AsyncGenerator[int, int]:
        yield (yield (yield 1))

    async def job() -> list[int]:
        items = stream(recording).async_items(async_generator(), lambda: None)
        return [await anext(items), await items.asend(2), await items.asend(3)]

    items = stream(recording).items(generator(), done=str)
    assert [1, 2, 3] == [next(items), items.send(2), items.send(3)]
    assert [1, 2, 3] == asyncio.run(job())


def test_a_release_that_does_not_fit(recording: Recording) -> None:
    """The fault is reported where the instrument is installed; the job goes on."""

    def install(instrument: Instrument, module: ModuleType) -> None:
        raise UnexpectedError(f"this release of {module.__name__} is another one")

    recording.instrument().after_import("json", install)
    (fault,) = recording.faults
    assert fault == (
        "instruments: test is switched off here, the job goes on: this release of json is another "
        "one"
    )


def test_a_library_is_changed_when_the_job_imports_it(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never because of the instrument."""
    name = f"library_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    installed: list[str] = []
    recording.instrument().after_import(name, lambda _, module: installed.append(module.__name__))
    assert name not in sys.modules
    assert installed == []
    importlib.import_module(name)
    assert installed == [name]
    del sys.modules[name]


def test_the_end_puts_every_copy_back(recording: Recording, library: ModuleType) -> None:
    """A function may be in several modules."""
    copy = SimpleNamespace(work=library.work)
    original = library.work
    recording.instrument().around([library, copy], "work", lambda value: None)
    assert library.work is copy.work is not original
    recording.end()
    assert library.work is copy.work is original


def test_what_others_have_replaced_since_stays(recording: Recording, library: ModuleType) -> None:
    """Taking ours out of the middle would take theirs away."""
    recording.instrument().around([library], "work", lambda value: Call("work"))
    marked = library.work
    library.work = lambda value: marked(value)
    theirs = library.work
    recording.end()
    assert library.work is theirs
    assert library.work(5) == 5


def test_a_library_that_has_changed_is_named(recording: Recording, library: ModuleType) -> None:
    """The instrument knows the function by its name."""
    with pytest.raises(UnexpectedError, match=r"it has no library\.play"):
        recording.instrument().around([library], "play", lambda: None)


def test_a_fork_does_not_mark(recording: Recording, library: ModuleType) -> None:
    """It has a session of its own, or none."""
    recording.instrument().around([library], "work", lambda value: Call("work"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the child needs none
        child = os.fork()
    if not child:
        library.work(1)
        os._exit(len(recording.spans()))
    assert os.waitpid(child, 0)[1] == 0
    library.work(1)
    assert recording.spans() == [("work", None, ())]


# Threads


def test_joining_a_thread_waits_for_its_end(recording: Recording) -> None:
    """With any instrument: what a helper thread waits for, the one that joins it waits for."""
    recording.begin("queue")
    items: queue.Queue[int] = queue.Queue()
    items.put(1)

    def fetch() -> None:
        items.get()

    recording.in_thread(fetch)
    found = pairs(recording.spans())
    assert found["Thread.join waits"] == found["fetch (thread) releases"] != []
    assert found["queue.get waits"] == found["queue.put releases"]


def test_a_thread_with_a_run_of_its_own_is_waited_for(recording: Recording) -> None:
    """The scope is called after its class."""

    class Loader(threading.Thread):
        def run(self) -> None:
            recording.threads.add(threading.get_ident())

    recording.begin("queue")
    thread = Loader()
    thread.start()
    thread.join()
    found = pairs(recording.spans())
    assert found["Thread.join waits"] == found["Loader.run (thread) releases"] != []


def test_a_thread_from_before_the_instrument_has_no_key(recording: Recording) -> None:
    """That it is waited for is known."""
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    recording.begin("queue")
    go.set()
    thread.join()
    assert [("Thread.join", None, ())] == recording.spans()


@pytest.mark.parametrize("in_context", [False, True])
def test_the_result_of_a_thread_pool_is_waited_for(in_context: bool, recording: Recording) -> None:
    """By the key of that call, also as `asyncio.to_thread` calls; its threads are no scopes."""
    recording.begin("queue")

    def compute(number: int) -> int:
        recording.threads.add(threading.get_ident())
        wait_until(lambda: "Future.result" in recording.timing, "asked for the result")
        return number

    call = functools.partial(compute, number=2)
    if in_context:
        call = functools.partial(contextvars.copy_context().run, call)
    with ThreadPoolExecutor(1) as pool:
        assert 2 == pool.submit(call).result()
    found = pairs(recording.spans())
    # the pool joins its threads
    assert {"compute (thread) releases", "Future.result waits", "Thread.join None"} == found.keys()
    assert found["Future.result waits"] == found["compute (thread) releases"] != []


def test_a_call_of_a_thread_pool_raises_what_it_raised(recording: Recording) -> None:
    """To whoever asks for its result."""
    recording.begin("queue")
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()


def test_a_call_of_a_thread_pool_that_cannot_be_named_runs(recording: Recording) -> None:
    """The instrument is switched off, and says so."""

    class Odd:
        def __init__(self) -> None:
            self.__qualname__ = 3  # as nobody should

        def __call__(self) -> int:
            return 1

    recording.begin("queue")
    with ThreadPoolExecutor(1) as pool:
        assert 1 == pool.submit(Odd()).result()
    (fault,) = recording.faults
    assert fault.startswith("instruments: threads is switched off here")


@pytest.mark.parametrize("how", ["wait", "as_completed"])
def test_the_end_of_a_call_of_a_thread_pool_is_waited_for(how: str, recording: Recording) -> None:
    """By its key."""
    recording.begin("queue")

    def compute() -> None:
        recording.threads.add(threading.get_ident())
        wait_until(lambda: "Future.result" in recording.timing, "awaited")

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(compute)
        if how == "wait":
            assert {future} == futures.wait([future]).done
        else:
            assert [future] == list(futures.as_completed(iter([future])))
    found = pairs(recording.spans())
    assert found["Future.result waits"] == found["compute (thread) releases"] != []


def test_a_pool_of_threads_is_none_of_processes(recording: Recording) -> None:
    """Though it has the same results."""
    recording.begin("queue")
    with ThreadPool(1) as pool:
        assert [1, 2] == pool.map(abs, (-1, -2))
    assert "pool.result" not in recording.timing


@pytest.mark.parametrize("how", ["map", "imap", "submit", "as_completed"])
def test_the_result_of_a_pool_of_processes_is_waited_for(how: str, recording: Recording) -> None:
    """As data is: what its processes do is in no scope."""
    context = multiprocessing.get_context("spawn")
    recording.begin("queue")
    if how in ("submit", "as_completed"):
        with ProcessPoolExecutor(1, context) as executor:
            future = executor.submit(abs, -1)
            if how == "as_completed":
                assert [future] == list(futures.as_completed([future]))
            assert 1 == future.result()
    else:
        with context.Pool(1) as pool:
            assert [1, 2] == list(getattr(pool, how)(abs, (-1, -2)))
    assert "pool.result" in recording.timing


# Queues


def pairs(spans: list[tuple[str, str | None, tuple[str, ...]]]) -> dict[str, list[Any]]:
    """The keys by name and role."""
    found: dict[str, list[Any]] = {}
    for name, role, keys in spans:
        found.setdefault(f"{name} {role}", []).extend(keys)
    return found


def test_a_queues_getter_knows_its_putter(recording: Recording) -> None:
    """In the order of the items, also across threads."""
    recording.begin("queue")
    items: queue.Queue[int] = queue.Queue()

    def produce() -> None:
        for number in range(3):
            items.put(number)

    recording.in_thread(produce)
    assert [0, 1, 2] == [items.get() for _ in range(3)]
    found = pairs(recording.spans())
    assert found["queue.put releases"] == found["queue.get waits"]
    assert len(set(found["queue.put releases"])) == 3


@pytest.mark.parametrize(
    "make", [queue.Queue, multiprocessing.get_context("spawn").Queue], ids=["threads", "processes"]
)
def test_who_puts_into_a_full_queue_waits_for_room(
    make: Callable[[int], Any], recording: Recording
) -> None:
    """Room comes with the get of the item that is as many items before as the queue holds."""
    recording.begin("queue")
    items = make(2)
    items.put(0)
    items.put(1)
    items.get()
    items.get()
    items.put(2)
    items.get()
    if not isinstance(items, queue.Queue):
        items.close()
        items.join_thread()
    spans = [span for span in recording.spans() if span[0].startswith("queue.")]
    first_put, second_put, first_get, _, third_put, _ = (set(keys) for _, _, keys in spans)
    assert ["waits"] * 6 == [role for _, role, _ in spans]
    assert [1, 1, 1, 1] == [
        len(first_put & first_get), len(first_get & third_put), len(first_put), len(second_put)
    ]  # fmt: skip
    assert {True} == {isinstance(key, Released) for key in first_put | second_put}


def test_items_from_before_the_instrument(recording: Recording) -> None:
    """They are counted, so that later ones keep their numbers."""
    items: queue.Queue[int] = queue.Queue()
    items.put(0)
    recording.begin("queue")
    items.put(1)
    items.get()
    items.get()
    found = pairs(recording.spans())
    (put,), (_, got) = found["queue.put releases"], found["queue.get waits"]
    assert put == got


def test_two_queues_share_no_key(recording: Recording) -> None:
    """Each has a name of its own."""
    recording.begin("queue")
    for items in (queue.Queue[int](), queue.Queue[int]()):
        items.put(1)
    assert len(set(pairs(recording.spans())["queue.put releases"])) == 2


class Frozen(queue.Queue[int]):
    """Refuses attributes once it is made."""

    __slots__ = ("frozen",)

    def __init__(self) -> None:
        super().__init__()
        self.frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "frozen") and name not in self.__dict__:
            raise AttributeError(f"{name} is refused")
        super().__setattr__(name, value)


class Inventing(queue.Queue[int]):
    """Has an answer for every attribute."""

    def __getattr__(self, name: str) -> object:
        return name


@pytest.mark.parametrize("kind", [Frozen, Inventing])
def test_a_queue_with_attributes_of_its_own(
    recording: Recording, kind: type[queue.Queue[int]]
) -> None:
    """Its items keep their keys."""
    recording.begin("queue")
    items = kind()
    items.put(1)
    assert items.get() == 1
    found = pairs(recording.spans())
    assert found["queue.put releases"] == found["queue.get waits"]


class Uncountable(queue.Queue[int]):
    """Does not know how many items it has."""

    def _qsize(self) -> int:
        raise NotImplementedError("unknown")


def test_a_queue_that_cannot_be_counted_works_as_ever(recording: Recording) -> None:
    """The instrument is switched off, and says so."""
    recording.begin("queue")
    Uncountable().put(1)
    (fault,) = recording.faults
    assert fault.endswith("the job goes on: NotImplementedError: unknown")


def test_a_wrong_get_leaves_the_instrument_on(recording: Recording) -> None:
    """The job catches its own error, and later items are marked."""
    recording.begin("queue")
    items: Any = queue.Queue()
    with pytest.raises(TypeError):
        items.get(wait=True)
    items.put(1)
    items.get()
    assert {"queue.put releases", "queue.get waits"} == pairs(recording.spans()).keys()


@pytest.mark.parametrize("kind", [queue.LifoQueue, queue.PriorityQueue])
def test_a_queue_in_another_order_has_no_keys(
    recording: Recording, kind: type[queue.Queue[int]]
) -> None:
    """Which item comes out is not known by its number; that it is waited for is."""
    recording.begin("queue")
    items = kind()
    items.put(1)
    items.get()
    assert [("queue.put", None, ()), ("queue.get", None, ())] == recording.spans()


def test_a_getter_that_does_not_wait(recording: Recording) -> None:
    """A look into a queue is no wait."""
    recording.begin("queue")
    items: queue.Queue[int] = queue.Queue()
    with pytest.raises(queue.Empty):
        items.get(block=False)
    assert [] == recording.spans()


class Buffer:
    """Gives each item twice, the latest first, as RLlib's circular buffer may."""

    def __init__(self) -> None:
        self.items: list[object] = []

    def put(self, item: object, block: bool = True) -> None:
        self.items += [item, item]

    def get(self, block: bool = True) -> object:
        return self.items.pop()


def test_a_buffers_getter_knows_who_put_its_item(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order, and however often an item is taken."""
    module = ModuleType("ray.rllib.algorithms.appo.utils")
    module.CircularBuffer = type("CircularBuffer", (Buffer,), dict(vars(Buffer)))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    recording.begin("queue")
    buffer = module.CircularBuffer()
    for number in range(2):
        buffer.put((number,))
    assert [(1,), (1,), (0,)] == [buffer.get() for _ in range(3)]
    found = pairs(recording.spans())
    first, second = found["queue.put releases"]
    assert [second, second, first] == found["queue.get waits"]


def test_a_queue_between_processes_sends_its_key(recording: Recording) -> None:
    """The item arrives as it was; its key with it."""
    recording.begin("queue")
    items: Any = multiprocessing.get_context("spawn").Queue()
    try:
        items.put({"batch": 7})
        assert items.get(timeout=30) == {"batch": 7}
    finally:
        items.close()
        items.join_thread()
    found = pairs(recording.spans())
    assert found["queue.put releases"] == found["queue.get waits"]


@pytest.mark.parametrize("asks", ["recv", "poll", "wait"])
def test_who_receives_from_a_pipe_waits_for_its_sender(asks: str, recording: Recording) -> None:
    """Once a message has come, the key of the next one is known before it is read."""
    recording.begin("queue")
    near, far = multiprocessing.Pipe()
    with near, far:
        for number in range(2):
            far.send({"batch": number})
            if asks == "poll":
                assert near.poll(30)
            if asks == "wait":
                assert [near] == multiprocessing.connection.wait([near], 30)
            assert near.recv() == {"batch": number}
        assert not near.poll()
    found = pairs(recording.spans())
    first, second = found["pipe.send releases"]
    assert found["pipe.recv waits"] == (
        [first, second] if asks == "recv" else [first, second, second]
    )


def test_a_message_to_a_program_of_its_own_has_no_key(recording: Recording) -> None:
    """Whoever connects to a socket may lack gpuprof, and could not unpickle it."""
    recording.begin("queue")
    with multiprocessing.connection.Listener(("127.0.0.1", 0)) as listener:
        received: list[bytes] = []
        address = listener.address

        def connect() -> None:
            with multiprocessing.connection.Client(address) as client:
                received.append(client.recv_bytes())

        thread = threading.Thread(target=connect)
        thread.start()
        with listener.accept() as server:
            server.send({"batch": 7})
            thread.join()
    assert b"gpuprof" not in received[0]
    assert [] == pairs(recording.spans())["pipe.send None"]


def test_two_senders_of_a_pipe_share_no_key(recording: Recording) -> None:
    """A fork has a copy of its parent's end."""
    recording.begin("queue")
    near, far = multiprocessing.Pipe()
    with near, far:
        far.send(1)
        far.__dict__["_gpuprof_items"].pid = 0
        far.send(2)
        assert [1, 2] == [near.recv(), near.recv()]
    found = pairs(recording.spans())
    assert len(set(found["pipe.send releases"])) == 2
    assert found["pipe.send releases"] == found["pipe.recv waits"]


def test_a_receiver_without_instruments_gets_the_item() -> None:
    """What travels is a call that returns it."""
    import pickle

    assert [1, 2] == pickle.loads(pickle.dumps(_Sent("queue:a:0", [1, 2])))


def test_queues_are_themselves_again(recording: Recording) -> None:
    """All four functions."""
    names = ("put", "get", "_put", "_get")
    before = [getattr(queue.Queue, name) for name in names]
    recording.begin("queue")
    assert all(
        now is not then
        for now, then in zip([getattr(queue.Queue, name) for name in names], before, strict=True)
    )
    recording.end()
    assert before == [getattr(queue.Queue, name) for name in names]
