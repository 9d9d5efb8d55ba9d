"""``gpuprof explain``."""

from __future__ import annotations

import click

from gpuprof._cli import settings


@click.command(epilog=settings.examples("gpuprof explain latest --step 40"))
@settings.run_argument
@settings.output_dir_option
@click.option("--step", type=int, metavar="N", help="Show the critical path of step N.")
@settings.warm_up_option
@settings.json_option
@settings.wide_option
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
    `gpuprof runs` lists it, or `latest`. PATH is a run's directory, or
    one with runs, whose newest counts.
    """
    from gpuprof._report.explain import answer_of, text
    from gpuprof._report.explain import as_json as written

    answer = answer_of(settings.find_run(name, output_dir), step, warm_up)
    click.echo(written(answer) if as_json else text(answer, width, settings.WIDE_HINT))
    if as_json:
        for problem in answer.problems:
            click.echo(problem, err=True)
    if answer.problems:
        raise SystemExit(1)
