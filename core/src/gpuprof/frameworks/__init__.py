"""The names that framework plugins import, to integrate gpuprof into a framework at run time.

Imports nothing heavy, as each worker of a job imports it. What only the driver needs is in
`gpuprof.ray.driver` and `gpuprof.settings`. "Support a framework" in the documentation is the
contract; it is provisional until plugins from outside have used it.
"""

from __future__ import annotations

from gpuprof._log import log
from gpuprof.frameworks._changes import (
    UnexpectedError,
    after_import,
    check,
    guarded,
    import_steps,
    nothing_profiled,
    replace,
    say,
    unknown_release,
    whole_workers,
)
from gpuprof.frameworks._contract import Framework
from gpuprof.frameworks._process import is_planned, is_recorded, is_worker

__all__ = [
    "Framework",
    "UnexpectedError",
    "after_import",
    "check",
    "guarded",
    "import_steps",
    "is_planned",
    "is_recorded",
    "is_worker",
    "log",
    "nothing_profiled",
    "replace",
    "say",
    "unknown_release",
    "whole_workers",
]
