"""Instruments: they put scopes around a library's waits, so that the job's code need not.

Each module is the instrument of one library, which it never imports. It replaces functions of a
module that the job has imported, and puts the original functions back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuprof_timing import Timing

from gpuprof._session.instruments import (
    collectives,
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
"""The instruments by their name in the configuration. The threads instrument is always added."""


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
    libraries = {name: KNOWN[name] for name in names}
    if libraries:  # a wait in a helper thread is a wait of the thread that joins it
        libraries["threads"] = (threads,)
    for library, part in ((name, part) for name, parts in libraries.items() for part in parts):
        instrument = Instrument(library, timing, on_fault, hooks)
        for module, install in part.INSTALL.items():
            instrument.after_import(module, install)
        instruments.append(instrument)
    return instruments
