"""``gpuprof timeline``."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click

from gpuprof._artifacts.receipt import size_text
from gpuprof._cli import settings
from gpuprof.errors import ConfigError, ToolError


@click.command(epilog=settings.examples("gpuprof timeline --step 40"))
@settings.run_argument
@settings.output_dir_option
@click.option("--step", type=int, metavar="N", help="Show one step.")
@click.option("--steps", metavar="A:B", help="Show the steps from A on and before B.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write. Default: timeline….perfetto.gz in the run's directory.",
)
def command(
    name: str, output_dir: str, step: int | None, steps: str | None, output: str | None
) -> None:
    """Write one timeline of all processes of a run, for https://ui.perfetto.dev.

    Without RUN, takes the last run in the output directory. RUN is a run's name, as `gpuprof runs`
    lists it, or `latest`. PATH is a run's directory, or one with runs, whose newest counts.

    Shows the steps, the scopes of every worker's threads and tasks, capture windows, arrows from
    what finished to who waited for it, and what the profilers recorded. Open the file in
    https://ui.perfetto.dev; it is read in the browser and sent nowhere.

    If any file is broken, names it and exits with code 1.
    """
    if importlib.util.find_spec("perfetto") is None:
        raise ToolError("gpuprof timeline needs perfetto; install it with: pip install perfetto")
    from gpuprof._report import timeline  # needs the extra

    first, last = _chosen(step, steps)
    path = settings.find_run(name, output_dir)
    if not os.path.isdir(path):
        raise ConfigError(f"{path}: not found; expected a run's name or its directory")
    result = timeline.write(
        Path(path), Path(output or _default(settings.no_link(path), first, last)), first, last
    )
    for note in result.notes:
        click.echo(note, err=True)
    click.echo(
        f"{result.path}: {result.seconds:.3f} s of {result.processes} processes in "
        f"{result.slices} slices, {size_text(result.path.stat().st_size)}; open it in https://ui.perfetto.dev"
    )
    settings.end(result.problems)


def _chosen(step: int | None, steps: str | None) -> tuple[int | None, int | None]:
    """The first and the last step to show, from the options."""
    if steps is None:
        return step, step
    if step is not None:
        raise ConfigError("--step, --steps: only one of them can be given")
    first, _, stop = steps.partition(":")
    try:
        interval = int(first), int(stop) - 1
    except ValueError:
        interval = 0, -1
    if interval[0] > interval[1] or interval[0] < 0:
        raise ConfigError(f"--steps: {steps!r} is not valid; expected A:B with 0 <= A < B")
    return interval


def _default(directory: str, first: int | None, last: int | None) -> str:
    if first is None or last is None:
        which = ""
    else:
        which = f".step-{first}" if first == last else f".steps-{first}-{last}"
    return os.path.join(directory, f"timeline{which}.perfetto.gz")
