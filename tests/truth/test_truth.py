"""The suite that judges explain, judged itself, and what must hold of any answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from gpuprof._analysis.reading import read
from support.made_ledgers import RELEASES, WAITS

from truth.adversary import Description
from truth.causes import COLLECTOR, START, SUBMIT, UNEVEN, Accusation, Cause
from truth.fresh import FRESH
from truth.jobs import Job, drawn
from truth.rollouts import BYTES, LENGTH, ROLLOUTS, TOKENS
from truth.scoring import explained, first_named, judged, names, outcome
from truth.second import SECOND
from truth.topologies import LOAD, TOPOLOGIES, WEIGHTS
from truth.world import DRIVER, Machine, Recorder

SEED = 7
"""Of the jobs here."""
ALL = TOPOLOGIES | FRESH | SECOND | ROLLOUTS
SOME = [
    pytest.param(name, marks=pytest.mark.exhaustive if number % 3 else ())
    for number, name in enumerate(ALL)
]
"""Every third one in each run."""


def job(topology: str, *causes: Cause, ranks: int = 8, steps: int = 20, **machine: Any) -> Job:
    """A job with some causes, on machines that are idle."""
    groups = ALL[topology].groups(ranks)
    kinds = tuple(cause.kind for cause in causes)
    return Job("made", topology, Machine(SEED, steps, groups, **machine), kinds, causes)


def slow_rank(topology: str, rank: int = 2, size: float = 1.0) -> Cause:
    """A cause that each topology can have."""
    group, scopes = next(iter(ALL[topology].places.items()))
    return Cause("slow rank", group, (rank,), scopes[0], size)


def contents(directory: Path) -> dict[str, bytes]:
    """The ledgers in a directory."""
    files = sorted(directory.glob("*/*.ledger"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


# The generator


@pytest.mark.parametrize("topology", SOME)
def test_a_cause_of_size_zero_changes_nothing(topology: str) -> None:
    """So no draw shifts when a cause is removed."""
    none = tuple(
        Cause(kind, group, (), scope, 0.0, 20.0)
        for kind in ("slow rank", "drift", "imbalance", "pauses", "checkpoint", "late start")
        for group in ALL[topology].groups(8)
        for scope in (*ALL[topology].places.get(group, ()), START, LOAD)
    )
    usual = job(topology, distribution="log-normal 40 %", noise="overloaded")
    assert usual.run(()).edges == usual.run(none).edges


@pytest.mark.parametrize("topology", sorted({*ALL} - {*SECOND} - {"free rollouts"}))
def test_a_cause_makes_the_loop_longer(topology: str) -> None:
    """A rank that takes three times as long is never free, but where others make up for it."""
    slow = job(topology, slow_rank(topology, size=2.0), ranks=3)
    assert slow.truth.keys() == {(0,)}


def test_a_cause_changes_no_work_but_its_own() -> None:
    """Of the ranks and scopes, one cell."""
    made = job("fan-out")
    usual, slow = made.run(()), made.run((slow_rank("fan-out", rank=2),))
    ratio = slow.times("Trainer", "forward", 8) / usual.times("Trainer", "forward", 8)
    assert ratio[0].tolist() == [1, 1, 2, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("number", range(4))
def test_the_same_seed_makes_the_same_ledgers(number: int, tmp_path: Path) -> None:
    """Byte by byte."""
    first = contents(drawn(SEED, number).write(tmp_path / "run"))
    assert first == contents(drawn(SEED, number).write(tmp_path / "again" / "run"))


@pytest.mark.parametrize("topology", SOME)
def test_each_topology_makes_the_same_ledgers_again(topology: str, tmp_path: Path) -> None:
    """And recording them takes no time."""
    made = job(topology, slow_rank(topology), distribution="by length", noise="loaded")
    first = contents(made.write(tmp_path / "run"))
    assert first == contents(made.write(tmp_path / "again" / "run"))
    recorded = made.run(made.causes, Recorder(made.machine))
    assert made.run(made.causes).edges == recorded.edges


@pytest.mark.parametrize("topology", FRESH | SECOND)
def test_a_wait_ends_after_what_it_waits_for(topology: str) -> None:
    """And ranks that meet leave together, after the last has come."""
    made = job(topology, slow_rank(topology, rank=1), noise="overloaded")
    recorder = Recorder(made.machine)
    made.run(made.causes, recorder)
    released: dict[str, int] = {}
    waits: list[tuple[str, int]] = []
    meetings: dict[str, list[tuple[int, int]]] = {}
    ledgers = [ledger for group in recorder.ledgers.values() for ledger in group]
    for *_, begin, end, key, role in [link for ledger in ledgers for link in ledger.links]:
        if role == RELEASES:
            released[key] = end
        elif role == WAITS:
            waits.append((key, end))
        else:
            meetings.setdefault(key, []).append((begin, end))
    assert not [key for key, end in waits if released[key] > end]
    for met in meetings.values():
        assert {end for _, end in met} == {met[0][1]}
        assert max(begin for begin, _ in met) < met[0][1]


@pytest.mark.parametrize("number", range(4))
def test_fresh_jobs_are_drawn_from_the_fresh_topologies(number: int) -> None:
    """Whose causes are of groups, ranks and scopes that they have."""
    made = drawn(SEED, number, suite="fresh")
    assert made.topology in FRESH
    for cause in made.causes:
        assert made.run((attrs.evolve(cause, size=20.0),)).edges != made.run(()).edges


def test_another_seed_makes_other_ledgers(tmp_path: Path) -> None:
    """Otherwise all jobs of a suite are one."""
    first = contents(drawn(SEED, 0).write(tmp_path / "run"))
    assert first != contents(drawn(SEED + 1, 0).write(tmp_path / "again" / "run"))


@pytest.mark.parametrize("topology", SOME)
def test_the_ledgers_tell_the_loop_that_the_truth_is_about(topology: str, tmp_path: Path) -> None:
    """The steps that explain reads are those that were simulated."""
    made = job(topology)
    recorder = Recorder(made.machine)
    world = made.run((), recorder)
    answer = explained(made)
    lasted = [end - begin for begin, end in world.edges]
    assert answer["steps"]["all"] == len(lasted)
    if DRIVER in made.machine.groups:
        counted = lasted[answer["steps"]["all"] - answer["steps"]["counted"] :]
        assert pytest.approx(sum(counted) / len(counted) / 1000) == answer["seconds"]["mean"]


def test_two_slow_ranks_are_one_truth() -> None:
    """Removing either saves nothing, as the other one is as slow."""
    two = job("fan-out", slow_rank("fan-out", 2), slow_rank("fan-out", 5))
    assert two.truth.keys() == {(0, 1)}


def test_what_happens_before_a_hidden_collective_cannot_be_seen() -> None:
    """Whichever rank is slow there, all leave together, and none of them arrived late."""
    slow = job("hidden collective", Cause("slow rank", "Rank", (2,), "backward", 1.0))
    recorder = Recorder(slow.machine)
    slow.run(slow.causes, recorder)
    ends = [
        [end for place, _, _, end in ledger.spans if place == ledger.place("backward")]
        for ledger in recorder.ledgers["Rank"]
    ]
    assert all(each == ends[0] for each in ends)
    assert not slow.observable


# The scorer


def finding(worker: str, scope: str, saves: float | None = 0.3, cause: str = "rank") -> Any:
    """What an answer has of a cause."""
    first, *others = worker.split()
    group = first.rpartition("-")[0] or first
    about = {"worker": first, "workers": [first, *others], "group": group}
    about = {**about, "cause": cause, "scope": scope, "saves": saves, "grade": "named"}
    return {**about, "samples": None}


def answer(*findings: Any, enough: bool = True) -> dict[str, Any]:
    """What of an answer is judged."""
    return {"findings": list(findings), "confidence": {"enough": enough}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer(finding("Trainer-2", "forward")), "right"),
        (answer(finding("Trainer-2", "(several scopes)", None)), "right"),
        (answer(finding("Trainer-3 Trainer-2", "forward")), "right"),
        (answer(finding("Trainer-3 Trainer-4 Trainer-2", "forward")), "other"),
        (answer(finding("Trainer-3", "forward")), "wrong"),
        (answer(finding("Trainer-2", "backward")), "wrong"),
        (answer(finding("Trainer-1 Trainer-2", "forward", cause="data")), "right"),
        (answer(finding("Trainer-3", "forward", 0.0), finding("Trainer-2", "forward")), "right"),
        (answer(finding("Trainer-3", "forward", None, "once")), "nobody"),
        (answer(), "nobody"),
        (answer(enough=False), "abstained"),
    ],
)
def test_an_answer_is_judged_by_its_first_cause(given: dict[str, Any], said: str) -> None:
    """What is said to be off the path, or to have happened once, accuses nobody."""
    assert said == judged(job("fan-out", slow_rank("fan-out", 2)), given).said


def test_a_right_claim_is_what_removal_saves() -> None:
    """The median of the others is what the rank takes without its cause, but for noise."""
    slow = job("fan-out", slow_rank("fan-out", 2))
    claim = Accusation("Trainer", (2,), "forward")
    assert pytest.approx(slow.savings[0,], abs=0.01) == slow.saves(claim)


@pytest.mark.parametrize(
    ("cause", "expected"), [((), "nobody"), ((0.02,), "nobody"), ((2.0,), "named")]
)
def test_who_saves_less_than_5_percent_need_not_be_named(
    cause: tuple[float, ...], expected: str
) -> None:
    """It is no error to name him, either."""
    causes = [slow_rank("fan-out", size=size) for size in cause]
    assert expected == judged(job("fan-out", *causes), answer()).expected


# Explain


def test_plain_slow_ranks_are_named() -> None:
    """On idle machines, in a third of the topologies at least; in most of them today."""
    said = [
        judged(made, explained(made)).said
        for made in (job(topology, slow_rank(topology), ranks=6) for topology in TOPOLOGIES)
    ]
    assert 3 * said.count("right") >= len(TOPOLOGIES), said


def test_few_accusations_are_wrong() -> None:
    """Of jobs whose ledgers have what they wait for, a sixth at most; some percent today."""
    recorded = [each for each in (outcome((SEED, n)) for n in range(16)) if not each.lacks]
    assert 6 * sum(each.said == "wrong" for each in recorded) <= len(recorded)


@pytest.mark.parametrize("topology", ["parameter server", "queue"])
def test_a_slow_server_is_named_with_what_half_its_time_saves(topology: str) -> None:
    """By a claim that the same job, with the server at half its time, bears out."""
    group, scope = TOPOLOGIES[topology].server
    made = job(topology, Cause("slow server", group, (0,), scope, 8.0))
    found = judged(made, explained(made))
    assert ("right", f"server: {group}-0 in {scope}") == (found.said, found.words)
    assert pytest.approx(found.real, abs=0.02) == found.claimed


@pytest.mark.parametrize("topology", ["fan-out", "federated"])
def test_a_driver_that_is_slow_to_send_its_calls_is_named(topology: str) -> None:
    """Its ledger tells that it runs then, even in a loop of a second or two."""
    made = job(topology, Cause("slow submission", DRIVER, (0,), SUBMIT, 2.0, 20.0))
    assert "right" == judged(made, explained(made)).said


def of_samples(topology: str, kind: str, size: float) -> Job:
    """A job whose samples have a cause."""
    group, scope = ROLLOUTS[topology].sites[kind]
    return job(topology, Cause(kind, group, (), scope, size, seed=SEED), ranks=6)


@pytest.mark.parametrize(
    ("topology", "kind", "size"),
    [
        ("agent loop", "tail", 1.0),
        ("agent loop", "slow tool", 2.0),
        ("agent loop", "slow reward", 4.0),
        ("agent loop", "uneven tokens", 0.6),
        ("free rollouts", "slow tool", 6.0),
        ("free rollouts", "slow rollouts", 1.0),
        ("free rollouts", "lost samples", 1.0),
        ("free rollouts", "slow learner", 0.07),
    ],
)
def test_a_cause_of_samples_is_named_with_what_it_saves(
    topology: str, kind: str, size: float
) -> None:
    """By a claim that the same job without it bears out."""
    made = of_samples(topology, kind, size)
    found = judged(made, explained(made))
    assert "right" == found.said, found
    assert pytest.approx(found.real, abs=0.04) == found.claimed


def test_capped_samples_are_no_longer_than_the_cap(tmp_path: Path) -> None:
    """Whatever else makes samples of unlike length: the truth of a claimed tail is such a job."""
    made = of_samples("agent loop", "tail", 1.0)
    recorder = Recorder(made.machine)
    made.run(made.causes, recorder, Accusation("Rollout", (), LENGTH, to="capped", most=20.0))
    samples = read(recorder.write(tmp_path / "run")).samples
    tokens = np.nan_to_num(samples.notes["tokens"])
    assert 20 * TOKENS == np.bincount(samples.sample, tokens).max()


def test_uneven_tokens_cost_what_dealing_them_evenly_saves() -> None:
    """Shorter samples would be another job, not the same one with its samples dealt evenly."""
    made = of_samples("agent loop", "uneven tokens", 0.6)
    assert {(0,): made.saves(Accusation("Rollout", (), LENGTH, to="dealt"))} == made.savings


@pytest.mark.parametrize("distribution", ["log-normal 15 %", "log-normal 40 %"])
def test_uneven_tokens_do_not_claim_what_is_noise(distribution: str) -> None:
    """A worker that is slow in a step for another reason is so with other samples, too."""
    cause = Cause("uneven tokens", "Rollout", (), LENGTH, 0.6, seed=1)
    made = job("agent loop", cause, ranks=6, distribution=distribution)
    answer = explained(made)
    uneven = [each for each in answer["findings"] if each["cause"] == "uneven tokens"]
    found = judged(made, {**answer, "findings": uneven})
    assert not uneven or found.claimed <= found.real + 0.04


def test_slow_weights_are_named_with_their_bandwidth() -> None:
    """By the bytes that a phase of the weights notes, and how long it takes."""
    cause = Cause("slow sync", "Rollout", (), WEIGHTS, 0.5, 45.0)
    made = job("agent loop", cause, ranks=6)
    answer = explained(made)
    found = judged(made, answer)
    assert "right" == found.said, found
    assert pytest.approx(found.real, abs=0.02) == found.claimed
    seconds = made.run(made.causes).times("Rollout", WEIGHTS, 1, works=False).mean() / 1e3
    rate = re.search(r"hands over 1.0 GiB, at ([\d.]+) GiB", answer["findings"][0]["says"])
    assert rate is not None
    assert pytest.approx(BYTES / 2**30 / seconds, rel=0.02) == float(rate[1])


def test_long_samples_that_nobody_waits_for_accuse_nobody() -> None:
    """They are in flight beside a trainer whose buffer is never empty."""
    made = of_samples("free rollouts", "tail", 1.0)
    assert "nobody" == judged(made, explained(made)).said


@pytest.mark.parametrize("topology", ["stale rollouts", "elastic"])
@pytest.mark.parametrize(
    ("cause", "named"),
    [(Cause("slow node", "", node="node-1"), "node-1"), (None, "-5")],
    ids=["node", "rank"],
)
def test_a_node_is_told_from_a_rank_on_it(topology: str, cause: Cause | None, named: str) -> None:
    """Also where ranks run freely or stay away, so that they make different numbers of calls."""
    made = job(topology, cause or slow_rank(topology, 5), ranks=12, steps=60, per_node=4)
    finding = first_named(explained(made))
    assert finding is not None
    assert finding["worker"].endswith(named)


def test_a_slow_rank_of_a_pool_is_worth_what_is_claimed() -> None:
    """Were it faster, it would get more of the calls."""
    made = job("impala", slow_rank("impala", 1), ranks=4, steps=60)
    found = judged(made, explained(made))
    assert "right" == found.said
    assert pytest.approx(found.real, abs=0.02) == found.claimed


def test_a_slow_worker_of_a_server_is_worth_what_is_claimed() -> None:
    """Were it faster, the server would take its gradients sooner."""
    made = job("parameter server", slow_rank("parameter server"))
    found = judged(made, explained(made))
    assert "right" == found.said
    assert pytest.approx(found.real, abs=0.02) == found.claimed


@pytest.mark.parametrize(
    ("number", "whom"),
    [
        pytest.param(19, "Replay-3", id="calls-back-to-back"),
        pytest.param(52, "Engine-3", id="somebody-waits-for-the-last"),
        pytest.param(74, "Writer-0", id="few-calls-of-two-servers"),
    ],
)
def test_a_fresh_job_is_answered_with_what_it_is_worth(number: int, whom: str) -> None:
    """Each of them was once missed, or said to be worth less than half."""
    made = drawn(9301, number, suite="fresh")
    answer = explained(made)
    found = judged(made, answer)
    assert ("right", whom) == (found.said, answer["findings"][0]["worker"])
    assert pytest.approx(found.real, abs=0.02) == found.claimed


@pytest.mark.parametrize(
    ("suite", "seed", "number", "words"),
    [
        pytest.param("usual", 9302, 35, "rank: Worker-15 in compute", id="seldom-the-slowest"),
        pytest.param("usual", 7102, 113, "recurring: Rank-0 in save_checkpoint",
                     id="ranks-meet-unseen-and-are-seldom-apart"),
        pytest.param("usual", 9503, 160, "node: node-0 in forward",
                     id="a-node-among-ranks-that-may-have-another-part-elsewhere"),
        pytest.param("usual", 9503, 109, "pauses: Rank-3 in forward",
                     id="equal-times-are-no-turns"),
        pytest.param("usual", 9503, 16, "pauses: Stage-1 in work", id="a-single-pause"),
        pytest.param("usual", 9503, 21, "imbalance: Worker-1 and Worker-3 and Worker-5 in compute",
                     id="two-parts-and-a-pause"),
        pytest.param("fresh", 9511, 17, "pauses: Trainer-0 in forward",
                     id="a-pause-while-another-worker-does-what-is-rare"),
        pytest.param("fresh", 9511, 39, "rank: Mapper-2 and Mapper-3 in map_batches",
                     id="half-of-a-pool"),
        pytest.param("fresh", 9512, 67, "late start: Trainer-4 in (before its first scope)",
                     id="late-on-a-node-that-is-hardly-slower"),
        pytest.param("usual", 9801, 5, "only this rank: Rank-0 in log_metrics",
                     id="stages-that-follow-each-other-do-not-meet"),
        pytest.param("usual", 9801, 84, "recurring: Rank-0 in save_checkpoint",
                     id="two-of-many-ranks-meet-unseen"),
        pytest.param("usual", 9911, 22, "node: node-0 in backward",
                     id="a-node-and-another-rank-are-half-of-the-ranks"),
        pytest.param("usual", 9801, 13, "drift: Rank-7 in backward",
                     id="the-node-is-a-stage-with-more-to-do"),
        pytest.param("usual", 9913, 84, "rank: Worker-2 in compute",
                     id="mostly-the-slowest-where-work-varies"),
        pytest.param("usual", 9915, 59, "imbalance: Rank-1 and Rank-3 and Rank-5 in backward",
                     id="more-than-what-happened-once"),
        pytest.param("usual", 9915, 86, "node: node-1 in forward",
                     id="a-node-and-a-pair-that-share-a-rank"),
        pytest.param("fresh", 9916, 76, "node: node-0 in generate",
                     id="several-groups-on-a-node"),
        pytest.param("fresh", 9918, 7, "node: node-0 in generate",
                     id="a-node-beside-what-all-ranks-do-as-long"),
        pytest.param("usual", 9941, 115, "node: node-2 in (several scopes)",
                     id="a-node-beside-what-is-done-in-few-steps"),
        pytest.param("fresh", 9962, 20, "imbalance: Worker in backward",
                     id="by-turns-where-ranks-come-and-go"),
        pytest.param("fresh", 9916, 95,
                     "imbalance: Trial-8 and Trial-9 and Trial-10 in Trial.train",
                     id="an-even-share-would-save-nothing"),
        pytest.param("parts", 10013, 39, "drift: Trial-2 in Trial.train",
                     id="levels-far-apart-are-no-walk"),
        pytest.param("usual", 9984, 107, "pauses: Trainer-4 in forward",
                     id="one-pause-that-costs-nearly-three-times-as-much-as-any-other"),
        pytest.param("usual", 10021, 17, "rank: Worker-29 in compute",
                     id="others-take-as-long-in-each-step-and-do-not-wait"),
        pytest.param("usual", 10021, 105, "late start: Rank-4 in (before its first scope)",
                     id="what-follows-a-meeting-varies-more-than-who-comes-last"),
        pytest.param("fresh", 10022, 22, "node: node-0 in values",
                     id="a-node-that-costs-little-in-each-of-many-groups"),
        pytest.param("fresh", 10012, 64, "late start: Trainer-2 in (before its first scope)",
                     id="a-replay-tells-more-than-an-excess"),
        pytest.param("fresh", 10012, 115, "node: node-3 in forward",
                     id="a-node-and-one-rank-of-another"),
        pytest.param("usual", 10021, 31, "pauses: Stage-0 in work",
                     id="a-pause-that-the-other-stages-partly-caught-up"),
        pytest.param("fresh", 10022, 53, "pauses: Rank-14 in forward",
                     id="a-pause-that-costs-more-than-what-one-rank-does"),
        pytest.param("second", 10101, 93, "node: node-1 in backward",
                     id="what-half-of-the-ranks-do-is-their-part"),
        pytest.param("second", 10101, 14, "between steps: Rank in (between steps)",
                     id="steps-of-ranks-that-do-not-meet-overlap"),
        pytest.param("second", 10102, 70, "between steps: Sampler in (between steps)",
                     id="others-work-on-between-steps"),
    ],
)  # fmt: skip
def test_a_drawn_job_is_answered_rightly(suite: str, seed: int, number: int, words: str) -> None:
    """Each of them was once missed, or answered with somebody else."""
    made = drawn(seed, number, suite=suite)
    found = judged(made, explained(made))
    assert ("right", words) == (found.said, found.words)


def test_nothing_lies_between_steps_where_a_pause_cuts_one_short() -> None:
    """A step that is left out is no gap."""
    findings = explained(drawn(10001, 14))["findings"]
    assert "between steps" not in [finding["cause"] for finding in findings]


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        pytest.param(10101, 6, id="calls-that-mostly-wait"),
        pytest.param(10102, 71, id="calls-whose-results-are-taken-at-once"),
    ],
)
def test_a_better_order_of_calls_is_not_claimed(seed: int, number: int) -> None:
    """Where it would save nothing."""
    findings = explained(drawn(seed, number, suite="second"))["findings"]
    assert "imbalance" not in [finding["cause"] for finding in findings]


def test_an_even_share_is_not_claimed_where_whoever_is_free_works() -> None:
    """Engines behind a router."""
    first = explained(drawn(9916, 15, suite="fresh"))["findings"][0]
    assert ("bottleneck", None) == (first["cause"], first["evenly"])


def test_a_group_that_is_as_fast_on_all_nodes_clears_a_node() -> None:
    """Another group is slower there."""
    findings = explained(drawn(9918, 42, suite="fresh"))["findings"]
    assert "node" not in [finding["cause"] for finding in findings]


@pytest.mark.parametrize(
    ("suite", "seed", "number"),
    [
        pytest.param("usual", 9911, 72, id="end-stages-with-half-as-many-exchanges"),
        pytest.param("fresh", 9912, 55, id="a-small-part-beside-a-worker-that-always-works"),
        pytest.param("fresh", 9912, 67, id="others-work-between-the-drivers-steps"),
    ],
)
def test_nobody_is_accused_where_a_wait_may_look_like_work(
    suite: str, seed: int, number: int
) -> None:
    """Their ledgers lack who waits for whom."""
    made = drawn(seed, number, suite=suite)
    assert judged(made, explained(made)).said in ("abstained", "nobody")


@pytest.mark.parametrize(("seed", "number"), [(9402, 75), (9402, 221), (9405, 181)])
def test_who_is_late_and_still_waits_for_a_device_is_not_accused(seed: int, number: int) -> None:
    """A host that runs ahead of its device has time for its loader."""
    made = drawn(seed, number)
    assert "abstained" == judged(made, explained(made)).said


@pytest.mark.parametrize("topology", ["fan-out", "data parallel", "pairs", "one step off", "chain"])
def test_permuting_ranks_permutes_who_is_named(topology: str, tmp_path: Path) -> None:
    """Nobody is named for his number."""
    made = job(topology, slow_rank(topology, rank=1), ranks=6, noise="loaded")
    group = next(iter(TOPOLOGIES[topology].places))
    ranks = made.machine.groups[group]
    order = [(3 * rank + 5) % ranks if ranks % 3 else ranks - 1 - rank for rank in range(ranks)]
    named = [first_named(explained(made, renamed=renamed)) for renamed in ({}, {group: order})]
    assert [f"{group}-1", f"{group}-{order[1]}"] == [each and each["worker"] for each in named]


@pytest.mark.parametrize("topology", ["fan-out", "data parallel", "mixed steps"])
def test_without_keys_nobody_else_is_named(topology: str) -> None:
    """Less of a record may lower an answer's certainty, and accuses nobody else."""
    made = attrs.evolve(job(topology, slow_rank(topology)), record="no keys")
    named = first_named(explained(made))
    assert named is None or names(named, made.causes[0])


def test_pauses_of_the_garbage_collector_are_in_the_ledgers() -> None:
    """Those of the rank that it stops, as long as they make its scope longer."""
    cause = Cause(COLLECTOR, "Trainer", (2,), "forward", 1.0, 22.0)
    made = job("fan-out", cause)
    recorder = Recorder(made.machine)
    made.run(made.causes, recorder)
    steps, pause = cause.occasions(made.machine.steps)
    lasted = [end - begin for _, begin, end in recorder.ledgers["Trainer"][2].collections]
    assert pytest.approx([pause * 1e6] * len(steps)) == lasted


@pytest.mark.parametrize(
    "description",
    [
        # actors go on working while the driver is between two steps
        Description("impala", 6, 38, 2418, noise="rare preemption",
                    causes=(("between steps", 0.83),)),
        # two of five ranks have more to do
        Description("parameter server", 5, 40, 3, causes=((UNEVEN, 2.0),)),
    ],
)  # fmt: skip
def test_what_the_adversary_found_accuses_nobody_wrongly(description: Description) -> None:
    """Each of these jobs was once answered with somebody whose removal saves nothing."""
    assert "wrong" != judged(description.job, explained(description.job)).said


@pytest.mark.parametrize("number", range(6))
def test_doubling_all_times_changes_no_share(number: int) -> None:
    """Seconds are twice as many, and what they are a share of, too."""
    made = drawn(SEED, number)
    shares = [
        [(each["worker"], each["scope"], each["saves"] and pytest.approx(each["saves"], abs=1e-3))
         for each in explained(made, scale=scale)["findings"]]
        for scale in (1, 2)
    ]  # fmt: skip
    assert shares[0] == shares[1]
