"""What tests ask of a tree."""

from __future__ import annotations

from typing import Any

from gpuprof_timing import Timing


def facts_of(timing: Timing) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """What `nesting_model.Model.facts` tells, of a real tree."""
    found: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def visit(node: dict[str, Any], above: tuple[str, ...]) -> None:
        path = (*above, node["key"])
        assert path not in found
        found[path] = (
            node["count"], node["total"], node["minimum"], node["maximum"],
            int(node["squares"]), node["open"],
            node["open_elapsed"],
        )  # fmt: skip
        for child in node["children"]:
            visit(child, path)

    for child in timing.to_dict()["children"]:
        visit(child, ())
    return found


def paths_of(timing: Timing) -> set[str]:
    return {"/".join(path) for path in facts_of(timing)}


def calls(timing: Timing, key: str) -> int:
    """How often a key at the root was left."""
    return next(node["count"] for node in timing.to_dict()["children"] if node["key"] == key)
