"""Files come home whole or not at all, overwrite no other, and are never lost on the way."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
from gpuprof._artifacts.collect import Collection, ThisNode
from gpuprof._artifacts.records import NodeRecord, Start, read_node
from gpuprof._session.budget import used_bytes
from gpuprof._shim.node import node_name
from gpuprof.backend import naming
from support.run_files import own_node, session_file, window_entry

Result = TypeVar("Result")
CONTENT = bytes(range(256)) * 4


class Damaging(ThisNode):
    """A node whose first `times` streams arrive damaged."""

    def __init__(self, times: int, change: Callable[[list[Any]], list[Any]]) -> None:
        self._times = times
        self._change = change

    def stream(
        self, node: str, function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]]
    ) -> Iterator[Result]:
        """As they are read, or changed."""
        chunks = [function(*each) for each in arguments]
        self._times -= 1
        return iter(chunks if self._times < 0 else self._change(chunks))


CHANGES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "the end is lost": lambda chunks: chunks[:-1],
    "a bit is another": lambda chunks: [bytes([chunks[0][0] ^ 1]) + chunks[0][1:], *chunks[1:]],
}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where a report lies, in chunks of a hundred bytes, and where it is to go."""
    monkeypatch.setattr("gpuprof._artifacts.collect.CHUNK", 100)
    away, home = tmp_path / "away", tmp_path / "home"
    own_node(away / "node", home)
    home.mkdir()
    (away / "node" / "A-0.step-1.report").write_bytes(CONTENT)
    return away, home


def bring(places: tuple[Path, Path], nodes: ThisNode) -> tuple[list[str], list[Path]]:
    """What goes wrong, and what is at home then."""
    away, home = places
    sizes = read_node(str(away), "node").sizes
    problems = Collection(nodes, str(away), str(home), True).bring(
        [NodeRecord("node", str(away / "node"), (), sizes)]
    )
    return problems, sorted((home / "node").iterdir())


def test_a_file_comes_whole_and_is_removed_where_it_was(places: tuple[Path, Path]) -> None:
    """Without damage there is no problem, and who may read it still may."""
    (places[0] / "node" / "A-0.step-1.report").chmod(0o604)
    problems, (report,) = bring(places, ThisNode())
    assert ([], CONTENT, 0o604) == (problems, report.read_bytes(), report.stat().st_mode & 0o777)
    assert {} == read_node(str(places[0]), "node").sizes


def test_a_name_that_is_taken_at_home_is_not_overwritten(places: tuple[Path, Path]) -> None:
    """The second file of a name gets a number."""
    taken = places[1] / "node" / "A-0.step-1.report"
    taken.parent.mkdir()
    taken.write_text("of another start")
    assert [] == bring(places, ThisNode())[0]
    assert ("of another start", CONTENT) == (
        taken.read_text(),
        taken.with_suffix(".2.report").read_bytes(),
    )


def test_a_name_stays_taken_where_its_file_was(places: tuple[Path, Path]) -> None:
    """A restarted worker that captures the same window gives its report another name everywhere."""
    away, home = places
    collection = Collection(ThisNode(), str(away), str(home), True)
    window = window_entry(files=[str(away / "node" / "A-0.step-1.report")])
    start = Start("A", 0, "1", session_file(window), None)
    there = read_node(str(away), "node")
    assert [] == collection.bring([attrs.evolve(there, starts=(start,))], finished_only=True)
    assert not (away / "node" / "A-0.step-1.report").exists()
    # what has come home counts, or max_bytes would hold nothing
    assert len(CONTENT) == used_bytes(str(away / "node"))
    (away / "node" / "raw").write_text("of the second start")
    second = naming.move(str(away / "node" / "raw"), str(away / "node" / "A-0.step-1"), ".report")
    assert str(away / "node" / "A-0.step-1.2.report") == second
    assert [] == collection.bring([read_node(str(away), "node")])
    assert {} == read_node(str(away), "node").sizes
    expected = {
        str(away / "node" / name): str(home / "node" / name)
        for name in ("A-0.step-1.report", "A-0.step-1.2.report")
    }
    assert expected == {path: filed.file for (_, path), filed in collection.filed.items()}


@pytest.mark.parametrize("change", CHANGES)
def test_damage_on_the_way_is_noticed_and_it_is_sent_again(
    places: tuple[Path, Path], change: str
) -> None:
    """Once is no reason to give up."""
    problems, (report,) = bring(places, Damaging(1, CHANGES[change]))
    assert ([], CONTENT) == (problems, report.read_bytes())


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_damaged_again_and_again_stays_where_it_is(
    places: tuple[Path, Path], change: str
) -> None:
    """The problem names its place, and nothing that looks like a report is at home."""
    source = places[0] / "node" / "A-0.step-1.report"
    (problem,), at_home = bring(places, Damaging(9, CHANGES[change]))
    assert problem.startswith(
        f"node:{source} could not be brought home and lies there: A-0.step-1.report: "
    )
    assert "checksum mismatch: received " in problem
    assert (CONTENT, []) == (source.read_bytes(), at_home)


def test_a_disk_that_takes_no_more_gets_no_half_file(places: tuple[Path, Path]) -> None:
    """The system refuses to write on in the middle of the file, as a full disk does."""
    source = places[0] / "node" / "A-0.step-1.report"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        (problem,), at_home = bring(places, ThisNode())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "could not be brought home and lies there: [Errno 27] File too large" in problem
    assert (CONTENT, []) == (source.read_bytes(), at_home)


def test_two_who_bring_to_where_the_files_lie_lose_none(places: tuple[Path, Path]) -> None:
    """`gpuprof collect` beside a running job uses its mark, and no file is moved onto itself."""
    home, _ = places
    tree = home / "node" / "A-0.start-1.json"
    tree.write_text("{}")
    record = NodeRecord(
        "node",
        str(home / "node"),
        (),
        read_node(str(home), "node").sizes,
    )
    both = [Collection(ThisNode(), str(home), str(home), True) for _ in range(2)]
    (home / "node").rename(home / node_name())
    record = attrs.evolve(record, node=node_name(), directory=str(home / node_name()))
    assert [[], []] == [each.bring([record]) for each in both]
    assert ["A-0.start-1.json", "A-0.step-1.report"] == sorted(
        read_node(str(home), node_name()).sizes
    )
