"""One row of the plan."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

import attrs

from gpuprof._config.secrets import masked
from gpuprof._tables import labelled
from gpuprof.backend.types import Worker

_FEW = 8
"""Maximum windows that a short row names."""


@attrs.frozen
class PlannedWorker:
    """One row of the plan.

    Args:
        worker: the worker; its node and incarnation are placeholders.
        profiled: whether capture windows are opened on the worker.
        reason: why the worker is profiled, or why not.
        command: the rendered argument vector, with placeholders; empty if nothing is put in front
            of the worker.
        environment: variables to set for the worker; the value ``None`` unsets a variable.
        files: the expected file of each window, by the window's number.
        verbatim: the variables of `environment` whose values come from the user: ``{node}`` in
            them is not a placeholder.
        secret: the variables in `environment` whose values are neither shown nor written.
        pattern: the path of the file of each discrete scope, with placeholders; empty without
            discrete, or if the backend gives none.
        log: the path of the profiler's own output; empty if the profiler and the worker share one
            output.
    """

    worker: Worker
    profiled: bool
    reason: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = attrs.field(factory=dict)
    files: Mapping[int, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()
    secret: frozenset[str] = frozenset()
    pattern: str = ""
    log: str = ""

    @property
    def wrapped(self) -> bool:
        """Whether the shim runs in front of the worker."""
        return bool(self.command)

    @property
    def shown_environment(self) -> dict[str, str | None]:
        """`environment` with the values of secrets masked."""
        return masked(self.environment, self.secret)

    @property
    def distinct_files(self) -> list[str]:
        """The expected files without repetition, because a file may hold several windows."""
        return list(dict.fromkeys(self.files.values()))

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON types, with secrets masked."""
        return {
            "group": self.worker.group,
            "rank": self.worker.rank,
            "node": self.worker.node,
            "profiled": self.profiled,
            "reason": self.reason,
            "windows": [
                attrs.asdict(window) | {"label": window.label} for window in self.worker.windows
            ],
            "command": list(self.command),
            "environment": self.shown_environment,
            "files": [{"window": number, "file": file} for number, file in self.files.items()],
            "file_pattern": self.pattern or None,
            "log": self.log or None,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return self.text(self.worker.name)

    def text(self, name: str, width: int | None = None, short: bool = False) -> str:
        """The row for people, wrapped to the screen except in long words.

        Args:
            width: the screen's width in characters; ``None`` means the terminal's.
            short: whether to leave out the notes, all files except the first, and the middle of a
                long list of windows.
        """
        state = "profiled" if self.profiled else "not profiled"
        lines = [("", f"{name}: {state}: {self.reason}")]
        if self.command:
            lines.append(("command", shlex.join(self.command)))
        lines += [
            ("environment", f"{variable}={value}" if value is not None else f"{variable} is unset")
            for variable, value in self.shown_environment.items()
        ]
        if self.profiled:
            labels = [window.label for window in self.worker.windows]
            if short and len(labels) > _FEW:
                labels = [*labels[: _FEW - 2], "…", f"{labels[-1]} ({len(labels)} windows)"]
            windows = ", ".join(labels) or "on gpuprof capture"
            rule = ", one window per outermost scope" if self.worker.discrete else ""
            lines.append(("windows", windows + rule))
        files = self.distinct_files
        if short and len(files) > 1:
            files = [f"{files[0]} and {len(files) - 1} more"]
        lines += [("file", file) for file in files]
        if self.pattern:
            name = os.path.basename(self.pattern) if short else self.pattern
            lines.append(("file", f"{name} for each scope"))
        lines += [("log", self.log)] if self.log else []
        lines += [("note", note) for note in self.notes if not short]
        return "\n".join(
            labelled(f"  {label:<12} " if label else "", text, width) for label, text in lines
        )
