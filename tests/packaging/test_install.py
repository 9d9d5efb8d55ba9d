"""Installing in clean virtual environments: each combination works, and all of it is ours.

`gpuprof` on the package index is another project. A constraint per distribution pins our names to
the wheels just built, so that the commands are those of a user, third-party requirements come from
the index, and ours never do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest

WHEELS = {
    "gpuprof": "gpuprof-*.whl",
    "gpuprof-timing": "gpuprof_timing-*.whl",
    "gpuprof-nsight": "gpuprof_nsight-*.whl",
    "gpuprof-rocprof-sys": "gpuprof_rocprof_sys-*.whl",
    "gpuprof-testing": "gpuprof_testing-*.whl",
    "gpuprof-verl": "gpuprof_verl-*.whl",
    "gpuprof-rlinf": "gpuprof_rlinf-*.whl",
    "gpuprof-nemo-rl": "gpuprof_nemo_rl-*.whl",
    "gpuprof-sample-factory": "gpuprof_sample_factory-*.whl",
    "gpuprof-torch-profiler": "gpuprof_torch_profiler-*.whl",
    "gpuprof-py-spy": "gpuprof_py_spy-*.whl",
}

NOBODY = 65534
JOB = """
import time
import gpuprof
for number in range(40):
    with gpuprof.step(number), gpuprof.timer("load"):
        time.sleep(0.002)
"""
ENTRY_POINTS = "importlib.metadata.entry_points(group='gpuprof.backends')"


class Combination(NamedTuple):
    """One way to install.

    Args:
        requirement: what the user asks pip for.
        backends: the backends that must be there afterwards, and no others.
        frameworks: the same of frameworks' plugins.
    """

    requirement: str
    backends: tuple[str, ...]
    frameworks: tuple[str, ...] = ()


COMBINATIONS = (
    Combination("gpuprof", ()),
    Combination("gpuprof[nsight]", ("nsight",)),
    Combination("gpuprof[rocprof_sys]", ("rocprof_sys",)),
    Combination("gpuprof[nsight,rocprof_sys]", ("nsight", "rocprof_sys")),
    Combination("gpuprof-nsight", ("nsight",)),
    Combination("gpuprof-rocprof-sys", ("rocprof_sys",)),
    Combination("gpuprof-torch-profiler", ("torch_profiler",)),
    Combination("gpuprof-py-spy", ("py_spy",)),
    Combination("gpuprof-testing", ()),
    Combination("gpuprof[sample_factory]", (), ("sample-factory",)),
)
EACH_RUN = ("gpuprof", "gpuprof[nsight,rocprof_sys]")
"""None, and all of ours; the kit installs the wheel of somebody else's. `make dist` tries them all.
"""


class Environment:
    """A clean virtual environment, without even pip.

    Args:
        path: where to make it.
        python: whose environment it is.
    """

    def __init__(self, path: Path, python: str = sys.executable) -> None:
        self.path = path
        make = [sys.executable, "-m", "virtualenv", "--quiet", "--no-seed", "--python", python]
        subprocess.run([*make, str(path)], check=True)

    def pip(self, *arguments: str, directory: Path | None = None) -> str:
        """Run the pip of the tests' own environment on this one; its standard output."""
        command = [sys.executable, "-m", "pip", "--python", str(self.path), *arguments]
        return subprocess.run(
            command, check=True, cwd=directory, stdout=subprocess.PIPE, text=True
        ).stdout

    def evaluate(self, expression: str, *modules: str) -> Any:
        """The value of `expression` in this environment after importing `modules`."""
        imports = "".join(f"import {module}\n" for module in ("json", *modules))
        command = [
            str(self.path / "bin" / "python"),
            "-I",
            "-c",
            f"{imports}print(json.dumps({expression}))",
        ]
        return json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        )

    def distributions(self) -> set[str]:
        """Names of all that is installed."""
        return set(
            self.evaluate(
                "[found.name for found in importlib.metadata.distributions()]", "importlib.metadata"
            )
        )

    def origin(self, distribution: str) -> str:
        """The URL that pip recorded for a distribution which did not come from an index."""
        text = self.evaluate(
            f"importlib.metadata.distribution({distribution!r}).read_text('direct_url.json')",
            "importlib.metadata",
        )
        url: str = json.loads(text)["url"]
        return url


class Installed(NamedTuple):
    """An environment and what was to be installed in it."""

    combination: Combination
    environment: Environment

    def own(self) -> set[str]:
        """Our distributions that must be there."""
        return {
            "gpuprof",
            "gpuprof-timing",
            self.combination.requirement.partition("[")[0],
            *(f"gpuprof-{name}".replace("_", "-") for name in self.combination.backends),
            *(f"gpuprof-{name}" for name in self.combination.frameworks),
        }


@pytest.fixture(scope="session")
def wheels(archives: Path) -> dict[str, Path]:
    """Our wheels by the name of the distribution."""
    return {name: next(archives.glob(pattern)) for name, pattern in WHEELS.items()}


@pytest.fixture(scope="session")
def constraints(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that tells pip which wheels our names stand for."""
    path = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    path.write_text("".join(f"{name} @ {wheel.as_uri()}\n" for name, wheel in wheels.items()))
    return path


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(each, marks=() if each.requirement in EACH_RUN else pytest.mark.exhaustive)
        for each in COMBINATIONS
    ],
    ids=[combination.requirement for combination in COMBINATIONS],
)
def installed(
    request: pytest.FixtureRequest, constraints: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Each combination in an environment of its own."""
    combination: Combination = request.param
    environment = Environment(tmp_path_factory.mktemp("environment") / "venv")
    environment.pip(
        "install",
        "--quiet",
        "--no-compile",
        "--constraint",
        str(constraints),
        combination.requirement,
    )
    return Installed(combination, environment)


@pytest.fixture(scope="session")
def timing_alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with gpuprof-timing, installed with no index to take a requirement from."""
    environment = Environment(tmp_path_factory.mktemp("environment") / "venv")
    environment.pip(
        "install", "--quiet", "--no-compile", "--no-index", str(wheels["gpuprof-timing"])
    )
    return environment


@pytest.fixture(scope="session")
def from_checkout(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment into which the checkout was installed by its paths."""
    environment = Environment(tmp_path_factory.mktemp("environment") / "venv")
    environment.pip(
        "install",
        "--quiet",
        "--no-compile",
        "./timing",
        ".[nsight]",
        "./backends/nsight",
        directory=checkout_copy,
    )
    return environment


def test_exactly_the_wanted_distributions_of_ours_are_installed(installed: Installed) -> None:
    """An extra brings its backend, a backend brings gpuprof, and gpuprof brings timing."""
    assert installed.own() == {
        name for name in installed.environment.distributions() if name.startswith("gpuprof")
    }


def test_our_distributions_come_from_our_wheels(
    installed: Installed, wheels: dict[str, Path]
) -> None:
    """No distribution of ours was taken from the index."""
    expected = {name: wheels[name].as_uri() for name in installed.own()}
    assert expected == {name: installed.environment.origin(name) for name in installed.own()}


def test_the_installed_gpuprof_has_our_version(
    installed: Installed, wheels: dict[str, Path]
) -> None:
    """The version that gpuprof gives is that of its wheel."""
    assert wheels["gpuprof"].name.split("-")[1] == installed.environment.evaluate(
        "gpuprof.__version__", "gpuprof"
    )


def test_the_command_gives_the_version(installed: Installed, wheels: dict[str, Path]) -> None:
    """`gpuprof --version` runs in an environment with nothing but what was asked for."""
    command = [str(installed.environment.path / "bin" / "gpuprof"), "--version"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"gpuprof, version {wheels['gpuprof'].name.split('-')[1]}\n" == printed


def test_gpuprof_is_imported_from_the_environment(installed: Installed) -> None:
    """It is the installed package that is imported and not the checkout."""
    path = Path(installed.environment.evaluate("gpuprof.__file__", "gpuprof"))
    assert installed.environment.path in path.parents


def test_what_was_asked_for_can_be_imported(installed: Installed) -> None:
    """It requires all that its import needs."""
    module = installed.combination.requirement.partition("[")[0].replace("-", "_")
    assert module == installed.environment.evaluate(f"{module}.__name__", module)


def test_timing_of_gpuprof_is_that_of_gpuprof_timing(installed: Installed) -> None:
    """There is one class `Timing` under two names."""
    assert installed.environment.evaluate(
        "gpuprof.Timing is gpuprof_timing.Timing", "gpuprof", "gpuprof_timing"
    )


def test_entry_points_are_the_installed_backends(installed: Installed) -> None:
    """The group `gpuprof.backends` has the backends that were asked for and no others."""
    expression = f"sorted(entry.name for entry in {ENTRY_POINTS})"
    assert [*installed.combination.backends] == installed.environment.evaluate(
        expression, "importlib.metadata"
    )


def test_installed_backends_can_be_imported(installed: Installed) -> None:
    """A backend's distribution requires all that its import needs."""
    expression = f"[entry.load().__module__ for entry in {ENTRY_POINTS}]"
    expected = {f"gpuprof_{name}.plugin" for name in installed.combination.backends}
    assert expected == set(installed.environment.evaluate(expression, "importlib.metadata"))


def test_entry_points_are_the_installed_frameworks(installed: Installed) -> None:
    """The group `gpuprof.frameworks` has the plugins that were asked for; each can be imported."""
    points = "importlib.metadata.entry_points(group='gpuprof.frameworks')"
    expression = f"sorted([entry.name, entry.load().__name__] for entry in {points})"
    assert [
        [name, f"gpuprof_{name}".replace("-", "_")] for name in installed.combination.frameworks
    ] == installed.environment.evaluate(expression, "importlib.metadata")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("run", "--integrate", "verl", "--", "true"), "--integrate"),
        (("config", "show", "--from", "verl"), "system"),
    ],
)
def test_a_framework_that_is_not_installed_can_be(
    installed: Installed, words: tuple[str, ...], what: str
) -> None:
    """One sentence with the command, where the framework is named."""
    command = [str(installed.environment.path / "bin" / "gpuprof"), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    valid = [*(["gpuprof"] if what == "system" else []), *installed.combination.frameworks]
    valid = [name for name in valid if (what, name) != ("system", "sample-factory")]
    sentence = (
        f"gpuprof: {what}: 'verl' is not installed; valid: {', '.join(valid) or 'none'}. Install "
        "it from gpuprof's checkout: pip install ./timing '.[verl]' ./frameworks/verl"
    )
    assert (2, sentence) == (done.returncode, " ".join(done.stderr.split()))


def test_the_command_line_lists_what_is_installed(installed: Installed) -> None:
    """`gpuprof backends` has every backend, a stranger's like our own, without an error."""
    command = [str(installed.environment.path / "bin" / "gpuprof"), "backends", "--json"]
    found = json.loads(
        subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env={"PATH": "/nowhere"}
        ).stdout
    )
    assert [(name, None) for name in installed.combination.backends] == [
        (plugin["name"], plugin["error"]) for plugin in found
    ]
    missing = [plugin["missing"] for plugin in found if plugin["name"] == "torch_profiler"]
    assert all(text.startswith("torch is not installed") for text in missing)


def test_neither_ray_nor_torch_is_installed(installed: Installed) -> None:
    """The heavy libraries come with their own extras only."""
    assert set() == installed.environment.distributions() & {"ray", "torch"}


@pytest.mark.parametrize("extra", ["rocprof_sys", "rocprof-sys"])
def test_the_extra_is_understood_in_both_spellings(
    extra: str, constraints: Path, tmp_path: Path
) -> None:
    """The backend's own name does as the extra, though METADATA writes it with a hyphen."""
    # An older pip compares the extra to METADATA as it is written, and ignores it with a warning.
    assert (23, 3) <= tuple(int(part) for part in version("pip").split(".")[:2])
    environment = Environment(tmp_path / "venv")
    report = environment.pip(
        "install",
        "--quiet",
        "--dry-run",
        "--report",
        "-",
        "--constraint",
        str(constraints),
        f"gpuprof[{extra}]",
    )
    assert "gpuprof-rocprof-sys" in {
        found["metadata"]["name"] for found in json.loads(report)["install"]
    }


def test_timing_has_no_dependencies(timing_alone: Environment) -> None:
    """gpuprof-timing is all that there is in its environment."""
    assert {"gpuprof-timing"} == timing_alone.distributions()


def test_timing_alone_can_be_imported(timing_alone: Environment) -> None:
    """It needs nothing but the standard library."""
    assert "Timing" == timing_alone.evaluate("gpuprof_timing.Timing.__name__", "gpuprof_timing")


def test_the_checkout_is_installed_by_its_paths(
    from_checkout: Environment, checkout_copy: Path
) -> None:
    """Given the paths of what an extra requires, pip takes all of it from the checkout."""
    expected = {
        "gpuprof": checkout_copy.as_uri(),
        "gpuprof-timing": (checkout_copy / "timing").as_uri(),
        "gpuprof-nsight": (checkout_copy / "backends" / "nsight").as_uri(),
    }
    assert expected == {name: from_checkout.origin(name) for name in expected}


def test_what_is_installed_from_the_checkout_can_be_imported(from_checkout: Environment) -> None:
    """The paths bring all that gpuprof and the backend need to be imported."""
    assert "NsightBackend" == from_checkout.evaluate(
        "gpuprof_nsight.NsightBackend.__name__", "gpuprof", "gpuprof_nsight"
    )


def runs_as_nobody(python: str) -> bool:
    """Whether another user than root may run a program."""
    command = ["/bin/sh", "-c", '"$0" -c ""', os.path.realpath(python)]
    process = subprocess.run(command, user=NOBODY, capture_output=True, check=False)
    return process.returncode == 0


@pytest.fixture(scope="module")
def of_root(wheels: dict[str, Path]) -> Iterator[Path]:
    """A directory that everybody may enter, with an installation that only root may write."""
    if os.getuid():
        pytest.skip("only root can become another user")
    pythons = sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"
    python = next(filter(runs_as_nobody, pythons), None)
    if python is None:
        pytest.skip("this Python is for its owner only")
    # pytest's own directories are for their owner only
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        environment = Environment(place / "venv", python)
        paths = wheels["gpuprof-timing"], f"{wheels['gpuprof']}[html,timeline]"
        environment.pip("install", "--quiet", *map(str, paths))
        (place / "train.py").write_text(JOB)
        (place / "work").mkdir()
        os.chown(place / "work", NOBODY, NOBODY)
        yield place
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("home", [None, "/nonexistent"])
def test_a_stranger_records_and_reads_a_run(of_root: Path, home: str | None) -> None:
    """Another user without pip and a home, on an installation that cannot be written."""
    environment = {"PATH": f"{of_root}/venv/bin:/usr/bin:/bin", **({"HOME": home} if home else {})}
    for command in (["run", "--", "python", "../train.py"], ["explain"], ["html"], ["timeline"]):
        process = subprocess.run(
            [str(of_root / "venv" / "bin" / "gpuprof"), *command],
            cwd=of_root / "work",
            env=environment,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == process.returncode, process.stderr
        assert "Traceback" not in process.stderr
