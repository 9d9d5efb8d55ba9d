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
from gpuprof.integrations import _changes, _launch
from gpuprof.integrations._changes import UnexpectedError, after_import, replace


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
    assert ["changed_framework: has no timer; gpuprof leaves it out"] == caplog.messages


def started(directory: Path, program: str, name: str) -> list[str]:
    """What a fresh Python prints, as `gpuprof run --integrate` starts it."""
    (directory / "sitecustomize.py").write_text("print('the environment has its own')")
    path = f"{Path(_launch.__file__).with_name('_start')}:{directory}"
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
    assert ["the environment has its own", "False"] == started(tmp_path, program, "verl")


def test_importing_the_framework_installs_the_integration(tmp_path: Path) -> None:
    """Before the framework's own code runs."""
    package = tmp_path / "sample_factory"
    package.mkdir()
    (package / "__init__.py").write_text("import sys; print('gpuprof.integrations' in sys.modules)")
    program = "import sample_factory"
    expected = ["the environment has its own", "True"]
    assert expected == started(tmp_path, program, "sample_factory")


def test_a_framework_on_ray_has_its_own_settings() -> None:
    """The options of a plain command are refused, with what to do."""
    words = ["run", "--integrate", "verl", "--set", "steps=[1]", "--", "true"]
    done = CliRunner().invoke(main, words)
    assert 2 == done.exit_code
    assert "--integrate verl reads the framework's own settings" in done.output
