"""What a comparison needs of a run, in a few kilobytes: a baseline is a file of these."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import reading
from gpuprof._analysis.causes import Name
from gpuprof._analysis.explain import explain
from gpuprof._analysis.figures import (
    RANKS_WAITED_SPREAD,
    WAITED_SPREAD,
    Figure,
    figure,
    wandering,
)
from gpuprof._analysis.loop import BETWEEN_STEPS, NAMES
from gpuprof._analysis.run import (
    OUTSIDE,
    Process,
    Run,
    by_name,
    imbalance,
    of_others,
    of_ranks,
    waited,
)
from gpuprof._analysis.usage import Usage, usage_of
from gpuprof._artifacts import early_ends, formats, manifest, runs
from gpuprof._artifacts.formats import LARGEST_MANIFEST, Setup
from gpuprof._artifacts.receipt import count
from gpuprof._shim.files import write_json
from gpuprof.errors import ConfigError, OutputError

Floats = NDArray[np.float64]

VERSION = 5
FORMAT = "gpuprof-baseline"
_DIGITS = 5
_BETWEEN_CALLS = "(between calls)"


@attrs.frozen
class Steps:
    """A run's steps: how many are used, and how many are left out and why.

    Args:
        disturbed: captured ones, and those that windows slow.
    """

    all: int
    used: int
    warm_up: int
    disturbed: int
    incomplete: int


@attrs.frozen
class Scope:
    """A place in the trees of a group.

    Args:
        calls: per step and rank.
        seconds: per step, the mean of the group's ranks.
        ranks: the seconds per step of each rank, by worker.
        to_others: for each rank, its time in a step relative to the median of the group's other
            ranks. What slows a whole run slows all ranks, so this ratio differs less between runs.
            Empty if the place waits.
    """

    waits: bool
    calls: float
    seconds: Figure
    ranks: dict[str, Figure]
    to_others: dict[str, Figure]


@attrs.frozen
class Group:
    """A worker group, or the driver.

    Args:
        work: seconds per step in scopes that do not wait, the mean of its ranks.
        waits: the same in scopes that wait.
        imbalance: the most work of a rank to the mean of the ranks, in the median step; 1 if all
            work as much.
        ranks: the work of each rank, by worker; empty for a single rank.
        to_others: for each rank, its work relative to the other ranks'; see `Scope`.
    """

    workers: list[str]
    work: Figure
    waits: Figure
    imbalance: float
    scopes: dict[str, Scope]
    ranks: dict[str, Figure] = attrs.field(factory=dict)
    to_others: dict[str, Figure] = attrs.field(factory=dict)

    @property
    def seconds(self) -> Figure:
        """What it does: its work."""
        return self.work


@attrs.frozen
class Reports:
    """How many reports a run has left, and how many were expected."""

    complete: int
    expected: int


@attrs.frozen
class Promise:
    """The first cause that `gpuprof explain` names, and what a run would take without it.

    Args:
        worker: its worker or node; of several the slowest.
        saves: share of the run.
    """

    cause: Name
    worker: str
    workers: list[str]
    group: str
    scope: str
    saves: float


@attrs.frozen
class Summary:
    """A run as a comparison sees it.

    Args:
        setup: what it ran on and with; ``None`` if it does not say.
        seconds: a step; without a driver, of the rank in which it takes longest.
        overhead: what profiling cost, as the receipt says it.
        ended_early: a sentence for workers that were killed or crashed.
        promise: ``None`` if no cause is named.
        waited: share of these steps in which the workers' main threads waited for a processor, in
            the mean; ``None`` if the ledgers do not tell.
        round: of what each step is a round, where nobody marked steps; else empty.
        load: for each processor of its machines, how many threads ran or were ready to, in the
            mean; ``None`` if the ledgers do not tell.
        processors: how many processors its machines have together.
    """

    run: str
    setup: Setup | None
    steps: Steps
    seconds: Figure
    groups: dict[str, Group]
    reports: Reports | None = None
    overhead: str = ""
    problems: list[str] = attrs.field(factory=list)
    ended_early: list[str] = attrs.field(factory=list)
    promise: Promise | None = None
    waited: float | None = None
    round: str = ""
    load: float | None = None
    processors: int = 0


@attrs.frozen
class Baseline:
    """The content of a baseline file.

    Args:
        runs: one or more, equal but for chance.
    """

    format: str
    version: int
    runs: list[Summary]


def summary_of(directory: str | Path, warm_up: int | None = None) -> Summary:
    """Summarise a run."""
    summary = summarise(reading.read(directory, warm_up))
    about = runs.about(directory)
    if about is None:
        return summary
    summary = attrs.evolve(summary, problems=[*about.faults, *summary.problems])
    if about.manifest is not None:
        receipt = about.manifest["receipt"]
        return attrs.evolve(
            summary,
            setup=about.manifest["setup"],
            reports=Reports(*count(receipt["rows"])),
            overhead=receipt["overhead"],
        )
    if about.beginning is not None:
        return attrs.evolve(summary, setup=manifest.setup(about.beginning, runs.records(about)))
    return summary


def summarise(run: Run) -> Summary:
    """Summarise the ledgers of a run, of its usual steps only."""
    usual = run.usual
    steps = Steps(
        len(run.steps),
        len(usual),
        sum(step.warm_up for step in run.steps),
        sum(step.disturbed and not step.warm_up for step in run.steps),
        sum(not (step.complete or step.disturbed or step.warm_up) for step in run.steps),
    )
    members = dict(run.groups)
    for process in run.processes:
        if process.role == "driver":
            members.setdefault(process.group, []).append(process)
    starvation = _starved(run, usual)
    share = float(np.mean(list(starvation.values()))) if starvation else None
    load, processors = _load(run)
    durations = np.array([run.steps[position].duration for position in usual], float) / 1e9
    inflation = _wandering(run, members.values(), usual)
    return Summary(
        run.name,
        None,
        steps,
        _rounded(durations, share or 0.0, inflation=inflation),
        {
            name: _group(run, processes, usual, starvation, inflation)
            for name, processes in sorted(members.items())
        },
        problems=list(run.problems),
        ended_early=early_ends.sentences(run.ended_early),
        promise=_promise(run) if usual else None,
        waited=None if share is None else _round(share),
        round=run.round,
        load=None if load is None else _round(load),
        processors=processors,
    )


def _load(run: Run) -> tuple[float | None, int]:
    """The load of a run's machines for each of their processors, and how many processors."""
    nodes: dict[str, list[Usage]] = {}
    for process in run.processes:
        usage = usage_of(run, process)
        if usage is not None and usage.load:
            nodes.setdefault(usage.node, []).append(usage)
    processors = sum(usages[0].machine_processors for usages in nodes.values())
    if not processors:
        return None, 0
    threads = sum(float(np.mean([usage.load for usage in usages])) for usages in nodes.values())
    return threads / processors, processors


def _starved(run: Run, usual: Sequence[int]) -> dict[str, float]:
    """What share of these steps each worker waited for a processor, of those that tell."""
    shares: dict[str, float] = {}
    for process in run.processes if usual else ():
        if process.role == "worker":
            share = waited(process, run.steps[usual[0]].start, run.steps[usual[-1]].end)
            if share is not None:
                shares[process.name] = max(share, shares.get(process.name, 0.0))
    return shares


def _promise(run: Run) -> Promise | None:
    """Of the first cause that is certain: a hint promises nothing."""
    for finding in explain(run).findings:
        if finding.grade == "named" and finding.saves is not None:
            return Promise(
                finding.cause,
                finding.worker,
                list(finding.workers),
                finding.group,
                finding.scope,
                _round(finding.saves),
            )
    return None


def _group(
    run: Run,
    processes: Sequence[Process],
    usual: Sequence[int],
    starvation: Mapping[str, float],
    inflation: float,
) -> Group:
    workers = by_name(processes)
    names, ranks = list(workers), list(workers.values())
    shares = [starvation.get(name, 0.0) for name in names]
    mean = sum(shares) / len(shares)
    processes = list(chain.from_iterable(ranks))
    numbers = [process.number for process in processes]
    rows = run.sums[np.isin(run.sums["process"], numbers)]
    waiting = np.zeros((len(run.steps), len(run.processes)))
    np.add.at(waiting, (rows["step"], rows["process"]), rows["waiting"])
    # of several threads or tasks that wait at once, one counts
    waiting[:, numbers] = np.minimum(
        waiting[:, numbers], (run.tracked[:, numbers] - run.work(processes)).clip(0)
    )
    work = of_ranks(run.work(processes)[usual], ranks) / 1e9
    scopes = {}
    for number in np.unique(rows["place"]).tolist():
        seconds = of_ranks(run.matrix("busy", number, processes)[usual], ranks) / 1e9
        if not seconds.any():
            continue
        calls = of_ranks(run.matrix("calls", number, processes)[usual], ranks)
        waits = bool(run.waiting_places[number])
        scopes[run.places[number].path] = Scope(
            waits,
            _round(float(calls.mean())),
            _rounded(seconds.mean(axis=1), mean, inflation=1.0 if waits else inflation),
            *_of_ranks(names, seconds, shares, compares=not waits),
        )
    outside = (run.lengths[:, numbers] - run.tracked[:, numbers]).clip(0)
    is_called = run.driver is not None and processes[0].number != run.driver
    nowhere = _BETWEEN_CALLS if is_called else NAMES[OUTSIDE]
    between = _between_steps(run, processes)
    for name, columns in ((nowhere, outside), (BETWEEN_STEPS, between)):
        seconds = of_ranks(columns[usual], ranks) / 1e9
        if seconds.any():
            # a rank may wait there for others, so that it is not compared with them
            of_ranks_there = _of_ranks(names, seconds, shares, compares=False)
            whole = _rounded(seconds.mean(axis=1), mean)
            scopes[name] = Scope(False, 0.0, whole, *of_ranks_there)
    return Group(
        names,
        _rounded(work.mean(axis=1), mean, inflation=inflation),
        _rounded(of_ranks(waiting[np.ix_(usual, numbers)], ranks).mean(axis=1) / 1e9, mean),
        _round(imbalance(work, of_ranks(run.lengths[np.ix_(usual, numbers)], ranks) > 0)),
        scopes,
        *_of_ranks(names, work, shares),
    )


def _between_steps(run: Run, processes: Sequence[Process]) -> Floats:
    """Nanoseconds after each step until the next one of those that count, by step and process.

    Only processes that mark steps have any.
    """
    after = np.zeros((len(run.steps), len(processes)))
    usual = np.array(run.usual, np.int64)
    before = usual[:-1][np.diff(usual) == 1]
    for column, process in enumerate(processes):
        if process.number in run.edges or process.number == run.driver:
            start, end = run.step_edges(process)
            both = before[(start[before + 1] > 0) & (end[before] > 0)]
            after[both, column] = (start[both + 1] - end[both]).clip(0)
    return after


def _ratios(seconds: Floats) -> list[Floats]:
    """Of each rank, in a column, its time to the others', in the steps in which both have any."""
    others = of_others(seconds)
    ratios = np.divide(seconds, others, out=np.zeros_like(seconds), where=others > 0)
    return [row[row > 0] for row in ratios.T]


def _wandering(run: Run, groups: Iterable[Sequence[Process]], usual: Sequence[int]) -> float:
    """By how much the wandering speeds of all ranks inflate the variance of a mean.

    What all ranks have in common is in the steps themselves, and not in their ratios.
    """
    ratios: list[Floats] = []
    for processes in groups:
        ranks = list(by_name(processes).values())
        if len(ranks) > 1:
            ratios += _ratios(of_ranks(run.work(processes)[usual], ranks))
    return wandering(ratios)


def _of_ranks(
    names: Sequence[str], seconds: Floats, shares: Sequence[float], compares: bool = True
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """The figures of each of several ranks, and those of its time to the others'.

    Args:
        seconds: by step and rank.
        compares: whether the times tell how fast the ranks are.
    """
    if len(names) < 2:
        return {}, {}
    ratios = _ratios(seconds) if compares else []
    inflation = wandering(ratios)
    figures = {
        name: _rounded(column, share, inflation=inflation)
        for name, column, share in zip(names, seconds.T, shares, strict=True)
    }
    to_others = {
        name: _rounded(row, share, RANKS_WAITED_SPREAD, inflation)
        for name, row, share in zip(names, ratios, shares, strict=False)
        if len(row)
    }
    return figures, to_others


def _rounded(
    values: Floats, share: float, spread: float = WAITED_SPREAD, inflation: float = 1.0
) -> Figure:
    """A figure with as many digits as a baseline keeps, so that one gives what its runs would.

    Args:
        share: how much of the time the threads waited for a processor, at most 1.
        spread: how much runs differ for that reason, to this share's square.
        inflation: by wandering speeds; see `wandering`.
    """
    exact = figure(values, spread * share**2, inflation)
    return Figure(_round(exact.seconds), _round(exact.error), exact.steps, _round(exact.effective))


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else 0.0


def write_baseline(path: str | Path, summaries: Sequence[Summary]) -> int:
    """Write a baseline, in place of an older one."""
    content = attrs.asdict(Baseline(FORMAT, VERSION, list(summaries)))
    try:
        write_json(str(path), content)
        return os.path.getsize(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None


def read_baseline(path: str | Path) -> list[Summary]:
    """Read the runs of a baseline."""
    try:
        data = formats.load(path, LARGEST_MANIFEST)
        if data.get("format") != FORMAT:
            raise ConfigError(f"{path}: not a baseline; gpuprof baseline RUN -o FILE makes one")
        if data.get("version") != VERSION:
            raise ConfigError(
                f"{path}: version {json.dumps(data.get('version'))}; expected {VERSION}: "
                "make it again with gpuprof baseline RUN -o FILE"
            )
        baseline = formats.check(path, data, Baseline, VERSION)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; gpuprof baseline RUN -o FILE makes a baseline"
        ) from None
    except OutputError as error:
        raise ConfigError(str(error)) from None
    if not baseline.runs:
        raise ConfigError(f"{path}: contains no runs; gpuprof baseline RUN -o FILE makes one")
    return baseline.runs
