"""The kit on the fault that the variable GPUPROF_FAULT names, for pytest."""

import os

from faults import options_of
from gpuprof_testing import BackendConformance
from under_test import PlantedBackend


class TestPlanted(BackendConformance):
    name = "planted"
    backend = PlantedBackend
    options = options_of(os.environ["GPUPROF_FAULT"])
