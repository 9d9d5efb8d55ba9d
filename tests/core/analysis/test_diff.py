"""Comparisons of runs that never ran, from real ledgers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof._analysis.diff import Diff, Missing, diff
from gpuprof._analysis.figures import Change
from gpuprof._analysis.summary import Reports, Summary, read_baseline, summary_of, write_baseline
from gpuprof._artifacts.formats import Setup
from gpuprof._artifacts.manifest import setup
from gpuprof._report.diff import as_dict, check_baseline, compare, text
from gpuprof._report.diff import condition as parsed
from gpuprof._report.differences import differences, refuse
from gpuprof.errors import ConfigError, OutputError
from support.json_output import faults
from support.run_files import run_file
from support.simulated_pair import MS, SimulatedJob
from support.simulated_run import SimulatedLedger, write_run

SLOW = {("ActorGroup-1", "actor/backward"): 1.5}
FASTER = {("ActorGroup-0", "actor/backward"): 0.6}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Summary]:
    """Two equal runs, one whose rank 1 is slower in a scope, and one whose rank 0 is faster."""
    place = tmp_path_factory.mktemp("runs")
    return {
        name: summary_of(SimulatedJob(seed, slower=slower, steps=60).write(place / name))
        for name, seed, slower in (
            ("a", 1, {}),
            ("b", 2, {}),
            ("slow", 3, SLOW),
            ("faster", 4, FASTER),
        )
    }


def compared(before: Summary, after: Summary, *conditions: str) -> Diff:
    return compare([before], [after], [parsed(each) for each in conditions])


def with_setup(run: Summary, **changes: Any) -> Summary:
    about: Setup = setup(run_file("run"), ())
    return attrs.evolve(run, setup={**about, **changes})  # type: ignore[typeddict-item]


def test_tasks_that_wait_at_once_wait_no_longer_than_a_step(tmp_path: Path) -> None:
    """Several calls of an asynchronous actor."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    worker.loops = {1: 1, 2: 1}
    for _, begin in driver.begin_steps(10):
        for track in (1, 2):
            worker.span("answer", begin, begin + 100 * MS, track=track)
            waits = begin + 10 * MS, begin + 100 * MS
            worker.span(("answer", "await"), *waits, track=track, waits_for="*")
    group = summary_of(write_run(tmp_path, [driver, worker])).groups["A"]
    assert (0.02, 0.08) == (group.work.seconds, group.waits.seconds)


def test_equal_runs_are_in_order(runs: dict[str, Summary]) -> None:
    """Chance fails nothing."""
    made = compared(runs["a"], runs["b"], "step > 5%", "*/* > 25%")
    assert [[], []] == [check.failures for check in made.checks]


def test_a_slower_scope_is_named_with_its_rank(runs: dict[str, Summary]) -> None:
    """The one that is slower by twice the bound, and no other rank."""
    made = compared(runs["a"], runs["slow"], "actor/backward > 25%")
    assert [("ActorGroup", "actor/backward", "ActorGroup-1")] == [
        (failure.group, failure.scope, failure.worker) for failure in made.checks[0].failures
    ]


def test_a_slower_rank_is_found_though_whole_runs_differ(tmp_path: Path) -> None:
    """By its time to the other ranks': its own alone is not sure enough."""
    before = summary_of(SimulatedJob(1, 0.0, steps=160).write(tmp_path / "before"))
    slow = {("ActorGroup-1", "actor/backward"): 1.16}
    after = summary_of(SimulatedJob(11, 0.0, slower=slow, steps=160).write(tmp_path / "after"))
    (failure,) = compared(before, after, "actor/backward > 10%").checks[0].failures
    assert "ActorGroup-1" == failure.worker
    assert failure.to_others is not None
    assert failure.change.low < 1.1 < failure.to_others.low


def test_the_rank_that_costs_most_is_the_first_failure(runs: dict[str, Summary]) -> None:
    """Before the group, whose mean of both ranks has changed by half as much."""
    failures = compared(runs["a"], runs["slow"], "actor/backward > 5%").checks[0].failures
    assert ["ActorGroup-1", ""] == [failure.worker for failure in failures]


def test_a_slower_rank_is_named_without_a_condition(runs: dict[str, Summary]) -> None:
    """With the scope in which it lost the time; its group's other rank is not."""
    made = compared(runs["a"], runs["slow"])
    assert [("ActorGroup-1", "actor/backward")] == [
        (each.worker, each.scope) for each in made.slower_ranks
    ]
    said = " ".join(text(made).split())
    assert re.search(r"Slower rank: ActorGroup-1: [\d.]+ ms to .* most in actor/backward", said)


@pytest.mark.parametrize("after", ["b", "faster"])
def test_no_rank_is_slower_than_before(after: str, runs: dict[str, Summary]) -> None:
    """Neither by chance, nor since the other one is faster."""
    assert [] == compared(runs["a"], runs[after]).slower_ranks


def test_what_could_be_found_is_said_before_what_was(runs: dict[str, Summary]) -> None:
    """It depends on how much the runs vary, and not on how they differ."""
    said = " ".join(text(compared(runs["a"], runs["b"])).split())
    limits, verdict, _ = said.partition("A step takes")
    assert verdict
    assert re.search(r"nine times in ten: a step that is [\d.]+ % slower, and a rank", limits)


def test_ranks_that_differ_little_from_run_to_run_show_smaller_changes(tmp_path: Path) -> None:
    """Three runs in the baseline tell so, where one leaves it to an assumption."""
    first, *more, after = (
        summary_of(SimulatedJob(seed, spread=0.0, steps=40).write(tmp_path / str(seed)))
        for seed in range(4)
    )
    one, three = (diff(side, [after]).finds_rank for side in ([first], [first, *more]))
    assert one is not None
    assert three is not None
    assert three < one


def waiting(directory: Path, share: float) -> Summary:
    """A run whose ranks wait for a processor in so much of the time."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for worker in ranks:
        for step in range(40):
            worker.step(step, 100 * step * MS, (100 * step + 95 + step % 3) * MS)
            worker.span("work", 100 * step * MS, (100 * step + 80 + step % 3) * MS)
        worker.main = [(0, 0, 7 * MS), (4000 * MS, 0, (7 + int(4000 * share)) * MS)]
    return summary_of(write_run(directory, ranks))


def test_a_busy_machine_is_said_with_what_it_hides(tmp_path: Path) -> None:
    """On an idle one a fifth of the change would be found."""
    idle, busy = (waiting(tmp_path / name, share) for name, share in (("i", 0.0), ("b", 0.25)))
    assert (0.0, 0.25) == (idle.waited, busy.waited)
    quiet, loud = compared(idle, idle), compared(idle, busy)
    assert quiet.step.finds < 1.08 < 1.4 < loud.step.finds
    assert "busy" not in text(quiet)
    assert "workers waited for a processor 25 % of the time in B (b)" in " ".join(
        text(loud).split()
    )


def loaded(directory: Path, threads: int) -> Summary:
    """A run on a machine of 16 processors on which so many threads run."""
    worker = SimulatedLedger("A-0")
    for step in range(40):
        worker.step(step, 100 * step * MS, (100 * step + 95 + step % 3) * MS)
        worker.span("work", 100 * step * MS, (100 * step + 80 + step % 3) * MS)
    for second in range(5):
        worker.main.append((1000 * second * MS, 900 * second * MS, 0))
        worker.usage.append(
            {"time": 1000 * second * MS, "runnable": threads, "processors": 16, "usable": 16}
        )
    return summary_of(write_run(directory, [worker]))


def test_runs_under_another_load_are_said_to_be(tmp_path: Path) -> None:
    """Their steps may differ for that alone."""
    quiet, alike, busy = (loaded(tmp_path / str(number), number) for number in (1, 2, 14))
    assert "load" not in text(compared(quiet, alike))
    assert (
        "The machines' load differed: A on 16 processors with a load of 1 and B on 16 processors "
        "with a load of 14. Steps may differ for that alone."
    ) in " ".join(text(compared(quiet, busy)).split())


def test_json_says_what_failed(runs: dict[str, Summary]) -> None:
    """The scope, the rank, and its change also to the others, with both ends."""
    made = as_dict(compared(runs["a"], runs["slow"], "actor/backward > 25%"))
    (failure,) = made["checks"][0]["failures"]
    assert ("ActorGroup", "actor/backward", "ActorGroup-1") == tuple(failure.values())[:3]
    assert pytest.approx(1.5, rel=0.02) == failure["to_others"]["ratio"]
    assert failure["low"] < failure["ratio"] < failure["high"]


def test_every_key_of_the_json_is_documented(runs: dict[str, Summary], tmp_path: Path) -> None:
    """Of a comparison that has everything."""
    promised = with_a_slow_rank(tmp_path / "run", 2.0)
    assert promised.promise is not None
    before = attrs.evolve(runs["a"], promise=promised.promise, reports=Reports(1, 2))
    groups = {f"Other{name}": group for name, group in runs["b"].groups.items()}
    after = attrs.evolve(runs["slow"], groups={**runs["slow"].groups, **groups})
    for output in (
        compared(before, runs["slow"], "actor/backward > 25%"),
        compared(before, after),
        compared(after, before),
    ):
        assert [] == faults("diff", json.loads(json.dumps(as_dict(output))))


def test_json_has_the_rank_that_changed_most(runs: dict[str, Summary]) -> None:
    """Of each scope of several ranks."""
    scopes = as_dict(compared(runs["a"], runs["slow"]))["scopes"]
    changes = {each["scope"]: (each["worker"], each["of_worker"]) for each in scopes}
    assert ("", None) == changes["call"]
    assert ("ActorGroup-1", pytest.approx(1.5, rel=0.05)) == (
        changes["actor/backward"][0],
        changes["actor/backward"][1]["ratio"],
    )


def test_json_says_which_steps_were_compared(runs: dict[str, Summary]) -> None:
    """Of each run, with its name."""
    (about,) = as_dict(compared(runs["a"], runs["b"]))["before"]
    assert ("a", 61, 60, 1) == (
        about["run"],
        about["steps"]["all"],
        about["steps"]["used"],
        about["steps"]["warm_up"],
    )


def test_a_rank_is_not_slower_because_the_others_are_faster(runs: dict[str, Summary]) -> None:
    """It takes as long as before."""
    made = compared(runs["a"], runs["faster"], "actor/backward > 25%")
    assert [] == made.checks[0].failures


def test_a_large_change_that_may_be_chance_is_unsure(runs: dict[str, Summary]) -> None:
    """It fails nothing, and is not in order either."""
    step = compared(runs["a"], runs["slow"]).step
    between = 50 * (step.low + step.ratio) - 100
    (check,) = compared(runs["a"], runs["slow"], f"step > {between:.3f}%").checks
    assert ([], ["step"]) == (check.failures, [each.scope for each in check.unsure])


def test_a_rank_whose_change_may_be_chance_is_unsure(runs: dict[str, Summary]) -> None:
    """It has become slower by 50 %, and both intervals begin below 47 %."""
    (check,) = compared(runs["a"], runs["slow"], "actor/backward > 47%").checks
    assert ([], ["ActorGroup-1"]) == (check.failures, [each.worker for each in check.unsure])


def test_a_failure_is_not_unsure_as_well(runs: dict[str, Summary]) -> None:
    """It is one of both."""
    (check,) = compared(runs["a"], runs["slow"], "actor/backward > 25%").checks
    assert [] == [each for each in check.unsure if each in check.failures]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("step > 5%", 1.05), ("step > 20ms", 1.2), ("step > 5%, 20ms", 1.2), ("step > 30%, 1ms", 1.3)],
)
def test_a_condition_says_what_it_could_have_found(condition: str, expected: float) -> None:
    """The larger bound, and half the width of the interval."""
    change = Change(before=0.1, after=0.1, ratio=1.0, low=0.8, high=1.25)
    assert pytest.approx(expected / 0.8) == parsed(condition).fails_from(change)


def test_shares_are_of_a_change_that_is_no_chance(runs: dict[str, Summary]) -> None:
    """The driver's call has all of it."""

    def share(after: str) -> float | None:
        made = compared(runs["a"], runs[after])
        return next(each.share for each in made.scopes if each.scope == "call")

    assert (None, pytest.approx(1, abs=0.05)) == (share("b"), share("slow"))


def test_a_longer_wait_can_fail(runs: dict[str, Summary]) -> None:
    """Rank 0 waits for rank 1."""
    (check,) = compared(runs["a"], runs["slow"], "ActorGroup:barrier > 50%").checks
    failed = {failure.worker: failure.to_others for failure in check.failures}
    assert {"ActorGroup-0": None} == {name: each for name, each in failed.items() if name}


def without_rank(run: Summary, worker: str, scope: str) -> Summary:
    """The run, in which a worker has never been in a scope."""
    group = run.groups["ActorGroup"]
    known = group.scopes[scope]
    ranks = {name: each for name, each in known.ranks.items() if name != worker}
    changed = attrs.evolve(known, ranks=ranks)
    scopes = {**group.scopes, scope: changed}
    return attrs.evolve(
        run, groups={**run.groups, "ActorGroup": attrs.evolve(group, scopes=scopes)}
    )


def test_a_rank_that_was_never_in_a_scope_is_not_compared(runs: dict[str, Summary]) -> None:
    """Its group is, and so are the others."""
    before = without_rank(runs["a"], "ActorGroup-0", "actor/backward")
    (check,) = compared(before, runs["slow"], "actor/backward > 5%").checks
    assert {"ActorGroup-1", ""} == {failure.worker for failure in check.failures}


def test_a_baseline_may_lack_a_scope_in_one_run(runs: dict[str, Summary]) -> None:
    """Such as a checkpoint that it never wrote."""
    group = runs["b"].groups["ActorGroup"]
    scopes = {path: each for path, each in group.scopes.items() if path != "actor/backward"}
    groups = {**runs["b"].groups, "ActorGroup": attrs.evolve(group, scopes=scopes)}
    before = [runs["a"], attrs.evolve(runs["b"], groups=groups)]
    (check,) = diff(before, [runs["slow"]], [parsed("actor/backward > 25%")]).checks
    assert ["ActorGroup-1"] == [failure.worker for failure in check.failures]


def test_a_group_waits_for_its_slower_rank(runs: dict[str, Summary]) -> None:
    """Rank 0 of two waits 12 ms of a step."""
    waits = runs["slow"].groups["ActorGroup"].waits.seconds
    assert pytest.approx(0.006, rel=0.1) == waits


def test_what_one_rank_does_is_compared_with_no_other(tmp_path: Path) -> None:
    """As what only the first writes."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for step in range(40):
        for worker in ranks:
            worker.step(step, 1000 * step, 1000 * step + 1000)
            worker.span("work", 1000 * step, 1000 * step + 500)
        ranks[0].span("write", 1000 * step + 500, 1000 * step + 600)
    for worker in ranks:
        worker.write(tmp_path)
    scopes = summary_of(tmp_path).groups["A"].scopes
    assert ({}, {"A-0", "A-1"}) == (scopes["write"].to_others, set(scopes["work"].to_others))


def test_who_waits_is_not_compared_with_the_others(runs: dict[str, Summary]) -> None:
    """A rank waits longer because another one is slow."""
    scopes = runs["a"].groups["ActorGroup"].scopes
    assert ({}, {"ActorGroup-0", "ActorGroup-1"}) == (
        scopes["barrier"].to_others,
        set(scopes["actor/backward"].to_others),
    )


def with_gaps(directory: Path, outside: int, between: int) -> Summary:
    """A run of two ranks, with so many milliseconds outside any scope, and between its steps."""
    ranks = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
    for worker in ranks:
        now = 0
        for step in range(40):
            took = (60 + step % 3 + outside) * MS
            worker.span("work", now, now + (60 + step % 3) * MS)
            worker.step(step, now, now + took)
            now += took + between * MS
    return summary_of(write_run(directory, ranks))


@pytest.mark.parametrize(
    ("outside", "between", "place"), [(40, 5, "(outside any scope)"), (10, 35, "(between steps)")]
)
def test_what_no_scope_has_is_a_place(
    tmp_path: Path, outside: int, between: int, place: str
) -> None:
    """By the name that `explain` has for it; nobody is called slower, as he may wait there."""
    before = with_gaps(tmp_path / "before", 10, 5)
    made = compared(before, with_gaps(tmp_path / "after", outside, between))
    assert ("A", place, pytest.approx(0.03, rel=0.05)) == (
        made.scopes[0].group,
        made.scopes[0].scope,
        made.scopes[0].change.seconds,
    )
    assert [] == made.slower_ranks


def test_a_slower_scope_costs_most(runs: dict[str, Summary]) -> None:
    """Below the driver's call, which waits for it, and those that are not called meanwhile."""
    made = compared(runs["a"], runs["slow"])
    assert "actor/backward" == next(
        each.scope for each in made.scopes if not each.waits and each.scope != "(between calls)"
    )


@pytest.mark.parametrize(
    ("after", "worker"), [("slow", "ActorGroup-1"), ("faster", "ActorGroup-0")]
)
def test_the_rank_that_changed_most_is_shown(
    after: str, worker: str, runs: dict[str, Summary]
) -> None:
    """In the direction of its group."""
    made = compared(runs["a"], runs[after])
    assert worker == next(each.worker for each in made.scopes if each.scope == "actor/backward")


def test_a_slower_rank_changes_its_group_s_imbalance(runs: dict[str, Summary]) -> None:
    """Its work to the mean of both: (12 + 36) to 42 ms."""
    made = compared(runs["a"], runs["slow"])
    group = next(each for each in made.groups if each.group == "ActorGroup")
    assert (pytest.approx(1, abs=0.02), pytest.approx(48 / 42, abs=0.02)) == group.imbalance


def test_a_bound_in_seconds_holds_beside_the_relative_one(runs: dict[str, Summary]) -> None:
    """A step slower by 12 ms is in order up to 20 ms."""
    made = compared(runs["a"], runs["slow"], "step > 1%", "step > 1%, 20ms")
    assert [True, False] == [bool(check.failures) for check in made.checks]


def test_a_condition_can_be_about_a_group(runs: dict[str, Summary]) -> None:
    """About its work in a step."""
    made = compared(runs["a"], runs["slow"], "ActorGroup > 5%", "RolloutGroup > 5%")
    assert [True, False] == [bool(check.failures) for check in made.checks]


def test_exchanged_runs_invert_every_ratio(runs: dict[str, Summary]) -> None:
    """Of the step, of every scope, rank and group."""
    there, back = (compared(runs[a], runs[b]) for a, b in (("a", "slow"), ("slow", "a")))

    def logs(made: Diff) -> dict[str, float]:
        found = {"step": math.log(made.step.ratio)}
        for each in made.scopes:
            found[f"{each.group}:{each.scope}"] = math.log(each.change.ratio)
        for group in made.groups:
            if group.work.before:
                found[group.group] = math.log(group.work.ratio)
        return found

    assert pytest.approx(logs(there)) == {name: -value for name, value in logs(back).items()}


def test_with_another_number_of_ranks_no_condition_is_judged(
    runs: dict[str, Summary], tmp_path: Path
) -> None:
    """Other ranks do its work; what both have is in the table all the same."""
    whole = SimulatedJob(1, steps=40).write(tmp_path / "run")
    (whole / "node-0" / "ActorGroup-1.start-1.ledger").unlink()
    made = compared(runs["a"], summary_of(whole), "step > 5%")
    assert [Missing("B (run)", ["ActorGroup-1"])] == made.missing
    assert [] == made.checks
    (different,) = differences(made.before, made.after)
    assert ("ranks", "2 ActorGroup, 2 RolloutGroup, 1 Runner") == (
        different.what,
        different.before,
    )
    assert "RolloutGroup" in {each.group for each in made.scopes}
    assert "No condition is judged: ranks differ: B (run) has no ledger" in text(made)


def test_a_group_that_only_one_run_has_is_listed(runs: dict[str, Summary]) -> None:
    """Its scopes are only there; the others are compared."""
    groups = {name: group for name, group in runs["b"].groups.items() if name != "ActorGroup"}
    made = compared(runs["a"], attrs.evolve(runs["b"], groups=groups))
    assert {"ActorGroup"} == {each.group for each in made.gone}
    assert ["RolloutGroup", "Runner"] == [each.group for each in made.groups]


def test_runs_that_share_no_group_have_their_scopes_listed(runs: dict[str, Summary]) -> None:
    """There is a verdict on the step, and no table without rows."""
    groups = {f"Other{name}": group for name, group in runs["b"].groups.items()}
    made = text(compared(runs["a"], attrs.evolve(runs["b"], groups=groups)))
    titles = ("A step takes", "Only in A", "Only in B", "Groups", "Scopes")
    assert [True, True, True, False, False] == [f"\n{title}" in made for title in titles]


def test_of_many_missing_ranks_some_are_named(runs: dict[str, Summary]) -> None:
    """Five of seven."""
    group = runs["a"].groups["ActorGroup"]
    more = attrs.evolve(group, workers=[*group.workers, *(f"X-{rank}" for rank in range(7))])
    before = attrs.evolve(runs["a"], groups={**runs["a"].groups, "ActorGroup": more})
    (sentence,) = as_dict(compared(before, runs["b"]))["unlike"]
    assert sentence.endswith("of X-0, X-1, X-2, X-3, X-4 and 2 more")


def with_a_slow_rank(directory: Path, slow: float) -> Summary:
    """A run under torchrun, whose third rank works so many times as long as the others."""
    made = [SimulatedLedger(f"A-{rank}") for rank in range(3)]
    now = 0
    for number in range(60):
        took = [int((200 + number % 3) * (slow if rank == 2 else 1)) * MS for rank in range(3)]
        for rank, ledger in enumerate(made):
            ledger.span("work", now, now + took[rank])
            ledger.span("meet", now + took[rank], now + max(took) + 1000, waits_for="barrier")
            ledger.step(number, now, now + max(took) + 1000)
        now += max(took) + 1000
    return summary_of(write_run(directory, made))


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (1.0, "takes 50 % less, and explain no longer names A-2"),
        (2.0, "takes as long, by all that these runs tell, and explain names A-2 again"),
    ],
)
def test_what_a_mend_was_promised_stands_beside_what_it_gave(
    tmp_path: Path, slow: float, words: str
) -> None:
    """The run before has a slow rank, and the next one has it no more, or still."""
    before = with_a_slow_rank(tmp_path / "before", 2.0)
    made = compared(before, with_a_slow_rank(tmp_path / "after", slow))
    assert made.kept is not None
    assert (["A-2"], slow == 2.0) == (made.kept[0].workers, made.kept[1])
    assert slow == 2.0 or math.isclose(1 - made.step.ratio, made.kept[0].saves, abs_tol=0.02)
    assert words in " ".join(text(made).split())


def test_a_slower_step_has_had_no_mend(tmp_path: Path) -> None:
    """What the run before was promised is not repeated."""
    before = with_a_slow_rank(tmp_path / "before", 2.0)
    assert "Promised" not in text(compared(before, with_a_slow_rank(tmp_path / "after", 4.0)))


def test_with_too_few_steps_no_condition_is_judged(
    runs: dict[str, Summary], tmp_path: Path
) -> None:
    """What differs is in the table; with how many steps there are, and why others are left out."""
    short = summary_of(SimulatedJob(1, steps=12).write(tmp_path / "run"))
    made = compared(runs["a"], short, "step > 5%")
    assert ([], False) == (made.checks, made.judged)
    printed = " ".join(text(made).split())
    assert (
        "No condition is judged: B (run) has 12 of 13 steps to compare, and 30 are needed: let "
        "the job take more; left out: 1 warm-up"
    ) in printed
    assert "actor/backward" in printed


@pytest.mark.parametrize("target", ["actor/backwards", "Runner"])
def test_a_condition_about_nothing_is_not_judged(target: str, runs: dict[str, Summary]) -> None:
    """A misspelt or renamed scope, or a driver that does nothing, would be in order for ever."""
    made = compared(runs["a"], runs["b"], f"{target} > 5%")
    printed = " ".join(text(made).split())
    assert not made.judged
    assert (
        "No condition is judged: a target of --fail-if is neither step nor a group or a scope of "
        "both runs; these are: ActorGroup, RolloutGroup, Runner, ActorGroup:"
    ) in printed


def test_a_run_without_steps_is_refused(runs: dict[str, Summary], tmp_path: Path) -> None:
    """With the command that says what to do."""
    worker = SimulatedLedger("A-0")
    worker.span("work", 0, 1000)
    with pytest.raises(ConfigError) as refused:
        compared(runs["a"], summary_of(write_run(tmp_path / "run", [worker])))
    expected = "not comparable: B (run) has no steps; `gpuprof explain run` says how to mark them"
    assert expected == str(refused.value)


def test_different_versions_are_listed(runs: dict[str, Summary]) -> None:
    """And settings, by their whole keys."""
    before = with_setup(runs["a"], versions={"torch": ["2.4.0"]}, config={"nsight": {"a": 1}})
    after = with_setup(runs["b"], versions={"torch": ["2.5.1"]}, config={"nsight": {"a": 2}})
    assert [("config nsight.a", "1", "2"), ("torch", "2.4.0", "2.5.1")] == [
        (each.what, each.before, each.after) for each in differences([before], [after])
    ]


@pytest.mark.parametrize(
    ("what", "changes", "before", "after"),
    [
        ("backend", ({"backend": "none"}, {"backend": "nsight"}), "none", "nsight"),
        (
            "workers on each node",
            ({"nodes": {"x": ["A-0", "A-1"]}}, {"nodes": {"x": ["A-0"], "y": ["A-1"]}}),
            "2",
            "1, 1",
        ),
        ("GPUs", ({"gpus": {"x": ["H100"] * 8}}, {"gpus": {"x": ["A100"]}}), "8 H100", "1 A100"),
    ],
)
def test_what_runs_ran_on_is_compared(
    what: str,
    changes: tuple[dict[str, Any], dict[str, Any]],
    before: str,
    after: str,
    runs: dict[str, Summary],
) -> None:
    """As people would say it."""
    one, other = (with_setup(runs[name], **e) for name, e in zip("ab", changes, strict=True))
    assert (before, after) == next(
        (each.before, each.after) for each in differences([one], [other]) if each.what == what
    )


def test_steps_that_are_rounds_of_other_calls_are_listed(runs: dict[str, Summary]) -> None:
    """Their times mean different things."""
    rounds = ("Env.sample", "Env.sample, Learner.train")
    sides = [[attrs.evolve(runs["a"], round=each)] for each in rounds]
    assert [("a step is a round of", *rounds)] == [
        (each.what, each.before, each.after) for each in differences(*sides)
    ]


def test_a_loop_that_has_moved_in_its_file_is_the_same(runs: dict[str, Summary]) -> None:
    """As after an edit above it."""
    sides = [[attrs.evolve(runs["a"], round=f"the loop at train.py:{line}")] for line in (42, 47)]
    assert [] == list(differences(*sides))


def test_missing_reports_are_listed(runs: dict[str, Summary]) -> None:
    """Without mattering to what took how long."""
    whole, part = (
        attrs.evolve(runs[name], reports=Reports(complete, 8))
        for name, complete in (("a", 8), ("b", 7))
    )
    (difference,) = differences([whole], [part])
    assert ("8 of 8 complete", "7 of 8 complete", False) == (
        difference.before,
        difference.after,
        difference.matters,
    )


def test_json_has_no_number_where_there_is_none(runs: dict[str, Summary]) -> None:
    """The driver does not work by itself here."""
    made = as_dict(compared(runs["a"], runs["b"]))
    driver = next(each for each in made["groups"] if each["group"] == "Runner")
    assert driver["work"]["ratio"] is None


def test_where_files_go_makes_no_difference(runs: dict[str, Summary]) -> None:
    """Every CI job has other directories."""
    before, after = (
        with_setup(runs[name], config={"output_dir": f"/tmp/{name}", "working_dir": name})
        for name in ("a", "b")
    )
    assert [] == differences([before], [after])


def test_strict_refuses_what_differs(runs: dict[str, Summary]) -> None:
    """With its name and both values."""
    before, after = (
        with_setup(runs[name], commit=commit) for name, commit in (("a", "1" * 40), ("b", "2" * 40))
    )
    with pytest.raises(ConfigError, match="commit: 111111111111 in A, 222222222222 in B"):
        refuse(differences([before], [after]))


def test_strict_accepts_other_nodes_of_the_same_kind(runs: dict[str, Summary]) -> None:
    """Every run in a cluster has other names."""
    before, after = (
        with_setup(runs[name], nodes={node: ["A-0"]}, gpus={node: ["NVIDIA H100"]})
        for name, node in (("a", "x1"), ("b", "x2"))
    )
    different = differences([before], [after])
    refuse(different)
    assert ["names of nodes"] == [each.what for each in different]


def test_scopes_of_one_run_only_are_listed(runs: dict[str, Summary]) -> None:
    """A renamed one is new and gone."""
    actor = runs["b"].groups["ActorGroup"]
    renamed = {path.replace("forward", "predict"): each for path, each in actor.scopes.items()}
    groups = {**runs["b"].groups, "ActorGroup": attrs.evolve(actor, scopes=renamed)}
    made = compared(runs["a"], attrs.evolve(runs["b"], groups=groups))
    assert ([("ActorGroup", "actor/predict")], [("ActorGroup", "actor/forward")]) == (
        [(each.group, each.scope) for each in made.new],
        [(each.group, each.scope) for each in made.gone],
    )


def test_a_worker_that_started_twice_is_one_rank(tmp_path: Path) -> None:
    """Its two processes do one rank's work in turn."""
    driver = SimulatedLedger("Runner", "driver")
    first, second = SimulatedLedger("A-0"), SimulatedLedger("A-0")
    second.incarnation = "2"
    for step in range(40):
        driver.step(step, 1000 * step, 1000 * step + 1000)
        (first if step < 20 else second).span("work", 1000 * step + 100, 1000 * step + 600)
    driver.write(tmp_path)
    second.write(tmp_path).rename(tmp_path / "node-0" / "A-0.start-2.ledger")
    first.write(tmp_path)
    found = summary_of(tmp_path).groups["A"]
    assert (["A-0"], pytest.approx(5e-7)) == (found.workers, found.scopes["work"].seconds.seconds)


def test_steps_of_ranks_that_start_apart_are_their_own(tmp_path: Path) -> None:
    """Without a driver, a step takes as long as in its slowest rank, however late that began."""
    for rank, (start, length) in enumerate(((0, 1000), (700_000, 2000))):
        worker = SimulatedLedger(f"Rank-{rank}")
        for step in range(40):
            worker.step(step, start + length * step, start + length * step + length)
        worker.write(tmp_path)
    assert 2e-6 == summary_of(tmp_path).seconds.seconds


@pytest.mark.parametrize(
    "text",
    [
        "step",
        "step > ",
        "> 5%",
        "step > 5",
        "step > 5%, 6%",
        "step > 5ms, 6ms",
        "step > -5%",
        "step > 5 min",
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    """With what would be one."""
    with pytest.raises(ConfigError, match="expected 'TARGET > 5%'"):
        parsed(text)


def test_a_baseline_compares_as_its_runs_do(runs: dict[str, Summary], tmp_path: Path) -> None:
    """Exactly: figures have few digits from the beginning."""
    size = write_baseline(tmp_path / "base.json", [runs["a"], runs["b"]])
    kept = read_baseline(tmp_path / "base.json")
    made, again = (diff(base, [runs["slow"]]) for base in ([runs["a"], runs["b"]], kept))
    assert as_dict(made) == as_dict(again)
    assert size < 12_000


def test_a_baseline_keeps_what_the_runs_ran_on(runs: dict[str, Summary], tmp_path: Path) -> None:
    """For the list of differences."""
    run = with_setup(runs["a"], commit="1" * 40)
    write_baseline(tmp_path / "base.json", [run])
    assert [run] == read_baseline(tmp_path / "base.json")


def test_a_run_without_a_manifest_says_what_it_runs_on(tmp_path: Path) -> None:
    """As one that goes on, or was killed."""
    directory = SimulatedJob(1, steps=4).write(tmp_path / "run")
    begun = run_file("run", commit="1" * 40)
    (directory / "run.json").write_text(json.dumps(begun))
    about = summary_of(directory).setup
    assert about is not None
    assert "1" * 40 == about["commit"]


def test_a_baseline_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With the command that makes it."""
    with pytest.raises(ConfigError, match=r"no such file; gpuprof baseline RUN -o FILE"):
        read_baseline(tmp_path / "base.json")


def test_a_baseline_that_cannot_be_written_is_an_error(
    runs: dict[str, Summary], tmp_path: Path
) -> None:
    """With its path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/base\.json: cannot be written"):
        write_baseline(tmp_path / "file" / "base.json", [runs["a"]])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", "not a baseline"),
        ('{"format": "gpuprof-baseline", "version": 7}', "version 7; expected 5"),
        ('{"format": "gpuprof-baseline", "version": 5}', "damaged: runs: missing"),
        ('{"format": "gpuprof-baseline", "version": 5, "runs": []}', "contains no runs"),
        ("[", "damaged"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    """With its path and what is wrong."""
    path = tmp_path / "base.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"base\.json: .*{problem}"):
        read_baseline(path)


def test_a_run_with_a_killed_rank_is_not_compared(runs: dict[str, Summary]) -> None:
    """Nor made a baseline: its figures lack that rank."""
    killed = attrs.evolve(runs["b"], ended_early=["ActorGroup-1 ended early"])
    with pytest.raises(ConfigError, match=r"not comparable: B \(b\): ActorGroup-1 ended early"):
        compared(runs["a"], killed)
    with pytest.raises(ConfigError, match="no baseline: b: ActorGroup-1 ended early"):
        check_baseline([killed])
