"""Who waits for whom now, from what the processes of a running job have answered.

Says less rather than wrong: where a call or a rank is not known, there is no edge.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from gpuprof._analysis.standstill import Doing
from gpuprof._artifacts import ledger
from gpuprof._artifacts.dumps import Process, last_frames
from gpuprof._artifacts.stacks import read as read_samples
from gpuprof._session.instruments.collectives import COLLECTIVES
from gpuprof._session.instruments.threads import THREAD
from gpuprof._session.ledger import KEY, key_of
from gpuprof.errors import OutputError

_NO_ACTOR = "ff" * 12
"""How the id of an actor begins in that of a call that no actor runs."""
_QUEUES = {"_QueueActor.get": False, "_QueueActor.put": True}
"""Calls of the actor behind a `ray.util.queue.Queue`, and whether they wait for room in it."""


@attrs.frozen
class Late:
    """A rank that has not begun a collective which others are in.

    Args:
        begun: the last one that it has begun; ``None`` if that is not known.
        doing: what it does; ``None`` if that is not known.
    """

    rank: int
    begun: int | None
    doing: Doing | None


@attrs.frozen
class Collective:
    """Ranks that are in a collective which others of the group have not begun, or not as that one.

    Args:
        group: the name of the process group, which its ranks agree on.
        number: which of the group's it is, from 1.
        inside: by operation, what the ranks do that have begun it; the most common one first. An
            operation is empty if none of its ranks tells it.
    """

    group: str
    number: int
    size: int
    inside: tuple[tuple[str, tuple[Doing, ...]], ...]
    late: tuple[Late, ...]


@attrs.frozen
class Cycle:
    """Threads or tasks each of which waits for the next, and the last for the first."""

    around: tuple[Doing, ...]


@attrs.frozen
class Chain:
    """Processes that wait, directly or through others, for one that does not wait itself."""

    waiters: tuple[Process, ...]
    last: Doing


@attrs.frozen
class Unknown:
    """A wait for calls that none of the processes that answered runs.

    Args:
        several: whether it is one of several calls.
        idle: the actor that has to run the call, but runs nothing.
    """

    waiter: Doing
    of_actor: bool
    several: bool
    idle: Process | None = None


@attrs.frozen
class InFlight:
    """A collective that has not ended, as torch's flight recorder has it.

    Args:
        number: its sequence number in the group.
        ranks: the ranks of the job on which it is the oldest of the group.
        seconds: for how long, at most.
    """

    group: str
    operation: str
    number: int
    ranks: tuple[int, ...]
    seconds: float


@attrs.frozen
class Orphan:
    """A wait for an item of a queue, in a process whose thread that has put items has ended.

    Args:
        seconds: since when it has ended.
        last: what its last sample has seen it do; ``None`` without samples.
    """

    waiter: Doing
    thread: str
    seconds: float
    last: Doing | None


@attrs.frozen
class Queued:
    """Threads or tasks that wait for an actor's queue: for an item of it, or for room in it."""

    waiters: tuple[Doing, ...]
    queue: Process
    for_room: bool


Wait = Collective | Cycle | Chain | Queued | Unknown | InFlight | Orphan


def waits(processes: Sequence[Process], doings: Iterable[Doing]) -> list[Wait]:
    """Who waits for whom."""
    doings = list(doings)
    mains = {doing.process.file: doing for doing in doings if not doing.thread}
    collectives = list(_collectives(processes, mains))
    return [
        *collectives,
        *_in_flight(processes, mains, collectives),
        *_calls(processes, doings),
        *_orphans(doings),
    ]


_Group = tuple[str, tuple[tuple[int, int, int], ...]]
"""A process group: its name and its ranks."""


def _collectives(processes: Sequence[Process], mains: Mapping[str, Doing]) -> Iterator[Collective]:
    members: dict[_Group, dict[int, tuple[Process, int]]] = {}
    by_rank: dict[int, Process] = {}
    for process in processes:
        rank = process.answer.get("rank of job")
        if rank is None:
            continue
        by_rank[rank] = process
        for row in process.answer.get("groups", ()):
            group = row["name"], tuple((a, step, count) for a, step, count in row["ranks"])
            flying = _flying(process, row["name"])
            # a rank may have begun several, and waits for the first
            begun = flying["number"] if flying else row["begun"]
            members.setdefault(group, {})[rank] = process, begun
    for (name, stretches), entries in members.items():
        everybody = {n for a, step, count in stretches for n in range(a, a + step * count, step)}
        number = max(begun for _, begun in entries.values())
        inside = [
            mains[process.file]
            for process, begun in entries.values()
            if begun == number and process.file in mains
        ]
        inside = [d for d in inside if d.state != "moves" and _may_be_in(d, name)]
        late = []
        for rank in sorted(everybody):
            begun = entries[rank][1] if rank in entries else None
            if begun != number:
                slow = by_rank.get(rank) or _by_its_own_rank(rank, processes, inside)
                late.append(Late(rank, begun, mains.get(slow.file) if slow is not None else None))
        by_operation: dict[str, list[Doing]] = {}
        for doing in inside:
            by_operation.setdefault(_operation(doing, name), []).append(doing)
        operations = sorted(by_operation.items(), key=lambda item: (not item[0], -len(item[1])))
        if len(operations) > 1 and not operations[-1][0]:  # those that do not tell are in the first
            operations[0][1].extend(operations.pop()[1])
        if not all(_is_in(doing, name) for doing in inside):  # the others may be in another group's
            del operations[1:]
        is_late = late and not any(row.doing and row.doing.state == "moves" for row in late)
        if inside and (is_late or (len(operations) > 1 and not late)):
            rows = tuple((operation, tuple(same)) for operation, same in operations)
            yield Collective(name, number, len(everybody), rows, tuple(late))


def _flying(process: Process, group: str) -> Mapping[str, Any] | None:
    """The oldest collective of a group that has not ended, as torch's flight recorder has it."""
    entries = process.answer.get("flight", ())
    of_group = (row for row in entries if row["name"] == group and not row["between_two"])
    return next(of_group, None)


def _in_flight(
    processes: Sequence[Process], mains: Mapping[str, Doing], told: Iterable[Collective]
) -> Iterator[InFlight]:
    known = {(collective.group, collective.number) for collective in told}
    entries: dict[tuple[str, str, int], dict[int, float]] = {}
    for process in processes:
        main, rank = mains.get(process.file), process.answer.get("rank of job")
        if main is None or main.state == "moves" or rank is None:
            continue
        for entry in process.answer.get("flight", ()):
            if entry["between_two"] or (entry["name"], entry["number"]) not in known:
                key = entry["group"], entry["operation"], entry["number"]
                entries.setdefault(key, {})[rank] = entry["seconds"]
    for key, seconds in sorted(entries.items()):
        yield InFlight(*key, tuple(sorted(seconds)), max(seconds.values()))


def _by_its_own_rank(
    rank: int, processes: Iterable[Process], inside: Iterable[Doing]
) -> Process | None:
    """The process that has not told its rank of the job, if ranks are those of the worker group."""
    groups = {doing.process.group for doing in inside if _is_its_rank(doing.process)}
    others = any(not _is_its_rank(doing.process) for doing in inside)
    same = [process for process in processes if process.rank == rank and {process.group} == groups]
    return same[0] if len(same) == 1 and not others else None


def _is_its_rank(process: Process) -> bool:
    return bool(process.answer.get("rank of job") == process.rank)


def _in_torch(doing: Doing) -> bool:
    """Whether a thread may be in a collective: some begin in a step backwards, in C++."""
    return "torch" in doing.chain[0].split(".")[0] or "torch." in doing.scope


def _may_be_in(doing: Doing, group: str) -> bool:
    """Whether a thread may be in a collective of a group, which torch's recorder may rule out."""
    of_any = any(not row["between_two"] for row in doing.process.answer.get("flight", ()))
    return _flying(doing.process, group) is not None if of_any else _in_torch(doing)


def _is_in(doing: Doing, group: str) -> bool:
    """Whether the collective that a thread is in is one of this group."""
    is_only_group = len(doing.process.answer.get("groups", ())) == 1
    return is_only_group or _flying(doing.process, group) is not None


def _operation(doing: Doing, group: str) -> str:
    for function, file, _ in doing.frames:
        if os.path.basename(file) == "distributed_c10d.py" and function in COLLECTIVES:
            return function
    flying = _flying(doing.process, group)
    return str(flying["operation"]) if flying else ""


def _calls(processes: Sequence[Process], doings: Iterable[Doing]) -> Iterator[Wait]:
    stacks = [doing for doing in doings if doing.waits]
    running: dict[str, int] = {}
    busy: dict[str, set[int]] = {}
    for number, doing in enumerate(stacks):
        for what in doing.waits:
            if "runs" in what:
                running[what["runs"]] = number
                busy.setdefault(doing.process.file, set()).add(number)
    actors = {
        actor: process
        for process in processes
        if (actor := process.answer.get("actor")) and not actor.startswith(_NO_ACTOR)
    }
    edges: dict[int, set[int]] = {}
    for number, doing in enumerate(stacks):
        if doing.state == "moves" or "on" not in doing.waits[0]:
            continue
        calls = doing.waits[0]["calls"]
        # one of several may have ended, unless somebody runs it
        targets = {running[key] for key, _ in calls if key in running}
        actor = actors.get(calls[0][1]) if len(calls) == 1 and not targets else None
        if actor is not None and actor.file in busy:
            # with several at once, nobody knows which has to end
            targets = busy[actor.file] if len(busy[actor.file]) == 1 else set()
        elif actor is not None:  # it has not begun: its arguments may be missing
            needs = _needs(doing.process, calls[0][0])
            targets = {running[key] for key in needs if key in running}
            if not targets:
                yield Unknown(doing, True, False, actor)
        if targets:
            edges.setdefault(number, set()).update(targets - {number})
            if targets == {number}:
                yield Cycle((doing,))
        elif calls and not any(actor in actors for _, actor in calls):
            of_actor = not any(actor.startswith(_NO_ACTOR) or not actor for _, actor in calls)
            yield Unknown(doing, of_actor, len(calls) > 1)
    yield from _queued(edges, stacks)
    cycles = _cycles(edges)
    for cycle in cycles:
        yield Cycle(tuple(stacks[number] for number in cycle))
    yield from _chains(edges, {number for cycle in cycles for number in cycle}, stacks)


def _queued(edges: dict[int, set[int]], stacks: Sequence[Doing]) -> Iterator[Queued]:
    """Who waits for a queue. Their edges are removed: the queue is not what they wait for."""
    waiters: dict[tuple[str, bool], list[int]] = {}
    queues: dict[str, Process] = {}
    for number, targets in edges.items():
        if len(targets) != 1:  # several, or a call that waits for itself
            continue
        stack = stacks[min(targets)]
        names = [what["name"] for what in stack.waits if "runs" in what]
        if names and names[0] in _QUEUES:
            queues[stack.process.file] = stack.process
            waiters.setdefault((stack.process.file, _QUEUES[names[0]]), []).append(number)
    for (file, for_room), numbers in waiters.items():
        yield Queued(tuple(stacks[number] for number in numbers), queues[file], for_room)
        for number in numbers:
            del edges[number]


def _needs(process: Process, key: str) -> list[str]:
    """The keys of the calls whose results are arguments of a call that the process has sent."""
    if process.path is None:
        return []
    try:
        rows = ledger.read(process.path.with_suffix(ledger.SUFFIX)).sent
    except (OutputError, ImportError):
        return []
    needs = rows["needs"][rows["key"] == key_of(bytes.fromhex(key))]
    return [int(number).to_bytes(KEY, "little").hex() for number in needs if number]


def _orphans(doings: Iterable[Doing]) -> Iterator[Orphan]:
    for doing in doings:
        path = doing.process.path
        if doing.state == "moves" or doing.chain[0] != "queue.get" or path is None:
            continue
        try:
            record = ledger.read(path.with_suffix(ledger.SUFFIX))
            samples = read_samples(record)
        except (OutputError, ImportError):
            continue
        putting = {place.parent for place in record.places if place.key == "queue.put"}
        alive = set(record.open["place"].tolist())
        ends = [
            (end, track)
            for place, track, _, end in record.spans.tolist()
            if place in putting - alive and record.places[place].key.endswith(THREAD)
        ]
        if ends:
            end, track = max(ends)
            wall = (end + record.header["wall"] - record.header["monotonic"]) / 1e9
            name = record.tracks[track].name
            frames = last_frames(record, samples, name) if samples is not None else ()
            last = attrs.evolve(doing, frames=tuple(frames), scope="") if frames else None
            yield Orphan(doing, name, time.time() - wall, last)


def _cycles(edges: Mapping[int, set[int]]) -> list[list[int]]:
    """Each stack is in one cycle at most: the first that is found from it."""
    cycles: list[list[int]] = []
    in_cycles: set[int] = set()
    for start in edges:
        path = [start]
        stack = [iter(sorted(edges[start]))]
        while stack and start not in in_cycles:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                path.pop()
            elif following == start:
                cycles.append(list(path))
                in_cycles.update(path)
            elif following not in path and following not in in_cycles and following in edges:
                path.append(following)
                stack.append(iter(sorted(edges[following])))
    return cycles


def _chains(
    edges: Mapping[int, set[int]], in_cycles: set[int], stacks: Sequence[Doing]
) -> Iterator[Chain]:
    waiters: dict[int, set[int]] = {}
    for start in edges.keys() - in_cycles:
        visits, following = {start}, [start]
        while following:
            number = following.pop(0)
            if number != start and (number in in_cycles or number not in edges):
                waiters.setdefault(number, set()).add(start)
                continue  # the cycle itself is told
            unseen = sorted(edges.get(number, set()) - visits)
            visits.update(unseen)
            following += unseen
    for number, those in sorted(waiters.items()):
        by_file = {stacks[other].process.file: stacks[other].process for other in those}
        processes = sorted(by_file.values(), key=lambda p: (p.group, p.rank))
        yield Chain(tuple(processes), stacks[number])
