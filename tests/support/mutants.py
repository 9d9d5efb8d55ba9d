"""Faults of backends: the check, the replaced code, its replacement, the message."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One fault.

    Args:
        check: the check that must find it, without ``test_``.
        good: what stands in `journal.py`.
        bad: what stands there instead.
        message: what the failure says.
    """

    check: str
    good: str
    bad: str
    message: str


BROKEN_PARTS = """
import itertools
import time
COUNT = itertools.count()
EVERYBODYS = []
KEPT = []
HOUR = time.gmtime().tm_hour
BY_NAME = {}

class Once(Crossing):
    def __enter__(self):
        if self.__dict__.get("entered"):
            raise RuntimeError("was entered before it was left")
        self.entered = True
    def __exit__(self, *_):
        self.entered = False

class Strict(Crossing):
    def __enter__(self):
        stack().append(self)
    def __exit__(self, *_):
        if stack().pop() is not self:
            raise RuntimeError("was not the innermost")

class Owned(Crossing):
    def __enter__(self):
        self.thread = threading.get_ident()
    def __exit__(self, *_):
        if self.thread != threading.get_ident():
            raise RuntimeError("was ended by another thread")
"""
"""Appended to every mutant."""

_COMMAND = "[tool.path, *command.interpreter, *command.arguments]"
_RANGE = "Crossing(self, name) if crosses_tasks else Nested(self, name)"
_FILE = 'f"{worker.final_stem(window)}.txt"'
_RETURN = "            return None\n        RUNNING"
_PROBE = 'return Tool(path, "1.0") if path else None\n\n    @hookimpl\n    def missing_tool'
_REFUSES = "        return {}\n\n    @hookimpl\n    def start"
_DROPS_EMPTY = (
    '"python3", "-c", "import os, sys; os.execv(sys.argv[1], [word for word in '
    'sys.argv[1:] if word])"'
)
_LOSES_EXIT_CODES = '"python3", "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"'
_LOSES_SIGNALS = (
    '"python3", "-c", "import subprocess, sys; '
    'sys.exit(max(0, subprocess.run(sys.argv[1:]).returncode))"'
)
_SETS_UMASK = (
    "import os, runpy, sys; os.umask(0); sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
_OF_TWO_THREADS = [f"kit/{kind}-{step}" for kind in ("outer", "thread") for step in (1, 3)]
_EXPECTED = "    @hookimpl\n    def expected_files"
_MOVE = (
    'final = move(raw, worker.final_stem(window), ".txt")\n        return [final] if final '
    "else None"
)
_MOVE_ELSEWHERE = 'move(raw, worker.final_stem(window), ".log")\n        return None'
_EXPECT_ALL = f"{_FILE} for window in windows"

_START = "self.lines = [self.options.title]"
_RECORDED = "        RUNNING.remove(self)\n        lines, self.lines = self.lines, None\n"
_NOT_BEGUN = (
    "        if self.lines is None:\n            return None\n        RUNNING.remove(self)\n"
)
_RAN_TRUE = 'if subprocess.run([tool.path, "true"], check=False).returncode:'
_BLOCKS_A_SIGNAL = (
    '"python3", "-c", "import os, signal, sys; '
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); "
    'os.execvp(sys.argv[1], sys.argv[1:])"'
)
_LEAVES_A_PROCESS = '''"sh", "-c", "sleep 12 & exec \\"$@\\"", "sh"'''
_FORGETS = """"sh", "-c", 'echo x >"$0"; "$@"; code=$?; rm "$0"; exit $code'"""
_COLLECTS = "        if not (ended and"
_TO_UTF_8 = (
    '"python3", "-c", "import os, sys; os.execv(sys.argv[1], '
    "[os.fsencode(word).decode('utf-8', 'replace') for word in sys.argv[1:]])\""
)
_WRITE = 'raw = f"{worker.directory}/{worker.file_stem}.{window.number}.raw"'
_VARIABLE = '"JOURNAL": worker.name'


def _hook(source: str) -> str:
    """The class with one more hook."""
    return f"    @hookimpl\n    def {source}\n\n{_EXPECTED}"


MUTANTS = (
    Mutant("it_says_what_it_is", "    contract = 2\n", "", "no attribute contract"),
    Mutant("every_option_is_used", _START, 'self.lines = ["x"]', "no hook reads the option title"),
    Mutant(
        "every_option_is_used",
        _START,
        f'raise KeyError("a log that another instance keeps"); {_START}',
        "no hook reads the option title, as start_capture raised KeyError: 'a log that another",
    ),
    Mutant(
        "importing_it_imports_neither_ray_nor_torch",
        "_open = threading.local()",
        '_open = threading.local(); print("hello")',
        "prints 'hello'",
    ),
    Mutant(
        "the_preflight_takes_the_example",
        '        if purpose != "start":\n',
        '        Check("options", True)\n        if purpose != "start":\n',
        "raised TypeError: Check.__init__() missing 1 required positional argument: 'detail'",
    ),
    Mutant(
        "each_instance_has_its_own_options",
        "self.options = options",
        "Journal.options = options",
        "of another one's options",
    ),
    Mutant(
        "plans_take_every_worker",
        _VARIABLE,
        '"JOURNAL": worker.windows[0].label',
        "inject_env raised IndexError",
    ),
    Mutant(
        "the_probed_program_is_used",
        _COMMAND,
        _COMMAND.replace("tool.path", 'shutil.which("env")'),
        "/env of this machine",
    ),
    Mutant(
        "the_named_program_is_found",
        'shutil.which("env")',
        'shutil.which(self.options.title) or shutil.which("env")',
        "the option title names a program",
    ),
    Mutant(
        "disposable_files_are_named",
        'Tool(path, "1.0")',
        'Tool(path, "1.0", disposable_temporary=["*"])',
        "'*', which any file matches",
    ),
    Mutant(
        "a_range_takes_little_time",
        "        self.ended = False\n",
        "        self.ended = threading.Event().wait(0.01)\n",
        "the limit is 2 ms",
    ),
    Mutant(
        "windows_leave_nothing_in_the_worker",
        _START,
        f"{_START}; shutil.__dict__.setdefault('kept', []).append(open(shutil.__file__))",
        "after the second window the worker has one more open",
    ),
    Mutant(
        "programs_inherit_nothing_of_the_tool",
        _START,
        f"{_START}; shutil.os.set_inheritable(shutil.os.open(shutil.__file__, 0), True)",
        "shutil.py, which is open in a window",
    ),
    Mutant(
        "servers_of_the_job_live_on",
        "[tool.path, *command.interpreter, ",
        f"[tool.path, {_LEAVES_A_PROCESS}, *command.interpreter, ",
        "the tool has left sleep running",
    ),
    Mutant(
        "leftovers_are_collected",
        _COLLECTS,
        "        if 'killed-copies' in worker.directory:\n"
        f"            raise OSError('no space')\n{_COLLECTS}",
        "collect_files raised OSError('no space') for a killed worker",
    ),
    Mutant(
        "a_window_that_left_nothing_is_passed_over",
        _COLLECTS,
        "        if 'killed-copies' in worker.directory:\n"
        "            return Collected({window.number: [] for window in windows[:2]})\n"
        f"{_COLLECTS}",
        "with a window that has left nothing collect_files returned",
    ),
    Mutant("options_have_good_defaults", "factory=dict", "default={}", "share the default of env"),
    Mutant(
        "hooks_leave_their_surroundings_alone",
        "return {" + _VARIABLE,
        'shutil.os.environ["X"] = "1"; return {' + _VARIABLE,
        "inject_env changes the process's environment",
    ),
    Mutant(
        "hooks_leave_their_surroundings_alone",
        "return {" + _VARIABLE,
        'print("variables"); return {' + _VARIABLE,
        "inject_env prints 'variables'",
    ),
    Mutant(
        "hooks_leave_their_surroundings_alone",
        "return {" + _VARIABLE,
        "threading.Event().wait(1.2); return {" + _VARIABLE,
        "inject_env took 1.",
    ),
    Mutant(
        "a_window_leaves_its_surroundings_alone",
        _START,
        f"{_START}; import gc; gc.disable()",
        "start_capture changes the process's gc",
    ),
    *(
        Mutant(
            "a_window_leaves_its_surroundings_alone",
            good,
            f"{good}{act}",
            f"changes the process's {what}",
        )
        for good, act, what in (
            (_START, "; import numpy; numpy.random.seed(0)", "numpy's random numbers"),
            (_START, "; __import__('ctypes').CDLL(None).prctl(36, 1)", "child subreaper"),
            (_START, "; subprocess.run = lambda *a: None", "functions of the standard library"),
            (
                "        RUNNING.remove(self)\n",
                "        threading.setprofile(None)\n",
                "profile func",
            ),
            (
                "        RUNNING.remove(self)\n",
                "        threading.settrace(None)\n",
                "trace function",
            ),
            (_START, "; import numpy; numpy.seterr(all='ignore')", "numpy's handling of errors"),
            (_START, "; subprocess.Popen.poll = print", "functions of the standard library"),
            (_START, "; threading.stack_size(0)", "stack size of new threads"),
            (
                _START,
                "; open('/proc/self/oom_score_adj', 'w').write('300')",
                "adjustment for the end of memory",
            ),
            (_START, "; __import__('ctypes').CDLL(None).prctl(1, 15)", "signal when the parent"),
            (_START, "; shutil.os.set_blocking(2, False)", "blocking of standard streams"),
            (
                _START,
                (
                    "; zone = shutil.os.environ.pop('TZ'); time.tzset(); "
                    "shutil.os.environ['TZ'] = zone"
                ),
                "time zone",
            ),
            (
                "        stack().append(self)\n",
                "        __import__('asyncio').set_event_loop(None)\n",
                "current event loop",
            ),
            (
                "        stack().append(self)\n",
                "        __import__('signal').set_wakeup_fd(-1)\n",
                "waking file of signals",
            ),
        )
    ),
    *(
        Mutant(
            "many_windows_leave_nothing",
            good,
            f"{good}{act}",
            message,
        )
        for good, act, message in (
            (
                "    ended.lines.append(ended.name)\n",
                "    KEPT.append([ended.name])\n",
                " objects; the limit is 50",
            ),
            (
                "        RUNNING.append(self)\n",
                "        KEPT.append(bytearray(b'x' * 200_000))\n",
                " KiB of memory; the limit is 64",
            ),
        )
    ),
    *(
        Mutant("a_window_may_end_in_another_hour", good, bad, message)
        for good, bad, message in (
            (
                'final = move(raw, worker.final_stem(window), ".txt")',
                'final = move(raw, worker.final_stem(window), f".{time.gmtime().tm_hour}.txt")',
                "in another hour a window is in Kit-2.step-1.",
            ),
            (
                "        RUNNING.remove(self)\n",
                "        RUNNING.remove(self)\n        assert time.gmtime().tm_hour == HOUR\n",
                "in another hour than start_capture raised",
            ),
        )
    ),
    Mutant(
        "a_start_that_cannot_write_is_undone",
        _RECORDED,
        "        lines = self.lines\n",
        "the window after one that could not be written raised RuntimeError('something is being",
    ),
    Mutant(
        "a_file_is_complete_when_it_is_returned",
        "        return [final] if",
        '        open(raw + ".left", "w").close()\n        return [final] if',
        "Kit-0.start-1.1.raw.left behind",
    ),
    Mutant(
        "each_window_leaves_a_file_of_its_own",
        'move(raw, worker.final_stem(window), ".txt")',
        'shutil.move(raw, worker.final_stem(window) + ".txt")',
        "which an earlier window has left",
    ),
    Mutant(
        "every_kind_of_window_is_taken",
        "move(raw, worker.final_stem(window)",
        'move(raw, f"{worker.directory}/Kit-0.step-{window.start}"',
        "whose name does not begin with",
    ),
    Mutant(
        "instances_share_nothing",
        _NOT_BEGUN,
        "        if not RUNNING:\n            return None\n"
        "        self.lines = RUNNING.pop().lines\n",
        "an instance that has started nothing stops another one",
    ),
    Mutant(
        "a_missing_tool_raises_nothing",
        'shutil.which("env")',
        'shutil.which("env").strip()',
        "without its program probe raised",
    ),
    Mutant("the_tool_is_there", 'Tool(path, "1', 'Tool("env", "1', "relative or does not exist"),
    Mutant(
        "a_broken_tool_is_refused", _RAN_TRUE, "if not tool:", "takes a program that always fails"
    ),
    Mutant(
        "checks_have_names_and_remedies",
        'if purpose != "start":\n            return None',
        'if purpose == "doctor":\n            return [Check("a", False, "b")]',
        "failed and has no remedy",
    ),
    Mutant(
        "sentences_are_sentences",
        _EXPECTED,
        _hook('plan_notes(self):\n        return [" "]'),
        "' ' is no sentence",
    ),
    Mutant(
        "shared_folders_are_inside",
        'Tool(path, "1.0")',
        'Tool(path, "1.0", shared_temporary=["/tmp"])',
        "'/tmp', which is not inside",
    ),
    Mutant(
        "the_command_has_good_words",
        _COMMAND,
        '[tool.path, "A={nodes}", *command.interpreter, *command.arguments]',
        "unknown placeholder {nodes}",
    ),
    Mutant("variables_are_the_tools_own", '"JOURNAL"', '"HOME"', "sets HOME, which is the job's"),
    Mutant(
        "plans_depend_on_their_arguments_only",
        _VARIABLE,
        '"JOURNAL": shutil.os.getcwd()',
        "in another process, directory, environment and hour",
    ),
    Mutant(
        "plans_of_two_workers_differ",
        _VARIABLE,
        '"JOURNAL": worker.directory',
        "get the same paths",
    ),
    Mutant(
        "expected_names_begin_as_they_should",
        _EXPECT_ALL,
        'f"{worker.directory}/{worker.name}.step-{window.step}.txt" for window in windows',
        "its name is to begin with",
    ),
    Mutant(
        "arguments_are_left_alone",
        "return {" + _VARIABLE,
        'self.options.env["X"] = "1"; return {' + _VARIABLE,
        "inject_env changes the options",
    ),
    Mutant(
        "ranges_are_read_as_they_were",
        _EXPECTED,
        _hook(
            "read_ranges(self, path):\n        from gpuprof.backend import RangeTimes\n"
            '        if path.endswith(".txt"):\n'
            '            return [RangeTimes(f"kit/sleep-{step}", (30,)) for step in (1, 3)]'
        ),
        "takes 30 ns",
    ),
    Mutant(
        "ranges_are_read_as_they_were",
        _EXPECTED,
        _hook(
            "read_ranges(self, path):\n        from gpuprof.backend import RangeTimes\n"
            '        if path.endswith(".txt"):\n'
            '            return [RangeTimes("kit/twin-1", (10**9, 5 * 10**7))]'
        ),
        "kit/twin-1 takes [50000000, 1000000000] ns; the worker has measured [(",
    ),
    Mutant(
        "the_files_hold_what_was_captured",
        _RANGE,
        "BY_NAME.setdefault(name, Crossing(self, name))",
        "has the ranges {'kit': 0}",
    ),
    Mutant(
        "windows_leave_nothing_in_the_worker",
        _START,
        f"{_START}; __import__('tempfile').mkdtemp()",
        "one more file in the temporary directory",
    ),
    *(
        Mutant("each_window_leaves_a_file_of_its_own", _WRITE, f"{act}\n        {_WRITE}", message)
        for act, message in (
            (
                'open("part", "w").close(); shutil.os.unlink("part")',
                "a window writes part into the working directory",
            ),
            (
                (
                    'part = __import__("tempfile").gettempdir() + "/journal.part"\n'
                    '        open(part, "w").close(); shutil.os.unlink(part)'
                ),
                "Kit-0.start-1 and Kit-1.start-1 both write",
            ),
            ("shutil.os.unlink(worker.log_file)", "a window changes or removes Kit-0.start-1.log"),
        )
    ),
    Mutant(
        "files_of_other_workers_are_left_alone",
        "if not (ended and",
        'for file in __import__("glob").glob(f"{worker.directory}/*.log"):\n'
        "            ended and shutil.os.unlink(file)\n        if not (ended and",
        "collecting files removes what the tool said, which was in Kit-0.start-1.log",
    ),
    Mutant(
        "awkward_paths_survive",
        _START,
        f'{_START}; open("journal.part", "w").close()',
        "'journal.part' is in the worker's working directory",
    ),
    Mutant(
        "arguments_need_not_be_utf_8",
        "[tool.path, ",
        f"[tool.path, {_TO_UTF_8}, ",
        r"the worker's argument 'caf\udce9' is ",
    ),
    Mutant(
        "the_command_has_good_words",
        "*command.arguments]\n        return",
        '*(word.encode("utf-8", "replace").decode() for word in command.arguments)]\n'
        "        return",
        "of the arguments",
    ),
    Mutant(
        "wrong_values_are_refused_early",
        _START,
        f"assert self.options.title != 'no such value'; {_START}",
        "title: 'no such value' is taken, and then start_capture raises AssertionError",
    ),
    Mutant(
        "wrong_values_are_refused_early",
        f"        return {_COMMAND}",
        "        wrong = ['-no'] if self.options.title == '' else []\n"
        "        return [tool.path, *wrong, *command.interpreter, *command.arguments]",
        "title: '' is taken, and then the tool ends with 125: ",
    ),
    Mutant(
        "plans_depend_on_their_arguments_only",
        _VARIABLE,
        '"JOURNAL": f"{time.gmtime().tm_hour}"',
        "directory, environment and hour",
    ),
    Mutant(
        "reports_are_checked",
        _EXPECTED,
        _hook('check_report(self, path):\n        return "bad" if "Kit-0.step" in path else None'),
        "check_report says of the good",
    ),
    Mutant(
        "reports_are_checked",
        _EXPECTED,
        _hook("check_report(self, path):\n        return None"),
        "takes a file that has lost its end",
    ),
    Mutant(
        "files_land_as_planned",
        _EXPECT_ALL,
        'f"{worker.final_stem(window)}.x.txt" for window in windows',
        "is planned in Kit-0.step-1.x.txt",
    ),
    Mutant(
        "files_land_as_planned",
        'move(raw, worker.final_stem(window), ".txt")',
        'move(raw, worker.final_stem(), ".txt")',
        "name both after the window: worker.final_stem(window), with the window",
    ),
    Mutant(
        "each_window_leaves_a_file_of_its_own",
        'move(raw, worker.final_stem(window), ".txt")',
        'move(raw, worker.final_stem(), ".txt")',
        "name both after the window: worker.final_stem(window), with the window",
    ),
    Mutant(
        "restarts_and_ranks_keep_their_files",
        'move(raw, worker.final_stem(window), ".txt")',
        'shutil.move(raw, worker.final_stem(window) + ".txt")',
        "2 starts of Kit-0 captured step-1 and left 1 of 2 files",
    ),
    Mutant(
        "files_of_other_workers_are_left_alone",
        "if not (ended and",
        'for file in __import__("glob").glob(f"{worker.directory}/Kit-01.*"):\n'
        "            ended and shutil.os.unlink(file)\n        if not (ended and",
        "collecting files changed",
    ),
    Mutant(
        "files_are_collected_once",
        "if not (ended and",
        'for file in __import__("glob").glob(f"{worker.directory}/Kit-*.txt"):\n'
        '            ended and shutil.copy(file, file + ".bak.txt")\n        if not (ended and',
        "collecting a second time changed",
    ),
    Mutant(
        "scopes_are_captured",
        "        if self.lines is None:\n",
        "        if self.lines is None or window.scope:\n",
        "discrete: true: window",
    ),
    Mutant(
        "signals_reach_the_worker",
        "[tool.path, *command.interpreter, ",
        f"[tool.path, {_BLOCKS_A_SIGNAL}, *command.interpreter, ",
        "the worker noted ready, SIGINT",
    ),
    Mutant(
        "a_whole_life_is_captured",
        "        if worker.lifetime:\n",
        "        if None:\n",
        "a script that never uses gpuprof left no complete report",
    ),
    Mutant(
        "a_worker_that_is_killed",
        "        return [final] if",
        '        if "killed" in __import__("sys").argv:\n            shutil.os.unlink(final)\n'
        "        return [final] if",
        "the window that was closed before",
    ),
    Mutant(
        "the_environment_is_the_jobs",
        "[tool.path, *command.interpreter, ",
        '[tool.path, "KIT_TEXT=changed", *command.interpreter, ',
        "the worker's variable KIT_TEXT is 'changed'",
    ),
    Mutant(
        "the_output_is_the_jobs",
        _START,
        f'{_START}; print("recording")',
        "where its launcher got",
    ),
    Mutant(
        "the_worker_stays_in_its_group",
        "[tool.path, *command.interpreter, ",
        '[tool.path, "setsid", "--wait", *command.interpreter, ',
        "the worker has a session of its own",
    ),
    Mutant(
        "it_does_something",
        "    @hookimpl\n",
        "",
        "the backend has none of the hooks render_command",
    ),
    Mutant("hooks_fit_the_contract", "self, window: Window", "self, windo: Window", "windo"),
    Mutant(
        "every_hook_has_its_mark",
        "@hookimpl\n    def expected_files",
        "def expected_file",
        "looks like the hook expected_files",
    ),
    Mutant("every_option_has_help", '"the first line"', '""', "options without help: title"),
    Mutant(
        "options_survive_the_way_to_the_worker",
        "title: str",
        "title: set",
        "do not survive a round trip",
    ),
    Mutant(
        "options_survive_the_way_to_the_worker",
        "@attrs.frozen\nclass Opt",
        "@attrs.frozen(eq=False)\nclass Opt",
        "received Opt",
    ),
    Mutant(
        "importing_it_imports_neither_ray_nor_torch",
        "import attrs",
        'import attrs, sys; sys.modules["pytest"]',
        "cannot be imported by itself: KeyError: 'pytest'",
    ),
    Mutant(
        "importing_it_imports_neither_ray_nor_torch",
        "import attrs",
        "import attrs, ray",
        "imports ray",
    ),
    Mutant(
        "planning_is_pure",
        "return [tool",
        'open("/dev/null", "w").close(); return [tool',
        "render_command has side effects: open /dev/null",
    ),
    Mutant(
        "planning_is_pure",
        '"JOURNAL": worker.name',
        '"JOURNAL": str(next(COUNT))',
        "inject_env returned",
    ),
    Mutant(
        "the_command_is_a_list_of_strings", _COMMAND, '"env python"', "expected a list of words"
    ),
    Mutant(
        "the_command_is_a_list_of_strings",
        ", *command.arguments",
        "",
        "end it with *command.arguments",
    ),
    Mutant(
        "variables_are_strings",
        "worker.name, **",
        "worker.rank, **",
        "expected a mapping of variables' names",
    ),
    Mutant(
        "the_users_variables_win",
        "worker.name, **self.options.env",
        'worker.name, **self.options.env, "JOURNAL": ""',
        "over the option",
    ),
    Mutant(
        "a_tool_is_found_or_said_to_be_missing",
        'Tool(path, "1.0")',
        "path",
        "expected a gpuprof.backend.Tool",
    ),
    Mutant(
        "a_tool_is_found_or_said_to_be_missing",
        '"1.0")',
        '"1.0", {"x": (1,)})',
        "only JSON's types",
    ),
    Mutant(
        "a_tool_is_found_or_said_to_be_missing",
        _PROBE,
        "return None\n\n    def _",
        "from missing_tool",
    ),
    Mutant(
        "files_are_expected_where_they_may_be",
        "{window.number:",
        "{window.label:",
        "expected a mapping of windows' numbers",
    ),
    Mutant(
        "files_are_expected_where_they_may_be",
        "{window.number:",
        "{window.number + 7:",
        "has a key 8, which is no window's number",
    ),
    Mutant("files_are_expected_where_they_may_be", _FILE, '"/elsewhere/x"', "outside"),
    Mutant("files_are_expected_where_they_may_be", _FILE, 'f"{worker.directory}/x"', "both expect"),
    Mutant(
        "every_hook_returns_what_it_should",
        _EXPECTED,
        f"    @hookimpl\n    def plan_notes(self):\n        return 'a note'\n\n{_EXPECTED}",
        "returned 'a note'; expected a list of strings",
    ),
    Mutant(
        "every_hook_returns_what_it_should",
        _EXPECTED,
        f"    @hookimpl\n    def collect_files(self):\n        return ['/a']\n\n{_EXPECTED}",
        "expected a gpuprof.backend.Collected",
    ),
    Mutant(
        "every_hook_returns_what_it_should",
        _EXPECTED,
        f"    @hookimpl\n    def plan_notes(self):\n        raise SystemExit(3)\n\n{_EXPECTED}",
        "raised SystemExit: 3",
    ),
    Mutant(
        "files_of_others_are_left_alone",
        _EXPECTED,
        "    @hookimpl\n    def read_ranges(self, path):\n        with open(path) as file:\n"
        f"            return json.load(file)\n\n{_EXPECTED}",
        "which the backend did not write",
    ),
    *(
        Mutant(
            "spans_are_where_and_when_they_were",
            _EXPECTED,
            _hook(
                "read_spans(self, path):\n        import os\n"
                "        from gpuprof.backend import RecordedTrack\n"
                f"        now = os.stat(path).st_mtime_ns\n        return [{tracks}]"
            ),
            message,
        )
        for tracks, message in (
            ('RecordedTrack("ranges", [("kit/a", now, now - 1)])', "ends 1 ns before it starts"),
            ('RecordedTrack("ranges", [("kit/a", now // 1000, now)])', "since the epoch"),
            (
                'RecordedTrack("ranges", [("kit/a", now - 3600 * 10**9, now)])',
                "the file was written at",
            ),
            ('RecordedTrack("nvtx", [("kit/a", now, now)])', "a track of the kind 'nvtx'"),
            (
                'RecordedTrack("ranges", [("kit/early-1", now - 600 * 10**9, now)])',
                "the worker was in it from",
            ),
            (
                f'RecordedTrack("ranges", [(name, now, now) for name in {_OF_TWO_THREADS}])',
                "of different threads, are on one",
            ),
        )
    ),
    Mutant(
        "the_preflight_takes_the_example",
        "        return None\n\n    @hookimpl\n    def start",
        _REFUSES.format('"no"'),
        "expected a list of gpuprof.backend.Check",
    ),
    Mutant(
        "the_preflight_takes_the_example",
        _RAN_TRUE,
        "if True:",
        "diagnose refuses the example options: : it cannot run true",
    ),
    Mutant(
        "windows_follow_each_other",
        "        RUNNING.remove(self)\n",
        "",
        "something is being recorded",
    ),
    Mutant(
        "start_and_stop_on_different_threads", "self.lines", "_open.lines", "no attribute 'lines'"
    ),
    Mutant(
        "stop_may_come_twice",
        _RETURN,
        _RETURN.replace("return None", "pass"),
        "the second stop_capture raised",
    ),
    Mutant(
        "stop_may_come_without_a_start",
        _RETURN,
        _RETURN.replace("return None", "pass"),
        "stop_capture without a start raised",
    ),
    Mutant(
        "stop_says_which_files", "return [final] if", "return final if", "expected a list of paths"
    ),
    Mutant(
        "stop_says_which_files",
        "return [final] if",
        'return [final + ".gz"] if',
        "which does not exist",
    ),
    Mutant(
        "an_exception_inside_a_window_does_no_harm",
        "self.ended = True",
        "assert error[0] is None; self.ended = True",
        "AssertionError",
    ),
    Mutant(
        "a_start_that_raised_is_ended",
        "RUNNING.remove(self)",
        "len(self.lines) > 1 and RUNNING.remove(self)",
        "another one raised",
    ),
    Mutant(
        "a_start_that_raised_is_ended",
        "RUNNING.remove(self)",
        "raise OSError",
        "stop_capture raised after a start that raised",
    ),
    Mutant(
        "a_range_lets_exceptions_pass",
        "self.lines.append(self.name)",
        "return True",
        "a range swallowed an exception",
    ),
    Mutant(
        "ranges_nest",
        _RANGE,
        "self.__dict__.setdefault(name, Once(self, name))",
        "was entered before it was left",
    ),
    Mutant("ranges_end_in_any_order", _RANGE, "Strict(self, name)", "was not the innermost"),
    Mutant(
        "ranges_in_many_threads",
        '_open.__dict__.setdefault("ranges", [])',
        "EVERYBODYS",
        "was popped by another thread",
    ),
    Mutant("ranges_of_many_tasks", _RANGE, "Strict(self, name)", "was not the innermost"),
    Mutant(
        "a_range_ends_in_another_thread", _RANGE, "Owned(self, name)", "was ended by another thread"
    ),
    Mutant(
        "a_range_outlives_its_window",
        "self.lines.append(self.name)",
        "RUNNING[0].lines.append(self.name)",
        "IndexError",
    ),
    Mutant(
        "the_worker_is_what_it_would_be", "*command.interpreter,", '"python3",', "sys.executable is"
    ),
    Mutant(
        "the_worker_is_what_it_would_be",
        '"JOURNAL": worker.name',
        '"PYTHONOPTIMIZE": "2"',
        "sys.flags is",
    ),
    Mutant(
        "the_worker_is_what_it_would_be",
        "[tool.path, ",
        f"[tool.path, {_DROPS_EMPTY}, ",
        "sys.argv is",
    ),
    Mutant(
        "the_process_is_as_the_launcher_made_it",
        "[tool.path, ",
        '[tool.path, "nice", "-n", "2", ',
        "the worker's niceness: ",
    ),
    Mutant(
        "the_process_is_as_the_launcher_made_it",
        "[tool.path, *command.interpreter, ",
        f'[tool.path, *command.interpreter, "-c", {_SETS_UMASK!r}, ',
        "the worker's umask: '0000'; without gpuprof '0027'",
    ),
    Mutant(
        "the_process_is_as_the_launcher_made_it",
        "        return [final] if",
        "        import os; os.chmod(final, 0o664)\n        return [final] if",
        "has mode 0664, which the umask 0027 forbids",
    ),
    Mutant(
        "another_program_runs_or_is_refused",
        "*life, *command.interpreter, ",
        '*life, *command.interpreter, "-m", "runpy", ',
        "did not run unchanged",
    ),
    Mutant(
        "the_exit_code_passes",
        "[tool.path, ",
        f"[tool.path, {_LOSES_EXIT_CODES}, ",
        "exited with 7, but the exit code is 0",
    ),
    Mutant(
        "the_exit_code_passes",
        _COMMAND,
        f"[tool.path, {_LOSES_EXIT_CODES}, *command.interpreter, *command.keep_exit_code, "
        "*command.arguments]",
        "python -c … exited with 7, but the exit code is 0",
    ),
    Mutant(
        "the_exit_code_passes",
        "[tool.path, ",
        f"[tool.path, {_LOSES_SIGNALS}, ",
        "the worker was killed by SIGSEGV, but the exit code is 0",
    ),
    Mutant(
        "awkward_paths_survive",
        "worker.final_stem(window), ",
        "worker.final_stem(window).replace(' ', '_'), ",
        "is missing",
    ),
    Mutant(
        "awkward_paths_survive",
        "        RUNNING.remove(self)\n",
        '        RUNNING.remove(self)\n        open(f"{worker.directory}/../../../stray", '
        '"w").close()\n',
        "'stray' was written beside the output directory",
    ),
    Mutant(
        "the_files_hold_what_was_captured",
        _MOVE,
        _MOVE_ELSEWHERE,
        "its directory has Kit-0.step-1.2.log, Kit-0.step-1.log",
    ),
    Mutant(
        "the_files_hold_what_was_captured",
        _EXPECT_ALL,
        f"{_EXPECT_ALL[:-7]}windows[:1]",
        "no file for window 2",
    ),
    Mutant(
        "the_files_hold_what_was_captured",
        "    ended.lines.append",
        '    "thread" in ended.name or ended.lines.append',
        "has the ranges",
    ),
    Mutant(
        "a_range_has_any_name",
        f"return {_RANGE}",
        f"name[0]; return {_RANGE}",
        "a range with the name ''",
    ),
    Mutant(
        "a_window_leaves_its_surroundings_alone",
        _START,
        f"{_START}; import multiprocessing; multiprocessing.set_start_method('spawn', True)",
        "start_capture changes the process's start method of multiprocessing",
    ),
    Mutant(
        "each_window_leaves_a_file_of_its_own",
        'raw = f"{worker.directory}/{worker.file_stem}.{window.number}.raw"',
        'raw = f"{worker.directory}/journal.raw"',
        "Kit-0.start-1 and Kit-1.start-1 both write",
    ),
    Mutant(
        "a_number_is_taken_or_refused",
        'title: str = option("the first line", default="journal")',
        'title: str = option("the first line", default="journal")\n'
        '    most: int = option("lines to keep", default=9)\n\n'
        "    def __attrs_post_init__(self):\n"
        "        if self.most == -1:\n"
        "            Nested.__exit__ = lambda *_: None",
        "with most: -1 a window leaves none of 1 ranges",
    ),
    Mutant(
        "a_report_outlives_the_workers_group",
        _MOVE,
        """stem = worker.final_stem(window)
        subprocess.Popen(["sh", "-c", 'read line; mv "$0" "$1"', raw, f"{stem}.txt"],
                         stdin=subprocess.Popen(["sleep", "99"], stdout=subprocess.PIPE).stdout)
        return None""",
        "a worker whose process group was killed when it had ended: window step-1: ",
    ),
    Mutant(
        "the_launcher_imports_little",
        'return {"JOURNAL"',
        'import xmlrpc.server\n        return {"JOURNAL"',
        "packages into the launcher: ",
    ),
    Mutant(
        "the_defaults_work",
        _START,
        f"{_START}; 1 // (self.options.title != 'journal')",
        "a hook raised in the worker: ",
    ),
    Mutant(
        "leftovers_are_collected",
        _EXPECTED,
        _hook(
            "check_report(self, path):\n"
            "        return 'cut short' if '/early/' in path else None\n\n"
            "    @hookimpl\n"
            "    def collect_files(self, worker, windows):\n"
            "        if 'killed-copies' not in worker.directory:\n"
            "            return None\n"
            "        raw = f'{worker.directory}/{worker.file_stem}.part'\n"
            "        open(raw, 'w').close()\n"
            "        final = move(raw, worker.final_stem(windows[0]), '.txt')\n"
            "        return Collected({1: [final]})"
        ),
        "of which check_report says: cut short",
    ),
    Mutant(
        "a_worker_that_is_killed",
        "[tool.path, *command.interpreter, ",
        f"[tool.path, {_FORGETS}, self._whole_life(worker), *command.interpreter, ",
        "is gone, in which something was recorded",
    ),
    Mutant(
        "a_window_leaves_its_surroundings_alone",
        _START,
        f"{_START}; __import__('sys').setprofile(lambda *_: None)",
        "nothing of the job is recorded",
    ),
    Mutant(
        "it_says_what_it_is",
        "    contract = 2\n",
        "    contract = 2\n    start_in_thread = True\n",
        "start_in_thread: True is for a backend that records in the process",
    ),
    Mutant(
        "the_process_is_as_the_launcher_made_it",
        "[tool.path, *command.interpreter, ",
        '[tool.path, "--no-such-option", *command.interpreter, ',
        "the tool has not run the worker: gpuprof: Kit-0 on ",
    ),
)
