"""Runs the conformance kit on planted faults, each in a process of its own.

    python run.py [--jobs N] [FAULT…]

Without names, tries all, and the correct backends that have them. Prints for each the check that
catches it, or MISSED.
"""

from __future__ import annotations

import argparse
import inspect
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEADLINE = 600.0
"""Seconds. A fault that hangs is found by whoever waits for it."""
ENTRY = "[gpuprof.backends]\nplanted = under_test:PlantedBackend\n"


def install(site: Path) -> None:
    """An entry point, for this process and for workers."""
    metadata = site / "planted_faults-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: planted-faults\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY)
    paths = [str(HERE), str(site)]
    sys.path[:0] = paths
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*paths, inherited]))


def first_failure(fault: str, directory: Path) -> tuple[str, str]:
    """The check that catches a fault, with what it says; empty if none does."""
    import pytest
    from faults import options_of
    from gpuprof_testing import BackendConformance
    from gpuprof_timing import set_range_opener

    os.environ["GPUPROF_FAULT"] = fault
    try:
        from under_test import PlantedBackend
    except Exception as error:
        return "import", repr(error)
    body = {"name": "planted", "backend": PlantedBackend, "options": options_of(fault)}
    case = type("TestPlanted", (BackendConformance,), body)
    shared = directory / "shared"
    shared.mkdir()
    for name in checks(case):
        patch = pytest.MonkeyPatch()
        given: dict[str, Any] = {"tmp_path": directory / name, "shared": shared}
        given["tmp_path"].mkdir()
        given["monkeypatch"] = patch
        method = getattr(case(), name)
        try:
            method(**{each: given[each] for each in inspect.signature(method).parameters})
        except pytest.skip.Exception:
            continue
        except BaseException as error:
            return name.removeprefix("test_"), " ".join(str(error).split())
        finally:
            patch.undo()
            set_range_opener(None)
    return "", ""


def checks(case: type) -> list[str]:
    """The names of the kit's checks, in the order in which pytest runs them."""
    found: dict[str, None] = {}
    for base in reversed(case.__mro__):
        found |= {name: None for name in vars(base) if name.startswith("test_")}
    return list(found)


def child(fault: str, out: str) -> None:
    """Try one fault, in a session of its own, and never return."""
    os.setsid()
    place = Path(tempfile.mkdtemp(prefix="planted-"))
    os.environ["TMPDIR"] = str(place)
    tempfile.tempdir = None
    (place / "here").mkdir()
    os.chdir(place / "here")
    said = os.open(place / "said", os.O_WRONLY | os.O_CREAT)
    for number in (1, 2):
        os.dup2(said, number)
    began = time.monotonic()
    try:
        check, message = first_failure(fault, place)
    except BaseException as error:
        check, message = "kit", repr(error)
    _note(out, fault, check or "MISSED", time.monotonic() - began, message)
    os.chdir("/")
    shutil.rmtree(place, ignore_errors=True)
    os._exit(0)


def _note(out: str, fault: str, check: str, seconds: float, message: str) -> None:
    with open(out, "a") as file:
        file.write(f"{fault}\t{check}\t{seconds:.0f}\t{message[:300]}\n")


def main() -> int:
    """Try the named faults, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("faults", nargs="*")
    given = parser.parse_args()
    site = tempfile.mkdtemp(prefix="planted-site-")
    install(Path(site))
    from faults import CORRECT, FAULTS

    out = os.path.join(site, "found")
    Path(out).touch()
    todo = given.faults or [*CORRECT, *(one.name for one in FAULTS)]
    running: dict[int, tuple[str, float]] = {}
    while todo or running:
        while todo and len(running) < given.jobs:
            fault = todo.pop(0)
            pid = os.fork()
            if not pid:
                child(fault, out)
            running[pid] = fault, time.monotonic()
        time.sleep(0.05)
        for pid, (fault, since) in list(running.items()):
            ended, _ = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() - since > DEADLINE
            if not (ended or late):
                continue
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if not ended:
                os.waitpid(pid, 0)
            del running[pid]
            if not any(
                line.startswith(f"{fault}\t") for line in Path(out).read_text().splitlines()
            ):
                _note(out, fault, "ended" if ended else "deadline", DEADLINE, "")
    for line in Path(out).read_text().splitlines():
        fault, check, seconds, message = line.split("\t")
        sys.stdout.write(f"{fault}: {check} ({seconds} s) {message}\n")
    shutil.rmtree(site)
    return 0


if __name__ == "__main__":
    sys.exit(main())
