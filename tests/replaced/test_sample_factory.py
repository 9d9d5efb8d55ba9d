"""Sample Factory's `Timing`, built like the released one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gpuprof_sample_factory
import pytest
from gpuprof_timing import Timing


class TheirTiming(dict[str, Any]):
    """A component's `Timing`: its name, and the scopes that are open."""

    def __init__(self, name: str) -> None:
        super().__init__(_name=name, _open_contexts_stack=[self])


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens first: our session, or their clock."""
    return []


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch, events: list[str]) -> Timing:
    """The process's tree; asking for it starts the session."""
    ours = Timing("ours")

    def timing() -> Timing:
        events.append("our session")
        return ours

    monkeypatch.setattr(gpuprof_sample_factory, "timing", timing)
    return ours


@pytest.fixture
def context(tree: Timing, events: list[str]) -> Any:
    """Their class of scopes, integrated."""

    class TimingContext:
        def __init__(self, timing: TheirTiming, key: str) -> None:
            self._timing, self._key = timing, key

        def __enter__(self) -> None:
            events.append("their clock")
            self._timing["_open_contexts_stack"].append(self)

        def __exit__(self, type_: object, value: object, traceback: object) -> None:
            self._timing["_open_contexts_stack"].pop()

    module = ModuleType("sample_factory.utils.timing")
    module.TimingContext = TimingContext  # type: ignore[attr-defined]  # a module of our own
    gpuprof_sample_factory._timing(module)
    return TimingContext


def test_components_of_one_process_have_their_own_names(context: Any, tree: Timing) -> None:
    """Each scope is below its component, by the name that Sample Factory prints."""
    learner, batcher = TheirTiming("Learner 0 profile"), TheirTiming("Batcher 0 profile")
    with context(learner, "train"), context(learner, "update"):
        pass
    with context(batcher, "batching"):
        pass
    expected = {
        "Learner 0",
        "Learner 0/train",
        "Learner 0/train/update",
        "Batcher 0",
        "Batcher 0/batching",
    }
    assert expected == set(tree.metrics())


def test_the_start_of_gpuprof_is_no_part_of_the_first_scope(
    context: Any, events: list[str]
) -> None:
    """It takes a tenth of a second, and would be in the figures that Sample Factory prints."""
    with context(TheirTiming("Learner 0 profile"), "train"):
        pass
    assert ["our session", "their clock"] == events
