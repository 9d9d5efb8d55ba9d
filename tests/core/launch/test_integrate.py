"""`gpuprof run --integrate` with plugins that are absent, broken, doubled, or as they should be."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._cli import main

PLUGIN = """
PACKAGE, ON_RAY, TRIED = "a_framework", True, ("1.0",)
def install(): ...
def install_in_worker(): ...
"""


HEAVY = {"yaml", "attrs", "cattrs", "pluggy", "ray", "torch", "gpuprof._config"}


def said(name: str) -> str:
    """What `gpuprof run` prints as it refuses a framework."""
    done = CliRunner().invoke(main, ["run", "--integrate", name, "--", "true"])
    assert 2 == done.exit_code
    return " ".join(done.output.split())


def test_what_is_not_installed_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence ends with the command."""
    monkeypatch.setattr("gpuprof.backend.loading.own_frameworks", lambda: frozenset({"rl-six"}))
    expected = (
        "'rl-six' is not installed; valid: nemo-rl, rlinf, sample-factory, verl. Install it from "
        "gpuprof's checkout: pip install ./timing '.[rl_six]' ./frameworks/rl_six"
    )
    assert f"gpuprof: --integrate: {expected}" == said("rl-six")


def test_a_misspelt_framework_is_guessed() -> None:
    """Of those that are installed, or that gpuprof knows."""
    expected = "gpuprof: --integrate: 'sample_factory' is not installed; did you mean"
    assert said("sample_factory").startswith(f"{expected} 'sample-factory'? Valid: ")


def test_a_plugin_that_lacks_something_is_refused(install: Any) -> None:
    """Before the job starts."""
    module = install("PACKAGE, ON_RAY = 'a_framework', True", frameworks=["half"])
    expected = "breaks the contract: it has no TRIED, install, install_in_worker"
    assert f"gpuprof: --integrate: 'half' ({module}) {expected}" == said("half")


def test_a_plugin_of_somebody_else_is_used(install: Any) -> None:
    """Nothing in gpuprof knows its name."""
    install(PLUGIN, frameworks=["mine"])
    words = ["run", "--integrate", "mine", "--set", "steps=[1]", "--", "true"]
    assert (
        "--integrate mine reads the framework's own settings"
        in CliRunner().invoke(main, words).output
    )


def test_a_worker_loads_nothing_heavy() -> None:
    """Each worker of a job imports the doors of plugins."""
    code = "import json, sys, gpuprof.frameworks; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set() == HEAVY & set(json.loads(done.stdout))


@pytest.mark.parametrize("name", ["verl", "rlinf", "nemo_rl", "sample_factory"])
def test_install_in_worker_loads_nothing_heavy(name: str) -> None:
    """No settings, no YAML, no Ray, and not the framework: every worker of a job calls it."""
    plugin = f"gpuprof_{name}"
    code = (
        f"import json, sys, {plugin}; {plugin}.install_in_worker(); "
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    heavy = {*HEAVY, "gpuprof.settings", "gpuprof.ray.driver", f"{plugin}.settings", name}
    assert set() == heavy & set(json.loads(done.stdout))


LEAVES = """
import os, sys, types
sys.modules["gpuprof.ray.driver"] = types.SimpleNamespace(began=lambda: {began})
os.environ["GPUPROF_INTEGRATE"] = "a_framework=a_plugin"
from gpuprof._launch import integrate
integrate.leave()
"""


@pytest.mark.parametrize("began", [False, True])
def test_a_job_of_which_nothing_is_recorded_says_so_as_it_ends(began: bool) -> None:
    """Its own loop may use the framework's parts, but not its trainer."""
    program = [sys.executable, "-c", LEAVES.format(began=began)]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stderr
    assert began != ("--integrate: nothing is recorded: a_framework's trainer did not run" in said)
