"""What the processes of a running job do now, as people read it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from gpuprof._analysis.standstill import Class, Doing, classes, doings
from gpuprof._artifacts.dumps import Process
from gpuprof._session.instruments.collectives import runs

_MOST = 5
_STATES = {
    "moves": "moves",
    "busy": "busy, and has not moved",
    "waits": "has not moved",
    "": "",
}


def age(seconds: float) -> str:
    """How long something has lasted.

    >>> age(12.4), age(720), age(7300)
    ('12 s', '12 min', '2 h 1 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def ranks(numbers: Iterable[int]) -> str:
    """Ranks as people list them.

    >>> ranks([0, 1, 2, 5]), ranks([7])
    ('ranks 0-2,5', 'rank 7')
    """
    known = sorted(set(numbers))
    stretches: list[str] = []
    for first, step, count in runs(known):
        if count > 2 and step == 1:
            stretches.append(f"{first}-{first + count - 1}")
        else:
            stretches += [str(first + step * index) for index in range(count)]
    return f"rank{'s' if len(known) > 1 else ''} {','.join(stretches)}"


def text(now: Sequence[Process], later: Sequence[Process], waits: Sequence[str], full: bool) -> str:
    """The page.

    Args:
        later: the second look; empty if there was one only.
        waits: who waits for whom, in sentences.
        full: whether whole stacks are shown, of all threads.
    """
    last = later or now
    lines = []
    for process in last:
        lines += _absent(process)
    lines += waits
    if lines:
        lines.append("")
    everything = doings(now, later)
    shown = [each for each in everything if full or not each.thread or each.is_jobs]
    group = None
    for each in classes(shown):
        if each.group != group:
            group = each.group
            lines.append(f"{group}:")
        lines += _class(each, full)
    hidden = len(everything) - len(shown)
    if hidden:
        lines.append(f"{hidden} threads run only libraries; --full shows them")
    return "\n".join(lines)


def _absent(process: Process) -> list[str]:
    where = f"{process.name} (process {process.pid} on {process.node})"
    last = f"; {process.last}" if process.last else ""
    if process.state == "stopped":
        return [f"{where} is stopped, by SIGSTOP or a debugger{last}"]
    if process.state == "dead":
        return [f"{where} has died{last}"]
    if process.state == "silent":
        reason = "it may have ended there, or does not see this directory"
        return [f"{where} does not answer: {reason}{last}"]
    return []


def _class(found: Class, full: bool) -> list[str]:
    first = found.same[0]
    about = [_who(found)]
    if first.thread:
        about.append(first.thread)
    if first.process.state == "by signal":
        about.append("C code holds Python's lock")
    if first.state:
        about.append(_STATES[first.state])
    scopes = sorted({each.scope for each in found.same if each.scope})
    if scopes:
        seconds = [each.seconds for each in found.same if each.scope]
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


def _who(found: Class) -> str:
    names = {each.process.name for each in found.same}
    if len(names) == 1:
        return next(iter(names))
    children = any(".child-" in name for name in names)
    them = (
        f"{len(names)} processes" if children else ranks(each.process.rank for each in found.same)
    )
    return f"{len(names)} of {found.size}: {them}"


def as_json(now: Sequence[Process], later: Sequence[Process], waits: Sequence[str]) -> str:
    """The same for programs."""
    return json.dumps(
        {
            "time": time.time(),
            "waits": list(waits),
            "processes": [_entry(process) for process in (later or now)],
            "stacks": [_merged(each) for each in classes(doings(now, later))],
        },
        indent=2,
    )


def _entry(process: Process) -> dict[str, Any]:
    return {
        "name": process.name,
        "node": process.node,
        "pid": process.pid,
        "state": process.state,
        "last": process.last,
        "step": process.answer.get("step"),
        "threads": process.answer.get("threads", []),
        "tasks": process.answer.get("tasks", []),
    }


def _merged(found: Class) -> dict[str, Any]:
    first: Doing = found.same[0]
    return {
        "group": found.group,
        "processes": [each.process.name for each in found.same],
        "thread": first.thread,
        "state": first.state,
        "functions": list(first.chain),
        "location": first.location,
    }
