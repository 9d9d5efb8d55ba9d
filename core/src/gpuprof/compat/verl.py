"""verl's settings: `global_profiler` and each role's `profiler`, and two older spellings.

The oldest has `profile_ranks`, `profile_ranks_all` and `profile_discrete` in each role; the next
has `profiler`, with `ranks`, `all_ranks` and `discrete`. Both keep the steps and nsys's options in
`trainer`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gpuprof._config import sources
from gpuprof._config.systems import Translation
from gpuprof.compat import _nsys_output, _verl_roles
from gpuprof.compat._nsys_output import Output
from gpuprof.compat._verl_roles import (
    TOOLS,
    Problems,
    Role,
    flag,
    mapping,
    ranks_at,
    read_roles,
    union,
)

CONTROL = "global_profiler"
_ALIAS = "profiler"  # as verl's page writes it in its shortest examples
_STEPS = "trainer.profile_steps"
_SIDES = ("controller", "worker")
PATHS = (
    CONTROL, _ALIAS, _STEPS, "trainer.profile_continuous_steps",
    *(f"trainer.{side}_nsight_options" for side in _SIDES),
    "actor_rollout_ref.hybrid_engine", "reward_model.enable_resource_pool", *_verl_roles.PATHS,
)  # fmt: skip
__all__ = ["group_of_pool", "read"]

SIGNS = ("actor_rollout_ref", "global_profiler", "trainer")
IN_ENVIRONMENT = False

DEFAULTS = {
    "trace": "cuda,nvtx,cublas,ucx",
    "cuda-memory-usage": "true",
    "cuda-graph-trace": "graph",
}
"""verl's defaults, for the controller and for workers."""
_TOOLS = {"nsys": "nsight", "torch": "torch_profiler"}
"""verl's tools whose backend has another name."""
_CONTROL_KEYS = (
    *_verl_roles.PROFILER_KEYS,
    "steps",
    "profile_continuous_steps",
    "global_tool_config",
)
_NSYS_KEYS = ("discrete", *(f"{side}_nsight_options" for side in _SIDES))
CONTROLLER = "controller"
EVERYTHING = "WorkerDict"
"""verl's class of a worker with every role."""

_POOL_ROLES = {"rm": "reward_model", "reward_model": "reward_model", "critic": "critic"}
_ACTOR_ROLES = ("actor", "rollout", "ref", "actor_rollout", "actor_rollout_ref")


def group_of_pool(roles: Iterable[str]) -> str:
    """The worker group of a resource pool, from the roles that share its workers.

    Args:
        roles: the pool's, as verl names them for `create_colocated_worker_cls`.

    >>> group_of_pool(["actor_rollout", "critic", "ref"]), group_of_pool(["rm"])
    ('WorkerDict', 'reward_model')
    >>> group_of_pool(["actor_rollout", "ref"])
    'actor_rollout_ref'
    """
    names = set(roles)
    if len(names) == 1 and names <= {"actor", "rollout", "ref"}:
        return names.pop()  # apart with `hybrid_engine: false`
    groups = {
        "actor_rollout_ref" if name in _ACTOR_ROLES else _POOL_ROLES.get(name, EVERYTHING)
        for name in names
    }
    return groups.pop() if len(groups) == 1 else EVERYTHING


def read(settings: dict[str, Any], backends: Collection[str]) -> Translation:
    """Translate verl's settings; see `gpuprof.compat.read`.

    Nothing is profiled without a tool, without steps, or if no role selects a rank.
    """
    where = CONTROL if sources.find(settings, CONTROL)[1] is not None else _ALIAS
    problems: Problems = []
    control = mapping(sources.find(settings, where)[1], where, _CONTROL_KEYS, problems)
    steps, steps_path = _steps(settings, control, where, problems)
    tool, notes = _tool(control, where, steps, steps_path, problems)
    tools_path = f"{where}.global_tool_config"
    tools = mapping(control.get("global_tool_config"), tools_path, TOOLS, problems)
    nsys = mapping(tools.get("nsys"), f"{tools_path}.nsys", _NSYS_KEYS, problems)
    discrete = flag(nsys, f"{tools_path}.nsys", "discrete", problems)
    for_all = flag(control, where, "discrete", problems)
    roles = read_roles(settings, bool(for_all if discrete is None else discrete), problems)
    selected = [role for role in roles if role.selects]
    apart = sources.find(settings, "reward_model.enable_resource_pool")[1] is True
    groups = _groups(settings, roles, apart)
    known = {
        CONTROLLER: {"gpus": 0},
        **{group: {"gpus": 1, "alias": group == EVERYTHING} for group in groups},
    }
    if tool is None or not steps or not selected:
        reason = notes or ["no steps are given" if not steps else "no role selects a rank"]
        said = (f"{reason[0]}, so nothing is profiled",)
        return Translation(
            {"backend": "none", "enabled": False},
            where,
            notes=said,
            workers=known,
            off=reason[0],
            problems=tuple(problems),
        )
    problems += [
        *_unserved(tool, where, backends),
        *_other_tools(selected, tool, where),
        *_disagreement(selected, apart),
    ]
    if apart and any(role.name == "reward_model" for role in selected):
        notes.append(
            "reward_model.enable_resource_pool: the reward model's workers are the group "
            f"reward_model; {EVERYTHING} has the other roles"
        )

    backend = _TOOLS.get(tool, tool)
    paths = {"steps": steps_path, "output_dir": f"{where}.save_path", "backend": f"{where}.tool"}
    options: dict[str, dict[str, Any]] = {}
    outputs: dict[str, Output] = {}
    if backend == "nsight":
        for side in _SIDES:
            given, path = _options(settings, nsys, where, side, problems)
            outputs[side] = _nsys_output.take_with_directory(given, path, problems)
            notes += outputs[side].notes
            options[side] = _ours(given, notes) if side == "worker" else given
            for group in groups if side == "worker" else (CONTROLLER,):
                paths[f"groups.{group}.{backend}.options"] = path
    continuous = flag(control, where, "profile_continuous_steps", problems)
    if continuous is None:
        continuous = bool(sources.find(settings, "trainer.profile_continuous_steps")[1])
    native: dict[str, Any] = {
        "backend": backend,
        "worker_groups": [group for group, members in groups.items() if union(members)],
        "steps": steps,
        "continuous": continuous,
        "file_name": "worker_process_{pid}.{n}",
    }
    if isinstance(control.get("save_path"), str):
        native["output_dir"] = control["save_path"]
    if outputs:
        native.update(outputs["worker"].numbered(".{n}"))
        paths.update(outputs["worker"].paths)
        _same_directory(native, paths, outputs["controller"], problems)
    native["groups"] = {}
    for group, members in groups.items():
        deciding = [role for role in members if role.selects] or members
        for ours, theirs in [("worker_groups", "enable"), ("ranks", "ranks")]:
            paths[f"groups.{group}.{ours}"] = " and ".join(
                _place(role, theirs) for role in deciding
            )
        if union(members):
            own = {
                "ranks": union(members),
                "discrete": any(role.discrete for role in members if role.selects),
            }
            hook = _finish_hook(
                *_whose_hook(control, where, group, members, problems, notes), tool, problems
            )
            section = {backend: {"options": options["worker"]}} if options else {}
            native["groups"][group] = {**own, **hook, **section}
    if options:
        # Nothing opens a range in the controller: its whole life goes into one report.
        native["worker_groups"].insert(0, CONTROLLER)
        for ours in ("worker_groups", "ranks"):
            paths[f"groups.{CONTROLLER}.{ours}"] = f"{where}.tool"
        native["groups"][CONTROLLER] = {
            "ranks": [0], "steps": None, "discrete": False,
            "file_name": outputs["controller"].settings.get("file_name", "worker_process_{pid}"),
            backend: {"options": options["controller"]},
        }  # fmt: skip
    return Translation(
        native, where, paths, tuple(dict.fromkeys(notes)), known, tuple(dict.fromkeys(problems))
    )


def _place(role: Role, key: str) -> str:
    """Where a role's profiler has a key, for reasons; the oldest spelling has only ranks."""
    if role.path.endswith(".profiler"):
        return f"{role.path}.{key}"
    return f"{role.path}.profile_ranks" if role.selects else f"{role.path}.profiler.{key}"


def _steps(
    settings: dict[str, Any], control: dict[str, Any], where: str, problems: Problems
) -> tuple[Any, str]:
    """The steps and their path. An empty list means none, like null."""
    today, old = control.get("steps"), sources.find(settings, _STEPS)[1]
    if today and old and today != old:
        problems.append(f"{_STEPS}: {old!r} conflicts with {where}.steps: {today!r}; give one")
    return (today, f"{where}.steps") if today or not old else (old, _STEPS)


def _tool(
    control: dict[str, Any], where: str, steps: Any, steps_path: str, problems: Problems
) -> tuple[str | None, list[str]]:
    """verl's name of the tool; the older spellings know only nsys."""
    tool = control.get("tool", "nsys") if steps_path != _STEPS else control.get("tool") or "nsys"
    if tool is None:
        return None, [f"{where}.tool: is null" if steps else "no steps are given"]
    if not isinstance(tool, str):
        problems.append(f"{where}.tool: {tool!r} is not valid; expected the name of a tool")
        return None, []
    return tool, []


def _groups(settings: dict[str, Any], roles: Sequence[Role], apart: bool) -> dict[str, list[Role]]:
    """The worker groups, each with its roles.

    Args:
        apart: whether the reward model has workers of its own.
    """
    together = sources.find(settings, "actor_rollout_ref.hybrid_engine")[1] is not False
    by_name = {role.name: [role] for role in roles}
    groups = {name: by_name.pop(name) for name in ("actor", "rollout", "ref")}
    if together:
        groups = {"actor_rollout_ref": [role for members in groups.values() for role in members]}
    return {
        **groups,
        **by_name,
        EVERYTHING: [role for role in roles if not (apart and role.name == "reward_model")],
    }


def _unserved(tool: str, where: str, backends: Collection[str]) -> Iterator[str]:
    backend = _TOOLS.get(tool, tool)
    if backend not in backends:
        served = [name for name in ("nsys", "torch") if _TOOLS[name] in backends]
        yield (
            f"{where}.tool: {tool!r} has no installed backend; valid here: "
            f"{', '.join([*served, 'null'])}, or install a package with the entry point "
            f"{backend!r} in the group 'gpuprof'"
        )


def _other_tools(selected: Sequence[Role], tool: str, where: str) -> Iterator[str]:
    for role in selected:
        if role.tool is not None and role.tool != tool:
            yield (
                f"{role.path}.tool: {role.tool!r} conflicts with {where}.tool: {tool!r}; a "
                "worker has one profiler"
            )


def _disagreement(selected: Sequence[Role], apart: bool) -> Iterator[str]:
    """Roles in one process are captured together, so all are discrete or none is."""
    together = [role for role in selected if not (apart and role.name == "reward_model")]
    for one, other in pairwise(together):
        if one.discrete != other.discrete:
            says = {True: "discrete", False: "not discrete"}
            yield (
                f"{other.path}: {other.name} is {says[other.discrete]}, but {one.path}: {one.name} "
                f"is {says[one.discrete]}; "
                "roles that share workers must agree"
            )
            return


def _options(
    settings: dict[str, Any], nsys: dict[str, Any], where: str, side: str, problems: Problems
) -> tuple[dict[str, Any], str]:
    """The options of nsys for one side, and their path."""
    path = f"{where}.global_tool_config.nsys.{side}_nsight_options"
    given = nsys.get(f"{side}_nsight_options")
    if given is None:
        old = f"trainer.{side}_nsight_options"
        there, given = sources.find(settings, old)
        path = old if there else path
    if given is None:
        return dict(DEFAULTS), path
    return {
        key: value for key, value in mapping(given, path, (), problems).items() if value is not None
    }, path


def _same_directory(
    native: dict[str, Any], paths: dict[str, str], controller: Output, problems: Problems
) -> None:
    """Use the directory of the controller's output; the workers' must be the same."""
    path, directory = controller.paths.get("output_dir"), controller.settings.get("output_dir")
    if path is None:
        return
    workers = paths["output_dir"]
    if not workers.endswith(".save_path") and native["output_dir"] != directory:
        problems.append(
            f"{path}: {directory!r} conflicts with {workers}: {native['output_dir']!r}; a run has "
            "one directory"
        )
    native["output_dir"] = directory
    paths["output_dir"] = path


def _ours(options: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Drop the capture range that verl needs: gpuprof opens the windows itself."""
    ours = dict(options)
    for key in ("capture-range", "c"):
        if ours.get(key) == "cudaProfilerApi":
            del ours[key]
    end = str(ours.get("capture-range-end", ""))
    if end.startswith("repeat-shutdown") and "capture-range" not in ours and "c" not in ours:
        del ours["capture-range-end"]
        notes.append(
            f"capture-range-end: {end} is left out: gpuprof plans the number of windows and keeps "
            "the worker alive"
        )
    return ours


def _finish_hook(
    given: Mapping[str, Any], path: str, tool: str, problems: Problems
) -> dict[str, Any]:
    """The command that each selected rank runs after its last window."""
    command = given.get("finish_hook_cmd")
    if command is None:
        return {}
    if not isinstance(command, str):
        problems.append(
            f"{path}.finish_hook_cmd: {command!r} is not valid; expected a command for the shell"
        )
        return {}
    variables = {"SAVE_PATH": "DIRECTORY", "RANK": "RANK", "PID": "PID", "ROLE": "GROUP"}
    exports = " ".join(
        f'VERL_PROFILE_{theirs}="$GPUPROF_HOOK_{ours}"' for theirs, ours in variables.items()
    )
    hook: dict[str, Any] = {
        "finish_command": f"export {exports} VERL_PROFILE_TOOL={tool}; {command}"
    }
    if flag(given, path, "finish_hook_all_ranks", problems):
        hook["finish_ranks"] = "all"
    elif ranks := ranks_at(given, path, "finish_hook_ranks", problems):
        hook["finish_ranks"] = ranks
    return hook


def _whose_hook(
    control: dict[str, Any],
    where: str,
    group: str,
    members: Sequence[Role],
    problems: Problems,
    notes: list[str],
) -> tuple[Mapping[str, Any], str]:
    """The settings with a worker's finish hook, and their path: a role's, or the global ones."""
    hooks = [role for role in members if role.profiler.get("finish_hook_cmd")]
    for role in hooks[1:]:
        first, other = (
            f"{one.path}.finish_hook_cmd: {one.profiler['finish_hook_cmd']!r}"
            for one in (hooks[0], role)
        )
        if role.profiler["finish_hook_cmd"] == hooks[0].profiler["finish_hook_cmd"]:
            continue
        if group == EVERYTHING:  # any roles of a job may share a worker
            notes.append(f"{other} is left out in {group}, which runs {first}")
        else:
            problems.append(f"{other} conflicts with {first}; a worker of {group} runs one")
    return (hooks[0].profiler, hooks[0].path) if hooks else (control, where)
