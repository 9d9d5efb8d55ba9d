"""The instruments of torch: collectives of gloo, and batches of a DataLoader."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from support.torch_process import Run

pytestmark = pytest.mark.torch

_RANK = """
import json
import multiprocessing
import sys

import torch
import torch.distributed as dist
from gpuprof._session import instruments
from gpuprof._session.instruments.instrument import Hooks
from gpuprof_timing import Timing
from gpuprof_timing._spans import Linked, SpanLog

def rank(number, count, directory, body):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=number,
                            world_size=count)
    timing, faults, original = Timing("t"), [], dist.all_reduce
    events = []
    hooks = Hooks(event=lambda kind, **about: events.append([kind, about]))
    log = SpanLog()
    log.begin()
    begun = instruments.begin(["torch"], timing, faults.append, hooks)
    after = body(number, torch.ones(2))
    for each in begun:
        each.end_marking()
    assert dist.all_reduce is original
    if after:
        after()
    log.end()
    taken = log.take()
    links = [[node.key, track.role, *track.keys] for node, track in zip(taken.nodes, taken.tracks)
             if isinstance(track, Linked)]
    with open(f"{directory}/{number}.json", "w") as file:
        json.dump({"faults": faults, "links": links, "events": events}, file)
    dist.destroy_process_group()

def run(count, directory, body):
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank, args=(number, count, directory, body))
             for number in range(count)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(any(each.exitcode for each in ranks))

"""


class RunRanks(Protocol):
    """Name, role and key of each marked call, by rank."""

    def __call__(self, count: int, body: str, wanted: str = "links") -> list[list[Any]]: ...


@pytest.fixture
def run_ranks(run_with_torch: Run, tmp_path: Path) -> RunRanks:
    """Lets ranks do something; see `ranks`."""
    return partial(ranks, run_with_torch, tmp_path)


def ranks(
    run: Run, directory: Path, count: int, body: str, wanted: str = "links"
) -> list[list[Any]]:
    """Name, role and key of each marked call, by rank.

    Args:
        body: what each rank does with its `number` and a tensor; it may return what the rank is to
            call when the instrument is gone.
        wanted: ``events``: kind and content of each event instead.
    """
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    program = f"{_RANK}def body(number, tensor):\n{lines}\n\nrun({count}, {str(directory)!r}, body)"
    run(program)
    found: list[dict[str, Any]] = [
        json.loads((directory / f"{number}.json").read_text()) for number in range(count)
    ]
    assert [[]] * count == [each["faults"] for each in found]
    return [each[wanted] for each in found]


def test_the_ranks_of_a_collective_have_its_key(run_ranks: RunRanks) -> None:
    """In the same order, each key once."""
    first, second = run_ranks(
        2,
        """
for _ in range(3):
    dist.all_reduce(tensor)
dist.broadcast(tensor, 0)
dist.barrier()
""",
    )
    assert first == second
    assert ["torch.all_reduce"] * 3 + ["torch.broadcast", "torch.barrier"] == [
        name for name, _, _ in first
    ]
    assert {"meets"} == {role for _, role, _ in first}
    assert len({key for _, _, key in first}) == 5


def test_what_two_ranks_do_alone_moves_no_key(run_ranks: RunRanks) -> None:
    """gloo numbers messages between two ranks, too, of which the third knows nothing."""
    found = run_ranks(
        3,
        """
if number == 0:
    dist.send(tensor, 1)
elif number == 1:
    dist.recv(tensor, 0)
dist.all_reduce(tensor)
""",
    )
    assert found[0][-1] == found[1][-1] == found[2][-1]


def test_sender_and_receiver_of_a_message_have_its_key(run_ranks: RunRanks) -> None:
    """The n-th message from one rank to another is the same in both, whatever else they send."""
    first, second, third = run_ranks(
        3,
        """
if number == 0:
    for rank in (1, 2, 1):
        dist.send(tensor, rank)
else:
    for _ in range(3 - number):
        dist.recv(tensor, 0)
""",
    )
    (name, role, one), (_, _, other), (_, _, two) = first
    assert ("torch.send", "meets") == (name, role)
    assert [["torch.recv", "meets", one], ["torch.recv", "meets", two]] == second
    assert [["torch.recv", "meets", other]] == third
    assert len({one, other, two}) == 3


def test_a_message_that_is_received_asynchronously_has_the_same_key(run_ranks: RunRanks) -> None:
    """Its receiver waits where it waits for the result."""
    first, second = run_ranks(
        2,
        """
if number == 0:
    dist.send(tensor, 1)
    dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1)])[0].wait()
else:
    dist.irecv(tensor, 0).wait()
    dist.irecv(tensor, 0).wait()
""",
    )
    (_, _, one), (posted, releases, two), (wait, waits, same) = first
    assert ("torch.isend", "releases", "torch.wait", "waits") == (posted, releases, wait, waits)
    assert two == same != one
    assert second == [
        [name, role, key]
        for key in (one, two)
        for name, role in (("torch.irecv", "releases"), ("torch.wait", "waits"))
    ]


def test_who_receives_from_any_rank_has_no_keys_from_then_on(run_ranks: RunRanks) -> None:
    """Nobody knows which messages of which ranks those were."""
    first, second = run_ranks(
        2,
        """
if number == 0:
    dist.send(tensor, 1)
    dist.send(tensor, 1)
else:
    dist.recv(tensor)
    dist.recv(tensor, 0)
""",
    )
    assert 2 == len(first)
    assert [] == second


def test_an_asynchronous_collective_is_waited_for_where_the_job_waits(run_ranks: RunRanks) -> None:
    """Each rank's call releases it; the wait for the result is for all ranks."""
    first, second = run_ranks(2, "dist.all_reduce(tensor, async_op=True).wait()")
    assert first == second
    ((begin, releases, key), (wait, waits, same)) = first
    assert ("torch.all_reduce", "releases") == (begin, releases)
    assert ("torch.wait", "waits", key) == (wait, waits, same)


def test_a_subgroup_has_keys_of_its_own(run_ranks: RunRanks) -> None:
    """Only its ranks have them."""
    first, second = run_ranks(
        2,
        """
alone = dist.new_group([0])
dist.all_reduce(tensor)
if number == 0:
    dist.all_reduce(tensor, group=alone)
""",
    )
    assert second == [link for link in first if link in second]
    assert len({key for _, _, key in first}) == len(second) + 1


def test_each_process_group_is_noted_with_its_ranks(run_ranks: RunRanks) -> None:
    """Once in each member: the default group, those of a mesh of 2 x 2 x 2, and a new one."""
    found = run_ranks(
        8,
        """
from torch.distributed.device_mesh import init_device_mesh
init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "pp", "tp"))
tied = dist.new_group([0, 1, 6, 7], group_desc="tied")
for _ in range(2):
    dist.all_reduce(tensor, group=tied)
""",
        "events",
    )
    for rank, events in enumerate(found):
        first = {step: rank - step * (rank // step % 2) for step in (4, 2, 1)}
        groups = [
            ("default_pg", [[0, 1, 8]]),
            *((f"mesh_{name}", [[first[step], step, 2]])
              for name, step in (("dp", 4), ("pp", 2), ("tp", 1))),
            *([("tied", [[0, 1, 2], [6, 1, 2]])] if rank in (0, 1, 6, 7) else []),
        ]  # fmt: skip
        of_groups = [event for event in events if event[0] == "process group"]
        expected = [["process group", {"name": name, "rank": rank, "ranks": ranks}]
                    for name, ranks in groups]  # fmt: skip
        assert expected == of_groups


def test_compiled_code_is_not_marked(run_ranks: RunRanks) -> None:
    """It compiles as one graph, with the instrument and after it."""
    (links,) = run_ranks(
        1,
        """
def double(tensor):
    doubled = tensor * 2
    dist.all_reduce(doubled)
    return doubled

def run():
    torch._dynamo.reset()
    torch.compile(double, backend="eager", fullgraph=True)(tensor)

run()
return run
""",
    )
    assert [] == links


_LOADER = """
import sys

import torch
from gpuprof._session import instruments
from gpuprof_timing import Timing

timing, faults = Timing("t"), []
begun = instruments.begin(["torch"], timing, faults.append)
from torch.utils.data import DataLoader
for workers in (0, 1):
    with timing.add_time(f"workers {workers}"):
        assert 4 == len(list(DataLoader(list(range(8)), batch_size=2, num_workers=workers)))
for each in begun:
    each.end_marking()
for name, node in timing._recording.root.children.items():
    node = node.children["DataLoader.next"]
    print(name, node.count, node.waits_for)
assert not faults, faults
"""


def test_a_loader_is_waited_for_if_it_has_processes(run_with_torch: Run) -> None:
    """Without them its batches are this process's own work. The last call finds no more."""
    printed = run_with_torch(_LOADER)
    assert ["workers 0 5 nothing", "workers 1 5 data"] == printed.splitlines()
