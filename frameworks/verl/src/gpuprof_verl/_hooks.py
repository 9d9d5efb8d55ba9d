"""verl's finish hooks: the command that each role runs after its last window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuprof_verl._roles import Problems, Ranks, Role, flag, ranks_at

KEYS = ("finish_hook_cmd", "finish_hook_all_ranks", "finish_hook_ranks")
_VARIABLES = {"SAVE_PATH": "DIRECTORY", "RANK": "RANK", "PID": "PID", "ROLE": "GROUP"}


def read_hooks(
    roles: Sequence[Role], control: Mapping[str, Any], where: str, tool: str, problems: Problems
) -> dict[str, Any]:
    """The keys `finish_command` and `finish_ranks` for a worker with these roles.

    Args:
        roles: the roles that are on. Each runs its own command, or else the command of `control`.
        control: verl's settings for all roles.
        where: the path of `control`.
    """
    commands: dict[str, list[Ranks]] = {}
    for role in roles:
        places = {
            key: (role.profiler, role.path) if key in role.profiler else (control, where)
            for key in KEYS
        }
        values, path = places["finish_hook_cmd"]
        command = values.get("finish_hook_cmd")
        if command is not None and not isinstance(command, str):
            problems.append(
                f"{path}.finish_hook_cmd: {command!r} is not valid; expected a command for the "
                "shell"
            )
        elif command and command.strip():
            everywhere = flag(*places["finish_hook_all_ranks"], "finish_hook_all_ranks", problems)
            chosen = ranks_at(*places["finish_hook_ranks"], "finish_hook_ranks", problems)
            ranks = "all" if everywhere else chosen or role.ranks
            commands.setdefault(command, []).append(ranks)
    if not commands:
        return {}
    where_run = {command: _together(ranks) for command, ranks in commands.items()}
    ranks_of_roles = _together([role.ranks for role in roles])
    ranks = _together(list(where_run.values()))
    return {
        "finish_command": f"export {_exports(tool)}; {_joined(where_run, ranks)}",
        **({} if ranks == ranks_of_roles else {"finish_ranks": ranks}),
    }


def _together(selections: Sequence[Ranks]) -> Ranks:
    if "all" in selections:
        return "all"
    return sorted({rank for ranks in selections for rank in ranks if isinstance(rank, int)})


def _exports(tool: str) -> str:
    exports = [
        f'VERL_PROFILE_{theirs}="$GPUPROF_HOOK_{ours}"' for theirs, ours in _VARIABLES.items()
    ]
    if tool == "nsys":  # the directory of the reports under verl's own profiler
        exports.append('VERL_PROFILE_RAY_NSIGHT_DIR="$GPUPROF_HOOK_DIRECTORY"')
    return " ".join([*exports, f"VERL_PROFILE_TOOL={tool}"])


def _joined(where_run: Mapping[str, Ranks], everywhere: Ranks) -> str:
    """A single shell command that runs each of the commands on its ranks."""
    if len(where_run) == 1:
        return next(iter(where_run))
    parts = []
    for command, ranks in where_run.items():
        run = f"(\n{command}\n) || failed=$?"
        if ranks != everywhere and ranks != "all":
            only = "|".join(map(str, ranks))
            run = f'case "$GPUPROF_HOOK_RANK" in {only}) {run};; esac'
        parts.append(run)
    return "; ".join(["failed=0", *parts, "exit $failed"])
