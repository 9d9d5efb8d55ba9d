"""Reads what a run has left, and puts it on one line of time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.collectives import recognise
from gpuprof._analysis.rhythm import bursts, find_steps, handed_out, mark_iterations, mark_rounds
from gpuprof._analysis.run import Place, Process, Run, Step, by_name, rows_of
from gpuprof._analysis.samples import attributes_of, samples_of
from gpuprof._analysis.waits import ANYBODY, NOTHING, Waits
from gpuprof._artifacts import early_ends, records, runs
from gpuprof._artifacts import ledger as ledger_files
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.ledger import RELEASES, Ledger
from gpuprof._session import stall
from gpuprof._session.ledger import (
    CLOCK_INTERVAL,
    HELPER,
    LAST_SECONDS,
    LIBRARY_STEPS,
    PACED_STEPS,
    STEP_AT,
)
from gpuprof.errors import ConfigError

Integers = NDArray[np.int64]

_SILENT = int((CLOCK_INTERVAL + LAST_SECONDS) * 1e9)
"""Nanoseconds after which a process without a new record has ended: an idle one notes its clocks.
"""
_ENDING = 10e9
"""Nanoseconds that the processes of a run may take to end."""
_MOST_PATHS = 16 * 2**20
"""Characters of the paths of all places, beside one for each byte of the ledgers."""
_MOST_CELLS = 2**19
"""Steps times processes, beside one for each three bytes of the ledgers: several numbers of eight
bytes are kept of each."""
_WARM_UP_SHARE = 1 / 3
"""At most so many of the steps are warm-up."""


@attrs.frozen
class Captured:
    """A window that a worker captured.

    Args:
        times: from when it began to open until it was closed, in nanoseconds; ``None`` if the
            ledgers do not tell, or not to compare with steps.
    """

    steps: range
    times: tuple[int, int] | None = None


def read(directory: str | Path, warm_up: int | None = None) -> Run:
    """Read a run's ledgers, and what its other files say about its steps.

    Args:
        warm_up: how many of the first steps are warm-up; ``None``: those that take longer.

    Raises:
        ConfigError: there is no ledger, or ``run.json`` has too many entries of the key `waits`.
    """
    return of_ledgers(Path(directory), *ledger_files.ledgers(Path(directory)), warm_up)


def of_ledgers(
    directory: Path, ledgers: Sequence[Ledger], problems: Sequence[str], warm_up: int | None = None
) -> Run:
    """The same as `read`, of ledgers that were read."""
    about = runs.about(directory)
    if not ledgers:
        raise ConfigError(
            [
                *problems,
                (
                    f"{directory}: nothing was recorded: no process left a ledger. Either the run "
                    "has only begun, or the key ledger switched them off, or gpuprof did not run "
                    "in the job; then the job's log says why"
                ),
            ]
        )
    patterns = about.config.get("waits") if about else None
    patterns = patterns if isinstance(patterns, dict) else {}
    if patterns:
        from gpuprof._config.schema import MOST_WAITS, too_many_waits  # slow to import

        if len(patterns) > MOST_WAITS:
            raise ConfigError(f"{directory}/run.json: config.waits: {too_many_waits(patterns)}")
    run = assemble(directory.name, ledgers, patterns)
    run.problems[:0] = [*problems, *stall.reports(str(directory))]
    instruments = about.config.get("instruments") if about else None
    if isinstance(instruments, list):
        run.instruments = frozenset(name for name in instruments if isinstance(name, str))
    run.launched = bool(about and about.beginning and about.beginning["driver"] is None)
    run.step_at = str(about.config.get("step_at") or "") if about else ""
    run.state = about.state if about else "ended"
    not_ended = [process for process in run.processes if not process.ledger.ended]
    if (
        run.state != "running"
        and len(not_ended) < len(run.processes)
        and all(_serves(run, process) for process in not_ended)
    ):
        run.state = "ended"  # nobody writes a manifest for ranks without a driver
    if run.state == "ended" and any(ledger.interrupted for ledger in ledgers):
        run.state = "interrupted"
    drivers = [ledger for ledger in ledgers if ledger.header["role"] == "driver"]
    if run.state == "running" and any(ledger.ended and ledger.interrupted for ledger in drivers):
        run.state = "interrupted"  # it says so at its end, before the manifest does
    if run.state == "running":
        run.quiet, run.stall = _quiet(ledgers), stall.last_sentence(str(directory))
    else:
        run.quiet = _quiet_at_end(ledgers, run.steps)
    ends = about.ended_early if about else None
    over = about is not None and about.goes_on() is False
    run.ended_early = _silent(run, over) if ends is None else ends
    run.ended_by_job = about.ended_by_job if about else []
    _cut_short(run)
    windows, with_tool = [], []
    for record in runs.records(about) if about else records.read_nodes(str(directory)):
        for start in record.starts:
            if start.session and start.session["profiled"] and not start.session["unwrapped"]:
                with_tool.append((record.node, start.name, start.incarnation))
            times = _window_times(run, record.node, start.name, start.incarnation)
            for window in start.windows:
                if window["state"] == "refused":
                    continue
                if window["start"] is None or window["stop"] is None:
                    run.whole_life.append(start.name)
                else:
                    steps = range(window["start"], window["stop"])
                    windows.append(Captured(steps, times.get(window["number"])))
    run.profiled = run.of_starts(with_tool)
    mark(run, windows, warm_up)
    run.recognised = recognise(run)
    return run


def _serves(run: Run, process: Process) -> bool:
    """Whether a process only works for the one that has started it, which may kill it at its end.

    Such are the environments of a vectorised one. Ranks mark steps.
    """
    return process.number in run.started and not process.ledger.steps()


def _silent(run: Run, over: bool) -> list[EarlyEnd]:
    """Workers that stopped recording while others went on, and did not close their ledgers.

    Args:
        over: whether the run is known to have ended. If nobody drove it, a rank that lacks whole
            steps of the others was then killed; otherwise it must have been silent for a while.
    """
    steps = [step for step in run.steps if step.complete]
    if not steps:
        return []
    patience = 0 if over and run.driver is None else _SILENT
    latest: dict[str, int] = {}
    for process in run.processes:
        first = process.ledger.first + process.ledger.offset
        latest[process.name] = max(first, latest.get(process.name, first))
    ends: list[EarlyEnd] = []
    for process in run.processes:
        ledger = process.ledger
        silent = steps[-1].start - ledger.last - ledger.offset
        least = max(patience, _SILENT) if _serves(run, process) else patience
        if process.role == "worker" and not ledger.ended and silent > least:
            driver = ledger if run.driver is None else run.processes[run.driver].ledger
            ends.append(
                {
                    "worker": process.name,
                    "node": process.node,
                    "incarnation": ledger.header["incarnation"] or "",
                    "step": early_ends.last_step(ledger, driver),
                    "restarted": latest[process.name] > ledger.last + ledger.offset,
                }
            )
    return ends


def _cut_short(run: Run) -> None:
    """Mark the steps in which workers may have ended early.

    From a worker's last record until its restart, or for as long as it may have lived without
    recording.
    """
    workers = by_name(run.processes)
    starts: dict[str, Integers] = {}
    times = []
    for number in run.killed:
        name, ledger = run.processes[number].name, run.processes[number].ledger
        if name not in starts:
            starts[name] = np.sort(
                np.concatenate([rows_of(process)[1] for process in workers[name]])
            )
        last = ledger.last + ledger.offset
        restarts = starts[name][np.searchsorted(starts[name], last, "right") :]
        times.append((last, int(restarts[0]) if len(restarts) else last + int(LAST_SECONDS * 1e9)))
    for position, cut in enumerate(_during(run.steps, times)):
        if cut:
            run.steps[position] = attrs.evolve(run.steps[position], complete=False)


def _window_times(run: Run, node: str, name: str, incarnation: str) -> dict[int, tuple[int, int]]:
    """When the windows of a worker began and ended, by number.

    In nanoseconds of the run, widened on both sides by the possible error of the worker's clock.
    Empty if that error is not known.
    """
    times: dict[int, tuple[int, int]] = {}
    for process in run.processes:
        ledger = process.ledger
        who = process.node, process.name, ledger.header["incarnation"]
        if who != (node, name, incarnation) or ledger.bound is None:
            continue
        last = ledger.last  # looks at all events
        for event in ledger.events:
            number, time = event.get("number"), event["time"]
            if event["event"] != "window" or not isinstance(number, int):
                continue
            begin = times.get(number, (time + ledger.offset - ledger.bound, 0))[0]
            if event.get("state") not in ("closed", "failed"):  # the process may have died in it
                time = last
            times[number] = begin, time + ledger.offset + ledger.bound
    return times


def assemble(name: str, ledgers: Sequence[Ledger], patterns: dict[str, Any]) -> Run:
    """Put ledgers on one line of time, which `gpuprof._artifacts.ledger.align` has set.

    No step is marked; see `mark`.

    Args:
        patterns: which scopes wait, as in the configuration's key ``waits``.
    """
    helpers: dict[str, list[Ledger]] = {}
    ranks = [ledger for ledger in ledgers if ledger.header["role"] != HELPER]
    for ledger in ledgers if ranks else ():
        if ledger.header["role"] == HELPER:
            helpers.setdefault(ledger.header["group"], []).append(ledger)
    ledgers, other_steps = _of_same_workers(ranks or ledgers)
    _part_calls(ledgers)
    waits = Waits(patterns)
    places: list[Place] = []
    place_numbers: dict[tuple[int, str], int] = {}
    size = sum(ledger.size for ledger in ledgers)
    characters = 0

    def place_of(parent: int, key: str, waits_for: str | None) -> int:
        nonlocal characters
        if (parent, key) not in place_numbers:
            place_numbers[parent, key] = len(places)
            around = places[parent] if parent >= 0 else None
            characters += len(key) + (len(around.path) + 1 if around else 0)
            if characters > _MOST_PATHS + size:
                raise ConfigError(
                    f"{name}: too large: with those around them, the names of all scopes "
                    f"have more than {_MOST_PATHS + size:,} characters; nest fewer scopes, "
                    "or use shorter names"
                )
            places.append(Place.inside(around, parent, key, waits.of(key)))
        number = place_numbers[parent, key]
        if waits_for == NOTHING:
            places[number] = attrs.evolve(places[number], waits_for=waits.configured(key))
            return number
        if waits_for == ANYBODY and places[number].waits_for is not None:
            return number  # the name says more
        if waits_for is not None and places[number].waits_for != waits_for:
            places[number] = attrs.evolve(places[number], waits_for=waits_for)
        return number

    processes, problems = [], []
    for number, ledger in enumerate(ledgers):
        header = ledger.header
        numbers = [-1]
        for place in ledger.places[1:]:  # a parent stands before its children
            numbers.append(place_of(numbers[place.parent], place.key, place.waits_for))
        processes.append(
            Process(
                number,
                header["name"],
                header["group"],
                header["rank"],
                header["node"],
                header["role"],
                ledger,
                np.array(numbers, np.int64),
            )
        )
        if ledger.damaged:
            problems.append(f"{ledger.path}: its last {ledger.damaged} bytes cannot be read")
    drivers = [process for process in processes if process.role == "driver"]
    driver = next((p for p in drivers if len(p.ledger.edges)), None)
    if driver is not None and _has(driver, PACED_STEPS):
        workers = [p for p in processes if p.role == "worker" and len(p.ledger.edges)]
        driver = None if workers else driver
        drivers = drivers if driver else []
    run = Run(name, processes, places, [], problems=problems, helpers=helpers)
    if drivers and (driver is None or _of_library(driver)):
        # an optimizer may step many times in what the job calls a step
        run.steps, run.round = find_steps(run, drivers[0])
        driver = drivers[0] if run.steps else driver
    if driver is None:
        if not any(len(ledger.edges) for ledger in ledgers):
            run.round = mark_iterations(ledgers) or mark_rounds(run)
        _own_steps(run)
        if drivers and not run.steps:
            run.steps, run.round = find_steps(run, drivers[0], handed_out)
            driver = drivers[0] if run.steps else None
    if driver is not None:
        run.driver = driver.number
        run.steps = run.steps or [
            Step(*edges) for edges in _edges(driver.ledger, _steps_of(driver))
        ]
    run.elsewhere = other_steps
    if len(run.steps) * len(processes) > _MOST_CELLS + size // 3:
        raise ConfigError(
            f"{name}: too large: {len(run.steps):,} steps of {len(processes):,} "
            "processes, most of them without a call"
        )
    starts = np.array([step.start for step in run.steps], np.int64)
    ends = np.array([step.end for step in run.steps], np.int64)
    run.samples = samples_of(ledgers, starts, ends)
    run.phases = list(range(len(places), len(places) + len(run.samples.names)))
    run.places += [Place(name, name, -1, 0) for name in run.samples.names]
    run.attributes = attributes_of(ledgers, [step.number for step in run.steps], starts)
    return run


def _quiet(ledgers: Sequence[Ledger]) -> float:
    """For how many seconds no scope or step has ended in a run that goes on."""
    ends = []
    for ledger in ledgers:
        times = (ledger.spans["end"], ledger.folds["end"], ledger.edges["time"])
        last = max(int(rows.max(initial=ledger.header["monotonic"])) for rows in times)
        ends.append(ledger.header["wall"] + last - ledger.header["monotonic"])
    return time.time() - max(ends) / 1e9


def _quiet_at_end(ledgers: Sequence[Ledger], steps: Sequence[Step]) -> float:
    """For how many seconds no scope or step had ended when the run was ended.

    What ends in the last moments does so because the run is ended, but for whole steps.
    """
    over = max(_wall(ledger, ledger.last) for ledger in ledgers)
    first = ledgers[0]
    ends = [
        _wall(first, step.end - first.offset)
        for step in steps
        if step.complete and _wall(first, step.start - first.offset) >= over - _ENDING
    ]
    for ledger in ledgers:
        for rows in (ledger.spans["end"], ledger.folds["end"], ledger.edges["time"]):
            before = rows[_wall(ledger, rows) < over - _ENDING]
            if len(before):
                ends.append(_wall(ledger, int(before.max())))
    return (over - max(ends)) / 1e9 if ends else 0.0


def _wall(ledger: Ledger, time: Any) -> Any:
    """A time of a process, or several, in nanoseconds of the wall clock."""
    return ledger.header["wall"] + time - ledger.header["monotonic"]


def _part_calls(ledgers: Sequence[Ledger]) -> None:
    """Let calls that begin as the one before them ends begin 1 ns after its end.

    Else that time would not tell which of the two is meant, and the later call's sender is lost.
    """
    keys = np.unique(np.concatenate([ledger.sent["key"] for ledger in ledgers]))
    for ledger in ledgers:
        links = ledger.links[ledger.links["role"] == RELEASES]
        begins = np.unique(links["start"][_among(links["key"], keys)])
        for rows in (ledger.spans, ledger.links):
            rows["end"] -= _among(rows["end"], begins) & (rows["start"] < rows["end"])


def _among(values: Integers, ordered: Integers) -> NDArray[np.bool_]:
    """As `numpy.isin`, which would sort both: the second has many more or many fewer values."""
    at = np.searchsorted(ordered, values)
    found: NDArray[np.bool_] = np.zeros(len(values), bool)
    inside = at < len(ordered)
    found[inside] = ordered[at[inside]] == values[inside]
    return found


def _of_same_workers(ledgers: Sequence[Ledger]) -> tuple[Sequence[Ledger], int]:
    """The ledgers of the ranks that mark most steps, and how many steps the other ranks mark.

    An elastic launcher ends all ranks and starts new ones, which may have the same names. On Ray
    nothing is left out, since the driver lives on.
    """
    if any(ledger.header["role"] == "driver" for ledger in ledgers):
        return ledgers, 0
    starts: list[list[Ledger]] = []
    until = -math.inf
    for ledger in sorted((ledger for ledger in ledgers if len(ledger.edges)), key=_first_step):
        if _first_step(ledger) > until:
            starts.append([])
        starts[-1].append(ledger)
        until = max(until, _last(ledger))
    by_workers: dict[frozenset[str], list[list[Ledger]]] = {}
    for start in _joined(starts):
        by_workers.setdefault(_names(start), []).append(start)
    if len(by_workers) < 2:
        return ledgers, 0
    steps = {
        workers: sum(max(len(ledger.steps()) for ledger in start) for start in of_them)
        for workers, of_them in by_workers.items()
    }
    most = max(steps, key=steps.__getitem__)
    chosen = by_workers[most]
    times = [(min(map(_first_step, start)), max(map(_last, start))) for start in chosen]
    ranks = {ledger.path for start in chosen for ledger in start}
    remaining = [
        ledger
        for ledger in ledgers
        if ledger.path in ranks
        or (
            not len(ledger.edges)
            and any(ledger.first + ledger.offset <= b and _last(ledger) >= a for a, b in times)
        )
    ]
    return remaining, sum(steps.values()) - steps[most]


def _joined(starts: Iterable[list[Ledger]]) -> list[list[Ledger]]:
    """Starts of a job; ranks that come after others, and are none of them, are of the same one."""
    full_starts: list[list[Ledger]] = []
    for start in starts:
        if full_starts and _names(full_starts[-1]).isdisjoint(_names(start)):
            full_starts[-1] = [*full_starts[-1], *start]
        else:
            full_starts.append(start)
    return full_starts


def _names(ledgers: Iterable[Ledger]) -> frozenset[str]:
    return frozenset(ledger.name for ledger in ledgers)


def _first_step(ledger: Ledger) -> int:
    return int(ledger.edges["time"].min()) + ledger.offset


def _last(ledger: Ledger) -> int:
    return ledger.last + ledger.offset


def found_rounds(name: str, ledgers: Sequence[Ledger]) -> list[Step]:
    """The rounds of a driver's calls, where they are the steps of a run; else empty.

    Where the iterations of the ranks' loop are, these are marked in the ledgers.
    """
    drivers = [driver for driver in ledgers if driver.header["role"] == "driver"]
    with_steps = next((driver for driver in drivers if len(driver.edges)), None)
    if not drivers and not any(len(ledger.edges) for ledger in ledgers):
        mark_iterations(ledgers)
    if not drivers or not (with_steps is None or _noted(with_steps, LIBRARY_STEPS)):
        return []
    run = assemble(name, ledgers, {})
    return run.steps if run.round and run.driver is not None else []


def _edges(
    ledger: Ledger, steps: Sequence[ledger_files.Step]
) -> Iterator[tuple[int, int, int, bool]]:
    """Number, start and end of steps of a process, and whether each has ended.

    A step without an end ends where the next one begins, or with the ledger.
    """
    last = ledger.last
    for step, after in zip_longest(steps, steps[1:]):
        end = step.end
        if end is None:
            end = after.start if after is not None else max(last, step.start)
        yield step.number, step.start + ledger.offset, end + ledger.offset, step.end is not None


def _of_library(process: Process) -> bool:
    """Whether a process's steps are those of a library."""
    return _has(process, LIBRARY_STEPS)


def _has(process: Process, kind: str) -> bool:
    return _noted(process.ledger, kind)


def _noted(ledger: Ledger, kind: str) -> bool:
    return any(event["event"] == kind for event in ledger.events)


def _steps_of(process: Process) -> list[ledger_files.Step]:
    """The steps of a process, without a last one that merely began as the one before it ended."""
    steps = process.ledger.steps()
    only_begun = (process.ledger.ended and process.role != "driver") or _has(process, STEP_AT)
    return steps[:-1] if steps and steps[-1].end is None and only_begun else steps


def _own_steps(run: Run) -> None:
    """The steps of ranks that mark their own.

    A step ends when the last rank ends it, and is as long as in its slowest rank. Counted from the
    first rank's beginning, it would also contain the time between the ranks' starts, which grows if
    they never wait for each other.
    """
    steps: dict[tuple[int, int], dict[int, tuple[int, int, bool]]] = {}
    occurrences: dict[str, dict[int, int]] = {}
    in_order_of_start = sorted(run.processes, key=lambda p: p.ledger.first + p.ledger.offset)
    for process, marked in _by_burst(
        run,
        {
            process: list(_edges(process.ledger, _steps_of(process)))
            for process in in_order_of_start
            if not _has(process, PACED_STEPS)
        },
    ):
        # a rank that was started again goes on, or repeats steps
        times = occurrences.setdefault(process.name, {})
        for number, start, end, complete in marked:
            occurrence = times[number] = times.get(number, -1) + 1
            steps.setdefault((number, occurrence), {})[process.number] = start, end, complete
    in_order = sorted(steps.items(), key=lambda step: min(edge[0] for edge in step[1].values()))
    ranks = {number for _, edges in in_order for number in edges}
    run.of_optimizer = any(_of_library(run.processes[rank]) for rank in ranks)
    for number in ranks:
        run.edges[number] = np.zeros((2, len(in_order)), np.int64)
    for position, ((number, _), edges) in enumerate(in_order):
        end = max(edge[1] for edge in edges.values())
        longest = max(edge[1] - edge[0] for edge in edges.values())
        complete = all(edge[2] for edge in edges.values())
        run.steps.append(Step(number, end - longest, end, complete))
        for rank, (start, end, _) in edges.items():
            run.edges[rank][:, position] = start, end


_Edges = tuple[int, int, int, bool]
"""Of a step: its number, its start and end, and whether it has ended."""


def _by_burst(
    run: Run, marked: Mapping[Process, Sequence[_Edges]]
) -> Iterator[tuple[Process, Sequence[_Edges]]]:
    """The steps of each rank; if those of the optimizer come in bursts, a step for each burst."""
    of_optimizer = [edges for process, edges in marked.items() if edges and _of_library(process)]
    longest = max(of_optimizer, key=len, default=())
    firsts = bursts([end - start for _, start, end, _ in longest])
    numbers = {longest[at][0] for at in firsts}
    if firsts:
        run.in_a_burst = int(np.median(np.diff(firsts)))
    for process, edges in marked.items():
        if not firsts or not _of_library(process):
            yield process, edges
            continue
        starts = [at for at, (number, *_) in enumerate(edges) if number in numbers]
        yield (
            process,
            [
                (edges[first][0], edges[first][1], edges[last - 1][2], edges[last - 1][3])
                for first, last in pairwise([*starts, len(edges)])
            ],
        )


def mark(run: Run, windows: Iterable[Captured], warm_up: int | None = None) -> Run:
    """Mark captured steps, those that windows slow, and the warm-up. Returns the run.

    Args:
        windows: of all workers. If the times of one are not known, the first step of each of its
            numbers is captured, and the step after it is slow as well: other ranks begin it while
            the window closes.
    """
    times: dict[range, list[tuple[int, int]]] = {}
    unknown: set[range] = set()
    for window in windows:
        if window.times is None:
            unknown.add(window.steps)
        else:
            times.setdefault(window.steps, []).append(window.times)
    slow = _during(run.steps, [pair for of_steps in times.values() for pair in of_steps])
    numbers = np.array([step.number for step in run.steps], np.int64)

    def numbered(steps: range) -> list[int]:
        """The positions of the steps of a window, which may ask for more than there are."""
        mask = (numbers >= steps.start) & (numbers < steps.stop)
        positions: list[int] = np.flatnonzero(mask).tolist()
        return positions

    pending = {run.steps[at].number for steps in unknown for at in numbered(steps)}
    inside: set[int] = set()
    for steps, of_steps in times.items():
        positions = numbered(steps)
        during = _during([run.steps[at] for at in positions], of_steps)
        inside.update(at for at, cut in zip(positions, during, strict=True) if cut)
    before = False
    for position, step in enumerate(run.steps):
        is_captured = step.number in pending
        pending.discard(step.number)
        run.steps[position] = attrs.evolve(
            step,
            captured=is_captured or position in inside,
            disturbed=is_captured or before or slow[position],
        )
        before = is_captured
    lasting = [step.duration for step in run.steps if step.complete and not step.disturbed]
    first = found_warm_up(lasting) if warm_up is None else warm_up
    for position, step in enumerate(run.steps):
        if first <= 0:
            break
        run.steps[position] = attrs.evolve(step, warm_up=True)
        # what is left out anyway does not count among those that were looked at
        first -= warm_up is not None or (step.complete and not step.disturbed)
    return run


def _during(steps: Sequence[Step], times: Sequence[tuple[int, int]]) -> list[bool]:
    """Which steps overlap any of the given times."""
    begins, ends = np.sort(np.array(times, np.int64).reshape(-1, 2), axis=0).T
    begin_counts = np.searchsorted(begins, [step.end for step in steps], "left")
    end_counts = np.searchsorted(ends, [step.start for step in steps], "right")
    overlaps: list[bool] = (begin_counts > end_counts).tolist()
    return overlaps


def found_warm_up(durations: Sequence[int]) -> int:
    """How many of the first steps are warm-up.

    Those that take longer than the steps in the second half do: by more than a fifth of their
    median, and by more than five times its median absolute deviation, scaled to a normal one.

    >>> found_warm_up([900, 300, 100, 101, 99, 103, 100, 98, 100, 102])
    2
    >>> found_warm_up([100, 101, 99, 103, 500, 98, 100, 102])
    0

    Of three steps nobody knows:

    >>> found_warm_up([300, 100, 100])
    0
    """
    if len(durations) < 4:
        return 0
    later = np.array(durations[len(durations) // 2 :], float)
    median = float(np.median(later))
    spread = 1.4826 * float(np.median(np.abs(later - median)))
    limit = median + max(0.2 * median, 5 * spread)
    count = 0
    while count < int(len(durations) * _WARM_UP_SHARE) and durations[count] > limit:
        count += 1
    return count
