"""torch: the parts of a training loop: forward, backward, the optimizer's step, saving.

If the job marks no steps, the end of an optimizer's step counts as the end of a step of the job.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuprof_timing.instrument import call_linked, is_compiling

from gpuprof._session.instruments.instrument import Call, Instrument

_FRAMES_ABOVE = 3
"""From a hook to the caller of the function that it is for."""
_inside = threading.local()
"""Whether this thread is inside the call of a module. Only the outermost call has a scope."""


def _install_modules(instrument: Instrument, modules: ModuleType) -> None:
    recording, fail = instrument.recording, instrument.fail

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(*args: Any, **kwargs: Any) -> Any:
            # `is_compiling` first, so that torch.compile sees no code of ours; then the cheapest
            if is_compiling() or hasattr(_inside, "module") or not instrument.on:
                return original(*args, **kwargs)
            _inside.module = True
            try:
                return call_linked(recording, "forward", None, None, original, args, kwargs, fail)
            finally:
                del _inside.module

        return __call__

    # not `register_module_forward_pre_hook`, which costs thirty times as much
    instrument.replace([modules.Module], "__call__", make)


def _install_autograd(instrument: Instrument, autograd: ModuleType) -> None:
    instrument.around([autograd], "backward", lambda *_, **__: Call("backward"))
    instrument.around([autograd], "grad", lambda *_, **__: Call("grad"))


def _install_optimizers(instrument: Instrument, optimizers: ModuleType) -> None:
    first_optimizer: weakref.ref[Any] | None = None

    def stepping(*_: Any, **__: Any) -> Call:
        return Call("optimizer", "nothing")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            torch_step = original(function)

            @functools.wraps(torch_step)
            def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                nonlocal first_optimizer
                if is_compiling() or not instrument.on:
                    return torch_step(optimizer, *args, **kwargs)
                result = instrument.call(stepping, torch_step, (optimizer, *args), kwargs)
                # with several optimizers, as in a GAN, the first one's steps count
                if first_optimizer is None or first_optimizer() is None:
                    first_optimizer = weakref.ref(optimizer)
                if first_optimizer() is optimizer:
                    instrument.end_step()
                return result

            return step

        return profile_hook_step

    # the wrapper that torch itself puts around the `step` of each optimizer class
    instrument.replace([optimizers.Optimizer], "profile_hook_step", make)


def _install_saving(instrument: Instrument, serialization: ModuleType) -> None:
    def saving(*_: Any, **__: Any) -> Call | None:
        # torch itself calls it to pickle a tensor, as in `gather_object`
        caller = sys._getframe(_FRAMES_ABOVE).f_globals.get("__name__", "")
        return None if caller == "torch.storage" else Call("save", "nothing")

    instrument.around([serialization, sys.modules["torch"]], "save", saving)


INSTALL = {
    "torch.nn.modules.module": _install_modules,
    "torch.autograd": _install_autograd,
    "torch.optim.optimizer": _install_optimizers,
    "torch.serialization": _install_saving,
}
