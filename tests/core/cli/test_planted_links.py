"""A run from somebody else, full of links: no command writes to where they point.

Each command runs in this process, on one copy of a run to learn the names that it writes, and on
others where these names are links. A name with this process's id is the same in all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from gpuprof._artifacts import runs
from gpuprof._cli import COMMANDS, main
from gpuprof._config.load import load
from gpuprof._session import orders
from gpuprof._shim.node import node_name
from gpuprof.errors import ConfigError
from gpuprof.ray import Profiler
from support import page_run
from support.run_files import own_node, run_file

GPUPROF = str(Path(sys.executable).with_name("gpuprof"))
READER = """
from gpuprof.backend import RangeTimes, hookimpl

class Reader:
    @hookimpl
    def read_ranges(self, path):
        return [RangeTimes("step", (1,))] if path.endswith(".rep") else None
"""
COMMAND = {
    "run": "run --set output_dir={runs} --set backend=none -- true",
    "report": "report --nvtx {run}",
    "explain": "explain {run}",
    "diff": "diff {run} {run}",
    "baseline": "baseline {run} -o {run}/perf.json",
    "timeline": "timeline {run}",
    "html": "html {run}",
    "collect": "collect {run}",
    "capture": "capture {run} --steps 5",
    "stacks": "stacks {run} --again 0",
    "top": "top {run} --once",
    "export": "export --anonymous {run} -o {runs}/copies",
    "runs": "runs --output-dir {runs}",
    "clean": "clean run --yes --output-dir {runs}",
    "plan": "plan backend=none output_dir={runs} --workers A=1",
    "doctor": "doctor backend=none output_dir={runs}",
    "config": "config show backend=none output_dir={runs}",
    "backends": "backends",
}
"""Of each command, a call that writes whatever it can into a run."""
CALLS = {
    **COMMAND,
    "report of trees": "report {run}",
    "clean of caches": "clean --cache --output-dir {runs}",
    "timeline of a step": "timeline {run} --step 3",
}

_written: list[str] | None = None


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _written is not None and event == "open":
        path, _, flags = arguments
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & writes:
            _written.append(os.path.basename(os.fsdecode(path)))


sys.addaudithook(_audit)


@contextmanager
def learning() -> Iterator[list[str]]:
    """The names of files that this process opens for writing."""
    global _written
    _written = []
    try:
        yield _written
    finally:
        _written = None


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a run with a ledger of each kind of process."""
    return page_run.write(tmp_path_factory.mktemp("ledgers") / "run")


def make_run(root: Path, ledgers: Path) -> Path:
    """A run with a ledger of each kind of process, a report, orders, and staged files."""
    run = root / "out" / "run"
    run.mkdir(parents=True)
    config = {"backend": "reader", "output_dir": str(run.parent), "staging_dir": str(root / "tmp")}
    runs.begin(str(run), "run", load(config, environ={}))
    shutil.copytree(ledgers, run, dirs_exist_ok=True)
    about = run_file("run", directory=str(run), working_dir=str(root / "tmp"), config=config)
    (run / "run.json").write_text(json.dumps({**about, "backend": "reader"}))
    (run / "manifest.json").unlink(missing_ok=True)
    own_node(run / node_name(), run)
    (run / node_name() / "A-0.rep").write_text("1")
    own_node(root / "tmp" / "run" / node_name(), run)
    (root / "tmp" / "run" / node_name() / "A-0.finish.log").write_text("staged")
    orders.make(str(run))
    return run


def plant(run: Path, learned: Path, names: list[str], victims: Path, kind: str) -> None:
    """Make links of all names in all directories of `run` that a command made in `learned`."""
    for folder in sorted(path for path in (learned, *learned.rglob("*")) if path.is_dir()):
        copy = run / folder.relative_to(learned)
        if not copy.exists():
            if kind == "a directory" and not any(path.is_dir() for path in folder.iterdir()):
                victim = victims / str(folder.relative_to(learned)).replace("/", "-")
                victim.mkdir()
                copy.symlink_to(victim)
                continue
            copy.mkdir(mode=folder.stat().st_mode & 0o777)
        if kind == "a directory":
            continue
        for name in {*names, *(path.name for path in folder.iterdir() if path.is_file())}:
            victim = victims / f"{folder.relative_to(learned)}-{name}".replace("/", "-")
            if not os.path.lexists(copy / name):
                (copy / name).symlink_to(victim)
                if kind == "a file":
                    victim.write_text("precious")


def written(victims: Path, kind: str) -> list[str]:
    """What is in the victims' directory and was not there before."""
    return [
        str(path.relative_to(victims))
        for path in victims.rglob("*")
        if not (kind == "a file" and path.read_bytes() == b"precious")
        and not (kind == "a directory" and path.parent == victims)
    ]


Attack = Callable[[str, str, Callable[[Path], object], Callable[[Path], Path]], list[str]]


@pytest.fixture(scope="module")
def lessons() -> dict[str, tuple[Path, list[str]]]:
    """A run in which somebody has written, and the names, by who has."""
    return {}


@pytest.fixture
def attack(tmp_path: Path, lessons: dict[str, tuple[Path, list[str]]]) -> Attack:
    """Lets somebody write into a run full of links: the names of what is written outside."""

    def attack(
        who: str, kind: str, work: Callable[[Path], object], make: Callable[[Path], Path]
    ) -> list[str]:
        if who not in lessons:
            learned = make(tmp_path / "learned")
            with learning() as names:
                work(learned)
            learned.mkdir(exist_ok=True)  # a command may remove it
            lessons[who] = learned, names
        run = make(tmp_path / "planted")
        victims = tmp_path / "victims"
        victims.mkdir()
        plant(run, *lessons[who], victims, kind)
        work(run)
        return written(victims, kind)

    return attack


def test_every_command_has_a_call() -> None:
    """A new command cannot be forgotten here."""
    assert COMMANDS.keys() == COMMAND.keys()


kinds = pytest.mark.parametrize(
    "kind",
    [
        "a file",
        pytest.param("nothing", marks=pytest.mark.exhaustive),
        pytest.param("a directory", marks=pytest.mark.exhaustive),
    ],
)


@kinds
@pytest.mark.parametrize("call", [name for name in CALLS if name != "run"])
def test_no_command_writes_through_a_link(
    attack: Attack, ledgers: Path, install: Callable[..., str], call: str, kind: str
) -> None:
    """Neither at the final name of a file nor at its temporary one."""
    install(READER, reader="Reader")

    def invoke(run: Path) -> None:
        words = [word.format(run=run, runs=run.parent) for word in CALLS[call].split()]
        done = CliRunner().invoke(main, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception

    assert [] == attack(call, kind, invoke, lambda root: make_run(root, ledgers))


def _nothing(root: Path) -> Path:
    run = root / "out" / "run"
    run.mkdir(parents=True)
    return run


@kinds
def test_no_driver_writes_through_a_link(
    attack: Attack, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its run's name may be one that somebody knew before."""
    monkeypatch.setenv("GPUPROF_RUN", "run")

    def drive(run: Path) -> None:
        config = {"backend": "none", "worker_groups": "A", "output_dir": str(run.parent)}
        with suppress(ConfigError), Profiler(config) as profiler, profiler.step(0):
            pass

    assert [] == attack("driver", kind, drive, _nothing)


@kinds
def test_no_rank_writes_through_a_link(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Neither `gpuprof run` itself, nor the shim in front of the worker, nor the worker."""
    monkeypatch.setenv("GPUPROF_RUN", "run")
    script, settings = tmp_path / "job.py", tmp_path / "config.yaml"
    script.write_text("import gpuprof\nwith gpuprof.step(0):\n    print('done')\n")

    def launch(run: Path) -> None:
        (run / "run.json").unlink(missing_ok=True)  # else the run is refused before anything else
        config = {"backend": "none", "output_dir": str(run.parent), "steps": [0]}
        settings.write_text(json.dumps({**config, "finish_command": "echo finished"}))
        words = ["run", "--config", str(settings), "--", sys.executable, str(script)]
        done = subprocess.run([GPUPROF, *words], capture_output=True, text=True)
        assert "done\n" == done.stdout, done.stderr

    assert [] == attack("rank", kind, launch, _nothing)


@pytest.mark.parametrize("command", ["html", "timeline", "collect"])
@pytest.mark.parametrize("end", ["", os.sep])
def test_nothing_is_written_into_a_run_that_is_a_link(
    command: str, end: str, tmp_path: Path
) -> None:
    """An unpacked archive may hold one to any directory of the user's."""
    run = tmp_path / "mine" / "run"
    page_run.write(run)
    link = tmp_path / "run"
    link.symlink_to(run)
    before = sorted(run.rglob("*"))
    done = CliRunner().invoke(main, [command, f"{link}{end}"])
    assert 2 == done.exit_code
    said = f"a link, and nothing is written through one; name the directory itself: {run}"
    assert said in done.output
    assert before == sorted(run.rglob("*"))


@pytest.mark.parametrize("kind", ["a file", "nothing"])
def test_a_write_through_a_link_is_seen(attack: Attack, kind: str) -> None:
    """As somebody would write who knows nothing of links."""
    seen = attack("careless", kind, lambda run: (run / "new").write_text("taken"), _nothing)
    assert [".-new"] == seen
