"""Runs the programs of the frameworks' tests, each once in each mode."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.cluster import make
from support.frameworks import Framework, Job, RunInstruments, RunJob, RunOwnTests
from support.report_reader import NoRanges, labels

collect_ignore = ["instruments", "jobs"]  # programs: only the frameworks' environment imports them

HERE = Path(__file__).parent
JOBS = HERE / "jobs"
PATIENCE = 600.0
"""Seconds for a program: verl's imports alone take a minute on a busy machine."""
OTHER_STEPS = """
import wrapt

def change(module):
    theirs = module.ScopedTimer.__call__
    module.ScopedTimer.__call__ = lambda self, label: theirs(self, label)

wrapt.register_post_import_hook(change, "rlinf.utils.distributed")
"""
"""An RLinf whose timer of the steps takes its name by another one."""
INTEGRATED = """
import json, pathlib, runpy, sys
import gpuprof
from gpuprof._launch import integrate
integrate.framework("{name}").install()
runpy.run_path(sys.argv.pop(1), run_name="__main__")
ours = pathlib.Path(sys.argv[1]).with_name("ours.json")
ours.write_text(json.dumps(sorted(gpuprof.timing())))
"""
THEIR_TESTS = (
    *("--noconftest", "-p", "no:cacheprovider", "-p", "no:randomly", "-o", "addopts="),
    *("-W", "ignore", "--import-mode=importlib", "-q"),
)
"""Their tests and nothing else of their repositories."""


def execute(
    words: Sequence[str], environment: Mapping[str, str], place: Path
) -> subprocess.CompletedProcess[str]:
    """Run a program and keep all that it prints."""
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def integrated(framework: Framework) -> list[str]:
    """What stands in front of a command of Python."""
    return ["-m", "gpuprof", "run", "--integrate", framework.name, "--", sys.executable]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """A Ray cluster of one node: RLinf would otherwise take any that runs on this machine."""
    from ray.cluster_utils import Cluster

    before = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"  # a token would be a file in the home directory
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=16, temp_dir=make(), include_dashboard=False)
        yield cluster.address
    finally:
        cluster.shutdown()
        os.environ.pop("RAY_AUTH_MODE")
        if before is not None:
            os.environ["RAY_AUTH_MODE"] = before


@pytest.fixture(scope="session")
def ran(address: str, tmp_path_factory: pytest.TempPathFactory) -> RunJob:
    """Runs a framework's job.

    ``plain`` is without gpuprof. With it, its profiler is ``on`` or ``off``, or ``off`` while
    gpuprof is to record ``times``, or ``on`` in a release
    that is ``unknown``, or one whose steps have ``changed``, or with an nsys that is ``broken``.
    ``experimental`` is ``on`` in the job of its experimental trainers, ``samples`` in that of its
    agent loop.
    """

    def start(framework: Framework, mode: str) -> tuple[int, Job]:
        place = tmp_path_factory.mktemp(f"{framework.package}-{mode}")
        off = mode in ("plain", "off", "times")
        job = f"{mode}_job" if mode in ("experimental", "samples") else "job"
        words = [str(JOBS / f"{framework.package}_{job}.py"), *arguments(framework, place)]
        words += framework.off if off else framework.on
        disguise(framework, mode, place)
        variables = {"RAY_ADDRESS": address, "PYTHONWARNINGS": "ignore"}
        variables.update({} if off else framework.variables)
        if mode == "times":
            variables["GPUPROF_ENABLED"] = "true"
        if mode == "broken":
            (place / "nsys").symlink_to("/bin/false")
            variables["PATH"] = f"{place}:{os.environ['PATH']}"
        before = sums(framework.files)
        done = execute(
            words if mode == "plain" else [*integrated(framework), *words],
            {**framework.environment(JOBS, place), **variables},
            place,
        )
        runs = sorted(path.parent for path in place.glob("*/*/run.json"))
        file = place / "result.json"
        result = json.loads(file.read_text()) if file.exists() else {}
        return done.returncode, Job(result, runs, done.stdout, before ^ sums(framework.files))

    attempts: dict[tuple[str, str], tuple[int, Job]] = {}

    def run(framework: Framework, mode: str) -> Job:  # a job that has failed is not run again
        key = framework.package, mode
        if key not in attempts:
            code, job = start(framework, mode)
            if mode == "on" and code == 0:
                find_ranges(framework, job)
            attempts[key] = code, job
        code, job = attempts[key]
        assert 0 == code, job.log
        return job

    return run


def find_ranges(framework: Framework, job: Job) -> None:
    """Check that nsys has not lost all ranges of a process; those of its own are always there.

    Raises:
        NoRanges: it has, and the next test runs the job again.
    """
    own = framework.in_workers | framework.in_driver
    for report in (report for each in job.runs for report in each.rglob("*.nsys-rep")):
        if not own & labels(str(report)).keys():
            raise NoRanges(report)


def arguments(framework: Framework, place: Path) -> list[str]:
    """What a job is told in each mode."""
    result, reports = place / "result.json", place / "profile"
    if framework.package == "verl":
        return [
            f"trainer.default_local_dir={result}",
            f"global_profiler.save_path={reports}",
            f"ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH={place}",  # its release
        ]
    more = [f"cluster.profiling.output_dir={reports}"] if framework.package == "rlinf" else []
    return [str(result), *more]


def disguise(framework: Framework, mode: str, place: Path) -> None:
    """Put what makes the framework look like another release into a directory of its path."""
    if mode == "unknown":
        about = place / f"{framework.package}-99.0.dist-info"
        about.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {framework.name}", "Version: 99.0", ""]
        (about / "METADATA").write_text("\n".join(lines))
    if mode == "changed":
        (place / "sitecustomize.py").write_text(OTHER_STEPS)


def sums(package: Path) -> set[str]:
    """A package's files of Python, each with its checksum."""
    return {
        f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in package.rglob("*.py")
    }


@pytest.fixture(scope="session")
def instruments(tmp_path_factory: pytest.TempPathFactory) -> RunInstruments:
    """Runs a framework's program of instruments, with gpuprof or without; once each."""
    places: dict[tuple[str, bool], Path] = {}

    def run(framework: Framework, with_gpuprof: bool) -> tuple[dict[str, object], set[str]]:
        key = framework.package, with_gpuprof
        if key not in places:
            place = tmp_path_factory.mktemp(framework.package)
            program = str(HERE / "instruments" / f"{framework.package}_instruments.py")
            before = ["-c", INTEGRATED.format(name=framework.name)] if with_gpuprof else []
            words = ["-W", "ignore", *before, program, str(place / "theirs.json")]
            done = execute(words, framework.environment(), place)
            assert 0 == done.returncode, done.stdout
            places[key] = place
        ours = places[key] / "ours.json"
        keys = json.loads(ours.read_text()) if with_gpuprof else []
        return json.loads((places[key] / "theirs.json").read_text()), set(keys)

    return run


@pytest.fixture(scope="session")
def own_tests(tmp_path_factory: pytest.TempPathFactory) -> RunOwnTests:
    """Runs a framework's own tests, with gpuprof or without."""

    def run(framework: Framework, with_gpuprof: bool) -> dict[str, str]:
        file = tmp_path_factory.mktemp(framework.package) / "results.xml"
        words = ["-m", "pytest", *THEIR_TESTS, f"--junitxml={file}", *framework.own_tests]
        before = integrated(framework) if with_gpuprof else []
        done = execute([*before, *words], framework.environment(), framework.checkout)
        assert file.exists(), done.stdout
        return {
            f"{case.get('classname')}.{case.get('name')}": case[0].tag if len(case) else "passed"
            for case in ElementTree.parse(file).iter("testcase")
        }

    return run
