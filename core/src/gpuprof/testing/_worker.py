"""Checks with a real worker: a process under the rendered command, and its files."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from gpuprof._artifacts.receipt import ReceiptRow
from gpuprof._artifacts.rows import receipt_rows
from gpuprof._artifacts.settle import settle_node
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner, common_tool
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim import PROGRAM
from gpuprof._shim.row import VARIABLE, encode
from gpuprof.backend.types import Tool
from gpuprof.errors import ConfigError, ToolError
from gpuprof.testing import _program
from gpuprof.testing._case import WINDOWS, Case, fail

FLAGS = ("-X", "dev", "-O")
AWKWARD = 'it\'s a "$HOME" \N{SNOWMAN} 100%'
BEHIND_THE_SHIM = (sys.executable, "-S", "-E", PROGRAM)
DEADLINE = 180.0
UMASK = 0o027
IGNORED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGCHLD,
)


@attrs.frozen
class Ran:
    """A worker that has ended.

    Args:
        seen: its own report: interpreter, flags, arguments, module name.
        rows: the receipt's rows.
        output: its output.
        exit_code: the exit code that its parent got.
    """

    planned: PlannedWorker
    seen: dict[str, Any] | None
    rows: list[ReceiptRow]
    output: str
    exit_code: int


class WorkerChecks(Case):
    """Checks that need the tool, if the backend has one; skipped without it."""

    def test_the_worker_is_what_it_would_be(self, tmp_path: Path) -> None:
        """The worker keeps its interpreter, flags and arguments, and is the main program."""
        arguments = ["a b", "'", '"', "\\", "$HOME", "%p", "{node}", "\N{SNOWMAN}", "--help", ""]
        ran = self._run(tmp_path, "see", arguments)
        expected = self._without(tmp_path, "see", arguments)
        if ran.seen is None:
            fail(
                f"the worker did not run: {ran.output}",
                "check the command: gpuprof plan prints it",
            )
        for name, what in (
            ("executable", "sys.executable"),
            ("flags", "sys.flags"),
            ("argv", "sys.argv"),
            ("name", "__name__"),
        ):
            value = expected[name]
            if ran.seen[name] != value:
                fail(
                    f"{what} is {ran.seen[name]!r}; without gpuprof it is {value!r}",
                    "render [*prefix, *command.interpreter, *command.arguments] and change none of "
                    "the words",
                )

    def test_the_process_is_as_the_launcher_made_it(self, tmp_path: Path) -> None:
        """The worker keeps umask, signals, limits, directory, streams, niceness; files the umask.

        What gpuprof cannot restore is left out: the session, the process group, additional open
        files.
        """
        usual = os.umask(UMASK)
        try:
            ran = self._run(tmp_path, "work", [], launcher=_prepare_unusually)
            expected = self._without(tmp_path, "see", [], launcher=_prepare_unusually)["process"]
        finally:
            os.umask(usual)
        if ran.seen is None:
            fail(f"the worker did not run: {ran.output}", "check the command")
        for name, value in expected.items():
            found = ran.seen["process"][name]
            if found != value:
                fail(
                    f"the worker's {name}: {found!r}; without gpuprof {value!r}",
                    "change nothing of the process, or render [*prefix, *command.interpreter, …], "
                    "where gpuprof restores the umask and ignored signals",
                )
        for file in (row.file for row in ran.rows if row.file):
            mode = os.stat(file).st_mode & 0o777 if os.path.exists(file) else 0
            if mode & UMASK:
                fail(
                    f"{file} has mode {mode:04o}, which the umask {UMASK:04o} forbids",
                    "give finished files their names with gpuprof.backend.move",
                )

    def test_the_exit_code_passes(self, tmp_path: Path) -> None:
        """The worker's parent gets the worker's exit code."""
        for works, expected in (("exit", 7), ("raise", 1)):
            found = self._run(tmp_path / works, works, []).exit_code
            if found != expected:
                fail(
                    f"the worker exited with {expected}, but the exit code is {found}",
                    "exit with the worker's exit code, or render *command.keep_exit_code in front "
                    "of a script that the tool runs",
                )
        if self._run(tmp_path / "kill", "kill", []).exit_code == 0:
            fail(
                "the worker was killed, but the exit code is 0",
                "as above",
            )
        self._expect_code_of_no_script(tmp_path)

    def _expect_code_of_no_script(self, directory: Path) -> None:
        with suppress(ConfigError):
            planner, tool = self._planner(directory)
            known = common_tool([tool]) if tool else None
            planned = planner.worker("Kit", 0, script=False, tool=known)
            if not planned.wrapped:
                return
            row = planner.row(planned, [sys.executable], tool)
            words = [*BEHIND_THE_SHIM, "-c", "raise SystemExit(7)"]
            found = self._start(words, {VARIABLE: encode(row)}, directory).returncode
            if found != 7:
                fail(
                    f"python -c … exited with 7, but the exit code is {found}",
                    "refuse commands that are not scripts: if not command.script: raise "
                    "gpuprof.errors.ConfigError([…])",
                )

    def test_another_program_runs_or_is_refused(self, tmp_path: Path) -> None:
        """A program other than Python runs unchanged or is refused before it starts."""
        self._need("render_command")
        seen = tmp_path / "seen"
        with suppress(ConfigError):
            planner, tool = self._planner(tmp_path)
            planned = planner.worker(
                "Kit", 0, script=False, python=False, tool=common_tool([tool]) if tool else None
            )
            variables = {VARIABLE: encode(planner.row(planned, ["sh"], tool))}
            done = self._start(
                [*BEHIND_THE_SHIM, "-c", 'echo "$1" > "$0"', str(seen), "ran"], variables, tmp_path
            )
            if not seen.exists() or seen.read_text() != "ran\n":
                fail(
                    f"sh -c … did not run unchanged: {(done.stdout + done.stderr).strip()[-2000:]}",
                    "put nothing between *command.interpreter and *command.arguments, or refuse "
                    "other programs: if not command.python: raise gpuprof.errors.ConfigError([…])",
                )

    def test_the_files_hold_what_was_captured(self, tmp_path: Path) -> None:
        """Each window leaves the planned file, complete and with every range of its step."""
        ran = self._run(tmp_path, "work", [])
        self._expect_complete(
            ran,
            "name each window's file in expected_files, or return it from stop_capture or recover",
        )
        unexpected = [window.number for window in WINDOWS if window.number not in ran.planned.files]
        if unexpected and self._implements("expected_files"):
            fail(
                f"the plan has no file for window {unexpected[0]}",
                "return a file for each of the given windows from expected_files",
            )
        for row in ran.rows:
            labels = self.read_labels(Path(str(row.file)))
            if labels is None:
                continue
            (window,) = (window for window in WINDOWS if window.label == row.window)
            wanted = _program.expected_labels(window.start or 0)
            found = {label: labels.get(label, 0) for label in wanted}
            if found != wanted:
                fail(
                    f"{row.file} has the ranges {found}; the worker opened {wanted}",
                    "record each range once, in every thread and task",
                )

    def test_awkward_paths_survive(self, tmp_path: Path) -> None:
        """Unusual characters in the output directory do no harm; nothing is written elsewhere."""
        name = "".join(character for character in AWKWARD if character not in self.refused_in_paths)
        directory = tmp_path / name / "out"
        ran = self._run(directory, "work", [], elsewhere=tmp_path)
        self._expect_complete(
            ran, "keep the path unchanged; escape the characters that the tool would expand"
        )
        strangers = [path.name for path in [*tmp_path.iterdir(), *(tmp_path / name).iterdir()]]
        strange = sorted({*strangers} - {name, "out", "worker.py", "seen.json"})
        if strange:
            fail(
                f"{strange[0]!r} was written beside the output directory",
                "write below worker.directory only",
            )

    def _expect_complete(self, ran: Ran, remedy: str) -> None:
        if ran.seen is None:
            fail(f"the worker did not run: {ran.output}", remedy)
        does = [hook for hook in ("render_command", "start_capture") if self._implements(hook)]
        if not ran.rows and does:
            fail(f"the backend has {does[0]}, but no hook names its files", remedy)
        for row in ran.rows:
            if row.state != "complete":
                fail(
                    f"window {row.window}: {row.file} is {row.state}: {row.reason}; "
                    f"{_beside(row)}\n{ran.output}",
                    remedy,
                )

    def _run(
        self,
        directory: Path,
        works: str,
        arguments: list[str],
        elsewhere: Path | None = None,
        launcher: Callable[[], object] | None = None,
    ) -> Ran:
        """Run a worker as a launcher does: plan it, start it behind the shim, settle its files."""
        planner, tool = self._planner(directory)
        planned = planner.worker("Kit", 0, tool=common_tool([tool]) if tool else None)
        row = planner.row(planned, [sys.executable, *FLAGS], tool)
        script, seen = self._prepare(elsewhere or directory)
        start = BEHIND_THE_SHIM if planned.wrapped else [sys.executable, *FLAGS]
        done = self._start(
            [*start, str(script), str(seen), works, *arguments],
            {VARIABLE: encode(row)},
            script.parent,
            launcher,
        )
        profiled = {("Kit", 0): planned} if planned.profiled else {}
        record = settle_node(planner, profiled)
        rows = receipt_rows(planned, [record], planner.manager("Kit")) if planned.profiled else []
        output = (done.stdout + done.stderr).strip()[-2000:]
        return Ran(
            planned,
            json.loads(seen.read_text()) if seen.exists() else None,
            rows,
            output,
            done.returncode,
        )

    def _planner(self, directory: Path) -> tuple[Planner, Tool | None]:
        """The planner of a job with windows at two steps, and the tool; skips without the tool."""
        section = {} if self.name == "none" else {self.name: dict(self.options)}
        steps = [window.start for window in WINDOWS]
        config = load({"backend": self.name, "worker_groups": "all", "steps": steps, **section})
        planner = Planner(config, "run", str(directory))
        try:
            return planner, planner.check_tool()
        except ToolError as error:
            pytest.skip(str(error))

    def _without(
        self,
        directory: Path,
        works: str,
        arguments: list[str],
        launcher: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """A worker's report of itself without gpuprof."""
        script, seen = self._prepare(directory)
        self._start(
            [sys.executable, *FLAGS, str(script), str(seen), works, *arguments],
            {},
            directory,
            launcher,
        )
        expected: dict[str, Any] = json.loads(seen.read_text())
        return expected

    def _prepare(self, directory: Path) -> tuple[Path, Path]:
        directory.mkdir(parents=True, exist_ok=True)
        script, seen = directory / "worker.py", directory / "seen.json"
        shutil.copy(_program.__file__, script)
        seen.unlink(missing_ok=True)
        return script, seen

    def _start(
        self,
        command: list[str],
        variables: dict[str, str],
        directory: Path,
        launcher: Callable[[], object] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `launcher` prepares its process first."""
        environment = {**os.environ, **variables}
        # files, by which the worker can name its outputs
        said = directory / "stdout", directory / "stderr"
        with (
            open(_program.__file__) as stdin,
            said[0].open("w") as stdout,
            said[1].open("w") as stderr,
        ):
            done = subprocess.run(
                command,
                env=environment,
                cwd=directory,
                timeout=DEADLINE,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=launcher,
                check=False,
            )
        texts = [path.read_text(errors="replace") for path in said]
        for path in said:
            path.unlink()
        return subprocess.CompletedProcess(command, done.returncode, *texts)


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


def _beside(row: ReceiptRow) -> str:
    """The other files in a missing file's directory, as the tool may have used another name."""
    beside = Path(row.file).parent.glob("*") if row.file else ()
    names = sorted(path.name for path in beside if path.is_file() and path.suffix not in _OWN)
    return f"its directory has {', '.join(names) or 'no other file'}"
