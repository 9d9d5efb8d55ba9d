"""Checks with a real worker: a process behind the rendered command, and the files that it leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from gpuprof._artifacts.account import receipt_rows
from gpuprof._artifacts.receipt import ReceiptRow
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


@attrs.frozen
class Ran:
    """A worker that has ended.

    Args:
        seen: what it saw of itself.
        rows: of the receipt.
        exit_code: what whoever has started it was told.
    """

    planned: PlannedWorker
    seen: dict[str, Any] | None
    rows: list[ReceiptRow]
    output: str
    exit_code: int


class WorkerChecks(Case):
    """Needs the tool, where the backend has one; skipped without it, with the tool's own hint."""

    def test_the_worker_is_what_it_would_be(self, tmp_path: Path) -> None:
        """Its interpreter, the interpreter's flags, its arguments, and that it is the main program."""
        arguments = ["a b", "'", '"', "\\", "$HOME", "%p", "{node}", "\N{SNOWMAN}", "--help", ""]
        ran = self._run(tmp_path, "see", arguments)
        expected = self._without(tmp_path, "see", arguments)
        if ran.seen is None:
            fail(
                f"the worker did not run: {ran.output}",
                "look at the command: gpuprof plan prints it",
            )
        for name, value in expected.items():
            if ran.seen[name] != value:
                what = {
                    "executable": "sys.executable",
                    "flags": "sys.flags",
                    "argv": "sys.argv",
                    "name": "__name__",
                }[name]
                fail(
                    f"{what} is {ran.seen[name]!r} and would be {value!r}",
                    "render [*prefix, *command.interpreter, *command.arguments], one word each, "
                    "and leave them as they are",
                )

    def test_the_exit_code_passes(self, tmp_path: Path) -> None:
        """Whoever has started the worker learns that it failed: a launcher that restarts ranks, a
        scheduler, a shell.
        """
        for works, expected in (("exit", 7), ("raise", 1)):
            found = self._run(tmp_path / works, works, []).exit_code
            if found != expected:
                fail(
                    f"the worker ended with {expected}, and the exit code is {found}",
                    "end with the worker's exit code, or render *command.keep_exit_code in front "
                    "of a script that the tool runs",
                )

    def test_another_program_runs_or_is_refused(self, tmp_path: Path) -> None:
        """``gpuprof run`` takes any program: one that is no Python runs as it stands, or is refused
        before it starts.
        """
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
                    "sh -c … did not run as it stands: "
                    f"{(done.stdout + done.stderr).strip()[-2000:]}",
                    "put nothing between *command.interpreter and *command.arguments, or refuse "
                    "what you cannot run: "
                    "if not command.python: raise gpuprof.errors.ConfigError([…])",
                )

    def test_the_files_hold_what_was_captured(self, tmp_path: Path) -> None:
        """For each window what the plan expected; complete, and with every range of its step, of
        threads and of tasks.
        """
        ran = self._run(tmp_path, "work", [])
        self._expect_complete(
            ran,
            "name in expected_files, or return from stop_capture or recover, what each window "
            "leaves",
        )
        unexpected = [window.number for window in WINDOWS if window.number not in ran.planned.files]
        if unexpected and self._implements("expected_files"):
            fail(
                f"the plan has no file for window {unexpected[0]}",
                "expected_files speaks of each of the given windows",
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
                    f"{row.file} has the ranges {found}, and {wanted} were opened",
                    "record each range once, in every thread and task",
                )

    def test_awkward_paths_survive(self, tmp_path: Path) -> None:
        """Spaces, quotes, letters of other alphabets, ``$`` and ``%`` in the output directory;
        nothing lands elsewhere.
        """
        name = "".join(character for character in AWKWARD if character not in self.refused_in_paths)
        directory = tmp_path / name / "out"
        ran = self._run(directory, "work", [], elsewhere=tmp_path)
        self._expect_complete(
            ran, "leave the path as it is; where the tool expands something in it, escape that"
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
            fail(f"it has {does[0]}, and nothing says which files there will be", remedy)
        for row in ran.rows:
            if row.state != "complete":
                fail(
                    f"window {row.window}: {row.file} is {row.state}: {row.reason}; "
                    f"{_beside(row)}\n{ran.output}",
                    remedy,
                )

    def _run(
        self, directory: Path, works: str, arguments: list[str], elsewhere: Path | None = None
    ) -> Ran:
        """Run a worker as a launcher would: planned, behind the shim, settled."""
        planner, tool = self._planner(directory)
        planned = planner.worker("Kit", 0, tool=common_tool([tool]) if tool else None)
        row = planner.row(planned, [sys.executable, *FLAGS], tool)
        script, seen = self._prepare(elsewhere or directory)
        start = BEHIND_THE_SHIM if planned.wrapped else [sys.executable, *FLAGS]
        done = self._start(
            [*start, str(script), str(seen), works, *arguments],
            {VARIABLE: encode(row)},
            script.parent,
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
        """For a job with windows at two steps, and the tool; skips the check where there is none."""
        section = {} if self.name == "none" else {self.name: dict(self.options)}
        steps = [window.start for window in WINDOWS]
        config = load({"backend": self.name, "worker_groups": "all", "steps": steps, **section})
        planner = Planner(config, "run", str(directory))
        try:
            return planner, planner.check_tool()
        except ToolError as error:
            pytest.skip(str(error))

    def _without(self, directory: Path, works: str, arguments: list[str]) -> dict[str, Any]:
        """What a worker sees without gpuprof."""
        script, seen = self._prepare(directory)
        self._start(
            [sys.executable, *FLAGS, str(script), str(seen), works, *arguments], {}, directory
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
        self, command: list[str], variables: dict[str, str], directory: Path
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables}
        return subprocess.run(
            command,
            env=environment,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            stdin=subprocess.DEVNULL,
            check=False,
        )


def _beside(row: ReceiptRow) -> str:
    """What there is where a file is missing: under which name the tool has written it, if it has."""
    beside = Path(row.file).parent.glob("*") if row.file else ()
    names = sorted(path.name for path in beside if path.is_file() and path.suffix != ".json")
    return f"in its directory there is {', '.join(names) or 'no other file'}"
