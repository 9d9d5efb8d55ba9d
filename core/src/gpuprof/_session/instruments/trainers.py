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


def _install_trl_samples(instrument: Instrument, module: ModuleType) -> None:
    """Record the phases of TRL's samples, which it generates and scores in batches.

    All samples of a batch begin and end together; each has its own number of tokens.
    """
    batches = itertools.count()
    latest: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()

    def generating(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _generate(self: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            result = original(self, *args, **kwargs)
            if instrument.on:
                instrument.guarded(generated, self, start, result[1])
            return result

        return _generate

    def generated(trainer: Any, start: int, completions: Sequence[Sequence[int]]) -> None:
        end = time.perf_counter_ns()
        kind = "" if trainer.model.training else "eval "
        batch = f"{kind}{trainer.accelerator.process_index}/{next(batches)}"
        latest[trainer] = ids = [f"{batch}/{number}" for number in range(len(completions))]
        version = trainer.state.global_step
        for sample, tokens in zip(ids, completions, strict=True):
            notes = {"tokens": len(tokens), "version": version}
            instrument.note_sample(sample, "generate", start, end, notes)

    def scoring(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _calculate_rewards(self: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            result = original(self, *args, **kwargs)
            if instrument.on:
                instrument.guarded(scored, self, start)
            return result

        return _calculate_rewards

    def scored(trainer: Any, start: int) -> None:
        end = time.perf_counter_ns()
        for sample in latest.pop(trainer, ()):
            instrument.note_sample(sample, "reward", start, end, {})

    for name in ("GRPOTrainer", "RLOOTrainer"):
        trainer = getattr(module, name, None)
        # other releases of TRL generate elsewhere: their samples are not recorded
        if hasattr(trainer, "_generate") and hasattr(trainer, "_calculate_rewards"):
            instrument.replace([trainer], "_generate", generating)
            instrument.replace([trainer], "_calculate_rewards", scoring)


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
