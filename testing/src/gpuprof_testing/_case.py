"""The base of all checks: the author's declarations, and how a check fails."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest
from gpuprof._config.structure import structure
from gpuprof._report.readers import ranges_of
from gpuprof._session.capture import Capture
from gpuprof.backend import loading
from gpuprof.backend.boundary import Hooks
from gpuprof.backend.types import Command, RangeTimes, Tool, Window, Worker
from gpuprof.errors import PluginError
from gpuprof_timing import set_range_opener

from gpuprof_testing._limit import limited

WINDOWS = (Window(1, 1, 2), Window(2, 3, 4))
LIFETIME = (Window(1, None, None),)
COMMAND = Command(("{interpreter}",), ("worker.py", "an argument"))

OF_THE_TOOL = "the tool: a complaint\n"
"""What a tool is taken to have written into a worker's log."""


def fail(problem: str, remedy: str) -> NoReturn:
    """Fail a check with the problem and the change that fixes it."""
    pytest.fail(f"{problem}\nTo fix it: {remedy}", pytrace=False)


def _in_a_sentence(check: Callable[..., None]) -> Callable[..., None]:
    """A check that names the place in the backend if an exception gets out of it."""

    @functools.wraps(check)
    def checked(case: Case, *arguments: Any, **named: Any) -> None:
        try:
            check(case, *arguments, **named)
        except Exception as error:
            file = sys.modules[case.backend.__module__].__file__ or ""
            package = case.backend.__module__.count(".")  # a module may also be a package's
            own = os.path.dirname(file) + os.sep if package else file
            frames = traceback.extract_tb(error.__traceback__)
            frame = next((f for f in reversed(frames) if f.filename.startswith(own)), None)
            what = f"{type(error).__name__}: {error}"
            if frame is None:
                last = frames[-1]
                fail(
                    f"the check met {what} in {last.name} ({last.filename}:{last.lineno})",
                    "if nothing there is the backend's, this is a bug in gpuprof: report it",
                )
            fail(
                f"{frame.name} ({frame.filename}:{frame.lineno}) raised {what}",
                "mend that line; the check calls the backend as gpuprof does",
            )

    return checked


class Case:
    """A backend under test. See `BackendConformance`."""

    name: ClassVar[str] = ""
    backend: ClassVar[Any] = None
    options: ClassVar[Mapping[str, object]] = {}
    project: ClassVar[Path | None] = None
    refused_in_paths: ClassVar[str] = ""
    skip: ClassVar[Mapping[str, str]] = {}

    _shared: ClassVar[dict[str, Any]] = {}
    """What several checks look at, made once for a class."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._shared = {}
        if cls.__module__.partition(".")[0] == __package__:
            for name, check in list(vars(cls).items()):
                if name.startswith("test_"):
                    setattr(cls, name, _in_a_sentence(check))
            return
        if not cls.name or cls.backend is None:
            raise TypeError(
                f"{cls.__name__}: name or backend is missing; set both in the class's body"
            )
        unknown = [check for check in cls.skip if not hasattr(cls, f"test_{check}")]
        if unknown:
            checks = ", ".join(
                name.removeprefix("test_") for name in dir(cls) if name.startswith("test_")
            )
            raise TypeError(
                f"{cls.__name__}.skip: {unknown[0]!r} is not a check; expected one of: {checks}"
            )

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A directory for what several checks look at."""
        return tmp_path_factory.mktemp("shared")

    @pytest.fixture(autouse=True)
    def _around_each_check(self, request: pytest.FixtureRequest) -> Iterator[None]:
        reason = self.skip.get(request.node.originalname.removeprefix("test_"))
        if reason is not None:
            pytest.skip(reason)
        with limited():
            yield
        set_range_opener(None)

    def read_labels(self, file: Path) -> Mapping[str, int] | None:
        """How often each range occurs in a finished file, by name; ``None`` if unreadable.

        Uses the hooks `read_ranges` and `read_spans`; override this if the backend has neither.
        """
        ranges = next((self._ranges(hook, str(file)) for hook in self._readers()), None)
        if ranges is None:
            return None
        labels: Counter[str] = Counter()
        for times in ranges:  # one name may stand at several places of the nesting
            labels[times.name] += len(times.durations)
        return labels

    def _readers(self) -> list[str]:
        """The hooks of this backend that read ranges, the one that gpuprof prefers first."""
        return [hook for hook in ("read_ranges", "read_spans") if self._implements(hook)]

    def _ranges(self, hook: str, file: str, hooks: Hooks | None = None) -> list[RangeTimes] | None:
        """The ranges in a finished file, as `gpuprof report` has them from one hook."""
        answer = self._ask(hook, hooks, path=file)
        return answer if hook == "read_ranges" or answer is None else ranges_of(answer)

    def make(self, backend: Any = None) -> Any:
        """Instantiate the backend, or a variant of it, with the example's options."""
        cls = backend or self.backend
        return cls(structure(self.options, cls.Options, f"{type(self).__name__}.options"))

    def _hooks(self, backend: Any = None) -> Hooks:
        """The hooks of a fresh instance."""
        return loading.manager(self.make(backend))

    def _ask(self, hook: str, hooks: Hooks | None = None, **arguments: Any) -> Any:
        """Call a hook as gpuprof does; fail if it returns something else than it should."""
        specification = getattr((hooks or self._hooks()).hook, hook)
        if hook in ("start_capture", "stop_capture"):
            arguments.setdefault("tool", self._tool_of_worker())
        try:
            return specification(**{name: arguments[name] for name in specification.spec.argnames})
        except PluginError as error:
            fail(
                str(error),
                f"return the type that gpuprof.backend.hookspecs gives for {hook}, and raise only "
                "subclasses of Exception",
            )

    def _implements(self, hook: str) -> bool:
        """Whether the backend has a hook."""
        return hook in self.backend.__dict__ or any(
            hook in base.__dict__ for base in self.backend.__mro__
        )

    def _need(self, *hooks: str) -> None:
        """Skip the check if the backend lacks one of these hooks."""
        missing = [hook for hook in hooks if not self._implements(hook)]
        if missing:
            pytest.skip(f"the backend has no {' and no '.join(missing)}")

    def _worker(self, directory: Path | str = "/gpuprof/run/node", **more: Any) -> Worker:
        """A worker with windows at steps 1 and 3."""
        fields = {
            "group": "Kit",
            "rank": 0,
            "node": "node",
            "incarnation": "1",
            "windows": WINDOWS,
            "pid": "1",
            **more,
        }
        return Worker(run="run", directory=str(directory), **fields)

    def _tool_of_worker(self) -> Tool | None:
        """What the hooks for windows get."""
        tool: Tool | None = self._hooks().hook.probe()
        return tool

    def _tool(self) -> Tool:
        """The installed tool, or a placeholder good enough for planning."""
        return self._hooks().hook.probe() or Tool("{tool}")


class Captured:
    """A capture of a fresh instance, as in a session, that collects its faults.

    Args:
        case: the case with the backend.
        directory: the directory of its files.
        backend: a variant of the backend.
        hooks: the hooks of an instance, instead of a fresh one.
    """

    def __init__(
        self,
        case: Case,
        directory: Path,
        backend: Any = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.faults: list[str] = []
        self.capture = Capture(case._worker(directory), hooks or case._hooks(backend), self._note)

    def _note(self, name: str, error: BaseException) -> str:
        self.faults.append(f"{type(error).__name__}: {error}")
        return self.faults[-1]

    def open(self, window: Window) -> None:
        """Open a window, which nothing wraps here, and fail if that raises."""
        self.capture.start(window)
        self.expect_no_fault(
            "a window in a process that no tool wraps",
            "start_capture returns without an error there; look for what the tool sets in the "
            "process, such as a variable",
        )

    def expect_no_fault(self, what: str, remedy: str) -> None:
        """Fail with the first fault."""
        if self.faults:
            fail(f"{what}: {self.faults[0]}", remedy)
