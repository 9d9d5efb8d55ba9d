"""Replacing functions of a framework at run time."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._cli import main
from gpuprof._config.load import load
from gpuprof._launch import integrate
from gpuprof.frameworks import (
    UnexpectedError,
    _changes,
    after_import,
    import_steps,
    replace,
    unknown_release,
    whole_workers,
)
from gpuprof.ray import driver
from support.waiting import DEADLINE


class Library:
    """What a framework has."""

    def start(self, label: str) -> str:
        """Theirs."""
        return f"theirs {label}"

    @classmethod
    def annotate(cls, message: str) -> str:
        return f"{cls.__name__} {message}"


def loud(original: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement that calls the original."""

    def made(*args: Any) -> str:
        return f"{original(*args)}!"

    return made


@pytest.fixture
def library() -> type[Any]:
    return type("Library", (Library,), dict(vars(Library)))


def test_a_method_is_replaced(library: type[Any]) -> None:
    """The replacement gets the instance and the arguments."""
    replace(library, "start", loud, ["label"])
    assert "theirs train!" == library().start("train")


def test_a_replacement_keeps_the_documentation(library: type[Any]) -> None:
    """As any decorated function."""
    replace(library, "start", loud)
    assert "Theirs." == library.start.__doc__


def test_a_class_method_stays_one(library: type[Any]) -> None:
    """It gets the class."""
    replace(library, "annotate", loud, ["message"])
    assert "Library gen!" == library.annotate("gen")


def test_a_second_replacement_does_nothing(library: type[Any]) -> None:
    """Both the program and `gpuprof run --integrate` may install."""
    replace(library, "start", loud)
    replace(library, "start", loud)
    assert "theirs train!" == library().start("train")


def test_a_function_that_is_gone_is_named(library: type[Any]) -> None:
    """With its class."""
    with pytest.raises(UnexpectedError, match=r"has no Library\.stop"):
        replace(library, "stop", loud)


def test_other_parameters_are_named(library: type[Any]) -> None:
    """The framework has changed: its function is left as it is."""
    with pytest.raises(UnexpectedError, match=r"Library\.start does not take step"):
        replace(library, "start", loud, ["step"])
    assert "theirs train" == library().start("train")


def test_copies_in_the_same_package_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that have imported a function by name call the replacement, too."""
    first, second = ModuleType("a_framework.timers"), ModuleType("a_framework.trainer")
    first.timer = second.timer = lambda name: name  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_framework.trainer", second)
    replace(first, "timer", loud)
    assert "gen!" == second.timer("gen")


def test_a_fault_is_logged_once_and_the_import_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A framework that has changed still runs."""
    (tmp_path / "changed_framework.py").write_text("value = 3")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_changes, "_said", set())
    caplog.set_level(logging.WARNING, "gpuprof")
    after_import("changed_framework", lambda module: replace(module, "timer", loud))
    import changed_framework  # type: ignore[import-not-found]

    assert 3 == changed_framework.value
    assert ["changed_framework: has no timer; not recorded; the job goes on"] == caplog.messages


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a release of ``a-framework``: its metadata."""

    def install(version: str) -> None:
        about = tmp_path / f"a_framework-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: a-framework\nVersion: {version}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)

    return install


def test_a_release_that_was_tried_is_known(releases: Callable[[str], None]) -> None:
    """Nothing is to be said about it."""
    releases("1.2.0")
    assert unknown_release("a-framework", ["1.1.0", "1.2.0"]) is None


def test_another_release_is_unknown(releases: Callable[[str], None]) -> None:
    """With the releases that were tried."""
    releases("1.3.0")
    expected = "a-framework 1.3.0 was not tried, only 1.1.0, 1.2.0"
    assert expected == unknown_release("a-framework", ["1.1.0", "1.2.0"])


def test_the_mark_of_a_build_is_no_release(releases: Callable[[str], None]) -> None:
    """NeMo-RL puts its revision there."""
    releases("1.2.0+7ea279abf")
    assert unknown_release("a-framework", ["1.2.0"]) is None


def test_a_source_tree_has_no_release() -> None:
    """Its functions are checked, as those of a release are."""
    assert unknown_release("a-framework-without-metadata", ["1.2.0"]) is None


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why steps cannot be followed, for this test alone."""
    own: list[str] = []
    monkeypatch.setattr(_changes, "_without_steps", own)
    return own


def test_steps_that_have_changed_are_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasons: list[str]
) -> None:
    """The run asks for the reasons as it begins."""
    (tmp_path / "framework_with_other_steps.py").write_text("def begin_step(index): ...")
    monkeypatch.syspath_prepend(tmp_path)
    after_import(
        "framework_with_other_steps",
        lambda module: replace(module, "begin_step", loud, ["step"]),
        whole_workers,
    )
    import_steps("framework_with_other_steps")
    assert ["framework_with_other_steps: begin_step does not take step"] == reasons


def test_a_module_of_steps_that_is_gone_is_a_reason(reasons: list[str]) -> None:
    """Nothing would ever count a step."""
    import_steps("a_framework_without_steps")
    assert ["a_framework_without_steps: No module named 'a_framework_without_steps'"] == reasons


SETTINGS: dict[str, dict[str, Any]] = {
    "rlinf": {
        "cluster": {
            "profiling": {"backend": "nsight", "worker_groups": ["ActorGroup"], "steps": [1, 3]}
        }
    },
    "verl": {
        "global_profiler": {
            "tool": "nsys",
            "steps": [2, 4],
            "global_tool_config": {"nsys": {"discrete": True}},
        },
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True, "all_ranks": True}}},
    },
    "nemo-rl": {"NRL_NSYS_WORKER_PATTERNS": "*policy*", "NRL_NSYS_PROFILE_STEP_RANGE": "2:4"},
}
"""Each framework's settings for some steps."""
GROUPS = {"rlinf": "ActorGroup", "verl": "actor_rollout_ref", "nemo-rl": "dtensor_policy_worker"}


@pytest.mark.parametrize("system", SETTINGS)
def test_a_whole_worker_is_one_window(system: str) -> None:
    """Whatever steps and ranges its settings select."""
    config = load(SETTINGS[system], system=system)
    whole = load(
        SETTINGS[system],
        system=system,
        overrides=driver.whole_lives(config),
    )
    selection = whole.selection(GROUPS[system])
    assert selection.steps is None
    assert not selection.discrete


def test_what_is_whole_already_stays_as_it_is() -> None:
    """verl's controller: its run has nothing to say about steps."""
    only = ("worker_groups=[controller]",)
    config = load(SETTINGS["verl"], system="verl", overrides=only)
    assert () == driver.whole_lives(config)


def test_a_job_that_profiles_nothing_still_does_not() -> None:
    """Steps are what is taken out, not the switch."""
    profiling = {**SETTINGS["rlinf"]["cluster"]["profiling"], "enabled": False}
    off = {"cluster": {"profiling": profiling}}
    config = load(off, system="rlinf")
    assert () == driver.whole_lives(config)


def started(directory: Path, program: str, name: str) -> list[str]:
    """What a fresh Python prints, as `gpuprof run --integrate` starts it."""
    (directory / "sitecustomize.py").write_text("print('the environment has its own')")
    path = f"{Path(integrate.__file__).with_name('_integrate')}:{directory}"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": path, "GPUPROF_INTEGRATE": name},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


def test_a_process_without_the_framework_does_not_import_gpuprof(tmp_path: Path) -> None:
    """Every Python of a job starts this way."""
    program = "import sys; print('gpuprof' in sys.modules)"
    assert ["the environment has its own", "False"] == started(
        tmp_path, program, "verl=gpuprof_verl"
    )


def test_importing_the_framework_installs_the_integration(tmp_path: Path) -> None:
    """Before the framework's own code runs."""
    package = tmp_path / "sample_factory"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import sys; print('gpuprof_sample_factory' in sys.modules)"
    )
    program = "import sample_factory"
    expected = ["the environment has its own", "True"]
    assert expected == started(tmp_path, program, "sample_factory=gpuprof_sample_factory")


def test_a_plugin_that_fails_costs_nothing_but_itself(tmp_path: Path) -> None:
    """The framework is imported all the same."""
    (tmp_path / "broken_plugin.py").write_text("ON_RAY = False\ndef install(): 1 / 0\n")
    (tmp_path / "a_framework.py").write_text("print('imported')")
    expected = ["the environment has its own", "imported"]
    assert expected == started(tmp_path, "import a_framework", "a_framework=broken_plugin")


def test_a_framework_on_ray_has_its_own_settings() -> None:
    """The options of a plain command are refused, with what to do."""
    words = ["run", "--integrate", "verl", "--set", "steps=[1]", "--", "true"]
    done = CliRunner().invoke(main, words)
    assert 2 == done.exit_code
    assert "--integrate verl reads the framework's own settings" in done.output


MISSPELT = """
from gpuprof.ray import driver
from gpuprof.frameworks import guarded
settings = {"backend": "none", "worker_groups": "all", "stepz": [1]}
guarded("verl: the run", lambda: driver.begin("gpuprof", settings))
"""


def test_a_misspelt_key_ends_the_job_with_one_sentence() -> None:
    """A traceback through the framework would hide it."""
    done = subprocess.run(
        [sys.executable, "-c", MISSPELT],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert 2 == done.returncode
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpuprof: stepz: unknown key; did you mean 'steps'?")
