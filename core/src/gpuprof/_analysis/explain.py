"""Why a step takes as long as it does: shares, the critical path, causes, and what would help."""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import attrs
from gpuprof_timing.recording import TIMING_VARIABLE

from gpuprof._analysis import stragglers
from gpuprof._analysis.heat import sizes, spreads
from gpuprof._analysis.path import CALLS, OUTSIDE, Call, Factors, Graph, Kind, Stretch, Window
from gpuprof._analysis.rhythm import most_called
from gpuprof._analysis.run import Collective, Process, Run, by_name, collected, imbalance, of_ranks
from gpuprof._analysis.stragglers import ALL, BEFORE, Straggler
from gpuprof._analysis.waits import ANYBODY, DATA, READS_DEVICE
from gpuprof._artifacts.early_ends import listed
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._session.instruments.coroutines import AWAIT
from gpuprof.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

JSON_VERSION = 1
EXPLAINED = 0.7
"""Of a path, what must be explained before it is said what bounds a step."""
Cause = Literal[
    "rank", "node", "late start", "pauses", "garbage collection", "driver", "data",
    "synchronisation", "between steps", "recurring", "once", "drift",
    "imbalance", "only this rank", "server",
]  # fmt: skip

_SHARED: Mapping[Cause, float] = {"driver": 0.1, "data": 0.05, "synchronisation": 0.1}
"""Of a run, what must be saved without something that all ranks share, for it to be a cause."""
_SYNC_NAMES = re.compile(r"(?<!a)sync|weight|broadcast|all_?reduce|barrier")
"""Not `asyncio.sleep`."""
_SLOW = 1.5
"""How many times the median a step must take to be slow."""
_BETWEEN = 0.05
"""Of a run, from which the time between steps is a cause."""
_LEAST_ONCE = 0.02
"""Of a run, what a single slow step must cost to be worth a sentence."""
_LARGE = 0.05
"""Of a run, from which a cause is named."""
_LARGE_ONCE = 0.15
"""Of a run, from which a single slow step is a cause like any other: machines have many reasons."""
_ALIKE = 0.8
"""Of what one rank takes longer in a slow step, from which another one takes as much longer."""
_STANDS_OUT = 3.0
"""How many times what the next rank's pauses cost."""
_IN_A_HALF = 0.015
"""Of a run, what a cause must cost in each half of it to be named."""
_LARGEST_RATIO = 10
_OF_A_SLOW_STEP = 0.6
"""Of what a slow step takes longer, what one place must have to be its reason."""
_MOST_PATHS = 200
_MOST_MOMENTS = 20_000
"""Calls that are played again for a what-if, over all its steps."""
_MOST_SLOW = 200
_LISTED = 10
_QUEUED = 0.2
"""Of the time of calls, what they must wait for earlier ones for it to be a queue."""
_LEAST_BOUND = 0.1
"""Of a path, from which a group is among those that bound a step."""
_NEARLY_ALL = 0.7
_MOST_OF_IT = 0.5
"""Of what a rank is slower by, from which the garbage collector is the reason."""

BETWEEN_CALLS = "(between its calls)"
"""The place of a driver that works in no scope."""
_OF_A_WORKER = ("rank", "late start", "pauses", "garbage collection", "drift", "only this rank")

Grade = Literal["named", "hint"]


@attrs.frozen
class GroupTimes:
    """Where a group's time goes in the steps that count.

    Args:
        workers: how many.
        work: share of the time of all its workers in scopes that work.
        waits: the same in scopes that wait.
        outside: the same outside of all scopes; on Ray, mostly between two calls.
        imbalance: the most work of any rank to the mean of the ranks, in the median step.
        scope: the place in which it waits most; empty if it does not.
        waits_for: for whom it waits there.
    """

    group: str
    workers: int
    work: float
    waits: float
    outside: float
    imbalance: float
    scope: str = ""
    waits_for: str = ""


@attrs.frozen
class ScopeTimes:
    """How long a worker of a group is in a scope in a step, all its calls together.

    Args:
        scope: its path.
        p50: seconds, the median of the steps that count and of the workers.
        p95: the 95th percentile.
        bytes: what it handles there in a step, the mean; ``None`` where that is not recorded.
    """

    group: str
    scope: str
    p50: float
    p95: float
    bytes: float | None = None


@attrs.frozen
class PathPart:
    """What the critical path of a step spent in a place of a worker.

    Args:
        kind: see `gpuprof._analysis.path.Kind`.
        seconds: in the step.
        share: of the step.
        steps: share of all steps that count in which this was on the path.
    """

    worker: str
    scope: str
    kind: Kind
    seconds: float
    share: float
    steps: float


@attrs.frozen
class Path:
    """The critical path of a step.

    Args:
        step: its number.
        why: why this step was chosen.
        seconds: its duration.
        parts: the longest first.
        others: how many shorter ones are left out.
        explained: share of it that is explained.
    """

    step: int
    why: str
    seconds: float
    parts: list[PathPart]
    others: int
    explained: float


@attrs.frozen
class KindOfStep:
    """What most ranks of a group do in some steps only, such as an evaluation.

    Args:
        scope: its path.
        steps: in how many steps.
        every: after how many steps it comes again; ``None`` if that is not regular.
        share: of the run, in the slowest rank of each step.
    """

    group: str
    scope: str
    steps: int
    every: int | None
    share: float


@attrs.frozen
class Finding:
    """A cause.

    Args:
        cause: which one.
        worker: its worker or node; of several the slowest.
        workers: all of them, the slowest first. Together they are worth what `saves` says.
        group: its group.
        scope: where the time goes.
        share: of the run, what it costs: the excess over the others' median, or its share of the
            path.
        seconds: the same a step; of ``once`` in that step.
        steps: in how many steps it was the slowest.
        of: how many were looked at.
        probability: that chance does this; ``None`` where chance has no part.
        ratio: to the median of the others; ``None`` without others.
        saves: share of the run that would be saved if it were as fast as the others' median, or
            took no time; ``None`` if the path does not tell.
        others_waited: seconds a step that the other workers of its group waited meanwhile, on
            average.
        grade: ``named``, or ``hint`` if the record leaves room for another cause, or it is worth
            less than 5 % of the run.
        profiled: whether it is compared with others, and had a profiler while one of them had none,
            so that the profiler may be the cause.
        says: all that in a sentence.
        action: what to do.
        config: variables that set a configuration's keys for that; empty if there are none.
    """

    cause: Cause
    worker: str
    workers: list[str]
    group: str
    scope: str
    share: float
    seconds: float
    steps: int
    of: int
    probability: float | None
    ratio: float | None
    saves: float | None
    others_waited: float
    profiled: bool
    says: str
    action: str
    config: str
    grade: Grade = "named"


@attrs.frozen
class Confidence:
    """How far the answer can be trusted.

    Args:
        explained: share of the paths, over all steps that count, that is explained.
        clock_bound: seconds by which the times of two processes may be off; ``None``: not known.
        disturbed: share of all steps that profiling disturbed.
        enough: whether it says what bounds a step.
        reason: why not.
        worker: the worker with the longest unexplained part of the path.
        scope: the scope there, or around it.
        seconds: how long it is a step.
        instrument: what to add there; empty if nothing is missing.
    """

    explained: float
    clock_bound: float | None
    disturbed: float
    enough: bool
    reason: str
    worker: str
    scope: str
    seconds: float
    instrument: str


@attrs.frozen
class Explanation:
    """The answer.

    Args:
        run: the run's id.
        driver: the name of the process that drives the steps; empty if each rank has its own.
        steps: how many steps there are, and the numbers of those left out.
        seconds: of the steps that count: ``median``, ``mean``, ``least``, ``most`` and ``sum``;
            ``loop``: from the first one's beginning to the last one's end, without the steps that
            do not count; ``in_steps``: the share of that in steps.
        kinds: of steps that differ from most.
        groups: of those that were timed.
        paths: empty if nothing was timed.
        findings: the most expensive first.
        bounds: what bounds a step, in a sentence.
        waits: who waits, in a sentence.
        helps: what would help, in a sentence.
        uncounted: the processes in no group, as another one has their rank.
        ended_early: workers that were killed or crashed while the run went on.
        recognised: the places in which ranks were taken to meet although nothing recorded it.
        problems: files that cannot be read.
    """

    run: str
    driver: str
    steps: dict[str, Any]
    seconds: dict[str, float]
    kinds: list[KindOfStep]
    groups: list[GroupTimes]
    scopes: list[ScopeTimes]
    paths: list[Path]
    findings: list[Finding]
    confidence: Confidence
    bounds: str
    waits: str
    helps: str
    uncounted: list[str]
    ended_early: list[EarlyEnd]
    recognised: list[Collective]
    problems: list[str]

    @property
    def slow_workers(self) -> list[str]:
        """Those that are a cause, the most expensive first."""
        return [finding.worker for finding in self.findings if finding.cause in _OF_A_WORKER]

    def to_dict(self) -> dict[str, Any]:
        """In JSON types, as docs/explain.md describes them."""
        made = {"version": JSON_VERSION, **attrs.asdict(self)}
        for finding in made["findings"]:
            if finding["ratio"] is not None and math.isinf(finding["ratio"]):
                finding["ratio"] = None
        return made


def explain(run: Run, step: int | None = None) -> Explanation:
    """Explain a run.

    Args:
        run: the run.
        step: the number of the step whose path is wanted; ``None``: the median step's and the
            slowest one's.

    Raises:
        ConfigError: there is no such step, or none that counts.
    """
    return Explainer(run).explain(step)


@attrs.frozen
class _Occasion:
    """Steps that take longer for one reason.

    Args:
        rows: positions in `Explainer.usual`.
        processes: whose; the one with most of it first.
        places: where; those inside the first one.
        cost: nanoseconds in all of them.
        rare: whether the place is in these steps only.
        factors: by what to multiply times to be without it.
    """

    rows: list[int]
    processes: list[int]
    places: list[int]
    cost: float
    rare: bool
    factors: Factors


class Explainer:
    """Explains a run, and the path of any of its steps, at the cost of one.

    Args:
        run: the run.

    Raises:
        ConfigError: it has no step that counts.
    """

    def __init__(self, run: Run) -> None:
        import numpy as np

        self.run = run
        self.usual = run.usual
        if not self.usual:
            raise ConfigError([f"{run.name}: {no_steps(run)}", *run.problems])
        self.durations = np.array([run.steps[each].duration for each in self.usual], float)
        self.median = float(np.median(self.durations))
        self.mean = float(self.durations.mean())
        self.gaps = _gaps(run)
        in_a_row = np.split(self.usual, np.flatnonzero(np.diff(self.usual) != 1) + 1)
        rows: list[Window] = [(int(each[0]), int(each[-1])) for each in in_a_row]
        # steps of ranks that do not wait for each other overlap
        self.loop = float(sum(run.steps[last].end - run.steps[first].start for first, last in rows))
        self.in_steps = 1 - float((self.gaps[1] - self.gaps[0]).sum()) / self.loop
        self.graph = Graph(run)
        self._paths: dict[int, list[Stretch]] = {}
        self.sampled = _spread(self.usual, _MOST_PATHS)
        spans = sum(len(process.ledger.spans) for process in run.processes)
        most = max(3, _MOST_MOMENTS * len(run.steps) // max(1, spans))
        self.all_replayed = len(self.usual) <= most
        self.windows = rows if self.all_replayed else _cut(rows, most)
        self._replayed = [step for first, last in self.windows for step in range(first, last + 1)]

    def explain(self, number: int | None = None) -> Explanation:
        """The answer; see `explain`."""
        run = self.run
        chosen = self.chosen(number)
        members = dict(run.groups)
        if run.driver is not None and not self.graph.blind:  # else its scopes do not tell work
            members = {"Runner": [run.processes[run.driver]], **members}
        groups = [
            self._times(group, timed)
            for group, processes in members.items()
            if (timed := [each for each in processes if each.number not in run.untimed])
        ]
        shares, handled = self._shares, sizes(run)
        confidence = self._confidence(shares)
        found = self._of_stragglers(confidence.enough)
        if confidence.enough:
            found += self._of_collector(found)
            found += self._of_path(shares, found)
            found += self._servers()
        found += self._imbalances(found, confidence.enough)
        found += self._between()
        found += self._of_slow_steps(found, confidence.enough)
        found.sort(key=lambda each: -(each.saves if each.saves is not None else each.share))
        return Explanation(
            run.name,
            "" if run.driver is None else run.processes[run.driver].name,
            self._steps(),
            {
                "median": self.median / 1e9,
                "mean": float(self.durations.mean()) / 1e9,
                "least": float(self.durations.min()) / 1e9,
                "most": float(self.durations.max()) / 1e9,
                "sum": float(self.durations.sum()) / 1e9,
                "loop": self.loop / 1e9,
                "in_steps": self.in_steps,
            },
            self._kinds(),
            groups,
            [
                ScopeTimes(group, run.places[place].path, p50, p95, handled.get((group, place)))
                for (group, place), (p50, p95) in spreads(run).items()
            ],
            [self.path(position, why) for position, why in chosen if self._timed],
            found,
            confidence,
            self._bounds(shares, confidence),
            self._who_waits(groups),
            self._helps(shares, found, confidence),
            [process.name for process in run.uncounted],
            run.ended_early,
            run.recognised,
            run.problems,
        )

    # Steps

    def chosen(self, number: int | None = None) -> list[tuple[int, str]]:
        """The positions of the steps to show, and why: the median one and the slowest one."""
        import numpy as np

        if number is not None:
            there = [
                position for position, step in enumerate(self.run.steps) if step.number == number
            ]
            if not there:
                numbers = [step.number for step in self.run.steps]
                raise ConfigError(
                    [f"--step: {number} is not valid; expected {min(numbers)} to {max(numbers)}"]
                )
            return [(there[0], "chosen")]
        middle = int(np.argmin(np.abs(self.durations - self.median)))
        slowest = int(np.argmax(self.durations))
        found = [(self.usual[middle], "median")]
        if slowest != middle:
            found.append((self.usual[slowest], "slowest"))
        return found

    def _steps(self) -> dict[str, Any]:
        steps = self.run.steps
        return {
            "all": len(steps),
            "round": self.run.round,
            "counted": len(self.usual),
            "warm_up": [step.number for step in steps if step.warm_up],
            "captured": [step.number for step in steps if step.captured],
            "disturbed": [step.number for step in steps if step.disturbed and not step.captured],
            "incomplete": [step.number for step in steps if not step.complete],
        }

    # Where the time goes

    @property
    def _timed(self) -> bool:
        """Whether any process was timed, so that a path tells something."""
        return len(self.run.untimed) < len(self.run.processes)

    def _times(self, group: str, processes: Sequence[Process]) -> GroupTimes:
        import numpy as np

        run, usual = self.run, self.usual
        columns = [process.number for process in processes]
        lengths = run.lengths[np.ix_(usual, columns)]
        tracked = run.tracked[np.ix_(usual, columns)]
        work = run.work(processes)[usual]
        whole = max(1.0, float(lengths.sum()))
        ranks = list(by_name(processes).values())
        scope, whom = self._most_waited(columns)
        waits = float((tracked - work).clip(0).sum()) / whole
        return GroupTimes(
            group,
            len(ranks),
            float(work.sum()) / whole,
            waits,
            float((lengths - tracked).sum()) / whole,
            imbalance(of_ranks(work, ranks), of_ranks(lengths, ranks) > 0),
            scope if waits > 0 else "",
            whom if waits > 0 else "",
        )

    def _most_waited(self, columns: Sequence[int]) -> tuple[str, str]:
        import numpy as np

        rows = self.run.sums
        rows = rows[np.isin(rows["process"], columns) & np.isin(rows["step"], self.usual)]
        sums = np.bincount(rows["place"], rows["waiting"], len(self.run.places) + 1)
        place = int(np.argmax(sums))
        if not sums[place]:
            return "", ""
        number = place
        while self.run.places[number].waits_for is None:
            number = self.run.places[number].parent
        return self.run.places[place].name, self.run.places[number].waits_for or ""

    # The critical path

    def stretches(self, position: int) -> list[Stretch]:
        """The critical path of a step, given its position in `Run.steps`, by time."""
        if position not in self._paths:
            self._paths[position] = self.graph.path(position)
        return self._paths[position]

    @functools.cached_property
    def _shares(self) -> dict[tuple[int, int, Kind], Floats]:
        """What each part of the paths had of the steps that were looked at, to their mean."""
        import numpy as np

        found: dict[tuple[int, int, Kind], Floats] = {}
        length = sum(self.run.steps[each].duration for each in self.sampled) / len(self.sampled)
        length = max(1.0, length)
        for row, position in enumerate(self.sampled):
            for part in self.stretches(position):
                key = part.process, part.place, part.kind
                if key not in found:
                    found[key] = np.zeros(len(self.sampled))
                found[key][row] += part.duration / length
        return found

    def path(self, position: int, why: str) -> Path:
        """The same, summed up by place; `why` the step was chosen."""
        step, shares = self.run.steps[position], self._shares
        sums: dict[tuple[int, int, Kind], int] = {}
        for part in self.stretches(position):
            key = part.process, part.place, part.kind
            sums[key] = sums.get(key, 0) + part.duration
        parts = []
        for key, length in sorted(sums.items(), key=lambda each: -each[1]):
            on_path = shares.get(key)
            parts.append(
                PathPart(
                    self.run.processes[key[0]].name,
                    self._name(key[1], key[0]),
                    key[2],
                    length / 1e9,
                    length / max(1, step.duration),
                    0.0 if on_path is None else float((on_path >= 0.005).mean()),
                )
            )
        lost = sum(sums[key] for key in sums if self._is_open(key))
        return Path(
            step.number,
            why,
            step.duration / 1e9,
            parts[:_LISTED],
            max(0, len(parts) - _LISTED),
            1 - lost / max(1, step.duration),
        )

    def _name(self, place: int, process: int | None = None) -> str:
        if place == OUTSIDE and process == self.run.driver and self.graph.driver_works:
            return BETWEEN_CALLS
        names = {OUTSIDE: "(outside any scope)", ALL: "(several scopes)"}
        names[BEFORE] = "(before its first scope)"
        return names[place] if place in names else self.run.places[place].name

    # Confidence

    def _confidence(self, shares: dict[tuple[int, int, Kind], Floats]) -> Confidence:
        run = self.run
        lost = {key: float(each.mean()) for key, each in shares.items() if self._is_open(key)}
        explained = 1 - sum(lost.values())
        bound = run.bound
        reason = ""
        if explained < EXPLAINED and run.untimed:
            names = dict.fromkeys(run.processes[each].name for each in sorted(run.untimed))
            reason = f"{TIMING_VARIABLE}=0 switched timing off in {listed(list(names))}"
        elif explained < EXPLAINED:
            reason = f"{percentage(1 - explained)} of the critical path is unexplained"
        elif bound is not None and bound > 0.5 * self.median:
            reason = f"the nodes' clocks may be {duration(bound / 1e9)} apart"
        worst = max(lost, key=lost.__getitem__, default=None)
        worker = scope = instrument = ""
        seconds = 0.0
        if worst is not None and lost[worst] >= 0.02:
            process = run.processes[worst[0]]
            worker, scope = process.name, self._name(worst[1])
            seconds = lost[worst] * self.mean / 1e9
            instrument = self._instrument(process, worst[1])
        return Confidence(
            explained,
            None if bound is None else bound / 1e9,
            sum(step.disturbed for step in run.steps) / max(1, len(run.steps)),
            not reason,
            reason,
            worker,
            scope,
            seconds,
            instrument,
        )

    def _is_open(self, part: tuple[int, int, Kind]) -> bool:
        """Whether it is not known what a part of a path is: that of a process, at a place."""
        _, place, kind = part
        hides = kind == "work" and place >= 0 and bool(self.run.may_wait[place])
        return hides or kind in ("unexplained", "outside")

    def _instrument(self, process: Process, place: int) -> str:
        """What to add where a path is lost."""
        run = self.run
        if process.number in run.untimed:
            return f"unset {TIMING_VARIABLE}, which is 0 and switches timing off"
        can_show_calls = run.driver is not None and "ray" not in run.instruments
        if place == OUTSIDE:
            calls = f"; {self._with('ray')} shows its calls"
            return (
                f"mark what {process.name} does outside any scope with "
                f'gpuprof.timer("…"){calls if can_show_calls else ""}'
            )
        name = run.places[place].name
        if process.number == run.driver and can_show_calls:
            return f"set {self._with('ray')}: it shows which calls {name} waits for"
        if any(event["event"] == "thinned" for event in process.ledger.events):
            return (
                f"raise the key ledger.bytes_per_step: {process.name} had more calls than fit, "
                "and the keys of the deepest are lost"
            )
        if name in CALLS and run.gone:
            names = listed(sorted({run.processes[number].name for number in run.gone}))
            return f"a run in which {names} does not end early: its ledger lacks these calls"
        if name in CALLS and name.startswith("ray."):
            return (
                f"record the actors that {name} of {process.name} waits for: `gpuprof run -- "
                "COMMAND` records all"
            )
        if name.startswith("torch.") and "torch" not in run.instruments:
            return f"set {self._with('torch')}: it shows whom {name} waits for"
        if name == AWAIT:
            return f'mark what {process.name} awaits with gpuprof.timer("…", waits_for="data")'
        if READS_DEVICE.search(name.lower()):
            return f"a profiler in {process.name}: it shows what the device does during {name}"
        whom = run.places[place].waits_for
        group = f'"{whom}"' if whom not in (None, ANYBODY) else '"<group>"'
        return (
            f'gpuprof.timer("{name}", waits_for={group}, key=…), and the same key where it is '
            "released"
        )

    def _with(self, instrument: str) -> str:
        """The variable that switches an instrument on, too."""
        return f"GPUPROF_INSTRUMENTS={','.join(sorted({*self.run.instruments, instrument}))}"

    # Causes

    def _of_stragglers(self, known: bool) -> list[Finding]:
        """Stragglers whose removal saves something, alone or together.

        Args:
            known: whether the path tells what that saves.
        """
        run = self.run
        stand_out = stragglers.find(run)
        slow = [each for each in stand_out if each.kind != "imbalance"]
        found = [self._of_role(each, known) for each in stand_out if each.kind == "imbalance"]
        found = [each for each in found if each.saves is None or each.saves >= _LEAST_SAVED]
        if not known:
            return [*found, *(self._of_straggler(each, None) for each in slow)]
        worthless = []
        for each in slow:
            saves = self._saves(self._at_median([each]))
            if saves >= _LEAST_SAVED:
                found.append(self._of_straggler(each, saves, self._at_median([each])))
            elif each.kind == "rank":
                worthless.append(each)
        together: dict[str, list[Straggler]] = {}
        for each in worthless:
            together.setdefault(each.group, []).append(each)
        for group, parts in together.items():
            slow_ranks = {number for each in parts for number in each.processes}
            if len(slow_ranks) == len(run.groups[group]):
                continue  # slower than whom?
            saves = self._saves(self._at_median(parts))
            if saves >= _LEAST_SAVED:
                found.append(self._of_straggler(_joined(parts), saves, self._at_median(parts)))
        return found

    def _of_straggler(
        self, found: Straggler, saves: float | None, factors: Factors | None = None
    ) -> Finding:
        run = self.run
        process = run.processes[found.processes[0]]
        scope = self._name(found.place)
        who, several = _and(found.names), len(found.names) > 1
        profiled = self._is_alone_profiled(found)
        sure = saves is not None and saves >= _LARGE and not (profiled or found.alone)
        if sure and factors is not None and found.kind not in ("pauses", "drift"):
            sure = self._grade(saves, factors) == "named"
        hint = "may " if not sure else ""
        is_, s = ("may be", "") if hint else ("are" if several else "is", "" if several else "s")
        waited = self._others_waited(found)
        numbers = sorted(run.steps[position].number for position in _apart(found.positions))
        ranks = {run.processes[number].rank for number in found.processes}
        cause: Cause = found.kind
        often = f"{found.slowest} of {found.steps} steps"
        cost = f"{duration(found.excess / 1e9)} a step"
        # more than that says nothing but that the others take no time there
        small = found.ratio <= _LARGEST_RATIO
        times = f"{found.ratio:.2f} times the others' median, " if small else ""
        if found.kind == "node":
            workers = len(found.processes)
            says = (
                f"All {workers} workers on node {who} {'may be' if hint else 'are'} slower than "
                f"those elsewhere, most of all {found.group} in {scope}: {times}{cost}."
            )
            action = (
                f"Compare node {who} with another one: other jobs, clocks and temperatures, "
                "`gpuprof doctor` on both."
            )
            config = self._variables(numbers, nodes=found.names)
        elif found.kind == "late start":
            says = (
                f"{who} {hint}begin{s} its first scope {cost} later than the others of its group, "
                f"and was the last in {often}."
            )
            action = f"See what {who} does before, or why its caller calls it so late."
            config = self._capture(found.group, ranks, numbers)
        elif found.kind in ("rank", "pauses") and self._is_collected(found):
            cause = "garbage collection"
            says = (
                f"The garbage collector stops {who} in {scope}: {cost} more than the others "
                "of its group."
            )
            action, config = _COLLECT_LESS, ""
        elif found.kind == "drift":
            first, last = found.grew
            slope = (last - first) / (0.75 * len(self.usual))
            says = (
                f"{who} {hint}get{s} slower in {scope}: {duration(first / 1e9)} in the first "
                f"quarter of the steps and {duration(last / 1e9)} in the last, "
                f"{duration(slope / 1e9)} more with each step; {cost} more than the others' median."
            )
            action = f"Look for what grows in {who}: a list, a cache, a file, or memory in use."
            config = self._capture(found.group, ranks, numbers)
        elif found.kind == "pauses":
            says = (
                f"{who} {hint}pause{s} in {scope}: of {found.steps} steps with a pause "
                f"{found.slowest} are its own, {cost} on average."
            )
            action = (
                "Look for checkpoints, or other processes on its cores. It is not Python's garbage "
                "collector: the ledger has its pauses."
            )
            config = self._capture(found.group, ranks, numbers)
        else:
            more = f"{duration(found.excess / 1e9)} more a step"
            says = f"{who} {is_} slow in {scope}: {times}{more}; slowest in {often}."
            if several:
                says += " One of them alone is worth less: the others take as long."
            if found.alone:
                says += f" It or its node, {process.node}: nothing else there can be compared."
            action = f"Capture {who} and another rank, and compare them."
            config = self._capture(found.group, ranks, numbers)
        if waited >= 0.01 * self.median:
            whose = "their" if several else "its"
            says += (
                f" The others of {whose} group waited {duration(waited / 1e9)} a step meanwhile."
            )
        profiled = profiled and cause != "garbage collection"
        if profiled:
            says += (
                f" {who} had a profiler and others of the group had none, which may be the "
                "reason: profile them all, or none, to tell."
            )
        return Finding(
            cause,
            found.names[0],
            list(found.names),
            found.group,
            scope,
            found.share * self.in_steps,
            found.excess / 1e9,
            found.slowest,
            found.steps,
            found.probability,
            found.ratio,
            saves,
            waited / 1e9,
            profiled,
            says,
            action,
            config,
            "named" if sure or cause == "garbage collection" else "hint",
        )

    def _of_role(self, found: Straggler, known: bool) -> Finding:
        """Ranks that may be slow, or have another part than the others: no record tells which."""
        run = self.run
        group, scope = found.group, self._name(found.place)
        places = [found.place]
        if found.place == ALL:
            places = stragglers.common_places(run, group)
        saves = self._saves(self._even(group, places)) if known else None
        names = sorted(found.names, key=lambda name: (len(name), name))
        who = listed(names)
        nodes = {run.processes[number].node for number in found.processes}
        elsewhere = {process.node for process in run.groups[group]} - nodes
        node = nodes.pop()
        where = f", or their node, {node}, is slow" if not nodes and elsewhere else ""
        says = (
            f"{who} take {duration(found.excess / 1e9)} a step longer than the others of {group} "
            f"in {scope}. Either that is their part of the job, which may not be balanced, or some "
            f"of them are slow{where}."
        )
        return Finding(
            "imbalance", "", names, group, scope, found.share * self.in_steps, found.excess / 1e9,
            found.slowest, found.steps, found.probability, found.ratio, saves, 0.0,
            self._is_alone_profiled(found), says, "If they have more to do than the others, spread "
            "the work evenly; if not, capture one of them and one of the others, and compare them.",
            self._capture(
                group, {run.processes[found.processes[0]].rank},
                [run.steps[position].number for position in _apart(found.positions)],
            ), "hint",
        )  # fmt: skip

    def _capture(self, group: str, ranks: set[int], numbers: Sequence[int]) -> str:
        others = [process.rank for process in self.run.groups[group] if process.rank not in ranks]
        chosen = sorted({*ranks, *others[:1]})
        return self._variables(numbers, worker_groups=[group], ranks=chosen)

    def _variables(self, numbers: Sequence[int], **keys: Iterable[str | int]) -> str:
        """Settings for a job that has no file of ours, too."""
        if not self.run.round:  # else no step is known while the job runs
            keys["steps"] = numbers
        given = {name.upper(): ",".join(map(str, values)) for name, values in keys.items()}
        return " ".join(f"GPUPROF_{name}={shlex.quote(value)}" for name, value in given.items())

    def _at_median(self, slow: Sequence[Straggler]) -> Factors:
        """By what to multiply stragglers' times to have them as their peers' median."""
        factors = [self._of_one_at_median(each) for each in slow]
        return lambda step: {
            pair: factor for of_one in factors for pair, factor in of_one(step).items()
        }

    def _of_one_at_median(self, found: Straggler) -> Factors:
        import numpy as np

        run = self.run
        if found.place == BEFORE:

            def sooner(step: int) -> dict[tuple[int, int], float]:
                return {
                    (process, OUTSIDE): max(
                        0.0, 1 - found.excess / max(1.0, self._outside_of(step, process))
                    )
                    for process in found.processes
                }

            return sooner

        factors: dict[tuple[int, int], Floats] = {}
        for number in found.processes:
            here = run.processes[number]
            peers = [
                rank
                for rank in stragglers.members(run, here.group).values()
                if rank[0].number not in found.processes
            ]
            for place in set(here.places[1:].tolist()) if peers else ():
                own = stragglers.own_time(run, place, [[here]])[:, 0]
                usually = np.median(stragglers.own_time(run, place, peers), axis=1)
                factors[number, place] = np.minimum(
                    1.0, np.where(own > 0, usually / np.maximum(own, 1), 1.0)
                )
        return lambda step: {pair: float(each[step]) for pair, each in factors.items()}

    def _outside_of(self, step: int, process: int) -> float:
        """Nanoseconds that the path of a step has outside of all scopes of a process."""
        return float(
            sum(
                part.duration
                for part in self.stretches(step)
                if part.process == process and part.place == OUTSIDE
            )
        )

    def _saves(self, factors: Factors, steps: Sequence[int] | None = None) -> float:
        """The share of the run that is saved if times are multiplied.

        Args:
            steps: the positions of those in which they are; ``None``: of all.
        """
        windows, of_all = self.windows, 1.0
        if steps is not None and not self.all_replayed:
            windows = [(step, step) for step in _spread(steps, len(self._replayed))]
            of_all = sum(self.run.steps[step].duration for step in steps) / self.loop
        elif steps is not None:
            factors = _only(steps, factors)
        before = sum(self.graph.plan(window).usual for window in windows)
        after = sum(self.graph.replay(window, factors) for window in windows)
        return (1 - after / before) * of_all if before else 0.0

    def _grade(self, saves: float | None, factors: Factors) -> Grade:
        """A cause that is there in one half of the run only is a hint at most."""
        if saves is None or saves < _LARGE:
            return "hint"
        first = self._saves(_only(self.usual[: len(self.usual) // 2], factors))
        return "named" if min(first, saves - first) >= _IN_A_HALF else "hint"

    def _others_waited(self, found: Straggler) -> float:
        """Nanoseconds a step that the other ranks did not work while a straggler did."""
        if found.kind == "node":
            return 0.0
        run = self.run
        members = chain.from_iterable(stragglers.members(run, found.group).values())
        peers = [process for process in members if process.number not in found.processes]
        mine = [run.processes[number] for number in found.processes]
        if not peers:
            return 0.0
        own = run.work(mine)[self.usual].sum(axis=1)
        difference = own - run.work(peers)[self.usual].mean(axis=1)
        return float(difference.clip(0).mean())

    def _is_alone_profiled(self, found: Straggler) -> bool:
        """Whether a straggler had a profiler, and some of those it is compared with had none."""
        run = self.run
        groups = {run.processes[number].group for number in found.processes}
        peers = {process.number for group in groups for process in run.groups[group]} - set(
            found.processes
        )
        return run.profiled.issuperset(found.processes) and not run.profiled.issuperset(peers)

    def _is_collected(self, found: Straggler) -> bool:
        """Whether most of what a rank is slower by is the garbage collector."""
        run = self.run
        mine = [run.processes[number] for number in found.processes]
        peers = [
            rank
            for name, rank in stragglers.members(run, found.group).items()
            if name not in found.names
        ]
        places = range(len(run.places)) if found.place == ALL else [found.place]
        own, others = (
            sum(stragglers.collecting(run, place, ranks)[self.usual].mean() for place in places)
            for ranks in ([mine], peers)
        )
        return bool(own - others >= _MOST_OF_IT * found.excess)

    @functools.cached_property
    def _collected(self) -> dict[tuple[int, int], float]:
        """The mean share of a path in which the garbage collector stopped a process at a place."""
        import numpy as np

        found: dict[tuple[int, int], float] = {}
        for position in self.sampled:
            length = max(1, self.run.steps[position].duration) * len(self.sampled)
            for part in self.stretches(position):
                process = self.run.processes[part.process]
                if part.kind == "work":
                    edges = np.array([part.start]), np.array([part.end])
                    share = float(collected(process, *edges)[0]) / length
                    key = part.process, part.place
                    found[key] = found.get(key, 0.0) + share
        return found

    def _of_collector(self, known: Sequence[Finding]) -> list[Finding]:
        """The garbage collector, where it holds a step up. Its pauses are recorded, not guessed."""
        run = self.run
        named = {each.worker for each in known if each.cause == "garbage collection"}
        shares = {
            key: share
            for key, share in self._collected.items()
            if share and run.processes[key[0]].name not in named
        }
        share = sum(shares.values())
        if share < stragglers.LEAST_SHARE:
            return []
        number, place = max(shares, key=shares.__getitem__)
        process = run.processes[number]
        seconds = share * self.mean / 1e9
        whose = {each for each, _ in shares}
        others = f" and {len(whose) - 1} more" if len(whose) > 1 else ""
        where = f"{process.name} in" if len(whose) > 1 else "in"
        own = [run.matrix("own", place, [run.processes[each]])[:, 0] for each, place in shares]
        stopped = [
            run.matrix("collecting", place, [run.processes[each]])[:, 0] for each, place in shares
        ]

        def without(step: int) -> dict[tuple[int, int], float]:
            return {
                key: 1 - min(1.0, float(of_collector[step] / max(1.0, all_of_it[step])))
                for key, of_collector, all_of_it in zip(shares, stopped, own, strict=True)
            }

        says = (
            f"The garbage collector stops {process.name}{others} for {duration(seconds)} a step, "
            f"most of it {where} {self._name(place)}."
        )
        steps = self._steps_stopped(whose)
        return [
            Finding(
                "garbage collection", process.name, sorted(run.processes[n].name for n in whose),
                process.group, self._name(place), share * self.in_steps, seconds, steps,
                len(self.usual), None, None, self._saves(without), 0.0, False, says, _COLLECT_LESS,
                "",
            )
        ]  # fmt: skip

    def _steps_stopped(self, processes: Iterable[int]) -> int:
        """In how many steps the garbage collector stopped any of these processes."""
        import numpy as np

        rows = self.run.sums
        rows = rows[np.isin(rows["process"], list(processes)) & (rows["collecting"] > 0)]
        return len(np.intersect1d(rows["step"], self.usual))

    def _of_path(
        self, shares: dict[tuple[int, int, Kind], Floats], known: Sequence[Finding]
    ) -> list[Finding]:
        """Causes that all ranks share: the driver, data, synchronisation."""
        run = self.run
        parts: dict[Cause, dict[tuple[int, int], float]] = {}
        named = {(finding.worker, finding.scope) for finding in known}
        for (process, place, kind), each in shares.items():
            cause = self._cause(process, place, kind)
            worker = run.processes[process].name
            if cause is not None and (worker, self._name(place, process)) not in named:
                of_cause = parts.setdefault(cause, {})
                of_cause[process, place] = of_cause.get((process, place), 0.0) + float(each.mean())
        found = []
        for cause, of_cause in parts.items():
            share = sum(of_cause.values())
            if share < stragglers.LEAST_SHARE:
                continue
            process, place = max(of_cause, key=of_cause.__getitem__)
            # those of a group who are not on the path would wait as long
            where = {(run.processes[process].group, place) for process, place in of_cause}
            all_of_it = [
                (each.number, place)
                for group, place in where
                for each in run.processes
                if each.group == group and place in each.places
            ]
            factors = _always(dict.fromkeys(all_of_it, 0.0))
            saves = self._saves(factors)
            for part, which in enumerate((process, place)):  # as little as saves nearly as much
                less = [pair for pair in all_of_it if pair[part] == which]
                of_less = _always(dict.fromkeys(less, 0.0))
                saved = self._saves(of_less) if len(less) < len(all_of_it) else 0.0
                if saved >= _NEARLY_ALL * saves:
                    all_of_it, factors, saves = less, of_less, saved
            if saves >= _SHARED[cause]:
                whose = [number for number, each in all_of_it if each == place]
                grade = self._grade(saves, factors)
                found.append(self._shared(cause, process, place, share, saves, whose, grade))
        return found

    def _cause(self, process: int, place: int, kind: Kind) -> Cause | None:
        if kind == "data":
            return "data"
        name = self.run.places[place].name.lower() if place >= 0 else ""
        if kind in ("work", "handover") and _SYNC_NAMES.search(name):
            return "synchronisation"
        if process == self.run.driver and kind == "work":
            return "driver"
        return None

    def _shared(
        self,
        cause: Cause,
        process: int,
        place: int,
        share: float,
        saves: float,
        whose: Sequence[int],
        grade: Grade,
    ) -> Finding:
        run = self.run
        worker, scope = run.processes[process].name, self._name(place, process)
        group = run.processes[process].group
        seconds = share * self.mean / 1e9
        who = worker if len(whose) == 1 else f"{group} ({len(whose)} workers)"
        config = which = ""
        where = f"in {scope}"
        if scope == BETWEEN_CALLS:
            where = _in_brackets(scope)
            which = ' gpuprof.timer("…") around a part of its code shows what that part takes.'
        if cause == "driver":
            says = (
                f"The driver works {duration(seconds)} a step by itself, most of it "
                f"{where}, while the workers wait for it."
            )
            action = f"Move it into a worker, or start the next calls before it.{which}"
        elif cause == "data":
            says = f"{who} waits {duration(seconds)} a step for data in {scope}."
            action = (
                "Use more loader processes (num_workers, prefetch_factor), a faster disk, or "
                "prepare the data before."
            )
        else:
            says = f"Synchronisation takes {duration(seconds)} a step, most of it {who} in {scope}."
            action = (
                "Send less (only what changed, lower precision), send all at once, or overlap it "
                "with the next step's work."
            )
        return Finding(
            cause, worker, sorted(run.processes[number].name for number in whose), group, scope,
            share * self.in_steps, seconds, len(self.usual), len(self.usual), None,
            None, saves, 0.0, False, says, action, config, grade,
        )  # fmt: skip

    def _servers(self) -> list[Finding]:
        """What others queue for, and what half the time a call would save."""
        run = self.run
        calls: dict[int, list[Call]] = {}
        for window in self.windows:
            for number, of_window in self.graph.plan(window).calls.items():
                calls.setdefault(number, []).extend(of_window)
        found = []
        for group, processes in run.groups.items():
            numbers = [process.number for process in processes]
            of_group = [calls.get(number, []) for number in numbers]
            callers = [
                {request[0] for call in of_one for request in call.requests}.difference(numbers)
                for of_one in of_group
            ]
            # a worker with peers is compared with them, unless several others call each of them
            if min(map(len, callers)) < (1 if len(numbers) == 1 else 2):
                continue
            queued = float(sum(call.queued for call in chain.from_iterable(of_group)))
            worked = float(run.work(processes)[self._replayed].sum())
            share = queued / max(1.0, queued + worked)
            if share >= _QUEUED:
                each = queued / sum(map(len, of_group))
                found += self._of_server(group, processes, share, each, worked)
        return found

    def _of_server(
        self, group: str, processes: Sequence[Process], share: float, queued: float, worked: float
    ) -> list[Finding]:
        run, one = self.run, len(processes) == 1
        numbers = [process.number for process in processes]

        def halved(places: Sequence[int]) -> Factors:
            return _always({(number, place): 0.5 for number in numbers for place in places})

        places = sorted({place for process in processes for place in process.places[1:].tolist()})
        places = [place for place in places if not run.waiting_places[place]]
        saves = self._saves(halved(places))
        if saves < stragglers.LEAST_SHARE:
            return []
        enough = (place for place in places if self._saves(halved([place])) >= _NEARLY_ALL * saves)
        place = next(enough, ALL)
        grade = self._grade(saves, halved(places)) if one else "hint"
        who = processes[0].name if one else f"{group} ({len(processes)} workers)"
        says = (
            f"{who} {'bounds' if grade == 'named' else 'may bound'} the run: calls of "
            f"{self._name(place)} wait {percentage(share)} of their time in its queue, "
            f"{duration(queued / 1e9)} each."
        )
        action = (
            f"Make a call cheaper, let one call serve several requests, or add workers to {group}."
        )
        steps = len(self._replayed)
        return [
            Finding(
                "server", processes[0].name, [process.name for process in processes], group,
                self._name(place), worked / len(processes) / steps / self.mean * self.in_steps,
                worked / len(processes) / steps / 1e9, len(self.usual), len(self.usual), None,
                None, saves, 0.0, False, says, action, "", grade,
            )
        ]  # fmt: skip

    def _imbalances(self, known: Sequence[Finding], enough: bool) -> list[Finding]:
        """Places in which another rank is slow in each step."""
        run = self.run
        named = {finding.group for finding in known}
        found = []
        for group in run.groups:
            places = [] if group in named or not enough else stragglers.common_places(run, group)
            for place in places:
                if not stragglers.imbalanced(run, group, place):
                    continue
                processes = list(chain.from_iterable(stragglers.members(run, group).values()))
                times = stragglers.own_time(run, place, [[each] for each in processes])
                mean = times.sum(axis=1) / (times > 0).sum(axis=1).clip(1)
                saves = self._saves(self._even(group, [place]))
                if saves < stragglers.LEAST_SHARE:
                    continue
                usual = times[self.usual]
                excess = float((usual.max(axis=1) - mean[self.usual]).mean())
                slowest = len(set(usual.argmax(axis=1).tolist()))
                name = self._name(place)
                says = (
                    f"{group} may not be balanced in {name}: the slowest rank takes "
                    f"{duration(excess / 1e9)} longer than the mean, and it is another one in "
                    f"nearly each step: {slowest} of {usual.shape[1]} ranks were it."
                )
                found.append(
                    Finding(
                        "imbalance", "", [], group, name, excess / self.mean * self.in_steps,
                        excess / 1e9, len(self.usual), len(self.usual), None, None, saves, 0.0,
                        False, says, "Spread the work of a step evenly: by its size, not by its "
                        "number.", "", "hint",
                    )
                )  # fmt: skip
        return found

    def _even(self, group: str, places: Sequence[int]) -> Factors:
        """By what to multiply the times of a group's ranks to have their mean at these places."""
        processes = list(chain.from_iterable(stragglers.members(self.run, group).values()))
        factors: dict[tuple[int, int], Floats] = {}
        for place in places:
            times = stragglers.own_time(self.run, place, [[each] for each in processes])
            mean = times.sum(axis=1) / (times > 0).sum(axis=1).clip(1)
            for column, process in enumerate(processes):
                factors[process.number, place] = mean / times[:, column].clip(1)
        return lambda step: {pair: float(each[step]) for pair, each in factors.items()}

    def _between(self) -> list[Finding]:
        """The time between steps, and who works there if a ledger tells."""
        import numpy as np

        run, count = self.run, len(self.gaps[0])
        share = 1 - self.in_steps
        if share < _BETWEEN:
            return []
        total = float((self.gaps[1] - self.gaps[0]).sum())
        sums = np.zeros((len(run.processes), len(run.places) + 1))
        for process in run.processes:
            rows = run.sums_between(process, *self.gaps)
            own = np.where(run.waiting_places[rows["place"]], 0.0, rows["own"])
            np.add.at(sums[process.number], rows["place"], own)
        number = int(sums.max(axis=1).argmax()) if run.driver is None else run.driver
        process, place = run.processes[number], int(sums[number].argmax())
        works = sums[number, place] >= 0.5 * total
        where = f", most of it {process.name} in {self._name(place)}" if works else ""
        says = (
            f"{percentage(share)} of the run lies between steps: {duration(total / count / 1e9)} "
            f"after each{where}."
        )
        workers = [process.name] if works or run.driver is not None else []
        action = "Move it into a worker, or let it run while the next step does."
        if not works:
            action = (
                f"See what {process.name if workers else 'the ranks'} do there: put it into "
                'gpuprof.timer("…").'
            )
        return [
            Finding(
                "between steps", process.name, workers, process.group, "(between steps)", share,
                total / count / 1e9, count, count, None, None, share, 0.0, False, says, action, "",
            )
        ]  # fmt: skip

    def _of_slow_steps(self, known: Sequence[Finding], enough: bool) -> list[Finding]:
        """Steps that take longer for one reason: what is not in the others, or a pause.

        Args:
            enough: whether the path tells what they cost.
        """
        paused = {each.worker for each in known if each.cause in ("pauses", "garbage collection")}
        occasions = self._occasional
        seen = {row for each in occasions if not self._is_usual(each) for row in each.rows}
        occasions = [each for each in occasions if not self._is_kind(each)]
        found, once = [], []
        for each in occasions + self._paused(seen):
            process = self.run.processes[each.processes[0]]
            if process.name in paused or each.cost < _LEAST_ONCE * self.loop:
                continue
            inner = {self._name(place) for place in each.places}
            if any(other.worker == process.name and other.scope in inner for other in known):
                continue
            saves = self._saves(each.factors, [self.usual[row] for row in each.rows])
            worth = each.cost / self.loop if not enough else saves
            if len(each.rows) == 1 and worth < _LARGE_ONCE:
                once.append(each)
            elif worth >= (_LARGE if self._is_usual(each) else stragglers.LEAST_SHARE):
                found.append(self._of_occasion(each, saves if enough else None))
        if once and not paused and not found:
            found.append(self._of_occasion(max(once, key=lambda each: each.cost), None))
        return found

    def _is_usual(self, occasion: _Occasion) -> bool:
        return 2 * len(occasion.rows) > len(self.usual)

    def _is_kind(self, occasion: _Occasion) -> bool:
        """Whether it is a kind of step, such as an evaluation: most ranks of a group have it."""
        group = self.run.processes[occasion.processes[0]].group
        ranks = {process.name for process in self.run.groups.get(group, [])}
        there = {self.run.processes[number].name for number in occasion.processes}
        return len(ranks) > 1 and 2 * len(ranks & there) > len(ranks)

    def _kinds(self) -> list[KindOfStep]:
        """The kinds of steps that are not in most steps."""
        return [
            KindOfStep(
                self.run.processes[each.processes[0]].group,
                self.run.places[each.places[0]].path,
                len(each.rows),
                _period([self.run.steps[self.usual[row]].number for row in each.rows]),
                each.cost / self.loop,
            )
            for each in self._occasional
            if self._is_kind(each) and each.cost >= stragglers.LEAST_SHARE * self.loop
        ]

    @functools.cached_property
    def _worked(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Floats]:
        """The rows of `Run.sums` with work: row of `usual`, process, place, nanoseconds."""
        import numpy as np

        run = self.run
        places = run.sums["place"].astype(np.int64)
        usual = np.zeros(len(run.steps), bool)
        usual[self.usual] = True
        data = np.array([place.waits_for == DATA for place in run.places] or [False], bool)
        own = run.sums["own"] - np.where(data[places], 0.0, run.sums["waiting"])
        work = (own > 0) & ~run.may_wait[places] & usual[run.sums["step"]]
        if run.driver is not None and self.graph.blind:
            work &= run.sums["process"] != run.driver
        return (
            np.searchsorted(self.usual, run.sums["step"][work]),
            run.sums["process"][work].astype(np.int64),
            places[work],
            own[work],
        )

    @functools.cached_property
    def _occasional(self) -> list[_Occasion]:
        """What is in at most half of the steps, or of the ranks, such as a checkpoint."""
        import numpy as np

        run, (rows, processes, places, own) = self.run, self._worked
        size = len(run.places)
        there = np.zeros((size, len(self.usual)), bool)
        there[places, rows] = True
        counts = there.sum(axis=1)
        rare = (counts >= 2) & (2 * counts <= len(self.usual))
        rare |= self._of_few()
        top = np.arange(size)
        for number, place in enumerate(run.places):  # a parent stands before its children
            if rare[number] and place.parent >= 0 and rare[place.parent]:
                top[number] = top[place.parent]
        found = []
        for place in np.flatnonzero(rare & (top == np.arange(size))).tolist():
            mine = top[places] == place
            codes, at = np.unique(
                rows[mine] * len(run.processes) + processes[mine], return_inverse=True
            )
            sums = np.bincount(at, own[mine])
            steps, of_code = np.unique(codes // len(run.processes), return_inverse=True)
            most = np.zeros(len(steps))
            np.maximum.at(most, of_code, sums)
            who = np.bincount(codes % len(run.processes), sums)
            family = np.flatnonzero(top == place).tolist()
            factors = {
                (process, inner): 0.0
                for process in np.flatnonzero(who).tolist()
                for inner in family
            }
            found.append(
                _Occasion(
                    steps.tolist(),
                    np.argsort(-who, kind="stable")[: np.count_nonzero(who)].tolist(),
                    family,
                    float(most.sum()),
                    True,
                    _always(factors),
                )
            )
        return found

    def _of_few(self) -> NDArray[np.bool_]:
        """The places that at most half of the ranks of a group have, and all the others wait."""
        import numpy as np

        run, (_, processes, places, _) = self.run, self._worked
        size = len(run.processes)
        there, steps = np.unique(places * size + processes, return_counts=True)
        there = there[2 * steps > len(self.usual)]
        few = np.zeros(len(run.places), bool)
        for name in run.groups:
            group = list(chain.from_iterable(stragglers.members(run, name).values()))
            if len(group) < 2:
                continue
            numbers = np.array([process.number for process in group])
            mine = np.isin(there % size, numbers)
            counts = np.bincount(there[mine] // size, minlength=len(few))
            work = run.work(group)[self.usual]
            for place in np.flatnonzero((counts > 0) & (2 * counts <= len(group))).tolist():
                has = np.isin(numbers, there[mine & (there // size == place)] % size)
                gain = (work[:, has].max(axis=1) - work[:, ~has].max(axis=1)).clip(0).mean()
                few[place] = gain >= stragglers.LEAST_SHARE * self.mean
        return few

    def _paused(self, seen: set[int]) -> list[_Occasion]:
        """Steps that take much longer than most, by the place of a process that made them so.

        Args:
            seen: steps that are explained already.
        """
        import numpy as np

        run, (rows, processes, places, own) = self.run, self._worked
        if len(self.durations) < stragglers.LEAST_STEPS or not run.places:
            return []
        spread = 1.4826 * float(np.median(np.abs(self.durations - self.median)))
        slow = self.durations > max(_SLOW * self.median, self.median + 5 * spread)
        codes = processes * len(run.places) + places
        size = len(run.processes) * len(run.places)
        usually = np.bincount(codes[~slow[rows]], own[~slow[rows]], size) / max(1, (~slow).sum())
        parts: dict[int, list[tuple[int, float]]] = {}
        longest = np.argsort(-self.durations, kind="stable")[:_MOST_SLOW]
        for row in sorted(row for row in longest.tolist() if slow[row] and row not in seen):
            there = rows == row
            more = np.bincount(codes[there], own[there], size) - usually
            most = int(more.argmax())
            # where others take longer by as much, all may wait unseen for one of them
            alike = more[most % len(run.places) :: len(run.places)] > _ALIKE * more[most]
            long = _OF_A_SLOW_STEP * (self.durations[row] - self.median)
            if alike.sum() == 1 and more[most] >= long:
                parts.setdefault(most, []).append((row, float(more[most])))
        found = []
        for code, steps in parts.items():
            process, place = divmod(code, len(run.places))
            more_in = {self.usual[row]: more for row, more in steps}
            worker = run.processes[process]

            def usual(
                step: int,
                process: int = process,
                place: int = place,
                worker: Process = worker,
                more_in: dict[int, float] = more_in,
            ) -> dict[tuple[int, int], float]:
                took = float(stragglers.own_time(run, place, [[worker]])[step, 0])
                return {(process, place): 1 - more_in[step] / took}

            found.append(
                _Occasion(
                    [row for row, _ in steps],
                    [process],
                    [place],
                    sum(more_in.values()),
                    False,
                    usual,
                )
            )
        found.sort(key=lambda each: -each.cost)
        costs = [*(each.cost for each in found), 0.0]
        # any rank of a busy machine pauses: a few must pause for much longer than the next one
        few = [size for size in (1, 2) if size < len(costs) and
               costs[size - 1] >= _STANDS_OUT * costs[size]]  # fmt: skip
        return found[: max(few, default=0)]

    def _of_occasion(self, occasion: _Occasion, saves: float | None) -> Finding:
        run = self.run
        names = [run.processes[number].name for number in occasion.processes]
        process, scope = run.processes[occasion.processes[0]], self._name(occasion.places[0])
        numbers = [run.steps[self.usual[row]].number for row in occasion.rows]
        count, of = len(numbers), len(self.usual)
        share = occasion.cost / self.loop
        every = _period(numbers)
        who = names[0] if len(names) == 1 else f"{process.group} ({len(names)} workers)"
        each = duration(occasion.cost / count / 1e9)
        total = f"{duration(occasion.cost / 1e9)} in all, {percentage(share)} of the run"
        cause: Cause = "pauses" if every is None and not occasion.rare else "recurring"
        action = "Do it less often, or while the next step runs; or let all ranks share it."
        if count == 1:
            large = occasion.cost >= _LARGE_ONCE * self.loop and saves is not None
            took = duration(float(self.durations[occasion.rows[0]]) / 1e9)
            cause = "pauses" if large else "once"
            says = (
                f"Step {numbers[0]} took {took}, once: {who} was {each} longer than usually in "
                f"{scope}, {percentage(share)} of the run."
            )
            action = "Once is no pattern: look again if it comes back."
        elif self._is_usual(occasion):
            cause = "only this rank"
            says = f"Only {who} is in {scope}, {each} a step, while the others wait: {total}."
        elif cause == "recurring":
            when = f"every {ordinal(every)} step" if every else f"in {count} of {of} steps"
            longer = "" if occasion.rare else " longer than usually"
            says = f"{who} is {each}{longer} in {scope} {when}: {total}."
        else:
            at = listed([str(number) for number in numbers])
            says = (
                f"{who} pauses in {scope}: {each} longer than usually in {count} of {of} steps "
                f"({at}), {total}."
            )
            action = "Look for other processes on its cores, its storage, or its network."
        grade: Grade = "named" if saves is not None and saves >= _LARGE and count > 1 else "hint"
        if grade == "hint" and count > 1:
            says += " It may be chance."
        return Finding(
            cause, names[0], names, process.group, scope, share,
            occasion.cost / 1e9 / (1 if count == 1 else of), count, of, None, None, saves, 0.0,
            False, says, action, "", grade,
        )  # fmt: skip

    # In a sentence each

    def _bounds(self, shares: dict[tuple[int, int, Kind], Floats], confidence: Confidence) -> str:
        if not confidence.enough:
            tells = confidence.worker and not self.run.untimed
            scope = _in_brackets(confidence.scope)
            inside = "" if scope != confidence.scope else "in "
            where = f", most of it {confidence.worker} {inside}{scope}" if tells else ""
            return f"not known: {confidence.reason}{where}"
        by_group: dict[str, dict[tuple[int, int], float]] = {}
        for (process, place, _), each in shares.items():
            of_group = by_group.setdefault(self.run.processes[process].group, {})
            of_group[process, place] = of_group.get((process, place), 0.0) + float(each.mean())
        between = 1 - self.in_steps
        said = [f"between steps {percentage(between)}"] if between >= _LEAST_BOUND else []
        for group, of_group in sorted(by_group.items(), key=lambda each: -sum(each[1].values())):
            share = sum(of_group.values()) * self.in_steps
            if share >= _LEAST_BOUND or not said:
                who = _one_of(of_group)
                name = group if who is None else self.run.processes[who].name
                scopes: dict[int, float] = {}
                for (_, place), part in of_group.items():
                    scopes[place] = scopes.get(place, 0.0) + part * self.in_steps
                most = max(scopes, key=scopes.__getitem__)
                a_process = next(iter(of_group))[0]
                where = f"{_in_brackets(self._name(most, a_process))} {percentage(scopes[most])}"
                said.append(f"{name} {percentage(share)} ({where})")
        return ", ".join(said[:3])

    @property
    def group(self) -> str:
        """The worker group with the largest share of all paths; empty if no worker is on them."""
        sums: dict[str, float] = {}
        for (process, _, _), each in self._shares.items():
            if process != self.run.driver:
                group = self.run.processes[process].group
                sums[group] = sums.get(group, 0.0) + float(each.mean())
        return max(sums, key=sums.__getitem__, default="")

    def _largest(self, shares: dict[tuple[int, int, Kind], Floats]) -> tuple[str, str, float]:
        """The group's place with the largest share of all paths: who, where, share."""
        by_group: dict[tuple[str, int], dict[int, float]] = {}
        for (process, place, _), each in shares.items():
            of_group = by_group.setdefault((self.run.processes[process].group, place), {})
            of_group[process] = of_group.get(process, 0.0) + float(each.mean())
        (group, place), of_group = max(by_group.items(), key=lambda each: sum(each[1].values()))
        share = sum(of_group.values())
        one = _one_of({(process, place): each for process, each in of_group.items()})
        who = group if one is None else self.run.processes[one].name
        return who, self._name(place, next(iter(of_group))), share

    def _who_waits(self, groups: Sequence[GroupTimes]) -> str:
        said = []
        driven = self.run.driver is not None
        for each in sorted(groups, key=lambda g: -(g.waits + g.outside)):
            if each.group == "Runner" and driven:
                continue
            if each.waits >= 0.05:
                whom = {ANYBODY: "", "barrier": ", for the others", DATA: ", for data"}.get(
                    each.waits_for, f", for {each.waits_for}"
                )
                said.append(f"{each.group} {percentage(each.waits)} ({each.scope}{whom})")
            elif each.outside >= 0.05:
                where = "between calls" if driven else "outside any scope"
                said.append(f"{each.group} {percentage(each.outside)} ({where})")
        if not groups:
            return "not known: nothing was timed"
        return ", ".join(said[:3]) or "nobody for more than 5 % of a step"

    def _helps(
        self,
        shares: dict[tuple[int, int, Kind], Floats],
        found: Sequence[Finding],
        confidence: Confidence,
    ) -> str:
        causes = [each for each in found if each.cause != "once" and each.saves is not None]
        for finding in causes:
            if finding.saves is not None and finding.saves >= 0.01:
                return what_if(finding)
        if not confidence.enough:
            return confidence.instrument or confidence.reason
        unknown = [each for each in found if each.cause != "once" and each.saves is None]
        if unknown:
            return unknown[0].action
        handed = {key: each for key, each in shares.items() if key[2] == "handover"}
        work = {key: each for key, each in shares.items() if key[2] == "work"} or shares
        who, scope, share = self._largest(work)
        over = sum(float(each.mean()) for each in handed.values())
        nobody = (
            "no rank stands out"
            if len(self.usual) >= stragglers.LEAST_STEPS
            else f"{len(self.usual)} steps are too few to name a rank"
        )
        if over >= _LEAST_HANDOVER and over > share:  # nobody can receive twice as fast
            return (
                f"{nobody}; handing over what was waited for takes {percentage(over)} of "
                f"a step, most in {self._largest(handed)[1]}: fewer and larger messages, or work "
                "meanwhile"
            )
        return f"{nobody}; make {scope} of {who} faster: {percentage(share)} of a step"


def _in_brackets(name: str) -> str:
    """A name such as ``(outside any scope)`` without its own brackets."""
    return name[1:-1] if name.startswith("(") else name


def _gaps(run: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """From when to when no step was, after each that counts before another one that does."""
    import numpy as np

    usual = np.array(run.usual, np.int64)
    before = usual[:-1][np.diff(usual) == 1]
    starts = np.array([run.steps[position].end for position in before], np.int64)
    ends = np.array([run.steps[position + 1].start for position in before], np.int64)
    return starts, np.maximum(starts, ends)


def _period(numbers: Sequence[int]) -> int | None:
    """After how many steps something comes again, if that is nearly always the same."""
    import numpy as np

    apart = np.diff(numbers)
    if len(apart) < 2:
        return None
    usual = int(np.median(apart))
    return usual if usual > 1 and (apart == usual).mean() >= _REGULAR else None


def ordinal(number: int) -> str:
    """A number as people count.

    >>> [ordinal(number) for number in (2, 3, 10, 11, 21)]
    ['2nd', '3rd', '10th', '11th', '21st']
    """
    teen = number // 10 % 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _joined(parts: Sequence[Straggler]) -> Straggler:
    """Stragglers of a group as one, the slowest first."""
    places = {each.place for each in parts}
    return attrs.evolve(
        parts[0],
        names=tuple(dict.fromkeys(name for each in parts for name in each.names)),
        processes=tuple(dict.fromkeys(number for each in parts for number in each.processes)),
        place=places.pop() if len(places) == 1 else ALL,
    )


def _and(names: Sequence[str]) -> str:
    """Names as people list them."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


_REGULAR = 0.8
"""Of the steps between two occasions, how many must be alike for a period."""
_LEAST_SAVED = 0.02
"""Share that must be saved for a straggler to be named."""
_LEAST_HANDOVER = 0.1
"""Share of a step from which handing over is worth a sentence."""
_COLLECT_LESS = (
    "Call gc.freeze() once all is set up, and collect between steps: gc.disable(), and "
    "gc.collect() in all ranks at the same steps."
)


def _one_of(shares: dict[tuple[int, int], float]) -> int | None:
    """The process that has nearly all of the shares; ``None`` if several have them."""
    sums: dict[int, float] = {}
    for (process, _), share in shares.items():
        sums[process] = sums.get(process, 0.0) + share
    most = max(sums, key=sums.__getitem__)
    return most if sums[most] >= _NEARLY_ALL * sum(sums.values()) else None


def _apart(positions: Sequence[int]) -> list[int]:
    """The first of some steps, and the next one that its window does not disturb."""
    first = positions[:1]
    return [*first, *[each for each in positions if abs(each - first[0]) > 2][:1]]


def _always(factors: dict[tuple[int, int], float]) -> Factors:
    """The same factors in every step."""
    return lambda _: factors


def _only(steps: Iterable[int], factors: Factors) -> Factors:
    """Factors in some steps, and none in the others."""
    chosen = frozenset(steps)
    return lambda step: factors(step) if step in chosen else {}


def _cut(rows: Iterable[Window], most: int) -> list[Window]:
    """Some parts of rows of steps, evenly spread, with so many steps in all."""
    length = max(1, most // 4)
    parts = [
        (first, min(first + length - 1, end))
        for begin, end in rows
        for first in range(begin, end + 1, length)
    ]
    return [parts[number] for number in _spread(range(len(parts)), max(3, most // length))]


def what_if(finding: Finding) -> str:
    """What a run would take without a cause, as a sentence says it."""
    saved = f"the run would take {percentage(finding.saves or 0.0)} less"
    if finding.cause == "imbalance":
        return f"if {finding.group} were balanced in {finding.scope}, {saved}"
    if finding.cause == "pauses":
        return f"without the pauses of {_and(finding.workers)}, {saved}"
    if finding.cause in ("rank", "drift"):
        whose = "their" if len(finding.workers) > 1 else "its"
        return f"if {_and(finding.workers)} were as fast as {whose} group's median, {saved}"
    if finding.cause == "server":
        who = finding.worker if len(finding.workers) == 1 else finding.group
        return f"if calls of {who} took half the time, {saved}"
    if finding.cause == "node":
        return f"if node {finding.worker} were as fast as the others, {saved}"
    if finding.cause == "late start":
        return f"if {finding.worker} began with the others, {saved}"
    if finding.cause == "garbage collection":
        return f"without the garbage collector in {finding.worker}, {saved}"
    if finding.scope == BETWEEN_CALLS:
        return f"without what {finding.worker} does between its calls, {saved} at most"
    return f"without {finding.worker} in {finding.scope}, {saved} at most"


def _spread(positions: Sequence[int], most: int) -> list[int]:
    """At most so many of the positions, evenly spread."""
    if len(positions) <= most:
        return list(positions)
    return [positions[number * len(positions) // most] for number in range(most)]


def no_steps(run: Run) -> str:
    """Why no step can be explained, and what to do: first what needs no edit of the job."""
    if run.steps:
        fewer = ", or set --warmup 0" if any(step.warm_up for step in run.steps) else ""
        return (
            f"no step can be explained: of {len(run.steps)} all are warm-up, captured or "
            f"incomplete; run more steps{fewer}"
        )
    where = (
        "`with profiler.step(i):` in the driver or "
        if any(p.role == "driver" for p in run.processes)
        else ""
    )
    marked = f"use {where}`with gpuprof.step(i):` in the ranks"
    if not run.launched:
        return f"no step is marked; {marked}"
    missing = f"step_at: {run.step_at} was never called" if run.step_at else "no step is found"
    called = most_called(run)
    if called is None:
        name, which = "MODULE:FUNCTION", "the function that makes a step"
    else:
        name, which = called.name, f"which {called.caller} calls {called.times} times"
    return (
        f"{missing}; without an edit, name what makes a step: gpuprof run --step-at {name} -- …, "
        f"{which}; in the job, {marked}"
    )


def percentage(share: float) -> str:
    """A share as people read it.

    >>> percentage(0.256), percentage(-0.001)
    ('26 %', '0 %')
    """
    return f"{round(100 * share, 0) + 0.0:.0f} %"  # -0.0 + 0.0 is 0.0


def duration(seconds: float) -> str:
    """A duration as people read it.

    >>> duration(3.14), duration(0.0123), duration(0.000045), duration(0.9997)
    ('3.14 s', '12.3 ms', '45 µs', '1.00 s')
    """
    if seconds >= 0.9995:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds * 1e6:.0f} µs"
