"""Faults of the backend that has only variables."""

import glob
import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid

import attrs
from backends.variables import EXTENSION, WHOLE_LIFE
from faults import fault
from gpuprof.backend import Check, Collected, hookimpl, move


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
    "env-pythonpath-replaced",
    "The job's own PYTHONPATH is lost, and its modules are not found.",
    {"PYTHONPATH": "/opt/ld-trace/python"},
)
adding(
    "env-home-replaced",
    "The job does not find its credentials and caches: HOME is another.",
    {"HOME": "/tmp"},
)
adding("env-path-replaced", "The job does not find its programs.", {"PATH": "/usr/bin:/bin"})
adding(
    "env-gpuprof-steps",
    "The tool overrides the user's configuration: GPUPROF_STEPS is set.",
    {"GPUPROF_STEPS": "3"},
)
adding(
    "env-gpuprof-worker", "gpuprof in the worker does not know who it is.", {"GPUPROF_WORKER": ""}
)
adding("env-ray", "Ray's workers connect to another cluster.", {"RAY_ADDRESS": "local"})
adding(
    "env-cuda-visible-devices", "All ranks compute on the first GPU.", {"CUDA_VISIBLE_DEVICES": "0"}
)
adding(
    "env-ld-preload-replaced",
    "The job's own preloaded library (jemalloc) is gone, and each program complains to stderr.",
    {"LD_PRELOAD": "/opt/ld-trace/libtrace.so"},
)
adding("env-ld-preload-empty", "The user's LD_PRELOAD is emptied.", {"LD_PRELOAD": ""})
adding(
    "env-ld-library-path-unset",
    "The job does not find CUDA: LD_LIBRARY_PATH is unset.",
    {"LD_LIBRARY_PATH": None},
)
adding("env-one-thread", "The job computes with one thread.", {"OMP_NUM_THREADS": "1"})
adding(
    "env-hash-seed",
    "Sets have the same order in each run, which hides or shows faults.",
    {"PYTHONHASHSEED": "0"},
)
adding("env-optimized", "The job's assertions are off.", {"PYTHONOPTIMIZE": "1"})
adding("env-warnings", "The job's warnings are not shown.", {"PYTHONWARNINGS": "ignore"})
adding("env-locale", "The job fails at names in other scripts.", {"LC_ALL": "C", "PYTHONUTF8": "0"})
adding(
    "env-tmpdir",
    "The job's temporary files fill the shared file system.",
    lambda worker: {"TMPDIR": worker.directory},
)
adding(
    "env-blocking-launches",
    "The job is many times slower: every kernel is waited for.",
    {"CUDA_LAUNCH_BLOCKING": "1"},
)
adding(
    "env-master-port",
    "Ranks wait for each other forever: MASTER_PORT is another.",
    {"MASTER_PORT": "29999"},
)
adding(
    "env-bind-now",
    "Every program resolves all symbols at start, and libraries with missing ones no longer load.",
    {"LD_BIND_NOW": "1"},
)
adding(
    "env-malloc-check",
    "Every allocation is filled with a pattern: the job is slow.",
    {"MALLOC_PERTURB_": "165"},
)
adding(
    "env-python-inspect",
    "The job ends at an interactive prompt instead of ending.",
    {"PYTHONINSPECT": "1"},
)
adding(
    "env-python-nouser",
    "Packages that the user installed are not found.",
    {"PYTHONNOUSERSITE": "1"},
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
    "env-unknown-kind",
    "Each program prints a warning of the loader's: an option that it does not know.",
    {"LD_DEBUG": "libs,timing"},
)
adding(
    "env-help",
    "Nothing runs: LD_DEBUG=help prints the loader's help and ends.",
    {"LD_DEBUG": "help"},
)
adding(
    "env-bad-name",
    "The worker does not start: a variable's name has = in it.",
    {"LD_DEBUG=libs": "1"},
    "types",
)
adding("env-number", "Planning fails: a value is a number.", {"LD_TRACE_DEPTH": 3}, "types")
adding("env-boolean", "Planning fails: a value is True.", {"LD_TRACE_ON": True}, "types")
adding(
    "env-random",
    "Plan and run differ: a value is made at each call.",
    lambda worker: {"LD_TRACE_ID": uuid.uuid4().hex},
    "pure",
)
adding(
    "env-has-pid",
    "Plan and run differ: a value has the planner's process id.",
    lambda worker: {"LD_TRACE_PARENT": str(os.getpid())},
    "pure",
)
adding(
    "env-of-planner",
    "The worker gets USER, SHELL and LANG of whoever plans.",
    lambda worker: {
        name: value for name, value in os.environ.items() if name in ("USER", "SHELL", "LANG")
    },
    "pure",
)
adding(
    "env-appends-planners-library-path",
    "Libraries of the machine that plans are looked for on the worker's.",
    lambda worker: {
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "") + ":/opt/ld-trace/lib"
    },
    "pure",
)


def note_on_disk(worker):
    open("/tmp/ld-trace.ini", "a").close()
    return {"LD_TRACE_CONFIG": "/tmp/ld-trace.ini"}


adding(
    "env-writes-config",
    "Planning writes a file that the worker's node does not have.",
    note_on_disk,
    "pure",
)


def exported(worker):
    os.environ["LD_DEBUG_OUTPUT"] = f"/tmp/{worker.name}.ld"
    return {}


adding(
    "env-exported-by-planner",
    "Planning changes the driver's own environment, which all other programs inherit.",
    exported,
    "leftovers",
)


@variables("env-pairs", "types", "Planning fails: pairs instead of a mapping.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker):
            return list(Base.inject_env(self, worker).items())

    return Faulty


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
    "env-misspelt", "nothing-recorded", "Nothing is recorded: the variable is called LD_DEBUG_OUT."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker):
            found = Base.inject_env(self, worker)
            return {"LD_TRACE": found["LD_DEBUG"], "LD_DEBUG_OUT": found["LD_DEBUG_OUTPUT"]}

    return Faulty


@variables(
    "env-only-for-gpu-workers",
    "nothing-recorded",
    "Workers without a GPU leave no report although it was promised.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def inject_env(self, worker):
            return Base.inject_env(self, worker) if worker.has_gpu else None

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


@variables(
    "env-sticks-to-first-worker",
    "ranks",
    "All ranks write the first one's file: the first result is kept on the instance.",
)
def _(Base):
    class Faulty(Base):
        first = None

        @hookimpl
        def inject_env(self, worker):
            self.first = self.first or Base.inject_env(self, worker)
            return self.first

    return Faulty


output(
    "output-relative",
    "files",
    "The raw files lie in whatever directory the job is in and are not found.",
    lambda worker: f"{worker.file_stem}.ld",
)
output(
    "output-in-tmp",
    "ranks",
    "Two workers on a machine mix their files: all are called /tmp/ld-trace.",
    lambda worker: "/tmp/ld-trace",
)
output(
    "output-without-incarnation",
    "files",
    "A restarted worker's raw files are mixed with those of its first start.",
    lambda worker: f"{worker.directory}/{worker.name}.ld",
)
output(
    "output-without-rank",
    "ranks",
    "Ranks of a group take each other's files.",
    lambda worker: f"{worker.directory}/{worker.group}.start-{worker.incarnation}.ld",
)
output(
    "output-in-missing-directory",
    "nothing-recorded",
    "Nothing is recorded: the files go into a directory that nobody makes.",
    lambda worker: f"{worker.directory}/ld-trace/{worker.file_stem}.ld",
)
output(
    "output-lower-case",
    "files",
    "Workers of the groups Actor and actor share their raw files.",
    lambda worker: f"{worker.directory}/{worker.file_stem.lower()}.ld",
)
output(
    "output-slugged",
    "placeholders",
    "The placeholder {incarnation} is mangled by cleaning the name, and stays in it.",
    lambda worker: f"{worker.directory}/{re.sub('[^A-Za-z0-9.-]', '_', worker.file_stem)}.ld",
)
output(
    "output-depends-on-cwd",
    "pure",
    "Plans that are made in different directories name different files.",
    lambda worker: f"{os.getcwd()}/{worker.file_stem}.ld",
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


@variables("expects-nothing", "expected", "A worker that left no file is not noticed.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return None

    return Faulty


@variables(
    "expects-raw-files", "expected", "The receipt looks for the intermediate file, which was moved."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {window.number: f"{self._raw(worker)}.{worker.pid}" for window in windows}

    return Faulty


@variables(
    "expects-base-names",
    "expected",
    "The receipt does not find the files: names without their directory.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            found = Base.expected_files(self, worker, windows)
            return {number: os.path.basename(path) for number, path in found.items()}

    return Faulty


@variables(
    "expects-window-objects", "types", "Planning fails: windows instead of their numbers as keys."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def expected_files(self, worker, windows):
            return {window: worker.final_stem(WHOLE_LIFE) + EXTENSION for window in windows}

    return Faulty


@variables(
    "notes-hide-whole-life",
    "notes",
    "Steps are asked for and the whole life is recorded, and the plan does not say so.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def plan_notes(self, worker):
            return ["programs that are linked statically leave no file"]

    return Faulty


@variables(
    "notes-text",
    "types",
    "The plan shows a note for each letter, or fails: text instead of a list.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def plan_notes(self, worker):
            return "; ".join(Base.plan_notes(self, worker))

    return Faulty


@variables(
    "notes-start-program",
    "pure",
    "Planning starts a program for a note, and fails where it is missing.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def plan_notes(self, worker):
            version = subprocess.run(
                ["ldd", "--version"], capture_output=True, text=True, check=True
            )
            return [*Base.plan_notes(self, worker), version.stdout.splitlines()[0]]

    return Faulty


@variables(
    "notes-differ", "pure", "Two plans of one configuration differ: a note has the time in it."
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def plan_notes(self, worker):
            return [*Base.plan_notes(self, worker), f"planned at {time.time()}"]

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


def raw_files(self, worker):
    raw = self._raw(worker)
    return sorted(
        file for file in glob.glob(glob.escape(raw) + ".*") if file[len(raw) + 1 :].isdigit()
    )


@recovering(
    "collect-before-the-end",
    "The file is moved while the loader still writes, and the rest goes nowhere to be found.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    return Base._collect(self, worker, windows, True)


@recovering(
    "collect-takes-rank-ten",
    "Rank 1 takes the files of ranks 10 to 19: the pattern is open at its end.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    if not ended or not windows:
        return None
    found = sorted(glob.glob(f"{glob.escape(worker.directory)}/{glob.escape(worker.name)}*.ld.*"))
    stem = worker.final_stem(WHOLE_LIFE)
    finals = [final for file in found if (final := move(file, stem, EXTENSION))]
    return {window.number: finals for window in windows} if finals else None


@recovering("collect-deletes-children", "The traces of the worker's children are deleted.")
def _(Base, self, worker, windows, ended, files, scratch):
    if ended and worker.pid != "0":
        for file in raw_files(self, worker):
            if not file.endswith(f".{worker.pid}"):
                os.remove(file)
    return Base._collect(self, worker, windows, ended)


@recovering(
    "collect-follows-links",
    "A link among the raw files makes a file elsewhere disappear: its target is moved.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    if ended and windows:
        for file in raw_files(self, worker):
            if os.path.islink(file) and os.path.exists(file):
                target = os.path.realpath(file)
                os.remove(file)
                shutil.move(target, file)
    return Base._collect(self, worker, windows, ended)


@recovering("collect-copies", "Each further call adds another copy of every file.")
def _(Base, self, worker, windows, ended, files, scratch):
    if not ended or not windows:
        return None
    finals = []
    for file in raw_files(self, worker):
        shutil.copy(file, file + ".copy")
        finals.append(move(file + ".copy", worker.final_stem(WHOLE_LIFE), EXTENSION))
    return {window.number: finals for window in windows} if finals else None


@recovering(
    "collect-overwrites",
    "The report of the worker's first start is replaced by that of its restart.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    if not ended or not windows:
        return None
    final = worker.final_stem(WHOLE_LIFE) + EXTENSION
    found = sorted(raw_files(self, worker), key=lambda file: file.endswith(f".{worker.pid}"))
    for file in found:
        os.replace(file, final)
    return {window.number: [final] for window in windows} if found else None


@recovering(
    "collect-names-old-files",
    "The receipt lists files twice: collect_files returns also those that were named before.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended) or {}
    return {
        number: [*files.get(number, []), *found.get(number, [])] for number in {*files, *found}
    } or None


@recovering(
    "collect-fails-without-files",
    "A worker that left no file is reported as a fault of the backend.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    if ended and windows:
        raw_files(self, worker)[0]
    return Base._collect(self, worker, windows, ended)


@recovering("collect-glob-not-escaped", "In a directory with [ ] in its name no file is found.")
def _(Base, self, worker, windows, ended, files, scratch):
    if not glob.glob(self._raw(worker) + ".*"):
        return None
    return Base._collect(self, worker, windows, ended)


@recovering("collect-cleans-directory", "Logs and other files of the run are deleted.")
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    if ended:
        for file in os.listdir(worker.directory):
            path = os.path.join(worker.directory, file)
            if not file.endswith((EXTENSION, ".json")) and os.path.isfile(path):
                os.remove(path)
    return found


@recovering(
    "collect-changes-files-argument",
    "Other plugins and the receipt see a mapping that the hook has changed.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    for number, paths in (found or {}).items():
        files.setdefault(number, []).extend(paths)
    return found


@recovering(
    "collect-list",
    "The worker's end fails: a list of files instead of a mapping by window.",
    "types",
)
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    return found and [path for paths in found.values() for path in paths]


@recovering(
    "collect-single-paths",
    "The worker's end fails: a path for each window instead of a list of them.",
    "types",
)
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    return found and Collected({number: paths[0] for number, paths in found.items()})


@recovering(
    "collect-problem-hidden",
    "A file that could not be moved, as on a full disk, is not in the receipt and nobody is told: errors are swallowed.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    try:
        return Base._collect(self, worker, windows, ended)
    except OSError:
        return None


@recovering(
    "collect-problem-always",
    "Each receipt says that something could not be saved although all was.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    return Collected(found or {}, "done") if ended else None


@recovering("collect-unknown-window", "The file is attributed to window 0, which there is not.")
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    return found and {number - 1: paths for number, paths in found.items()}


@recovering(
    "collect-removes-scratch",
    "What the tool has left in its temporary directory is gone before anybody could save it.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    if ended and scratch and os.path.isdir(scratch):
        shutil.rmtree(scratch)
    return found


@recovering(
    "collect-needs-pid", "A worker that never imports gpuprof has no report: its process id is 0."
)
def _(Base, self, worker, windows, ended, files, scratch):
    return Base._collect(self, worker, windows, ended) if worker.pid != "0" else None


@recovering("collect-waits", "The end of each worker without files takes 20 s longer.", "slow")
def _(Base, self, worker, windows, ended, files, scratch):
    until = time.monotonic() + 20
    while ended and not raw_files(self, worker) and time.monotonic() < until:
        time.sleep(0.5)
    return Base._collect(self, worker, windows, ended)


@recovering(
    "collect-leaves-cwd", "The process that collects has another directory afterwards.", "leftovers"
)
def _(Base, self, worker, windows, ended, files, scratch):
    os.chdir(worker.directory)
    return Base._collect(self, worker, windows, ended)


@recovering(
    "collect-forgets-to-say", "The files have their names, and the receipt does not know of them."
)
def _(Base, self, worker, windows, ended, files, scratch):
    Base._collect(self, worker, windows, ended)


@recovering("collect-names-missing-files", "The receipt names a report that is not there.")
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    if ended and windows and not found and not files:
        return {window.number: [worker.final_stem(WHOLE_LIFE) + EXTENSION] for window in windows}
    return found


@recovering(
    "collect-loses-second-file", "Where a window has several files only the first one is kept."
)
def _(Base, self, worker, windows, ended, files, scratch):
    found = Base._collect(self, worker, windows, ended)
    for path in {path for paths in (found or {}).values() for path in paths[1:]}:
        os.remove(path)
    return found and {number: paths[:1] for number, paths in found.items()}


@recovering(
    "collect-compresses-in-place",
    "The report has the promised name and cannot be read: it is gzip now.",
)
def _(Base, self, worker, windows, ended, files, scratch):
    import gzip

    found = Base._collect(self, worker, windows, ended)
    for path in {path for paths in (found or {}).values() for path in paths}:
        with open(path, "rb") as file:
            data = file.read()
        with gzip.open(path, "wb") as file:
            file.write(data)
    return found


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
    "check-raises-on-bad-file",
    "checking",
    "The receipt breaks off at the first bad file: the check raises instead of saying what is wrong.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            problem = Base.check_report(self, path)
            if problem:
                raise ValueError(problem)

    return Faulty


@variables(
    "check-modifies-files",
    "checking",
    "Looking at a report changes it: a newline is added until it looks complete.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def check_report(self, path):
            problem = Base.check_report(self, path)
            if problem:
                with open(path, "ab") as file:
                    file.write(b"\n")
            return problem

    return Faulty


@variables(
    "constructor-exports-variables",
    "leftovers",
    "The driver and all of its programs are traced: the constructor sets the variable itself.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            super().__init__(options)
            os.environ["LD_DEBUG"] = ",".join(options.show)

    return Faulty


@variables("constructor-makes-folder", "pure", "Each plan leaves a folder in /tmp.")
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            super().__init__(options)
            self.folder = tempfile.mkdtemp(prefix="ld-trace-")

    return Faulty


@variables(
    "constructor-slow",
    "slow",
    "Each command and each worker waits for 4 s while the backend is made.",
)
def _(Base):
    class Faulty(Base):
        def __init__(self, options):
            time.sleep(4)
            super().__init__(options)

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


@variables("diagnose-words-for-ok", "types", "`gpuprof doctor` fails: 'yes' instead of True.")
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            return [Check("loader", "yes", f"{tool.path} {tool.version}")]

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
    "diagnose-changes-machine",
    "diagnose",
    "`gpuprof doctor` writes a file to the machine that it examines.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def diagnose(self, worker, tool, purpose):
            with open("/tmp/ld-trace-doctor.txt", "w") as file:
                file.write("ok")
            return Base.diagnose(self, tool, purpose)

    return Faulty


@variables(
    "needs-probed-features",
    "hooks",
    "A plan without the tool fails: inject_env reads features that only a probe has filled in.",
)
def _(Base):
    class Faulty(Base):
        @hookimpl
        def probe(self):
            found = Base.probe(self)
            return found and attrs.evolve(found, features={"kinds": ["statistics", "libs"]})

        @hookimpl
        def inject_env(self, worker, tool):
            tool.features["kinds"]
            return Base.inject_env(self, worker)

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
