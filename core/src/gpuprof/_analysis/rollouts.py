"""What slows the samples of an RL run: rows for the table of causes.

A worker holds several samples at once. It ends its round with the last of them, or begins another
sample whenever one ends. Each cause asks how time would pass in the workers if some phases of
samples were shorter. Where workers work in rounds, the critical path tells what that is worth.
Beside training, the samples tell: a batch waits until as many have come as it needs. So samples in
flight that nobody waits for cost nothing, however long they take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.causes import (
    SYNC_NAMES,
    Cause,
    Doubt,
    Finding,
    Name,
    Record,
    Suspect,
    nothing,
)
from gpuprof._analysis.path import Clocks
from gpuprof._analysis.samples import BUFFERED, GENERATE, LASTING, TRAINED
from gpuprof._analysis.stays import OfSamples, Stays, noted

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_TAILS = (0.05, 0.03, 0.01)
"""Shares of the samples that may be the tail."""
_NEARLY_ALL = 0.7
"""Share of what the largest tail costs that a smaller one must cost to be the tail."""
_LEAST_SAMPLES = 8
"""Samples that a step needs to have a tail."""
_BY_TOKENS = 0.9
"""Correlation of workers' times with what their tokens take from which tokens are the reason."""
_LEAST_STEPS = 3
_ROUNDS = 0.5
"""Rounds per step from which workers work in rounds."""
_UNEVEN = 1.1
"""How many times the workers' mean the most tokens of a worker must be, in the median step."""
_BESIDE = 0.1
"""Share of the time of training in which samples must be in flight, to be generated beside it."""
_EXPLAINED = 0.7
"""Share of what infinitely fast rollouts would save that a finding must save to be the reason."""
_IDLE = 0.2
"""Share of the rollouts' slots that must be empty until a batch is trained, to be held up."""
_LEAST_LOST = 0.02
"""Share of the work on samples that must be lost to be a cause."""
_BEHIND = 4.0
"""Versions by which the median sample must be behind the trainer's to be mentioned."""


def tail(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """The longest samples of workers that end all their samples before they begin more."""
    stays, steps = record.stays, record.usual
    counts = np.bincount(stays.step[stays.step >= 0], minlength=len(record.run.steps))[steps]
    if np.median(counts) < _LEAST_SAMPLES or stays.rounds < _ROUNDS * len(record.run.steps):
        return
    in_tokens = bool(np.median(stays.tokens) > 0)
    sizes = stays.tokens if in_tokens else stays.lengths / 1e9
    order = np.argsort(sizes)
    so_far = np.cumsum(stays.weight[order])
    tails = []
    for part in _TAILS:
        longest = sizes[order][np.searchsorted(so_far, (1 - part) * so_far[-1])]
        limit = float(f"{longest:.1e}")  # two digits, as people would set it
        shorter = stays.until(limit) if in_tokens else np.minimum(stays.lengths, 1e9 * limit)
        clocks = _by_rounds(stays.clocks(shorter))
        tails.append((record.saves(lambda _: {}, clocks=clocks), part, limit, clocks))
    most = max(saves for saves, _part, _limit, _clocks in tails)
    if most <= 0:
        return
    # the fewest samples that cost nearly as much
    part, limit, clocks = min(
        (tail[1:] for tail in tails if tail[0] >= _NEARLY_ALL * most), key=lambda tail: tail[0]
    )
    held, waiting = _last_samples(record, stays, part)
    yield _suspect(
        record,
        "tail",
        clocks,
        held,
        OfSamples(
            limit=limit,
            unit="tokens" if in_tokens else "seconds",
            part=part,
            held=held / record.loop,
            waiting=waiting,
        ),
    )


def _last_samples(record: Record, stays: Stays, part: float) -> tuple[float, tuple[str, float]]:
    """For how many nanoseconds the last samples of steps held the workers, and what they waited in.

    Args:
        part: the share of a step's samples that are the last ones.

    Returns:
        The second is a phase other than generating, and its share of the last samples' time.
    """
    samples, held, whole = stays.samples, 0.0, 0.0
    times = np.zeros(len(samples.names))
    step_of_row = np.where(stays.rows >= 0, stays.step[stays.rows], -1)
    for step in record.usual:
        mine = np.flatnonzero(stays.step == step)
        mine = mine[np.argsort(stays.end[mine], kind="stable")]
        count = max(1, round(part * len(mine)))
        if len(mine) > count:
            begin, end = stays.end[mine[-count - 1]], stays.end[mine[-1]]
            held += float(end - begin)
            whole += float((stays.end[mine[-count:]] - begin).sum())
            rows = np.flatnonzero(step_of_row == step)
            rows = rows[np.isin(stays.rows[rows], mine[-count:])]
            inside = samples.end[rows].clip(begin, end) - samples.start[rows].clip(begin, end)
            times += np.bincount(samples.phase[rows], inside, len(samples.names))
    times[[name == GENERATE for name in samples.names]] = 0.0  # a tool may be called inside of it
    most = int(times.argmax())
    share = float(times[most]) / max(1.0, whole)
    return held, (samples.names[most], share) if share > 0 else ("", 0.0)


def waits(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """Phases other than generating: samples wait for a tool, or for their reward."""
    stays = record.stays
    samples = stays.samples
    for phase in samples.names:
        rows = samples.of(phase) & samples.ended
        known = phase in (GENERATE, TRAINED, *LASTING) or SYNC_NAMES.search(phase.lower())
        if not known and rows.any():
            shorter = stays.without(phase)
            elsewhere = Stays.of(record.run, phase)  # as in workers that only score
            clocks = elsewhere.clocks(np.zeros(len(elsewhere))) | stays.clocks(shorter)
            took = (samples.end - samples.start)[rows] / 1e9
            share = float(1 - shorter.sum() / max(1.0, stays.lengths.sum()))
            yield _suspect(
                record,
                "sample wait",
                clocks,
                share * record.loop,
                OfSamples(
                    phase=phase,
                    part=len(np.unique(samples.sample[rows])) / len(samples.ids),
                    work=share,
                    seconds=(float(np.median(took)), float(np.quantile(took, 0.95))),
                ),
            )


def uneven(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """Workers of a group that take longer in a step as they have more tokens than the others."""
    run, stays = record.run, record.stays
    in_rounds = len(stays) > 0 and stays.rounds >= _ROUNDS * len(run.steps) and not stays.thinned
    for group, processes in run.groups.items() if in_rounds else ():
        numbers = [process.number for process in processes if process.number in stays.workers]
        mine = np.isin(stays.process, numbers) & (stays.tokens > 0)
        totals, periods, times, paces = [], [], [], []
        for step in record.usual:
            of_step = np.flatnonzero(mine & (stays.step == step))
            if len(numbers) > 1 and len(np.unique(stays.process[of_step])) == len(numbers):
                parts = [of_step[stays.process[of_step] == number] for number in numbers]
                totals.append([stays.tokens[part].sum() for part in parts])
                periods.append([(stays.start[part].min(), stays.end[part].max()) for part in parts])
                times.append(_dealt(stays, parts))
                paces.append([stays.pace(number, step) for number in numbers])
        if len(totals) < _LEAST_STEPS:
            continue
        tokens = np.array(totals)
        most = float(np.median(tokens.max(axis=1) / tokens.mean(axis=1)))
        if most >= _UNEVEN:
            edges, took = np.array(periods, float), np.array(times)
            usual, lasted = took[:, 0], np.diff(edges)[:, :, 0]
            gains = (usual - took[:, 1]) * np.array(paces)
            by_tokens = _correlation(usual, lasted)
            clocks = {
                number: _gaining(edges[:, column], gains[:, column])
                for column, number in enumerate(numbers)
            }
            always = tokens.sum(axis=0) / tokens.sum(axis=0).mean()
            heavy = [numbers[at] for at in np.argsort(-always) if always[at] >= _UNEVEN]
            suspect = _suspect(
                record,
                "uneven tokens",
                clocks,
                float(gains.max(axis=1).sum()),
                OfSamples(most=most),
                group,
                heavy,
            )
            # some have more to do then, and lose time
            doubt: Doubt = "tokens" if by_tokens < _BY_TOKENS else ""
            yield attrs.evolve(suspect, clocks=clocks, doubt=doubt)


def _correlation(one: Floats, other: Floats) -> float:
    spread = one.std() * other.std()
    return float(((one - one.mean()) * (other - other.mean())).mean() / spread) if spread else 0.0


def _dealt(stays: Stays, hands: Sequence[Integers]) -> tuple[Floats, Floats]:
    """How long workers take by their tokens, and would if samples were dealt out evenly.

    That is the longest first, each to the worker with the fewest tokens so far. Who had most has
    most again.

    Args:
        hands: the stays of each worker in a step.
    """
    alone, each = stays.of_a_token
    # a worker takes as long as its longest sample, and longer by all its tokens
    usual = np.array(
        [alone * stays.tokens[hand].max() + each * stays.tokens[hand].sum() for hand in hands]
    )
    most = -(-sum(map(len, hands)) // len(hands))
    heap = [(0.0, 0, number) for number in range(len(hands))]
    even = np.zeros(len(hands))
    for tokens in sorted(np.concatenate([stays.tokens[hand] for hand in hands]), reverse=True):
        total, count, number = heappop(heap)
        even[number] += (0.0 if count else alone * tokens) + each * tokens
        if count + 1 < most:
            heappush(heap, (total + tokens, count + 1, number))
    in_order = np.zeros(len(hands))
    in_order[np.argsort(usual)] = np.sort(even)
    return usual, in_order


def _gaining(periods: Floats, gains: Floats) -> tuple[Floats, Floats]:
    """A clock that gains so much in each of some periods."""
    gained = np.cumsum(np.stack([np.zeros(len(gains)), gains], axis=1).ravel())
    return periods.ravel(), periods.ravel() - gained


# Rollouts beside training


def _is_beside(record: Record) -> bool:
    """Whether samples are generated while others are trained."""
    stays, samples = record.stays, record.run.samples
    trained = samples.of(TRAINED) & samples.ended
    trainers = set(samples.process[trained].tolist())
    if not trained.any() or not len(stays) or trainers & stays.workers.keys():
        return False
    times = np.concatenate([stays.start, stays.end])
    order = np.argsort(times, kind="stable")
    in_flight = np.cumsum(np.repeat([1, -1], len(stays))[order])
    # so far, for how long any sample was in flight
    so_far = np.concatenate([[0.0], np.cumsum(np.diff(times[order]) * (in_flight[:-1] > 0))])
    busy = np.interp([samples.start[trained], samples.end[trained]], times[order], so_far)
    took = (samples.end - samples.start)[trained].sum()
    return bool((busy[1] - busy[0]).sum() >= _BESIDE * took)


def lost(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """Samples that were never trained, although later ones were."""
    stays, samples = record.stays, record.run.samples
    trained = samples.of(TRAINED)
    if not _is_beside(record) or stays.thinned:
        return
    used = np.isin(stays.sample, samples.sample[trained])
    last = samples.start[trained].max()
    latest = samples.sample[trained & (samples.start >= last - record.mean)]
    # later ones may have been in the buffer as the run ended
    over = stays.end < stays.end[np.isin(stays.sample, latest)].min(initial=last)
    share = float(stays.lengths[over & ~used].sum() / max(1.0, stays.lengths[over].sum()))
    if share >= _LEAST_LOST:
        yield _suspect(
            record,
            "stale samples",
            stays.clocks((1 - share) * stays.lengths),
            share * record.loop,
            OfSamples(
                phase=TRAINED,
                part=float((over & ~used).sum() / over.sum()),
                work=share,
                behind=_behind(record),
            ),
        )


def old(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Samples whose weights are much older than the trainer's, which costs no time."""
    behind = _behind(record)
    if behind[0] >= _BEHIND and all(finding.cause != "stale samples" for finding in findings):
        about = OfSamples(phase=TRAINED, behind=behind)
        suspect = _suspect(record, "stale samples", {}, 0.0, about)
        yield attrs.evolve(suspect, finding=attrs.evolve(suspect.finding, saves=0.0))


def _behind(record: Record) -> tuple[float, float]:
    """By how many versions samples were begun before the trainer's: the median, and the most."""
    samples = record.run.samples
    version = noted(samples, "version")
    oldest = np.full(len(samples.ids), np.inf)
    made = samples.of(GENERATE) & ~np.isnan(version)
    np.minimum.at(oldest, samples.sample[made], version[made])
    trained = samples.of(TRAINED) & ~np.isnan(version)
    behind = version[trained] - oldest[samples.sample[trained]]
    behind = behind[np.isfinite(behind)]
    return (float(np.median(behind)), float(behind.max())) if len(behind) else (0.0, 0.0)


def full_buffer(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """A trainer that rollouts wait for with empty slots while samples are in a buffer."""
    run, stays, samples = record.run, record.stays, record.run.samples
    buffered = samples.of(BUFFERED) & samples.ended
    if not buffered.any() or not _is_beside(record) or stays.thinned:
        return
    idle = float(np.mean([stays.held(number) for number in stays.workers]))
    if idle >= _IDLE:
        group = _trainers(record)
        numbers = [process.number for process in run.groups.get(group, [])]
        clocks = {number: stays.if_never_held(number) for number in stays.workers}
        waited = (samples.end - samples.start)[buffered] / 1e9
        suspect = _suspect(
            record,
            "full buffer",
            clocks,
            idle * record.loop,
            OfSamples(
                phase=BUFFERED,
                idle=idle,
                seconds=(float(np.median(waited)), float(np.quantile(waited, 0.95))),
            ),
            group,
            numbers,
        )
        yield attrs.evolve(suspect, saves=stays.saves(clocks, training=0.5))


def starved(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """A trainer that waits for samples although they are generated beside it.

    Only if no other finding is the reason.
    """
    stays = record.stays
    if _is_beside(record):
        clocks = stays.clocks(np.zeros(len(stays)))
        saves = stays.saves(clocks)
        known = max((finding.saves or 0.0 for finding in findings), default=0.0)
        if known < _EXPLAINED * saves:
            yield _suspect(
                record,
                "starved trainer",
                clocks,
                saves * record.loop,
                OfSamples(),
                _trainers(record),
            )


def _trainers(record: Record) -> str:
    """The group that trains most samples."""
    samples = record.run.samples
    most = int(np.bincount(samples.process[samples.of(TRAINED)]).argmax())
    return record.run.processes[most].group


def _suspect(
    record: Record,
    cause: Name,
    clocks: Clocks,
    cost: float,
    about: OfSamples,
    group: str = "",
    workers: Sequence[int] = (),
) -> Suspect:
    """A suspect from its total cost in nanoseconds.

    Args:
        group: the group that it is about; empty for the one that generates most samples.
        workers: the processes that it is about, if it is not the whole group.
    """
    run, steps = record.run, len(record.usual)
    names = [run.processes[number].name for number in workers]
    if not group:
        processes = record.stays.process if len(record.stays) else run.samples.process
        group = run.processes[int(np.bincount(processes).argmax())].group
    finding = Finding(
        cause=cause,
        worker=names[0] if names else "",
        workers=names,
        group=group,
        scope=about.phase,
        share=cost / record.loop,
        seconds=cost / 1e9 / steps,
        steps=steps,
        of=steps,
        samples=about,
    )
    # beside training, samples tell better than the path which of them the trainer waited for
    if _is_beside(record):
        return Suspect(finding=finding, clocks=clocks, saves=record.stays.saves(clocks))
    return Suspect(finding=finding, clocks=_by_rounds(clocks))


def _by_rounds(clocks: Clocks) -> Clocks:
    """The same clocks, where a worker gains no time in a round that it has not gained by its end.

    Whoever waits for a round waits for its last sample. Earlier ones may end much sooner, but what
    the path has of them may not: to lose that time again would make the round longer.
    """
    return {
        process: (before, before - np.minimum.accumulate((before - after)[::-1])[::-1])
        for process, (before, after) in clocks.items()
    }


FIRST: Sequence[Cause] = (
    Cause(tail, nothing, 0.03, "large"),
    Cause(waits, nothing, 0.1, "large"),
    Cause(uneven, nothing, 0.03, "large"),
    Cause(lost, nothing, 0.03, "large"),
    Cause(old, None, 0.0, "hint"),
    Cause(full_buffer, nothing, 0.05, "large"),
)
"""Causes to look for before all others: who is slow, or has more to do, may follow from them."""
LAST: Sequence[Cause] = (Cause(starved, nothing, 0.05, "large"),)
"""Causes to look for after all others."""
