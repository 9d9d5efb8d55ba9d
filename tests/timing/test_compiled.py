"""Scopes and ranges inside functions that torch compiles: no graph break, nothing left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import HEAD
from support.waiting import DEADLINE

COMPILED = """
{imports}
whole = True
{helpers}

def step(x):
{body}

x = torch.ones(3)
compiled = torch.compile(step, fullgraph=whole, backend="eager")
for _ in range(2):
    assert torch.equal(torch.full((3,), 3.0), compiled(x))
print(list(timing))
"""
WAYS = {
    "add_time": ("", "    with timing.add_time('a'):\n        return x * 2 + 1"),
    "timeit": ("", "    with timing.timeit('a'):\n        return x * 2 + 1"),
    "time_avg": ("", "    with timing.time_avg('a', average=3):\n        return x * 2 + 1"),
    "nested": (
        "",
        (
            "    with timing.add_time('a'):\n        y = x * 2\n        with timing.timeit('b'):\n "
            "    "
            "       return y + 1"
        ),
    ),
    "switched off": (
        "timing = Timing('t', enabled=False)",
        "    with timing.add_time('a'):\n        return x * 2 + 1",
    ),
    "switched off, decorated": (
        (
            "timing = Timing('t', enabled=False)\n@timing.add_time('a')\ndef inner(x):\n    return "
            "x * "
            "2"
        ),
        "    return inner(x) + 1",
    ),
    "annotate": ("", "    with annotate('a'):\n        return x * 2 + 1"),
    "annotated function": (
        "@annotate('a')\ndef inner(x):\n    return x * 2",
        "    return inner(x) + 1",
    ),
}


def compile_in_turn(ways: dict[str, tuple[str, str]], imports: str, path: Path) -> dict[str, str]:
    """Compile and run each in one process, as importing torch is slow; return the output."""
    pytest.importorskip("torch")
    codes = {
        name: COMPILED.format(imports=imports, helpers=helpers, body=body)
        for name, (helpers, body) in ways.items()
    }
    program = f"""
import contextlib, io, json
found = {{}}
for name, code in {codes!r}.items():
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, name, "exec"), dict(globals()))
        found[name] = out.getvalue().strip()
    except Exception as error:
        found[name] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(found))
"""
    command = [sys.executable, "-c", HEAD + program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


DECORATED = {
    f"{kind} decorates": (
        f"@timing.{kind}('a')\ndef inner(x):\n    return x * 2",
        "    return inner(x) + 1",
    )
    for kind in ("add_time", "timeit", "time_avg")
}
_IN_KEPT = "    with scope:\n        return x * 2 + 1"
KEPT = {
    "whole": ("scope = timing.add_time('a')", _IN_KEPT),
    "broken": ("scope, whole = timing.add_time('a'), False", _IN_KEPT),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is printed by each function that is compiled after torch was imported."""
    imports = "import torch\ntiming = Timing('t')"
    return compile_in_turn(WAYS | DECORATED | KEPT, imports, tmp_path_factory.mktemp("compiled"))


def printed(compiled: dict[str, str], ways: dict[str, tuple[str, str]]) -> dict[str, str]:
    """The part of some of the functions."""
    return {name: compiled[name] for name in ways}


def test_compiled_functions_record_nothing(compiled: dict[str, str]) -> None:
    """All ways of opening a scope or a range are traced without a graph break and leave nothing."""
    assert dict.fromkeys(WAYS, "[]") == printed(compiled, WAYS)


@pytest.mark.parametrize("way", ["add_time", pytest.param("timeit", marks=pytest.mark.exhaustive)])
def test_a_timing_made_before_torch_is_imported(tmp_path: Path, way: str) -> None:
    """Torch is noticed when it comes, also where tracing is the first thing that it does."""
    imports = "assert 'torch' not in sys.modules\ntiming = Timing('t')\nimport torch"
    assert {way: "[]"} == compile_in_turn({way: WAYS[way]}, imports, tmp_path)


def test_a_decorated_function_in_a_compiled_one(compiled: dict[str, str]) -> None:
    """A decorated function is traced without a graph break and leaves no scope."""
    assert dict.fromkeys(DECORATED, "[]") == printed(compiled, DECORATED)


def test_a_scope_that_is_kept_breaks_the_graph(compiled: dict[str, str]) -> None:
    """As documented: torch enters no context manager that was made outside.

    Where the graph may break, the scope is timed.
    """
    assert "Unsupported: Unsupported context manager" == compiled["whole"].splitlines()[0]
    assert "['a']" == compiled["broken"]
