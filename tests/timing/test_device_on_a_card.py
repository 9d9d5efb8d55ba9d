"""Time on the GPU's stream, on a card."""

from __future__ import annotations

from typing import Any

import pytest
from gpuprof_timing import Timing

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch() -> Any:
    """PyTorch, imported by the tests that run only."""
    return pytest.importorskip("torch")


def test_real_events_on_a_card(torch: Any) -> None:
    """A long kernel's time on the stream exceeds the CPU's time to launch it."""
    timing = Timing("t")
    cycles = 500_000_000  # a quarter of a second or so: a launch takes microseconds
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    for _ in range(2):
        with timing.add_time("spin", device="cuda"):
            torch.cuda._sleep(cycles)
    # the GPU is still at it: no scope has waited
    assert 0 == timing._recording.root.children["spin"].device_count
    node = timing.to_dict()["children"][0]
    assert 2 == node["count"]
    assert 2 == node["device_count"]
    assert node["device_total"] > 10 * node["total"] > 0
    assert "device" in timing.table("tsv").splitlines()[0]


def test_a_captured_graph_on_a_card(torch: Any) -> None:
    """Inside a capture of a CUDA graph the CPU's time is taken only, and the capture succeeds."""
    timing, graph, value = Timing("t"), torch.cuda.CUDAGraph(), torch.zeros(8, device="cuda")
    with torch.cuda.graph(graph), timing.add_time("captured", device="cuda"):
        value += 1
    assert (1, 0, 1.0) == replayed(torch, timing, graph, value)


def test_a_capture_inside_a_scope_on_a_card(torch: Any) -> None:
    """A scope that ends inside a capture that began inside it leaves the capture whole."""
    timing, graph, value = Timing("t"), torch.cuda.CUDAGraph(), torch.zeros(8, device="cuda")
    scope = timing.add_time("around", device="cuda")
    scope.__enter__()
    with torch.cuda.graph(graph):
        value += 1
        scope.__exit__(None, None, None)
    assert (1, 0, 1.0) == replayed(torch, timing, graph, value)


def replayed(torch: Any, timing: Timing, graph: Any, value: Any) -> tuple[int, int, float]:
    """Replay a captured graph; return the scope's counts by CPU and GPU, and the value."""
    graph.replay()
    torch.cuda.synchronize()
    node = timing.to_dict()["children"][0]
    return node["count"], node["device_count"], value[0].item()
