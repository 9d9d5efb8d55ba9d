"""Fixtures: the recording backend, installed for one test, and a run's orders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gpuprof._session.orders import make as make_orders
from support import recorder as recorder_plugin

Install = Callable[..., str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a cache of its own: equal reports share what was read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


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
