"""Checks of `open_range`, which runs in the job's own threads and tasks, and in the hottest of its
loops.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from gpuprof.testing._case import WINDOWS, Captured, Case, fail

THREADS = 8
ROUNDS = 50
Open = Callable[[str, bool], AbstractContextManager[object]]
_EXIT = "raise nothing: whatever goes wrong with a range is lost"


class RangeChecks(Case):
    """Each check opens a window and calls the hook as gpuprof does."""

    @contextmanager
    def _opened(self, directory: Path, what: str, remedy: str) -> Iterator[tuple[Captured, Open]]:
        self._need("open_range")
        captured = Captured(self, directory)
        captured.capture.start(WINDOWS[0])
        opener = captured.capture.range_opener(WINDOWS[0])
        assert opener is not None
        try:
            yield captured, opener
        except Exception as error:
            fail(f"{what}: {type(error).__name__}: {error}", remedy)
        captured.capture.stop(WINDOWS[0].number)
        captured.expect_no_fault(what, _EXIT)

    def test_a_range_lets_exceptions_pass(self, tmp_path: Path) -> None:
        """It ends, and says nothing about them."""
        with self._opened(tmp_path, "a range that is left by an exception", _EXIT) as (
            _,
            open_range,
        ):
            for crosses_tasks in (False, True):
                opened = open_range("kit", crosses_tasks)
                opened.__enter__()
                error = KeyError("the job's own")
                if opened.__exit__(KeyError, error, None):
                    fail("a range swallowed an exception", "return None or False from its __exit__")

    def test_ranges_nest(self, tmp_path: Path) -> None:
        """Also inside a range of the same name, as recursion does."""
        with self._opened(
            tmp_path, "ranges inside ranges", "return a new context manager from each call"
        ) as (_, open_range):
            self._nest(open_range, 20)

    def _nest(self, open_range: Open, depth: int) -> None:
        if depth:
            with open_range("kit", False):
                self._nest(open_range, depth - 1)

    def test_ranges_end_in_any_order(self, tmp_path: Path) -> None:
        """Generators that are closed late leave their ranges after those around them."""
        remedy = "do not pop what was not pushed last: wait until it is on top"
        with self._opened(tmp_path, "the outer of two ranges ended first", remedy) as (
            _,
            open_range,
        ):
            for order in ((0, 1), (1, 0)):
                pair = [open_range("outer", False), open_range("inner", False)]
                for opened in pair:
                    opened.__enter__()
                for position in order:
                    pair[position].__exit__(None, None, None)

    def test_ranges_in_many_threads(self, tmp_path: Path) -> None:
        """At once, each thread with its own nesting."""
        remedy = "keep what is open per thread (threading.local), not on the instance"
        with self._opened(tmp_path, "ranges in several threads at once", remedy) as (_, open_range):
            problems: list[BaseException] = []
            together = threading.Barrier(THREADS)

            def work(number: int) -> None:
                try:
                    for _ in range(ROUNDS):
                        with (
                            open_range(f"outer-{number}", False),
                            open_range(f"inner-{number}", False),
                        ):
                            together.wait(60)
                except BaseException as error:
                    together.abort()
                    problems.append(error)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            real = [
                problem
                for problem in problems
                if not isinstance(problem, threading.BrokenBarrierError)
            ]
            if real:
                raise real[0]

    def test_ranges_of_many_tasks(self, tmp_path: Path) -> None:
        """In one thread, and none ends in the order in which it began: `crosses_tasks` is true."""
        remedy = (
            "with crosses_tasks, use ranges that are started and ended by an identifier, or none"
        )
        with self._opened(tmp_path, "ranges of tasks that take turns", remedy) as (_, open_range):

            async def work(number: int) -> None:
                with open_range(f"task-{number}", True):
                    for _ in range(number % 3 + 1):
                        await asyncio.sleep(0)

            async def all_of_them() -> None:
                await asyncio.gather(*(work(number) for number in range(20)))

            asyncio.run(all_of_them())

    def test_a_range_ends_in_another_thread(self, tmp_path: Path) -> None:
        """With `crosses_tasks`."""
        remedy = (
            "with crosses_tasks, use ranges that are started and ended by an identifier, or none"
        )
        with self._opened(tmp_path, "a range that ended in another thread", remedy) as (
            _,
            open_range,
        ):
            opened = open_range("kit", True)
            opened.__enter__()
            problems: list[BaseException] = []

            def leave() -> None:
                try:
                    opened.__exit__(None, None, None)
                except BaseException as error:
                    problems.append(error)

            thread = threading.Thread(target=leave)
            thread.start()
            thread.join()
            if problems:
                raise problems[0]

    def test_a_range_outlives_its_window(self, tmp_path: Path) -> None:
        """The window closes on another thread, whatever the job is inside of."""
        remedy = "keep in the range what its end needs: the window may be closed by then"
        with self._opened(tmp_path, "a range that ended after its window", remedy) as (
            captured,
            open_range,
        ):
            pair = [open_range("kit", False), open_range("kit", True)]
            for opened in pair:
                opened.__enter__()
            captured.capture.stop(WINDOWS[0].number)
            for opened in pair:
                opened.__exit__(None, None, None)
