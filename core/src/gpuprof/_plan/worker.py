"""One row of the plan."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import attrs

from gpuprof._config.secrets import masked
from gpuprof.backend.types import Worker


@attrs.frozen
class PlannedWorker:
    """One row of the plan.

    Args:
        worker: who; its node and incarnation are placeholders.
        profiled: whether capture windows are opened on it.
        reason: why it is profiled, or why not.
        command: the rendered argument vector, with placeholders; empty when nothing is put in front
            of the worker.
        environment: what is added to the worker's environment; ``None`` unsets.
        files: the file that each window, by number, is expected to leave.
        notes: what the user should know.
        verbatim: the variables of `environment` whose value is the user's, in which ``{node}`` is
            no placeholder.
        secret: the variables in `environment` whose values are neither shown nor written.
        pattern: the file of each scope that discrete captures, with placeholders; or empty.
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
        """Each file once: one may hold several windows."""
        return list(dict.fromkeys(self.files.values()))

    def to_dict(self) -> dict[str, Any]:
        """The row in types that JSON has. Secrets are masked."""
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
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.worker.name}: {'profiled' if self.profiled else 'not profiled'}: {self.reason}"
        ]
        if self.command:
            lines.append(f"  command      {shlex.join(self.command)}")
        lines += [
            f"  environment  {name}={value}"
            if value is not None
            else f"  environment  {name} is unset"
            for name, value in self.shown_environment.items()
        ]
        if self.profiled:
            windows = (
                ", ".join(window.label for window in self.worker.windows) or "on gpuprof capture"
            )
            lines.append(
                f"  windows      {windows}"
                + (", one window per outermost scope" if self.worker.discrete else "")
            )
        lines += [f"  file         {file}" for file in self.distinct_files]
        lines += [f"  file         {self.pattern}, for each scope"] if self.pattern else []
        lines += [f"  note         {note}" for note in self.notes]
        return "\n".join(lines)
