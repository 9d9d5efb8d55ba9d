"""Reads what a run has left, and puts it on one line of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from gpuprof._analysis.collectives import recognise
from gpuprof._analysis.run import Place, Process, Run, Step, rows_of
from gpuprof._analysis.waits import ANYBODY, NOTHING, Waits
from gpuprof._artifacts import early_ends, records, runs
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.ledger import Ledger
from gpuprof._session.ledger import CLOCK_INTERVAL, LAST_SECONDS
from gpuprof.errors import ConfigError

if TYPE_CHECKING:
    pass

_SILENT = int((CLOCK_INTERVAL + LAST_SECONDS) * 1e9)
"""Nanoseconds after which a process without a new record has ended: an idle one notes its clocks.
"""
_WARM_UP_SHARE = 1 / 3
"""At most so many of the steps are warm-up."""


@attrs.frozen
class Captured:
    """A window that a worker captured.

    Args:
        steps: its steps' numbers.
        times: from when it began to open until it was closed, in nanoseconds; ``None`` if the
            ledgers do not tell, or not to compare with steps.
    """

    steps: range
    times: tuple[int, int] | None = None


def read(directory: str | Path, warm_up: int | None = None) -> Run:
    """Read a run's ledgers, and what its other files say about its steps.

    Args:
        directory: the run's.
        warm_up: how many of the first steps are warm-up; ``None``: those that take longer.

    Raises:
        ConfigError: there is no ledger.
    """
    directory = Path(directory)
    about = runs.about(directory)
    found, problems = ledgers.ledgers(directory)
    if not found:
        raise ConfigError(
            [
                *problems,
                (
                    f"{directory}: no ledger found; it needs a run with `ledger: true`, the "
                    "default, whose workers used gpuprof"
                ),
            ]
        )
    patterns = about.config.get("waits") if about else None
    made = assemble(directory.name, found, patterns if isinstance(patterns, dict) else {})
    made.problems[:0] = problems
    instruments = about.config.get("instruments") if about else None
    if isinstance(instruments, list):
        made.instruments = frozenset(each for each in instruments if isinstance(each, str))
    known = about.ended_early if about else None
    over = about is not None and about.goes_on() is False
    made.ended_early = _silent(made, over) if known is None else known
    made.ended_by_job = about.ended_by_job if about else []
    _cut_short(made)
    captured, profiled = [], []
    for record in runs.records(about) if about else records.read_nodes(str(directory)):
        for start in record.starts:
            if start.session and start.session["profiled"] and not start.session["unwrapped"]:
                profiled.append((record.node, start.name, start.incarnation))
            times = _window_times(made, record.node, start.name, start.incarnation)
            for window in start.windows:
                if window["opened"] is None:
                    continue
                if window["start"] is None or window["stop"] is None:
                    made.whole_life.append(start.name)
                else:
                    steps = range(window["start"], window["stop"])
                    captured.append(Captured(steps, times.get(window["number"])))
    made.profiled = made.of_starts(profiled)
    mark(made, captured, warm_up)
    made.recognised = recognise(made)
    return made


def _silent(run: Run, over: bool) -> list[EarlyEnd]:
    """Workers that recorded nothing any more while others did, and have not closed their ledgers.

    Args:
        over: whether the run is known to have ended. If nobody drove it, a rank that lacks whole
            steps of the others was then killed; otherwise it must have been silent for a while.
    """
    steps = [step for step in run.steps if step.complete]
    if not steps:
        return []
    patience = 0 if over and run.driver is None else _SILENT
    found: list[EarlyEnd] = []
    for process in run.processes:
        ledger = process.ledger
        silent = steps[-1].start - ledger.last - ledger.offset
        if process.role == "worker" and not ledger.ended and silent > patience:
            driver = ledger if run.driver is None else run.processes[run.driver].ledger
            found.append(
                {
                    "worker": process.name,
                    "node": process.node,
                    "incarnation": ledger.header["incarnation"] or "",
                    "step": early_ends.last_step(ledger, driver),
                    "restarted": any(
                        other.name == process.name
                        and other.ledger.first + other.ledger.offset > ledger.last + ledger.offset
                        for other in run.processes
                    ),
                }
            )
    return found


def _cut_short(run: Run) -> None:
    """Mark the steps in which workers may have ended early.

    From the last record of one until it was started again, or for as long as it may have lived on.
    """
    for number in run.killed:
        process = run.processes[number]
        last = process.ledger.last + process.ledger.offset
        again = [
            start
            for other in run.processes
            if other.name == process.name
            for start in rows_of(other)[1].tolist()
            if start > last
        ]
        gone = min(again, default=last + int(LAST_SECONDS * 1e9))
        cut = _during(run.steps, [(last, gone)])
        for position, step in enumerate(run.steps):
            if cut[position]:
                run.steps[position] = attrs.evolve(step, complete=False)


def _window_times(run: Run, node: str, name: str, incarnation: str) -> dict[int, tuple[int, int]]:
    """From when to when the windows of a worker took place, by their numbers.

    In nanoseconds of the run, with what its clock may be off on both sides; empty where that is not
    known.
    """
    found: dict[int, tuple[int, int]] = {}
    for process in run.processes:
        ledger = process.ledger
        who = process.node, process.name, ledger.header["incarnation"]
        if who != (node, name, incarnation) or ledger.bound is None:
            continue
        for event in ledger.events:
            number, time = event.get("number"), event["time"]
            if event["event"] != "window" or not isinstance(number, int):
                continue
            begun = found.get(number, (time + ledger.offset - ledger.bound, 0))[0]
            if event.get("state") != "closed":  # the process may have died in it
                time = ledger.last
            found[number] = begun, time + ledger.offset + ledger.bound
    return found


def assemble(name: str, found: Sequence[Ledger], patterns: dict[str, Any]) -> Run:
    """Put ledgers on one line of time, which `gpuprof._artifacts.ledger.align` has set.

    No step is marked; see `mark`.

    Args:
        name: the run's.
        patterns: which scopes wait, as in the configuration's key ``waits``.
    """
    import numpy as np

    waits = Waits(patterns)
    places: list[Place] = []
    known: dict[tuple[str, ...], int] = {}

    def place_of(keys: tuple[str, ...], waits_for: str | None) -> int:
        if keys not in known:
            parent = place_of(keys[:-1], None) if len(keys) > 1 else -1
            known[keys] = len(places)
            places.append(Place(keys, parent, waits.of(keys[-1])))
        number = known[keys]
        if waits_for == NOTHING:
            places[number] = attrs.evolve(places[number], waits_for=waits.configured(keys[-1]))
            return number
        if waits_for == ANYBODY and places[number].waits_for is not None:
            return number  # the name says more
        if waits_for is not None and places[number].waits_for != waits_for:
            places[number] = attrs.evolve(places[number], waits_for=waits_for)
        return number

    processes, problems = [], []
    for number, each in enumerate(found):
        header = each.header
        numbers = [-1, *(place_of(place.keys, place.waits_for) for place in each.places[1:])]
        processes.append(
            Process(
                number,
                header["name"],
                header["group"],
                header["rank"],
                header["node"],
                header["role"],
                each,
                np.array(numbers, np.int64),
            )
        )
        if each.damaged:
            problems.append(f"{each.path}: its last {each.damaged} bytes cannot be read")
    drivers = [process for process in processes if process.role == "driver"]
    driver = next((p for p in drivers if len(p.ledger.edges)), None)
    made = Run(name, processes, places, [], driver.number if driver else None, problems=problems)
    if driver is not None:
        offset, last = driver.ledger.offset, driver.ledger.last
        made.steps = [
            Step(
                step.number,
                step.start + offset,
                (step.end or max(last, step.start)) + offset,
                step.end is not None,
            )
            for step in driver.ledger.steps()
        ]
        _repair(made)
    else:
        _own_steps(made)
    return made


def _repair(run: Run) -> None:
    """A step that did not end, ends where the next one begins."""
    for position, (step, after) in enumerate(zip(run.steps, run.steps[1:], strict=False)):
        if step.end > after.start:
            run.steps[position] = attrs.evolve(step, end=after.start)


def _own_steps(run: Run) -> None:
    """The steps of ranks that mark their own.

    Each ends with the last rank, and is as long as in the rank in which it takes longest. From the
    first beginning on, there would be the time between the ranks' starts in it, if they never wait
    for each other.
    """
    import numpy as np

    marked: dict[tuple[int, int], dict[int, tuple[int, int, bool]]] = {}
    for process in run.processes:
        offset, last = process.ledger.offset, process.ledger.last
        times: dict[int, int] = {}
        steps = process.ledger.steps()
        if steps and steps[-1].end is None and process.ledger.ended:
            del steps[-1]  # of a library, which ended its last step where this one begins
        for step in steps:
            occurrence = times[step.number] = times.get(step.number, -1) + 1
            marked.setdefault((step.number, occurrence), {})[process.number] = (
                step.start + offset,
                (step.end or max(last, step.start)) + offset,
                step.end is not None,
            )
    ordered = sorted(marked.items(), key=lambda each: min(edge[0] for edge in each[1].values()))
    ranks = {number for _, edges in ordered for number in edges}
    for number in ranks:
        run.edges[number] = np.zeros((2, len(ordered)), np.int64)
    for position, ((number, _), edges) in enumerate(ordered):
        end = max(edge[1] for edge in edges.values())
        longest = max(edge[1] - edge[0] for edge in edges.values())
        complete = all(edge[2] for edge in edges.values())
        run.steps.append(Step(number, end - longest, end, complete))
        for rank, (start, end, _) in edges.items():
            run.edges[rank][:, position] = start, end


def mark(run: Run, captured: Iterable[Captured], warm_up: int | None = None) -> Run:
    """Mark captured steps, those that windows slow, and the warm-up. Returns the run.

    Args:
        captured: the windows. Where no times are known, the first step of each number is captured,
            and the step after it is slow as well: other ranks begin it while the window closes.
        warm_up: as for `read`.
    """
    times: dict[range, list[tuple[int, int]]] = {}
    left: set[int] = set()
    for window in captured:
        if window.times is None:
            left.update(window.steps)
        else:
            times.setdefault(window.steps, []).append(window.times)
    slow = _during(run.steps, [each for of_steps in times.values() for each in of_steps])
    inside = {steps: _during(run.steps, of_steps) for steps, of_steps in times.items()}
    before = False
    for position, step in enumerate(run.steps):
        here = step.number in left
        left.discard(step.number)
        run.steps[position] = attrs.evolve(
            step,
            captured=here
            or any(step.number in steps and found[position] for steps, found in inside.items()),
            disturbed=here or before or slow[position],
        )
        before = here
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
    """Which steps share time with any of these."""
    import numpy as np

    begins, ends = np.sort(np.array(times, np.int64).reshape(-1, 2), axis=0).T
    begun = np.searchsorted(begins, [step.end for step in steps], "left")
    over = np.searchsorted(ends, [step.start for step in steps], "right")
    found: list[bool] = (begun > over).tolist()
    return found


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
    import numpy as np

    if len(durations) < 4:
        return 0
    later = np.array(durations[len(durations) // 2 :], float)
    median = float(np.median(later))
    spread = 1.4826 * float(np.median(np.abs(later - median)))
    limit = median + max(0.2 * median, 5 * spread)
    found = 0
    while found < int(len(durations) * _WARM_UP_SHARE) and durations[found] > limit:
        found += 1
    return found
