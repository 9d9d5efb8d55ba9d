"""A hook in every worker process of a Ray job, and one before Ray shuts down."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray

from gpuprof._shim.row import VARIABLE

_HOOK = "worker_process_setup_hook"
_MARK = "__gpuprof_replaces__"
_SPARE_WORKERS = "RAY_prestart_worker_first_driver"
"""A setting of Ray's. Ray's servers read it when they start."""


def hook_workers(
    module: str,
    wanted: Callable[[], bool],
    before_shutdown: Callable[[], None],
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    after_init: Callable[[], object] = int,
) -> None:
    """Have ``ray.init`` ask Ray to call ``install_in_worker`` of `module` in each worker process.

    Args:
        module: the module's full name.
        wanted: whether to do so; called when Ray starts, since the job's settings are known only
            then.
        before_shutdown: called before ``ray.shutdown``.
        prepare: makes the job's runtime environment from the one passed to ``ray.init``.
        after_init: called when Ray has started.
    """
    if hasattr(ray.init, _MARK):
        return
    init, shutdown = ray.init, ray.shutdown

    @functools.wraps(init)
    def init_with_hook(*args: Any, **options: Any) -> Any:
        if not ray.is_initialized() and not _by_client(args, options) and wanted():
            runtime_env = dict(options.get("runtime_env") or {})
            runtime_env[_HOOK] = worker_hook(module, runtime_env.get(_HOOK))
            # the workers of a running cluster do not inherit them
            runtime_env["env_vars"] = {**_own_variables(), **(runtime_env.get("env_vars") or {})}
            options["runtime_env"] = prepare(runtime_env)
            with _no_spare_workers():
                result = init(*args, **options)
            after_init()
            return result
        return init(*args, **options)

    @functools.wraps(shutdown)
    def shutdown_after(*args: Any, **options: Any) -> None:
        if ray.is_initialized():
            before_shutdown()
        shutdown(*args, **options)

    setattr(init_with_hook, _MARK, init)
    ray.init, ray.shutdown = init_with_hook, shutdown_after


@contextlib.contextmanager
def _no_spare_workers() -> Iterator[None]:
    """Keep a cluster that starts here from starting a worker for each core ahead of the job.

    Such workers have no runtime environment, so a job with this hook could not use them.
    """
    if _SPARE_WORKERS in os.environ:
        yield
        return
    os.environ[_SPARE_WORKERS] = "0"
    try:
        yield
    finally:
        del os.environ[_SPARE_WORKERS]


def _by_client(args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Whether this is a connection by Ray Client. Its driver is on the server, not here."""
    address = args[0] if args else options.get("address")
    return str(address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://")


def _own_variables() -> dict[str, str]:
    """The user's gpuprof settings in the environment."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("GPUPROF_") and name != VARIABLE
    }


def worker_hook(module: str, theirs: Any) -> Callable[[], None]:
    """The function that Ray calls in a worker process.

    Ray ends a worker whose hook raises, so gpuprof's part of the hook never raises. The hook is a
    closure, so it is pickled by value and runs even on a node without gpuprof.

    Args:
        module: the full name of the module whose ``install_in_worker`` the hook calls.
        theirs: the job's own hook, a function or its dotted name; called afterwards.
    """

    def hook() -> None:
        import importlib
        import sys

        try:
            importlib.import_module(module).install_in_worker()
        except Exception as error:
            sys.stderr.write(f"gpuprof: {module}: {type(error).__name__}: {error}\n")
        if isinstance(theirs, str):
            name, _, attribute = theirs.rpartition(".")
            getattr(importlib.import_module(name), attribute)()
        elif theirs is not None:
            theirs()

    return hook


def start_as_ray_does() -> None:
    """Start or connect to Ray, as Ray does for a program's first actor, unless it is running."""
    from ray._private.auto_init_hook import auto_init_ray

    auto_init_ray()


def link_from_ray_logs(directory: str, backend: str) -> None:
    """Link a run from the directory where Ray's own profiler writes, if it is on this node.

    That directory is named after the profiler, as our backend is.
    """
    with contextlib.suppress(Exception):
        session = ray._private.worker._global_node.get_session_dir_path()
        logs = os.path.join(session, "logs", backend)
        os.makedirs(logs, exist_ok=True)
        os.symlink(directory, os.path.join(logs, os.path.basename(directory)))
