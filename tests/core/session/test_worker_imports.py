"""What a process with a session imports, seen in a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from gpuprof._shim.row import VARIABLE, encode
from support.recorder import Recorder

PLANNING = (
    "gpuprof._plan",
    "gpuprof.settings",
    "gpuprof._config.load",
    "gpuprof._config.schema",
    "gpuprof._config.sources",
    "yaml",
    "tabulate",
    "click",
)
"""What the launcher needs."""
CAPTURING = (
    "gpuprof._config",
    "gpuprof._session.capture",
    "gpuprof.backend.loading",
    "importlib.metadata",
)
"""What a worker needs that opens windows."""
PROGRAM = "import json, sys, gpuprof; gpuprof.timing(); print(json.dumps(list(sys.modules)))"


def loaded(recorder: Recorder, *, profiled: bool) -> set[str]:
    """The modules of a process that has started its session."""
    row = recorder.row(profiled=profiled, backend="none")
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, VARIABLE: encode(row)},
        check=True,
        stdout=subprocess.PIPE,
    )
    return set(json.loads(process.stdout))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, set[str]]:
    """The modules of a worker, by whether it is profiled."""
    recorder = Recorder("", tmp_path_factory.mktemp("runs"))
    return {profiled: loaded(recorder, profiled=profiled) for profiled in (False, True)}


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("module", PLANNING)
def test_a_worker_does_not_import_the_launcher(
    module: str, profiled: bool, modules: dict[bool, set[str]]
) -> None:
    """Its row has all that it needs of the plan."""
    assert module not in modules[profiled]


@pytest.mark.parametrize("module", CAPTURING)
def test_a_worker_that_is_not_profiled_does_not_import_the_backend(
    module: str, modules: dict[bool, set[str]]
) -> None:
    """Most processes of a job only keep a tree."""
    assert module not in modules[False]


@pytest.mark.parametrize("module", CAPTURING)
def test_a_profiled_worker_imports_what_captures(
    module: str, modules: dict[bool, set[str]]
) -> None:
    """The modules that the test above expects to be absent are still named so."""
    assert module in modules[True]


def test_the_session_has_started(modules: dict[bool, set[str]]) -> None:
    """Without one the tests above would say nothing."""
    assert all("gpuprof._session.session" in names for names in modules.values())
