"""Fixtures: a plugin installed for one test, as a wheel would be, and a run's orders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuprof._session.orders import make as make_orders
from support import plugins
from support import recorder as recorder_plugin

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
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


@pytest.fixture
def recorder(install: Install, tmp_path: Path) -> recorder_plugin.Recorder:
    """The recording backend and two plugins, installed."""
    module = install(
        recorder_plugin.SOURCE,
        recorder="Recorder",
        plugins={"extra": "Extra", "broken_extra": "BrokenExtra"},
    )
    return recorder_plugin.Recorder(module, tmp_path)


@pytest.fixture
def orders_path(tmp_path: Path) -> str:
    """The directory of orders of a run."""
    return make_orders(str(tmp_path))
