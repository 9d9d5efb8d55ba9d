"""Files that may not be ours: which are read, created and removed."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuprof._shim.claim import claim
from gpuprof._shim.exit_code import Note
from gpuprof._shim.files import write_json
from gpuprof._shim.node import node_name
from gpuprof._shim.run import _make_program
from gpuprof._shim.safe import (
    DEEPEST,
    UnsafeFile,
    create,
    load_json,
    parse_json,
    publish,
    read_bytes,
    remove_tree,
)
from gpuprof._shim.tool_log import ToolLog
from gpuprof.backend import move


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """Others wait for somebody, never end, or are somebody else's."""
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
    assert {} == load_json(tmp_path / "file")
    for name in ("link", "directory", "fifo", "socket"):
        with pytest.raises(UnsafeFile, match="regular file"):
            load_json(tmp_path / name)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    """Neither one that is as large on the disk, nor a sparse one."""
    (tmp_path / "file").write_bytes(bytes(100))
    assert bytes(100) == read_bytes(tmp_path / "file", 100)
    with pytest.raises(UnsafeFile, match="larger than 99 bytes"):
        read_bytes(tmp_path / "file", 99)
    os.truncate(tmp_path / "file", 10**12)
    with pytest.raises(UnsafeFile, match="larger than"):
        read_bytes(tmp_path / "file")


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_deep_json_is_not_used(begin: str, end: str) -> None:
    """Code that walks through it would run out of frames."""

    def nested(levels: int) -> bytes:
        return f"{begin * levels}1{end * levels}".encode()

    parse_json(nested(DEEPEST))
    for levels in (DEEPEST + 1, 100_000):
        with pytest.raises(UnsafeFile, match=f"nested more than {DEEPEST} levels deep"):
            parse_json(nested(levels))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_json(path, {"a": 1}),
        lambda path: os.close(create(path)),
        Note,
        lambda path: _make_program(path, ["true"]),
        lambda path: ToolLog(path).close(),
    ],
    ids=["JSON", "a new file", "the note of an exit code", "a program", "the profiler's log"],
)
def test_a_file_is_not_written_through_a_link(
    tmp_path: Path, write: Callable[[str], object]
) -> None:
    """The link goes, and what it pointed to stays."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "victim")
    write(str(tmp_path / "file"))
    assert "precious" == (tmp_path / "victim").read_text()
    assert not (tmp_path / "file").is_symlink()


def test_permissions_do_not_change_through_a_link(tmp_path: Path) -> None:
    """A link that a profiler seems to have left is moved as it is."""
    (tmp_path / "victim").touch()
    (tmp_path / "victim").chmod(0o666)
    (tmp_path / "raw.rep").symlink_to(tmp_path / "victim")
    move(str(tmp_path / "raw.rep"), str(tmp_path / "final"), ".rep")
    assert 0o666 == (tmp_path / "victim").stat().st_mode & 0o777


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Its name may be a directory's."""
    (tmp_path / "file.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_json(str(tmp_path / "file.json"), {})
    assert ["file.json"] == [path.name for path in tmp_path.iterdir()]


def test_of_two_who_publish_one_is_first(tmp_path: Path) -> None:
    """The other's file goes."""
    for number in (1, 2):
        (tmp_path / str(number)).write_text(str(number))
    published = [publish(str(tmp_path / name), str(tmp_path / "final")) for name in ("1", "2")]
    assert [True, False] == published
    assert "1" == (tmp_path / "final").read_text()
    assert ["final"] == [path.name for path in tmp_path.iterdir()]


def test_a_tree_is_removed_and_what_its_links_point_to_stays(tmp_path: Path) -> None:
    """At any depth."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("precious")
    deep = tmp_path / "tree" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(tmp_path / "victim")
    remove_tree(tmp_path / "tree")
    assert ["victim"] == [path.name for path in tmp_path.iterdir()]
    assert "precious" == (tmp_path / "victim" / "file").read_text()


def test_two_remove_a_directory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other has just taken each file and folder, and then it is killed: this one finishes."""
    tree = tmp_path / "tree"
    (tree / "folder").mkdir(parents=True)
    (tree / "file").touch()
    unlink, rename, rmdir, taken = os.unlink, os.rename, os.rmdir, []

    def unlink_second(name: str, *, dir_fd: int) -> None:
        taken.append(name)
        unlink(name, dir_fd=dir_fd)
        unlink(name, dir_fd=dir_fd)

    def rename_second(name: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        taken.append(name)
        rmdir(name, dir_fd=src_dir_fd)
        rename(name, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "unlink", unlink_second)
    monkeypatch.setattr(os, "rename", rename_second)
    remove_tree(tree)
    assert ["file", "folder"] == sorted(taken)
    assert not tree.exists()


def test_no_tree_is_removed_through_a_link(tmp_path: Path) -> None:
    """The directory itself may have been replaced."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "tree").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="directory"):
        remove_tree(tmp_path / "tree")
    assert (tmp_path / "victim").is_dir()


@pytest.mark.parametrize(
    "content", ["{}", "[1]", "[{}]", '[{"incarnation": 1, "pid": 1, "start": "x", "parent": 1}]']
)
def test_damaged_claims_are_an_error_that_the_shim_knows(tmp_path: Path, content: str) -> None:
    """It then runs the worker without the profiler; any other error would keep it from running."""
    row = {"group": "A", "rank": 0, "run": "run", "output_dir": str(tmp_path)}
    claim(row, os.getpid())
    (file,) = tmp_path.rglob("A-0.claim")
    file.write_text(content)
    with pytest.raises(ValueError, match="expected a list of claims"):
        claim(row, os.getpid())


def test_nothing_is_claimed_through_a_link(tmp_path: Path) -> None:
    """Claims, marks and status files would be written to where it points."""
    (tmp_path / "victim").mkdir()
    row = {"group": "A", "rank": 0, "run": "run", "output_dir": str(tmp_path)}
    (tmp_path / "run" / node_name()).mkdir(parents=True)
    (tmp_path / "run" / node_name() / ".gpuprof").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="directory"):
        claim(row, os.getpid())
    assert [] == list((tmp_path / "victim").iterdir())


@pytest.mark.parametrize(("now", "kept"), [("b" * 100, True), ("b" * 9000, False)])
def test_on_a_full_disk_a_file_takes_what_its_own_blocks_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str, kept: bool
) -> None:
    """The last state of a worker, whose start is known already; a shorter one is whole, too."""
    path = tmp_path / "file.json"
    write_json(str(path), {"is": "a" * 200})

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gpuprof._shim.safe.create", full)
    if kept:
        write_json(str(path), {"is": now})
        assert {"is": now} == load_json(path)
    else:
        with pytest.raises(OSError, match="No space"):
            write_json(str(path), {"is": now})
        assert {"is": "a" * 200} == load_json(path)


def test_on_a_full_disk_a_link_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it points to may be anybody's."""
    (tmp_path / "theirs").write_text("theirs, and long enough for what is written now")
    (tmp_path / "file.json").symlink_to(tmp_path / "theirs")

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gpuprof._shim.safe.create", full)
    with pytest.raises(OSError, match="No space"):
        write_json(str(tmp_path / "file.json"), {"is": 1})
    assert (tmp_path / "theirs").read_text().startswith("theirs, and")
