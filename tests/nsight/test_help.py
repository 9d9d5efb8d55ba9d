"""What nsys says of its own options."""

from __future__ import annotations

import pytest
from gpuprof_nsight._nsys import find
from gpuprof_nsight._nsys.find import features, modes_in

# The words of the user guide of newer releases, of which none was at hand to be asked.
NEWER = """
\t--capture-range-end=

\t   Possible values are 'none', 'stop', 'stop-shutdown', 'repeat[:N][:mode]' \
or 'repeat-shutdown:N[:mode]'.
\t   defer (default) - write the reports when all ranges have ended
\t   sync - write each at the end of its range
\t   async - the same, without waiting

\t-t, --trace=
"""


def test_the_modes_of_newer_releases() -> None:
    """They are read from the option's own part of the help, and from no other."""
    assert ["defer", "sync", "async"] == modes_in(NEWER)
    assert [] == modes_in("\t--capture-range-end=\n\t   'repeat[:N]'\n\n\t--kill=\n\t   sync\n")


def test_a_program_that_has_no_help() -> None:
    """Nothing is known of it, which is no error."""
    assert {} == features(lambda *words: "unknown")


@pytest.mark.nsys
@pytest.mark.parametrize("executable", ["nsys", "nsys-trixie"])
def test_the_installed_nsys_is_asked(executable: str) -> None:
    """Each command has options that the others lack, and short names beside long ones."""
    tool = find.find(executable)
    if tool is None:
        pytest.skip(f"{executable} is not installed")
    profile, launch, start = (
        set(tool.features[command]) for command in ("profile", "launch", "start")
    )
    assert {"t", "trace", "nvtx-domain-include", "nvtx-domain-exclude", "wait"} <= launch - start
    assert {"s", "sample", "o", "output", "f", "force-overwrite"} <= start - launch
    assert {"kill", "delay", "y"} <= profile - start - launch
    assert "modes" not in tool.features
