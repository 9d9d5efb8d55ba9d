"""What all tests share: a place of their own, and the rules for tests that need a tool."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from gpuprof._shim.node import has_gpu
from support import browser, plugins, sharing
from support.isolation import own_place

MOST_RERUNS = 5
"""A run with more has found something."""
FAULT_OF_NSYS = "NoRanges"
"""The exception after which a test is run again.

nsys itself loses all ranges of a few processes in a hundred: `report_reader` finds that. Nothing
else runs a test again.
"""

EXHAUSTIVE = pytest.StashKey[int]()
"""How many exhaustive tests were left out."""

# Each run draws other examples. Neither how long one takes nor how long it takes to be made says
# anything on a busy machine.
for profile, examples in (("few", 50), ("many", 500)):
    hypothesis.settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("few")


@pytest.fixture(scope="session", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests use nothing that lies on the machine; the last one fails if something is left."""
    # where pytest wants it, with the failed tests' directories to be looked at
    tmp_path_factory.getbasetemp()
    with own_place():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Long files are shared test by test."""
    return sharing.Sharing(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Install the source of a module, with an entry point for each of its names."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    made: list[str] = []

    def install(source: str, **entries: Any) -> str:
        made.append(plugins.install(site, source, **entries))
        return made[-1]

    yield install
    for module in made:
        sys.modules.pop(module, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--exhaustive`, for `make test-exhaustive`."""
    parser.addoption("--exhaustive", action="store_true", help="run the exhaustive tests, too")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m nsys` or `-m gpu`, a file without that mark.

    Collecting all tests costs each process seconds, and imports what is not beside every card.
    """
    mark = config.getoption("markexpr")
    if mark not in ("nsys", "gpu") or not collection_path.is_file():
        return None
    return f"mark.{mark}".encode() not in collection_path.read_bytes() or None


@pytest.hookimpl(trylast=True)  # after -m: only what was asked for can be left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a GPU or a tool that is not there, and put what takes long first.

    Of a class with the attribute `each_run`, the other tests are exhaustive. CI says that there
    must be an nsys.
    """
    for item in items:
        each_run = getattr(getattr(item, "cls", None), "each_run", None)
        if each_run is not None and getattr(item, "originalname", "") not in each_run:
            item.add_marker(pytest.mark.exhaustive)
    if not config.getoption("exhaustive"):
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
        config.stash[EXHAUSTIVE] = len(left_out)
    if hasattr(config, "workerinput") and not config.pluginmanager.hasplugin("randomly"):
        items.sort(key=sharing.place)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(pytest.mark.skip(reason="torch is not installed"))
    without_browser = browser.missing()
    for item in items:
        if without_browser and item.get_closest_marker("chromium"):
            item.add_marker(pytest.mark.skip(reason=without_browser))
    on_nsys = [item for item in items if item.get_closest_marker("nsys")]
    if shutil.which("nsys") or os.environ.get("GPUPROF_REQUIRE_NSYS") == "1":
        for item in on_nsys:
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=FAULT_OF_NSYS))
        return
    for item in on_nsys:
        item.add_marker(pytest.mark.skip(reason="nsys is not on PATH (scripts/install-nsys.sh)"))


def _reruns(config: pytest.Config) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return list(reporter.stats.get("rerun", [])) if reporter else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """More reruns than a few fail the run, although each test has passed in the end."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["exhaustive"] = session.config.stash.get(EXHAUSTIVE, 0)
    if len(_reruns(session.config)) > MOST_RERUNS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Each process has collected all tests, so any of their numbers is the number."""
    if not error:
        node.config.stash[EXHAUSTIVE] = node.workeroutput["exhaustive"]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How many tests were left out, and how many were run again, each with its reason."""
    left_out = config.stash.get(EXHAUSTIVE, 0)
    if left_out:
        terminalreporter.line(f"{left_out} exhaustive tests left out (make test-exhaustive)")
    reruns = _reruns(config)
    terminalreporter.section("reruns")
    for report in reruns:
        crash = getattr(report.longrepr, "reprcrash", None)
        terminalreporter.line(
            f"{report.nodeid}: {crash.message.splitlines()[0] if crash else report.longrepr}"
        )
    terminalreporter.line(f"{len(reruns)} reruns, at most {MOST_RERUNS} are allowed")


def _has_gpu() -> bool:
    if not has_gpu():  # importing torch takes seconds
        return False
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
