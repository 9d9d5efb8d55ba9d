"""For gpuprof's instruments, which put scopes around functions of other people's libraries."""

from __future__ import annotations

from gpuprof_timing import _torch
from gpuprof_timing._cursor import IN_LOOP, fixed_cursor
from gpuprof_timing._decorate import Arguments, decorate
from gpuprof_timing._linked import (
    NOT_RANDOM,
    KeyOf,
    LinkedScope,
    call_linked,
    follow,
    key_of_call,
    link_calls,
    make_linked,
)
from gpuprof_timing._range_slot import belongs_to_job
from gpuprof_timing._recording import Recording
from gpuprof_timing._scope import Scope
from gpuprof_timing._spans import Key, Released

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuprof_timing._timing import Timing

__all__ = [
    "IN_LOOP",
    "NOT_RANDOM",
    "Arguments",
    "Key",
    "KeyOf",
    "LinkedScope",
    "Recording",
    "Released",
    "Scope",
    "belongs_to_job",
    "call_linked",
    "decorate",
    "fixed_cursor",
    "follow",
    "is_compiling",
    "key_of_call",
    "link_calls",
    "make_linked",
    "recording_of",
]


def is_compiling() -> bool:
    """Whether torch is tracing the current code, which must then contain no scope."""
    return _torch.is_compiling()


def recording_of(timing: Timing) -> Recording:
    """The tree that a timing's scopes write to.

    A function, because a public attribute of a `Timing` is a key of the tree.
    """
    return timing._recording
