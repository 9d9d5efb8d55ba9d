"""Describes each cause in words: what it is, what to do, and what a fix would save."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from gpuprof._analysis.causes import STARVED, Doubt, Finding, Name
from gpuprof._analysis.loop import BETWEEN_CALLS, NAMES
from gpuprof._analysis.run import OUTSIDE
from gpuprof._analysis.stacks import LOADER, MOSTLY_WAITS, Line
from gpuprof._analysis.stays import OfSamples
from gpuprof._analysis.stragglers import BEFORE
from gpuprof._analysis.usage import Usage
from gpuprof._artifacts.early_ends import listed
from gpuprof._artifacts.receipt import size_text
from gpuprof._report.stacks import where
from gpuprof._report.words import all_of, duration, ordinal, percentage
from gpuprof._session.instruments.ray_calls import PUT
from gpuprof._session.instruments.threads import POOL_RESULT
from gpuprof._session.stacks import LIBRARY

if TYPE_CHECKING:
    from gpuprof._analysis.summary import Promise

_LARGEST_RATIO = 10
"""The largest ratio to print: beyond it, the others take almost no time there."""
_NO_SCOPES = (NAMES[OUTSIDE], BETWEEN_CALLS)
"""Places in the results that are not scopes."""
_LEAST_OF_LINE = 0.5
"""Share of a time above which one line of code is named as the one to look at."""
LEAST_EVEN = 0.1
"""Share of a run from which it is said what equally long work would save."""
_OVERLAPPED = 0.05
"""Share of a run for which others work beside a bottleneck, from which it is said what it costs."""
_BOUNDS = 0.1
"""Share of the run that half the time of a server saves, from which it is said to bound the run."""
_LEAST_WAITED = 0.3
"""How long the other ranks must have waited, as a share of a slow rank's extra time, for the
sentence to mention it."""


@attrs.frozen
class Words:
    """A cause in words."""

    says: str
    action: str


def of_users(line: Line | None) -> str:
    """Where a line is, if it is the user's own and most of the time is there; else empty."""
    if line is None or line.share < _LEAST_OF_LINE or LIBRARY.search(line.file):
        return ""
    return where(line)


def words(finding: Finding, line: Line | None = None) -> Words:
    """A finding in words.

    Args:
        line: the line of code that takes most of its time; ``None`` if it is not known.
    """
    if finding.cause == "bottleneck" and line is not None and line.waits > MOSTLY_WAITS:
        return Words(
            f"{_who(finding)} is {_where(finding)} for {duration(finding.seconds)} a step, "
            f"{percentage(finding.share)} of the run, and mostly waits there, in {line.name}, for "
            "what no scope records, such as another process.",
            "See what that does: py-spy dump --pid PID shows a Python process.",
        )
    at = of_users(line)
    of_cause = _WORDS[finding.cause](finding)
    if finding.cause == "data" and line is not None and line.kind == "helpers":
        of_cause = attrs.evolve(of_cause, action=_of_helpers(line, finding.facts.doubt == "busy"))
    if at and finding.cause in ("pauses", "once"):  # it is not the machine
        once = f"Once is no pattern: if it comes back, see {at}."
        often = f"See {at}: do it less often, in smaller parts, or while the next step runs."
        of_cause = attrs.evolve(of_cause, action=once if len(finding.facts.at) == 1 else often)
    elif at and of_cause.action.startswith(_LESS_OFTEN):
        advice = of_cause.action[0].lower() + of_cause.action[1:]
        of_cause = attrs.evolve(of_cause, action=f"See {at}: {advice}")
    if at and finding.cause == "late start":
        of_cause = attrs.evolve(of_cause, action=f"See {at}, which it runs before.")
    elif finding.cause == "processor" and line is not None:
        of_cause = attrs.evolve(
            of_cause,
            action=f"Its {line.scope}'s processes need processors as well: make {line.name} "
            f"faster, at {where(line)}, or give it more processors.",
        )
    elif at and any(finding.facts.worked):
        of_cause = attrs.evolve(of_cause, action=f"See {at}.")
    elif at and finding.cause in ("rank", "drift"):
        who = all_of(finding.workers)
        capture = f"capture {who} and another rank, and compare them."
        of_cause = attrs.evolve(of_cause, action=f"See {at}. If that is not it, {capture}")
    says = of_cause.says
    their = "their" if len(finding.workers) > 1 else "its"
    if finding.others_waited > _LEAST_WAITED * finding.seconds:
        wait = duration(finding.others_waited)
        says += f" The others of {their} group waited {wait} a step meanwhile."
    scope, own, others = finding.facts.calls
    if scope:
        says += (
            f" {finding.worker} enters {scope} {own} times a step, and the others {others} "
            "times: it may have more to do."
        )
    if finding.facts.starved >= STARVED:
        share = percentage(finding.facts.starved)
        says += f" {finding.worker} waited {share} of its time for a processor: that may be why."
    if finding.facts.faults:
        says += (
            f" {finding.worker} had {finding.facts.faults:,.0f} more page faults a step that read "
            "a disk, as with swapped-out memory or a mapped file: that may be why."
        )
    if doubt := _doubt(finding):
        says += f" Not certain: {doubt}."
    return attrs.evolve(of_cause, says=says)


def _doubt(finding: Finding) -> str:
    """Why a finding is only a hint; empty if that is said elsewhere, or it is none."""
    several, facts = len(finding.workers) > 1, finding.facts
    who, were = all_of(finding.workers), "were" if several else "was"
    pair = len(finding.workers) == 1 and facts.doubt == "half"
    others = "the other one is unusually fast" if pair else "the others are unusually fast"
    doubts: Mapping[Doubt, str] = {
        "profiled": f"{who} had a profiler and others of the group had none: profile all, or none",
        "half": f"perhaps {others}",
        "starved": "" if facts.starved else f"{who} {were} short of processor time",
        "outside": f"{who} {were} mostly asleep there, and may wait for somebody",
        "busy": "the machine was busy, which may be why",
        "several": "one of them may be slow, and calls wait for that one",
        "tokens": "tokens tell little of how long samples take",
        "path": "the record does not tell who waits for whom",
        "small": "a saving below 7 % may be chance",
        "others": "other ranks pause as well, and chance may decide which one pauses longest",
        "uneven": "it costs hardly anything in one half of the run",
    }
    # a strict period is not chance; an imbalance says itself what else it may be
    is_periodic = facts.every is not None and facts.doubt in ("small", "uneven")
    is_said = is_periodic or (finding.cause == "imbalance" and finding.workers)
    return "" if is_said or finding.grade == "named" else doubts.get(facts.doubt, "")


def _of_helpers(line: Line, is_busy: bool) -> str:
    """What to do if a rank waits for its loader or its pool.

    Args:
        is_busy: whether the machine has no processors left for more processes.
    """
    if line.waits <= MOSTLY_WAITS:
        more = " (num_workers)" if line.scope == LOADER else ""
        more = "" if is_busy else f", or use more processes{more}"
        return f"Make {line.name} faster, at {where(line)}{more}."
    see = "how large what it sends and gets back is"
    if line.scope == LOADER:
        see = "whether they start anew in each epoch (persistent_workers), and how large a batch is"
    return (
        f"Its {line.scope} waits for {percentage(line.waits)} of the time, so more processes do "
        f"not help: see {see}."
    )


def what_if(cause: Finding | Promise, at: str = "") -> str:
    """What the run would take without a cause, as a clause of a sentence.

    Args:
        at: file and line of what a worker does in no scope, if known.
    """
    several = len(cause.workers) > 1
    who = "{group}" if several else "{worker}"
    when, extra = "", ""
    if isinstance(cause, Finding) and cause.cause == "recurring":
        every = cause.facts.every
        when = f" every {ordinal(every)} step" if every else " in some steps"
        extra = "" if cause.facts.rare else "the extra time of "
    without = f"without {extra}{{scope}} in {who}{when}"
    if cause.cause == "driver":
        without = "without what {worker} does by itself"
    elif cause.scope in _NO_SCOPES:
        without = f"without what {who} does {{where}}{when}"
    if cause.cause == "synchronisation" and isinstance(cause, Finding) and cause.facts.scopes > 1:
        without = f"without synchronisation such as {{scope}} in {who}"
    if cause.cause == "synchronisation" and cause.scope == NAMES[OUTSIDE]:
        without = "if calls, their arguments and their results took no time on their way"
    condition = _IF.get(cause.cause, without).format(
        worker=cause.worker,
        workers=all_of(cause.workers),
        their="their" if several else "its",
        server=cause.group if several else cause.worker,
        group=cause.group,
        scope=cause.scope,
        late_for=_late_for(cause),
        where=f"at {at}" if at else _where(cause),
        limit=_limit(cause),
    )
    return f"{condition}, {gain(cause)}"


def gain(cause: Finding | Promise) -> str:
    """How much less time the run would take without a cause, as a clause of a sentence."""
    more = ""
    if cause.cause == "data":  # the processes that load it may take processors from the ranks
        is_busy = isinstance(cause, Finding) and cause.facts.doubt == "busy"
        more = ", or more: who loads it may take processors from the others" if is_busy else ""
    is_hint = isinstance(cause, Finding) and cause.grade == "hint"
    would = "may" if is_hint else "would"
    # what waits for Python's lock outside of scopes, as a call that begins, is not counted
    at_least = "at least " if cause.cause == "interpreter" else ""
    return f"the run {would} take {at_least}{percentage(cause.saves or 0.0)} less{more}"


def config(finding: Finding, rounds: bool, launched: bool) -> str:
    """The settings that capture a cause with a profiler; empty if no settings can.

    Args:
        rounds: whether a step is a round of calls, so that the settings cannot name
            steps: rounds are not known while a job runs.
        launched: whether `gpuprof run` started the run. Then the result is a whole command;
            otherwise it is variables to put in front of the job's command.
    """
    facts = finding.facts
    if not facts.steps:
        return ""
    keys: dict[str, Iterable[object]] = {"worker_groups": [finding.group], "ranks": facts.ranks}
    if finding.cause == "node":
        keys = {"nodes": [finding.worker]}
    if not rounds:
        keys["steps"] = facts.steps
    values = {"backend": "PROFILER"}
    values |= {name: ",".join(map(str, items)) for name, items in keys.items()}
    if launched:
        settings = (f"--set {shlex.quote(f'{name}={value}')}" for name, value in values.items())
        return f"gpuprof run {' '.join(settings)} -- COMMAND"
    return " ".join(
        f"GPUPROF_{name.upper()}={shlex.quote(value)}" for name, value in values.items()
    )


def _rank(finding: Finding) -> Words:
    who, several = all_of(finding.workers), len(finding.workers) > 1
    if any(finding.facts.worked):
        its, others = map(percentage, finding.facts.worked)
        parent = finding.facts.parent
        return Words(
            f"{who} works for {its} of the time, by its stacks, and the others of {finding.group} "
            f"for {others}: {parent} may wait for it.",
            f"See what {who} does that the others do not.",
        )
    is_ = _is(finding)
    says = (
        f"{who} {is_} slow {_where(finding)}: {_times(finding)}{duration(finding.seconds)} more "
        "a step"
    )
    # with many others that vary, one of them often takes longer
    often = f"; slowest in {finding.steps} of {finding.of} steps"
    says += often + "." if 2 * finding.steps > finding.of else "."
    if several:
        says += " Without one of them alone, the run would save less."
    if finding.facts.node:
        says += f" It or its node, {finding.facts.node}: nothing else there can be compared."
    if finding.facts.even >= LEAST_EVEN:
        they_have = "they have" if several else "it has"
        says += (
            f" If {they_have} more to do than the others, spreading the work evenly would save "
            f"{percentage(finding.facts.even)} of the run."
        )
    return Words(says, f"Capture {who} and another rank, and compare them.")


def _node(finding: Finding) -> Words:
    node, are = finding.worker, "may be" if finding.grade == "hint" else "are"
    return Words(
        f"All {finding.facts.processes} workers on node {node} {are} slower than those elsewhere, "
        f"most of all {finding.group} {_where(finding)}: {_times(finding)}"
        f"{duration(finding.seconds)} a step.",
        f"Compare node {node} with another one: other jobs, clocks and temperatures, "
        "`gpuprof doctor` on both.",
    )


def _late_for(finding: Finding | Promise) -> str:
    """What a rank is late for: the scope that it is before."""
    scope = finding.scope[1:-1].removeprefix("before ")
    if isinstance(finding, Finding) and finding.scope == NAMES[BEFORE]:
        return finding.facts.first or scope
    return scope


def _late_start(finding: Finding) -> Words:
    who = all_of(finding.workers)
    if finding.facts.parts:
        usually, then = map(duration, finding.facts.grew)
        return Words(
            f"{who} {_does(finding, 'begin')} {_late_for(finding)} later than the others "
            f"{_during(finding)}: after {then}, and after {usually} in the other steps.",
            _WHAT_THEN,
        )
    caller = ", or why its caller calls it so late" if finding.facts.called else ""
    return Words(
        f"{who} {_does(finding, 'begin')} {_late_for(finding)} "
        f"{duration(finding.seconds)} a step later than the others of its group, and was the last "
        f"in {finding.steps} of {finding.of} steps.",
        f"See what {who} does before{caller}.",
    )


def _drift(finding: Finding) -> Words:
    who, (first, last) = all_of(finding.workers), finding.facts.grew
    if finding.facts.parts:
        return Words(
            f"{who} {_is(finding)} slow {_where(finding)} {_during(finding)}: "
            f"{duration(last)} a step, and {duration(first)} in the other steps.",
            _WHAT_THEN,
        )
    slope = (last - first) / (0.75 * finding.of)
    return Words(
        f"{who} {_does(finding, 'get')} slower {_where(finding)}: {duration(first)} in the first "
        f"quarter of the steps and {duration(last)} in the last, {duration(slope)} more with each "
        f"step; {duration(finding.seconds)} a step more than the others' median.",
        f"Look for what grows in {who}: a list, a cache, a file, or memory in use.",
    )


def _pauses(finding: Finding) -> Words:
    """Describe pauses, with the steps that they slow down."""
    if len(finding.facts.at) == 1:
        return _once(finding)
    at = listed([str(number) for number in finding.facts.at])
    return Words(
        f"{_who(finding)} pauses {_where(finding)}: {_each(finding)} longer than usual in "
        f"{finding.steps} of {finding.of} steps ({at}), {_in_all(finding)}.",
        "Look for other processes on its cores, its storage, or its network.",
    )


def _once(finding: Finding) -> Words:
    return Words(
        f"Step {finding.facts.at[0]} took {duration(finding.facts.took)}, once: {_who(finding)} "
        f"took {duration(finding.seconds)} longer than usual {_where(finding)}, "
        f"{percentage(finding.share)} of the run.",
        "Once is no pattern: look again if it comes back.",
    )


def _recurring(finding: Finding) -> Words:
    every, longer = finding.facts.every, "" if finding.facts.rare else " longer than usual"
    when = f"every {ordinal(every)} step" if every else f"in {finding.steps} of {finding.of} steps"
    return Words(
        f"{_who(finding)} takes {_each(finding)}{longer} {_where(finding)} {when}: "
        f"{_in_all(finding)}.",
        _LESS_OFTEN + (_SHARE if len(finding.workers) == 1 else "."),
    )


def _only_this_rank(finding: Finding) -> Words:
    return Words(
        f"Only {_who(finding)} is in {finding.scope}, {_each(finding)} a step, while the others "
        f"wait: {_in_all(finding)}. It may be its part in the job.",
        _LESS_OFTEN + _SHARE,
    )


def _garbage_collection(finding: Finding) -> Words:
    who, several = finding.worker, len(finding.workers) > 1
    others = f" and {finding.facts.processes - 1} more" if several else ""
    where = f"{who} in" if several else "in"
    return Words(
        f"The garbage collector stops {who}{others} for {duration(finding.seconds)} a step, most "
        f"of it {where} {finding.scope}.",
        "Look for gc.collect() in the loop. If there is none, call gc.freeze() once all is set up, "
        "and collect between steps: gc.disable(), and gc.collect() in all ranks at the same steps.",
    )


def _imbalance(finding: Finding) -> Words:
    group, where, facts = finding.group, _where(finding), finding.facts
    if not finding.workers:
        return Words(
            f"{group} may not be balanced {where}: the slowest of them takes "
            f"{duration(finding.seconds)} longer than the mean, and it changes from step to step: "
            f"{facts.turns} of {facts.processes} were the slowest at some time.",
            "Spread the work of a step evenly: by its size, not by its number.",
        )
    node = f", or their node, {facts.node}, is slow" if facts.node else ""
    several = len(finding.workers) > 1
    takes, whose, slow, they_have, one = (
        ("take", "their", "some of them are", "they have", "one of them")
        if several
        else ("takes", "its", "it is", "it has", "it")
    )
    return Words(
        f"{listed(finding.workers)} {takes} {duration(finding.seconds)} a step longer than the "
        f"others of {group} {where}. Either that is {whose} part of the job, which may not be "
        f"balanced, or {slow} slow{node}.",
        f"If {they_have} more to do than the others, spread the work evenly; if not, capture {one} "
        "and one of the others, and compare them.",
    )


def _processor(finding: Finding) -> Words:
    facts, usage = finding.facts, _usage(finding)
    others = ""
    if facts.peers is not None:
        others = f"; the others on node {usage.node} waited {percentage(facts.peers)}"
    few = ""
    if usage.usable < usage.machine_processors:
        few = f" It may use {usage.usable} of {usage.machine_processors} processors."
    return Words(
        f"{finding.worker} waited {percentage(usage.waited)} of the time for a processor, ready to "
        f"run{others}.{few}",
        f"See what else runs on the processors of {finding.worker} (top, taskset -p), and give it "
        "its own.",
    )


def _interpreter(finding: Finding) -> Words:
    thread, who = _usage(finding).thread, listed(finding.workers)
    name = "another thread" if thread is None else f"the thread {thread.name}"
    if len(finding.workers) > 1:
        says = (
            f"{who} stand still in the midst of their work, {finding.worker} for "
            f"{duration(finding.seconds)} a step, while {name} runs in each of them: they wait"
        )
    else:
        says = (
            f"{who} stands still for {duration(finding.seconds)} a step in the midst of its work "
            f"while its {name.removeprefix('the ')} runs: it waits"
        )
    return Words(
        f"{says} for Python's global lock (GIL), or for that thread.",
        f"Let {name} of {who} work in a process, or in code that releases the GIL.",
    )


def _leak(finding: Finding) -> Words:
    facts, usage = finding.facts, _usage(finding)
    who = finding.worker
    grows = f"{who}'s memory grows by"
    if len(finding.workers) > 1:
        grows = f"The memory of {listed(finding.workers)} grows, most in {who}, by"
    left = " A cache that still fills looks the same."
    if facts.left is not None:
        seconds, steps = facts.left
        left = (
            f" At this rate, the {size_text(usage.available)} that node {usage.node} has left are "
            f"used up after {steps:,} steps, {_long(seconds)}."
        )
    return Words(
        f"{grows} {size_text(round(usage.growth))} with each step, to {size_text(usage.resident)} "
        f"at the end.{left}",
        f"Look for what {who} keeps, such as a list, or a cache without a limit: tracemalloc and "
        "memray show where it was allocated.",
    )


def _usage(finding: Finding) -> Usage:
    """What the process of a finding used. A finding about that always has it."""
    assert finding.facts.usage is not None
    return finding.facts.usage


def _long(seconds: float) -> str:
    """A duration of minutes to days, as text.

    >>> _long(90), _long(1000), _long(36_000), _long(400_000)
    ('90 s', '17 min', '10 h', '5 days')
    """
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 3 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _driver(finding: Finding) -> Words:
    action = "Move it into a worker, or start the next calls before it."
    if finding.scope == BETWEEN_CALLS:
        action += ' gpuprof.timer("…") around a part of its code shows what that part takes.'
    elif finding.scope == PUT:
        action = (
            "Put a large argument of several calls into Ray's store once, with ray.put, and send "
            "the reference: else each call copies it. Or send less."
        )
    return Words(
        f"The driver works {duration(finding.seconds)} a step by itself, the largest part "
        f"{_where(finding)}, while the workers wait for it.",
        action,
    )


def _data(finding: Finding) -> Words:
    if finding.facts.itself:
        return Words(
            f"Loading data in {finding.scope} takes {_who(finding)} {duration(finding.seconds)} a "
            "step, and nothing else runs meanwhile.",
            "Load it in other processes (num_workers), or make that code faster.",
        )
    if finding.scope == POOL_RESULT:
        return Words(
            f"{_who(finding)} waits {duration(finding.seconds)} a step for a pool of processes.",
            "Make its functions faster, use more processes, or let the pool work beside other "
            "work.",
        )
    return Words(
        f"{_who(finding)} waits {duration(finding.seconds)} a step for data in {finding.scope}.",
        "Use more loader processes (num_workers, prefetch_factor), a faster disk, or prepare the "
        "data before.",
    )


def _synchronisation(finding: Finding) -> Words:
    size, speed = (size_text(round(number)) for number in finding.facts.sent)
    at = f" It hands over {size}, at {speed} a second." if any(finding.facts.sent) else ""
    if finding.scope == NAMES[OUTSIDE]:
        return Words(
            f"Calls take {duration(finding.seconds)} a step on their way, with their arguments and "
            f"results, most of it before those of {finding.group} begin.",
            "Make fewer and longer calls, have more of them under way at once, or send less: NumPy "
            "arrays instead of Python objects, or what changed only.",
        )
    return Words(
        f"Synchronisation takes {duration(finding.seconds)} a step, most of it {_who(finding)} in "
        f"{finding.scope}.{at}",
        "Send less (only what changed, lower precision), send all at once, or overlap it with the "
        "next step's work.",
    )


def _server(finding: Finding) -> Words:
    facts = finding.facts
    share, seconds = facts.queued
    verb = "bound" if (finding.saves or 0.0) >= _BOUNDS else "slow"
    does = f"{verb}s" if finding.grade == "named" else f"may {verb}"
    why = f"it works {percentage(facts.busy)} of the time, for several processes."
    remedy = (
        "Make a call cheaper, let one call serve several requests, or add workers to "
        f"{finding.group}."
    )
    if share:
        why = (
            f"calls of {finding.scope} wait {percentage(share)} of their time in its queue, "
            f"{duration(seconds)} each."
        )
    if share and facts.event_loop:
        why = (
            f"calls of {finding.scope} wait {percentage(share)} of their time for its "
            f"{facts.limit or 'event loop'}, {duration(seconds)} each."
        )
        remedy = f"Move what blocks the event loop into asyncio.to_thread(…). {remedy}"
    if facts.limit:
        hold = {"lock": "Hold its lock for less time"}
        admit = hold.get(facts.limit, f"Let its {facts.limit} admit more calls")
        remedy = f"{admit}, or add workers to {finding.group}."
    return Words(f"{_who(finding)} {does} the run: {why}", remedy)


def _bottleneck(finding: Finding) -> Words:
    several = finding.facts.processes > 1
    bounds, remark = ("bound", " No rank stands out.") if several else ("bounds", "")
    if finding.facts.even >= LEAST_EVEN:
        remark = (
            " A different rank is the last in each step: if all took equally long, the run would "
            f"take {percentage(finding.facts.even)} less."
        )
    action = f"Make {finding.scope} faster, give it to more processes, or run it while others work."
    if finding.facts.at_once >= LEAST_EVEN:
        remark = (
            " Its workers take turns. If none needs what another one makes, the run would take "
            f"{percentage(finding.facts.at_once)} less with all of them at work at once."
        )
        action = (
            "If none needs what another one makes, call them all before you wait for the first "
            f"one; if not, make {finding.scope} faster."
        )
    if finding.scope in _NO_SCOPES:
        action = 'Make it faster, or see which part takes long: put parts into gpuprof.timer("…").'
    if finding.saves is not None and finding.share - finding.saves >= _OVERLAPPED:
        remark = f" Without it, the run would take {percentage(finding.saves)} less.{remark}"
    return Words(
        f"{_who(finding)} {bounds} the run {_where(finding)}: {duration(finding.seconds)} a step, "
        f"{percentage(finding.share)} of the run.{remark}",
        action,
    )


def _between_steps(finding: Finding) -> Words:
    inside = finding.facts.inside
    whose, do = (finding.worker, "does") if finding.workers else ("the ranks", "do")
    where = f", most of it {finding.worker} in {inside}" if inside else ""
    says = f"{percentage(finding.share)} of the run lies between steps: "
    says += f"{duration(finding.seconds)} after each{where}."
    if finding.saves is None:
        return Words(
            f"{says} What is marked may be only a part of a step.",
            "Name the function that makes a whole step: gpuprof run --set step_at=MODULE:FUNCTION.",
        )
    return Words(
        says,
        "Move it into a worker, or let it run while the next step does."
        if inside
        else f'See what {whose} {do} there: put it into gpuprof.timer("…").',
    )


def _tail(finding: Finding) -> Words:
    about = _about(finding)
    phase, share = about.waiting
    meanwhile = f"; {percentage(share)} of that time they are in {phase}" if share >= 0.1 else ""
    return Words(
        f"The last {percentage(about.part)} of a step's samples hold {finding.group} for "
        f"{percentage(about.held)} of the run{meanwhile}.",
        "Limit the length, keep unfinished samples for the next step, or begin the next ones "
        "meanwhile. Any of these changes what is trained.",
    )


def _sample_wait(finding: Finding) -> Words:
    about = _about(finding)
    median, high = map(duration, about.seconds)
    return Words(
        f"{percentage(about.part)} of the samples wait in {about.phase}, for "
        f"{percentage(about.work)} of the time that workers spend on samples: {median} each in the "
        f"median, 1 in 20 longer than {high}.",
        f"Make {about.phase} faster, let more of it run at once, or let workers begin other "
        "samples meanwhile.",
    )


def _uneven_tokens(finding: Finding) -> Words:
    more = f", and {listed(finding.workers)} in the whole run" if finding.workers else ""
    return Words(
        f"Workers of {finding.group} have uneven tokens: the most of a worker are "
        f"{_about(finding).most:.2f} times the mean in the median step{more}.",
        "Deal samples out by their tokens, or as workers become free.",
    )


def _stale_samples(finding: Finding) -> Words:
    about = _about(finding)
    median, most = about.behind
    parts = []
    if about.part:
        parts.append(
            f"{percentage(about.part)} of the samples were never trained, "
            f"{percentage(about.work)} of the work on samples."
        )
    if most:
        parts.append(
            f"Trained samples were begun {median:.0f} versions before the trainer's in the median, "
            f"{most:.0f} at most."
        )
    return Words(
        " ".join(parts),
        "Begin fewer samples at once, or shorten the longest; or accept older ones.",
    )


def _full_buffer(finding: Finding) -> Words:
    about = _about(finding)
    return Words(
        f"{finding.group} holds up the rollouts: {percentage(about.idle)} of their slots are "
        "empty until a batch is trained, and a sample is in the buffer for "
        f"{duration(about.seconds[0])} in the median.",
        f"Give workers of the rollouts to {finding.group}, or make its step faster.",
    )


def _starved_trainer(finding: Finding) -> Words:
    return Words(
        f"{finding.group} waits for samples for {percentage(finding.share)} of the run, though "
        "they are generated beside training: there are too few.",
        f"Add workers that generate, or take some from {finding.group}.",
    )


def _about(finding: Finding) -> OfSamples:
    return finding.samples or OfSamples()


def _limit(cause: Finding | Promise) -> str:
    """The limit of a tail's samples, as people read it."""
    about = cause.samples if isinstance(cause, Finding) else None
    if about is None or about.limit is None:
        return "most are"
    if about.unit == "tokens":
        return f"{about.limit:,.0f} tokens"
    return duration(about.limit)


def _times(finding: Finding) -> str:
    small = finding.ratio is not None and finding.ratio <= _LARGEST_RATIO
    return f"{finding.ratio:.2f} times the others' median, " if small else ""


def _does(finding: Finding, verb: str) -> str:
    if finding.grade == "hint":
        return f"may {verb}"
    return verb if len(finding.workers) > 1 else f"{verb}s"


def _is(finding: Finding) -> str:
    if finding.grade == "hint":
        return "may be"
    return "are" if len(finding.workers) > 1 else "is"


def _during(finding: Finding) -> str:
    """In which parts of the run it is, by its steps."""
    said = []
    for first, last in finding.facts.parts:
        if first is None:
            said.append(f"until step {last}")
        else:
            said.append(f"from step {first} {'on' if last is None else f'to step {last}'}")
    return all_of(said)


def _where(finding: Finding | Promise) -> str:
    """Where the cause is: ``in`` a scope, or a place that is no scope, without its brackets."""
    scope = finding.scope
    return scope[1:-1] if scope in _NO_SCOPES else f"in {scope}"


def _who(finding: Finding) -> str:
    if finding.facts.processes == 1:
        return finding.worker
    return f"{finding.group} ({finding.facts.processes} workers)"


def _each(finding: Finding) -> str:
    """The mean length of a pause in the steps that have one."""
    return duration(finding.seconds * finding.of / finding.steps)


def _in_all(finding: Finding) -> str:
    total = duration(finding.seconds * finding.of)
    return f"{total} in all, {percentage(finding.share)} of the run"


_AS_FAST = "if {workers} were as fast as the others' median"
_IF: Mapping[Name, str] = {
    "rank": _AS_FAST,
    "drift": _AS_FAST,
    "node": "if node {worker} were as fast as the others",
    "late start": "if {worker} began {late_for} when the others do",
    "pauses": "without the pauses of {workers}",
    "between steps": "without the time between steps",
    "garbage collection": "without the garbage collector in {worker}",
    "imbalance": "if {group} were balanced {where}",
    "server": "if calls of {server} took half the time",
    "processor": "if {worker} never waited for a processor",
    "interpreter": "if {workers} never waited for {their} other threads",
    "tail": "if no sample were longer than {limit}",
    "sample wait": "if {scope} took no time",
    "uneven tokens": "if all workers of {group} had as many tokens",
    "stale samples": "if all samples were trained",
    "full buffer": "if {group} took half the time",
    "bottleneck": "if {scope} of {server} took no time",
    "starved trainer": "if {group} never waited for samples",
}
"""By cause, the condition under which the run would take less time. For other causes, the condition
is that the scope takes no time."""
_LESS_OFTEN = "Do it less often, or while the next step runs"
_WHAT_THEN = "See what else ran on its machine then, and at which clock its processor or GPU ran."
_SHARE = "; or let all ranks share it."
_WORDS: Mapping[Name, Callable[[Finding], Words]] = {
    "rank": _rank,
    "node": _node,
    "late start": _late_start,
    "drift": _drift,
    "pauses": _pauses,
    "once": _once,
    "recurring": _recurring,
    "only this rank": _only_this_rank,
    "garbage collection": _garbage_collection,
    "imbalance": _imbalance,
    "driver": _driver,
    "data": _data,
    "synchronisation": _synchronisation,
    "server": _server,
    "between steps": _between_steps,
    "processor": _processor,
    "interpreter": _interpreter,
    "leak": _leak,
    "bottleneck": _bottleneck,
    "tail": _tail,
    "sample wait": _sample_wait,
    "uneven tokens": _uneven_tokens,
    "stale samples": _stale_samples,
    "full buffer": _full_buffer,
    "starved trainer": _starved_trainer,
}
