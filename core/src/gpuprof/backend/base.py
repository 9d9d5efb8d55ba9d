"""A base class with which type checkers and editors know a backend's hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from os import PathLike

    from gpuprof.backend.types import Check, Collected, RangeTimes, RecordedTrack, Tool

    Path = str | PathLike[str]

OptionsType = TypeVar("OptionsType")


@attrs.frozen
class NoOptions:
    """The options of a backend that declares none."""


class Backend(Generic[OptionsType]):
    """A typed base class for backends. Deriving from it is optional.

    It types the result of each hook and implements none: a backend has the hooks that it marks.
    Arguments have no types here, because a hook takes only those that it needs.

    >>> from gpuprof.backend import hookimpl
    >>> class Tracer(Backend):
    ...     @hookimpl
    ...     def inject_env(self, worker):
    ...         return {"TRACER_FILE": f"{worker.directory}/{worker.file_stem}.trace"}
    >>> Tracer(Tracer.Options()).options
    NoOptions()
    """

    Options: ClassVar[type] = NoOptions

    def __init__(self, options: OptionsType) -> None:
        self.options = options

    if TYPE_CHECKING:
        contract: int | tuple[int, int]
        start_in_thread: bool
        exclusive: Sequence[str]
        render_command: Callable[..., Sequence[Path] | None]
        inject_env: Callable[..., Mapping[str, Path | None] | None]
        start_capture: Callable[..., None]
        stop_capture: Callable[..., Sequence[Path] | None]
        open_range: Callable[..., AbstractContextManager[object] | None]
        probe: Callable[..., Tool | None]
        missing_tool: Callable[..., str | None]
        diagnose: Callable[..., Sequence[Check] | None]
        plan_notes: Callable[..., Sequence[str] | None]
        expected_files: Callable[..., Mapping[int, Path] | None]
        collect_files: Callable[..., Collected | None]
        check_report: Callable[..., str | None]
        read_ranges: Callable[..., Sequence[RangeTimes] | None]
        read_spans: Callable[..., Sequence[RecordedTrack] | None]
