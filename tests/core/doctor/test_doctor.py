"""Which of a configuration's groups `gpuprof doctor` tries, and by which name it speaks of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof._config.schema import DISABLED
from gpuprof._doctor import installed, machine
from gpuprof._doctor.examine import examine
from gpuprof.backend.loading import known_backends
from support import journal

ACCEPTS = inspect.getsource(journal.Journal.diagnose).partition("    @hookimpl\n")[2].strip()
REFUSES = (
    "def diagnose(self, purpose: Purpose) -> list[Check]:\n        "
    'check = Check("options", False, f"no {self.options.title}", "another", "title")\n        '
    'return [] if purpose == "doctor" else [check]'
)


@pytest.fixture
def refusing(install: Callable[..., str]) -> str:
    """The name of an installed backend whose tool refuses every worker."""
    source = inspect.getsource(journal)
    assert ACCEPTS in source
    install(source.replace(ACCEPTS, REFUSES), refusing="Journal")
    return "refusing"


@pytest.mark.parametrize(
    ("named", "groups"),
    [
        ({"worker_groups": ["ActorGroup", "EnvGroup"]}, ["ActorGroup"]),
        ({"worker_groups": ["ActorGroup"], "ranks": [3]}, ["ActorGroup"]),
        (
            {"worker_groups": ["ActorGroup"], "nodes": ["another-one"], "enabled": False},
            ["ActorGroup"],
        ),
        ({"worker_groups": "all", "groups": {"EnvGroup": {"ranks": [1, 2]}}}, ["all", "EnvGroup"]),
        (
            {"worker_groups": ["EnvGroup", "Rollout*"], "groups": {"env*": {"steps": [1]}}},
            ["EnvGroup", "Rollout", "env"],
        ),
        ({"worker_groups": "all"}, ["all"]),
        ({}, ["Worker"]),
        ({"ranks": [3]}, ["Worker"]),
    ],
)
def test_the_groups_of_the_configuration_are_tried(
    refusing: str, named: dict[str, Any], groups: list[str]
) -> None:
    """Each group is checked under its own name, whatever ranks and nodes are selected."""
    checks = examine(load({"backend": refusing, **named}))
    found = [
        (check.name, check.detail.partition(" says, ")[2], check.remedy)
        for check in checks
        if not check.ok
    ]
    expected = [
        (
            f"{refusing} options",
            f"for group {name}: no journal",
            f"change the options of group {name}",
        )
        for name in groups
    ]
    assert expected == found


def test_each_group_is_tried_with_its_own_options(refusing: str) -> None:
    """What one group has otherwise than the others is what its check is about."""
    groups = {"EnvGroup": {refusing: {"title": "diary"}}}
    config = load(
        {"backend": refusing, "worker_groups": ["ActorGroup", "EnvGroup"], "groups": groups}
    )
    refusals = [check.detail.rpartition(" says, ")[2] for check in examine(config) if not check.ok]
    assert ["for group ActorGroup: no journal", "for group EnvGroup: no diary"] == refusals


def test_groups_with_and_without_gpus_are_both_tried(refusing: str) -> None:
    """Of those that another system is known to have, where the options are the same."""
    section = {"backend": refusing, "worker_groups": "all"}
    checks = examine(load({"cluster": {"profiling": section}}, system="rlinf"))
    assert ["ActorGroup", "Actor"] == [
        check.remedy.rpartition(" ")[2] for check in checks if not check.ok
    ]


def test_a_plugin_that_exits_at_import_is_a_failed_check(install: Any) -> None:
    """The doctor goes on, and its remedy is not the user's configuration."""
    install("import sys; sys.exit('no licence')", exiting="Backend")
    (check,) = (check for check in examine(load({"backend": "exiting"})) if not check.ok)
    assert check.detail.endswith("fails to import: it raised SystemExit: no licence")
    assert "report it to the authors of exiting" == check.remedy


VARIABLES = """
import attrs
from gpuprof.backend import hookimpl

@attrs.frozen
class Options:
    pass

class Variables:
    contract, Options = 2, Options
    def __init__(self, options):
        pass
    @hookimpl
    def inject_env(self, worker):
        return {"TRACER": "1"}
"""


@pytest.mark.parametrize(("steps", "result"), [(None, "ok"), ([3], "warning")])
def test_it_says_what_a_backend_records(install: Any, steps: list[int] | None, result: str) -> None:
    """Steps that have no effect on a backend of variables are a warning."""
    install(VARIABLES, variables="Variables")
    checks = examine(load({"backend": "variables", "steps": steps}))
    (check,) = (check for check in checks if check.name.endswith("records"))
    assert result == check.result
    assert check.detail.startswith("each worker's whole life, by variables")


def test_a_machine_without_a_profiler_is_in_order() -> None:
    """With `backend: none` no backend is tried, whichever are installed."""
    checks = examine(load({"backend": "none", "worker_groups": "all"}))
    assert {"ok": "timing trees and ledgers, by no profiler"} == {
        check.result: check.detail for check in checks if check.name.startswith("none")
    }
    assert [] == [check.name for check in checks if check.name.split()[0] in known_backends()]


def test_no_backend_at_all_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing trees and ledgers need none."""
    monkeypatch.setattr(installed, "survey", list)
    (check,) = (check for check in examine(DISABLED) if check.name == "backend")
    assert check.ok
    assert check.remedy


@pytest.mark.parametrize("can_sample", [False, True])
def test_scopes_in_python_say_whether_stacks_are_sampled(
    can_sample: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 cannot be sampled without the compiled part."""
    monkeypatch.setattr(machine.gpuprof_timing, "compiled", False)
    monkeypatch.setattr(machine, "CAN_SAMPLE", can_sample)
    monkeypatch.delenv(machine.PURE_VARIABLE, raising=False)
    assert can_sample != ("stacks are not sampled" in machine._scopes().detail)
