"""Configurations that are made to harm: too large, too deep, or of what no file can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof._plan.groups import parse
from gpuprof.errors import ConfigError

ALIASES = "a0: &a0 [1, 2]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


def problem(source: Any, **arguments: Any) -> str:
    with pytest.raises(ConfigError) as error:
        load(source, **{"environ": {}, **arguments})
    str(error.value).encode()  # so that it can be printed
    return error.value.problems[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ALIASES, "more than 20000 values; expected fewer"),
        ("steps: !!timestamp x", "'x' is not valid as tag:yaml.org,2002:timestamp"),
        ("enabled: !!bool x", "'x' is not valid as tag:yaml.org,2002:bool"),
        ("max_windows: !!int ''", "'' is not valid as tag:yaml.org,2002:int"),
        (f"steps: {'[' * 3000}", "cannot be read as YAML: nested too deeply"),
        (f"steps:\n{'- ' * 100}1", "nested more than 64 levels deep"),
        (f"max_windows: {'9' * 5000}", "max_windows: '999"),
        (f"max_windows: 0x{'f' * 5000}", "max_windows: '0xff"),
        ('output_dir: "\\ud800"', "output_dir: '\\ud800' is not valid; expected text that UTF-8"),
        ('"\\ud800": 1', "expected text that UTF-8 can hold"),
        ('output_dir: "\\0"', "output_dir: '\\x00' is not valid; expected text without a null"),
        ("collect_every: .nan", "collect_every: nan is not valid; expected a number"),
        (f"x: {'a' * 2**20}", "has more than 1048576 characters"),
        ("? [&a [1], *a]\n: 1", "cannot be read as YAML"),
    ],
    ids=lambda value: value[:20],
)
def test_a_hostile_file_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    """A file that would fill the memory, or that other code would fail on, is a short error."""
    file = tmp_path / "config.yaml"
    file.write_text(f"backend: none\n{text}\n")
    found = problem(file)
    assert found.startswith(f"{file}: ")
    assert expected in found
    assert len(found) < 1000


@pytest.mark.parametrize("key", ["max_windows", "max_bytes", "collect_every", "steps", "ranks"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_that_python_does_not_write(key: str, sign: int) -> None:
    """An integer of more than 4,300 digits is refused by its key."""
    assert problem({"backend": "none", key: sign * 10**5000}) == (
        f"{key}: this integer is not valid; expected one of at most 64 bits"
    )


@pytest.mark.parametrize("value", ["[" * 3000, "0x" + "f" * 5000, "!!timestamp x", "\udcff"])
def test_a_hostile_override_is_refused(value: str) -> None:
    """An override that is no YAML is text, refused by its key and shown in part."""
    found = problem({"backend": "none"}, overrides=[f"steps={value}"])
    assert found.startswith("steps")
    assert len(found) < 400


def test_a_thousand_groups() -> None:
    """Many groups are read, and too many are refused."""
    groups: dict[str, Any] = {f"group {number}": {"steps": [number]} for number in range(1000)}
    config = load({"backend": "none", "groups": groups}, environ={})
    steps = config.selection("Group 7").steps
    assert steps is not None
    assert [7] == list(steps)
    assert problem({"backend": "none", "groups": {**groups, "more": {}}}) == (
        "groups: 1001 groups are not valid; expected at most 1000"
    )


def test_an_override_is_not_said_to_be_in_the_file(tmp_path: Path) -> None:
    """An error in a file names the file; one in an override or a variable does not."""
    file = tmp_path / "config.yaml"
    file.write_text("profiling: {backend: none, max_windows: 0}\n")
    assert problem(file).startswith(f"{file}: profiling.max_windows: 0 is not valid")
    overridden = problem(file, overrides=["max_windows=-1"])
    assert overridden.startswith("profiling.max_windows: -1 is not valid")
    variable = problem(file, environ={"GPUPROF_MAX_WINDOWS": "-2"})
    assert variable.startswith("GPUPROF_MAX_WINDOWS: -2 is not valid")


def test_two_sections_are_refused() -> None:
    """A file with gpuprof's settings at both places is refused."""
    section = {"backend": "none"}
    both = {"profiling": section, "cluster": {"profiling": section}}
    assert problem(both, system="gpuprof") == (
        "cluster.profiling and profiling: both are set; keep one of them"
    )


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ("Actor=2:", "workers.Actor.count: '2:' is not valid"),
        (f"{'x' * 255}=1", f"workers.{'x' * 255}: 'xxx"),
        ("a/b=1", "workers.a/b: 'a/b' is not valid; expected a name without /"),
    ],
    ids=["no GPUs", "long", "slash"],
)
def test_workers_that_cannot_be_planned(workers: str, expected: str) -> None:
    """A worker's name that no file can have, and a count without its GPUs, are refused."""
    with pytest.raises(ConfigError) as error:
        parse(workers)
    assert error.value.problems[0].startswith(expected)
