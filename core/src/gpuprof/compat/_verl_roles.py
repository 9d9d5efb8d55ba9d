"""The roles of verl, and which ranks of each are selected, in any of its three spellings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs

from gpuprof import _sources
from gpuprof._selection import Integers
from gpuprof._structure import Invalid
from gpuprof.errors import ConfigError

Ranks = list[int] | Literal["all"]

PLACES = {
    "actor": ("actor_rollout_ref.actor",),
    "rollout": ("actor_rollout_ref.rollout",),
    "ref": ("actor_rollout_ref.ref",),
    "critic": ("critic", "actor_rollout_ref.critic"),
    "reward_model": ("reward_model", "actor_rollout_ref.rm"),
}
"""Where each role's settings stand; the second place is the documentation's."""
_OLDEST = ("profile_ranks", "profile_ranks_all", "profile_discrete")
PATHS = tuple(f"{place}.{key}" for places in PLACES.values() for place in places for key in ("profiler", *_OLDEST))
PROFILER_KEYS = (
    "enable", "all_ranks", "ranks", "discrete", "tool", "tool_config", "save_path", "relocate_results",
    "finish_hook_cmd", "finish_hook_all_ranks", "finish_hook_ranks",
)  # fmt: skip


@attrs.frozen
class Role:
    """What one role asks for.

    Args:
        name: of the role.
        path: where it stands.
        ranks: those that are selected.
        discrete: whether each of its operations is a report of its own.
        tool: the profiler, if it names one.
        profiler: its own group of settings, for what else there is.
    """

    name: str
    path: str
    ranks: Ranks
    discrete: bool
    tool: str | None
    profiler: Mapping[str, Any]

    @property
    def selects(self) -> bool:
        """Whether any rank is selected."""
        return bool(self.ranks)


def read_roles(settings: dict[str, Any], default_discrete: bool) -> list[Role]:
    """All roles, those that nothing is said of included.

    Raises:
        ConfigError: with everything that is not valid.
    """
    roles: list[Role] = []
    problems: list[str] = []
    for name, places in PLACES.items():
        place = next((place for place in places if _says_something(settings, place)), places[0])
        try:
            roles.append(_role(settings, name, place, default_discrete))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return roles


def union(roles: Iterable[Role]) -> Ranks:
    """The ranks that any of the roles selects: those of a worker that has them all.

    >>> role = Role("actor", "", [0, 1], False, None, {})
    >>> union([role, attrs.evolve(role, ranks=[3])]), union([role, attrs.evolve(role, ranks="all")]), union([])
    ([0, 1, 3], 'all', [])
    """
    found: set[int] = set()
    for role in roles:
        if role.ranks == "all":
            return "all"
        found |= set(role.ranks)
    return sorted(found)


def _says_something(settings: dict[str, Any], place: str) -> bool:
    return any(_sources.find(settings, f"{place}.{key}")[1] is not None for key in ("profiler", *_OLDEST))


def _role(settings: dict[str, Any], name: str, place: str, default_discrete: bool) -> Role:
    path = f"{place}.profiler"
    profiler = mapping(_sources.find(settings, path)[1], path, PROFILER_KEYS)
    oldest = {key: _sources.find(settings, f"{place}.{key}")[1] for key in _OLDEST}
    if profiler:
        ranks = _ranks(profiler, f"{path}.ranks", "ranks", flag(profiler, path, "all_ranks"))
        enabled = flag(profiler, path, "enable")
        if enabled is False:
            ranks = []
        elif enabled and not ranks:
            ranks = [0]  # as verl has it
    else:
        all_ranks = flag(oldest, place, "profile_ranks_all")
        ranks = _ranks(oldest, f"{place}.profile_ranks", "profile_ranks", all_ranks)
    nsys = _sources.find(profiler, "tool_config.nsys")[1]
    discrete = [
        flag(nsys if isinstance(nsys, dict) else {}, f"{path}.tool_config.nsys", "discrete"),
        flag(profiler, path, "discrete"),
        flag(oldest, place, "profile_discrete"),
        default_discrete,
    ]
    tool = profiler.get("tool")
    where = path if profiler else place
    return Role(name, where, ranks, next(value for value in discrete if value is not None), tool and str(tool), profiler)


def mapping(value: Any, path: str, known: Iterable[str]) -> dict[str, Any]:
    """A group of settings. Of the keys that are not known, those that are nearly known are refused: verl adds others.

    Raises:
        ConfigError: it is no mapping, or a key is misspelt.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError([f"{path}: {Invalid(value, 'a mapping')}"])
    problems = []
    for key in value:
        close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.75)
        if key not in known and close:
            problems.append(f"{path}.{key}: unknown key; did you mean {close[0]!r}?")
    if problems:
        raise ConfigError(problems)
    return value


def flag(values: Mapping[str, Any], path: str, key: str) -> bool | None:
    """A key that is true, false or not given.

    Raises:
        ConfigError: it is anything else.
    """
    value = values.get(key)
    if value is not None and not isinstance(value, bool):
        raise ConfigError([f"{path}.{key}: {Invalid(value, 'true or false')}"])
    return value


def ranks_at(values: Mapping[str, Any], path: str, key: str) -> list[int]:
    """A list of ranks; null and nothing are none.

    Raises:
        ConfigError: an entry is not a rank, or there are more than any job has.
    """
    given = values.get(key)
    if given is None:
        return []
    try:
        found = Integers.parse(given)
    except ConfigError as error:
        raise ConfigError([f"{path}{problem}" for problem in error.problems]) from None
    if found.count > _MOST:
        raise ConfigError([f"{path}: selects {found.count} ranks; at most {_MOST} are valid, or all_ranks: true"])
    return list(found)


_MOST = 100_000


def _ranks(values: Mapping[str, Any], path: str, key: str, all_ranks: bool | None) -> Ranks:
    found = ranks_at(values, path, key)
    return "all" if all_ranks else found
