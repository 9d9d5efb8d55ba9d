"""``gpuprof html``."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click

from gpuprof._artifacts.receipt import size_text
from gpuprof._cli import settings
from gpuprof.errors import ToolError


@click.command(
    epilog=settings.examples("gpuprof html latest", "gpuprof html last-week today -o compare.html")
)
@settings.run_argument
@click.argument("other", required=False, metavar="[RUN_B]")
@settings.output_dir_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write. Default: page.html in the run's directory, compare.html in RUN_B's.",
)
@settings.warm_up_option
def command(
    name: str, other: str | None, output_dir: str, output: str | None, warm_up: int | None
) -> None:
    """Write one page about a run, to look at in a browser.

    Shows what bounds a step and what to do next, the steps over time, any step as a Gantt chart
    with its critical path, each worker against its group, the timing trees, the ranges in the
    profilers' reports, the receipt, and the settings. With RUN_B, shows both runs side by side, and
    what became slower from RUN to RUN_B.

    The page is one file that needs no network. Without RUN, takes the last run in the output
    directory. RUN is a run's name, as `gpuprof runs` lists it, or `latest`. PATH is a run's
    directory.

    If any file of a run is broken, names it and exits with code 1.
    """
    if importlib.util.find_spec("jinja2") is None:
        raise ToolError("gpuprof html needs jinja2; install it with: pip install jinja2")
    from gpuprof._report import page  # needs the extra

    names = [name] if other is None else [name, other]
    paths = [settings.find_run(name_or_path, output_dir) for name_or_path in names]
    default = "page.html" if other is None else "compare.html"
    file = Path(output or os.path.join(settings.no_link(paths[-1]), default))
    problems = page.write(paths, file, warm_up)
    click.echo(f"{file}: {size_text(file.stat().st_size)}; open it in a browser")
    settings.end(problems)
