"""Fixtures of what records: a clock that the test advances, a ledger's path, and the faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.manual_clock import Clock


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
