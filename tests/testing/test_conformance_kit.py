"""Every check of the kit can fail: each has a backend with one fault, and its message."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pluggy
import pytest
from gpuprof._session.capture import Capture
from gpuprof._session.windows import Windows
from gpuprof.backend import boundary, loading
from gpuprof_testing import BackendConformance, _windows, _worker
from gpuprof_testing._limit import limited
from support import journal
from support.mutants import BROKEN_PARTS, MUTANTS, Mutant
from support.waiting import wait_until

SOURCE = Path(journal.__file__).read_text()
CHECKS = sorted(name for name in dir(BackendConformance) if name.startswith("test_"))
WHEEL = "test_an_installed_wheel_is_found"
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "journal-wheel"
version = "1.0"
[project.entry-points."gpuprof.backends"]
{name} = "{module}:Journal"
"""
Install = Callable[..., str]


def kit(install: Install, source: str = SOURCE, **attributes: Any) -> Any:
    """The kit on a variant of the backend, which is installed."""
    made = importlib.import_module(install(source, journal="Journal"))

    def read_labels(self: Any, file: Path) -> Counter[str]:
        return Counter(json.loads(file.read_text()))

    body = {
        "name": "journal",
        "backend": made.Journal,
        "options": {"title": "t"},
        "read_labels": read_labels,
        **attributes,
    }
    return type("TestJournal", (BackendConformance,), body)()


@pytest.fixture(autouse=True)
def _workers_find_the_backend(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", sys.path[0])


def expect_failure(case: Any, name: str, directory: Path, message: str) -> None:
    """Run a check that must fail, and tell what and how to mend it."""
    with pytest.raises(pytest.fail.Exception) as caught:
        check(case, name, directory)
    assert message in str(caught.value)
    assert "\nTo fix it: " in str(caught.value)


def check(case: Any, name: str, directory: Path) -> None:
    """Run one check, in directories of its own."""
    method = getattr(case, f"test_{name.removeprefix('test_')}")
    with pytest.MonkeyPatch.context() as patch:
        given: dict[str, Any] = {"monkeypatch": patch}
        given["shared"] = case._shared.setdefault("place", directory / "shared")
        given["tmp_path"] = directory / "own"
        for place in (given["shared"], given["tmp_path"]):
            place.mkdir(exist_ok=True)
        method(**{each: given[each] for each in inspect.signature(method).parameters})


@pytest.mark.exhaustive  # as those of nsys, rocprof-sys and torch do in tests of their own
def test_a_good_backend_passes(install: Install, tmp_path: Path) -> None:
    """Every check of the kit, on the backend that the mutants are made of."""
    case = kit(install)
    failed = {}
    for name in CHECKS:
        if name == WHEEL:
            continue
        (tmp_path / name).mkdir()
        try:
            check(case, name, tmp_path / name)
        except pytest.skip.Exception:
            continue
        except pytest.fail.Exception as error:
            failed[name] = str(error)
    assert {} == failed


READS = {
    "reports_are_checked",
    "ranges_are_read_as_they_were",
    "spans_are_where_and_when_they_were",
}
"""Checks whose faults are in hooks that read a report, and change nothing of what workers leave."""


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    """What workers have left under the first of these faults."""
    return {}


FIRST = {mutant.check: mutant for mutant in reversed(MUTANTS)}
"""The first fault of each check, which each run tries, but for one that waits out a deadline."""
del FIRST["signals_reach_the_worker"]


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            mutant, marks=() if mutant is FIRST.get(mutant.check) else pytest.mark.exhaustive
        )
        for mutant in MUTANTS
    ],
    ids=lambda mutant: f"{mutant.check}-{mutant.message.replace(' ', '_')}",
)
def test_a_broken_backend_fails_its_check(
    mutant: Mutant, install: Install, tmp_path: Path, story: dict[str, Any]
) -> None:
    """One fault, the check that is for it, and a message that says what and how to mend it."""
    assert mutant.good in SOURCE
    case = kit(install, SOURCE.replace(mutant.good, mutant.bad) + BROKEN_PARTS)
    if mutant.check in READS:
        type(case)._shared = story
    expect_failure(case, mutant.check, tmp_path, mutant.message)


@pytest.mark.parametrize("seconds", [[9.0, 6.0, 0.1], [9.0, 0.1, 6.0]])
def test_one_slow_window_is_the_machines(seconds: list[float]) -> None:
    """Another one was quick, so the tool can be."""
    _windows.expect_in_time("start_capture", seconds, 5.0)


def test_windows_that_are_all_slow_are_the_tools() -> None:
    """Whatever the first one took, which loads libraries."""
    with pytest.raises(pytest.fail.Exception, match=r"start_capture took 6\.0 s for"):
        _windows.expect_in_time("start_capture", [0.1, 6.0, 7.0], 5.0)


IMPATIENT = """
import os
from gpuprof._session import session
if "GPUPROF_WORKER" in os.environ:
    session.CLOSE_DEADLINE /= 1000
"""


def test_a_slow_machine_is_no_fault(install: Install, tmp_path: Path) -> None:
    """The kit's worker waits for a window longer than a job would, whose deadline is shortened."""
    slow = "RUNNING.append(self)", "RUNNING.append(self); threading.Event().wait(0.5)"
    check(kit(install, SOURCE.replace(*slow) + IMPATIENT), "scopes_are_captured", tmp_path)


@pytest.mark.parametrize(
    ("offered", "module", "message"),
    [
        ("elsewhere", "journal_wheel", None),
        ("elsewher", "journal_wheel", "the wheel has no entry point 'elsewhere'"),
        ("elsewhere", "jurnal_wheel", "the wheel's backend is broken"),
    ],
)
def test_a_wheel(
    offered: str, module: str, message: str | None, install: Install, tmp_path: Path
) -> None:
    """A good one is found; an entry point of another name, or to another module, is not."""
    (tmp_path / "pyproject.toml").write_text(PROJECT.format(name=offered, module=module))
    (tmp_path / "journal_wheel.py").write_text(SOURCE)
    case = kit(install, name="elsewhere", project=tmp_path)
    if message is None:
        check(case, WHEEL, tmp_path)
    else:
        expect_failure(case, WHEEL, tmp_path, message)


def test_a_project_that_makes_no_wheel(install: Install, tmp_path: Path) -> None:
    """What pip says of it is in the message."""
    (tmp_path / "pyproject.toml").write_text("[project")
    expect_failure(
        kit(install, name="elsewhere", project=tmp_path),
        WHEEL,
        tmp_path,
        f"building a wheel of {tmp_path} failed: ",
    )


OF_THE_AUTHOR: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "steps"}, "its_entry_point_leads_to_it", "cannot name a plugin"),
    ({"name": "nowhere"}, "its_entry_point_leads_to_it", "'nowhere' is not installed"),
    (
        {"name": "nsight"},
        "its_entry_point_leads_to_it",
        "leads to <class 'gpuprof_nsight.plugin.NsightBackend'>, not to",
    ),
    (
        {"refused_in_paths": "%"},
        "what_paths_cannot_hold_is_refused",
        "'%' in a path is not refused",
    ),
]


@pytest.mark.parametrize(("attributes", "name", "message"), OF_THE_AUTHOR)
def test_what_the_author_said_is_checked(
    attributes: dict[str, Any], name: str, message: str, install: Install, tmp_path: Path
) -> None:
    """A name that leads elsewhere and an undeclared limit of paths are found."""
    expect_failure(kit(install, **attributes), name, tmp_path, message)


def no_op(*_: object, **__: object) -> None:
    """What is left of a function."""


def start_again(self: Capture, window: Any, original: Callable[..., Any] = Capture.start) -> Any:
    """Forgets that the window was opened before."""
    if self.windows.entry(window.number) is not None:
        self.stop(window.number)
        self.windows = Windows()
    return original(self, window)


def raise_fault(self: Capture, name: str, error: Exception) -> str:
    """Lets a fault through to the job."""
    raise error


OF_GPUPROF: list[tuple[str, Any, str, Any, str]] = [
    (
        "a_misspelt_hook_is_an_error",
        pluggy.PluginManager,
        "check_pending",
        no_op,
        "a misspelt hook went unnoticed",
    ),
    ("the_tool_takes_little_time", _worker, "START_UP", -1e9, "s from start to end"),
    ("the_defaults_work", _worker, "IDLE", -1.0, "s in which the worker slept"),
    (
        "a_second_renderer_is_refused",
        loading,
        "BACKEND_ONLY",
        (),
        "an extra plugin with check_report was accepted",
    ),
    (
        "as_an_extra_plugin_it_keeps_to_its_part",
        loading,
        "BACKEND_ONLY",
        (),
        "accepted as an extra plugin in spite of",
    ),
    (
        "windows_are_asked_for_once",
        Capture,
        "start",
        start_again,
        "start and stop were called [2, 2] times",
    ),
    (
        "a_start_that_raised_is_ended",
        Capture,
        "stop",
        no_op,
        "stop_capture was not called after a start that raised",
    ),
    (
        "faults_are_kept_from_the_job",
        Capture,
        "_fault",
        no_op,
        "start_capture raised, and the session reported []",
    ),
    (
        "faults_are_kept_from_the_job",
        Capture,
        "_fault",
        raise_fault,
        "start_capture raised, and the job got",
    ),
    (
        "faults_are_kept_from_the_job",
        boundary,
        "belongs_to_job",
        lambda error: True,
        "start_capture raised, and the job got SystemExit",
    ),
]


@pytest.mark.parametrize(("name", "owner", "attribute", "broken", "message"), OF_GPUPROF)
def test_what_gpuprof_promises_is_checked(
    name: str,
    owner: Any,
    attribute: str,
    broken: Any,
    message: str,
    install: Install,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    """Checks of gpuprof itself fail if that part of gpuprof is broken."""
    case = kit(install)
    monkeypatch.setattr(owner, attribute, broken)
    expect_failure(case, name, tmp_path, message)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "limit", "broken", "message"),
    [
        ("the_tool_takes_little_time", "BEFORE", -1e9, "s after its launch"),
        ("files_land_as_planned", "SPACE", {"wraps": -1}, "a small worker leaves"),
    ],
)
def test_limits_are_checked(
    name: str,
    limit: str,
    broken: object,
    message: str,
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is a number of the kit's, for which the good backend fails if nothing is allowed."""
    case = kit(install)
    monkeypatch.setattr(_worker, limit, broken)
    expect_failure(case, name, tmp_path, message)


def test_every_check_has_its_mutant() -> None:
    """No check of the kit is without a proof that it can fail."""
    broken = (
        {mutant.check for mutant in MUTANTS}
        | {name for _, name, _ in OF_THE_AUTHOR}
        | {name for name, *_ in OF_GPUPROF}
    )
    assert set(CHECKS) == {f"test_{name}" for name in broken} | {WHEEL}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": ""}, "TestJournal: name or backend is missing"),
        (
            {"skip": {"speed": "slow"}},
            (
                "TestJournal.skip: 'speed' is not a check; expected one of: "
                "a_broken_tool_is_refused, "
            ),
        ),
    ],
)
def test_a_kit_that_is_filled_in_wrongly(
    attributes: dict[str, Any], message: str, install: Install
) -> None:
    """It is refused when the class is made, before any check runs."""
    with pytest.raises(TypeError, match=message):
        kit(install, **attributes)


def test_a_check_that_hangs_fails_with_the_line_that_waits() -> None:
    """No hook, and no program that one waits for, holds up the kit for ever."""
    with (
        pytest.raises(
            pytest.fail.Exception, match=r"not ended within 0.3 s: it waits in wait \(.*threading"
        ),
        limited(0.3),
    ):
        threading.Event().wait()


NEVER_ENDS = """sh", "-c", 'trap "" TERM; "$@"; while :; do sleep 0.1; done', "sh"""


def test_a_tool_that_never_ends_is_ended(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check that needs its worker fails, the second at once, and no process is left."""
    monkeypatch.setattr(_worker, "DEADLINE", 2.0)
    wraps = "[tool.path, *command.interpreter, "
    case = kit(
        install, SOURCE.replace(wraps, f'[tool.path, "{NEVER_ENDS}", *command.interpreter, ')
    )
    expect_failure(case, "a_worker_that_is_killed", tmp_path, "has not ended within 2 s")
    monkeypatch.delattr(_worker, "DEADLINE")  # nothing is started any more
    expect_failure(case, "leftovers_are_collected", tmp_path, "has not ended within 2 s")
    wait_until(lambda: not any(bytes(tmp_path) in c for c in commands()), "all have ended")


def commands() -> Iterator[bytes]:
    """The command lines of all processes; one that ends meanwhile has none."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


def test_a_pipe_beside_the_reports(install: Install, tmp_path: Path) -> None:
    """A tool may be controlled by one: whoever looks at the files does not wait for its end."""
    with_pipe = (
        "        self.lines = [self.options.title]",
        """        self.lines = [self.options.title]
        shutil.os.mkfifo(f"{worker.directory}/{worker.file_stem}.pipe-{window.number}")""",
    )
    source = SOURCE.replace(*with_pipe).replace(
        "start_capture(self, ", "start_capture(self, worker, "
    )
    check(kit(install, source), "a_worker_that_is_killed", tmp_path)


def test_a_pipe_to_a_tool_is_no_file(install: Install, tmp_path: Path) -> None:
    """Python opens it by its number, which is no name in the working directory."""
    start = "        self.lines = [self.options.title]"
    tool = "        subprocess.run(['cat'], input=b'go', stdout=subprocess.DEVNULL)"
    source = SOURCE.replace(start, f"{start}\n{tool}")
    check(kit(install, source), "each_window_leaves_a_file_of_its_own", tmp_path)


def test_a_tool_that_is_left_running_is_seen_at_once(install: Install, tmp_path: Path) -> None:
    """It has the output of the process that started it, and nobody waits for its end."""
    start = "        self.lines = [self.options.title]"
    tool = "        subprocess.Popen(['sleep', '1000'])"
    case = kit(install, SOURCE.replace(start, f"{start}\n{tool}"))
    name = "a_window_leaves_its_surroundings_alone"
    with limited(120):
        expect_failure(case, name, tmp_path, "child processes")


def test_quick_checks_come_first() -> None:
    """With `pytest -x` an author first sees the missing mark, not its consequences."""
    file = Path(__file__).parent / "test_conformance_of_none.py"
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", str(file)]
    collected = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.rpartition("::")[2] for line in collected.splitlines() if "::" in line]
    assert "test_hooks_fit_the_contract" == names[0]
    assert "test_awkward_paths_survive" == names[-1]
