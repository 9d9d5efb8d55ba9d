"""``gpuprof diff``."""

from __future__ import annotations

import click

from gpuprof._cli import settings


@click.command(
    epilog=settings.examples(
        "gpuprof diff run-a run-b --fail-if 'step > 5%, 20ms'",
        "gpuprof diff --baseline perf.json latest --fail-if 'rollout/generate > 10%'",
    )
)
@click.argument("names", nargs=-1, required=True, metavar="[A] B")
@settings.output_dir_option
@click.option("--baseline", metavar="FILE", help="Compare with a file of gpuprof baseline, not A.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 if this became slower. Repeatable. Default: 'step > 5%'.",
)
@click.option("--strict", is_flag=True, help="Refuse runs whose settings or versions differ.")
@settings.warm_up_option
@click.option("--json", "form", flag_value="json", help="Print JSON.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
@settings.wide_option
def command(
    names: tuple[str, ...],
    output_dir: str,
    baseline: str | None,
    conditions: tuple[str, ...],
    strict: bool,
    warm_up: int | None,
    form: str | None,
    width: int | None,
) -> None:
    """Compare run B with run A, or with a baseline.

    Lists what else differs, then what became slower and where. Reads the ledgers that every run
    leaves. Needs 30 steps in each run, beside warm-up and steps that profiling slowed. A run is a
    name, as `gpuprof runs` lists it, `latest`, or a directory.

    CONDITION is 'TARGET > 5%', 'TARGET > 20ms', or 'TARGET > 5%, 20ms' for both. TARGET is `step`,
    a worker group, or a scope: its path, the end of it, or a wildcard. It holds if the lower end of
    the change's interval lies above.

    Exit codes: 0 in order, 1 slower, 2 not comparable.
    """
    from gpuprof._analysis.diff import DEFAULT
    from gpuprof._analysis.summary import read_baseline, summary_of
    from gpuprof._report.diff import as_json, compare, condition, markdown, text
    from gpuprof._report.differences import differences, refuse

    count = 1 if baseline else 2
    if len(names) != count:
        expectation = "one run beside --baseline" if baseline else "two runs, A and B"
        raise click.UsageError(f"expected {expectation}; got {' '.join(names)}")
    thresholds = [condition(each) for each in conditions or (DEFAULT,)]
    before = read_baseline(baseline) if baseline else []
    summaries = [summary_of(settings.find_run(name, output_dir), warm_up) for name in names]
    before, after = before or summaries[:1], summaries[-1:]
    if strict:
        refuse(differences(before, after))
    comparison = compare(before, after, thresholds)
    if form == "json":
        click.echo(as_json(comparison))
    elif form == "markdown":
        click.echo(markdown(comparison))
    else:
        click.echo(text(comparison, width, settings.WIDE_HINT))
    if comparison.slower or not comparison.judged:
        raise SystemExit(1 if comparison.judged else 2)
