"""Rendering `rocprof-sys-python` and its environment."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprof import Command, Tool, Worker

from gpuprof_rocprof_sys._options import RocprofSysOptions, Value

_INHERITED = ("ROCPROFSYS_ROOT_PROCESS", "ROCPROFSYS_PYTHON_SCRIPT_FILE")
"""Left over from a profiled parent they make the worker a child that writes no files."""


def render(command: Command, tool: Tool, options: RocprofSysOptions) -> list[str]:
    """The argument vector that runs `command` under the launcher."""
    if options.interpreter_after_dashes:
        return [tool.path, *words(options.args), "--", *command.interpreter, *command.arguments]
    # env(1) and not our own environment: the launcher must see the interpreter even where the shell's start-up files set another.
    environment = [*(word for name in _INHERITED for word in ("-u", name)), f"PYTHON_EXECUTABLE={command.interpreter[0]}"]
    return ["env", *environment, tool.path, "-b", *words(options.args), "--", *command.arguments]


def words(args: Mapping[str, Value]) -> list[str]:
    """``-k v`` for one letter, ``--key=v`` for more, the option alone for ``None``.

    >>> words({"T": "hip,hsa,rccl", "output-format": "json", "trace-c": None})
    ['-T', 'hip,hsa,rccl', '--output-format=json', '--trace-c']
    """
    rendered: list[str] = []
    for key, value in args.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value is None:
            rendered.append(f"-{key}" if len(key) == 1 else f"--{key}")
        else:
            rendered += [f"-{key}", text] if len(key) == 1 else [f"--{key}={text}"]
    return rendered


def environment(worker: Worker, options: RocprofSysOptions) -> dict[str, str | None]:
    """Where the files go and what is in them; the user's `env` wins."""
    return {
        "ROCPROFSYS_OUTPUT_PATH": worker.directory,
        "ROCPROFSYS_OUTPUT_PREFIX": f"{worker.file_stem}-",  # the tool puts no separator after it
        "ROCPROFSYS_TIME_OUTPUT": "false",
        "ROCPROFSYS_USE_PID": "true",
        "ROCPROFSYS_TRACE": "true",
        "ROCPROFSYS_PROFILE": "false",
        "ROCPROFSYS_USE_ROCPD": "false",
        **dict.fromkeys(_INHERITED),
        **options.env,
    }
