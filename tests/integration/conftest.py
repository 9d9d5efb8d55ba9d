"""A real Ray cluster on loopback, with a temporary directory of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster import end_node, one_node, one_trial_each


@pytest.fixture
def ray() -> Iterator[Any]:
    """Ray, started. It stays up for the tests after this one."""
    with one_trial_each():
        yield one_node()


@pytest.fixture(scope="session", autouse=True)
def ray_ends(place: None) -> Iterator[None]:
    """Ray ends with the tests of this process."""
    yield
    if "ray" in sys.modules:
        end_node()
