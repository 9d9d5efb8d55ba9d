"""Checks of the planning hooks.

These hooks run on the driver and in ``gpuprof plan``, where nothing may start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof._config.structure import structure
from gpuprof.backend import loading
from gpuprof.backend.types import Collected, Tool, Window
from gpuprof.errors import ConfigError, ToolError

from gpuprof_testing import _surroundings
from gpuprof_testing._case import COMMAND, LIFETIME, WINDOWS, Case, fail
from gpuprof_testing._hooks import SOFT, expect_nothing_else
from gpuprof_testing._purity import acts_of


@contextmanager
def _an_input(path: Path) -> Iterator[None]:
    """While this lasts, this process has an input that shows what is read of it."""
    path.write_text("the job's input\n" * 1000)
    copy_of_input = os.dup(0)
    try:
        with path.open() as file:
            os.dup2(file.fileno(), 0)
        yield
    finally:
        os.dup2(copy_of_input, 0)
        os.close(copy_of_input)


class PlanningChecks(Case):
    """Commands, variables and expected files."""

    def test_planning_is_pure(self) -> None:
        """Planning hooks return the same twice and have no side effects."""
        tool = self._tool()
        for windows in (WINDOWS, LIFETIME):
            for hook in ("render_command", "inject_env", "plan_notes", "expected_files"):
                first, acts = acts_of(partial(self._plan, hook, tool, windows))
                if acts:
                    fail(
                        f"{hook} has side effects: {', '.join(acts)}",
                        f"{hook} must be pure; move them to probe or start_capture",
                    )
                second = self._plan(hook, tool, windows)
                if first != second:
                    fail(
                        f"{hook} returned {first!r}, then {second!r}",
                        "compute the result from the arguments and the options only",
                    )

    def _plan(self, hook: str, tool: Tool, windows: tuple[Window, ...]) -> Any:
        worker = self._worker(windows=windows)
        arguments: dict[str, Any] = {
            "worker": worker,
            "command": COMMAND,
            "tool": tool,
            "windows": windows,
        }
        return self._ask(hook, **arguments)

    def test_the_command_is_a_list_of_strings(self) -> None:
        """The command ends with the worker's arguments, where Ray appends more."""
        self._need("render_command")
        words = self._plan("render_command", self._tool(), WINDOWS) or []
        if tuple(words[-len(COMMAND.arguments) :]) != COMMAND.arguments:
            fail(
                f"the command ends in {words[-2:]}",
                "end it with *command.arguments: Ray appends the worker's own arguments",
            )

    def test_variables_are_strings(self) -> None:
        """Environment variables are strings, or ``None``, which unsets one."""
        self._need("inject_env")
        self._plan("inject_env", self._tool(), WINDOWS)

    def test_every_hook_returns_what_it_should(self, tmp_path: Path) -> None:
        """Hooks that are called on a node return paths, strings and mappings as documented."""
        arguments: dict[str, Any] = {
            "worker": self._worker(tmp_path),
            "windows": WINDOWS,
            "files": {},
            "ended": True,
            "scratch": "",
            "tool": self._tool(),
        }
        for hook in ("missing_tool", "plan_notes"):
            self._ask(hook, **arguments)
        del arguments["tool"]
        try:
            collection = self._ask("collect_files", **arguments) or Collected()
        except ToolError:  # with the reason why there is none
            return
        except Exception as error:
            fail(
                f"collect_files raised {error!r} for a worker that has left no file",
                "return None, or raise gpuprof.errors.ToolError with the reason",
            )
        for path in (path for paths in collection.files.values() for path in paths):
            if not Path(path).exists():
                fail(f"collect_files returned {path}, which does not exist", "return what is there")

    def test_the_users_variables_win(self) -> None:
        """The user's option `env` wins over the backend's variables."""
        self._need("inject_env")
        if "env" not in {field.name for field in attrs.fields(self.backend.Options)}:
            pytest.skip(
                "the backend has no option env; gpuprof itself lets the job's own variables win"
            )
        for name in self._injected(self.options):
            own_env: Any = self.options.get("env") or {}
            variables = self._injected({**self.options, "env": {**own_env, name: "the user's"}})
            if variables.get(name) != "the user's":
                fail(
                    f"inject_env sets {name} to {variables.get(name)!r} over the option env",
                    "return {**yours, **options.env}",
                )

    def _injected(self, section: Mapping[str, object]) -> dict[str, str | None]:
        hooks = loading.manager(self.backend(structure(section, self.backend.Options, "options")))
        result: dict[str, str | None] = {}
        arguments = {"worker": self._worker(), "tool": self._tool()}
        for variables in self._ask("inject_env", hooks, **arguments):
            result.update(variables)
        return result

    def test_a_tool_is_found_or_said_to_be_missing(self) -> None:
        """`probe` finds a `Tool` that survives JSON, or `missing_tool` says how to install it."""
        self._need("probe")
        tool = self._ask("probe")
        if tool is None:
            if not self._ask("missing_tool"):
                fail(
                    "probe found no tool, and missing_tool returned nothing",
                    "return the command that installs the tool from missing_tool",
                )
            return
        if Tool(**json.loads(json.dumps(attrs.asdict(tool)))) != tool:
            fail(
                f"{tool!r} changes in a round trip through JSON",
                "use only JSON's types in Tool.features",
            )

    def test_the_preflight_takes_the_example(self, tmp_path: Path) -> None:
        """If the tool is installed, `diagnose` accepts the example options, and changes nothing.

        For a plan it runs no program under the tool.
        """
        self._need("diagnose", "probe")
        tool = self._ask("probe")
        if tool is None:
            pytest.skip(self._ask("missing_tool"))
        worker = self._worker(tmp_path)
        ask = partial(self._ask, "diagnose", worker=worker, tool=tool)
        _, reading_acts = acts_of(partial(ask, purpose="plan"))
        acts: list[str] = []
        with _an_input(tmp_path.parent / f"{tmp_path.name}-input"):
            trial = partial(acts_of, partial(ask, purpose="start"), acts)
            effects = _surroundings.watch(trial)
        if effects.raised is not None:
            raise effects.raised
        # of the directory that everybody has, others take and leave, too
        expect_nothing_else("diagnose", effects, SOFT | {_surroundings.TEMPORARY})
        starts = [act for act in acts if act.startswith("subprocess.Popen") and act in reading_acts]
        if starts:
            fail(
                f"for a plan diagnose runs what it runs before a start: {starts[0]}",
                "for a plan only have the tool read the options; start no program under it",
            )
        if leftovers := sorted(path.name for path in tmp_path.iterdir()):
            fail(
                f"diagnose leaves {leftovers[0]} in the worker's directory",
                "let the trial write into a temporary directory that you remove",
            )
        answers = effects.result[0] or []
        for check in (check for answer in answers for check in answer):
            if not check.ok:
                fail(
                    f"diagnose refuses the example options: {check.key}: {check.detail}",
                    "fix the check, or give options that work",
                )

    def test_files_are_expected_where_they_may_be(self) -> None:
        """Expected files belong to given windows, in the worker's directory, unique per worker."""
        self._need("expected_files")
        owners: dict[str, str] = {}
        for group, rank in (("Kit", 0), ("Kit", 1), ("Kit-0", 1)):
            worker = self._worker(group=group, rank=rank)
            files = self._ask("expected_files", worker=worker, windows=WINDOWS) or {}
            strange = [
                number for number in files if number not in (window.number for window in WINDOWS)
            ]
            if strange:
                fail(
                    f"expected_files has a key {strange[0]!r}, which is no window's number",
                    "use the numbers of the given windows as keys",
                )
            for file in files.values():
                if Path(file).parent != Path(worker.directory):
                    fail(
                        f"expected_files places {file} outside {worker.directory}",
                        "begin the path with worker.final_stem(window)",
                    )
                if owners.setdefault(file, worker.name) != worker.name:
                    fail(
                        f"{owners[file]} and {worker.name} both expect {file}",
                        "begin the path with worker.final_stem(window)",
                    )

    def test_what_paths_cannot_hold_is_refused(self) -> None:
        """Planning refuses a path with an unsupported character and shows the character."""
        for character in self.refused_in_paths:
            directory = f"/gpuprof/a{character}b"
            try:
                for hook in ("render_command", "inject_env"):
                    specification = getattr(self._hooks().hook, hook)
                    arguments = {
                        "worker": self._worker(directory),
                        "command": COMMAND,
                        "tool": self._tool(),
                    }
                    specification(**{name: arguments[name] for name in specification.spec.argnames})
            except ConfigError as error:
                if character in str(error):
                    continue
            fail(
                f"{character!r} in a path is not refused",
                "raise ConfigError with the path, or remove it from refused_in_paths",
            )
