"""Importing the captures that nsys has not turned into reports."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from gpuprof.backend import Collected, Worker, move

from gpuprof_nsight._names import EXTENSION, raw_stem
from gpuprof_nsight._nsys import find
from gpuprof_nsight._reports.damage import damage
from gpuprof_nsight._reports.name import Files, Windows, raw_names, size_of

_CAPTURE = ".qdstrm"
_IMPORT_DEADLINE = 600.0


def import_leftovers(
    worker: Worker, missing: Sequence[tuple[str, Windows]], scratch: str, tool: str
) -> Collected:
    """Save raw captures, and the reports in nsys's temporary directory.

    nsys moves a capture that it could not import to the report's place, if there is room. It leaves
    in its temporary directory the reports that it could not write, and the other captures. The
    oldest of these goes to the first window; one without a window gets a name of its own. A window
    that was open when nsys was killed has an incomplete capture, which cannot be imported.

    Args:
        missing: the reports that are missing, in order: each report's path in nsys, and the
            windows that it would hold.
        scratch: nsys's temporary directory for this worker.
        tool: the path of nsys.

    Returns:
        The imported reports, and the captures that cannot be imported.
    """
    files = [
        file
        for file in Path(scratch).glob("*")
        if file.suffix in (_CAPTURE, EXTENSION) and size_of(str(file))
    ]
    captures = sorted(files, key=lambda file: file.stat().st_ctime_ns)
    moved = [(group, _moved_capture(worker, raw_name)) for raw_name, group in missing]
    pairs = [
        *((group, capture) for group, capture in moved if capture is not None),
        *zip_longest((group for group, capture in moved if capture is None), captures),
    ]
    final_names: Files = {}
    problems = []
    for group, capture in pairs:
        if capture is None:
            break
        raw = f"{raw_stem(worker)}.recovered{EXTENSION}"
        problem = (
            _copy(str(capture), raw)
            if capture.suffix == EXTENSION
            else import_capture(str(capture), raw, tool)
        )
        if problem is not None and _has_no_room(worker.directory, capture):
            left_over = sum(file is not None and file.exists() for _, file in pairs)
            stays = "1 capture stays" if left_over == 1 else f"{left_over} captures stay"
            problems.append(
                f"the disk of {worker.directory} is full: {stays} in {capture.parent}; "
                "make room, then run gpuprof collect"
            )
            break
        if problem is not None:
            problems.append(f"{capture} cannot be saved: {problem}")
            continue
        final = move(
            raw,
            worker.final_stem(group[0]) if group else f"{raw_stem(worker)}.recovered-capture",
            EXTENSION,
        )
        if final is not None:
            final_names.update((window.number, [final]) for window in group or ())
        capture.unlink()
    return Collected(final_names, "; ".join(problems))


def _moved_capture(worker: Worker, raw_name: str) -> Path | None:
    """The capture that nsys has moved to the place of its report."""
    names = (name.removesuffix(EXTENSION) + _CAPTURE for name in raw_names(worker, raw_name))
    return next((Path(name) for name in names if size_of(name)), None)


def import_capture(capture: str, report: str, tool: str) -> str | None:
    """Make a report from a raw capture. Returns the problem, or ``None``.

    Tries every importer, as one may be of another release than the nsys that captured.
    """
    problem = f"no {find.IMPORTER} beside {tool}"
    for importer in find.importers(tool):
        failure = _import(importer, capture, report)
        if failure is None:
            return None
        problem = failure
    return problem


def _import(importer: str, capture: str, report: str) -> str | None:
    # the importer does not overwrite a file, and an attempt on a full disk leaves an empty one
    Path(report).unlink(missing_ok=True)
    try:
        process = subprocess.run(
            [importer, "-i", capture, "-o", report],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_IMPORT_DEADLINE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    fault = damage(report) if size_of(report) else ""
    if fault is None:
        return None
    Path(report).unlink(missing_ok=True)
    lines = [
        line.strip() for line in process.stdout.replace("\r", "\n").splitlines() if line.strip()
    ]
    # After its message the importer may print the place in its own source, in brackets.
    words = [line for line in lines if not line.startswith(("[", "Processing", "/", "Dynamic"))]
    return words[-1] if words else fault or f"exit code {process.returncode}"


def _has_no_room(directory: str, capture: Path) -> bool:
    """Whether a disk is too full for a capture's report; that is not larger than the capture."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(directory)
        return disk.f_bavail * disk.f_frsize < capture.stat().st_size
    return False


def _copy(report: str, destination: str) -> str | None:
    fault = damage(report)
    if fault is not None:
        return fault
    Path(destination).unlink(missing_ok=True)
    try:
        with open(report, "rb") as source, open(destination, "xb") as copy:
            shutil.copyfileobj(source, copy)
    except OSError as error:
        Path(destination).unlink(missing_ok=True)
        return str(error)
    return None
