"""What all tests share: the rule for tests that need a tool."""

from __future__ import annotations

import os
import shutil

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs nsys where there is none, unless it was said that there must be one."""
    if shutil.which("nsys") or os.environ.get("GPUPROF_REQUIRE_NSYS") == "1":
        return
    for item in items:
        if item.get_closest_marker("nsys"):
            item.add_marker(pytest.mark.skip(reason="nsys is not on PATH (scripts/install-nsys.sh)"))
