"""The class that authors subclass."""

from __future__ import annotations

from gpuprof.testing._contract import ContractChecks
from gpuprof.testing._discovery import DiscoveryChecks
from gpuprof.testing._faults import FaultChecks
from gpuprof.testing._planning import PlanningChecks
from gpuprof.testing._ranges import RangeChecks
from gpuprof.testing._windows import WindowChecks
from gpuprof.testing._worker import WorkerChecks


# pytest runs the checks of the last class first: the quick ones, whose failures explain those of
# the others.
class BackendConformance(
    WorkerChecks,
    RangeChecks,
    FaultChecks,
    WindowChecks,
    PlanningChecks,
    DiscoveryChecks,
    ContractChecks,
):
    """Everything that gpuprof expects of a backend, as tests. Each failure says what to change.

    Attributes:
        name: the backend's name: that of its entry point.
        backend: the class.
        options: an example of its section in a configuration, as YAML would have it.
        project: the directory of its ``pyproject.toml``, of which a wheel is built and tried;
            without one that is skipped.
        refused_in_paths: characters that the tool cannot have in paths. The backend must refuse
            them by `ConfigError`.
        skip: checks that do not apply, by name without ``test_``, each with the reason.

    Raises:
        TypeError: when the class is defined, if `name` or `backend` is missing or `skip` names no
            check.

    A whole test module::

        from gpuprof.testing import BackendConformance
        from gpuprof_memray import MemrayBackend

        class TestMemray(BackendConformance):
            name = "memray"
            backend = MemrayBackend
            options = {"native": True}
    """
