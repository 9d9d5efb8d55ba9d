"""The section `nsight` of a configuration, and its presets.

docs/nsight.md explains the presets.
"""

from __future__ import annotations

import re
from typing import Literal, Union, get_args

import attrs
from gpuprof.backend import option, template_problem
from gpuprof.errors import ConfigError

from gpuprof_nsight._command import known

Value = Union[str, bool, int, float, None]
Preset = Literal["light", "standard", "deep"]

PRESETS: dict[str, dict[str, Value]] = {
    "light": {"t": "nvtx", "sample": "none", "cpuctxsw": "none"},
    "standard": {
        "t": "cuda,nvtx",
        "sample": "none",
        "cpuctxsw": "none",
        "cuda-graph-trace": "graph",
    },
    # RLinf's `profile/default`, option by option.
    "deep": {
        "t": "cuda,cudnn,cublas,nvtx,osrt",
        "sample": "process-tree",
        "cpuctxsw": "process-tree",
        "cudabacktrace": "all",
        "osrt-threshold": 1000,
    },
}


Gate = Literal["auto", "cuda", "nvtx", "session"]
_FROM_NSYS = {"%p": "{pid}", "%h": "{node}", "%n": "{n}", "%%": "%"}
"""What nsys would expand in a report's name, and our variable for each."""
_INSTEAD_OF_NULL = 'leave the key out, or quote a value that has commas: {t: "cuda,nvtx"}'
_OF_NSYS = re.compile("%q{.*?}|" + "|".join(_FROM_NSYS))


@attrs.frozen
class NsightOptions:
    """How nsys is run."""

    options: dict[str, Value] = option(
        "Options of nsys profile that take a value. Default, if preset is null too: those of "
        "preset deep.",
        factory=PRESETS["deep"].copy,
        keys=known.KEYS,
    )
    preset: Preset | None = option(
        "Base set of options: light, standard or deep. options overrides single ones.",
        default=None,
    )
    flags: list[str] = option("Options of nsys profile that take no value.", factory=list)
    optional: list[str] = option(
        "Options to leave out if the installed nsys is too old for them.", factory=list
    )
    gate: Gate = option(
        "Mechanism that opens and closes windows: auto, cuda, nvtx or session.", default="auto"
    )
    env: dict[str, str] = option(
        "Environment variables for profiled workers.", factory=dict, known=("NSYS_",)
    )
    executable: str = option(
        "nsys to run: a name on PATH, or a path.", default="nsys", program=True
    )
    allow_cpu_sampling: bool = option(
        "Keep sample and cpuctxsw on workers without a GPU, where nsys 2022.4 can hang.",
        default=False,
    )

    def __attrs_post_init__(self) -> None:
        problems = []
        if self.preset is not None and self.preset not in PRESETS:
            raise ConfigError(
                [f"preset: {self.preset!r} is not valid; expected {', '.join(PRESETS)}"]
            )
        if self.preset is not None:
            # The options of `deep` are the default, so they are no choice of the user's.
            own_options = {} if self.options == PRESETS["deep"] else self.options
            own_names = {known.long_name(key) for key in own_options}
            begin = {
                key: value
                for key, value in PRESETS[self.preset].items()
                if known.long_name(key) not in own_names
            }
            object.__setattr__(self, "options", {**begin, **own_options})
        places: dict[str, str] = {}
        for place, key in [
            *(("options", key) for key in self.options),
            *(("flags", key) for key in self.flags),
        ]:
            name = known.long_name(key.lstrip("-"))
            where = f"{place}.{key}" if place == "options" else place
            if (
                not name
                or key.startswith("-")
                or "=" in key
                or any(letter.isspace() for letter in key)
            ):
                problems.append(
                    f"{where}: {key!r} is not valid; expected an option's name without dashes or ="
                )
            elif name in places:
                problems.append(f"{where}: {key!r} is given by {places[name]} too; name it once")
            places.setdefault(name, where)
        names_with_value = {known.long_name(key) for key in self.options}
        problems += [
            f"flags: {flag!r} needs a value, and would take the program for it; give "
            f"options: {{{flag}: …}}{declaration.expected}"
            for flag in self.flags
            if (declaration := known.find(flag)) is not None
            and known.long_name(flag) not in names_with_value
        ]
        of_null = [key for key, value in self.options.items() if value is None]
        problems += [f"options.{key}: null is not valid; {_INSTEAD_OF_NULL}" for key in of_null]
        for key, value in self.options.items():
            problem = known.problem(key, value) if value is not None else None
            if problem:
                problems.append(f"options.{key}: {problem}")
        if self.gate not in get_args(Gate):
            problems.append(
                f"gate: {self.gate!r} is not valid; expected {', '.join(get_args(Gate))}"
            )
        if self.file_name is not None:
            text, problem = str(self.value("output")), template_problem(self.file_name)
            of_environment = next(
                (
                    placeholder
                    for placeholder in _OF_NSYS.findall(text)
                    if placeholder.startswith("%q")
                ),
                None,
            )
            if of_environment:  # reports are also named after the worker and its variables are gone
                problem = (
                    f"{of_environment} is not supported; use {{group}}, {{rank}}, {{step}}, "
                    f"{{pid}} or {{node}}"
                )
            if problem:
                problems.append(f"{places['output']}: {text!r} is not valid: {problem}")
        if problems:
            raise ConfigError(problems)

    def value(self, long_name: str) -> Value:
        """The value of an option, given by either of its names."""
        return next(
            (value for key, value in self.options.items() if known.long_name(key) == long_name),
            None,
        )

    @property
    def chosen(self) -> bool:
        """Whether the user chose the options; otherwise they are gpuprof's default."""
        return self.preset is not None or self.options != PRESETS["deep"]

    @property
    def file_name(self) -> str | None:
        """The template given by ``o`` or ``output``, in our variables; ``None`` without one."""
        template = self.value("output")
        return (
            None
            if template is None
            else _OF_NSYS.sub(lambda match: _FROM_NSYS.get(match[0], match[0]), str(template))
        )
