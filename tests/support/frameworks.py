"""The frameworks that `make test-frameworks` runs, and what holds for each of them.

A test file of a framework subclasses the checks, as the test file of a backend does.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from support.report_reader import labels

CHECKOUTS = os.environ.get("CHECKOUTS", "")
"""A directory with the frameworks' sources, each by the name of its package."""
OF_TESTS = ("GPUPROF_TEST_PROCESS", "GPUPROF_REQUIRE_NSYS")


@attrs.frozen
class Framework:
    """A framework, and what its programs in `tests/frameworks` do.

    Attributes:
        package: its name in Python.
        tried: the release that was tried.
        scopes: the names of what its program of instruments times.
        own_tests: the files of its own tests of these, in its source.
        on_pypi: whether there is a release that works.
        group: its name of the worker group.
        selection: what its settings select, if that is not the group's name.
        windows: how many of its two steps' windows a worker has.
        in_workers: the names of what its job times in workers.
        in_driver: and on the driver.
        on: the words of its command that profile two steps of two ranks.
        off: the words that profile nothing.
        variables: as `on`, in its environment.
    """

    package: str
    tried: str
    scopes: set[str]
    own_tests: tuple[str, ...]
    on_pypi: bool = True
    group: str = ""
    selection: str = ""
    windows: int = 2
    in_workers: set[str] = attrs.Factory(set)
    in_driver: set[str] = attrs.Factory(set)
    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    variables: Mapping[str, str] = attrs.Factory(dict)

    @property
    def name(self) -> str:
        """As `gpuprof run --integrate` spells it."""
        return self.package.replace("_", "-")

    @property
    def checkout(self) -> Path:
        """Its source."""
        return Path(CHECKOUTS) / self.package

    @property
    def files(self) -> Path:
        """The directory of its package."""
        if not self.on_pypi:
            return self.checkout / self.package
        found = importlib.util.find_spec(self.package)
        assert found is not None
        assert found.origin is not None
        return Path(found.origin).parent

    def environment(self, *directories: Path) -> dict[str, str]:
        """The environment of a program that imports it, and modules of other directories."""
        source = [] if self.on_pypi else [self.checkout]
        path = [*map(str, (*directories, *source)), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}

    @property
    def needs_checkout(self) -> Any:
        """Skips a test without its source."""
        there = bool(CHECKOUTS) and self.checkout.is_dir()
        reason = f"no source of {self.name} (make test-frameworks CHECKOUTS=DIRECTORY)"
        return pytest.mark.skipif(not there, reason=reason)

    @property
    def needed(self) -> Any:
        """Skips a test where it cannot be imported."""
        if not self.on_pypi:
            return self.needs_checkout
        missing = importlib.util.find_spec(self.package) is None
        reason = f"{self.name} is not installed (make test-frameworks)"
        return pytest.mark.skipif(missing, reason=reason)


@attrs.frozen
class Job:
    """A job that has ended.

    Attributes:
        result: what it wrote.
        runs: its runs' directories.
        log: what it printed.
        changed: the framework's files that are no longer as they were.
    """

    result: dict[str, Any]
    runs: list[Path]
    log: str
    changed: set[str]

    @property
    def run(self) -> Path:
        """The run's directory."""
        (run,) = self.runs
        return run

    def rows(self) -> list[dict[str, Any]]:
        """The receipt's rows of the framework's worker group."""
        return [row for row in self.all_rows if not row["worker"].startswith("controller-")]

    @property
    def all_rows(self) -> list[dict[str, Any]]:
        """The receipt's rows."""
        manifest = json.loads((self.run / "manifest.json").read_text())
        rows: list[dict[str, Any]] = manifest["receipt"]["rows"]
        return rows

    def command(self, *words: str) -> str:
        """What a command of gpuprof prints of the run."""
        command = [sys.executable, "-m", "gpuprof", *words, str(self.run)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def reports_of_workers(job: Job) -> list[Path]:
    """The reports of the framework's worker group."""
    return [Path(row["file"]) for row in job.rows()]


RunJob = Callable[[Framework, str], Job]
"""Runs a framework's job in a mode."""
RunInstruments = Callable[[Framework, bool], tuple[dict[str, Any], set[str]]]
"""Runs a framework's program of instruments with gpuprof or without.

Gives what the framework has, and the keys of gpuprof's tree."""
RunOwnTests = Callable[[Framework, bool], dict[str, str]]
"""Runs a framework's own tests with gpuprof or without: each with how it ended."""


class JobChecks:
    """A job with gpuprof, and the same without."""

    framework: ClassVar[Framework]

    def test_every_report_is_complete(self, ran: RunJob) -> None:
        """Each window on each of two ranks."""
        rows = ran(self.framework, "on").rows()
        assert ["complete"] * 2 * self.framework.windows == [row["state"] for row in rows]

    def test_rows_have_the_names_of_the_framework(self, ran: RunJob) -> None:
        """The worker group is the one that the framework's own settings select."""
        rows = ran(self.framework, "on").rows()
        expected = {f"{self.framework.group}-{rank}" for rank in range(2)}
        assert expected == {row["worker"] for row in rows}

    def test_own_labels_are_in_every_report(self, ran: RunJob) -> None:
        """What the framework times itself, synchronous or not, is a range."""
        reports = reports_of_workers(ran(self.framework, "on"))
        assert 2 * self.framework.windows == len(reports)
        for report in reports:
            assert self.framework.in_workers <= labels(str(report)).keys()

    def test_each_scope_is_one_range(self, ran: RunJob) -> None:
        """A framework's own range and ours are not both there."""
        steps = 2 // self.framework.windows
        expected = dict.fromkeys(self.framework.in_workers, steps)
        for report in reports_of_workers(ran(self.framework, "on")):
            found = labels(str(report))
            assert expected == {name: found[name] for name in expected}

    def test_own_labels_are_in_the_trees(self, ran: RunJob) -> None:
        """On the driver and on the workers."""
        words = ran(self.framework, "on").command("report").replace(":", " ").split()
        assert self.framework.in_workers | self.framework.in_driver <= set(words)

    def test_results_are_unchanged(self, ran: RunJob) -> None:
        """The job computes what it computes where nothing of gpuprof is in the workers."""
        without, profiled = ran(self.framework, "off"), ran(self.framework, "on")
        assert without.result["results"] == profiled.result["results"]

    def test_own_log_of_timings_is_unchanged(self, ran: RunJob) -> None:
        """The framework has every timing under its name, as without gpuprof."""
        without, profiled = ran(self.framework, "off"), ran(self.framework, "on")
        assert without.result["timed"] == profiled.result["timed"]

    def test_no_file_of_the_framework_is_changed(self, ran: RunJob) -> None:
        """Everything happens at run time."""
        assert set() == ran(self.framework, "on").changed

    def test_the_log_says_who_profiles(self, ran: RunJob) -> None:
        """Once, in the process that makes the workers."""
        framework = self.framework
        said = (
            f"{framework.name}: its own profiler stays off; gpuprof profiles "
            f"{framework.selection or framework.group} as its settings say"
        )
        assert 1 == ran(framework, "on").log.count(said)

    def test_switched_off_nothing_is_in_the_workers(self, ran: RunJob) -> None:
        """No variable, no module."""
        seen = ran(self.framework, "off").result["seen"]
        assert [([], [])] * 2 == [
            ([name for name in worker["variables"] if name not in OF_TESTS], worker["modules"])
            for worker in seen
        ]

    def test_switched_off_there_is_no_run(self, ran: RunJob) -> None:
        """No directory, no file."""
        assert [] == ran(self.framework, "off").runs


class UnknownReleaseChecks:
    """A release that was not tried is profiled as far as that needs no knowledge of it."""

    framework: ClassVar[Framework]

    def test_whole_workers_are_profiled(self, ran: RunJob) -> None:
        """One complete report for each rank."""
        rows = ran(self.framework, "unknown").rows()
        assert [("lifetime", "complete")] * 2 == [(row["window"], row["state"]) for row in rows]

    def test_the_log_says_why(self, ran: RunJob) -> None:
        """Once, with the releases that were tried."""
        name, tried = self.framework.name, self.framework.tried
        said = f"whole workers are profiled, not steps: {name} 99.0 was not tried, only {tried}"
        assert 1 == ran(self.framework, "unknown").log.count(said)

    def test_results_are_unchanged(self, ran: RunJob) -> None:
        """The job computes what it computes without gpuprof."""
        plain, profiled = ran(self.framework, "plain"), ran(self.framework, "unknown")
        assert plain.result["results"] == profiled.result["results"]


class BrokenToolChecks:
    """A profiler that does not work costs the job nothing but its reports."""

    framework: ClassVar[Framework]

    def test_results_are_unchanged(self, ran: RunJob) -> None:
        """The job goes on without profiling."""
        plain, broken = ran(self.framework, "plain"), ran(self.framework, "broken")
        assert plain.result["results"] == broken.result["results"]

    def test_the_log_says_so_once(self, ran: RunJob) -> None:
        """Not in every process, nor for every worker."""
        assert 1 == ran(self.framework, "broken").log.count("the job goes on without profiling")

    def test_no_receipt_misses_who_ran_without_it(self, ran: RunJob) -> None:
        """They did start."""
        assert "never started" not in ran(self.framework, "broken").log


class InstrumentChecks:
    """What a framework has of its own timers is the same with gpuprof and without."""

    framework: ClassVar[Framework]

    def test_their_own_results_are_unchanged(self, instruments: RunInstruments) -> None:
        """Names, values, exceptions, documentation: sync, async, nested, decorating, repeated."""
        alone, _ = instruments(self.framework, False)
        integrated, _ = instruments(self.framework, True)
        assert alone == integrated

    def test_every_scope_is_in_the_tree(self, instruments: RunInstruments) -> None:
        """By the name that the framework gives it."""
        _, keys = instruments(self.framework, True)
        assert set() == self.framework.scopes - keys


class OwnTestChecks:
    """The framework's own tests of its timers and its profiler, from its source."""

    framework: ClassVar[Framework]

    def test_what_passes_alone_passes_with_gpuprof(self, own_tests: RunOwnTests) -> None:
        """Also what starts the framework's own profiler, as no run of gpuprof is under way."""
        alone, integrated = own_tests(self.framework, False), own_tests(self.framework, True)
        passed = {name for name, outcome in alone.items() if outcome == "passed"}
        assert passed
        also = {name for name, outcome in integrated.items() if outcome == "passed"}
        assert set() == passed - also
