"""What waits for a module sees it as the job imports it, whatever finds and loads it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpuprof._session.after_import import after_import
from wrapt import register_post_import_hook

NAME = "imported_late_by_the_job"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module that can be imported and is not."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / f"{NAME}.py"
    file.write_text("VALUE = 1\n")
    before = list(sys.meta_path)
    yield file
    sys.meta_path[:] = before
    sys.modules.pop(NAME, None)


@pytest.fixture
def seen(source: Path) -> list[Any]:
    """Values of the module when it was there."""
    values: list[Any] = []
    after_import(NAME, lambda module: values.append(module.VALUE))
    return values


def test_a_module_is_there_when_it_is_told(seen: list[Any]) -> None:
    """Only once, whoever imports it again."""
    assert [] == seen
    importlib.import_module(NAME)
    importlib.import_module(NAME)
    assert [1] == seen


def test_a_module_that_is_there_already(source: Path, seen: list[Any]) -> None:
    """It is told at once."""
    importlib.import_module(NAME)
    after_import(NAME, lambda module: seen.append("again"))
    assert [1, "again"] == seen


def test_the_modules_loader_is_its_own(seen: list[Any]) -> None:
    """As a job may ask for its source or its files."""
    module = importlib.import_module(NAME)
    assert module.__spec__ is not None
    assert module.__loader__ is module.__spec__.loader
    assert "SourceFileLoader" == type(module.__loader__).__name__


def test_a_module_that_is_only_looked_for(seen: list[Any]) -> None:
    """As libraries do to learn whether another is installed."""
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert "VALUE = 1\n" == spec.loader.get_source(NAME)  # type: ignore[union-attr]
    assert [] == seen


def test_a_module_that_is_not_installed() -> None:
    """The import fails as ever."""
    after_import("not_installed_anywhere", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        importlib.import_module("not_installed_anywhere")


def test_an_import_that_fails_and_is_tried_again(source: Path, seen: list[Any]) -> None:
    """The module is told when it is whole."""
    source.write_text("raise LookupError('not yet')")
    with pytest.raises(LookupError, match="not yet"):
        importlib.import_module(NAME)
    source.write_text("VALUE = 'now, and longer'")
    importlib.invalidate_caches()
    importlib.import_module(NAME)
    assert ["now, and longer"] == seen


def test_a_lazy_module_is_told_when_it_is_used(seen: list[Any]) -> None:
    """Not when it is only named."""
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    assert [] == seen
    assert 1 == module.VALUE
    assert [1] == seen


def test_a_reload(seen: list[Any]) -> None:
    """It works, and tells nobody again."""
    module = importlib.import_module(NAME)
    assert module is importlib.reload(module)
    assert [1] == seen


class Own(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder and loader of the job's."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == NAME else None

    def exec_module(self, module: ModuleType) -> None:
        module.VALUE = "own"  # type: ignore[attr-defined]


class Around(Own):
    """One that asks all others by the standard library, as those of other hooks do."""

    def __init__(self) -> None:
        self.busy = False

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if self.busy or name != NAME:
            return None
        self.busy = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self.busy = False


@pytest.mark.parametrize(("make", "value"), [(Own, "own"), (Around, 1)])
@pytest.mark.parametrize("last", [False, True])
def test_a_finder_of_the_jobs_own(
    seen: list[Any], make: Callable[[], Any], value: object, last: bool
) -> None:
    """It finds the module if it was put in front of the others."""
    own = make()
    finders = list(sys.meta_path)
    sys.meta_path[:] = [*finders[:1], own, *finders[1:]] if last else [own, *finders]
    module = importlib.import_module(NAME)
    assert value == module.VALUE
    # what a finder in front of gpuprof's loads by itself, nobody can see
    assert ([] if make is Own and not last else [value]) == seen


def test_hooks_that_were_there_before_come_first(source: Path) -> None:
    """Also those of wrapt, which asks all finders again: we see what they have changed."""
    register_post_import_hook(lambda module: setattr(module, "VALUE", 2), NAME)
    values: list[Any] = []
    after_import(NAME, lambda module: values.append(module.VALUE))
    importlib.import_module(NAME)
    assert [2] == values
