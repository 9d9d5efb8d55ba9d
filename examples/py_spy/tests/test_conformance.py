"""gpuprof's conformance kit on this backend."""

from __future__ import annotations

import sys
from pathlib import Path

from gpuprof.backend import Tool, Window, Worker
from gpuprof_py_spy import PySpyBackend
from gpuprof_testing import BackendConformance


class TestPySpy(BackendConformance):
    """What any backend must do."""

    name = "py_spy"
    backend = PySpyBackend
    options = {"rate": 200}
    project = Path(__file__).parents[1]
    each_run = (
        "test_the_defaults_work",
        "test_a_whole_life_is_captured",
        "test_the_files_hold_what_was_captured",
        "test_the_exit_code_passes",
        "test_a_worker_that_is_killed",
        "test_signals_reach_the_worker",
        "test_windows_leave_nothing_in_the_worker",
        "test_an_installed_wheel_is_found",
        "test_reports_are_checked",
    )


SLOW_TO_LISTEN = f"""#!{sys.executable} -S
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("Sampling process", flush=True)
time.sleep(0.5)
interrupts = []
signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
while len(interrupts) < 2:
    time.sleep(0.05)
open(sys.argv[sys.argv.index("--output") + 1], "w").close()
"""


def test_a_lost_interrupt_is_sent_again(tmp_path: Path) -> None:
    """As by a py-spy that says it samples before it handles SIGINT, and loses the first one."""
    program = tmp_path / "stand-in"
    program.write_text(SLOW_TO_LISTEN)
    program.chmod(0o755)
    here = Worker("run", "Group", 0, "", "1", str(tmp_path)), Window(1, 0, 1)
    backend = PySpyBackend(PySpyBackend.Options())
    backend.start_capture(*here, Tool(str(program)))
    assert [f"{here[0].final_stem(here[1])}.speedscope.json"] == backend.stop_capture(*here)
