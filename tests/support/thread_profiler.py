"""A backend for cProfile in windows: it records the thread that starts it."""

from __future__ import annotations

import cProfile
import marshal

import attrs
from gpuprof.backend import Backend, Window, Worker, hookimpl, move, option

EXTENSION = ".pstats"


@attrs.frozen
class ThreadProfilerOptions:
    """What is recorded."""

    builtins: bool = option("record calls of C functions, too", default=True)


class ThreadProfiler(Backend[ThreadProfilerOptions]):
    """Profiles the thread that marks the steps."""

    contract = 2
    start_in_thread = True
    Options = ThreadProfilerOptions
    _profile: cProfile.Profile | None = None

    @hookimpl
    def start_capture(self) -> None:
        self._profile = cProfile.Profile(builtins=self.options.builtins)
        self._profile.enable()

    @hookimpl
    def stop_capture(self, worker: Worker, window: Window) -> list[str] | None:
        profile, self._profile = self._profile, None
        if profile is None:
            return None
        profile.disable()
        raw = f"{worker.directory}/{worker.file_stem}.{window.number}.part"
        profile.dump_stats(raw)
        final = move(raw, worker.final_stem(window), EXTENSION)
        return [final] if final else None

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        return {window.number: worker.final_stem(window) + EXTENSION for window in windows}

    @hookimpl
    def check_report(self, path: str) -> str | None:
        if not path.endswith(EXTENSION):
            return None
        try:
            with open(path, "rb") as file:
                marshal.load(file)
        except (EOFError, ValueError, TypeError):
            return "was cut short"
        return None
