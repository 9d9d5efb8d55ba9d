"""Whether a report is whole, by the marks that nsys looks for when it opens one."""

from __future__ import annotations

import os

_BEGIN = b"NVIDIA Tegra Profiler Report "
_END = b"U3w[END]"
_OFFSET = 8
"""Bytes of the number before the end mark: where the table of the report's sections begins."""


def damage(path: str) -> str | None:
    """What is wrong with a report, or ``None``.

    nsys writes the table of sections and the end mark last, so a report that was cut short, as on a
    full disk, lacks them.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        begin = file.read(len(_BEGIN))
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _OFFSET - len(_END)))
        table, end = file.read(_OFFSET), file.read()
    if begin != _BEGIN:
        return "nsys's header is missing"
    if end != _END:
        return "the file is cut short: nsys's end mark is missing"
    if not len(_BEGIN) < int.from_bytes(table, "little") < size - _OFFSET - len(_END):
        return "the file is damaged: its section table is missing"
    return None
