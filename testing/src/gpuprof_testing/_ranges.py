"""Checks of `open_range`, which runs in the job's own threads and tasks, in its hottest loops."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from gpuprof_testing._case import WINDOWS, Captured, Case, fail

THREADS = 8
ROUNDS = 50
LIMIT = 0.002
"""Seconds that a range may take. The page "Write a backend" has the same."""
Open = Callable[[str, bool], AbstractContextManager[object]]
NAMES = ("", " ", "a\nb", "long" * 2000, "日本 🙂", "%s {} {a} \\ $HOME \"'")
_EXIT = "raise nothing from a range: drop it if something goes wrong"


class RangeChecks(Case):
    """Each check opens a window and calls `open_range` as gpuprof does."""

    @contextmanager
    def _opened(self, directory: Path, what: str, remedy: str) -> Iterator[tuple[Captured, Open]]:
        self._need("open_range")
        captured = Captured(self, directory)
        captured.open(WINDOWS[0])
        opener = captured.capture.range_opener(WINDOWS[0])
        assert opener is not None
        try:
            yield captured, opener
        except Exception as error:
            fail(f"{what}: {type(error).__name__}: {error}", remedy)
        captured.capture.stop(WINDOWS[0].number)
        captured.expect_no_fault(what, _EXIT)

    def test_a_range_lets_exceptions_pass(self, tmp_path: Path) -> None:
        """A range left by an exception ends and lets the exception pass."""
        with self._opened(tmp_path, "a range that is left by an exception", _EXIT) as (
            _,
            open_range,
        ):
            kinds = (KeyError, KeyboardInterrupt, SystemExit, GeneratorExit)
            for crosses_tasks, kind in itertools.product((False, True), kinds):
                context = open_range("kit", crosses_tasks)
                context.__enter__()
                if context.__exit__(kind, kind("the job's own"), None):
                    fail("a range swallowed an exception", "return None or False from its __exit__")

    def test_ranges_nest(self, tmp_path: Path) -> None:
        """Ranges nest, even in a range of the same name, as in recursion."""
        with self._opened(
            tmp_path, "ranges inside ranges", "return a new context manager from each call"
        ) as (_, open_range):
            self._nest(open_range, 20)

    def _nest(self, open_range: Open, depth: int) -> None:
        if depth:
            with open_range("kit", False):
                self._nest(open_range, depth - 1)

    def test_a_range_has_any_name(self, tmp_path: Path) -> None:
        """A range's name is any text: empty, long, in any script, with any signs."""
        remedy = "take any text; leave the range out if the tool cannot have its name"
        for name in NAMES:
            short_name = name if len(name) < 100 else f"{name[:20]}…"
            with self._opened(tmp_path, f"a range with the name {short_name!r}", remedy) as (
                _,
                open_range,
            ):
                for crosses_tasks in (False, True):
                    with open_range(name, crosses_tasks):
                        pass

    def test_ranges_end_in_any_order(self, tmp_path: Path) -> None:
        """Nested ranges may end in any order, as with generators that are closed late."""
        remedy = "pop a range only when it is on top of the stack"
        with self._opened(tmp_path, "the outer of two ranges ended first", remedy) as (
            _,
            open_range,
        ):
            for order in ((0, 1), (1, 0)):
                pair = [open_range("outer", False), open_range("inner", False)]
                for context in pair:
                    context.__enter__()
                for position in order:
                    pair[position].__exit__(None, None, None)

    def test_ranges_in_many_threads(self, tmp_path: Path) -> None:
        """Several threads open ranges at once, each with its own nesting."""
        remedy = "keep the open ranges per thread (threading.local), not on the instance"
        with self._opened(tmp_path, "ranges in several threads at once", remedy) as (_, open_range):
            problems: list[BaseException] = []
            barrier = threading.Barrier(THREADS)

            def work(number: int) -> None:
                try:
                    for _ in range(ROUNDS):
                        with (
                            open_range(f"outer-{number}", False),
                            open_range(f"inner-{number}", False),
                        ):
                            barrier.wait(60)
                except BaseException as error:
                    barrier.abort()
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
        """Interleaved tasks in one thread end their ranges in any order, with `crosses_tasks`."""
        remedy = (
            "with crosses_tasks, use ranges that start and end by an identifier, or no range at all"
        )
        with self._opened(tmp_path, "ranges of interleaved tasks", remedy) as (_, open_range):

            async def work(number: int) -> None:
                with open_range(f"task-{number}", True):
                    for _ in range(number % 3 + 1):
                        await asyncio.sleep(0)

            async def all_of_them() -> None:
                await asyncio.gather(*(work(number) for number in range(20)))

            asyncio.run(all_of_them())

    def test_a_range_ends_in_another_thread(self, tmp_path: Path) -> None:
        """With `crosses_tasks`, a range may end in another thread."""
        remedy = (
            "with crosses_tasks, use ranges that start and end by an identifier, or no range at all"
        )
        with self._opened(tmp_path, "a range that ended in another thread", remedy) as (
            _,
            open_range,
        ):
            context = open_range("kit", True)
            context.__enter__()
            problems: list[BaseException] = []

            def leave() -> None:
                try:
                    context.__exit__(None, None, None)
                except BaseException as error:
                    problems.append(error)

            thread = threading.Thread(target=leave)
            thread.start()
            thread.join()
            if problems:
                raise problems[0]

    def test_a_range_takes_little_time(self, tmp_path: Path) -> None:
        """Opening, entering and leaving a range is quick, as jobs have thousands of them."""
        remedy = "do nothing that waits; keep files, locks and programs out of it"
        with self._opened(tmp_path, "a range", remedy) as (_, open_range):
            seconds = []
            for _ in range(ROUNDS):  # the quickest counts: the machine may be busy
                began = time.perf_counter()
                with open_range("kit", False):
                    pass
                seconds.append(time.perf_counter() - began)
            if min(seconds) > LIMIT:
                fail(
                    f"a range takes {min(seconds) * 1e3:.1f} ms; the limit is {LIMIT * 1e3:g} ms",
                    remedy,
                )

    def test_a_range_outlives_its_window(self, tmp_path: Path) -> None:
        """A range may end after its window, which closes on another thread."""
        remedy = "keep everything that a range's end needs in the range itself"
        with self._opened(tmp_path, "a range that ended after its window", remedy) as (
            captured,
            open_range,
        ):
            pair = [open_range("kit", False), open_range("kit", True)]
            for context in pair:
                context.__enter__()
            captured.capture.stop(WINDOWS[0].number)
            for context in pair:
                context.__exit__(None, None, None)

    def test_files_of_others_are_left_alone(self, tmp_path: Path) -> None:
        """`read_ranges` and `read_spans` return ``None`` for others' files."""
        hooks = self._readers()
        if not hooks:
            self._need("read_ranges", "read_spans")
        for name, text in (("notes.txt", "not a report"), ("data.json", '{"loss": [0.5]}')):
            (tmp_path / name).write_text(text)
            for hook in hooks:
                try:
                    result = self._ask(hook, path=str(tmp_path / name))
                except Exception as error:
                    result = error
                if result is not None:
                    fail(
                        f"{hook} read {name}, which the backend did not write: {result!r}",
                        "return None unless the file's name ends with your extension",
                    )
