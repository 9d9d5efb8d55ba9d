"""Whether an answer is right, and how often answers are: judged from the JSON of explain alone."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np
from gpuprof._analysis.loop import BETWEEN_CALLS
from gpuprof._report.explain import answer_of, as_json
from tabulate import tabulate

from truth.causes import BETWEEN, OF_SAMPLES, START, SUBMIT, UNEVEN, Accusation, Cause
from truth.jobs import MATTERS, Job, drawn
from truth.rollouts import LENGTH, LOST, TOKENS
from truth.world import DRIVER

NOTHING = 0.01
"""Share of the loop below which removing somebody saves nothing: naming him is wrong."""
_OF_ONE = (
    "rank", "pauses", "late start", "garbage collection", "drift", "recurring", "only this rank",
)  # fmt: skip
"""Causes that are a single worker's; others are a group's, a node's or the driver's."""
_TO_ZERO = ("driver", "data", "synchronisation", "between steps", "recurring", "only this rank")
"""Causes whose `saves` is without them; others' with the median of the peers."""
_SCOPES = {"(before its first scope)": START, "(several scopes)": "", "(between steps)": BETWEEN}
"""What explain calls a place that is no scope, and the generator's name of it."""

_OTHERWISE = ("other", "nobody", "abstained")
_SENDING = ("runner/train", "runner/evaluate", BETWEEN_CALLS)
"""Scopes in which the driver only sends calls and waits."""
Said = Literal["right", "other", "wrong", "nobody", "abstained"]
Expected = Literal["named", "nobody", "bounded", "hidden", "unmodelled", "thin record"]


@attrs.frozen
class Outcome:
    """What an answer said of a job.

    Args:
        job: its name.
        topology: see `Job`.
        planted: the kinds of its causes; ``none`` without any.
        mechanism: see `Job`.
        ranks: of its largest group.
        distribution: of its work.
        noise: of its machine.
        lacks: what its ledgers lack.
        expected: ``named``: a cause is to be named; ``nobody``: no cause saves 5 %; ``bounded``:
            nor does any, but the loop waits for a server, which may be named; ``hidden``: a cause
            saves 5 %, and cannot be seen; ``unmodelled``: the job does what `explain` does not
            model; ``thin record``: its ledgers lack who waits for whom.
        said: ``right``: workers of a minimal set, and at most as many others; ``other``: something
            else, whose removal saves 1 % or more; ``wrong``: something whose removal saves less.
        claimed: share of the loop that is said to be saved; ``None``: nobody is named, or nothing
            said.
        real: share that is saved.
        words: who was named.
        truth: who should be.
        grade: of what was said.
    """

    job: str
    topology: str
    planted: str
    mechanism: str
    ranks: int
    distribution: str
    noise: str
    lacks: str
    expected: Expected
    said: Said
    claimed: float | None
    real: float | None
    words: str
    truth: str
    grade: str

    @property
    def good(self) -> bool:
        """Whether it is right, or right to name nobody."""
        silent = self.expected != "named" and self.said in ("nobody", "abstained")
        return self.said == "right" or silent


def explained(
    job: Job, scale: int = 1, renamed: dict[str, list[int]] | None = None
) -> dict[str, Any]:
    """What ``gpuprof explain --json`` prints of a job.

    Args:
        scale: as for `Recorder`, as is `renamed`.
    """
    with tempfile.TemporaryDirectory() as place:
        written = job.write(Path(place, "run"), scale, renamed)
        answer: dict[str, Any] = json.loads(as_json(answer_of(str(written), None, None)))
    return answer


def first_named(answer: dict[str, Any]) -> dict[str, Any] | None:
    """The first cause of an answer.

    What took long once is no cause, nor is a rank that is said to be off the critical path. A
    bottleneck accuses nobody.
    """
    for finding in answer["findings"]:
        off_the_path = finding["saves"] is not None and finding["saves"] < NOTHING
        if finding["cause"] not in ("once", "bottleneck") and not off_the_path:
            named: dict[str, Any] = finding
            return named
    return None


def _scope(finding: dict[str, Any]) -> str:
    """The generator's name of the place that a finding names."""
    if finding["worker"] == DRIVER and finding["scope"] in _SENDING:
        return SUBMIT
    return _SCOPES.get(finding["scope"], finding["scope"])


def accusation(finding: dict[str, Any]) -> Accusation:
    """What a finding accuses."""
    cause, group, worker = finding["cause"], finding["group"], finding["worker"]
    scope = _scope(finding)
    if finding["samples"] is not None:
        return _of_samples(finding)
    if cause == "node":
        return Accusation("", node=worker)
    if worker == DRIVER:
        return Accusation(DRIVER, (0,), scope, to="zero")
    whose = [name for name in finding["workers"] if name.startswith(f"{group}-")]
    ranks = tuple(int(name.rpartition("-")[2]) for name in whose)
    if cause == "server":
        return Accusation(group, ranks, scope, to="half")
    if cause == "imbalance":
        return Accusation(group, (), scope, to="mean")
    return Accusation(group, ranks, scope, to="zero" if cause in _TO_ZERO else "peers")


def _of_samples(finding: dict[str, Any]) -> Accusation:
    """What a finding accuses that is about samples."""
    about = finding["samples"]
    if finding["cause"] == "tail":
        return Accusation("Rollout", (), LENGTH, to="capped", most=about["limit"] / TOKENS)
    if finding["cause"] == "uneven tokens":
        return Accusation("Rollout", (), LENGTH, to="dealt")
    if finding["cause"] == "stale samples":
        return Accusation("Rollout", (), LOST, to="zero")
    if finding["cause"] == "full buffer":
        return Accusation("Learner", (), "learn", to="half")
    if finding["cause"] == "starved trainer":
        return Accusation("Rollout", (), to="zero")
    if about["phase"] == "reward":
        return Accusation("Reward", (), "score", to="zero")
    return Accusation("Rollout", (), "tool", to="zero")


def names(finding: dict[str, Any], cause: Cause) -> bool:
    """Whether a finding names a cause: the worker, node or group, and the scope."""
    if cause.kind in OF_SAMPLES:
        phase = (finding["samples"] or {}).get("phase", "")
        fits = finding["cause"] != "sample wait" or phase == cause.kind.removeprefix("slow ")
        return finding["cause"] in OF_SAMPLES[cause.kind] and fits
    if cause.node:
        return bool(finding["worker"] == cause.node) or (
            finding["cause"] == "imbalance" and cause.node in finding["says"]
        )
    if _scope(finding) not in ("", cause.scope):
        return False
    if cause.group == DRIVER:
        return bool(finding["worker"] == DRIVER)
    if finding["cause"] == "imbalance" and finding["workers"]:
        return {f"{cause.group}-{rank}" for rank in cause.ranks} <= set(finding["workers"])
    if cause.kind == UNEVEN:
        return False  # nobody is slow
    if not cause.ranks:
        return bool(finding["group"] == cause.group and finding["cause"] not in _OF_ONE)
    return f"{cause.group}-{cause.ranks[0]}" in finding["workers"]


def judged(job: Job, answer: dict[str, Any]) -> Outcome:
    """Whether an answer is right."""
    finding = first_named(answer)
    claimed = real = None
    words = ""
    if finding is None:
        said: Said = "nobody" if answer["confidence"]["enough"] else "abstained"
    else:
        fed = finding["cause"] == "data" and bool(job.about.feeds)
        accused = Accusation(job.about.feeds, to="zero") if fed else accusation(finding)
        claimed, real = finding["saves"], job.saves(accused)
        whom = " and ".join(finding["workers"][:3]) or finding["group"]
        words = f"{finding['cause']}: {whom} in {finding['scope']}"
        guilty = {number for removed in job.truth for number in removed}
        known = [cause for cause in map(job.causes.__getitem__, guilty) if names(finding, cause)]
        workers = finding["workers"]
        is_right = bool(known)
        if finding["cause"] in _OF_ONE:
            is_right = 0 < len(workers) <= 2 * len(known)
        elif finding["cause"] == "imbalance" and workers:  # one of the two readings
            slow = {f"{cause.group}-{rank}" for cause in known for rank in cause.ranks}
            is_right = any(cause.node for cause in known) or (bool(known) and slow == set(workers))
        bounds = not job.truth and finding["cause"] == "server" and job.bounded
        bounds |= fed and not job.truth and real >= MATTERS  # its makers are a server of several
        # who shares a network waits for data: the mechanism is a cause itself
        bounds |= (
            job.mechanism == "shared network" and finding["cause"] == "data" and real >= MATTERS
        )
        # a cause that samples have by themselves is one if the job is faster without it
        bounds |= finding["samples"] is not None and real >= max([MATTERS, *job.truth.values()])
        if is_right or bounds:
            said = "right"
        else:
            said = "other" if real >= NOTHING else "wrong"
    expected: Expected = "named" if job.observable else "hidden"
    if not job.truth:
        expected = "bounded" if job.bounded else "nobody"
    if job.lacks:
        expected = "thin record"
    if job.mechanism:
        expected = "unmodelled"
    truth = "; ".join(
        f"{' and '.join(_called(job.causes[number]) for number in removed)} {saving:.1%}"
        for removed, saving in job.truth.items()
    )
    return Outcome(
        job.name, job.topology, " + ".join(job.planted) or "none", job.mechanism, job.ranks,
        job.machine.distribution, job.machine.noise, job.lacks, expected, said, claimed, real,
        words, truth, finding["grade"] if finding else "",
    )  # fmt: skip


def _called(cause: Cause) -> str:
    who = cause.node or "-".join([cause.group, *map(str, cause.ranks)])
    return f"{cause.kind} ({who} {cause.scope})"


def outcome(case: tuple[int, ...], suite: str = "usual") -> Outcome:
    """The outcome of a job, given what `drawn` takes."""
    job = drawn(*case, suite=suite)
    return judged(job, explained(job))


# Tables


def interval(count: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a share, at 95 %.

    >>> low, high = interval(19, 20)
    >>> f"{low:.2f} to {high:.2f}"
    '0.76 to 0.99'
    """
    if not of:
        return 0.0, 1.0
    z, share = 1.96, count / of
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), (middle + half) / (1 + z * z / of)


def _share(fits: Iterable[bool]) -> str:
    fit = list(fits)
    low, high = interval(sum(fit), len(fit))
    return f"{sum(fit)} ({100 * low:.0f} to {100 * high:.0f} %)"


def _off(outcomes: Sequence[Outcome]) -> list[str]:
    off = [
        abs(outcome.claimed - outcome.real)
        for outcome in outcomes
        if outcome.claimed is not None and outcome.real is not None
    ]
    return [f"{100 * np.quantile(off, part):.1f}" for part in (0.5, 0.9)] if off else ["", ""]


def _table(head: str, by: Callable[[Outcome], str], outcomes: Iterable[Outcome]) -> str:
    rows: dict[str, list[Outcome]] = {}
    for each in outcomes:
        rows.setdefault(by(each), []).append(each)
    ordered = sorted(rows.items(), key=lambda row: (row[0].isdigit(), row[0]))
    if len(rows) > 1:
        ordered.append(("all", [each for row in rows.values() for each in row]))
    return tabulate(
        [
            [
                name, len(row), _share(each.good for each in row),
                _share(each.said == "wrong" for each in row),
                *(sum(each.said == said for each in row) for said in _OTHERWISE),
                *_off(row),
            ]
            for name, row in ordered
        ],
        [head, "jobs", "right", "wrong", *_OTHERWISE, "off by (median)", "(90 %)"],
        tablefmt="github",
        disable_numparse=True,
    )  # fmt: skip


def size(outcome: Outcome) -> str:
    """The class of sizes that a job is in."""
    for most in (4, 16, 64, 512):
        if outcome.ranks <= most:
            return {4: "2 to 4 ranks", 16: "5 to 16", 64: "17 to 64", 512: "512"}[most]
    return "4,096"


def _cause(outcome: Outcome) -> str:
    return "several" if " + " in outcome.planted else outcome.planted


def tables(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """All tables, by what they are of."""
    of = {
        expected: [each for each in outcomes if each.expected == expected]
        for expected in ("named", "nobody", "bounded", "hidden", "thin record", "unmodelled")
    }
    without = [each for each in of["nobody"] if each.planted in ("none", "slow everywhere")]
    small = [each for each in of["nobody"] if each not in without]
    return {
        "A cause to name, by its kind": _table("cause", _cause, of["named"]),
        "A cause to name, by topology": _table("topology", lambda o: o.topology, of["named"]),
        "A cause to name, by the distribution of work": _table(
            "distribution", lambda o: o.distribution, of["named"]
        ),
        "No cause, by the number of ranks": _table("ranks", size, without),
        "No cause, by the distribution of work": _table(
            "distribution", lambda o: o.distribution, without
        ),
        "No cause, by the machine": _table("noise", lambda o: o.noise, without),
        "Causes that save less than 5 %": _table("cause", _cause, small),
        "No cause, and a server that bounds the loop": _table(
            "topology", lambda o: o.topology, of["bounded"]
        ),
        "A cause that cannot be seen": _table("cause", _cause, of["hidden"]),
        "Ledgers lack who waits for whom": _table("lacks", lambda o: o.lacks, of["thin record"]),
        "What is not modelled": _table("mechanism", lambda o: o.mechanism, of["unmodelled"]),
        "Reported causes, by grade": _table(
            "grade", lambda o: o.grade, [each for each in outcomes if each.grade]
        ),
        "All jobs": _table("expected", lambda o: o.expected, outcomes),
    }
