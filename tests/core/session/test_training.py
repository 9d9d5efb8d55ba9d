"""The instrument of torch's training loop, in processes of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.torch_process import Run

pytestmark = pytest.mark.torch

_HEAD = """
import torch
from gpuprof._session import instruments
from gpuprof._session.instruments.instrument import Hooks
from gpuprof_timing import Timing

timing, faults, ends = Timing("t"), [], []
hooks = Hooks(lambda: ends.append(1))
begun = instruments.begin(["torch"], timing, faults.append, hooks)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
batch = torch.ones(2, 4)

def tree(node=None, depth=0):
    for name, child in (node or timing._recording.root).children.items():
        print(" " * depth + name, child.count, child.waits_for)
        tree(child, depth + 1)
"""


Lines = Callable[[str], list[str]]


@pytest.fixture
def run(run_with_torch: Run) -> Lines:
    """The lines that a program prints in which the instrument is on."""
    return lambda body: run_with_torch(f"{_HEAD}\n{body}").splitlines()


def test_each_part_of_a_loop_has_a_scope(run: Lines) -> None:
    """Also what a module calls, which is part of the outermost one's forward."""
    assert [
        "forward 3 None",
        "backward 3 None",
        "optimizer 3 nothing",
        "save 1 nothing",
        "steps 3",
        "faults []",
    ] == run(
        """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
import io
torch.save(model.state_dict(), io.BytesIO())
tree()
print("steps", len(ends))
print("faults", faults)
"""
    )


def test_the_first_of_several_optimizers_tells_the_steps(run: Lines) -> None:
    """Until it is gone: then another one does."""
    assert ["2", "3"] == run(
        """
one, other = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
for _ in range(2):
    model(batch).sum().backward()
    one.step()
    other.step()
print(len(ends))
del one
other.step()
print(len(ends))
"""
    )


def test_a_tensor_that_is_pickled_is_not_saved(run: Lines) -> None:
    """torch pickles it with its own `save`, as where ranks gather objects."""
    assert ["True"] == run(
        """
import pickle

pickle.dumps(torch.ones(2))
tree()
print(not faults)
"""
    )


def test_an_exception_of_a_module_is_the_jobs(run: Lines) -> None:
    """It leaves no scope open, and the instrument on."""
    assert ["ValueError no", "forward 2 None", "[]"] == run(
        """
class Refuses(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no")

try:
    Refuses()(batch)
except ValueError as error:
    print("ValueError", error)
model(batch)
tree()
print(faults)
"""
    )


def test_what_the_job_has_marked_itself_is_marked_once(run: Lines) -> None:
    """Under the same name: a report would have two ranges around the same work."""
    assert ["forward 1 None", "backward 2 None", " forward 1 None"] == run(
        """
with timing.add_time("forward"):
    loss = model(batch).sum()
with timing.add_time("backward"):
    loss.backward()
with timing.add_time("backward"):
    model(batch)
tree()
"""
    )


def test_a_compiled_model_has_no_more_breaks(run: Lines) -> None:
    """Nothing of ours is traced: a full graph stays one."""
    assert ["forward 3 None", "backward 3 None", "optimizer 3 nothing"] == run(
        """
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled(batch).sum().backward()
timing.reset()
for _ in range(3):
    compiled(batch).sum().backward()
    optimizer.step()
tree()
"""
    )


def test_torchs_functions_are_its_own_again(run: Lines) -> None:
    """At the end; a class whose `step` torch has wrapped meanwhile calls straight through."""
    assert ["0"] == run(
        """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for each in begun:
    each.end_marking()
model(batch).sum().backward()
optimizer.step()
print(len(timing._recording.root.children))
assert torch.nn.Module.__call__.__qualname__ == "Module._wrapped_call_impl"
assert torch.autograd.backward.__module__ == "torch.autograd"
"""
    )
