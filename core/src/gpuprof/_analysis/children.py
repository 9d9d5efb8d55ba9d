"""Which of a process's children holds it up, told by their sampled stacks: a row for the causes.

Children may talk to their parent over what nothing records, as shared memory or a socket. But their
stacks tell when they work and when they wait for a command, and those of the parent that it waits
for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from gpuprof._analysis.causes import Cause, Facts, Finding, Record, Suspect, nothing
from gpuprof._analysis.loop import EXPLAINED, NAMES
from gpuprof._analysis.run import OUTSIDE, Process
from gpuprof._analysis.stacks import Code

_LEAST_CHILDREN = 3
"""Of two, nothing tells which one is as it should be."""
_LEAST_SAMPLES = 40
"""Samples of each child, for its share of work to be off by a fifth at most."""
_LEAST_LEAD = 0.1
"""Share of the time that the busiest child must work longer than the next one."""
_DEVIATIONS = 4.0
"""Standard deviations that it must work longer."""
_LEAST_WAIT = 0.3
"""Share of the time that the parent must wait for others."""


@attrs.frozen
class _Time:
    """How a process spends its time in steps, by its samples.

    Args:
        works: the share of its time in no scope in which it waits for nobody.
        waits: the share of the steps in which it waits for others, in no scope.
        samples: how many samples tell.
    """

    works: float
    waits: float
    samples: int

    @property
    def variance(self) -> float:
        """Of the share, if each sample came by itself."""
        return self.works * (1 - self.works) / self.samples


def busiest(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """The child that works longest, if its parent waits for much of what is not explained."""
    run = record.run
    if sum(record.open_shares.values()) <= 1 - EXPLAINED:
        return
    parents = [run.processes[number] for number in run.edges] or [
        process for process in run.processes if process.number == run.driver
    ]
    if len(parents) != 1:
        return
    groups = [
        members
        for members in run.groups.values()
        if len(members) >= _LEAST_CHILDREN and not any(map(_has_scopes, members))
    ]
    code = Code(record)
    parent = _time(code, parents[0]) if groups else None
    if parent is None or parent.waits < _LEAST_WAIT:
        return
    for members in groups:
        times = [_time(code, member) for member in members]
        known = [time for time in times if time is not None]
        if len(known) < len(members):
            continue
        works = np.array([time.works for time in known])
        order = np.argsort(-works)
        first, second = (known[at] for at in order[:2])
        lead, usual = first.works - second.works, float(np.median(works[order[1:]]))
        spread = second.works - float(works.min())
        sure = lead >= _DEVIATIONS * (first.variance + second.variance) ** 0.5
        if not sure or lead < max(_LEAST_LEAD, spread):
            continue
        slow = members[order[0]]
        more = min(first.works - usual, parent.waits)
        count = len(record.usual)
        yield Suspect(
            finding=Finding(
                cause="rank",
                worker=slow.name,
                workers=[slow.name],
                group=slow.group,
                scope=NAMES[OUTSIDE],
                share=more * record.in_steps,
                seconds=more * record.mean / 1e9,
                steps=count,
                of=count,
                ratio=first.works / usual if usual else None,
                facts=Facts(worked=(first.works, usual), parent=parents[0].name),
            ),
            saves=more * record.in_steps,
            doubt="path",
            known=True,
        )


def _has_scopes(process: Process) -> bool:
    return bool(len(process.ledger.spans) or len(process.ledger.folds))


def _time(code: Code, process: Process) -> _Time | None:
    """How a process spends its time in steps; ``None`` without enough samples."""
    folded = code.outside(process)
    if folded is None or folded.samples < _LEAST_SAMPLES:
        return None
    works = folded.working().total / folded.total
    steps = sum(code.durations) / 1e9 / folded.steps
    return _Time(works, min(1.0, (1 - works) * folded.total / steps), folded.samples)


CHILDREN: Sequence[Cause] = (Cause(busiest, nothing, 0.05, "hint", blind=True),)
