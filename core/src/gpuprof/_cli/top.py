"""``gpuprof top``."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import click

from gpuprof._artifacts import runs
from gpuprof._cli import settings
from gpuprof._terminal import printable, unescaped

_SHARE = 0.1
"""At most this share of a core is used, however large the run is."""


@click.command(epilog=settings.examples("gpuprof top", "gpuprof top latest --once --json"))
@settings.run_argument
@settings.output_dir_option
@click.option(
    "--every",
    type=click.FloatRange(0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between refreshes; more if a refresh takes long.",
)
@click.option("--once", is_flag=True, help="Print once and exit.")
@settings.json_option
def command(name: str, output_dir: str, every: float, once: bool, as_json: bool) -> None:
    """Show a running job's steps, what bounds them, and who waits for whom, until it ends.

    Reads what the job's processes write into the run's directory, so it costs the job nothing.
    Answers cover the last 30 steps. With --json, each refresh is a line.

    Without arguments, shows the last run in the output directory. RUN is a run's name, as
    `gpuprof runs` lists it, or `latest`. PATH is a run's directory, or
    one with runs, whose newest counts.
    """
    from gpuprof._analysis.live import Live
    from gpuprof._report import top

    path = settings.about_run(name, output_dir).directory
    live = Live(Path(path))
    screen = sys.stdout.isatty() and not once and not as_json
    while True:
        began = time.monotonic()
        picture = top.look(live)
        if picture is None:
            words = f"{path}: nothing has been recorded so far"
        else:
            words = top.as_json(picture) if as_json else top.text(picture)
        _show(words, screen)
        about = runs.about(path)
        if once or about is None or about.goes_on() is False:
            break
        took = time.monotonic() - began
        time.sleep(max(every, took / _SHARE))


def _show(words: str, screen: bool) -> None:
    """Print what was seen; on a screen, in place of what was seen before, as far as it fits.

    The last line that fits says how many do not.
    """
    if not screen:
        click.echo(words)
        return
    lines, most = printable(words).splitlines(), shutil.get_terminal_size().lines - 1
    if len(lines) > most:
        more = len(lines) - most + 1
        lines[most - 1 :] = [f"({more} more lines: a larger window, or --once, shows them)"]
    out = unescaped(sys.stdout)
    out.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    out.flush()
