"""The session, with a backend that records what it is told, and fails when it is told to."""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuprof._session.session import Session
from gpuprof._shim.row import VARIABLE, decode, encode
from gpuprof_timing import Timing, annotate, set_range_opener
from support.recorder import Recorder
from support.stand_in_events import StandInEvents

Make = Callable[..., Session]


class Stage(enum.Enum):
    """Of a job that names its scopes in one place."""

    ROLLOUT = 1


@pytest.fixture
def make(recorder: Recorder) -> Iterator[Make]:
    """Makes a session for windows at steps 2 and 5 to 6."""

    def make(
        fail: str = "",
        plugins: tuple[str, ...] = (),
        exits: str = "",
        paths: bool = False,
        **more: Any,
    ) -> Session:
        options = {"fail": fail, "exits": exits, "paths": paths}
        return Session(recorder.row(options=options, plugins=list(plugins), **more), Timing())

    yield make
    set_range_opener(None)


@pytest.fixture
def events(recorder: Recorder) -> list[str]:
    """What the recorder was told."""
    return recorder.events


@pytest.mark.parametrize("nodes", [["other-*"], []], ids=str)
def test_a_node_that_is_not_selected_captures_nothing(
    make: Make, events: list[str], nodes: list[str]
) -> None:
    """Its tree is kept. Also for a backend that puts no command in front of the worker."""
    session = make(nodes=nodes)
    session.open(1)
    with session.timing.add_time("work"):
        pass
    session.close(1)
    assert ([], ["work"], False) == (events, list(session.timing), session.snapshot()["profiled"])


def test_ranges_only_while_a_window_is_open(make: Make, events: list[str]) -> None:
    """Scopes and annotations have ranges inside the window, and none before or after."""
    session = make()
    for step in ("before", "inside", "after"):
        if step == "inside":
            session.open(1)
        with session.timing.add_time(step), annotate("note"):
            pass
        if step == "inside":
            session.close(1)
    assert ["start step-2", "range inside step-2", "range note step-2", "stop step-2"] == events
    assert ["before", "inside", "after"] == list(session.timing)


@pytest.mark.parametrize(("windows", "expected"), [([], ["probe"]), ([(1, 2, 3)], [])])
def test_an_armed_worker_looks_for_its_profiler_at_once(
    make: Make, events: list[str], windows: list[tuple[int, int, int]], expected: list[str]
) -> None:
    """An order's window then opens sooner; a planned one can wait."""
    session = make(windows=windows)
    session.write()
    assert expected == events


def test_windows_are_idempotent(make: Make, events: list[str]) -> None:
    """A window opens once and closes once; a close without an open does nothing."""
    session = make()
    assert [None] * 6 == [
        session.close(1),
        session.open(1),
        session.open(1),
        session.close(1),
        session.close(1),
        session.open(1),
    ]
    assert ["start step-2", "stop step-2"] == events


def test_a_step_number_that_comes_again_is_said(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, whichever it is: with epochs that count from 0 each of them does, at each worker.

    Opening what is open is nothing.
    """
    session = make()
    for number in (1, 1, 2, 2):
        session.open(number)
    session.close(2)
    assert [] == caplog.messages
    session.open(1)
    session.open(2)
    assert [
        "A-0: a step number that comes again is captured the first time only"
    ] == caplog.messages


def test_an_expired_open_is_ignored(make: Make, events: list[str]) -> None:
    """An expired order opens nothing and says so: this node's clock may be ahead."""
    session = make()
    expected = (
        "window step-2 is not opened: it was asked for too late, or the clocks of the nodes differ"
    )
    assert expected == session.open(1, expiry=time.time() - 1)
    assert [] == events


def test_a_fault_of_ours_is_said_and_not_raised(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong on the control thread, the step that waits for it goes on."""

    def no_disk(directory: str) -> int:
        raise OSError("no disk")

    session = make(max_bytes=1)
    monkeypatch.setattr("gpuprof._session.session.used_bytes", no_disk)
    assert "A-0: OSError: no disk" == session.open(1)
    assert session.close(1) is None


def test_opening_the_next_window_closes_the_last(make: Make, events: list[str]) -> None:
    """A close that was lost does not make two windows overlap."""
    session = make()
    session.open(1)
    session.open(2)
    assert ["start step-2", "stop step-2", "start steps-5-6"] == events


@pytest.mark.parametrize("failing", ["start", "start,stop"])
def test_a_failing_start_is_stopped_and_ends_capturing(
    make: Make, events: list[str], caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    """Its stop still runs, later windows are not tried, the tree goes on, with one warning.

    Where its stop fails too, as it must where nothing has begun, the window's reason is the first.
    """
    session = make(fail=failing)
    message = "backend: RuntimeError: start step-2 failed"
    assert message == session.open(1)
    assert str(session.open(2)).startswith(message)
    with session.timing.add_time("work"):
        pass
    assert (["start step-2", "stop step-2"], ["work"]) == (events, list(session.timing))
    assert [("failed", message), ("refused", session.snapshot()["windows"][1]["error"])] == [
        (window["state"], window["error"]) for window in session.snapshot()["windows"]
    ]
    assert f"A-0: profiling is switched off here, the job goes on: {message}" == caplog.messages[0]
    assert len(failing.split(",")) == len(caplog.messages)


@pytest.mark.parametrize("failing", ["start", "range"])
def test_a_backend_that_exits_does_not_end_the_job(make: Make, failing: str) -> None:
    """`sys.exit` in a hook or a range is a fault like any other."""
    session = make(exits=failing)
    session.open(1)
    with session.timing.add_time("work"):
        pass
    session.close(1)
    (fault,) = session.faults
    assert fault.endswith("SystemExit: 3")
    assert fault == session.open(2)
    assert ["work"] == list(session.timing)


def test_paths_of_any_kind_are_in_the_file(make: Make) -> None:
    """A `Path` does not make the session's file unwritable."""
    session = make(paths=True)
    session.open(1)
    assert session.close(1) is None
    assert ["/files/step-2"] == json.loads(Path(session.file).read_text())["windows"][0]["files"]


def test_a_failing_range_ends_ranges_and_not_the_job(make: Make, events: list[str]) -> None:
    """The first range that fails is the last one that is tried."""
    session = make(fail="range")
    session.open(1)
    for _ in range(2):
        with session.timing.add_time("work"):
            pass
    session.close(1)
    assert ["start step-2", "range work step-2", "stop step-2"] == events
    assert ["backend: RuntimeError: range work step-2 failed"] == session.faults


def test_plugins_are_stopped_in_reverse(make: Make, events: list[str]) -> None:
    """What was started last is stopped first."""
    session = make(plugins=("extra",))
    session.open(1)
    session.close(1)
    assert ["start step-2", "extra start step-2", "extra stop step-2", "stop step-2"] == events


@pytest.mark.parametrize("fail", ["", "stop"])
def test_a_plugins_files_are_no_reports_of_the_backend(make: Make, fail: str) -> None:
    """Otherwise the receipt would take them for a report that the backend has lost."""
    session = make(plugins=("extra",), fail=fail)
    session.open(1)
    session.close(1)
    (window,) = session.snapshot()["windows"]
    assert (None if fail else ["/files/step-2"]) == window["files"]
    assert ["/files/step-2.extra"] == window["extras"]


def test_a_failing_plugin_is_switched_off_alone(make: Make, events: list[str]) -> None:
    """The backend goes on capturing without it."""
    session = make(plugins=("broken_extra",))
    for number in (1, 2):
        session.open(number)
        session.close(number)
    assert [
        "start step-2",
        "extra start step-2",
        "extra stop step-2",
        "stop step-2",
        "start steps-5-6",
        "stop steps-5-6",
    ] == events


def test_a_plugin_that_fails_too_does_not_hide_the_backends_fault(
    make: Make, events: list[str]
) -> None:
    """No later window is tried."""
    session = make(fail="start", plugins=("broken_extra",))
    session.open(1)
    session.open(2)
    assert ["start step-2", "extra start step-2", "extra stop step-2", "stop step-2"] == events


def test_a_failing_stop_does_not_keep_others_from_stopping(make: Make, events: list[str]) -> None:
    """Every stop is tried."""
    session = make(fail="stop", plugins=("extra",))
    session.open(1)
    assert "backend: RuntimeError: stop step-2 failed" == session.close(1)
    assert ["start step-2", "extra start step-2", "extra stop step-2", "stop step-2"] == events


def test_the_file_says_everything(make: Make, events: list[str]) -> None:
    """Windows, their files and the tree are in the session's file as soon as a window is closed."""
    session = make()
    with session.timing.add_time("work"):
        session.open(1)
    session.close(1)
    content = json.loads(Path(session.file).read_text())
    assert ("A", 0, "1") == (content["group"], content["rank"], content["incarnation"])
    assert [("step-2", "closed", ["/files/step-2"], None)] == [
        (window["label"], window["state"], window["files"], window["error"])
        for window in content["windows"]
    ]
    assert ["work"] == [node["key"] for node in content["timing"]["children"]]


def test_a_second_start_has_names_of_its_own(make: Make, events: list[str], tmp_path: Path) -> None:
    """A process of the same identity, once the first is gone, is a restart."""
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    claim = {"incarnation": 1, "pid": int(dead.stdout), "start": "1", "parent": 1}
    private = tmp_path / "run" / os.uname().nodename / ".gpuprof"
    private.mkdir(parents=True)
    (private / "A-0.claim").write_text(json.dumps([claim]))
    assert "A-0.start-2.json" == Path(make().file).name


def test_a_task_of_an_actor_is_one_of_the_tasks(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts its process with the environment of the actor."""
    make()
    monkeypatch.setattr(sys, "argv", ["/ray/default_worker.py"])
    assert f"Tasks-0.child-{os.getpid()}" == make(tasks="Tasks").name


def test_a_second_process_while_the_first_lives_is_a_child(make: Make, events: list[str]) -> None:
    """Whoever comes second has a name of its own, and its windows never open."""
    make()
    child = make()
    assert f"A-0.child-{os.getpid()}" == child.name
    assert child.open(1) is None
    assert [] == events


def test_an_unwrapped_worker_opens_nothing(
    make: Make, events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Where the shim could not run the profiler, the session says why and captures nothing."""
    session = make(unwrapped="nsys does not start")
    assert "nsys does not start" == session.open(1)
    assert [] == events
    assert ["A-0 is not profiled: nsys does not start"] == caplog.messages


def test_a_directory_that_vanishes_is_not_the_jobs_problem(
    make: Make, events: list[str], tmp_path: Path
) -> None:
    """A file that cannot be written is said once."""
    session = make()
    session.write()  # the first one runs on the control thread
    session.file = str(tmp_path / "site" / next((tmp_path / "site").glob("*.py")).name / "x.json")
    for number in (1, 2):
        session.open(number)
        session.close(number)
    assert 1 == len(session.faults)
    assert "cannot be written" in session.faults[0]


def test_a_session_leaves_the_device_alone(recorder: Recorder, events: list[str]) -> None:
    """Only the end reads the GPU's times.

    A call from the control thread would break the job's capture of a CUDA graph, or hang.
    """
    device = StandInEvents()
    session = Session(recorder.row(), Timing(device_events=device))
    with session.timing.add_time("launch", device="cuda"):
        device.now += 7
    calls = [*device.log, device.asked]
    device.passed = 1
    session.open(1)
    session.close(1)
    session.write()
    assert calls == [*device.log, device.asked]
    assert 0 == json.loads(Path(session.file).read_text())["timing"]["children"][0]["device_total"]
    session.end()
    assert ([], 7) == (
        device.waited,
        json.loads(Path(session.file).read_text())["timing"]["children"][0]["device_total"],
    )


def test_keys_that_are_no_strings_are_in_the_file(make: Make) -> None:
    """As a member of an `Enum`, which JSON does not have."""
    session = make()
    with session.timing.add_time(Stage.ROLLOUT):  # type: ignore[arg-type]
        pass
    session.write()
    content = json.loads(Path(session.file).read_text())
    assert ([], ["Stage.ROLLOUT"]) == (
        session.faults,
        [node["key"] for node in content["timing"]["children"]],
    )


def test_a_file_that_has_no_form_is_not_the_jobs_problem(
    make: Make, events: list[str], tmp_path: Path
) -> None:
    """The error is logged, windows go on, and no half-written file is left."""
    session = make()
    session.write()
    session.row["group"] = object()
    session.write()
    assert [None, None] == [session.open(2), session.close(2)]
    assert ["start steps-5-6", "stop steps-5-6"] == events
    assert [
        (
            f"{session.file} cannot be written: TypeError: Object of type object is not JSON "
            "serializable"
        )
    ] == session.faults
    assert [] == list(tmp_path.rglob("*.tmp"))


def test_a_row_of_another_version_is_refused() -> None:
    """The sentence says which versions, and what to do."""
    expected = (
        "GPUPROF_WORKER has version 2, expected 1: install the same release of gpuprof here and "
        "where the job is launched"
    )
    with pytest.raises(ValueError, match=f"^{expected}$"):
        decode(encode({"version": 2}))


@pytest.mark.parametrize("value", ["%%%", "bm8=", "W10="])
def test_a_value_that_is_no_row_is_refused(value: str) -> None:
    """It is not base64, not JSON, not a mapping."""
    with pytest.raises(ValueError, match=r"^GPUPROF_WORKER is not a row of a plan"):
        decode(value)


def test_a_worker_with_a_row_of_another_version_goes_on_without_profiling() -> None:
    """It says so in one line, and its tree works."""
    program = "import gpuprof; gpuprof.timing(); print(gpuprof.timing().name.split()[0])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, VARIABLE: encode({"version": 2})},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stderr.splitlines()
    assert "GPUPROF_WORKER has version 2, expected 1" in line
    assert "Process\n" == done.stdout


def test_a_process_that_has_written_all_says_so(make: Make) -> None:
    """A killed one could not have, which is how the end of the run tells them apart."""
    session = make()
    assert not session.snapshot()["over"]
    session.end()
    assert json.loads(Path(session.file).read_text())["over"]
