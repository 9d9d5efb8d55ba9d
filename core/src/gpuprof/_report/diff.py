"""What ``gpuprof diff`` prints: text, Markdown, and JSON."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import attrs

from gpuprof import _tables
from gpuprof._analysis import diff as analysis
from gpuprof._analysis.diff import (
    FEWEST,
    Check,
    Condition,
    Diff,
    Failure,
    OneSided,
    ScopeChange,
    labelled,
    missing_ranks,
    too_few,
)
from gpuprof._analysis.figures import MEASURED, USUAL_SPREAD, Change
from gpuprof._analysis.summary import Summary
from gpuprof._analysis.usage import BUSY
from gpuprof._artifacts.early_ends import listed
from gpuprof._report.causes import what_if
from gpuprof._report.differences import differences
from gpuprof._report.words import duration, percentage
from gpuprof.errors import ConfigError

JSON_VERSION = 1
_LISTED = 15
"""The most rows of a table; ``--json`` has all."""
_NAMED = 5
"""The most ranks to name."""
_OTHER_LOAD = 0.25
"""How much the load of two runs must differ for each processor to be worth a sentence."""
_UNJUDGED = "No condition is judged"
_CONDITION = re.compile(r"\s*(?P<target>.+?)\s*>\s*(?P<bounds>[^>]+)")
_BOUND = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|s|ms|us|µs)")
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_DIFFERENT = ["", "A", "B"]
_SCOPES = [
    "cost", "before", "change", "95 % interval", "share", "calls", "group", "scope", "worst rank"
]  # fmt: skip
_NUMBERS = _SCOPES[:6]
_GROUPS = ["group", "work", "change", "waits", "change in waits", "imbalance"]


def condition(text: str) -> Condition:
    """Read a condition as the user writes it.

    >>> parsed = condition("rollout/generate > 10%, 20ms")
    >>> parsed.target, parsed.ratio, parsed.seconds
    ('rollout/generate', 0.1, 0.02)
    """
    match = _CONDITION.fullmatch(text)
    parts = [_BOUND.fullmatch(part.strip()) for part in match["bounds"].split(",")] if match else []
    relative = [float(p["number"]) / 100 for p in parts if p and p["unit"] == "%"]
    absolute = [float(p["number"]) * _UNITS[p["unit"]] for p in parts if p and p["unit"] != "%"]
    if match is None or not all(parts) or len(relative) > 1 or len(absolute) > 1:
        raise ConfigError(
            f"--fail-if: {text!r} is not valid; expected 'TARGET > 5%', "
            "'TARGET > 20ms' or 'TARGET > 5%, 20ms', with TARGET step, a worker group, "
            "or a scope such as rollout/generate"
        )
    return Condition(text.strip(), match["target"], sum(relative), sum(absolute))


def compare(
    before: Sequence[Summary], after: Sequence[Summary], conditions: Iterable[Condition] = ()
) -> Diff:
    """Compare runs; see `gpuprof._analysis.diff.diff`."""
    runs = labelled(before, after)
    without_steps = [_few(where, run) for where, run in runs if not run.steps.used]
    _refuse("not comparable", [*_killed(runs), *without_steps])
    return analysis.diff(before, after, conditions)


def check_baseline(runs: Sequence[Summary]) -> None:
    """Check that runs can be a baseline.

    Raises:
        ConfigError: there are too few steps, some runs lack ranks, or ranks were killed.
    """
    pairs = [(run.run, run) for run in runs]
    missing = [f"{gap.run} has no ledger of {listed(gap.workers)}" for gap in missing_ranks(pairs)]
    few = [_few(few.run, few.summary) for few in too_few(pairs)]
    _refuse("no baseline", [*missing, *_killed(pairs), *few])


def _refuse(what: str, problems: Sequence[str]) -> None:
    if problems:
        raise ConfigError([f"{what}: {problem}" for problem in problems])


def _killed(runs: Iterable[tuple[str, Summary]]) -> list[str]:
    return [f"{where}: {sentence}" for where, run in runs for sentence in run.ended_early]


def _few(where: str, run: Summary) -> str:
    if not run.steps.all:
        return f"{where} has no steps; `gpuprof explain {run.run}` says how to mark them"
    return (
        f"{where} has {run.steps.used} of {run.steps.all} steps to compare, and {FEWEST} "
        f"are needed: let the job take more{_left_out(run)}"
    )


def _left_out(run: Summary) -> str:
    """How many steps are not used, and why, as the end of a sentence."""
    reasons = (
        (run.steps.warm_up, "warm-up"),
        (run.steps.disturbed, "captured or slowed by a window"),
        (run.steps.incomplete, "incomplete"),
    )
    words = ", ".join(f"{number} {reason}" for number, reason in reasons if number)
    return f"; left out: {words}" if words else ""


def as_json(diff: Diff) -> str:
    """The whole comparison as JSON."""
    return json.dumps(as_dict(diff), indent=2)


def as_dict(diff: Diff) -> dict[str, Any]:
    """The comparison as a mapping for JSON, with seconds and ratios (``None`` if missing)."""
    parts = ("step", "slower_ranks", "scopes", "new", "gone", "groups", "checks")
    return {
        "version": JSON_VERSION,
        "slower": diff.slower,
        "unlike": unjudged(diff),
        "before": [_about(run) for run in diff.before],
        "after": [_about(run) for run in diff.after],
        "differences": _plain(differences(diff.before, diff.after)),
        "finds": _plain({"step": diff.step.finds, "rank": diff.finds_rank}),
        "promised": {**_plain(diff.kept[0]), "again": diff.kept[1]} if diff.kept else None,
        **{name: _plain(getattr(diff, name)) for name in parts},
    }


def _about(run: Summary) -> dict[str, Any]:
    return {
        "run": run.run,
        "steps": _plain(run.steps),
        "seconds": run.seconds.seconds,
        "effective_steps": run.seconds.effective,
        "waited": run.waited,
        "load": run.load,
        "processors": run.processors,
        "setup": run.setup,
        "reports": _plain(run.reports),
        "profiling": run.overhead,
    }


def _plain(value: Any) -> Any:
    """A value in JSON types. The fields of an object's change are merged into the object's own."""
    if isinstance(value, Condition):
        return value.text
    if attrs.has(type(value)):
        plain = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
        change = plain.pop("change", None)
        return _plain(plain) | (_plain(change) if change else {})
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text(diff: Diff, width: int | None = None, hint: str = "") -> str:
    """The comparison for a terminal."""
    unlike = [f"{_UNJUDGED}: {sentence}" for sentence in unjudged(diff)]
    different = differences(diff.before, diff.after)
    parts = [
        "\n".join([*_runs("A", diff.before), *_runs("B", diff.after)]),
        "\n".join(map(_wrapped, _limits(diff))),
        "Different\n"
        + _tables.table(
            _DIFFERENT,
            [[row.what, row.before, row.after] for row in different],
            shorten={"A": "end", "B": "end"},
            width=width,
            hint=hint,
        )
        if different
        else "",
        "\n".join(
            [
                _wrapped(verdict(diff)),
                *map(_wrapped, [*_slower_ranks(diff), *_promise(diff), *unlike]),
                *(_check(check) for check in diff.checks),
            ]
        ),
        _scopes(diff, width, hint),
        _only("Only in B", diff.new),
        _only("Only in A", diff.gone),
        _groups_table(diff, width, hint),
        _confidence(diff),
        "\n".join(_profiling("A", diff.before) + _profiling("B", diff.after)),
    ]
    return "\n\n".join(part for part in parts if part)


def markdown(diff: Diff) -> str:
    """The comparison in Markdown, for a comment on a pull request."""
    sign = "❌" if diff.slower else "✅" if diff.judged else "❔"
    different = differences(diff.before, diff.after)
    parts = [
        f"### {sign} {verdict(diff)}",
        *map(_escaped, [*_limits(diff), *_slower_ranks(diff), *_promise(diff)]),
        "\n".join(f"- {_UNJUDGED}: {_escaped(sentence)}" for sentence in unjudged(diff)),
        "\n".join(f"- {_escaped(_check(check, math.inf))}" for check in diff.checks),
        _pipes(_SCOPES, _rows(diff.scopes[:_LISTED]), _NUMBERS) if diff.scopes else "",
        *(
            f"{title}: "
            + ", ".join(
                _escaped(f"{scope.group}:{scope.scope} ({duration(scope.seconds)})")
                for scope in only[:_LISTED]
            )
            for title, only in (("Only in B", diff.new), ("Only in A", diff.gone))
            if only
        ),
        _pipes(_GROUPS, _groups(diff), _GROUPS[1:]) if diff.groups else "",
        _pipes(
            ["different", "A", "B"],
            [[row.what, row.before, row.after] for row in different],
        )
        if different
        else "",
        "\n".join(
            f"- {line}"
            for line in (
                *map(_escaped, _runs("A", diff.before, math.inf)),
                *map(_escaped, _runs("B", diff.after, math.inf)),
                _escaped(_spread(diff)),
            )
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _runs(side: str, runs: Sequence[Summary], width: float | None = None) -> list[str]:
    return [
        _wrapped(
            f"{side}: {run.run}: {run.steps.used} of {run.steps.all} steps, worth "
            f"{run.seconds.effective:.0f} independent ones{_left_out(run)}",
            width,
        )
        for run in runs
    ]


def _wrapped(line: str, width: float | None = None) -> str:
    if width == math.inf:
        return line
    return textwrap.fill(
        line,
        _tables.console_width(),
        subsequent_indent="   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict(diff: Diff) -> str:
    """How much longer or shorter a step has become, in a sentence."""
    step = diff.step
    sure = "may be chance" if step.low <= 1 <= step.high else _direction(step)
    return (
        f"A step takes {duration(step.before)} in A and {duration(step.after)} in B: "
        f"{percent(step.ratio)} ({interval(step)}), {sure}"
    )


def _limits(diff: Diff) -> list[str]:
    """What the runs could show, and whether a busy machine keeps them from showing more."""
    lines = []
    if math.isfinite(diff.step.finds):
        changes = f"a step that is {_slower(diff.step.finds)} slower"
        if diff.finds_rank is not None and math.isfinite(diff.finds_rank):
            changes += f", and a rank that is {_slower(diff.finds_rank)} slower than the others"
        lines.append(f"These runs can show, nine times in ten: {changes}.")
    busy = [
        f"{percentage(run.waited)} of the time in {side} ({run.run})"
        for side, runs in (("A", diff.before), ("B", diff.after))
        for run in runs
        if run.waited is not None and run.waited >= BUSY
    ]
    if busy:
        lines.append(
            f"The machine was busy: workers waited for a processor {', '.join(busy)}. On an idle "
            "one, smaller changes can be found."
        )
    return [*lines, *_loads(diff)]


def _loads(diff: Diff) -> list[str]:
    """A sentence about the machines' load, if it differs so much that steps may for that alone."""
    sides = [[run for run in side if run.load is not None] for side in (diff.before, diff.after)]
    if not all(sides):
        return []
    loads = [fmean(run.load or 0.0 for run in side) for side in sides]
    if abs(loads[0] - loads[1]) < _OTHER_LOAD:
        return []
    threads, processors = zip(
        *(
            (load * side[0].processors, side[0].processors)
            for load, side in zip(loads, sides, strict=True)
        ),
        strict=True,
    )
    machines = [
        f"{name} on {count} processors with a load of {load:.2g}"
        for name, load, count in zip("AB", threads, processors, strict=True)
    ]
    return [
        f"The machines' load differed: {' and '.join(machines)}. Steps may differ for that alone."
    ]


def unjudged(diff: Diff) -> list[str]:
    """Why no condition is judged; empty if they are."""
    reasons = [
        f"ranks differ: {gap.run} has no ledger of {listed(gap.workers)}" for gap in diff.missing
    ]
    reasons += [_few(few.run, few.summary) for few in diff.too_few]
    if diff.targets:
        reasons.append(
            "a target of --fail-if is neither step nor a group or a scope of both runs; these are: "
            f"{', '.join(diff.targets)}"
        )
    return reasons


def _slower(ratio: float) -> str:
    """How much slower B is at a ratio, as text.

    >>> _slower(1.062), _slower(1.25), _slower(3.2)
    ('6.2 %', '25 %', '3.2 times')
    """
    if ratio >= 2:
        return f"{ratio:.1f} times"
    return f"{100 * (ratio - 1):.2g} %"


def _slower_ranks(diff: Diff) -> list[str]:
    """A line for each rank that has become slower."""
    lines = [
        f"Slower rank: {rank.worker}: {duration(rank.change.before)} to "
        f"{duration(rank.change.after)} a step ({percent(rank.change.ratio)})"
        f"{_to_others(rank.to_others)}; most in {rank.scope}"
        for rank in diff.slower_ranks[:_NAMED]
    ]
    more = len(diff.slower_ranks) - len(lines)
    return [*lines, *([f"Slower ranks: {more} more"] if more > 0 else [])]


def _promise(diff: Diff) -> list[str]:
    """What a fix was expected to save, and what it saved. Skipped if steps became slower."""
    if diff.kept is None or diff.step.low > 1:
        return []
    (promise, repeats), step = diff.kept, diff.step
    if step.low <= 1 <= step.high:
        gave = "as long, by all that these runs tell"
    else:
        gave = f"{percentage(abs(1 - step.ratio))} {'less' if step.ratio < 1 else 'more'}"
    names = " and ".join(promise.workers)
    outcome = f"names {names} again" if repeats else f"no longer names {names}"
    sentence = f"Promised by gpuprof explain for A: {what_if(promise)}."
    return [f"{sentence} A step of B takes {gave}, and explain {outcome}."]


def _direction(change: Change) -> str:
    return "slower" if change.ratio > 1 else "faster"


def _check(check: Check, width: float | None = None) -> str:
    limit = f"with these runs, a change below {percent(check.fails_from)} would not fail"
    if check.failures:
        result = f"slower: {_worst(check.failures)}"
    elif check.unsure:
        result = f"not sure, so not failed: {_worst(check.unsure)}; {limit}"
    else:
        result = f"in order; {limit}"
    return _wrapped(f"{check.condition.text}: {result}", width)


def _worst(failures: Sequence[Failure]) -> str:
    """The first rank, or else the first scope, and the number of other scopes."""
    worst = next((failure for failure in failures if failure.worker), failures[0])
    others = len({(failure.group, failure.scope) for failure in failures}) - 1
    more = f"; and {others} more" if others > 0 else ""
    where = " ".join(filter(None, (worst.worker or worst.group, worst.scope)))
    change = worst.change
    return (
        f"{where} {percent(change.ratio)} ({interval(change)}), "
        f"{duration(change.before)} to {duration(change.after)}{_to_others(worst.to_others)}{more}"
    )


def _to_others(change: Change | None) -> str:
    if change is None:
        return ""
    return f"; relative to the other ranks {percent(change.ratio)} ({interval(change)})"


def percent(ratio: float) -> str:
    """A ratio as the text of a change.

    >>> percent(1.052), percent(0.9), percent(2.5), percent(12), percent(1e7), percent(0.9999)
    ('+5.2 %', '-10.0 %', '+150 %', 'x12', '> x999', '+0.0 %')
    """
    change = 100 * (ratio - 1)
    if not math.isfinite(change):
        return ""
    if ratio >= 1000:  # the value before was almost zero, so the exact ratio means nothing
        return "> x999"
    if ratio >= 10:
        return f"x{ratio:.3g}"
    return f"{change:+.0f} %" if abs(change) >= 100 else f"{round(change, 1) + 0.0:+.1f} %"


def interval(change: Change) -> str:
    """Both ends of a change's interval, as text."""
    return f"{percent(change.low).removesuffix(' %')} to {percent(change.high)}"


def signed(seconds: float) -> str:
    """A difference between durations, as text with a sign.

    >>> signed(-0.0123), signed(-1e-9)
    ('-12.3 ms', '+0 µs')
    """
    text = duration(abs(seconds))
    return f"{'-' if seconds < 0 and text != duration(0) else '+'}{text}"


def _rows(scopes: Sequence[ScopeChange]) -> list[list[str]]:
    return [
        [
            signed(scope.change.seconds),
            duration(scope.change.before),
            percent(scope.change.ratio),
            interval(scope.change).removesuffix(" %"),
            percentage(scope.share) if scope.share is not None else "",
            _calls(scope),
            scope.group,
            f"{scope.scope} (waits)" if scope.waits else scope.scope,
            f"{scope.worker.rpartition('-')[2]}: {percent(scope.of_worker.ratio)}"
            if scope.of_worker
            else "",
        ]
        for scope in scopes
    ]


def _calls(scope: ScopeChange) -> str:
    before, after = (f"{calls:.3g}" for calls in scope.calls)
    return before if before == after else f"{before}→{after}"


def _scopes(diff: Diff, width: int | None, hint: str) -> str:
    top = diff.scopes[:_LISTED] if width != _tables.UNLIMITED else diff.scopes
    rows = _rows(top)
    # without a change of the step there are no shares of it
    empty = [
        name
        for name in ("share", "worst rank")
        if not any(row[_SCOPES.index(name)] for row in rows)
    ]
    headers = [name for name in _SCOPES if name not in empty]
    rows = [[row[_SCOPES.index(name)] for name in headers] for row in rows]
    if not rows:
        return ""
    table = _tables.table(
        headers,
        rows,
        right=_NUMBERS,
        optional=["calls", "before", "share"],
        shorten={"scope": "start", "group": "end"},
        width=width,
        hint=hint,
    )
    more = len(diff.scopes) - len(top)
    rest = f"\n{more} more cost less. {hint}" if more else ""
    signs = "cost: per step, the mean of a group's ranks. worst rank: the one that changed most"
    title = "Scopes, by what they cost"
    return f"{title}\n{table}{rest}\n{_tables.legend([signs])}"


def _only(title: str, scopes: Sequence[OneSided]) -> str:
    if not scopes:
        return ""
    lines = [
        f"  {duration(scope.seconds)}  {scope.group}:{scope.scope}" for scope in scopes[:_LISTED]
    ]
    more = [f"  and {len(scopes) - _LISTED} more"] if len(scopes) > _LISTED else []
    return "\n".join([f"{title} (per step)", *lines, *more])


def _groups_table(diff: Diff, width: int | None, hint: str) -> str:
    if not diff.groups:
        return ""
    return "Groups, of a step\n" + _tables.table(
        _GROUPS,
        _groups(diff),
        right=_GROUPS[1:],
        optional=["imbalance", "change in waits"],
        shorten={"group": "end"},
        width=width,
        hint=hint,
    )


def _groups(diff: Diff) -> list[list[str]]:
    return [
        [
            group.group,
            duration(group.work.before),
            percent(group.work.ratio),
            duration(group.waits.before),
            percent(group.waits.ratio),
            f"{group.imbalance[0]:.2f} to {group.imbalance[1]:.2f}",
        ]
        for group in diff.groups
    ]


def _confidence(diff: Diff) -> str:
    problems = [problem for run in (*diff.before, *diff.after) for problem in run.problems]
    return "\n".join(map(_wrapped, [_spread(diff), *problems]))


def _spread(diff: Diff) -> str:
    """How much equal runs differ, or the command that measures it."""
    if max(len(diff.before), len(diff.after)) >= MEASURED:
        return "Spread between equal runs: measured in the baseline."
    return (
        f"Equal runs differ by more than their steps show; {100 * USUAL_SPREAD:.1f} % is assumed. "
        "Three runs measure it: gpuprof baseline RUN RUN RUN -o FILE, then gpuprof diff --baseline "
        "FILE RUN."
    )


def _profiling(side: str, runs: Sequence[Summary]) -> list[str]:
    return [_wrapped(f"profiling in {side}: {run.overhead}") for run in runs if run.overhead]


def _pipes(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """A Markdown table."""
    lines = [
        headers,
        ["--:" if name in right else ":--" for name in headers],
        *([_escaped(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(cell: str) -> str:
    r"""A user's name, escaped: it neither ends a cell nor is HTML.

    >>> print(_escaped("a|b <c>"))
    a\|b &lt;c&gt;
    """
    line = " ".join(cell.split())
    for sign, escape in (
        ("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"),
        ("|", "\\|"), ("`", "\\`"), ("*", "\\*"), ("_", "\\_"), ("[", "\\["), ("~", "\\~"),
    ):  # fmt: skip
        line = line.replace(sign, escape)
    return line
