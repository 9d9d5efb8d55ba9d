"""Checks of what hooks leave behind, each in a fresh process.

They come before others that call the hooks: a process inherits its parent's directory, variables
and umask.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprof_testing import _alone
from gpuprof_testing._case import Case


class QuietChecks(Case):
    """The job's process is the job's."""

    def test_hooks_leave_their_surroundings_alone(self, tmp_path: Path) -> None:
        """Calls beside a capture change nothing in the process, print nothing, and are quick."""
        self._in_a_fresh_process("_expect_quiet_hooks", tmp_path)

    def test_a_window_leaves_its_surroundings_alone(self, tmp_path: Path) -> None:
        """The job's process is its own while a window is open, and as before once it is closed."""
        self._need("start_capture", "stop_capture")
        self._in_a_fresh_process("_expect_quiet_windows", tmp_path)

    def test_a_start_that_cannot_write_is_undone(self, tmp_path: Path) -> None:
        """Without a directory to write to nothing is left on, and the next window is recorded."""
        self._need("start_capture", "stop_capture")
        self._in_a_fresh_process("_expect_undone", tmp_path)

    def test_many_windows_leave_nothing(self, tmp_path: Path) -> None:
        """The process does not grow with its windows."""
        self._need("start_capture", "stop_capture")
        self._in_a_fresh_process("_expect_no_growth", tmp_path)

    def test_a_window_may_end_in_another_hour(self, tmp_path: Path) -> None:
        """Names of files do not depend on the hour, nor on the time zone."""
        self._need("start_capture", "stop_capture")
        self._in_a_fresh_process("_expect_another_hour", tmp_path)

    def _in_a_fresh_process(self, check: str, directory: Path) -> None:
        message = _alone.run(self, check, directory)
        if message:
            pytest.fail(message, pytrace=False)
