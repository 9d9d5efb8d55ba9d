"""The values that pass through the hooks: frozen, and plain enough to travel as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from gpuprof.backend import naming

Windows = tuple["Window", ...]


@attrs.frozen
class Key:
    """What a tool itself understands, as a key inside one of its backend's options.

    Args:
        name: the key; several names of one thing with spaces between them.
        type: of its value, for people.
        help: what it does.
        where: what it belongs to, where not everything has it.
        since: the first release of the tool that has it; empty for all.
    """

    name: str
    type: str
    help: str
    where: str = ""
    since: str = ""


def option(text: str, *, keys: Sequence[Key] = (), **more: Any) -> Any:
    """A field of an attrs class of settings, with its help.

    Args:
        text: what the key does, for the docs and the command line.
        keys: if its value is a mapping, the keys that are known; ``gpuprof backends --options``
            lists them.
        more: what `attrs.field` takes, `default` or `factory` above all.
    """
    return attrs.field(metadata={"help": text, "keys": tuple(keys)}, **more)


@attrs.frozen
class Window:
    """A stretch of steps, or one scope, that is captured as one.

    Args:
        number: the position among the worker's windows, from 1.
        start: the first step, or ``None`` for the worker's whole life.
        stop: the step after the last one, or ``None`` for the worker's whole life.
        scope: the key of the scope that is the window, if it is discrete.
        occurrence: the how many-th window of that scope and step it is, from 1; 0 if it is not
            discrete.
    """

    number: int
    start: int | None
    stop: int | None
    scope: str | None = None
    occurrence: int = 0

    @property
    def label(self) -> str:
        """``step-3``, ``steps-3-5`` (the last step included) or ``lifetime``; a discrete one has
        its scope behind that.

        >>> Window(1, 3, 4).label, Window(1, 3, 6).label, Window(1, None, None).label, Window(2, 3, 4, "train", 1).label
        ('step-3', 'steps-3-5', 'lifetime', 'step-3 train 1')
        """
        scope = "" if self.scope is None else f" {self.scope} {self.occurrence}"
        if self.start is None or self.stop is None:
            return "lifetime" + scope
        return ("step-" if self.stop == self.start + 1 else "steps-") + self.step + scope

    @property
    def step(self) -> str:
        """``3``, or ``3-5`` (the last step included); ``lifetime`` without steps."""
        if self.start is None or self.stop is None:
            return "lifetime"
        return str(self.start) if self.stop == self.start + 1 else f"{self.start}-{self.stop - 1}"

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
        incarnation: which start of this worker on its node, from ``1``, or the placeholder
            ``{incarnation}``.
        directory: where its files go (of its run and node).
        windows: the planned capture windows; none if it is armed, and told later what to capture.
        has_gpu: whether it has a GPU of its own; ``False`` also where that is not known.
        discrete: whether scopes inside the planned windows are what is captured; how many there
            will be is not known.
        file_name: the template of its files' names; ``None`` for the default. See `final_stem`.
        pid: of its process, or the placeholder ``{pid}``.
    """

    run: str
    group: str
    rank: int
    node: str
    incarnation: str
    directory: str
    windows: Windows = ()
    has_gpu: bool = False
    discrete: bool = False
    file_name: str | None = None
    pid: str = "{pid}"

    @property
    def name(self) -> str:
        """``<group>-<rank>``."""
        return f"{self.group}-{self.rank}"

    @property
    def lifetime(self) -> bool:
        """Whether the whole life is one window."""
        return bool(self.windows) and self.windows[0].start is None

    @property
    def file_stem(self) -> str:
        """The beginning of every file of this start of the worker:
        ``<group>-<rank>.start-<incarnation>``.

        For files on the way; what stays is called `final_stem`.
        """
        return f"{self.name}.start-{self.incarnation}"

    def final_stem(self, window: Window) -> str:
        """The path of a window's file, without extension.

        The default template is ``{group}-{rank}.step-{step}``, ``{group}-{rank}.lifetime`` without
        steps, and for a discrete window ``.{label}-{occurrence}`` behind that.

        >>> worker = Worker("run", "A", 0, "n", "1", "/out")
        >>> worker.final_stem(Window(1, 3, 4)), worker.final_stem(Window(1, 3, 4, "a/b", 2))
        ('/out/A-0.step-3', '/out/A-0.step-3.a%2Fb-2')
        """
        template = self.file_name or "{group}-{rank}." + (
            "lifetime" if window.start is None else "step-{step}"
        )
        if window.scope is not None and "{label}" not in template:
            template += ".{label}-{occurrence}"
        values = {
            "group": self.group,
            "rank": str(self.rank),
            "worker": self.name,
            "step": window.step,
            "range": f"{window.start}:{window.stop}" if window.start is not None else "lifetime",
            "n": str(window.number),
            "pid": self.pid,
            "node": self.node,
            "incarnation": self.incarnation,
            "label": naming.slug(window.scope or ""),
            "occurrence": str(window.occurrence),
        }
        return f"{self.directory}/{naming.fill(template, values)}"


@attrs.frozen
class Command:
    """What would run without a profiler: ``[*interpreter, *arguments]``.

    Args:
        interpreter: the Python that the worker keeps; may hold the placeholder ``{interpreter}``.
        arguments: what follows. Empty where the launcher appends them later, as Ray does.
        script: whether it is a Python script; a tool that runs nothing else refuses the rest with
            `gpuprof.errors.ConfigError`.
        keep_exit_code: goes in front of a script whose exit code the tool would lose, because it
            runs it in a process of its own: ``[tool.path, "--", *command.keep_exit_code,
            *command.arguments]``. Others leave it out.
        python: whether `interpreter` is a Python, which takes ``-m`` and a module in front of the
            arguments. ``gpuprof run`` runs any program; a tool that needs a Python refuses the rest
            as above.
    """

    interpreter: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    script: bool = True
    keep_exit_code: tuple[str, ...] = attrs.field(default=(), repr=False)
    python: bool = True


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


@attrs.frozen
class RangeTimes:
    """What the ranges of one name took in one report.

    Args:
        name: as the user wrote it.
        durations: of each, in nanoseconds.
        device: nanoseconds that the GPU worked for the calls made inside, by kind: ``kernels``,
            ``copies``, ``memsets``, ``synchronization``. Empty where nothing of a GPU was recorded.
    """

    name: str
    durations: tuple[int, ...]
    device: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Check:
    """One thing that `gpuprof doctor` has tried.

    Args:
        name: what was tried, in a word or two.
        ok: whether it is as it must be.
        detail: what was found, in one line.
        remedy: what to do about it, where it is not.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
