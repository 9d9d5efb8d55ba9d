"""`gpuprof export --anonymous`: copies that say the same, without a name."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._artifacts import ledger
from gpuprof._artifacts.runs import runs as list_runs
from gpuprof._cli import main
from gpuprof._report.anonymous import Names
from support import page_run
from support.made_stacks import write_stacks
from support.run_files import run_file
from support.simulated_run import SimulatedLedger, write_run

PROGRAM = """
import json, sys, threading, time
import gpuprof
import planted_module

def planted_function():
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        json.loads("[1, 2, 3]")

def planted_target():
    planted_module.planted_callee()

for step in range(30):
    with gpuprof.step(step), gpuprof.timer("planted scope/recv_planted"):
        planted_function()
        thread = threading.Thread(target=planted_target, name="planted_thread")
        thread.start()
        thread.join()
"""
MODULE = """
import time

def planted_callee():
    time.sleep(0.03)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a real job, in which everything has a planted name."""
    folder = tmp_path_factory.mktemp("planted_folder")
    (folder / "planted_script.py").write_text(PROGRAM)
    (folder / "planted_module.py").write_text(MODULE)
    command = [
        *(sys.executable, "-m", "gpuprof", "run", "--group", "PlantedGroup"),
        *("--set", "waits={'*/recv_planted': data}", "--set", "sampling=50"),
        *("--", sys.executable, "planted_script.py", "--token", "planted_argument"),
    ]
    environment = {**os.environ, "PLANTED_VARIABLE": "planted_value"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    (run,) = list_runs(str(folder / "gpuprof-output"))
    return Path(run.directory)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a slow rank, a receipt, and stacks."""
    directory = page_run.write(tmp_path_factory.mktemp("simulated") / "run", steps=40)
    for file in ledger.ledgers(directory)[0]:
        stack = [("planted_function", "planted_module", "/home/planted/planted_script.py", 7)]
        rows = file.spans[:400]
        samples = [
            (stack, track, place, 1, start, end) for place, track, start, end in rows.tolist()
        ]
        write_stacks(file.path, samples)
    return directory


def export(output: Path, *runs: Path) -> list[Path]:
    """The copies of runs."""
    words = ["export", "--anonymous", *map(str, runs), "-o", str(output)]
    found = CliRunner().invoke(main, words)
    assert not found.exit_code, found.output
    return [Path(line.split(": ")[0]) for line in found.stdout.splitlines()]


def answer(*words: str) -> Any:
    found = CliRunner().invoke(main, [*words, "--json"])
    assert found.exit_code in (0, 1), found.output
    return json.loads(found.stdout)


def numbers(data: Any) -> Iterator[float]:
    """All numbers of an answer: names are sorted, and the hashes in another order."""
    if isinstance(data, (dict, list)):
        for value in data.values() if isinstance(data, dict) else data:
            yield from numbers(value)
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield data


def test_no_name_of_a_job_is_in_its_copy(recorded: Path, tmp_path: Path) -> None:
    """Neither in a file nor in a file's name: nobody's, and nothing's."""
    (copy,) = export(tmp_path / "shared", recorded)
    names = [os.fsencode(path.relative_to(copy)) for path in copy.rglob("*")]
    content = b"\n".join([*names, *(p.read_bytes() for p in copy.rglob("*") if p.is_file())])
    places = (str(Path.home()), str(recorded), sys.prefix, f'"{socket.gethostname()}"')
    secrets = ("planted", "PLANTED", "Planted", f'"{getpass.getuser()}"', *places, recorded.name)
    assert [] == [secret for secret in secrets if secret.encode() in content]
    assert b"json/__init__.py" in content
    assert {".json", ".ledger", ".stacks", ".process"} == {
        path.suffix for path in copy.rglob("*") if path.is_file()
    }


def test_a_copy_has_the_same_answer(recorded: Path, simulated: Path, tmp_path: Path) -> None:
    """The figures of explain, with lines of code, of a real and of a simulated run."""
    for run, copy in zip((recorded, simulated), export(tmp_path, recorded, simulated), strict=True):
        before, after = (answer("explain", str(path)) for path in (run, copy))
        assert sorted(numbers(before)) == pytest.approx(sorted(numbers(after)))
        assert [line["line"] for line in before["lines"]] == [
            line["line"] for line in after["lines"]
        ]
        assert [finding["cause"] for finding in before["findings"]] == [
            finding["cause"] for finding in after["findings"]
        ]


def test_the_loop_of_the_steps_keeps_its_line(tmp_path: Path) -> None:
    """Not its file: that is a name."""
    ledgers = [SimulatedLedger(f"Worker-{rank}") for rank in range(2)]
    for made in ledgers:
        made.event("loop", 0, number=0, file="/job/planted.py", line=7,
                   level=[3, 1], inside=None, epochs=False)  # fmt: skip
        for at in range(0, 2000, 100):
            made.span("torch.all_reduce", at + 90, at + 99, meets=[f"{at}"])
            made.iterations.append((0, at))
    run = write_run(tmp_path / "run", ledgers)
    (run / "run.json").write_text(json.dumps(run_file("run", driver=None)))
    (copy,) = export(tmp_path / "shared", run)
    assert [18, 18] == [answer("explain", str(each))["steps"]["all"] for each in (run, copy)]
    assert "the loop at line 7" == answer("explain", str(copy))["steps"]["round"]
    assert not any(b"planted" in path.read_bytes() for path in copy.rglob("*.ledger"))


def test_copies_that_were_made_together_can_be_compared(
    simulated: Path, recorded: Path, tmp_path: Path
) -> None:
    """And each has a page."""
    other = page_run.write(tmp_path / "other", steps=40, seed=4)
    copies = export(tmp_path / "shared", simulated, other)
    before = answer("diff", str(simulated), str(other), "--warmup", "0")
    after = answer("diff", *map(str, copies), "--warmup", "0")
    assert sorted(numbers(before)) == pytest.approx(sorted(numbers(after)))
    page = tmp_path / "page.html"
    found = CliRunner().invoke(main, ["html", *map(str, copies), "-o", str(page)])
    assert 0 == found.exit_code, found.output
    assert "planted" not in page.read_text()


def test_the_environment_in_a_configuration_is_left_out(tmp_path: Path) -> None:
    """Its names and its values are the user's."""
    config = {"backend": "nsight", "nsight": {"env": {"torch": "planted"}}, "planted": 1}
    run = page_run.write(tmp_path / "run", steps=4, config=config)
    (copy,) = export(tmp_path / "shared", run)
    assert "planted" not in (copy / "run.json").read_text()


def test_an_unknown_text_is_hashed() -> None:
    """What is not known to be harmless stays hidden, and equal texts stay equal."""
    names = Names()
    assert names.scope("load") == names.scope("load") != Names().scope("load")
    assert ("ray.get", names.words("Env") + "-3") == (names.scope("ray.get"), names.scope("Env-3"))


@pytest.mark.parametrize(
    ("module", "file", "shown"),
    [
        ("torch.nn", "/env/lib/python3.11/site-packages/torch/nn/a.py", "/site-packages/torch/nn/"),
        ("json", "/usr/lib/python3.11/json/__init__.py", "/lib/python3/json/__init__.py"),
        ("gpuprof._log", "/home/me/src/gpuprof/_log.py", "/gpuprof/_log.py"),
        ("queue", "/home/me/queue.py", None),
        ("ours.json", "/env/lib/python3.11/site-packages/ours/json.py", None),
    ],
)
def test_functions_of_known_packages_stay(module: str, file: str, shown: str | None) -> None:
    """Where they are installed: a file of the user's may have such a name, too."""
    about = Names().function({"function": "load", "module": module, "file": file})
    assert (shown is not None) == ("load" == about["function"])
    assert shown is None or shown in about["file"]
    assert "me" not in about["file"].split("/")
