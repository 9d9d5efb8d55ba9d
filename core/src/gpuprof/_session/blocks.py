"""An append-only file: one line of JSON, then blocks, each with its kind and checksum."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from errno import ENOENT

from gpuprof._shim.safe import create

BLOCK = struct.Struct("<4sII")
"""In front of each block: its kind, how many bytes follow, and the CRC-32 of kind and bytes."""


class BlockFile:
    """Writes a file of blocks. Each `write` writes whole blocks.

    Args:
        path: the file's path. The first `write` creates the file. An existing file of that name is
            kept: the new file's name gets a number.
        make_directory: makes the file's directory, once, before the file is created.

    Attributes:
        waiting: the number of bytes that the next `write` will write.
    """

    def __init__(
        self, path: str, header: Mapping[str, object], make_directory: Callable[[], object] = int
    ) -> None:
        self.path = path
        self.exists = False
        self.waiting = 0
        self._header = header
        self._make_directory = make_directory
        self._file = -1
        self._blocks: list[bytes] = []

    def add(self, kind: str, content: bytes, *, empty: bool = False) -> None:
        """Add a block to the next write. Without `empty`, skip a block that has no content."""
        if content or empty:
            name = kind.encode()
            checksum = zlib.crc32(content, zlib.crc32(name))
            self._blocks.append(BLOCK.pack(name, len(content), checksum) + content)
            self.waiting += len(self._blocks[-1])

    def add_json(self, kind: str, entries: Sequence[object]) -> None:
        """Add a block of JSON, if there are entries."""
        if entries:
            self.add(kind, json.dumps(entries, separators=(",", ":")).encode())

    def write(self) -> None:
        """Write the blocks that were added since the last `write`."""
        content = b"".join(self._blocks)
        self._blocks, self.waiting = [], 0
        if not content:
            return
        if not self.exists:
            self._create()
            content = header_line(self._header) + content
        elif not os.fstat(self._file).st_nlink:
            raise FileNotFoundError(ENOENT, "the file was removed")
        while content:
            content = content[os.write(self._file, content) :]

    def close(self) -> None:
        """Close the file, if it was created."""
        if self.exists:
            os.close(self._file)

    def _create(self) -> None:
        self._make_directory()
        stem, suffix = os.path.splitext(self.path)
        number = 1
        while os.path.lexists(self.path):
            number += 1
            self.path = f"{stem}-{number}{suffix}"
        self._file = create(self.path)
        self.exists = True


def header_line(header: Mapping[str, object]) -> bytes:
    """The first line of the file: the header, and as its last key the header's CRC-32."""
    checksum = zlib.crc32(json.dumps(header).encode())
    return json.dumps({**header, "checksum": checksum}).encode() + b"\n"
