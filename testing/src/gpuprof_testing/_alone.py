"""Runs one check in a fresh process: what a hook changes once shows only the first time."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

_DEADLINE = 600.0


def run(case: Any, check: str, directory: Path) -> str:
    """Call a method of a case in a fresh Python.

    Args:
        case: its backend can be imported by its module and name.
        check: the method's name; it takes a directory.

    Returns:
        What the check says if it fails; empty if it passes.
    """
    kit = next(each for each in type(case).__mro__ if each.__module__.startswith(__package__))
    told = {
        "name": case.name,
        "backend": _address(case.backend),
        "kit": _address(kit),
        "options": dict(case.options),
        "check": check,
        "directory": str(directory),
        "said": str(directory / "said.json"),
    }
    temporary = directory / "temporary"  # where leftovers show
    temporary.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TMPDIR": str(temporary),
    }
    with open(__file__) as stdin:
        done = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import main; main()", json.dumps(told)],
            env=environment,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            preexec_fn=_with_default_signals,
            check=False,
        )
    said = Path(told["said"])
    message: str = json.loads(said.read_text()) if said.exists() else ""
    # what failed is the cause of how the process ended: something may still be recorded
    if not message and (done.returncode or not said.exists()):
        return (
            f"the process that called the hooks ended with {done.returncode}: "
            f"{(done.stdout + done.stderr).strip()[-1000:]}\n"
            "To fix it: a hook must never end the process"
        )
    said.unlink()
    return message


def _with_default_signals() -> None:
    # a process inherits what its parent ignores, as a hook may have told it to
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)


def _address(of: type) -> tuple[str, str]:
    return of.__module__, of.__qualname__


def _at(address: tuple[str, str]) -> Any:
    module, name = address
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def main() -> None:
    """Import the backend, call the check, and write down what it says."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    body = {"name": told["name"], "backend": _at(told["backend"]), "options": told["options"]}
    case = type("Alone", (_at(told["kit"]),), body)()
    message = ""
    try:
        getattr(case, told["check"])(Path(told["directory"]))
    except (pytest.fail.Exception, Exception) as error:
        message = str(error) or repr(error)
    Path(told["said"]).write_text(json.dumps(message))
