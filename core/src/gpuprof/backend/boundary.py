"""Guards every call into a plugin: contains what it raises and checks what it returns.

Anything that would end the process becomes a `PluginError`, except the job's own exceptions, such
as Ctrl-C. Results are checked only here and normalised: paths become strings, sequences lists.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import attrs
import pluggy
from gpuprof_timing.instrument import belongs_to_job

from gpuprof.backend import hookspecs
from gpuprof.backend.types import Check, Collected, RangeTimes, RecordedTrack, Tool
from gpuprof.errors import PluginError

BACKENDS, PLUGINS = "gpuprof.backends", "gpuprof.plugins"
"""The groups of entry points for backends and for what the key `plugins` loads."""

# `open_range` is called for every range, so it must be cheap and has no guard. The range slot
# catches its exceptions instead.
_UNGUARDED = "open_range"


class Hooks(pluggy.PluginManager):
    """The hooks of a backend and its plugins, each guarded except `open_range`."""

    def __init__(self) -> None:
        super().__init__(hookspecs.PROJECT)
        self.add_hookspecs(hookspecs)

    def register(self, plugin: object, name: str | None = None) -> str | None:
        """Register a plugin, and guard its hooks.

        Raises:
            PluginValidationError: a hook is unknown, has unknown arguments, or is a wrapper.
        """
        registered_name = super().register(plugin, name)
        for caller in self.get_hookcallers(plugin) or ():
            for hook in caller.get_hookimpls():
                if hook.plugin is plugin:
                    if hook.wrapper or hook.hookwrapper:
                        raise pluggy.PluginValidationError(
                            plugin, f"{caller.name} is a hook wrapper; expected a plain method"
                        )
                    if caller.name != _UNGUARDED:
                        guard = _guard(hook.function, caller.name, name or "", plugin)
                        hook.function = guard  # type: ignore[misc]
        return registered_name

    def each(self, hook: str, **arguments: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield each plugin's name and a call of its hook, so one failure spares the others."""
        plugins = self.list_name_plugin()
        for name, plugin in plugins:
            others = [other for _, other in plugins if other is not plugin]
            yield name, functools.partial(self.subset_hook_caller(hook, others), **arguments)


@contextmanager
def contained(name: str, what: str, plugin: object = None) -> Iterator[None]:
    """Turn an exception that would end the process, such as `sys.exit`, into a `PluginError`.

    Args:
        name: the plugin's entry point.
        what: the failing call, for the message.
        plugin: the plugin, if it is already imported.

    Raises:
        PluginError: the plugin raised something other than an `Exception`.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or belongs_to_job(error):
            raise
        of = f" of {provider(plugin)}" if plugin is not None else ""
        raise PluginError(name, f"{what}{of} raised {type(error).__name__}: {error}") from error


def provider(plugin: object) -> str:
    """The name of the distribution that a plugin comes from, or else of its module."""
    of = plugin if isinstance(plugin, (type, ModuleType)) else type(plugin)
    module = of.__name__ if isinstance(of, ModuleType) else of.__module__
    top = module.partition(".")[0]
    entries = importlib.metadata.entry_points()
    for entry in (entry for group in (BACKENDS, PLUGINS) for entry in entries.select(group=group)):
        if entry.module.partition(".")[0] == top and entry.dist is not None:
            return entry.dist.name
    return module


def reason(error: BaseException) -> str:
    """An exception's message, without the objects that attrs appends."""
    if any(isinstance(argument, attrs.Attribute) for argument in error.args):
        return str(error.args[0])
    return str(error)


def normalise(hook: str, result: object) -> Any:
    """Check a hook's result and normalise its types.

    Raises:
        TypeError: the result has the wrong type; the message names the expected type.

    >>> from pathlib import Path
    >>> normalise("stop_capture", (Path("/a/report"),))
    ['/a/report']
    >>> normalise("stop_capture", "/a/report")
    Traceback (most recent call last):
    TypeError: expected a list of paths, or None
    """
    if result is None or hook not in _RESULTS:
        return None
    make, expected = _RESULTS[hook]
    try:
        return make(result)
    except (TypeError, ValueError):
        raise TypeError(f"expected {expected}, or None") from None


def _guard(function: Callable[..., Any], hook: str, name: str, plugin: object) -> Any:
    @functools.wraps(function)
    def guarded(*arguments: Any) -> Any:
        with contained(name, hook, plugin):
            result = function(*arguments)
        return _checked(hook, result, name, plugin)

    return guarded


def _checked(hook: str, result: object, name: str, plugin: object) -> Any:
    try:
        return normalise(hook, result)
    except TypeError as error:
        raise PluginError(
            name, f"{hook} of {provider(plugin)} returned {result!r}; {error}"
        ) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _path(value: object) -> str:
    # `os.fspath` leaves a path of bytes as bytes, which `_text` refuses
    return _text(os.fspath(value))  # type: ignore[call-overload]


def _a(kind: type) -> Callable[[object], Any]:
    def check(value: object) -> object:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return check


def _list_of(one: Callable[[object], Any]) -> Callable[[object], list[Any]]:
    def check(value: object) -> list[Any]:
        if not isinstance(value, (list, tuple)):  # a string is a sequence, too
            raise TypeError
        return [one(item) for item in value]

    return check


def _by_window(one: Callable[[object], Any]) -> Callable[[object], dict[int, Any]]:
    def check(value: object) -> dict[int, Any]:
        if not isinstance(value, Mapping) or any(type(number) is not int for number in value):
            raise TypeError
        return {number: one(item) for number, item in value.items()}

    return check


def _variables(value: object) -> dict[str, str | None]:
    if not isinstance(value, Mapping):
        raise TypeError
    variables = {_text(name): None if to is None else _path(to) for name, to in value.items()}
    if any(not name or "=" in name or "\0" in f"{name}{to}" for name, to in variables.items()):
        raise ValueError
    return variables


def _collected(value: object) -> Collected:
    if not isinstance(value, Collected):
        raise TypeError
    return Collected(_by_window(_list_of(_path))(value.files), value.problem)


_RESULTS: dict[str, tuple[Callable[[object], Any], str]] = {
    "render_command": (_list_of(_path), "a list of words"),
    "inject_env": (_variables, "a mapping of variables' names to strings or None"),
    "stop_capture": (_list_of(_path), "a list of paths"),
    "probe": (_a(Tool), "a gpuprof.backend.Tool"),
    "missing_tool": (_text, "a string"),
    "diagnose": (_list_of(_a(Check)), "a list of gpuprof.backend.Check"),
    "plan_notes": (_list_of(_text), "a list of strings"),
    "expected_files": (_by_window(_path), "a mapping of windows' numbers to paths"),
    "collect_files": (_collected, "a gpuprof.backend.Collected, with lists of paths by window"),
    "check_report": (_text, "a string"),
    "read_ranges": (_list_of(_a(RangeTimes)), "a list of gpuprof.backend.RangeTimes"),
    "read_spans": (_list_of(_a(RecordedTrack)), "a list of gpuprof.backend.RecordedTrack"),
}
"""The function that checks a hook's result and the expected type for errors, by hook."""
