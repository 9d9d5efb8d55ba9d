"""Runs one check in a fresh process: what a hook changes once shows only the first time."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
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
    kit = next(base for base in type(case).__mro__ if base.__module__.startswith(__package__))
    order = {
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
    # into a file: a tool that runs on would keep a pipe open, and this would wait for it
    with open(__file__) as stdin, tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()", json.dumps(order)],
            env=environment,
            stdin=stdin,
            stdout=output,
            stderr=output,
            preexec_fn=_with_default_signals,
            start_new_session=True,
        )
        try:
            process.wait(_DEADLINE)
        except subprocess.TimeoutExpired:
            return (
                f"the process that called the hooks has not ended within {_DEADLINE:g} s\n"
                "To fix it: give a timeout to every wait of the backend and of its tool"
            )
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        printed = output.read()
    answer_file = Path(order["said"])
    message: str = json.loads(answer_file.read_text()) if answer_file.exists() else ""
    # what failed is the cause of how the process ended: something may still be recorded
    if not message and (process.returncode or not answer_file.exists()):
        return (
            f"the process that called the hooks ended with {process.returncode}: "
            f"{printed.strip()[-1000:]}\n"
            "To fix it: a hook must never end the process"
        )
    answer_file.unlink()
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
    order: dict[str, Any] = json.loads(sys.argv[1])
    body = {"name": order["name"], "backend": _at(order["backend"]), "options": order["options"]}
    case = type("Alone", (_at(order["kit"]),), body)()
    message = ""
    try:
        getattr(case, order["check"])(Path(order["directory"]))
    except (pytest.fail.Exception, Exception) as error:
        message = str(error) or repr(error)
    Path(order["said"]).write_text(json.dumps(message))
