"""`BackendConformance`, the class that backend authors subclass."""

from __future__ import annotations

from gpuprof_testing._contract import ContractChecks
from gpuprof_testing._discovery import DiscoveryChecks
from gpuprof_testing._faults import FaultChecks
from gpuprof_testing._hooks import HookChecks
from gpuprof_testing._planning import PlanningChecks
from gpuprof_testing._quiet import QuietChecks
from gpuprof_testing._ranges import RangeChecks
from gpuprof_testing._windows import WindowChecks
from gpuprof_testing._worker import WorkerChecks


# pytest runs the last class's checks first: they are quick, and explain the failures of others.
class BackendConformance(
    WorkerChecks,
    RangeChecks,
    FaultChecks,
    WindowChecks,
    HookChecks,
    PlanningChecks,
    DiscoveryChecks,
    QuietChecks,
    ContractChecks,
):
    """gpuprof's expectations of a backend, as tests. Each failure says what to change.

    Attributes:
        name: the backend's name, as in its entry point.
        backend: the backend's class.
        options: an example of its section in a configuration, as parsed from YAML.
        project: the directory with its ``pyproject.toml``, to build and try a wheel; without it,
            that check is skipped.
        refused_in_paths: characters that the tool does not support in paths. The backend must
            refuse them with `ConfigError`.
        skip: checks that do not apply, by name without ``test_``, each with a reason.

    Raises:
        TypeError: at class definition, if `name` or `backend` is missing or `skip` names an unknown
            check.

    A whole test module::

        from gpuprof_testing import BackendConformance
        from gpuprof_memray import MemrayBackend

        class TestMemray(BackendConformance):
            name = "memray"
            backend = MemrayBackend
            options = {"native": True}
    """
