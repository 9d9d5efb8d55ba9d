"""Parses the workers of a plan: groups, ranks, nodes and GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from gpuprof._config import sources
from gpuprof._config.selection import group_problem
from gpuprof._config.structure import Invalid, join, plain, shown, structure
from gpuprof.backend.types import option
from gpuprof.errors import ConfigError

MOST_RANKS = 100_000
_FILE = re.compile(r"/|\.ya?ml$|\.json$")
_EXPECTED = f"a number of ranks from 1 to {MOST_RANKS}"


@attrs.frozen
class Place:
    """One worker, its node and its GPUs.

    Args:
        node: the host name of the worker's node, or ``None`` if unknown.
        gpus: the number of GPUs that the worker has, or ``None`` if unknown.
    """

    group: str
    rank: int
    node: str | None = None
    gpus: float | None = None


@attrs.frozen
class _Group:
    count: int = option("ranks", default=1)
    gpus: float | None = option("GPUs of each rank", default=None)
    nodes: list[str] = option(
        "host names; ranks fill them in order, each with the same number", factory=list
    )

    def __attrs_post_init__(self) -> None:
        problems = []
        if not 1 <= self.count <= MOST_RANKS:
            problems.append(f"count: {Invalid(self.count, _EXPECTED)}")
        if self.gpus is not None and self.gpus < 0:
            problems.append(f"gpus: {Invalid(self.gpus, 'a number of at least 0')}")
        if problems:
            raise ConfigError(problems)


def check_name(group: str, rank: int, path: str = "group") -> None:
    """Check that a group and a rank can be part of a file name."""
    problem = group_problem(group)
    if problem:
        raise ConfigError(f"{path}: {problem}")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
        raise ConfigError(f"rank: {rank!r} is not valid; expected an integer of at least 0")


def parse(spec: str | os.PathLike[str] | Mapping[str, Any] | Sequence[Place]) -> list[Place]:
    """Read the workers of a job.

    Args:
        spec: one of three forms. Text such as ``ActorGroup=8:1,EnvGroup=2``: GROUP=RANKS:GPUS,
            where GPUS is for each rank. A YAML file or a mapping, with a number of ranks for each
            group, or with a mapping of `count`, `gpus` and `nodes` for each group. A list of
            places, which is returned as it is.

    Raises:
        ConfigError: lists every problem with its full key path.

    >>> [(place.group, place.rank, place.gpus) for place in parse("ActorGroup=2:1,EnvGroup=1")]
    [('ActorGroup', 0, 1.0), ('ActorGroup', 1, 1.0), ('EnvGroup', 0, None)]
    >>> [place.node for place in parse({"ActorGroup": {"count": 4, "nodes": ["a", "b"]}})]
    ['a', 'a', 'b', 'b']
    """
    if isinstance(spec, str) and "=" in spec and not os.path.exists(spec):
        groups: Any = _inline(spec)
    elif isinstance(spec, str) and not os.path.exists(spec) and not _FILE.search(spec):
        first = spec.split(",")[0].strip() or "ActorGroup"
        problem = (
            f"workers: {shown(spec)} is not valid; expected NAME=RANKS, such as {first}=8, with "
            f"GPUs of each rank {first}=8:1; or a YAML file"
        )
        raise ConfigError(problem)
    elif isinstance(spec, (str, os.PathLike)):
        groups = plain(sources.read_file(spec))
    elif isinstance(spec, Mapping):
        groups = plain(spec)
    else:
        return list(spec)
    if not isinstance(groups, dict):
        raise ConfigError(
            f"workers: {groups!r} is not valid; expected the number of ranks of each group"
        )
    places: list[Place] = []
    problems: list[str] = []
    for name, value in groups.items():
        try:
            places += _places(name, value, join("workers", name))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return places


def _inline(spec: str) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for part in filter(str.strip, spec.split(",")):
        name, _, numbers = part.partition("=")
        count, colon, gpus = numbers.partition(":")
        try:
            if colon and not gpus.strip():
                raise ValueError("no number of GPUs")
            values = {
                key: sources.parse_yaml(text)
                for key, text in [("count", count), ("gpus", gpus)]
                if text
            }
        except Exception:
            values = {"count": numbers}
        groups[name.strip()] = values
    return groups


def _places(name: object, value: object, path: str) -> list[Place]:
    if not isinstance(name, str):
        raise ConfigError(f"{path}: {Invalid(name, 'the name of a group')}")
    check_name(name, 0, path)
    if isinstance(value, int) and not isinstance(value, bool):
        value = {"count": value}
    elif value is not None and not isinstance(value, dict):
        raise ConfigError(
            f"{path}: {Invalid(value, _EXPECTED + ', or a mapping with count, gpus, nodes')}"
        )
    group = structure(value, _Group, path)
    per_node = -(-group.count // len(group.nodes)) if group.nodes else 1
    return [
        Place(name, rank, group.nodes[rank // per_node] if group.nodes else None, group.gpus)
        for rank in range(group.count)
    ]
