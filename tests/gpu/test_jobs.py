"""Jobs whose steps wait for a card, recorded and profiled."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts import ledger as reader
from support.launched import GPUPROF, NSIGHT, run

pytestmark = pytest.mark.gpu

STEPS = 12
ITEM = "value = loss.item()"
JOB = f"""
import gpuprof
import torch

model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
batch = torch.ones(64, 512, device="cuda")
for number in range({STEPS}):
    with gpuprof.step(number):
        with gpuprof.timing().add_time("train", device="cuda"):
            optimizer.zero_grad()
            loss = model(batch).sum()
            loss.backward()
            optimizer.step()
            torch.cuda._sleep(200_000_000)  # a tenth of a second or so
        with gpuprof.timer("loss.item"):
            {ITEM}
"""
ITEM_LINE = 1 + JOB.splitlines().index(f"            {ITEM}")


def recorded(directory: Path, *words: str) -> Path:
    """Run the job under `gpuprof run`. Returns the directory of its files."""
    (directory / "job.py").write_text(JOB)
    done = run(directory, [*GPUPROF, *words, "--", sys.executable, "job.py"])
    assert 0 == done.returncode, done.stderr
    (session,) = directory.glob("gpuprof-output/*/*/Program-0.start-1.json")
    return session.parent


def gpuprof(directory: Path, *words: str) -> str:
    """What a command prints about the run of a directory."""
    done = run(directory, [sys.executable, "-m", "gpuprof", *words])
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job ran without a profiler."""
    directory = tmp_path_factory.mktemp("job")
    recorded(directory, "--set", "backend=none")
    return directory


@pytest.fixture(scope="module")
def session(job: Path) -> dict[str, Any]:
    """What its process left."""
    (file,) = job.glob("gpuprof-output/*/*/Program-0.start-1.json")
    return dict(json.loads(file.read_text()))


def test_the_card_is_named(session: dict[str, Any]) -> None:
    """A run says what it ran on."""
    import torch

    assert torch.cuda.get_device_name() in str(session["environment"]["gpus"])


def test_a_scope_has_the_time_on_the_stream(session: dict[str, Any]) -> None:
    """Launching the work takes far less than the work."""
    (train,) = (node for node in session["timing"]["children"] if node["key"] == "train")
    assert train["device_total"] / train["device_count"] > 5 * train["minimum"]


def test_the_ledger_says_what_the_card_did(job: Path) -> None:
    """As NVML tells: its name, its memory in use and its clock."""
    import torch

    (path,) = job.glob("gpuprof-output/*/*/Program-0.start-1.ledger")
    ledger = reader.read(path)
    (card,) = (event for event in ledger.events if event["event"] == "card")
    assert torch.cuda.get_device_name() == card["name"]
    assert 0 < ledger.cards["memory"].min() <= ledger.cards["memory"].max() <= card["memory"]
    assert 0 < ledger.cards["clock"].max() <= card["clock"]


def test_the_wait_for_the_device_bounds_the_step(job: Path) -> None:
    """The scope that reads the loss takes the time of the kernels before it."""
    answer = json.loads(gpuprof(job, "explain", "--json"))
    assert "loss.item" in answer["bounds"], answer


def test_stacks_name_the_line_that_waits(job: Path) -> None:
    """`.item()` holds the interpreter's lock for none of it."""
    assert f"job.py:{ITEM_LINE}" in gpuprof(job, "report", "--stacks", "collapsed")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job ran with torch's profiler in step 5."""
    pytest.importorskip("gpuprof_torch_profiler")
    directory = tmp_path_factory.mktemp("traced")
    recorded(directory, "--set", "backend=torch_profiler", "--set", "steps=[5]")
    return directory


def test_torchs_profiler_records_the_kernels_of_its_step(traced: Path) -> None:
    """The trace has the work of the card, beside ranges and operators."""
    from gpuprof_torch_profiler._read import read_tracks

    (trace,) = traced.glob("gpuprof-output/*/*/Program-0.step-5.trace.json")
    kinds = {track.kind for track in read_tracks(str(trace))}
    assert {"ranges", "operators", "CUDA calls", "kernels"} <= kinds


def test_the_timeline_has_a_row_for_the_card(traced: Path) -> None:
    """Kernels have a row for each stream."""
    pytest.importorskip("perfetto")
    gpuprof(traced, "timeline", "-o", "timeline.gz")
    timeline = gzip.decompress((traced / "timeline.gz").read_bytes())
    assert b"GPU 0, stream " in timeline
    assert b": kernels" in timeline


@pytest.mark.nsys
def test_nsys_records_the_kernels_of_its_step(tmp_path: Path) -> None:
    """`gpuprof report` has their time in the range that launched them."""
    recorded(tmp_path, *NSIGHT, "--set", "steps=[5]")
    (report,) = tmp_path.glob("gpuprof-output/*/*/Program-0.step-5.nsys-rep")
    ranges = json.loads(gpuprof(tmp_path, "report", str(report), "--nvtx", "--json"))
    assert '"kernels"' in json.dumps(ranges), ranges
