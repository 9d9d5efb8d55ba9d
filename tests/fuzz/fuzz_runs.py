"""Damages a run's directory and lets every command that reads one have a look.

Whatever lies there, a command ends with its own message: no traceback, no hang, and nothing
outside the run's own directories is changed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner
from gpuprof._artifacts import alive, close, runs, settle
from gpuprof._artifacts.receipt import Receipt, ReceiptRow
from gpuprof._cli import main
from gpuprof._config.load import load
from gpuprof._session import orders
from gpuprof._session.budget import used_bytes
from gpuprof._shim.claim import claim
from gpuprof._shim.node import node_name
from gpuprof._shim.safe import remove_tree
from gpuprof.backend import loading
from support import run_files

NAME = "runs"
_LIMIT = 60
"""Seconds that a case may take: it takes a fraction of one."""
_REPORT = b"NVIDIA Tegra Profiler Report 1." + bytes(64) + (40).to_bytes(8, "little") + b"U3w[END]"
_TREE = ("{}", "[]", "null", '"text"', "1e999", "[" * 2000, '{"a":' * 700 + "1" + "}" * 700)
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**200, -(2**70), 1e308, 0.5, "", "\0", "..", "../..", "/",
    "\ud800", "a\nb", "x" * 5000, [], {}, [[]], [None], {"": {}}, "nsight", "none", "ended",
    "finishing", "running",
)  # fmt: skip


class Finding(AssertionError):
    """Something that must not happen."""


class Place:
    """A run with a worker, its staging directory and its tool's, and a stranger's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = root / "runs"
        self.run = self.runs / "run"
        self.staged = root / "staged" / "run"
        self.scratch = root / "scratch"
        self.victim = root / "victim"

    def make(self, rng: random.Random) -> None:
        """Write it as gpuprof does."""
        staged = rng.random() < 0.5
        config: dict[str, Any] = {
            "backend": "nsight", "worker_groups": ["A"], "steps": [3], "output_dir": str(self.runs),
        }  # fmt: skip
        if staged:
            config["staging_dir"] = str(self.staged.parent)
        node = (self.staged if staged else self.run) / node_name()
        self.run.mkdir(parents=True)
        run_files.own_node(node, self.run)
        run_files.own_scratch(self.scratch, node)
        runs.begin(str(self.run), "run", load(config, environ={}), driven=rng.random() < 0.2)
        alive.record_rank(str(self.run), "A", 0, 1, over=True)
        window = run_files.window_entry(files=[str(node / "A-0.step-3.nsys-rep")])
        (node / "A-0.start-1.json").write_text(json.dumps(run_files.session_file(window)))
        (node / "A-0.step-3.nsys-rep").write_bytes(_REPORT)
        (self.scratch / "left.nsys-rep").write_bytes(_REPORT)
        row = {"group": "A", "rank": 0, "run": "run", "output_dir": str(node.parent.parent)}
        claim(row, os.getpid())  # type: ignore[arg-type]
        private = node / ".gpuprof"
        tool = run_files.status(scratch=str(self.scratch), tool="/bin/true", marks=True)
        (private / "A-0.start-1.tool").write_text(json.dumps(tool))
        (private / "A-0.start-1.target").write_text("7 (x) S 1 " + "0 " * 30)
        if rng.random() < 0.5:
            (private / "A-0.start-1.settled").write_text(json.dumps(run_files.settled()))
        if rng.random() < 0.5:
            receipt = Receipt(
                (ReceiptRow("A-0", "n", "step-3", None, 0, "missing"),), str(self.run)
            )
            manifest = run_files.manifest("run", receipt.to_dict())
            (self.run / "manifest.json").write_text(json.dumps(manifest))
        armed = orders.make(str(self.run))
        orders.give(armed, orders.Order(1, (), ("all",), ((0, 9),)))
        other = self.runs / "other"
        other.mkdir()
        runs.begin(str(other), "other", load({"backend": "none"}, environ={}))

    def files(self) -> list[Path]:
        """What can be damaged; the other run stays as it is."""
        found, folders = [], [place for place in (self.run, self.staged) if place.is_dir()]
        while folders:
            for path in folders.pop().iterdir():
                found.append(path)
                if path.name != "d" and path.is_dir() and not path.is_symlink():
                    folders.append(path)
        return sorted(found)


def run(seed: int, count: int) -> None:
    """Try `count` damaged runs.

    Raises:
        Finding: with the command that repeats the first one that is not read as it should be.
    """
    installed = functools.cache(loading.catalogue)  # it stays the same
    with mock.patch.object(loading, "catalogue", installed), _stranger() as (victim, process):
        before = _state(victim)
        for number in range(seed, seed + count):
            root = tempfile.mkdtemp(prefix="fuzz-")
            done: list[str] = []
            try:
                _case(number, Place(Path(root)), victim, done)
                if _state(victim) != before:
                    raise Finding("a stranger's directory was changed")
                if process.poll() is not None:
                    raise Finding("a stranger's process was ended")
            except BaseException as error:
                sys.stdout.write("".join(traceback.format_exception(error)))
                again = f"python tests/fuzz --seed {number} --count 1 {NAME}"
                raise Finding(f"{'; '.join(done)}: {error!r}\nrepeat: {again}") from None
            finally:
                remove_tree(root)


@contextlib.contextmanager
def _stranger() -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A directory that belongs to no run, and a process that uses it as TMPDIR."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        victim = Path(root)
        for name in ("diary.txt", "A-0.step-3.nsys-rep", "left.qdstrm"):
            (victim / name).write_text("precious")
        own = {**os.environ, "TMPDIR": root}
        with subprocess.Popen(["sleep", "100000"], env=own) as process:
            try:
                yield victim, process
            finally:
                process.kill()


def _state(directory: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def _case(number: int, place: Place, victim: Path, done: list[str]) -> None:
    rng = random.Random(number)
    place.make(rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        files = place.files()
        path = rng.choice(files)
        damage = rng.choice(_DAMAGES)
        done.append(f"{damage.__name__.strip('_')} {path.relative_to(place.root)}")
        damage(rng, path, victim)
    commands: list[Callable[[], object]] = [
        functools.partial(_invoke, "runs", "--output-dir", str(place.runs)),
        functools.partial(_invoke, "runs", "--json", "--output-dir", str(place.runs)),
        functools.partial(_invoke, "report", str(place.run)),
        functools.partial(_invoke, "report", "--nvtx", str(place.run)),
        functools.partial(_invoke, "collect", str(place.run)),
        functools.partial(_invoke, "capture", str(place.run), "--steps", "next:1"),
        functools.partial(_read_orders, str(place.run)),
        functools.partial(used_bytes, str(place.run / node_name())),
        functools.partial(_take_claim, place),
        functools.partial(
            _invoke, "clean", "--older-than", "0", "--yes", "--output-dir", str(place.runs)
        ),
    ]
    rng.shuffle(commands)
    signal.signal(signal.SIGALRM, _too_long)
    with (
        mock.patch.object(close, "_PATIENCE", 0.0),
        mock.patch.object(settle, "PATIENCE", 0.0),
        mock.patch.object(close, "wait", functools.partial(close.wait, timeout=0.0)),
        mock.patch.dict(os.environ, {"PATH": "/nonexistent"}),
    ):
        signal.alarm(_LIMIT)
        try:
            for command in commands:
                done.append(str(getattr(command, "args", command)))
                command()
                done.pop()
        finally:
            signal.alarm(0)


def _too_long(*_: object) -> None:
    raise Finding(f"took more than {_LIMIT} s")


def _invoke(*words: str) -> None:
    """A command ends with one of its exit codes; anything it raises itself is a finding."""
    result = CliRunner().invoke(main, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in (0, 1, 2):
        raise Finding(f"exit code {result.exit_code}: {result.output}")
    if words[0] == "runs" and "other" not in result.output and Path(words[-1], "other").is_dir():
        raise Finding(f"the other run is not listed: {result.output}")


def _read_orders(directory: str) -> None:
    for order in orders.Orders(orders.directory_of(directory)).poll():
        order.add_to(orders.StepWindows(), 5, continuous=False)


def _take_claim(place: Place) -> None:
    row = {"group": "A", "rank": 0, "run": "run", "output_dir": str(place.runs)}
    with contextlib.suppress(OSError, ValueError):  # the shim runs the worker without its tool
        claim(row, os.getpid())  # type: ignore[arg-type]


def _flip(rng: random.Random, path: Path, victim: Path) -> None:
    content = bytearray(_content(path))
    for _ in range(rng.choice((1, 3, 30))):
        if content:
            content[rng.randrange(len(content))] = rng.randrange(256)
    _write(path, bytes(content))


def _truncate(rng: random.Random, path: Path, victim: Path) -> None:
    content = _content(path)
    _write(path, content[: rng.randrange(len(content) + 1)])


def _change(rng: random.Random, path: Path, victim: Path) -> None:
    """Another value, or none, somewhere in a JSON file."""
    try:
        data = json.loads(_content(path))
    except (ValueError, RecursionError):
        return _nonsense(rng, path, victim)
    for _ in range(rng.choice((1, 1, 3))):
        data = _changed(rng, data, victim)
    _write(path, json.dumps(data).encode())
    return None


def _changed(rng: random.Random, data: Any, victim: Path) -> Any:
    if isinstance(data, (dict, list)) and data and rng.random() < 0.9:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key = rng.choice(keys)
        if isinstance(data, dict) and rng.random() < 0.1:
            del data[key]
        else:
            data[key] = _changed(rng, data[key], victim)
        return data
    paths = (str(victim), f"{victim}/../{victim.name}", str(victim / "diary.txt"))
    return copy.deepcopy(rng.choice((*_VALUES, *paths)))


def _nonsense(rng: random.Random, path: Path, victim: Path) -> None:
    _write(path, rng.choice(_TREE).encode())


def _link(rng: random.Random, path: Path, victim: Path) -> None:
    _clear(path)
    targets = ("/dev/zero", "/dev/null", str(victim), str(victim / "diary.txt"), path.name, "gone")
    path.symlink_to(rng.choice(targets))


def _special(rng: random.Random, path: Path, victim: Path) -> None:
    _clear(path)
    if rng.random() < 0.6:
        os.mkfifo(path)
        return
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name[:90])
    finally:
        os.chdir(here)


def _directory(rng: random.Random, path: Path, victim: Path) -> None:
    _clear(path)
    path.mkdir()


def _remove(rng: random.Random, path: Path, victim: Path) -> None:
    _clear(path)


def _sparse(rng: random.Random, path: Path, victim: Path) -> None:
    _write(path, b"[")
    os.truncate(path, 10 ** rng.choice((9, 11)))


def _swap(rng: random.Random, path: Path, victim: Path) -> None:
    """A file of another kind under this name."""
    others = [other for other in path.parent.iterdir() if other.is_file()]
    if others:
        _write(path, _content(rng.choice(sorted(others))))


def _beside(rng: random.Random, path: Path, victim: Path) -> None:
    """One more, with an odd name."""
    folder = os.fsencode(path.parent)
    content = _content(path)
    for name in (b"\xff\xfe.json", b"A-0.start-2.json", b".A-0.step-3.nsys-rep.partial", b"a\nb"):
        with contextlib.suppress(OSError):
            target = os.path.join(folder, name)
            if rng.random() < 0.3:
                os.symlink(os.fsencode(victim / "diary.txt"), target)
            else:
                with open(target, "xb") as file:
                    file.write(content)


def _deep(rng: random.Random, path: Path, victim: Path) -> None:
    """More nested directories than Python has frames."""
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    except OSError:
        pass
    finally:
        os.chdir(here)


_DAMAGES = (
    *(_flip, _truncate, _nonsense, _link, _special, _directory, _remove, _swap, _beside) * 4,
    *(_change,) * 30,
    *(_sparse, _deep),
)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and path.stat().st_size < 2**20 else b"{}"


def _write(path: Path, content: bytes) -> None:
    if path.is_symlink() or not path.is_file():
        _clear(path)
    path.write_bytes(content)
    path.chmod(0o600)  # as orders and owners' notes have to be


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
