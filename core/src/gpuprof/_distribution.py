"""What this distribution is called, which need not be the name of the package.

`scripts/distributions.py` writes it.
"""

from __future__ import annotations

NAME = "gpuprof"


def release() -> str:
    """The version that is installed."""
    from importlib.metadata import version  # slow to import, and workers need none of it

    return version(NAME)
