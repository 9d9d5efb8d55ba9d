"""Finds backends, plugins, frameworks and readers of settings by entry point.

A broken plugin does not affect the others.
"""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import re
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import pluggy

from gpuprof._distribution import NAME
from gpuprof.backend import contract, hookspecs
from gpuprof.backend.boundary import BACKENDS, PLUGINS, Hooks, contained, reason
from gpuprof.errors import PluginError

BACKEND_ONLY = tuple(
    hook for hook in hookspecs.__all__ if getattr(hookspecs, hook).gpuprof_spec["firstresult"]
)
"""Hooks with one result, which only the backend may implement: two results would conflict."""
ACTING = contract.ACTING
FRAMEWORKS, SYSTEMS = "gpuprof.frameworks", "gpuprof.systems"
"""The groups of entry points for `gpuprof run --integrate` and for ``--from``."""
RESERVED = {
    "none", "profiling", "cluster", "options", "flags", "args", "env", "backend", "enabled",
    "worker_groups", "output_dir", "staging_dir", "collect", "collect_every", "max_bytes",
    "on_error", "plugins", "print_trees", "groups", "ranks", "nodes", "steps", "continuous",
    "discrete", "discrete_labels", "max_windows", "armed", "file_name", "finish_command",
    "finish_ranks", "instruments", "ledger", "name", "record", "sampling", "step_at", "waits",
    "watchdog", "capture_slow", "ray_metrics",
}  # fmt: skip
"""Names that no plugin can have: the keys of a configuration, and the backend ``none``."""
_RESERVED = "is reserved by gpuprof's configuration and cannot name a plugin"
_ATTRIBUTES = {
    FRAMEWORKS: ("PACKAGE", "ON_RAY", "TRIED", "install", "install_in_worker"),
    SYSTEMS: ("PATHS", "SIGNS", "IN_ENVIRONMENT", "read"),
}
"""The attributes of the protocols `gpuprof.frameworks.Framework` and `gpuprof.settings.Reader`."""


@attrs.frozen
class Catalogue:
    """The installed entry points of one group, such as all backends.

    Args:
        entries: usable entry points by name.
        unusable: the distributions and the error of each unusable name. A name is unusable if it is
            reserved, or if several distributions provide it.
    """

    entries: Mapping[str, importlib.metadata.EntryPoint]
    unusable: Mapping[str, tuple[tuple[str, ...], str]]

    @property
    def names(self) -> set[str]:
        """The names that a configuration may contain, including names that are not usable."""
        return {*self.entries, *self.unusable} - RESERVED


def catalogue(group: str = BACKENDS) -> Catalogue:
    """List the installed entry points of a group without importing them."""
    by_name: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=group):
        entries_of_name = by_name.setdefault(entry.name, [])
        # An editable install can be on the path twice and still counts as one plugin.
        if (entry.value, _distribution(entry)) not in [
            (other.value, _distribution(other)) for other in entries_of_name
        ]:
            entries_of_name.append(entry)
    usable, unusable = {}, {}
    for name, entries in by_name.items():
        owners = tuple(map(_distribution, entries))
        if name in RESERVED:
            remedy = f"; rename the entry point of {' and '.join(owners)}"
            unusable[name] = owners, f"{name!r} {_RESERVED}{remedy}"
        elif len(owners) > 1:
            several = " and ".join(owners)
            unusable[name] = owners, f"{name!r} is provided by {several}; uninstall one of them"
        else:
            usable[name] = entries[0]
    return Catalogue(usable, unusable)


def own_backends() -> frozenset[str]:
    """gpuprof's own backends, installed or not: those of its extra `backends`."""
    return frozenset(name.replace("-", "_") for name in _required_by("backends"))


def own_frameworks() -> frozenset[str]:
    """gpuprof's own framework plugins, installed or not: those of its extra `frameworks`."""
    return _required_by("frameworks")


@functools.cache
def _required_by(extra: str) -> frozenset[str]:
    """The names of our distributions that an extra installs, without the prefix ``gpuprof-``."""
    try:
        requirements = importlib.metadata.requires(NAME) or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return frozenset()
    matches = (
        re.match(rf"{NAME}-([a-z0-9-]+)\b.*extra == ['\"]{extra}['\"]", requirement)
        for requirement in requirements
    )
    return frozenset(match[1] for match in matches if match)


def known_backends() -> list[str]:
    """The backends that a configuration may name, installed or not."""
    return sorted(catalogue().names | own_backends())


def known_sections() -> list[str]:
    """The sections of options that a configuration may have: names of backends and plugins."""
    return sorted(catalogue(PLUGINS).names.union(known_backends()))


@attrs.frozen
class NoOptions:
    """The options of a backend without options."""


class TimingOnly:
    """The backend ``none``: only timing trees."""

    contract = contract.CONTRACT
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        pass


def load_backend(name: str, path: str) -> Any:
    """Import a backend's class; ``none`` is built in.

    Raises:
        PluginError: as for `load`, or the class has no `Options`.
    """
    if name == "none":
        return TimingOnly
    backend = load(name, path)
    if options_of(backend) is None:
        raise PluginError(
            name, f"{path}: {name!r} is not a backend: it has no attrs class `Options`"
        )
    problem = contract.thread_problem(backend)
    if problem is not None:
        raise PluginError(name, f"{path}: {name!r} breaks the contract: {problem}")
    return backend


def model_of(name: str) -> type[Any]:
    """The attrs class of the options of a backend or a plugin.

    Raises:
        PluginError: the backend or plugin is not installed, or is broken.
    """
    if name in catalogue(PLUGINS).entries and name not in known_backends():
        return options_of(load(name, "plugins", PLUGINS)) or NoOptions
    model: type[Any] = load_backend(name, "backend").Options
    return model


def load(name: str, path: str, group: str = BACKENDS, found: Catalogue | None = None) -> Any:
    """Import the backend, plugin, framework or reader `name`.

    Args:
        path: the full path of the key, or the option, that gives the name, for the message.
        group: `BACKENDS`, `PLUGINS`, `FRAMEWORKS` or `SYSTEMS`.
        found: the group's catalogue if the caller has one already: `catalogue` takes 10 ms.

    Raises:
        PluginError: the plugin is not installed, is ambiguous, or fails to import.
    """
    plugins = found or catalogue(group)
    if name in plugins.unusable or name in RESERVED:
        _, problem = plugins.unusable.get(name, ((), f"{name!r} {_RESERVED}"))
        raise PluginError(name, f"{path}: {problem}")
    if name not in plugins.entries:
        raise PluginError(name, f"{path}: {name!r} is not installed{_alternatives(name, group)}")
    entry = plugins.entries[name]
    where = f"{path}: {name!r} ({_distribution(entry)}) fails to import: "
    try:
        with contained(name, f"{where}it"):
            plugin = entry.load()
    except PluginError:
        raise
    except Exception as error:
        remedy = ""
        if isinstance(error, ModuleNotFoundError) and entry.dist is not None:
            package = entry.dist.name
            remedy = f"; {package} or something that it needs is missing: pip install {package}"
        raise PluginError(name, f"{where}{type(error).__name__}: {error}{remedy}") from error
    contract.check(name, plugin, path, entry.dist)
    lacks = [
        attribute for attribute in _ATTRIBUTES.get(group, ()) if not hasattr(plugin, attribute)
    ]
    if lacks:
        of = f"{path}: {name!r} ({_distribution(entry)})"
        raise PluginError(name, f"{of} breaks the contract: it has no {', '.join(lacks)}")
    return plugin


def manager(
    backend: object,
    extra: Sequence[tuple[str, object]] = (),
    options: Mapping[str, object] = MappingProxyType({}),
) -> Hooks:
    """The hooks of one plan or one session, with the backend and the extra plugins.

    Args:
        extra: pairs of a name and a loaded plugin: a class, which is instantiated, or a module.
        options: the plugins' options, by plugin name. A plugin that is not in it gets its defaults.

    Raises:
        PluginError: a hook is misspelt or has unknown arguments, an extra plugin implements a hook
            reserved for the backend or cannot be instantiated, or two plugins exclude each other.
    """
    hooks = Hooks()
    _refuse_rivals(backend, extra)
    for name, plugin in [("backend", backend), *extra]:
        if name != "backend":
            reserved_hooks = [hook for hook in BACKEND_ONLY if contract.has(plugin, hook)]
            if reserved_hooks:
                others = ", ".join(hook for hook in hookspecs.__all__ if hook not in BACKEND_ONLY)
                raise PluginError(
                    name,
                    f"plugins: {name!r} implements {', '.join(reserved_hooks)}, reserved for the "
                    f"backend; valid: {others}",
                )
            try:
                plugin = make(name, plugin, options.get(name))
            except Exception as error:
                raise PluginError(
                    name,
                    f"plugins: {name!r} failed to start: {type(error).__name__}: {reason(error)}",
                ) from error
        try:
            hooks.register(plugin, name)
            hooks.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginError(
                name, f"{name!r} breaks the contract: {' '.join(str(error).split())}"
            ) from error
    return hooks


def make(name: str, plugin: Any, options: object = None) -> object:
    """Instantiate a plugin's class with its options; keep a module as it is.

    Args:
        options: the options; ``None`` means the defaults.
    """
    if not isinstance(plugin, type):
        return plugin
    model = options_of(plugin)
    with contained(name, "the class", plugin):
        return plugin() if model is None else plugin(model() if options is None else options)


def options_of(plugin: object) -> type[Any] | None:
    """The attrs class of a plugin's options; ``None`` if it has none."""
    model = getattr(plugin, "Options", None)
    return model if isinstance(model, type) and attrs.has(model) else None


def _refuse_rivals(backend: object, extra: Sequence[tuple[str, object]]) -> None:
    """Refuse two plugins that need a resource which allows one client per process.

    Otherwise the two would fail during the run, with messages that name neither plugin.
    """
    holders = dict.fromkeys(getattr(backend, "exclusive", ()), "the backend")
    for name, plugin in extra:
        for resource in getattr(plugin, "exclusive", ()):
            if resource in holders:
                rivals = f"{name!r} and {holders[resource]} cannot be in one worker"
                raise PluginError(
                    name,
                    f"plugins: {rivals}: both need {resource}, which takes one client in a process",
                )
            holders[resource] = repr(name)


def _install_hint(name: str, folder: str) -> str:
    # By path, because the name `gpuprof` on PyPI belongs to another project.
    extra = name.replace("-", "_")
    return (
        ". Install it from gpuprof's checkout: "
        f"pip install ./timing '.[{extra}]' ./{folder}/{extra}"
    )


def _alternatives(name: str, group: str) -> str:
    """The end of the error for a name that is not installed: a likely name, and all valid names."""
    installed = catalogue(group).entries
    if group in (FRAMEWORKS, SYSTEMS):
        valid = sorted(installed) if group == FRAMEWORKS else ["gpuprof", *sorted(installed)]
        missing = own_frameworks() - catalogue(FRAMEWORKS).entries.keys()
        valid_names = sorted({*installed, *missing})
        close = [] if name in valid_names else difflib.get_close_matches(name, valid_names, n=1)
        return (
            (f"; did you mean {close[0]!r}? Valid" if close else "; valid")
            + f": {', '.join(valid) or 'none'}"
            + (_install_hint(name, "frameworks") if name in missing else "")
        )
    if name in catalogue(PLUGINS if group == BACKENDS else BACKENDS).entries:
        return (
            f" as a backend: it is a plugin; set plugins: [{name}]"
            if group == BACKENDS
            else f" as a plugin: it is a backend; set backend: {name}"
        )
    if group == PLUGINS:
        close = difflib.get_close_matches(name, installed, n=1)
        hint = f"; did you mean {close[0]!r}? Valid" if close else "; valid"
        return f"{hint}: {', '.join(sorted(installed)) or 'none, as no plugin is installed'}"
    own = own_backends()
    hint = ""
    if name not in own:
        runs = next((backend for backend in sorted(installed) if name in _programs(backend)), None)
        close = difflib.get_close_matches(name, {*installed, *own}, n=1)
        hint = f"{runs!r}, which runs {name}" if runs else repr(close[0]) if close else ""
    others = ", ".join(sorted({*own} - {*installed, name}))
    return (
        (f"; did you mean {hint}? Valid" if hint else "; valid")
        + f": {', '.join(sorted({*installed, 'none'}))}"
        + (f"; not installed: {others}" if others else "")
        + (_install_hint(name, "backends") if name in own else "")
        + (
            f". Install the package that provides it for {sys.executable}"
            * (not hint and name not in own)
        )
    )


def _programs(name: str) -> list[object]:
    """The programs that a backend runs unless its options name others."""
    try:
        options = options_of(load(name, name))
    except PluginError:
        return []
    if options is None:
        return []
    return [field.default for field in attrs.fields(options) if field.metadata.get("program")]


def _distribution(entry: importlib.metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


def make_hooks(
    backend: Any,
    options: Any,
    plugins: Sequence[tuple[str, object]],
    plugin_options: Mapping[str, object] = MappingProxyType({}),
) -> Hooks:
    """Instantiate the backend with its options and put it into a manager with the plugins."""
    with contained("backend", "the class", backend):
        instance = backend(options)
    return manager(instance, plugins, plugin_options)
