"""Slow ranks of a running job are captured, each once, and its last step has metrics."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpuprof._artifacts import runs, slow_ranks
from gpuprof._artifacts.receipt import Receipt
from gpuprof._config.load import load
from gpuprof._report.companion import Companion
from gpuprof._session import companion, orders
from support.run_files import manifest
from support.simulated_run import EPOCH, SimulatedLedger
from support.waiting import wait_until

MS = 1_000_000
SAYS = "Trainer-2 took 80 % longer than its 3 peers in forward in 32 of 32 steps"


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run of this process in which Trainer-2 is slow."""
    directory = tmp_path / "run"
    runs.begin(str(directory), "run", load({"backend": "none"}), driven=True)
    for rank in range(4):
        ledger = SimulatedLedger(f"Trainer-{rank}")
        for step in range(40):
            begin, end = step * 200 * MS, step * 200 * MS + 190 * MS
            works = begin + (180 if rank == 2 else 100) * MS
            ledger.span("forward", begin, works)
            ledger.span("barrier", works, end, waits_for="barrier")
            ledger.step(step, begin, end)
        ledger.write(directory, ended=False)
    return str(directory)


def test_a_slow_rank_and_a_healthy_one_are_captured(run: str) -> None:
    """By an order, as `gpuprof capture` gives it."""
    armed = orders.Orders(orders.make(run))
    Companion(run, most=2).look()
    (order,) = armed.poll()
    chosen = [rank for rank in range(4) if order.selects("Trainer", rank)]
    assert (1, 2, True) == (order.next, len(chosen), 2 in chosen)


def test_the_receipt_says_why(run: str) -> None:
    """To those that were captured."""
    orders.make(run)
    Companion(run, most=2).look()
    (slow_rank,) = slow_ranks.found(run)
    says = f"{SAYS}: a step of Trainer-2 and {slow_rank['peer']} is captured"
    assert [says] == slow_ranks.sentences(run, [slow_rank["peer"]])


def test_others_are_not_told(run: str) -> None:
    """Each rank under `gpuprof run` prints a receipt of its own."""
    Companion(run, most=2).look()
    assert [] == slow_ranks.sentences(run, ["Environment-0"])


def test_where_nothing_can_be_captured_the_rank_is_still_named(run: str) -> None:
    """As with the backend none."""
    Companion(run, most=2).look()
    (sentence,) = slow_ranks.sentences(run, ["Trainer-2"])
    assert f"{SAYS}: gpuprof explain shows which lines it runs there" == sentence


def test_after_a_capture_nobody_is_looked_for(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a minute, since reports are written meanwhile; here the same rank would be found."""
    began = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: began[0])
    monkeypatch.setattr(slow_ranks, "found", lambda directory: [])
    companion_of_run = Companion(run, most=2)

    def noted() -> int:
        companion_of_run.look()
        return len(list(Path(run).glob("slow-*.json")))

    began[0] = EPOCH - 60 * 10**9
    assert [1, 2] == [noted(), noted()]
    began[0] = EPOCH
    assert [3, 3] == [noted(), noted()]


def test_no_more_ranks_are_captured_than_wanted(run: str) -> None:
    """Here none, although one is slow."""
    Companion(run, most=0).look()
    assert [] == slow_ranks.found(run)


def test_the_last_step_has_metrics_if_somebody_wants_them(run: str) -> None:
    """Who bounds it, who waits, and which rank is slow."""
    companion.want_metrics(run)
    Companion(run, most=0).look()
    metrics = companion.metrics(run)
    assert {"recorded_step": 39, "bound_by": "Trainer-2", "slowest_rank": "Trainer-2"} == {
        name: metrics[name] for name in ("recorded_step", "bound_by", "slowest_rank")
    }
    assert pytest.approx(1.8) == metrics["slowest_ratio"]


def test_nobody_computes_metrics_that_nobody_wants(run: str) -> None:
    """No file appears."""
    Companion(run, most=0).look()
    assert {} == companion.metrics(run)


def test_a_busy_machine_makes_looks_no_rarer(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their time on a processor counts, not the minute for which each of them waits for one."""
    monkeypatch.setattr(time, "perf_counter", itertools.count(0.0, 60.0).__next__)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        finish(run)

    monkeypatch.setattr(time, "sleep", sleep)
    Companion(run, most=0).run()
    assert [1.0] == pauses


def test_the_companion_ends_with_the_run(run: str) -> None:
    """The process that drove it may live on, and all ranks to capture may be captured."""
    assert Companion(run, most=0).look()
    finish(run)
    assert not Companion(run, most=0).look()


def test_the_companion_ends_with_the_job(run: str) -> None:
    """Also if the job is killed."""
    program = (
        "import sys, time\n"
        "from gpuprof._session import companion\n"
        "companion.start(sys.argv[1])\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, run], stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        job.stdout.readline()
        searching = f"{run} {job.pid}"
        wait_until(lambda: processes(searching), "started: the companion")
        os.kill(job.pid, signal.SIGKILL)
        wait_until(lambda: not processes(searching), "ended: the companion")


def finish(run: str) -> None:
    """Let the run be over, as its driver does."""
    about = manifest("run", Receipt((), run).to_dict(), workers=[])
    (Path(run) / "manifest.json").write_text(json.dumps(about))


def processes(words: str) -> list[Path]:
    """The processes with these words in their command lines."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if words in _command_line(path)]


def _command_line(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
