"""The section `nsight` of a configuration."""

from __future__ import annotations

from typing import Union

import attrs
from gpuprof import option
from gpuprof.errors import ConfigError

Value = Union[str, bool, int, float, None]

DEFAULT_OPTIONS: dict[str, Value] = {
    "t": "cuda,cudnn,cublas,nvtx,osrt",
    "sample": "process-tree",
    "cpuctxsw": "process-tree",
    "cudabacktrace": "all",
    "osrt-threshold": 1000,
}
"""RLinf's preset `profile/default`."""

SYNONYMS = {
    "t": "trace",
    "s": "sample",
    "o": "output",
    "f": "force-overwrite",
    "c": "capture-range",
    "b": "backtrace",
    "e": "env-var",
}
"""Short options of nsys profile that have a long form."""


@attrs.frozen
class NsightOptions:
    """How nsys is run."""

    options: dict[str, Value] = option(
        "options of nsys profile that take a value; none given: the default preset", factory=DEFAULT_OPTIONS.copy
    )
    flags: list[str] = option("options of nsys profile without a value", factory=list)
    env: dict[str, str] = option("environment variables for profiled workers", factory=dict)
    executable: str = option("nsys: a name on PATH, or a path", default="nsys")
    allow_cpu_sampling: bool = option("keep sample and cpuctxsw also on workers without a GPU", default=False)

    def __attrs_post_init__(self) -> None:
        problems = []
        seen: dict[str, str] = {}
        for place, key in [*(("options", key) for key in self.options), *(("flags", key) for key in self.flags)]:
            name = SYNONYMS.get(key.lstrip("-"), key.lstrip("-"))
            where = f"{place}.{key}" if place == "options" else place
            if not name or key.startswith("-") or "=" in key or any(letter.isspace() for letter in key):
                problems.append(f"{where}: {key!r} is not valid; expected an option's name without dashes and without =")
            elif name in seen:
                problems.append(f"{where}: {key!r} is given by {seen[name]} too; name it once")
            seen.setdefault(name, where)
        problems += [f"options.{key}: null is not valid; leave the key out" for key, value in self.options.items() if value is None]
        if seen.get("output"):
            problems.append(f"{seen['output']}: gpuprof names the report itself; set output_dir")
        if problems:
            raise ConfigError(problems)

    def value(self, long_name: str) -> Value:
        """The value of an option, by whichever of its names it was given."""
        return next((value for key, value in self.options.items() if SYNONYMS.get(key, key) == long_name), None)
