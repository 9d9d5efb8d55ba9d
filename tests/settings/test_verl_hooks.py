"""verl's finish hooks: whose command runs, on which ranks, and with what."""

from __future__ import annotations

import subprocess
from typing import Any

from gpuprof.settings import read
from support.planning import refused


def settings(
    actor: dict[str, Any] | None = None, critic: dict[str, Any] | None = None, **control: Any
) -> dict[str, Any]:
    return {
        "global_profiler": {"tool": "nsys", "steps": [1], **control},
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True, **(actor or {})}}},
        "critic": {"profiler": critic or {"enable": False}},
    }


def groups(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = read("verl", given).settings["groups"]
    return found


def printed(group: dict[str, Any], rank: int = 0) -> list[str]:
    """What a group's command prints, run by a shell as after a rank's last window."""
    variables = {"DIRECTORY": "/out", "RANK": str(rank), "PID": "7", "GROUP": "g"}
    environment = {f"GPUPROF_HOOK_{name}": value for name, value in variables.items()}
    done = subprocess.run(
        ["/bin/sh", "-c", group["finish_command"]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def test_the_variables_of_the_hook() -> None:
    """verl's, of which the directory of Ray's reports is the one that holds ours."""
    names = ("SAVE_PATH", "RAY_NSIGHT_DIR", "TOOL", "RANK", "PID", "ROLE")
    command = "echo " + " ".join(f"$VERL_PROFILE_{name}" for name in names)
    found = groups(settings(finish_hook_cmd=command))
    assert ["/out", "/out", "nsys", "0", "7", "g"] == printed(found["actor_rollout_ref"])


def test_the_directory_of_rays_reports_is_nsyss() -> None:
    """With another tool the variable is not set."""
    found = groups(settings(tool="torch", finish_hook_cmd="echo x$VERL_PROFILE_RAY_NSIGHT_DIR"))
    assert ["x"] == printed(found["actor_rollout_ref"])


def test_an_empty_hook() -> None:
    """It runs nothing."""
    assert "finish_command" not in groups(settings(finish_hook_cmd=""))["actor_rollout_ref"]


def test_a_roles_own_hook_beats_the_global_one() -> None:
    """Key by key: its command runs on the ranks that all roles have."""
    found = groups(
        settings({"finish_hook_cmd": "mine"}, finish_hook_cmd="all", finish_hook_ranks=[3])
    )
    assert found["actor_rollout_ref"]["finish_command"].endswith("; mine")
    assert [3] == found["actor_rollout_ref"]["finish_ranks"]


def test_a_role_that_is_off_has_no_hook() -> None:
    """Composed settings give each role the global one."""
    given = settings({"finish_hook_cmd": "mine"}, finish_hook_cmd="all")
    for role in ("rollout", "ref"):
        given["actor_rollout_ref"][role] = {"profiler": {"enable": False, "finish_hook_cmd": "all"}}
    assert groups(given)["actor_rollout_ref"]["finish_command"].endswith("; mine")


def test_a_role_without_a_hook() -> None:
    """Null beside a global hook means none."""
    found = groups(settings({"finish_hook_cmd": None}, finish_hook_cmd="all"))
    assert "finish_command" not in found["actor_rollout_ref"]


def test_each_role_of_a_worker_runs_its_own_hook() -> None:
    """One that fails does not keep the other from running."""
    critic = {"enable": True, "finish_hook_cmd": "echo critic"}
    found = groups(settings({"finish_hook_cmd": "echo actor; exit 3"}, critic))
    assert ["actor", "critic"] == printed(found["WorkerDict"])
    assert "finish_ranks" not in found["WorkerDict"]


def test_hooks_of_a_worker_on_other_ranks() -> None:
    """Each runs where its role is profiled."""
    critic = {"enable": True, "ranks": [2], "finish_hook_cmd": "echo critic"}
    group = groups(settings({"finish_hook_cmd": "echo actor"}, critic))["WorkerDict"]
    assert [["actor"], [], ["critic"]] == [printed(group, rank) for rank in range(3)]


def test_a_hook_that_is_no_text() -> None:
    """The error names the role's key, or the global one."""
    assert [
        "global_profiler.finish_hook_cmd: ['a'] is not valid; expected a command for the shell"
    ] == refused("verl", settings(finish_hook_cmd=["a"]))
