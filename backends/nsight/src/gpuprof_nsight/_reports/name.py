"""Giving finished reports their final names."""

from __future__ import annotations

import glob
import os
from collections import Counter

from gpuprof.backend import Window, Worker, move

from gpuprof_nsight._command.gate import choose, range_end
from gpuprof_nsight._command.known import ranges_recorded
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._names import EXTENSION, raw_stem, raw_window

Files = dict[int, list[str]]
Windows = tuple[Window, ...]


def name_reports(worker: Worker, windows: Windows, options: NsightOptions, ended: bool) -> Files:
    """Move the final reports to their final names.

    A report is final once its window has closed; under ``repeat:N``, once the last window has
    closed. If the user set the capture range, or options delay writing, a report is final only
    after the worker has ended.
    """
    end = range_end(worker, options)
    gate = choose(worker, options).gate
    if not ended and ("none" in (gate, end) or end.endswith((":async", ":defer"))):
        return {}
    final_names: Files = {}
    for raw_name, group in raw_reports(worker, windows, options):
        raw = next(filter(size_of, raw_names(worker, raw_name)), None)
        if raw is None:
            continue  # missing, or still empty: nsys creates the file first and fills it later
        final = move(raw, worker.final_stem(group[0]), EXTENSION)
        if final is not None:
            final_names.update((window.number, [final]) for window in group)
    if windows and gate == "none":
        # The user's own ranges can outnumber our windows: extra reports go to the last window.
        for raw in _remaining(worker):
            window = next(
                (window for window in windows if window.number not in final_names), windows[-1]
            )
            final = move(raw, worker.final_stem(window), EXTENSION)
            final_names.setdefault(window.number, []).extend(filter(None, [final]))
    return final_names


def raw_names(worker: Worker, raw_name: str) -> tuple[str, ...]:
    """The names that nsys may have given a report.

    nsys may name its first report before it knows whether more follow, so that report can have a
    number although it is the only one, or none although it is not.
    """
    alone, first = f"{raw_stem(worker)}{EXTENSION}", f"{raw_stem(worker)}.1{EXTENSION}"
    return (raw_name, alone, first) if raw_name in (alone, first) else (raw_name,)


def raw_reports(
    worker: Worker, windows: Windows, options: NsightOptions
) -> list[tuple[str, Windows]]:
    """The name that nsys gives each report, with the windows that the report holds.

    nsys numbers reports in order of capture; a single report has no number.
    """
    if choose(worker, options).gate == "session":
        return [(raw_window(worker, window) + EXTENSION, (window,)) for window in windows]
    end = range_end(worker, options)
    if end == "none":
        return [(raw_stem(worker) + EXTENSION, windows)] if windows else []
    windows_of_nsys = windows[: ranges_recorded(end)]
    if len(windows_of_nsys) == 1:
        return [(raw_stem(worker) + EXTENSION, windows_of_nsys)]
    return [
        (f"{raw_stem(worker)}.{position}{EXTENSION}", (window,))
        for position, window in enumerate(windows_of_nsys, 1)
    ]


def expected_reports(worker: Worker, windows: Windows, options: NsightOptions) -> Files:
    """The final name of each window's report; windows that nsys does not record have none.

    Reports that the user's template gives the same name are numbered, as `move` will do.
    """
    final_names: Files = {}
    counts: Counter[str] = Counter()
    for _, group in raw_reports(worker, windows, options):
        stem = worker.final_stem(group[0])
        counts[stem] += 1
        number = f".{counts[stem]}" if counts[stem] > 1 else ""
        final_names.update((window.number, [stem + number + EXTENSION]) for window in group)
    return final_names


def _remaining(worker: Worker) -> list[str]:
    """The reports that still have nsys's own names, in order of capture."""
    stem = glob.escape(raw_stem(worker))
    paths = [
        path
        for path in glob.glob(f"{stem}.*{EXTENSION}")
        if path[len(raw_stem(worker)) + 1 : -len(EXTENSION)].isdigit()
    ]
    candidates = [raw_stem(worker) + EXTENSION, *sorted(paths, key=lambda path: (len(path), path))]
    return [path for path in candidates if size_of(path)]


def size_of(path: str) -> int:
    """The size in bytes; 0 if there is no file."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
