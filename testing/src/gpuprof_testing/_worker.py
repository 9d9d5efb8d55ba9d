"""Checks with real workers: processes under the rendered command, and their files.

Programs take their time to start, so several checks look at one run.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import attrs
import pytest
import yaml
from gpuprof._artifacts import close
from gpuprof._artifacts.receipt import ReceiptRow
from gpuprof._artifacts.records import NodeRecord, Start, is_own
from gpuprof._artifacts.rows import receipt_rows
from gpuprof._artifacts.settle import captured_windows, here, settle_node
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner, common_tool
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim import PROGRAM
from gpuprof._shim.processes import process_start
from gpuprof._shim.row import KEEP_EXIT_CODE, VARIABLE, encode
from gpuprof.backend import contract
from gpuprof.backend.boundary import Hooks
from gpuprof.backend.types import Collected, RangeTimes, RecordedTrack, Tool, Window, Worker
from gpuprof.errors import ConfigError, ToolError

from gpuprof_testing import _program, _surroundings
from gpuprof_testing._case import OF_THE_TOOL, WINDOWS, Case, fail
from gpuprof_testing._hooks import SOFT, TAKEN, expect_nothing_else

FLAGS = ("-X", "dev", "-O")
AWKWARD = 'it\'s a "$HOME" \N{SNOWMAN} 100% %s {} {kit}'
BEHIND_THE_SHIM = (sys.executable, "-S", "-E", PROGRAM)
DEADLINE = 180.0
_BEFORE, _AFTER = int(1800e9), int(60e9)
"""Nanoseconds that a span may start before and after its file is written: not a time zone's."""
_COARSE, _OFF = int(2e6), int(5e8)
"""Nanoseconds by which a duration, and a moment, may differ from what the worker has measured."""
START_UP, BEFORE = 15.0, 2.0
"""Seconds that a tool may add to a program: in all, and before the program begins.

The page "Write a backend" has the same.
"""
SPACE = {"env_only": 2**22}
"""Bytes that a small worker may leave, by capability: variables reach every program of the job.

The page "Write a backend" has the same.
"""
IDLE = 0.5
"""Processors that a tool may use while the worker sleeps in a window."""
_OF_A_BUSY_MACHINE = 30
"""How many times as long as a program without gpuprof the worker may take in addition."""
_OF_A_BUSY_START = 3
"""The same of its start."""
UMASK = 0o027
_OF_THE_CALLER = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "LC_ALL", "PYTEST_CURRENT_TEST")
"""Variables that a worker does without, so that a tool that sets them shows."""
OWN = (".json", ".log", ".ledger")
"""How names of gpuprof's own files in a run's directory end."""
OWN_OF_START = tuple(f".start-{start}{end}" for start in (1, 2) for end in OWN)
_STARTS = ("Kit-0.start-1", "Kit-1.start-1", "Kit-0.start-2")
GROUPS = ("session", "process group")
SENTINELS = {
    "KIT_EMPTY": "",
    "VIRTUAL_ENV": "/kit",
    "LD_LIBRARY_PATH": "/kit/lib",
    "KIT_TEXT": "a  b\nc $HOME \N{SNOWMAN}",
    "KIT_EQUALS": "a=b",
    "TZ": "KIT-5:45",  # east of UTC, and by no whole hour
}
IGNORED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGCHLD,
)
_KEEP = "with the worker's exit code, or render *command.keep_exit_code in front of a script"


@attrs.frozen
class Ran:
    """A worker that has ended.

    Args:
        seen: its own report: interpreter, flags, arguments, module name, process.
        stdout: its standard output.
        stderr: its standard error.
        exit_code: the exit code that its parent got.
        seconds: how long it took.
        before: how many seconds of that its launcher and the tool took until it began.
        around: what it had open after each window, and what its programs inherited.
    """

    planned: PlannedWorker
    seen: dict[str, Any] | None
    stdout: str
    stderr: str
    exit_code: int
    seconds: float
    before: float
    around: dict[str, Any] = attrs.field(factory=dict)

    @property
    def output(self) -> str:
        """The end of all that it wrote."""
        return (self.stdout + self.stderr).strip()[-2000:]


@attrs.frozen
class Story:
    """Two ranks, and a restart of the first, in one directory.

    Args:
        planner: of their run.
        ran: the workers in the order of their starts.
        rows: the receipt's rows, by the name of the worker.
        record: what the node has.
        decoys: files of others, by path, with their content; or where a link leads to.
        changed: the decoys that were changed by settling.
        lost_logs: the workers' logs that were removed or emptied by settling.
        settled: the files after settling.
        again: the files after settling a second time.
        second: what the second collection returned.
    """

    planner: Planner
    ran: list[Ran]
    rows: dict[str, list[ReceiptRow]]
    record: NodeRecord
    changed: list[str]
    lost_logs: list[str]
    settled: dict[str, str]
    again: dict[str, str]
    second: list[str]

    @property
    def files(self) -> list[str]:
        """The complete files."""
        rows = [row for rows in self.rows.values() for row in rows]
        return list(dict.fromkeys(row.file for row in rows if row.file and row.state == "complete"))


@attrs.frozen
class Killed:
    """A worker that was killed, and its files before they were collected.

    Args:
        planner: of its run.
        ran: the worker.
        rows: the receipt's rows.
        pristine: a copy of its directory before anything was collected.
        worker: as it started.
        windows: those that were opened.
        named: the files that have had their names before, by the window's number.
        problems: what collecting says that it could not save.
        last: the files below its output directory just before it was killed.
    """

    planner: Planner
    ran: Ran
    rows: list[ReceiptRow]
    pristine: Path
    worker: Worker
    windows: tuple[Window, ...]
    named: dict[int, list[str]]
    problems: list[str]
    last: list[str]

    def copy(self, name: str) -> Path:
        """Where the copy of this name is."""
        return self.pristine.parent / name

    def collect(
        self,
        case: Case,
        name: str,
        *,
        ended: bool = True,
        windows: tuple[Window, ...] | None = None,
        disk: AbstractContextManager[None] | None = None,
        **changes: Any,
    ) -> Collected | Exception:
        """What `collect_files` returns, or raises, in another copy of the directory."""
        place = self.copy(name)
        shutil.copytree(self.pristine, place, symlinks=True)
        scratch = place / _SCRATCH
        scratch.mkdir()
        (scratch / "unfinished").write_text("something")
        more = {"windows": changes["worker_windows"]} if "worker_windows" in changes else {}
        if "pid" in changes:
            more["pid"] = changes["pid"]
        files = {
            number: [str(place / os.path.basename(path)) for path in paths]
            for number, paths in self.named.items()
        }
        hooks = case._hooks()
        try:
            with disk or nullcontext():
                collection = hooks.hook.collect_files(
                    worker=attrs.evolve(self.worker, directory=str(place), **more),
                    windows=self.windows if windows is None else windows,
                    files=files,
                    ended=ended,
                    scratch=str(scratch) if name == "like [this]" else "",
                )
        except Exception as error:
            return error
        return collection or Collected()


class WorkerChecks(Case):
    """Checks that need the tool, if the backend has one; skipped without it."""

    def test_the_worker_is_what_it_would_be(self, tmp_path: Path) -> None:
        """The worker keeps its interpreter, flags and arguments, and is the main program."""
        arguments = ["a b", " a ", "'", '"', "\\", "$HOME", "%p", "{node}", "*", "\N{SNOWMAN}"]
        arguments += ["--help", "--verbose", "--", "-", "--", ""]
        ran = self._run(tmp_path, "see", arguments)
        usual_state = self._without(tmp_path, arguments)
        state = _seen(ran)
        for name, what in (
            ("executable", "sys.executable"),
            ("flags", "sys.flags"),
            ("argv", "sys.argv"),
            ("name", "__name__"),
            ("path", "sys.path"),
        ):
            value = usual_state[name]
            # a tool may have a package of its own
            if state[name] != value and (name != "path" or not set(value) <= set(state[name])):
                fail(
                    f"{what} is {state[name]!r}; without gpuprof it is {value!r}",
                    "render [*prefix, *command.interpreter, *command.arguments] and change none of "
                    "the words",
                )

    def test_arguments_need_not_be_utf_8(self, tmp_path: Path) -> None:
        """An argument of other bytes than UTF-8's, as file names may have, reaches the worker."""
        argument = os.fsdecode(b"caf\xe9")
        ran = self._run(tmp_path, "see", [argument])
        if ran.seen is None or ran.seen["argv"][-1] != argument:
            fail(
                f"the worker's argument {argument!r} is "
                f"{ran.seen['argv'][-1] if ran.seen else 'lost: it did not run'!r}; {ran.output}",
                "pass arguments on as bytes: os.fsencode and os.fsdecode keep them",
            )

    def test_the_process_is_as_the_launcher_made_it(self, shared: Path) -> None:
        """The worker keeps umask, signals, limits, directory, streams and niceness.

        What gpuprof cannot restore is left out: additional open files.
        """
        story = self._story(shared)
        ran = story.ran[0]
        usual = os.umask(UMASK)
        try:
            usual_state = self._without(shared / "story", [], launcher=_prepare_unusually)
        finally:
            os.umask(usual)
        state = _seen(ran)
        for name, value in usual_state["process"].items():
            actual = state["process"][name]
            if name in GROUPS:
                continue
            if name in ("stdout", "stderr"):
                actual, value = (Path(path).name.split(".")[-1] for path in (actual, value))
            if actual != value:
                fail(
                    f"the worker's {name}: {actual!r}; without gpuprof {value!r}",
                    "change nothing of the process, or render [*prefix, *command.interpreter, …], "
                    "where gpuprof restores the umask and ignored signals",
                )
        for file in (row.file for row in story.rows.get("Kit-0", ()) if row.file):
            mode = os.stat(file).st_mode & 0o777 if os.path.exists(file) else 0
            if mode & UMASK or not mode & 0o400:
                fail(
                    f"{file} has mode {mode:04o}, which the umask {UMASK:04o} forbids",
                    "give finished files their names with gpuprof.backend.move",
                )
            if not mode & 0o040:
                fail(
                    f"{file} has mode {mode:04o}; the umask {UMASK:04o} lets its group read it",
                    "make it with open, not with tempfile, whose files are private",
                )

    def test_the_worker_stays_in_its_group(self, shared: Path) -> None:
        """The worker stays in its launcher's session and process group, as for Ctrl-C."""
        state = _seen(self._story(shared).ran[0])["process"]
        usual_state = self._without(shared / "story", [], launcher=_prepare_unusually)
        for name in GROUPS:
            if state[name] != usual_state["process"][name]:
                fail(
                    f"the worker has a {name} of its own",
                    "start it without setsid, setpgid or start_new_session",
                )

    def test_the_environment_is_the_jobs(self, shared: Path) -> None:
        """No variable of the job is lost or changed, and the tool adds none that others read."""
        ran = self._story(shared).ran[0]
        environment = _seen(ran)["environment"]
        usual_environment = self._without(shared / "story", [], launcher=_prepare_unusually)[
            "environment"
        ]
        left_out = {
            VARIABLE,
            "TMPDIR",
            "LC_CTYPE",
            "_",
            "SHLVL",
            "PWD",
            "OLDPWD",
            "PYTEST_CURRENT_TEST",
        }
        own_names = set(ran.planned.environment)
        for name in sorted({*environment, *usual_environment} - left_out - own_names):
            was, now = usual_environment.get(name), environment.get(name)
            extends = name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PATH")
            if was == now or (extends and now is not None and (was or "") in now):
                continue
            if was is not None or TAKEN.fullmatch(name):
                fail(
                    f"the worker's variable {name} is {now!r}; without gpuprof {was!r}",
                    "change no variable of the job's; the tool is to pass on what it gets",
                )

    def test_the_output_is_the_jobs(self, shared: Path) -> None:
        """Standard output and error each hold exactly what the worker wrote."""
        for ran in self._story(shared).ran:
            if ran.stdout != f"{_program.SAID}\n":
                fail(
                    f"the worker wrote {_program.SAID!r} to stdout, where its launcher got "
                    f"{ran.stdout[-500:]!r}",
                    "pass both streams on, and write what the tool says to worker.log_file",
                )
            lines = [line for line in ran.stderr.splitlines() if not _is_noise(line)]
            if lines != [_program.COMPLAINED]:
                fail(
                    f"the worker wrote {_program.COMPLAINED!r} to stderr, where its launcher got "
                    f"{ran.stderr[-500:]!r}",
                    "pass both streams on, and write what the tool says to worker.log_file",
                )

    def test_the_tool_takes_little_time(self, shared: Path, tmp_path: Path) -> None:
        """Start and end of the tool add a limited time to the program's own."""
        story = self._story(shared).ran
        began = time.monotonic()
        usual = self._without(shared / "story", [])
        limit = START_UP + _OF_A_BUSY_MACHINE * (time.monotonic() - began)
        soon = BEFORE + _OF_A_BUSY_START * (usual["began"] - began)
        # those ran beside each other, and perhaps beside much else
        runs = iter(range(2))
        while min(ran.seconds for ran in story) > limit or min(ran.before for ran in story) > soon:
            if (number := next(runs, None)) is None:
                break
            story = [*story, self._run(tmp_path / str(number), "work", [])]
        before = min(ran.before for ran in story)
        if before > soon:
            fail(
                f"a worker began {before:.1f} s after its launch; the limit is {soon:.1f} s",
                "let the tool start the worker at once, and do what takes long in probe, or beside "
                "the worker",
            )
        seconds = min(ran.seconds for ran in story)
        if seconds > limit:
            fail(
                f"a worker took {seconds:.1f} s from start to end; the limit is {limit:.1f} s",
                "let the tool start and end faster, or do what takes long in collect_files",
            )

    def test_the_defaults_work(self, tmp_path: Path) -> None:
        """Without any option a window is recorded, and a tool sleeps while the worker does."""
        if not self._acts():
            pytest.skip("the backend does nothing to a worker")
        case = type("Defaults", (type(self),), {"options": {}})()
        wrote, token = tmp_path / "spent", {"KIT_TOKEN": uuid.uuid4().hex}
        planner, _ = case._planner(tmp_path)
        ran = case._run(tmp_path, "idle", [str(wrote)], environment=token)
        record, rows_by_worker = case._settled(planner, [ran.planned])
        _seen(ran)
        for start in record.starts:
            _expect_no_fault(start)
        rows = [row for row in rows_by_worker["Kit-0"] if row.window == WINDOWS[0].label]
        if rows or self._implements("expected_files"):
            case._expect_rows(rows, "a worker of a section without options", ran.output)
        for when, (spent, seconds) in json.loads(wrote.read_text()).items():
            if spent > IDLE * seconds:
                fail(
                    f"in {seconds:.1f} s in which the worker slept {when}, it and the tool used a "
                    f"processor for {spent:.1f} s",
                    "let the tool wait between two looks at the worker, and choose defaults that "
                    "do",
                )

    def test_the_exit_code_passes(self, tmp_path: Path) -> None:
        """The worker's parent gets the worker's exit code, and never takes a crash for success."""
        ends = {
            "0": (0,), "7": (7,), "200": (200,), "raise": (1,), "_5": (5,),
            "SIGSEGV": (-11, 139), "SIGKILL": (-9, 137), "SIGTERM": (-15, 143),
        }  # fmt: skip
        ran = _together({how: partial(self._run, tmp_path / how, "end", [how]) for how in ends})
        for how, codes in ends.items():
            run = ran[how]
            loses = KEEP_EXIT_CODE in run.planned.command
            if loses and (how[0] == "_" or how.startswith("SIG")):  # leaves no exit code
                codes = tuple(range(-64, 0)) + tuple(range(1, 256))
            if run.exit_code not in codes:
                what = "was killed by " if how.startswith("SIG") else "exited with "
                fail(
                    f"the worker {what}{how.lstrip('_')}, but the exit code is {run.exit_code}",
                    f"end {_KEEP} that the tool runs; for a signal end by it, or with 128 and its "
                    "number",
                )
        if KEEP_EXIT_CODE in ran["7"].planned.command:
            without = self._run(tmp_path / "without", "end", ["7"], change=_without_keeping)
            if without.exit_code == 7:
                fail(
                    "the command has keep_exit_code, and the exit code passes without it as well",
                    "leave *command.keep_exit_code out: with it the end by a signal is lost",
                )
        self._expect_code_of_no_script(tmp_path)

    def _expect_code_of_no_script(self, directory: Path) -> None:
        module = directory / "kit_module.py"
        module.write_text("raise SystemExit(7)")
        for words in (["-c", "raise SystemExit(7)"], ["-m", "kit_module"]):
            with suppress(ConfigError):
                planner, tool = self._planner(directory)
                tool_of_all = common_tool([tool]) if tool else None
                worker_plan = planner.worker("Kit", 0, script=False, tool=tool_of_all)
                if not worker_plan.wrapped:
                    return
                row = planner.row(worker_plan, [sys.executable], tool)
                code = self._start(
                    [*BEHIND_THE_SHIM, *words], {VARIABLE: encode(row)}, directory
                ).returncode
                if code != 7:
                    fail(
                        f"python {words[0]} … exited with 7, but the exit code is {code}",
                        "refuse commands that are not scripts: if not command.script: raise "
                        "gpuprof.errors.ConfigError([…])",
                    )
                continue
            self._expect_a_refusal_to_be_right(directory / f"as a script {words[0]}", words)

    def _expect_a_refusal_to_be_right(self, directory: Path, words: list[str]) -> None:
        """Fail if the command of a script runs, and records, what the backend refuses."""
        directory.mkdir()
        planner, tool = self._planner(directory, {"steps": None})
        worker_plan = planner.worker("Kit", 0, tool=common_tool([tool]) if tool else None)
        if not worker_plan.wrapped or KEEP_EXIT_CODE in worker_plan.command:
            return
        variables = {VARIABLE: encode(planner.row(worker_plan, [sys.executable], tool))}
        process = self._start([*BEHIND_THE_SHIM, *words], variables, directory.parent)
        _, rows = self._settled(planner, [worker_plan])
        states = [row.state for row in rows["Kit-0"]]
        if process.returncode == 7 and states and set(states) == {"complete"}:
            fail(
                f"python {words[0]} … is refused, though the tool runs and records it as well",
                "refuse only what the tool cannot run",
            )

    def test_another_program_runs_or_is_refused(self, tmp_path: Path) -> None:
        """A program other than Python runs unchanged or is refused before it starts."""
        if not self._implements("render_command") and not self._implements("inject_env"):
            pytest.skip("the backend has neither render_command nor inject_env")
        output = tmp_path / "seen"
        with suppress(ConfigError):
            planner, tool = self._planner(tmp_path, {"steps": None})
            worker_plan = planner.worker(
                "Kit", 0, script=False, python=False, tool=common_tool([tool]) if tool else None
            )
            if not worker_plan.wrapped:
                return
            variables = {VARIABLE: encode(planner.row(worker_plan, ["sh"], tool))}
            words = ["-c", _SCRIPT, str(output), "ran"]
            process = self._start([*BEHIND_THE_SHIM, *words], variables, tmp_path)
            state = f"{output}.state"
            if not output.exists() or output.read_text() != "ran\n":
                fail(
                    "sh -c … did not run unchanged: "
                    f"{(process.stdout + process.stderr).strip()[-2000:]}",
                    "put nothing between *command.interpreter and *command.arguments, or refuse "
                    "other programs: if not command.python: raise gpuprof.errors.ConfigError([…])",
                )
            if process.returncode != 6:
                fail(f"sh exited with 6, but the exit code is {process.returncode}", f"end {_KEEP}")
            _, rows = self._settled(planner, [worker_plan])
            self._expect_rows(rows["Kit-0"], "sh -c …, a program that never uses gpuprof", "")
            actual = _state(Path(state))
            self._start(["sh", *words], {}, tmp_path)
            usual_state = _state(Path(state))
            for name, value in usual_state.items():
                if actual.get(name) != value:
                    fail(
                        f"a program has {name} {actual.get(name, 0):#o}; without gpuprof it has "
                        f"{value:#o}",
                        "restore umask and signals, SIGPIPE among them, before it starts",
                    )
            return
        directory = tmp_path / "as Python"
        directory.mkdir()
        planner, tool = self._planner(directory, {"steps": None})
        worker_plan = planner.worker("Kit", 0, tool=common_tool([tool]) if tool else None)
        if worker_plan.wrapped and KEEP_EXIT_CODE not in worker_plan.command:
            variables = {VARIABLE: encode(planner.row(worker_plan, ["sh"], tool))}
            words = ["-c", _SCRIPT, str(output), "ran"]
            process = self._start([*BEHIND_THE_SHIM, *words], variables, tmp_path)
            _, rows = self._settled(planner, [worker_plan])
            states = {row.state for row in rows["Kit-0"]}
            if process.returncode == 6 and output.exists() and states == {"complete"}:
                fail(
                    "sh -c … is refused, though the tool runs and records it as well",
                    "refuse only what the tool cannot run",
                )

    def test_signals_reach_the_worker(self, tmp_path: Path) -> None:
        """Each signal reaches the worker as it is, and it has the time to clean up."""
        usual_lines = ["ready", "SIGINT", "SIGUSR1", "SIGHUP", "SIGTERM", "cleaned up"]
        try:
            planner, tool = self._planner(tmp_path)
        except ConfigError:
            return
        worker_plan = planner.worker("Kit", 0, tool=common_tool([tool]) if tool else None)
        script, report = self._prepare(tmp_path)
        log = tmp_path / "signals"
        words = [str(script), str(report), "wait", str(log)]
        start = BEHIND_THE_SHIM if worker_plan.wrapped else (sys.executable,)
        row = planner.row(worker_plan, [sys.executable], tool)
        with open(os.devnull) as null, (tmp_path / "said").open("w") as output:
            worker = subprocess.Popen(
                [*start, *words],
                env={**os.environ, VARIABLE: encode(row)},
                cwd=tmp_path,
                stdin=null,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            _wait_for(log, "ready", worker)
            os.killpg(worker.pid, signal.SIGINT)  # as a terminal does
            _wait_for(log, "SIGINT", worker)
            time.sleep(0.3)
            for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM):
                worker.send_signal(number)
                _wait_for(log, number.name, worker)
            with suppress(subprocess.TimeoutExpired):
                worker.wait(DEADLINE / 6)
            lines = list(dict.fromkeys(log.read_text().split("\n")))
            lines = [line for line in lines if line]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            self._settled(planner, [worker_plan])
        if lines != usual_lines:
            fail(
                f"the worker noted {', '.join(lines)}; expected {', '.join(usual_lines)}",
                "pass each signal on to the worker as it is, and wait for its end",
            )

    def test_the_files_hold_what_was_captured(self, shared: Path) -> None:
        """Each window leaves the planned file, complete and with every range of its step."""
        story = self._story(shared)
        ran = story.ran[0]
        remedy = (
            "name each window's file in expected_files, or return it from stop_capture or "
            "collect_files"
        )
        for name, rows in story.rows.items():
            self._expect_rows(rows, f"worker {name}", ran.output, remedy)
        for start in story.record.starts:
            problems = start.settled["problems"] if start.settled else []
            if problems:
                fail(
                    f"all was collected, and collect_files says of it: {problems[0]}",
                    "return a problem only of what could not be saved",
                )
            _expect_no_fault(start)
        numbers = [window.number for window in WINDOWS if window.number not in ran.planned.files]
        if numbers and self._implements("expected_files"):
            fail(
                f"the plan has no file for window {numbers[0]}",
                "return a file for each of the given windows from expected_files",
            )
        for rows in story.rows.values():
            self._expect_ranges(rows)

    def _expect_ranges(self, rows: list[ReceiptRow]) -> None:
        for row in rows:
            labels = self.read_labels(Path(str(row.file)))
            if labels is None:
                continue
            (window,) = (window for window in WINDOWS if window.label == row.window)
            sharing = sum(other.file == row.file for other in rows)
            right_counts = _program.expected_labels(window.start or 0, sharing)
            counts = {label: labels.get(label, 0) for label in right_counts}
            if counts != right_counts:
                different = {
                    label: count for label, count in counts.items() if count != right_counts[label]
                }
                fail(
                    f"{row.file} has the ranges {different}; the worker opened "
                    f"{ {label: right_counts[label] for label in different} }",
                    "record each range once, under its name, in every thread and task",
                )
            strangers = [
                label
                for step in range(5)
                if step != window.start
                for label in (f"kit/outer-{step}", f"kit/inner-{step}")
                if label in labels
            ]
            if strangers and sharing == 1:
                fail(
                    f"{row.file}, of {row.window}, has the range {strangers[0]} of another step",
                    "record from start_capture to stop_capture",
                )

    def test_restarts_and_ranks_keep_their_files(self, shared: Path) -> None:
        """Two ranks at once and a restart leave a file each for every window."""
        story = self._story(shared)
        owners: dict[str, str] = {}
        for name, rows in story.rows.items():
            starts = 2 if name == "Kit-0" else 1
            for label in sorted({row.window for row in rows}):
                files = [row.file for row in rows if row.window == label]
                if len(set(files)) != starts or len(files) != starts:
                    fail(
                        f"{starts} starts of {name} captured {label} and left "
                        f"{len(set(files))} of {starts} files: {files}",
                        "put worker.file_stem into the names of intermediate files, and name "
                        "finished ones with gpuprof.backend.move",
                    )
            for row in rows:
                if owners.setdefault(str(row.file), name) != name:
                    fail(
                        f"{row.file} is {owners[str(row.file)]}'s and {name}'s",
                        "begin names of files with worker.final_stem(window)",
                    )

    def test_files_land_as_planned(self, shared: Path) -> None:
        """The first start's files have the planned names, and no others are left."""
        story = self._story(shared)
        for ran in story.ran[:2]:
            worker = ran.planned.worker
            rows = story.rows.get(worker.name, ())
            names = {row.file and os.path.basename(row.file) for row in rows}
            for window, file in ran.planned.files.items():
                name = os.path.basename(_filled(file, story.record))
                if name not in names:
                    fail(
                        f"window {window} of {worker.name} is planned in {name}; there are "
                        f"{', '.join(sorted(filter(None, names)))}",
                        "name both after the window: worker.final_stem(window), with the window, "
                        "in expected_files and in stop_capture or collect_files",
                    )
        report_names = {os.path.basename(file) for file in story.files}
        space = sum(os.path.getsize(file) for file in story.files) // len(story.ran)
        limit = SPACE.get(str(contract.capability(self.backend)))
        if limit is not None and space > limit:
            fail(
                f"a small worker leaves {space} bytes; the limit is {limit}",
                "record less: the variables act on every program that the job starts, for its "
                "whole life",
            )
        strangers = sorted(
            name for name in story.settled if name not in report_names and _is_the_tools(name)
        )
        # an index of the reports may stay beside them
        suffixes = {".json", *(Path(name).suffix for name in report_names)}
        leftovers = [name for name in strangers if Path(name).suffix not in suffixes]
        if leftovers and report_names:
            fail(
                f"{leftovers[0]} is left beside the reports",
                "move finished files with gpuprof.backend.move, and remove intermediate ones",
            )

    def test_windows_leave_nothing_in_the_worker(self, shared: Path) -> None:
        """A second window leaves no more files, threads or processes than the first one did."""
        for ran in self._story(shared).ran:
            first, second = (dict(ran.around.get(step, ())) for step in ("2", "4"))
            if not first or not second:
                continue
            for what, count in second.pop("file").items():
                if count > first["file"].get(what, 0):
                    fail(
                        f"after the second window the worker has one more open {what}",
                        "close in stop_capture what start_capture has opened",
                    )
            for what, count in second.items():
                if count > first[what]:
                    fail(
                        f"after the second window the worker has one more {what}",
                        "end or remove in stop_capture what start_capture has started or made",
                    )

    def test_programs_inherit_nothing_of_the_tool(self, shared: Path) -> None:
        """A program that the job starts gets no open file of the tool's."""
        for ran in self._story(shared).ran:
            # the loader itself keeps a file open where a backend of variables only asks for it
            at_start = (
                [("from its start", "at start")] if self._implements("render_command") else []
            )
            for when, key in (*at_start, ("in a window", "inherited")):
                for path in ran.around.get(key, ()):
                    fail(
                        f"programs of the job inherit {path}, which is open {when}",
                        "open it with O_CLOEXEC, as Python does",
                    )

    def test_servers_of_the_job_live_on(self, tmp_path: Path) -> None:
        """Processes that the job leaves running live on, unawaited; the tool leaves none.

        A process that a launcher leaves behind may hold its output open.
        """
        if not self._implements("render_command"):
            pytest.skip("the backend has no render_command")
        number_file = tmp_path / "server"
        token = uuid.uuid4().hex
        ran = self._run(tmp_path, "leave", [str(number_file)], environment={"KIT_TOKEN": token})
        _seen(ran)
        server = int(number_file.read_text())
        try:
            lives = _command_of(server) == "sleep"
        finally:
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        if ran.seconds > _A_SERVERS_LIFE or not lives:
            what = "waits for" if ran.seconds > _A_SERVERS_LIFE else "ends"
            fail(
                f"the tool {what} a process that the worker has left running",
                "wait for the worker itself only, and leave its children alone",
            )
        deadline = time.monotonic() + _A_TOOLS_END
        while (leftovers := _with_token(token)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if leftovers:
            fail(
                f"the tool has left {_command_of(leftovers[0])} running",
                "end with the worker, and leave no process behind",
            )

    def test_a_report_outlives_the_workers_group(self, tmp_path: Path) -> None:
        """A report is whole though the worker's process group is killed at its end, as on Ray."""
        if not self._acts():
            pytest.skip("the backend does nothing to a worker")
        planner, _ = self._planner(tmp_path)
        end = tmp_path / "end"
        with ThreadPoolExecutor(1) as pool:
            run = partial(self._run, tmp_path, "linger", [str(end)], launcher=os.setsid)
            future = pool.submit(run)
            last_file = tmp_path / "seen.json.around"
            _wait_until(lambda: last_file.exists() or future.done())
            if not future.done():
                state = json.loads((tmp_path / "seen.json").read_text())
                worker, group = state["pid"], state["process"]["process group"]
                for pid in {*_of_group(group)} - {worker}:  # nothing of it is too quick
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                end.touch()
                _wait_until(lambda: process_start(worker) is None)
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            ran = future.result()
        plan = {("Kit", 0): ran.planned} if ran.planned.profiled else {}

        def look(give_up: bool) -> NodeRecord:
            return settle_node(planner, plan, give_up)

        close.wait(
            look(False),
            look,
            lambda record: not all(start.ended for start in record.starts if start.tool),
            DEADLINE,
        )
        _, rows = self._settled(planner, [ran.planned])
        _seen(ran)
        self._expect_rows(
            rows["Kit-0"],
            "a worker whose process group was killed when it had ended",
            ran.output,
            "let the tool write the report: it is in a process group of its own; what the worker "
            "starts is not",
        )

    def test_files_of_other_workers_are_left_alone(self, shared: Path) -> None:
        """Collecting one worker's files changes none of another's or of the user's."""
        changes = self._story(shared).changed
        if changes:
            fail(
                f"collecting files changed {changes[0]}, which is not this worker's",
                "take only files whose names begin with this worker's file_stem and a dot",
            )
        if logs := self._story(shared).lost_logs:
            fail(
                f"collecting files removes what the tool said, which was in {logs[0]}",
                "leave worker.log_file alone, or append to it",
            )

    def test_files_are_collected_once(self, shared: Path) -> None:
        """Collecting a second time changes nothing."""
        story = self._story(shared)
        if story.again != story.settled:
            names = [
                name
                for name in {**story.settled, **story.again}
                if story.settled.get(name) != story.again.get(name)
            ]
            fail(
                f"collecting a second time changed {', '.join(sorted(names))}",
                "leave alone what has its final name",
            )
        if story.second:
            fail(
                f"collecting a second time returned {story.second[0]} again",
                "return new files only",
            )

    def test_reports_are_checked(self, shared: Path, tmp_path: Path) -> None:
        """`check_report` takes good reports and other files, finds damage, and reads little."""
        self._need("check_report")
        story = self._story(shared)
        hooks = self._hooks()
        rows = [row for rows in story.rows.values() for row in rows]
        for file in dict.fromkeys(row.file for row in rows if row.file):
            if not os.path.exists(file):
                continue
            digest = _content(Path(file))
            problem = self._ask("check_report", hooks, path=file)
            if _content(Path(file)) != digest:
                fail(f"check_report changes {file}", "open it for reading only")
            if problem is not None:
                fail(f"check_report says of the good {file}: {problem}", "look at its structure")
        for text in ("not a report", ""):
            stranger = tmp_path / "notes.txt"
            stranger.write_text(text)
            if self._ask("check_report", hooks, path=str(stranger)) is not None:
                fail("check_report finds damage in another's file", "return None for other files")
        for file in story.files[:1]:
            copy_of_file = tmp_path / f"damaged-{os.path.basename(file)}"
            content = Path(file).read_bytes()
            for what, part in (
                ("its end", content[: len(content) // 2]),
                ("all but a byte", content[:1]),
                ("everything", b""),
            ):
                copy_of_file.write_bytes(part)
                try:
                    problem = self._ask("check_report", hooks, path=str(copy_of_file))
                except Exception as error:
                    fail(
                        f"check_report raised {error!r} for a file that has lost {what}",
                        "return what is wrong",
                    )
                if not copy_of_file.exists() or copy_of_file.read_bytes() != part:
                    fail(
                        f"check_report changes a file that has lost {what}",
                        "open it for reading only: something may be saved of it",
                    )
                if len(content) > 1 and part and problem is None:
                    fail(
                        f"check_report takes a file that has lost {what}",
                        "look for the end that the tool writes",
                    )
            with copy_of_file.open("wb") as large:
                large.write(content)
                large.truncate(2**31)
            before = _bytes_read()
            with suppress(Exception):
                self._ask("check_report", hooks, path=str(copy_of_file))
            read = _bytes_read() - before
            copy_of_file.unlink()
            if read > 2**26:
                fail(
                    f"check_report reads {read >> 20} MiB of a large file",
                    "look at the beginning and the end only",
                )

    def test_ranges_are_read_as_they_were(self, shared: Path) -> None:
        """Ranges are read in nanoseconds, as they nested, and the same in several threads."""
        if not self._readers():
            pytest.skip("the backend has no read_ranges and no read_spans")
        for hook in self._readers():
            self._expect_right_ranges(hook, shared)

    def _expect_right_ranges(self, hook: str, shared: Path) -> None:
        hooks = self._hooks()
        for row in self._story(shared).rows["Kit-0"]:
            ranges = self._ranges(hook, str(row.file), hooks)
            if ranges is None:
                fail(
                    f"{hook} returns None for {row.file}, which this backend has left",
                    "return the ranges of every file with your extension",
                )
            step = int(row.window.rpartition("-")[2])
            _expect_times(ranges, step, str(row.file))
            _expect_measured(ranges, self._measured(shared), str(row.file))
            self._expect_no_cache(hook, hooks, row, shared)
        self._expect_quiet_reading(hook, hooks, shared)
        files = [row.file for rows in self._story(shared).rows.values() for row in rows]
        alone = {file: self._ask(hook, hooks, path=file) for file in files}
        with ThreadPoolExecutor(4) as pool:
            several = [file for _ in range(2) for file in alone]
            answers = pool.map(lambda file: self._ask(hook, hooks, path=file), several)
            if any(alone[file] != answer for file, answer in zip(several, answers, strict=True)):
                fail(
                    f"{hook} returns something else in several threads",
                    "share nothing between calls without a lock",
                )

    def _measured(self, directory: Path) -> list[dict[str, list[list[int]]]]:
        """What the starts of Kit-0 have measured of their ranges, each by name."""
        story = self._story(directory).ran
        return [ran.around.get("times", {}) for ran in story if ran.planned.worker.rank == 0]

    def _expect_quiet_reading(self, hook: str, hooks: Hooks, directory: Path) -> None:
        """Fail if reading a report leaves something beside it, or changes the process."""
        original = Path(str(self._story(directory).rows["Kit-0"][0].file))
        unread = directory / "unread"
        unread.mkdir(exist_ok=True)
        file = Path(shutil.copy(original, unread))
        before = _listing(file.parent)
        effects = _surroundings.watch(partial(self._ask, hook, hooks, path=str(file)))
        changes = {*_listing(file.parent).items()} ^ {*before.items()}
        if changes:
            fail(
                f"{hook} changes {min(changes)[0]} beside the report",
                "put what reading needs into a temporary directory that you remove",
            )
        # of the directory that everybody has, others take and leave, too
        expect_nothing_else(hook, effects, SOFT | {_surroundings.TEMPORARY})

    def _expect_no_cache(self, hook: str, hooks: Hooks, row: ReceiptRow, directory: Path) -> None:
        """Another file with the same name, from another directory, is read as well."""
        others = [
            other
            for other in self._story(directory).rows["Kit-0"]
            if other.window != row.window and other.file != row.file
        ]
        for other in others[:1]:
            same = directory / "same" / os.path.basename(str(row.file))
            same.parent.mkdir(exist_ok=True)
            shutil.copy(str(other.file), same)
            right_ranges = self._ask(hook, hooks, path=str(other.file))
            if self._ask(hook, hooks, path=str(same)) != right_ranges:
                fail(
                    f"{hook} takes {same} for {row.file}, which has the same name",
                    "read the file at the whole path, every time",
                )

    def test_spans_are_where_and_when_they_were(self, shared: Path) -> None:
        """`read_spans` has each range on its thread's track, in nanoseconds since the epoch."""
        self._need("read_spans")
        hooks = self._hooks()
        for row in self._story(shared).rows["Kit-0"]:
            file = str(row.file)
            tracks = self._ask("read_spans", hooks, path=file) or []
            _expect_spans(tracks, int(row.window.rpartition("-")[2]), file)
            _expect_clock(tracks, self._measured(shared), file)
            if not self._implements("read_ranges"):
                continue
            counts = Counter(
                name for track in tracks if track.kind == "ranges" for name, _, _ in track.spans
            )
            labels = self.read_labels(Path(file)) or {}
            for name in sorted({*counts, *labels}):
                if counts[name] != labels.get(name, 0):
                    fail(
                        f"{file}: {name} occurs {counts[name]} times in read_spans, and "
                        f"{labels.get(name, 0)} times in read_ranges",
                        "return every range of the file from both, or leave read_ranges out",
                    )

    def test_a_whole_life_is_captured(self, tmp_path: Path) -> None:
        """`gpuprof run` without steps leaves the file of a script that never uses gpuprof."""
        if not self._acts():
            pytest.skip("the backend does nothing to a worker")
        planner, _ = self._planner(tmp_path)
        script, _ = self._prepare(tmp_path)
        program = [sys.executable, str(script), "-", "plain"]
        # behind a shell gpuprof starts no session in the program: the tool records it alone
        commands = [["sh", "-c", 'exec "$@"', "sh", *program]] * (planner.capability == "wraps")
        for command in (*commands, program):
            with (tmp_path / "of the launcher").open("w") as file:
                ran = self._gpuprof_run(tmp_path, command, file)
            is_refusal = ran.returncode == 2 and "gpuprof" in ran.stderr and not ran.stdout
            if not is_refusal:
                break
        text = (tmp_path / "of the launcher").read_text()
        if is_refusal:
            return
        if ran.returncode or ran.stdout != f"{_program.SAID}\n":
            fail(
                f"gpuprof run ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}",
                "run the program as it is",
            )
        self._expect_report(ran)
        if not text:
            fail(
                "a file that the launcher has left open for the worker is closed in it",
                "pass open files on, in Python by close_fds=False: ranks of MPI have some that "
                "they need",
            )

    def test_scopes_are_captured(self, tmp_path: Path) -> None:
        """With `discrete`, each scope of a step leaves the file of its name."""
        if not self._acts():
            pytest.skip("the backend does nothing to a worker")
        ran, rows = self._run_and_settle(tmp_path, "scopes", {"steps": [1], "discrete": True})
        _seen(ran)
        if not rows and not self._implements("expected_files"):
            return
        self._expect_rows(rows, "discrete: true", ran.output)
        for row, name in zip(rows, ("kit/first", "kit/second one"), strict=False):
            labels = self.read_labels(Path(str(row.file)))
            if labels is not None and not labels.get(f"{name}-1"):
                fail(f"{row.file} lacks the range {name}-1", "record every window anew")

    def test_a_worker_that_is_killed(self, shared: Path, tmp_path: Path) -> None:
        """A worker that is killed in a window keeps the file of the closed one."""
        killed = self._kill(shared)
        ran, rows = killed.ran, killed.rows
        twice = [
            row.window for row in rows if sum(row.window == other.window for other in rows) > 1
        ]
        if twice and len({row.window for row in rows}) < len(WINDOWS):
            fail(
                f"window {twice[0]} of one start has several files, and another window none: "
                f"{[row.file for row in rows]}",
                "put window.number into the names of intermediate files",
            )
        node = _node_directory(killed.planner)
        leftovers = [path.name for path in _recorded(node)] if node else []
        leftovers = [name for name in leftovers if name.startswith(f"{killed.worker.file_stem}.")]
        # of a worker that no command and no variable of the backend started, nobody collects them
        collects = ran.planned.wrapped and self._implements("collect_files")
        if leftovers and not killed.problems and collects:
            fail(
                f"of a killed worker {leftovers[0]} keeps its intermediate name, and "
                "nothing says so",
                "give it its final name in collect_files, whatever other windows have left, or "
                "return the problem",
            )
        last = [name for name in killed.last if _is_the_tools(name)]
        names_with_content = [
            path.name for path in _recorded(killed.pristine) if path.stat().st_size
        ]
        if len(names_with_content) < len(last):  # a file may have got another name
            fail(
                f"a worker was killed, and {min({*last} - {*names_with_content})} is gone, in "
                "which something was recorded",
                "keep what was recorded until then: collect_files gives it its name",
            )
        for row in rows:
            if row.state != "complete" or row.cause.value:
                continue
            try:
                labels = self.read_labels(Path(str(row.file)))
            except Exception as error:
                fail(
                    f"{row.file} of a killed worker passes as complete, and cannot be read: "
                    f"{error!r}",
                    "name finished files only, and find others in check_report",
                )
            first = _program.expected_labels(1, sum(other.file == row.file for other in rows))
            if labels is None or row.window != "step-1":
                continue
            if {label: labels.get(label, 0) for label in first} != first:
                fail(f"{row.file} lacks ranges of the closed window", "write at its end")
        rows_of_first = [row for row in rows if row.window == "step-1"]
        in_process = self._implements("stop_capture") and self._returns_files(tmp_path / "alone")
        if in_process:
            self._expect_rows(rows_of_first, "the window that was closed before", ran.output)

    def test_leftovers_are_collected(self, shared: Path) -> None:
        """After a kill, `collect_files` finds whatever is left, and says what it cannot save.

        In a directory with a wildcard's characters, for windows that were not planned, of a process
        that is not known, and on a full disk.
        """
        self._need("collect_files")
        killed = self._kill(shared)
        plain = killed.collect(self, "plain")
        if isinstance(plain, ToolError):
            return  # it says why nothing can be saved
        if isinstance(plain, Exception):
            fail(
                f"collect_files raised {plain!r} for a killed worker",
                "return the problem of what cannot be saved, and save the rest",
            )
        self._expect_all_kept(killed, "plain", plain)
        for what, answer, remedy in (
            (
                "a directory whose name has [ and ]",
                killed.collect(self, "like [this]"),
                "use glob.escape for the directory, or no wildcards",
            ),
            (
                "windows that were ordered later, not planned",
                killed.collect(self, "armed", worker_windows=()),
                "use the argument windows, not worker.windows",
            ),
            (
                "a process whose number is not known",
                killed.collect(self, "nobody", pid="0"),
                "worker.pid is 0 where the worker does not use gpuprof: take any of its files",
            ),
        ):
            if isinstance(answer, Exception) or {*plain.files} - {*answer.files}:
                fail(
                    f"with {what} collect_files returned {answer!r}, and otherwise {plain.files}",
                    remedy,
                )
        if not (killed.copy("like [this]") / _SCRATCH / "unfinished").exists():
            fail(
                "collect_files removes what the tool has left in its temporary directory",
                "move what you save, and leave the rest: gpuprof removes or keeps it",
            )
        early = killed.collect(self, "early", ended=False)
        if not isinstance(early, Exception) and early.files:
            if contract.capability(self.backend) == "env_only":
                fail(
                    f"before the worker's end collect_files took {early.files}",
                    "return None unless ended: the worker may still write them",
                )
            self._expect_finished(early)
        full = killed.collect(self, "full", disk=_full_disk())
        silent = not isinstance(full, Exception) and not full.problem
        if silent and {*plain.files} - {*getattr(full, "files", ())}:
            fail(
                "collect_files could not move a file, as on a full disk, and does not say so",
                "let the error pass, or return it as Collected.problem",
            )

    def _expect_finished(self, early: Collected) -> None:
        """Fail if a file that was taken before the worker's end is half a file."""
        hooks = self._hooks()
        for path in (path for paths in early.files.values() for path in paths):
            problem = self._ask("check_report", hooks, path=path)
            if problem is not None:
                fail(
                    f"before the worker's end collect_files took {path}, of which check_report "
                    f"says: {problem}",
                    "take only finished files unless ended: the tool may still write the others",
                )

    def test_a_window_that_left_nothing_is_passed_over(self, shared: Path) -> None:
        """A window without any file does not cost the others theirs."""
        self._need("collect_files")
        killed = self._kill(shared)
        usual = killed.collect(self, "usual")
        windows = (Window(9, 9, 10), *killed.windows)
        answer = killed.collect(self, "gap", windows=windows)
        if isinstance(usual, Exception):
            return
        files = {} if isinstance(answer, Exception) else answer.files
        if {*usual.files} - {*files}:
            fail(
                f"with a window that has left nothing collect_files returned {answer!r}, and "
                f"otherwise {usual.files}",
                "go on with the other windows, and know each one's files by their names",
            )

    def _expect_all_kept(self, killed: Killed, name: str, collection: Collected) -> None:
        """Fail if files are only moved, and some are gone."""
        before = {_content(path): path.name for path in _recorded(killed.pristine)}
        after = {_content(path) for path in _recorded(killed.copy(name))}
        new = {_content(Path(path)) for paths in collection.files.values() for path in paths}
        missing = [name for content, name in before.items() if content not in after]
        if new and new <= {*before} and missing:
            fail(
                f"collect_files has removed {missing[0]}",
                "keep every file in which something is recorded",
            )

    def _kill(self, directory: Path) -> Killed:
        """A worker that was killed in its second window, once for this class."""
        if not self._acts():
            pytest.skip("the backend does nothing to a worker")
        if isinstance(hang := self._shared.get("killed"), pytest.fail.Exception):
            raise hang  # it takes minutes to see once more
        if "killed" not in self._shared:
            place = directory / "killed"
            planner, _ = self._planner(place, {})
            try:
                ran = self._run(place, "killed", [str(place / "run")])
            except pytest.fail.Exception as failure:
                self._shared["killed"] = failure
                raise
            _seen(ran)
            node = _node_directory(planner)
            if node is None:
                pytest.skip("the worker left no directory")
            pristine = directory / "killed-copies" / "pristine"
            shutil.copytree(node, pristine, symlinks=True, ignore=_specials)
            record, rows = self._settled(planner, [ran.planned])
            start = record.starts[0]
            worker = here(ran.planned.worker, start, record)
            self._shared["killed"] = Killed(
                planner,
                ran,
                rows.get("Kit-0", []),
                pristine,
                worker,
                captured_windows(worker, start),
                {window["number"]: window["files"] for window in start.windows if window["files"]},
                start.settled["problems"] if start.settled else [],
                json.loads((place / "seen.json.last").read_text()),
            )
        killed: Killed = self._shared["killed"]
        return killed

    def _returns_files(self, directory: Path) -> bool:
        directory.mkdir()
        if not self._implements("start_capture"):
            return False
        hooks = self._hooks()
        arguments = {"worker": self._worker(directory), "window": WINDOWS[0]}
        with suppress(Exception):
            self._ask("start_capture", hooks, **arguments)
            return any(self._ask("stop_capture", hooks, **arguments))
        return False

    def test_awkward_paths_survive(self, tmp_path: Path) -> None:
        """Unusual characters in the output directory do no harm; nothing is written elsewhere."""
        name = "".join(character for character in AWKWARD if character not in self.refused_in_paths)
        directory = tmp_path / name / "out"
        planner, _ = self._planner(directory)
        ran = self._run(directory, "work", [], elsewhere=tmp_path)
        _, rows = self._settled(planner, [ran.planned])
        _seen(ran)
        self._expect_rows(
            rows.get("Kit-0", []),
            f"the directory {name}",
            ran.output,
            "keep the path unchanged; escape the characters that the tool would expand",
        )
        strangers = [path.name for path in [*tmp_path.iterdir(), *(tmp_path / name).iterdir()]]
        own = {name, "out", "worker.py", "seen.json", "seen.json.around"}
        in_window = [
            path
            for path in ran.around.get("beside", ())
            if path not in own and not path.endswith((".stdout", ".stderr"))
        ]
        if in_window:
            fail(
                f"in a window {in_window[0]!r} is in the worker's working directory",
                "write below worker.directory: two runs may have one working directory",
            )
        strange = sorted({*strangers} - own)
        if strange:
            fail(
                f"{strange[0]!r} was written beside the output directory",
                "write below worker.directory only",
            )

    # how the checks run workers

    def _acts(self) -> bool:
        return any(
            self._implements(hook)
            for hook in ("render_command", "inject_env", "start_capture", "open_range")
        )

    def _story(self, directory: Path) -> Story:
        """The story of this class, told once."""
        if "story" not in self._shared:
            self._shared["story"] = self._tell(directory / "story")
        story: Story = self._shared["story"]
        lines = [line for ran in story.ran for line in ran.stderr.splitlines()]
        refusals = [line for line in lines if "runs without the profiler" in line]
        if refusals:
            fail(
                f"the tool has not run the worker: {refusals[0]}",
                "try the command that gpuprof plan prints, with a script of your own",
            )
        return story

    def _tell(self, directory: Path) -> Story:
        usual = os.umask(UMASK)
        try:
            return self._tell_with_umask(directory)
        finally:
            os.umask(usual)

    def _tell_with_umask(self, directory: Path) -> Story:
        planner, _ = self._planner(directory)
        own = [{"TMPDIR": str(directory / f"temporary-{number}")} for number in range(3)]
        for variables in own:
            os.makedirs(variables["TMPDIR"])
        unusual = {**SENTINELS, **own[0]}
        first = self._run(directory, "work", [], launcher=_prepare_unusually, environment=unusual)
        # a link, a file of another rank, and one of another start, named as this tool names its own
        outside = directory / "outside"
        outside.write_text("outside")
        met = {"KIT_MEET": f"{directory}/met"}
        run = partial(self._run, directory, "work", [])
        rest = _together(
            {
                "other": partial(run, rank=1, environment={**met, **own[1]}),
                "again": partial(run, environment={**met, **own[2]}),
            }
        )
        node = _node_directory(planner)
        decoys, links = _plant(node, outside) if node is not None else ({}, [])
        logs = [node / f"{name}.log" for name in _STARTS] if node is not None else []
        for log in logs:
            with log.open("a") as file:
                file.write(OF_THE_TOOL)
        worker_plans = [first.planned, rest["other"].planned]
        record, rows = self._settled(planner, worker_plans)
        changes = [str(path) for path, content in decoys.items() if _content(path) != content]
        lost_logs = [
            log.name for log in logs if not log.exists() or OF_THE_TOOL not in log.read_text()
        ]
        if not outside.is_file() or outside.read_bytes() != b"outside":
            changes.append(str(outside))
        for path in (*decoys, *links):
            path.unlink(missing_ok=True)
        listing = _listing(node)
        second = self._collect_again(planner, worker_plans, record)
        return Story(
            planner,
            [first, rest["other"], rest["again"]],
            rows,
            record,
            changes,
            lost_logs,
            listing,
            _listing(node),
            second,
        )

    def _collect_again(
        self, planner: Planner, worker_plans: Iterable[PlannedWorker], record: NodeRecord
    ) -> list[str]:
        result: list[str] = []
        for worker_plan in worker_plans:
            worker = worker_plan.worker
            for start in record.starts:
                if (start.group, start.rank) != (worker.group, worker.rank):
                    continue
                located_worker = here(worker, start, record)
                files = {
                    int(number): paths
                    for number, paths in (start.settled["files"] if start.settled else {}).items()
                }
                for ended in (False, True):
                    with suppress(Exception):
                        collection = self._ask(
                            "collect_files",
                            planner.manager(worker.group),
                            worker=located_worker,
                            windows=captured_windows(located_worker, start),
                            files=files,
                            ended=ended,
                            scratch="",
                        )
                        known_paths = [path for paths in files.values() for path in paths]
                        result += [
                            path
                            for paths in (collection or Collected()).files.values()
                            for path in paths
                            if path in known_paths or not os.path.exists(path)
                        ]
        return result

    def _settled(
        self, planner: Planner, worker_plans: Iterable[PlannedWorker]
    ) -> tuple[NodeRecord, dict[str, list[ReceiptRow]]]:
        profiled_plans = [worker_plan for worker_plan in worker_plans if worker_plan.profiled]
        for worker_plan in profiled_plans:
            _expect_unchanged_arguments(planner.manager(worker_plan.worker.group))
        record = settle_node(
            planner,
            {
                (worker_plan.worker.group, worker_plan.worker.rank): worker_plan
                for worker_plan in profiled_plans
            },
            True,
        )
        return record, {
            worker_plan.worker.name: receipt_rows(worker_plan, [record], planner.manager("Kit"))
            for worker_plan in profiled_plans
        }

    def _expect_rows(self, rows: list[ReceiptRow], of: str, output: str, remedy: str = "") -> None:
        remedy = (
            remedy or "name each window's file in expected_files, stop_capture or collect_files"
        )
        does = [hook for hook in ("render_command", "start_capture") if self._implements(hook)]
        if not rows and does:
            fail(f"the backend has {does[0]}, but no hook names its files", remedy)
        for row in rows:
            if row.state != "complete":
                fail(
                    f"{of}: window {row.window}: {row.file} is {row.state}: {row.reason}; "
                    f"{_beside(row)}\n{output}",
                    remedy,
                )

    def _expect_report(self, ran: subprocess.CompletedProcess[str]) -> None:
        words = " ".join(ran.stderr.split())
        if "1 of 1 report" not in words:
            fail(
                f"a script that never uses gpuprof left no complete report: {words[-2000:]}",
                "record the whole life of any program, or refuse it; name the file in "
                "expected_files",
            )

    def _gpuprof_run(
        self, directory: Path, words: list[str], file: IO[str], **settings: Any
    ) -> subprocess.CompletedProcess[str]:
        content = {"backend": self.name, "worker_groups": "all", "print_trees": "none", **settings}
        if self.name != "none":
            content[self.name] = dict(self.options)
        config = directory / "kit.yaml"
        config.write_text(yaml.safe_dump(content))
        command = [sys.executable, "-m", "gpuprof", "run", "--config", str(config), "--", *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment["KIT_FILE"] = str(file.fileno())
        return subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            pass_fds=(file.fileno(),),
            check=False,
        )

    def _run_and_settle(
        self, directory: Path, works: str, settings: Mapping[str, object]
    ) -> tuple[Ran, list[ReceiptRow]]:
        planner, _ = self._planner(directory, settings)
        ran = self._run(directory, works, [], settings=settings)
        _, rows = self._settled(planner, [ran.planned])
        return ran, rows.get("Kit-0", [])

    def _run(
        self,
        directory: Path,
        works: str,
        arguments: list[str],
        elsewhere: Path | None = None,
        launcher: Callable[[], object] | None = None,
        rank: int = 0,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        change: Callable[[PlannedWorker], PlannedWorker] = lambda worker_plan: worker_plan,
    ) -> Ran:
        """Run a worker as a launcher does: plan it, and start it behind the shim."""
        planner, tool = self._planner(directory, settings)
        worker_plan = change(
            planner.worker("Kit", rank, tool=common_tool([tool]) if tool else None)
        )
        row = planner.row(worker_plan, [sys.executable, *FLAGS], tool)
        script, report = self._prepare(elsewhere or directory, rank)
        start = BEHIND_THE_SHIM if worker_plan.wrapped else [sys.executable, *FLAGS]
        began = time.monotonic()
        process = self._start(
            [*start, str(script), str(report), works, *arguments],
            {VARIABLE: encode(row), **(environment or {})},
            script.parent,
            launcher,
        )
        seconds = time.monotonic() - began
        state = json.loads(report.read_text()) if report.exists() else None
        around = Path(f"{report}.around")
        return Ran(
            worker_plan,
            state,
            process.stdout,
            process.stderr,
            process.returncode,
            seconds,
            state["began"] - began if state else 0.0,
            json.loads(around.read_text()) if around.exists() else {},
        )

    def _planner(
        self, directory: Path, settings: Mapping[str, object] | None = None
    ) -> tuple[Planner, Tool | None]:
        """The planner of a job with windows at two steps, and the tool; skips without the tool."""
        section = {} if self.name == "none" else {self.name: dict(self.options)}
        steps = [window.start for window in WINDOWS]
        config = load(
            {
                "backend": self.name,
                "worker_groups": "all",
                "steps": steps,
                **section,
                **(settings or {}),
            }
        )
        planner = Planner(config, "run", str(directory))
        try:
            return planner, planner.check_tool()
        except ToolError as error:
            pytest.skip(str(error))

    def _without(
        self,
        directory: Path,
        arguments: list[str],
        launcher: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """A worker's report of itself without gpuprof."""
        script, report = self._prepare(directory)
        self._start(
            [sys.executable, *FLAGS, str(script), str(report), "see", *arguments],
            SENTINELS if launcher is not None else {},
            directory,
            launcher,
        )
        state: dict[str, Any] = json.loads(report.read_text())
        return state

    def _prepare(self, directory: Path, rank: int = 0) -> tuple[Path, Path]:
        directory.mkdir(parents=True, exist_ok=True)
        script = directory / "worker.py"
        report = directory / (f"seen-{rank}.json" if rank else "seen.json")
        if not script.exists():
            shutil.copy(_program.__file__, script)
        for path in (report, Path(f"{report}.around")):
            path.unlink(missing_ok=True)
        return script, report

    def _start(
        self,
        command: list[str],
        variables: Mapping[str, str],
        directory: Path,
        launcher: Callable[[], object] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `launcher` prepares its process first."""
        own = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
        environment = {**own, **variables}
        # files, by which the worker can name its outputs
        mine = threading.get_ident()
        outputs = directory / f"{mine}.stdout", directory / f"{mine}.stderr"
        with (
            open(_program.__file__) as stdin,
            outputs[0].open("w") as stdout,
            outputs[1].open("w") as stderr,
        ):
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=directory,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=launcher,
            )
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                output = "".join(path.read_text(errors="replace") for path in outputs)
                fail(
                    f"{shlex.join(command[-4:])} has not ended within {DEADLINE:g} s: "
                    f"{output.strip()[-1000:]}",
                    "end with the worker; leave it its standard input, of which a tool that waits "
                    "for the worker must keep no writing end open",
                )
            finally:
                if process.returncode is None:
                    _end(process)
        texts = [path.read_text(errors="replace") for path in outputs]
        for path in outputs:
            path.unlink()
        return subprocess.CompletedProcess(command, process.returncode, *texts)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started: a tool that hangs burns a core of the others'."""
    pids = [process.pid]
    for pid in pids:  # the list grows
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # it starts nothing more
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                pids += map(int, children.read_text().split())
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _without_keeping(worker_plan: PlannedWorker) -> PlannedWorker:
    command = [word for word in worker_plan.command if word != KEEP_EXIT_CODE]
    return attrs.evolve(worker_plan, command=type(worker_plan.command)(command))


def _prepare_unusually() -> None:
    """Prepare a process as few launchers do, so that a tool's own settings show."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR2, signal.SIGRTMAX))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(700, most), most))
    os.nice(1)


_OWN = (".json", ".ledger")
"""Of the files that gpuprof writes itself."""


_SCRIPT = (
    """grep -E "^(Umask|SigBlk|SigIgn)" /proc/self/status > "$0.state"; """
    """echo "$1" > "$0"; sleep 1; exit 6"""
)
"""For a shell: writes its state and its argument."""


_A_SERVERS_LIFE = 80.0
"""Seconds, less than a server lives that the kit's worker leaves."""
_A_TOOLS_END = 10.0
"""Seconds that processes of a tool may take to end after the worker."""


def _command_of(pid: int) -> str:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        if stat.rpartition(")")[2].split()[0] != "Z":
            return stat.partition("(")[2].rpartition(")")[0]
    return ""


def _of_group(group: int) -> Iterator[int]:
    """The processes of a process group."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getpgid(int(path.name)) == group:
                yield int(path.name)


def _wait_until(over: Callable[[], bool]) -> None:
    """Wait for an event; what fails without it is the check itself."""
    deadline = time.monotonic() + DEADLINE
    while not over() and time.monotonic() < deadline:
        time.sleep(0.02)


def _with_token(token: str) -> list[int]:
    """The processes that have a token in their environment."""
    numbers = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if token.encode() in path.read_bytes() and _command_of(int(path.parent.name)):
                numbers.append(int(path.parent.name))
    return numbers


def _state(path: Path) -> dict[str, int]:
    """Numbers by name, of the signals those that are not the C library's own."""
    numbers = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        numbers[name] = int(value, 8) if name == "Umask" else int(value, 16) & 0x7FFFFFFF
    return numbers


def _together(calls: dict[str, Callable[[], Ran]]) -> dict[str, Ran]:
    """Run a few workers at a time."""
    with ThreadPoolExecutor(2) as pool:
        futures = {name: pool.submit(call) for name, call in calls.items()}
        return {name: future.result() for name, future in futures.items()}


def _expect_unchanged_arguments(hooks: Hooks) -> None:
    """From now on fail where `collect_files` changes what it is given."""
    files: list[Any] = []

    def before(name: str, _: object, arguments: Mapping[str, Any]) -> None:
        files.append(copy.deepcopy(arguments.get("files")))

    def after(outcome: object, name: str, _: object, arguments: Mapping[str, Any]) -> None:
        if files.pop() != arguments.get("files"):
            fail(f"{name} changes its argument files", "return the new files only")

    hooks.add_hookcall_monitoring(before, after)


_SCRATCH = ".kit-scratch"


def _recorded(directory: Path) -> list[Path]:
    """The files of a tool in a worker's directory."""
    return [path for path in directory.iterdir() if path.is_file() and _is_the_tools(path.name)]


def _specials(directory: str, names: list[str]) -> list[str]:
    """What cannot be copied, such as a pipe, which would wait for its other end."""
    paths = [(name, Path(directory, name)) for name in names]
    return [
        name for name, path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())
    ]


def _is_the_tools(name: str) -> bool:
    return not is_own(Path(name))


@contextmanager
def _full_disk() -> Iterator[None]:
    """Nothing can be moved, linked or copied in this process."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("link", "rename", "replace", "symlink"):
            patch.setattr(os, name, refuse)
        for name in ("copyfile", "copyfileobj"):
            patch.setattr(shutil, name, refuse)
        yield


def _expect_no_fault(start: Start) -> None:
    faults = start.session["faults"] if start.session else []
    if faults:
        fail(f"a hook raised in the worker: {faults[0]}", "see the exception")


def _seen(ran: Ran) -> dict[str, Any]:
    if ran.seen is None:
        fail(f"the worker did not run: {ran.output}", "check the command: gpuprof plan prints it")
    return ran.seen


_NOISE = re.compile(r"\[\d{4}-|gpuprof|.*Warning|  |sys:1:|Exception ignored|Traceback")


def _is_noise(line: str) -> bool:
    """Whether a line is gpuprof's, or one of the warnings that ``-X dev`` turns on."""
    return bool(_NOISE.match(line)) or not line.strip()


def _wait_for(log: Path, line: str, worker: subprocess.Popen[bytes]) -> None:
    """Wait until the worker has noted something, or has ended."""
    deadline = time.monotonic() + DEADLINE / 6
    while time.monotonic() < deadline and worker.poll() is None:
        if log.exists() and line in log.read_text().split("\n"):
            return
        time.sleep(0.02)


def _node_directory(planner: Planner) -> Path | None:
    run = Path(planner.output_dir, planner.run)
    directories = [path for path in run.iterdir() if path.is_dir()] if run.exists() else []
    directories = [path for path in directories if not path.name.startswith(".")]
    return directories[0] if directories else None


def _plant(node: Path, outside: Path) -> tuple[dict[Path, str], list[Path]]:
    """Put files beside a worker's that look like another worker's, and a link; with contents."""
    contents: dict[Path, str] = {}
    links: list[Path] = []
    own = [
        path
        for path in node.iterdir()
        if path.is_file()
        and path.name.startswith("Kit-0.")
        and not path.name.endswith(OWN_OF_START)
    ]
    for path in own:
        for name in (
            path.name.replace("Kit-0.", "Kit-01.", 1),
            path.name.replace("Kit-0.", "Kit-0-eval-0.", 1),
            path.name.replace("start-1", "start-17").replace("start-2", "start-27"),
        ):
            decoy = node / name
            if not os.path.lexists(decoy):
                shutil.copy(path, decoy)
                contents[decoy] = _content(decoy)
        # of another step, window or process: a link may be moved, but not what it leads to
        link = node / re.sub(r"[0-9]+(?=[^0-9]*$)", lambda match: f"{int(match[0]) + 7}", path.name)
        if not os.path.lexists(link):
            link.symlink_to(outside)
            links.append(link)
    for name in ("notes.txt", "Kit-0.txt", "Kit-1.model.bin"):
        (node / name).write_text("the user's")
        contents[node / name] = _content(node / name)
    return contents, links


def _content(path: Path) -> str:
    """What a file is: where a link leads, or a digest of the content."""
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    if not path.is_file():
        return "gone"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _listing(node: Path | None) -> dict[str, str]:
    """The files beside a worker's reports, but for gpuprof's own."""
    if node is None:
        return {}
    return {
        path.name: _content(path)
        for path in node.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


def _filled(path: str, record: NodeRecord) -> str:
    first = {start.rank: start for start in record.starts if start.incarnation == "1"}
    name = os.path.basename(path)
    for rank, start in first.items():
        if f"-{rank}." in name or f"{rank}" in name:
            return path.replace("{incarnation}", "1").replace("{pid}", str(start.pid))
    return path


def _expect_times(times: list[RangeTimes], step: int, file: str) -> None:
    sleeps = [
        nanoseconds
        for ranges in times
        if ranges.name == f"kit/sleep-{step}"
        for nanoseconds in ranges.durations
    ]
    least, most = _program.SLEEP * 0.5e9, _program.SLEEP * 100e9
    if any(not least <= nanoseconds <= most for nanoseconds in sleeps):
        fail(
            f"{file}: a range of {_program.SLEEP * 1e3:g} ms takes {sleeps[0]} ns",
            "return durations in nanoseconds",
        )
    wrong = [ranges for ranges in times if any(duration < 0 for duration in ranges.durations)]
    if wrong:
        fail(
            f"{file}: {wrong[0].name} has the duration {min(wrong[0].durations)}",
            "return end - start",
        )
    strange = [ranges.name for ranges in times if not ranges.name.startswith("kit")]
    if strange:
        fail(
            f"{file} has the range {strange[0]}, which the worker has not opened",
            "return the job's ranges only: the tool's own are none",
        )
    _expect_nesting(times, step, file)
    outer = f"kit/outer-{step}"
    for ranges in times:
        twice = ranges.name in (f"kit/late-{step}", f"kit/again-{step}")  # one inside the other
        if ranges.name in ranges.parents and not twice:
            fail(f"{file}: {ranges.name} is its own parent", "leave a range out of its parents")
        if ranges.name == f"kit/inner-{step}" and ranges.parents not in ((), (outer,)):
            fail(
                f"{file}: {ranges.name} has the parents {ranges.parents}; it is inside {outer}",
                "return the names of the ranges around it, the outermost first, or none",
            )
        if ranges.name == f"kit/thread-{step}" and ranges.parents:
            fail(
                f"{file}: {ranges.name}, of a thread of its own, has the parents {ranges.parents}",
                "nest the ranges of each thread by themselves",
            )
    inside = sorted(_durations(times, f"kit/inner-{step}"))[:3] + sleeps
    around = _durations(times, outer)
    if inside and around and sum(inside) > sum(around):
        fail(
            f"{file}: the ranges inside {outer} take {sum(inside)} ns together, and it {around[0]}",
            "take the time when a range is entered, and when it is left",
        )
    labels = [(ranges.name, ranges.parents) for ranges in times]
    if len(set(labels)) != len(labels):
        fail(f"{file}: a name occurs twice at one place", "return one RangeTimes for each place")


def _expect_spans(tracks: list[RecordedTrack], step: int, file: str) -> None:
    """Fail unless spans are what the kit's worker did, when and in which thread it did it."""
    written = os.stat(file).st_mtime_ns
    threads: dict[str, set[tuple[int, int, str]]] = {}
    for track in tracks:
        for name, start, end in track.spans:
            if end < start:
                fail(f"{file}: {name} ends {start - end} ns before it starts", "return both times")
            if not written - _BEFORE < start < written + _AFTER:
                fail(
                    f"{file}: {name} starts at {start}, and the file was written at {written}",
                    "return nanoseconds since the epoch, by the node's wall clock",
                )
            if name.startswith("kit/") and track.kind != "ranges":
                fail(
                    f"{file}: {name}, a range, is on a track of the kind {track.kind!r}",
                    "call the tracks of gpuprof's ranges: ranges",
                )
            threads.setdefault(name, set()).add((track.process, track.thread, track.name))
    outer, other = (threads.get(f"kit/{kind}-{step}", set()) for kind in ("outer", "thread"))
    if outer & other:
        fail(
            f"{file}: kit/outer-{step} and kit/thread-{step}, of different threads, are on one "
            "track",
            "return a RecordedTrack for each thread",
        )


def _expect_measured(
    times: list[RangeTimes], starts: list[dict[str, list[list[int]]]], file: str
) -> None:
    """Fail unless durations are those that a start of the worker has measured itself."""
    for name in {ranges.name for ranges in times}:
        durations = sorted(_durations(times, name))
        limits = [
            sorted((least, most) for least, most, *_ in start[name])
            for start in starts
            if len(start.get(name, ())) == len(durations)
        ]
        fits = [
            all(
                least * 0.95 - _COARSE < duration < most * 1.05 + _COARSE
                for duration, (least, most) in zip(durations, limit, strict=True)
            )
            for limit in limits
        ]
        if limits and not any(fits):
            fail(
                f"{file}: {name} takes {durations} ns; the worker has measured {limits[0]}",
                "keep the start of a range in the object that open_range returns: ranges overlap, "
                "and several have one name",
            )


def _expect_clock(
    tracks: list[RecordedTrack], starts: list[dict[str, list[list[int]]]], file: str
) -> None:
    """Fail unless spans are when a start of the worker was in them, by the wall clock."""
    for track in tracks:
        for name, start, end in track.spans:
            moments = [
                (entered, left)
                for times in starts
                for _, _, entered, left in times.get(name, ())
                if track.kind == "ranges"
            ]
            if moments and not any(
                entered - _OFF < start <= end < left + _OFF for entered, left in moments
            ):
                fail(
                    f"{file}: {name} is from {start} to {end}; the worker was in it from "
                    f"{moments[0][0]} to {moments[0][1]}",
                    "return nanoseconds since the epoch, by the node's wall clock: UTC, in any "
                    "time zone",
                )


def _durations(times: list[RangeTimes], name: str) -> list[int]:
    return [duration for ranges in times if ranges.name == name for duration in ranges.durations]


def _expect_nesting(times: list[RangeTimes], step: int, file: str) -> None:
    """Fail if parents are given, and are not those of the kit's worker."""
    if not any(ranges.parents for ranges in times):
        return
    outer, sleep = f"kit/outer-{step}", f"kit/sleep-{step}"
    right_counts = {
        (f"kit/inner-{step}", (outer,)): 3,
        (f"kit/inner-{step}", ()): 1,
        (f"kit/deep-{step}", (outer, sleep)): 1,
    }
    places = {(ranges.name, ranges.parents): len(ranges.durations) for ranges in times}
    names = {name for name, _ in right_counts}
    counts = {place: count for place, count in places.items() if place[0] in names}
    if counts != right_counts:
        wrong = min({*counts.items()} ^ {*right_counts.items()}, key=repr)[0]
        fail(
            f"{file}: {wrong[0]} is inside {', '.join(wrong[1]) or 'no range'} "
            f"{counts.get(wrong, 0)} times; expected {right_counts.get(wrong, 0)}",
            "return the names of the ranges around it, the outermost first, and end a range "
            "with an exception, too; return no parents where they are not known",
        )


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def _beside(row: ReceiptRow) -> str:
    """The other files in a missing file's directory, as the tool may have used another name."""
    beside = Path(row.file).parent.glob("*") if row.file else ()
    files = [path for path in beside if path.is_file() and path.suffix not in _OWN]
    names = sorted(path.name for path in files if not path.name.endswith(OWN_OF_START))
    return f"its directory has {', '.join(names) or 'no other file'}"
