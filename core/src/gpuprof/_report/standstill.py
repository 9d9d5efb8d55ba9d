"""The output of `gpuprof stacks`: what the processes of a running job are doing now."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from gpuprof._analysis.standstill import Class, Doing, classes, computing, doings, last_seen
from gpuprof._analysis.waiting import (
    Chain,
    Collective,
    Cycle,
    InFlight,
    Orphan,
    Queued,
    Wait,
    waits,
)
from gpuprof._artifacts.dumps import ANSWERED, Process
from gpuprof._report.words import all_of
from gpuprof._session.instruments.collectives import runs
from gpuprof._session.ledger import ENDED

_MOST, _MOST_GONE = 5, 20
_STATES = {
    "moves": "moves",
    "busy": "busy, and has not moved",
    "waits": "has not moved",
    "": "",
}


JSON_VERSION = 1
_ABSENT = {
    "stopped": "is stopped, by SIGSTOP or a debugger",
    "dead": "has ended before the run",
    "lost": "is lost: its node has died",
    "silent": "does not answer",
}
_IDLE = ("ray.main_loop",)
"""The stack of a Ray worker that runs no call."""


def age(seconds: float) -> str:
    """A duration up to now, as text.

    >>> age(12.4), age(720), age(7300)
    ('12 s', '12 min', '2 h 1 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def ranks(numbers: Iterable[int]) -> str:
    """Ranks as text, with ranges for consecutive numbers.

    >>> ranks([0, 1, 2, 5]), ranks([7])
    ('ranks 0-2,5', 'rank 7')
    """
    in_order = sorted(set(numbers))
    stretches: list[str] = []
    for first, step, count in runs(in_order):
        if count > 2 and step == 1:
            stretches.append(f"{first}-{first + count - 1}")
        else:
            stretches += [str(first + step * index) for index in range(count)]
    return f"rank{'s' if len(in_order) > 1 else ''} {','.join(stretches)}"


def text(
    now: Sequence[Process],
    later: Sequence[Process],
    who_waits: Sequence[str],
    unasked: Sequence[int],
    full: bool,
) -> str:
    """The whole output as text.

    Args:
        later: their second answers; empty if they were asked only once.
        who_waits: the sentences about which process waits for which; see `sentences`.
        unasked: the ranks that could not be asked from here.
    """
    last = later or now
    missing = [line for process in last for line in _absent(process)]
    more = [f"{len(missing) - _MOST_GONE} more do not answer"] if len(missing) > _MOST_GONE else []
    if unasked:
        verb = "were" if len(unasked) > 1 else "was"
        reason = "the node shares no directory with this one; run gpuprof stacks there, too"
        more.append(f"{ranks(unasked)} {verb} not asked: {reason}")
    lines = [*missing[:_MOST_GONE], *more, *who_waits]
    if lines:
        lines.append("")
    everything = doings(now, later)
    visible = [doing for doing in everything if full or not doing.thread or doing.is_jobs]
    group = None
    for kind in classes(visible):
        if kind.group != group:
            group = kind.group
            lines.append(f"{group}:")
        lines += _class(kind, full)
    count = len(everything) - len(visible)
    if count:
        lines.append(f"{count} threads run only libraries; --full shows them")
    return "\n".join(lines)


def _absent(process: Process) -> list[str]:
    reason = _ABSENT.get(process.state)
    doing = last_seen(process)
    # Ray ends idle workers
    if reason is None or (process.state == "dead" and doing is not None and doing.chain == _IDLE):
        return []
    who = f"{process.name} (process {process.pid} on {process.node})"
    return [f"{who} {reason}{_last_record(process)}"]


def _last_record(process: Process) -> str:
    if "time" not in process.answer:
        return ""
    doing = last_seen(process)
    place = f", in {_place(doing)}" if doing is not None and doing.frames else ""
    if not place and doing is not None and doing.scope:
        place = f", in {doing.scope}"
    return f"; its last record is {age(time.time() - process.answer['time'])} old{place}"


def sentences(now: Sequence[Process], later: Sequence[Process]) -> list[str]:
    """The sentences about which process waits for which, and about children of those that do."""
    last = later or now
    absent = [process for process in last if process.state not in ANSWERED]
    what = doings(now, later)
    who_waits = dict.fromkeys(_sentence(wait, absent) for wait in waits(last, what))
    still = {doing.process.file for doing in what if not doing.thread and doing.state != "moves"}
    earlier = {process.file: process for process in now if later}
    slow = [process for process in last if process.children and process.file in still]
    return [*who_waits, *(_children(earlier.get(process.file), process) for process in slow)]


def _children(before: Process | None, process: Process) -> str:
    count = len(process.children)
    those = "child processes that are" if count > 1 else "child process that is"
    sentence = f"{process.name} has {count} {those} not recorded"
    if before is None:
        return sentence
    busy = computing(before, process)
    if count == 1:
        return f"{sentence}, and {'computes' if busy else 'does not compute'}"
    return f"{sentence}; {busy or 'none'} of them compute{'s' if busy < 2 else ''}"


def _sentence(wait: Wait, absent: Sequence[Process]) -> str:
    if isinstance(wait, Collective):
        return _collective(wait, absent)
    if isinstance(wait, InFlight):
        return (
            f"torch's flight recorder: {wait.operation} #{wait.number} of {wait.group} has not "
            f"ended on {ranks(wait.ranks)} for {age(wait.seconds)}"
        )
    if isinstance(wait, Orphan):
        last = "" if wait.last is None else f", last seen in {_place(wait.last)}"
        thread = "one of its threads" if wait.thread == ENDED else f"its thread {wait.thread}"
        return (
            f"{_doing(wait.waiter)} waits for an item; {thread}, which has put "
            f"items into a queue, ended {age(wait.seconds)} ago{last}"
        )
    if isinstance(wait, Cycle):
        reasons = [f"{_doing(doing)} waits for" for doing in wait.around]
        return f"deadlock: {' '.join(reasons)} {wait.around[0].process.name}"
    if isinstance(wait, Chain):
        them = _names(wait.waiters)
        verb = "waits" if len(wait.waiters) == 1 else "wait"
        state = _STATES[wait.last.state]
        return f"{them} {verb} for {_doing(wait.last)}{f': {state}' * bool(state)}"
    if isinstance(wait, Queued):
        one = len(wait.waiters) == 1
        them = _doing(wait.waiters[0]) if one else _names([d.process for d in wait.waiters])
        reason = "room in a full queue" if wait.for_room else "an item of an empty queue"
        return f"{them} wait{'s' * one} for {reason} ({wait.queue.name})"
    if wait.idle is not None:
        sentence = f"{_doing(wait.waiter)} waits for a call of {wait.idle.name}, which is idle"
        more = f"; {_names(absent)} did not answer" if absent else ""
        return f"{sentence}: the call may wait for its arguments{more}"
    what = "an actor's call" if wait.of_actor else "a task"
    what = f"several calls, among them {what}" if wait.several else what
    alive = [process for process in absent if process.state not in ("dead", "lost")]
    if alive:
        who = f"no process that answered runs it, and {_names(alive)} did not answer"
    else:
        who = "no process runs it: it has not started yet, or the cluster lacks free resources"
        who += " (see ray status)"
    return f"{_doing(wait.waiter)} waits for {what}; {who}"


def _collective(wait: Collective, absent: Sequence[Process]) -> str:
    everybody = [doing for _, same in wait.inside for doing in same]
    seconds = max(doing.seconds for doing in everybody)
    since = f" for {age(seconds)}" if seconds else ""
    if len(wait.inside) > 1:
        calls = [
            f"{_ranks_of_job(same)} {operation} ({same[0].location})"
            for operation, same in wait.inside
        ]
        first = (
            f"the ranks are in different operations, #{wait.number} of their group for each"
            f"{since}: {', '.join(calls)}; a rank has skipped a collective, or has called one more"
        )
    else:
        operation = f"{wait.inside[0][0]} " if wait.inside[0][0] else "a collective, "
        verb = "is" if len(everybody) == 1 else "are"
        inside = f"{len(everybody)} of {wait.size} ({_ranks_of_job(everybody)})"
        first = f"{inside} {verb} in {operation}#{wait.number} of their group{since}"
    late, unknown = [], []
    for row in wait.late:
        if row.doing is not None:
            place = f"rank {row.rank} ({row.doing.process.name}) is in {_place(row.doing)}"
            late.append(place if row.begun is None else f"{place}; its last one was #{row.begun}")
        else:
            ends = [process for process in absent if process.rank == row.rank]
            if len(ends) == 1:
                late.append(f"rank {row.rank} ({ends[0].name}) {_ABSENT[ends[0].state]}")
            else:
                unknown.append(row.rank)
    if unknown:
        late.append(f"{ranks(unknown)} did not answer")
    more = [f"{len(late) - _MOST} more"] if len(late) > _MOST else []
    return "; ".join([first, *late[:_MOST], *more])


def _ranks_of_job(doings: Iterable[Doing]) -> str:
    return ranks(doing.process.answer["rank of job"] for doing in doings)


def _doing(doing: Doing) -> str:
    return f"{doing.process.name} ({_place(doing)})"


def _place(doing: Doing) -> str:
    names = " < ".join(doing.chain[:3])
    since = f", {age(doing.seconds)}" if doing.scope else ""
    return f"{names} at {doing.location}{since}"


def _names(processes: Sequence[Process]) -> str:
    """An English list of processes, in which the ranks of a group are listed together."""
    groups: dict[str, list[Process]] = {}
    for process in processes:
        groups.setdefault(process.group, []).append(process)
    parts = []
    for group, those in groups.items():
        if len(those) == 1 or any(".child-" in process.name for process in those):
            names = [process.name for process in those]
            more = [f"{len(names) - _MOST} more of {group}"] if len(names) > _MOST else []
            parts += [*names[:_MOST], *more]
        else:
            parts.append(f"{group} {ranks(process.rank for process in those)}")
    return all_of(parts)


def _class(kind: Class, full: bool) -> list[str]:
    first = kind.same[0]
    about = [_who(kind)]
    if first.thread:
        about.append(first.thread)
    if first.process.state == "by signal":
        about.append("C code holds Python's lock")
    if first.chain == _IDLE:
        about.append("idle")
    elif first.state:
        about.append(_STATES[first.state])
    scopes = sorted({member.scope for member in kind.same if member.scope})
    if scopes:
        seconds = [member.seconds for member in kind.same if member.scope]
        ages = list(dict.fromkeys(age(value) for value in (min(seconds), max(seconds))))
        about.append(f"in {scopes[0]}{' and others' * (len(scopes) > 1)} for {' to '.join(ages)}")
    lines = [f"  {'; '.join(about)}"]
    if full:
        lines += [f"      {name}  ({file}:{line})" for name, file, line in first.frames]
    else:
        names = first.chain
        more = " < …" if len(names) > _MOST else ""
        lines.append(f"      {' < '.join(names[:_MOST])}{more}  ({first.location})")
    return lines


def _who(kind: Class) -> str:
    names = {member.process.name for member in kind.same}
    if len(names) == 1:
        process = kind.same[0].process
        return f"{process.name} (process {process.pid} on {process.node})"
    children = any(".child-" in name for name in names)
    them = (
        f"{len(names)} processes"
        if children
        else ranks(member.process.rank for member in kind.same)
    )
    return f"{len(names)} of {kind.size}: {them}"


def as_json(
    now: Sequence[Process],
    later: Sequence[Process],
    who_waits: Sequence[str],
    unasked: Sequence[int],
) -> str:
    """The same output as JSON; see `text`."""
    return json.dumps(
        {
            "version": JSON_VERSION,
            "time": time.time(),
            "waits": list(who_waits),
            "not_asked": list(unasked),
            "processes": [_entry(process) for process in (later or now)],
            "stacks": [_merged(kind) for kind in classes(doings(now, later))],
        },
        indent=2,
    )


def _entry(process: Process) -> dict[str, Any]:
    return {
        "name": process.name,
        "node": process.node,
        "pid": process.pid,
        "state": process.state,
        "last": _last_record(process).removeprefix("; "),
        "step": process.answer.get("step"),
        "threads": process.answer.get("threads", []),
        "tasks": process.answer.get("tasks", []),
    }


def _merged(kind: Class) -> dict[str, Any]:
    first: Doing = kind.same[0]
    return {
        "group": kind.group,
        "processes": [member.process.name for member in kind.same],
        "thread": first.thread,
        "state": first.state,
        "functions": list(first.chain),
        "location": first.location,
    }
