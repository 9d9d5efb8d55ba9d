"""Why a report is not complete, or holds more than its window: a sentence for each reason."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Why a row of the receipt is as it is.

    The value is the sentence. A ``{detail}`` in it is filled in; otherwise the detail follows it.
    """

    NONE = ""
    WHOLE_PROCESS = "one file for the whole process"
    STILL_WRITING = "the profiler was still writing"
    NOT_WRITTEN_YET = "the profiler has not written it yet"
    STILL_RUNS = "the worker still runs"
    NO_FILE_EXPECTED = "these options leave no file of this window: see the notes of gpuprof plan"
    LEFT_NO_FILE = "the profiler left no file"
    ENDED_WHILE_OPEN = "the worker ended while the window was open"
    NEVER_STARTED = "the worker never started"
    NEVER_BEGAN = "the worker never started behind the profiler"
    NEVER_OPENED = "the window was never opened"
    NEVER_USED = "the worker never used gpuprof, so no window was opened"
    NO_SCOPE = "no scope was captured"
    UNRECORDED = "the worker's record of it could not be written"
    NOT_BEHIND_PROFILER = (
        "the worker was not started behind the profiler: something else replaced its command, "
        "such as a profiler of its runtime_env, or Ray's Python on its node lacks gpuprof"
    )
    UNWRAPPED = "the worker ran without the profiler: {detail}"
    FAILED = "{detail}"
    NODE_DIED = "its node {detail} has died"

    def text(self, detail: str = "") -> str:
        """What people read.

        >>> Reason.NODE_DIED.text("n1")
        'its node n1 has died'
        >>> Reason.NEVER_OPENED.text("its last step was 2")
        'the window was never opened; its last step was 2'
        """
        if "{detail}" in self.value:
            return self.value.format(detail=detail)
        return "; ".join(part for part in (self.value, detail) if part)
