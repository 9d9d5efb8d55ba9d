"""The hooks' arguments and results: frozen, and simple enough for JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs
from attrs.validators import deep_iterable, deep_mapping, instance_of
from attrs.validators import optional as or_none

from gpuprof.backend import naming

Windows = tuple["Window", ...]
Purpose = Literal["plan", "start", "doctor"]
"""What `diagnose` is asked for."""

_is_text = instance_of(str)


def _integers(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


def _texts(values: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"{values!r} is a string; expected a list of strings")
    return tuple(os.fspath(value) for value in values)


def _all_integers(_: object, field: attrs.Attribute[Any], values: tuple[int, ...]) -> None:
    # checks types, not values one by one: a report can have millions of durations
    for kind in set(map(type, values)):
        if not issubclass(kind, int):
            raise TypeError(f"{field.name} has a {kind.__name__}; expected integers")


@attrs.frozen
class Key:
    """An option of the tool itself, as a key inside one of the backend's options.

    Args:
        name: the key; aliases are separated by spaces.
        type: the type of its value, for people to read.
        help: what it does.
        where: the part of the tool that has it, if not every part does.
        since: the first release of the tool that has it; empty for all.
    """

    name: str
    type: str
    help: str
    where: str = ""
    since: str = ""


def option(
    text: str,
    *,
    keys: Sequence[Key] = (),
    program: bool = False,
    known: Sequence[str] = (),
    formerly: Sequence[str] = (),
    **more: Any,
) -> Any:
    """A field of an attrs class of settings, with its help.

    Args:
        text: what the key does, for the docs and the command line.
        keys: the known keys, if its value is a mapping; ``gpuprof backends --options`` lists them.
        program: whether its value names a program. Such a value is never taken from a run's files,
            which may be anybody's, but from the configuration of the user who reads them.
        known: of `env`, the user's variables for workers: how the names of the tool's own begin.
            The values of all others are masked where gpuprof writes or prints them.
        formerly: its names in older releases: read with a warning. Not inside nested options.
        more: arguments of `attrs.field`, such as `default` or `factory`.
    """
    metadata = {
        "help": text,
        "keys": tuple(keys),
        "program": program,
        "known": tuple(known),
        "formerly": tuple(formerly),
    }
    return attrs.field(metadata=metadata, **more)


@attrs.frozen
class Window:
    """A capture window: consecutive steps, the worker's whole life, or one scope.

    Args:
        number: its position among the worker's windows, from 1.
        start: the first step, or ``None`` for the worker's whole life.
        stop: the step after the last one, or ``None`` for the worker's whole life.
        scope: the key of the scope, for a discrete window.
        occurrence: which occurrence of the scope in this step, from 1; 0 if not discrete.
    """

    number: int
    start: int | None
    stop: int | None
    scope: str | None = None
    occurrence: int = 0

    @property
    def label(self) -> str:
        """``step-3``, ``steps-3-5`` (the last step included) or ``lifetime``, for people.

        A discrete window's label ends with its scope, which may hold any character. `final_stem` of
        the worker is for file names.

        >>> Window(1, 3, 4).label, Window(1, 3, 6).label, Window(1, None, None).label
        ('step-3', 'steps-3-5', 'lifetime')
        >>> Window(2, 3, 4, "train", 1).label
        'step-3 train 1'
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
        rank: its rank in the group, from 0.
        node: its host name, or the placeholder ``{node}`` until known.
        incarnation: which start of this worker on its node, from ``1``, or the placeholder
            ``{incarnation}``.
        directory: the directory of its files, for its run and node.
        windows: the planned capture windows; empty for an armed worker, which gets them later.
        has_gpu: whether it has a GPU of its own; ``False`` also if unknown.
        discrete: whether each scope inside the planned windows is a window of its own.
        file_name: the template of its files' names; ``None`` for the default. See `final_stem`.
        pid: its process id; the placeholder ``{pid}`` while planning. In `collect_files` it is
            ``0`` if the worker never used gpuprof and the launcher did not learn its id.
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
        """Whether its whole life is one window."""
        return bool(self.windows) and self.windows[0].start is None

    @property
    def file_stem(self) -> str:
        """``<group>-<rank>.start-<incarnation>``: how intermediate file names of this start begin.

        Files that stay are named by `final_stem`.
        """
        return f"{self.name}.start-{self.incarnation}"

    @property
    def log_file(self) -> str:
        """Where the profiler's own output goes, beside the reports.

        The shim makes it. A backend that runs other commands of its tool may append their output.
        """
        return f"{self.directory}/{self.file_stem}.log"

    def final_stem(self, window: Window | None = None) -> str:
        """The path of a window's file without extension; without a window, that of the whole life.

        The default template is ``{group}-{rank}.step-{step}``, or ``{group}-{rank}.lifetime``
        without steps. A discrete window's name ends with ``.{label}-{occurrence}``, unless its
        template has ``{label}`` or ``{n}``.

        >>> worker = Worker("run", "A", 0, "n", "1", "/out")
        >>> worker.final_stem(Window(1, 3, 4)), worker.final_stem(Window(1, 3, 4, "a/b", 2))
        ('/out/A-0.step-3', '/out/A-0.step-3.a%2Fb-2')
        >>> worker.final_stem()
        '/out/A-0.lifetime'
        """
        window = window or Window(1, None, None)
        values = {
            "step": window.step,
            "range": f"{window.start}:{window.stop}" if window.start is not None else "lifetime",
            "n": str(window.number),
            "label": naming.slug(window.scope or ""),
            "occurrence": str(window.occurrence),
        }
        return self._filled(window.start is None, window.scope is not None, values)

    def discrete_stem(self) -> str:
        """Like `final_stem` for discrete windows, with placeholders for scope and occurrence.

        >>> Worker("run", "A", 0, "n", "1", "/out").discrete_stem()
        '/out/A-0.step-{step}.{label}-{occurrence}'
        """
        return self._filled(self.lifetime, True, {})

    def _filled(self, lifetime: bool, discrete: bool, values: Mapping[str, str]) -> str:
        template = self.file_name or "{group}-{rank}." + ("lifetime" if lifetime else "step-{step}")
        if discrete and "{label}" not in template and "{n}" not in template:
            template += ".{label}-{occurrence}"
        own = {
            "group": self.group,
            "rank": str(self.rank),
            "worker": self.name,
            "pid": self.pid,
            "node": self.node,
            "incarnation": self.incarnation,
        }
        return f"{self.directory}/{naming.fill(template, {**own, **values})}"


@attrs.frozen
class Command:
    """The worker's command line without a profiler: ``[*interpreter, *arguments]``.

    Args:
        interpreter: the worker's Python; may contain the placeholder ``{interpreter}``.
        arguments: its arguments. Empty where the launcher appends them later, as Ray does.
        script: whether it is a Python script. A tool that runs only scripts refuses anything else
            with `gpuprof.errors.ConfigError`.
        keep_exit_code: a wrapper for tools that run the script in a process of their own and lose
            its exit code: ``[tool.path, "--", *command.keep_exit_code, *command.arguments]``. Other
            tools leave it out. Empty if the command is no script; such a tool refuses it.
        python: whether `interpreter` is a Python, which takes ``-m`` and a module in front of the
            arguments. ``gpuprof run`` runs any program; a tool that needs a Python refuses others
            with `gpuprof.errors.ConfigError`.
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
        path: its absolute path, or the placeholder ``{tool}``.
        version: its own version string, or ``None`` if not probed.
        features: any details that the backend needs later.
        shared_temporary: the folders that all of its processes on a machine must share, such as
            those of locks. Each worker's tool gets a temporary directory of its own; in it, these
            folders become links into the system's temporary directory.
        disposable_temporary: wildcards for files in its temporary directory that hold no recorded
            data. A killed worker's directory is kept while it has any other non-empty file.
    """

    path: str = attrs.field(converter=os.fspath, validator=_is_text)
    version: str | None = attrs.field(default=None, validator=or_none(_is_text))
    features: dict[str, Any] = attrs.field(factory=dict, validator=instance_of(dict))
    shared_temporary: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    disposable_temporary: tuple[str, ...] = attrs.field(default=(), converter=_texts)


@attrs.frozen
class RangeTimes:
    """The durations of one name's ranges in one report, at one place of their nesting.

    Args:
        name: the range's name, as the user wrote it.
        durations: the duration of each range, in nanoseconds.
        device: nanoseconds of GPU work for the calls inside the ranges, by kind: ``kernels``,
            ``copies``, ``memsets``, ``graphs``, ``synchronization``. Empty if there was none.
        parents: the names of the ranges around these, the outermost first.
    """

    name: str = attrs.field(validator=_is_text)
    durations: tuple[int, ...] = attrs.field(converter=_integers, validator=_all_integers)
    device: Mapping[str, int] = attrs.field(
        factory=dict, validator=deep_mapping(_is_text, instance_of(int), instance_of(dict))
    )
    parents: tuple[str, ...] = attrs.field(
        default=(), validator=deep_iterable(_is_text, instance_of(tuple))
    )


@attrs.frozen
class RecordedTrack:
    """A profiler's record of one thread or one GPU stream.

    Args:
        kind: ``ranges`` for gpuprof's ranges; else its usual name, such as ``kernels``.
        spans: the name, start and end of each. Times are nanoseconds since the epoch, by the wall
            clock of the node.
        process: the process id; 0 if unknown.
        thread: the system's thread id; 0 if there is none.
        name: the thread's name, if known; for a GPU, such as ``GPU 0, stream 7``.
    """

    kind: str = attrs.field(validator=_is_text)
    spans: Sequence[tuple[str, int, int]] = attrs.field(validator=instance_of((list, tuple)))
    process: int = attrs.field(default=0, validator=instance_of(int))
    thread: int = attrs.field(default=0, validator=instance_of(int))
    name: str = attrs.field(default="", validator=_is_text)


@attrs.frozen
class Collected:
    """The result of `collect_files`.

    Args:
        files: the files that have got their final names, by the window's number.
        problem: what could not be saved, and why; empty if all was.
    """

    files: Mapping[int, list[str]] = attrs.field(factory=dict)
    problem: str = attrs.field(default="", validator=_is_text)


@attrs.frozen
class Check:
    """The result of one check of `diagnose`.

    Args:
        name: the check's name, one or two words.
        ok: whether it passed.
        detail: the finding, in one line.
        remedy: what to do if it failed. A check that passed with a remedy is a warning.
        key: before a start: the option to blame, below the backend's section; empty if none is.
    """

    name: str = attrs.field(validator=_is_text)
    ok: bool = attrs.field(validator=instance_of(bool))
    detail: str = attrs.field(validator=_is_text)
    remedy: str = attrs.field(default="", validator=_is_text)
    key: str = attrs.field(default="", validator=_is_text)

    @property
    def result(self) -> str:
        """``ok``, ``warning`` or ``FAILED``."""
        return "FAILED" if not self.ok else "warning" if self.remedy else "ok"
