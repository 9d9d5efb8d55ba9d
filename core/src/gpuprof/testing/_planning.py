"""Checks of the hooks that plan.

They run where nothing may start: on the driver, and for ``gpuprof plan``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from gpuprof._config.structure import structure
from gpuprof.backend import loading
from gpuprof.backend.types import Tool, Window
from gpuprof.errors import ConfigError
from gpuprof.testing._case import COMMAND, WINDOWS, Case, fail
from gpuprof.testing._purity import acts_of

LIFETIME = (Window(1, None, None),)


class PlanningChecks(Case):
    """Commands, variables and files, before anything runs."""

    def test_planning_is_pure(self) -> None:
        """The same answer twice, and nothing done to get it."""
        tool = self._tool()
        for windows in (WINDOWS, LIFETIME):
            for hook in ("render_command", "inject_env", "plan_notes", "expected_files"):
                first, acts = acts_of(partial(self._plan, hook, tool, windows))
                if acts:
                    fail(
                        f"{hook} did this: {', '.join(acts)}",
                        f"{hook} only says what should be; move it to probe or start_capture",
                    )
                second = self._plan(hook, tool, windows)
                if first != second:
                    fail(
                        f"{hook} said {first!r}, then {second!r}",
                        "derive the answer from the arguments and the options alone",
                    )

    def _plan(self, hook: str, tool: Tool, windows: tuple[Window, ...]) -> Any:
        worker = self._worker(windows=windows)
        given = {"worker": worker, "command": COMMAND, "tool": tool, "windows": windows}
        specification = getattr(self._hooks().hook, hook)
        return specification(**{name: given[name] for name in specification.spec.argnames})

    def test_the_command_is_a_list_of_strings(self) -> None:
        """With the worker's arguments at its end, where the launcher appends what it knows later."""
        self._need("render_command")
        rendered = self._plan("render_command", self._tool(), WINDOWS)
        if not isinstance(rendered, list) or not all(isinstance(word, str) for word in rendered):
            fail(
                f"render_command returned {rendered!r}",
                "return a list of strings, one for each word",
            )
        if tuple(rendered[-len(COMMAND.arguments) :]) != COMMAND.arguments:
            fail(
                f"the command ends in {rendered[-2:]}",
                "end it with *command.arguments: Ray appends the worker's own behind it",
            )

    def test_variables_are_strings(self) -> None:
        """Or ``None``, which unsets."""
        self._need("inject_env")
        for injected in self._plan("inject_env", self._tool(), WINDOWS):
            wrong = {
                name: value
                for name, value in injected.items()
                if value is not None and not isinstance(value, str)
            }
            if wrong:
                fail(
                    f"inject_env returned {wrong!r}",
                    "convert values to strings; None unsets a variable",
                )

    def test_the_users_variables_win(self) -> None:
        """What the option `env` gives is what the worker gets."""
        self._need("inject_env")
        if "env" not in {field.name for field in attrs.fields(self.backend.Options)}:
            pytest.skip(
                "the backend has no option env; values that the job sets win in gpuprof itself"
            )
        for name in self._injected(self.options):
            given: Any = self.options.get("env") or {}
            made = self._injected({**self.options, "env": {**given, name: "the user's"}})
            if made.get(name) != "the user's":
                fail(
                    f"inject_env sets {name} to {made.get(name)!r} over the option env",
                    "put {**yours, **options.env} last",
                )

    def _injected(self, section: Mapping[str, object]) -> dict[str, str | None]:
        hooks = loading.manager(self.backend(structure(section, self.backend.Options, "options")))
        merged: dict[str, str | None] = {}
        for injected in hooks.hook.inject_env(worker=self._worker(), tool=self._tool()):
            merged.update(injected)
        return merged

    def test_a_tool_is_found_or_said_to_be_missing(self) -> None:
        """`probe` returns a `Tool` that can travel as JSON, or nothing; then `missing_tool` tells
        what to install.
        """
        self._need("probe")
        hook = self._hooks().hook
        tool = hook.probe()
        if tool is None:
            if not hook.missing_tool():
                fail(
                    "probe found nothing and missing_tool says nothing",
                    "say in missing_tool which command installs the tool",
                )
            return
        if not isinstance(tool, Tool):
            fail(f"probe returned {tool!r}", "return a gpuprof.backend.Tool, or None")
        if Tool(**json.loads(json.dumps(attrs.asdict(tool)))) != tool:
            fail(
                f"{tool!r} is not the same after it has travelled as JSON",
                "use types that JSON has in Tool.features",
            )

    def test_the_preflight_takes_the_example(self) -> None:
        """With its tool there, a backend has nothing against the options that its author gives."""
        self._need("preflight")
        hook = self._hooks().hook
        tool = hook.probe()
        if tool is None:
            pytest.skip(hook.missing_tool())
        refusal = hook.preflight(worker=self._worker(), tool=tool)
        if refusal is None:
            return
        if not (isinstance(refusal, tuple) and [str, str] == [type(part) for part in refusal]):
            fail(
                f"preflight returned {refusal!r}",
                "return None, or the key to blame (or '') and the tool's words",
            )
        fail(
            f"preflight refuses the example: {refusal[0]}: {refusal[1]}",
            "mend the preflight, or give options that work",
        )

    def test_files_are_expected_where_they_may_be(self) -> None:
        """For windows that exist, in the worker's directory, different for different workers."""
        self._need("expected_files")
        seen: dict[str, str] = {}
        for group, rank in (("Kit", 0), ("Kit", 1), ("Kit-0", 1)):
            worker = self._worker(group=group, rank=rank)
            files = self._hooks().hook.expected_files(worker=worker, windows=WINDOWS) or {}
            strange = [
                number for number in files if number not in (window.number for window in WINDOWS)
            ]
            if strange:
                fail(
                    f"expected_files speaks of window {strange[0]!r}",
                    "its keys are the numbers of the given windows",
                )
            for file in files.values():
                if Path(file).parent != Path(worker.directory):
                    fail(
                        f"expected_files places {file} outside {worker.directory}",
                        "begin the path with worker.final_stem(window)",
                    )
                if seen.setdefault(file, worker.name) != worker.name:
                    fail(
                        f"{seen[file]} and {worker.name} both have {file}",
                        "begin the path with worker.final_stem(window)",
                    )

    def test_what_paths_cannot_hold_is_refused(self) -> None:
        """Characters that the tool cannot take in a path are refused when it is planned, by an
        error that shows them.
        """
        for character in self.refused_in_paths:
            directory = f"/gpuprof/a{character}b"
            try:
                for hook in ("render_command", "inject_env"):
                    specification = getattr(self._hooks().hook, hook)
                    given = {
                        "worker": self._worker(directory),
                        "command": COMMAND,
                        "tool": self._tool(),
                    }
                    specification(**{name: given[name] for name in specification.spec.argnames})
            except ConfigError as error:
                if character in str(error):
                    continue
            fail(
                f"{character!r} in a path is not refused",
                "raise ConfigError with the path, or take it out of refused_in_paths",
            )
