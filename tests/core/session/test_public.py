"""What code inside a worker calls, with a configuration and without."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpuprof
import pytest
from gpuprof._session import public
from gpuprof._shim.row import VARIABLE, encode
from gpuprof_timing._spans import Linked, SpanLog
from support.recorder import Recorder


@pytest.fixture
def events(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A worker with windows at step 2 and at steps 5 to 6; what its backend was told."""
    monkeypatch.setenv(VARIABLE, encode(recorder.row()))
    public._forget()
    assert public.session() is not None
    yield recorder.events
    public._forget()


def test_a_worker_that_counts_its_own_steps(events: list[str]) -> None:
    """As in SPMD programs: windows open and close with the steps, joined as planned."""
    for step in range(8):
        with gpuprof.step(step):
            pass
    assert ["start step-2", "stop step-2", "start steps-5-6", "stop steps-5-6"] == events


def test_steps_of_a_driver_are_the_runs(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that the job says of them: the run opens its windows."""
    told: list[tuple[int, dict[str, float]]] = []

    def of_the_run(number: int, **attributes: float) -> contextlib.AbstractContextManager[None]:
        told.append((number, attributes))
        return contextlib.nullcontext()

    monkeypatch.setattr(public, "_driver_step", of_the_run)
    with gpuprof.step(3, frames=512):
        pass
    assert ([(3, {"frames": 512})], []) == (told, events)


def test_steps_that_the_configuration_sets_come_before_marks(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two kinds of steps would be mixed."""
    session = public.session()
    assert session is not None
    monkeypatch.setitem(session.row, "step_at", "Learner.train")
    with gpuprof.step(2):
        pass
    assert [] == events
    with public._mark_step(2):
        pass
    assert ["start step-2", "stop step-2"] == events


def test_a_step_that_is_no_number_is_in_no_window(events: list[str]) -> None:
    """It does a profiled worker no more harm than the others, which never look at it; said once."""
    for step in (2, "2", None, "3", 6):
        with gpuprof.step(step):  # type: ignore[arg-type]
            pass
    assert ["start step-2", "stop step-2", "start steps-5-6", "stop steps-5-6"] == events
    here = public.session()
    assert here is not None
    assert [
        f"gpuprof.step expects an integer; a step of type {name} is in no window"
        for name in ("str", "NoneType")
    ] == here.faults


def test_its_steps_are_timed(events: list[str]) -> None:
    """Those inside windows apart from the others, and what opening and closing takes.

    Neither has the first step, which warms up, nor 3 and 7, which others may delay.
    """
    for step in range(9):
        with gpuprof.step(step):
            pass
    here = public.session()
    assert here is not None
    times = here.snapshot()["step_times"]
    assert (3, 3) == (times["count_inside"], times["count_outside"])
    assert min(times["inside"], times["outside"], times["edges"]) > 0


def test_its_last_step_is_one_that_has_ended(events: list[str]) -> None:
    """The receipt uses the step of a worker that ended before its window.

    There is none while the first step still runs.
    """
    here = public.session()
    assert here is not None
    with gpuprof.step(7):
        assert here.snapshot()["step"] is None
    assert 7 == here.snapshot()["step"]


def test_steps_with_discrete_windows_are_not_compared(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their windows open and close within them, which would be taken for what capturing costs."""
    monkeypatch.setenv(VARIABLE, encode(recorder.row(discrete=True)))
    public._forget()
    for step in range(8):
        with gpuprof.step(step), gpuprof.timer("work"):
            pass
    here = public.session()
    assert here is not None
    assert ("start step-2 work 1", 0, 2) == (
        recorder.events[0],
        here.step_times.count_inside,
        here.step_times.count_outside,
    )
    public._forget()


def test_a_repeated_step_number_captures_no_further_scopes(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its first occurrence is left out of the tree, too."""
    monkeypatch.setenv(VARIABLE, encode(recorder.row(discrete=True)))
    public._forget()
    for step in (2, 3, 4, 2):
        with gpuprof.step(step), gpuprof.timer("work"):
            pass
    public._forget()
    assert [event for event in recorder.events if event.startswith("start")] == [
        "start step-2 work 1"
    ]


def test_steps_that_fail_are_not_timed(events: list[str]) -> None:
    """They are shorter than the others, or longer, and no measure of what the profiler costs."""
    for step in range(5):
        with contextlib.suppress(ValueError), gpuprof.step(step):
            if step in (2, 3):
                raise ValueError
    here = public.session()
    assert here is not None
    assert (0, 2) == (here.step_times.count_inside, here.step_times.count_outside)  # 1 and 4


def test_steps_whose_window_is_not_open_are_not_captured(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails to open costs the step nothing here, but other workers may capture it."""
    monkeypatch.setenv(VARIABLE, encode(recorder.row(options={"fail": "start"})))
    public._forget()
    for step in range(8):
        with gpuprof.step(step):
            pass
    here = public.session()
    assert here is not None
    assert (0, 2) == (here.step_times.count_inside, here.step_times.count_outside)  # 1 and 4
    public._forget()


def test_a_step_inside_itself(events: list[str]) -> None:
    """The window stays open until the outer step ends, and is timed once.

    For example, a framework and the user's code both mark the step.
    """
    with gpuprof.step(1):
        pass
    with gpuprof.step(2):
        with gpuprof.step(2):
            pass
        with gpuprof.timer("rest"):
            pass
    with gpuprof.step(2):
        pass
    assert ["start step-2", "range rest step-2", "stop step-2"] == events
    here = public.session()
    assert here is not None
    assert 1 == here.step_times.count_inside


def test_steps_that_do_not_go_up_by_one(events: list[str]) -> None:
    """The first step outside a window closes it, and is not captured."""
    for step in (1, 5, 8, 11):
        with gpuprof.step(step), gpuprof.timer(f"train-{step}"):
            pass
    assert ["start steps-5-6", "range train-5 steps-5-6", "stop steps-5-6"] == events


def test_steps_that_go_back(events: list[str]) -> None:
    """As after a checkpoint is loaded: the window is closed, and not opened again."""
    for step in (5, 4, 5):
        with gpuprof.step(step):
            pass
    assert ["start steps-5-6", "stop steps-5-6"] == events


def test_threads_that_begin_at_once_have_one_session(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Concurrent first calls all get the session, as in a threaded actor."""
    monkeypatch.setenv(VARIABLE, encode(recorder.row()))
    public._forget()
    together = threading.Barrier(8)

    def begin(_: int) -> object:
        together.wait()
        return public.session()

    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(begin, range(8)))
    assert [public._session] * 8 == sessions
    assert sessions[0] is not None
    public._forget()


def test_a_step_joins_the_drivers_window(events: list[str]) -> None:
    """A worker's own step neither opens nor closes the driver's window."""
    session = public.session()
    assert session is not None
    session.open(1)
    with gpuprof.step(2):
        assert ["start step-2"] == events
    assert ["start step-2"] == events
    session.close(1)
    assert ["start step-2", "stop step-2"] == events


def test_an_exception_closes_the_step(events: list[str]) -> None:
    """The window of a step that is left by an exception is closed, and the exception passes."""
    with pytest.raises(KeyError), gpuprof.step(2):
        raise KeyError
    assert ["start step-2", "stop step-2"] == events


def test_a_timer_is_a_node_of_the_process() -> None:
    """`timer` as decorator and context manager, and `timing`, are one tree."""

    @gpuprof.timer("decorated")
    def work() -> int:
        with gpuprof.timer("inside"):
            return 3

    assert 3 == work()
    assert {"decorated", "inside"} <= set(gpuprof.timing())


UNCONFIGURED = """
import atexit, json, logging, signal, sys, threading
before = (signal.getsignal(signal.SIGTERM), atexit._ncallbacks())
import gpuprof

@gpuprof.timer("work")
def work():
    with gpuprof.annotate("part"), gpuprof.step(3):
        pass

work()
after = (signal.getsignal(signal.SIGTERM), atexit._ncallbacks())
handlers = logging.getLogger("gpuprof").handlers
print(json.dumps([before == after, threading.active_count(), handlers, list(gpuprof.timing())]))
"""


def test_without_a_configuration_nothing_is_installed(tmp_path: Path) -> None:
    """No thread, no handler, no file, nothing printed; the tree is there."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-c", UNCONFIGURED]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert ([True, 1, [], ["work"]], "") == (json.loads(done.stdout), done.stderr)
    assert [] == list(tmp_path.iterdir())


def test_a_broken_row_does_not_break_the_worker() -> None:
    """A worker whose row cannot be read says so once and works."""
    environment = {**os.environ, VARIABLE: "garbage"}
    code = (
        "import gpuprof\nfor _ in range(2):\n    with gpuprof.timing().add_time('a'): "
        "pass\nprint(list(gpuprof.timing()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "['a']\n" == done.stdout
    assert 1 == done.stderr.count("runs without gpuprof: GPUPROF_WORKER is not a row of a plan")


def test_a_forked_child_is_not_the_worker(events: list[str]) -> None:
    """It has an empty tree, not its parent's session, and its own name once it uses gpuprof."""
    with gpuprof.timing().add_time("parent"):
        pass
    if threading.active_count() > 1 and sys.version_info >= (3, 12):
        pytest.skip("this Python warns of forks beside threads, and the session has one")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        found = [list(gpuprof.timing()), getattr(public.session(), "name", None)]
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert [[], f"A-0.child-{child}"] == json.loads(os.read(reader, 1000))
    assert ["parent"] == list(gpuprof.timing())


def test_a_forked_process_of_multiprocessing_leaves_its_tree(recorder: Recorder) -> None:
    """It ends without the interpreter's end, as the workers of a DataLoader do."""
    program = """
import multiprocessing, gpuprof
gpuprof.timing()
child = multiprocessing.get_context("fork").Process(target=gpuprof.timer("load")(print))
child.start()
child.join()
"""
    environment = {**os.environ, VARIABLE: encode(recorder.row(backend="none", profiled=False))}
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        env=environment,
        check=True,
    )
    (file,) = recorder.directory.rglob("A-0.child-*.json")
    assert ["load"] == [node["key"] for node in json.loads(file.read_text())["timing"]["children"]]


def test_the_timer_passes_its_key_on() -> None:
    """As a context manager and as a decorator, which makes a key of each call's arguments."""
    log = SpanLog()
    log.begin()

    @gpuprof.timer("send", key=lambda batch: f"batch-{batch}")
    def send(batch: int) -> None:
        pass

    try:
        send(1)
        with gpuprof.timer("receive", waits_for="EnvGroup", key="batch-1"):
            pass
    finally:
        log.end()
        gpuprof.timing().reset()
    assert [("releases", ("batch-1",)), ("waits", ("batch-1",))] == [
        (track.role, track.keys) for track in log.take().tracks if isinstance(track, Linked)
    ]
