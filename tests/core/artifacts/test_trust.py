"""What lies in a run's directory may be anybody's: nothing outside the run is touched for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof._artifacts import alive, runs
from gpuprof._artifacts.collect import Collection, ThisNode
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import read_node
from gpuprof._cli import main
from gpuprof._config.load import load
from gpuprof._shim.node import node_name
from gpuprof.errors import ConfigError
from support.fuzzing import within
from support.run_files import manifest, own_node, own_scratch, session_file, status, window_entry


def collect(directory: Path) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["collect", str(directory)])


def make_run(tmp_path: Path, staged: bool = False) -> tuple[Path, Path]:
    """A run of nsight, and its directory of this node, as its shim makes it."""
    config: dict[str, Any] = {
        "backend": "nsight",
        "worker_groups": ["A"],
        "output_dir": str(tmp_path / "home"),
    }
    if staged:
        config["staging_dir"] = str(tmp_path / "staged")
    home = tmp_path / "home" / "run"
    home.mkdir(parents=True)
    runs.begin(str(home), "run", load(config, environ={}))
    node = own_node((tmp_path / "staged" / "run" if staged else home) / node_name(), home)
    return home, node


def leave_tool(node: Path, scratch: Path, state: str = "ended") -> None:
    """What the shim has written of its tool."""
    tool = status(state, scratch=str(scratch))
    (node / ".gpuprof" / "A-0.start-1.tool").write_text(json.dumps(tool))


def test_a_directory_that_is_no_tools_is_not_removed(tmp_path: Path) -> None:
    """Whatever a status file says."""
    home, node = make_run(tmp_path)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "diary").write_text("precious")
    leave_tool(node, victim)
    done = collect(home)
    assert "precious" == (victim / "diary").read_text()
    assert f"{victim} left alone: it has no .gpuprof-owner" in done.output
    assert 1 == done.exit_code


@pytest.mark.parametrize("start", ["A-0.start-2", "B-0.start-1"])
def test_the_directory_of_another_tool_is_not_removed(tmp_path: Path, start: str) -> None:
    """A status file can name only what was made for the same start of the same worker."""
    home, node = make_run(tmp_path)
    leave_tool(node, own_scratch(tmp_path / "other", node, start))
    assert f"it belongs to {start} in {node / '.gpuprof'}" in collect(home).output
    assert (tmp_path / "other").is_dir()


def test_the_directory_of_another_runs_tool_is_not_removed(tmp_path: Path) -> None:
    """Not for a copy of that run either."""
    home, node = make_run(tmp_path)
    leave_tool(node, own_scratch(tmp_path / "scratch", node))
    copy = tmp_path / "copy" / "run"
    shutil.copytree(home, copy)
    assert f"it belongs to A-0.start-1 in {node / '.gpuprof'}" in collect(copy).output
    assert (tmp_path / "scratch").is_dir()


def test_the_tools_own_directory_is_removed(tmp_path: Path) -> None:
    """It says itself whose it is."""
    home, node = make_run(tmp_path)
    leave_tool(node, own_scratch(tmp_path / "scratch", node))
    collect(home)
    assert not (tmp_path / "scratch").exists()


def test_a_note_of_another_user_is_not_believed(tmp_path: Path) -> None:
    """Anybody can write one into a directory of his own."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    home, node = make_run(tmp_path)
    scratch = own_scratch(tmp_path / "scratch", node)
    os.chown(scratch / ".gpuprof-owner", 4321, -1)
    leave_tool(node, scratch)
    assert ".gpuprof-owner is owned by user 4321" in collect(home).output
    assert scratch.is_dir()


def test_a_strangers_process_is_not_ended(tmp_path: Path) -> None:
    """A status file names the directory that the process has as TMPDIR."""
    home, node = make_run(tmp_path)
    (tmp_path / "victim").mkdir()
    leave_tool(node, tmp_path / "victim", "finishing")
    own = {**os.environ, "TMPDIR": str(tmp_path / "victim")}
    with subprocess.Popen(["cat"], env=own, stdin=subprocess.PIPE) as process:
        collect(home)
        assert process.poll() is None


def test_no_link_below_the_staging_directory_is_followed(tmp_path: Path) -> None:
    """Its target may be anybody's directory."""
    home, node = make_run(tmp_path, staged=True)
    victim = own_node(tmp_path / "victim", home)
    (victim / "diary").write_text("precious")
    shutil.rmtree(node)
    node.symlink_to(victim)
    assert f"{node} left alone" in collect(home).output
    assert "precious" == (victim / "diary").read_text()


def test_a_link_among_the_staged_files_stays(tmp_path: Path) -> None:
    """A file that only its user may read does not come home readable by all."""
    home, node = make_run(tmp_path, staged=True)
    secret = tmp_path / "secret"
    secret.write_text("for me")
    (node / "notes.txt").symlink_to(secret)
    (node / "A-0.finish.log").write_text("ours")
    collect(home)
    assert ["A-0.finish.log"] == [path.name for path in (home / node_name()).iterdir()]


def test_a_file_comes_home_with_its_permissions(tmp_path: Path) -> None:
    """Not readable by more people than before."""
    home, node = make_run(tmp_path, staged=True)
    (node / "A-0.finish.log").write_text("ours")
    (node / "A-0.finish.log").chmod(0o600)
    collect(home)
    assert 0o600 == (home / node_name() / "A-0.finish.log").stat().st_mode & 0o777


@pytest.mark.parametrize("where", [".A-0.finish.log.partial", "A-0.finish.log"])
def test_no_link_at_home_is_written_through(tmp_path: Path, where: str) -> None:
    """The name that a file has while it comes can be guessed."""
    home, node = make_run(tmp_path, staged=True)
    (node / "A-0.finish.log").write_text("ours")
    victim = tmp_path / "bashrc"
    victim.write_text("precious")
    (home / node_name()).mkdir()
    (home / node_name() / where).symlink_to(victim)
    collect(home)
    assert "precious" == victim.read_text()


def test_what_does_not_say_that_it_is_staged_for_the_run_stays(tmp_path: Path) -> None:
    """`run.json` may name any directory as the one that its workers wrote to."""
    home, node = make_run(tmp_path, staged=True)
    (node / "A-0.finish.log").write_text("ours")
    (node / ".gpuprof" / ".gpuprof-owner").unlink()
    assert f"is not marked as part of {home}" in collect(home).output
    assert (node / "A-0.finish.log").exists()


@pytest.mark.parametrize("staged", [True, False])
def test_a_copy_does_not_empty_the_original(tmp_path: Path, staged: bool) -> None:
    """As a backup that is looked at with `collect`."""
    home, node = make_run(tmp_path, staged)
    (node / "A-0.step-1.nsys-rep").write_text("report")
    copy = tmp_path / "backup" / "run"
    shutil.copytree(home, copy)
    collect(copy)
    assert "report" == (node / "A-0.step-1.nsys-rep").read_text()


def test_a_hole_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A report of 2 TB that takes no room on the disk is named and left out."""
    home, node = make_run(tmp_path)
    report = node / "A-0.step-1.nsys-rep"
    report.touch()
    os.truncate(report, 2 * 2**40)
    with within(60):
        collect(home)
    assert f"{report}: left out: more than 1024 MiB of the file are holes" in caplog.text
    assert [] == [
        each
        for each in json.loads((home / "manifest.json").read_text())["files"]
        if each["path"].endswith(report.name)
    ]


def test_a_copy_names_the_original(tmp_path: Path) -> None:
    """What is staged belongs there."""
    home, node = make_run(tmp_path, staged=True)
    copy = tmp_path / "backup" / "run"
    shutil.copytree(home, copy)
    assert f"{node} belongs to {home}, not to {copy}" in collect(copy).output


def test_a_reports_row_has_the_place_where_it_is(tmp_path: Path) -> None:
    """In a copy, that is the copy."""
    home, node = make_run(tmp_path)
    report = node / "A-0.lifetime.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1." + bytes(64) + b"U3w[END]")
    window = {**window_entry(files=[str(report)]), "start": None, "stop": None}
    session = {**session_file(), "windows": [{**window, "label": "lifetime"}]}
    (node / "A-0.start-1.json").write_text(json.dumps(session))
    leave_tool(node, tmp_path / "gone")
    copy = tmp_path / "backup" / "run"
    shutil.copytree(home, copy)
    collect(copy)
    (row,) = json.loads((copy / "manifest.json").read_text())["receipt"]["rows"]
    assert str(copy / node_name() / report.name) == row["file"]


PROGRAM = "#!/bin/sh\ntouch {}\n"


def test_a_program_that_a_run_names_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`report --nvtx` takes nsys from PATH, or from the configuration of whoever reads."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GPUPROF_CONFIG", raising=False)
    home, node = make_run(tmp_path)
    (node / "A-0.step-1.nsys-rep").write_text("report")
    evil, own = tmp_path / "evil", tmp_path / "own"
    for program in (evil, own):
        program.write_text(PROGRAM.format(f"{program}.ran").replace("touch", "/usr/bin/touch"))
        program.chmod(0o755)
    word = json.loads((home / "run.json").read_text())
    word["config"]["nsight"] = {"executable": str(evil)}
    word["config"]["groups"] = {"A": {"nsight": {"executable": str(evil)}}}
    (home / "run.json").write_text(json.dumps(word))
    CliRunner().invoke(main, ["report", "--nvtx", str(home)])
    assert not Path(f"{evil}.ran").exists()
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"backend: nsight\nnsight: {{executable: {own}}}\n")
    monkeypatch.setenv("GPUPROF_CONFIG", str(mine))
    CliRunner().invoke(main, ["report", "--nvtx", str(home)])
    assert not Path(f"{evil}.ran").exists()
    assert Path(f"{own}.ran").exists()


def test_an_importer_beside_the_recorded_tool_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`collect` takes it from beside this machine's nsys."""
    monkeypatch.delenv("GPUPROF_CONFIG", raising=False)
    home, node = make_run(tmp_path)
    scratch = own_scratch(tmp_path / "scratch", node)
    (scratch / "left.qdstrm").write_text("raw")
    importer = tmp_path / "evil" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir(parents=True)
    importer.write_text(PROGRAM.format(tmp_path / "ran"))
    importer.chmod(0o755)
    tool = tmp_path / "evil" / "target" / "nsys"
    tool.parent.mkdir()
    tool.write_text(PROGRAM.format(tmp_path / "ran"))
    tool.chmod(0o755)
    entry = status(scratch=str(scratch), tool=str(tool))
    (node / ".gpuprof" / "A-0.start-1.tool").write_text(json.dumps(entry))
    word = json.loads((home / "run.json").read_text())
    word["config"]["nsight"] = {"executable": str(tool)}
    (home / "run.json").write_text(json.dumps(word))
    collect(home)
    assert not (tmp_path / "ran").exists()


def test_two_drivers_do_not_share_a_name(tmp_path: Path) -> None:
    """The second's receipt would claim the first's reports."""
    config = load({"backend": "none", "output_dir": str(tmp_path)})
    (tmp_path / "a").mkdir()
    runs.begin(str(tmp_path / "a"), "a", config, driven=True)
    with pytest.raises(ConfigError, match="a run of this name is running"):
        runs.begin(str(tmp_path / "a"), "a", config, driven=True)


def test_a_finished_run_is_not_written_into_again(tmp_path: Path) -> None:
    """Its manifest would hide that it runs again."""
    config = load({"backend": "none", "output_dir": str(tmp_path)})
    directory = tmp_path / "a"
    directory.mkdir()
    runs.begin(str(directory), "a", config)
    alive.record_rank(str(directory), "A", 0, 1, over=True)
    runs.join(str(directory), "a", config, restarted=False)  # before there is a manifest
    ended = manifest("a", Receipt((), str(directory)).to_dict())
    (directory / "manifest.json").write_text(json.dumps(ended))
    runs.join(str(directory), "a", config, restarted=True)  # the launcher goes on with it
    with pytest.raises(ConfigError, match="a run of this name has ended"):
        runs.join(str(directory), "a", config, restarted=False)


def test_a_launch_does_not_join_the_run_of_a_driver(tmp_path: Path) -> None:
    """The driver's receipt would not know of it."""
    config = load({"backend": "none", "output_dir": str(tmp_path)})
    (tmp_path / "a").mkdir()
    runs.begin(str(tmp_path / "a"), "a", config, driven=True)
    with pytest.raises(ConfigError, match="GPUPROF_RUN"):
        runs.join(str(tmp_path / "a"), "a", config, restarted=False)


def test_clean_keeps_a_collected_run_that_goes_on(tmp_path: Path) -> None:
    """`collect` may write a manifest while ranks run."""
    home, _ = make_run(tmp_path)
    ended = manifest("run", Receipt((), str(home)).to_dict())
    (home / "manifest.json").write_text(json.dumps(ended))
    alive.record_rank(str(home), "A", 0, 1)
    words = ["clean", "run", "--yes", "--output-dir", str(home.parent)]
    assert "running; no report expected, kept" in CliRunner().invoke(main, words).output
    assert home.is_dir()


@pytest.mark.parametrize("days", ["-1", "-0.5"])
def test_clean_refuses_a_negative_age(tmp_path: Path, days: str) -> None:
    """All runs would be older."""
    home, _ = make_run(tmp_path)
    words = ["clean", "--older-than", days, "--yes", "--output-dir", str(home.parent)]
    assert 2 == CliRunner().invoke(main, words).exit_code
    assert home.is_dir()


def test_nothing_is_moved_out_of_a_strangers_directory(tmp_path: Path) -> None:
    """One that another user has made, whatever lies in it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    home, node = make_run(tmp_path, staged=True)
    (node / "A-0.finish.log").write_text("ours")
    os.chown(node, 4321, -1)
    away = node.parent
    (problem,) = Collection(ThisNode(), str(away), str(home), True).bring(
        [read_node(str(away), node_name())]
    )
    assert "is owned by user 4321" in problem
    assert (node / "A-0.finish.log").exists()
