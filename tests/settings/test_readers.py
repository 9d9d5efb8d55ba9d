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


def test_a_broken_reader_is_named_with_its_distribution(install: Any) -> None:
    """Whoever names the system hears whose fault it is."""
    module = install("import a_module_that_is_not_there", systems=["broken"])
    with pytest.raises(PluginError, match=rf"system: 'broken' \({module}\) fails to import: Mod"):
        read("broken", {})


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


def test_two_readers_with_one_name(install: Any) -> None:
    """Neither is chosen in silence."""
    install(READER, systems=["twice"])
    install(READER, systems=["twice"])
    with pytest.raises(PluginError, match=r"'twice' is provided by .*; uninstall one of them"):
        read("twice", {})
