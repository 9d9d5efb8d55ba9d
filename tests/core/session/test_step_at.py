"""Steps where the user says that they are."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
from gpuprof._session.instruments.instrument import Instrument
from gpuprof._session.step_at import StepAt
from gpuprof_timing import Timing
from ray import cloudpickle


class Marks:
    """What a `StepAt` has marked, in order: each number where its step begins, and `end`."""

    def __init__(self, name: str) -> None:
        self.made: list[object] = []
        self.faults: list[str] = []
        instrument = Instrument("step_at", Timing(), self.faults.append)
        self.steps = StepAt(name, self._step, instrument)
        self.steps.install()

    @contextmanager
    def _step(self, number: int) -> Iterator[None]:
        self.made.append(number)
        yield
        self.made.append("end")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with functions, imported already."""
    made = ModuleType("module_with_steps")
    code = """
def step(again=0):
    if again:
        step(again - 1)
async def later():
    return 5
class Base:
    def train(self):
        raise ZeroDivisionError
class Trainer(Base):
    pass
"""
    exec(code, vars(made))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_the_outermost_calls_of_a_function_are_steps(module: ModuleType) -> None:
    """Not those of the function inside itself."""
    marks = Marks("module_with_steps:step")
    module.step()
    module.step(again=2)
    assert [0, "end", 1, "end"] == marks.made


def test_a_coroutine_function(module: ModuleType) -> None:
    """A step lasts until its end."""
    marks = Marks("module_with_steps:later")
    assert 5 == asyncio.run(module.later())
    assert [0, "end"] == marks.made


def test_an_inherited_method_that_raises(module: ModuleType) -> None:
    """The job gets its error, and the step ends."""
    marks = Marks("module_with_steps:Trainer.train")
    with pytest.raises(ZeroDivisionError):
        module.Trainer().train()
    assert [0, "end"] == marks.made


def test_a_function_that_is_sent_to_another_process_marks_nothing_there(
    module: ModuleType,
) -> None:
    """And can be sent, with all that is around it."""
    marks = Marks("module_with_steps:step")
    module.step.__module__ = "__main__"
    cloudpickle.loads(cloudpickle.dumps(module.step))()
    assert [] == marks.made


def test_a_function_that_is_not_there(module: ModuleType) -> None:
    """The end says so."""
    marks = Marks("module_with_steps:stop")
    why = "module_with_steps has no stop"
    assert f"step_at: module_with_steps:stop has marked no step: {why}" == marks.steps.why_none


def test_a_step_lasts_from_one_call_of_an_actor_to_the_next() -> None:
    """Of several actors from one that comes again to when it does."""
    marks = Marks("Learner.train")
    for actor in ("a", "b", "c") * 2:
        marks.steps.called("Learner", "train", actor)
        marks.steps.called("Env", "sample", actor)
    assert [0, "end", 1] == marks.made


def test_another_actor_takes_over_from_one_that_is_gone() -> None:
    """When it comes for the second time."""
    marks = Marks("Learner.train")
    for actor in ("a", "b", "a", "b", "b", "b"):
        marks.steps.called("Learner", "train", actor)
    assert [0, "end", 1, "end", 2, "end", 3] == marks.made


def test_a_name_that_never_comes() -> None:
    """The end says what came."""
    marks = Marks("Learner.trian")
    marks.steps.called("Learner", "train", "a")
    assert (
        "step_at: Learner.trian has marked no step: this process never called it; it called "
        "Learner.train"
    ) == marks.steps.why_none


def test_an_actor_that_calls_its_own_method_has_steps() -> None:
    """As a loop that runs inside a trainer; of a class that others may inherit from."""

    class Trainer:
        def fit(self) -> None:
            for _ in range(2):
                self.train()

        def train(self) -> None:
            pass

    as_ray_does = Trainer.train
    marks = Marks("Trainer.train")
    for _ in range(2):  # at the first call of each of its methods
        marks.steps.held(Trainer)
    marks.steps.held(Marks)
    Trainer().fit()
    assert [0, "end", 1, "end"] == marks.made
    as_ray_does(Trainer())
    assert ([0, "end", 1, "end"], []) == (marks.made, marks.faults)


@pytest.mark.parametrize("module", ["script_of_the_driver", "__main__"])
def test_a_function_of_the_script_that_an_actor_calls_is_followed(module: str) -> None:
    """Ray pickles it with the class, whose methods see a copy of the script's variables."""
    script = {"__name__": module}
    code = """
def step():
    pass
class Trainer:
    def train(self):
        step()
"""
    exec(code, script)
    trainer: type = cloudpickle.loads(cloudpickle.dumps(script["Trainer"]))
    held = type("Trainer", (trainer,), {"__module__": module})  # as Ray does
    marks = Marks(f"{module}:step")
    for _ in range(2):
        marks.steps.held(held)
        held().train()
    assert ([0, "end", 1, "end"], []) == (marks.made, marks.faults)
