"""Released RLinf, unchanged on disk, with gpuprof: `make test-frameworks`."""

from __future__ import annotations

import pytest
from gpuprof._artifacts.ledger import RELEASES, WAITS, ledgers
from support.frameworks import (
    BrokenToolChecks,
    Framework,
    InstrumentChecks,
    JobChecks,
    OwnTestChecks,
    RunJob,
    UnknownReleaseChecks,
)

RLINF = Framework(
    package="rlinf",
    tried="0.3.0",
    group="ActorGroup",
    in_workers={"run_training", "optimizer_step", "generate", "predict", "env_step"},
    in_driver={"step", "generate_rollouts", "actor_training"},
    on=(
        "cluster.profiling.backend=nsight",
        "cluster.profiling.worker_groups=[ActorGroup]",
        "cluster.profiling.steps=[1,3]",
        "cluster.profiling.options={t: nvtx}",
        "cluster.profiling.instruments=[ray]",
    ),
    off=(
        "cluster.profiling.backend=nsight",
        "cluster.profiling.worker_groups=[ActorGroup]",
        "cluster.profiling.steps=[1,3]",
        "cluster.profiling.enabled=False",
    ),
    scopes={
        *("tagged", "by_name", "raising", "asynchronous", "asynchronous, raising", "by_caller"),
        *("outer", "inner", "failing", "first", "second", "decorating", "plain", "full"),
        *("step", "generate"),
    },
    own_tests=("tests/unit_tests/test_nvidia_profiling.py",),
)
pytestmark = [pytest.mark.nsys, RLINF.needed]


class TestJob(JobChecks):
    """Five steps, two of them captured."""

    framework = RLINF


class TestUnknownRelease(UnknownReleaseChecks):
    """The same job in another release."""

    framework = RLINF


class TestBrokenTool(BrokenToolChecks):
    """nsys fails."""

    framework = RLINF


class TestInstruments(InstrumentChecks):
    """`Worker.timer`, `worker_timer`, `profiling_range`, `ScopedTimer`."""

    framework = RLINF


@RLINF.needs_checkout
class TestOwnTests(OwnTestChecks):
    """Of its profiler's windows and ranges."""

    framework = RLINF


def test_steps_that_cannot_be_followed_are_whole_workers(ran: RunJob) -> None:
    """Their function takes other arguments than in the release that was tried."""
    rows = ran(RLINF, "changed").rows()
    assert [("lifetime", "complete")] * 2 == [(row["window"], row["state"]) for row in rows]


def test_a_function_that_has_changed_is_named(ran: RunJob) -> None:
    """With the argument that it does not take."""
    said = "rlinf.utils.distributed: ScopedTimer.__call__ does not take name"
    assert 1 == ran(RLINF, "changed").log.count(said)


def test_the_driver_waits_for_its_helper_threads(ran: RunJob) -> None:
    """A worker group's `wait` joins a thread that gets the results: that is no work."""
    found, _ = ledgers(ran(RLINF, "on").run)
    (driver,) = (ledger for ledger in found if ledger.header["role"] == "driver")
    keys: dict[tuple[int, str], set[int]] = {}
    for role, number, key in driver.links[["role", "place", "key"]].tolist():
        keys.setdefault((role, driver.places[number].key), set()).add(key)
    released = keys[RELEASES, "WorkerGroupFuncResult._wait_for_results (thread)"]
    assert keys[WAITS, "Thread.join"] <= released
