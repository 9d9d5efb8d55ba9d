"""`manifest.json`, which lists every file of a run with its path, content and checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from gpuprof._artifacts.formats import (
    MANIFEST_VERSION,
    AboutFile,
    EarlyEnd,
    FileEntry,
    Manifest,
    ReceiptEntry,
    RunFile,
    Setup,
    WorkerEntry,
)
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._session.environment import Environment
from gpuprof._shim.files import write_json
from gpuprof._shim.safe import open_regular, refuse_holes

_BLOCK = 2**20


@attrs.frozen
class Filed:
    """A complete file."""

    file: str
    size: int
    sha256: str
    mode: int = 0o644


def checksum(path: str, dir_fd: int | None = None) -> Filed:
    """Read a file to compute its checksum.

    Args:
        dir_fd: the open directory that the file is in, in place of the directory in `path`.
    """
    name = path if dir_fd is None else os.path.basename(path)
    with open(open_regular(name, dir_fd), "rb") as file:
        refuse_holes(file.fileno())
        mode = os.fstat(file.fileno()).st_mode & 0o777
        return Filed(path, *measure(iter(lambda: file.read(_BLOCK), b"")), mode)


def measure(
    chunks: Iterable[bytes], take: Callable[[bytes], object] = lambda chunk: None
) -> tuple[int, str]:
    """The size and SHA-256 of a file that is read in chunks."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        take(chunk)
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def entries(
    filed: Mapping[tuple[str, str], Filed], records: Iterable[NodeRecord]
) -> list[FileEntry]:
    """The manifest's entries for files, with the windows of each report.

    Args:
        filed: the files, by the name of the node on which each was written and its path there.
    """
    about_files: dict[tuple[str, str], AboutFile] = {}
    for record in records:
        for start in record.starts:
            for about, files in reports(start):
                for path in files:
                    about_files.setdefault((record.node, os.path.basename(path)), about)
            for name in (f"{start.stem}.json", f"{start.stem}.ledger", start.log):
                about_files[record.node, name] = _worker(start)
    return [
        {
            **about_files.get((node, os.path.basename(path)), AboutFile()),
            "node": node,
            "file": file.file,
            "size": file.size,
            "sha256": file.sha256,
        }
        for (node, path), file in sorted(filed.items(), key=lambda item: (item[0][0], item[1].file))
    ]


def _worker(start: Start) -> AboutFile:
    return {"group": start.group, "rank": start.rank, "incarnation": start.incarnation}


def reports(start: Start) -> Iterator[tuple[AboutFile, Sequence[str]]]:
    """Each window of a start of a worker, and the window's files."""
    entries = start.windows
    if start.session is None and start.settled is not None:
        entries = start.settled["windows"]
    files_by_window = start.settled["files"] if start.settled else {}
    for entry in entries:
        about: AboutFile = {
            **_worker(start),
            "window": entry["label"],
            "step": entry["start"],
            "steps_end": entry["stop"],
            "opened": entry["opened"],
            "closed": entry["closed"],
            "seconds": entry["seconds"],
            "tool_version": start.tool["tool_version"] if start.tool else None,
        }
        file_names = files_by_window.get(str(entry["number"])) or entry["files"] or ()
        yield about, [*file_names, *entry["extras"]]


def setup(beginning: RunFile, records: Iterable[NodeRecord]) -> Setup:
    """The hardware, software and settings of the run and its workers."""
    versions: dict[str, set[str]] = {"gpuprof": {beginning["gpuprof"]}, "profiler": set()}
    nodes: dict[str, set[str]] = {}
    gpus: dict[str, list[str]] = {}

    def add(environment: Environment) -> None:
        for name in ("python", "torch", "ray", "driver"):
            version = environment[name]
            versions.setdefault(name, set()).update([version] if version else ())

    add(beginning["environment"])
    for record in records:
        for start in record.starts:
            nodes.setdefault(record.node, set()).add(start.name)
            if start.tool is not None and start.tool["tool_version"]:
                versions["profiler"].add(start.tool["tool_version"])
            if start.session is not None:
                add(start.session["environment"])
                gpus[record.node] = start.session["environment"]["gpus"]
    return {
        "backend": beginning["backend"],
        "config": beginning["config"],
        "commit": beginning["commit"],
        "versions": {name: sorted(numbers) for name, numbers in versions.items()},
        "nodes": {node: sorted(names) for node, names in sorted(nodes.items())},
        "gpus": dict(sorted(gpus.items())),
    }


def write(
    directory: str,
    run: str,
    setup: Setup,
    receipt: ReceiptEntry,
    files: list[FileEntry],
    workers: list[WorkerEntry] | None = None,
    ended_early: list[EarlyEnd] | None = None,
    ended_by_job: list[EarlyEnd] | None = None,
) -> None:
    """Write the manifest of a run."""
    content: Manifest = {
        "version": MANIFEST_VERSION,
        "run": run,
        "backend": setup["backend"],
        "setup": setup,
        "receipt": receipt,
        "files": files,
    }
    if workers is not None:
        content["workers"] = workers
    if ended_early is not None:
        content["ended_early"] = ended_early
    if ended_by_job is not None:
        content["ended_by_job"] = ended_by_job
    write_json(os.path.join(directory, "manifest.json"), content)
