"""The options of each launcher: the one table for validation, the docs and the command line.

Sources: ``rocprofsys/__main__.py`` and ``rocprof-sys-sample/impl.cpp`` of releases 0.1.0 to 1.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import attrs

Launcher = Literal["python", "module", "sample", "run"]
Kind = Literal["flag", "boolean", "integer", "number", "text", "list"]
PYTHON: tuple[Launcher, ...] = ("python", "module")
NATIVE: tuple[Launcher, ...] = ("sample", "run")


@attrs.frozen
class Argument:
    """One option of a launcher.

    Args:
        spellings: its names with dashes; each, without dashes, is a key of `args`.
        kind: the type of its value; a ``boolean`` may have none, a ``flag`` never has one.
        help: what it does.
        launchers: the launchers that have it.
        since: the first release that has it; empty for all.
        choices: the valid values; empty if any value is valid.
    """

    spellings: tuple[str, ...]
    kind: Kind
    help: str
    launchers: tuple[Launcher, ...]
    since: str = ""
    choices: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The spellings without dashes."""
        return tuple(spelling.lstrip("-") for spelling in self.spellings)


def _python(spellings: str, kind: Kind, text: str, *choices: str) -> Argument:
    return Argument(tuple(spellings.split()), kind, text, PYTHON, choices=choices)


def _native(spellings: str, kind: Kind, text: str, *choices: str, since: str = "") -> Argument:
    return Argument(tuple(spellings.split()), kind, text, NATIVE, since, choices)


ARGUMENTS = (
    _python("-v --verbosity", "integer", "how much the tool says"),
    _python(
        "-b --builtin",
        "flag",
        "trace Python functions only between start and stop; gpuprof sets it unless python_frames",
    ),
    _python("-c --config", "text", "the tool's configuration file; ignored before 1.9"),
    _python("-s --setup", "text", "a script to run before the profiled one"),
    _python("-F --full-filepath", "boolean", "whole paths of files in labels"),
    _python("--trace-c", "boolean", "C functions as well"),
    _python("-a --annotate-trace", "boolean", "debug annotations in the trace"),
    _python(
        "--label", "list", "what labels hold beside the function's name", "args", "file", "line"
    ),
    _python("-I --function-include", "list", "record also these functions"),
    _python("-E --function-exclude", "list", "do not record these functions"),
    _python("-R --function-restrict", "list", "record these functions only"),
    _python("-MI --module-include", "list", "record also these files"),
    _python("-ME --module-exclude", "list", "do not record these files"),
    _python("-MR --module-restrict", "list", "record these files only"),
    _native("-v --verbose", "integer", "how much the tool says"),
    _native("--debug", "flag", "say everything"),
    _native("--monochrome", "flag", "say it without colours"),
    _native("-c --config", "list", "the tool's configuration files"),
    _native("-T --trace", "boolean", "a detailed trace (perfetto)"),
    _native("-P --profile", "boolean", "a call-stack profile"),
    _native("-F --flat-profile", "boolean", "a profile without call stacks"),
    _native("-H --host", "boolean", "sample the CPU's frequency and memory"),
    _native("-D --device", "boolean", "sample the GPU's temperature and memory"),
    _native("-w --wait", "number", "seconds before anything is recorded"),
    _native("-d --duration", "number", "seconds that are recorded"),
    _native("--trace-buffer-size", "integer", "of the trace, in KB"),
    _native(
        "--trace-fill-policy",
        "text",
        "what happens when the buffer is full",
        "discard",
        "ring_buffer",
    ),
    _native("--trace-wait", "number", "seconds before the trace begins"),
    _native("--trace-duration", "number", "seconds that are traced"),
    _native("--trace-periods", "list", "delay:duration[:repeat[:clock]]"),
    _native("--trace-clock-id", "text", "the clock of the above"),
    _native("--profile-format", "list", "files of the profile", "text", "json", "console"),
    _native("--process-freq", "number", "host and device samples a second"),
    _native("--process-wait", "number", "seconds before the first of them"),
    _native("--process-duration", "number", "seconds during which they are taken"),
    _native("--cpus", "list", "whose frequency is sampled; needs host"),
    _native("--gpus", "list", "which are sampled; needs device"),
    _native("-f --freq", "number", "call-stack samples a second"),
    _native("--sampling-wait", "number", "seconds before the first of them"),
    _native("--sampling-duration", "number", "seconds during which they are taken"),
    _native("-t --tids", "list", "threads to sample, the main one being 0"),
    _native("--cputime", "list", "sample by CPU time: frequency, delay, threads"),
    _native("--realtime", "list", "sample by real time: frequency, delay, threads"),
    _native("-I --include", "list", "backends to include, such as rcclp, ompt, mutex-locks"),
    _native("-E --exclude", "list", "backends to exclude"),
    _native("-C --cpu-events", "list", "hardware counters of the CPU"),
    _native("-G --gpu-events", "list", "hardware counters of the GPU"),
    _native("-i --inlines", "flag", "inlined functions in call stacks"),
    _native("--selected-regions", "list", "record only inside these roctx ranges", since="1.6"),
    Argument(("--fork",), "flag", "start the worker as a child instead of becoming it", ("run",)),
)

OURS = ("o", "output", "trace-file")
"""The options that gpuprof sets itself, on every launcher."""

MEANT = {
    "T": "env: {ROCPROFSYS_ROCM_DOMAINS: %s}",
    "trace": "env: {ROCPROFSYS_ROCM_DOMAINS: %s}",
    "output-format": (
        "env: {ROCPROFSYS_PROFILE: 'true'} for wall_clock.json, or "
        "{ROCPROFSYS_USE_ROCPD: 'true'} for a database"
    ),
}
"""Options and values that people try, and the variable that has the effect they want."""

DOMAINS = {"hip": "hip_runtime_api", "hsa": "hsa_api", "rccl": "rccl_api"}


def find(key: str, launcher: Launcher) -> Argument | None:
    """The option of a launcher that a key of `args` names."""
    return next((argument for argument in of(launcher) if key in argument.names), None)


def of(launcher: Launcher) -> Iterator[Argument]:
    """The options of a launcher."""
    return (argument for argument in ARGUMENTS if launcher in argument.launchers)


def meant(key: str, value: object) -> str:
    """What the user probably meant by an option or its value; empty if unknown."""
    text = MEANT.get(key, "")
    domains = [part.strip() for part in value.split(",")] if isinstance(value, str) else ["hip"]
    return (
        text % ",".join(DOMAINS.get(domain, domain) for domain in domains) if "%" in text else text
    )
