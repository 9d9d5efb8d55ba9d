"""What the module of a framework's support has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Framework(Protocol):
    """The interface of a module that the entry point ``gpuprof.frameworks`` names.

    Its import must not import the framework, nor anything heavy: each worker imports it.
    """

    @property
    def PACKAGE(self) -> str:
        """The framework's package: `install` is called in a process that is about to import it."""
        ...

    @property
    def ON_RAY(self) -> bool:
        """Whether the framework's workers are actors of Ray.

        Its driver then makes the run, from the framework's own settings. Without Ray,
        ``gpuprof run`` makes it.
        """
        ...

    @property
    def TRIED(self) -> Sequence[str]:
        """The framework's releases that the plugin was tried with."""
        ...

    def install(self) -> None:
        """Integrate gpuprof into the framework in this process, before its import."""
        ...

    def install_in_worker(self) -> None:
        """The part of `install` for every process of a job on Ray; reads no settings."""
        ...
