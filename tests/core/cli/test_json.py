"""What commands print with ``--json`` has the keys and types that its schema says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from gpuprof._artifacts.alive import this_process
from gpuprof._cli import main
from support.json_output import SCHEMAS, faults
from support.run_files import run_file
from support.simulated_job import Job
from truth import jobs


def output(*words: Any) -> Any:
    """What a command of ours prints, parsed."""
    return json.loads(CliRunner().invoke(main, [*map(str, words), "--json"]).stdout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run without a cause, and one with a slow rank that goes on."""
    directory = tmp_path_factory.mktemp("runs")
    for name, cause in (("good", None), ("slow", "slow rank")):
        Job(cause, seed=3, steps=24).write(directory / name)
        driver = this_process() if cause else {**this_process(), "start": "0"}
        (directory / name / "run.json").write_text(json.dumps(run_file(name, driver=driver)))
    return directory


OUTPUTS = [
    ("explain", ["explain", "slow"]),
    ("top", ["top", "slow", "--once"]),
    ("diff", ["diff", "slow", "good"]),
    ("diff", ["diff", "good", "slow", "--fail-if", "step > 1%"]),
    ("runs", ["runs"]),
    ("plan", ["plan", "backend=none", "--workers", "A=2", "steps=2"]),
    ("doctor", ["doctor", "backend=none"]),
    ("backends", ["backends"]),
]
ELSEWHERE = {
    "stacks": "test_stacks.py",
    "report": "../report/test_report_command.py",
    "report-nvtx": "../report/test_cache.py",
}
"""The tests that compare an output that needs more than a recorded run."""


@pytest.mark.parametrize(("name", "words"), OUTPUTS)
def test_the_output_fits_its_schema(
    name: str, words: list[str], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has no key that the schema lacks."""
    monkeypatch.setenv("GPUPROF_OUTPUT_DIR", str(runs))
    assert [] == faults(name, output(*words))


@pytest.mark.parametrize("number", range(2))
def test_answers_about_samples_fit_the_schema(number: int, tmp_path: Path) -> None:
    """Their findings have more keys."""
    job = jobs.drawn(101, number, suite="samples")
    answer = output("explain", job.write(tmp_path / "run"))
    assert [] == faults("explain", answer)


def test_every_command_with_json_has_a_schema() -> None:
    """A new one must be described, too."""
    schemas = {path.stem for path in SCHEMAS.glob("*.json")}
    assert set(with_json(main)) == schemas - {"report-nvtx"}


def with_json(group: click.Group, prefix: str = "") -> Iterator[str]:
    """The names of a group's commands that have the option, as their schemas have them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from with_json(command, f"{name}-")
        elif any("--json" in parameter.opts for parameter in command.params):
            yield prefix + name


def test_every_schema_is_compared_with_an_output() -> None:
    """Here or in the named test."""
    schemas = {path.stem for path in SCHEMAS.glob("*.json")}
    assert schemas == {name for name, _ in OUTPUTS} | ELSEWHERE.keys()
    for name, test in ELSEWHERE.items():
        assert f'faults("{name}"' in (Path(__file__).parent / test).read_text()


def test_the_skill_names_keys_that_there_are(runs: Path) -> None:
    """Those of `gpuprof explain` that it tells an agent to read."""
    text = CliRunner().invoke(main, ["--skill"]).stdout
    keys = output("explain", runs / "slow")
    missing = [key for key in re.findall(r"`(\w+)(?:\[\d*\])?\.\w+`", text) if key not in keys]
    assert set(missing) <= {"json", "step", "finds", "promised"}
    assert "grade: named" in text
