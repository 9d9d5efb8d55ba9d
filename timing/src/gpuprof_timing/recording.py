"""For gpuprof's recorder: spans, trees and their parts, and the variables that switch timing.

Like `instrument`, it changes with gpuprof, and is no promise to anybody else.
"""

from gpuprof_timing._at_exit import at_interpreter_end
from gpuprof_timing._compiled import PURE_VARIABLE
from gpuprof_timing._node import Node, integer, walk
from gpuprof_timing._parts import Parts
from gpuprof_timing._reading import DeviceReading
from gpuprof_timing._spans import ROLES, Folded, Linked, Released, SpanLog, Track, roots, task_track
from gpuprof_timing._stacks import CAN_SAMPLE, Alarm, open_nodes, stacks, task_tracks
from gpuprof_timing._timing import TIMING_VARIABLE

__all__ = [
    "CAN_SAMPLE",
    "PURE_VARIABLE",
    "ROLES",
    "TIMING_VARIABLE",
    "Alarm",
    "DeviceReading",
    "Folded",
    "Linked",
    "Node",
    "Parts",
    "Released",
    "SpanLog",
    "Track",
    "at_interpreter_end",
    "integer",
    "open_nodes",
    "roots",
    "stacks",
    "task_track",
    "task_tracks",
    "walk",
]
