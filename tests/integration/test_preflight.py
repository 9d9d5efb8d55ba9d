"""What is refused before the job starts: the second of two nodes lacks a program, or has one that
refuses what it is given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuprof.errors import ToolError
from gpuprof.ray import Profiler
from support.cluster import connect, several_nodes
from support.launching import config, start

pytestmark = pytest.mark.nsys


def script(directory: Path, name: str, lines: str) -> None:
    """A program."""
    (directory / name).write_text(f"#!/bin/sh\n{lines}\n")
    (directory / name).chmod(0o755)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes, the driver on the first; the other has an `nsys-b` of its own, which tells what it
    can, and then does nothing.
    """
    directory = tmp_path_factory.mktemp("there")
    script(directory, "nsys-there", 'exec nsys "$@"')
    script(
        directory,
        "nsys-b",
        'case "$*" in *--version|*--help) exec nsys "$@"; esac; echo "not on this node"; exit 1',
    )
    with several_nodes(2, {"PATH": f"{directory}:{os.environ['PATH']}"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(there: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same, and where the driver is, `nsys-a` and `nsys-b` are nsys."""
    directory = tmp_path / "here"
    directory.mkdir()
    for name in ("nsys-a", "nsys-b"):
        script(directory, name, 'exec nsys "$@"')
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)
    return there


def second_node() -> str:
    """The name of the node that the driver is not on."""
    import ray

    (node,) = (node for node in ray.nodes() if node["Alive"] and "node1" in node["Resources"])
    return f"{node['NodeManagerHostname']}-{node['NodeID'][:8]}"


def test_a_node_without_the_tool_is_named(cluster: Any, tmp_path: Path) -> None:
    """The driver has it, the other node lacks it: refused before there is a directory, with that
    node's name and no other.
    """
    with pytest.raises(ToolError) as caught:
        Profiler(config(tmp_path / "out", nsight={"executable": "nsys-a"}))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{second_node()}: backend: 'nsight': 'nsys-a' is not on PATH.")
    assert not (tmp_path / "out").exists()


def test_a_node_whose_tool_refuses_the_options_is_named(cluster: Any, tmp_path: Path) -> None:
    """The driver's takes them, the other node's does not: in its own words."""
    profiler = Profiler(config(tmp_path / "out", nsight={"executable": "nsys-b"}))
    with pytest.raises(ToolError) as caught:
        profiler.worker_options(group="ActorGroup", rank=0)
    (line,) = str(caught.value).splitlines()
    assert re.match(
        rf"{second_node()}: nsight: .*/nsys-b .* says, for group ActorGroup: not on this node", line
    ), line
    profiler.finalize()


@pytest.mark.parametrize(
    ("executable", "words"), [("nsys-a", "'nsys-a' is not on PATH"), ("nsys-b", "not on this node")]
)
def test_nodes_are_asked_once_ray_is_up(
    cluster: Any, tmp_path: Path, executable: str, words: str
) -> None:
    """A profiler that is made before Ray is started knows one node only; options that are then
    asked for are held against all.
    """
    import ray

    ray.shutdown()
    with Profiler(config(tmp_path / "out", nsight={"executable": executable})) as profiler:
        assert "py_executable" in profiler.worker_options(group="ActorGroup", rank=0)["runtime_env"]
        connect(cluster)
        with pytest.raises(ToolError, match=f"{second_node()}: .*{words}"):
            profiler.worker_options(group="ActorGroup", rank=1)


def test_the_drivers_own_error_has_its_node(cluster: Any, tmp_path: Path) -> None:
    """Where no node has the tool, each is named, the driver's first."""
    with pytest.raises(ToolError) as caught:
        Profiler(config(tmp_path, nsight={"executable": "no-such-nsys"}))
    lines = str(caught.value).splitlines()
    assert 2 == len(lines)
    assert f"{second_node()}: backend" in lines[1]
    assert lines[0].startswith(f"{os.uname().nodename}-")


def test_a_driver_that_nodes_leaves_out_needs_no_tool(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a login node: the other node is asked, and its tool is what its worker runs behind."""
    import ray

    name = os.uname().nodename
    # One machine has one host name: the driver alone is told another.
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="login"))
    with Profiler(
        config(tmp_path, steps=[0], nodes=[name], nsight={"executable": "nsys-there"})
    ) as profiler:
        actor = start(profiler, "ActorGroup", 0, resources={"node1": 1})
        with profiler.step(0):
            ray.get(actor.train.remote(0))
    (row,) = profiler.finalize().rows
    assert ("complete", second_node()) == (row.state, row.node)


def test_a_tool_that_nobody_can_be_asked_for_is_refused(cluster: Any, tmp_path: Path) -> None:
    """Where `nodes` selects none that is there, what the driver lacks is said when a worker is to
    be profiled.
    """
    profiler = Profiler(config(tmp_path, nodes=["gpu-*"], nsight={"executable": "nsys-there"}))
    assert "py_executable" not in profiler.worker_options(group="Other", rank=0)["runtime_env"]
    with pytest.raises(
        ToolError,
        match=r"'nsys-there' is not on PATH.*; and nodes selects no node that can be checked$",
    ):
        profiler.worker_options(group="ActorGroup", rank=0)
    profiler.finalize()
