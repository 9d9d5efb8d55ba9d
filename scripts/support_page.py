"""Fill the table of docs/support.md with the releases that a CI run has worked with.

Usage:
    python scripts/support_page.py --seen > FILE    what is installed here, after everything passed
    python scripts/support_page.py FILE...          add it to the table
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "support.md"
PACKAGES = {"Ray": "ray", "torch": "torch", "verl": "verl", "RLinf": "rlinf"}
PROGRAMS = {
    "nsys": ["nsys", "nsys-trixie"],
    "Open MPI": ["mpirun"],
    "SLURM": ["sinfo"],
}
ROW = re.compile(r"^\| (?P<what>[^|]+?) \| (?P<releases>[^|]+?) \| (?P<where>[^|]+?) \|$", re.M)


def seen() -> Iterator[tuple[str, str]]:
    """What this environment has, each with its release."""
    yield "Python", ".".join(platform.python_version_tuple()[:2])
    for what, package in PACKAGES.items():
        try:
            yield what, version(package).partition("+")[0]
        except PackageNotFoundError:
            continue
    for what, programs in PROGRAMS.items():
        for program in filter(shutil.which, programs):
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=False
            )
            found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
            if found:
                yield what, found[0]


def filled(page: str, lines: str) -> str:
    """The page with more releases in its table."""
    found: dict[str, set[str]] = {}
    for line in lines.splitlines():
        what, _, release = line.rpartition(" ")
        found.setdefault(what, set()).add(release)

    def row(match: re.Match[str]) -> str:
        releases = re.split(r"\s*,\s*", match["releases"])
        more = [each for each in found.get(match["what"], ()) if each not in releases]
        joined = sorted({*releases, *more}, key=_order) if more else releases
        return f"| {match['what']} | {', '.join(joined)} | {match['where']} |"

    return ROW.sub(row, page)


def _order(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


if __name__ == "__main__":
    if sys.argv[1:] == ["--seen"]:
        sys.stdout.writelines(f"{what} {release}\n" for what, release in seen())
    else:
        for name in sys.argv[1:]:
            PAGE.write_text(filled(PAGE.read_text(), Path(name).read_text()))
