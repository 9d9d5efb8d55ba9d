"""The section `rocprof_sys` of a configuration."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Union

import attrs
from gpuprof.backend import Key, option
from gpuprof.errors import ConfigError

from gpuprof_rocprof_sys._arguments import (
    ARGUMENTS,
    EXPECTED,
    OURS,
    Argument,
    Launcher,
    as_variables,
    find,
    of,
)
from gpuprof_rocprof_sys._presets import PRESETS, Preset

Value = Union[str, bool, int, float, None, list[Union[str, bool, int, float]]]
PROGRAMS: dict[Launcher, str] = {
    "python": "rocprof-sys-python",
    "module": "rocprof-sys-python",
    "sample": "rocprof-sys-sample",
    "run": "rocprof-sys-run",
}
_KINDS: dict[str, tuple[type, ...]] = {
    "flag": (bool, type(None)),
    "boolean": (bool, type(None)),
    "integer": (int,),
    "number": (int, float),
    "text": (str, int, float),
    "list": (list, str, int, float, type(None)),
}
KEYS = tuple(
    Key(
        " ".join(argument.names),
        argument.kind,
        argument.help,
        ", ".join(argument.launchers),
        argument.since,
    )
    for argument in ARGUMENTS
)


@attrs.frozen
class RocprofSysOptions:
    """How the tool is run."""

    args: dict[str, Value] = option(
        "Options of the launcher. null: an option without a value.", factory=dict, keys=KEYS
    )
    env: dict[str, str] = option(
        "Environment variables for profiled workers. They override gpuprof's.",
        factory=dict,
        known=("ROCPROFSYS_", "ROCPROFILER_"),
    )
    preset: Preset | None = option(
        "Base set of environment variables: light, standard or deep. env overrides single ones.",
        default=None,
    )
    launcher: Launcher = option(
        "python: rocprof-sys-python; module: python -m rocprofsys; sample: rocprof-sys-sample; "
        "run: rocprof-sys-run.",
        default="python",
    )
    executable: str | None = option(
        "Launcher to run: a name on PATH, or a path. null: the name that launcher implies.",
        default=None,
    )
    strict: bool = option(
        "Refuse options that the launcher does not have. false: warn.", default=True
    )
    python_frames: bool = option("Record Python functions inside windows.", default=False)
    interpreter_after_dashes: bool = option(
        "Render `rocprof-sys-python [args] -- <python>`, for wrappers that expect this form. The "
        "real rocprof-sys-python rejects it.",
        default=False,
    )

    def __attrs_post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise ConfigError(
                [f"preset: {self.preset!r} is not valid; expected {', '.join(PRESETS)}"]
            )
        variables = {
            name: text
            for replacement in self.replaced.values()
            for name, text in replacement.items()
        }
        preset = PRESETS.get(self.preset or "", {})
        object.__setattr__(self, "env", {**preset, **variables, **self.env})
        problems = [
            f"args.{key}: {key!r} is not valid; expected an option's name without dashes or ="
            for key in self.args
            if not key
            or key.startswith("-")
            or "=" in key
            or any(letter.isspace() for letter in key)
        ]
        problems += [
            f"args.{key}: gpuprof names the files itself; set output_dir"
            for key in self.args
            if key in OURS
        ]
        if self.interpreter_after_dashes and self.launcher != "python":
            problems.append(
                f"interpreter_after_dashes: true is not valid with launcher {self.launcher}; the "
                "others take an interpreter anyway"
            )
        if self.strict and not problems:
            problems = self.doubts()
        if problems:
            raise ConfigError(problems)

    @property
    def program(self) -> str:
        """The launcher's name or path."""
        return self.executable or PROGRAMS[self.launcher]

    @property
    def replaced(self) -> dict[str, dict[str, str]]:
        """The arguments that the launcher lacks, each with the variables that have its effect."""
        if self.interpreter_after_dashes or not self.strict:  # passed on as they are
            return {}
        variables = {
            key: as_variables(key, value)
            for key, value in self.args.items()
            if not _accepted(find(key, self.launcher), value)
        }
        return {key: names for key, names in variables.items() if names}

    @property
    def rendered(self) -> dict[str, Value]:
        """The arguments for the command line."""
        return {key: value for key, value in self.args.items() if key not in self.replaced}

    def doubts(self) -> list[str]:
        """The arguments that the launcher does not accept, as far as we know it.

        A wrapper in its place may accept anything.
        """
        return [] if self.interpreter_after_dashes else list(self._doubts())

    def _doubts(self) -> Iterator[str]:
        for key, value in self.rendered.items():
            argument = find(key, self.launcher)
            if key in OURS or _accepted(argument, value):
                continue
            if argument is not None:
                yield f"args.{key}: {value!r} is not valid; expected {_expected(argument)}"
            elif key in EXPECTED and self.strict:
                yield f"args.{key}: {value!r} is not valid; expected one or more of {EXPECTED[key]}"
            else:
                yield f"args.{key}: {PROGRAMS[self.launcher]} has no such option; {self._hint(key)}"

    def _hint(self, key: str) -> str:
        variables = as_variables(key, self.args[key])
        if variables:
            return f"strict: true sets {listed(variables)} instead"
        names = [name for argument in of(self.launcher) for name in argument.names]
        close = difflib.get_close_matches(key, names, n=1)
        if close:
            return f"did you mean {close[0]!r}?"
        others = [launcher for launcher in PROGRAMS if find(key, launcher)]
        if others:
            return (
                f"launcher {' and '.join(others)} have it"
                if len(others) > 1
                else f"launcher {others[0]} has it"
            )
        return "gpuprof backends --options rocprof_sys lists them (strict: false passes it on)"


def listed(variables: Mapping[str, str]) -> str:
    """Variables as ``A=1 and B=2``."""
    return " and ".join(f"{name}={text}" for name, text in variables.items())


def _accepted(argument: Argument | None, value: object) -> bool:
    return argument is not None and _fits(argument, value)


def _fits(argument: Argument, value: object) -> bool:
    if not isinstance(value, _KINDS[argument.kind]) or (
        isinstance(value, bool) and bool not in _KINDS[argument.kind]
    ):
        return argument.kind == "boolean" and str(value).lower() in (
            "yes",
            "true",
            "t",
            "y",
            "1",
            "no",
            "false",
            "f",
            "n",
            "0",
        )
    values = value if isinstance(value, list) else [value]
    return not argument.choices or all(
        str(item) in argument.choices for item in values if item is not None
    )


def _expected(argument: Argument) -> str:
    if argument.choices:
        return " or ".join(argument.choices)
    return {
        "flag": "null, which renders it, or false, which leaves it out",
        "boolean": "true or false, or null for it alone",
        "integer": "an integer",
        "number": "a number",
        "text": "a string",
        "list": "a list",
    }[argument.kind]
