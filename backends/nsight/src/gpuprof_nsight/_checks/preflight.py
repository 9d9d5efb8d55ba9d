"""A trial run of nsys with a worker's options, before the job starts."""

from __future__ import annotations

import os
import re
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
from gpuprof_nsight._nsys.trial import ATTEMPTS, HANGS, output_of, trial_directory

_HUNG: set[str] = set()
"""The nsys that have hung in this process: no other worker waits for one of them again."""
_WAITS = (
    "capture-range", "capture-range-end", "nvtx-capture",
    "delay", "y", "start-later", "Y", "start-frame-index", "duration-frames",
)  # fmt: skip
"""With these, nsys records nothing of a program that ends at once and opens no gate."""


def refusal(
    worker: Worker, tool: Tool, options: NsightOptions, start: bool = True
) -> tuple[str, str] | None:
    """Why nsys cannot record this worker on this node; ``None`` if it can.

    The reason is the key to blame and nsys's own words. nsys returns 0 even without a report, so
    the report must exist. Takes half a second; under the session gate, two.

    Args:
        start: ``False``: only have nsys read the options.
    """
    if tool.path in _HUNG:
        return "", HANGS
    with trial_directory(tool) as directory:
        # Nodes on one machine try the same worker at once: each needs a session name of its own.
        trial_worker = attrs.evolve(worker, directory=directory, incarnation=secrets.token_hex(4))
        output = _read_only(trial_worker, tool, options)
        if "usage: nsys" in output:
            return _blame(output, options)
        if not start and output != HANGS:
            return None
        record = _record_session if choose(trial_worker, options).gate == "session" else _record
        for _ in range(0 if output == HANGS else ATTEMPTS):
            report, output = record(trial_worker, tool, options)
            if os.path.exists(report):
                return None
            if "usage: nsys" in output or output == HANGS:
                break  # any other failure may be transient
        if output == HANGS:
            _HUNG.add(tool.path)
            return "", HANGS + _why_it_may_hang(trial_worker, tool, options)
    return _blame(output, options)


def _read_only(worker: Worker, tool: Tool, options: NsightOptions) -> str:
    """nsys's output when given every option, even those dropped for this worker, but no program."""
    options_of_nsys, flags = render.effective(worker, options, tool)
    left_out = render.not_sampled(worker, options)
    names = {known.long_name(key) for key in left_out}
    every = {
        key: value for key, value in options_of_nsys.items() if known.long_name(key) not in names
    } | left_out
    return output_of(
        [tool.path, "profile", *render.words(every, flags), f"{worker.directory}/none"],
        worker.directory,
    )


def _record(worker: Worker, tool: Tool, options: NsightOptions) -> tuple[str, str]:
    """Record the program `true`. Returns the expected report's path and nsys's output."""
    options_of_nsys, flags = render.effective(worker, options)
    options_to_try = {
        key: value for key, value in options_of_nsys.items() if known.long_name(key) not in _WAITS
    }
    output = output_of(
        [tool.path, "profile", *render.words(options_to_try, flags), "true"], worker.directory
    )
    return _names.raw_stem(worker) + _names.EXTENSION, output


def _record_session(worker: Worker, tool: Tool, options: NsightOptions) -> tuple[str, str]:
    """Record a program that opens the session gate.

    `nsys launch` and `nsys start` each take a part of the options.
    """
    problem = Path(worker.directory, "problem")
    program = try_session.words(worker, attrs.evolve(options, executable=tool.path), str(problem))
    output = output_of(
        render.render(worker, Command(tuple(program)), tool, options), worker.directory
    )
    output = problem.read_text() if problem.exists() else output
    return _names.raw_window(worker, Window(1, 0, 1)) + _names.EXTENSION, output


def _why_it_may_hang(worker: Worker, tool: Tool, options: NsightOptions) -> str:
    """A remark on sampling and context switches, the only options known to hang nsys."""
    sampling_options = sampling(render.effective(worker, options, tool)[0])
    return (
        f"; {' or '.join(sampling_options)} can hang it: "
        "set options.sample=none and options.cpuctxsw=none"
        if sampling_options
        else ""
    )


def _blame(output: str, options: NsightOptions) -> tuple[str, str]:
    """The key of ours that nsys's output mentions, and that output up to its usage."""
    lines = [
        line.strip() for line in output.partition("usage: nsys")[0].splitlines() if line.strip()
    ]
    text = " ".join(lines) or (
        "nsys prints its usage and no reason"
        if output
        else "nsys prints nothing and writes no report"
    )
    if "Agent launcher failed" in text:
        text += (
            " A killed nsys can leave /dev/shm/NSys-<version> locked: remove it while no nsys runs."
        )
    keys = (key for key in options.options if _mentions(text, key))
    key = next(keys, None)
    if key is None and any(f"--{flag}" in text or f"'-{flag}'" in text for flag in options.flags):
        return "flags", text
    return f"options.{key}" if key else "", text


def _mentions(text: str, key: str) -> bool:
    """Whether nsys speaks of an option, and not of a longer one that begins like it."""
    names = "|".join(map(re.escape, {key, known.long_name(key)}))
    return re.search(rf"--({names})(?![\w-])|'-{re.escape(key)}'", text) is not None
