"""Running nsys for real, on nothing, with the options that a worker will have."""

from __future__ import annotations

import os

import attrs
from gpuprof import Tool, Worker

from gpuprof_nsight import _declared
from gpuprof_nsight._command import effective, not_sampled, words
from gpuprof_nsight._names import EXTENSION, raw_stem
from gpuprof_nsight._options import NsightOptions
from gpuprof_nsight._trial import ATTEMPTS, HANGS, say, trial_directory

_OURS = ("capture-range", "capture-range-end", "nvtx-capture")  # nothing would be recorded of a program that opens no gate


def refusal(worker: Worker, tool: Tool, options: NsightOptions) -> tuple[str, str] | None:
    """Why nsys would not record this worker here: the key to blame and nsys's own words; ``None`` if it would. Half a second.

    An exit code says little: nsys also returns 0 where it has written no report, so the report is looked for.
    """
    with trial_directory(tool) as directory:
        here = attrs.evolve(worker, directory=directory, incarnation="0")
        merged, flags = effective(here, options)
        kept = {key: value for key, value in merged.items() if _declared.long_name(key) not in _OURS}
        command = [tool.path, "profile", *words(kept, flags), "true"]
        # Options that this worker does not get are read by nsys all the same, and then there is no such program to run.
        left_out = words(not_sampled(here, options), ())
        said = say([tool.path, "profile", *left_out, f"{directory}/none"], directory) if left_out else ""
        if "usage: nsys" in said:
            return _blame(said, options)
        for _ in range(ATTEMPTS):
            said = say(command, directory)
            if os.path.exists(raw_stem(here) + EXTENSION):
                return None
            if "usage: nsys" in said or said == HANGS:
                break
    return _blame(said, options)


def _blame(said: str, options: NsightOptions) -> tuple[str, str]:
    """What nsys says, up to its usage, and the key of ours that it speaks of."""
    lines = [line.strip() for line in said.partition("usage: nsys")[0].splitlines() if line.strip()]
    text = " ".join(lines) or "nothing, and leaves no report"
    if "Agent launcher failed" in text:
        text += " An nsys that was killed can leave /dev/shm/NSys-<version> locked: remove it while no nsys runs."
    names = {key: (f"--{key}", f"--{_declared.long_name(key)}", f"'-{key}'") for key in options.options}
    blamed = (key for key in options.options if any(name in text for name in names[key]))
    key = next(blamed, None)
    return f"options.{key}" if key else "", text
