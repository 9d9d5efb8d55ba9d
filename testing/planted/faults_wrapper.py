"""Faults of the wrapping backend's hooks."""

import os
import shlex

import attrs
from backends.wrapper import LAUNCHER, Range, WrapperOptions
from faults import fault
from gpuprof.backend import Check, hookimpl, option


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


@rendering("command-is-text", "types", "Planning fails: a string instead of a list.")
def _(words, self, worker, command, tool):
    return shlex.join(words)


@rendering(
    "command-needs-version",
    "pure",
    "Planning fails where the tool is not installed, as its version is unknown.",
)
def _(words, self, worker, command, tool):
    return words if int(tool.version.split(".")[0]) > 1 else None


@rendering(
    "command-prints", "prints", "`gpuprof plan --json` is no JSON: the hook prints the command."
)
def _(words, self, worker, command, tool):
    print("wrapper:", *words)
    return words


@wrapper("raw-file-shared-by-ranks", "ranks", "Ranks on one node record into one file.")
def _(Base):
    class Faulty(Base):
        def _raw(self, worker, window):
            return f"{worker.directory}/wrapper.window-{window.number}.raw"

    return Faulty


# ---- in the worker


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


@attrs.frozen
class Busy(WrapperOptions):
    interval: int = option("Milliseconds between two samples of the memory.", default=0)

    def __attrs_post_init__(self):
        pass


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
    "contract-missing",
    "hooks",
    "A later gpuprof does not know which contract the backend was written for.",
)
def _(Base):
    return type("FaultyBackend", (Base,), {"contract": None})


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
