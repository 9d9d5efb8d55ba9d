"""Plugins that are installed for one test, as a wheel would be."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

_numbers = itertools.count()


def install(
    site: Path,
    source: str,
    requires: str = "",
    plugins: Mapping[str, str] | None = None,
    frameworks: Sequence[str] = (),
    systems: Sequence[str] = (),
    **backends: str,
) -> str:
    """Write the source of a module, with an entry point for each of its names.

    Args:
        site: the directory for it, on the path of whoever is to find it.
        requires: what the distribution requires, such as ``gpuprof>=0.3``.
        plugins: the names of entry points of plugins, with what they lead to.
        frameworks: the names of entry points that lead to the module, as a framework's.
        systems: the same as a reader of settings.
        backends: as `plugins`, of backends.

    Returns:
        The module's name, which is also the distribution's.
    """
    module = f"plugin_{next(_numbers)}"
    (site / f"{module}.py").write_text(source)
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n{needs}"
    )
    groups = {
        "gpuprof.backends": {name: f"{module}:{of}" for name, of in backends.items()},
        "gpuprof.plugins": {name: f"{module}:{of}" for name, of in (plugins or {}).items()},
        "gpuprof.frameworks": dict.fromkeys(frameworks, module),
        "gpuprof.systems": dict.fromkeys(systems, module),
    }
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {of}" for name, of in entries.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return module


def newest() -> ModuleType:
    """The module that was installed last, of those that have been imported.

    Earlier tests may have left others.
    """
    numbers = [int(name[7:]) for name in sys.modules if name.startswith("plugin_")]
    return sys.modules[f"plugin_{max(numbers)}"]
