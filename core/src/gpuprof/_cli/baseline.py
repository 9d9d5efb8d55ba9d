"""``gpuprof baseline``."""

from __future__ import annotations

import click

from gpuprof._cli import settings


@click.command(epilog=settings.examples("gpuprof baseline run-1 run-2 run-3 -o perf.json"))
@click.argument("names", nargs=-1, required=True, metavar="RUN...")
@settings.output_dir_option
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")
@settings.warm_up_option
def command(names: tuple[str, ...], output_dir: str, output: str, warm_up: int | None) -> None:
    """Write the figures of good runs to a small file, for gpuprof diff --baseline.

    Use runs of the same job with the same settings. From three runs on, comparisons take their
    spread into account. A run is a name, as `gpuprof runs` lists it, `latest`, or a directory.
    """
    from gpuprof._analysis.summary import summary_of, write_baseline
    from gpuprof._report.diff import check_baseline
    from gpuprof._report.differences import differences

    summaries = [summary_of(settings.find_run(name, output_dir), warm_up) for name in names]
    check_baseline(summaries)
    for number, run in enumerate(summaries[1:], 2):
        for difference in differences(summaries[:1], [run]):
            click.echo(
                f"run 1 and run {number} differ in {difference.what}: "
                f"{difference.before}, {difference.after}",
                err=True,
            )
    size = write_baseline(output, summaries)
    number_of_runs = "1 run" if len(summaries) == 1 else f"{len(summaries)} runs"
    click.echo(f"{output}: {number_of_runs}, {size} bytes")
