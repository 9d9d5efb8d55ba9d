"""Instruments: they put scopes around a library's waits, so that the job's code need not.

Each module is the instrument of one library, which it never imports. It replaces functions of a
module that the job has imported, and puts the original functions back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuprof_timing import Timing

from gpuprof._session.instruments import (
    collectives,
    coroutines,
    loaders,
    queues,
    ray_calls,
    threads,
    trainers,
    training,
)
from gpuprof._session.instruments.instrument import NO_HOOKS, Hooks, Instrument

KNOWN = {
    "ray": (ray_calls,),
    "torch": (collectives, loaders, training, trainers),
    "queue": (queues,),
}
"""The instruments by their name in the configuration."""
_ALWAYS = {"asyncio": (coroutines,), "threads": (threads,)}
"""Those that are added to any of these: a wait in a helper thread or a task is a wait of the thread
that joins it. They come first, as Ray's replaces the one for asyncio by one that knows its calls.
"""


def begin(
    names: Iterable[str],
    timing: Timing,
    on_fault: Callable[[str], object],
    hooks: Hooks = NO_HOOKS,
) -> list[Instrument]:
    """Install instruments. Never raises.

    Args:
        names: names in `KNOWN`.
        timing: the tree that gets the scopes.
        on_fault: called with a message if an instrument does not work here. The job goes on without
            the instrument.
        hooks: called with what instruments notice in addition to scopes.
    """
    instruments = []
    chosen = {name: KNOWN[name] for name in names}
    libraries = {**_ALWAYS, **chosen} if chosen else {}
    for library, part in ((name, part) for name, parts in libraries.items() for part in parts):
        instrument = Instrument(library, timing, on_fault, hooks)
        for module, install in part.INSTALL.items():
            instrument.after_import(module, install)
        instruments.append(instrument)
    return instruments
