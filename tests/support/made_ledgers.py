"""Ledgers of processes that never ran, written block by block as `LedgerWriter` does."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuprof._artifacts import ledger as reader
from gpuprof._session import ledger as written
from gpuprof._session import samples as written_samples
from gpuprof._session.blocks import BLOCK, header_line
from gpuprof._session.cards import CARD
from gpuprof._session.ledger import Header
from gpuprof._session.usage import SLEPT, THREAD, USAGE

BEGAN = 1_795_000_000_000_000_000
"""When the processes began, in nanoseconds since the epoch."""
WAITS, RELEASES, MEETS = range(3)


class MadeLedger:
    """A ledger, whose clock begins at 0.

    Args:
        directory: of the run.
        group: of the worker; with `role` ``driver`` there is only one of it.
        began: when its clock was 0, in nanoseconds since the epoch.
        more: other keys of the header.
    """

    def __init__(
        self,
        directory: Path,
        group: str = "A",
        rank: int = 0,
        node: str = "node-0",
        role: str = "worker",
        began: int = BEGAN,
        **more: Any,
    ) -> None:
        name = group if role == "driver" else f"{group}-{rank}"
        self.path = (
            directory / node / (f"{name}.ledger" if role == "driver" else f"{name}.start-1.ledger")
        )
        header: dict[str, Any] = {
            "format": written.FORMAT,
            "version": written.VERSION,
            "run": directory.name,
            "name": name,
            "group": group,
            "rank": rank,
            "node": node,
            "incarnation": None if role == "driver" else "1",
            "pid": 1000 + rank,
            "process_start": None,
            "role": role,
            "clock": node,
            "monotonic": 0,
            "wall": began,
            **more,
        }
        assert header.keys() == Header.__annotations__.keys()
        self.content = header_line(header)
        self._places: dict[tuple[str, ...], int] = {(): 0}
        self._tracks = 0
        self._words: dict[str, int] = {}
        self._phases = 0
        self._main = 0
        self._pid: int = header["pid"]

    def place(self, *keys: str, waits_for: str | None = None) -> int:
        """The number of a place."""
        if keys not in self._places:
            parent = self.place(*keys[:-1])
            self._places[keys] = len(self._places)
            about = {"id": self._places[keys], "parent": parent, "key": keys[-1]}
            self._json("plac", about if waits_for is None else {**about, "waits_for": waits_for})
        return self._places[keys]

    def track(
        self,
        name: str = "MainThread",
        thread: int = 1,
        task: bool = False,
        native: int | None = None,
    ) -> int:
        """Add a track. The system's number of thread 1 is the process's."""
        self._tracks += 1
        about = {"id": self._tracks, "name": name, "thread": thread, "task": task}
        self._json(
            "trak", {**about, "native": self._pid - 1 + thread if native is None else native}
        )
        return self._tracks

    def spans(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """Add calls: place, track, start, end."""
        self._add("span", b"".join(written.SPAN.pack(*row) for row in rows))

    def folds(self, rows: Iterable[tuple[int, int, int, int, int, int]]) -> None:
        """Add sums: place, track, start, end, count, busy."""
        self._add("fold", b"".join(written.FOLD.pack(*row) for row in rows))

    def fold_rows(self, rows: Any) -> None:
        """The same from an array of the reader's type."""
        self._add("fold", rows.tobytes())

    def links(self, rows: Iterable[tuple[int, int, int, int, str | bytes, int]]) -> None:
        """Add keys of calls: place, track, start, end, key, role."""
        packed = [written.LINK.pack(*row[:4], written.key_of(row[4]), row[5]) for row in rows]
        self._add("link", b"".join(packed))

    def step(self, number: int, start: int, end: int | None) -> None:
        """Add a step."""
        edges = [(number, start, 1)] + ([] if end is None else [(number, end, 0)])
        self._add("step", b"".join(written.STEP.pack(*edge) for edge in edges))

    def still_open(self, rows: Sequence[tuple[int, int]]) -> None:
        """Add the calls that are open: place, start."""
        self._add("open", b"".join(written.OPEN.pack(*row) for row in rows))

    def collections(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Add runs of the garbage collector: generation, start, end."""
        self._add("coll", b"".join(written.COLLECTION.pack(*row) for row in rows))

    def iterations(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add the beginnings of a loop's iterations: loop, time."""
        self._add("iter", b"".join(written.ITERATION.pack(*row) for row in rows))

    def sizes(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Add how many bytes calls handled: place, time, bytes."""
        self._add("size", b"".join(written.SIZE.pack(*row) for row in rows))

    def sent(self, rows: Iterable[tuple[int, int, str, str]]) -> None:
        """Add calls that were sent on track 1: start, end, key, and the key of one it needs."""
        self._add(
            "sent",
            b"".join(
                written.SENT.pack(
                    1, start, end, written.key_of(key), written.key_of(needs) if needs else 0
                )
                for start, end, key, needs in rows
            ),
        )

    def main(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Add for how long the main thread had run, and was ready to: time, ran, ready."""
        if not self._main:
            self._main = self.track("the main thread", native=self._pid)
        self.threads((self._main, *row) for row in rows)

    def threads(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """Add for how long threads had run, and were ready to: track, time, ran, ready."""
        self._add("thrd", b"".join(THREAD.pack(*row) for row in rows))

    def sleeps(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add for how long the main thread had slept of its own accord by some times."""
        self._add("slpt", b"".join(SLEPT.pack(*row) for row in rows))

    def usage(self, rows: Iterable[Mapping[str, int]]) -> None:
        """Add what the process and its machine used by some times; what is left out is 0."""
        names = [name for name, _ in reader.USAGE]
        self._add("used", b"".join(USAGE.pack(*(row.get(n, 0) for n in names)) for row in rows))

    def sample(
        self,
        sample: str,
        phase: str,
        start: int,
        end: int | None,
        notes: Mapping[str, float] = {},
        weight: int = 1,
    ) -> None:
        """Add a phase of a sample; one without an end goes on."""
        self._phases += 1
        self._json_texts("snam", sample)
        row = self._phases, written_samples.key_of(sample), self._word(phase), weight, start
        if end is None:
            self._add("sbeg", written_samples.BEGUN.pack(*row))
        else:
            self._add("samp", written_samples.SAMPLE.pack(*row, end))
        self._notes(notes)

    def sample_fold(
        self,
        phase: str,
        start: int,
        end: int,
        count: int,
        busy: int,
        notes: Mapping[str, float] = {},
    ) -> None:
        """Add phases that are known only together."""
        self._phases += 1
        row = self._phases, self._word(phase), start, end, count, busy
        self._add("sfol", written_samples.FOLD.pack(*row))
        self._notes(notes)

    def attributes(self, step: int, time: int, values: Mapping[str, float]) -> None:
        """Add the attributes of a step."""
        for name, value in values.items():
            row = written_samples.ATTRIBUTE.pack(self._word(name), step, time, value)
            self._add("attr", row)

    def cards(self, rows: Iterable[tuple[int, int, int, int, int, int]]) -> None:
        """Add what GPUs did: card, time, per cent, memory, clock, reasons for a lower clock."""
        self._add("card", b"".join(CARD.pack(*row) for row in rows))

    def clock(self, monotonic: int, wall: int) -> None:
        """Add a reading of both clocks."""
        self._add("clck", written.CLOCK.pack(monotonic, wall, 100))

    def event(self, event: str, time: int, **about: Any) -> None:
        """Add an event."""
        self._json("evnt", {"event": event, "time": time, **about})

    def write(self) -> Path:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.content)
        return self.path

    def _notes(self, notes: Mapping[str, float]) -> None:
        for name, value in notes.items():
            self._add("note", written_samples.NOTE.pack(self._phases, self._word(name), value))

    def _word(self, word: str) -> int:
        if word not in self._words:
            self._words[word] = len(self._words) + 1
            self._json("word", {"id": self._words[word], "name": word})
        return self._words[word]

    def _json_texts(self, kind: str, *texts: str) -> None:
        self._add(kind, json.dumps(texts).encode())

    def _json(self, kind: str, *about: Mapping[str, Any]) -> None:
        self._add(kind, json.dumps(about).encode())

    def _add(self, kind: str, content: bytes) -> None:
        checksum = zlib.crc32(content, zlib.crc32(kind.encode()))
        self.content += BLOCK.pack(kind.encode(), len(content), checksum)
        self.content += content
