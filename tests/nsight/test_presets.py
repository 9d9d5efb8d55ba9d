"""Presets: what they begin with, what replaces it, and that the docs explain each option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gpuprof._config.structure import structure
from gpuprof.errors import ConfigError
from gpuprof_nsight._command.options import PRESETS, NsightOptions

PAGE = Path(__file__).parents[2] / "docs" / "nsight.md"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_where_the_options_begin(preset: Any) -> None:
    """Alone it is all of them."""
    assert PRESETS[preset] == NsightOptions(preset=preset).options


@pytest.mark.parametrize("key", ["t", "trace"])
def test_an_option_replaces_the_presets_own(key: str) -> None:
    """By whichever of its names; the others stay."""
    options = NsightOptions(preset="standard", options={key: "osrt"}).options
    assert "osrt" == NsightOptions(options=options).value("trace")
    assert "graph" == options["cuda-graph-trace"]


def test_without_a_preset_the_options_stand_alone() -> None:
    """Nothing is added to what somebody has written; where nothing is written, `deep` is taken."""
    assert {"t": "nvtx"} == NsightOptions(options={"t": "nvtx"}).options
    assert PRESETS["deep"] == NsightOptions().options


@pytest.mark.parametrize("preset", PRESETS)
def test_options_travel_to_the_worker_unchanged(preset: Any) -> None:
    """There they are read a second time, preset and all."""
    made = NsightOptions(preset=preset, options={"osrt-threshold": 5})
    assert made == NsightOptions(preset=made.preset, options=made.options)


def test_a_preset_that_there_is_not() -> None:
    """The choice is told."""
    with pytest.raises(
        ConfigError,
        match=r"^nsight\.preset: 'lite' is not valid; expected light, standard, deep, or null$",
    ):
        structure({"preset": "lite"}, NsightOptions, "nsight")


def test_every_option_of_a_preset_is_explained() -> None:
    """The table has a row for each option, with the value in the column of each preset."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in PAGE.read_text().split("## Presets\n")[1].split("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    names, table = rows[0][1:4], {row[0]: row[1:4] for row in rows[2:]}
    found: dict[str, dict[str, str]] = {name.strip("`"): {} for name in names}
    for key, cells in table.items():
        for name, cell in zip(found, cells, strict=True):
            if cell and not key.startswith("…"):
                found[name][key.strip("`")] = cell.strip("`")
    assert found == {
        name: {key: str(value) for key, value in options.items()}
        for name, options in PRESETS.items()
    }
    traced = {part for options in PRESETS.values() for part in str(options["t"]).split(",")}
    assert traced == {
        name for key in table if key.startswith("…") for name in re.findall(r"`(\w+)`", key)
    }
