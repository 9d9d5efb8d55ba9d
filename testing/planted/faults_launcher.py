"""Faults of the wrapper's program, which takes the fault's name as an argument."""

from faults import fault

LAUNCHER = [
    (
        "process",
        "launcher-sigpipe-ignored",
        "`train.py | head` never ends: the job ignores SIGPIPE.",
    ),
    (
        "signals",
        "launcher-signals-stay-blocked",
        "The job starts with SIGTERM, SIGINT and SIGCHLD blocked and cannot be ended.",
    ),
    (
        "process",
        "launcher-new-session",
        "The job is in a session of its own: Ctrl-C and the terminal no longer reach it.",
    ),
    (
        "process",
        "launcher-new-process-group",
        "The job leaves its process group, so killpg of the launcher misses it.",
    ),
    ("process", "launcher-changes-directory", "The job runs in /tmp and does not find its data."),
    (
        "process",
        "launcher-umask",
        "All that the job writes, such as checkpoints, is private to its user.",
    ),
    ("process", "launcher-nice", "The job runs at a lower priority than all others."),
    ("process", "launcher-pins-one-core", "The job, with all data loaders, has a single core."),
    ("process", "launcher-lowers-open-files", "The job fails with 'Too many open files'."),
    ("process", "launcher-no-core-dumps", "A crash of the job leaves no core file."),
    ("streams", "launcher-closes-stdin", "The job reads nothing from its standard input."),
    (
        "streams",
        "launcher-stderr-into-stdout",
        "The job's errors are in its data: stderr goes to stdout.",
    ),
    ("streams", "launcher-swallows-stdout", "The job's output is gone."),
    (
        "streams",
        "launcher-stdin-fed-by-pipe",
        "The job waits forever for the end of its input, which nobody closes.",
    ),
    ("streams", "launcher-reads-stdin", "The first byte of the job's input is missing."),
    (
        "streams",
        "launcher-prints-banner",
        "The job's stdout, which is parsed, begins with a banner of the tool.",
    ),
    ("streams", "launcher-prints-summary", "The job's stderr ends with words of the tool."),
    (
        "process",
        "launcher-closes-inherited-descriptors",
        "A descriptor that the scheduler handed to the job, such as a jobserver's pipe, is closed.",
    ),
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
        "environment",
        "launcher-sets-pythonunbuffered",
        "The job's output is slow, as a variable of the tool's makes it unbuffered.",
    ),
    ("environment", "launcher-sets-locale", "The job fails at non-ASCII text since LC_ALL is C."),
    (
        "arguments",
        "launcher-through-shell",
        "Arguments with spaces, quotes or $ reach the job in pieces.",
    ),
    (
        "arguments",
        "launcher-drops-empty-arguments",
        "An empty argument (--tag '') is lost and the next takes its place.",
    ),
    (
        "arguments",
        "launcher-expands-wildcards",
        "A pattern meant for the job is expanded to file names.",
    ),
    (
        "arguments",
        "launcher-resolves-program",
        "The interpreter is resolved through its link, so the virtual environment is lost.",
    ),
    ("arguments", "launcher-eats-second-dashes", "The job's own -- is gone."),
    (
        "arguments",
        "launcher-arguments-ascii",
        "Arguments in other scripts reach the job as question marks.",
    ),
    ("arguments", "launcher-strips-arguments", "Blanks around an argument are gone."),
    ("arguments", "launcher-takes-verbose", "The job's own --verbose is taken by the tool."),
    (
        "signals",
        "launcher-swallows-sigterm",
        "The scheduler's SIGTERM has no effect; the job is killed after its grace time without a checkpoint.",
    ),
    (
        "signals",
        "launcher-swallows-sigint",
        "A SIGINT sent to the process does not interrupt the job.",
    ),
    (
        "signals",
        "launcher-swallows-sigusr1",
        "The signal that asks for a checkpoint (SIGUSR1) does not arrive.",
    ),
    (
        "signals",
        "launcher-sigterm-becomes-sigkill",
        "The job is killed at once where it was asked to end.",
    ),
    (
        "signals",
        "launcher-sigint-becomes-sigterm",
        "Ctrl-C's KeyboardInterrupt never comes: the job sees SIGTERM instead.",
    ),
    (
        "signals",
        "launcher-sighup-becomes-sigterm",
        "A job that reloads its settings at SIGHUP is ended.",
    ),
    (
        "signals",
        "launcher-dies-before-program",
        "After SIGTERM the wrapper is gone while the job still writes its checkpoint, as an orphan.",
    ),
    (
        "signals",
        "launcher-kills-after-grace",
        "The job has half a second to end after SIGTERM, too short for its checkpoint.",
    ),
    ("exit", "launcher-always-zero", "A failed job is reported as a success."),
    ("exit", "launcher-crash-is-success", "A job that crashed by a signal ends with 0."),
    (
        "exit",
        "launcher-signal-is-exit-one",
        "A SIGSEGV looks like an exception: the code is 1, not a signal.",
    ),
    (
        "exit",
        "launcher-signal-becomes-128-plus",
        "The parent sees exit code 139 instead of death by signal 11.",
    ),
    (
        "exit",
        "launcher-sigterm-is-success",
        "A preempted job counts as finished: ended by SIGTERM gives 0.",
    ),
    (
        "exit",
        "launcher-nonzero-is-one",
        "The scheduler's special exit codes, such as 75 for 'again', all become 1.",
    ),
    ("exit", "launcher-high-codes-lost", "Exit codes above 127 become 0."),
    (
        "exit",
        "launcher-detaches",
        "The command ends at once with 0 while the job still runs in the background.",
    ),
    ("process", "launcher-kills-descendants", "A server that the job has left running is killed."),
    (
        "process",
        "launcher-waits-for-grandchildren",
        "The command does not end as long as a daemon of the job lives.",
    ),
    ("slow", "launcher-hangs-at-end", "The command hangs for 20 s after the job has ended."),
    ("slow", "launcher-slow-start", "Every worker starts 4 s later."),
    ("process", "launcher-runs-program-twice", "The job runs twice: once to warm up."),
    (
        "leftovers",
        "launcher-leaves-daemon",
        "A process of the tool stays behind and holds the job's output open.",
    ),
    (
        "files",
        "launcher-exit-leaves-part",
        "A job that ends while it is recorded leaves an unfinished file and no report.",
    ),
    ("files", "launcher-crash-discards", "What was recorded until a crash is thrown away."),
    ("windows", "launcher-second-window-refused", "Only the first window leaves a file."),
    (
        "nothing-recorded",
        "launcher-samples-itself",
        "The samples are of the wrapper, not of the job.",
    ),
    (
        "nothing-recorded",
        "launcher-lifetime-starts-late",
        "The first 5 s of a whole-life capture are missing; a short job leaves nothing.",
    ),
    (
        "ranks",
        "launcher-socket-shared-by-all",
        "With two ranks on a node, one of them is recorded into the other's file or not at all.",
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
