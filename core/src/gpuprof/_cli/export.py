"""``gpuprof export``."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprof._cli import settings


@click.command(
    epilog=settings.examples(
        "gpuprof export --anonymous", "gpuprof export --anonymous before after -o shared"
    )
)
@click.argument("names", nargs=-1, metavar="[RUN]...")
@settings.output_dir_option
@click.option(
    "--anonymous", is_flag=True, required=True, help="Hash all names. No other kind of copy exists."
)
@click.option(
    "-o",
    "--output",
    default="anonymous",
    show_default=True,
    metavar="DIR",
    help="Directory to make the copies in.",
)
def command(names: tuple[str, ...], output_dir: str, anonymous: bool, output: str) -> None:
    """Copy runs with hashed names, to show them to others.

    A run is a name, as `gpuprof runs` lists it, `latest`, or a directory. Without RUN, takes the
    last run in the output directory.

    Hashes the names of your functions, modules, files, scopes, workers, threads and nodes, and
    leaves out command lines, environment variables, messages, logs and reports. Keeps all numbers,
    and the names of Python's standard library, NumPy, torch, Ray and gpuprof. Runs that are copied
    together can be compared: the same name has the same hash in each.

    Exits with code 1 if a file of a run is broken.
    """
    from gpuprof._report.anonymous import export

    runs = [settings.find_run(name, output_dir) for name in dict.fromkeys(names or ("latest",))]
    copies, problems = export(runs, Path(output))
    for copy in copies:
        click.echo(f"{copy}: look at it before you share it: gpuprof explain {copy}")
    settings.end(problems)
