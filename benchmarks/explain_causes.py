"""Does ``gpuprof explain`` find causes, and none where there is none?

Simulates runs of a PPO job as real ledgers: nine causes, each planted in groups of two and of
four, with twenty seeds; and runs without a cause. Nothing may be fitted to these seeds: who does
takes others. Prints how often the right worker and scope are named, and how far what-if is off,
beside the same run in which the cause is really removed. Fails if a goal is missed. Real runs:
`explain_on_ray.py`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpuprof._analysis import reading
from gpuprof._analysis.explain import Explanation, explain
from support.simulated_job import CAUSES, Job, found_as_planted
from tabulate import tabulate

FOUND = 0.95
"""Goal: right worker and scope. Without a cause: nobody is named."""
Outcome = tuple[str, int, int, bool, float | None, float | None, str]


def explained(cause: str | None, seed: int, ranks: int, steps: int) -> Explanation:
    """Simulate a run and explain it."""
    with tempfile.TemporaryDirectory() as place:
        return explain(reading.read(Job(cause, seed, ranks, steps).write(Path(place, "run"))))


def one(case: tuple[str | None, int, int, int]) -> Outcome:
    """Whether a run's answer is right, what it says removal saves, and what that really saves."""
    cause, seed, ranks, steps = case
    answer = explained(*case)
    first = next((finding for finding in answer.findings if finding.cause != "once"), None)
    said = f"{first.cause}: {first.worker} {first.scope}" if first else "nobody"
    if cause is None:
        return "none", seed, ranks, first is None, None, None, said
    without = explained(None, seed, ranks, steps)
    saved = 1 - without.seconds["mean"] / answer.seconds["mean"]
    right = first is not None and found_as_planted(cause, first)
    return cause, seed, ranks, right, first.saves if first else None, saved, said


def main() -> int:
    """Explain all runs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20, help="runs of each cause and size")
    parser.add_argument("--first", type=int, default=20, help="the first seed")
    parser.add_argument("--without", type=int, default=60, help="runs without a cause")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    cases: list[tuple[str | None, int, int, int]] = [
        (cause, seed, ranks, given.steps)
        for cause in CAUSES
        for ranks in (2, 4)
        for seed in range(given.first, given.first + given.seeds)
    ]
    cases += [
        (None, 1000 + given.first + seed, (2, 4)[seed % 2], given.steps)
        for seed in range(given.without)
    ]
    with multiprocessing.Pool(given.processes) as pool:
        outcomes = pool.map(one, cases, chunksize=4)
    rows, met = [], True
    for cause in [*CAUSES, "none"]:
        mine = [outcome for outcome in outcomes if outcome[0] == cause]
        right = sum(outcome[3] for outcome in mine)
        both = [
            (said, saved) for *_, said, saved, _ in mine if said is not None and saved is not None
        ]
        off = [abs(said - saved) for said, saved in both]
        goal = len(mine) if cause == "none" else FOUND * len(mine)
        met = met and right >= goal
        rows.append(
            [
                cause,
                f"{right} of {len(mine)}",
                *(
                    [
                        f"{100 * statistics.mean(saved for _, saved in both):.1f} %",
                        f"{100 * statistics.median(off):.1f}",
                        f"{100 * max(off):.1f}",
                    ]
                    if both
                    else ["", "", ""]
                ),
            ]
        )
        for _, seed, ranks, is_right, *_, said in mine:
            if not is_right:
                print(f"{cause}, seed {seed}, {ranks} ranks: {said}")
    heads = ["cause", "right", "removal saves", "what-if off by (median)", "(most)"]
    print(tabulate(rows, heads, tablefmt="github", disable_numparse=True))
    print("what-if is off by percentage points of a step")
    return not met


if __name__ == "__main__":
    sys.exit(main())
