"""Checks of every hook by itself: what it changes around it, prints, takes, and reads."""

from __future__ import annotations

import copy
import gc
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof._config.describe import keys_of
from gpuprof._config.structure import structure
from gpuprof.backend import contract, hookspecs, loading
from gpuprof.backend.boundary import Hooks
from gpuprof.backend.types import Command, Tool, Window, Worker
from gpuprof.errors import ConfigError, PluginError, ToolError

from gpuprof_testing import _surroundings
from gpuprof_testing._case import COMMAND, LIFETIME, WINDOWS, Case, fail
from gpuprof_testing._purity import acts_of
from gpuprof_testing._surroundings import Called

PLANNING = ("render_command", "inject_env", "expected_files", "plan_notes")
LIMITS = {
    **dict.fromkeys(PLANNING, 1.0),
    "missing_tool": 1.0,
    "check_report": 1.0,
    "probe": 10.0,
    "diagnose": 60.0,
    "collect_files": 10.0,
}
"""Seconds that each hook may take. The page "Write a backend" has the same.

Of `collect_files` where the worker has left nothing.
"""
PROBE_AGAIN = 1.0
"""Seconds that a second call of `probe` may take. The page "Write a backend" has the same."""
SOFT = frozenset({"functions at exit", "audit of imports", "numpy's random numbers", "open files"})
"""What the import of a library may change, once."""
_REFUSALS = (ConfigError, PluginError, ToolError)
TAKEN = re.compile(
    "(GPUPROF|RAY|SLURM|TORCHELASTIC|PMI|OMPI)_.*|PATH|HOME|"
    # but for what Python and the loader record of themselves
    "PYTHON(?!PERFSUPPORT|PROFILEIMPORTTIME|TRACEMALLOC|MALLOC|FAULTHANDLER)[A-Z0-9]*|"
    "PYTHON_(GIL|CPU_COUNT|HISTORY|COLORS|BASIC_REPL)|"
    "LD_(?!DEBUG|AUDIT|PROFILE|TRACE).*|"
    "LANG|LANGUAGE|LC_.*|TMPDIR|TMP|TEMP|USER|LOGNAME|SHELL|PWD|TERM|"
    "TZ|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|VIRTUAL_ENV|"
    "(CUDA|ROCR|HIP|ASCEND_RT|ZE)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_LAUNCH_BLOCKING|"
    "(OMP|MKL|OPENBLAS)_NUM_THREADS|MALLOC_.*|IFS|BASH_ENV|ENV"
)
"""Variables that belong to the job, the launcher or the user."""
_PLACEHOLDER = re.compile(r"\{[a-z_]*\}")
_KNOWN_PLACEHOLDERS = {
    "{node}",
    "{incarnation}",
    "{interpreter}",
    "{tool}",
    "{keep_exit_code}",
}
WRONG: tuple[object, ...] = (-1, 0, "no such value", "", [], ["no such value"])
"""Values that few options can have."""
DISCRETE = Window(1, 1, 2, "kit/scope", 2)


class HookChecks(Case):
    """Each hook is called as gpuprof calls it, in this process."""

    def test_it_says_what_it_is(self) -> None:
        """The class declares the contract's version."""
        version = getattr(self.backend, "contract", None)
        if version is None:
            fail(
                "the class has no attribute contract",
                f"add contract = {contract.CONTRACT}, the version that it is written for",
            )
        problem = contract.thread_problem(self.backend)
        if problem is not None:
            fail(f"the class breaks the contract: {problem}", "correct the attribute")
        exclusive = getattr(self.backend, "exclusive", ())
        if not isinstance(exclusive, (list, tuple)):
            fail(f"exclusive is {exclusive!r}", 'list the names, as in exclusive = ("CUPTI",)')

    def test_every_option_is_used(self, tmp_path: Path) -> None:
        """A hook, or the options themselves, read each option."""
        read: set[str] = set()
        hooks = loading.manager(self.backend(_watched(self._options(), read)))
        capture = ("start_capture", "open_range", "stop_capture")
        raised = ""
        for hook in [
            *(hook_name for hook_name in hookspecs.__all__ if hook_name not in capture),
            *capture,
        ]:
            try:
                with self._arguments(hook, tmp_path) as arguments:
                    result = self._ask_plainly(hook, hooks, **arguments)
                    if hook == "open_range" and result is not None:
                        with result:
                            pass
                    if hook == "start_capture":
                        _be_busy()  # what is recorded may read some, too
            except Exception as error:
                raised = raised or f", as {hook} raised {type(error).__name__}: {error}"
        names = [field.name for field in attrs.fields(self.backend.Options)]
        names_left = [name for name in names if name not in read]
        if names_left:
            fail(
                f"no hook reads the option {names_left[0]}{raised}",
                "mend that, then try again"
                if raised
                else "use it, or remove it; to check its value is no use",
            )

    def test_wrong_values_are_refused_early(self, tmp_path: Path) -> None:
        """What an option cannot be is refused before a worker starts, not by its first window."""
        tool = self._ask("probe") if self._implements("probe") else None
        worker = self._worker(tmp_path)
        tried: list[object] = []
        values = ((f.name, v) for f in attrs.fields(self.backend.Options) for v in WRONG)
        for name, value in (("", None), *values):  # the example itself first
            section = {**self.options, **({name: value} if name else {})}
            with suppress(*_REFUSALS):
                options = structure(section, self.backend.Options, "options")
                refusal = self._refusal(loading.manager(self.backend(options)), worker, tool, tried)
                if refusal is not None and not name:
                    return  # other checks are about that
                if refusal is not None:
                    fail(
                        f"{name}: {value!r} is taken, and then {refusal}",
                        "refuse it where the options are made: in __attrs_post_init__ raise "
                        "gpuprof.errors.ConfigError([…]); or before a start, by a check of "
                        "diagnose that fails",
                    )

    def _refusal(
        self, hooks: Hooks, worker: Worker, tool: Tool | None, tried: list[object]
    ) -> str | None:
        """Why nothing is recorded with options that were taken; ``None`` if something may be.

        Args:
            tried: the command lines that were tried before.
        """
        arguments = {"worker": worker, "window": WINDOWS[0], "tool": tool, "purpose": "start"}
        command = Command(("/bin/true",), (), script=False)
        planned_tool = tool or Tool("{tool}")
        words = self._ask_plainly(
            "render_command", hooks, worker=worker, command=command, tool=planned_tool
        )
        if tool is not None and words and words not in tried:
            tried.append(words)
            answers = self._ask_plainly("diagnose", hooks, **arguments)
            if not all(check.ok for checks in answers for check in checks or ()):
                return None
            ran = subprocess.run(
                [os.fspath(word) for word in words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMITS["diagnose"],
                check=False,
            )
            if ran.returncode:
                said = (ran.stderr + ran.stdout).strip().splitlines() or [""]
                return f"the tool ends with {ran.returncode}: {said[-1][:200]}"
        try:
            self._ask_plainly("start_capture", hooks, **arguments)
        except Exception as error:
            return f"start_capture raises {error!r}"
        finally:
            with suppress(Exception):
                self._ask_plainly("stop_capture", hooks, **arguments)
        return None

    def test_each_instance_has_its_own_options(self, tmp_path: Path) -> None:
        """An instance reads its own options, whichever instance was made last."""
        read: set[str] = set()
        hooks = self._hooks()
        names: set[str] = set()
        for hook in self._hooks_in_process():
            with suppress(Exception), self._arguments(hook, tmp_path) as arguments:
                self.backend(_watched(self._options(), read))
                read.clear()  # the constructor may read them
                try:
                    self._ask_plainly(hook, hooks, **arguments)
                finally:
                    names |= read
        if names:
            fail(
                f"an instance reads {min(names)} of another one's options",
                "keep the options on the instance, not on the class or in the module",
            )

    def test_options_have_good_defaults(self) -> None:
        """Each option has a default, which is valid, and shared with no other instance."""
        try:
            first, second = (structure({}, self.backend.Options, "options") for _ in range(2))
            for field in attrs.fields(self.backend.Options):
                if isinstance(field.default, (bool, int, float, str)):
                    structure({field.name: field.default}, self.backend.Options, "options")
        except ConfigError as error:
            fail(
                f"the defaults are not valid: {error}",
                f"give each option a valid default: backend: {self.name} alone is to work",
            )
        for field in attrs.fields(self.backend.Options):
            value = getattr(first, field.name)
            if isinstance(value, (list, dict, set)) and value is getattr(second, field.name):
                fail(
                    f"all instances share the default of {field.name}",
                    "declare it with factory=list or factory=dict",
                )

    def _expect_quiet_hooks(self, tmp_path: Path) -> None:
        _surroundings.be_unusual(0)
        self._expect_a_quiet_constructor()
        for hook in self._hooks_in_process():
            if hook in ("start_capture", "stop_capture", "open_range"):
                continue
            with self._arguments(hook, tmp_path) as arguments:
                hooks = self._hooks()
                effects = self._watch(hook, hooks, arguments)
                if set(effects.changes) & SOFT:
                    second_effects = self._watch(hook, hooks, arguments)
                    effects.changes = {
                        name: change
                        for name, change in effects.changes.items()
                        if name not in SOFT or name in second_effects.changes
                    }
            expect_nothing_else(hook, effects)
            self._expect_no_writes(hook, effects.acts, tmp_path)
            limit = LIMITS.get(hook)
            # again: the machine may have been busy
            if (
                limit is not None
                and effects.seconds > limit < self._watch(hook, hooks, arguments).seconds
            ):
                fail(
                    f"{hook} took {effects.seconds:.1f} s; its limit is {limit:g} s",
                    "do less, or keep what takes long from one call to the next",
                )

    def _expect_no_writes(self, hook: str, acts: list[str], directory: Path) -> None:
        """Fail if a hook writes to anything but the worker's and the temporary directory."""
        places = (directory, tempfile.gettempdir(), "/dev", "/proc", Path.home() / ".cache")
        for act in acts:
            match = re.search(r" (/.*?)( for writing)?$", act)
            path = Path(match[1]) if match and not act.startswith("subprocess") else None
            if path is not None and not any(path.is_relative_to(place) for place in places):
                fail(
                    f"{hook} changes {path}",
                    "write into worker.directory, or into a temporary directory that you remove",
                )

    def _expect_a_quiet_constructor(self) -> None:
        """The constructor neither changes the process nor starts anything, in no time."""
        effects = _surroundings.watch(self.make)
        expect_nothing_else("the constructor", effects)
        if effects.seconds > 1.0 < _surroundings.watch(self.make).seconds:
            fail(
                f"the constructor took {effects.seconds:.1f} s; its limit is 1 s",
                "move what takes long to probe or start_capture",
            )

    def test_arguments_are_left_alone(self, tmp_path: Path) -> None:
        """No hook changes what it is given, or its options."""
        options = self._options()
        original = copy.deepcopy(options)
        hooks = loading.manager(self.backend(options))
        for hook in self._hooks_in_process():
            if hook in ("start_capture", "stop_capture", "open_range"):
                continue
            with self._arguments(hook, tmp_path) as arguments:
                before = copy.deepcopy(arguments)
                with suppress(Exception):
                    self._ask_plainly(hook, hooks, **arguments)
                changes = [name for name, value in before.items() if arguments[name] != value]
                if changes:
                    fail(f"{hook} changes its argument {changes[0]}", "change a copy of it")
            if options != original:
                fail(f"{hook} changes the options", "keep what changes on the instance")

    def test_plans_depend_on_their_arguments_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Directory, environment and earlier calls make no difference to a plan."""
        tool = self._tool()
        hooks = self._hooks()
        first = self._plans(hooks, tool)
        other = {"group": "Other", "rank": 7}
        alone = self._plans(self._hooks(), tool, **other)
        for first_plan, second_plan in (
            (alone, self._plans(hooks, tool, **other)),
            (first, self._plans(hooks, tool)),
        ):
            if second_plan != first_plan:
                _differs(first_plan, second_plan, "after another worker's plan")
        if self._plans(self._hooks(), tool) != first:
            _differs(first, self._plans(self._hooks(), tool), "on another instance")
        with monkeypatch.context() as surroundings:
            surroundings.chdir(tmp_path)
            for name in ("HOME", "USER", "PWD", "TMPDIR", "LANG", "HOSTNAME"):
                surroundings.setenv(name, str(tmp_path))
            for name in list(os.environ):
                if name not in ("PATH", "PYTHONPATH", "HOME", "USER", "PWD", "TMPDIR", "LANG"):
                    surroundings.delenv(name)
            surroundings.setenv("CUDA_VISIBLE_DEVICES", "")
            surroundings.setenv("RANK", "3")
            surroundings.setattr(os, "getpid", lambda: 999_999_999)
            with _surroundings.another_hour():
                other_plan = self._plans(self._hooks(), tool)
        if other_plan != first:
            _differs(first, other_plan, "in another process, directory, environment and hour")

    def test_plans_of_two_workers_differ(self) -> None:
        """Two ranks, two groups and two starts write into different files."""
        tool = self._tool()
        for windows in (WINDOWS, LIFETIME):
            texts: dict[str, str] = {}
            for worker in self._workers(windows):
                text = repr(self._outputs(worker, tool))
                if worker.directory in text and text in texts:
                    fail(
                        f"{worker.file_stem} and {texts[text]} get the same paths: {text}",
                        "put worker.file_stem into the name of every file that the tool writes",
                    )
                texts[text] = worker.file_stem

    def _outputs(self, worker: Worker, tool: Tool) -> list[object]:
        """The command and the variables, if they name files."""
        hooks = self._hooks()
        arguments: dict[str, Any] = {"worker": worker, "command": COMMAND, "tool": tool}
        return [
            self._ask("render_command", hooks, **arguments),
            self._ask("inject_env", hooks, **arguments),
        ]

    def _workers(self, windows: tuple[Window, ...]) -> list[Worker]:
        return [
            self._worker(group=group, rank=rank, incarnation=incarnation, windows=windows)
            for group, rank, incarnation in (
                ("Kit", 0, "1"),
                ("Kit", 1, "1"),
                ("Other", 0, "1"),
                ("kit", 0, "1"),
                ("Kit", 0, "2"),
                ("Kit", 0, "{incarnation}"),
            )
        ]

    def test_plans_take_every_worker(self) -> None:
        """Plans work for an armed worker without windows, and a tool known by name only."""
        for what, tool, windows in (
            ("an armed worker, whose windows are empty", self._tool(), ()),
            ("a tool that was not probed", Tool("{tool}"), WINDOWS),
        ):
            worker = self._worker(windows=windows)
            arguments: dict[str, Any] = {"worker": worker, "command": COMMAND, "tool": tool}
            for hook in PLANNING:
                try:
                    self._ask(hook, **arguments, windows=windows)
                except Exception as error:
                    fail(
                        f"{hook} raised {error!r} for {what}",
                        "worker.windows may be empty, tool.version None and tool.features {}",
                    )

    def test_the_probed_program_is_used(self) -> None:
        """The command has the path of the tool that it is given, not of one found while planning.

        The nodes may have it elsewhere.
        """
        self._need("render_command", "probe")
        tool = self._ask("probe")
        if tool is None:
            pytest.skip(self._ask("missing_tool") or "no tool")
        arguments: dict[str, Any] = {"command": COMMAND, "tool": Tool("{tool}")}
        arguments["worker"] = self._worker()
        words = self._ask("render_command", **arguments) or []
        if any(tool.path in word for word in words):
            fail(
                f"the command has {tool.path} of this machine",
                "use tool.path, which is the placeholder {tool} while planning",
            )

    def test_variables_are_the_tools_own(self) -> None:
        """Variables have values, known placeholders, and names that are not the job's."""
        self._need("inject_env")
        for windows in (WINDOWS, LIFETIME):
            worker = self._worker(windows=windows, incarnation="{incarnation}", node="{node}")
            own_env = self.options.get("env") or {}
            for variables in self._ask("inject_env", worker=worker, tool=self._tool()):
                for name, value in variables.items():
                    if isinstance(own_env, Mapping) and name in own_env:
                        continue
                    _check_variable(name, value)

    def test_the_command_has_good_words(self) -> None:
        """The command has known placeholders only, and no empty word of the backend's."""
        self._need("render_command")
        tool = self._tool()
        for windows in (WINDOWS, LIFETIME):
            worker = self._worker(windows=windows, incarnation="{incarnation}", node="{node}")
            words = self._ask("render_command", worker=worker, command=COMMAND, tool=tool) or []
            for word in words:
                strange = set(_PLACEHOLDER.findall(word)) - _KNOWN_PLACEHOLDERS
                if strange:
                    fail(
                        f"the command has the unknown placeholder {min(strange)} in {word!r}",
                        f"use one of {', '.join(sorted(_KNOWN_PLACEHOLDERS))}",
                    )
            if "" in words:
                fail("the command has an empty word", "leave the option out instead")
        arguments = ("worker.py", "--", "", "an argument", os.fsdecode(b"caf\xe9"))  # not UTF-8
        command = Command(("/kit/python3", "-X", "dev"), arguments)
        words = self._ask("render_command", worker=worker, command=command, tool=tool) or []
        python, *flags = command.interpreter
        own_words = [word for word in words if word in command.interpreter]
        # a tool that is a Python itself gets the interpreter's path inside another word
        inside = python not in words and any(python in word for word in words)
        if own_words != [python, *flags] and not inside:
            fail(
                f"of the interpreter {command.interpreter} the command has {words}",
                "put *command.interpreter in front of *command.arguments",
            )
        if tuple(words[-len(arguments) :]) != command.arguments:
            fail(
                f"of the arguments {command.arguments} the command has {words}",
                "end it with *command.arguments",
            )

    def test_expected_names_begin_as_they_should(self) -> None:
        """With steps, without them, for a scope and for a user's template: the final stem."""
        self._need("expected_files")
        for windows, template in (
            (WINDOWS, None),
            (LIFETIME, None),
            ((DISCRETE,), None),
            (WINDOWS, "of {group} {rank} at {step}"),
        ):
            worker = self._worker(windows=windows, file_name=template)
            files = self._ask("expected_files", worker=worker, windows=windows) or {}
            stems = {worker.final_stem(window) for window in (*windows, *LIFETIME)}
            for number, file in files.items():
                if not any(file.startswith(f"{stem}.") for stem in stems):
                    fail(
                        f"window {number} is expected in {file}; its name is to begin with "
                        f"{worker.final_stem(windows[0])}.",
                        "return worker.final_stem(window) with an extension",
                    )
            kinds = {Path(file).suffix for file in files.values()}
            if "" in kinds:
                fail("an expected file has no extension", "add one, by which readers know it")

    def test_a_missing_tool_raises_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With an empty PATH, `probe` finds the tool elsewhere, or a sentence says what to do."""
        self._need("probe")
        monkeypatch.setenv("PATH", str(tmp_path))
        try:
            hooks = self._hooks()
            tool = self._ask("probe", hooks)
            if tool is None and len(str(self._ask("missing_tool", hooks) or "").split()) < 3:
                fail(
                    "probe found no tool, and missing_tool does not help",
                    "return one sentence from missing_tool: what is missing, and how to install it",
                )
        except Exception as error:
            fail(f"without its program probe raised {error!r}", "return None if it is missing")

    def test_the_tool_is_there(self) -> None:
        """The path that `probe` returns is absolute and exists; a second call is quick."""
        self._need("probe")
        tool = self._ask("probe")
        if tool is None:
            pytest.skip(self._ask("missing_tool") or "no tool")
        if not os.path.isabs(tool.path) or not os.path.exists(tool.path):
            fail(
                f"probe returned the path {tool.path!r}, which is relative or does not exist",
                "return the absolute path of the program, such as from shutil.which",
            )
        version = tool.version or "1"
        if not re.search(r"\d", version) or len(version.splitlines()) > 1 or len(version) > 80:
            fail(
                f"probe returned the version {tool.version!r}",
                "return the tool's own version, such as 2.1, or None",
            )
        hooks = self._hooks()
        self._ask("probe", hooks)
        seconds = []
        for _ in range(2):  # the machine may be busy
            began = time.perf_counter()
            _, acts = acts_of(partial(self._ask, "probe", hooks))
            seconds.append(time.perf_counter() - began)
            starts = [act for act in acts if act.startswith(("subprocess", "os.posix_spawn"))]
        if starts or min(seconds) > PROBE_AGAIN:
            what = f"starts {starts[0].split()[-1]}" if starts else f"takes {min(seconds):.1f} s"
            fail(
                f"a second call of probe {what}",
                "it is called often: keep what was found, by the program's path and time of change",
            )

    def test_the_named_program_is_found(self, tmp_path: Path) -> None:
        """An option that names the program is marked, and read again each time."""
        self._need("probe")
        tool = self._ask("probe")
        if tool is None or not os.access(tool.path, os.X_OK):
            pytest.skip("there is no program to name")
        link, nowhere, plain = (tmp_path / name for name in ("here", "gone", "plain"))
        link.symlink_to(tool.path)
        plain.write_text("no program")
        for field in attrs.fields(self.backend.Options):
            tools = {}
            for path in (link, nowhere, plain):
                with suppress(*_REFUSALS):
                    section = {**self.options, field.name: str(path)}
                    options = structure(section, self.backend.Options, "options")
                    tools[path] = self._ask("probe", loading.manager(self.backend(options)))
            is_program = field.metadata.get("program")
            linked_tool = tools.get(link)
            if not is_program and linked_tool is not None and linked_tool.path == str(link):
                fail(
                    f"the option {field.name} names a program",
                    "declare it with option(…, program=True): whoever makes a run's files may "
                    "not choose what runs",
                )
            if is_program and linked_tool is not None and linked_tool.path == tool.path:
                fail(
                    f"with {field.name}: {link} probe returned {linked_tool.path}",
                    "look at the option in each call; what is kept is kept by the program's path",
                )
            for path in (nowhere, plain) if is_program else ():
                if tools.get(path) is not None:
                    fail(
                        f"with {field.name}: {path}, which cannot be run, probe returned "
                        f"{tools[path]}",
                        "return None unless the file is there and executable",
                    )

    def test_a_broken_tool_is_refused(self, tmp_path: Path) -> None:
        """A program that always fails is refused before a start, by a check that says why."""
        tool = self._ask("probe") if self._implements("probe") else None
        if tool is None or self._capability != "wraps":
            pytest.skip("the backend runs no program of its own")
        broken = tmp_path / "broken"
        broken.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
        broken.chmod(0o755)
        worker = self._worker(tmp_path)
        broken_tool = attrs.evolve(tool, path=str(broken))
        with suppress(*_REFUSALS):
            answers = self._ask("diagnose", worker=worker, tool=broken_tool, purpose="start")
            checks = [check for answer in answers for check in answer]
            names = {key.path for key in keys_of(self.backend.Options)}
            strange = [check.key for check in checks if check.key and check.key not in names]
            if strange:
                fail(
                    f"before a start diagnose blames {strange[0]}, which is no option",
                    "give the name of an option, without the section, or no key",
                )
            if self._implements("diagnose") and all(check.ok for check in checks):
                fail(
                    "before a start diagnose takes a program that always fails",
                    "run the tool that it is given, tool.path, and believe its exit code",
                )

    def test_checks_have_names_and_remedies(self, tmp_path: Path) -> None:
        """Each check of `diagnose` has a name and a finding; one that fails has a remedy."""
        self._need("diagnose")
        tool = self._ask("probe") if self._implements("probe") else Tool("{tool}")
        if tool is None:
            pytest.skip(self._ask("missing_tool") or "no tool")
        broken = attrs.evolve(tool, path=str(tmp_path / "nowhere"))
        for program in (tool, broken):
            try:
                worker = self._worker(tmp_path)
                answers = self._ask("diagnose", worker=worker, tool=program, purpose="doctor")
            except Exception as error:
                fail(f"diagnose raised {error!r}", "return a Check that failed, with a remedy")
            for check in (check for checks in answers for check in checks):
                if not check.name.strip() or not check.detail.strip():
                    fail(f"{check!r} has no name or no finding", "give it both")
                if "\n" in check.name + check.detail:
                    fail(f"{check!r} has several lines", "put the finding into one line")
                if not check.ok and not check.remedy.strip():
                    fail(f"{check!r} failed and has no remedy", "say what to do")

    def test_shared_folders_are_inside(self) -> None:
        """Folders shared by all of the tool's processes are in its temporary directory."""
        for folder in self._tool().shared_temporary:
            if os.path.isabs(folder) or ".." in Path(folder).parts or folder.strip() in ("", "."):
                fail(
                    f"the tool's shared_temporary has {folder!r}, which is not inside",
                    "give names inside the temporary directory, such as tool/locks",
                )

    def test_disposable_files_are_named(self) -> None:
        """A wildcard for files in which nothing is recorded does not take any file."""
        for wildcard in self._tool().disposable_temporary:
            if all(fnmatch(name, wildcard) for name in ("a-report.part", "Kit-0.raw", "x")):
                fail(
                    f"the tool's disposable_temporary has {wildcard!r}, which any file matches",
                    "name the tool's logs and locks: with no other file the directory is removed, "
                    "and what a killed worker recorded with it",
                )

    def test_sentences_are_sentences(self) -> None:
        """Notes and the word on a missing tool are single, non-empty lines."""
        hooks = self._hooks()
        arguments = {"worker": self._worker(), "tool": self._tool()}
        notes = [note for answer in self._ask("plan_notes", hooks, **arguments) for note in answer]
        if self._implements("probe"):
            missing = self._ask("missing_tool", hooks) or ""
            notes.append(missing)
            if len(missing.split()) < 4:
                fail(
                    f"missing_tool says {missing!r}, which does not help",
                    "say what is missing, and the command that installs it",
                )
        wrong = [note for note in notes if not note.strip() or "\n" in note.strip()]
        if wrong:
            fail(f"{wrong[0]!r} is no sentence", "return one line for each note")

    # how the checks call hooks

    @property
    def _capability(self) -> contract.Capability | None:
        return contract.capability(self.backend)

    def _options(self) -> Any:
        return structure(self.options, self.backend.Options, f"{type(self).__name__}.options")

    def _hooks_in_process(self) -> list[str]:
        return [hook for hook in hookspecs.__all__ if self._implements(hook)]

    def _plans(self, hooks: Any, tool: Tool, **more: Any) -> dict[str, Any]:
        plans: dict[str, Any] = {}
        for windows in (WINDOWS, LIFETIME):
            worker = self._worker(windows=windows, **more)
            arguments = {"worker": worker, "command": COMMAND, "tool": tool, "windows": windows}
            for hook in PLANNING:
                plans[f"{hook} {len(windows)}"] = self._ask(hook, hooks, **arguments)
        return plans

    @contextmanager
    def _arguments(self, hook: str, directory: Path) -> Iterator[dict[str, Any]]:
        """What a hook is called with, in a directory without files."""
        tool = self._tool()
        report = directory / "notes.txt"
        report.write_text("no report\n")
        yield {
            "worker": self._worker(directory),
            "command": COMMAND,
            "tool": attrs.evolve(tool, features=copy.deepcopy(tool.features)),
            "windows": WINDOWS,
            "window": WINDOWS[0],
            "purpose": "plan",
            "files": {1: [str(report)]},
            "ended": True,
            "scratch": "",
            "path": str(report),
            "name": "kit",
            "crosses_tasks": False,
        }

    def _ask_plainly(self, hook: str, hooks: Any, **arguments: Any) -> Any:
        specification = getattr(hooks.hook, hook)
        return specification(**{name: arguments[name] for name in specification.spec.argnames})

    def _watch(self, hook: str, hooks: Any, arguments: dict[str, Any]) -> Called:
        acts: list[str] = []
        call = partial(self._ask_plainly, hook, hooks, **arguments)
        effects = _surroundings.watch(partial(acts_of, call, acts))
        effects.acts = acts
        was, now = effects.changes.get(_surroundings.TEMPORARY, ((), ()))
        new_files = set(now) - set(was)
        if new_files and new_files <= self._shared_by_processes():
            del effects.changes[_surroundings.TEMPORARY]
        return effects

    def _shared_by_processes(self) -> set[str]:
        """What the tool's processes may leave in the temporary directory for each other."""
        return {Path(folder).parts[0] for folder in self._tool().shared_temporary}


def _be_busy() -> None:
    """Do a little of what profilers record."""
    gc.collect()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass


def expect_nothing_else(
    hook: str, effects: Called, exceptions: frozenset[str] = frozenset()
) -> None:
    """Fail with the first change that a call left behind, or with what it printed."""
    for name, (was, now) in effects.changes.items():
        if name not in exceptions:
            fail(
                f"{hook} changes the process's {name}: {_shortly(was, now)}",
                "leave the process as it is, or restore it before the hook returns",
            )
    if effects.printed.strip():
        fail(
            f"{hook} prints {effects.printed.strip()[:200]!r}",
            "return notes from plan_notes, raise errors, and keep the tool's output to yourself",
        )


def _shortly(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        was, now = ({key: state.get(key) for key in keys[:3]} for state in (was, now))
    return f"before {str(was)[:200]}, after {str(now)[:200]}"


def _differs(first: dict[str, Any], second: dict[str, Any], when: str) -> None:
    for name, value in first.items():
        if second[name] != value:
            fail(
                f"{name.split()[0]} returned {value!r}, and {when} {second[name]!r}",
                "compute the result from the arguments and the options only",
            )


def _check_variable(name: str, value: str | None) -> None:
    if TAKEN.fullmatch(name):
        fail(
            f"inject_env sets {name}, which is the job's",
            "use a variable of the tool's own; put what the tool needs into its command",
        )
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        fail(f"inject_env sets {name!r}, which is no name of a variable", "use letters, digits, _")
    if value is None:
        return
    if not value.strip():
        fail(f"inject_env sets {name} to {value!r}", "leave it out, or unset it with None")
    strange = set(_PLACEHOLDER.findall(value)) - _KNOWN_PLACEHOLDERS
    if strange:
        fail(
            f"inject_env sets {name} to {value!r}, with the unknown placeholder {min(strange)}",
            f"use one of {', '.join(sorted(_KNOWN_PLACEHOLDERS))}",
        )


def _watched(options: Any, read: set[str]) -> Any:
    """The options, which note what is read of them."""
    names = {field.name for field in attrs.fields(type(options))}
    recording: list[bool] = []

    def __getattribute__(self: Any, name: str) -> Any:
        if recording and name in names:
            read.add(name)
        return object.__getattribute__(self, name)

    kind = type(options)
    subclass = type(kind.__name__, (kind,), {"__getattribute__": __getattribute__})
    copied_options: Any = object.__new__(subclass)
    for field in attrs.fields(kind):
        object.__setattr__(copied_options, field.name, getattr(options, field.name))
    recording.append(True)
    if _sets_others(options):
        with suppress(ConfigError):
            copied_options.__attrs_post_init__()
    return copied_options


def _sets_others(options: Any) -> bool:
    """Whether ``__attrs_post_init__`` of options sets some, instead of only checking them."""
    function = getattr(type(options), "__attrs_post_init__", None)
    return function is not None and "__setattr__" in function.__code__.co_names
