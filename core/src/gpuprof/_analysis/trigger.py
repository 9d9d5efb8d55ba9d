"""Which rank of a running job is worth a capture: one that became slow, or one that is slow.

The first is told by `gpuprof._analysis.onset` within a few steps, the second by `gpuprof explain`'s
test: it needs more steps, but none before.

Both tests are repeated while the job runs. So chance must be rarer than for an answer that is given
once, the rank must have been slow for some time, and it must cost more: a capture costs time, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
import numpy as np

from gpuprof._analysis import comparable, onset, stragglers
from gpuprof._analysis.live import written
from gpuprof._analysis.onset import OFTEN, TO_NORMAL
from gpuprof._analysis.run import Floats, Run
from gpuprof._analysis.stragglers import ALL, Straggler

STEPS, SECONDS = 128, 8.0
"""How many of the last steps to look at, or those of so many seconds if there are more."""
_WORTH = 0.1
"""Share of a step by which a rank that became slow must exceed the slowest of the others."""
_WORTH_ALL_ALONG = 0.15
"""The same of a rank that is slow: equal ranks wander, and nothing tells how much they do."""
_LASTING = 2e9
"""Nanoseconds for which a rank must have been slow: one that lacked a processor for a moment will
be as fast as the others before a profiler looks."""
_LATEST = (32, 24, 20, 16, 12)
"""How many of the last steps `gpuprof explain`'s test is about, or those of `_LASTING` if there are
more. Few show sooner that a rank became slow, more that it is slow by less."""
_FEW = 20
"""Steps below which a rank must be the slowest in each one of them."""
_BY_CHANCE = 1e-5
"""The corrected probability of chance below which a rank is slow. With a look every second, chance
gets there once a day at most, even if each look were about other steps; the rank must also be the
slowest in most steps, by much."""
_STEADY = 3.0
"""By how many of its standard deviations a rank must be slower than a single other one, in the
median step; with more ranks, by so many divided by their number. On a busy machine either of two
ranks may be slower for a minute, but one of many is not always the same.
"""


@attrs.frozen
class Suspect:
    """A rank to capture, and a healthy one to compare it with.

    Args:
        peers: how many ranks it was compared with.
        scope: where it is slow; empty for several scopes.
        slowest: in how many steps it was the slowest.
        seconds: by how much it exceeds the others' median per step.
        ratio: its time divided by the others' median.
    """

    group: str
    worker: str
    rank: int
    peer: str
    peer_rank: int
    peers: int
    scope: str
    slowest: int
    steps: int
    seconds: float
    ratio: float


def suspect(run: Run, since: int = 0, known: Collection[str] = ()) -> Suspect | None:
    """The rank that is slower than the others of its group now, if any is.

    Marks all but the examined steps as warm-up.

    Args:
        since: a time of the run in nanoseconds; steps that began earlier do not count.
        known: names of ranks that are known to be slow.
    """
    positions = [position for position in written(run) if run.steps[position].start >= since]
    if not positions:
        return None
    _keep(run, positions)
    stragglers_now = [_became_slow(run, group, known) for group in run.groups]
    for least in _LATEST:
        latest = _last(run, positions, least)
        if not latest:
            break
        _keep(run, latest)
        step = float(np.mean([run.steps[position].duration for position in latest]))
        stragglers_now += [one for one in stragglers.find(run) if _is_slow(run, one, step)]
    suspects = (_described(run, straggler) for straggler in stragglers_now if straggler)
    return next((suspect for suspect in suspects if suspect.worker not in known), None)


def _keep(run: Run, positions: Collection[int]) -> None:
    """Mark all other steps as warm-up."""
    kept = set(positions)
    for position in run.usual:
        if position not in kept:
            run.steps[position] = attrs.evolve(run.steps[position], warm_up=True)


def _last(run: Run, positions: Sequence[int], least: int) -> Sequence[int]:
    """The last of some steps, so many or more that take `_LASTING`; empty if all take less."""
    since = run.steps[positions[-1]].end - _LASTING
    before = [at for at in positions if run.steps[at].start <= since]
    return positions[max(0, min(len(before) - 1, len(positions) - least)) :] if before else []


def _became_slow(run: Run, group: str, known: Collection[str]) -> Straggler | None:
    """The rank of a group that became slow, and the steps that show it."""
    workers, by_place = comparable.members(run, group), comparable.steady_work(run, group)
    columns = [column for column, name in enumerate(workers) if name not in known]
    if not by_place or len(columns) < 2:
        return None
    usual = run.usual
    durations = np.array([run.steps[position].duration for position in usual], float)
    work: Floats = np.sum(list(by_place.values()), axis=0)
    rise = onset.find(work[np.ix_(usual, columns)], durations, _LASTING, _WORTH)
    if rise is None:
        return None
    column, latest = columns[rise.rank], usual[-rise.steps :]
    name, processes = list(workers.items())[column]
    slow = Straggler(
        "rank", group, (name,), tuple(process.number for process in processes), ALL, 0, len(latest),
        0.0, *_compared(work[latest], column),
    )  # fmt: skip
    place = stragglers.located(run, slow, latest).place
    own, others, most = _compared(by_place.get(place, work)[latest], column)
    slowest = int((own > most).sum())
    return attrs.evolve(slow, place=place, slowest=slowest, own=own, others=others, most=most)


def _compared(times: Floats, column: int) -> tuple[Floats, Floats, Floats]:
    """The times of a rank by step, and the median and the most of the others'."""
    others = np.delete(times, column, axis=1)
    return times[:, column], np.median(others, axis=1), others.max(axis=1)


def _is_slow(run: Run, straggler: Straggler, step: float) -> bool:
    """Whether a straggler is certain enough, and costs enough of a step, to be captured."""
    leads = np.log(straggler.own.clip(1) / straggler.most.clip(1))
    lead = float(np.median(leads))
    spread = TO_NORMAL * float(np.median(np.abs(leads - lead)))
    others = len(comparable.members(run, straggler.group)) - 1
    least = 1.0 if straggler.steps < _FEW else OFTEN
    # of half of the ranks, nobody knows which half is slow
    are_few = len(straggler.names) == 1 or 2 * len(straggler.names) <= others
    return (
        straggler.kind in ("rank", "node", "drift")
        and are_few
        and straggler.probability <= _BY_CHANCE
        and straggler.gain >= _WORTH_ALL_ALONG * step
        and straggler.slowest >= least * straggler.steps
        and lead >= _STEADY * spread / others
    )


def _described(run: Run, straggler: Straggler) -> Suspect:
    ranks = comparable.members(run, straggler.group)
    work = dict(
        zip(ranks, comparable.shared_work(run, straggler.group)[run.usual].mean(0), strict=True)
    )
    slow = {run.processes[number].name for number in straggler.processes}
    worker = max(slow & ranks.keys(), key=work.__getitem__)
    others = [name for name in ranks if name not in slow]
    usual = float(np.median([work[name] for name in others]))
    peer = min(others, key=lambda name: abs(work[name] - usual))
    return Suspect(
        straggler.group,
        worker,
        ranks[worker][0].rank,
        peer,
        ranks[peer][0].rank,
        len(others),
        "" if straggler.place == ALL else run.places[straggler.place].name,
        straggler.slowest,
        straggler.steps,
        straggler.excess / 1e9,
        straggler.ratio,
    )
