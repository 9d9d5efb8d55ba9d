"""Renders the launcher's command line."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprof.backend import Command, Tool, Worker
from gpuprof.errors import ConfigError

from gpuprof_rocprof_sys._arguments import Launcher, find
from gpuprof_rocprof_sys._options import RocprofSysOptions, Value

INHERITED = ("ROCPROFSYS_ROOT_PROCESS", "ROCPROFSYS_PYTHON_SCRIPT_FILE")
"""Variables of a profiled parent: a worker that inherits them writes no files."""

# Put the launcher's Python package before the job's own PYTHONPATH, as the launcher does. Avoid an
# empty entry, which would mean the working directory.
_WITH_PACKAGE = (
    'export PYTHONPATH="$(dirname '
    '"$0")/../lib/python/site-packages${PYTHONPATH:+:$PYTHONPATH}"; exec "$@"'
)


def render(worker: Worker, command: Command, tool: Tool, options: RocprofSysOptions) -> list[str]:
    """The command line that runs `command` under the launcher.

    Raises:
        ConfigError: the launcher cannot run this command.
    """
    options_as_words = words(options.rendered, options.launcher)
    if options.interpreter_after_dashes:
        return [tool.path, *options_as_words, "--", *command.interpreter, *command.arguments]
    if options.launcher in ("python", "module") and not command.script:
        problem = (
            "it only runs Python scripts; expected sample or run, or a command such as "
            "python train.py"
        )
        raise ConfigError(
            [f"rocprof_sys.launcher: {options.launcher!r} is not valid for this command: {problem}"]
        )
    # env(1) also hides a profiled parent's variables from the launcher, not only from the worker.
    clean = ["env", *(word for name in INHERITED for word in ("-u", name))]
    if options.launcher in ("sample", "run"):
        return [
            *clean,
            tool.path,
            *options_as_words,
            "--",
            *command.interpreter,
            *command.arguments,
        ]
    frames_from_the_start = options.python_frames and worker.lifetime
    builtin = [] if frames_from_the_start or {"b", "builtin"} & set(options.args) else ["-b"]
    # The launcher does not return the script's exit code.
    script = [*command.keep_exit_code, *command.arguments]
    if options.launcher == "module":
        module = [*command.interpreter, "-m", "rocprofsys"]
        return [
            *clean,
            "/bin/sh",
            "-c",
            _WITH_PACKAGE,
            tool.path,
            *module,
            *builtin,
            *options_as_words,
            "--",
            *script,
        ]
    # The launcher runs the word after `--` as a script, so a variable names the interpreter.
    return [
        *clean,
        f"PYTHON_EXECUTABLE={command.interpreter[0]}",
        tool.path,
        *builtin,
        *options_as_words,
        "--",
        *script,
    ]


def words(args: Mapping[str, Value], launcher: Launcher = "python") -> list[str]:
    """Render options: ``-k v`` for one letter, ``--key=v`` for more.

    A list becomes several words; with ``None`` the option stands alone.

    >>> words({"T": "hip,hsa,rccl", "output-format": "json", "trace-c": None, "b": False})
    ['-T', 'hip,hsa,rccl', '--output-format=json', '--trace-c']
    >>> words({"MI": ["a.py", "b.py"]})
    ['-MI', 'a.py', 'b.py']
    """
    result: list[str] = []
    for key, value in args.items():
        argument = find(key, launcher)
        own_spelling = (
            next((spelling for spelling in argument.spellings if spelling.lstrip("-") == key), "")
            if argument
            else ""
        )
        name = own_spelling or (f"-{key}" if len(key) == 1 else f"--{key}")
        if argument is not None and argument.kind == "flag" and isinstance(value, bool):
            result += [name] if value else []
        elif value is None:
            result.append(name)
        elif isinstance(value, list):
            result += [name, *map(_text, value)]
        else:
            result += [f"{name}={_text(value)}"] if name.startswith("--") else [name, _text(value)]
    return result


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
