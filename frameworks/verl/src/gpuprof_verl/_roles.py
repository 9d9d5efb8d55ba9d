"""verl's roles and their selected ranks, in any of its three spellings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs
from gpuprof.errors import ConfigError
from gpuprof.settings import Integers, Invalid, find

Ranks = list[int] | Literal["all"]

PLACES = {
    "actor": ("actor_rollout_ref.actor", "actor_rollout_ref"),
    "rollout": ("actor_rollout_ref.rollout",),
    "ref": ("actor_rollout_ref.ref",),
    "critic": ("critic", "actor_rollout_ref.critic"),
    "reward_model": ("reward_model", "actor_rollout_ref.rm"),
}
"""The paths of each role's settings; verl's documentation has the second one.

The actor's second path is that of verl 0.5, for all roles of the actor's workers.
"""
_OLDEST = ("profile_ranks", "profile_ranks_all", "profile_discrete")
PATHS = tuple(
    f"{place}.{key}"
    for places in PLACES.values()
    for place in places
    for key in ("profiler", *_OLDEST)
)
PROFILER_KEYS = (
    "enable", "all_ranks", "ranks", "discrete", "tool", "tool_config", "save_path",
    "relocate_results", "finish_hook_cmd", "finish_hook_all_ranks", "finish_hook_ranks",
)  # fmt: skip
TOOLS = ("nsys", "npu", "torch", "torch_memory", "precision_debugger")
"""Tools with settings in `tool_config`."""
Problems = list[str]
"""Invalid settings, each with its path. Readers add to the list, to report all at once."""


@attrs.frozen
class Role:
    """The settings of one role.

    Args:
        name: the role.
        path: the path of its settings.
        ranks: the selected ranks.
        discrete: whether each operation of the role gets its own report; ``None`` if not set.
        tool: the profiler, if the role names one.
        profiler: the settings of the role's profiler, as given.
        switch: the path of the key that switches the role on.
    """

    name: str
    path: str
    ranks: Ranks
    discrete: bool | None
    tool: str | None
    profiler: Mapping[str, Any]
    switch: str = ""

    @property
    def selects(self) -> bool:
        """Whether any rank is selected."""
        return bool(self.ranks)

    @property
    def ranks_key(self) -> str:
        """The path of the key that selects its ranks."""
        if self.switch.endswith("profile_ranks"):
            return f"{self.switch}_all" if self.ranks == "all" else self.switch
        return f"{self.path}.all_ranks" if self.ranks == "all" else f"{self.path}.ranks"


def read_roles(
    settings: dict[str, Any], tool: str | None, needs_enable: bool, problems: Problems
) -> list[Role]:
    """All roles, those without settings included.

    Args:
        tool: the profiler; only this profiler's section of `tool_config` counts.
        needs_enable: whether a role without `enable` is off.
    """
    roles: list[Role] = []
    for name, places in PLACES.items():
        paths = [
            f"{place}.{key}"
            for place in places
            for key in ("profiler", *_OLDEST)
            if _is_there(settings, f"{place}.{key}")
        ]
        place = next(
            (place for place in places if any(key.startswith(f"{place}.") for key in paths)),
            places[0],
        )
        for key in paths:
            if not key.startswith(f"{place}."):
                problems.append(f"{key}: conflicts with {paths[0]}, the same role's; give one")
        roles.append(_role(settings, name, place, tool, needs_enable, problems))
    return roles


def union(roles: Iterable[Role]) -> Ranks:
    """The ranks that any of the roles selects, for a worker with all of them.

    >>> role = Role("actor", "", [0, 1], None, None, {})
    >>> union([role, attrs.evolve(role, ranks=[3])])
    [0, 1, 3]
    >>> union([role, attrs.evolve(role, ranks="all")]), union([])
    ('all', [])
    """
    result: set[int] = set()
    for role in roles:
        if role.ranks == "all":
            return "all"
        result |= set(role.ranks)
    return sorted(result)


def _is_there(settings: dict[str, Any], path: str) -> bool:
    return find(settings, path)[1] is not None


def _role(
    settings: dict[str, Any],
    name: str,
    place: str,
    tool: str | None,
    needs_enable: bool,
    problems: Problems,
) -> Role:
    oldest = {key: find(settings, f"{place}.{key}")[1] for key in _OLDEST}
    path = f"{place}.profiler"
    if not _is_there(settings, path) and any(value is not None for value in oldest.values()):
        ranks = _ranks(oldest, place, "profile_ranks", "profile_ranks_all", problems)
        discrete = flag(oldest, place, "profile_discrete", problems)
        return Role(name, place, ranks, discrete, None, {}, f"{place}.profile_ranks")
    problems += [
        f"{place}.{key}: {oldest[key]!r} conflicts with the newer spelling {path}; give one"
        for key in ("profile_ranks", "profile_ranks_all")
        if oldest[key] is not None
    ]
    role = read_role(settings, name, path, tool, needs_enable, problems)
    if role.discrete is None and tool == "nsys":
        return attrs.evolve(role, discrete=flag(oldest, place, "profile_discrete", problems))
    return role


def read_role(
    settings: dict[str, Any],
    name: str,
    path: str,
    tool: str | None,
    needs_enable: bool,
    problems: Problems,
) -> Role:
    """The role whose profiler has the settings at `path`."""
    profiler = mapping(find(settings, path)[1], path, PROFILER_KEYS, problems)
    ranks = _ranks(profiler, path, "ranks", "all_ranks", problems)
    is_enabled = flag(profiler, path, "enable", problems)
    if is_enabled is False or (is_enabled is None and needs_enable):
        ranks = []
    elif is_enabled and not ranks:
        ranks = [0]  # as verl has it
    tools = mapping(profiler.get("tool_config"), f"{path}.tool_config", TOOLS, problems)
    nsys = mapping(tools.get("nsys"), f"{path}.tool_config.nsys", ("discrete",), problems)
    flags = [flag(nsys, f"{path}.tool_config.nsys", "discrete", problems)]
    if tool == "nsys":
        flags.append(flag(profiler, path, "discrete", problems))
    else:
        own = mapping(tools.get(str(tool)), f"{path}.tool_config.{tool}", (), problems)
        flags = [flag(own, f"{path}.tool_config.{tool}", "discrete", problems)]
    return Role(
        name,
        path,
        ranks,
        next((value for value in flags if value is not None), None),
        str(profiler["tool"]) if profiler.get("tool") else None,
        profiler,
        f"{path}.enable" if needs_enable or is_enabled is not None else f"{path}.ranks",
    )


def mapping(value: Any, path: str, keys: Iterable[str], problems: Problems) -> dict[str, Any]:
    """A group of settings, empty if missing.

    Refuses keys that look like a misspelt known key.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(f"{path}: {Invalid(value, 'a mapping')}")
        return {}
    for key in value:
        close = difflib.get_close_matches(str(key), keys, n=1, cutoff=0.75)
        if key not in keys and close:  # verl has others than we read
            problems.append(f"{path}.{key}: unknown key; did you mean {close[0]!r}?")
    return value


def flag(values: Mapping[str, Any], path: str, key: str, problems: Problems) -> bool | None:
    """The value of a key that is true, false, or missing."""
    value = values.get(key)
    if value is not None and not isinstance(value, bool):
        problems.append(f"{path}.{key}: {Invalid(value, 'true or false')}")
        return None
    return value


def ranks_at(values: Mapping[str, Any], path: str, key: str, problems: Problems) -> list[int]:
    """A list of ranks, empty if null or missing."""
    value = values.get(key)
    if value is None:
        return []
    try:
        ranks = Integers.parse(value)
    except ConfigError as error:
        problems += [f"{path}.{key}{problem}" for problem in error.problems]
        return []
    if ranks.count > _MOST:
        problems.append(
            f"{path}.{key}: selects {ranks.count} ranks; at most {_MOST} are valid, or all_ranks: "
            "true"
        )
        return []
    return list(ranks)


_MOST = 100_000


def _ranks(
    values: Mapping[str, Any], path: str, key: str, all_key: str, problems: Problems
) -> Ranks:
    ranks = ranks_at(values, path, key, problems)
    return "all" if flag(values, path, all_key, problems) else ranks
