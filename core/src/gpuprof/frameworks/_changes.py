"""Replaces functions of a framework at run time.

A fault here never reaches the job: if a function is not as expected, gpuprof logs this once and
leaves the function as it is. If a release is unknown, or its steps cannot be followed, gpuprof
profiles whole workers.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from gpuprof._log import log
from gpuprof._session import after_import as hook

_MARK = "__gpuprof_replaces__"
_said: set[str] = set()
_without_steps: list[str] = []
_raises = False


class UnexpectedError(Exception):
    """A framework's function is missing, or takes other parameters."""


def after_import(
    name: str, change: Callable[[ModuleType], None], otherwise: Callable[[str], None] | None = None
) -> None:
    """Call `change` with a module once it is imported, or at once if it already is.

    Args:
        name: of the module.
        change: replaces functions of the module.
        otherwise: gets the reason if `change` raises. ``None``: it is logged.
    """

    def apply(module: ModuleType) -> None:
        try:
            change(module)
        except Exception as error:
            (otherwise or say)(f"{name}: {_text(error)}")

    hook.after_import(name, apply)


def nothing_profiled(reason: str) -> None:
    """Say that the workers of this process's job cannot be profiled."""
    say(reason, "no worker is profiled")


def whole_workers(reason: str) -> None:
    """Profile whole workers in this process's run, and log the reason when it begins."""
    if reason not in _without_steps:
        _without_steps.append(reason)


def import_steps(module: str) -> None:
    """Import the module where a framework counts steps.

    So it is known before the run begins whether its steps can be followed.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        whole_workers(f"{module}: {error}")


def why_whole_workers() -> Sequence[str]:
    """The reasons why steps cannot be followed in this process; empty if they can."""
    return tuple(_without_steps)


def unknown_release(distribution: str, tried: Sequence[str]) -> str | None:
    """Why a framework's installed release is unknown, or ``None`` if it is known.

    A source tree without metadata has no release: only its functions are checked.
    """
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        installed = version(distribution)
    except PackageNotFoundError:
        return None
    if installed.partition("+")[0] in tried:  # a local version label follows the plus sign
        return None
    return f"{distribution} {installed} was not tried, only {', '.join(tried)}"


def check(owner: Any, name: str, parameters: Sequence[str] = ()) -> Callable[..., Any]:
    """A framework's function, if it exists and takes the expected parameters.

    Args:
        owner: the module or the class.
        name: of the function.
        parameters: names that the function must take.

    Raises:
        UnexpectedError: there is no such function, or it takes other parameters.
    """
    static = inspect.getattr_static(owner, name, None)
    function = static.__func__ if isinstance(static, (staticmethod, classmethod)) else static
    if not callable(function):
        raise UnexpectedError(f"has no {_name(owner, name)}")
    taken = inspect.signature(function).parameters
    missing = [parameter for parameter in parameters if parameter not in taken]
    if missing:
        raise UnexpectedError(f"{_name(owner, name)} does not take {', '.join(missing)}")
    return function


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
        UnexpectedError: as `check` does.
    """
    original = check(owner, name, parameters)
    if hasattr(original, _MARK):
        return
    static = inspect.getattr_static(owner, name)
    replacement = make(original)
    functools.update_wrapper(replacement, original)
    setattr(replacement, _MARK, original)
    kind = type(static) if isinstance(static, (staticmethod, classmethod)) else None
    setattr(owner, name, kind(replacement) if kind else replacement)
    if isinstance(owner, ModuleType):
        _replace_copies(owner, name, original, replacement)


def _replace_copies(owner: ModuleType, name: str, original: Any, made: Any) -> None:
    top = owner.__name__.partition(".")[0]
    for key, module in list(sys.modules.items()):
        near = key.partition(".")[0] in (top, "__main__") and isinstance(module, ModuleType)
        if near and vars(module).get(name) is original:
            setattr(module, name, made)


def raise_errors(raised: bool) -> None:
    """Set whether `guarded` raises all of gpuprof's errors, as with ``on_error: raise``."""
    global _raises
    _raises = raised


def guarded(what: str, call: Callable[[], Any]) -> Any:
    """Call `call`; on a fault of ours, log it once and return ``None``.

    Settings that are not valid, or name a backend that cannot be used, end the job with a message,
    because a traceback through the framework would hide it. In a Ray worker they raise, because
    only an exception reaches the driver.

    Raises:
        GpuprofError: with ``on_error: raise``.
    """
    from gpuprof.errors import ConfigError, GpuprofError, PluginError

    try:
        return call()
    except Exception as error:
        refused = isinstance(error, (ConfigError, PluginError))
        if refused and not _in_worker_of_ray():
            sys.stderr.write(f"gpuprof: {error}\n")
            raise SystemExit(2) from None
        if refused or (_raises and isinstance(error, GpuprofError)):
            raise
        say(f"{what}: {_text(error)}")
        return None


def _in_worker_of_ray() -> bool:
    worker = sys.modules.get("ray._private.worker")
    return worker is not None and worker.global_worker.mode == worker.WORKER_MODE


def say(problem: str, consequence: str = "not recorded; the job goes on") -> None:
    """Log a problem and its consequence, once in this process."""
    if problem not in _said:
        _said.add(problem)
        log().warning("%s; %s", problem, consequence)


def _name(owner: Any, name: str) -> str:
    return name if isinstance(owner, ModuleType) else f"{owner.__name__}.{name}"


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, UnexpectedError) else f"{type(error).__name__}: {error}"
