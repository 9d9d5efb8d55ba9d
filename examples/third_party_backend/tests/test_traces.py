"""What is in the traces, by torch's own profiler on the CPU."""

from __future__ import annotations

import importlib
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gpuprof.backend import Window, Worker
from gpuprof.errors import ConfigError
from gpuprof_torch_profiler import TorchProfilerBackend
from gpuprof_torch_profiler._options import Schedule, TorchProfilerOptions

pytestmark = pytest.mark.torch

WINDOW = Window(1, 3, 4)
ONE_TRACE_EACH = pytest.mark.filterwarnings(
    "ignore:Warning. Profiler clears events at the end of each cycle"
)


def record(directory: Path, rounds: int = 1, **options: Any) -> list[Path]:
    """Multiply matrices inside a window, as gpuprof opens it: on another thread.

    Returns the traces.
    """
    import torch  # here, for pytest only collects tests in most processes

    directory.mkdir(exist_ok=True)
    backend = TorchProfilerBackend(TorchProfilerOptions(**options))
    worker = Worker("run", "A", 0, "node", "1", str(directory), (WINDOW,))
    files: list[str] = []
    on_a_thread(lambda: backend.start_capture(worker, WINDOW))
    for number in range(rounds):
        with backend.open_range("round"), backend.open_range(f"round-{number}"):
            matrix = torch.ones(8, 8)
            matrix @ matrix
    on_a_thread(lambda: files.extend(backend.stop_capture() or []))
    return [Path(file) for file in files]


def on_a_thread(function: Any) -> None:
    """Call a function on a thread, and wait."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def events(file: Path) -> list[dict[str, Any]]:
    """What is in a trace."""
    found: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    return found


def names(file: Path) -> Counter[str]:
    """How often each name is in a trace."""
    return Counter(event["name"] for event in events(file))


def test_the_work_of_another_thread_is_in_the_trace(tmp_path: Path) -> None:
    """gpuprof starts the profiler on its own thread; the operators run on the job's."""
    (file,) = record(tmp_path, rounds=3)
    assert tmp_path / "A-0.step-3.trace.json" == file
    tracks = TorchProfilerBackend(TorchProfilerOptions()).read_spans(str(file)) or []
    spans = [span for track in tracks if track.kind == "ranges" for span in track.spans]
    rounds = [end - start for name, start, end in spans if name == "round"]
    assert 3 == len(rounds)
    assert all(0 < nanoseconds < 10**10 for nanoseconds in rounds) is True
    assert 3 == names(file)["aten::mm"]
    assert 3 == names(file)["round"]
    assert 1 == names(file)["round-2"]


def test_spans_by_the_wall_clock(tmp_path: Path) -> None:
    """Ranges and operators of the thread, between the beginning and the end of the recording."""
    begin = time.time_ns()
    (file,) = record(tmp_path)
    end = time.time_ns()
    tracks = TorchProfilerBackend(TorchProfilerOptions()).read_spans(str(file)) or []
    thread = os.getpid(), threading.get_native_id()
    here = {track.kind: track.spans for track in tracks if (track.process, track.thread) == thread}
    assert {"ranges", "operators"} == set(here)
    ((name, start, stop), _) = here["ranges"]
    assert "round" == name
    assert begin < start < stop < end
    assert "aten::mm" in [name for name, _, _ in here["operators"]]


def test_the_options_reach_torch(tmp_path: Path) -> None:
    """The shapes of the inputs are in the events."""
    (file,) = record(tmp_path, activities=["cpu"], record_shapes=True, with_flops=True)
    (multiplied,) = (event for event in events(file) if event["name"] == "aten::mm")
    assert [[8, 8], [8, 8]] == multiplied["args"]["Input Dims"][:2]


def test_torch_records_no_memory_of_all_threads(tmp_path: Path) -> None:
    """The plan's note still holds for the installed torch; if not, remove note and help."""
    (file,) = record(tmp_path, profile_memory=True)
    assert "[memory]" not in names(file)
    assert (
        TorchProfilerBackend(TorchProfilerOptions(profile_memory=True))
        .plan_notes()[0]
        .startswith("profile_memory: torch")
    )
    assert [] == TorchProfilerBackend(TorchProfilerOptions()).plan_notes()


def test_the_python_stack_on_request(tmp_path: Path) -> None:
    """With it the functions that called the operators are in the trace, without it they are not."""
    plain, deep = (record(tmp_path / str(deep), with_stack=deep)[0] for deep in (False, True))
    assert [False, True] == [
        "python_function" in {event.get("cat") for event in events(file)} for file in (plain, deep)
    ]


@ONE_TRACE_EACH
def test_a_schedule_counts_a_range(tmp_path: Path) -> None:
    """One is skipped, one warms up, two are recorded; twice.

    The second trace does not overwrite the first.
    """
    schedule = Schedule(every="round", wait=1, warmup=1, active=2, repeat=2)
    files = record(tmp_path, rounds=9, schedule=schedule)
    assert ["A-0.step-3.trace.json", "A-0.step-3.2.trace.json"] == [file.name for file in files]
    rounds = [sorted(name for name in names(file) if name.startswith("round-")) for file in files]
    assert [["round-2", "round-3"], ["round-6", "round-7"]] == rounds


def test_a_schedule_that_was_never_reached(tmp_path: Path) -> None:
    """No trace, and none is claimed."""
    assert [] == record(tmp_path, schedule=Schedule(every="elsewhere", wait=5))


def in_a_schedule(directory: Path) -> TorchProfilerBackend:
    """A backend in an open window, whose ranges called "round" are counted."""
    backend = TorchProfilerBackend(TorchProfilerOptions(schedule=Schedule(every="round", repeat=0)))
    worker = Worker("run", "A", 0, "node", "1", str(directory), (WINDOW,))
    on_a_thread(lambda: backend.start_capture(worker, WINDOW))
    return backend


def test_a_counted_range_that_outlives_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range that ends after its window does not advance the schedule, which would crash."""
    steps: list[None] = []
    monkeypatch.setattr("torch.profiler.profile.step", lambda self: steps.append(None))
    backend = in_a_schedule(tmp_path)
    inside, outlives = backend.open_range("round"), backend.open_range("round")
    with outlives:
        with inside:
            pass
        on_a_thread(backend.stop_capture)
    assert [None] == steps


@ONE_TRACE_EACH
@pytest.mark.parametrize("second", ["step", "stop"])
def test_steps_and_the_end_of_the_window_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """Ranges and window end on different threads: torch gets one call at a time."""
    backend = in_a_schedule(tmp_path)
    first_is_in, second_is_in = threading.Event(), threading.Event()
    together: list[bool] = []

    def spy(original: Any) -> Any:
        def enter(self: Any) -> None:
            if first_is_in.is_set():
                second_is_in.set()
            else:
                first_is_in.set()
                together.append(second_is_in.wait(0.3))
            original(self)

        return enter

    def count() -> None:
        with backend.open_range("round"):
            pass

    profile = importlib.import_module("torch.profiler").profile
    for name in ("step", "stop"):
        monkeypatch.setattr(profile, name, spy(getattr(profile, name)))
    counting = threading.Thread(target=count)
    counting.start()
    first_is_in.wait()
    on_a_thread(count if second == "step" else backend.stop_capture)
    counting.join()
    assert [False] == together
    assert second_is_in.is_set() is True
    on_a_thread(backend.stop_capture)


def test_torch_is_left_alone_once_a_step_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in the middle of something, and end the process when it is stopped."""
    backend = in_a_schedule(tmp_path)
    profile = importlib.import_module("torch.profiler").profile
    stop, told = profile.stop, list[Any]()

    def fail(self: Any) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(profile, "step", fail)
    monkeypatch.setattr(profile, "stop", told.append)
    with pytest.raises(RuntimeError, match="in the middle"), backend.open_range("round"):
        pass
    running = backend._trace._profile
    assert [] == backend.stop_capture()
    assert [] == told
    stop(running)


@pytest.mark.parametrize(
    ("key", "value", "least"),
    [("wait", -1, 0), ("warmup", -1, 0), ("active", 0, 1), ("repeat", -2, 0)],
)
def test_a_schedule_that_cannot_be(key: str, value: int, least: int) -> None:
    """The key, the value and the least that is valid."""
    with pytest.raises(
        ConfigError, match=rf"^{key}: {value} is not valid; expected at least {least}$"
    ):
        Schedule(every="round", **{key: value})


def test_no_activity_at_all_is_refused() -> None:
    """Otherwise torch would refuse it, in the first window."""
    with pytest.raises(
        ConfigError, match=r"^activities: \[\] is not valid; expected some, or null for all$"
    ):
        TorchProfilerOptions(activities=[])


def test_without_torch_it_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported to find out."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    backend = TorchProfilerBackend(TorchProfilerOptions())
    assert backend.probe() is None
    assert "torch is not installed" in backend.missing_tool()
