"""Orders to armed workers: what is obeyed, what is not, and that all ranks begin at the same step."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof import _orders, _presence
from gpuprof._armed import ArmedWindows
from gpuprof._cli import main
from gpuprof._orders import Order, Orders
from gpuprof._ranks import Launched
from gpuprof._scratch import process_start
from gpuprof._step_windows import StepWindows
from gpuprof._types import Worker
from gpuprof.errors import OutputError

ALL = ((0, 2**63),)


def order(next_steps: int = 0, *ranges: tuple[int, int], groups: tuple[str, ...] = ("all",)) -> Order:
    return Order(next_steps, ranges, groups, ALL)


def armed(path: str, rank: int = 0, continuous: bool = False) -> tuple[ArmedWindows, StepWindows]:
    """An armed worker, and the windows that it is told."""
    windows = StepWindows()
    return ArmedWindows(path, Worker("run", "Trainer", rank, "node", "1", "/out"), continuous, windows), windows


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The directory of orders of a run."""
    return _orders.make(str(tmp_path))


def test_an_order_is_taken_once(path: str) -> None:
    """As it was given, the oldest first."""
    orders = Orders(path)
    given = [order(0, (3, 4), (7, 9)), order(2, groups=("Act*",))]
    for one in given:
        _orders.give(path, one)
    assert (given, []) == (orders.poll(), orders.poll())


def test_only_the_owner_may_look(path: str) -> None:
    """The directory and the order in it have no bits for anybody else, whatever the umask."""
    old = os.umask(0)
    try:
        _orders.give(path, order(1))
    finally:
        os.umask(old)
    (file,) = os.scandir(path)
    assert ("0o40700", "0o100600") == (oct(os.stat(path).st_mode), oct(file.stat().st_mode))


def test_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Whoever could leave an order there could have left it already."""
    (tmp_path / ".orders").mkdir(mode=0o777)
    (tmp_path / ".orders").chmod(0o777)
    with pytest.raises(OutputError, match=r"\.orders: others may use it \(mode 0777\); expected a directory of this user's"):
        _orders.make(str(tmp_path))
    with pytest.raises(OutputError, match="nobody would obey"):
        _orders.give(str(tmp_path / ".orders"), order(1))


def test_a_directory_that_was_opened_to_others_is_not_obeyed(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """An order's own bits do not help where anybody may have put it there."""
    orders = Orders(path)
    _orders.give(path, order(1))
    os.chmod(path, 0o777)
    assert ([], 1) == (orders.poll(), len(caplog.messages))
    assert "is not obeyed: others may use it (mode 0777)" in caplog.messages[0]


def test_an_order_that_others_may_read_is_not_obeyed(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The command writes none, so somebody or something else has been at it."""
    orders = Orders(path)
    _orders.give(path, order(1))
    (file,) = Path(path).iterdir()
    file.chmod(0o640)
    assert ([], [f"{file} is not obeyed: others may use it (mode 0640)"]) == (orders.poll(), caplog.messages)


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    """It could lead to orders that were meant for another run."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / ".orders").symlink_to("elsewhere")
    with pytest.raises(OutputError, match="it is of another kind, or a link"):
        _orders.make(str(tmp_path))


def test_what_is_still_written_is_not_read(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nor what ranks have agreed on."""
    orders = Orders(path)
    for name in ("1.json.tmp", "1.json.first", "1.json.first.abc.tmp"):
        Path(path, name).write_text("{")
    assert ([], []) == (orders.poll(), caplog.messages)


def test_a_directory_that_has_not_changed_is_not_read_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank looks twice a second. One that has changed just now is read: the clocks of file systems are coarse."""
    orders = Orders(path)
    _orders.give(path, order(1))
    orders.poll()
    changed = os.stat(path).st_mtime_ns
    reads: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda path: reads.append(path) or [])  # type: ignore[func-returns-value]
    for now, expected in ((changed + 10**9, [path]), (changed + 10**10, [path])):
        monkeypatch.setattr(_orders.time, "time_ns", lambda now=now: now)
        orders.poll()
        assert expected == reads
    os.utime(path, ns=(changed, changed + 5 * 10**9))
    orders.poll()
    assert [path, path] == reads


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_order_of_somebody_else_is_not_obeyed(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is said, once, and passed over."""
    orders = Orders(path)
    _orders.give(path, order(1))
    (file,) = Path(path).iterdir()
    os.chown(file, 4321, -1)
    assert ([], []) == (orders.poll(), orders.poll())
    assert [f"{file} is not obeyed: it belongs to user 4321"] == caplog.messages


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "list indices must be"),
        (json.dumps({"version": 2}), "version 2 is another release's"),
        (json.dumps({"version": 1, "next": 0, "ranges": [[0, 10**9]], "groups": [], "ranks": []}), "more than 10000 steps"),
        (json.dumps({"version": 1, "next": 10001, "ranges": [], "groups": [], "ranks": []}), "more than 10000 steps"),
        (json.dumps({"version": 1, "next": "rm -rf", "ranges": [], "groups": [], "ranks": []}), "invalid literal for int"),
    ],
)
def test_what_is_no_order_is_passed_over(path: str, content: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """And the good one behind it is taken."""
    orders = Orders(path)
    file = Path(path, "00.json")
    file.write_text(content)
    file.chmod(0o600)
    _orders.give(path, order(1))
    assert [order(1)] == orders.poll()
    assert 1 == len(caplog.messages)
    assert reason in caplog.messages[0]


def test_a_link_is_not_followed(path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing outside the directory is read."""
    orders = Orders(path)
    secret = tmp_path / "secret"
    secret.write_text("{}")
    secret.chmod(0o600)
    Path(path, "00.json").symlink_to(secret)
    assert [] == orders.poll()
    assert "is not obeyed: [Errno 40]" in caplog.messages[0]


def test_a_restarted_worker_does_not_obey_what_was_next_before(path: str) -> None:
    """Steps that were named may be still to come; what was next has been captured by the start before."""
    _orders.give(path, order(2))
    _orders.give(path, order(0, (100, 101)))
    assert [order(0, (100, 101))] == Orders(path).poll()


def test_the_first_rank_says_what_comes_of_an_order(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Steps that are over, or have begun, are captured by nobody, which whoever waits for the reports should know."""
    (first, _), (second, _) = armed(path, 0), armed(path, 1)
    _orders.give(path, order(0, (3, 5), (40, 42)))
    with caplog.at_level("INFO", "gpuprof"):
        first.look(40)
        second.look(40)
    name = "gpuprof capture:"
    past = "step-3, step-4, step-40"
    assert [f"{name} step-41 on Trainer", f"{name} {past} on Trainer: too late, step 40 runs"] == caplog.messages


def test_ranks_that_are_not_in_step_agree(path: str) -> None:
    """The first that looks says where `next` begins; a rank that is ahead of it, or behind, captures the same steps."""
    (first, first_windows), (second, second_windows) = armed(path, 0), armed(path, 1)
    first.look(40)
    second.look(43)
    _orders.give(path, order(2))
    first.look(40)  # no step has ended since: the next one is 41
    second.look(43)
    expected = [("step-41", 1), ("step-42", 2)]
    for windows in (first_windows, second_windows):
        assert expected == [(window.label, window.number) for window in windows.all]


@contextlib.contextmanager
def a_full_disk() -> Iterator[None]:
    """No file of this process can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_delays_an_order(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, breaks nothing, and leaves nothing that the ranks would wait on: they obey when there is room."""
    worker, windows = armed(path)
    worker.look(1)
    _orders.give(path, order(1))
    (given,) = os.listdir(path)
    with a_full_disk():
        worker.look(1)
        worker.look(1)
    assert ([given], ()) == (os.listdir(path), windows.all)
    assert [f"{path}/{given} is not obeyed yet: [Errno 27] File too large"] == caplog.messages
    worker.look(1)
    assert ["step-2"] == [window.label for window in windows.all]
    assert [given, f"{given}.first"] == sorted(os.listdir(path))


def test_a_run_that_is_cleaned_up_while_it_runs(path: str) -> None:
    """Orders that nobody can agree on any more are not obeyed, and the worker goes on."""
    worker, windows = armed(path)
    _orders.give(path, order(1))
    worker.look(None)
    shutil.rmtree(path)
    worker.look(7)
    worker.look(7)
    assert () == windows.all


def test_next_waits_for_the_first_step(path: str) -> None:
    """Before a step has run nobody knows which is next, nor how fast they are."""
    worker, windows = armed(path)
    _orders.give(path, order(1))
    worker.look(None)
    worker.look(7)
    assert () == windows.all
    worker.look(7)
    assert ["step-8"] == [window.label for window in windows.all]


def test_fast_steps_are_given_time(path: str) -> None:
    """At a thousand steps a second, `next` begins a thousand steps later: by then every rank has looked."""
    windows = StepWindows()
    worker = ArmedWindows(path, Worker("run", "A", 0, "node", "1", "/out"), False, windows, iter([10.0, 10.5]).__next__)
    worker.look(0)
    _orders.give(path, order(1))
    worker.look(500)
    assert ["step-1501"] == [window.label for window in windows.all]


@pytest.mark.parametrize(("seconds", "before"), [(0.0, 3), (0.5, 1000)])
def test_steps_that_have_no_pace(path: str, seconds: float, before: int) -> None:
    """A clock that stands still, or steps that go back as after a checkpoint is loaded: `next` is the next step."""
    windows = StepWindows()
    clock = iter([10.0, 10.0 + seconds]).__next__
    worker = ArmedWindows(path, Worker("run", "A", 0, "node", "1", "/out"), False, windows, clock)
    worker.look(before)
    _orders.give(path, order(1))
    worker.look(7)
    assert ["step-8"] == [window.label for window in windows.all]


def test_steps_that_are_named_before_the_first_one_runs(path: str) -> None:
    """They wait for it: which are too late, nobody knows before."""
    worker, windows = armed(path)
    _orders.give(path, order(0, (5, 6)))
    worker.look(None)
    worker.look(0)
    assert ["step-5"] == [window.label for window in windows.all]


def test_steps_that_are_named_wait_for_nothing(path: str) -> None:
    """Adjacent ones are one window where the configuration joins them; those that overlap earlier ones are left out."""
    worker, windows = armed(path, continuous=True)
    _orders.give(path, order(0, (5, 7)))
    _orders.give(path, order(0, (6, 9)))
    _orders.give(path, order(0, (20, 21)))
    worker.look(1)
    assert [("steps-5-6", 1), ("step-20", 2)] == [(window.label, window.number) for window in windows.all]


def test_an_order_to_others_is_not_obeyed(path: str) -> None:
    """Group and rank are the order's to name."""
    worker, windows = armed(path, rank=2)
    _orders.give(path, order(0, (5, 6), groups=("Rollout*",)))
    _orders.give(path, Order(0, ((7, 8),), ("trainer",), ((0, 2),)))
    _orders.give(path, Order(0, ((9, 10),), ("trainer",), ((2, 3),)))
    worker.look(1)
    assert ["step-9"] == [window.label for window in windows.all]


def capture(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["capture", *arguments])
    return done.exit_code, done.output


def test_the_command_leaves_an_order(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is named by its directory, or by its id where runs lie."""
    orders = Orders(path)
    code, said = capture("--run", str(tmp_path), "--steps", "10,20:22", "--groups", "Actor*,Env", "--ranks", "0,2:4")
    unknown = f"--run: whether '{tmp_path}' still runs cannot be told from here; the order is left all the same\n"
    assert (0, f"{unknown}asked for steps 10,20:22 of groups Actor*,Env, ranks 0,2:4, in {tmp_path}\n") == (code, said)
    monkeypatch.setenv("GPUPROF_OUTPUT_DIR", str(tmp_path.parent))
    assert 0 == capture("--run", tmp_path.name, "--steps", "next:2")[0]
    expected = [Order(0, ((10, 11), (20, 22)), ("Actor*", "Env"), ((0, 1), (2, 4))), order(2)]
    assert expected == orders.poll()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--steps", "next:0"], "steps: 'next:0' is not valid; expected next:N, or steps and slices"),
        (["--steps", "next:-1"], "steps: 'next:-1' is not valid"),
        (["--steps", "next:10001"], "steps: 'next:10001' is not valid"),
        (["--steps", "0:10001"], "steps: '0:10001' is not valid"),
        (["--steps", "soon"], "steps: 'soon' is not valid"),
        (["--steps", "1", "--groups", ","], "--groups: ',' is not valid; expected all, or names and wildcards"),
        (["--steps", "1", "--ranks", "first"], "--ranks: 'first' is not valid; expected all, or ranks and slices"),
    ],
)
def test_the_command_refuses_what_it_does_not_understand(path: str, tmp_path: Path, arguments: list[str], problem: str) -> None:
    """With what would be valid, and no order is left."""
    code, said = capture("--run", str(tmp_path), *arguments)
    assert (2, True, []) == (code, problem in said, os.listdir(path))


def test_a_run_that_is_not_armed(tmp_path: Path) -> None:
    """Nobody would obey, so it is said."""
    assert "no worker of it is armed (armed: true, steps: [])" in capture("--run", str(tmp_path), "--steps", "1")[1]
    assert "there is no such directory" in capture("--run", str(tmp_path / "x"), "--steps", "1")[1]


def start_of(group: str, directory: Path, *, alive: bool) -> None:
    """What a worker leaves that is this process, or one that is gone."""
    (directory / "run.json").write_text(json.dumps({"run": directory.name}))
    (directory / os.uname().nodename).mkdir(exist_ok=True)
    who = {"group": group, "rank": 0, "incarnation": "1", "pid": os.getpid(), "windows": [], "profiled": True}
    session = {**who, "process_start": process_start(os.getpid()) if alive else "1"}
    (directory / os.uname().nodename / f"{group}-0.start-1.json").write_text(json.dumps(session))


@pytest.mark.parametrize("config", [{"armed": True}, {"groups": {"Actor*": {"armed": True}}}])
def test_a_run_that_will_be_armed(tmp_path: Path, config: dict[str, Any]) -> None:
    """While its first worker starts, the configuration is not said to be wrong."""
    (tmp_path / "run.json").write_text(json.dumps({"run": tmp_path.name, "config": config}))
    code, said = capture("--run", str(tmp_path), "--steps", "1")
    assert (2, True) == (code, "no worker of it is armed yet; try again once they have started" in said)


def test_a_run_that_has_ended(path: str, tmp_path: Path) -> None:
    """Nobody would obey, so it is said, and no order is left; until its rank is started again."""
    ended = Launched(rank=0, size=1)
    _presence.say(str(tmp_path), "ActorGroup", ended, over=True)
    code, said = capture("--run", str(tmp_path), "--steps", "1")
    assert (2, True, []) == (code, "is not valid: it has ended" in said, os.listdir(path))
    _presence.say(str(tmp_path), "ActorGroup", ended)
    assert (0, 1) == (capture("--run", str(tmp_path), "--steps", "1")[0], len(os.listdir(path)))


def test_next_while_nobody_counts_steps(path: str, tmp_path: Path) -> None:
    """A worker does not obey a `next` that was there before it, which is said; a step that is named it finds."""
    (tmp_path / "run.json").write_text(json.dumps({"run": tmp_path.name, "driver": None}))
    _presence.say(str(tmp_path), "ActorGroup", Launched(rank=0, size=1))
    said = "--steps: no worker of it runs here yet"
    assert said in capture("--run", str(tmp_path), "--steps", "next:1")[1]
    assert said not in capture("--run", str(tmp_path), "--steps", "1")[1]
    start_of("ActorGroup", tmp_path, alive=True)
    (tmp_path / "run.json").write_text(json.dumps({"run": tmp_path.name, "driver": None}))
    assert said not in capture("--run", str(tmp_path), "--steps", "next:1")[1]


def test_a_group_that_nobody_has_seen(path: str, tmp_path: Path) -> None:
    """It may be still to come, so the order is left, and what is known is said."""
    for group in ("ActorGroup", "EnvGroup"):
        start_of(group, tmp_path, alive=True)
    code, said = capture("--run", str(tmp_path), "--steps", "next:1", "--groups", "Actro*,env*")
    assert (0, 1) == (code, len(os.listdir(path)))
    assert "--groups: no worker of 'Actro*' has been seen here yet; seen: ActorGroup, EnvGroup\n" in said
    assert "'env*'" not in said
