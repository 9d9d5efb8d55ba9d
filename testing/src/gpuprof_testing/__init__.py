"""The conformance kit for authors of backends: subclass `BackendConformance` in a test module.

It needs pytest.
"""

from gpuprof_testing._kit import BackendConformance

__all__ = ["BackendConformance"]
