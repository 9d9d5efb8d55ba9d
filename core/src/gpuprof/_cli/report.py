"""``gpuprof report``."""

from __future__ import annotations

from pathlib import Path

import click

from gpuprof._artifacts import runs
from gpuprof._cli import settings
from gpuprof._report.ranges import files_of, gone, range_json, range_tables, read_ranges
from gpuprof._report.stacks import collapsed, read_profiles, speedscope
from gpuprof._report.trees import as_json as trees_as_json
from gpuprof._report.trees import merged, tree_tables
from gpuprof.errors import ConfigError


@click.command(epilog=settings.examples("gpuprof report", "gpuprof report latest --nvtx --by rank"))
@click.argument("names", nargs=-1, metavar="[RUN | PATH]...")
@settings.output_dir_option
@click.option(
    "--nvtx",
    "ranges",
    is_flag=True,
    help="Show the ranges in the profilers' reports instead of the timing trees.",
)
@click.option(
    "--stacks",
    type=click.Choice(["collapsed", "speedscope"]),
    help="Write the stack samples of all threads instead: collapsed for flame graph programs, "
    "speedscope as JSON. Times are microseconds.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --nvtx: override a key in a backend's section. Repeatable.",
)
@click.option(
    "--by",
    type=click.Choice(["rank"]),
    help="With --nvtx or --stacks: one table or profile for each rank.",
)
@settings.json_option
@settings.wide_option
def command(
    names: tuple[str, ...],
    output_dir: str,
    ranges: bool,
    stacks: str | None,
    overrides: tuple[str, ...],
    by: str | None,
    as_json: bool,
    width: int | None,
) -> None:
    """Show a run's timing trees, merged over the ranks of each group.

    Without arguments, shows the last run in the output directory. RUN is a run's name, as `gpuprof
    runs` lists it, or `latest`. PATH is a run's directory, a file in it, or a file that
    `Timing.write_at_exit` has written.

    With --stacks, writes the sampled stacks of all threads, by group, thread and scope.

    Leaves out the steps that profiling slowed; a line below each tree gives their total time. With
    --nvtx, shows the nested ranges of each window, by run and group.

    If any file is broken or missing, names it and exits with code 1.
    """
    if overrides and not ranges:
        raise ConfigError(
            [
                f"--set: {override!r} needs --nvtx: timing trees need no backend"
                for override in overrides
            ]
        )
    if by and not ranges and not stacks:
        raise ConfigError(
            f"--by: {by!r} needs --nvtx or --stacks: timing trees are merged over ranks"
        )
    if stacks and (ranges or as_json):
        raise ConfigError(f"--stacks: {stacks!r} is not valid with --nvtx or --json")
    paths = [settings.find_run(name, output_dir, whole=True) for name in names or (runs.LATEST,)]
    files = files_of(paths)
    if stacks:
        profiles, problems = read_profiles(map(Path, paths), by == "rank")
        if not profiles and not problems:
            raise ConfigError(
                f"--stacks: {', '.join(paths)}: no stacks were sampled; see the key sampling"
            )
        click.echo(collapsed(profiles) if stacks == "collapsed" else speedscope(profiles))
        settings.end(problems)
        return
    if ranges:
        windows, empty, problems = read_ranges(files, overrides, by == "rank")
        problems += gone(paths)
        click.echo(
            range_json(windows) if as_json else range_tables(windows, width, settings.WIDE_HINT)
        )
        for file in empty:
            click.echo(
                f"{file}: no gpuprof range in it: the worker opened none, or the profiler lost "
                "them",
                err=True,
            )
    else:
        trees, problems = merged(files)
        click.echo(
            trees_as_json(trees) if as_json else tree_tables(trees, width, settings.WIDE_HINT)
        )
    settings.end(problems)
