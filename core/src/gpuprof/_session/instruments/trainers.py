"""Trainers of other libraries: the callbacks of Transformers and Lightning, the parts of TRL.

Only the library's own classes are changed, never the job's classes: the job may pickle its classes
with all their attributes.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from gpuprof._session.instruments.instrument import Call, Instrument


def _install_transformers(instrument: Instrument, module: ModuleType) -> None:
    _mark_callbacks(instrument, module.TrainerCallback, module.CallbackHandler)


def _install_lightning(instrument: Instrument, module: ModuleType) -> None:
    _mark_callbacks(instrument, module.Callback)


def _mark_callbacks(
    instrument: Instrument, base: type[Any], handler: type[Any] | None = None
) -> None:
    """Put a scope around each event method that a callback overrides, and around no other.

    Args:
        base: the base class of all callbacks.
        handler: the callback class that calls the other callbacks; it gets no scopes.
    """
    events = {name: value for name, value in vars(base).items() if name.startswith("on_")}

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __getattribute__(self: Any, name: str) -> Any:
            value = original(self, name)
            if name not in events or not instrument.on or type(self) is handler:
                return value
            if getattr(value, "__func__", None) in (None, events[name]):
                return value
            label = f"{type(self).__name__}.{name}"

            @functools.wraps(value)
            def event(*args: Any, **kwargs: Any) -> Any:
                return instrument.call(lambda *_, **__: Call(label, "nothing"), value, args, kwargs)

            return event

        return __getattribute__

    instrument.replace([base], "__getattribute__", make)


def _install_lightning_hooks(instrument: Instrument, module: ModuleType) -> None:
    def hook(trainer: Any, name: str, *_: Any, pl_module: Any = None, **__: Any) -> Call | None:
        kind = type(pl_module or trainer.lightning_module)
        own_of_lightning = inspect.getattr_static(module.pl.LightningModule, name, None)
        if inspect.getattr_static(kind, name, None) is own_of_lightning:
            return None
        return Call(f"{kind.__name__}.{name}", "nothing")

    def step(trainer: Any, name: str, *_: Any, **__: Any) -> Call | None:
        label = f"{type(trainer.lightning_module).__name__}.{name}"
        return Call(label, "nothing") if name.endswith("_step") else None

    instrument.around([module], "_call_lightning_module_hook", hook)
    instrument.around([module], "_call_strategy_hook", step)


def _install_trl(instrument: Instrument, module: ModuleType) -> None:
    """Put a scope into the context manager that TRL has around its parts and reward functions."""
    scopes: dict[int, Any] = {}

    def enter(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __enter__(self: Any) -> Any:
            result = original(self)
            if instrument.on:
                scopes[id(self)] = instrument.begin(lambda: Call(self.name, "nothing"), (), {})
            return result

        return __enter__

    def leave(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __exit__(self: Any, *error: Any) -> Any:
            scope = scopes.pop(id(self), None)
            if isinstance(scope, Exception):
                instrument.fail(scope)
            elif scope is not None:
                instrument.end(scope[0], scope[1], None)
            return original(self, *error)

        return __exit__

    instrument.replace([module.ProfilingContext], "__enter__", enter)
    instrument.replace([module.ProfilingContext], "__exit__", leave)


_IDS = "gpuprof_samples"
"""The key under which the ids of a batch are shuffled with it."""


class _Batch:
    """A batch that a trainer of TRL has generated to train it, in parts.

    Attributes:
        ids: of its samples, in the order in which they are trained.
        ready: when the latest part was, in nanoseconds.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids
        self.ready = 0


def _install_trl_samples(instrument: Instrument, module: ModuleType) -> None:
    """Record the phases of TRL's samples, which it generates, scores and trains in batches.

    All samples of a batch begin and end together; each has its own number of tokens.
    """
    batches = itertools.count()
    to_score: weakref.WeakKeyDictionary[Any, Sequence[str]] = weakref.WeakKeyDictionary()
    to_train: weakref.WeakKeyDictionary[Any, _Batch] = weakref.WeakKeyDictionary()
    to_shuffle: list[_Batch] = []

    def generated(trainer: Any, start: int, result: Any) -> None:
        end, completions = time.perf_counter_ns(), result[1]
        kind = "" if trainer.model.training else "eval "
        batch = f"{kind}{trainer.accelerator.process_index}/{next(batches)}"
        ids = [f"{batch}/{number}" for number in range(len(completions))]
        to_score[trainer] = ids
        if not kind:
            to_train[trainer] = _Batch(ids)
            to_shuffle[:] = [to_train[trainer]]
        version = trainer.state.global_step
        for sample, tokens in zip(ids, completions, strict=True):
            notes = {"tokens": len(tokens), "version": version}
            instrument.note_sample(sample, "generate", start, end, notes)

    def scored(trainer: Any, start: int, _: Any) -> None:
        end = time.perf_counter_ns()
        for sample in to_score.pop(trainer, ()):
            instrument.note_sample(sample, "reward", start, end, {})

    def shuffling(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def shuffle_sequence_dict(values: Any) -> Any:
            if not instrument.on or not to_shuffle:
                return original(values)
            batch = to_shuffle.pop()
            try:
                result = original({**values, _IDS: batch.ids})
                batch.ids = result.pop(_IDS)
            except Exception as error:  # it does so by itself, or cannot shuffle a list
                instrument.fail(error)
                return original(values)
            return result

        return shuffle_sequence_dict

    def prepared(trainer: Any, _: int, __: Any) -> None:
        if trainer.model.training and trainer in to_train:
            to_train[trainer].ready = time.perf_counter_ns()

    def trained(trainer: Any, _: int, __: Any) -> None:
        end, batch = time.perf_counter_ns(), to_train.get(trainer)
        if batch is None or not batch.ready:
            return
        parts = trainer.args.steps_per_generation
        size, part = len(batch.ids) // parts, (trainer._step - 1) % parts
        notes = {"version": trainer.state.global_step}
        for sample in batch.ids[part * size : (part + 1) * size]:
            instrument.note_sample(sample, "trained", batch.ready, end, notes)

    for name in ("GRPOTrainer", "RLOOTrainer"):
        trainer = getattr(module, name, None)
        # other releases of TRL generate elsewhere: their samples are not recorded
        if hasattr(trainer, "_generate") and hasattr(trainer, "_calculate_rewards"):
            instrument.replace([trainer], "_generate", _then(instrument, generated))
            instrument.replace([trainer], "_calculate_rewards", _then(instrument, scored))
            if hasattr(module, "shuffle_sequence_dict") and "training_step" in vars(trainer):
                instrument.replace([module], "shuffle_sequence_dict", shuffling)
                instrument.replace([trainer], "_prepare_inputs", _then(instrument, prepared))
                instrument.replace([trainer], "training_step", _then(instrument, trained))


def _then(
    instrument: Instrument, after: Callable[[Any, int, Any], None]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call a function after each call of a method, with the object, the start and the result."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            result = original(self, *args, **kwargs)
            if instrument.on:
                instrument.guarded(after, self, start, result)
            return result

        return method

    return make


INSTALL = {
    "transformers.trainer_callback": _install_transformers,
    "lightning.pytorch.callbacks.callback": _install_lightning,
    "lightning.pytorch.trainer.call": _install_lightning_hooks,
    "pytorch_lightning.callbacks.callback": _install_lightning,
    "pytorch_lightning.trainer.call": _install_lightning_hooks,
    "trl.extras.profiling": _install_trl,
    "trl.trainer.grpo_trainer": _install_trl_samples,
    "trl.trainer.rloo_trainer": _install_trl_samples,
}
