"""Write what RLinf and NeMo-RL do with each case of tests/settings/data, by running their code.

Usage: python scripts/compat_cases.py {rlinf,nemo_rl} CHECKOUT

CHECKOUT is a clone of the system at the revision that becomes the file's. Needs torch, ray,
omegaconf, hydra-core and rich beside it. Fills in `theirs` of each case: what the system captures,
or its error.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

DATA = Path(__file__).parents[1] / "tests" / "settings" / "data"
STEPS = range(61)
"""The steps that are tried; no case names a later one."""


class Stop(Exception):
    """The part of RLinf's start that reads the profiling settings is over."""


def near(path: str) -> str:
    """A path, relative if it is near the working directory, which is not in the cases."""
    around = os.path.dirname(os.getcwd())
    return os.path.relpath(path) if os.path.abspath(path).startswith(around) else path


def rlinf(case: dict[str, Any], checkout: Path) -> dict[str, Any]:
    """What RLinf's `validate_cfg`, `ClusterConfig` and `Cluster` make of a configuration."""
    config = importlib.import_module("rlinf.config")
    cluster = importlib.import_module("rlinf.scheduler.cluster")
    of_cluster = importlib.import_module("rlinf.scheduler.cluster.config")
    whole = _composed(case, checkout)
    with mock.patch("os.makedirs"), mock.patch.object(config, "Cluster", side_effect=Stop):
        with contextlib.suppress(Stop):
            config.validate_cfg(whole)
        section = of_cluster.ClusterConfig.from_dict_cfg(whole.cluster).profiling
        if section is None:
            return {"groups": []}
        commands = {
            group: cluster.Cluster.modify_profile_context("python", f"{group}:0", section)
            for group in case["workers"]
        }
        groups = [group for group, command in commands.items() if command != "python"]
        if not groups:
            return {"groups": []}
        variables = cluster.Cluster.get_profiling_env_vars_for_worker(f"{groups[0]}:0", section)
    steps = [step for step in STEPS if section.should_profile_step(step)]
    made = rendered(shlex.split(commands[groups[0]]))
    own = getattr(section, "env", None) or {}
    if variables and "ROCPROFSYS_OUTPUT_PATH" not in own:
        name = variables.pop("ROCPROFSYS_OUTPUT_PREFIX")
        made["output"] = near(f"{variables.pop('ROCPROFSYS_OUTPUT_PATH')}/{name}")
    variables.pop("ROCPROFSYS_OUTPUT_PREFIX", None)
    return {
        "groups": groups,
        "steps": "lifetime" if section.steps is None else steps,
        **made,
        **({"env": variables} if variables else {}),
    }


def _composed(case: dict[str, Any], checkout: Path) -> Any:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    if "file" not in case:
        defaults = {"num_nodes": 1, "component_placement": {}}
        settings = case["settings"]
        cluster = {**defaults, **settings.get("cluster", {})}
        return OmegaConf.create({**settings, "cluster": cluster})
    file = checkout / case["file"]
    preset = ["+profile@cluster.profiling=default"] if "defaults" in case["settings"] else []
    with initialize_config_dir(str(file.parent.resolve()), version_base="1.1"):
        return compose(file.stem, overrides=[*preset, *case.get("overrides", [])])


def rendered(command: list[str]) -> dict[str, Any]:
    """The options on a command line: of nsys with their output apart, or rocprof-sys-python's."""
    words = iter(command[command.index("profile") + 1 :] if "profile" in command else command[1:])
    options: dict[str, str] = {}
    flags: list[str] = []
    for word in words:
        if word in ("--", "python"):
            break
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            if sign:
                options[name] = value
            else:
                flags.append(name)
        else:
            options[word[1:]] = next(words)
    output = options.pop("o", options.pop("output", "")).strip("'")
    return {
        **({"options": options} if options else {}),
        **({"flags": flags} if flags else {}),
        **({"output": near(output)} if output else {}),
    }


def nemo_rl(case: dict[str, Any], _: Path) -> dict[str, Any]:
    """What NeMo-RL's `nsys` and `worker_group_utils` do with the variables."""
    from ray._private.runtime_env.nsight import parse_nsight_config

    with mock.patch.dict(os.environ, case["settings"]):
        nsys = importlib.reload(importlib.import_module("nemo_rl.utils.nsys"))
        utils = importlib.reload(importlib.import_module("nemo_rl.distributed.worker_group_utils"))
    found = {name: utils.get_nsight_config_if_pattern_matches(name) for name in case["workers"]}
    policy = mock.Mock(spec=["start_gpu_profiling", "stop_gpu_profiling"])
    captured = []
    with mock.patch.object(nsys.rich, "print"), mock.patch.object(nsys.atexit, "register"):
        for step in STEPS[1:]:
            nsys.maybe_gpu_profile_step(policy, step)
            if policy.start_gpu_profiling.call_count > policy.stop_gpu_profiling.call_count:
                captured.append(step)
    groups = [name for name, config in found.items() if config]
    if not groups:
        return {"groups": []}
    command = [str(word) for word in parse_nsight_config(found[groups[0]]["nsight"])]
    made = rendered(command)
    return {"groups": groups, "steps": captured, **made}


SYSTEMS: dict[str, Callable[[dict[str, Any], Path], dict[str, Any]]] = {
    "rlinf": rlinf,
    "nemo_rl": nemo_rl,
}


def main(system: str, place: str) -> None:
    """Run every case of a system, and write its file anew."""
    checkout = Path(place)
    sys.path.insert(0, str(checkout))
    os.environ.setdefault("EMBODIED_PATH", str(checkout / "examples" / "embodiment"))
    file = DATA / f"{system}.yaml"
    head, data = _comment(file), yaml.safe_load(file.read_text(encoding="utf-8"))
    for case in data["cases"]:
        try:
            case["theirs"] = SYSTEMS[system]({"workers": data["workers"], **case}, checkout)
        except Exception as error:  # whatever it raises is its answer
            text = re.sub(r"\{'.*?'\}", "{…}", " ".join(str(error).split()))  # sets have no order
            case["theirs"] = {"error": text[:160]}
    revision = subprocess.run(
        ["git", "-C", place, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    data["revision"] = revision.stdout.strip()
    text = yaml.safe_dump(
        data, sort_keys=False, width=100, allow_unicode=True, default_flow_style=None
    )
    file.write_text(head + text.replace("\n- source", "\n\n- source"), encoding="utf-8")


def _comment(file: Path) -> str:
    def lines() -> Iterator[str]:
        for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
            if not line.startswith("#"):
                return
            yield line

    return "".join(lines())


if __name__ == "__main__":
    main(*sys.argv[1:])
