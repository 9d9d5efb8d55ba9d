"""How the tests are shared among the processes of `pytest -n`."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parents[1]
LONG = frozenset(
    f"tests/{name}.py"
    for name in (
        "integration/test_doctor",
        "integration/test_faults",
        "integration/test_gates",
        "integration/test_launched_ends",
        "integration/test_launchers",
        "integration/test_nothing_moves",
        "integration/test_processes",
        "integration/test_windows",
        "nsight/test_conformance",
        "nsight/test_preflight",
    )
)
"""The files that take minutes, and whose tests share nothing that is made for the file."""
PACKAGING = "tests/packaging/"


class Sharing(LoadScopeScheduling):
    """Each process takes one file at a time, so that its tests share fixtures such as a cluster.

    Long files are split into their tests. Packaging tests stay together: they share the built
    distributions.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith(PACKAGING):
            return PACKAGING
        return nodeid if file in LONG else file


def place(item: pytest.Item) -> int:
    """Where a test stands in the order: the largest of what goes to one process comes first.

    The unit tests of core, and with nsys the single tests of long files, fill the gaps at the end.
    """
    if item.path.is_relative_to(TESTS / "core"):
        return 3
    if str(item.path.relative_to(item.config.rootpath)) in LONG:
        return 2
    return 0 if item.path.is_relative_to(TESTS / "integration") else 1
