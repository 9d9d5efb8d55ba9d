"""Write the name, the version and the licence of release.toml wherever they stand.

Usage:
    python scripts/distributions.py                  write
    python scripts/distributions.py --check          fail if something has to be written
    python scripts/distributions.py --release TAG    fail unless TAG is the version, and licensed

The distributions depend on each other within a minor version, the conformance kit on this very
version of gpuprof; so they go up together.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PROJECTS = (
    ".",
    "timing",
    "backends/nsight",
    "backends/rocprof_sys",
    "testing",
    "frameworks/verl",
    "frameworks/rlinf",
    "frameworks/nemo_rl",
    "frameworks/sample_factory",
    "examples/third_party_backend",
    "examples/py_spy",
)
NAME_AT_RUN_TIME = Path("core/src/gpuprof/_distribution.py")
VERSION = r"\d+(?:\.\w+)+"


class Release(NamedTuple):
    """What release.toml says."""

    name: str
    version: str
    license: str

    @property
    def compatible(self) -> str:
        """The versions that our other distributions may have."""
        major, minor = self.version.split(".")[:2]
        return f">={major}.{minor},<{major}.{int(minor) + 1}"


def release(text: str) -> Release:
    """Read release.toml; no tomllib on Python 3.10.

    Raises:
        SystemExit: the name or the version is not valid.
    """
    found = dict(re.findall(r'^(\w+) = "(.*)"$', text, re.MULTILINE))
    made = Release(found["name"], found["version"], found["license"])
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", made.name):
        sys.exit(
            f"release.toml: name: {made.name!r} is not valid; expected letters, digits, hyphens"
        )
    if not re.fullmatch(VERSION, made.version):
        sys.exit(f"release.toml: version: {made.version!r} is not valid; expected such as 0.2.0")
    return made


def project(text: str, old: str, new: Release) -> str:
    """A pyproject.toml with another release's name, version and licence."""
    was = re.escape(old)
    for pattern, replacement in (
        (  # "NAME-nsight[extra]>=0.1,<0.2"
            rf'(?<="){was}(-[a-z-]+)?(\[[\w,-]*\])?>={VERSION},<{VERSION}',
            rf"{new.name}\1\2{new.compatible}",
        ),
        (rf'(?<="){was}=={VERSION}', f"{new.name}=={new.version}"),
        (rf'^name = "{was}(-[a-z-]+)?"', rf'name = "{new.name}\1"'),
        (rf"^{was}(-[a-z-]+ = {{ workspace)", rf"{new.name}\1"),
        (rf'^version = "{VERSION}"', f'version = "{new.version}"'),
        (r'^license = ".*"\n', ""),
    ):
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    if new.license:
        text = re.sub(
            r"^(requires-python)", rf'license = "{new.license}"\n\1', text, flags=re.MULTILINE
        )
    return text


def files(root: Path) -> dict[Path, str]:
    """Each file that says something of the release, and what has to stand in it."""
    new = release((root / "release.toml").read_text())
    old = re.findall(r'^name = "(.+)"', (root / "pyproject.toml").read_text(), re.MULTILINE)[0]
    paths = [root / each / "pyproject.toml" for each in PROJECTS]
    made = {path: project(path.read_text(), old, new) for path in paths}
    known = root / NAME_AT_RUN_TIME
    made[known] = re.sub(
        r'^NAME = ".*"', f'NAME = "{new.name}"', known.read_text(), flags=re.MULTILINE
    )
    return made


def may_be_published(tag: str, chosen: Release) -> str:
    """Why a tag may not be published; empty if it may."""
    if tag != f"v{chosen.version}":
        return f"release.toml: version: {chosen.version!r} is not that of the tag {tag!r}"
    return "" if chosen.license else "release.toml: license: none has been chosen yet"


if __name__ == "__main__":
    if "--release" in sys.argv:
        sys.exit(
            may_be_published(sys.argv[-1], release((ROOT / "release.toml").read_text())) or None
        )
    for path, text in files(ROOT).items():
        if path.read_text() == text:
            continue
        if "--check" in sys.argv:
            sys.exit(f"{path} is not as release.toml says: run scripts/distributions.py")
        path.write_text(text)
