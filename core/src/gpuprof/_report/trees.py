"""The timing trees in a run directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpuprof_timing import Timing

from gpuprof._shim.safe import load_json
from gpuprof.errors import ConfigError

_OTHERS = ("manifest.json", "run.json")


def merged(files: Iterable[Path]) -> tuple[list[Timing], list[str]]:
    """Merge the trees of each worker group, over ranks, restarts and children.

    The driver's tree stays separate, and so do different runs.

    Returns:
        The merged trees, and a line for each broken file.

    Raises:
        ConfigError: none of the files has a tree.
    """
    by_group: dict[tuple[str, str], list[Timing]] = {}
    broken = []
    for file in files:
        try:
            session = _read(file)
            tree = None if session is None else Timing.from_dict(session["timing"])
        # such as a tree of another release
        except Exception as error:
            said = str(error) or type(error).__name__
            broken.append(f"{file}: cannot be read, so its tree is left out: {said[:200]}")
            continue
        if session is not None and tree is not None:
            tree.name = session["name"]
            by_group.setdefault(
                (str(session.get("run", "")), session.get("group", session["name"])), []
            ).append(tree)
    if not by_group:
        raise ConfigError(
            [*broken, "no timing tree found; expected a run directory whose workers used gpuprof"]
        )
    several = len({run for run, _ in by_group}) > 1
    trees = []
    for (run, group), found in by_group.items():
        of_run = f" of {run}" if several else ""
        processes = f", {len(found)} processes" if len(found) > 1 else ""
        trees.append(Timing.merge(found, f"{group}{of_run}{processes}"))
    return trees, broken


def as_json(trees: list[Timing]) -> str:
    """The trees, by name."""
    return json.dumps({tree.name: tree.to_dict() for tree in trees}, indent=2)


def _read(file: Path) -> dict[str, Any] | None:
    if file.suffix != ".json" or file.name in _OTHERS or file.parent.name.startswith("."):
        return None
    data = load_json(os.path.realpath(file))  # a link that the user has given
    if not isinstance(data, dict) or not isinstance(data.get("timing"), dict):
        return None
    for key in ("name", "run", "group"):
        if not isinstance(data.get(key, ""), str):
            raise ValueError(f"{key}: expected text")
    return data
