"""Everything that gpuprof raises on purpose: one tree, each error with the remedy in its message."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ConfigError", "GpuprofError", "OutputError", "PluginError", "ToolError"]


class GpuprofError(Exception):
    """The root of the tree."""


class ConfigError(GpuprofError):
    """The configuration cannot be used.

    Attributes:
        problems: one line for each, which begins with the key's full path.

    >>> print(ConfigError(["steps[1]: -3 is not valid; expected an integer of at least 0"]))
    steps[1]: -3 is not valid; expected an integer of at least 0
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class PluginError(GpuprofError):
    """A backend or a plugin cannot be found, cannot be imported or breaks the contract.

    Attributes:
        plugin: its entry-point name.
    """

    def __init__(self, plugin: str, message: str) -> None:
        self.plugin = plugin
        super().__init__(message)


class ToolError(GpuprofError):
    """The profiler's own program is missing or cannot run."""


class OutputError(GpuprofError):
    """The output directory cannot be written."""
