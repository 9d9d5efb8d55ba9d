"""The command at the end of a worker's last window."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof._session.finish_command import FinishCommand


def run(command: str, directory: Path, files: list[str] | None = None) -> FinishCommand:
    """Run a command to its end."""
    made = FinishCommand(
        command, "ActorGroup-0", str(directory), {"RANK": "3", "GROUP": "ActorGroup"}
    )
    made.start(files or [])
    made.wait()
    return made


def test_what_the_command_is_told(tmp_path: Path) -> None:
    """Directory, reports, group and rank; what it prints is kept."""
    run(
        'printf "%s|" "$GPUPROF_HOOK_DIRECTORY" "$GPUPROF_HOOK_GROUP" "$GPUPROF_HOOK_RANK" '
        '"$GPUPROF_HOOK_FILES"',
        tmp_path,
        ["a", "b c"],
    )
    assert f"{tmp_path}|ActorGroup|3|a\nb c|" == (tmp_path / "ActorGroup-0.finish.log").read_text()


def test_the_command_runs_once(tmp_path: Path) -> None:
    """However often its time seems to have come."""
    made = run(f"echo once >> {tmp_path}/count", tmp_path)
    made.start([])
    made.wait()
    assert "once\n" == (tmp_path / "count").read_text()


def test_a_command_that_fails_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, with the place of what it said."""
    run("echo no; exit 7", tmp_path)
    assert (
        "ActorGroup-0: finish_command failed with exit code 7; its output is in "
        f"{tmp_path}/ActorGroup-0.finish.log" in caplog.text
    )


def test_a_directory_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said as well, and nothing raised."""
    (tmp_path / "file").touch()
    run("true", tmp_path / "file" / "below")
    assert "finish_command cannot be run" in caplog.text


@pytest.mark.parametrize(("ranks", "expected"), [(None, [0]), ([1], [1]), ("all", [0, 1])])
def test_who_runs_it(ranks: object, expected: list[int]) -> None:
    """Those that are profiled, unless others are named, who need not be profiled."""
    data = {
        "backend": "nsight",
        "worker_groups": "all",
        "ranks": [0],
        "finish_command": "true",
        "finish_ranks": ranks,
    }
    planner = Planner(load(data, environ={}), "run", "/out")
    rows = [planner.row(planner.worker("A", rank), ["python"], None) for rank in (0, 1)]
    assert expected == [row["rank"] for row in rows if row.get("finish_command") == "true"]
