"""What all tests share: the rules for tests that need a tool."""

from __future__ import annotations

import os
import shutil

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; and what needs nsys, unless it was said that there must be one.

    What needs nsys is tried again, since nsys itself fails in one of some hundred runs, above all beside others on few cores: its
    agent dies ("nsys stop fails: End of file"), or a report has no ranges. The summary names what was tried again.
    """
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))
    on_nsys = [item for item in items if item.get_closest_marker("nsys")]
    if shutil.which("nsys") or os.environ.get("GPUPROF_REQUIRE_NSYS") == "1":
        for item in on_nsys:
            item.add_marker(pytest.mark.flaky(reruns=2))
        return
    for item in on_nsys:
        item.add_marker(pytest.mark.skip(reason="nsys is not on PATH (scripts/install-nsys.sh)"))


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
