"""`manifest.json`: every file of a run, where it is, what it holds, and its checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from gpuprof._artifacts.records import NodeRecord
from gpuprof._shim.files import write_json

_BLOCK = 2**20


@attrs.frozen
class Filed:
    """A file that is whole.

    Args:
        file: its path.
        size: bytes.
        sha256: of its content, in hexadecimal.
    """

    file: str
    size: int
    sha256: str


def checksum(path: str) -> Filed:
    """Read a file.

    Raises:
        OSError: it cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return Filed(path, size, digest.hexdigest())


def entries(
    filed: Mapping[tuple[str, str], Filed], records: Iterable[NodeRecord]
) -> list[dict[str, Any]]:
    """A line for each file: where it is, and for reports what they hold.

    Args:
        filed: by the name of the node that has written it and the path there.
        records: what the nodes say of their workers, windows and tools.
    """
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        for start in record.starts:
            who = {"group": start.group, "rank": start.rank, "incarnation": start.incarnation}
            settled = (start.settled or {}).get("files", {})
            for window in (start.session or start.settled or {}).get("windows", ()):
                steps = {"step": window["start"], "steps_end": window["stop"]}
                times = {"opened": window.get("opened"), "closed": window.get("closed")}
                about = {
                    **who,
                    "window": window["label"],
                    **steps,
                    **times,
                    "tool_version": (start.tool or {}).get("version"),
                }
                for path in settled.get(str(window["number"])) or window.get("files") or ():
                    known.setdefault((record.node, os.path.basename(path)), about)
            known[record.node, f"{start.group}-{start.rank}.start-{start.incarnation}.json"] = who
    return [
        {
            "node": node,
            "file": file.file,
            "size": file.size,
            "sha256": file.sha256,
            **known.get((node, os.path.basename(path)), {}),
        }
        for (node, path), file in sorted(filed.items(), key=lambda item: (item[0][0], item[1].file))
    ]


def write(directory: str, content: dict[str, Any]) -> None:
    """Write the manifest of a run."""
    write_json(os.path.join(directory, "manifest.json"), {"version": 1, **content})
