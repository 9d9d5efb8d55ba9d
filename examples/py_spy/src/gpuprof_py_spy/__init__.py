"""gpuprof backend for py-spy."""

from gpuprof_py_spy.plugin import PySpyBackend

__all__ = ["PySpyBackend"]
