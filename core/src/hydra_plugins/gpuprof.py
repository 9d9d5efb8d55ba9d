"""Lets Hydra find `gpuprof.conf`: Hydra imports every module in `hydra_plugins`.

Nothing else imports this module, so gpuprof does not need Hydra.
"""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class GpuprofSearchPath(SearchPathPlugin):  # type: ignore[misc]  # Hydra is not typed
    """Adds gpuprof's configurations after the program's own, which win."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the package."""
        search_path.append(provider="gpuprof", path="pkg://gpuprof.conf")
