"""Running nsys for real, on nothing, with the options that a worker will have."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import attrs
from gpuprof.backend import Command, Tool, Window, Worker

from gpuprof_nsight import _names
from gpuprof_nsight._checks import try_session
from gpuprof_nsight._command import known, render
from gpuprof_nsight._command.fitting import sampling
from gpuprof_nsight._command.gate import choose
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._nsys.trial import ATTEMPTS, HANGS, say, trial_directory

_WAITS = (
    "capture-range", "capture-range-end", "nvtx-capture",
    "delay", "y", "start-later", "Y", "start-frame-index", "duration-frames",
)  # fmt: skip
"""With these nothing is recorded of a program that ends at once and opens no gate."""


def refusal(worker: Worker, tool: Tool, options: NsightOptions) -> tuple[str, str] | None:
    """Why nsys would not record this worker here: the key to blame and nsys's own words; ``None``
    if it would.

    Half a second; under the session gate two. An exit code says little: nsys also returns 0 where
    it has written no report, so the report is looked for.
    """
    with trial_directory(tool) as directory:
        # Several try the same worker at once, where nodes share a machine: their sessions need
        # names of their own.
        here = attrs.evolve(worker, directory=directory, incarnation=secrets.token_hex(4))
        said = _read_only(here, tool, options)
        if "usage: nsys" in said:
            return _blame(said, options)
        record = _record_session if choose(here, options).gate == "session" else _record
        for _ in range(ATTEMPTS):
            report, said = record(here, tool, options)
            if os.path.exists(report):
                return None
            if "usage: nsys" in said or said == HANGS:
                break  # of all else it is not known whether it would say it again
        if said == HANGS:
            return "", HANGS + _why_it_may_hang(here, tool, options)
    return _blame(said, options)


def _read_only(worker: Worker, tool: Tool, options: NsightOptions) -> str:
    """What nsys says of all options at once, those that this worker does not get included: there is
    no such program to run.
    """
    merged, flags = render.effective(worker, options, tool)
    left_out = render.not_sampled(worker, options)
    names = {known.long_name(key) for key in left_out}
    every = {
        key: value for key, value in merged.items() if known.long_name(key) not in names
    } | left_out
    return say(
        [tool.path, "profile", *render.words(every, flags), f"{worker.directory}/none"],
        worker.directory,
    )


def _record(worker: Worker, tool: Tool, options: NsightOptions) -> tuple[str, str]:
    """Record `true`. Returns the path of the report that there should be, and what nsys says."""
    merged, flags = render.effective(worker, options)
    kept = {key: value for key, value in merged.items() if known.long_name(key) not in _WAITS}
    said = say([tool.path, "profile", *render.words(kept, flags), "true"], worker.directory)
    return _names.raw_stem(worker) + _names.EXTENSION, said


def _record_session(worker: Worker, tool: Tool, options: NsightOptions) -> tuple[str, str]:
    """Record a program that opens the session gate itself: `nsys launch` and `nsys start` each take
    a part of the options.
    """
    problem = Path(worker.directory, "problem")
    program = try_session.words(worker, attrs.evolve(options, executable=tool.path), str(problem))
    said = say(render.render(worker, Command(tuple(program)), tool, options), worker.directory)
    said = problem.read_text() if problem.exists() else said
    return _names.raw_window(worker, Window(1, 0, 1)) + _names.EXTENSION, said


def _why_it_may_hang(worker: Worker, tool: Tool, options: NsightOptions) -> str:
    """Of all options it is sampling that is known to hang nsys, and tracing switches between
    threads.
    """
    sampled = sampling(render.effective(worker, options, tool)[0])
    return (
        f"; {' or '.join(sampled)} can do that: options.sample=none and options.cpuctxsw=none do "
        "without"
        if sampled
        else ""
    )


def _blame(said: str, options: NsightOptions) -> tuple[str, str]:
    """What nsys says, up to its usage, and the key of ours that it speaks of."""
    lines = [line.strip() for line in said.partition("usage: nsys")[0].splitlines() if line.strip()]
    text = " ".join(lines) or (
        "its usage, not what is wrong" if said else "nothing, and leaves no report"
    )
    if "Agent launcher failed" in text:
        text += (
            " An nsys that was killed can leave /dev/shm/NSys-<version> locked: remove it "
            "while no nsys runs."
        )
    names = {key: (f"--{key}", f"--{known.long_name(key)}", f"'-{key}'") for key in options.options}
    blamed = (key for key in options.options if any(name in text for name in names[key]))
    key = next(blamed, None)
    return f"options.{key}" if key else "", text
