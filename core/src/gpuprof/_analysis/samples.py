"""The samples of a run: the phases that its processes recorded, joined by the samples' ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._artifacts.ledger import Ledger

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

QUEUED, GENERATE, TOOL, REWARD, BUFFERED, TRAINED = KNOWN = (
    "queued", "generate", "tool", "reward", "buffered", "trained",
)  # fmt: skip
"""The phases whose meaning is known."""
LASTING = (QUEUED, BUFFERED)
"""Phases in which nobody works on a sample. They last until its next phase begins."""
BUFFER, FLOPS, PEAK = "buffer", "flops", "peak_flops"
GAUGES = (BUFFER,)
"""Step attributes that are averaged over processes, not added up."""

LEFT_OUT = [
    ("process", "<i8"), ("phase", "<i8"), ("start", "<i8"), ("end", "<i8"), ("count", "<i8"),
    ("busy", "<i8"),
]  # fmt: skip


def _no_integers() -> Integers:
    return np.empty(0, np.int64)


@attrs.frozen(eq=False)
class Samples:
    """The phases of all samples: arrays with an element for each phase, in order of their start.

    Args:
        ids: the samples' ids by number. An id that is used again is another sample.
        process: the position in `Run.processes`.
        start: nanoseconds of the run's line of time.
        end: the same. A phase that never ended ends with the last record of its process; `LASTING`
            ones end where the sample's next phase begins, in any process.
        weight: how many phases an element stands for, itself included; more than 1 if the ledger
            had no room for all. The longest stand for themselves.
        notes: numbers noted of the phases by name; NaN where none was noted.
        first_step: the position in `Run.steps` of the step in which the phase begins; -1 outside.
        last_step: the same for its end.
        left_out: phases that have no element, as sums: an array of `LEFT_OUT`.
        left_out_notes: sums of their notes, by name.
    """

    ids: list[str] = attrs.field(factory=list)
    names: list[str] = attrs.field(factory=list)
    sample: Integers = attrs.field(factory=_no_integers)
    phase: Integers = attrs.field(factory=_no_integers)
    process: Integers = attrs.field(factory=_no_integers)
    start: Integers = attrs.field(factory=_no_integers)
    end: Integers = attrs.field(factory=_no_integers)
    ended: Flags = attrs.field(factory=lambda: np.empty(0, np.bool_))
    weight: Integers = attrs.field(factory=_no_integers)
    notes: dict[str, Floats] = attrs.field(factory=dict)
    first_step: Integers = attrs.field(factory=_no_integers)
    last_step: Integers = attrs.field(factory=_no_integers)
    left_out: NDArray[np.void] = attrs.field(factory=lambda: np.empty(0, LEFT_OUT))
    left_out_notes: dict[str, Floats] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self.sample)

    def of(self, name: str) -> Flags:
        """Which elements are phases of a name."""
        number = self.names.index(name) if name in self.names else -1
        mask: Flags = self.phase == number
        return mask

    def count(self, name: str) -> int:
        """How many phases of a name ended in the run; exact."""
        number = self.names.index(name) if name in self.names else -1
        sums = self.left_out["count"][self.left_out["phase"] == number]
        return int((self.of(name) & self.ended).sum() + sums.sum())

    def noted(self, name: str) -> float:
        """The sum of a note over all phases of the run; exact."""
        kept = self.notes.get(name, np.empty(0))
        return float(np.nansum(kept) + self.left_out_notes.get(name, np.empty(0)).sum())


@attrs.frozen(eq=False)
class Tail:
    """The samples that processes worked on between two moments, the last to be done first.

    Args:
        end: when each was done, in nanoseconds, also where that was after the second moment.
    """

    sample: Integers
    end: Integers
    weight: Integers

    def done(self, share: float) -> int:
        """The moment at which a share of the samples was done, in nanoseconds.

        >>> tail = Tail(np.arange(4), np.array([90, 40, 30, 20]), np.ones(4, np.int64))
        >>> tail.done(0.5), tail.done(0.9)
        (30, 90)
        """
        counts = np.cumsum(self.weight[::-1])
        return int(self.end[::-1][np.searchsorted(counts, share * counts[-1])])


def working(samples: Samples) -> Flags:
    """Which phases are work on a sample before it is trained."""
    mask = np.ones(len(samples), bool)
    for name in (*LASTING, TRAINED):
        mask &= ~samples.of(name)
    return mask


def tail(samples: Samples, start: int, end: int) -> Tail:
    """The samples that processes worked on between two moments."""
    rows = np.flatnonzero(working(samples) & (samples.start < end) & (samples.end > start))
    numbers, positions = np.unique(samples.sample[rows], return_inverse=True)
    positions = positions.reshape(-1)
    ends = np.zeros(len(numbers), np.int64)
    np.maximum.at(ends, positions, samples.end[rows])
    weights = np.ones(len(numbers), np.int64)
    np.maximum.at(weights, positions, samples.weight[rows])
    order = np.argsort(-ends, kind="stable")
    return Tail(numbers[order], ends[order], weights[order])


def samples_of(ledgers: Sequence[Ledger], starts: Integers, ends: Integers) -> Samples:
    """Join the phases of all processes.

    Args:
        starts: when each of the run's steps began, in order.
    """
    names: dict[str, int] = {}
    keys: dict[int, str] = {}
    tables, folds = [], []
    notes: dict[str, list[tuple[int, Integers, Floats]]] = {}
    fold_notes: dict[str, list[tuple[int, Integers, Floats]]] = {}
    kept = left_out = 0
    for process, ledger in enumerate(ledgers):
        if not (len(ledger.samples) or len(ledger.begun) or len(ledger.sample_folds)):
            continue
        keys.update(ledger.sample_ids)
        rows, numbers = _rows(process, ledger, names)
        tables.append(rows)
        _collect_notes(ledger, numbers, kept, notes)
        kept += len(numbers)
        sums = ledger.sample_folds
        folds.append(_left_out(process, ledger, names))
        _collect_notes(ledger, sums["number"], left_out, fold_notes)
        left_out += len(sums)
    if not kept and not left_out:
        return Samples()
    rows = np.concatenate(tables)
    order = np.argsort(rows["start"], kind="stable")
    rows = rows[order]
    edges = _Edges(starts, ends)
    first_step = edges.position(rows["start"])
    steps_of_edges = edges.at_or_before(rows["start"]), edges.at_or_before(rows["end"])
    sample, ids = _samples(rows, list(names), steps_of_edges, keys)
    _extend(rows, sample, [names[name] for name in LASTING if name in names])
    return Samples(
        ids,
        list(names),
        sample,
        rows["phase"],
        rows["process"],
        rows["start"],
        rows["end"],
        rows["ended"],
        rows["weight"],
        {name: values[order] for name, values in _by_name(notes, kept, np.nan).items()},
        first_step,
        edges.position(rows["end"]),
        np.concatenate(folds),
        _by_name(fold_notes, left_out, 0.0),
    )


def attributes_of(
    ledgers: Sequence[Ledger], numbers: Sequence[int], starts: Integers
) -> dict[str, Floats]:
    """The attributes of steps: an array by position of the step for each name.

    Values of several processes are added up, those of `GAUGES` averaged. NaN where there is none.

    Args:
        numbers: of the run's steps, in the order in which they began. A number may come again.
    """
    positions: dict[int, list[int]] = {}
    for position, number in enumerate(numbers):
        positions.setdefault(number, []).append(position)
    sums: dict[str, tuple[Floats, Floats]] = {}
    for ledger in ledgers:
        for name, number, time, value in ledger.attributes.tolist():
            if number not in positions:
                continue
            at = positions[number]
            index = bisect_right(at, time + ledger.offset, key=starts.__getitem__) - 1
            total, count = sums.setdefault(
                ledger.words[name], (np.zeros(len(numbers)), np.zeros(len(numbers)))
            )
            total[at[max(0, index)]] += value
            count[at[max(0, index)]] += 1
    return {
        name: np.where(count > 0, total / np.maximum(count if name in GAUGES else 1, 1), np.nan)
        for name, (total, count) in sums.items()
    }


@attrs.frozen
class Attribute:
    """A number that the job gave of its steps.

    Args:
        per_second: how much of it a second of these steps has; ``None`` for a gauge.
    """

    name: str
    mean: float
    least: float
    most: float
    per_second: float | None


def summarized(
    attributes: dict[str, Floats], seconds: Floats
) -> tuple[list[Attribute], float | None]:
    """The attributes of some steps, and the MFU.

    The MFU is what the steps computed, as a share of what their devices could have: ``None`` unless
    the job gave both.

    Args:
        attributes: an array by step for each name, NaN where there is none.
        seconds: how long each of the steps was.

    >>> flops, peak = np.array([30.0, 50.0]), np.array([40.0, 40.0])
    >>> given = {"tokens": np.array([512.0, np.nan]), "flops": flops, "peak_flops": peak}
    >>> summary, mfu = summarized(given, np.array([2.0, 2.0]))
    >>> summary[0], mfu
    (Attribute(name='tokens', mean=512.0, least=512.0, most=512.0, per_second=256.0), 0.5)
    """
    summary = []
    for name, values in attributes.items():
        known = ~np.isnan(values)
        if name == PEAK or not known.any():
            continue
        total, time = float(values[known].sum()), float(seconds[known].sum())
        rate = total / time if name not in GAUGES and time else None
        least, most = float(values[known].min()), float(values[known].max())
        summary.append(Attribute(name, total / int(known.sum()), least, most, rate))
    if FLOPS not in attributes or PEAK not in attributes:
        return summary, None
    possible = attributes[PEAK] * seconds
    known = ~np.isnan(attributes[FLOPS]) & (possible > 0)
    if not known.any():
        return summary, None
    return summary, float(attributes[FLOPS][known].sum() / possible[known].sum())


_ROWS = [
    ("key", "<u8"), ("phase", "<i8"), ("process", "<i8"), ("start", "<i8"), ("end", "<i8"),
    ("weight", "<i8"), ("ended", "?"),
]  # fmt: skip


def _numbers_of(words: Sequence[str], names: dict[str, int], used: Any) -> Integers:
    """For each word of a ledger that is used, the number of the phase's name."""
    numbers = np.zeros(len(words), np.int64)
    for word in np.unique(used).tolist():
        numbers[word] = names.setdefault(words[word], len(names))
    return numbers


def _rows(process: int, ledger: Ledger, names: dict[str, int]) -> tuple[NDArray[np.void], Any]:
    """The phases of a process, and their numbers in its ledger."""
    ended = ledger.samples
    begun = ledger.begun[~np.isin(ledger.begun["number"], ended["number"])]
    rows = np.zeros(len(ended) + len(begun), _ROWS)
    words = np.concatenate([ended["phase"], begun["phase"]])
    rows["phase"] = _numbers_of(ledger.words, names, words)[words]
    for column, source in (("key", "sample"), ("start", "start"), ("weight", "weight")):
        rows[column] = np.concatenate([ended[source], begun[source]])
    rows["end"] = np.concatenate([ended["end"], np.full(len(begun), ledger.last)])
    rows["end"] = np.maximum(rows["start"], rows["end"])
    rows["ended"][: len(ended)] = True
    rows["process"] = process
    rows["start"] += ledger.offset
    rows["end"] += ledger.offset
    return rows, np.concatenate([ended["number"], begun["number"]])


def _left_out(process: int, ledger: Ledger, names: dict[str, int]) -> NDArray[np.void]:
    folds = ledger.sample_folds
    rows = np.zeros(len(folds), LEFT_OUT)
    rows["process"] = process
    rows["phase"] = _numbers_of(ledger.words, names, folds["phase"])[folds["phase"]]
    rows["start"] = folds["start"] + ledger.offset
    rows["end"] = folds["end"] + ledger.offset
    rows["count"], rows["busy"] = folds["count"], folds["busy"]
    return rows


def _collect_notes(
    ledger: Ledger,
    numbers: Any,
    offset: int,
    notes: dict[str, list[tuple[int, Integers, Floats]]],
) -> None:
    """Collect the notes of phases by name: the positions of the phases, and the values."""
    if not len(numbers) or not len(ledger.notes):
        return
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    at = np.searchsorted(in_order, ledger.notes["number"]).clip(max=len(numbers) - 1)
    matches = in_order[at] == ledger.notes["number"]
    for word in np.unique(ledger.notes["name"]).tolist():
        mask = matches & (ledger.notes["name"] == word)
        if mask.any():
            notes.setdefault(ledger.words[word], []).append(
                (offset, order[at[mask]], ledger.notes["value"][mask])
            )


def _by_name(
    notes: dict[str, list[tuple[int, Integers, Floats]]], size: int, empty: float
) -> dict[str, Floats]:
    arrays = {}
    for name, parts in notes.items():
        arrays[name] = np.full(size, empty)
        for offset, at, values in parts:
            arrays[name][offset + at] = values  # of several the last one counts
    return arrays


class _Edges:
    """Finds the step of a moment."""

    def __init__(self, starts: Integers, ends: Integers) -> None:
        self._starts = starts
        self._ends = ends

    def at_or_before(self, times: Integers) -> Integers:
        """The position of the last step that has begun; -1 for none."""
        return np.searchsorted(self._starts, times, "right") - 1

    def position(self, times: Integers) -> Integers:
        """The position of the step that a moment lies in; -1 for none."""
        at = self.at_or_before(times)
        if not len(self._ends):
            return at
        return np.where((at >= 0) & (times < self._ends[at]), at, -1)


def _samples(
    rows: NDArray[np.void],
    names: Sequence[str],
    steps: tuple[Integers, Integers],
    ids: dict[int, str],
) -> tuple[Integers, list[str]]:
    """The sample of each phase, and the samples' ids. An id may be used again, by another sample.

    Args:
        rows: in order of their start.
        steps: the steps in which each phase begins and ends.
    """
    keys, sample = np.unique(rows["key"], return_inverse=True)
    sample = sample.reshape(-1)
    texts = [ids.get(key, f"{key:016x}") for key in keys.tolist()]
    order = np.argsort(sample, kind="stable")  # by sample, and in each by start
    bounds = np.flatnonzero(np.diff(sample[order], prepend=-1, append=-1))
    trained = names.index(TRAINED) if TRAINED in names else -1
    waiting = names.index(BUFFERED) if BUFFERED in names else -1
    lists = [rows[name][order].tolist() for name in ("phase", "end")]
    first_steps, last_steps = (of_edges[order].tolist() for of_edges in steps)
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if end - begin < 2:
            continue
        phases, ends = lists[0][begin:end], lists[1][begin:end]
        starts = rows["start"][order[begin:end]].tolist()
        edges = list(zip(first_steps[begin:end], last_steps[begin:end], strict=True))
        cuts = _cuts(phases, starts, ends, edges, trained, waiting)
        for first, after in pairwise([*cuts, end - begin]):
            sample[order[begin + first : begin + after]] = len(texts)
            texts.append(texts[sample[order[begin]]])
    return sample, texts


def _cuts(
    phases: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[tuple[int, int]],
    trained: int,
    buffered: int,
) -> list[int]:
    """The positions at which an id's phases, in order of their start, begin another sample.

    They do after the sample was trained; and where a phase that it has had comes again, in a later
    step than the one in which its other phases ended. A partial rollout is buffered meanwhile.
    """
    if len(set(phases)) == len(phases) and trained not in phases[:-1]:
        return []
    cuts = []
    seen: set[int] = set()
    last_step = -1
    trained_until: int | None = None
    latest = -1
    for position, (phase, start) in enumerate(zip(phases, starts, strict=True)):
        over = trained_until is not None and phase != trained and start >= trained_until
        again = (
            phase in seen
            and phase != trained
            and steps[position][0] > last_step
            and latest != buffered
        )
        if over or again:
            cuts.append(position)
            seen, trained_until, last_step = set(), None, -1
        seen.add(phase)
        last_step = max(last_step, steps[position][1])
        latest = phase
        if phase == trained:
            trained_until = max(trained_until or 0, ends[position])
    return cuts


def _extend(rows: NDArray[np.void], sample: Integers, lasting: Sequence[int]) -> None:
    """Let the phases of `LASTING` last until the sample's next phase."""
    if not lasting:
        return
    order = np.argsort(sample, kind="stable")
    same = np.flatnonzero(sample[order][1:] == sample[order][:-1])
    here, after = order[same], order[same + 1]
    chosen = np.isin(rows["phase"][here], lasting)
    here, after = here[chosen], after[chosen]
    rows["end"][here] = np.maximum(rows["end"][here], rows["start"][after])
    rows["ended"][here] = True
