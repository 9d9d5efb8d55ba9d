"""The process that finishes the work of a killed one."""

from __future__ import annotations

import os
from pathlib import Path

from gpuprof._launch.watchdog import watch
from support.waiting import wait_until


def test_the_watchdog_is_nobodys_child() -> None:
    """A program that takes this process's place may wait for all of its children."""
    if not (process := os.fork()):  # this one may have children of other tests
        end_watch = watch(int)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            end_watch()
            os._exit(0)
        os._exit(1)
    assert 0 == os.waitpid(process, 0)[1]


def test_it_finishes_the_work_of_a_process_that_is_killed(tmp_path: Path) -> None:
    """As by a launcher that waits no longer."""
    done = tmp_path / "done"
    if not (killed := os.fork()):
        watch(done.touch)
        os.kill(os.getpid(), 9)
    os.waitpid(killed, 0)
    wait_until(done.exists, "the work of the killed process done")


def test_it_does_nothing_once_the_work_is_done(tmp_path: Path) -> None:
    """Its pipe says so."""
    done = tmp_path / "done"
    reader, writer = os.pipe()
    if not (worker := os.fork()):
        watch(done.touch)()
        os._exit(0)
    os.close(writer)
    assert 0 == os.waitpid(worker, 0)[1]
    assert b"" == os.read(reader, 1)  # the watchdog, which has it open, too, has ended
    os.close(reader)
    assert not done.exists()
