"""What is in the wheels and the sdists, and what their metadata says."""

from __future__ import annotations

import email
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

SOURCES = {
    "gpuprof": "core/src",
    "gpuprof_timing": "timing/src",
    "gpuprof_nsight": "backends/nsight/src",
    "gpuprof_rocprof_sys": "backends/rocprof_sys/src",
    "gpuprof_testing": "testing/src",
    "gpuprof_verl": "frameworks/verl/src",
    "gpuprof_rlinf": "frameworks/rlinf/src",
    "gpuprof_nemo_rl": "frameworks/nemo_rl/src",
    "gpuprof_sample_factory": "frameworks/sample_factory/src",
}

# hatchling adds these of its own accord where they exist.
ADDED = {".gitignore", "LICENSE"}


def wheel_names(archives: Path, package: str) -> list[str]:
    """The files of the wheel of `package`."""
    with zipfile.ZipFile(next(archives.glob(f"{package}-*.whl"))) as wheel:
        return wheel.namelist()


def sdist_names(archives: Path, package: str) -> list[str]:
    """The files of the sdist of `package`, relative to its only top-level directory."""
    with tarfile.open(next(archives.glob(f"{package}-*.tar.gz"))) as sdist:
        return [name.partition("/")[2] for name in sdist.getnames()]


def metadata(archives: Path, package: str) -> Message:
    """METADATA of the wheel of `package`."""
    path = next(archives.glob(f"{package}-*.whl"))
    with zipfile.ZipFile(path) as wheel:
        return email.message_from_bytes(
            wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA")))
        )


def requirements(archives: Path, package: str) -> list[Requirement]:
    """What the wheel of `package` requires, extras included."""
    return [Requirement(text) for text in metadata(archives, package).get_all("Requires-Dist", [])]


def source_names(checkout_copy: Path, package: str) -> list[str]:
    """The files of `package` in the checkout, relative to its import path."""
    source = checkout_copy / SOURCES[package]
    return sorted(
        path.relative_to(source).as_posix()
        for path in (source / package).rglob("*")
        if path.is_file()
    )


def test_versions_are_in_lockstep(archives: Path) -> None:
    """All distributions have one version."""
    assert 1 == len({metadata(archives, package)["Version"] for package in SOURCES})


@pytest.mark.parametrize("package", SOURCES)
def test_requirements_among_our_own_distributions_are_bounded(archives: Path, package: str) -> None:
    """They accept each other in the same minor series; the kit accepts its own release only."""
    version = metadata(archives, package)["Version"]
    major, minor = (int(part) for part in version.split(".")[:2])
    own = [found for found in requirements(archives, package) if found.name.startswith("gpuprof")]
    bounds = f">={major}.{minor},<{major}.{minor + 1}"
    expected = SpecifierSet(f"=={version}" if package == "gpuprof_testing" else bounds)
    assert [(found.name, expected) for found in own] == [
        (found.name, found.specifier) for found in own
    ]


@pytest.mark.parametrize("package", SOURCES)
def test_a_wheel_says_that_it_is_typed(archives: Path, package: str) -> None:
    """Every wheel has the marker of PEP 561."""
    assert f"{package}/py.typed" in wheel_names(archives, package)


@pytest.mark.parametrize("package", SOURCES)
def test_a_wheel_has_only_its_own_package(archives: Path, package: str) -> None:
    """A wheel has its package and dist-info only; gpuprof's also has Hydra's plugin."""
    expected = {package, f"{package}-{metadata(archives, package)['Version']}.dist-info"}
    if package == "gpuprof":
        assert ["hydra_plugins/gpuprof.py"] == [
            name for name in wheel_names(archives, package) if name.startswith("hydra_plugins/")
        ]
        expected.add("hydra_plugins")
    assert expected == {name.partition("/")[0] for name in wheel_names(archives, package)}


@pytest.mark.parametrize("package", SOURCES)
def test_a_wheel_has_its_whole_package(archives: Path, checkout_copy: Path, package: str) -> None:
    """Every file of the package in the checkout is in the wheel, which is built from the sdist."""
    actual = sorted(
        name
        for name in wheel_names(archives, package)
        if name.startswith(f"{package}/") and not name.endswith(".so")
    )
    assert source_names(checkout_copy, package) == actual


def test_the_sdist_of_gpuprof_has_only_core(archives: Path) -> None:
    """The other distributions, tests, examples and scripts of the repository stay out."""
    actual = {name.partition("/")[0] for name in sdist_names(archives, "gpuprof")}
    assert {"core", "README.md", "pyproject.toml", "PKG-INFO"} == actual - ADDED


@pytest.mark.parametrize("package", [package for package in SOURCES if package != "gpuprof"])
def test_an_sdist_has_only_its_source(archives: Path, package: str) -> None:
    """The other sdists hold the package and what describes it."""
    actual = {name.partition("/")[0] for name in sdist_names(archives, package)}
    hook = {"hatch_build.py"} if package in ("gpuprof_timing", "gpuprof_nsight") else set()
    assert {"src", "README.md", "pyproject.toml", "PKG-INFO"} | hook == actual - ADDED


def test_extras_of_gpuprof(archives: Path) -> None:
    """METADATA writes the extras in their normalized form."""
    actual = metadata(archives, "gpuprof").get_all("Provides-Extra", [])
    frameworks = ["frameworks", "nemo-rl", "rlinf", "sample-factory", "torch", "verl"]
    others = ["all", "backends", "device", "html", "nsight", "ray", "rocprof-sys", "timeline"]
    assert sorted([*others, *frameworks]) == sorted(actual)


def test_the_extra_all_has_every_other_extra(archives: Path) -> None:
    """`all` requires what the other extras do."""
    by_extra: dict[str, set[str]] = {}
    for found in requirements(archives, "gpuprof"):
        for extra in metadata(archives, "gpuprof").get_all("Provides-Extra", []):
            if (
                found.marker
                and found.marker.evaluate({"extra": extra})
                and not found.marker.evaluate({"extra": ""})
            ):
                by_extra.setdefault(extra, set()).add(f"{found.name}{found.specifier}")
    combined = by_extra.pop("all")
    assert set().union(*by_extra.values()) == combined
