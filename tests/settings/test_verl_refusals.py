"""What of verl's settings is refused, with the path that it has there."""

from __future__ import annotations

import gpuprof
import pytest
from gpuprof.errors import ConfigError
from gpuprof.settings import read
from support.planning import parsed, refused
from support.verl_examples import OLD, SHORT, WORKERS


def test_roles_that_do_not_agree() -> None:
    """Both are named."""
    settings = parsed(
        OLD.replace(
            "critic:\n    profiler: {discrete: False", "critic:\n    profiler: {discrete: True"
        )
    )
    [problem] = refused("verl", settings)
    assert (
        "critic.profiler: critic is discrete, but actor_rollout_ref.ref.profiler: ref is not "
        "discrete" in problem
    )


@pytest.mark.parametrize(
    ("tool", "remedy"),
    [
        ("npu", "it is the profiler of Ascend NPUs; leave it to verl"),
        ("torch_memory", "it saves snapshots of the allocator; leave it to verl, or set tool: tor"),
        ("precision_debugger", "it records tensors and no times; leave it to verl"),
    ],
)
def test_tools_that_nobody_serves(tool: str, remedy: str) -> None:
    """The error says what each is and what to do, and names the entry point that would serve it."""
    [problem] = refused("verl", {**parsed(SHORT), "global_profiler": {"tool": tool, "steps": [1]}})
    assert problem.startswith(f"global_profiler.tool: {tool!r} is not supported: {remedy}")
    assert problem.endswith(
        "; valid here: nsys, torch, null, or install a package with the entry point "
        f"{tool!r} in the group 'gpuprof'"
    )


def test_a_tool_of_nobody() -> None:
    """verl runs on without a profiler; here the error names the installed ones."""
    [problem] = refused(
        "verl", {**parsed(SHORT), "global_profiler": {"tool": "perf", "steps": [1]}}
    )
    assert problem.startswith("global_profiler.tool: 'perf' has no installed backend; valid here: ")


def test_two_tools_for_one_worker() -> None:
    """Refused, with both."""
    settings = {**parsed(SHORT), "critic": {"profiler": {"enable": True, "tool": "torch"}}}
    assert [
        (
            "critic.profiler.tool: 'torch' conflicts with global_profiler.tool: 'nsys'; a "
            "worker "
            "has one profiler"
        )
    ] == refused("verl", settings)


def test_everything_that_is_wrong_at_once() -> None:
    """Of the controller, of roles, of the options, and of what is gpuprof's to check."""
    nsys = {
        "discret": True,
        "discrete": 1,
        "worker_nsight_option": {},
        "controller_nsight_options": {"t": "a", "trace": "b"},
    }
    settings = {
        "global_profiler": {
            "steps": ["x"],
            "stpes": [1],
            "finish_hook_cmd": 3,
            "global_tool_config": {"nsys": nsys},
        },
        "actor_rollout_ref": {
            "actor": {
                "profiler": {"enable": True, "ranks": ["1:" + "9" * 5000]},
                "profile_ranks": [1],
            },
            "ref": {"profiler": {"enable": True, "tool_config": {"nsys": {"discrte": True}}}},
            "critic": {"profile_ranks": [2]},
        },
        "critic": {"profiler": {"all_ranks": "yes"}},
    }
    expected = [
        "global_profiler.stpes: unknown key; did you mean 'steps'?",
        "global_profiler.global_tool_config.nsys.discret: unknown key; did you mean 'discrete'?",
        (
            "global_profiler.global_tool_config.nsys.worker_nsight_option: unknown key; did you "
            "mean "
            "'worker_nsight_options'?"
        ),
        "global_profiler.global_tool_config.nsys.discrete: 1 is not valid; expected true or false",
        (
            "actor_rollout_ref.actor.profile_ranks: [1] conflicts with the newer spelling "
            "actor_rollout_ref.actor.profiler"
        ),
        "actor_rollout_ref.actor.profiler.ranks[0]: '1:999",
        (
            "actor_rollout_ref.ref.profiler.tool_config.nsys.discrte: unknown key; did you mean "
            "'discrete'?"
        ),
        (
            "actor_rollout_ref.critic.profile_ranks: conflicts with critic.profiler, the same "
            "role's; give one"
        ),
        "critic.profiler.all_ranks: 'yes' is not valid; expected true or false",
        "global_profiler.finish_hook_cmd: 3 is not valid; expected a command for the shell",
        "global_profiler.steps[0]: 'x' is not valid",
        (
            "global_profiler.global_tool_config.nsys.controller_nsight_options.trace: 'trace' is "
            "given "
            "by options.t too"
        ),
    ]
    found = refused("verl", settings)
    assert expected == [
        problem[: len(start)] for problem, start in zip(found, expected, strict=True)
    ]
    with pytest.raises(ConfigError, match=r"global_profiler\.stpes"):
        read("verl", settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            "global_profiler: {stpes: [1]}",
            "global_profiler.stpes: unknown key; did you mean 'steps'?",
        ),
        ("global_profiler: {steps: [x], tool: nsys}", "global_profiler.steps[0]: 'x' is not valid"),
        (
            "{global_profiler: {steps: [1]}, critic: {profiler: {enable: 1}}}",
            "critic.profiler.enable: 1 is not valid; expected true or false",
        ),
        (
            "{global_profiler: {steps: [1]}, critic: {profiler: {enbale: true}}}",
            "critic.profiler.enbale: unknown key; did you mean 'enable'?",
        ),
        ("critic: {profiler: {ranks: [-1]}}", "critic.profiler.ranks[0]: -1 is not valid"),
        ("critic: {profile_ranks: x}", "critic.profile_ranks[0]: 'x' is not valid"),
        (
            "{global_profiler: {steps: [1]}, trainer: {profile_steps: [2]}}",
            "trainer.profile_steps: [2] conflicts with global_profiler.steps: [1]",
        ),
        (
            (
                "{global_profiler: {steps: [1], global_tool_config: {nsys: {worker_nsight_options: "
                "{t: "
                "a, trace: b}}}}}"
            ),
            (
                "global_profiler.global_tool_config.nsys.worker_nsight_options.trace: 'trace' is "
                "given "
                "by options.t too"
            ),
        ),
        (
            "{global_profiler: {steps: [1], finish_hook_cmd: [a]}}",
            "global_profiler.finish_hook_cmd: ['a'] is not valid",
        ),
    ],
)
def test_what_is_refused(settings: str, problem: str) -> None:
    """With the path that it has in verl's configuration."""
    with_a_role = {
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True}}},
        **parsed(settings),
    }
    with pytest.raises(ConfigError) as caught:
        gpuprof.plan(with_a_role, WORKERS, system="verl")
    assert any(found.startswith(problem) for found in caught.value.problems), caught.value.problems
