"""Faults of the wrapping backend's hooks."""

import getpass
import os
import shlex
import subprocess
import sys
import uuid

import attrs
from backends.wrapper import EXTENSION, LAUNCHER, Range, WrapperOptions
from faults import fault
from gpuprof.backend import Check, Tool, hookimpl, move, option
from gpuprof.errors import ConfigError


def wrapper(name, theme, harm):
    return fault(name, "wrapper", theme, harm)


def rendering(name, theme, harm):
    """A fault in the command: `function(correct words, self, worker, command, tool)`."""

    def enter(function):
        def make(Base):
            class Faulty(Base):
                @hookimpl
                def render_command(self, worker, command, tool):
                    words = Base.render_command(self, worker, command, tool)
                    return function(words, self, worker, command, tool)

            return Faulty

        wrapper(name, theme, harm)(make)
        return function

    return enter


def front(words):
    return words[: words.index("--") + 1]


# ---- the command


@rendering(
    "command-drops-interpreter-flags",
    "command",
    "python -X utf8 -W error train.py loses its flags.",
)
def _(words, self, worker, command, tool):
    return [*front(words), *command.interpreter[:1], *command.arguments]


@rendering(
    "command-own-interpreter",
    "command",
    "The job runs with the planner's Python instead of its own.",
)
def _(words, self, worker, command, tool):
    if not command.python:
        return words
    return [*front(words), sys.executable, *command.interpreter[1:], *command.arguments]


@rendering(
    "command-plain-python", "command", "The job runs with whichever python is first on PATH."
)
def _(words, self, worker, command, tool):
    return (
        [*front(words), "python3", *command.interpreter[1:], *command.arguments]
        if command.python
        else words
    )


@rendering(
    "command-drops-arguments", "command", "The job runs without its arguments after the first."
)
def _(words, self, worker, command, tool):
    return [*front(words), *command.interpreter, *command.arguments[:1]]


@rendering(
    "command-arguments-not-last",
    "command",
    "Ray's own arguments, appended at the end, reach the tool instead of the worker.",
)
def _(words, self, worker, command, tool):
    return [*words, "--label", worker.name]


@rendering("command-quoted-for-shell", "command", "Arguments with spaces reach the job in quotes.")
def _(words, self, worker, command, tool):
    return [*front(words), *command.interpreter, *map(shlex.quote, command.arguments)]


@rendering(
    "command-as-one-word",
    "command",
    "The worker does not start: program and arguments are one word.",
)
def _(words, self, worker, command, tool):
    return [*front(words), shlex.join([*command.interpreter, *command.arguments])]


@rendering("command-is-text", "types", "Planning fails: a string instead of a list.")
def _(words, self, worker, command, tool):
    return shlex.join(words)


@rendering(
    "command-without-dashes",
    "command",
    "The tool takes the job's program for an option of its own, and nothing starts.",
)
def _(words, self, worker, command, tool):
    return [word for place, word in enumerate(words) if place != words.index("--")]


@rendering("command-numbers", "types", "Planning fails: an option's value is a number.")
def _(words, self, worker, command, tool):
    return [words[0], words[1], self._options.interval, *words[3:]]


@rendering(
    "command-unbuffers-python",
    "command",
    "A flag that the user did not give (-u) slows the job's output.",
)
def _(words, self, worker, command, tool):
    return [
        *front(words),
        *command.interpreter,
        *(["-u"] if command.python else []),
        *command.arguments,
    ]


@rendering(
    "command-isolates-python",
    "command",
    "The job does not find its modules: -I was put into its command.",
)
def _(words, self, worker, command, tool):
    return [
        *front(words),
        *command.interpreter,
        *(["-I"] if command.python else []),
        *command.arguments,
    ]


@rendering(
    "command-needless-keep-exit-code",
    "command",
    "A script that is killed ends with 70: a wrapper that this tool does not need.",
)
def _(words, self, worker, command, tool):
    return [*front(words), *command.interpreter, *command.keep_exit_code, *command.arguments]


@rendering(
    "command-refuses-modules",
    "command",
    "python -m and -c are refused though the tool runs everything.",
)
def _(words, self, worker, command, tool):
    if not command.script:
        raise ConfigError(["backend: wrapper runs scripts only"])
    return words


@rendering(
    "command-refuses-programs",
    "command",
    "Programs that are not Python are refused though the tool runs everything.",
)
def _(words, self, worker, command, tool):
    if not command.python:
        raise ConfigError(["backend: wrapper runs Python only"])
    return words


@rendering(
    "command-puts-m-before-program",
    "command",
    "Programs that are not Python get -m as their first argument and fail.",
)
def _(words, self, worker, command, tool):
    return [
        *front(words),
        *command.interpreter,
        *(["-m", "runpy"] if not command.python else []),
        *command.arguments,
    ]


@rendering(
    "command-path-of-planner",
    "command",
    "On nodes with another layout the worker does not start: the planner's path instead of {tool}.",
)
def _(words, self, worker, command, tool):
    return [LAUNCHER, *words[1:]]


@rendering(
    "command-needs-version",
    "pure",
    "Planning fails where the tool is not installed, as its version is unknown.",
)
def _(words, self, worker, command, tool):
    return words if int(tool.version.split(".")[0]) > 1 else None


@rendering("command-random", "pure", "Plan and run differ: each call makes an id.")
def _(words, self, worker, command, tool):
    return [words[0], "--label", str(uuid.uuid4()), *words[1:]]


@rendering(
    "command-counts",
    "pure",
    "The second rank that is planned gets another command: the instance counts its calls.",
)
def _(words, self, worker, command, tool):
    self.count = getattr(self, "count", 0) + 1
    return [words[0], "--interval", str(self._options.interval + self.count), *words[3:]]


@rendering(
    "command-has-user",
    "pure",
    "The plan depends on who makes it: the planner's USER is in the command.",
)
def _(words, self, worker, command, tool):
    return [
        words[0],
        "--label",
        f"by {os.environ.get('USER') or getpass.getuser()} {os.environ.get('SHELL', '')}",
        *words[1:],
    ]


@rendering("command-has-cwd", "pure", "The plan depends on the directory in which it is made.")
def _(words, self, worker, command, tool):
    return [words[0], "--label", f"planned in {os.getcwd()}", *words[1:]]


@rendering(
    "command-writes-config",
    "pure",
    "`gpuprof plan` writes a file, which the worker's node then lacks.",
)
def _(words, self, worker, command, tool):
    path = f"/tmp/wrapper-{worker.name}.ini"
    with open(path, "w") as file:
        file.write(f"interval={self._options.interval}\n")
    return words


@rendering(
    "command-starts-tool",
    "pure",
    "`gpuprof plan` takes seconds and needs the tool: it is started for its version.",
)
def _(words, self, worker, command, tool):
    subprocess.run([LAUNCHER, "--version"], stdout=subprocess.DEVNULL, check=True)
    return words


@rendering(
    "command-prints", "prints", "`gpuprof plan --json` is no JSON: the hook prints the command."
)
def _(words, self, worker, command, tool):
    print("wrapper:", *words)
    return words


@rendering(
    "command-through-sh", "command", "A shell stands between: SIGTERM ends it and not the job."
)
def _(words, self, worker, command, tool):
    return ["/bin/sh", "-c", '"$@"; exit $?', "sh", *words]


@rendering(
    "command-timeout",
    "command",
    "Jobs longer than an hour are killed by the timeout that was put around them.",
)
def _(words, self, worker, command, tool):
    return ["/usr/bin/timeout", "3600", *words]


@rendering(
    "command-unset-variables",
    "environment",
    "The job misses variables that the command unsets: VIRTUAL_ENV, LD_LIBRARY_PATH, PYTHONPATH.",
)
def _(words, self, worker, command, tool):
    return [
        "/usr/bin/env",
        "-u",
        "VIRTUAL_ENV",
        "-u",
        "LD_LIBRARY_PATH",
        "-u",
        "PYTHONPATH",
        *words,
    ]


@wrapper(
    "lifetime-needs-gpuprof",
    "nothing-recorded",
    "A worker that never imports gpuprof is not recorded although its whole life was asked for.",
)
def _(Base):
    class Faulty(Base):
        def flags(self, worker):
            flags = Base.flags(self, worker)
            if "--lifetime" in flags:
                place = flags.index("--lifetime")
                del flags[place : place + 2]
            return flags

        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, window)
            if window.start is None and self._connection is not None:
                self._connection.ask({"start": self._raw(worker, window)})

    return Faulty


@wrapper(
    "raw-file-with-underscores",
    "files",
    "With a space in the output directory nothing is recorded: the raw file would go into a directory that is not there.",
)
def _(Base):
    class Faulty(Base):
        def _raw(self, worker, window):
            return Base._raw(self, worker, window).replace(" ", "_")

    return Faulty


@wrapper("raw-file-shared-by-ranks", "ranks", "Ranks on one node record into one file.")
def _(Base):
    class Faulty(Base):
        def _raw(self, worker, window):
            return f"{worker.directory}/wrapper.window-{window.number}.raw"

    return Faulty


@wrapper(
    "raw-file-without-window",
    "windows",
    "A crash in the second window leaves its report under the name of the first.",
)
def _(Base):
    class Faulty(Base):
        def _raw(self, worker, window):
            return f"{worker.directory}/{worker.file_stem}.raw"

    return Faulty


@wrapper(
    "always-whole-life",
    "windows",
    "Steps are asked for and the whole life is recorded; the windows are refused as 'recording already'.",
)
def _(Base):
    class Faulty(Base):
        def flags(self, worker):
            flags = Base.flags(self, worker)
            if worker.windows and "--lifetime" not in flags:
                flags += ["--lifetime", self._raw(worker, worker.windows[0])]
            return flags

    return Faulty


# ---- in the worker


@wrapper(
    "start-opens-nothing",
    "nothing-recorded",
    "start_capture connects and forgets to say 'start': reports have neither samples nor ranges, or are missing.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, attrs.evolve(window, start=None, stop=None))

    return Faulty


@wrapper(
    "connection-not-closed",
    "leftovers",
    "Each window leaves a connection, until the job's descriptors run out.",
)
def _(Base):
    class Faulty(Base):
        kept = []

        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, window)
            if self._connection is not None:
                self.kept.append(self._connection.socket.dup())

    return Faulty


@wrapper(
    "connection-inherited",
    "leftovers",
    "Programs that the job starts in a window inherit the tool's connection and record into its file.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, window)
            if self._connection is not None:
                os.set_inheritable(self._connection.socket.fileno(), True)

    return Faulty


@wrapper(
    "stop-promises-missing-file",
    "files",
    "The receipt names a report that is not there: stop hides the tool's failure.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self, worker, window):
            try:
                found = Base.stop_capture(self, worker, window)
            except Exception:
                found = None
            return found or [worker.final_stem(window) + EXTENSION]

    return Faulty


@wrapper(
    "stop-breaks-connection-first",
    "files",
    "The last window's file is unfinished until the job ends: stop closes the line without a word.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self, worker, window):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    return Faulty


@wrapper(
    "ranges-need-open-connection",
    "ranges",
    "A range that ends after its window raises AttributeError into the job.",
)
def _(Base):
    class Late(Range):
        def __exit__(self, *error):
            self.connection.socket.fileno()
            return super().__exit__(*error)

    class Faulty(Base):
        @hookimpl
        def open_range(self, name):
            connection = self._connection
            return Late(connection, name) if connection is not None else Base.open_range(self, name)

    return Faulty


@wrapper(
    "ranges-not-sent", "nothing-recorded", "The report has samples and none of the job's ranges."
)
def _(Base):
    class Silent(Range):
        def __exit__(self, *error):
            self.entered.pop()

    class Faulty(Base):
        @hookimpl
        def open_range(self, name):
            connection = self._connection
            return (
                Silent(connection, name) if connection is not None else Base.open_range(self, name)
            )

    return Faulty


@wrapper("ranges-sent-twice", "reading", "`gpuprof report` counts each range twice.")
def _(Base):
    class Double(Range):
        def __exit__(self, *error):
            self.entered.append(self.entered[-1])
            super().__exit__(*error)
            return super().__exit__(*error)

    class Faulty(Base):
        @hookimpl
        def open_range(self, name):
            connection = self._connection
            return (
                Double(connection, name) if connection is not None else Base.open_range(self, name)
            )

    return Faulty


# ---- the tool


@wrapper(
    "probe-raises-without-tool",
    "probe",
    "Without the tool there is a traceback instead of how to install it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            os.stat(self._options.executable or LAUNCHER)
            return Base.probe(self)

    return Faulty


@wrapper(
    "probe-relative-path",
    "probe",
    "The worker does not start from another directory: the tool's path is relative.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            found = Base.probe(self)
            return found and Tool(os.path.relpath(found.path), found.version)

    return Faulty


@wrapper(
    "probe-cached-forever",
    "probe",
    "After an upgrade the old version is shown and used in decisions; a tool installed later is never found.",
)
def _(Base):
    class Faulty(Base):
        cache = {}

        @hookimpl
        def probe(self):
            if "tool" not in self.cache:
                self.cache["tool"] = Base.probe(self)
            return self.cache["tool"]

    return Faulty


@wrapper(
    "probe-starts-program-each-time",
    "slow",
    "Every look at the tool starts it anew, 20 times in a plan.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            found = Base.probe(self)
            if found:
                for _ in range(20):
                    subprocess.run([found.path, "--version"], stdout=subprocess.DEVNULL, check=True)
            return found

    return Faulty


@wrapper(
    "probe-prints-version",
    "prints",
    "The tool's version appears in the job's output wherever it is looked for.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            found = Base.probe(self)
            if found:
                subprocess.run([found.path, "--version"], check=True)
            return found

    return Faulty


@wrapper(
    "probe-with-whole-version-text",
    "types",
    "The version is a block of several lines that breaks every table.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            found = Base.probe(self)
            return found and Tool(
                found.path, f"wrapper version {found.version}\nCopyright 2026 The Authors\n"
            )

    return Faulty


@wrapper(
    "probe-accepts-what-cannot-run",
    "probe",
    "A file that cannot be run is called the tool, and the workers fail.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            path = os.path.abspath(self._options.executable or LAUNCHER)
            if not os.path.exists(path):
                return None
            return Tool(path) if not os.access(path, os.X_OK) else Base.probe(self)

    return Faulty


@wrapper("executable-not-used", "options", "The user's executable has no effect.")
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            super().__init__(attrs.evolve(options, executable=None))

    return Faulty


@attrs.frozen
class UnmarkedProgram(WrapperOptions):
    executable: str | None = option(
        "Path of the wrapper. null: the one of this package.", default=None
    )


@wrapper(
    "executable-not-marked-as-program",
    "options",
    "Whoever makes a run's files decides which program runs on the reader's machine.",
)
def _(Base):
    return type("FaultyBackend", (Base,), {"Options": UnmarkedProgram})


@wrapper("interval-in-seconds", "options", "interval: 10 means 10 s, so a window has two samples.")
def _(Base):
    class Faulty(Base):
        def flags(self, worker):
            flags = Base.flags(self, worker)
            flags[1] = str(self._options.interval * 1000)
            return flags

    return Faulty


@attrs.frozen
class Busy(WrapperOptions):
    interval: int = option("Milliseconds between two samples of the memory.", default=0)

    def __attrs_post_init__(self):
        pass


@wrapper(
    "interval-of-zero-by-default",
    "options",
    "The default samples without a pause: a core is busy and files grow by 100 MB a minute.",
)
def _(Base):
    return type("FaultyBackend", (Base,), {"Options": Busy})


@wrapper("missing-tool-says-nothing", "probe", "Where the tool is missing nobody says what to do.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def missing_tool(self):
            return None

    return Faulty


@wrapper(
    "missing-tool-without-remedy",
    "probe",
    "The message says that something is missing, neither what nor how to get it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def missing_tool(self):
            return "not found"

    return Faulty


@wrapper(
    "missing-tool-list",
    "types",
    "Where the tool is missing, a fault of the backend is reported: a list of words.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def missing_tool(self):
            return ["the wrapper is not installed", "pip install the-wrapper"]

    return Faulty


# ---- preflight, diagnose


@wrapper(
    "preflight-starts-while-planning",
    "preflight",
    "`gpuprof plan` starts the profiler on the machine that plans.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            return Base.diagnose(self, worker, tool, "start")

    return Faulty


@wrapper(
    "preflight-says-true", "types", "A profiler that works is refused: True instead of checks."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            return all(check.ok for check in Base.diagnose(self, worker, tool, purpose) or [])

    return Faulty


@wrapper(
    "preflight-bare-words",
    "types",
    "A profiler that fails is reported without its words: texts instead of checks.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            found = Base.diagnose(self, worker, tool, purpose)
            return found and [check.detail for check in found]

    return Faulty


@wrapper(
    "preflight-ignores-exit-code",
    "preflight",
    "A profiler that cannot run passes the check, and all workers fail.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            if purpose == "start":
                subprocess.run(
                    [tool.path, "--", "/bin/true"], stdin=subprocess.DEVNULL, capture_output=True
                )

    return Faulty


@wrapper(
    "preflight-hides-failure",
    "preflight",
    "A profiler that refuses its options passes: the check says ok with the tool's error as its detail.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            found = Base.diagnose(self, worker, tool, purpose)
            return found and [attrs.evolve(check, ok=True, remedy="") for check in found]

    return Faulty


@wrapper(
    "preflight-blames-unknown-key",
    "preflight",
    "The user is told to change a key that there is not.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            found = Base.diagnose(self, worker, tool, purpose)
            return found and [attrs.evolve(check, key="wrapper.sample_rate") for check in found]

    return Faulty


@wrapper(
    "contract-missing",
    "hooks",
    "A later gpuprof does not know which contract the backend was written for.",
)
def _(Base):
    return type("FaultyBackend", (Base,), {"contract": None})


@wrapper(
    "contract-of-the-future",
    "hooks",
    "The backend is refused: it says that it was written for a contract that there is not.",
)
def _(Base):
    return type("FaultyBackend", (Base,), {"contract": 99})


@wrapper(
    "preflight-raises-where-tool-fails",
    "preflight",
    "A profiler that refuses its options is reported as a traceback of the backend.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            if purpose == "start":
                subprocess.run(
                    [tool.path, "--interval", str(self._options.interval), "--", "/bin/true"],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=True,
                )

    return Faulty


@wrapper("preflight-prints", "prints", "The trial run's output is in the job's.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            if purpose == "start":
                subprocess.run(
                    [tool.path, "--", "/bin/echo", "trying the wrapper"], stdin=subprocess.DEVNULL
                )
            return Base.diagnose(self, worker, tool, purpose)

    return Faulty


@wrapper(
    "preflight-leaves-files", "preflight", "A report of the trial run lies among those of the job."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            if purpose == "plan":
                return None
            os.makedirs(worker.directory, exist_ok=True)
            raw = f"{worker.directory}/preflight{EXTENSION}"
            subprocess.run(
                [tool.path, "--lifetime", raw, "--", "/bin/true"], stdin=subprocess.DEVNULL
            )
            return Base.diagnose(self, worker, tool, purpose)

    return Faulty


@wrapper("preflight-leaves-process", "leftovers", "A process of the trial run stays on each node.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            if purpose == "start":
                subprocess.Popen(
                    [tool.path, "--", "/bin/sleep", "60"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            return Base.diagnose(self, worker, tool, purpose)

    return Faulty


@wrapper(
    "preflight-reads-stdin",
    "streams",
    "Before the job starts, its input is eaten by the trial run.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose == "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            if purpose == "start":
                subprocess.run([tool.path, "--", "/bin/cat"], stdout=subprocess.DEVNULL, timeout=30)
            return Base.diagnose(self, worker, tool, purpose)

    return Faulty


@wrapper("diagnose-without-remedy", "diagnose", "`gpuprof doctor` says FAILED and not what to do.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose != "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            return [
                *Base.diagnose(self, worker, tool, purpose),
                Check("perf", False, "perf_event_paranoid is 4"),
            ]

    return Faulty


@wrapper("diagnose-one-check", "types", "`gpuprof doctor` fails: a check instead of a list.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose != "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            return Base.diagnose(self, worker, tool, purpose)[0]

    return Faulty


@wrapper(
    "diagnose-hangs",
    "diagnose",
    "`gpuprof doctor` waits for a minute for a server that there is not.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if purpose != "doctor":
                return Base.diagnose(self, worker, tool, purpose)
            subprocess.run([tool.path, "--", "/bin/sleep", "60"], stdin=subprocess.DEVNULL)
            return Base.diagnose(self, worker, tool, purpose)

    return Faulty


# ---- temporary folders, files


@wrapper(
    "shared-temporary-absolute",
    "temporary",
    "A link to / is made in the tool's temporary directory, or the worker refused.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            tool = Base.probe(self)
            return tool and attrs.evolve(tool, shared_temporary=["/"])

    return Faulty


@wrapper(
    "shared-temporary-escapes",
    "temporary",
    "A link is made outside of the tool's temporary directory.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            tool = Base.probe(self)
            return tool and attrs.evolve(tool, shared_temporary=["../wrapper-locks"])

    return Faulty


@wrapper("shared-temporary-text", "types", "The worker does not start: a string instead of a list.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            tool = Base.probe(self)
            return tool and attrs.evolve(tool, shared_temporary="wrapper-locks")

    return Faulty


@wrapper(
    "disposable-temporary-everything",
    "temporary",
    "The unfinished report of a killed worker is thrown away: * is called disposable.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            tool = Base.probe(self)
            return tool and attrs.evolve(tool, disposable_temporary=["*"])

    return Faulty


@wrapper(
    "collect-takes-unfinished",
    "collect",
    "A half-written file gets the name of a report while it is still written.",
)
def _(Base):
    class Faulty(Base):
        def _collect(self, worker, windows, ended):
            found = {}
            for window in windows:
                part = self._raw(worker, window) + ".part"
                if os.path.exists(part):
                    final = move(part, worker.final_stem(window), EXTENSION)
                    if final:
                        found[window.number] = [final]
            return found or Base._collect(self, worker, windows, ended)

    return Faulty


@wrapper(
    "collect-planned-windows-only",
    "collect",
    "Windows that were ordered later (armed) are never saved after a crash.",
)
def _(Base):
    class Faulty(Base):
        def _collect(self, worker, windows, ended):
            return Base._collect(
                self, worker, tuple(w for w in windows if w in worker.windows), ended
            )

    return Faulty


@wrapper(
    "collect-not-there",
    "collect",
    "What was recorded until a crash stays under an intermediate name.",
)
def _(Base):
    class Faulty(Base):
        def _collect(self, worker, windows, ended):
            return None

    return Faulty


@wrapper(
    "collect-stops-at-first-gap", "collect", "If one window has no file, those after it are lost."
)
def _(Base):
    class Faulty(Base):
        def _collect(self, worker, windows, ended):
            kept = []
            for window in windows:
                if not os.path.exists(self._raw(worker, window)):
                    break
                kept.append(window)
            return Base._collect(self, worker, tuple(kept), ended)

    return Faulty
