"""Score `gpuprof explain` on generated jobs: ``python tests/truth --seed N --count N``."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from truth import adversary, page
from truth.jobs import SUITES, drawn
from truth.scoring import explained, judged, outcome, tables


def main() -> None:
    """Score a suite, or one of its jobs."""
    parser = argparse.ArgumentParser(prog="python tests/truth")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="how many jobs")
    parser.add_argument("--ranks", type=int, default=0, help="jobs of so many, without a cause")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print each answer that is not right")
    parser.add_argument("--page", action="store_true", help="write the tables into the page")
    parser.add_argument("--job", type=int, metavar="N", help="print only what is known of job N")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the ledgers of this job")
    parser.add_argument("--suite", choices=SUITES, default="usual", help="which kind of jobs")
    parser.add_argument("--adversary", type=float, metavar="MINUTES", help="search for so long for "
                        "jobs whose answers are wrong, and print the worst")  # fmt: skip
    given = parser.parse_args()
    if given.adversary:
        adversary.search(given.adversary, given.seed)
        return
    if given.page and (given.suite != "usual" or given.ranks):
        parser.error("the page is about the usual jobs: --page without --suite and --ranks")
    if given.job is not None:
        job = drawn(given.seed, given.job, suite=given.suite)
        if given.keep:
            job.write(given.keep)
        click.echo(f"{job}\nsavings: {job.savings}\n{judged(job, explained(job))}")
        return
    with multiprocessing.Pool(given.processes) as pool:
        cases = [(given.seed, number, given.ranks) for number in range(given.count)]
        outcomes = pool.map(functools.partial(outcome, suite=given.suite), cases, chunksize=1)
    if given.list:
        for each in outcomes:
            said = each.words or each.said
            if each.said == "wrong" or each.expected == "named" != each.said != "right":
                click.echo(f"{each.job} {each.topology}, {each.ranks} ranks: {each.said}: {said}; "
                      f"truth: {each.truth or 'nobody'}")  # fmt: skip
    found = tables(outcomes)
    for head, table in found.items():
        click.echo(f"\n{head}\n\n{table}")
    if given.page:
        page.write(given.seed, given.count, found)


if __name__ == "__main__":
    main()
