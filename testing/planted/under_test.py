"""`PlantedBackend`: the class of the fault that the variable GPUPROF_FAULT names.

A module of its own, so that workers, which are other processes, can import it by name.
"""

from __future__ import annotations

import os

from faults import make_class

PlantedBackend = make_class(os.environ.get("GPUPROF_FAULT") or "correct-tracer")
PlantedBackend.__module__ = __name__
PlantedBackend.__name__ = PlantedBackend.__qualname__ = "PlantedBackend"
