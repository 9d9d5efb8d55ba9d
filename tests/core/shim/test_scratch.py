"""A tool's temporary directory: which stale ones are removed, and at what cost."""

from __future__ import annotations

import builtins
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._shim.ownership import note_owner
from gpuprof._shim.scratch import _prefix, make_scratch, remove_stale_scratch, tool_processes

OWNED = {"private": "/run/node/.gpuprof", "start": "A-0.start-1", "disposable": ["status_*"]}
NOBODY = 2**22 + 1
"""Beyond the largest process id that Linux gives."""


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where tools' directories are."""
    path = tmp_path / "temporary"
    path.mkdir()
    return path


def leave(temporary: Path, number: int = 0, **files: str) -> Path:
    """The directory of a tool whose shim is gone."""
    directory = temporary / f"{_prefix()}{NOBODY + number}-1"
    directory.mkdir()
    note_owner(str(directory), OWNED)
    for name, content in files.items():
        (directory / name).write_text(content)
    return directory


class Reads:
    """Stands between `scratch` and ``/proc``, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.walks = 0
        self.files = 0
        listdir = os.listdir

        def counted_listdir(path: str) -> list[str]:
            self.walks += path == "/proc"
            return listdir(path)

        def counted_open(path: str, *arguments: Any) -> Any:
            self.files += path.startswith("/proc/")
            return builtins.open(path, *arguments)

        monkeypatch.setattr(os, "listdir", counted_listdir)
        for module in ("scratch", "processes"):
            monkeypatch.setattr(f"gpuprof._shim.{module}.open", counted_open, raising=False)


@pytest.mark.parametrize("left", [0, 50])
def test_a_start_does_not_wait_for_what_others_have_left(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """However many directories there are, a shim looks at its own process and at no other."""
    for number in range(left):
        leave(temporary, number, report="half")
    reads = Reads(monkeypatch)
    scratch, _ = make_scratch({"TMPDIR": str(temporary)}, [], OWNED)
    assert (0, 1) == (reads.walks, reads.files)
    assert str(temporary) == os.path.dirname(scratch)


def test_the_processes_are_gone_through_once(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For twenty directories to be removed as for one; not at all where all have leftovers."""
    kept = leave(temporary, 100, report="half")
    reads = Reads(monkeypatch)
    remove_stale_scratch(str(temporary))
    assert 0 == reads.walks
    for number in range(20):
        leave(temporary, number)
    remove_stale_scratch(str(temporary))
    assert (1, [kept]) == (reads.walks, list(temporary.iterdir()))


@pytest.mark.parametrize(
    ("files", "stays"),
    [({"report": "half"}, True), ({"report": ""}, False), ({"status_7": "0"}, False)],
)
def test_what_is_a_leftover(temporary: Path, files: dict[str, str], stays: bool) -> None:
    """A file with something in it, unless the tool said that it is disposable."""
    directory = leave(temporary, **files)
    remove_stale_scratch(str(temporary))
    assert stays == directory.exists()


def test_a_tool_that_lives_keeps_its_directory(temporary: Path) -> None:
    """Its shim was killed and it has written nothing yet: by the directory it is known."""
    directory = leave(temporary)
    own = {**os.environ, "TMPDIR": str(directory)}
    with subprocess.Popen(
        ["sh", "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own
    ) as tool:
        assert tool.stdout is not None
        tool.stdout.readline()  # its environment is to be seen a moment after it has started
        assert [tool.pid] == list(tool_processes(str(directory)))
        remove_stale_scratch(str(temporary))
        assert directory.exists()
        tool.communicate()
    remove_stale_scratch(str(temporary))
    assert not directory.exists()


def test_directories_of_others_are_left_alone(temporary: Path) -> None:
    """Keeps those of living shims, and those of another host or container."""
    own, _ = make_scratch({"TMPDIR": str(temporary)}, [], OWNED)
    elsewhere = temporary / f"gpuprof-00000000-{NOBODY}-1"
    elsewhere.mkdir()
    remove_stale_scratch(str(temporary))
    assert {Path(own), elsewhere} == set(temporary.iterdir())


IN_A_CONTAINER = """
import sys
from gpuprof._shim import scratch
print(scratch.make_scratch({"TMPDIR": sys.argv[1]}, [], {"start": "A-0.start-1"})[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def contained() -> list[str]:
    """What runs a command in a process namespace of its own, as containers do."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], capture_output=True).returncode
    ):
        pytest.skip("this user cannot make a process namespace")
    return command


def test_containers_that_share_a_temporary_directory(temporary: Path, contained: list[str]) -> None:
    """A live tool in another process namespace, with only a socket so far, keeps its directory."""
    command = [*contained, sys.executable, "-c", IN_A_CONTAINER, str(temporary)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        directory = process.stdout.readline().strip()
        os.mknod(os.path.join(directory, "socket"), 0o600 | stat.S_IFSOCK)
        remove_stale_scratch(str(temporary))
        assert os.path.exists(os.path.join(directory, "socket"))
        process.communicate()
