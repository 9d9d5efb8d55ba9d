"""Faults of the wrapper's program, which takes the fault's name as an argument."""

from faults import fault

LAUNCHER = [
    (
        "signals",
        "launcher-signals-stay-blocked",
        "The job starts with SIGTERM, SIGINT and SIGCHLD blocked and cannot be ended.",
    ),
    ("process", "launcher-nice", "The job runs at a lower priority than all others."),
    ("streams", "launcher-closes-stdin", "The job reads nothing from its standard input."),
    (
        "leftovers",
        "launcher-leaks-descriptor",
        "The job and all of its children have a strange descriptor open.",
    ),
    (
        "environment",
        "launcher-resets-environment",
        "The job misses its variables, such as MASTER_ADDR.",
    ),
    (
        "arguments",
        "launcher-through-shell",
        "Arguments with spaces, quotes or $ reach the job in pieces.",
    ),
    ("exit", "launcher-always-zero", "A failed job is reported as a success."),
    (
        "files",
        "launcher-exit-leaves-part",
        "A job that ends while it is recorded leaves an unfinished file and no report.",
    ),
    ("windows", "launcher-second-window-refused", "Only the first window leaves a file."),
    (
        "nothing-recorded",
        "launcher-lifetime-starts-late",
        "The first 5 s of a whole-life capture are missing; a short job leaves nothing.",
    ),
]


def enter(name):
    def make(Base):
        class Faulty(Base):
            fault = name

        return Faulty

    return make


for theme, name, harm in LAUNCHER:
    fault(name, "wrapper", theme, harm)(enter(name))
