"""An output that the users of a system give to nsys: its directory becomes ours, and its name our
template.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from typing import Any

import attrs

_NAMES = ("o", "output")
_TOKENS = {"%p": "{pid}", "%h": "{node}", "%n": "{n}", "%%": "%"}
"""What nsys would replace in a report's name, and our variables."""
_OF_NSYS = re.compile("%q{.*?}|%.?")


@attrs.frozen
class Output:
    """What an output is in our terms.

    Args:
        settings: `output_dir` and `file_name`, as far as it has them.
        paths: where they stand.
        notes: what there is to say of it.
    """

    settings: Mapping[str, str] = attrs.field(factory=dict)
    paths: Mapping[str, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()

    def numbered(self, suffix: str) -> dict[str, str]:
        """The settings of a worker that has several reports: the name with what tells them apart,
        unless it numbers them itself.
        """
        name = self.settings.get("file_name")
        return {
            **self.settings,
            **({"file_name": name + suffix} if name and "{n}" not in name else {}),
        }


def take(options: dict[str, Any], where: str, problems: list[str]) -> Output:
    """Take the output out of the options.

    Nothing is taken where they have none, or have it twice, which the backend refuses.

    Args:
        options: of nsys.
        where: their path, for messages.
        problems: what of it cannot be had is added.
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
                f"{', '.join(wrong)} cannot be had there; expected only {', '.join(known)} in "
                f"the {called}"
            )
            problems.append(f"{path}: {given!r} is not valid: {cannot}")
    parts = {
        "output_dir": directory.replace("%%", "%"),
        "file_name": _OF_NSYS.sub(lambda token: _TOKENS.get(token[0], ""), name),
    }
    settings = {ours: value for ours, value in parts.items() if value}
    note = (
        f"{path}: {given!r} is read as {' and '.join(settings)}: reports lie below the "
        "directory, by run and node"
    )
    return Output(settings, dict.fromkeys(settings, path), (note,))


def take_with_directory(options: dict[str, Any], where: str, problems: list[str]) -> Output:
    """As `take`, but only an output with a directory: a mere name is an option like others, which
    the backend reads.
    """
    if not any("/" in str(options.get(key)) for key in _NAMES):
        return Output()
    return take(options, where, problems)
