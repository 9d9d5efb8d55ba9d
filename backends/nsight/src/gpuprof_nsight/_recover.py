"""Finished reports get their final names; what nsys left unfinished is imported."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from gpuprof import Window, Worker, move

from gpuprof_nsight._declared import ranges_recorded
from gpuprof_nsight._gates import choose, range_end
from gpuprof_nsight._names import EXTENSION, raw_stem, raw_window
from gpuprof_nsight._options import NsightOptions

_IMPORT_DEADLINE = 600.0
Files = dict[int, list[str]]
Windows = tuple[Window, ...]


def name_reports(worker: Worker, windows: Windows, options: NsightOptions, ended: bool) -> Files:
    """Move the reports that are final. Under ``repeat:N`` none is before all N windows are closed, or the worker has ended."""
    end = range_end(worker, options)
    last = len(worker.windows[: ranges_recorded(end)])
    gate = choose(worker, options).gate
    if not ended and gate != "session" and (len(windows) < last or "none" in (gate, end)):
        return {}
    named: Files = {}
    for raw, held in raw_reports(worker, windows, options):
        if _size(raw) == 0:
            continue  # nsys begins with an empty file
        final = move(raw, worker.final_stem(held[0]), EXTENSION)
        if final is not None:
            named.update((window.number, [final]) for window in held)
    if windows and gate == "none":
        # How often the user's own range has begun is not known before. What no window waits for is the last one's.
        for raw in _left(worker):
            window = next((window for window in windows if window.number not in named), windows[-1])
            final = move(raw, worker.final_stem(window), EXTENSION)
            named.setdefault(window.number, []).extend(filter(None, [final]))
    return named


def raw_reports(worker: Worker, windows: Windows, options: NsightOptions) -> list[tuple[str, Windows]]:
    """Each report, by the name that nsys gives it, and the windows that it holds.

    Reports are numbered in the order of capture, or have no number where there can be but one.
    """
    if choose(worker, options).gate == "session":
        return [(raw_window(worker, window) + EXTENSION, (window,)) for window in windows]
    end = range_end(worker, options)
    if end == "none":
        return [(raw_stem(worker) + EXTENSION, windows)] if windows else []
    recorded = windows[: ranges_recorded(end)]
    if len(recorded) == 1:
        return [(raw_stem(worker) + EXTENSION, recorded)]
    return [(f"{raw_stem(worker)}.{position}{EXTENSION}", (window,)) for position, window in enumerate(recorded, 1)]


def expected_reports(worker: Worker, windows: Windows, options: NsightOptions) -> Files:
    """The report of each window, by its final name. Windows that nsys does not record have none."""
    reports = [held for _, held in raw_reports(worker, windows, options)]
    return {window.number: [worker.final_stem(held[0]) + EXTENSION] for held in reports for window in held}


def _left(worker: Worker) -> list[str]:
    """The reports that still have the names that nsys gave them, in the order of capture."""
    stem = glob.escape(raw_stem(worker))
    numbered = [path for path in glob.glob(f"{stem}.*{EXTENSION}") if path[len(raw_stem(worker)) + 1 : -len(EXTENSION)].isdigit()]
    found = [raw_stem(worker) + EXTENSION, *sorted(numbered, key=lambda path: (len(path), path))]
    return [path for path in found if _size(path)]


def import_leftovers(worker: Worker, missing: Sequence[Windows], scratch: str, tool: str) -> Files:
    """Save what nsys left in its temporary directory, the oldest for the first window.

    Reports that it could not write where it was told lie there, and raw captures that it did not come to make reports of. One
    that belongs to no known window gets a name of its own. A window that was open when nsys was killed has an incomplete capture,
    which cannot be imported.

    Args:
        missing: the captured windows without a report, in order; those that share one together.
        scratch: nsys's temporary directory for this worker.
        tool: nsys.

    Raises:
        Unrecovered: a capture cannot be imported; where it lies.
    """
    left = [file for file in Path(scratch).glob("*") if file.suffix in (".qdstrm", EXTENSION) and _size(str(file))]
    captures = sorted(left, key=lambda file: file.stat().st_ctime_ns)
    named: Files = {}
    problems = []
    for held, capture in zip_longest(missing, captures, fillvalue=None):
        if capture is None:
            break
        raw = f"{raw_stem(worker)}.recovered{EXTENSION}"
        problem = _copy(str(capture), raw) if capture.suffix == EXTENSION else import_capture(str(capture), raw, tool)
        if problem is not None:
            problems.append(f"{capture} cannot be saved: {problem}")
            continue
        final = move(raw, worker.final_stem(held[0]) if held else f"{raw_stem(worker)}.recovered-capture", EXTENSION)
        if final is not None:
            named.update((window.number, [final]) for window in held or ())
        capture.unlink()
    if problems:
        raise Unrecovered(named, "; ".join(problems))
    return named


class Unrecovered(RuntimeError):
    """Some captures could not be imported.

    Attributes:
        named: those that could.
    """

    def __init__(self, named: Files, message: str) -> None:
        super().__init__(message)
        self.named = named


def import_capture(capture: str, report: str, tool: str) -> str | None:
    """Run nsys's importer. Returns what it says against it, or ``None``."""
    importer = Path(os.path.realpath(tool)).parent.parent / "host-linux-x64" / "QdstrmImporter"
    try:
        done = subprocess.run(
            [str(importer), "-i", capture, "-o", report],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_IMPORT_DEADLINE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if _size(report):
        return None
    lines = [line.strip() for line in done.stdout.replace("\r", "\n").splitlines() if line.strip()]
    # Behind what is wrong it may add where in its own source, in brackets.
    words = [line for line in lines if not line.startswith(("[", "Processing", "/", "Dynamic"))]
    return words[-1] if words else f"exit code {done.returncode}"


def _copy(report: str, destination: str) -> str | None:
    try:
        shutil.copyfile(report, destination)
    except OSError as error:
        return str(error)
    return None


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
