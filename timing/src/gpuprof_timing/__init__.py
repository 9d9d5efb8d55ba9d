"""A tree of where the time of a process went: nested scopes, standard library only.

Nothing here imports `typing` at run time: it would take longer to import than all the rest.
"""

from gpuprof_timing._annotate import annotate
from gpuprof_timing._compiled import compiled
from gpuprof_timing._range_slot import RangeOpener, set_range_opener
from gpuprof_timing._timing import Timing

__all__ = ["RangeOpener", "Timing", "annotate", "compiled", "set_range_opener"]
