"""Cases of other systems' settings: what the system does by its own code, and what gpuprof does.

`scripts/compat_cases.py` writes what the system does into the files.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import gpuprof
import yaml
from gpuprof._plan.worker import PlannedWorker
from gpuprof.errors import ConfigError, PluginError

ROOT = Path(__file__).parents[2]
STEPS = range(61)
"""The steps that the script tried."""
_OURS = ("wait", "kill", "force-overwrite", "nvtx-capture", "o")
"""Options of nsys that only say how gpuprof runs it."""
_VARIABLES = ("ROCPROFSYS_TIME_OUTPUT", "ROCPROFSYS_ROCM_DOMAINS", "ROCPROFSYS_USE_RCCLP")
"""What is compared of rocprof-sys's variables, besides the user's own."""


@functools.cache
def _data(name: str) -> dict[str, Any]:
    file = ROOT / "tests" / "settings" / "data" / f"{name}.yaml"
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of a file, each with its workers."""
    data = _data(name)
    shared = {key: data[key] for key in ("system", "workers")}
    named = data["differences"]
    return [
        {**shared, **case, "known": [named[name] for name in case.get("difference", ())]}
        for case in data["cases"]
    ]


def differences(name: str) -> dict[str, dict[str, Any]]:
    """What gpuprof does differently: for each, its sentence on the system's page."""
    found: dict[str, dict[str, Any]] = _data(name)["differences"]
    return found


def revision(name: str) -> str:
    """The commit of the system whose code was run."""
    return str(_data(name)["revision"])


def done(case: dict[str, Any]) -> dict[str, Any]:
    """What gpuprof does with the settings, in the words of `theirs`."""
    workers = {name: {"count": 1, "gpus": 1} for name in case["workers"]}
    try:
        made = gpuprof.plan(
            case["settings"], workers, system=case["system"], overrides=case.get("overrides", ())
        )
    except (ConfigError, PluginError) as error:
        return {"error": str(error)}
    rows = [row for row in made.rows if row.profiled]
    if not rows:
        return {"groups": []}
    names = [row.worker.group for row in rows]
    own = case["settings"].get("cluster", {}).get("profiling", {})
    asked = {*_VARIABLES, *((own or {}).get("env") or {})}
    return {"groups": names, "steps": _steps(rows[0]), **_captured(rows[0], asked)}


def _steps(row: PlannedWorker) -> Any:
    if row.worker.lifetime:
        return "lifetime"
    return [step for step in STEPS if any(step in window for window in _ranges(row))]


def _ranges(row: PlannedWorker) -> list[range]:
    return [range(window.start or 0, window.stop or 0) for window in row.worker.windows]


def _captured(row: PlannedWorker, asked: Collection[str]) -> dict[str, Any]:
    command = list(row.command)
    nsys = "profile" in command
    words = iter(command[command.index("profile" if nsys else "{tool}") + 1 :])
    options: dict[str, str] = {}
    flags: list[str] = []
    for word in words:
        if word in ("--", "{interpreter}"):
            break
        name, sign, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and (nsys or name != "b"):
            value = next(words)
        if sign or not word.startswith("--"):
            options[name] = value
        else:
            flags.append(name)
    each = f"repeat:{len(row.worker.windows)}"
    if options.get("capture-range-end") == each:
        options["capture-range-end"] = "repeat:windows"
    kept = {name: value for name, value in options.items() if name not in _OURS and value}
    files = list(row.files.values())
    output = re.sub(r"/\{run\}/\{node\}|\.[a-z-]+$|\.step-\d+", "", files[0]) if files else ""
    variables = {name: value for name, value in row.environment.items() if name in asked}
    return {
        **({"options": kept} if kept else {}),
        **({"flags": flags} if flags else {}),
        **({"output": _output(output)} if output else {}),
        **({"env": variables} if not nsys else {}),
    }


def _output(path: str) -> str:
    """Relative if it is near the working directory, which is not in the cases."""
    near = path.startswith(os.path.dirname(os.getcwd()))
    named = path.replace("{pid}", "%p")
    return (os.path.relpath(named) if near else named).removeprefix("gpuprof-output/")


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What the system does, with what gpuprof does differently in its place."""
    made = case["theirs"]
    for ours in [*(known.get("ours", {}) for known in case["known"]), case.get("ours", {})]:
        if "error" in ours or "error" in made or ours.get("groups") == []:
            made = ours or made
            continue
        both = {key: {**made.get(key, {}), **ours.get(key, {})} for key in ("options", "env")}
        made = {**made, **ours, **both}
    if "error" in made:
        return made
    options = {name: value for name, value in made.get("options", {}).items() if value is not None}
    made = {**made, "options": options}
    return {key: value for key, value in made.items() if value or key == "groups"}
