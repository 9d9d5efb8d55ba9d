"""A short run of the fuzzer of run directories."""

from __future__ import annotations

from fuzz import fuzz_runs


def test_damaged_runs_are_read_without_harm() -> None:
    """Every command ends with its own message, and strangers' files stay as they are."""
    fuzz_runs.run(seed=20260101, count=25)
