"""Faults of the backend that has only variables."""

import os
import shutil
import uuid

from backends.variables import EXTENSION
from faults import fault
from gpuprof.backend import Collected, hookimpl


def variables(name, theme, harm):
    return fault(name, "variables", theme, harm)


def adding(name, harm, more, theme="environment"):
    """A variable too many: a mapping, or a function of the worker."""

    def make(Base):
        class Faulty(Base):
            @hookimpl
            def inject_env(self, worker):
                extra = more(worker) if callable(more) else more
                return {**Base.inject_env(self, worker), **extra}

        return Faulty

    variables(name, theme, harm)(make)


def output(name, theme, harm, path):
    """Another place of the raw file, for the variable and for `collect_files`."""

    def make(Base):
        class Faulty(Base):
            def _raw(self, worker):
                return path(worker)

        return Faulty

    variables(name, theme, harm)(make)


# ---- variables

adding(
    "env-ld-preload-replaced",
    "The job's own preloaded library (jemalloc) is gone, and each program complains to stderr.",
    {"LD_PRELOAD": "/opt/ld-trace/libtrace.so"},
)
adding(
    "env-empty-value",
    "A variable that has no meaning when empty makes the tool complain.",
    {"LD_DEBUG": ""},
    "nothing-recorded",
)
adding(
    "env-unknown-placeholder",
    "The file's name has {hostname} in it, and is not found.",
    lambda worker: {"LD_DEBUG_OUTPUT": f"{worker.directory}/{{hostname}}.ld"},
    "placeholders",
)
adding(
    "env-bad-name",
    "The worker does not start: a variable's name has = in it.",
    {"LD_DEBUG=libs": "1"},
    "types",
)
adding(
    "env-random",
    "Plan and run differ: a value is made at each call.",
    lambda worker: {"LD_TRACE_ID": uuid.uuid4().hex},
    "pure",
)


@variables("env-no-output", "streams", "The trace goes to the job's stderr, not into a file.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker):
            return {"LD_DEBUG": Base.inject_env(self, worker)["LD_DEBUG"]}

    return Faulty


@variables(
    "env-everything",
    "slow",
    "Each start of a program takes long and writes hundreds of MB: LD_DEBUG=all.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker):
            return {**Base.inject_env(self, worker), "LD_DEBUG": "all"}

    return Faulty


@variables(
    "env-only-for-steps",
    "windows",
    "A capture of the whole life is not recorded: the variables are set for steps only.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker):
            return None if worker.lifetime else Base.inject_env(self, worker)

    return Faulty


@variables("env-only-for-rank-zero", "ranks", "Only rank 0 leaves its report.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker):
            return Base.inject_env(self, worker) if worker.rank == 0 else None

    return Faulty


output(
    "output-relative",
    "files",
    "The raw files lie in whatever directory the job is in and are not found.",
    lambda worker: f"{worker.file_stem}.ld",
)

# ---- files that were promised


@variables(
    "expects-each-window",
    "expected",
    "The receipt misses a file for every step but there is one for the whole life.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {window.number: worker.final_stem(window) + EXTENSION for window in windows}

    return Faulty


@variables(
    "notes-need-windows", "hooks", "A plan of an armed worker, which has no window yet, fails."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def plan_notes(self, worker):
            worker.windows[0].start  # noqa: B018
            return Base.plan_notes(self, worker)

    return Faulty


# ---- collect_files


def recovering(name, harm, theme="collect"):
    """A fault of collect_files: `function(Base, self, worker, windows, ended, files, scratch)`."""

    def enter(function):
        def make(Base):
            class Faulty(Base):
                @hookimpl
                def collect_files(self, worker, windows, files, ended, scratch):
                    found = function(Base, self, worker, windows, ended, files, scratch)
                    return Collected(found) if isinstance(found, dict) and found else found or None

            return Faulty

        variables(name, theme, harm)(make)
        return function

    return enter


@recovering(
    "collect-before-the-end",
    "The file is moved while the loader still writes, and the rest goes nowhere to be found.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    return Base._collect(self, worker, windows, True)


@recovering(
    "collect-leaves-cwd", "The process that collects has another directory afterwards.", "leftovers"
)
def _(Base, self, worker, windows, ended, files, scratch):
    os.chdir(worker.directory)
    return Base._collect(self, worker, windows, ended)


@recovering("collect-prints", "Each end of a worker prints the names of its files.", "prints")
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    print("ld-trace:", found)
    return found


# ---- the rest


@variables(
    "check-follows-grammar-of-first-line",
    "checking",
    "Good files are called bad where the loader writes another line first.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            if not str(path).endswith(EXTENSION):
                return None
            with open(path, "rb") as file:
                first = file.readline()
            return (
                Base.check_report(self, path)
                if b"calling init" in first
                else "is no trace of the loader"
            )

    return Faulty


@variables(
    "constructor-needs-tool",
    "probe",
    "Planning fails on a laptop: the constructor looks for the loader of the cluster.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            super().__init__(options)
            if shutil.which("ld-trace") is None:
                raise FileNotFoundError("ld-trace")

    return Faulty


@variables(
    "constructor-changes-options",
    "options",
    "The settings that `gpuprof config show` prints are not those that act.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            options.show.append("files")
            super().__init__(options)

    return Faulty


@variables(
    "diagnose-raises",
    "diagnose",
    "`gpuprof doctor` shows a fault of the backend for what should be a failed check.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            if not os.path.exists("/etc/ld-trace.conf"):
                raise FileNotFoundError("/etc/ld-trace.conf")
            return Base.diagnose(self, tool, purpose)

    return Faulty


@variables(
    "changes-tool-features",
    "state",
    "What one hook stores in the tool's features is seen by all workers.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker, tool):
            tool.features["last"] = worker.name
            return Base.inject_env(self, worker)

    return Faulty
