"""``gpuprof stacks``."""

from __future__ import annotations

import time

import click

from gpuprof._cli import settings
from gpuprof._session import stall
from gpuprof.errors import ConfigError


@click.command(epilog=settings.examples("gpuprof stacks latest --again 0"))
@settings.run_argument
@settings.output_dir_option
@click.option(
    "--again",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds until the second look, which shows what moves. 0: look once.",
)
@click.option("--full", is_flag=True, help="Show whole stacks, of all threads.")
@click.option("--unless-within", type=float, default=0.0, hidden=True)
@settings.json_option
def command(
    name: str, output_dir: str, again: float, full: bool, unless_within: float, as_json: bool
) -> None:
    """Show what every process of a running job does now.

    Asks all processes for the Python stacks of their threads, and merges equal ones. Does not stop
    the job.

    Without arguments, asks the last run in the output directory. RUN is a run's name, as
    `gpuprof runs` lists it, or `latest`. PATH is a run's directory, or
    one with runs, whose newest counts.
    """
    from gpuprof._artifacts.dumps import ANSWERED, ask, unasked
    from gpuprof._report import standstill

    about = settings.about_run(name, output_dir)
    path = about.directory
    if about.goes_on() is False:
        reason = (
            f"{path}: the run has ended; expected a running job; gpuprof explain says where its "
            "processes were if it hung"
        )
        raise ConfigError([reason, *stall.reports(path)])
    now = ask(path)
    silences = [process.answer.get("quiet") for process in now if process.state == "answered"]
    if any(silence is not None and silence < unless_within for silence in silences):
        raise SystemExit(stall.MOVES)
    later = []
    if again:
        time.sleep(again)
        later = ask(path)
    waits = standstill.sentences(now, later)
    if as_json:
        click.echo(standstill.as_json(now, later, waits, unasked(path)))
    else:
        click.echo(standstill.text(now, later, waits, unasked(path), full))
    if not any(process.state in ANSWERED for process in (later or now)):
        raise SystemExit(1)
