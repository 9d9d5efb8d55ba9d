"""verl's settings: `global_profiler` and each role's `profiler`, and two older spellings.

The oldest has `profile_ranks`, `profile_ranks_all` and `profile_discrete` in each role; the next
has `profiler`, with `ranks`, `all_ranks` and `discrete`. Both keep the steps and nsys's options in
`trainer`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gpuprof.settings import (
    Invalid,
    Output,
    Translation,
    find,
    nothing_selected,
    take_output_with_directory,
)

from gpuprof_verl import _roles
from gpuprof_verl._hooks import read_hooks
from gpuprof_verl._roles import (
    TOOLS,
    Problems,
    Role,
    flag,
    mapping,
    read_role,
    read_roles,
    union,
)
from gpuprof_verl._torch import read_torch, say_tokens

CONTROL = "global_profiler"
_ALIAS = "profiler"  # as verl's page writes it in its shortest examples
_STEPS = "trainer.profile_steps"
_SIDES = ("controller", "worker")
_INTERVAL = "trainer.profile_interval"
"""The steps of the supervised trainer."""
_SUPERVISED_WORKER = "TrainingWorker"
"""The supervised trainer's worker class."""
_INTERVAL_TAKES = "[first, last] with 1 <= first <= last, or [-1, -1] for none"
_KL = ("actor_rollout_ref.actor.use_kl_loss", "algorithm.use_kl_in_reward")
"""The keys that each make verl use a reference model."""
_LEGACY = "trainer.use_legacy_worker_impl"
"""A key of verl 0.5 to 0.7: the reference has its own worker unless the value is ``disable``."""
_LORA = "actor_rollout_ref.model.lora_rank"
"""If this key is set, the actor is also the reference."""
PATHS = (
    CONTROL, _ALIAS, _STEPS, "trainer.profile_continuous_steps",
    *(f"trainer.{side}_nsight_options" for side in _SIDES),
    "actor_rollout_ref.hybrid_engine", "reward_model.enable_resource_pool", "reward.num_workers",
    *_KL, _LEGACY, _LORA, _INTERVAL, *_roles.PATHS,
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
_INSTEAD = {
    "npu": "it is the profiler of Ascend NPUs; leave it to verl and profile nothing here",
    "torch_memory": (
        "it saves snapshots of the allocator; leave it to verl, or set tool: torch with "
        "tool_config.torch.contents: [memory]"
    ),
    "precision_debugger": (
        "it records tensors and no times; leave it to verl and profile nothing here"
    ),
}
"""verl's tools that gpuprof does not know, each with what to do."""
_CONTROL_KEYS = (
    *_roles.PROFILER_KEYS,
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
    """Translate verl's settings; see `gpuprof.settings.read`.

    Nothing is profiled without a tool or without steps. If no role selects a rank, verl still
    captures its controller with nsys.
    """
    if find(settings, _INTERVAL)[1] is not None:
        return _read_sft(settings, backends)
    today = find(settings, CONTROL)[1] is not None
    where = CONTROL if today else _ALIAS
    problems: Problems = []
    control = mapping(find(settings, where)[1], where, _CONTROL_KEYS, problems)
    steps, steps_path = _steps(settings, control, where, problems)
    tool, notes = _tool(control, where, steps, steps_path, problems)
    step_list = steps if isinstance(steps, list) else []
    if 0 in step_list:
        steps = [step for step in step_list if step != 0]
    nsys, default = _nsys(control, where, problems)
    roles = {role.name: role for role in read_roles(settings, tool, bool(control), problems)}
    groups = _groups(settings, roles, bool(control))
    workers = {
        CONTROLLER: {"gpus": 0},
        **{group: {"gpus": 1, "alias": group == EVERYTHING} for group in groups},
    }
    active = {
        group: [role for role in members if role.selects] for group, members in groups.items()
    }
    any_role = any(active.values())
    words = {
        f"groups.{group}.{key}": " and ".join(
            role.switch if key == "worker_groups" else role.ranks_key
            for role in [role for role in members if role.selects] or members
        )
        for group, members in groups.items()
        for key in ("worker_groups", "ranks")
        if members
    }
    for key in ("worker_groups", "ranks"):
        words[f"groups.{CONTROLLER}.{key}"] = f"{where}.tool" if today else steps_path
    if tool is None or not steps or not (any_role or tool == "nsys"):
        without = (
            f"{steps_path} has no step: verl counts from 1" if step_list else "no steps are given"
        )
        reason = notes or [without if not steps else "no role selects a rank"]
        return Translation(
            nothing_selected(),
            paths=words,
            notes=(f"{reason[0]}, so nothing is profiled",),
            workers=workers,
            off=reason[0],
            problems=tuple(problems),
        )
    if not any_role:
        notes.append(f"no role selects a rank, so only {CONTROLLER} is profiled, as verl does")
    if 0 in step_list:
        notes.append(f"{steps_path}: 0 is left out; verl counts steps from 1")
    notes += _left_out(groups, roles)
    problems += _unserved(tool, where, backends)
    for members in active.values():
        problems += _other_tools(members, tool, where)
        problems += _disagreement(members)

    backend = _TOOLS.get(tool, tool)
    paths = {
        "steps": steps_path, "output_dir": f"{where}.save_path", "backend": f"{where}.tool", **words
    }  # fmt: skip
    sections: dict[str, dict[str, Any]] = {}
    outputs: dict[str, Output] = {}
    if backend == "nsight":
        for side in _SIDES:
            options, path = _options(settings, nsys, where, side, problems)
            outputs[side] = take_output_with_directory(options, path, problems)
            notes += outputs[side].notes
            options = _ours(options, notes) if side == "worker" else options
            for group in groups if side == "worker" else (CONTROLLER,):
                paths[f"groups.{group}.{backend}.options"] = path
                sections[group] = {backend: {"options": options}}
    continuous = flag(control, where, "profile_continuous_steps", problems)
    if continuous is None:
        continuous = bool(find(settings, "trainer.profile_continuous_steps")[1])
    native: dict[str, Any] = {
        "backend": backend,
        "worker_groups": [group for group, members in active.items() if members],
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
    for group, members in active.items():
        if not members:
            continue
        if backend == "torch_profiler":
            options, path = read_torch(members, notes, problems)
            paths[f"groups.{group}.{backend}"] = path
            sections[group] = {backend: options} if options else {}
            say_tokens([*members, roles["rollout"]], tool, notes)
        flags = [role.discrete for role in members if role.discrete is not None]
        native["groups"][group] = {
            "ranks": union(members),
            "discrete": flags[0] if flags else default and tool == "nsys",
            **read_hooks(members, control, where, tool, problems),
            **sections.get(group, {}),
        }
    if outputs:
        # Nothing opens a range in the controller: its whole life goes into one report.
        native["worker_groups"].insert(0, CONTROLLER)
        native["groups"][CONTROLLER] = {
            "ranks": [0], "steps": None, "discrete": False,
            "file_name": outputs["controller"].settings.get("file_name", "worker_process_{pid}"),
            **sections[CONTROLLER],
        }  # fmt: skip
    return Translation(
        native,
        paths=paths,
        notes=tuple(dict.fromkeys(notes)),
        workers=workers,
        problems=tuple(dict.fromkeys(problems)),
    )


def _nsys(control: dict[str, Any], where: str, problems: Problems) -> tuple[dict[str, Any], bool]:
    """nsys's settings for all roles, and whether operations are discrete by default."""
    path = f"{where}.global_tool_config"
    tools = mapping(control.get("global_tool_config"), path, TOOLS, problems)
    nsys = mapping(tools.get("nsys"), f"{path}.nsys", _NSYS_KEYS, problems)
    discrete = flag(nsys, f"{path}.nsys", "discrete", problems)
    for_all = flag(control, where, "discrete", problems)
    return nsys, bool(for_all if discrete is None else discrete)


def _steps(
    settings: dict[str, Any], control: dict[str, Any], where: str, problems: Problems
) -> tuple[Any, str]:
    """The steps and their path. Both an empty list and null mean no steps."""
    today, old = control.get("steps"), find(settings, _STEPS)[1]
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


def _groups(
    settings: dict[str, Any], roles: Mapping[str, Role], today: bool
) -> dict[str, list[Role]]:
    """The worker groups, each with the roles whose settings its workers read.

    A worker with actor, rollout and reference reads only the actor's settings in releases whose
    roles have `enable`. In older releases, it reads the settings of all three roles. A reference
    in a separate worker reads its own settings.
    """

    def given(path: str) -> Any:
        return find(settings, path)[1]

    is_split = given("actor_rollout_ref.hybrid_engine") is False
    with_kl = any(given(path) is True for path in _KL)
    own_reference = with_kl and (
        is_split or (given(_LEGACY) in ("auto", "enable") and not given(_LORA))
    )
    actor, rollout, ref = roles["actor"], roles["rollout"], roles["ref"]
    common_roles = [actor, *([ref] if own_reference else [])] if today else [actor, rollout, ref]
    groups = {"actor_rollout_ref": common_roles}
    if is_split:
        groups |= {"actor": [actor], "rollout": [rollout], "ref": [ref]}
        common_roles = common_roles if today else [actor, ref]
    reward = [] if given("reward") is not None else [roles["reward_model"]]
    has_pool = given("reward_model.enable_resource_pool") is True
    return {
        **groups,
        "critic": [roles["critic"]],
        **({"reward_model": reward} if reward else {}),
        EVERYTHING: [*common_roles, roles["critic"], *([] if has_pool else reward)],
    }


def _left_out(groups: Mapping[str, Sequence[Role]], roles: Mapping[str, Role]) -> Iterator[str]:
    """Notes on roles that are on although no worker reads their settings."""
    read = {role.name for members in groups.values() for role in members}
    for role in roles.values():
        if not role.selects:
            continue
        if role.name == "reward_model" and "reward_model" not in read:
            yield f"{role.path}: left out; verl no longer reads it where it has the section reward"
        elif role.name not in read and union([role, roles["actor"]]) != roles["actor"].ranks:
            yield (
                f"{role.path}: left out; the workers of actor_rollout_ref read only "
                f"{roles['actor'].path}"
            )
    reward = roles["reward_model"]
    if reward.selects and "reward_model" in groups and reward not in groups[EVERYTHING]:
        yield (
            "reward_model.enable_resource_pool: the reward model's workers are the group "
            f"reward_model; {EVERYTHING} has the other roles"
        )


def _unserved(tool: str, where: str, backends: Collection[str]) -> Iterator[str]:
    backend = _TOOLS.get(tool, tool)
    if backend not in backends:
        tools = [name for name in ("nsys", "torch") if _TOOLS[name] in backends]
        instead = _INSTEAD.get(tool)
        yield (
            f"{where}.tool: {tool!r} "
            + (f"is not supported: {instead}" if instead else "has no installed backend")
            + f"; valid here: {', '.join([*tools, 'null'])}, or install a package with the entry "
            f"point {backend!r} in the group 'gpuprof'"
        )


def _other_tools(roles: Sequence[Role], tool: str, where: str) -> Iterator[str]:
    for role in roles:
        if role.tool is not None and role.tool != tool:
            yield (
                f"{role.path}.tool: {role.tool!r} conflicts with {where}.tool: {tool!r}; a "
                "worker has one profiler"
            )


def _disagreement(roles: Sequence[Role]) -> Iterator[str]:
    """Problems of roles in one process that differ in `discrete`: they are captured together."""
    for one, other in pairwise(role for role in roles if role.discrete is not None):
        if one.discrete != other.discrete:
            says = {True: "discrete", False: "not discrete"}
            yield (
                f"{other.path}: {other.name} is {says[bool(other.discrete)]}, but {one.path}: "
                f"{one.name} is {says[bool(one.discrete)]}; "
                "roles that share workers must agree"
            )
            return


def _options(
    settings: dict[str, Any], nsys: dict[str, Any], where: str, side: str, problems: Problems
) -> tuple[dict[str, Any], str]:
    """The options of nsys for the controller or the workers, and their path."""
    path = f"{where}.global_tool_config.nsys.{side}_nsight_options"
    options = nsys.get(f"{side}_nsight_options")
    if options is None:
        old = f"trainer.{side}_nsight_options"
        is_present, options = find(settings, old)
        path = old if is_present else path
    if options is None:
        return dict(DEFAULTS), path
    return {
        key: value
        for key, value in mapping(options, path, (), problems).items()
        if value is not None
    }, path


def _same_directory(
    native: dict[str, Any], paths: dict[str, str], controller: Output, problems: Problems
) -> None:
    """Use the controller's output directory. Another directory for the workers is a problem."""
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


def _read_sft(settings: dict[str, Any], backends: Collection[str]) -> Translation:
    """Read the supervised trainer's settings, with one kind of worker and one range of steps."""
    problems: Problems = []
    path = _ALIAS
    profiler = mapping(find(settings, path)[1], path, _roles.PROFILER_KEYS, problems)
    tool = profiler.get("tool", "torch")
    steps = _read_interval(settings, problems)
    role = read_role(settings, "worker", path, tool, True, problems)
    workers = {_SUPERVISED_WORKER: {"gpus": 1}}
    off = next(
        (
            reason
            for reason, holds in [
                (f"{path}.tool: is null", tool is None),
                (f"{_INTERVAL}: selects no step", not steps),
                (f"{path}.enable: is not true", not role.selects),
            ]
            if holds
        ),
        None,
    )
    paths = {
        "worker_groups": f"{path}.enable", "steps": _INTERVAL,
        "ranks": role.ranks_key, "output_dir": f"{path}.save_path", "backend": f"{path}.tool",
    }  # fmt: skip
    if off is not None:
        return Translation(
            nothing_selected(),
            paths=paths,
            notes=(f"{off}, so nothing is profiled",),
            workers=workers,
            off=off,
            problems=tuple(problems),
        )
    problems += _unserved(str(tool), path, backends)
    notes: list[str] = []
    backend = _TOOLS.get(str(tool), str(tool))
    control = mapping(find(settings, CONTROL)[1], CONTROL, _CONTROL_KEYS, problems)
    nsys, default = _nsys(control, CONTROL, problems)
    native: dict[str, Any] = {
        "backend": backend,
        "worker_groups": ["all"],
        "steps": steps,
        "continuous": True,
        "ranks": role.ranks,
        "discrete": default and tool == "nsys" if role.discrete is None else role.discrete,
        "file_name": "worker_process_{pid}.{n}",
        **read_hooks([role], {}, path, str(tool), problems),
    }
    if isinstance(profiler.get("save_path"), str):
        native["output_dir"] = profiler["save_path"]
    if backend == "nsight":
        options, where = _options(settings, nsys, CONTROL, "worker", problems)
        output = take_output_with_directory(options, where, problems)
        notes += output.notes
        native.update(output.numbered(".{n}"))
        native[backend] = {"options": _ours(options, notes)}
        paths |= {**output.paths, f"{backend}.options": where}
    elif backend == "torch_profiler":
        native[backend], paths[backend] = read_torch([role], notes, problems)
        say_tokens([role], str(tool), notes)
    return Translation(
        native, paths=paths, notes=tuple(notes), workers=workers, problems=tuple(problems)
    )


def _read_interval(settings: dict[str, Any], problems: _roles.Problems) -> list[str]:
    """The supervised trainer's steps in gpuprof's notation; empty for none."""
    interval = find(settings, _INTERVAL)[1]
    numbers = interval if isinstance(interval, list) else []
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        problems.append(f"{_INTERVAL}: {Invalid(interval, _INTERVAL_TAKES)}")
        return []
    first, last = numbers
    if last < first or first < 0 <= last:
        problems.append(f"{_INTERVAL}: {Invalid(interval, _INTERVAL_TAKES)}")
        return []
    # verl counts steps from 1 and opens the capture at `first`, so 0 never opens it
    return [f"{first}:{last + 1}"] if first > 0 else []
