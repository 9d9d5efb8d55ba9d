"""Instruments: they mark what a library waits for, so that the job's code need not.

Each module is the instrument of one library. It never imports that library: it changes functions of
a module that the job has imported, and changes them back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuprof_timing import Timing

from gpuprof._session.instruments import collectives, loaders, queues, ray_calls
from gpuprof._session.instruments.instrument import Instrument

KNOWN = {"ray": ray_calls, "torch": collectives, "queue": queues, "dataloader": loaders}
"""By the name that the configuration has."""


def begin(
    names: Iterable[str], timing: Timing, on_fault: Callable[[str], object]
) -> list[Instrument]:
    """Install instruments. Never raises.

    Args:
        names: of `KNOWN`.
        timing: the tree that gets the scopes.
        on_fault: gets a sentence if one does not work here. The job goes on without it.
    """
    begun = []
    for name in names:
        instrument = Instrument(name, timing, on_fault)
        for module, install in KNOWN[name].INSTALL.items():
            instrument.after_import(module, install)
        begun.append(instrument)
    return begun
