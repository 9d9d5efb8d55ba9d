"""The example that `make demo` runs, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from gpuprof._cli import main
from support import browser
from support.report_reader import labels
from support.waiting import DEADLINE

pytestmark = pytest.mark.torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_ppo" / "train.py"
SHORT = {
    "steps": 4,
    "workers": 1,
    "environments": 2,
    "rollout_epochs": 1,
    "horizon": 16,
    "learning_epochs": 1,
    "report_every": 1,
}
"""Hyperparameters with which the demo takes every turn that it takes in full, and learns nothing.
"""


def path_without_nsys() -> str:
    """PATH as it is, but for the folders that hold nsys. Ray needs the rest."""
    return os.pathsep.join(
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not Path(folder, "nsys").exists()
    )


def train(
    directory: Path, *arguments: str, interpreter: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the example in an empty directory; everything that it prints is in `stdout`."""
    command = [sys.executable, *interpreter, str(EXAMPLE), *arguments]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        timeout=3 * DEADLINE,
        check=False,
        **streams,
    )


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's first ten steps, once: its directory, and what it has printed."""
    directory = tmp_path_factory.mktemp("profiled")
    configuration = yaml.safe_load(EXAMPLE.with_name("config.yaml").read_text())
    configuration["training"]["steps"] = 10
    configuration["profiling"]["steps"] = [3, 7]
    (directory / "config.yaml").write_text(yaml.safe_dump(configuration))
    done = train(directory, "--config", "config.yaml")
    assert 0 == done.returncode, done.stdout
    for report in directory.glob("gpuprof-output/*/*/*.nsys-rep"):
        labels(str(report))  # NoRanges: a fixture is made again only where it fails itself
    return directory, done.stdout


@pytest.fixture
def short(tmp_path: Path) -> list[str]:
    """The arguments for a short training that captures each of its steps but the first."""
    configuration = yaml.safe_load(EXAMPLE.with_name("config.yaml").read_text())
    configuration["training"] |= SHORT
    configuration["profiling"]["steps"] = [1, 2, 3]
    file = tmp_path / "short.yaml"
    file.write_text(yaml.safe_dump(configuration))
    return ["--config", str(file)]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the first five steps print in one process, without Ray and without a profiler."""
    directory = tmp_path_factory.mktemp("serial")
    interpreter = ("-m", "cProfile", "-s", "cumulative")
    done = train(directory, "--serial", "--steps", "5", interpreter=interpreter)
    assert 0 == done.returncode, done.stdout
    return done.stdout


@pytest.mark.nsys
def test_the_demo_learns_and_captures(profiled: tuple[Path, str]) -> None:
    """The demo learns, leaves six labelled reports, and counts its frames."""
    directory, printed = profiled
    mean = re.search(r"Mean return of the last \d+ episodes: ([\d.]+)", printed)
    assert mean is not None
    assert float(mean[1]) > 60  # an untrained policy's is 20
    assert re.search(r"\nframes: 10240 in all steps, [\d.]+ per second\n", printed)
    assert "6 of 6 reports complete" in printed
    for title in (
        "ActorGroup-0",
        "RolloutGroup-0",
        "RolloutGroup-1",
        "EnvGroup-0",
        "EnvGroup-1",
        "Runner (the driver)",
    ):
        # a busy machine may make one of them slow, and then its title says so
        assert re.search(rf"\] {re.escape(title)}( \(slow\))? profile tree view:\n", printed)
    reports = sorted(directory.glob("gpuprof-output/*/*/*.nsys-rep"))
    assert 6 == len(reports)
    for report in reports:
        found = labels(str(report))
        actor = {
            "actor/recv_traj",
            "actor/compute_adv",
            "actor/run_training",
            "actor/sync_model_to_rollout",
            "backward",
        }
        rollout = {
            "rollout/generate",
            "rollout/generate_epoch",
            "rollout/poll_weight_sync",
            "rollout/request_weight_sync",
            "rollout/recv_obs",
            "rollout/predict",
            "rollout/send_actions",
        }
        expected = actor if report.name.startswith("ActorGroup") else rollout
        assert expected <= set(found)


def flat(ranges: Any, depth: int = 0) -> Iterator[list[Any]]:
    """Depth, name, count, total and share of ranges of `gpuprof report --nvtx --json`."""
    for each in ranges:
        durations = each["durations"]
        yield [depth, each["name"], len(durations), sum(durations), each["share"]]
        yield from flat(each["children"], depth + 1)


@pytest.mark.nsys
@pytest.mark.chromium
def test_the_page_of_the_demo(profiled: tuple[Path, str], tmp_path: Path) -> None:
    """It opens offline without a complaint, and its ranges are those of `gpuprof report`."""
    (run,) = (profiled[0] / "gpuprof-output").iterdir()
    made = CliRunner().invoke(main, ["html", str(run), "-o", str(tmp_path / "page.html")])
    assert 0 == made.exit_code, made.output
    with browser.browser(tmp_path / "profile") as context:
        opened = browser.open_page(context, tmp_path / "page.html")
        data = json.loads(opened.page.locator("#data").text_content())["runs"][0]
        assert ([], []) == (opened.requests, opened.complaints)
        # with a profiler nothing is sampled, unless the key says so
        assert ["No stacks were sampled: see the key sampling."] == opened.texts(".why")
        assert 10 == opened.page.locator("#steps .bar").count()
        opened.page.locator("#gantt select").select_option("0")
        assert 5 < opened.page.locator("#gantt .critical").count()
    printed = CliRunner().invoke(main, ["report", str(run), "--nvtx", "--json"]).stdout
    expected = [list(flat(window["ranges"])) for window in json.loads(printed)["windows"]]
    assert expected == [
        [[*row[:4], row[6]] for row in window["rows"]] for window in data["ranges"]["windows"]
    ]


STAND_IN = Path(__file__).parents[1] / "support" / "rocprof_stand_in" / "bin"


@pytest.mark.exhaustive  # tests/rocprof_sys has the stand-in, on Ray, too
def test_the_demo_under_a_stand_in_for_rocprof_sys_which_records_no_gpu(
    tmp_path: Path, short: list[str]
) -> None:
    """Each worker has one trace with its windows and labels, by the stand-in for AMD's tool."""
    path = os.pathsep.join([str(STAND_IN), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = train(tmp_path, "--backend", "rocprof_sys", *short, PATH=path)
    assert 0 == done.returncode, done.stdout
    assert "whole-process capture: release 1.2.0 has no gate for the GPU" in done.stdout
    assert "2 of 2 reports complete" in done.stdout
    traces = {
        file.name: json.loads(file.read_text())["calls"]
        for file in tmp_path.glob("gpuprof-output/*/*/*.proto")
    }
    assert ["ActorGroup-0", "RolloutGroup-0"] == sorted(
        name.removesuffix(".lifetime.proto") for name in traces
    )
    for name, calls in traces.items():
        assert 3 == calls.count(["rangeStart", "gpuprof"])
        label = "actor/run_training" if name.startswith("ActorGroup") else "rollout/predict"
        assert label in {call[1] for call in calls if len(call) > 1}


@pytest.mark.exhaustive  # the backend has tests of its own
def test_the_demo_under_torch_profiler(tmp_path: Path, short: list[str]) -> None:
    """A third-party backend leaves a Chrome trace per worker and window, with labels."""
    done = train(tmp_path, "--backend", "torch_profiler", *short)
    assert 0 == done.returncode, done.stdout
    assert "6 of 6 reports complete" in done.stdout
    traces = sorted(tmp_path.glob("gpuprof-output/*/*/*.trace.json"))
    assert [f"ActorGroup-0.step-{step}.trace.json" for step in (1, 2, 3)] == [
        trace.name for trace in traces
    ][:3]
    for trace in traces:
        names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
        label = "actor/run_training" if trace.name.startswith("ActorGroup") else "rollout/predict"
        assert {label, "aten::addmm"} <= names


@pytest.mark.exhaustive  # `make demo` runs it; with nsys its trees are looked at
def test_the_demo_without_a_tool(tmp_path: Path, short: list[str]) -> None:
    """A machine without nsys trains all the same, prints its trees, and says how to get more."""
    done = train(tmp_path, "--timing-only-without-tool", *short, PATH=path_without_nsys())
    assert 0 == done.returncode, done.stdout
    said = (
        f"timing trees only: {os.uname().nodename}: profiling.backend: 'nsight': 'nsys' is not "
        "on PATH. Install"
    )
    assert said in done.stdout
    assert "] ActorGroup-0 profile tree view:\n" in done.stdout


@pytest.mark.exhaustive  # so does any job: tests/core/config/test_load.py
def test_the_demo_refuses_a_missing_tool(tmp_path: Path) -> None:
    """Asked for a profiler that is not there, it ends with 2 and one line, before training."""
    done = train(tmp_path, "--steps", "4", PATH=path_without_nsys())
    assert 2 == done.returncode
    assert "profiling.backend: 'nsight': 'nsys' is not on PATH" in done.stdout
    assert "Traceback" not in done.stdout
    assert [] == list(tmp_path.glob("gpuprof-output/*/*"))


@pytest.mark.exhaustive  # with nsys, the same run is compared with the one on Ray
def test_the_serial_run_under_cprofile(serial: str) -> None:
    """In one process a standard Python profiler sees the workers' functions, without Ray."""
    assert "Runner profile tree view:\nmain_loop: " in serial
    for function in ("_run_training", "_predict", "_generate_epoch", "_interact_once"):
        assert re.search(rf"\.py:\d+\({function}\)", serial), function
    assert "ray/_private" not in serial


@pytest.mark.nsys
def test_profiling_changes_nothing_of_what_is_learned(
    profiled: tuple[Path, str], serial: str
) -> None:
    """The same seed gives the same learning curve, on Ray and profiled or not."""
    point = r"step (\d+): (\d+) frames, mean return ([\d.]+)"
    expected, curve = re.findall(point, serial), re.findall(point, profiled[1])
    assert 1 == len(expected)
    assert expected == curve[:1]
