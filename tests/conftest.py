"""What all tests share: a place of their own, and the rules for tests that need a tool."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator

import pytest
from support.isolation import own_place

MOST_RERUNS = 5
"""A run with more has found something."""


@pytest.fixture(scope="session", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of what lies on the machine is used, and nothing is left behind: the last test fails otherwise."""
    tmp_path_factory.getbasetemp()  # where pytest wants it, with the failed tests' directories to be looked at
    with own_place():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU or torch where there is none; and what needs nsys, unless it was said that there must be one.

    nsys itself loses all ranges of a few processes of a hundred. The tests' reader of reports calls that `NoRanges`: the one
    failure after which a test is run again.
    """
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(pytest.mark.skip(reason="torch is not installed"))
    on_nsys = [item for item in items if item.get_closest_marker("nsys")]
    if shutil.which("nsys") or os.environ.get("GPUPROF_REQUIRE_NSYS") == "1":
        for item in on_nsys:
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=["NoRanges"]))
        return
    for item in on_nsys:
        item.add_marker(pytest.mark.skip(reason="nsys is not on PATH (scripts/install-nsys.sh)"))


def _reruns(config: pytest.Config) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return list(reporter.stats.get("rerun", [])) if reporter else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """More reruns than a few fail the run, although each test has passed in the end."""
    if len(_reruns(session.config)) > MOST_RERUNS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many tests were run again, each with its reason."""
    reruns = _reruns(config)
    terminalreporter.section("reruns")
    for report in reruns:
        crash = getattr(report.longrepr, "reprcrash", None)
        terminalreporter.line(f"{report.nodeid}: {crash.message.splitlines()[0] if crash else report.longrepr}")
    terminalreporter.line(f"{len(reruns)} reruns, at most {MOST_RERUNS} are allowed")


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
