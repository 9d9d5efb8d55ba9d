"""Writes real ledgers of runs that never ran: spans at times that a test or a benchmark decides."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gpuprof._artifacts import ledger as reader
from gpuprof._session.ledger import BLOCK, FORMAT, VERSION, Header, header_line, key_of

EPOCH = 1_700_000_000_000_000_000
CLOCK = "boot/time"


class SimulatedLedger:
    """The ledger of one process.

    Args:
        name: as ``ActorGroup-0``, or ``Runner``.
        role: ``worker``, ``child`` or ``driver``.
        clock: processes with the same text share a clock.
        wall: nanoseconds since the epoch at which its clock shows 0.
    """

    def __init__(
        self,
        name: str,
        role: str = "worker",
        node: str = "node-0",
        clock: str = CLOCK,
        wall: int = EPOCH,
    ) -> None:
        group, _, rank = name.rpartition("-")
        self.header: Header = {
            "format": FORMAT,
            "version": VERSION,
            "run": "run",
            "name": name,
            "group": group or name,
            "rank": int(rank) if group else 0,
            "node": node,
            "incarnation": None if role == "driver" else "1",
            "pid": 1,
            "process_start": None,
            "role": role,
            "clock": clock,
            "monotonic": 0,
            "wall": wall,
        }
        self._places: dict[tuple[str, ...], int] = {}
        self._new: list[dict[str, Any]] = []
        self.spans: list[tuple[int, int, int, int]] = []
        self.folds: list[tuple[int, int, int, int, int, int]] = []
        self.links: list[tuple[int, int, int, int, int, int]] = []
        self.steps: list[tuple[int, int, int]] = []
        self.open: list[tuple[int, int]] = []
        self.events: list[dict[str, Any]] = []

    def place(self, *keys: str, waits_for: str | None = None) -> int:
        """The number of a place, which is new or known."""
        if keys not in self._places:
            parent = self.place(*keys[:-1]) if len(keys) > 1 else 0
            number = self._places[keys] = len(self._places) + 1
            about: dict[str, Any] = {"id": number, "parent": parent, "key": keys[-1]}
            if waits_for is not None:
                about["waits_for"] = waits_for
            self._new.append(about)
        return self._places[keys]

    def span(
        self,
        keys: str | Sequence[str],
        start: int,
        end: int,
        *,
        track: int = 1,
        waits_for: str | None = None,
        waits: Sequence[str] = (),
        releases: Sequence[str] = (),
        meets: Sequence[str] = (),
    ) -> None:
        """A call, with the keys that it shares with others."""
        keys = (keys,) if isinstance(keys, str) else tuple(keys)
        place = self.place(*keys, waits_for=waits_for)
        self.spans.append((place, track, start, end))
        for role, texts in enumerate((waits, releases, meets)):
            self.links += [(place, track, start, end, key_of(text), role) for text in texts]

    def fold(self, keys: str | Sequence[str], start: int, end: int, count: int, busy: int) -> None:
        """Calls that are known only together."""
        keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self.folds.append((self.place(*keys), 1, start, end, count, busy))

    def step(self, number: int, start: int, end: int | None) -> None:
        """A step; one without an end goes on."""
        self.steps.append((number, start, 1))
        if end is not None:
            self.steps.append((number, end, 0))

    def event(self, event: str, time: int, **about: Any) -> None:
        """Anything else."""
        self.events.append({"event": event, "time": time, **about})

    def write(self, directory: Path) -> Path:
        """Write the file into a run's directory."""
        node = directory / self.header["node"]
        node.mkdir(parents=True, exist_ok=True)
        driver = self.header["role"] == "driver"
        path = node / f"{self.header['name']}{'' if driver else '.start-1'}.ledger"
        last = max([end for *_, end in self.spans] + [time for _, time, _ in self.steps] + [0])
        blocks = [
            self._json("plac", self._new),
            self._json("trak", [_track(number) for number in range(1, self._tracks() + 1)]),
        ]
        for kind, rows, dtype in (
            ("span", self.spans, reader.SPAN),
            ("fold", self.folds, reader.FOLD),
            ("link", self.links, reader.LINK),
            ("step", self.steps, reader.STEP),
            ("open", self.open, reader.OPEN),
        ):
            if rows:
                blocks.append(_block(kind, np.array(rows, np.dtype(dtype)).tobytes()))
        blocks.append(self._json("evnt", [*self.events, {"event": "end", "time": last}]))
        path.write_bytes(header_line(self.header) + b"".join(blocks))
        return path

    def _tracks(self) -> int:
        return max([track for _, track, *_ in (*self.spans, *self.folds)] + [1])

    @staticmethod
    def _json(kind: str, what: list[Any]) -> bytes:
        return _block(kind, json.dumps(what).encode())


def _track(number: int) -> dict[str, Any]:
    name = "MainThread" if number == 1 else f"thread {number}"
    return {"id": number, "name": name, "thread": number, "native": number, "task": False}


def _block(kind: str, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind.encode()))
    return BLOCK.pack(kind.encode(), len(content), checksum) + content


def write_run(directory: Path, made: Sequence[SimulatedLedger]) -> Path:
    """Write all ledgers of a run. Returns its directory."""
    for each in made:
        each.write(directory)
    return directory
