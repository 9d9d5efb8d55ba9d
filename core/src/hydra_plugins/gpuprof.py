"""Hydra finds `gpuprof.conf` through this: it imports whatever lies in the namespace package
`hydra_plugins`.

Nothing else imports it, so gpuprof does not need Hydra.
"""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class GpuprofSearchPath(SearchPathPlugin):  # type: ignore[misc]  # Hydra is not typed
    """Adds our configurations behind those of the program, which win where both have one of a name."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the package."""
        search_path.append(provider="gpuprof", path="pkg://gpuprof.conf")
