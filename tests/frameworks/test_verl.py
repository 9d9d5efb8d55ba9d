"""Released verl, unchanged on disk, with gpuprof: `make test-frameworks`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from gpuprof._analysis import reading
from gpuprof._analysis.samples import tail
from support.frameworks import (
    BrokenToolChecks,
    Framework,
    InstrumentChecks,
    JobChecks,
    OwnTestChecks,
    RunJob,
    UnknownReleaseChecks,
)
from support.report_reader import labels

VERL = Framework(
    package="verl",
    tried="0.9.1",
    group="actor_rollout_ref",
    selection="controller, actor_rollout_ref, WorkerDict",
    in_workers={"actor_update", "update_policy", "generate_sequences", "tool_call"},
    in_driver={"step", "gen", "update_actor"},
    on=(
        "global_profiler.tool=nsys",
        "global_profiler.steps=[2,4]",
        "global_profiler.global_tool_config.nsys.controller_nsight_options.trace=nvtx",
        "global_profiler.global_tool_config.nsys.worker_nsight_options.trace=nvtx",
        "actor_rollout_ref.actor.profiler.enable=True",
        "actor_rollout_ref.actor.profiler.all_ranks=True",
    ),
    off=("global_profiler.steps=null",),
    variables={"GPUPROF_INSTRUMENTS": "[ray]"},
    scopes={
        *("outer", "inner", "failing", "first", "second", "decorating", "annotated", "by_name"),
        *("annotated, raising", "by message", "by role", "positional", "asynchronous"),
        "asynchronous, raising",
    },
    own_tests=("tests/utils/test_nvtx_profile.py", "tests/utils/test_torch_profile.py"),
)
pytestmark = [pytest.mark.nsys, VERL.needed]


class TestJob(JobChecks):
    """Five steps, two of them captured."""

    framework = VERL

    def test_controller_and_workers_are_one_run(self, ran: RunJob) -> None:
        """The controller's report of its whole life is in the workers' receipt."""
        rows = ran(VERL, "on").all_rows
        assert [("controller-0", "lifetime", "complete")] == [
            (row["worker"], row["window"], row["state"])
            for row in rows
            if row["worker"] not in ("actor_rollout_ref-0", "actor_rollout_ref-1")
        ]

    def test_explain_names_the_slow_rank(self, ran: RunJob) -> None:
        """The controller's steps and the workers' scopes are in one run."""
        assert "actor_rollout_ref-1" in ran(VERL, "on").command("explain")

    def test_without_a_profiler_its_times_are_explained(self, ran: RunJob) -> None:
        """As far as asked for: verl's settings select nothing."""
        job = ran(VERL, "times")
        assert [] == [*job.run.rglob("*.nsys-rep")]
        assert "if actor_rollout_ref-1 were as fast as the others' median" in job.log
        assert "1. actor_rollout_ref-1 is slow in update_policy: " in job.command("explain")

    def test_the_controllers_report_has_its_steps(self, ran: RunJob) -> None:
        """Each of them, by the names that verl gives to its parts."""
        (report,) = (
            row["file"] for row in ran(VERL, "on").all_rows if row["worker"] == "controller-0"
        )
        found = labels(report)
        assert dict.fromkeys(VERL.in_driver, 10) == {name: found[name] for name in VERL.in_driver}

    def test_an_actor_outside_of_worker_groups_has_a_tree(self, ran: RunJob) -> None:
        """As the agent loop's workers: it is the controller's child."""
        trees = [
            file.read_text() for file in ran(VERL, "on").run.rglob("controller-0.child-*.json")
        ]
        assert ["agent_loop" in tree for tree in trees] == [True]


class TestUnknownRelease(UnknownReleaseChecks):
    """The same job in another release."""

    framework = VERL


class TestBrokenTool(BrokenToolChecks):
    """nsys fails."""

    framework = VERL


class TestExperimentalTrainers:
    """Their `__init__` calls none of a base class; the second one is an actor of its own."""

    @pytest.mark.parametrize(("run", "updates"), [(0, 1), (1, 2)], ids=["one-step-off", "async"])
    def test_steps_are_versions_of_the_parameters(
        self, ran: RunJob, run: int, updates: int
    ) -> None:
        """The asynchronous trainer makes a version in two updates."""
        manifest = json.loads((ran(VERL, "experimental").runs[run] / "manifest.json").read_text())
        reports = {
            (row["worker"], row["window"]): labels(row["file"]).get("actor_update")
            for row in manifest["receipt"]["rows"]
            if row["worker"] != "controller-0"
        }
        windows = ("step-2", "step-4")
        assert {(f"actor-{r}", w): updates for r in range(2) for w in windows} == reports


class TestSamples:
    """Ten steps of the agent loop, with stand-ins for the inference server and the reward."""

    def test_each_sample_has_its_phases(self, ran: RunJob) -> None:
        """Two requests, a tool between them, and the reward: 64 samples in each step."""
        samples = reading.read(ran(VERL, "samples").run).samples
        counts = {name: samples.count(name) for name in samples.names}
        assert {"generate": 1280, "tool": 640, "reward": 640} == counts
        assert 640 == len(samples.ids)

    def test_tokens_are_those_of_the_job(self, ran: RunJob) -> None:
        """Neither more nor fewer than verl trains on, which are those of the job alone."""
        job = ran(VERL, "samples")
        assert [[96] + [76] * 63] * 10 == job.result["tokens"]
        samples = reading.read(job.run).samples
        assert sum(map(sum, job.result["tokens"])) == samples.noted("tokens")

    def test_versions_are_those_of_the_servers_weights(self, ran: RunJob) -> None:
        """Each step has its own."""
        samples = reading.read(ran(VERL, "samples").run).samples
        assert set(range(1, 11)) == set(samples.notes["version"][samples.of("generate")])

    def test_the_tail_of_each_step_is_the_first_prompts_sample(self, ran: RunJob) -> None:
        """Its answer takes 4 s longer; the first step is warm-up."""
        run = reading.read(ran(VERL, "samples").run)
        last = [tail(run.samples, step.start, step.end).sample[0] for step in run.steps[1:]]
        assert ["0.0"] * 9 == [run.samples.ids[sample].split("/")[1] for sample in last]

    def test_explain_names_the_tail(self, ran: RunJob) -> None:
        """First, although nothing records the inference servers."""
        answer = json.loads(ran(VERL, "samples").command("explain", "--json"))
        assert "tail" == answer["findings"][0]["cause"]


def test_its_own_profiler_stays_on_without_a_run() -> None:
    """In a process that Ray's hook has prepared, for a trainer that begins no run."""
    program = """
import gpuprof_verl
gpuprof_verl.install_in_worker()
from verl.utils.profiler import DistProfiler, ProfilerConfig
from verl.utils.profiler.config import NsightToolConfig

config = ProfilerConfig(tool="nsys", enable=True, all_ranks=True)
print(DistProfiler(rank=0, config=config, tool_config=NsightToolConfig()).check_enable())
"""
    printed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "True" == printed.split()[-1]


class TestInstruments(InstrumentChecks):
    """verl's timers, ranges and annotations."""

    framework = VERL


@VERL.needs_checkout
class TestOwnTests(OwnTestChecks):
    """Of its profilers by nsys and by torch."""

    framework = VERL
