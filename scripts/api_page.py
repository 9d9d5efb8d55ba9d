"""Write docs/api.md: every public name with the summary of its docstring.

Usage: python scripts/api_page.py [--check].
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import generated

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MODULES = (
    "gpuprof",
    "gpuprof.ray",
    "gpuprof_timing",
    "gpuprof.backend",
    "gpuprof.backend.hookspecs",
    "gpuprof.frameworks",
    "gpuprof.ray.driver",
    "gpuprof.settings",
    "gpuprof_verl",
    "gpuprof_verl.settings",
    "gpuprof_rlinf",
    "gpuprof_nemo_rl",
    "gpuprof_nemo_rl.settings",
    "gpuprof_sample_factory",
    "gpuprof.errors",
    "gpuprof_testing",
    "gpuprof_nsight",
    "gpuprof_rocprof_sys",
)
CONSTANTS = {
    "CONTRACT": "The version of the hooks and of the values that pass through them.",
    "compiled": "Whether the hot path of scopes is C; ``GPUPROF_TIMING_PURE=1`` forces Python.",
    "ON_RAY": "Whether the framework's workers are Ray actors.",
    "PACKAGE": "The framework's package.",
    "TRIED": "The framework's releases that the plugin was tried with.",
    "hookimpl": "Marks a method, or a module's function, as the implementation of a hook.",
    "Purpose": "Why `diagnose` is called: ``plan``, ``start`` or ``doctor``.",
    "RangeOpener": (
        "The type of a function that opens ranges: called with a name and whether the "
        "range may end in another task."
    ),
}
HEAD = """\
# Public names

Every name that you may import, with the summary of its docstring; `help(NAME)` prints the rest.
A name that is not here is private.
`scripts/api_page.py` writes this page.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(
        f"\n## `{name}`\n\n| name | what it is |\n| --- | --- |\n" + "".join(_rows(name))
        for name in MODULES
    )


def _rows(module_name: str) -> Iterator[str]:
    module = importlib.import_module(module_name)
    for name in sorted(module.__all__):
        public = getattr(module, name)
        yield _row(_title(name, public), public)
        if (
            inspect.isclass(public)
            and not issubclass(public, Exception)
            and public.__module__.split(".")[0] == module_name.split(".")[0]
        ):
            for method, member in sorted(inspect.getmembers(public)):
                ours = getattr(member, "__module__", "") or getattr(
                    getattr(member, "fget", None), "__module__", ""
                )
                if (
                    not method.startswith("_")
                    and ours.startswith("gpuprof")
                    and (callable(member) or isinstance(member, property))
                ):
                    yield _row(_title(f"{name}.{method}", member), member)


def _title(name: str, public: object) -> str:
    if name in CONSTANTS:
        return f"`{name}`"
    try:
        arguments = [
            argument for argument in inspect.signature(public).parameters if argument != "self"
        ]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return f"`{name}`"
    if arguments == ["args", "kwargs"]:  # a protocol is never called
        return f"`{name}`"
    return f"`{name}({', '.join(arguments)})`"


def _row(title: str, public: object) -> str:
    text = CONSTANTS.get(title.strip("`").split("(")[0]) or inspect.getdoc(public) or ""
    sentence = " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")
    return f"| {title} | {sentence} |\n"


if __name__ == "__main__":
    generated.write(PAGE, page())
