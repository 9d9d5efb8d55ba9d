"""What tells whether runs can be compared, as the manifest has it."""

from __future__ import annotations

from gpuprof._artifacts.manifest import setup
from gpuprof._artifacts.records import NodeRecord, Start
from support.run_files import ENVIRONMENT, run_file, session_file, status


def record(node: str, *ranks: int, **environment: object) -> NodeRecord:
    """A node with some workers."""
    about = {**ENVIRONMENT, **environment}
    starts = [
        Start("A", rank, "1", session_file(environment=about), status(tool_version="2023.4"))
        for rank in ranks
    ]
    return NodeRecord(node, f"/run/{node}", tuple(starts), {})


def test_all_versions_of_a_run_are_listed() -> None:
    """Of the driver and of every worker; a library that nobody imported has none."""
    found = setup(run_file("run"), [record("a", 0, torch="2.4.0"), record("b", 1, torch="2.5.1")])
    assert {
        "gpuprof": ["1.0"],
        "profiler": ["2023.4"],
        "python": ["3.11.2"],
        "torch": ["2.4.0", "2.5.1"],
        "ray": [],
        "driver": [],
    } == found["versions"]


def test_workers_are_listed_by_node() -> None:
    """Each once, however often it was started."""
    found = setup(run_file("run"), [record("a", 0, 1, 1), record("b", 2)])
    assert {"a": ["A-0", "A-1"], "b": ["A-2"]} == found["nodes"]


def test_gpus_are_listed_by_node() -> None:
    """As the node's workers have seen them."""
    found = setup(run_file("run"), [record("a", 0, gpus=["NVIDIA H100"]), record("b", 1)])
    assert {"a": ["NVIDIA H100"], "b": []} == found["gpus"]
