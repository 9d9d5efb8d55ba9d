"""Records the phases of samples, the units of a reinforcement-learning run.

A sample is worked on in several processes, none of which knows its whole life. So each process
writes its phases of a sample under a key that is computed from the sample's id, and the reader
joins them. The job's threads only append a row as a phase begins and set its end; the rest is done
on the control thread.
"""

from __future__ import annotations

import hashlib
import heapq
import numbers
import struct
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from gpuprof._log import log
from gpuprof._session.blocks import BlockFile
from gpuprof._session.totals import number_of

SAMPLE = struct.Struct("<QQIIqq")
"""A phase that has ended: number, the sample's key (see `key_of`), phase, weight, start, end."""
BEGUN = struct.Struct("<QQIIq")
"""A phase that had not ended when the block was written: number, key, phase, weight, start."""
NOTE = struct.Struct("<QId")
"""A note of a phase or of a fold: its number, the note's name, value."""
FOLD = struct.Struct("<QIqqqq")
"""Phases that were left out: number, phase, start of the first, end of the last, number of phases,
nanoseconds."""
ATTRIBUTE = struct.Struct("<Iqqd")
"""An attribute of a step: name, the step's number, when the step ended, value."""

TAIL = 16
"""Of each phase, how many of the longest are kept in a write at first. What a step waits for is its
longest samples."""
_MOST = 1 << 16
"""Ended phases in memory above which they are thinned before they are written."""
_MOST_BEGUN = 1 << 12
"""Phases that go on and are looked at in a write."""
_MOST_NAMES = 1 << 16
_MOST_WORDS = 1_000
_MORE = "(more)"
_LONGEST = 100
"""Characters of a sample's id in the ledger."""
_PART = 16
"""After each such part of `total`, half as many samples are kept."""
_BYTES = 64
"""About what a phase takes in the ledger, with its notes."""
_SURVIVES = 1_000_000_000
"""Nanoseconds after which a phase that goes on is written, in case it never ends."""
_ALL = 64
"""The level of thinning at which only the tail is left: keys have so many bits."""
_SEED = b"gpuprof sample"

_ID, _PHASE, _START, _END, _NOTES, _NUMBER, _WEIGHT = range(7)
Row: TypeAlias = "list[Any]"
"""A phase: id, phase, start, end, notes, number, weight. The end is ``None`` while the phase goes
on; the number is 0 until the phase is written, and ``_LEFT_OUT`` if it never is. The weight is 0
until id and phase were checked."""
_LEFT_OUT = -1


def key_of(text: str) -> int:
    """The key of a sample: 64 bits, which all processes compute alike from the sample's id."""
    content = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, person=_SEED)
    return int.from_bytes(digest.digest(), "little")


class Phase(AbstractContextManager["Phase"]):
    """A phase of a sample: what `gpuprof.sample` returns."""

    __slots__ = ("_id", "_phase", "_row", "_samples")

    def __init__(self, samples: Samples, sample: object, phase: object) -> None:
        self._samples = samples
        self._id = sample
        self._phase = phase

    def __enter__(self) -> Phase:
        samples = self._samples
        self._row = row = [self._id, self._phase, samples.clock(), None, None, 0, 0]
        samples.rows.append(row)
        if len(samples.rows) > _MOST:
            samples.make_room()
        return self

    def __exit__(self, *error: object) -> None:
        self._row[_END] = self._samples.clock()

    def note(self, **values: float) -> None:
        """Note numbers of this phase, also after it has ended.

        Args:
            values: numbers by any names, such as ``tokens=512``. The last value of a name counts.
        """
        row: Row | None = getattr(self, "_row", None)
        if row is None:
            self._samples.complain("gpuprof.sample: note values inside the with block")
            return
        notes = row[_NOTES]
        row[_NOTES] = values if notes is None else {**notes, **values}
        if row[_NUMBER]:  # written before the note
            self._samples.late.append((row[_NUMBER], row[_PHASE], values))


class Samples:
    """The phases and step attributes of this process that are not written yet.

    Half as many samples are kept after each further part of the ledger's ``total``: those whose key
    ends with so many zero bits, so that all processes choose alike. The longest phases of each
    write are kept as well, and of all others the sums.

    Args:
        total: the ledger's ``total``, in bytes.

    Attributes:
        rows: the phases that have begun since the last write.
        late: notes of phases that are written already: number, phase, values.
        thinned: how often the number of samples to keep was halved.
    """

    def __init__(self, clock: Callable[[], int], total: int) -> None:
        self.clock = clock
        self.rows: list[Row] = []
        self.late: list[tuple[int, object, Mapping[str, object]]] = []
        self.thinned = 0
        self._part = max(_BYTES, total // _PART)
        self._used = 0
        self._going_on: list[Row] = []
        self._ended: list[Row] = []
        self._attributes: list[tuple[int, int, Mapping[str, object]]] = []
        self._folds: dict[int, _Fold] = {}
        self._keys: dict[object, int] = {}
        self._named: set[str] = set()
        self._new_names: list[str] = []
        self._words: dict[str, int] = {}
        self._new_words: list[dict[str, Any]] = []
        self._notes: list[bytes] = []
        self._number = 0
        self._complaints: set[str] = set()
        self._lock = threading.Lock()

    def add(
        self, sample: object, phase: str, start: int, end: int, notes: Mapping[str, float] = {}
    ) -> None:
        """Add a phase whose times are known."""
        self.rows.append([sample, phase, start, end, dict(notes), 0, 0])
        if len(self.rows) > _MOST:
            self.make_room()

    def add_attributes(self, step: int, values: Mapping[str, object]) -> None:
        """Add the attributes of a step that has just ended."""
        if len(self._attributes) < _MOST:
            self._attributes.append((step, self.clock(), values))

    @property
    def waiting(self) -> bool:
        """Whether there may be something to write."""
        return bool(self.rows or self._going_on or self._attributes or self.late or self._ended)

    def make_room(self) -> None:
        """Thin the phases in memory: more ended than wait for the next write.

        Called on a thread of the job, which must not wait for the control thread.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._collect()
            level = self.thinned
            while len(self._ended) > _MOST // 2 and level < _ALL:
                level += 1
                self._ended = self._select(self._ended, level)
        finally:
            self._lock.release()

    def spare(self) -> None:
        """From now on keep the longest phases only: the ledger's ``total`` is used up."""
        self.thinned = _ALL

    def write(self, file: BlockFile) -> None:
        """Add what came since the last call to the file."""
        with self._lock:
            self._collect()
            ended, self._ended = self._ended, []
            while self._used + (len(ended) * _BYTES >> self.thinned) > self._part * (
                self.thinned + 1
            ):
                self.thinned += 1
            kept = self._select(ended, self.thinned)
            phases = b"".join([self._packed(row) for row in kept])
            begun = b"".join([self._packed_begun(row) for row in self._long_ones()])
            self._add_late()
            attributes = self._packed_attributes()
            folds = b"".join([self._packed_fold(fold) for fold in self._folds.values()])
            self._folds = {}
            size = file.waiting
            file.add_json("word", self._new_words)
            file.add_json("snam", self._new_names)
            file.add("samp", phases)
            file.add("sbeg", begun)
            file.add("sfol", folds)
            file.add("note", b"".join(self._notes))
            file.add("attr", attributes)
            self._new_words, self._new_names, self._notes = [], [], []
            self._used += file.waiting - size

    def complain(self, problem: str) -> None:
        """Log a problem once."""
        if problem not in self._complaints and len(self._complaints) < _MOST_WORDS:
            self._complaints.add(problem)
            log().warning("%s", problem)

    # Choosing

    def _collect(self) -> None:
        size = len(self.rows)  # other threads append meanwhile
        rows = self._going_on + self.rows[:size]
        del self.rows[:size]
        self._going_on = []
        for row in rows:
            if row[_END] is None:
                self._going_on.append(row)
            elif self._is_valid(row):
                self._ended.append(row)

    def _is_valid(self, row: Row) -> bool:
        """Whether id and phase can be written. The row gets the id's text, and the phase's number.

        Checked here and not as the phase begins, so that the job does not wait for it.
        """
        if row[_WEIGHT]:  # it was checked when it had gone on for a while
            return True
        text = _text_of(row[_ID])
        if text is None:
            self.complain(
                f"gpuprof.sample: an id of type {type(row[_ID]).__name__} is not valid; expected a "
                "str or an int; the sample is not recorded"
            )
            return False
        if not isinstance(row[_PHASE], str) or not row[_PHASE]:
            kind = f"a phase of type {type(row[_PHASE]).__name__}"
            kind = "an empty phase" if isinstance(row[_PHASE], str) else kind
            self.complain(
                f'gpuprof.sample: {kind} is not valid; expected a str such as "generate"; the '
                "phase is not recorded"
            )
            return False
        row[_ID], row[_PHASE], row[_WEIGHT] = text, self._word(row[_PHASE]), 1
        return True

    def _select(self, rows: list[Row], level: int) -> list[Row]:
        """The rows to keep, with their weights; the others are added to the folds."""
        if not level:
            return rows
        mask = (1 << level) - 1
        most = self._tail
        kept = []
        by_phase: dict[int, tuple[list[Row], list[Row]]] = {}
        for row in rows:
            chosen, others = by_phase.setdefault(row[_PHASE], ([], []))
            (others if self._key(row[_ID]) & mask else chosen).append(row)
        for chosen, others in by_phase.values():
            if len(others) > most:
                tail = heapq.nlargest(most, others, key=_length)
                in_tail = set(map(id, tail))
                # one that was written as it went on is kept, or else it would never end
                left_out = [r for r in others if id(r) not in in_tail and not r[_NUMBER]]
                kept += [r for r in others if id(r) in in_tail or r[_NUMBER]]
                self._leave_out(left_out, chosen)
            else:
                kept += others
            kept += chosen
        return kept

    @property
    def _tail(self) -> int:
        """How many of the longest phases to keep: fewer, the more was written."""
        halvings = TAIL if self.thinned >= _ALL else self._used // self._part // 2
        return max(1, TAIL >> halvings)

    def _leave_out(self, rows: list[Row], chosen: list[Row]) -> None:
        """Add up rows, and let the `chosen` ones stand for them."""
        weight = 0
        for row in rows:
            weight += row[_WEIGHT]
            row[_NUMBER] = _LEFT_OUT
            fold = self._fold(row[_PHASE])
            fold.add(row)
            for name, value in self._valid(row[_NOTES]):
                fold.notes[name] = fold.notes.get(name, 0.0) + value
        if chosen:
            share, rest = divmod(weight, len(chosen))
            for position, row in enumerate(chosen):
                row[_WEIGHT] += share + (position < rest)

    def _fold(self, phase: int) -> _Fold:
        if phase not in self._folds:
            self._folds[phase] = _Fold(phase)
        return self._folds[phase]

    def _long_ones(self) -> Iterable[Row]:
        """The phases that go on for a second, and are to be written for the first time."""
        before = self.clock() - _SURVIVES
        rows = [row for row in self._going_on if row[_START] < before and not row[_NUMBER]]
        rows = [row for row in rows[:_MOST_BEGUN] if self._is_valid(row)]
        mask = (1 << self.thinned) - 1
        chosen = [row for row in rows if not self._key(row[_ID]) & mask]
        others = [row for row in rows if self._key(row[_ID]) & mask] if mask else []
        for row in chosen:
            row[_WEIGHT] = 1 << min(self.thinned, 31)
        return chosen + heapq.nsmallest(self._tail, others, key=_start)

    # Packing

    def _packed(self, row: Row) -> bytes:
        number = row[_NUMBER]
        if not number:
            self._number += 1
            number = row[_NUMBER] = self._number
        # read after the number is set: `note` sends later ones to `late`
        if row[_NOTES]:
            self._note(number, row[_NOTES])
        weight = min(row[_WEIGHT], 2**32 - 1)
        return SAMPLE.pack(
            number, self._named_key(row[_ID]), row[_PHASE], weight, row[_START], row[_END]
        )

    def _packed_begun(self, row: Row) -> bytes:
        self._number += 1
        row[_NUMBER] = self._number
        weight, row[_WEIGHT] = row[_WEIGHT], 1
        return BEGUN.pack(self._number, self._named_key(row[_ID]), row[_PHASE], weight, row[_START])

    def _packed_fold(self, fold: _Fold) -> bytes:
        self._number += 1
        for name, value in fold.notes.items():
            self._notes.append(NOTE.pack(self._number, self._word(name), value))
        return FOLD.pack(self._number, fold.phase, fold.start, fold.end, fold.count, fold.busy)

    def _add_late(self) -> None:
        size = len(self.late)
        late = self.late[:size]
        del self.late[:size]
        for number, phase, values in late:
            if number != _LEFT_OUT:
                self._note(number, values)
            elif isinstance(phase, int):
                if phase not in self._folds:
                    self._fold(phase).start = self._fold(phase).end = self.clock()
                fold = self._fold(phase)
                for name, value in self._valid(values):
                    fold.notes[name] = fold.notes.get(name, 0.0) + value

    def _note(self, number: int, values: Mapping[str, object]) -> None:
        for name, value in self._valid(values):
            self._notes.append(NOTE.pack(number, self._word(name), value))

    def _valid(self, values: Mapping[str, object] | None) -> Iterable[tuple[str, float]]:
        for name, value in (values or {}).items():
            number = number_of(value)
            if number is None:
                self.complain(
                    f"gpuprof.sample: note {name}: {type(value).__name__} is not valid; expected a "
                    "finite number, such as an int or a float; it is left out"
                )
            else:
                yield name, float(number)

    def _packed_attributes(self) -> bytes:
        size = len(self._attributes)
        attributes = self._attributes[:size]
        del self._attributes[:size]
        return b"".join(
            [
                ATTRIBUTE.pack(self._word(name), step, time, float(number))
                for step, time, values in attributes
                for name, value in values.items()
                if (number := number_of(value)) is not None  # else `Totals` has warned
            ]
        )

    def _key(self, text: str) -> int:
        key = self._keys.get(text)
        if key is None:
            if len(self._keys) >= _MOST_NAMES:
                self._keys.clear()
            key = self._keys[text] = key_of(text)
        return key

    def _named_key(self, text: str) -> int:
        """The key of a sample whose id is to be in the file."""
        if text not in self._named:
            if len(self._named) >= _MOST_NAMES:
                self._named.clear()
            self._named.add(text)
            self._new_names.append(text)
        return self._key(text)

    def _word(self, word: str) -> int:
        number = self._words.get(word)
        if number is None:
            if len(self._words) >= _MOST_WORDS and word != _MORE:
                return self._word(_MORE)
            number = self._words[word] = len(self._words) + 1
            self._new_words.append({"id": number, "name": word[:_LONGEST]})
        return number


class _Fold:
    """Phases of one name that are left out."""

    __slots__ = ("busy", "count", "end", "notes", "phase", "start")

    def __init__(self, phase: int) -> None:
        self.phase = phase
        self.count = self.busy = 0
        self.start, self.end = 2**63 - 1, -(2**63)
        self.notes: dict[str, float] = {}

    def add(self, row: Row) -> None:
        self.count += 1
        self.busy += row[_END] - row[_START]
        self.start, self.end = min(self.start, row[_START]), max(self.end, row[_END])


def _length(row: Row) -> int:
    length: int = row[_END] - row[_START]
    return length


def _start(row: Row) -> int:
    start: int = row[_START]
    return start


def _text_of(sample: object) -> str | None:
    """The id of a sample as text; ``None`` if it is none."""
    if type(sample) is str and len(sample) <= _LONGEST:  # as most are
        return sample
    if isinstance(sample, numbers.Integral) and not isinstance(sample, bool):
        try:
            sample = int(sample)
        except Exception:  # a type of the job's own
            return None
        if sample.bit_length() > 4 * _LONGEST:
            return hex(sample)
        return str(sample)
    if isinstance(sample, uuid.UUID):
        return str(sample)
    if not isinstance(sample, str):
        return None
    if len(sample) > _LONGEST:
        digest = hashlib.blake2b(sample.encode("utf-8", "surrogatepass"), digest_size=8)
        return f"{sample[: _LONGEST - 17]}~{digest.hexdigest()}"
    return sample
