"""Changes what ledgers, stacks and timing trees of a run say, and lets every command read the run.

Most files stay well-formed, with the right checksums; only their numbers and order are odd. Some
files of stacks are cut, or have flipped bytes. Every command ends in seconds, with figures or a
sentence.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import random
import tempfile
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from click.testing import CliRunner
from gpuprof._artifacts import ledger as reader
from gpuprof._artifacts import stacks
from gpuprof._cli import main
from gpuprof._session.blocks import BLOCK, header_line
from gpuprof.backend import loading
from support import page_run
from support.fuzzing import Hang, within
from support.made_stacks import Frame, write_stacks
from support.run_files import session_file, window_entry
from support.simulated_run import EPOCH, SimulatedLedger

NAME = "ledgers"
SECONDS = 30
"""For one command: a hundred times what a slow one takes."""
STEPS = 10
MS = 1_000_000
_TIMES = (
    0, 1, -1, 999, MS, 10**9, -(10**9), EPOCH, 2**53, 2**58, 2**59 - 1, -(2**59) + 1, 2**59, 2**60,
    2**61, 2**62, 2**62 - 1, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1,
)  # fmt: skip
_SMALL = (0, 1, 2, 3, 5, 17, 2**31, 2**32 - 1)
_JSON: tuple[Any, ...] = (
    *_TIMES, *_SMALL, 2**64, 10**400, -(10**400), 0.5, -0.5, 1e308, math.nan, math.inf, -math.inf,
    None, True, "", "x", "nan", "a/b", "\0", "\ud800", "x" * 5000, [], [[]], [0], {}, {"": {}},
)  # fmt: skip

ROWS: dict[str, list[tuple[str, str]]] = {
    **{kind: layout for kind, (_, layout) in reader.TABLES.items()},
    "stck": stacks.STACK,
    "smpl": stacks.SAMPLE,
}
"""The layout of each kind of block that has rows."""

Block = tuple[str, bytes]
Content = tuple[dict[str, Any], list[Block]]


def make(directory: Path) -> None:
    """Two runs, as gpuprof writes them: with a driver and keys, and of ranks with own steps."""
    page_run.write(directory / "driven", STEPS)
    for path in sorted((directory / "driven").rglob("*.ledger")):
        add_stacks(path)
    for rank in range(4):
        node, clock = f"node-{rank // 2}", f"clock-{rank // 2}"
        made = SimulatedLedger(f"A-{rank}", node=node, clock=clock)
        at = rank * MS
        for step in range(STEPS):
            begin, length = at, (10 + rank) * MS
            made.span(("epoch", "forward"), at + MS, at + 3 * MS)
            made.span(("epoch", "recv_data"), at + 3 * MS, at + 4 * MS, waits_for="A")
            made.span("epoch", at, at + 6 * MS, track=1 + step % 2)
            made.fold("load", at, at + 8 * MS, 20, 4 * MS)
            made.span("barrier", at + 6 * MS, at + length, meets=[f"key:{step}"])
            made.collections.append((2, at + MS, at + 2 * MS))
            made.iterations.append((0, at + MS))
            made.event("sync", at + length, entered=at + 6 * MS, left=at + length + 100)
            made.sample(f"{step}", "generate", begin, begin + 4 * MS, tokens=20, version=step)
            made.sample(f"{step}", "buffered", begin + 4 * MS, begin + 5 * MS)
            made.sample("again", "trained", begin + 6 * MS, at + length if rank else None)
            at += length
            made.step(step, begin, at)
            made.attributes(step, at, tokens=100, buffer=2, flops=1e12, peak_flops=1e15)
        made.open = [(made.place("epoch"), at)]
        for number, state in enumerate(("opening", "open", "closed")):
            made.event("window", (3 + number) * 5 * MS, number=1, label="step-3", state=state)
        made.event("loop", 0, number=0, file="a.py", line=3, level=[2, 1], inside=None)
        made.event("thinned", at, depth=3, why="bytes_per_step")
        add_stacks(made.write(directory / "ranks", ended=rank > 0))
        about = session_file(
            window_entry(), name=f"A-{rank}", run="ranks", rank=rank, node=node,
            timing=page_run.tree({"epoch → forward": 0.5, "load": 0.25}),
            while_profiling=page_run.tree({"epoch → forward": 0.5}), steps_left_out=2,
        )  # fmt: skip
        (directory / "ranks" / node / f"A-{rank}.start-1.json").write_text(json.dumps(about))


def add_stacks(path: Path) -> None:
    """Samples of a process's spans, beside its ledger."""
    spans = reader.read(path).spans[:500].tolist()
    main: Frame = ("main", "__main__", "/job/train.py", 3)
    samples = [
        ([main, ("load", "data", "/job/data.py", number % 7)], track, place, 2, start, end)
        for number, (place, track, start, end) in enumerate(spans)
    ]
    write_stacks(path, samples)


def parse(content: bytes) -> Content:
    """The header and the blocks of a ledger."""
    line, _, rest = content.partition(b"\n")
    header = json.loads(line)
    del header["checksum"]
    blocks = []
    while rest:
        kind, size, _ = BLOCK.unpack_from(rest)
        begin = BLOCK.size
        blocks.append((kind.decode(), rest[begin : begin + size]))
        rest = rest[begin + size :]
    return header, blocks


def unparse(header: dict[str, Any], blocks: list[Block]) -> bytes:
    """A ledger of these."""
    parts = [header_line(header)]
    for kind, content in blocks:
        checksum = zlib.crc32(content, zlib.crc32(kind.encode()))
        parts += [BLOCK.pack(kind.encode(), len(content), checksum), content]
    return b"".join(parts)


def change_ledger(content: bytes, chance: random.Random) -> bytes:
    """The same ledger with some of its numbers, rows or blocks changed."""
    header, blocks = parse(content)
    for _ in range(chance.choice((1, 1, 2, 5))):
        kind = chance.randrange(10)
        at = chance.randrange(len(blocks)) if blocks else 0
        if kind == 0 or not blocks:
            header[chance.choice(list(header))] = chance.choice(_JSON)
        elif kind == 1:
            del blocks[at]
        elif kind == 2:
            blocks.insert(chance.randrange(len(blocks)), blocks[at])
        else:
            name, rows = blocks[at]
            changed = change_rows if name in ROWS else change_entries
            blocks[at] = name, changed(name, rows, chance)
    return unparse(header, blocks)


def change_stacks(content: bytes, chance: random.Random) -> bytes:
    """The same file of stacks changed as a ledger, or damaged."""
    how = chance.randrange(4)
    if how == 0:
        return content[: chance.randrange(len(content))]
    if how == 1:
        damaged = bytearray(content)
        for _ in range(chance.choice((1, 20))):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        return bytes(damaged)
    return change_ledger(content, chance)


def change_rows(kind: str, content: bytes, chance: random.Random) -> bytes:
    """Rows with other numbers, or in another order."""
    rows = np.frombuffer(content, np.dtype(ROWS[kind])).copy()
    if not len(rows):
        return content
    how = chance.randrange(7)
    name = chance.choice(rows.dtype.names or ())
    some = np.array([chance.random() < 0.3 for _ in rows])
    if how == 0:  # of no length
        if "end" in (rows.dtype.names or ()):
            rows["end"] = rows["start"]
        else:
            rows[name] = rows[name][0]
    elif how == 1:
        rows = rows[::-1] if chance.random() < 0.5 else rows[np.argsort(some, kind="stable")]
    elif how == 2:
        rows = np.concatenate([rows] * chance.choice((2, 30)))
    elif how == 3 and rows.dtype[name].kind == "i":
        rows[name] = -rows[name]
    elif how == 4 and "end" in (rows.dtype.names or ()):
        rows["start"], rows["end"] = rows["end"].copy(), rows["start"].copy()
    elif rows.dtype[name].kind == "f":
        rows[name][some] = chance.choice((0.0, -1.5, 1e299, 1e301, math.nan, math.inf))
    else:
        value = chance.choice(_TIMES if rows.dtype[name].itemsize == 8 else _SMALL)
        limits = np.iinfo(rows.dtype[name])
        if limits.min <= value <= limits.max:
            rows[name][some] = value
    return rows.tobytes()


def change_entries(_: str, content: bytes, chance: random.Random) -> bytes:
    """Entries with other values."""
    return json.dumps(change(json.loads(content), chance)).encode()


def change(data: Any, chance: random.Random) -> Any:
    """JSON with another value somewhere."""
    if isinstance(data, (dict, list)) and data and chance.random() < 0.95:
        key = chance.choice(list(data) if isinstance(data, dict) else range(len(data)))
        if chance.random() < 0.05:
            del data[key]
        else:
            data[key] = change(data[key], chance)
        return data
    if isinstance(data, (int, float)) and chance.random() < 0.7:
        return chance.choice([value for value in _JSON if isinstance(value, (int, float))])
    return copy.deepcopy(chance.choice(_JSON))


def change_tree(content: bytes, chance: random.Random) -> bytes:
    """A session's file, most often with another number in its tree."""
    data = json.loads(content)
    for _ in range(chance.choice((1, 1, 3))):
        where = chance.choice(("timing", "timing", "while_profiling", ""))
        if where and isinstance(data, dict) and isinstance(data.get(where), dict):
            data[where] = change(data[where], chance)
        else:
            data = change(data, chance)
    return json.dumps(data).encode()


def commands(run: Path, other: Path) -> list[tuple[str, ...]]:
    """Every command that reads a run."""
    here, output = str(run), str(run.parent / "output")
    every = ("--warmup", "0")
    return [
        ("explain", here),
        ("explain", here, *every, "--json"),
        ("explain", here, "--step", "4"),
        ("diff", here, str(other), *every),
        ("diff", str(other), here, "--markdown"),
        ("baseline", here, *every, "-o", f"{output}.json"),
        ("html", here, *every, "-o", f"{output}.html"),
        ("timeline", here, "-o", f"{output}.gz"),
        ("timeline", here, "--steps", "2:5", "-o", f"{output}.gz"),
        ("report", here),
        ("report", here, "--json"),
        ("report", here, "--nvtx"),
        ("report", here, "--stacks", "speedscope"),
        ("export", "--anonymous", here, "-o", output),
        ("runs", "--output-dir", str(run.parent)),
        ("runs", "--json", "--output-dir", str(run.parent)),
        ("collect", here),
    ]


def invoke(words: tuple[str, ...]) -> None:
    """A command ends with one of its exit codes, and says something."""
    with within(SECONDS):
        result = CliRunner().invoke(main, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code
    assert result.output.strip(), "no output"
    assert "NaN" not in result.output if "--json" in words else True, result.output


def try_one(number: int, directory: Path, files: dict[Path, bytes]) -> None:
    """Write the runs with some files changed, and read them with every command."""
    chance = random.Random(number)
    run = chance.choice(("driven", "ranks"))
    changers: list[tuple[str, Callable[[bytes, random.Random], bytes]]] = [
        (".ledger", change_ledger),
        (".ledger", change_ledger),
        (".stacks", change_stacks),
        (".stacks", change_stacks),
        (".json", change_tree),
    ]
    for name, content in files.items():
        (directory / name).write_bytes(content)
    for _ in range(chance.choice((1, 2, 8))):
        suffix, changer = chance.choice(changers)
        of_run = [each for each in files if each.parts[0] == run and len(each.parts) > 2]
        name = chance.choice([each for each in of_run if each.suffix == suffix])
        (directory / name).write_bytes(changer(files[name], chance))
    for words in commands(directory / run, directory / "driven"):
        try:
            invoke(words)
        except (Exception, Hang) as error:
            raise AssertionError(
                f"gpuprof {' '.join(words)}: {type(error).__name__}: {error}\n"
                f"{''.join(traceback.format_tb(error.__traceback__)[-6:])}\n"
                f"again: python tests/fuzz --seed {number} --count 1 {NAME}"
            ) from error


def run(seed: int, count: int) -> None:
    """Try `count` changed runs; raises at the first that a command does not read as it should."""
    installed = functools.cache(loading.catalogue)  # it stays the same
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as root,
        mock.patch.object(loading, "catalogue", installed),
        mock.patch.dict(os.environ, {"PATH": "/nonexistent"}),
    ):
        directory = Path(root)
        make(directory)
        files = {
            path.relative_to(directory): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }
        for number in range(seed, seed + count):
            try_one(number, directory, files)
