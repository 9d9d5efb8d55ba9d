"""Presets: variables to begin with, what replaces them, and that the docs explain each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuprof.errors import ConfigError
from gpuprof_rocprof_sys._options import RocprofSysOptions
from gpuprof_rocprof_sys._presets import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "rocprof_sys.md"
DEFAULT_DOMAINS = {
    "hip_runtime_api",
    "marker_api",
    "kernel_dispatch",
    "memory_copy",
    "scratch_memory",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_where_the_variables_begin(preset: Any) -> None:
    """Those of the user win, and what comes out is read the same a second time."""
    made = RocprofSysOptions(preset=preset, env={"ROCPROFSYS_USE_SAMPLING": "mine", "A": "b"})
    assert {**PRESETS[preset], "ROCPROFSYS_USE_SAMPLING": "mine", "A": "b"} == made.env
    assert made == RocprofSysOptions(preset=made.preset, env=made.env)


def test_without_a_preset_nothing_is_added() -> None:
    """The tool's own defaults hold."""
    assert {} == RocprofSysOptions().env


def test_a_preset_that_there_is_not() -> None:
    """The choice is told."""
    with pytest.raises(
        ConfigError, match=r"^preset: 'lite' is not valid; expected light, standard, deep$"
    ):
        RocprofSysOptions(preset="lite")  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_domain_of_a_preset_is_one_of_the_tools_defaults(preset: str) -> None:
    """At any other an older release might end."""
    assert set(PRESETS[preset]["ROCPROFSYS_ROCM_DOMAINS"].split(",")) <= DEFAULT_DOMAINS


def test_every_variable_of_a_preset_is_explained() -> None:
    """With its value in the column of each preset."""
    section = PAGE.read_text().split("## Presets\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.strip("|\n").split("|")]
        for line in section.splitlines()
        if line.startswith("| ")
    ]
    found: dict[str, dict[str, str]] = {name: {} for name in rows[0][1:4]}
    for row in rows[2:]:
        for name, cell in zip(found, row[1:4], strict=True):
            found[name] |= {row[0]: cell} if cell else {}
    assert PRESETS == found
