"""Every command on a run whose names command a terminal: none of them reaches it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gpuprof._artifacts.formats import RowEntry
from gpuprof._artifacts.manifest import setup
from gpuprof._cli import COMMANDS, main
from gpuprof._log import log
from support.page_run import tree
from support.run_files import manifest, run_file, session_file, window_entry
from support.simulated_run import SimulatedLedger

MS = 1_000_000
NAME = (
    "x\x1b]0;title\x07\x1b]52;c;eA==\x07\x1b[8m\x9b2J\r"
    "\u202e\u2066\u200b\ufeff\ufe0f\u3164\U000e0041\u2028\nend|`*<b>"
)
"""Sets the title and the clipboard, hides, reorders, and is markup."""
OTHER = f"other {NAME}"
STEPS = 40


def invisible(text: str) -> list[str]:
    """Characters that a terminal obeys or does not show."""
    return [
        f"{character!r} in {text[max(0, at - 40) : at + 20]!r}"
        for at, character in enumerate(text)
        if character not in "\n\t"
        and (unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
             or character in "\ufe0f\u3164")
    ]  # fmt: skip


@pytest.fixture(scope="module")
def output_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output directory with such a run, and one that is broken."""
    place = tmp_path_factory.mktemp("runs")
    write(place / NAME, "before")
    write(place / OTHER, "after")
    broken = place / f"broken {NAME}"
    broken.mkdir()
    (broken / "run.json").write_text(f'{{"run": {json.dumps(broken.name)}}}')
    return place


def write(directory: Path, word: str) -> None:
    """A run whose groups, scopes, nodes, files and settings have this name.

    Args:
        word: in the name of a scope that is in this run only.
    """
    driver = SimulatedLedger("Runner", "driver", node=NAME)
    for step in range(STEPS):
        driver.step(step, step * 10 * MS, (step + 1) * 10 * MS)
        driver.span(f"drive {NAME}", step * 10 * MS, step * 10 * MS + MS)
    driver.write(directory)
    for rank in range(3):
        worker = SimulatedLedger(f"{NAME}-{rank}", node=NAME)
        for step in range(STEPS):
            begin = step * 10 * MS + MS
            worker.span(NAME, begin, begin + (8 if rank == 2 else 3) * MS)
            worker.span([NAME, f"{word} {NAME}"], begin, begin + 2 * MS)
        worker.write(directory)
        about = session_file(
            window_entry(),
            name=f"{NAME}-{rank}",
            group=NAME,
            rank=rank,
            node=NAME,
            run=directory.name,
            timing=tree({NAME: 0.5, f"{NAME}a → {NAME}b": 0.25}),
            faults=[NAME],
        )
        (directory / NAME / f"{NAME}-{rank}.start-1.json").write_text(json.dumps(about))
    for suffix in ("ledger", "json", "nsys-rep"):
        (directory / NAME / f"damaged {NAME}.start-1.{suffix}").write_text("{")
    settings = {"backend": "none", "waits": {f"drive {NAME}": NAME}, "output_dir": NAME}
    begun = run_file(directory.name, config=settings)
    (directory / "run.json").write_text(json.dumps(begun))
    row: RowEntry = {
        "worker": f"{NAME}-0",
        "node": NAME,
        "window": NAME,
        "file": str(directory / NAME / "gone.nsys-rep"),
        "size": 2048,
        "state": "complete",
        "cause": "NONE",
        "reason": NAME,
        "planned": "",
    }
    ended = manifest(
        directory.name,
        {"rows": [row], "directory": str(directory), "faults": [NAME], "overhead": NAME},
        setup=setup(begun, ()),
    )
    (directory / "manifest.json").write_text(json.dumps(ended))


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file whose name and texts are such, too."""
    file = tmp_path_factory.mktemp(f"configuration {NAME}") / f"{NAME}.yaml"
    settings = {"backend": "none", "worker_groups": [NAME], "env": {"A": NAME}}
    file.write_text(json.dumps(settings))
    return str(file)


def command_lines(run: str, other: str, config: str) -> Iterator[tuple[str, ...]]:
    """Each command, in its forms."""
    yield from (("report", run), ("report", run, "--json"), ("report", run, "--nvtx"))
    yield from (("report", NAME), ("report", f"{run}/{NAME}"), ("report", f"/{NAME}"))
    yield from (("explain", run), ("explain", run, "--json"), ("explain", run, "--step", "7"))
    yield from (("explain", NAME), ("explain", run, "--wide"), ("explain", run, "--step", "99"))
    yield from (("timeline", run), ("html", run), ("html", run, other), ("timeline", NAME))
    yield from (("diff", run, other, *form) for form in ((), ("--markdown",), ("--json",)))
    yield ("diff", run, other, "--wide", "--fail-if", f"{NAME} > 5%")
    yield ("diff", run, other, "--fail-if", NAME)
    yield from (("baseline", run, "-o", f"{run}.json"), ("baseline", run, "-o", f"/{NAME}/x"))
    yield from (("diff", run, "--baseline", f"{run}.json"), ("diff", run, "--baseline", config))
    yield from (("plan", config), ("plan", NAME), ("plan", "backend=none", "--workers", NAME))
    yield ("plan", "backend=none", "--workers", "A=2", "--worker", f"{NAME}-0")
    yield from (("collect", run), ("collect", NAME), ("runs",), ("runs", "--json"))
    yield from (("clean", NAME), ("clean", run), ("clean", "--older-than", "1"))
    yield from (("clean", "--cache"), ("capture", run, "--steps", "3"))
    yield from (("stacks", run), ("stacks", NAME), ("top", run, "--once"))
    yield ("export", "--anonymous", run, "-o", f"{config}.copies")
    yield from (("export", NAME), ("export", "--anonymous", run, "-o", f"/dev/null/{NAME}"))
    yield from (("doctor", NAME), ("doctor", "backend=none", f"output_dir=/dev/null/{NAME}"))
    yield from (("config", each, config) for each in ("show", "validate"))
    yield from (("config", "explain", NAME), ("config", "show", f"{NAME}=1"))
    yield ("config", "convert", config, "--from", "verl")
    yield from (("backends", "--options", NAME), ("run", NAME), ("run", "--set", NAME, "true"))
    yield from ((NAME,), (f"--{NAME}",), ("report", f"--{NAME}"))


def run(*words: str) -> Result:
    """The command, in this process; what it asks is declined."""
    done = CliRunner().invoke(main, words, input="n\n")
    assert isinstance(done.exception, SystemExit | None), (words, done.exc_info)
    return done


def test_no_command_lets_a_name_reach_the_terminal(
    output_dir: Path, configuration: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on stdout nor on stderr."""
    monkeypatch.setenv("GPUPROF_OUTPUT_DIR", str(output_dir))
    monkeypatch.setenv("COLUMNS", "80")
    lines = list(command_lines(str(output_dir / NAME), str(output_dir / OTHER), configuration))
    raw = {words: invisible(run(*words).output)[:1] for words in lines}
    assert {words: [] for words in lines} == raw
    assert set(COMMANDS) <= {words[0] for words in lines}


@pytest.mark.parametrize("command", ["report", "explain", "diff"])
def test_json_with_hostile_names_is_json(output_dir: Path, command: str) -> None:
    """Programs get names as they are."""
    where = [str(output_dir / name) for name in ((NAME, OTHER) if command == "diff" else (NAME,))]
    found = json.loads(run(command, *where, "--json").stdout)
    assert json.dumps(NAME)[1:-1] in json.dumps(found)


def test_an_ascii_terminal_is_safe_too(output_dir: Path) -> None:
    """Click writes to such a stream in a way of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "runs", "--output-dir", str(output_dir / NAME)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert [] == invisible(done.stdout.decode())


def test_names_are_text_in_markdown(output_dir: Path) -> None:
    """They end no cell and are no markup."""
    where = [str(output_dir / name) for name in (NAME, OTHER)]
    text = run("diff", *where, "--markdown").stdout
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    cells = [{len(re.split(r"(?<!\\)\|", row)) for row in table} for table in tables]
    assert {1} == {len(lengths) for lengths in cells}
    assert [] == re.findall(r"(?<!\\)[`*]|<b>", text)


def test_a_log_record_is_escaped_for_every_handler(caplog: pytest.LogCaptureFixture) -> None:
    """Also for a program's own: names may come from other nodes."""
    log().warning("%s: %s", NAME, "lost")
    assert [] == invisible(caplog.records[-1].getMessage())
