"""gpuprof's conformance kit on the built-in backend `none`, which has no hooks."""

from __future__ import annotations

from gpuprof.backend.loading import TimingOnly
from gpuprof_testing import BackendConformance


class TestTimingOnly(BackendConformance):
    """What any backend must do; most checks find no hook to check."""

    name = "none"
    backend = TimingOnly
    skip = {"it_does_something": "timing trees are all that it is for"}
