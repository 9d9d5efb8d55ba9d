"""JSON Schema says the same of a configuration as gpuprof does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpuprof
import jsonschema
import pytest
import yaml
from gpuprof._config.load import load
from gpuprof.errors import ConfigError

PRESETS = sorted((Path(gpuprof.__file__).parent / "conf" / "profile").glob("*.yaml"))


def printed(*words: str) -> Any:
    """What a command prints, as a validator."""
    command = [sys.executable, "-m", "gpuprof", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    schema = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def whole() -> Any:
    """The schema of everything."""
    return printed("config", "schema")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_the_presets_are_valid(whole: Any, preset: Path) -> None:
    """What Hydra's users begin with."""
    assert [] == list(whole.iter_errors(yaml.safe_load(preset.read_text())))


NSIGHT: dict[str, Any] = {"backend": "nsight", "worker_groups": "all"}
VALID = [
    {**NSIGHT, "steps": [3, "5:7"], "ranks": "all", "nsight": {"options": {"t": "nvtx"}}},
    {**NSIGHT, "steps": None, "groups": {"A*": {"ranks": [0], "nsight": {"preset": "deep"}}}},
    {**NSIGHT, "collect_every": 0.5, "nsight": None},
]
INVALID = [
    {"worker_groups": "all"},
    {**NSIGHT, "stepps": [1]},
    {**NSIGHT, "steps": [-1]},
    {**NSIGHT, "on_error": "panic"},
    {**NSIGHT, "nsight": {"prest": "deep"}},
    {**NSIGHT, "groups": {"A": {"nsight": {"preset": 3}}}},
    {**NSIGHT, "nsight": {"env": {"A": 1}}},
]


@pytest.mark.parametrize("settings", VALID, ids=str)
def test_valid_settings(whole: Any, settings: dict[str, Any]) -> None:
    """Schema and reader take them."""
    assert [] == list(whole.iter_errors(settings))
    load(settings, environ={})


@pytest.mark.parametrize("settings", INVALID, ids=str)
def test_invalid_settings(whole: Any, settings: dict[str, Any]) -> None:
    """Schema and reader refuse them."""
    assert whole.is_valid(settings) is False
    with pytest.raises(ConfigError):
        load(settings, environ={})


def test_the_section_of_one_backend() -> None:
    """Help and defaults are in it, for an editor to show."""
    found = printed("backends", "--schema", "torch_profiler").schema["properties"]
    assert {
        "description": "Record the shapes of operators' inputs.",
        "type": "boolean",
        "default": False,
    } == found["record_shapes"]
    assert ["every"] == found["schedule"]["anyOf"][0]["required"]
