"""A backend that passes the conformance kit: it writes ranges into a text file."""

import json
import shutil
import subprocess
import threading
from contextlib import AbstractContextManager

import attrs
from gpuprof.backend import (
    Check,
    Collected,
    Command,
    Purpose,
    Tool,
    Window,
    Worker,
    hookimpl,
    move,
    option,
)

RUNNING: list["Journal"] = []
"""Who records in this process: one at a time can."""
_open = threading.local()
WHOLE_LIFE = """echo '["whole life"]' >"$0"; exec "$@\""""


@attrs.frozen
class Options:
    """The section."""

    env: dict[str, str] = option("variables for the worker", factory=dict)
    title: str = option("the first line", default="journal")


class Journal:
    """The backend."""

    contract = 2
    Options = Options

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lines: list[str] | None = None

    @hookimpl
    def render_command(self, worker: Worker, command: Command, tool: Tool) -> list[str]:
        if worker.lifetime:
            life = ["sh", "-c", WHOLE_LIFE, self._whole_life(worker)]
            return [tool.path, *life, *command.interpreter, *command.arguments]
        return [tool.path, *command.interpreter, *command.arguments]

    @hookimpl
    def inject_env(self, worker: Worker) -> dict[str, str | None]:
        return {"JOURNAL": worker.name, **self.options.env}

    @hookimpl
    def probe(self) -> Tool | None:
        path = shutil.which("env")
        return Tool(path, "1.0") if path else None

    @hookimpl
    def missing_tool(self) -> str:
        return "env is missing; it comes with coreutils"

    @hookimpl
    def diagnose(self, tool: Tool, purpose: Purpose) -> list[Check] | None:
        if purpose != "start":
            return None
        if subprocess.run([tool.path, "true"], check=False).returncode:
            return [Check("options", False, "it cannot run true", "take another env")]
        return None

    @hookimpl
    def start_capture(self, window: Window) -> None:
        if RUNNING:
            raise RuntimeError("something is being recorded")
        RUNNING.append(self)
        self.lines = [self.options.title]

    @hookimpl
    def stop_capture(self, worker: Worker, window: Window) -> list[str] | None:
        if self.lines is None:
            return None
        RUNNING.remove(self)
        lines, self.lines = self.lines, None
        raw = f"{worker.directory}/{worker.file_stem}.{window.number}.raw"
        with open(raw, "w") as file:
            json.dump(lines, file)
        final = move(raw, worker.final_stem(window), ".txt")
        return [final] if final else None

    @hookimpl
    def collect_files(
        self, worker: Worker, windows: tuple[Window, ...], files: dict[int, list[str]], ended: bool
    ) -> Collected | None:
        if not (ended and worker.lifetime and windows) or files:
            return None
        final = move(self._whole_life(worker), worker.final_stem(windows[0]), ".txt")
        return Collected({windows[0].number: [final]} if final else {})

    def _whole_life(self, worker: Worker) -> str:
        return f"{worker.directory}/{worker.file_stem}.life"

    @hookimpl
    def open_range(self, name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        return Crossing(self, name) if crosses_tasks else Nested(self, name)

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        return {window.number: f"{worker.final_stem(window)}.txt" for window in windows}


class Crossing(AbstractContextManager[None]):
    """A range that ends wherever it ends."""

    def __init__(self, journal: Journal, name: str) -> None:
        self.lines = journal.lines
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.lines.append(self.name)


class Nested(Crossing):
    """A range of one thread, which may only be popped by it, and only from the top."""

    def __enter__(self) -> None:
        self.ended = False
        self.thread = threading.get_ident()
        stack().append(self)

    def __exit__(self, *error: object) -> None:
        self.ended = True
        while stack() and stack()[-1].ended:
            pop(stack().pop())


def pop(ended: Nested) -> None:
    if ended.thread != threading.get_ident():
        raise RuntimeError(f"{ended.name} was popped by another thread")
    ended.lines.append(ended.name)


def stack() -> list[Nested]:
    return _open.__dict__.setdefault("ranges", [])
