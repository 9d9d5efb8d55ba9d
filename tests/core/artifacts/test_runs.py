"""`gpuprof runs`, `clean` and `collect`, on directories as runs leave them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result
from gpuprof._artifacts import alive, runs
from gpuprof._artifacts.formats import FileState
from gpuprof._artifacts.receipt import Receipt, ReceiptRow
from gpuprof._cli import main
from gpuprof._config.load import load
from gpuprof._session.step_times import StepTimes
from gpuprof.errors import OutputError
from support.run_files import manifest, run_file, session_file

DAY = 86400.0


def make_run(
    output_dir: Path, name: str, *, begun: float = 0.0, states: list[FileState] | None = None
) -> Path:
    """A run; with `states` of its reports it has ended."""
    directory = output_dir / name
    (directory / "node").mkdir(parents=True)
    (directory / "node" / "A-0.step-3.nsys-rep").write_bytes(b"report")
    runs.begin(str(directory), name, load({"backend": "none", "output_dir": str(output_dir)}))
    word = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**word, "begun": begun}))
    if states is not None:
        rows = tuple(
            ReceiptRow("A-0", "node", f"step-{step}", None, 0, state)
            for step, state in enumerate(states)
        )
        receipt = Receipt(rows, str(directory)).to_dict()
        (directory / "manifest.json").write_text(json.dumps(manifest(name, receipt)))
    return directory


def run(*words: Any, answer: str = "") -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, list(map(str, words)), input=answer)


def test_runs_are_listed_by_age_with_what_they_left(tmp_path: Path) -> None:
    """Lists runs, the oldest first, also one without a manifest; skips what is no run."""
    make_run(tmp_path, "second", begun=2.0)
    make_run(tmp_path, "first", begun=1.0, states=["complete", "missing"])
    (tmp_path / "photos").mkdir()
    found = json.loads(run("runs", "--output-dir", tmp_path, "--json").stdout)
    assert [("first", "nsight"), ("second", "none")] == [
        (entry["name"], entry["backend"]) for entry in found
    ]
    assert "1 of 2 reports complete" == found[0]["state"]
    assert found[1]["state"].startswith("no receipt")
    assert all(entry["size"] > len(b"report") for entry in found)


def test_the_oldest_run_is_first(tmp_path: Path) -> None:
    """Whatever the names of the runs, and the order in which the file system has them."""
    for number in range(8):
        make_run(tmp_path, str(number), begun=float(5 * number % 8))
    assert list("05274163") == [found.name for found in runs.runs(str(tmp_path))]


def test_what_is_still_staged_on_this_node_belongs_to_the_run(tmp_path: Path) -> None:
    """Beside what is at home; where nothing was staged here, or at home, the other is all."""
    home = make_run(tmp_path / "home", "a")
    staged, nowhere = (
        runs.About(str(home), "a", run_file("a", working_dir=str(tmp_path / name)))
        for name in ("staged", "nowhere")
    )
    (tmp_path / "staged" / "a" / "another-node").mkdir(parents=True)
    assert ["node", "another-node"] == [record.node for record in runs.records(staged)]
    assert ["node"] == [record.node for record in runs.records(nowhere)]


@pytest.mark.parametrize("words", [("explain",), ("clean",), ("capture", "--steps=3")])
def test_a_misspelt_run_is_recognised(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Where one is named."""
    make_run(tmp_path, "20261122-171223-53240f")
    done = run(words[0], "--output-dir", tmp_path, *words[1:], "20261122-171223-52340f")
    assert 2 == done.exit_code
    assert "did you mean '20261122-171223-53240f'?" in done.output


def test_no_runs_are_said_to_be_none(tmp_path: Path) -> None:
    """An empty directory, and one that does not exist."""
    assert f"no runs in {tmp_path}\n" == run("runs", "--output-dir", tmp_path).stdout
    assert f"no runs in {tmp_path / 'x'}\n" == run("runs", "--output-dir", tmp_path / "x").stdout


def test_a_link_to_a_run_is_no_run(tmp_path: Path) -> None:
    """It may lead to somebody else's directory."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").symlink_to(make_run(tmp_path / "others", "a"))
    assert [] == runs.runs(str(tmp_path / "mine"))


def test_a_directory_with_another_runs_file_is_no_run(tmp_path: Path) -> None:
    """Nor is it removed, such as a directory that somebody has renamed."""
    make_run(tmp_path, "a").rename(tmp_path / "mine")
    assert [] == runs.runs(str(tmp_path))


IT_RUNS, FINISHED = "running", "finished, no receipt; run gpuprof collect RUN"
UNKNOWN = "no receipt: still running, or its driver died; run gpuprof collect RUN"
ALIVE: dict[str, Any] = {}
DEAD = {"start": "1"}
FAR = {"place": "another host"}
CONTAINED = {"place": f"{os.uname().nodename} 1", "start": "1"}
OVER = {**FAR, "over": True}


def change(file: Path, **changes: Any) -> None:
    """Change what is written in a file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("ranks", "size", "state"),
    [
        ([], 1, UNKNOWN),
        ([ALIVE], 1, IT_RUNS),
        ([DEAD], 1, FINISHED),
        ([DEAD], 2, UNKNOWN),
        ([DEAD, DEAD], 2, FINISHED),
        ([DEAD, ALIVE], 2, IT_RUNS),
        ([OVER, ALIVE], 3, IT_RUNS),
        ([DEAD, OVER], 2, FINISHED),
        ([DEAD, FAR], 2, UNKNOWN),
        ([CONTAINED], 1, UNKNOWN),
    ],
)
def test_a_launch_ends_with_all_of_its_ranks(
    tmp_path: Path, ranks: list[dict[str, Any]], size: int, state: str
) -> None:
    """Ranks of other nodes and containers record themselves that they are over."""
    directory = make_run(tmp_path, "a")
    change(directory / "run.json", backend="nsight")
    for rank, word in enumerate(ranks):
        alive.record_rank(str(directory), "A", rank, size)
        change(directory / ".ranks" / f"A-{rank}.process", **word)
    assert [state] == [found.state for found in runs.runs(str(tmp_path))]


def test_a_launch_without_a_profiler_has_nothing_to_collect(tmp_path: Path) -> None:
    """Once all of its ranks are over."""
    directory = make_run(tmp_path, "a")
    for rank in range(2):
        alive.record_rank(str(directory), "A", rank, 2, over=True)
    assert ["no report expected"] == [found.state for found in runs.runs(str(tmp_path))]


@pytest.mark.parametrize(("server", "state"), [(DEAD, UNKNOWN), (ALIVE, IT_RUNS)])
def test_launches_of_a_run_are_told_apart(
    tmp_path: Path, server: dict[str, Any], state: str
) -> None:
    """One rank of a launch of two, and the only one of another, are not two of two."""
    directory = make_run(tmp_path, "a")
    for group, size, word in (("Trainer", 2, DEAD), ("Server", 1, server)):
        alive.record_rank(str(directory), group, 0, size)
        change(directory / ".ranks" / f"{group}-0.process", **word)
    assert [state] == [found.state for found in runs.runs(str(tmp_path))]


@pytest.mark.parametrize("content", ["", "[]", '{"rank": 0}'])
def test_a_damaged_file_of_a_rank_is_named(tmp_path: Path, content: str) -> None:
    """Nothing is known of that rank, and all else is listed."""
    directory = make_run(tmp_path, "a")
    (directory / ".ranks").mkdir()
    (directory / ".ranks" / "A-0.process").write_text(content)
    file = directory / ".ranks" / "A-0.process"
    (found,) = runs.runs(str(tmp_path))
    assert found.state.startswith(f"{UNKNOWN}; {file}: ")


@pytest.mark.parametrize(
    ("driver", "state"),
    [(ALIVE, IT_RUNS), (DEAD, FINISHED), (FAR, UNKNOWN), (CONTAINED, UNKNOWN)],
    ids=["alive", "dead", "far", "contained"],
)
def test_a_run_with_a_driver_ends_with_that(
    tmp_path: Path, driver: dict[str, str], state: str
) -> None:
    """A driver on another host or in another container cannot be seen."""
    (tmp_path / "a").mkdir()
    runs.begin(str(tmp_path / "a"), "a", load({"backend": "none"}), driven=True)
    word = json.loads((tmp_path / "a" / "run.json").read_text())
    change(tmp_path / "a" / "run.json", driver={**word["driver"], **driver})
    assert [state] == [found.state for found in runs.runs(str(tmp_path))]


def test_a_run_whose_driver_lives_on_has_ended_with_its_manifest(tmp_path: Path) -> None:
    """As in a notebook: no worker follows orders any more, and its directory may be removed."""
    known = runs.About(str(tmp_path), "a", run_file("a", driver=alive.this_process()))
    assert known.goes_on() is True
    ended = manifest("a", Receipt((), None).to_dict(), workers=[])
    assert attrs.evolve(known, manifest=ended).goes_on() is False


def test_a_collected_run_whose_ranks_are_far_has_ended(tmp_path: Path) -> None:
    """Nobody here can see their processes, and its manifest is the last file to be written."""
    directory = make_run(tmp_path, "a", states=["complete"])
    alive.record_rank(str(directory), "A", 0, 1)
    change(directory / ".ranks" / "A-0.process", **FAR)
    (entry,) = runs.runs(str(tmp_path))
    assert entry.goes_on is False


def test_no_secret_is_left_in_the_directory(tmp_path: Path) -> None:
    """Whoever may read the run's settings, to finish it or to read its reports, learns none."""
    options = {"env": {"WANDB_API_KEY": "of-the-user", "PGPASSWD": "of-the-user"}}
    settings = {"backend": "nsight", "nsight": options, "finish_command": "echo of-the-user"}
    runs.begin(str(tmp_path), tmp_path.name, load(settings))
    known = runs.about(tmp_path)
    assert known is not None
    assert {"WANDB_API_KEY": "***", "PGPASSWD": "***"} == known.config["nsight"]["env"]
    assert "of-the-user" not in (tmp_path / "run.json").read_text()


@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b'{"run": "b", "version": 3, "begun": "x"}', b'{"run": 1e999', b"\xff", b""],
)
def test_a_broken_run_does_not_hide_the_others(tmp_path: Path, content: bytes) -> None:
    """It is named, and the exit code tells."""
    make_run(tmp_path, "a")
    (make_run(tmp_path, "b") / "run.json").write_bytes(content)
    done = run("runs", "--wide", "--output-dir", tmp_path)
    assert 1 == done.exit_code
    assert "\na " in done.output
    assert f"{tmp_path / 'b' / 'run.json'}: ignored: damaged: " in done.output


@pytest.mark.parametrize("name", ["run.json", "manifest.json"])
@pytest.mark.parametrize("kind", ["fifo", "link", "sparse"])
def test_what_is_no_plain_file_is_not_read(tmp_path: Path, name: str, kind: str) -> None:
    """Reading it would never end, or take all memory."""
    make_run(tmp_path, "a")
    file = make_run(tmp_path, "b", states=["complete"]) / name
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/dev/zero")
    else:
        file.touch()
        os.truncate(file, 10**12)
    done = run("runs", "--wide", "--output-dir", tmp_path)
    assert ["a", "b"] == [line.split()[0] for line in done.stdout.splitlines()[2:]]
    assert f"{file}: ignored: damaged: " in done.output
    assert 1 == done.exit_code


def test_any_number_of_nested_directories_is_listed_and_removed(tmp_path: Path) -> None:
    """More than Python has frames, and than a process has files."""
    nested = make_run(tmp_path, "a")
    for _ in range(1500):
        nested /= "d"
    make_nested(nested)
    assert 0 == run("runs", "--output-dir", tmp_path).exit_code
    assert 0 == run("clean", "a", "--yes", "--output-dir", tmp_path).exit_code
    assert [] == list(tmp_path.iterdir())


def make_nested(path: Path) -> None:
    """`os.makedirs` calls itself for each."""
    for part in reversed([path, *path.parents]):
        if not part.exists():
            part.mkdir()


def test_the_names_of_runs_need_not_be_text(tmp_path: Path) -> None:
    """They are bytes for Linux."""
    make_run(tmp_path, os.fsdecode(b"\xff\xfe"))
    done = run("runs", "--output-dir", tmp_path)
    assert 0 == done.exit_code
    assert "\\udcff\\udcfe " in done.output


def test_clean_removes_no_link(tmp_path: Path) -> None:
    """Nor what it points to, or what a link in a run does."""
    victim = make_run(tmp_path / "elsewhere", "a")
    output_dir = tmp_path / "runs"
    (make_run(output_dir, "b") / "link").symlink_to(victim)
    (output_dir / "a").symlink_to(victim)
    run("clean", "--older-than", "0", "--yes", "--output-dir", output_dir)
    assert ["a"] == [path.name for path in output_dir.iterdir()]
    assert (victim / "run.json").exists()


@pytest.mark.parametrize("content", ['{"version": 1, "run"', "[]"])
def test_a_damaged_run_file_is_named(tmp_path: Path, content: str) -> None:
    """The run is listed by its manifest, and can be removed; `collect` says what it lacks."""
    directory = make_run(tmp_path, "a", states=["complete"])
    (directory / "run.json").write_text(content)
    (found,) = json.loads(run("runs", "--output-dir", tmp_path, "--json").stdout)
    assert found["state"].startswith(
        f"1 of 1 report complete; {directory / 'run.json'}: ignored: damaged"
    )
    refused = run("collect", directory)
    assert (2, True) == (refused.exit_code, "run.json: missing or damaged" in refused.output)
    assert 0 == run("clean", "a", "--yes", "--output-dir", tmp_path).exit_code
    assert not directory.exists()


def test_the_output_directory_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`runs` and `clean` look where the runs of this shell go."""
    monkeypatch.setenv("GPUPROF_OUTPUT_DIR", str(tmp_path))
    make_run(tmp_path, "a")
    assert ["a"] == [entry["name"] for entry in json.loads(run("runs", "--json").stdout)]
    assert 0 == run("clean", "a", "--yes").exit_code
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("answer", "left"), [("y\n", ["b"]), ("n\n", ["a", "b"]), ("", ["a", "b"])]
)
def test_clean_asks(tmp_path: Path, answer: str, left: list[str]) -> None:
    """Only a yes removes."""
    for name in ("a", "b"):
        make_run(tmp_path, name)
    run("clean", "a", "--output-dir", tmp_path, answer=answer)
    assert left == sorted(path.name for path in tmp_path.iterdir())


def test_clean_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that began more days ago than that go, the others stay."""
    monkeypatch.setattr("time.time", lambda: 10 * DAY)
    make_run(tmp_path, "old", begun=1 * DAY)
    make_run(tmp_path, "new", begun=9 * DAY)
    assert 0 == run("clean", "--older-than", 5, "--yes", "--output-dir", tmp_path).exit_code
    assert ["new"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("words", [["going"], ["--older-than", "1"]])
def test_clean_leaves_what_goes_on(tmp_path: Path, words: list[str]) -> None:
    """Its workers would lose what they claim by, and their reports."""
    (make_run(tmp_path, "going") / "run.json").unlink()
    runs.begin(
        str(tmp_path / "going"),
        "going",
        load({"backend": "none", "output_dir": str(tmp_path)}),
        driven=True,
    )
    word = json.loads((tmp_path / "going" / "run.json").read_text())
    (tmp_path / "going" / "run.json").write_text(json.dumps({**word, "begun": 0.0}))
    done = run("clean", *words, "--yes", "--output-dir", tmp_path)
    assert (0, ["going"]) == (done.exit_code, [path.name for path in tmp_path.iterdir()])
    assert ["running, kept", "nothing to remove"] == [
        line.split("  ")[-1] for line in done.stdout.splitlines()[2:]
    ]


@pytest.mark.parametrize("words", [[], ["nobody"], ["a", "--older-than", "1"]])
def test_clean_is_told_what(tmp_path: Path, words: list[str]) -> None:
    """Without a name, with one that is no run, and with two ways at once nothing is removed."""
    make_run(tmp_path, "a")
    assert 2 == run("clean", *words, "--yes", "--output-dir", tmp_path).exit_code
    assert ["a"] == [path.name for path in tmp_path.iterdir()]


def test_what_is_no_run_is_never_removed(tmp_path: Path) -> None:
    """A directory without word of a run of its own name is left alone."""
    directory = make_run(tmp_path, "a")
    (found,) = runs.runs(str(tmp_path))
    (directory / "run.json").unlink()
    with pytest.raises(OutputError, match="left alone"):
        runs.remove(found)
    assert directory.is_dir()


def test_collect_lists_what_is_there(tmp_path: Path) -> None:
    """Where all is home, the manifest is written, with a checksum of each file."""
    directory = make_run(tmp_path, "a")
    done = run("collect", directory)
    assert f"no report expected, in {directory}\n" == done.stdout
    (entry,) = json.loads((directory / "manifest.json").read_text())["files"]
    assert ("node", 6, hashlib.sha256(b"report").hexdigest()) == (
        entry["node"],
        entry["size"],
        entry["sha256"],
    )


def test_collect_says_what_steps_took(tmp_path: Path) -> None:
    """As the driver would have done, from what the workers have counted."""
    directory = make_run(tmp_path, "a")
    times = StepTimes(3.75, 3.0, 3, 3, 6.0).to_dict()
    session = session_file(step_times=times)
    (directory / "node" / "A-0.start-1.json").write_text(json.dumps(session))
    said = (
        "a captured step took 3.25 s: 1.25 s itself (+25 %), 2.00 s to open and close the window; "
        "others 1.00 s"
    )
    assert said == run("collect", directory).stdout.splitlines()[-1]


@pytest.mark.parametrize("words", [["nothing"], ["nothing", "--ray"]])
def test_collect_wants_the_directory_of_a_run(tmp_path: Path, words: list[str]) -> None:
    """What is none is refused before anything is connected to."""
    assert 2 == run("collect", tmp_path / words[0], *words[1:]).exit_code


def test_the_latest_run_is_one_that_has_begun(tmp_path: Path) -> None:
    """A start that was refused leaves a directory, and does not hide the run before it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(run_file(name)))
    assert str(tmp_path / "b") == runs.find(str(tmp_path), runs.LATEST)
    (tmp_path / "a" / "node").mkdir()
    assert str(tmp_path / "a") == runs.find(str(tmp_path), runs.LATEST)


def test_a_directory_of_runs_stands_for_the_newest(tmp_path: Path) -> None:
    """As `gpuprof run --set output_dir=...` makes it; a path that is none is said to be."""
    directory = make_run(tmp_path / "output", "a")
    found = run("collect", tmp_path / "output")
    assert (f"run: {directory}\n", 0) == (found.stderr, found.exit_code)
    assert "nowhere: no such file or directory; " in run("explain", tmp_path / "nowhere").stderr
    none = run("explain", "nowhere", "--output-dir", tmp_path / "empty")
    assert "nowhere: no such file, and no runs in " in none.stderr


@pytest.mark.parametrize("name", ["a", "latest"])
def test_collect_takes_the_name_of_a_run(tmp_path: Path, name: str) -> None:
    """As `gpuprof runs` lists it."""
    directory = make_run(tmp_path, "a")
    done = run("collect", name, "--output-dir", tmp_path)
    assert f"no report expected, in {directory}\n" == done.stdout
    assert "no such run" in run("collect", "b", "--output-dir", tmp_path).output
