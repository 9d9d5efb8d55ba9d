"""`gpuprof capture`: the orders it leaves, and its errors for runs that cannot obey."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._artifacts.alive import record_rank
from gpuprof._cli import main
from gpuprof._session.orders import Order, Orders
from gpuprof._shim.processes import process_start
from support.run_files import run_file, session_file

ALL = ((0, 2**63),)


def capture(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["capture", *arguments])
    return done.exit_code, done.output


def test_the_command_leaves_an_order(orders_path: str, tmp_path: Path) -> None:
    """The run is named by its directory."""
    orders = Orders(orders_path)
    code, said = capture(
        str(tmp_path), "--steps", "10,20:22", "--groups", "Actor*,Env", "--ranks", "0,2:4"
    )
    unknown = f"{tmp_path}: cannot tell from here whether it still runs; the order is sent anyway\n"
    assert (
        0,
        f"{unknown}order sent: steps 10,20:22, groups Actor*,Env, ranks 0,2:4, in {tmp_path}\n",
    ) == (code, said)
    expected = [Order(0, ((10, 11), (20, 22)), ("Actor*", "Env"), ((0, 1), (2, 4)))]
    assert expected == orders.poll()


@pytest.mark.parametrize("named", [True, False])
def test_a_run_by_its_name_or_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """As the commands that read a run."""
    run = tmp_path / "only"
    (run / ".orders").mkdir(parents=True, mode=0o700)
    (run / "run.json").write_text(json.dumps(run_file(run.name)))
    monkeypatch.setenv("GPUPROF_OUTPUT_DIR", str(tmp_path))
    orders = Orders(str(run / ".orders"))
    assert 0 == capture(*[run.name] * named, "--steps", "next:2")[0]
    assert [Order(2, (), ("all",), ALL)] == orders.poll()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--steps", "next:0"],
            "steps: 'next:0' is not valid; expected next:N, or steps and slices",
        ),
        (["--steps", "next:-1"], "steps: 'next:-1' is not valid"),
        (["--steps", "next:10001"], "steps: 'next:10001' is not valid"),
        (["--steps", "0:10001"], "steps: '0:10001' is not valid"),
        (["--steps", "soon"], "steps: 'soon' is not valid"),
        (
            ["--steps", "1", "--groups", ","],
            "--groups: ',' is not valid; expected all, or names and wildcards",
        ),
        (
            ["--steps", "1", "--ranks", "first"],
            "--ranks: 'first' is not valid; expected all, or ranks and slices",
        ),
    ],
)
def test_the_command_refuses_what_it_does_not_understand(
    orders_path: str, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    """With what would be valid, and no order is left."""
    code, said = capture(str(tmp_path), *arguments)
    assert (2, True, []) == (code, problem in said, os.listdir(orders_path))


def test_a_run_that_is_not_armed(tmp_path: Path) -> None:
    """Nobody would obey, so it is said."""
    assert (
        "its workers are not armed; start the job with armed: true and steps: []"
        in capture(str(tmp_path), "--steps", "1")[1]
    )
    assert "no such file or directory" in capture(str(tmp_path / "x"), "--steps", "1")[1]


def start_of(group: str, directory: Path, *, alive: bool) -> None:
    """What a worker leaves that is this process, or one that is gone."""
    (directory / "run.json").write_text(json.dumps(run_file(directory.name)))
    (directory / os.uname().nodename).mkdir(exist_ok=True)
    session = session_file(
        group=group,
        pid=os.getpid(),
        process_start=process_start(os.getpid()) if alive else "1",
    )
    (directory / os.uname().nodename / f"{group}-0.start-1.json").write_text(json.dumps(session))


@pytest.mark.parametrize("config", [{"armed": True}, {"groups": {"Actor*": {"armed": True}}}])
def test_a_run_that_will_be_armed(tmp_path: Path, config: dict[str, Any]) -> None:
    """While its first worker starts, the configuration is not said to be wrong."""
    (tmp_path / "run.json").write_text(json.dumps(run_file(tmp_path.name, config=config)))
    code, said = capture(str(tmp_path), "--steps", "1")
    assert (2, True) == (
        code,
        "no worker is armed yet; try again once the workers have started" in said,
    )


def test_a_run_that_has_ended(orders_path: str, tmp_path: Path) -> None:
    """Nobody would obey, so it is said, and no order is left; until its rank is started again."""
    record_rank(str(tmp_path), "ActorGroup", 0, 1, over=True)
    code, said = capture(str(tmp_path), "--steps", "1")
    assert (2, True, []) == (
        code,
        "has ended; expected a running job" in said,
        os.listdir(orders_path),
    )
    record_rank(str(tmp_path), "ActorGroup", 0, 1)
    assert (0, 1) == (
        capture(str(tmp_path), "--steps", "1")[0],
        len(os.listdir(orders_path)),
    )


def test_next_while_nobody_counts_steps(orders_path: str, tmp_path: Path) -> None:
    """A worker ignores a `next` older than itself, which is reported; a named step works."""
    (tmp_path / "run.json").write_text(json.dumps(run_file(tmp_path.name)))
    record_rank(str(tmp_path), "ActorGroup", 0, 1)
    said = "--steps: no worker runs here yet"
    assert said in capture(str(tmp_path), "--steps", "next:1")[1]
    assert said not in capture(str(tmp_path), "--steps", "1")[1]
    start_of("ActorGroup", tmp_path, alive=True)
    (tmp_path / "run.json").write_text(json.dumps(run_file(tmp_path.name)))
    assert said not in capture(str(tmp_path), "--steps", "next:1")[1]


def test_a_group_that_nobody_has_seen(orders_path: str, tmp_path: Path) -> None:
    """It may be still to come, so the order is left, and what is known is said."""
    for group in ("ActorGroup", "EnvGroup"):
        start_of(group, tmp_path, alive=True)
    code, said = capture(str(tmp_path), "--steps", "next:1", "--groups", "Actro*,env*")
    assert (0, 1) == (code, len(os.listdir(orders_path)))
    assert "--groups: 'Actro*' matches no worker so far; seen: ActorGroup, EnvGroup\n" in said
    assert "'env*'" not in said
