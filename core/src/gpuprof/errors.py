"""The exceptions of gpuprof. Every message names the remedy."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ConfigError", "GpuprofError", "OutputError", "PluginError", "ToolError"]


class GpuprofError(Exception):
    """The base class of gpuprof's errors."""


class ConfigError(GpuprofError):
    """The configuration is not valid.

    Args:
        problems: one, or several; each is one line, which begins with the key's full path.

    Attributes:
        problems: all of them.

    >>> print(ConfigError("steps[1]: -3 is not valid; expected an integer of at least 0"))
    steps[1]: -3 is not valid; expected an integer of at least 0
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class PluginError(GpuprofError):
    """A backend or a plugin is missing, cannot be imported, or breaks the contract.

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
