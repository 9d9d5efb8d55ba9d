"""Sampled stacks as files for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from gpuprof._cli import main
from support.made_stacks import write_stacks
from support.simulated_run import SimulatedLedger

MS = 1_000_000
TRAIN = ("train", "__main__", "/job/train.py", 12)
LOADS = ("loads", "json", "/usr/lib/python3.11/json/__init__.py", 346)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A run of two ranks."""
    for rank in range(2):
        ledger = SimulatedLedger(f"A-{rank}")
        ledger.span("load", 0, 100 * MS)
        samples = [
            ([TRAIN, LOADS], 1, 1, 1, 0, 50 * MS),
            ([TRAIN], 1, 0, 1, 50 * MS, 60 * MS),
            ([], 1, 0, 1, 60 * MS, 61 * MS),
        ]
        write_stacks(ledger.write(tmp_path / "run"), samples)
    return tmp_path / "run"


def report(directory: Path, *options: str) -> str:
    found = CliRunner().invoke(main, ["report", str(directory), *options])
    assert not found.exit_code, found.output
    return found.stdout


def test_collapsed_stacks_are_added_up_by_group(directory: Path) -> None:
    """A line each: group, thread, scope, functions, and microseconds."""
    assert [
        "A;MainThread;(more) 2000",
        "A;MainThread;[load];train (train.py:12);json.loads (json/__init__.py:346) 100000",
        "A;MainThread;train (train.py:12) 20000",
    ] == report(directory, "--stacks", "collapsed").splitlines()


def test_speedscope_has_a_profile_for_each_rank(directory: Path) -> None:
    """With the weights of its stacks."""
    content = json.loads(report(directory, "--stacks", "speedscope", "--by", "rank"))
    assert [("A-0", 61_000, [50_000, 10_000, 1_000]), ("A-1", 61_000, [50_000, 10_000, 1_000])] == [
        (profile["name"], profile["endValue"], profile["weights"])
        for profile in content["profiles"]
    ]


VERSION = b'"version": 1'


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda content: content[:-9], "its last 99 bytes cannot be read"),
        (lambda content: content[:-9] + b"\xff" + content[-8:], "its last 108 bytes cannot be"),
        (lambda content: content.replace(b'"A-0"', b'"A-9"'), "ignored: damaged: its first line"),
        (lambda content: content.replace(VERSION, b'"version": 7'), "ignored: version 7; expected"),
        (lambda _: b"", "ignored: not a ledger"),
    ],
    ids=["cut", "flipped", "flipped in the first line", "version", "empty"],
)
def test_damaged_samples_are_named(
    directory: Path, damage: Callable[[bytes], bytes], problem: str
) -> None:
    """And the other processes' are shown."""
    (path,) = directory.glob("*/A-0.*.stacks")
    path.write_bytes(damage(path.read_bytes()))
    found = CliRunner().invoke(
        main, ["report", str(directory), "--stacks", "collapsed", "--by", "rank"]
    )
    assert (1, f"{path}: {problem}") == (found.exit_code, found.stderr[: len(f"{path}: {problem}")])
    assert "A-1;MainThread;train (train.py:12) 10000" in found.stdout.splitlines()


def test_a_run_without_samples_says_so(tmp_path: Path) -> None:
    """And which key is off."""
    SimulatedLedger("A-0").write(tmp_path / "run")
    found = CliRunner().invoke(main, ["report", str(tmp_path / "run"), "--stacks", "collapsed"])
    assert 2 == found.exit_code, found.output
    assert "no stacks were sampled; see the key sampling" in found.output


def test_a_run_that_is_not_there_is_not_one_without_samples(tmp_path: Path) -> None:
    """The message names the path, not a key."""
    missing = str(tmp_path / "run")
    found = CliRunner().invoke(main, ["report", missing, "--stacks", "collapsed"])
    assert (2, True) == (found.exit_code, f"{missing}: not found" in found.stderr)
