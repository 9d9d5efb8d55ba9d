"""Reasons why a report is missing, incomplete, or larger than its window."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Why a row of the receipt is not complete.

    The value is a sentence. A detail fills the sentence's ``{detail}``, or follows the sentence.
    """

    NONE = ""
    WHOLE_PROCESS = "one file for the whole process"
    DAMAGED = "the report cannot be read: {detail}"
    STILL_WRITING = "the profiler was still writing"
    NOT_WRITTEN_YET = "the profiler has not written it yet"
    STILL_RUNS = "the worker is still running"
    NO_FILE_EXPECTED = (
        "the profiler options write no file for this window; see the notes of gpuprof plan"
    )
    LEFT_NO_FILE = "the profiler left no file"
    LEFT_EMPTY_FILE = "the profiler left an empty file"
    ENDED_WHILE_OPEN = "the worker ended while the window was open"
    NEVER_STARTED = "the worker never started"
    NEVER_BEGAN = "the profiler never started the worker"
    NEVER_OPENED = "the window was never opened"
    NEVER_USED = "the worker never used gpuprof, so no window was opened"
    NO_SCOPE = "no scope was captured"
    LIMIT_REACHED = "further scopes were not captured"
    UNRECORDED = "the window's record could not be written"
    NOT_BEHIND_PROFILER = (
        "no record that the worker started behind the profiler: another tool replaced its command "
        "(such as a profiler in its runtime_env), or Ray's Python on its node lacks gpuprof"
    )
    RUN_DELETED = "the run's directory on its node was deleted while the worker ran"
    UNWRAPPED = "the worker ran without the profiler: {detail}"
    FAILED = "{detail}"
    NODE_DIED = "its node {detail} has died"

    def text(self, detail: str = "") -> str:
        """The sentence with its detail.

        >>> Reason.NODE_DIED.text("n1")
        'its node n1 has died'
        >>> Reason.NEVER_OPENED.text("its last step was 2")
        'the window was never opened; its last step was 2'
        """
        if "{detail}" in self.value:
            return self.value.format(detail=detail)
        return "; ".join(part for part in (self.value, detail) if part)
