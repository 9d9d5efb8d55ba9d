"""What ``gpuprof explain`` prints, and the three lines at the end of a run."""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from gpuprof_timing.recording import TIMING_VARIABLE

from gpuprof import _tables
from gpuprof._analysis import reading
from gpuprof._analysis.causes import OF_A_WORKER, Finding
from gpuprof._analysis.explain import Explainer, Explanation, KindOfStep, Share, Trend
from gpuprof._analysis.explain import Path as CriticalPath
from gpuprof._analysis.odds import LEAST_STEPS
from gpuprof._analysis.rhythm import most_called
from gpuprof._analysis.run import Process, Run
from gpuprof._analysis.samples import Attribute
from gpuprof._analysis.stacks import LEAST_QUIET, MOSTLY_WAITS, Line, Place, busiest, last_places
from gpuprof._analysis.usage import FAULT, busy
from gpuprof._analysis.waits import ANYBODY, BARRIER, DATA
from gpuprof._artifacts.early_ends import listed, sentences
from gpuprof._artifacts.ledger import SUFFIX
from gpuprof._artifacts.receipt import size_text
from gpuprof._log import log
from gpuprof._report import stacks
from gpuprof._report.causes import LEAST_EVEN, config, gain, of_users, what_if, words
from gpuprof._report.trees import DRIVER, introduce
from gpuprof._report.words import duration, ordinal, percentage
from gpuprof._session.instruments.coroutines import SUSPENDED
from gpuprof.errors import ConfigError, GpuprofError, OutputError

JSON_VERSION = 1
_QUICK = 4_000_000
"""Bytes of ledgers that take about a second to explain; larger runs are not explained at their
end."""
_LEAST_FOR_A_PATH = 3
_MOSTLY_IN_STEPS = 0.95
"""Share of a run in steps above which the rest is not mentioned."""
_MUCH_SLOWER = 1.5
"""How many times the median the slowest step must take to have its path printed."""
_LEAST_LEFT_OUT = 0.2
"""How long the steps that are left out must take, relative to those that count, to be said."""
_MOST_PLACES = 4
"""Places to tell in which processes were when a run was ended that may have hung."""
_MUCH_LONGER = 3
"""How many times the slowest step nothing must have ended for a job to be said to stand still."""
_LEAST_SHARE = 0.005
"""The shortest part of a path to print, as a share of the step: a shorter one would have 0 %."""
_LARGE_TRANSFER = 2**20
"""Bytes a step above which a scope that moves them gets a line."""
_LEAST_BOUND = 0.1
"""Share of the path above which a group counts as one that bounds a step."""
_NEARLY_ALL = 0.7
"""Share of a group's part above which one worker is named instead of the group."""
_LEAST_WAIT = 0.05
_LEAST_PART = 0.01
"""Share of the steps that a group must spend in scopes for the gaps between them to count as waits
between calls."""
_LEAST_HANDOVER = 0.1
"""Share of a step above which handing over results gets a sentence."""
_LEAST_BESIDE = 0.5
"""How long a scope that works must take, relative to what is only awaited, to be the one to look
at."""
_LEAST_LACK = 0.2
"""Share of the time that processes must wait for a processor for more of them to be the advice."""
_LEAST_OF_LINE = 0.5
"""Share of a time above which one line of code is named as the one to look at."""
_LEAST_LEAD = 0.2
"""Share of a step above which a line of a worker without peers is named as what would help."""
_LEAST_MORE = 0.2
"""Share of a step by which a process must wait longer for a processor than it usually does to get a
sentence."""
_LEAST_SAVED = 0.01
"""Share of a run above which a saving gets a sentence."""
_BUSY = "The machine was busy: processes waited {} of the time for a processor"
_LAUNCHER = "no profiler: gpuprof puts one only in front of ranks that a launcher starts"
_CUT_SHORT = ", or cut short by a worker's end"
_WHOM = {ANYBODY: "", BARRIER: ", for the others", DATA: ", for data"}
_KINDS = {
    "work": "",
    "handover": "after the wait",
    "data": "waits for data",
    "unexplained": "unexplained",
    "dispatch": "call under way",
    "outside": "",
    "samples": "samples in flight",
}


def text(answer: Explanation, width: int | None = None, hint: str = "") -> str:
    """The whole answer as text."""
    of_bottleneck = _line_of_bottleneck(answer)
    parts = [
        _steps(answer),
        "\n".join(given(answer)),
        _filled(_state(answer.run, answer, answer.seconds["most"])),
        "\n".join(_filled(f"{sentence}.") for sentence in sentences(answer.ended_early)),
        verdict(answer),
        "Where the time goes\n" + _groups(answer, width, hint) if answer.groups else "",
        *(
            "\n".join([path_text(path, width, hint), *_lacked(answer, path)])
            for path in answer.paths
            if path.why != "slowest" or path.seconds >= _MUCH_SLOWER * answer.seconds["median"]
        ),
        stacks.hottest([line for line in answer.lines if line is not of_bottleneck]),
        _findings(answer),
        _confidence(answer),
    ]
    return "\n\n".join(part for part in parts if part)


def as_dict(answer: Explanation) -> dict[str, Any]:
    """The whole answer as a mapping for JSON; docs/explain.md describes its keys."""
    content = {"version": JSON_VERSION, **attrs.asdict(answer)}
    causes = _causes(answer)
    content["findings"] = [attrs.asdict(finding) for finding, _ in causes]
    unprinted = (
        "bottleneck",
        "overlapped",
        "shares",
        "untimed",
        "launched",
        "started_groups",
        "extra",
        "quiet",
    )
    for name in (*unprinted, "stall", "last_places"):
        del content[name]
    for (finding, line), entry in zip(causes, content["findings"], strict=True):
        del entry["facts"]
        entry["evenly"] = finding.facts.even or None
        entry["at_once"] = finding.facts.at_once or None
        entry["doubt"] = finding.facts.doubt or None
        entry["line"] = None if line is None else stacks.as_dict(line)
        if finding.ratio == math.inf:
            entry["ratio"] = None
        advice = words(finding, line)
        entry |= {"says": advice.says, "action": advice.action, "config": _config(answer, finding)}
    if answer.trend is not None and answer.trend.line is not None:
        content["trend"]["line"] = stacks.as_dict(answer.trend.line)
    content["lines"] = [stacks.as_dict(line) for line in answer.lines]
    confidence = content["confidence"]
    del confidence["remedy"]
    confidence |= {
        "enough": answer.confidence.enough,
        "reason": _reason(answer),
        "instrument": remedy(answer),
    }
    return content | {"bounds": bounds(answer), "waits": waits(answer), "helps": helps(answer)}


def as_json(answer: Explanation) -> str:
    """The whole answer as JSON."""
    return json.dumps(as_dict(answer), indent=2)


def verdict(answer: Explanation) -> str:
    """Three lines: what bounds a step, who waits, and what would help."""
    labels = ("bounds a step:  ", "waits:          ", "would help:     ")
    content = "\0".join((bounds(answer), waits(answer), helps(answer)))
    if answer.driver:
        content = introduce(content, answer.driver)
    return "\n".join(map(_tables.labelled, labels, content.split("\0")))


def bounds(answer: Explanation) -> str:
    """What bounds a step."""
    confidence = answer.confidence
    if not confidence.enough:
        if suspect := _suspect(answer):
            return suspect
        tells = confidence.worker and not answer.untimed
        scope = _without_brackets(confidence.scope)
        inside = "" if scope != confidence.scope else "in "
        where = f", most of it {_owner(answer)} {inside}{scope}" if tells else ""
        return f"not known: {_reason(answer)}{where}"
    in_steps = answer.seconds["in_steps"]
    between = 1 - in_steps
    parts = [f"between steps {percentage(between)}"] if between >= _LEAST_BOUND else []
    by_group: dict[str, list[Share]] = {}
    for share in answer.shares:
        by_group.setdefault(share.group, []).append(share)
    for of_group in sorted(by_group.values(), key=_sum, reverse=True):
        if _sum(of_group) * in_steps >= _LEAST_BOUND or not parts:
            who, shares = _who(answer, of_group)
            scope, of_scope = _largest(shares, "scope")
            where = f"{_without_brackets(scope)} {percentage(of_scope * in_steps)}"
            parts.append(f"{who} {percentage(_sum(shares) * in_steps)} ({where})")
    return ", ".join(parts[:3])


def _owner(answer: Explanation) -> str:
    """Whose time is not explained: the group's, unless a cause is about the worker."""
    worker = answer.confidence.worker
    if any(worker in finding.workers for finding in answer.findings):
        return worker
    group = next((share.group for share in answer.shares if share.worker == worker), "")
    several = any(times.group == group and times.workers > 1 for times in answer.groups)
    return group if several else worker


def _suspect(answer: Explanation) -> str:
    """The worker that bounds a step if what it does unseen is its own; empty if there is none.

    What is not explained is then what a cause is about, so the replay without it is as good as any.
    """
    confidence = answer.confidence
    for finding, line in zip(answer.findings, answer.extra, strict=True):
        is_of_one = finding.cause in (*OF_A_WORKER, "recurring")
        in_no_scope = finding.scope == confidence.scope or finding.scope.startswith("(")
        is_about_it = is_of_one and in_no_scope and confidence.worker in finding.workers
        if is_about_it and finding.saves is not None and finding.saves >= _LEAST_SAVED:
            share = percentage(confidence.seconds / answer.seconds["mean"])
            where = _without_brackets(confidence.scope)
            is_its = line is not None and line.worker == confidence.worker
            at = f", slow at {stacks.where(line)}" if is_its and line is not None else ""
            unless = ", unless it waits there for others" if finding.grade == "hint" else ""
            count = next((g.workers for g in answer.groups if g.group == finding.group), 1)
            who = confidence.worker if len(finding.workers) < max(2, count) else finding.group
            return f"{who} {share} ({where}{at}){unless}"
    return ""


def waits(answer: Explanation) -> str:
    """Who waits longest, in scopes that wait and on Ray between calls, and for whom."""
    if not answer.groups:
        return "not known: nothing was timed"
    groups = [group for group in answer.groups if group.group != DRIVER or not answer.driver]
    if answer.driver:  # leave out groups without a part in the steps, such as mere launchers
        groups = [group for group in groups if group.work + group.waits >= _LEAST_PART] or groups
    parts = []
    for group in sorted(groups, key=lambda group: -group.idle):
        if group.idle >= _LEAST_WAIT:
            where, most, whom = "between calls", group.between_calls, ""
            if group.waits >= max(_LEAST_WAIT, most):
                where, most = group.scope, group.waits
                whom = _WHOM.get(group.waits_for, f", for {group.waits_for}")
            whole, part = percentage(group.idle), percentage(most)
            parts.append(f"{group.group} {whole} ({where}{f' {part}' * (part != whole)}{whom})")
    nobody = "nobody for more than 5 % of a step"
    if not answer.confidence.enough:
        nobody += ", as far as is recorded"
    return ", ".join(parts[:3]) or nobody


def helps(answer: Explanation) -> str:
    """What would help."""
    longest = answer.seconds["most"]
    if answer.state in ("interrupted", "killed") and _is_quiet(answer, longest):
        where = _where_at_end(answer.last_places)
        return f"see why it may have hung{': ' if where else ''}{where}"
    causes = [finding for finding in answer.findings if finding.cause not in ("once", "leak")]
    for finding in causes if answer.bottleneck is None else ():
        if finding.saves is not None and finding.saves >= _LEAST_SAVED:
            least = max(_LEAST_LEAD, 2 * finding.saves)
            if finding.grade == "hint":
                least = max(_LEAST_LEAD / 2, 1.5 * finding.saves)
            lead = _lead(answer, least, finding)
            doubt = ""
            if finding.grade == "hint" and busy(answer.processes):
                doubt = ", unless the busy machine is why"
            lead = _growth(answer, 2 * finding.saves) or lead
            if finding.cause == "garbage collection":  # no sample is taken in it, but one after it
                lead = ""
            lead = _second(finding, causes) or lead
            line = answer.extra[answer.findings.index(finding)]
            if line is not None and line.kind == "helpers":
                lead = f"see {line.name}, which its {line.scope} runs at {stacks.where(line)}"
            clause = what_if(finding, of_users(line))
            return clause + doubt + (f"; {lead}" if lead else "")
    if not answer.confidence.enough:
        about_it = (c for c in causes if answer.confidence.worker in c.workers)
        action = next((_action(answer, c) for c in about_it if c.saves is None), "")
        return action or remedy(answer) or _reason(answer)
    for finding in causes if answer.bottleneck is None else ():
        if finding.saves is None:
            return _action(answer, finding)
    nobody = (
        "no rank stands out"
        if answer.steps["counted"] >= LEAST_STEPS
        else f"{answer.steps['counted']} steps are too few to name a rank"
    )
    waited = busy(answer.processes)
    if waited >= _LEAST_LACK:
        reason = f"they waited {percentage(waited)} of the time for a processor"
        clauses = [nobody, f"more processors or fewer processes: {reason}"]
        hottest = _line_of_bottleneck(answer)
        if hottest is not None and hottest.waits <= MOSTLY_WAITS and answer.bottleneck is not None:
            takes = percentage(hottest.share * answer.bottleneck.share)
            clauses.append(f"{hottest.name} at {stacks.where(hottest)} takes {takes} of a step")
        return "; ".join(clauses)
    handovers = [share for share in answer.shares if share.kind == "handover"]
    work = [share for share in answer.shares if share.kind == "work"] or answer.shares
    largest = _largest_place([share for share in work if share.scope not in SUSPENDED])
    if _sum(largest) < _LEAST_BESIDE * _sum(_largest_place(work)):
        largest = _largest_place(work)  # which takes as long as whatever is awaited
    if _sum(handovers) >= max(_LEAST_HANDOVER, _sum(largest)):  # nobody can receive twice as fast
        return (
            f"{nobody}; handing over what was waited for takes {percentage(_sum(handovers))} of a "
            f"step, most in {_largest_place(handovers)[0].scope}: fewer and larger messages, or "
            "work meanwhile"
        )
    open_shares = [share for share in answer.shares if share.kind in ("outside", "unexplained")]
    unknown = _sum(_largest_place(open_shares))
    if unknown >= max(_LEAST_BOUND, _sum(largest)) and remedy(answer):
        return f"{nobody}; {remedy(answer)}: it takes {percentage(unknown)} of a step"
    share = percentage(_sum(largest))
    who, _ = _who(answer, largest)
    scope = largest[0].scope
    alone = {group.group for group in answer.groups if group.workers == 1}
    enough = answer.steps["counted"] >= LEAST_STEPS
    nobody = "" if enough and largest[0].group in alone else f"{nobody}; "
    work_there = f"{scope} of {who}"
    if scope.startswith(f"{largest[0].group}."):  # a method of an actor
        work_there = scope
    elif scope.startswith("("):
        work_there = f"what {who} does {_without_brackets(scope)}"
    faster = f"{nobody}make {work_there} faster: it takes {share} of a step"
    if growth := _growth(answer, 0.0):
        return f"{nobody}{growth}"
    overlapped = answer.overlapped
    if overlapped and (overlapped.group, overlapped.scope) == (largest[0].group, scope):
        return (
            f"no single place: {work_there} takes {share} of a step, but without it the run would "
            f"take only {percentage(overlapped.saves or 0.0)} less, as others take about as long "
            "meanwhile"
        )
    bottleneck = answer.bottleneck
    if bottleneck and bottleneck.facts.even >= LEAST_EVEN and bottleneck.scope == scope:
        even = percentage(bottleneck.facts.even)
        faster += f"; if its ranks took equally long there, the run would take {even} less"
    elif bottleneck and bottleneck.facts.at_once >= LEAST_EVEN and bottleneck.scope == scope:
        faster += "; or let its workers work at once, if none needs what another one makes"
    if scope in SUSPENDED:  # which takes as long as whatever is awaited
        faster = f"{nobody}see what {who} awaits in {scope}: it takes {share} of a step"
    part, line = _leading(answer, _LEAST_LEAD)
    if line is not None and line.scope == scope and line.waits > MOSTLY_WAITS:
        return (
            f"{nobody}see what {who} waits for in {line.name} at {stacks.where(line)}: it takes "
            f"{percentage(part)} of a step"
        )
    if line is not None and line.scope == scope:
        of_it = percentage(min(1.0, part / _sum(largest)))
        return f"{faster}, {of_it} of that in {line.name} at {stacks.where(line)}"
    lead = _lead(answer, _LEAST_LEAD)
    return f"{faster}; {lead}" if lead else faster


def _action(answer: Explanation, finding: Finding) -> str:
    """What to do about a cause, as part of a line."""
    action = words(finding, answer.extra[answer.findings.index(finding)]).action
    return action[:1].lower() + action[1:].removesuffix(".")


def _lead(answer: Explanation, least: float, cause: Finding | None = None) -> str:
    """The line that takes most of a step in a group, as a clause; or nothing; see `_leading`."""
    part, line = _leading(answer, least, cause)
    if line is None or line.waits > MOSTLY_WAITS:
        return ""
    return f"{line.name} at {stacks.where(line)} takes {percentage(part)} of a step"


def _leading(
    answer: Explanation, least: float, cause: Finding | None = None
) -> tuple[float, Line | None]:
    """The line that takes most of a step in a group, if that is enough.

    Of a group of several only beside a cause that is about another group: else its ranks were
    compared.
    """
    alone = {group.group for group in answer.groups if group.workers == 1}
    parts: list[tuple[float, Line | None]] = []
    for line in answer.lines:
        group = next((share.group for share in answer.shares if share.worker == line.worker), "")
        if group in alone or (cause is not None and cause.group != group):
            there = (s for s in answer.shares if (s.group, s.scope) == (group, line.scope))
            parts.append((line.share * _sum(list(there)) * answer.seconds["in_steps"], line))
    most = max(parts, key=lambda pair: pair[0], default=(0.0, None))
    return most if most[0] >= least else (0.0, None)


def remedy(answer: Explanation) -> str:
    """What to look at or add to explain the rest; empty if nothing is missing."""
    confidence = answer.confidence
    if confidence.remedy is None:
        return ""
    about, worker, scope = confidence.remedy, confidence.worker, confidence.scope
    switched_on = f"GPUPROF_INSTRUMENTS={','.join(about.instruments)}"
    hint = f'mark what {worker} does outside any scope with gpuprof.timer("…")'
    for line in filter(None, (*answer.extra, *answer.lines)):
        if (line.worker, line.scope) == (worker, scope) and line.share >= _LEAST_OF_LINE:
            hint = f"see {stacks.where(line)}, where {_owner(answer)} spends that time"
    whom = f'"{about.waits_for}"' if about.waits_for else '"<group>"'
    remedies = {
        "timing": f"unset {TIMING_VARIABLE}, which is 0 and switches timing off",
        "scopes": hint,
        "scopes and ray": f"{hint}; {switched_on} shows its calls",
        "ray": f"set {switched_on}: it shows which calls {scope} waits for",
        "bytes_per_step": f"raise the key ledger.bytes_per_step: {worker} had more calls than fit, "
        "and the deepest ones have no keys",
        "no early end": f"a run in which {listed(about.gone)} does not end early: its ledger lacks "
        "these calls",
        "record all": f"record the actors that {scope} of {worker} waits for: `gpuprof run -- "
        "COMMAND` records all",
        "torch": f"set {switched_on}: it shows whom {scope} waits for",
        "await": f'mark what {worker} awaits with gpuprof.timer("…", waits_for="data")',
        "profiler": f"a profiler in {worker}: it shows what the device does during {scope}",
        "key": f'gpuprof.timer("{scope}", waits_for={whom}, key=…), and the same key where it is '
        "released",
    }
    return remedies[about.kind]


def _reason(answer: Explanation) -> str:
    """Why it is not known what bounds a step."""
    confidence = answer.confidence
    if confidence.reason == "untimed":
        return f"{TIMING_VARIABLE}=0 switched timing off in {listed(answer.untimed)}"
    if confidence.reason == "unexplained":
        return f"{percentage(1 - confidence.explained)} of the critical path is unexplained"
    if confidence.reason == "clocks":
        return f"the nodes' clocks may be {duration(confidence.clock_bound or 0.0)} apart"
    return ""


def _config(answer: Explanation, finding: Finding) -> str:
    if finding.group in answer.started_groups:
        return ""
    return config(finding, rounds=bool(answer.steps["round"]), launched=answer.launched)


def _sum(shares: Iterable[Share]) -> float:
    return sum(share.share for share in shares)


def _largest(shares: Iterable[Share], key: str) -> tuple[str, float]:
    """The worker or scope with the largest sum of shares, and that sum."""
    sums: dict[str, float] = {}
    for share in shares:
        name = getattr(share, key)
        sums[name] = sums.get(name, 0.0) + share.share
    most = max(sums, key=sums.__getitem__)
    return most, sums[most]


def _largest_place(shares: Iterable[Share]) -> list[Share]:
    """The shares of the group and scope with the largest sum."""
    by_place: dict[tuple[str, str], list[Share]] = {}
    for share in shares:
        by_place.setdefault((share.group, share.scope), []).append(share)
    return max(by_place.values(), key=_sum, default=[])


def _who(answer: Explanation, shares: Sequence[Share]) -> tuple[str, Sequence[Share]]:
    """The worker with nearly all of a group's shares, or else the group; and the shares of it.

    Of a group of several, the worker only if it is part of a cause that is not about all of them:
    else the others take as long.
    """
    worker, most = _largest(shares, "worker")
    group = shares[0].group
    count = next((times.workers for times in answer.groups if times.group == group), 1)
    accused = any(
        worker in finding.workers and len(finding.workers) < count for finding in answer.findings
    )
    if most >= _NEARLY_ALL * _sum(shares) and (accused or count == 1):
        return worker, [share for share in shares if share.worker == worker]
    return group, shares


def _without_brackets(name: str) -> str:
    """A name such as ``(outside any scope)`` without its own brackets."""
    return name[1:-1] if name.startswith("(") else name


def quick_answer(directory: str) -> Explanation | None:
    """Explain a run at its end; ``None`` if there is nothing to explain, or it would take long.

    Never raises, because an error in the explanation must not harm the job.
    """
    try:
        if not 0 < _size(directory) <= _QUICK:
            return None
        run = reading.read(directory)
        if run.step_at and not run.steps:
            log().warning("%s", no_steps(run))
        return Explainer(run).explain() if len(run.usual) >= _LEAST_FOR_A_PATH else None
    except GpuprofError as error:
        log().info("no explanation: %s", error)
    except Exception as error:
        log().warning("no explanation: %s: %s", type(error).__name__, error)
    return None


def print_verdict(directory: str, answer: Explanation | None) -> None:
    """Log a run's verdict, or the command that prints it if the explanation would take long."""
    commands = f"gpuprof explain {directory} (as a page: gpuprof html)"
    if answer is not None:
        median = duration(answer.seconds["median"])
        log().info("a step takes %s; more: %s\n%s", median, commands, verdict(answer))
    elif _size(directory) > _QUICK:
        log().info("what bounds a step: %s", commands)


def _size(directory: str) -> int:
    """The size of a run's ledgers in bytes."""
    return sum(path.stat().st_size for path in Path(directory).glob(f"*/*{SUFFIX}"))


def _steps(answer: Explanation) -> str:
    median, least, most = (duration(answer.seconds[key]) for key in ("median", "least", "most"))
    steps = answer.steps
    omissions = [
        f"{len(steps[key])} {word}"
        for key, word in (
            ("warm_up", "warm-up"),
            ("captured", "captured"),
            ("disturbed", "slowed by a window"),
            ("incomplete", f"incomplete{_CUT_SHORT if answer.ended_early else ''}"),
        )
        if steps[key]
    ]
    if omissions and steps["left_out_seconds"] >= _LEAST_LEFT_OUT * answer.seconds["loop"]:
        omissions[-1] += f" ({duration(steps['left_out_seconds'])} in all)"
    if steps["other_workers"]:
        omissions.append(f"{steps['other_workers']} with other workers")
    without = f"; left out: {', '.join(omissions)}" if omissions else ""
    share = answer.seconds["in_steps"]
    loop = f"; {percentage(share)} of {duration(answer.seconds['loop'])} is in steps"
    loop = loop if share < _MOSTLY_IN_STEPS else ""
    parts = [
        f"{answer.run}: {steps['counted']} of {steps['all']} steps{without}.",
        *([_what_a_step_is(steps)] if steps["round"] or steps["of_optimizer"] else []),
        f"A step takes {median} (median; {least} to {most}){loop}.",
        *([_trend(answer.trend)] if answer.trend is not None else []),
        *map(_kind, answer.kinds),
        *([f"{_BUSY.format(percentage(waited))}."] if (waited := busy(answer.processes)) else []),
    ]
    return _filled(" ".join(parts))


def given(answer: Explanation) -> list[str]:
    """What the job itself said of its steps and samples, as lines."""
    lines = [_attribute(attribute) for attribute in answer.attributes]
    if answer.mfu is not None:
        lines.append(f"MFU: {percentage(answer.mfu)}")
    never = answer.never_ended
    if never:
        names = [f"{sample} in {phase} of {worker}" for sample, phase, worker in never]
        lines.append(_filled(f"samples that never ended: {len(never)}: {listed(names)}."))
    return lines


def _attribute(attribute: Attribute) -> str:
    if attribute.per_second is None:
        least, most = _amount(attribute.least), _amount(attribute.most)
        return f"{attribute.name}: {_amount(attribute.mean)} in a step ({least} to {most})"
    rate = _amount(attribute.per_second)
    return f"{attribute.name}: {_amount(attribute.mean)} a step, {rate} a second"


def _amount(value: float) -> str:
    """A number of any size, for people.

    >>> _amount(12345.6), _amount(6.2e15), _amount(0.125), _amount(3)
    ('12,346', '6.2e+15', '0.125', '3')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _last(place: Place, workers: Sequence[str]) -> str:
    """Who was where at the end."""
    were = "was" if len(workers) == 1 else "were"
    inside = f"in {place.scope}, " if place.scope else ""
    return f"{listed(workers)} {were} {inside}at {stacks.frame_text(place.frame)}"


def _is_quiet(about: Run | Explanation, longest: float) -> bool:
    """Whether nothing has ended for long, also compared with the slowest step."""
    return about.quiet > max(LEAST_QUIET, _MUCH_LONGER * longest)


def _where_at_end(places: Sequence[tuple[Place, list[str]]]) -> str:
    """Where all processes were at the end; empty if that is not known."""
    at = [_last(*each) for each in places]
    left = sum(len(workers) for _, workers in places[_MOST_PLACES:])
    more = f"; {left} more {'is' if left == 1 else 'are'} elsewhere" if left else ""
    return "; ".join(at[:_MOST_PLACES]) + more


def _state(name: str, about: Run | Explanation, longest: float = 0.0) -> str:
    """What there is to say of a run that has not ended by itself; empty if it has.

    Args:
        longest: seconds of the slowest step.
    """
    is_quiet, silence = _is_quiet(about, longest), ""
    if is_quiet:
        silence = (
            f"In its last {about.quiet:.0f} s, nothing ended in any process: it may have hung."
        )
        where = _where_at_end(last_places(about) if isinstance(about, Run) else about.last_places)
        if where:
            silence += f" Meanwhile {where}."
    stacks_now = f"`gpuprof stacks {name}` shows what its processes do now"
    running = f"It has not ended: this is what it has recorded so far. {stacks_now}."
    if is_quiet:
        stall = f"The watchdog's last report: {about.stall}. " if about.stall else ""
        running = (
            f"It has not ended, and nothing has ended in any process for {about.quiet:.0f} s: "
            f"what follows is about the time before. {stall}{stacks_now}."
        )
    return {
        "ended": silence,
        "interrupted": f"Ctrl-C ended it (SIGINT): the program did not end by itself. {silence}",
        "running": running,
        "killed": (
            "It has no end: it was killed, and what its processes did last may be missing. "
            + silence
        ),
        "unknown": f"It has no end. If it still runs, {stacks_now}.",
    }[about.state]


def _what_a_step_is(steps: Mapping[str, Any]) -> str:
    if steps["round"]:
        if steps["round"].startswith("the loop"):
            return f"A step ends with a round of {steps['round']} in which the ranks meet."
        return f"A step is a round of {steps['round']}."
    if steps["in_a_burst"]:
        return (
            f"A step is {steps['in_a_burst']} steps of the optimizer in a row, and the time before "
            "them."
        )
    return "A step lasts from the end of one step of the optimizer to the end of the next."


def _trend(trend: Trend) -> str:
    became = "longer" if trend.last > trend.first else "shorter"
    where = f", most of it {_of_trend(trend)}" if trend.group else ""
    if trend.since is not None:
        return (
            f"From step {trend.since} on, steps are {became}: {duration(trend.first)} before, "
            f"{duration(trend.last)} since{where}."
        )
    return (
        f"Steps became {became}: {duration(trend.first)} in the first quarter of the run, "
        f"{duration(trend.last)} in the last{where}."
    )


def _of_trend(trend: Trend) -> str:
    """The place of a trend, and how long a step takes there."""
    first, last = map(duration, trend.took)
    is_method = trend.scope.startswith(f"{trend.group}.")
    place = f"in {trend.scope}" + f" of {trend.group}" * (not is_method)
    if trend.scope.startswith("("):  # it is no scope
        place = f"in {trend.group} {_without_brackets(trend.scope)}"
    line = f": {trend.line.name} at {stacks.where(trend.line)}" if trend.line is not None else ""
    return f"{place}, from {first} to {last} a step{line}"


def _growth(answer: Explanation, least: float) -> str:
    """What to look at where steps become longer, as a clause; empty if that costs too little."""
    trend = answer.trend
    if trend is None or not trend.group or not trend.is_up:
        return ""
    costs = (trend.took[1] - trend.took[0]) / 2 / answer.seconds["mean"]
    return f"see what grows {_of_trend(trend)}" if costs >= least else ""


def _kind(kind: KindOfStep) -> str:
    often = f"Every {ordinal(kind.every)} step has" if kind.every else f"{kind.steps} steps have"
    return f"{often} {kind.scope}, {percentage(kind.share)} of the run."


def _groups(answer: Explanation, width: int | None, hint: str) -> str:
    headers = ["group", "workers", "work", "waits", "outside", "imbalance", "waits most in"]
    rows = []
    for group in answer.groups:
        whom = {"": "", "*": "", "barrier": " for the others"}.get(
            group.waits_for, f" for {group.waits_for}"
        )
        is_driver = group.group == DRIVER and answer.driver
        where = f"{group.scope}{whom}" if group.waits >= group.between_calls else "between calls"
        rows.append(
            [
                introduce(DRIVER) if is_driver else group.group,
                str(group.workers),
                percentage(group.work),
                percentage(group.idle),
                percentage(group.elsewhere),
                f"{group.imbalance:.2f}" if group.workers > 1 else "",
                where,
            ]
        )
    table = _tables.table(
        headers,
        rows,
        right=headers[1:6],
        optional=["workers", "imbalance"],
        shorten={"waits most in": "end", "group": "end"},
        width=width,
        hint=hint,
    )
    outside = "outside: in no scope, or in one longer than a step."
    lines = [table, _tables.legend([f"{outside} imbalance: the largest work of a rank / the mean"])]
    lines += [
        f"{scope.scope} in {scope.group}: {size_text(round(scope.bytes))} a step."
        for scope in answer.scopes
        if scope.bytes is not None and scope.bytes >= _LARGE_TRANSFER
    ]
    if answer.uncounted:
        verb = "is" if len(answer.uncounted) == 1 else "are"
        lines.append(
            textwrap.fill(
                f"{listed(answer.uncounted)} {verb} in no row: a group counts one process for each "
                "rank, and not its children.",
                _tables.console_width(),
                break_long_words=False,
            )
        )
    return "\n".join(lines)


def path_text(
    path: CriticalPath, width: int | None, hint: str = "", most: int | None = None
) -> str:
    """The critical path of a step as a table, with its title.

    Args:
        most: how many parts to show; ``None``: all that matter.
    """
    headers = ["time", "share", "worker", "scope", "in steps", ""]
    parts = [part for part in path.parts if part.share >= _LEAST_SHARE][:most]
    rows = [
        [
            duration(part.seconds),
            percentage(part.share),
            part.worker,
            part.scope,
            percentage(part.steps),
            _KINDS[part.kind],
        ]
        for part in parts
    ]
    others = path.others + len(path.parts) - len(parts)
    if others:
        rest = path.seconds - sum(part.seconds for part in parts)
        share = percentage(rest / path.seconds)
        rows.append([duration(rest), share, f"({others} more)", "", "", ""])
    if not any(row[-1] for row in rows):
        headers.pop()
        rows = [row[:-1] for row in rows]
    table = _tables.table(
        headers,
        rows,
        right=["time", "share", "in steps"],
        optional=["in steps"],
        shorten={"scope": "start", "worker": "start"},
        width=width,
        hint=hint,
    )
    which = {"median": ", the median one", "slowest": ", the slowest one"}.get(path.why, "")
    return f"Critical path of step {path.step}{which}: {duration(path.seconds)}\n{table}"


def _lacked(answer: Explanation, path: CriticalPath) -> list[str]:
    """What processes on the path waited for much longer than in most steps, in sentences.

    For a processor, and for a disk: the process that waited longest.
    """
    usual = {usage.worker: usage for usage in answer.processes}
    workers = usual.keys() & {part.worker for part in path.parts}
    on_path = [used for used in path.processes if used.worker in workers]
    lines = []
    used = max(on_path, key=lambda used: used.waited - usual[used.worker].waited, default=None)
    if used is not None and used.waited >= usual[used.worker].waited + _LEAST_MORE:
        share, of_all = percentage(used.waited), percentage(usual[used.worker].waited)
        lines.append(
            f"{used.worker} waited {share} of this step for a processor; of all steps, {of_all}."
        )
    used = max(on_path, key=lambda used: used.faults - usual[used.worker].faults, default=None)
    if used is not None:
        faults = usual[used.worker].faults
        if (used.faults - faults) * FAULT / 1e9 >= _LEAST_MORE * path.seconds:
            lines.append(
                f"{used.worker} had {used.faults:,} page faults that read a disk in this step; on "
                f"average, {faults:,.0f}."
            )
    return lines


def _findings(answer: Explanation) -> str:
    causes = _causes(answer)
    if not causes and not answer.paths:
        return ""
    if not causes:
        return f"Causes\n{_filled(_none(answer))}"
    return "Causes\n" + "\n".join(
        _finding(answer, number, finding, line) for number, (finding, line) in enumerate(causes, 1)
    )


def _causes(answer: Explanation) -> list[tuple[Finding, Line | None]]:
    """The bottleneck, if any, and the findings, each with its line."""
    causes = list(zip(answer.findings, answer.extra, strict=True))
    if answer.bottleneck is None:
        return causes
    return [(answer.bottleneck, _line_of_bottleneck(answer)), *causes]


def _line_of_bottleneck(answer: Explanation) -> Line | None:
    bottleneck = answer.bottleneck
    if bottleneck is None:
        return None
    where = bottleneck.worker, bottleneck.scope
    return next((line for line in answer.lines if (line.worker, line.scope) == where), None)


def _none(answer: Explanation) -> str:
    if answer.steps["counted"] < LEAST_STEPS:
        return (
            f"Not looked for: {answer.steps['counted']} steps count, and a rank is named from "
            f"{LEAST_STEPS} on."
        )
    if not answer.confidence.enough:
        return "None found: too little is explained to tell who works from who waits."
    longer = answer.trend is not None and answer.trend.is_up
    why = " The first lines say where steps became longer." if longer else ""
    return f"None: no rank or node is slower than its peers.{why}"


def _second(first: Finding, causes: Sequence[Finding]) -> str:
    """What another worker's cause would save that is worth half as much, if both are named."""
    for other in causes:
        if (
            {first.cause, other.cause} <= set(OF_A_WORKER)
            and "hint" not in (first.grade, other.grade)
            and not set(first.workers) & set(other.workers)
            and (other.saves or 0.0) >= max(_LEAST_SAVED, (first.saves or 0.0) / 2)
        ):
            return what_if(other)
    return ""


def _finding(answer: Explanation, number: int, finding: Finding, line: Line | None) -> str:
    advice = words(finding, line)
    lines = [_tables.labelled(f"{number}. ", advice.says)]
    if line is not None:
        lines.append(_tables.labelled("   line    ", stacks.words(line)))
    is_saving = finding.saves is not None and finding.saves >= _LEAST_SAVED
    if is_saving and finding.cause != "bottleneck":  # nobody can do without it
        if_ = "at half the time a call, " if finding.cause == "server" else ""
        says = if_ + gain(finding) if finding.samples is None else what_if(finding)
        lines.append(_tables.labelled("   saves   ", says))
    lines.append(_tables.labelled("   next    ", advice.action))
    if finding.group in answer.started_groups and finding.facts.steps:
        lines.append(_tables.labelled("   with    ", _LAUNCHER))
    elif command := _config(answer, finding):
        row = _tables.labelled("   with    ", command)
        lines.append(row.replace("\n", " \\\n"))  # so that the command can be pasted
    return "\n".join(lines)


def _confidence(answer: Explanation) -> str:
    confidence = answer.confidence
    bound = confidence.clock_bound
    within = "not known" if bound is None else f"within {duration(bound)}"
    clocks = "" if bound == 0 else f" Clocks: {within}."
    share = percentage(confidence.explained)
    if not answer.paths:
        lines = [f"Nothing was timed, so nothing is explained.{clocks}"]
    else:
        blind = "Blind spots: docs/blind-spots.md."
        lines = [f"{share} of the critical path is explained.{clocks} {blind}"]
    if confidence.worker and answer.paths and not _suspect(answer):
        instrument = remedy(answer)
        is_known = instrument in ("", helps(answer))
        to_see_it = "" if is_known else f" To see it: {instrument}."
        lines.append(
            f"Longest unexplained: {confidence.worker} {confidence.scope}, "
            f"{duration(confidence.seconds)} a step.{to_see_it}"
        )
    lines += [
        f"{place.group} in {place.scope}: the ranks begin apart and end together, so each is taken "
        "to wait there for the last one to begin. A rank that is slow inside it, before they meet, "
        "cannot be told from the others."
        for place in answer.recognised
    ]
    if not answer.sampled and answer.confidence.enough:
        lines.append(
            "No stacks were sampled, so no line of code is named: set sampling to 20; gpuprof "
            "doctor says whether this Python can do it."
        )
    elif answer.confidence.enough and not any((*answer.lines, *answer.extra)):
        lines.append("No line of code has enough of the samples to be named: run more steps.")
    lines += answer.problems
    return "Confidence\n" + "\n".join(map(_filled, lines))


def _filled(text: str) -> str:
    """A paragraph as wide as the terminal, with no path or name broken."""
    width = _tables.console_width()
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def answer_of(directory: str, step: int | None = None, warm_up: int | None = None) -> Explanation:
    """Explain the run in a directory."""
    return explain(reading.read(directory, warm_up), step)


def explain(run: Run, step: int | None = None) -> Explanation:
    """Explain a run.

    Args:
        step: the number of the step whose path to show; ``None`` shows the paths of the median step
            and the slowest step.
    """
    run_explainer = explainer(run)
    numbers = [s.number for s in run.steps]
    if step is not None and step not in numbers:
        valid = f"expected {min(numbers)} to {max(numbers)}"
        raise ConfigError(f"--step: {step} is not valid; {valid}")
    return run_explainer.explain(step)


def explainer(run: Run) -> Explainer:
    """Make the `Explainer` of a run."""
    if not run.usual:
        no_step = f"{run.name}: {no_steps(run)}"
        sentences_about_it = (no_step, *_where_it_went(run), _state(run.name, run))
        raise ConfigError([*filter(None, sentences_about_it), *run.problems])
    return Explainer(run)


def _where_it_went(run: Run) -> list[str]:
    """The lines of the driver and the first worker of each group, in a run without steps."""
    said = []
    drivers = [process for process in run.processes if process.role == "driver"]
    groups = [
        [process for process in members if process.role == "worker"]
        for members in run.groups.values()
    ]
    for workers in [drivers[:1], *groups][:_MOST_PLACES]:
        for process in sorted(workers, key=lambda process: process.rank):
            try:
                lines = busiest(process.ledger)
            except OutputError as error:
                said.append(str(error))
                break
            if lines:
                shown = "; ".join(
                    f"{function.full_name}, {stacks.short(function.file)}:{line} "
                    f"({percentage(share)})"
                    for (function, line), share in lines
                )
                waits = _longest_wait(process)
                said.append(f"where the time of {process.name} went: {shown}{waits}")
                break
    return said


def _longest_wait(process: Process) -> str:
    """In which scope a process waits longest, and for which share of its time, if that is much."""
    spans = process.ledger.spans
    if not len(spans):
        return ""
    spans = spans[spans["track"] == np.bincount(spans["track"]).argmax()]
    times: Counter[str] = Counter()
    for place, start, end in zip(
        *(spans[name].tolist() for name in ("place", "start", "end")), strict=True
    ):
        about = process.ledger.places[place]
        if about.waits_for is not None and (about.around is None or not about.around.waits_for):
            times[about.key] += end - start
    whole = int(spans["end"].max() - spans["start"].min())
    for scope, time in times.most_common(1):
        if whole and time >= _LEAST_WAIT * whole:
            return f"; it waits in {scope} for {percentage(min(1.0, time / whole))} of it"
    return ""


def no_steps(run: Run) -> str:
    """Why no step can be explained, and what to do, first what needs no edit of the job."""
    if run.steps:
        fewer = ", or set --warmup 0" if any(step.warm_up for step in run.steps) else ""
        counts = {
            "warm-up": sum(step.warm_up for step in run.steps),
            "captured": sum(step.captured for step in run.steps),
            "slowed by a window": sum(step.disturbed and not step.captured for step in run.steps),
            "incomplete": sum(not step.complete for step in run.steps),
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return (
            f"no step can be explained: of {len(run.steps)}, left out are {left_out}; run more "
            f"steps{fewer}"
        )
    driven = any(process.role == "driver" for process in run.processes)
    where = "`with profiler.step(i):` in the driver or " if driven else ""
    in_them = "in the ranks" if len(run.processes) > 1 else "around each step"
    hint = f"use {where}`with gpuprof.step(i):` {in_them}"
    if not run.launched:
        return f"no step is marked; {hint}"
    missing = "no step is found"
    if run.step_at:
        names = [process.name for process in run.processes]
        again = "" if ":" in run.step_at else " twice"  # a method's call ends the step before
        missing = f"step_at: {run.step_at} was not called{again} in {listed(names)}"
    method = most_called(run)
    name, which = "MODULE:FUNCTION", "the function that makes a step"
    if method is not None:
        name = method.name
        which = f"which {method.caller or 'the driver'} calls {method.times} times"
    return (
        f"{missing}; without an edit, name what makes a step: gpuprof run --set step_at={name} "
        f"-- …, {which}; in the job, {hint}"
    )
