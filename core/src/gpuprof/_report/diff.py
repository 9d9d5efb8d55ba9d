"""What ``gpuprof diff`` prints: text, Markdown, and JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import attrs

from gpuprof import _tables
from gpuprof._analysis.diff import Check, Condition, Diff, Failure, OneSided, ScopeChange, left_out
from gpuprof._analysis.figures import MEASURED, USUAL_SPREAD, Change
from gpuprof._analysis.summary import Summary
from gpuprof._artifacts.early_ends import listed
from gpuprof._report.causes import what_if
from gpuprof._report.differences import differences
from gpuprof._report.words import duration, percentage

JSON_VERSION = 1
_LISTED = 15
"""The most rows of a table; ``--json`` has all."""
_NAMED = 5
"""The most ranks to name."""
BUSY = 0.1
"""The share of time that workers wait for a processor on a machine that counts as busy."""
_UNJUDGED = "No condition is judged, as ranks differ"
_DIFFERENT = ["", "A", "B"]
_SCOPES = [
    "cost", "before", "change", "95 % interval", "share", "calls", "group", "scope", "worst rank"
]  # fmt: skip
_NUMBERS = _SCOPES[:6]
_GROUPS = ["group", "work", "change", "waits", "change in waits", "imbalance"]


def as_json(found: Diff) -> str:
    """The whole comparison, for programs."""
    return json.dumps(as_dict(found), indent=2)


def as_dict(found: Diff) -> dict[str, Any]:
    """The comparison in types that JSON has: seconds and ratios, ``None`` where there is none."""
    parts = ("step", "slower_ranks", "scopes", "new", "gone", "groups", "checks")
    return {
        "version": JSON_VERSION,
        "slower": found.slower,
        "unlike": _unlike(found),
        "before": [_about(run) for run in found.before],
        "after": [_about(run) for run in found.after],
        "differences": _plain(differences(found.before, found.after)),
        "finds": _plain({"step": found.step.finds, "rank": found.finds_rank}),
        "promised": {**_plain(found.kept[0]), "again": found.kept[1]} if found.kept else None,
        **{name: _plain(getattr(found, name)) for name in parts},
    }


def _about(run: Summary) -> dict[str, Any]:
    return {
        "run": run.run,
        "steps": _plain(run.steps),
        "seconds": run.seconds.seconds,
        "effective_steps": run.seconds.effective,
        "waited": run.waited,
        "setup": run.setup,
        "reports": _plain(run.reports),
        "profiling": run.overhead,
    }


def _plain(value: Any) -> Any:
    """A value in types that JSON has. The change of something is part of that itself."""
    if isinstance(value, Condition):
        return value.text
    if attrs.has(type(value)):
        plain = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
        change = plain.pop("change", None)
        return _plain(plain) | (_plain(change) if change else {})
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text(found: Diff, width: int | None = None, hint: str = "") -> str:
    """The comparison for a terminal.

    Args:
        width: as for `_tables.table`, as is `hint`.
    """
    unlike = [f"{_UNJUDGED}: {each}" for each in _unlike(found)]
    different = differences(found.before, found.after)
    parts = [
        "\n".join([*_runs("A", found.before), *_runs("B", found.after)]),
        "\n".join(map(_wrapped, _limits(found))),
        "Different\n"
        + _tables.table(
            _DIFFERENT,
            [[each.what, each.before, each.after] for each in different],
            shorten={"A": "end", "B": "end"},
            width=width,
            hint=hint,
        )
        if different
        else "",
        "\n".join(
            [
                _wrapped(verdict(found)),
                *map(_wrapped, [*_slower_ranks(found), *_promise(found), *unlike]),
                *(_check(check) for check in found.checks),
            ]
        ),
        _scopes(found, width, hint),
        _only("Only in B", found.new),
        _only("Only in A", found.gone),
        _groups_table(found, width, hint),
        _confidence(found),
        "\n".join(_profiling("A", found.before) + _profiling("B", found.after)),
    ]
    return "\n\n".join(part for part in parts if part)


def markdown(found: Diff) -> str:
    """The comparison for the comment on a pull request."""
    sign = "❌" if found.slower else "❔" if found.missing else "✅"
    different = differences(found.before, found.after)
    parts = [
        f"### {sign} {verdict(found)}",
        *map(_escaped, [*_limits(found), *_slower_ranks(found), *_promise(found)]),
        "\n".join(f"- {_UNJUDGED}: {_escaped(each)}" for each in _unlike(found)),
        "\n".join(f"- {_escaped(_check(check, math.inf))}" for check in found.checks),
        _pipes(_SCOPES, _rows(found.scopes[:_LISTED]), _NUMBERS) if found.scopes else "",
        *(
            f"{title}: "
            + ", ".join(
                _escaped(f"{each.group}:{each.scope} ({duration(each.seconds)})")
                for each in only[:_LISTED]
            )
            for title, only in (("Only in B", found.new), ("Only in A", found.gone))
            if only
        ),
        _pipes(_GROUPS, _groups(found), _GROUPS[1:]) if found.groups else "",
        _pipes(
            ["different", "A", "B"],
            [[each.what, each.before, each.after] for each in different],
        )
        if different
        else "",
        "\n".join(
            f"- {line}"
            for line in (
                *map(_escaped, _runs("A", found.before, math.inf)),
                *map(_escaped, _runs("B", found.after, math.inf)),
                _escaped(_spread(found)),
            )
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _runs(side: str, found: Sequence[Summary], width: float | None = None) -> list[str]:
    return [
        _wrapped(
            f"{side}: {run.run}: {run.steps.used} of {run.steps.all} steps, worth "
            f"{run.seconds.effective:.0f} independent ones{left_out(run)}",
            width,
        )
        for run in found
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


def verdict(found: Diff) -> str:
    """What became of a step, in a sentence."""
    step = found.step
    sure = "may be chance" if step.low <= 1 <= step.high else _direction(step)
    return (
        f"A step takes {duration(step.before)} in A and {duration(step.after)} in B: "
        f"{percent(step.ratio)} ({interval(step)}), {sure}"
    )


def _limits(found: Diff) -> list[str]:
    """What the runs could show, and whether a busy machine keeps them from showing more."""
    lines = []
    if math.isfinite(found.step.finds):
        said = f"a step that is {_slower(found.step.finds)} slower"
        if found.finds_rank is not None:
            said += f", and a rank that is {_slower(found.finds_rank)} slower than the others"
        lines.append(f"These runs can show, nine times in ten: {said}.")
    busy = [
        f"{percentage(run.waited)} of the time in {side} ({run.run})"
        for side, runs in (("A", found.before), ("B", found.after))
        for run in runs
        if run.waited is not None and run.waited >= BUSY
    ]
    if busy:
        lines.append(
            f"The machine was busy: workers waited for a processor {', '.join(busy)}. On an idle "
            "one, smaller changes can be found."
        )
    return lines


def _unlike(found: Diff) -> list[str]:
    """Ranks that not all runs have."""
    return [f"{each.run} has no ledger of {listed(each.workers)}" for each in found.missing]


def _slower(ratio: float) -> str:
    """By how much a ratio is slower.

    >>> _slower(1.062), _slower(1.25), _slower(3.2)
    ('6.2 %', '25 %', '3.2 times')
    """
    if ratio >= 2:
        return f"{ratio:.1f} times"
    return f"{100 * (ratio - 1):.2g} %"


def _slower_ranks(found: Diff) -> list[str]:
    """The ranks that have become slower, one a line."""
    shown = [
        f"Slower rank: {each.worker}: {duration(each.change.before)} to "
        f"{duration(each.change.after)} a step ({percent(each.change.ratio)})"
        f"{_to_others(each.to_others)}; most in {each.scope}"
        for each in found.slower_ranks[:_NAMED]
    ]
    more = len(found.slower_ranks) - len(shown)
    return [*shown, *([f"Slower ranks: {more} more"] if more > 0 else [])]


def _promise(found: Diff) -> list[str]:
    """What a fix was expected to save, and what it saved. Skipped if steps became slower."""
    if found.kept is None or found.step.low > 1:
        return []
    (promise, again), step = found.kept, found.step
    if step.low <= 1 <= step.high:
        gave = "as long, by all that these runs tell"
    else:
        gave = f"{percentage(abs(1 - step.ratio))} {'less' if step.ratio < 1 else 'more'}"
    names = " and ".join(promise.workers)
    said = f"names {names} again" if again else f"no longer names {names}"
    promised = f"Promised by gpuprof explain for A: {what_if(promise)}."
    return [f"{promised} A step of B takes {gave}, and explain {said}."]


def _direction(change: Change) -> str:
    return "slower" if change.ratio > 1 else "faster"


def _check(check: Check, width: float | None = None) -> str:
    limit = f"with these runs, a change below {percent(check.fails_from)} would not fail"
    if check.failures:
        said = f"slower: {_worst(check.failures)}"
    elif check.unsure:
        said = f"not sure, so not failed: {_worst(check.unsure)}; {limit}"
    else:
        said = f"in order; {limit}"
    return _wrapped(f"{check.condition.text}: {said}", width)


def _worst(found: Sequence[Failure]) -> str:
    """The first rank, or else the first scope, and the number of other scopes."""
    named = next((each for each in found if each.worker), found[0])
    others = len({(each.group, each.scope) for each in found}) - 1
    more = f"; and {others} more" if others > 0 else ""
    where = " ".join(filter(None, (named.worker or named.group, named.scope)))
    change = named.change
    return (
        f"{where} {percent(change.ratio)} ({interval(change)}), "
        f"{duration(change.before)} to {duration(change.after)}{_to_others(named.to_others)}{more}"
    )


def _to_others(change: Change | None) -> str:
    if change is None:
        return ""
    return f"; relative to the other ranks {percent(change.ratio)} ({interval(change)})"


def percent(ratio: float) -> str:
    """A ratio as a change.

    >>> percent(1.052), percent(0.9), percent(2.5), percent(12), percent(1e7), percent(0.9999)
    ('+5.2 %', '-10.0 %', '+150 %', 'x12', '> x999', '+0.0 %')
    """
    change = 100 * (ratio - 1)
    if not math.isfinite(change):
        return ""
    if ratio >= 1000:  # from next to nothing: how much so says nothing
        return "> x999"
    if ratio >= 10:
        return f"x{ratio:.3g}"
    return f"{change:+.0f} %" if abs(change) >= 100 else f"{round(change, 1) + 0.0:+.1f} %"


def interval(change: Change) -> str:
    """Both ends of a change's interval."""
    return f"{percent(change.low).removesuffix(' %')} to {percent(change.high)}"


def signed(seconds: float) -> str:
    """A difference between durations.

    >>> signed(-0.0123), signed(-1e-9)
    ('-12.3 ms', '+0 µs')
    """
    text = duration(abs(seconds))
    return f"{'-' if seconds < 0 and text != duration(0) else '+'}{text}"


def _rows(scopes: Sequence[ScopeChange]) -> list[list[str]]:
    return [
        [
            signed(each.change.seconds),
            duration(each.change.before),
            percent(each.change.ratio),
            interval(each.change).removesuffix(" %"),
            percentage(each.share) if each.share is not None else "",
            _calls(each),
            each.group,
            f"{each.scope} (waits)" if each.waits else each.scope,
            f"{each.worker.rpartition('-')[2]}: {percent(each.of_worker.ratio)}"
            if each.of_worker
            else "",
        ]
        for each in scopes
    ]


def _calls(each: ScopeChange) -> str:
    before, after = (f"{calls:.3g}" for calls in each.calls)
    return before if before == after else f"{before}→{after}"


def _scopes(found: Diff, width: int | None, hint: str) -> str:
    shown = found.scopes[:_LISTED] if width != _tables.UNLIMITED else found.scopes
    rows = _rows(shown)
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
    made = _tables.table(
        headers,
        rows,
        right=_NUMBERS,
        optional=["calls", "before", "share"],
        shorten={"scope": "start", "group": "end"},
        width=width,
        hint=hint,
    )
    more = len(found.scopes) - len(shown)
    rest = f"\n{more} more cost less. {hint}" if more else ""
    signs = "cost: per step, the mean of a group's ranks. worst rank: the one that changed most"
    title = "Scopes, by what they cost"
    return f"{title}\n{made}{rest}\n{_tables.legend([signs])}"


def _only(title: str, scopes: Sequence[OneSided]) -> str:
    if not scopes:
        return ""
    lines = [f"  {duration(each.seconds)}  {each.group}:{each.scope}" for each in scopes[:_LISTED]]
    more = [f"  and {len(scopes) - _LISTED} more"] if len(scopes) > _LISTED else []
    return "\n".join([f"{title} (per step)", *lines, *more])


def _groups_table(found: Diff, width: int | None, hint: str) -> str:
    if not found.groups:
        return ""
    return "Groups, of a step\n" + _tables.table(
        _GROUPS,
        _groups(found),
        right=_GROUPS[1:],
        optional=["imbalance", "change in waits"],
        shorten={"group": "end"},
        width=width,
        hint=hint,
    )


def _groups(found: Diff) -> list[list[str]]:
    return [
        [
            each.group,
            duration(each.work.before),
            percent(each.work.ratio),
            duration(each.waits.before),
            percent(each.waits.ratio),
            f"{each.imbalance[0]:.2f} to {each.imbalance[1]:.2f}",
        ]
        for each in found.groups
    ]


def _confidence(found: Diff) -> str:
    problems = [problem for run in (*found.before, *found.after) for problem in run.problems]
    return "\n".join(map(_wrapped, [_spread(found), *problems]))


def _spread(found: Diff) -> str:
    """How much equal runs differ, or the command that measures it."""
    if max(len(found.before), len(found.after)) >= MEASURED:
        return "Spread between equal runs: measured in the baseline."
    return (
        f"Equal runs differ by more than their steps show; {100 * USUAL_SPREAD:.1f} % is assumed. "
        "Three runs measure it: gpuprof baseline RUN RUN RUN -o FILE, then gpuprof diff --baseline "
        "FILE RUN."
    )


def _profiling(side: str, found: Sequence[Summary]) -> list[str]:
    return [_wrapped(f"profiling in {side}: {run.overhead}") for run in found if run.overhead]


def _pipes(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """A table of Markdown."""
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
    for sign, written in (
        ("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"),
        ("|", "\\|"), ("`", "\\`"), ("*", "\\*"), ("_", "\\_"), ("[", "\\["), ("~", "\\~"),
    ):  # fmt: skip
        line = line.replace(sign, written)
    return line
