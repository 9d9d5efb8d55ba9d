"""The integration of verl, as far as it needs no verl."""

from __future__ import annotations

import logging

import gpuprof_verl as verl
import pytest
from support.verl_examples import SHORT
from yaml import safe_load


def test_settings_that_select_nothing_say_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The command asked for profiling, so a silent run would look like a fault."""
    caplog.set_level(logging.WARNING, "gpuprof")
    monkeypatch.setattr(verl, "_off", True)
    settings = safe_load(SHORT)
    settings["global_profiler"]["steps"] = [0]
    verl._learn(settings)
    assert [
        "verl: global_profiler.steps has no step: verl counts from 1, so nothing is profiled"
    ] == caplog.messages
