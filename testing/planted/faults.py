"""Planted faults: each entry of FAULTS is one mistake of a backend's author."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Fault:
    """One mistake.

    Args:
        name: a short slug.
        base: tracer, wrapper or variables.
        harm: what a user notices.
        make: returns the class with the fault.
        theme: what it is about.
    """

    name: str
    base: str
    harm: str
    make: Callable[[], type]
    theme: str = ""


FAULTS: list[Fault] = []


def correct(base: str) -> type:
    """The correct class."""
    if base == "tracer":
        from backends.tracer import TracerBackend as found
    elif base == "wrapper":
        from backends.wrapper import WrapperBackend as found
    else:
        from backends.variables import VariablesBackend as found
    return found


def fault(name: str, base: str, theme: str, harm: str):
    """Enter a function that makes the faulty class of the correct one."""

    def enter(function):
        def make() -> type:
            return function(correct(base))

        FAULTS.append(Fault(name, base, harm, make, theme))
        return function

    return enter


def make_class(name: str) -> type:
    """The class of a fault, or of ``correct-<base>``; always a new one."""
    if name.startswith("correct-"):
        return type("Correct", (correct(name.removeprefix("correct-")),), {})
    (found,) = (entry for entry in FAULTS if entry.name == name)
    return found.make()


def options_of(name: str) -> dict:
    """Options that the kit can be run with."""
    base = name.removeprefix("correct-")
    for entry in FAULTS:
        if entry.name == name:
            base = entry.base
    return {
        "tracer": {"limit": 500000},
        "wrapper": {"interval": 5},
        "variables": {"show": ["libs"]},
    }[base]


import sys  # noqa: E402

sys.modules.setdefault("faults", sys.modules[__name__])
import faults_launcher  # noqa: E402, F401
import faults_tracer  # noqa: E402, F401
import faults_variables  # noqa: E402, F401
import faults_wrapper  # noqa: E402, F401
