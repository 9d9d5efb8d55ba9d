"""What ``gpuprof explain`` prints, and the three lines at the end of a run."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from gpuprof import _tables
from gpuprof._analysis import reading
from gpuprof._analysis.explain import (
    Explanation,
    Finding,
    KindOfStep,
    duration,
    explain,
    no_steps,
    ordinal,
    percentage,
)
from gpuprof._analysis.explain import Path as CriticalPath
from gpuprof._analysis.stragglers import LEAST_STEPS
from gpuprof._artifacts.early_ends import listed, sentences
from gpuprof._artifacts.ledger import SUFFIX
from gpuprof._artifacts.receipt import size_text
from gpuprof._log import log
from gpuprof._report.trees import DRIVER, introduce
from gpuprof.errors import GpuprofError

_QUICK = 4_000_000
"""Bytes of ledgers that are explained at the end of a run: about a second."""
_NEARLY_ALL = 0.95
"""Of the run, the share in steps that goes without saying."""
_MUCH_SLOWER = 1.5
"""How many times the median the slowest step must take to have its path printed."""
_LEAST_SHARE = 0.005
"""Of a step, the shortest part of its path that has a row: the others would have 0 %."""
_LARGE = 2**20
"""Bytes a step, from which a scope that moves them has a line."""
_CUT_SHORT = ", or cut short by a worker's end"
_KINDS = {
    "work": "",
    "handover": "after the wait",
    "data": "waits for data",
    "unexplained": "unexplained",
    "dispatch": "call under way",
    "outside": "",
}


def text(answer: Explanation, width: int | None = None, hint: str = "") -> str:
    """The whole answer.

    Args:
        width: as for `_tables.table`, as is `hint`.
    """
    parts = [
        _steps(answer),
        "\n".join(
            textwrap.fill(f"{each}.", _tables.console_width(), break_long_words=False)
            for each in sentences(answer.ended_early)
        ),
        verdict(answer),
        "Where the time goes\n" + _groups(answer, width, hint) if answer.groups else "",
        *(
            _path(path, width, hint)
            for path in answer.paths
            if path.why != "slowest" or path.seconds >= _MUCH_SLOWER * answer.seconds["median"]
        ),
        _findings(answer),
        _confidence(answer),
    ]
    return "\n\n".join(part for part in parts if part)


def as_json(answer: Explanation) -> str:
    """The whole answer, for programs."""
    return json.dumps(answer.to_dict(), indent=2)


def verdict(answer: Explanation) -> str:
    """What bounds a step, who waits, what would help: a line each."""
    labels = ("bounds a step:  ", "waits:          ", "would help:     ")
    said = "\0".join((answer.bounds, answer.waits, answer.helps))
    if answer.driver:
        said = introduce(said, answer.driver)
    return "\n".join(map(_tables.labelled, labels, said.split("\0")))


def quick_answer(directory: str) -> Explanation | None:
    """Explain a run at its end; ``None`` if there is nothing to explain, or it would take long.

    Never raises: a job does not end with a fault of its explanation.
    """
    try:
        if not 0 < _size(directory) <= _QUICK:
            return None
        run = reading.read(directory)
        if run.step_at and not run.steps:
            log().warning("%s", no_steps(run))
        return explain(run) if len(run.usual) >= 3 else None
    except GpuprofError as error:
        log().info("no explanation: %s", error)
    except Exception as error:
        log().warning("no explanation: %s: %s", type(error).__name__, error)
    return None


def print_verdict(directory: str, answer: Explanation | None) -> None:
    """Log the three lines of a run, or the command that prints them if it would take long."""
    commands = f"gpuprof explain {directory} (as a page: gpuprof html)"
    if answer is not None:
        median = duration(answer.seconds["median"])
        log().info("a step takes %s; more: %s\n%s", median, commands, verdict(answer))
    elif _size(directory) > _QUICK:
        log().info("what bounds a step: %s", commands)


def _size(directory: str) -> int:
    """Bytes of a run's ledgers."""
    return sum(path.stat().st_size for path in Path(directory).glob(f"*/*{SUFFIX}"))


def _steps(answer: Explanation) -> str:
    median, least, most = (duration(answer.seconds[key]) for key in ("median", "least", "most"))
    steps = answer.steps
    left = [
        (f"{len(steps[key])} {word}", steps[key])
        for key, word in (
            ("warm_up", "warm-up"),
            ("captured", "captured"),
            ("disturbed", "slowed by a window"),
            ("incomplete", f"incomplete{_CUT_SHORT if answer.ended_early else ''}"),
        )
        if steps[key]
    ]
    without = f"; left out: {', '.join(said for said, _ in left)}" if left else ""
    share = answer.seconds["in_steps"]
    loop = f"; {percentage(share)} of {duration(answer.seconds['loop'])} is in steps"
    said = [
        f"{answer.run}: {steps['counted']} of {steps['all']} steps{without}.",
        *(
            [f"A step is a round of the driver's calls: {steps['round']}."]
            if steps["round"]
            else []
        ),
        f"A step takes {median} (median; {least} to {most}){loop if share < _NEARLY_ALL else ''}.",
        *map(_kind, answer.kinds),
    ]
    return textwrap.fill(" ".join(said), _tables.console_width())


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
        rows.append(
            [
                introduce(DRIVER) if is_driver else group.group,
                str(group.workers),
                percentage(group.work),
                percentage(group.waits),
                percentage(group.outside),
                f"{group.imbalance:.2f}" if group.workers > 1 else "",
                f"{group.scope}{whom}",
            ]
        )
    made = _tables.table(
        headers,
        rows,
        right=headers[1:6],
        optional=["workers", "imbalance"],
        shorten={"waits most in": "end", "group": "end"},
        width=width,
        hint=hint,
    )
    signs = "outside: in no scope. imbalance: the most work of a rank to the mean"
    lines = [made, _tables.legend([signs])]
    lines += [
        f"{each.scope} in {each.group}: {size_text(round(each.bytes))} a step."
        for each in answer.scopes
        if each.bytes is not None and each.bytes >= _LARGE
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


def _path(path: CriticalPath, width: int | None, hint: str) -> str:
    headers = ["time", "share", "worker", "scope", "in steps", ""]
    parts = [part for part in path.parts if part.share >= _LEAST_SHARE]
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
    made = _tables.table(
        headers,
        rows,
        right=["time", "share", "in steps"],
        optional=["in steps"],
        shorten={"scope": "start", "worker": "end"},
        width=width,
        hint=hint,
    )
    which = {
        "median": f"Critical path of step {path.step}, the median one",
        "slowest": f"Critical path of step {path.step}, the slowest one",
        "chosen": f"Critical path of step {path.step}",
    }[path.why]
    return f"{which}: {duration(path.seconds)}\n{made}"


def _findings(answer: Explanation) -> str:
    if not answer.findings and not answer.paths:
        return ""
    if not answer.findings:
        return f"Causes\n{_none(answer)}"
    return "Causes\n" + "\n".join(
        _finding(number, finding) for number, finding in enumerate(answer.findings, 1)
    )


def _none(answer: Explanation) -> str:
    if answer.steps["counted"] < LEAST_STEPS:
        return (
            f"Not looked for: {answer.steps['counted']} steps count, and a rank is named from "
            f"{LEAST_STEPS} on."
        )
    return "None: no rank, node or scope stands out."


def _finding(number: int, finding: Finding) -> str:
    lines = [_tables.labelled(f"{number}. ", finding.says)]
    if finding.saves is not None and finding.saves >= 0.01:
        if_ = "at half the time a call, " if finding.cause == "server" else ""
        saved = f"{if_}the run would take {percentage(finding.saves)} less"
        lines.append(_tables.labelled("   saves   ", saved))
    lines.append(_tables.labelled("   next    ", finding.action))
    if finding.config:
        backend = "GPUPROF_BACKEND=PROFILER"
        lines.append(_tables.labelled("   with    ", f"{backend} {finding.config}"))
    return "\n".join(lines)


def _confidence(answer: Explanation) -> str:
    found = answer.confidence
    bound = "not known" if found.clock_bound is None else f"within {duration(found.clock_bound)}"
    clocks = "" if found.clock_bound == 0 else f" Clocks: {bound}."
    explained = percentage(found.explained)
    if not answer.paths:
        said = [f"Nothing was timed, so nothing is explained.{clocks}"]
    else:
        said = [f"{explained} of the critical path is explained.{clocks}"]
    if found.instrument and answer.paths:
        remedy = "" if found.instrument == answer.helps else f" To see it: {found.instrument}."
        said.append(
            f"Longest unexplained: {found.worker} {found.scope}, {duration(found.seconds)} a step."
            f"{remedy}"
        )
    said += [
        f"{each.group} in {each.scope}: the ranks begin apart and end together, so each is taken "
        "to wait there for the last one to begin. A rank that is slow inside it, before they meet, "
        "cannot be told from the others."
        for each in answer.recognised
    ]
    said += answer.problems
    return "Confidence\n" + "\n".join(
        textwrap.fill(each, _tables.console_width(), break_long_words=False) for each in said
    )


def answer_of(directory: str, step: int | None = None, warm_up: int | None = None) -> Explanation:
    """Explain a run's directory; see `gpuprof._analysis.explain.explain`."""
    return explain(reading.read(directory, warm_up), step)
