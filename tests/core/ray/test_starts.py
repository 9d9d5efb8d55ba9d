"""What the processes of a Ray job start with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("ray")


def test_a_worker_imports_nothing_of_the_driver() -> None:
    """It would cost each of them more time than all else of a session's start."""
    program = (
        "import sys, gpuprof.ray._announced\n"
        "print(*sorted(name for name in sys.modules if name.startswith('gpuprof._')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    packages = {".".join(name.split(".")[:2]) for name in done.stdout.split()}
    assert packages.isdisjoint({f"gpuprof.{name}" for name in ("_analysis", "_config", "_plan")})


@pytest.mark.parametrize(("of_the_user", "expected"), [(None, "0"), ("1", "1")])
def test_no_worker_is_started_that_the_job_cannot_use(
    monkeypatch: pytest.MonkeyPatch, of_the_user: str | None, expected: str
) -> None:
    """Ray starts one for each core, without the job's runtime environment; the user may want it."""
    import ray
    from gpuprof.ray import hook_workers

    name = "RAY_prestart_worker_first_driver"
    monkeypatch.delenv(name, raising=False)
    if of_the_user is not None:
        monkeypatch.setenv(name, of_the_user)
    during = []
    monkeypatch.setattr(ray, "init", lambda **_: during.append(os.environ.get(name)))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    hook_workers("gpuprof.ray._unmodified", lambda: True, lambda: None)
    ray.init()
    assert [expected] == during
    assert of_the_user == os.environ.get(name)
