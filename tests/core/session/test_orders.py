"""Orders to armed workers: which are taken, and that all ranks begin at the same step."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuprof._session.armed import ArmedWindows
from gpuprof._session.left_out import LeftOut
from gpuprof._session.orders import Order, Orders, give, time
from gpuprof._session.orders import make as make_orders
from gpuprof._session.windows import StepWindows
from gpuprof.errors import OutputError
from gpuprof_timing import Timing

ALL = ((0, 2**63),)


def order(
    next_steps: int = 0, *ranges: tuple[int, int], groups: tuple[str, ...] = ("all",)
) -> Order:
    return Order(next_steps, ranges, groups, ALL)


def armed(
    orders_path: str, rank: int = 0, continuous: bool = False
) -> tuple[ArmedWindows, StepWindows]:
    """An armed worker, and the windows that it is told."""
    windows = StepWindows()
    return ArmedWindows(
        orders_path, ("Trainer", rank), continuous, windows, LeftOut(Timing()).expect
    ), windows


def bystander(orders_path: str) -> tuple[ArmedWindows, LeftOut]:
    """A worker that is not selected, and the steps that it leaves out."""
    left_out = LeftOut(Timing())
    return ArmedWindows(orders_path, None, False, StepWindows(), left_out.expect), left_out


def test_an_order_is_taken_once(orders_path: str) -> None:
    """As it was given, the oldest first."""
    orders = Orders(orders_path)
    given = [order(0, (3, 4), (7, 9)), order(2, groups=("Act*",))]
    for one in given:
        give(orders_path, one)
    assert (given, []) == (orders.poll(), orders.poll())


def test_only_the_owner_may_look(orders_path: str) -> None:
    """The directory and the order in it have no bits for anybody else, whatever the umask."""
    old = os.umask(0)
    try:
        give(orders_path, order(1))
    finally:
        os.umask(old)
    (file,) = os.scandir(orders_path)
    assert ("0o40700", "0o100600") == (oct(os.stat(orders_path).st_mode), oct(file.stat().st_mode))


def test_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Whoever could leave an order there could have left it already."""
    (tmp_path / ".orders").mkdir(mode=0o777)
    (tmp_path / ".orders").chmod(0o777)
    with pytest.raises(
        OutputError,
        match=r"\.orders: accessible to others \(mode 0777\); expected a directory of this user's",
    ):
        make_orders(str(tmp_path))
    with pytest.raises(OutputError, match="workers would refuse the order"):
        give(str(tmp_path / ".orders"), order(1))


def test_a_directory_that_was_opened_to_others_is_not_obeyed(
    orders_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An order's own bits do not help where anybody may have put it there."""
    orders = Orders(orders_path)
    give(orders_path, order(1))
    os.chmod(orders_path, 0o777)
    assert ([], 1) == (orders.poll(), len(caplog.messages))
    assert "is ignored: accessible to others (mode 0777)" in caplog.messages[0]


def test_an_order_that_others_may_read_is_not_obeyed(
    orders_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The command writes none, so somebody or something else has been at it."""
    orders = Orders(orders_path)
    give(orders_path, order(1))
    (file,) = Path(orders_path).iterdir()
    file.chmod(0o640)
    assert ([], [f"order {file} is ignored: accessible to others (mode 0640)"]) == (
        orders.poll(),
        caplog.messages,
    )


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    """It could lead to orders that were meant for another run."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / ".orders").symlink_to("elsewhere")
    with pytest.raises(OutputError, match="not the expected kind of file, or a link"):
        make_orders(str(tmp_path))


def test_what_is_still_written_is_not_read(
    orders_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor what ranks have agreed on."""
    orders = Orders(orders_path)
    for name in ("1.json.tmp", "1.json.first", "1.json.first.abc.tmp"):
        Path(orders_path, name).write_text("{")
    assert ([], []) == (orders.poll(), caplog.messages)


def test_a_directory_that_has_not_changed_is_not_read_again(
    orders_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank looks twice a second.

    One that has changed just now is read: the clocks of file systems are coarse.
    """
    orders = Orders(orders_path)
    give(orders_path, order(1))
    orders.poll()
    changed = os.stat(orders_path).st_mtime_ns
    reads: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda orders_path: reads.append(orders_path) or [])  # type: ignore[func-returns-value]
    for now, expected in ((changed + 10**9, [orders_path]), (changed + 10**10, [orders_path])):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        orders.poll()
        assert expected == reads
    os.utime(orders_path, ns=(changed, changed + 5 * 10**9))
    orders.poll()
    assert [orders_path, orders_path] == reads


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_order_of_somebody_else_is_not_obeyed(
    orders_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, once, and passed over."""
    orders = Orders(orders_path)
    give(orders_path, order(1))
    (file,) = Path(orders_path).iterdir()
    os.chown(file, 4321, -1)
    assert ([], []) == (orders.poll(), orders.poll())
    assert [f"order {file} is ignored: owned by user 4321"] == caplog.messages


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "expected a mapping"),
        (json.dumps({"version": 2}), "version 2 is not supported; expected 1"),
        (
            json.dumps(
                {"version": 1, "next": 0, "ranges": [[0, 10**9]], "groups": [], "ranks": []}
            ),
            "more than 10000 steps",
        ),
        (
            json.dumps({"version": 1, "next": 10001, "ranges": [], "groups": [], "ranks": []}),
            "more than 10000 steps",
        ),
        (
            json.dumps({"version": 1, "next": "rm -rf", "ranges": [], "groups": [], "ranks": []}),
            "invalid literal for int",
        ),
    ],
)
def test_what_is_no_order_is_passed_over(
    orders_path: str, content: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And the good one behind it is taken."""
    orders = Orders(orders_path)
    file = Path(orders_path, "00.json")
    file.write_text(content)
    file.chmod(0o600)
    give(orders_path, order(1))
    assert [order(1)] == orders.poll()
    assert 1 == len(caplog.messages)
    assert reason in caplog.messages[0]


def test_a_link_is_not_followed(
    orders_path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing outside the directory is read."""
    orders = Orders(orders_path)
    secret = tmp_path / "secret"
    secret.write_text("{}")
    secret.chmod(0o600)
    Path(orders_path, "00.json").symlink_to(secret)
    assert [] == orders.poll()
    assert "is ignored: a link" in caplog.messages[0]


def test_a_restarted_worker_does_not_obey_what_was_next_before(orders_path: str) -> None:
    """Named steps may be still to come; the earlier start has captured ``next:N``."""
    give(orders_path, order(2))
    give(orders_path, order(0, (100, 101)))
    assert [order(0, (100, 101))] == Orders(orders_path).poll()


def test_the_first_rank_says_what_comes_of_an_order(
    orders_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps that are over, or have begun, are reported as too late."""
    (first, _), (second, _) = armed(orders_path, 0), armed(orders_path, 1)
    give(orders_path, order(0, (3, 5), (40, 42)))
    with caplog.at_level("INFO", "gpuprof"):
        first.look(40)
        second.look(40)
    name = "gpuprof capture:"
    past = "step-3, step-4, step-40"
    assert [
        f"{name} step-41 on Trainer",
        f"{name} {past} on Trainer: too late, the run is at step 40",
    ] == caplog.messages


def test_ranks_that_are_not_in_step_agree(orders_path: str) -> None:
    """The first rank to look decides where ``next:N`` begins, for ranks ahead and behind."""
    (first, first_windows), (second, second_windows) = armed(orders_path, 0), armed(orders_path, 1)
    first.look(40)
    second.look(43)
    give(orders_path, order(2))
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


def test_a_full_disk_delays_an_order(orders_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It warns once and leaves no empty file; the ranks obey when there is room."""
    worker, windows = armed(orders_path)
    worker.look(1)
    give(orders_path, order(1))
    (given,) = os.listdir(orders_path)
    with a_full_disk():
        worker.look(1)
        worker.look(1)
    assert ([given], ()) == (os.listdir(orders_path), windows.all)
    assert [f"order {orders_path}/{given} is delayed: [Errno 27] File too large"] == caplog.messages
    worker.look(1)
    assert ["step-2"] == [window.label for window in windows.all]
    assert [given, f"{given}.first"] == sorted(os.listdir(orders_path))


def test_a_run_that_is_cleaned_up_while_it_runs(orders_path: str) -> None:
    """Orders that nobody can agree on any more are not obeyed, and the worker goes on."""
    worker, windows = armed(orders_path)
    give(orders_path, order(1))
    worker.look(None)
    shutil.rmtree(orders_path)
    worker.look(7)
    worker.look(7)
    assert () == windows.all


def test_next_waits_for_the_first_step(orders_path: str) -> None:
    """Before a step has run nobody knows which is next, nor how fast they are."""
    worker, windows = armed(orders_path)
    give(orders_path, order(1))
    worker.look(None)
    worker.look(7)
    assert () == windows.all
    worker.look(7)
    assert ["step-8"] == [window.label for window in windows.all]


def test_fast_steps_are_given_time(orders_path: str) -> None:
    """At 1000 steps a second ``next:N`` begins 3000 steps later, when every rank has looked."""
    windows = StepWindows()
    worker = ArmedWindows(
        orders_path,
        ("A", 0),
        False,
        windows,
        LeftOut(Timing()).expect,
        iter([10.0, 10.5]).__next__,
    )
    worker.look(0)
    give(orders_path, order(1))
    worker.look(500)
    assert ["step-3501"] == [window.label for window in windows.all]


@pytest.mark.parametrize(("seconds", "before"), [(0.0, 3), (0.5, 1000)])
def test_steps_that_have_no_pace(orders_path: str, seconds: float, before: int) -> None:
    """With a stopped clock, or after a checkpoint is loaded, ``next:N`` is the next step."""
    windows = StepWindows()
    clock = iter([10.0, 10.0 + seconds]).__next__
    worker = ArmedWindows(orders_path, ("A", 0), False, windows, LeftOut(Timing()).expect, clock)
    worker.look(before)
    give(orders_path, order(1))
    worker.look(7)
    assert ["step-8"] == [window.label for window in windows.all]


def test_steps_that_are_named_before_the_first_one_runs(orders_path: str) -> None:
    """They wait for it: which are too late, nobody knows before."""
    worker, windows = armed(orders_path)
    give(orders_path, order(0, (5, 6)))
    worker.look(None)
    worker.look(0)
    assert ["step-5"] == [window.label for window in windows.all]


def test_steps_that_are_named_wait_for_nothing(orders_path: str) -> None:
    """Adjacent steps are one window if configured; those that overlap earlier ones are skipped."""
    worker, windows = armed(orders_path, continuous=True)
    give(orders_path, order(0, (5, 7)))
    give(orders_path, order(0, (6, 9)))
    give(orders_path, order(0, (20, 21)))
    worker.look(1)
    assert [("steps-5-6", 1), ("step-20", 2)] == [
        (window.label, window.number) for window in windows.all
    ]


def test_an_order_to_others_is_not_obeyed(orders_path: str) -> None:
    """Group and rank are the order's to name."""
    worker, windows = armed(orders_path, rank=2)
    give(orders_path, order(0, (5, 6), groups=("Rollout*",)))
    give(orders_path, Order(0, ((7, 8),), ("trainer",), ((0, 2),)))
    give(orders_path, Order(0, ((9, 10),), ("trainer",), ((2, 3),)))
    worker.look(1)
    assert ["step-9"] == [window.label for window in windows.all]


@pytest.mark.parametrize("content", ["[" * 60_000, '{"version": 1, "next": 1e999}'])
def test_a_bad_order_does_not_lose_those_that_came_with_it(orders_path: str, content: str) -> None:
    """Each is read by itself."""
    orders = Orders(orders_path)
    file = Path(orders_path, "00.json")
    file.write_text(content)
    file.chmod(0o600)
    give(orders_path, order(1))
    assert [order(1)] == orders.poll()


def test_an_order_whose_ranges_go_backwards_is_not_obeyed(
    orders_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Their sum is small, and their steps are not."""
    orders = Orders(orders_path)
    give(orders_path, order(0, (0, 10**9), (10**9, 0)))
    assert [] == orders.poll()
    assert "expected steps and ranks of at least 0" in caplog.messages[0]


def test_a_fifo_is_not_waited_for(orders_path: str) -> None:
    """Opening one waits for somebody who writes."""
    orders = Orders(orders_path)
    os.mkfifo(Path(orders_path, "00.json"), 0o600)
    assert [] == orders.poll()


def test_a_worker_that_is_not_selected_leaves_out_the_steps_of_an_order(orders_path: str) -> None:
    """It has no window; the others, which it waits for, capture these steps."""
    worker, left_out = bystander(orders_path)
    give(orders_path, order(0, (5, 7), (20, 21), groups=("Trainer",)))
    give(orders_path, order(0, (6, 9)))
    worker.look(1)
    assert [(5, 7), (7, 9), (20, 21)] == [
        (window.start, window.stop) for window in left_out.captured.all
    ]


def test_a_worker_that_is_not_selected_follows_the_others_to_the_next_steps(
    orders_path: str,
) -> None:
    """Which ones they are, those that capture them agree on; until then it waits."""
    (trainer, _), (worker, left_out) = armed(orders_path), bystander(orders_path)
    trainer.look(40)
    give(orders_path, order(2, groups=("Trainer",)))
    worker.look(47)
    worker.look(47)
    assert () == left_out.captured.all
    trainer.look(40)
    worker.look(47)
    assert [(41, 43)] == [(window.start, window.stop) for window in left_out.captured.all]
