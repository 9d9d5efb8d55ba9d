"""Score `gpuprof explain` on small jobs that run: ``python tests/truth/real.py --runs 1``.

Each job runs with a cause, and without it: what the loop then takes less is the truth that a claim
is held against. Nobody edits the jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import attrs
import click
from tabulate import tabulate

from truth.scoring import first_named

PROGRAMS = Path(__file__).resolve().parent / "programs"
GPUPROF = [sys.executable, "-m", "gpuprof"]
DRIVER = "Runner"
LEAST = 0.05
"""Share of the loop from which a cause is to be named."""
WORTHLESS = 0.01
"""Share of the loop up to which naming somebody is wrong."""
Said = Literal["right", "other", "wrong", "nobody", "abstained"]


@attrs.frozen
class Shape:
    """A job, and what makes it slow.

    Args:
        name: of the job.
        cause: as the program takes it; empty: nobody is slow.
        guilty: the workers, or the group, that may be named for it.
        finding: for a job that notes its samples, what `explain` calls the cause; or may call it,
            if it costs anything on this machine.
    """

    name: str
    cause: str = ""
    guilty: tuple[str, ...] = ()
    finding: str = ""


SHAPES = [
    Shape("fan_out"), Shape("fan_out", "Sampler-2", ("Sampler-2",)),
    Shape("fan_out", "Learner-0", ("Learner-0", "Learner")),
    Shape("blocking", "driver", (DRIVER,)), Shape("blocking", "Sampler-1", ("Sampler-1",)),
    Shape("chain"), Shape("chain", "Encoder-0", ("Encoder-0", "Encoder")),
    Shape("judged"), Shape("judged", "Judge-0", ("Judge-0", "Judge")),
    Shape("judged", "Player-3", ("Player-3",)),
    Shape("served"), Shape("served", "Server-0", ("Server-0", "Server")),
    Shape("served", "Trainer-1", ("Trainer-1",)),
    Shape("routed"), Shape("routed", "Engine-2", ("Engine-2",)),
    Shape("rounds"), Shape("rounds", "tail", finding="tail"),
    Shape("rounds", "tool", finding="sample wait"),
    Shape("free"), Shape("free", "stragglers", finding="starved trainer"),
    Shape("free", "starved", finding="starved trainer"),
    Shape("free", "tool", finding="sample wait"), Shape("free", "stale", finding="stale samples"),
    Shape("spare", "stragglers"),
    Shape("ddp"), Shape("ddp", "forward-1", ("Worker-1",)), Shape("ddp", "data-0", ("Worker-0",)),
]  # fmt: skip


@attrs.frozen
class Outcome:
    """What an answer said of a job; see `truth.scoring.Outcome`."""

    shape: Shape
    said: Said
    claimed: float | None
    real: float
    words: str

    @property
    def good(self) -> bool:
        """Whether it is right, or right to name nobody."""
        silent = self.said in ("nobody", "abstained")
        return self.said == "right" or (silent and self.real < LEAST)


def ran(shape: Shape, directory: Path, ray: Path, **instead: str) -> tuple[float, dict[str, Any]]:
    """The seconds of a job's loop, and what is explained of it.

    Args:
        instead: what the program reads from its environment, such as a limit of the samples.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    directory.mkdir()
    if shape.name == "ddp":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   "--nproc-per-node", "2", str(PROGRAMS / "ddp_job.py")]  # fmt: skip
    else:
        program = "sample_jobs.py" if shape.name in ("rounds", "free", "spare") else "ray_jobs.py"
        command = [sys.executable, str(PROGRAMS / program), shape.name]
    command += [shape.cause] * bool(shape.cause)
    done = subprocess.run(
        [*GPUPROF, "run", "--", *command],
        cwd=directory,
        env={**os.environ, "RAY_DIRECTORY": str(ray), "RAY_worker_niceness": "0", **instead},
        capture_output=True,
        text=True,
        check=True,
    )
    loop = re.search(r"loop ([\d.]+)", done.stdout)
    assert loop is not None, done.stderr
    explained = subprocess.run(
        [*GPUPROF, "explain", "--json"], cwd=directory, capture_output=True, text=True, check=True
    )
    return float(loop[1]), json.loads(explained.stdout)


def judged(shape: Shape, answer: dict[str, Any], real: float) -> Outcome:
    """Whether an answer is right.

    Nobody can know that a worker with no equal is slow: it is enough that it bounds a step.

    Args:
        real: share of the loop that is saved without the cause.
    """
    lone = len(shape.guilty) > 1 or DRIVER in shape.guilty
    bounds = str(answer["bounds"])
    named = first_named(answer)
    if named is None and lone and bounds.startswith(shape.guilty):
        return Outcome(shape, "right", None, real, bounds)
    if named is None:
        said: Said = "nobody" if answer["confidence"]["enough"] else "abstained"
        return Outcome(shape, said, None, real, "")
    accused = {*named["workers"], named["worker"], named["group"] if not named["workers"] else ""}
    words = f"{named['grade']}: {named['cause']}: {named['says']}"
    said = "wrong"
    is_guilty = named["cause"] == shape.finding if shape.finding else accused & set(shape.guilty)
    if is_guilty and real >= WORTHLESS:
        said = "right" if real >= LEAST else "other"
    return Outcome(shape, said, named["saves"], real, words)


def bounding(answer: dict[str, Any]) -> str:
    """The server that an answer names first: what half its time would save; else empty."""
    named = first_named(answer)
    return named["worker"] if named and named["cause"] == "server" else ""


def otherwise(named: dict[str, Any]) -> dict[str, str]:
    """What a job runs with to see what a cause saves that it has by itself; empty for others.

    Samples have tails, one of two stages bounds a loop, and all ranks may wait for data.
    """
    if named["cause"] == "tail":
        return {"CAP": str(named["samples"]["limit"])}
    return {"full buffer": {"FASTER": "2"}, "data": {"LOADING": "0"}}.get(named["cause"], {})


def main() -> None:
    """Run all shapes, and print what was said of them."""
    parser = argparse.ArgumentParser(prog="python tests/truth/real.py")
    parser.add_argument("--runs", type=int, default=1, help="how often each")
    parser.add_argument("--only", default="", help="the shapes of this name")
    given = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="gp") as place:
        ray = Path(place, "ray")
        for number in range(given.runs):
            usual: dict[str, float] = {}
            for shape in SHAPES:
                if given.only not in ("", shape.name):
                    continue
                directory = Path(place, f"{shape.name}-{shape.cause}-{number}")
                if shape.name not in usual and shape.cause:
                    usual[shape.name], _ = ran(Shape(shape.name), Path(f"{directory}-without"), ray)
                loop, answer = ran(shape, directory, ray)
                usual.setdefault(shape.name, loop)
                without, server = usual[shape.name], bounding(answer)
                if server and not shape.cause:  # a server has no peers: the truth is half its time
                    half = Shape(shape.name, f"half {server}")
                    without, _ = ran(half, Path(f"{directory}-half"), ray)
                    shape = attrs.evolve(shape, guilty=(server,))
                named = first_named(answer)
                if named and (changed := otherwise(named)):
                    without, _ = ran(shape, Path(f"{directory}-otherwise"), ray, **changed)
                    shape = attrs.evolve(shape, finding=named["cause"])
                outcomes.append(judged(shape, answer, 1 - without / loop))
                click.echo(f"{shape.name} {shape.cause or 'none'}: {outcomes[-1].said}, "
                           f"saves {outcomes[-1].real:.0%}: {outcomes[-1].words}")  # fmt: skip
    rows = [
        [
            each.shape.name,
            each.shape.cause or "none",
            each.said,
            "" if each.claimed is None else f"{each.claimed:.0%}",
            f"{max(0.0, each.real):.0%}",
        ]
        for each in outcomes
    ]
    click.echo(tabulate(rows, ["job", "cause", "said", "claimed", "saved"], tablefmt="github"))
    right = sum(each.good for each in outcomes)
    wrong = sum(each.said == "wrong" for each in outcomes)
    click.echo(f"{right} of {len(outcomes)} right, {wrong} wrong")


if __name__ == "__main__":
    main()
