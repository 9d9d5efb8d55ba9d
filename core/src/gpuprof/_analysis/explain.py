"""Why a step takes as long as it does: where the time goes, the critical path, and causes.

This module returns values only: `gpuprof._report.explain` writes the sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import attrs
import numpy as np

from gpuprof._analysis import causes, children, comparable, levels, odds, rollouts, stacks
from gpuprof._analysis.causes import Finding, Record, Unknown
from gpuprof._analysis.loop import EXPLAINED
from gpuprof._analysis.path import CALLS, Kind
from gpuprof._analysis.run import (
    OUTSIDE,
    Collective,
    Floats,
    Process,
    Run,
    by_name,
    imbalance,
    of_ranks,
)
from gpuprof._analysis.samples import Attribute, summarized
from gpuprof._analysis.scopes import spreads
from gpuprof._analysis.usage import Usage
from gpuprof._analysis.waits import ANYBODY, READS_DEVICE
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.runs import State
from gpuprof._artifacts.stacks import exist
from gpuprof._session.instruments.coroutines import AWAIT

_LEAST_LOST = 0.02
"""Share of a step that an unexplained part must have for gpuprof to suggest a remedy."""
_ON_PATH = 0.005
"""Share of a step from which a part counts as on the step's path."""
_LISTED = 10
_TREND = 1.2
"""The least ratio of the steps' times in the first and the last quarter of the run that counts as a
trend."""
_MOST_OF_IT = 0.5
"""Share of a trend from which a place has most of it."""
_LEAST_IN_QUARTER = 5
"""How many steps a quarter must have for a trend."""


@attrs.frozen
class Trend:
    """How long steps took, in seconds, in the first and in the last quarter of the run.

    If they changed at once, before that and from then on.

    Args:
        group: the group that the path spends most of the difference in; empty if nothing has half
            of it.
        scope: the place there.
        took: seconds of a step that the path spends there, in the first and in the last quarter.
        line: the line that takes longer there; ``None`` where samples do not tell.
        since: the number of the first step after a sudden change; ``None`` if it was steady.
    """

    first: float
    last: float
    group: str = ""
    scope: str = ""
    took: tuple[float, float] = (0.0, 0.0)
    line: stacks.Line | None = None
    since: int | None = None

    @property
    def is_up(self) -> bool:
        """Whether steps became longer."""
        return self.last > self.first


@attrs.frozen
class GroupTimes:
    """Where a group's time goes in the steps that count.

    Args:
        work: share of all workers' time that is spent in scopes that work.
        waits: share of their time in scopes that wait.
        outside: share of their time outside of all scopes; on Ray, mostly between two calls.
        imbalance: the most work of any rank divided by the mean of the ranks, in the median step.
        between_calls: share of their time in which a driver's workers wait for a call: outside of
            all scopes, and not in a call that lasts for nearly the whole run.
        scope: the place in which the group waits most; empty if it does not wait.
        waits_for: whom the group waits for in that place.
    """

    group: str
    workers: int
    work: float
    waits: float
    outside: float
    imbalance: float
    between_calls: float = 0.0
    scope: str = ""
    waits_for: str = ""

    @property
    def idle(self) -> float:
        """Share of their time in scopes that wait, and between two calls."""
        return self.waits + self.between_calls

    @property
    def elsewhere(self) -> float:
        """Share of their time in neither scopes nor waits."""
        return self.outside - self.between_calls


@attrs.frozen
class ScopeTimes:
    """How long a worker of a group spends in a scope per step, in all its calls together.

    Args:
        p50: the median over the workers and the steps that count, in seconds.
        p95: the 95th percentile, in seconds.
        bytes: the mean number of bytes that a worker handles there per step; ``None`` where that
            is not recorded.
    """

    group: str
    scope: str
    p50: float
    p95: float
    bytes: float | None = None


@attrs.frozen
class PathPart:
    """The time that the critical path of a step spends in a place of a worker.

    Args:
        steps: share of the steps that count in which this part is on the path.
    """

    worker: str
    scope: str
    kind: Kind
    seconds: float
    share: float
    steps: float


@attrs.frozen
class UsedInStep:
    """What a process used in a step, where that is known; see `gpuprof._analysis.usage.StepUsage`.

    Args:
        processors: how many processors all its threads together kept busy.
        ran: share of the step that its working thread ran.
        waited: share of the step that this thread, ready to run, waited for a processor.
    """

    worker: str
    processors: float
    ran: float
    waited: float
    resident: int
    read: int
    written: int
    faults: int


@attrs.frozen
class Path:
    """The critical path of a step.

    Args:
        others: how many shorter parts are left out.
        explained: share of the path that is explained.
        processes: what each process used in this step.
    """

    step: int
    why: str
    seconds: float
    parts: list[PathPart]
    others: int
    explained: float
    processes: list[UsedInStep]


@attrs.frozen
class KindOfStep:
    """What most ranks of a group do in some steps only, such as an evaluation.

    Args:
        scope: the path of the scope in which they do it.
        every: the period in steps; ``None`` if it is not regular.
        share: share of the run, by the steps' critical paths.
    """

    group: str
    scope: str
    steps: int
    every: int | None
    share: float


@attrs.frozen
class Share:
    """An activity's share of the critical paths of the steps that count."""

    worker: str
    group: str
    scope: str
    kind: Kind
    share: float


@attrs.frozen
class Remedy:
    """What to add to a job so that more of its path is explained.

    Args:
        waits_for: the group that the job waits for; empty if that is not known.
        gone: the workers whose ledgers lack their last calls.
    """

    kind: Literal[
        "timing", "scopes", "scopes and ray", "ray", "bytes_per_step", "no early end", "record all",
        "torch", "await", "profiler", "key",
    ]  # fmt: skip
    instruments: Sequence[str] = ()
    waits_for: str = ""
    gone: Sequence[str] = ()


@attrs.frozen
class Confidence:
    """How far the explanation can be trusted.

    Args:
        explained: the explained share of the critical paths of the steps that count.
        clock_bound: seconds by which the times of two processes may be off; ``None`` if unknown.
        disturbed: share of all steps that profiling disturbed.
        reason: why the explanation does not say what bounds a step; empty if it does.
        worker: the worker with the longest unexplained part of the path.
        seconds: the length of that part per step.
        remedy: what would explain that part; ``None`` if nothing is missing.
    """

    explained: float
    clock_bound: float | None
    disturbed: float
    reason: Unknown
    worker: str = ""
    scope: str = ""
    seconds: float = 0.0
    remedy: Remedy | None = None

    @property
    def enough(self) -> bool:
        """Whether the explanation says what bounds a step."""
        return not self.reason


@attrs.frozen
class Explanation:
    """What `explain` says about a run.

    Args:
        driver: the name of the process that drives the steps; empty if each rank has its own.
        started_groups: groups whose ranks another process of the run has started, so that no
            profiler can be put in front of them.
        steps: how many steps there are, and the numbers of those left out.
        seconds: durations of the steps that count: ``median``, ``mean``, ``least``, ``most`` and
            ``sum``; ``loop``: from the beginning of the first of them to the end of the last,
            without the steps that do not count; ``in_steps``: the share of the loop in steps.
        trend: set if steps became longer or shorter by a fifth, nearly steadily.
        attributes: numbers that the job gave of its steps, such as tokens.
        mfu: the share of the devices' peak that the steps computed; ``None`` if not known.
        never_ended: phases of samples that did not end: the sample's id, the phase, the worker.
        processes: what each process used of its machine, where that is known.
        paths: critical paths of chosen steps; empty if nothing was timed.
        bottleneck: the place in which a group works for most of the run; ``None`` without one, or
            if a finding saves much.
        overlapped: the place with most of the path, if the run would take nearly as long without.
        extra: for each finding, the line of code that takes most of the extra time; ``None`` where
            samples do not tell.
        lines: the lines of code that take most of the time in the places that bound steps.
        sampled: whether the stacks of any process were sampled; without them, no line is known.
        untimed: the processes whose scopes were switched off.
        uncounted: the processes that are in no group, because another process has their rank.
        ended_early: workers that were killed or crashed while the run went on.
        recognised: the places in which ranks appear to meet although no meeting was recorded.
        quiet: see `Run.quiet`, and so is `stall`.
        last_places: where processes were in that time, and which, if the run is over.
    """

    run: str
    driver: str
    launched: bool
    started_groups: frozenset[str]
    steps: dict[str, Any]
    seconds: dict[str, float]
    trend: Trend | None
    attributes: list[Attribute]
    mfu: float | None
    never_ended: list[tuple[str, str, str]]
    kinds: list[KindOfStep]
    groups: list[GroupTimes]
    scopes: list[ScopeTimes]
    processes: list[Usage]
    paths: list[Path]
    shares: list[Share]
    findings: list[Finding]
    bottleneck: Finding | None
    overlapped: Finding | None
    extra: list[stacks.Line | None]
    lines: list[stacks.Line]
    sampled: bool
    confidence: Confidence
    untimed: list[str]
    uncounted: list[str]
    ended_early: list[EarlyEnd]
    recognised: list[Collective]
    state: State
    quiet: float
    stall: str
    last_places: list[tuple[stacks.Place, list[str]]]
    problems: list[str]

    @property
    def slow_workers(self) -> list[str]:
        """The workers that are a cause, the most expensive first."""
        return [finding.worker for finding in self.findings if finding.cause in causes.OF_A_WORKER]


def explain(run: Run, step: int | None = None) -> Explanation:
    """Explain a run.

    Args:
        step: the number of the step whose path to show; ``None`` means the median step and the
            slowest step.
    """
    return Explainer(run).explain(step)


class Explainer:
    """Explains a run and the paths of its steps, sharing the work between calls."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.record = Record(run)

    def explain(self, number: int | None = None) -> Explanation:
        """Build the explanation; see `explain`."""
        run, record = self.run, self.record
        members = dict(run.groups)
        if run.driver is not None and not record.graph.blind:  # a blind one may wait in any scope
            members = {"Runner": [run.processes[run.driver]], **members}
        without_times = run.untimed | run.starters
        confidence = self._confidence()
        attributes, mfu = self._attributes()
        untimed_names = (run.processes[number].name for number in sorted(run.untimed))
        table = (*rollouts.FIRST, *causes.CAUSES, *rollouts.LAST, *children.CHILDREN)
        findings = causes.find(record, confidence.reason, table)
        bottleneck = causes.bottleneck(record, confidence.reason, findings)
        overlapped = None
        if bottleneck is None and not findings:
            overlapped = causes.overlapped(record, confidence.reason)
        trend = self._trend()
        grows = (trend.group, trend.scope) if trend is not None and trend.is_up else ("", "")
        extra, lines, line_of_trend, unreadable = stacks.find(record, findings, grows)
        if trend is not None:
            trend = attrs.evolve(trend, line=line_of_trend)
        return Explanation(
            run=run.name,
            driver="" if run.driver is None else run.processes[run.driver].name,
            launched=run.launched,
            started_groups=run.started_groups,
            steps=self._steps(),
            seconds={
                "median": record.median / 1e9,
                "mean": record.mean / 1e9,
                "least": float(record.durations.min()) / 1e9,
                "most": float(record.durations.max()) / 1e9,
                "sum": float(record.durations.sum()) / 1e9,
                "loop": record.loop / 1e9,
                "in_steps": record.in_steps,
            },
            trend=trend,
            attributes=attributes,
            mfu=mfu,
            never_ended=self._never_ended(),
            kinds=self._kinds(),
            groups=[
                self._times(group, with_times)
                for group, processes in members.items()
                if (with_times := [p for p in processes if p.number not in without_times])
            ],
            scopes=[
                ScopeTimes(
                    group, run.places[place].path, p50, p95, record.sizes.get((group, place))
                )
                for (group, place), (p50, p95) in spreads(run).items()
            ],
            processes=list(record.usage.values()),
            paths=[
                self.path(position, why)
                for position, why in self.chosen(number)
                if len(run.untimed) < len(run.processes)
            ],
            shares=self._shares(),
            findings=findings,
            bottleneck=bottleneck,
            overlapped=overlapped,
            extra=extra,
            lines=lines,
            sampled=any(exist(process.ledger) for process in run.processes),
            confidence=confidence,
            untimed=list(dict.fromkeys(untimed_names)),
            uncounted=[process.name for process in run.uncounted],
            ended_early=run.ended_early,
            recognised=run.recognised,
            state=run.state,
            quiet=run.quiet,
            stall=run.stall,
            last_places=stacks.last_places(run),
            problems=[*run.problems, *unreadable],
        )

    def _attributes(self) -> tuple[list[Attribute], float | None]:
        usual = self.run.usual
        attributes = {name: values[usual] for name, values in self.run.attributes.items()}
        return summarized(attributes, self.record.durations / 1e9)

    def _never_ended(self) -> list[tuple[str, str, str]]:
        run, samples = self.run, self.run.samples
        return [
            (
                samples.ids[samples.sample[at]],
                samples.names[samples.phase[at]],
                run.processes[samples.process[at]].name,
            )
            for at in np.flatnonzero(~samples.ended).tolist()
        ]

    # Steps

    def chosen(self, number: int | None = None) -> list[tuple[int, str]]:
        """The positions of the steps to show, and why each is shown."""
        record = self.record
        if number is not None:
            numbers = [step.number for step in self.run.steps]
            return [(numbers.index(number), "chosen")]
        middle = int(np.argmin(np.abs(record.durations - record.median)))
        slowest = int(np.argmax(record.durations))
        positions = [(record.usual[middle], "median")]
        if slowest != middle:
            positions.append((record.usual[slowest], "slowest"))
        return positions

    def _steps(self) -> dict[str, Any]:
        steps = self.run.steps
        return {
            "all": len(steps) + self.run.elsewhere,
            "other_workers": self.run.elsewhere,
            "round": self.run.round,
            "of_optimizer": self.run.of_optimizer,
            "in_a_burst": self.run.in_a_burst,
            "counted": len(self.record.usual),
            "left_out_seconds": sum(step.duration for step in steps if not step.usual) / 1e9,
            "warm_up": [step.number for step in steps if step.warm_up],
            "captured": [step.number for step in steps if step.captured],
            "disturbed": [step.number for step in steps if step.disturbed and not step.captured],
            "incomplete": [step.number for step in steps if not step.complete],
        }

    def _trend(self) -> Trend | None:
        durations = self.record.durations
        quarter = len(durations) // 4
        if quarter < _LEAST_IN_QUARTER:
            return None
        for direction in (1, -1):
            row = levels.higher_since(direction * np.log(durations.clip(1)))
            if row is not None:
                before, after = float(np.median(durations[:row])), float(np.median(durations[row:]))
                if max(before, after) >= _TREND * min(before, after):
                    since = self.run.steps[self.record.usual[row]].number
                    changed = self._changed(after - before, row)
                    return Trend(before / 1e9, after / 1e9, *changed, since=since)
        parts = [float(np.median(part)) for part in np.array_split(durations, 4)]
        changes = np.diff(parts)
        is_steady = bool((changes > 0).all() or (changes < 0).all())
        ratio = max(parts[0], parts[-1]) / max(1.0, min(parts[0], parts[-1]))
        if not is_steady or ratio < _TREND or levels.chance_of_trend(durations) >= odds.CERTAIN:
            return None
        return Trend(parts[0] / 1e9, parts[-1] / 1e9, *self._changed(parts[-1] - parts[0]))

    def _changed(
        self, change: float, row: int | None = None
    ) -> tuple[str, str, tuple[float, float]]:
        """The group and place on the path that have most of a change of the steps' nanoseconds.

        Args:
            row: of the first step that counts after a sudden change; ``None``: it was steady.
        """
        run, record = self.run, self.record
        quarter = len(record.sampled) // 4
        early, late = slice(quarter), slice(len(record.sampled) - quarter, None)
        if row is not None:
            since = int(np.searchsorted(record.sampled, record.usual[row]))
            early, late = slice(since), slice(since, None)
        length = float(np.mean([run.steps[position].duration for position in record.sampled]))
        times: dict[tuple[str, int], Floats] = {}
        for part, share in record.shares.items():
            number, place, _ = part
            if place == OUTSIDE or not record.is_open(part):
                where = run.processes[number].group, place
                times[where] = times.get(where, 0.0) + share * length
        ends = {
            where: (float(took[early].mean()), float(took[late].mean()))
            for where, took in times.items()
            if len(took[early]) and len(took[late])
        }
        most = max(ends, key=lambda at: (ends[at][1] - ends[at][0]) / change, default=None)
        if most is None or (ends[most][1] - ends[most][0]) / change < _MOST_OF_IT:
            return "", "", (0.0, 0.0)
        group, place = most
        number = next(process.number for process in run.processes if process.group == group)
        first, last = ends[most]
        return group, record.name(place, number), (first / 1e9, last / 1e9)

    def _kinds(self) -> list[KindOfStep]:
        """The kinds of steps that occur now and then."""
        record = self.record
        return [
            KindOfStep(
                self.run.processes[occasion.processes[0]].group,
                self.run.places[occasion.places[0]].path,
                len(occasion.rows),
                occasion.period(record),
                share,
            )
            for occasion in record.occasions.rare
            if occasion.is_kind(record) and occasion.places[0] != OUTSIDE
            if (share := self._on_path(occasion.places)) >= comparable.LEAST_SHARE
        ]

    def _on_path(self, places: Sequence[int]) -> float:
        """The share of the run that some places have on the paths: others may work beside them."""
        record, known = self.record, set(places)
        shares = (float(s.mean()) for (_, place, _), s in record.shares.items() if place in known)
        return sum(shares) * record.in_steps

    def _times(self, group: str, processes: Sequence[Process]) -> GroupTimes:
        run, usual = self.run, self.record.usual
        columns = [process.number for process in processes]
        lengths = run.lengths[np.ix_(usual, columns)]
        scope_times = run.tracked[np.ix_(usual, columns)]
        work = run.work(processes)[usual]
        whole = max(1.0, float(lengths.sum()))
        ranks = list(by_name(processes).values())
        scope, whom = self._most_waited(columns)
        waits = float((scope_times - work).clip(0).sum()) / whole
        is_called = [run.driver not in (None, c) and c not in run.in_one_call for c in columns]
        return GroupTimes(
            group,
            len(ranks),
            float(work.sum()) / whole,
            waits,
            float((lengths - scope_times).sum()) / whole,
            imbalance(of_ranks(work, ranks), of_ranks(lengths, ranks) > 0),
            float((lengths - scope_times)[:, is_called].sum()) / whole,
            scope if waits > 0 else "",
            whom if waits > 0 else "",
        )

    def _most_waited(self, columns: Sequence[int]) -> tuple[str, str]:
        places = range(len(self.run.places))
        processes = [self.run.processes[column] for column in columns]
        waits = (self.run.matrix("waiting", place, processes) for place in places)
        sums = np.array([float(times[self.record.usual].sum()) for times in waits])
        if not sums.any():
            return "", ""
        # a library may wait in a scope of its own: `DataLoader.next` says more than `queue.get`
        outermost = np.arange(len(sums))
        for number, place in enumerate(self.run.places):  # a parent stands before its children
            if place.parent >= 0 and self.run.waiting_places[place.parent]:
                outermost[number] = outermost[place.parent]
        place = self.run.places[int(np.argmax(np.bincount(outermost, sums)))]
        return place.name, place.waits_for or ""

    # The critical path

    @property
    def group(self) -> str:
        """The worker group with the largest share of all paths; empty if no worker is on them."""
        sums: dict[str, float] = {}
        for (process, _, _), share in self.record.shares.items():
            if process != self.run.driver:
                group = self.run.processes[process].group
                sums[group] = sums.get(group, 0.0) + float(share.mean())
        return max(sums, key=sums.__getitem__, default="")

    def _shares(self) -> list[Share]:
        processes = self.run.processes
        return [
            Share(
                processes[number].name,
                processes[number].group,
                self.record.name(place, number),
                kind,
                float(share.mean()),
            )
            for (number, place, kind), share in self.record.shares.items()
        ]

    def path(self, position: int, why: str) -> Path:
        """The critical path of a step, summed up by place. `why` says why the step was chosen."""
        step, record = self.run.steps[position], self.record
        sums = record.times(position)
        places = {(number, place) for number, place, _ in sums}
        counts = Counter((number, record.name(place, number)) for number, place in places)
        parts = []
        for key, length in sorted(sums.items(), key=lambda item: -item[1]):
            number, place, kind = key
            name = record.name(place, number)
            if counts[number, name] > 1:
                name = "/".join(self.run.places[place].path.split("/")[-2:])
            on_path = record.shares.get(key)
            parts.append(
                PathPart(
                    self.run.processes[number].name,
                    name,
                    kind,
                    length / 1e9,
                    length / max(1, step.duration),
                    0.0 if on_path is None else float((on_path >= _ON_PATH).mean()),
                )
            )
        loss = sum(sums[key] for key in sums if record.is_open(key))
        return Path(
            step.number,
            why,
            step.duration / 1e9,
            parts[:_LISTED],
            max(0, len(parts) - _LISTED),
            1 - loss / max(1, step.duration),
            self._used_in(position),
        )

    def _used_in(self, position: int) -> list[UsedInStep]:
        used = []
        for number, usage in self.record.usage_by_step.items():
            starts, ends = self.run.step_edges(self.run.processes[number])
            length = max(1, int(ends[position] - starts[position]))
            used.append(
                UsedInStep(
                    worker=self.run.processes[number].name,
                    processors=float(usage.processor[position]) / length,
                    ran=min(1.0, float(usage.ran[position]) / length),
                    waited=min(1.0, float(usage.ready[position]) / length),
                    resident=round(usage.resident[position]),
                    read=round(usage.read[position]),
                    written=round(usage.written[position]),
                    faults=round(usage.faults[position]),
                )
            )
        return used

    # Confidence

    def _confidence(self) -> Confidence:
        run, record = self.run, self.record
        losses = record.open_shares
        explained_share = 1 - sum(losses.values())
        reason: Unknown = ""
        if explained_share < EXPLAINED:
            reason = "untimed" if run.untimed else "unexplained"
        elif run.bound is not None and run.bound > 0.5 * record.median:
            reason = "clocks"
        confidence = Confidence(
            explained_share,
            None if run.bound is None else run.bound / 1e9,
            sum(step.disturbed for step in run.steps) / max(1, len(run.steps)),
            reason,
        )
        worst = max(losses, key=losses.__getitem__, default=None)
        if worst is None or losses[worst] < _LEAST_LOST:
            return confidence
        number, place, _ = worst
        return attrs.evolve(
            confidence,
            worker=run.processes[number].name,
            scope=record.name(place),
            seconds=losses[worst] * record.mean / 1e9,
            remedy=self._remedy(run.processes[number], place),
        )

    def _remedy(self, process: Process, place: int) -> Remedy | None:
        """What to add to explain a part of a path; ``None`` if nothing is missing."""
        run = self.run
        can_show_calls = run.driver is not None and "ray" not in run.instruments
        with_ray = sorted({*run.instruments, "ray"})
        if process.number in run.untimed:
            return Remedy("timing")
        if place == OUTSIDE:
            return Remedy("scopes and ray", with_ray) if can_show_calls else Remedy("scopes")
        name = run.places[place].name
        if process.number == run.driver and can_show_calls:
            return Remedy("ray", with_ray)
        if any(event["event"] == "thinned" for event in process.ledger.events):
            return Remedy("bytes_per_step")
        if name in CALLS and run.gone:
            names = sorted({run.processes[number].name for number in run.gone})
            return Remedy("no early end", gone=names)
        if name in CALLS and name.startswith("ray."):
            return None if run.launched else Remedy("record all")
        if name.startswith("torch.") and "torch" not in run.instruments:
            return Remedy("torch", sorted({*run.instruments, "torch"}))
        if name == AWAIT:
            return Remedy("await")
        if READS_DEVICE.search(name.lower()):
            return Remedy("profiler")
        whom = run.places[place].waits_for
        return Remedy("key", waits_for="" if whom in (None, ANYBODY) else str(whom))
