"""Checks of windows: `start_capture` and `stop_capture`, called in this process as by a session."""

from __future__ import annotations

import gc
import itertools
import os
import re
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof._config.structure import structure
from gpuprof.backend import contract, loading
from gpuprof.backend.boundary import Hooks
from gpuprof.backend.types import Window, Worker
from gpuprof.errors import ConfigError

from gpuprof_testing import _surroundings
from gpuprof_testing._case import LIFETIME, OF_THE_TOOL, WINDOWS, Captured, Case, fail
from gpuprof_testing._hooks import SOFT, expect_nothing_else
from gpuprof_testing._purity import acts_of
from gpuprof_testing._surroundings import Called

START_LIMIT, STOP_LIMIT, STOP_INSIDE_LIMIT = 5.0, 20.0, 5.0
"""Seconds that an empty window may take; the last, where nothing but the process itself records.

The page "Write a backend" has the same.
"""
_SPARE = 400.0
"""Seconds beyond a limit after which a hook hangs: on a busy machine it may import for minutes."""
MANY, RANGES = 12, 100
"""Windows in which growth is looked for, three times, and the ranges in each."""
GROWTH = {"objects": RANGES // 2, "KiB of memory": 64}
"""What a window may leave. The page "Write a backend" has the same."""
_NOTHING: nullcontext[None] = nullcontext()
_SETTLES = 0.3
"""Seconds in which something that was left running shows."""


class WindowChecks(Case):
    """One window at a time, each started and stopped once, on any thread."""

    def test_windows_follow_each_other(self, tmp_path: Path) -> None:
        """Opening a second window closes the first one before."""
        self._need("start_capture", "stop_capture")
        captured = Captured(self, tmp_path)
        captured.open(WINDOWS[0])
        captured.capture.start(WINDOWS[1])
        captured.capture.stop(WINDOWS[1].number)
        captured.expect_no_fault(
            "the second window",
            "stop_capture must leave the instance ready for another start_capture",
        )

    def test_windows_are_asked_for_once(self, tmp_path: Path) -> None:
        """Repeated orders to open and close one window run each hook once."""
        self._need("start_capture", "stop_capture")
        calls: list[str] = []
        hooks = self._hooks()
        hooks.add_hookcall_monitoring(lambda name, *_: calls.append(name), lambda *_: None)
        captured = Captured(self, tmp_path, hooks=hooks)
        for ask in (captured.capture.start, captured.capture.start):
            ask(WINDOWS[0])
        for _ in range(2):
            captured.capture.stop(WINDOWS[0].number)
        counts = [calls.count(name) for name in ("start_capture", "stop_capture")]
        if counts != [1, 1]:
            fail(
                f"start and stop were called {counts} times",
                "this is a bug in gpuprof: report it",
            )

    def test_start_and_stop_on_different_threads(self, tmp_path: Path) -> None:
        """gpuprof starts a window on a thread of its own, and may stop it on another at exit."""
        self._need("start_capture", "stop_capture")
        if contract.starts_in_thread(self.backend):
            pytest.skip("its windows are opened and closed on one thread, the job's")
        captured = Captured(self, tmp_path)
        steps: list[Any] = [
            lambda: captured.capture.start(WINDOWS[0]),
            lambda: captured.capture.stop(WINDOWS[0].number),
        ]
        for step in steps:
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
        captured.expect_no_fault(
            "a window on two threads",
            "keep the state of start_capture on the instance, not in its thread",
        )

    def test_stop_may_come_twice(self, tmp_path: Path) -> None:
        """A repeated stop does no harm."""
        self._need("start_capture", "stop_capture")
        hook = self._hooks().hook
        worker = self._worker(tmp_path)
        arguments = {"worker": worker, "window": WINDOWS[0], "tool": self._tool_of_worker()}
        hook.start_capture(**arguments)
        hook.stop_capture(**arguments)
        before = _content(tmp_path)
        try:
            new_files = [file for files in hook.stop_capture(**arguments) for file in files]
            if new_files or _content(tmp_path) != before:
                fail(
                    f"the second stop_capture leaves files: {new_files}",
                    "return at once if nothing is being recorded",
                )
        except Exception as error:
            fail(
                f"the second stop_capture raised {error!r}",
                "return at once if nothing is being recorded",
            )

    def test_stop_may_come_without_a_start(self, tmp_path: Path) -> None:
        """`stop_capture` follows every attempted start, even one that raised at once."""
        self._need("stop_capture")
        try:
            self._hooks().hook.stop_capture(
                worker=self._worker(tmp_path), window=WINDOWS[0], tool=self._tool_of_worker()
            )
        except Exception as error:
            fail(
                f"stop_capture without a start raised {error!r}",
                "return at once if nothing is being recorded",
            )

    def test_stop_says_which_files(self, tmp_path: Path) -> None:
        """`stop_capture` returns a list of paths, or ``None`` if they are only known later."""
        self._need("start_capture", "stop_capture")
        hooks = self._hooks()
        arguments = {"worker": self._worker(tmp_path), "window": WINDOWS[0]}
        self._ask("start_capture", hooks, **arguments)
        for files in self._ask("stop_capture", hooks, **arguments):
            missing = [file for file in files if not Path(file).is_file()]
            if missing:
                fail(
                    f"stop_capture returned {missing[0]}, which does not exist",
                    "return once the file is complete, or return None",
                )

    def _expect_quiet_windows(self, tmp_path: Path) -> None:
        hooks = self._hooks()
        inside = contract.capability(self.backend) == "in_process"
        in_thread = contract.starts_in_thread(self.backend)  # which is the job's, mostly the first
        limit = STOP_INSIDE_LIMIT if inside else STOP_LIMIT
        starts: list[float] = []
        stops: list[float] = []
        acts: list[str] = []
        for number, window in enumerate((*WINDOWS, Window(3, 5, 6))):
            arguments = {"worker": self._worker(tmp_path), "window": window}
            with_tool = {**arguments, "tool": self._tool_of_worker()}
            _surroundings.be_unusual(number)
            first = _surroundings.state()
            mine = sys.getprofile(), sys.gettrace()
            start = _surroundings.watch(
                partial(acts_of, partial(hooks.hook.start_capture, **with_tool), acts),
                None if in_thread else START_LIMIT + _SPARE,
            )
            if any(act.startswith("sys.addaudithook") for act in acts):
                fail("start_capture adds an audit hook, which cannot be removed", "do without it")
            _expect_no_raise("start_capture", start)
            starts.append(start.seconds)
            hook_changes = [
                name for name in ("profile function", "trace function") if name in start.changes
            ]
            everywhere = mine != (sys.getprofile(), sys.gettrace())
            if hook_changes and not everywhere and not in_thread:
                fail(
                    f"start_capture sets the {hook_changes[0]} of the thread that calls it, which "
                    "is gpuprof's own: nothing of the job is recorded",
                    "add start_in_thread = True to the class, and the job's thread calls it",
                )
            # a library that is imported may leave caches
            soft = SOFT | {_surroundings.TEMPORARY} if number == 0 else frozenset()
            expect_nothing_else("start_capture", start, _surroundings.RECORDING | soft)
            self._expect_quiet_range(hooks, arguments)
            stop = _surroundings.watch(
                partial(hooks.hook.stop_capture, **with_tool),
                None if in_thread else STOP_LIMIT + _SPARE,
            )
            _expect_no_raise("stop_capture", stop)
            stops.append(stop.seconds)
            expect_nothing_else("stop_capture", stop, _surroundings.RECORDING | soft)
            changes = _surroundings.difference(first, _surroundings.state())
            effects = Called(changes=changes)
            expect_nothing_else("a window that is closed", effects, soft)
        expect_in_time("start_capture", starts, START_LIMIT)
        expect_in_time("stop_capture", stops, limit)

    def _expect_no_growth(self, directory: Path) -> None:
        """Fail if each of many windows leaves something: twice, as a library grows once or so."""
        hooks = self._hooks()
        tool = self._tool_of_worker()
        sizes = [_size()]
        for number in range(1, 3 * MANY + 1):
            window = Window(number, number, number + 1)
            arguments = {"worker": self._worker(directory), "window": window}
            hooks.hook.start_capture(**arguments, tool=tool)
            for _ in range(RANGES):
                opener = partial(hooks.hook.open_range, **arguments, crosses_tasks=False)
                with (opener(name="kit") if self._implements("open_range") else None) or _NOTHING:
                    pass
            hooks.hook.stop_capture(**arguments, tool=tool)
            if number % MANY == 0:
                sizes.append(_size())
        for what, limit in GROWTH.items():
            second, third = (
                (later[what] - earlier[what]) / MANY
                for earlier, later in itertools.pairwise(sizes[1:])
            )
            if min(second, third) > limit:
                fail(
                    f"each window with {RANGES} ranges leaves {min(second, third):.0f} {what}; the "
                    f"limit is {limit}",
                    "drop in stop_capture what the window has made: keep no list of windows, "
                    "files or ranges",
                )

    def _expect_another_hour(self, directory: Path) -> None:
        """Fail if a window that ends in another hour than it began in is lost, or has its name."""
        if not self._alone(directory):
            return
        hooks = self._hooks()
        worker = self._worker(directory)
        arguments = {"worker": worker, "window": WINDOWS[0]}
        self._ask("start_capture", hooks, **arguments)
        try:
            with _surroundings.another_hour():
                paths = [
                    file
                    for files in self._ask("stop_capture", hooks, **arguments)
                    for file in files
                ]
        except Exception as error:
            fail(
                f"stop_capture in another hour than start_capture raised {error!r}",
                "keep the path of the intermediate file from start_capture",
            )
        if not paths:
            fail(
                "a window that ends in another hour than it began in leaves no file",
                "keep the path of the intermediate file from start_capture",
            )
        (directory / "usual").mkdir()
        names = [os.path.basename(path).replace("Kit-0", "Kit-2") for path in paths]
        usual = [os.path.basename(path) for path in self._alone(directory / "usual")]
        if {*names} != {*usual}:
            fail(
                f"in another hour a window is in {names[0]}, and otherwise in {usual[0]}",
                "name files by worker.final_stem(window) and an extension",
            )

    def _expect_quiet_range(self, hooks: Hooks, arguments: dict[str, Any]) -> None:
        """A range changes nothing in the process, and prints nothing."""
        if not self._implements("open_range"):
            return
        opener = partial(hooks.hook.open_range, **arguments, name="kit", crosses_tasks=False)
        with opener() or nullcontext():
            pass  # what the first one loads

        def one() -> None:
            with opener() or nullcontext():
                pass

        effects = _surroundings.watch(one)
        expect_nothing_else("a range", effects, _surroundings.RECORDING | SOFT)

    def test_each_window_leaves_a_file_of_its_own(self, tmp_path: Path) -> None:
        """Windows, ranks and restarts in one directory do not overwrite each other's files."""
        self._need("start_capture", "stop_capture")
        contents: dict[str, bytes] = {}
        writers: dict[str, str] = {}
        for rank, incarnation in ((0, "1"), (1, "1"), (0, "2")):
            hooks = self._hooks()
            for window in WINDOWS:
                worker = self._worker(tmp_path, rank=rank, incarnation=incarnation)
                arguments = {"worker": worker, "window": window}
                acts: list[str] = []
                log = Path(worker.log_file)
                log.write_text(OF_THE_TOOL)
                acts_of(partial(self._ask, "start_capture", hooks, **arguments), acts)
                answers, _ = acts_of(partial(self._ask, "stop_capture", hooks, **arguments), acts)
                if not log.exists() or not log.read_text().startswith(OF_THE_TOOL):
                    fail(
                        f"a window changes or removes {log.name}, which has what the tool said",
                        "append to worker.log_file, or leave it alone",
                    )
                paths = [file for files in answers for file in files]
                self._expect_unshared(worker, acts, writers)
                self._expect_named(worker, window, paths)
                if not paths and contents:
                    fail(
                        f"the first window left a file, {window.label} of rank {rank} none",
                        "record every window anew",
                    )
                for file in paths:
                    if file in contents:
                        fail(
                            f"stop_capture returned {file}, which an earlier window has left",
                            "name files with gpuprof.backend.move, which overwrites nothing",
                        )
                for file, content in contents.items():
                    if not Path(file).exists() or Path(file).read_bytes() != content:
                        fail(
                            f"{file} of an earlier window was overwritten or removed",
                            "name files with gpuprof.backend.move, which overwrites nothing, and "
                            "put worker.file_stem into the names of intermediate ones",
                        )
                contents |= {file: Path(file).read_bytes() for file in paths}

    def _expect_unshared(self, worker: Worker, acts: list[str], writers: dict[str, str]) -> None:
        """Fail if two starts write one file: one after the other it does no harm, at once it does.

        Args:
            acts: what the hooks did, as `acts_of` returns it.
            writers: for each file, who has written or moved it.
        """
        shared = [Path(tempfile.gettempdir(), name) for name in self._tool().shared_temporary]
        for act in acts:
            match = re.fullmatch(r"(?:open|os\.rename) (.*?)(?: for writing)?", act)
            path = Path(os.path.abspath(match[1])) if match is not None else Path("/")
            if path.parent == Path.cwd() != Path(worker.directory):
                fail(
                    f"a window writes {path.name} into the working directory, which two runs may "
                    "have in common",
                    "write below worker.directory",
                )
            places = Path(worker.directory), Path(tempfile.gettempdir())
            if path.parent not in places or path in shared:
                continue
            if writers.setdefault(str(path), worker.file_stem) != worker.file_stem:
                fail(
                    f"{writers[str(path)]} and {worker.file_stem} both write {path}",
                    "begin the names of intermediate files with worker.file_stem and a dot, in "
                    "worker.directory",
                )

    def _expect_named(self, worker: Worker, window: Window, paths: list[str]) -> None:
        """Fail unless the files of a window are complete, and named as they should be."""
        stems = {worker.final_stem(other) for other in (window, *LIFETIME)}
        for file in paths:
            path = Path(file)
            if path.parent != Path(worker.directory):
                fail(f"stop_capture left {file} outside {worker.directory}", "write into it")
            if not any(file.startswith(f"{stem}.") for stem in stems):
                fail(
                    f"window {window.label} is in {file}, whose name does not begin with "
                    f"{worker.final_stem(window)}.",
                    "name it with gpuprof.backend.move(raw, worker.final_stem(window), extension)",
                )
            if path.is_symlink() or not path.is_file():
                fail(f"stop_capture left {file}, which is no file", "write a file")
            if not path.stat().st_size:
                fail(f"stop_capture left {file}, which is empty", "write what was recorded")
            mode = path.stat().st_mode & 0o777
            if not mode & 0o400 or mode & 0o111:
                fail(
                    f"{file} has mode {mode:04o}",
                    "give finished files their names with gpuprof.backend.move",
                )
        plan = self._ask("expected_files", worker=worker, windows=(window,)) or {}
        plan_file = plan.get(window.number)
        if plan_file and paths and worker.incarnation == "1" and plan_file not in paths:
            named = all(path.startswith(f"{worker.final_stem(window)}.") for path in paths)
            fail(
                f"window {window.label} is in {paths[0]}, but planned in {plan_file}",
                "use one extension for both, and gpuprof.backend.move for the name"
                if named
                else "name both after the window: worker.final_stem(window), with the window",
            )
        with_extension = Path(plan_file or "").suffix
        if plan_file and any(Path(file).suffix != with_extension for file in paths):
            fail(
                f"window {window.label} left {paths}, but {plan_file} is planned",
                "use the planned extension",
            )

    def test_a_file_is_complete_when_it_is_returned(self, tmp_path: Path) -> None:
        """Nothing is written after `stop_capture` has returned, and nothing else is left."""
        self._need("start_capture", "stop_capture")
        hooks = self._hooks()
        arguments = {"worker": self._worker(tmp_path), "window": WINDOWS[0]}
        self._ask("start_capture", hooks, **arguments)
        paths = [file for files in self._ask("stop_capture", hooks, **arguments) for file in files]
        before = _content(tmp_path)
        time.sleep(_SETTLES)
        if _content(tmp_path) != before:
            fail(
                "files change after stop_capture has returned",
                "wait until they are complete, or return None",
            )
        for file in paths if self._implements("check_report") else ():
            problem = self._ask("check_report", hooks, path=file)
            if problem is not None:
                fail(
                    f"check_report says of {file}, of a window in which nothing happened: "
                    f"{problem}",
                    "look at the structure: a report may be empty of ranges",
                )
        if paths:
            leftovers = [path for path in before if str(path) not in paths and not _hidden(path)]
            if leftovers:
                fail(f"stop_capture leaves {leftovers[0].name} behind", "remove intermediate files")

    def _expect_undone(self, directory: Path) -> None:
        usual = self._alone(directory)
        hooks = self._hooks()
        before = _surroundings.state()
        arguments = {
            "worker": self._worker(directory / "gone"),
            "window": WINDOWS[0],
            "tool": self._tool_of_worker(),
        }
        for hook in ("start_capture", "stop_capture"):
            with suppress(Exception):
                getattr(hooks.hook, hook)(**arguments)
        effects = Called(changes=_surroundings.difference(before, _surroundings.state()))
        expect_nothing_else("a window that could not be written", effects, SOFT)
        arguments = {"worker": self._worker(directory, rank=3), "window": WINDOWS[1]}
        try:
            self._ask("start_capture", hooks, **arguments)
            paths = [
                file for files in self._ask("stop_capture", hooks, **arguments) for file in files
            ]
        except Exception as error:
            fail(
                f"the window after one that could not be written raised {error!r}",
                "let the next window open: stop_capture resets what a start that raised has left",
            )
        if usual and not paths:
            fail(
                "the window after one that could not be written leaves no file",
                "let the next window open: stop_capture resets what a start that raised has left",
            )

    def test_instances_share_nothing(self, tmp_path: Path) -> None:
        """Stopping one instance, which records nothing, does not stop another."""
        self._need("start_capture", "stop_capture")
        mine, other = self._hooks(), self._hooks()
        arguments = {"worker": self._worker(tmp_path), "window": WINDOWS[0]}
        self._ask("start_capture", mine, **arguments)
        theirs = {"worker": self._worker(tmp_path, rank=1), "window": WINDOWS[0]}
        try:
            strange = [
                file for files in self._ask("stop_capture", other, **theirs) for file in files
            ]
            if strange:
                fail(
                    f"an instance that has started nothing stops another one: {strange[0]}",
                    "keep the state on the instance, not on the class or in the module",
                )
        finally:
            paths = [
                file for files in self._ask("stop_capture", mine, **arguments) for file in files
            ]
        alone = self._alone(tmp_path)
        if alone and not paths:
            fail(
                "a window of one instance is lost when another instance is stopped",
                "keep the state on the instance, not on the class or in the module",
            )

    def test_a_number_is_taken_or_refused(self, tmp_path: Path) -> None:
        """With 0 or -1 for an option something is recorded, or the options refuse it."""
        self._need("start_capture", "stop_capture", "open_range")
        if not (usual := self._recorded_ranges(tmp_path / "usual", self.options)):
            return
        for name, number in itertools.product(
            (field.name for field in attrs.fields(self.backend.Options)), (0, -1)
        ):
            section = {**self.options, name: number}
            with suppress(ConfigError):  # of any option that is no number, too
                if not self._recorded_ranges(tmp_path / f"{name} {number}", section):
                    fail(
                        f"with {name}: {number} a window leaves none of {usual} ranges, and "
                        "nothing says so",
                        "refuse it where the options are made: in __attrs_post_init__ raise "
                        "gpuprof.errors.ConfigError([…])",
                    )

    def _recorded_ranges(self, directory: Path, section: Mapping[str, object]) -> int:
        """How many ranges can be read of a window with one."""
        options = structure(section, self.backend.Options, "options")
        hooks = loading.manager(self.backend(options))
        directory.mkdir()
        # names of its own: a reader that keeps what it has read is another check's
        worker = self._worker(directory, group=directory.name)
        arguments = {"worker": worker, "window": WINDOWS[0]}
        try:
            self._ask("start_capture", hooks, **arguments)
            with (
                hooks.hook.open_range(**arguments, name="kit", crosses_tasks=False) or nullcontext()
            ):
                pass
            paths = [
                file for files in self._ask("stop_capture", hooks, **arguments) for file in files
            ]
        except ConfigError:
            raise
        except Exception as error:  # of which the receipt has a word
            raise ConfigError([str(error)]) from None
        labels = [self.read_labels(Path(file)) or {} for file in paths]
        return sum(counts.get("kit", 0) for counts in labels)

    def _alone(self, directory: Path) -> list[str]:
        hooks = self._hooks()
        arguments = {"worker": self._worker(directory, rank=2), "window": WINDOWS[0]}
        self._ask("start_capture", hooks, **arguments)
        return [file for files in self._ask("stop_capture", hooks, **arguments) for file in files]

    def test_every_kind_of_window_is_taken(self, tmp_path: Path) -> None:
        """The whole life of a worker, several steps, and a scope, each in a file of its name."""
        self._need("start_capture", "stop_capture")
        usual = self._alone(tmp_path)
        for window, template in (
            *((kind, None) for kind in (*LIFETIME, Window(1, 2, 5), Window(3, 2, 3, "kit/a b", 2))),
            (Window(1, 7, 8), "of {group} {rank} at {step}"),
        ):
            hooks = self._hooks()
            worker = self._worker(
                tmp_path,
                windows=(window,),
                discrete=window.scope is not None,
                file_name=template,
            )
            arguments = {"worker": worker, "window": window}
            try:
                self._ask("start_capture", hooks, **arguments)
                paths = [
                    file
                    for files in self._ask("stop_capture", hooks, **arguments)
                    for file in files
                ]
            except Exception as error:
                if self._implements("render_command"):
                    continue  # this process does not run under the tool
                fail(
                    f"window {window.label}: {type(error).__name__}: {error}",
                    "window.start and window.stop are None for a worker's whole life",
                )
            self._expect_named(worker, window, paths)
            if usual and not paths and not self._implements("render_command"):
                fail(
                    f"a window of one step leaves a file, and window {window.label} none",
                    "record from start_capture to stop_capture, whatever the window",
                )


def _size() -> dict[str, int]:
    """How large this process is, in the units of `GROWTH`."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    kib = pages * resource.getpagesize() // 1024
    return {"objects": sys.getallocatedblocks(), "KiB of memory": kib}


def _expect_no_raise(hook: str, effects: Called) -> None:
    if effects.raised is not None:
        fail(f"{hook} raised {effects.raised!r}", "raise only if nothing can be recorded")


def expect_in_time(hook: str, seconds: Sequence[float], limit: float) -> None:
    """Fail unless one of the calls but the first kept to the limit.

    The first one loads libraries; of the others one may have had a busy machine.
    """
    least = min(seconds[1:])
    if least > limit:
        fail(
            f"{hook} took {least:.1f} s for an empty window; its limit is {limit:g} s",
            "the job waits for it: do less, or do it in collect_files, once the worker has ended",
        )


def _content(directory: Path) -> dict[Path, tuple[int, int]]:
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.suffix in (".log", ".json")
