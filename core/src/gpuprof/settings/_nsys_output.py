"""Turns an output option of nsys into `output_dir` and `file_name`."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from typing import Any

import attrs

_NAMES = ("o", "output")
_TOKENS = {"%p": "{pid}", "%h": "{node}", "%n": "{n}", "%%": "%"}
"""Placeholders of nsys in report names, and gpuprof's variables."""
_OF_NSYS = re.compile("%q{.*?}|%.?")


@attrs.frozen
class Output:
    """An output option in gpuprof's keys.

    Args:
        settings: `output_dir` and `file_name`, each if present.
        paths: the full path of each.
        notes: remarks for the user.
    """

    settings: Mapping[str, str] = attrs.field(factory=dict)
    paths: Mapping[str, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()

    def numbered(self, suffix: str) -> dict[str, str]:
        """The settings for several reports: `suffix` tells them apart unless ``{n}`` does."""
        name = self.settings.get("file_name")
        return {
            **self.settings,
            **({"file_name": name + suffix} if name and "{n}" not in name else {}),
        }


def take_output(options: dict[str, Any], where: str, problems: list[str]) -> Output:
    """Take the output out of the options.

    Takes nothing if there is none, or if there are two: the backend refuses two.

    Args:
        options: nsys's.
        where: their path, for messages.
        problems: receives placeholders that gpuprof cannot fill.
    """
    keys = [key for key in options if key in _NAMES]
    if len(keys) != 1:
        return Output()
    given = str(options.pop(keys[0])).strip("'\"")
    path = f"{where}.{keys[0]}"
    directory, name = os.path.split(given)
    for part, called, known in ((directory, "directory", ["%%"]), (name, "name", list(_TOKENS))):
        wrong = [token for token in _OF_NSYS.findall(part) if token not in known]
        if wrong:
            cannot = (
                f"{', '.join(wrong)} cannot be filled in; expected only {', '.join(known)} in "
                f"the {called}"
            )
            problems.append(f"{path}: {given!r} is not valid: {cannot}")
    parts = {
        "output_dir": directory.replace("%%", "%"),
        "file_name": _OF_NSYS.sub(lambda token: _TOKENS.get(token[0], ""), name),
    }
    settings = {ours: value for ours, value in parts.items() if value}
    note = (
        f"{path}: {given!r} is read as {' and '.join(settings)}; reports go into "
        "subdirectories of it, by run and node"
    )
    return Output(settings, dict.fromkeys(settings, path), (note,))


def take_output_with_directory(options: dict[str, Any], where: str, problems: list[str]) -> Output:
    """Like `take_output`, but only if the output has a directory; backends read a bare name."""
    if not any("/" in str(options.get(key)) for key in _NAMES):
        return Output()
    return take_output(options, where, problems)
