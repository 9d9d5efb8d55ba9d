"""``gpuprof explain``."""

from __future__ import annotations

import os

import click

from gpuprof._artifacts import runs
from gpuprof._cli.settings import WIDE_HINT, examples, output_dir_option, wide_option


@click.command(epilog=examples("gpuprof explain latest --step 40"))
@click.argument("name", required=False, default=runs.LATEST, metavar="[RUN | PATH]")
@output_dir_option
@click.option("--step", type=int, metavar="N", help="Show the critical path of step N.")
@click.option(
    "--warmup",
    "warm_up",
    type=click.IntRange(0),
    metavar="N",
    help="Leave out the first N steps. Default: those that take longer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@wide_option
def command(
    name: str,
    output_dir: str,
    step: int | None,
    warm_up: int | None,
    as_json: bool,
    width: int | None,
) -> None:
    """Explain why a step takes as long as it does.

    Shows where each group's time goes, the critical path of a step, stragglers and other causes,
    and what would help. Reads the ledgers that every run leaves. Leaves out warm-up, and steps that
    profiling slowed.

    Without arguments, explains the last run in the output directory. RUN is a run's name, as
    `gpuprof runs` lists it, or `latest`. PATH is a run's directory.
    """
    from gpuprof._report.explain import answer_of, text
    from gpuprof._report.explain import as_json as written

    path = name if os.path.isdir(name) or os.sep in name else runs.find(output_dir, name)
    if name == runs.LATEST and path != name:
        click.echo(f"run: {path}", err=True)
    answer = answer_of(path, step, warm_up)
    click.echo(written(answer) if as_json else text(answer, width, WIDE_HINT))
    if as_json:
        for problem in answer.problems:
            click.echo(problem, err=True)
    if answer.problems:
        raise SystemExit(1)
