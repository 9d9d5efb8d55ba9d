"""Samples of processes that never ran, as `gpuprof._session.stacks` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuprof._session.blocks import BlockFile
from gpuprof._session.stacks import FUNCTION, SAMPLE, STACK, SUFFIX

Frame = tuple[str, str, str, int]
"""A function's name, its module, its file, and the line in it."""


def write_stacks(
    ledger: Path, samples: Iterable[tuple[Sequence[Frame], int, int, int, int, int]]
) -> None:
    """Write the samples of a process beside its ledger.

    Args:
        samples: a stack from the outermost function on, track, place, samples, start and end.
    """
    header = json.loads(ledger.read_bytes().split(b"\n", 1)[0])
    del header["checksum"]
    file = BlockFile(str(ledger.with_suffix(SUFFIX)), header)
    functions: dict[tuple[str, ...], int] = {}
    stacks: dict[tuple[int, int, int], int] = {}
    rows = []
    for stack, *rest in samples:
        number = 0
        for *function, line in stack:
            known = functions.setdefault(tuple(map(str, function)), len(functions) + 1)
            number = stacks.setdefault((number, known, line), len(stacks) + 1)
        rows.append(SAMPLE.pack(number, *rest))
    file.add_json("code", [dict(zip(FUNCTION, each, strict=True)) for each in functions])
    file.add("stck", b"".join(STACK.pack(*key) for key in stacks))
    file.add("smpl", b"".join(rows))
    file.write()
    file.close()
