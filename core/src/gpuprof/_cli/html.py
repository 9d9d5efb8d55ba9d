"""``gpuprof html``."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click

from gpuprof._artifacts import runs
from gpuprof._artifacts.receipt import size_text
from gpuprof._cli.settings import examples, no_link, output_dir_option
from gpuprof.errors import ToolError


@click.command(
    epilog=examples("gpuprof html latest", "gpuprof html last-week today -o compare.html")
)
@click.argument("name", default=runs.LATEST, metavar="[RUN | PATH]")
@click.argument("other", required=False, metavar="[RUN_B]")
@output_dir_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write. Default: page.html in the run's directory, compare.html in RUN_B's.",
)
@click.option(
    "--warmup",
    "warm_up",
    type=click.IntRange(0),
    metavar="N",
    help="Leave out the first N steps. Default: those that take longer.",
)
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
    paths = [
        each if os.path.isdir(each) or os.sep in each else runs.find(output_dir, each)
        for each in names
    ]
    for each, path in zip(names, paths, strict=True):
        if each == runs.LATEST and path != each:
            click.echo(f"run: {path}", err=True)
    default = "page.html" if other is None else "compare.html"
    file = Path(output or os.path.join(no_link(paths[-1]), default))
    problems = page.write(paths, file, warm_up)
    for problem in problems:
        click.echo(problem, err=True)
    click.echo(f"{file}: {size_text(file.stat().st_size)}; open it in a browser")
    if problems:
        raise SystemExit(1)
