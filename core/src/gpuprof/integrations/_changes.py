"""Replaces functions of a framework at run time.

A fault here never reaches the job: what is not as expected is logged once, and left as it is.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from gpuprof._log import log

_MARK = "__gpuprof_replaces__"
_said: set[str] = set()


class UnexpectedError(Exception):
    """A framework's function is not there, or takes other parameters."""


def after_import(name: str, change: Callable[[ModuleType], None]) -> None:
    """Call `change` with a module, when it has been imported; at once if it has been already."""
    from wrapt import register_post_import_hook  # type: ignore[import-not-found,unused-ignore]

    def apply(module: ModuleType) -> None:
        try:
            change(module)
        except Exception as error:
            say(f"{name}: {_text(error)}")

    register_post_import_hook(apply, name)


def replace(
    owner: Any, name: str, make: Callable[[Any], Any], parameters: Sequence[str] = ()
) -> None:
    """Put `make(original)` in the place of a function, once.

    Modules of the same framework that have imported a module's function by name get it, too.

    Args:
        owner: the module or the class.
        name: of the function.
        make: gets the function and makes its replacement, which takes the same arguments. Static
            and class methods are unwrapped for it, and wrapped again.
        parameters: names that the function must take.

    Raises:
        UnexpectedError: there is no such function, or it takes other parameters.
    """
    static = inspect.getattr_static(owner, name, None)
    kind = type(static) if isinstance(static, (staticmethod, classmethod)) else None
    original = static.__func__ if isinstance(static, (staticmethod, classmethod)) else static
    if not callable(original):
        raise UnexpectedError(f"has no {_name(owner, name)}")
    if hasattr(original, _MARK):
        return
    taken = inspect.signature(original).parameters
    missing = [parameter for parameter in parameters if parameter not in taken]
    if missing:
        raise UnexpectedError(f"{_name(owner, name)} does not take {', '.join(missing)}")
    made = make(original)
    functools.update_wrapper(made, original)
    setattr(made, _MARK, original)
    setattr(owner, name, kind(made) if kind else made)
    if isinstance(owner, ModuleType):
        _replace_copies(owner, name, original, made)


def _replace_copies(owner: ModuleType, name: str, original: Any, made: Any) -> None:
    top = owner.__name__.partition(".")[0]
    for key, module in list(sys.modules.items()):
        near = key.partition(".")[0] in (top, "__main__") and isinstance(module, ModuleType)
        if near and vars(module).get(name) is original:
            setattr(module, name, made)


def original_of(function: Any) -> Any:
    """The framework's own function behind a replacement."""
    return getattr(function, _MARK, function)


def guarded(what: str, call: Callable[[], Any]) -> Any:
    """Call `call`; on a fault of ours, log it once and return ``None``.

    Raises:
        GpuprofError: the settings, the tool or the output directory is not valid. `on_error` and
            the start of the run decide about these, as for a program that calls gpuprof itself.
    """
    from gpuprof.errors import GpuprofError

    try:
        return call()
    except GpuprofError:
        raise
    except Exception as error:
        say(f"{what}: {_text(error)}")
        return None


def check_version(distribution: str, tried: Sequence[str]) -> None:
    """Warn about an untested release of a framework."""
    try:
        found = version(distribution)
    except PackageNotFoundError:
        return  # a source tree
    if found not in tried:
        log().warning(
            "%s %s: tried with %s; what has changed since is reported below, or not captured",
            distribution,
            found,
            ", ".join(tried),
        )


def say(problem: str) -> None:
    """Log a problem once in this process."""
    if problem not in _said:
        _said.add(problem)
        log().warning("%s; gpuprof leaves it out", problem)


def _name(owner: Any, name: str) -> str:
    return name if isinstance(owner, ModuleType) else f"{owner.__name__}.{name}"


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, UnexpectedError) else f"{type(error).__name__}: {error}"
