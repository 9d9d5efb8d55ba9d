"""Describes the differences between runs other than times: settings, versions, machines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from gpuprof._analysis.summary import Reports, Summary
from gpuprof._artifacts.formats import Setup
from gpuprof.errors import ConfigError

_NODES = "names of nodes"
_WHERE_FILES_GO = ("output_dir", "working_dir")


@attrs.frozen
class Difference:
    """A difference between the runs other than a time.

    Args:
        what: what differs, such as ``torch`` or the configuration key ``config steps``.
        matters: whether ``--strict`` refuses the difference. Names of nodes do not matter.
    """

    what: str
    before: str
    after: str
    matters: bool = True


def refuse(differences: Sequence[Difference]) -> None:
    """Refuse runs that differ, for ``--strict``."""
    problems = [
        f"not comparable: {row.what}: {row.before} in A, {row.after} in B; without --strict "
        "this is listed and compared all the same"
        for row in differences
        if row.matters
    ]
    if problems:
        raise ConfigError(problems)


def differences(before: Sequence[Summary], after: Sequence[Summary]) -> list[Difference]:
    """The differences other than times: settings and versions first, the runs' reports last."""
    sides = [[_about(run) for run in side] for side in (before, after)]
    different = []
    for what in dict.fromkeys(what for side in sides for about in side for what in about):
        old, new = (" or ".join(dict.fromkeys(a.get(what, "not set") for a in s)) for s in sides)
        if old != new:
            different.append(Difference(what, old, new, matters=what != _NODES))
    old, new = (", ".join(_reports(run.reports) for run in side) for side in (before, after))
    if old != new and len(before) == len(after):
        different.append(Difference("reports", old, new, matters=False))
    return different


def _about(run: Summary) -> dict[str, str]:
    about = dict(_facts(run.setup)) if run.setup else {}
    about["ranks"] = ", ".join(f"{len(g.workers)} {name}" for name, g in run.groups.items())
    if run.round:
        # an edit elsewhere in the file moves a loop's line
        about["a step is a round of"] = re.sub(r"(?<=\.py):\d+", "", run.round)
    return about


def _reports(reports: Reports | None) -> str:
    return f"{reports.complete} of {reports.expected} complete" if reports else "no receipt"


def _facts(setup: Setup) -> Iterator[tuple[str, str]]:
    yield "backend", setup["backend"]
    for key, value in _flat(setup["config"]):
        if key not in _WHERE_FILES_GO:
            yield f"config {key}", value
    yield "commit", (setup["commit"] or "none")[:12]
    for name, versions in setup["versions"].items():
        yield name, ", ".join(versions) or "none"
    counts = sorted((len(workers) for workers in setup["nodes"].values()), reverse=True)
    yield "workers on each node", ", ".join(map(str, counts)) or "none"
    yield "GPUs", "; ".join(sorted(map(_named, setup["gpus"].values()))) or "none"
    yield _NODES, ", ".join(setup["nodes"]) or "none"


def _named(gpus: Sequence[str]) -> str:
    """A node's GPUs.

    >>> _named(["NVIDIA H100", "NVIDIA H100"])
    '2 NVIDIA H100'
    """
    kinds = dict.fromkeys(gpus)
    return ", ".join(f"{gpus.count(kind)} {kind}" for kind in kinds) or "none"


def _flat(config: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", str(value)
