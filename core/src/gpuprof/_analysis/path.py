"""The critical path of a step: what it was made of, from its end backwards.

A step's end is followed to what it came after: within a scope to its beginning, from a wait to what
ended it, from a call's beginning to the caller. Waits are followed by keys. Time alone decides only
for barriers, where the last to enter releases all. What has neither is unexplained, and stays so.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heappop, heappush
from operator import itemgetter
from typing import Literal, NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.run import OUTSIDE, Run, rows_of
from gpuprof._analysis.samples import working
from gpuprof._analysis.waits import BARRIER, DATA
from gpuprof._artifacts.ledger import MEETS, RELEASES, WAITS
from gpuprof._session.instruments.coroutines import AWAIT, LIMITS, RUN, SLEEP, SUSPENDED
from gpuprof._session.instruments.threads import THREAD

Integers = NDArray[np.int64]

Kind = Literal["work", "handover", "data", "unexplained", "dispatch", "outside", "samples"]
"""What time on the path is: ``work`` in a scope; ``handover``: a wait after it was released, such
as a transfer, or a collective after all have entered it; ``data``: a wait for the next batch;
``unexplained``: a wait whose end nobody knows the reason of; ``dispatch``: a call on its way to a
worker; ``outside`` of any scope; ``samples``: in no scope, or in a wait for nobody knows what,
while the process worked on samples."""
Moment = tuple[int, int, int]
"""A time in a process and on a track of it: both numbers, and nanoseconds of the run."""
_Link = tuple[int, int, int, int, int]
"""A span with a key: process, track, start, end and place."""
_Release = tuple[int, int, int, int, bool]
"""What releases a key: process, track, when it began and ended, and whether it sends a message."""
_Turn = tuple[int, int, int]
"""When a task of an event loop ran: end, start and track."""
Window = tuple[int, int]
"""The positions of the first and the last of some steps in a row."""
Factors = Callable[[int], Mapping[tuple[int, int], float]]
"""For a step, the multipliers of the times that processes spend at places, by the positions of
process and place."""
Clocks = dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]
"""How the time of some processes would pass: by the position of the process, times of the run in
order, and what each would be instead. Before the first and after the last, time passes
as it does."""
_time, _end = itemgetter(2), itemgetter(3)
_IN_ORDER = 0.95
"""Share of a process's calls that must be taken in order of arrival for a replay to do the same."""
_MEETING = -1
"""The process of a moment at which all have entered a meeting. Its track is the meeting's number.
"""
_POLLED = 20_000_000
"""Nanoseconds between two questions of a process that polls: it waits meanwhile."""
CALLS = ("ray.get", "ray.wait", "Thread.join", "Future.result", AWAIT, *LIMITS)
"""Scopes that wait for what their process has called. Other keys are of messages, and whoever waits
for a message has not called its sender."""
_SENDS = ("pipe.send", "queue.put")
"""Scopes that send a message: it may have been received before they end."""
_WAITS_AT_ENDS = 0.05
"""Share of the steps at whose ends a track may wait and still be the one that ends them."""
_BACK_TO_BACK = 1_000_000
"""Nanoseconds between two calls below which the second one was queued behind the first."""
_SAME_TURN = 200_000
"""Nanoseconds between two tasks of an event loop below which it did not rest between them."""


class Stretch(NamedTuple):
    """A part of a path. A run has many, so they are tuples.

    Args:
        process: a position in `Run.processes`.
        place: a position in `Run.places`, or `OUTSIDE`.
        start: nanoseconds.
        end: the same.
        kind: what it is.
        sources: the moments that all had to pass before it began; the last of them first.
        folded: whether it is a share of calls that are known only together.
        after: the one of `sources` that is only the end of what its event loop did before.
    """

    process: int
    place: int
    start: int
    end: int
    kind: Kind
    sources: tuple[Moment, ...] = ()
    folded: bool = False
    after: Moment | None = None

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start


class _Spans:
    """The spans of a track by start, with the position of the span around each.

    Args:
        waiting: whether scopes wait, by place.
        links: by place, start and end of the spans that wait for a key, or meet others at one.
    """

    __slots__ = ("_jumps", "_reach", "ends", "parents", "places", "starts", "waits")

    def __init__(
        self,
        places: list[int],
        starts: list[int],
        ends: list[int],
        waiting: list[bool],
        links: Mapping[int, set[tuple[int, int]]],
    ) -> None:
        self.places = places
        self.starts = starts
        self.ends = ends
        self.parents = [-1] * len(starts)
        self.waits = [-1] * len(starts)
        """The span that waits, at each position or around it: the innermost with a key, else the
        outermost; -1 if none does."""
        self._jumps = [-1] * len(starts)
        """A span farther out, so that a way out of n spans takes about log n steps."""
        self._reach = list(ends)
        """The last end of the spans from this one to the one before that."""
        depths = [0] * len(starts) + [-1]  # the last is of -1: no span
        around: list[int] = []
        for position, (start, end, place) in enumerate(zip(starts, ends, places, strict=True)):
            while around and ends[around[-1]] <= start:
                around.pop()
            outer = around[-1] if around else -1
            self.parents[position] = self._jumps[position] = outer
            if outer >= 0:
                depths[position] = depths[outer] + 1
                jump = self._jumps[outer]
                if jump >= 0 and depths[outer] + depths[self._jumps[jump]] == 2 * depths[jump]:
                    self._jumps[position] = self._jumps[jump]
                    self._reach[position] = max(end, self._reach[outer], self._reach[jump])
            wait = self.waits[outer] if outer >= 0 else -1
            if (wait < 0 and waiting[place]) or (place in links and (start, end) in links[place]):
                wait = position
            self.waits[position] = wait
            around.append(position)

    def at(self, time: int) -> tuple[int, int | None]:
        """The innermost span just before a time, -1 for none; and the last end of those in it.

        A scope in a task may end after the part of the coroutine in which it began.
        """
        position, last = bisect_left(self.starts, time) - 1, -1
        while position >= 0 and self.ends[position] < time:
            jump = self._jumps[position]
            far = jump >= 0 and self._reach[position] < time and self.ends[jump] < time
            last = max(last, self._reach[position] if far else self.ends[position])
            position = jump if far else self.parents[position]
        return position, None if last < 0 else last

    def waits_at(self, time: int) -> bool:
        """Whether a wait has begun before a time, and ends later."""
        position, _ = self.at(time)
        wait = self.waits[position] if position >= 0 else -1
        return wait >= 0 and self.ends[wait] > time


class Graph:
    """What came before what in a run.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._waiting: list[bool] = run.waiting_places.tolist()
        self._waits_for = [place.waits_for for place in run.places]
        self._suspending = {
            number for number, place in enumerate(run.places) if place.name in SUSPENDED
        }
        self._is_thread = [place.name.endswith(THREAD) for place in run.places]
        self._tracks: dict[int, dict[int, _Spans]] = {}
        self._keys: dict[int, dict[tuple[int, int, int, int], list[tuple[int, int]]]] = {}
        self._by_key = self._sorted_links()
        self._meetings: list[list[Moment]] = []
        self._known_meetings: dict[object, int | None] = {}
        self._entered: dict[tuple[str, int], dict[int, NDArray[np.void]]] = {}
        self._folds: dict[int, tuple[list[int], list[int], list[tuple[int, int, int, float]]]] = {}
        self._of_step: dict[object, dict[int, NDArray[np.void]]] = {}
        self._plans: dict[Window, Plan] = {}
        self._ends: dict[int, list[int]] = {}
        self._released: dict[int, _Release | None] = {}
        self._called: dict[int, _Link | None] = {}
        self._polling: dict[int, bool] = {}
        self._waiting_at_ends: dict[int, NDArray[np.float64]] = {}
        self._turns: dict[tuple[int, int], list[_Turn]] = {}
        self._in_flight: dict[int, list[tuple[int, Integers, Integers]]] = {}
        self._window: Window = (-1, -1)
        self._around: tuple[int, int] = (0, 0)

    # What is known of processes

    def _sorted_links(self) -> dict[int, tuple[memoryview, list[_Link]]]:
        """For each role, its keys in order, and their spans."""
        columns: dict[str, list[Integers]] = {
            name: [] for name in ("key", "role", "process", "track", "start", "end", "place")
        }
        for process in self.run.processes:
            links, offset = process.ledger.links, process.ledger.offset
            for name in ("key", "role", "track"):
                columns[name].append(links[name])
            columns["process"].append(np.full(len(links), process.number))
            columns["place"].append(process.places[links["place"]])
            for name in ("start", "end"):
                columns[name].append(links[name] + offset)
        table = {name: np.concatenate(parts) for name, parts in columns.items()}
        order = np.argsort(table["key"], kind="stable")
        by_role = {}
        for role in (WAITS, RELEASES, MEETS):
            mine = order[table["role"][order] == role]
            names = "process", "track", "start", "end", "place"
            rows = zip(*(table[name][mine].tolist() for name in names), strict=True)
            # quicker to search for one key than an array
            by_role[role] = memoryview(table["key"][mine]), list(rows)
        return by_role

    def _linked(self, key: int, role: int) -> list[_Link]:
        """The spans that have this role for a key."""
        keys, rows = self._by_key[role]
        return rows[bisect_left(keys, key) : bisect_right(keys, key)]

    def _last_release(self, key: int) -> _Release | None:
        """The last release of a key."""
        if key not in self._released:
            self._released[key] = max(self._releases_of(key), key=_end, default=None)
        return self._released[key]

    def _releases_of(self, key: int) -> list[_Release]:
        """Who releases a key: at a span's end, or as soon as it enters a meeting."""
        return [
            *((*row[:3], row[2], False) for row in self._linked(key, MEETS)),
            *(
                (*row[:4], self.run.places[row[4]].name in _SENDS)
                for row in self._linked(key, RELEASES)
            ),
        ]

    def _arrivals(self, key: int) -> list[Moment]:
        """Where and when each process was at a meeting."""
        return [(process, track, end) for process, track, _, end, _ in self._releases_of(key)]

    def _first_call(self, key: int) -> _Link | None:
        """The first call that waits for a key."""
        if key not in self._called:
            rows = self._linked(key, WAITS)
            calls = (row for row in rows if self.run.places[row[4]].name in CALLS)
            self._called[key] = min(calls, key=lambda row: row[2], default=None)
        return self._called[key]

    def _spans_of(self, number: int) -> dict[int, _Spans]:
        """The spans of a process in the current steps, or around them, by track."""
        if number not in self._tracks:
            process = self.run.processes[number]
            spans, offset = process.ledger.spans, process.ledger.offset
            begin, end = self._around
            spans = spans[(spans["start"] <= end - offset) & (spans["end"] >= begin - offset)]
            spans = spans[np.lexsort((-spans["end"], spans["start"], spans["track"]))]
            places = process.places[spans["place"]].tolist()
            starts, ends = (spans["start"] + offset).tolist(), (spans["end"] + offset).tolist()
            tracks = len(process.ledger.tracks)
            edges = np.searchsorted(spans["track"], np.arange(tracks + 1)).tolist()
            links = self._waits_with_keys(number)
            self._tracks[number] = {
                track: _Spans(
                    places[low:high],
                    starts[low:high],
                    ends[low:high],
                    self._waiting,
                    links.get(track, {}),
                )
                for track, (low, high) in enumerate(itertools.pairwise(edges))
                if low < high
            }
        return self._tracks[number]

    def _waits_with_keys(self, number: int) -> dict[int, dict[int, set[tuple[int, int]]]]:
        """By track and place, start and end of the spans that wait for a key, or meet at one.

        Of those in the current steps, or around them: a driver has a link for each worker and step.
        """
        process = self.run.processes[number]
        links, offset = process.ledger.links, process.ledger.offset
        begin, end = self._around
        inside = (links["start"] <= end - offset) & (links["end"] >= begin - offset)
        links = links[inside & ((links["role"] == WAITS) | (links["role"] == MEETS))]
        waits: dict[int, dict[int, set[tuple[int, int]]]] = {}
        for track, place, start, end in zip(
            links["track"].tolist(),
            process.places[links["place"]].tolist(),
            (links["start"] + offset).tolist(),
            (links["end"] + offset).tolist(),
            strict=True,
        ):
            waits.setdefault(track, {}).setdefault(place, set()).add((start, end))
        return waits

    def _keys_of(self, number: int) -> dict[tuple[int, int, int, int], list[tuple[int, int]]]:
        """Roles and keys of a process's spans, by track, place, start and end."""
        if number not in self._keys:
            process = self.run.processes[number]
            links, offset = process.ledger.links, process.ledger.offset
            keys: dict[tuple[int, int, int, int], list[tuple[int, int]]] = {}
            columns = [
                links["track"], process.places[links["place"]], links["start"] + offset,
                links["end"] + offset, links["role"], links["key"],
            ]  # fmt: skip
            for track, place, start, end, role, key in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                keys.setdefault((track, place, start, end), []).append((role, key))
            self._keys[number] = keys
        return self._keys[number]

    def _entries(self, group: str, place: int) -> dict[int, NDArray[np.void]]:
        """The spans at a place of all workers of a group, by process, in order."""
        if (group, place) not in self._entered:
            entries = {}
            for process in self.run.groups.get(group, []):
                spans = process.ledger.spans
                rows = spans[process.places[spans["place"]] == place].copy()
                rows["start"] += process.ledger.offset
                rows["end"] += process.ledger.offset
                entries[process.number] = np.sort(rows, order="start")
            self._entered[group, place] = entries
        return self._entered[group, place]

    # One stretch

    def _look(self, first: int, last: int) -> None:
        if (first, last) == self._window:
            return
        # keep only the spans of the current steps
        self._tracks.clear()
        self._turns.clear()
        self._window = first, last
        self._around = self.run.steps[first].start, self.run.steps[last].end

    def step_of(self, process: int, time: int) -> int:
        """The step of the current window that a time in a process is in, or the next one."""
        first, last = self._window
        if first == last:
            return first
        if process not in self._ends:
            _, ends = self.run.step_edges(self.run.processes[process])
            # a rank may not have marked a step: its edges are 0
            self._ends[process] = np.maximum.accumulate(ends).tolist()
        return min(max(first, bisect_left(self._ends[process], time)), last)

    def before(self, moment: Moment, alone: bool = False) -> Stretch:
        """The stretch that ends at a moment of the current steps.

        Args:
            alone: do not follow other processes; a wait is then unexplained.
        """
        process, track, time = moment
        if process == _MEETING:
            arrivals = self._meetings[track]
            last = arrivals[0][0]
            earlier = [(arrival[0], arrival[1], min(arrival[2], time)) for arrival in arrivals]
            return Stretch(last, OUTSIDE, time, time, "dispatch", tuple(earlier))
        spans = self._spans_of(process).get(track)
        if spans is None:
            return self._outside(moment, None, alone)
        inner, boundary = spans.at(time)
        if inner < 0 or (
            self._is_around(spans, inner) and not self._is_thread[spans.places[inner]]
        ):
            return self._outside(moment, boundary, alone)
        wait = spans.waits[inner]
        if wait >= 0 and not self._is_around(spans, wait):
            return self._wait(moment, spans, wait, alone)
        begin = boundary if boundary is not None else spans.starts[inner]
        own = (process, track, begin)
        return Stretch(process, spans.places[inner], begin, time, "work", (own,))

    def _is_around(self, spans: _Spans, position: int) -> bool:
        """Whether a scope is around the current steps, and so says nothing about them."""
        begin, end = self._around
        return spans.starts[position] < begin and spans.ends[position] >= end

    def _wait(self, moment: Moment, spans: _Spans, position: int, alone: bool) -> Stretch:
        process, track, time = moment
        place, start, end = spans.places[position], spans.starts[position], spans.ends[position]
        own = (process, track, start)
        unexplained = Stretch(process, place, start, time, "unexplained", (own,))
        if alone:
            return unexplained
        about = self._keys_of(process).get((track, place, start, end), [])
        keys = [key for role, key in about if role == WAITS]
        if place in self._suspending:
            return self._suspended(moment, place, start, keys)
        if keys:
            releases = self._releases(process, keys, time)
            if releases is None:
                return unexplained
            # also what came before the wait began: a server that is faster may wait for it
            held = self._held_up(process, releases[0], time)
            all_sources = [own, *releases] if held is None else [own, *releases, held]
            sources = sorted(all_sources, key=_time, reverse=True)
            if 0 < start - releases[0][2] <= _POLLED and self._polls(process):
                # it asked again and again, and was there between two questions
                sources.remove(own)
            begin = sources[0][2]
            return Stretch(process, place, begin, time, "handover", tuple(sources), after=held)
        meeting = [key for role, key in about if role == MEETS]
        if meeting:
            number = self._meeting_of(meeting[0], lambda: self._arrivals(meeting[0]))
            return self._meeting(moment, place, own, number) or unexplained
        whom = self._waits_for[place]
        if whom == DATA:
            return Stretch(process, place, start, time, "data", (own,))
        if whom == BARRIER:
            return self._barrier(moment, place, own) or unexplained
        return unexplained

    def _polls(self, number: int) -> bool:
        """Whether most of a process's calls of ``ray.wait`` found nothing: it polls."""
        if number not in self._polling:
            process = self.run.processes[number]
            waits = [n for n, place in enumerate(process.ledger.places) if place.key == "ray.wait"]
            ledger = process.ledger
            calls = int(np.isin(ledger.spans["place"], waits).sum())
            calls += int(ledger.folds["count"][np.isin(ledger.folds["place"], waits)].sum())
            links = ledger.links[np.isin(ledger.links["place"], waits)]
            self._polling[number] = calls > 2 * len(links)
        return self._polling[number]

    def _suspended(self, moment: Moment, place: int, start: int, keys: list[int]) -> Stretch:
        """A task's wait: until what it awaits is ready and its event loop is free."""
        process, track, time = moment
        own = (process, track, start)
        ready: list[Moment] = []
        kind: Kind = "unexplained"
        if self.run.places[place].name == SLEEP:
            kind = "work"
            for due in keys:  # the key is the time at which the sleep is over
                ready = [(process, track, due + self.run.processes[process].ledger.offset)]
        elif (releases := self._releases(process, keys, time) if keys else None) is not None:
            kind = "handover"
            held = self._held_up(process, releases[0], time)
            ready = [release for release in releases if release[2] > start]
            ready = ready if held is None else [held, *ready]
        turn = self._turn_before(moment)
        since = ready[0][2] if ready else start
        if turn is not None and turn[0] > since:  # ready, while the loop was at another task
            before = (process, turn[2], turn[0])
            sources = (before, *(ready or [own]))
            after = before if ready and before not in ready else None
            return Stretch(process, place, turn[0], time, "handover", sources, after=after)
        if kind == "handover" and ready:
            return Stretch(process, place, since, time, kind, (*ready, own))
        return Stretch(process, place, start, time, kind, (own,))

    def _turn_before(self, moment: Moment, is_call: bool = False) -> _Turn | None:
        """The turn of another task of the same event loop that ended just before a moment.

        Args:
            is_call: from another process: such a call is held up by long turns only, and does not
                begin at once.
        """
        process, track, time = moment
        within, least = (_BACK_TO_BACK, _BACK_TO_BACK) if is_call else (_SAME_TURN, 0)
        tracks = self.run.processes[process].ledger.tracks
        if not tracks[track].task:
            return None
        turns = self._turns_of(process, tracks[track].thread)
        position = bisect_right(turns, (time, time, len(tracks))) - 1
        while position >= 0 and time - turns[position][0] <= within:
            end, start, other = turns[position]
            if other != track and end - start >= least:
                return turns[position]
            position -= 1
        return None

    def _held_up(self, waiter: int, release: Moment, time: int) -> Moment | None:
        """After what an event loop could send a task's result to another process, if that was late.

        Whatever is ready as the task ends runs before that.

        Args:
            release: the end of the task.
            time: when the result was there.
        """
        process, track, at = release
        tracks = self.run.processes[process].ledger.tracks
        if process == waiter or not tracks[track].task:
            return None
        turns = self._turns_of(process, tracks[track].thread)
        last = None
        for position in range(bisect_right(turns, (at, at, len(tracks))), len(turns)):
            end, start, other = turns[position]
            if end > time or start - at > _SAME_TURN:
                break
            at = end
            if end - start >= _BACK_TO_BACK:
                last = (process, other, end)
        return last

    def _loop_of(self, moment: Moment) -> list[Moment]:
        """Since when a thread runs the event loop of a task, if it waits for it."""
        process, track, time = moment
        tracks = self.run.processes[process].ledger.tracks
        for number, spans in self._spans_of(process).items() if tracks[track].task else ():
            if not tracks[number].task and tracks[number].thread == tracks[track].thread:
                position, _ = spans.at(time)
                if position >= 0 and self.run.places[spans.places[position]].name == RUN:
                    return [(process, number, spans.starts[position])]
        return []

    def _turns_of(self, process: int, thread: int) -> list[_Turn]:
        """When the tasks of an event loop ran, by end."""
        if (process, thread) not in self._turns:
            turns: list[_Turn] = []
            tracks = self.run.processes[process].ledger.tracks
            for track, spans in self._spans_of(process).items():
                if tracks[track].task and tracks[track].thread == thread:
                    turns += self._turns_on(track, spans)
            self._turns[process, thread] = sorted(turns)
        return self._turns[process, thread]

    def loops(self) -> Iterator[list[tuple[Moment, Moment]]]:
        """For each event loop, begin and end of each turn of a task in the current steps."""
        for process in self.run.processes:
            threads = {track.thread for track in process.ledger.tracks if track.task}
            for thread in threads:
                yield [
                    ((process.number, track, start), (process.number, track, end))
                    for end, start, track in self._turns_of(process.number, thread)
                ]

    def _turns_on(self, track: int, spans: _Spans) -> Iterator[_Turn]:
        """When one task ran: in its scopes, except while it was suspended."""
        since, until = 0, 0
        suspends = self._suspending
        for place, start, end in zip(spans.places, spans.starts, spans.ends, strict=True):
            if start >= until:
                if until > since:
                    yield until, since, track
                since, until = start, end
            if place in suspends:
                if start > since:
                    yield start, since, track
                since = max(since, end)
        if until > since:
            yield until, since, track

    def _releases(self, process: int, keys: Iterable[int], time: int) -> list[Moment] | None:
        """When and where each key was released, the last first; ``None`` unless all are known."""
        moments = []
        waiter = self.run.processes[process]
        for key in keys:
            last = self._last_release(key)
            if last is None:
                return None
            releaser, track, start, end, sends = last
            slack = self.run.apart(waiter, self.run.processes[releaser])
            is_later = slack is not None and end > time + slack
            if (is_later and not sends) or start >= time:
                return None
            moments.append((releaser, track, end))
        # clocks may differ: who was the last still counts where all are cut at the wait's end
        return [
            (*moment[:2], min(moment[2], time))
            for moment in sorted(moments, key=_time, reverse=True)
        ]

    def _meeting_of(self, name: object, arrivals: Callable[[], list[Moment]]) -> int | None:
        """The number of a meeting; ``None`` unless it is known who entered it last."""
        if name not in self._known_meetings:
            self._known_meetings[name] = None
            order = sorted(arrivals(), key=_time, reverse=True)
            if len({arrival[0] for arrival in order}) > 1:
                last, second = order[:2]
                slack = self.run.apart(self.run.processes[last[0]], self.run.processes[second[0]])
                if slack == 0 or (slack is not None and last[2] - second[2] > slack):
                    self._known_meetings[name] = len(self._meetings)
                    self._meetings.append(order)
        return self._known_meetings[name]

    def _meeting(
        self, moment: Moment, place: int, own: Moment, number: int | None
    ) -> Stretch | None:
        """A wait for all to enter a meeting; ``None`` if the meeting does not explain the wait."""
        if number is None:
            return None
        process, _, time = moment
        last = self._meetings[number][0]
        if last[0] == process:
            return Stretch(process, place, own[2], time, "handover", (own,))
        slack = self.run.apart(self.run.processes[process], self.run.processes[last[0]])
        if slack is not None and last[2] > time + slack and len(self._meetings[number]) == 2:
            # a sender that went on before the receiver came
            return Stretch(process, place, own[2], time, "handover", (own,))
        if slack is None or last[2] > time + slack:
            return None
        begin = max(own[2], min(last[2], time))
        return Stretch(process, place, begin, time, "handover", ((_MEETING, number, begin), own))

    def _barrier(self, moment: Moment, place: int, own: Moment) -> Stretch | None:
        """A wait in a barrier without a key; ``None`` if it is not known who entered last.

        Ranks enter the same barriers in the same order. So the n-th barrier of a step is the same
        one in all ranks, unless a rank entered more or fewer barriers in that step.
        """
        process, _, start = own
        group = self.run.processes[process].group
        entries = self._entries(group, place)
        if process not in entries:
            return None
        step = self.step_of(process, start + 1)
        name = group, place, step
        if name not in self._of_step:
            of_step = {}
            for number, rows in entries.items():
                first, last = self.run.step_edges(self.run.processes[number])
                inside = (rows["start"] >= first[step]) & (rows["start"] < last[step])
                of_step[number] = rows[inside]
            self._of_step[name] = of_step
        of_step = self._of_step[name]
        mine = of_step[process]
        at = int(np.searchsorted(mine["start"], start))
        if at >= len(mine) or any(len(rows) != len(mine) for rows in of_step.values()):
            return None
        meeting = self._meeting_of(
            (*name, at),
            lambda: [
                (number, int(rows["track"][at]), int(rows["start"][at]))
                for number, rows in of_step.items()
            ],
        )
        return self._meeting(moment, place, own, meeting)

    def _outside(self, moment: Moment, boundary: int | None, alone: bool) -> Stretch:
        """What a process did before a scope at the top: it was called, or did something else."""
        process, track, time = moment
        floor = self._around[0]
        before = max(floor, boundary) if boundary is not None else floor
        own = (process, track, before)
        kind: Kind = "work" if self._works_outside(process, track) else "outside"
        outside = Stretch(process, OUTSIDE, before, time, kind, (own,))
        origins = [] if alone else self._sent(moment)
        # an event loop ran what has made this task, or was busy as the call came
        turn = None if alone else self._turn_before(moment, is_call=bool(origins))
        after = None
        if turn is not None:
            before_it = (process, turn[2], turn[0])
            after = before_it if origins else None
            origins = [*origins, before_it]
        elif not alone and not origins:
            origins = self._loop_of(moment)
        if origins:
            latest = sorted([own, *origins], key=_time, reverse=True)
            return Stretch(
                process, OUTSIDE, latest[0][2], time, "dispatch", tuple(latest), after=after
            )
        caller = None if alone else self._caller(moment)
        if caller is None:
            return outside
        other, its_track, since = caller
        in_queue = boundary is not None and time - boundary <= _BACK_TO_BACK
        if since >= time and not in_queue:  # it was called while its caller did something else
            sources = ((other, its_track, time), own)
            return Stretch(process, OUTSIDE, time, time, "dispatch", sources)
        if since >= time:
            return outside
        both = sorted([own, (other, its_track, since)], key=_time, reverse=True)
        return Stretch(process, OUTSIDE, both[0][2], time, "dispatch", tuple(both))

    def _works_outside(self, process: int, track: int) -> bool:
        """Whether it is known that a track works while it is in no scope."""
        if process not in self.run.running or (process == self.run.driver and self.blind):
            return False
        return track in self.run.own_tracks[process]

    def _sent(self, moment: Moment) -> list[Moment]:
        """When the call that begins at a moment was sent, and when its arguments were ready.

        Empty if the sender did not record the call. As clocks may differ, later times are replaced
        by the moment's.
        """
        for key in self._released_by(moment):
            if key in self._sent_calls:
                sender, needs = self._sent_calls[key]
                ends = [row for row in map(self._last_release, needs) if row is not None]
                sources = [sender, *((row[0], row[1], row[3]) for row in ends)]
                earlier = [
                    (process, track, min(time, moment[2])) for process, track, time in sources
                ]
                return [source for source in earlier if source != moment]
        return []

    @functools.cached_property
    def _sent_calls(self) -> dict[int, tuple[Moment, list[int]]]:
        """For the key of each call, where and when it was sent, and the keys of its arguments."""
        calls: dict[int, tuple[Moment, list[int]]] = {}
        for process in self.run.processes:
            requests, offset = process.ledger.sent, process.ledger.offset
            columns = (
                requests["track"],
                requests["end"] + offset,
                requests["key"],
                requests["needs"],
            )
            for track, end, key, need in zip(*(column.tolist() for column in columns), strict=True):
                needs = calls.setdefault(key, ((process.number, track, end), []))[1]
                if need:
                    needs.append(need)
        return calls

    def _caller(self, moment: Moment) -> Moment | None:
        """Who waits for the call that begins at a moment, and since when."""
        for key in self._released_by(moment):
            first = self._first_call(key)
            if first is not None and (
                first[0] == moment[0] or moment[2] > self._last_sent(first[0])
            ):
                process, track, start, *_ = first
                return process, track, start
        return None

    def _last_sent(self, process: int) -> int:
        """When the last call that a process recorded had been sent; 0 if it recorded none."""
        ledger = self.run.processes[process].ledger
        return int(ledger.sent["end"].max()) + ledger.offset if len(ledger.sent) else 0

    def _released_by(self, moment: Moment) -> Iterator[int]:
        """The keys of the calls that begin at a moment: those that spans from there on release."""
        process, track, time = moment
        spans = self._spans_of(process).get(track)
        keys = self._keys_of(process)
        if spans is None or not keys:
            return
        position = bisect_left(spans.starts, time)
        while position < len(spans.starts) and spans.starts[position] == time:
            about = (track, spans.places[position], time, spans.ends[position])
            released = (key for role, key in keys.get(about, ()) if role == RELEASES)
            yield from (key for key in released if not self._goes_on(key, moment))
            position += 1

    def _goes_on(self, key: int, moment: Moment) -> bool:
        """Whether a call began before: a generator's last item releases the call's key, too.

        So does the pickling of a result.
        """
        return any(
            process == moment[0] and start < moment[2]
            for process, _, start, *_ in self._linked(key, RELEASES)
        )

    # A whole step

    def end_of(self, step: int) -> Moment:
        """Where and when a step ended: in the driver, or in the rank that ended it last.

        From here on, this step is the current one.
        """
        self._look(step, step)
        return self._ends_of(step, 1)[0]

    def _ends_of(self, step: int, most: int | None = None) -> list[Moment]:
        """Where and when a step ended in all ranks, the last one first; or in the driver.

        Ranks that do not wait for each other each end it on their own.
        """
        run = self.run
        if run.driver is not None:
            return [self._end_in(run.driver, run.steps[step].start, run.steps[step].end)]
        floor, _ = self._around
        edges = [(number, *bounds[:, step].tolist()) for number, bounds in run.edges.items()]
        edges.sort(key=lambda edge: edge[2], reverse=True)
        # a step may have no length, in all ranks
        counted = [edge for edge in edges[:most] if edge[2] > floor] or edges[:1]
        return [self._end_in(*edge) for edge in counted]

    def _end_in(self, process: int, begin: int, end: int) -> Moment:
        """The end of a step in a process, on the track that has most of it.

        It is one of the thread that marks the steps, if that is known. A track that still waits
        then has not ended it: an actor's method may wait for a thread that works. Nor has one that
        waits at other steps' ends, such as a thread that fetches batches ahead.
        """
        tracks, marker = self._spans_of(process), self.run.processes[process].ledger.marker
        if marker is not None:
            own = self.run.own_tracks[process]
            tracks = {number: spans for number, spans in tracks.items() if number in own}
        candidates = [
            number
            for number, spans in tracks.items()
            if not spans.waits_at(end) and self._waits_at_ends(process)[number] <= _WAITS_AT_ENDS
        ]
        lengths = {}
        for track in candidates or tracks:
            spans = tracks[track]
            lengths[track] = sum(
                max(0, min(spans.ends[position], end) - max(spans.starts[position], begin))
                for position in range(bisect_left(spans.starts, end))
                if not self._is_around(spans, position)
                if spans.parents[position] < 0 or self._is_around(spans, spans.parents[position])
            )
        track = max(lengths, key=lambda number: (lengths[number], -number), default=marker or 0)
        return process, track, end

    def _waits_at_ends(self, number: int) -> NDArray[np.float64]:
        """By track, the share of the steps of a process at whose ends the track waits."""
        if number not in self._waiting_at_ends:
            process = self.run.processes[number]
            spans, (_, ends) = process.ledger.spans, self.run.step_edges(process)
            spans = spans[self.run.waiting_places[process.places[spans["place"]]]]
            shares = np.zeros(len(process.ledger.tracks))
            for track in np.unique(spans["track"]).tolist():
                rows = spans[spans["track"] == track]
                start, end = _merged(rows["start"], rows["end"])
                times = ends - process.ledger.offset
                at = np.searchsorted(start, times) - 1
                shares[track] = ((at >= 0) & (times < end[at])).mean()
            self._waiting_at_ends[number] = shares
        return self._waiting_at_ends[number]

    def path(self, step: int) -> list[Stretch]:
        """The critical path of a step, by time. Its stretches tile the step exactly."""
        floor = self.run.steps[step].start
        moment = self.end_of(step)
        stretches: list[Stretch] = []
        visits: set[Moment] = set()
        while moment[2] > floor:
            time = moment[2]
            stretch = self.before(moment, alone=moment in visits)
            begin = stretch.start
            if begin < floor:
                begin = floor
                stretch = stretch._replace(start=begin)
            if begin < time:
                stretches.append(stretch)
                visits.clear()
            else:
                visits.add(moment)
            source = stretch.sources[0]
            moment = source if source[2] <= begin else (source[0], source[1], begin)
        stretches.reverse()
        return [part for stretch in stretches for part in self.parts(stretch)]

    def parts(self, stretch: Stretch) -> list[Stretch]:
        """A stretch, split into what is known of its time: the order of the parts is arbitrary.

        Calls that were not recorded one by one get a share of the scope around them. Where else
        nothing is known, the process works on its samples while it has some.
        """
        parts = self._with_folds(stretch)
        if len(parts) == 1 and parts[0].kind == "work":  # most are, and have no samples
            return parts
        return [piece for part in parts for piece in self._with_samples(part)]

    def _with_samples(self, stretch: Stretch) -> list[Stretch]:
        if stretch.kind not in ("outside", "unexplained"):
            return [stretch]
        is_called = stretch.place != OUTSIDE and self.run.places[stretch.place].name in CALLS
        if stretch.kind == "unexplained" and not is_called:
            return [stretch]
        time, place = self._on_samples(stretch)
        edge = stretch.start + time
        parts = [
            stretch._replace(end=edge, place=place, kind="samples"),
            stretch._replace(start=edge),
        ]
        return [part for part in parts if part.duration]

    def _on_samples(self, stretch: Stretch) -> tuple[int, int]:
        """For how long a process had samples in a stretch, and the place of most of that time."""
        samples, number = self.run.samples, stretch.process
        if number not in self._in_flight:
            mine = np.flatnonzero(working(samples) & (samples.process == number))
            by_phase = [(OUTSIDE, mine)] + [
                (self.run.phases[phase], mine[samples.phase[mine] == phase])
                for phase in np.unique(samples.phase[mine]).tolist()
            ]
            self._in_flight[number] = [
                (place, *_merged(samples.start[rows], samples.end[rows]))
                for place, rows in by_phase
            ]
        (_, *of_any), *by_place = self._in_flight[number]
        edges = stretch.start, stretch.end
        time = _inside(*edges, *of_any)
        place = max(by_place, key=lambda times: _inside(*edges, *times[1:]), default=(OUTSIDE,))[0]
        return time, place

    def _with_folds(self, stretch: Stretch) -> list[Stretch]:
        if stretch.kind not in ("work", "outside"):
            return [stretch]
        if stretch.process == self.run.driver and self.blind:
            return self._where_workers_rest(stretch)
        starts, last_ends, _ = self._own_folds(stretch.process)
        position = bisect_left(starts, stretch.end) - 1
        if position < 0 or last_ends[position] <= stretch.start:
            return [stretch]
        shares: dict[int, float] = {}
        for place, begin, end, own in self._folds_over(stretch):
            if self.is_below(place, stretch.place):
                low, high = max(begin, stretch.start), min(end, stretch.end)
                shares[place] = shares.get(place, 0.0) + own * (high - low) / (end - begin)
        scale = min(1.0, stretch.duration / max(1.0, sum(shares.values())))
        parts, at = [], stretch.start
        for place, share in shares.items():
            until = min(stretch.end, at + int(share * scale))
            if until > at:
                kind: Kind = "work"
                if self._waiting[place]:
                    kind = "data" if self._waits_for[place] == DATA else "unexplained"
                parts.append(
                    Stretch(stretch.process, place, at, until, kind, stretch.sources, folded=True)
                )
            at = until
        if at < stretch.end:
            parts.append(stretch._replace(start=at))
        return parts

    @property
    def driver_works(self) -> bool:
        """Whether the driver works while it is in no scope; ``False`` for a blind driver."""
        return not self.blind and self.run.driver in self.run.running

    @functools.cached_property
    def blind(self) -> bool:
        """Whether the driver's calls have no keys, so that it may wait in any scope of its own."""
        run = self.run
        if run.driver is None:
            return False
        roles = run.processes[run.driver].ledger.links["role"]
        return not bool((roles == WAITS).any())

    @functools.cached_property
    def _busy(self) -> tuple[Integers, Integers]:
        """The starts and ends of the times in which any worker was in a scope."""
        starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for members in self.run.groups.values():
            for process in members:
                _, start, end, _, _ = rows_of(process)
                starts.append(start)
                ends.append(end)
        return _merged(np.concatenate(starts), np.concatenate(ends))

    def _where_workers_rest(self, stretch: Stretch) -> list[Stretch]:
        """A driver's time is its own only while no worker is in a scope: else it may wait.

        Also for workers that left no ledger at all.
        """
        if not self.run.groups:
            return [stretch._replace(kind="unexplained")] if stretch.kind == "work" else [stretch]
        starts, ends = self._busy
        parts, at = [], stretch.start
        position = int(ends.searchsorted(at, "right"))
        while at < stretch.end:
            begin = int(starts[position]) if position < len(starts) else stretch.end
            if begin > at:
                until = min(begin, stretch.end)
                parts.append(stretch._replace(start=at, end=until))
            else:
                until = min(int(ends[position]), stretch.end)
                parts.append(stretch._replace(start=at, end=until, kind="unexplained"))
                position += 1
            at = until
        return parts

    def _folds_over(self, stretch: Stretch) -> Iterator[tuple[int, int, int, float]]:
        """The folds of a process that overlap a stretch: place, start, end, own nanoseconds."""
        starts, last_ends, rows = self._own_folds(stretch.process)
        position = bisect_left(starts, stretch.end) - 1
        while position >= 0 and last_ends[position] > stretch.start:
            if rows[position][2] > stretch.start:
                yield rows[position]
            position -= 1

    def _own_folds(
        self, number: int
    ) -> tuple[list[int], list[int], list[tuple[int, int, int, float]]]:
        """The folds of a process by start: starts, the last end so far, and rows as above."""
        if number not in self._folds:
            process = self.run.processes[number]
            folds = process.ledger.folds
            folds = np.sort(folds[folds["end"] > folds["start"]], order="start")
            place = process.places[folds["place"]]
            parent = np.array([self.run.places[child].parent for child in place], np.int64)
            own = folds["busy"].astype(float)
            for outer in np.unique(parent[parent >= 0]):
                inner = np.flatnonzero(parent == outer)
                sums = np.concatenate([[0.0], np.cumsum(folds["busy"][inner])])
                around = np.flatnonzero(place == outer)
                low = np.searchsorted(folds["start"][inner], folds["start"][around])
                high = np.searchsorted(folds["start"][inner], folds["end"][around])
                own[around] -= sums[high] - sums[low]
            start = folds["start"] + process.ledger.offset
            end = folds["end"] + process.ledger.offset
            rows = zip(
                place.tolist(), start.tolist(), end.tolist(), own.clip(0).tolist(), strict=True
            )
            last_ends = np.maximum.accumulate(end) if len(end) else end
            self._folds[number] = start.tolist(), last_ends.tolist(), list(rows)
        return self._folds[number]

    def is_below(self, place: int, above: int) -> bool:
        """Whether a place is another one, or inside of it."""
        if above == OUTSIDE:
            return True
        while place > above:  # a parent stands before its children
            place = self.run.places[place].parent
        return place == above

    # What if

    def replay(self, window: Window, factors: Factors, clocks: Clocks | None = None) -> float:
        """How long some steps in a row would take if their stretches took longer or shorter.

        Everything waits for what it waited for. An unexplained wait takes as long as it took.

        Args:
            factors: the multipliers of the times of processes at places.
            clocks: processes in which time would pass otherwise, whatever they do or wait for.

        Returns:
            Nanoseconds.
        """
        return self.plan(window).duration(factors, clocks or {})

    def is_idle(self, stretch: Stretch) -> bool:
        """Whether a worker waits for a call from nobody knows where.

        It would wait as long as need be, so that this holds nothing up that it does not already.
        """
        driver = self.run.driver
        waits = stretch.kind == "outside" and driver is not None and stretch.process != driver
        return waits and 2 * self._on_samples(stretch)[0] < stretch.duration

    def plan(self, window: Window) -> Plan:
        """The plan for a replay of some steps in a row."""
        if window not in self._plans:
            self._look(*window)
            self._plans[window] = Plan(self, self._ends_of(window[1]), window)
        return self._plans[window]


class Plan:
    """The stretches that led to the end of some steps, in an order in which they can be replayed.

    Args:
        graph: the run's graph.
        ends: where and when the steps ended, the last one first.
        window: the first step and the last one.
    """

    def __init__(self, graph: Graph, ends: Sequence[Moment], window: Window) -> None:
        self._floor = floor = graph.run.steps[window[0]].start
        self._steps = range(window[0], window[1] + 1)
        self._lengths: list[int] = []
        self._sources: list[list[int]] = []
        self._parts: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = {}
        self._numbers = numbers = dict[Moment, int]()
        visits: set[Moment] = set()
        self.stretches: list[Stretch] = []
        stretches = self.stretches
        stack: list[tuple[Moment, Stretch | None]] = [(end, None) for end in ends]
        while stack:
            moment, stretch = stack.pop()
            if stretch is None:
                if moment in visits:
                    continue
                visits.add(moment)
                stretch = graph.before(moment)
                stack.append((moment, stretch))
                stack += [
                    (source, None)
                    for source in stretch.sources
                    if source[2] > floor and source not in visits
                ]
                continue
            if stretch.start < floor:
                stretch = stretch._replace(start=floor)
            numbers[moment] = len(stretches)
            stretches.append(stretch)
            self._lengths.append(stretch.duration)
            # cut cycles, which clocks that differ can make
            self._sources.append(
                [numbers[source] for source in stretch.sources if source in numbers]
            )
        self._ends = [numbers[end] for end in ends]
        critical = self._critical()
        for row, stretch in enumerate(stretches):
            if row not in critical and graph.is_idle(stretch):
                self._lengths[row] = 0
            elif stretch.duration:
                of_step = self._parts.setdefault(graph.step_of(stretch.process, stretch.end), {})
                for part in graph.parts(stretch):
                    at = of_step.setdefault((part.process, part.place), [])
                    at.append((row, part.duration))
        self.calls = self._found_calls(graph)
        """The calls that each process took, in order, by the position of the process."""
        self._servers = [
            self._server(calls, numbers) for calls in self.calls.values() if _as_they_come(calls)
        ]
        late = [row for row, stretch in enumerate(stretches) if stretch.after is not None]
        self._servers += [self._event_loop(turns, numbers, late) for turns in graph.loops()]

    def _found_calls(self, graph: Graph) -> dict[int, list[Call]]:
        by_process: dict[int, list[Call]] = {}
        for row, stretch in enumerate(self.stretches):
            after, process = stretch.after, stretch.process
            if len(stretch.sources) < 2:  # it followed something, or was called, but not both
                continue
            own = [source for source in stretch.sources if source[0] == process]
            requests = [source for source in stretch.sources if source[0] != process]
            before = own[0] if own else None
            if after is not None and after[0] == process:  # its event loop ran another task before
                before = after
                requests = requests or [source for source in own if source != after]
            elif after is not None:  # another process's event loop sent a result late
                ended = [s for s in requests if s[0] == after[0] and s != after]
                by_process.setdefault(after[0], []).append(
                    Call(row, stretch.place, after, tuple(ended))
                )
            # who waits for the results of his own calls serves nobody
            asked = stretch.place != OUTSIDE and graph.run.places[stretch.place].name in CALLS
            if before is not None and requests and requests[0][0] != _MEETING and not asked:
                call = Call(row, stretch.place, before, tuple(requests))
                by_process.setdefault(process, []).append(call)
        for calls in by_process.values():
            calls.sort(key=lambda call: self.stretches[call.row].end)
        return by_process

    def _server(self, calls: Sequence[Call], numbers: Mapping[Moment, int]) -> _Server:
        process = calls[0].before[0]
        last = max((moment for moment in numbers if moment[0] == process), key=_time)
        before = [numbers.get(call.before) for call in calls]
        ends = [row for row in before if row is not None]
        rows = [call.row for call in calls]
        return _Server(dict(zip(rows, before, strict=True)), [*ends, numbers[last]])

    def _event_loop(
        self,
        turns: Iterable[tuple[Moment, Moment]],
        numbers: Mapping[Moment, int],
        late: Iterable[int],
    ) -> _Server:
        """An event loop: it runs tasks, and sends their results, in the order of readiness."""
        known = [turn for turn in turns if turn[0] in numbers and turn[1] in numbers]
        begins = {numbers[begin] for begin, _ in known}
        ends = {end: numbers[end] for _, end in known}
        afters = {row: self.stretches[row].after for row in sorted({*begins, *late})}
        calls = {
            row: None if after is None else ends.get(after)
            for row, after in afters.items()
            if row in begins or after in ends
        }
        return _Server(calls, list(ends.values()), is_loop=True, results=calls.keys() - begins)

    def _critical(self) -> set[int]:
        """The rows that make the steps as long as they are."""
        times: list[int] = []
        last: list[int] = []
        for length, sources in zip(self._lengths, self._sources, strict=True):
            if len(sources) < 2:  # nearly all
                latest = sources[0] if sources else -1
            else:
                latest = max(sources, key=times.__getitem__)
            last.append(latest)
            times.append(length + (times[latest] if sources else 0))
        rows, row = set(), self._ends[0]
        while row >= 0:
            rows.add(row)
            row = last[row]
        return rows

    def duration(self, factors: Factors, clocks: Clocks | None = None) -> float:
        """How long the steps would take; see `Graph.replay`."""
        lengths = [float(length) for length in self._lengths]
        for step in self._steps:
            parts = self._parts.get(step, {})
            for place, factor in factors(step).items():
                for row, part in parts.get(place, ()):
                    lengths[row] += part * (factor - 1)
        limits = self._limits(clocks or {}, lengths)
        follow = self._served if self._servers else self._followed
        times = follow(lengths, limits)
        return max(times[row] for row in self._ends)

    def _limits(self, clocks: Clocks, lengths: list[float]) -> dict[int, tuple[int, float]]:
        """For rows in which time passes faster: the row before, and the most that may lie between.

        Both are on one track, so this also shortens a wait for another process. The row before is
        -1 where the steps began after it. Rows in which time passes slower become longer.
        """
        limits: dict[int, tuple[int, float]] = {}
        for process, (before, after) in clocks.items():
            rows, times = self._on_one_track.get(process, ([], np.empty((0, 2))))
            gain = np.interp(times, before, before - after)
            shorter = np.diff(gain, axis=1)[:, 0]
            least = (times[:, 1] - times[:, 0] - shorter).clip(0)
            limits |= {rows[at][0]: (rows[at][1], least[at]) for at in np.flatnonzero(shorter > 0)}
            for at in np.flatnonzero(shorter < 0):
                lengths[rows[at][0]] -= shorter[at]
        return limits

    @functools.cached_property
    def _on_one_track(self) -> dict[int, tuple[list[tuple[int, int]], NDArray[np.float64]]]:
        """By process, rows with the rows before them on the same track, and when both end."""
        by_process: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
        for moment, row in self._numbers.items():
            stretch = self.stretches[row]
            own = next((source for source in stretch.sources if source[:2] == moment[:2]), None)
            if own is not None and self._numbers.get(own, -1) < row:
                pairs, times = by_process.setdefault(moment[0], ([], []))
                pairs.append((row, self._numbers.get(own, -1)))
                times.append((max(own[2], self._floor), moment[2]))
        return {
            process: (pairs, np.array(times, float))
            for process, (pairs, times) in by_process.items()
        }

    @functools.cached_property
    def usual(self) -> float:
        """How long the steps take in a replay with no multipliers."""
        return self.duration(lambda _: {})

    def _followed(
        self, lengths: Sequence[float], limits: Mapping[int, tuple[int, float]]
    ) -> list[float]:
        """When each row ends, if each begins when its sources have ended."""
        times: list[float] = []
        for row, (length, sources) in enumerate(zip(lengths, self._sources, strict=True)):
            end = max([times[source] for source in sources], default=0.0) + length
            if row in limits:
                own, most = limits[row]
                end = min(end, most + (times[own] if own >= 0 else 0.0))
            times.append(end)
        return times

    @functools.cached_property
    def _free_of_order(self) -> tuple[list[int], list[list[int]]]:
        """For each row, the number of its sources and the rows after it, without servers' order."""
        before = {
            row: previous for server in self._servers for row, previous in server.calls.items()
        }
        counts, after = [], [list[int]() for _ in self._sources]
        for row, sources in enumerate(self._sources):
            rest = sources
            if row in before:
                rest = [source for source in sources if source != before[row]]
            counts.append(len(rest))
            for source in rest:
                after[source].append(row)
        return counts, after

    def _served(
        self, lengths: Sequence[float], limits: Mapping[int, tuple[int, float]]
    ) -> list[float]:
        """When each row ends, if servers take calls in order of arrival; simulated by events."""
        counts, afters = self._free_of_order
        times, missing = [math.inf] * len(lengths), list(counts)
        free = [server.is_loop or None in server.calls.values() for server in self._servers]
        waiting: list[list[tuple[float, int]]] = [[] for _ in self._servers]
        frees = {row: number for number, server in enumerate(self._servers) for row in server.ends}
        takes = {row: number for number, server in enumerate(self._servers) for row in server.calls}
        events: list[tuple[float, int]] = []
        # a task becomes ready only at the end of its row, such as a sleep
        asleep = {
            row
            for server in self._servers
            if server.is_loop
            for row in server.calls.keys() - server.results
        }

        def end(row: int, time: float) -> float:
            if row not in limits:
                return time + lengths[row]
            own, most = limits[row]
            return min(time + lengths[row], most + (times[own] if own >= 0 else 0.0))

        def begin(row: int, time: float) -> None:
            if row in takes and row not in asleep:
                heappush(waiting[takes[row]], (time, row))
                serve(takes[row], time)
            else:
                heappush(events, (end(row, time), row))

        def serve(number: int, time: float) -> None:
            server, queue = self._servers[number], waiting[number]
            while free[number] and queue:
                _, row = heappop(queue)
                free[number] = row in server.results
                takes_time = free[number] or not server.is_loop
                heappush(events, (end(row, time) if takes_time else time, row))

        for row, count in enumerate(missing):
            if not count:
                begin(row, 0.0)
        while events:
            time, row = heappop(events)
            if row in asleep:
                asleep.remove(row)
                heappush(waiting[takes[row]], (time, row))
                serve(takes[row], time)
                continue
            times[row] = time
            for after in afters[row]:
                missing[after] -= 1
                if not missing[after]:
                    begin(after, time)
            if row in frees:
                free[frees[row]] = True
                serve(frees[row], time)
        if math.inf in times:  # some call waits for a later one
            self._servers = []
            self.__dict__.pop("usual", None)  # what it is compared with has no servers, either
            return self._followed(lengths, limits)
        return times


@attrs.frozen
class Call:
    """A call, or a message, that a process takes.

    Args:
        row: the row of the call in its plan.
        place: the place where the process waits for the call, or `OUTSIDE`.
        before: when and where the process had finished its previous work.
        requests: when and where the call was sent, and when and where its arguments were ready.
    """

    row: int
    place: int
    before: Moment
    requests: tuple[Moment, ...]

    @property
    def arrived(self) -> int:
        """When the call could have begun."""
        return int(max(map(_time, self.requests)))

    @property
    def queued(self) -> int:
        """Nanoseconds that the call waited while the process did something else."""
        return max(0, self.before[2] - self.arrived)


@attrs.frozen
class _Server:
    """A process that takes calls in the order in which they come.

    Args:
        calls: for each row with which a call begins, the row of the previous work, if any.
        ends: the rows after which the process is free again.
        is_loop: whether it is an event loop.
        results: the rows among `calls` with which an event loop sends a result, in no time.
    """

    calls: dict[int, int | None]
    ends: list[int]
    is_loop: bool = False
    results: Set[int] = frozenset()


def _as_they_come(calls: Sequence[Call]) -> bool:
    """Whether calls, in the order in which they were taken, were taken as they came.

    From several callers, at one place and on one track. Who receives from one after the other has
    an order of its own.
    """
    pairs = list(itertools.pairwise(call.arrived for call in calls))
    callers = {request[0] for call in calls for request in call.requests}
    messages = calls[0].place != OUTSIDE
    return (
        len(callers) > 1
        and len({(call.place, call.before[1]) for call in calls}) == 1
        and not (messages and any(len(call.requests) > 1 for call in calls))
        and sum(first <= second for first, second in pairs) >= _IN_ORDER * len(pairs)
    )


def _merged(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """The starts and ends of the times that any of some spans covers."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate([[True], start[1:] > end[:-1]])[: len(start)])
    last = np.concatenate([first[1:] - 1, [len(end) - 1]]) if len(first) else first
    return start[first], end[last]


def _inside(begin: int, until: int, starts: Integers, ends: Integers) -> int:
    """For how long some times, which do not overlap, are between two moments."""
    low, high = np.searchsorted(ends, begin, "right"), np.searchsorted(starts, until)
    return int((ends[low:high].clip(max=until) - starts[low:high].clip(min=begin)).sum())
