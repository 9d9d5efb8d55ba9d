"""Readers of settings that are absent, broken, doubled, or somebody else's."""

from __future__ import annotations

from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof.errors import ConfigError, PluginError
from gpuprof.settings import read

READER = """
from gpuprof.settings import Translation

PATHS, SIGNS, IN_ENVIRONMENT = ("profiler",), ("a_system",), False

def read(settings, backends):
    return Translation({"backend": "none", "worker_groups": "all"}, "profiler")
"""


def test_a_reader_of_somebody_else_is_used(install: Any) -> None:
    """An entry point is all it takes."""
    install(READER, systems=["mine"])
    assert "none" == load({"a_system": 1}, system="mine").backend


def test_settings_of_somebody_elses_system_are_recognised(install: Any) -> None:
    """By its signs."""
    install(READER, systems=["mine"])
    with pytest.raises(ConfigError, match="looks like settings of mine"):
        load({"a_system": 1})


def test_a_broken_reader_stops_nobody_else(install: Any) -> None:
    """Others' settings are recognised and read."""
    install("raise RuntimeError", systems=["a-broken-one"])
    rlinf = {"cluster": {"profiling": {"backend": "none"}}, "runner": {}}
    assert "none" == load({"backend": "none", "worker_groups": "all"}).backend
    assert "none" == load(rlinf, system="rlinf").backend
    with pytest.raises(ConfigError, match="looks like settings of rlinf"):
        load({"runner": {}})


def test_a_reader_that_lacks_something_is_refused(install: Any) -> None:
    """With what it lacks."""
    install("PATHS = ()", systems=["half"])
    with pytest.raises(PluginError, match="contract: it has no SIGNS, IN_ENVIRONMENT, read"):
        read("half", {})
