"""Rendering the launcher's command."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprof.backend import Command, Tool, Worker
from gpuprof.errors import ConfigError

from gpuprof_rocprof_sys._arguments import Launcher, find
from gpuprof_rocprof_sys._options import RocprofSysOptions, Value

INHERITED = ("ROCPROFSYS_ROOT_PROCESS", "ROCPROFSYS_PYTHON_SCRIPT_FILE")
"""Left over from a profiled parent they make the worker a child that writes no files."""

# The package lies beside the launcher. Before a PYTHONPATH of the job's own, as the launcher itself
# has it; an empty entry would be the working directory.
_WITH_PACKAGE = (
    'export PYTHONPATH="$(dirname '
    '"$0")/../lib/python/site-packages${PYTHONPATH:+:$PYTHONPATH}"; exec "$@"'
)


def render(worker: Worker, command: Command, tool: Tool, options: RocprofSysOptions) -> list[str]:
    """The argument vector that runs `command` under the launcher.

    Raises:
        ConfigError: the launcher does not run such a command.
    """
    given = words(options.args, options.launcher)
    if options.interpreter_after_dashes:
        return [tool.path, *given, "--", *command.interpreter, *command.arguments]
    if options.launcher in ("python", "module") and not command.script:
        problem = (
            "it runs Python scripts and nothing else; expected sample or run, or a command "
            "as in python train.py"
        )
        raise ConfigError(
            [f"rocprof_sys.launcher: {options.launcher!r} is not valid for this command: {problem}"]
        )
    # env(1) and not the worker's environment alone: the launcher must not see what a profiled
    # parent has left behind.
    clean = ["env", *(word for name in INHERITED for word in ("-u", name))]
    if options.launcher in ("sample", "run"):
        return [*clean, tool.path, *given, "--", *command.interpreter, *command.arguments]
    frames_from_the_start = options.python_frames and worker.lifetime
    builtin = [] if frames_from_the_start or {"b", "builtin"} & set(options.args) else ["-b"]
    # It forgets what a script ends with.
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
            *given,
            "--",
            *script,
        ]
    # What follows `--` is run as a script, so the interpreter goes another way.
    return [
        *clean,
        f"PYTHON_EXECUTABLE={command.interpreter[0]}",
        tool.path,
        *builtin,
        *given,
        "--",
        *script,
    ]


def words(args: Mapping[str, Value], launcher: Launcher = "python") -> list[str]:
    """``-k v`` for one letter, ``--key=v`` for more, a list as several words, the option alone for
    ``None``.

    >>> words({"T": "hip,hsa,rccl", "output-format": "json", "trace-c": None, "MI": ["a.py", "b.py"], "b": False})
    ['-T', 'hip,hsa,rccl', '--output-format=json', '--trace-c', '-MI', 'a.py', 'b.py']
    """
    rendered: list[str] = []
    for key, value in args.items():
        known = find(key, launcher)
        dashed = (
            next((spelling for spelling in known.spellings if spelling.lstrip("-") == key), "")
            if known
            else ""
        )
        name = dashed or (f"-{key}" if len(key) == 1 else f"--{key}")
        if known is not None and known.kind == "flag" and isinstance(value, bool):
            rendered += [name] if value else []
        elif value is None:
            rendered.append(name)
        elif isinstance(value, list):
            rendered += [name, *map(_text, value)]
        else:
            rendered += (
                [f"{name}={_text(value)}"] if name.startswith("--") else [name, _text(value)]
            )
    return rendered


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
