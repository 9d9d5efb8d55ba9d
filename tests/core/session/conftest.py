"""Fixtures of what records: a clock that the test advances, a ledger's path, and the faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.manual_clock import Clock
from support.torch_process import Run, torch_process


@pytest.fixture
def clock() -> Clock:
    """A clock that the test advances."""
    return Clock()


@pytest.fixture
def faults() -> list[str]:
    """The faults that are reported."""
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a ledger."""
    return tmp_path / "A-0.ledger"


@pytest.fixture(scope="module")
def run_with_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs programs in processes that have imported torch."""
    with torch_process(tmp_path_factory.mktemp("torch")) as run:
        yield run
