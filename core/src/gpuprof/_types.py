"""The values that pass through the hooks: frozen, and plain enough to travel as JSON."""

from __future__ import annotations

from typing import Any

import attrs

Windows = tuple["Window", ...]


def option(text: str, **more: Any) -> Any:
    """A field of an attrs class of settings, with its help.

    Args:
        text: what the key does, for the docs and the command line.
        more: what `attrs.field` takes, `default` or `factory` above all.
    """
    return attrs.field(metadata={"help": text}, **more)


@attrs.frozen
class Window:
    """A stretch of steps that is captured as one.

    Args:
        number: the position among the worker's planned windows, from 1.
        start: the first step, or ``None`` for the worker's whole life.
        stop: the step after the last one, or ``None`` for the worker's whole life.
    """

    number: int
    start: int | None
    stop: int | None

    @property
    def label(self) -> str:
        """``step-3``, ``steps-3-5`` (the last step included) or ``lifetime``.

        >>> Window(1, 3, 4).label, Window(1, 3, 6).label, Window(1, None, None).label
        ('step-3', 'steps-3-5', 'lifetime')
        """
        if self.start is None or self.stop is None:
            return "lifetime"
        if self.stop == self.start + 1:
            return f"step-{self.start}"
        return f"steps-{self.start}-{self.stop - 1}"

    def __contains__(self, step: int) -> bool:
        return self.start is not None and self.stop is not None and self.start <= step < self.stop


@attrs.frozen
class Worker:
    """One rank of one worker group.

    Args:
        run: the run's id.
        group: the worker group's name, verbatim.
        rank: from 0.
        node: host name, or the placeholder ``{node}`` while it is not known.
        incarnation: which start of this worker on its node, from ``1``, or the placeholder ``{incarnation}``.
        directory: where its files go (of its run and node).
        windows: the planned capture windows.
        has_gpu: whether it has a GPU of its own; ``False`` also where that is not known.
    """

    run: str
    group: str
    rank: int
    node: str
    incarnation: str
    directory: str
    windows: Windows = ()
    has_gpu: bool = False

    @property
    def name(self) -> str:
        """``<group>-<rank>``."""
        return f"{self.group}-{self.rank}"

    @property
    def file_stem(self) -> str:
        """The beginning of every file of this start of the worker: ``<group>-<rank>.start-<incarnation>``."""
        return f"{self.name}.start-{self.incarnation}"


@attrs.frozen
class Command:
    """What would run without a profiler: ``[*interpreter, *arguments]``.

    Args:
        interpreter: the Python that the worker keeps; may hold the placeholder ``{interpreter}``.
        arguments: what follows. Empty where the launcher appends them later, as Ray does.
    """

    interpreter: tuple[str, ...]
    arguments: tuple[str, ...] = ()


@attrs.frozen
class Tool:
    """The profiler's program, as found on a node.

    Args:
        path: absolute, or the placeholder ``{tool}``.
        version: as the program says it, or ``None`` when it was not probed.
        features: whatever the backend wants to remember of it.
    """

    path: str
    version: str | None = None
    features: dict[str, Any] = attrs.field(factory=dict)
