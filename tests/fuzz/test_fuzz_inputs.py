"""Short runs of the fuzzers of configurations, the driver's port, ledgers and answers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def fuzzer(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "count"),
    [("fuzz_config", 150), ("fuzz_frames", 100), ("fuzz_ledgers", 3), ("fuzz_answers", 40)],
)
def test_mutated_inputs_end_as_they_should(name: str, count: int) -> None:
    """A damaged input is read, or refused by gpuprof's own error, at once."""
    fuzzer(name).run(seed=20260101, count=count)
