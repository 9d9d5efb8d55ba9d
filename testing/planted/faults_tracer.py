"""Faults of the in-process tracer."""

import dataclasses
import os
import tempfile
import time

import attrs
from backends.tracer import EXTENSION, Range, Trace, TracerOptions
from faults import fault
from gpuprof.backend import Window, hookimpl, move, option


def tracer(name, theme, harm):
    return fault(name, "tracer", theme, harm)


def with_trace(Base, Faulty):
    return type("FaultyBackend", (Base,), {"Trace": Faulty})


def with_range(Base, Faulty):
    class FaultyTrace(Trace):
        def range(self, name, crosses_tasks):
            return Faulty(self, name, crosses_tasks)

    return with_trace(Base, FaultyTrace)


def at_start(function):
    """A class that does one thing more when a window opens."""

    def make(Base):
        class Faulty(Base):
            @hookimpl
            def start_capture(self, worker, window):
                function(self)
                Base.start_capture(self, worker, window)

        return Faulty

    return make


def at_stop(function):
    """A class that does one thing more when a window closes."""

    def make(Base):
        class Faulty(Base):
            @hookimpl
            def stop_capture(self):
                files = Base.stop_capture(self)
                function(self)
                return files

        return Faulty

    return make


# ---- files


@tracer(
    "report-fixed-name",
    "files",
    "Every rank and window writes trace.tracer.json; none has the planned name.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            self.final = os.path.join(os.path.dirname(self.final), "trace")
            return super().write()

    return with_trace(Base, FaultyTrace)


@tracer(
    "scratch-shared-by-ranks",
    "ranks",
    "Two ranks that close their windows together destroy each other's file.",
)
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            self.scratch = os.path.join(os.path.dirname(self.final), "tracer.part")
            return super().write()

    return with_trace(Base, FaultyTrace)


@tracer("report-empty", "nothing-recorded", "The report is there, with nothing in it.")
def _(Base):
    class FaultyTrace(Trace):
        def write(self):
            open(self.scratch, "w").close()
            return move(self.scratch, self.final, EXTENSION)

    return with_trace(Base, FaultyTrace)


@tracer(
    "discrete-windows-share-name",
    "windows",
    "The files of scopes in one step have the same name with numbers, and not those planned.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, Window(window.number, window.start, window.stop))

    return Faulty


@tracer(
    "stop-returns-a-string",
    "types",
    "The backend is switched off at the first window: a path instead of a list of them.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def stop_capture(self):
            return (Base.stop_capture(self) or [None])[0]

    return Faulty


@tracer(
    "expected-wrong-extension",
    "expected",
    "The receipt says that every report is missing: .json was promised, .tracer.json is there.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {window.number: worker.final_stem(window) + ".json" for window in windows}

    return Faulty


@tracer(
    "expected-needs-existing-directory",
    "pure",
    "Planning fails where the run's directory does not exist yet.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            os.listdir(worker.directory)
            return Base.expected_files(self, worker, windows)

    return Faulty


# ---- state


@tracer(
    "state-shared-by-instances",
    "state",
    "A second session in the process ends the first one's window.",
)
def _(Base):
    class Faulty(Base):
        shared = None

        def __init__(self, options):
            self._options = options

        @property
        def _trace(self):
            return Faulty.shared

        @_trace.setter
        def _trace(self, value):
            Faulty.shared = value

    return Faulty


@tracer(
    "failed-start-half-on",
    "state",
    "A start that raises, as into a directory that is gone, leaves the collector's callback behind, and stop does not undo it.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def start_capture(self, worker, window):
            scratch = (
                f"{worker.directory}/{worker.file_stem}.window-{window.number}{EXTENSION}.part"
            )
            trace = self.Trace(self._options, scratch, worker.final_stem(window))
            trace.start()
            open(scratch, "w").close()  # raises where it cannot write
            self._trace = trace

    return Faulty


# ---- what is left in the process


def stop_leaves(name, harm, function):
    tracer(name, "leftovers", harm)(at_stop(function))


stop_leaves(
    "leaves-cwd",
    "The job's relative paths point elsewhere after a window.",
    lambda self: os.chdir(tempfile.gettempdir()),
)


# ---- slow, loud

tracer("slow-start", "slow", "The job stands still for 5 s at each window.")(
    at_start(lambda self: time.sleep(5))
)
tracer("start-prints", "prints", "A line of the tracer's is in the job's stdout.")(
    at_start(lambda self: print("tracer: window opened"))
)


# ---- ranges


@tracer("range-swallows-exceptions", "ranges", "Exceptions of the job vanish inside ranges.")
def _(Base):
    class FaultyRange(Range):
        def __exit__(self, *error):
            super().__exit__(*error)
            return True

    return with_range(Base, FaultyRange)


# ---- reading


@tracer(
    "read-cached-by-base-name",
    "reading",
    "Of two nodes with files of one name, `gpuprof report` shows the first one's ranges twice.",
)
def _(Base):
    class Faulty(Base):
        cache = {}

        @hookimpl
        def read_ranges(self, path):
            name = os.path.basename(path)
            if name not in self.cache:
                self.cache[name] = Base.read_ranges(self, path)
            return self.cache[name]

    return Faulty


# ---- checking


@tracer(
    "check-refuses-empty-window",
    "checking",
    "A window without ranges is called incomplete though its report is whole.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            problem = Base.check_report(self, path)
            if problem is None and str(path).endswith(EXTENSION) and os.path.getsize(path) < 100:
                return "holds no ranges"
            return problem

    return Faulty


# ---- the tool


@tracer(
    "probe-slow",
    "probe",
    "Every command waits for 8 s: the probe looks everywhere, each time anew.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            time.sleep(8)
            return Base.probe(self)

    return Faulty


# ---- options


@attrs.frozen
class NoHelp(TracerOptions):
    depth: int = attrs.field(default=3)


@attrs.frozen
class BadDefault(TracerOptions):
    limit: int = option("Ranges to keep in a window; later ones are dropped.", default="1000000")

    def __attrs_post_init__(self):
        object.__setattr__(self, "limit", int(self.limit))


@attrs.frozen
class Required(TracerOptions):
    license: str = option("The licence key.", kw_only=True)


@attrs.frozen
class Unchecked:
    collections: bool = option("Record garbage collections, too.", default=True)
    limit: int = option("Ranges to keep in a window; later ones are dropped.", default=1_000_000)


@attrs.frozen
class Untyped(TracerOptions):
    depth = option("How deep ranges are followed.", default=3)


@attrs.define
class Mutable:
    collections: bool = option("Record garbage collections, too.", default=True)
    limit: int = option("Ranges to keep in a window; later ones are dropped.", default=1_000_000)
    names: list[str] = option("Names of ranges to keep; none keeps all.", default=[])


@dataclasses.dataclass(frozen=True)
class NoAttrs:
    collections: bool = True
    limit: int = 1_000_000


def with_options(name, harm, Class):
    tracer(name, "options", harm)(lambda Base: type("FaultyBackend", (Base,), {"Options": Class}))


with_options(
    "option-without-help", "`gpuprof backends --options` says nothing about a key.", NoHelp
)


@tracer("hook-without-mark", "hooks", "No window is ever recorded: start_capture lacks its mark.")
def _(Base):
    class Faulty(Base):
        def start_capture(self, worker, window):
            Base.start_capture(self, worker, window)

    return Faulty
