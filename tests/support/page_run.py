"""A run with everything that a page can show, but for a profiler's reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuprof._artifacts import ledger
from gpuprof._artifacts.formats import RowEntry
from gpuprof._artifacts.manifest import setup
from gpuprof_timing import Timing

from support.run_files import manifest, run_file, session_file
from support.simulated_job import Job
from support.simulated_run import SimulatedLedger

HOSTILE = (
    "</script><script>document.title = 'taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "'; {{ 7 * 7 }} <!-- ]]> &amp; \\u003c",
    "name-" * 60,
    "\u202eشبكة/תקשורת",
    "🚀 rollout\u2028line",
)
"""Names as users might choose them."""


def tree(scopes: dict[str, float]) -> dict[str, Any]:
    """A timing tree of one step: seconds of each scope; ``a → b`` is inside ``a``."""
    now = 0.0
    timing = Timing("t", clock=lambda: round(now * 1e9))
    for path, seconds in scopes.items():
        *around, name = path.split(" → ")
        if around:
            with timing.add_time(around[0]), timing.add_time(name):
                now += seconds
        else:
            with timing.add_time(name):
                now += seconds
    return timing.to_dict()


def write(directory: Path, steps: int = 24, seed: int = 3, config: Any = None) -> Path:
    """Write ledgers with a slow rank, timing trees, and a receipt. Returns the directory.

    The group ``Odd`` has scopes with hostile names.
    """
    Job("slow rank", seed=seed, steps=steps).write(directory)
    found, _ = ledger.ledgers(directory)
    (driver,) = (each for each in found if each.header["role"] == "driver")
    for rank in range(2):
        odd = SimulatedLedger(f"Odd-{rank}")
        for step in driver.steps():
            assert step.end is not None
            length = (step.end - step.start) // (len(HOSTILE) + 2)
            for at, name in enumerate(HOSTILE):
                begin = step.start + at * length
                odd.span(name, begin, begin + length // (rank + 1))
        odd.write(directory)
    for each in found:
        header = each.header
        if header["role"] != "worker":
            continue
        scopes = dict.fromkeys(("rollout/predict", *HOSTILE), 0.5 + header["rank"])
        about = session_file(
            name=header["name"],
            run=directory.name,
            group=header["group"],
            rank=header["rank"],
            node=header["node"],
            timing=tree({**scopes, "epoch → forward": 0.25, "epoch → backward": 0.5}),
        )
        path = directory / header["node"] / f"{header['name']}.start-1.json"
        path.write_text(json.dumps(about))
    begun = run_file(directory.name, config=config or {"backend": "none", "steps": [3]})
    (directory / "run.json").write_text(json.dumps(begun))
    report = directory / "node-0" / "A report #1.nsys-rep"
    rows: list[RowEntry] = [
        {
            "worker": HOSTILE[0],
            "node": "node-0",
            "window": "step-3",
            "file": str(report),
            "size": 2048,
            "state": "complete",
            "cause": "NONE",
            "reason": "",
            "planned": str(report),
        },
        {
            "worker": "ActorGroup-1",
            "node": "node-0",
            "window": "step-3",
            "file": None,
            "size": 0,
            "state": "missing",
            "cause": "NONE",
            "reason": HOSTILE[1],
            "planned": "",
        },
    ]
    ended = manifest(
        directory.name,
        {"rows": rows, "directory": str(directory), "faults": [], "overhead": "nothing"},
        setup=setup(begun, ()),
    )
    ended["workers"] = [
        {
            "group": "ActorGroup",
            "rank": 0,
            "profiled": True,
            "reason": HOSTILE[2],
            "command": ["nsys", "profile", HOSTILE[0]],
            "environment": {"API_KEY": "***", "MODE": "<b>"},
            "notes": [],
        }
    ]
    (directory / "manifest.json").write_text(json.dumps(ended))
    return directory
