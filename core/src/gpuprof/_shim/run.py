"""The shim: runs on the node in front of a worker.

It fills in the values that are known only on the node. Then it becomes the worker, or starts the
worker under the profiler.

It is run by path with ``python -S -E``, before any environment is set up, so it uses only the
standard library and this folder. ``GPUPROF_WORKER`` holds the worker's row of the plan; the
arguments are appended to the interpreter. If anything goes wrong here, the worker still runs.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from . import inherited
from .claim import claim
from .exit_code import SCRIPT, Note
from .files import (
    directory,
    exit_code_file,
    log_file,
    private_file,
    start_stem,
    started_file,
    status_file,
    tool_status,
    write_json,
)
from .node import node_name, selected
from .ownership import scratch_owner
from .processes import process_start
from .row import (
    INTERPRETER,
    KEEP_EXIT_CODE,
    VARIABLE,
    Row,
    decode,
    encode,
    has_log,
    planned_interpreter,
    starts_worker,
)
from .safe import create
from .scratch import STALLED, end_tool, make_scratch, remove_scratch
from .tool import (
    UNKNOWN,
    UNKNOWN_EXIT_CODE,
    adopt_orphans,
    as_shells_say,
    pause,
    spare_outputs,
    start,
    take_signals,
    wait,
)
from .tool_log import ToolLog

ATTEMPTS = 7
PAUSE = 0.5
"""Seconds to wait after the first attempt; each further wait is longer by as much.

nsys gives its agent little time to start, so some starts fail when all of a node's workers start at
once (measured: 28 of 100, with twelve at once and eight busy processes on two cores). A command
that fails seven times is taken to be wrong.
"""

# The profiler's target is this shell code. It records once, in the mark file, that the worker has
# started and as which process; then it becomes the interpreter. Without a mark the shim would start
# the worker again, so the code recreates the directory if somebody has removed it. It also restores
# the umask, which nsys sets to 0.
_MARK = '{ printf "%s\\n" "$stat" >"$0"; }'
_MARK_START = (
    f'{inherited.umask_command()}[ -e "$0" ] || {{ read -r stat </proc/$$/stat && {_MARK} '
    f'2>/dev/null || {{ mkdir -p "${{0%/*}}" && {_MARK}; }}; }}; '
)
_BECOME = 'exec "$@"'


def _become_with(out: int, err: int) -> str:
    """Shell commands that become the interpreter, with this process's stdout and stderr.

    A tool may have closed the descriptors that it was given, or reused them; then the commands
    reopen the outputs. A socket cannot be reopened, so the worker then keeps the tool's outputs.

    Args:
        out: the descriptor under which the tool got stdout.
        err: the descriptor under which the tool got stderr.
    """
    files = f"/proc/{os.getpid()}/fd"
    same = f"[ /proc/self/fd/{out} -ef {files}/1 ] && [ /proc/self/fd/{err} -ef {files}/2 ]"
    outputs = f">>{files}/1 2>>{files}/2"
    return (
        f"if {{ {same}; }} 2>/dev/null; then {_BECOME} >&{out} 2>&{err} {out}>&- {err}>&-; "
        f"elif {{ true {outputs}; }} 2>/dev/null; then {_BECOME} {outputs}; fi; {_BECOME}"
    )


def main(value: str, arguments: list[str]) -> int:
    """Run the worker that the encoded row `value` describes; see `run`.

    If the row cannot be read, the worker still runs, but without gpuprof.
    """
    try:
        row = decode(value)
    except ValueError as error:
        sys.stderr.write(
            f"gpuprof: process {os.getpid()} on {node_name()} runs without gpuprof: {error}\n"
        )
        sys.stderr.flush()
        del os.environ[VARIABLE]
        command = [*(planned_interpreter(value) or [sys.executable]), *arguments]
        inherited.become(command)
    if "launch" not in row:  # made by a profiled worker, and inherits its command
        inherited.become([*row.get("interpreter", [sys.executable]), *arguments])
    return run(row, arguments)


def run(row: Row, arguments: list[str]) -> int:
    """Run the worker under the profiler, to the worker's end.

    If the plan or this node does not allow that, runs the worker without the profiler. This usually
    replaces this process, and then never returns.

    Returns:
        The exit code; 128 plus the number for a signal.
    """
    inherited.heed_children()
    launch = row.pop("launch")
    apart = launch.get("apart", False)  # see `tool.start`
    interpreter = _find_interpreter(row, launch["interpreter"])
    try:
        incarnation = claim(row, os.getpid(), twins=not apart)
    except (OSError, ValueError) as error:
        return _run_unwrapped(
            row, [*interpreter, *arguments], f"{directory(row)} cannot be written: {error}", apart
        )
    if incarnation is None:
        if apart:  # `gpuprof run` inside a worker never gets here
            _warn_unwrapped(row, "another live process is this rank of this run")
        row["role"] = "child"
        _become([*interpreter, *arguments], row)
    row["role"] = "owner"
    row["node"] = node_name(row)
    row["incarnation"] = incarnation
    with suppress(OSError):  # with a planted mark, this start would never count as started
        os.unlink(started_file(row, incarnation))
    if not selected(row["nodes"]):
        row["profiled"] = False
        with suppress(OSError):
            write_json(status_file(row, incarnation), tool_status("unselected"))
        _become([*interpreter, *arguments], row)

    environment = dict(os.environ)
    for name, value in launch["environment"].items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    late = {"{node}": node_name(row), "{incarnation}": incarnation, "{tool}": _find(launch["tool"])}
    try:
        scratch, temporary = make_scratch(
            environment,
            launch["shared_temporary"],
            scratch_owner(row, incarnation, launch["disposable_temporary"]),
        )
    except OSError as error:
        if has_log(launch["command"]):
            place = environment.get("TMPDIR") or "/tmp"
            reason = f"no temporary directory can be made in {place}: {error.strerror}"
            return _run_unwrapped(row, [*interpreter, *arguments], reason, apart)
        scratch, temporary = "", []  # a tool inside the worker needs none
    has_target = starts_worker(launch["command"])
    # Launchers kill the worker's process group, as Ray does once the worker has ended. The tool may
    # still be writing its report then, so it gets a process group of its own.
    own_group = has_target and not apart
    restore = [*temporary, *inherited.restore_command(os.getpgrp() if own_group else None)]
    # The tool would copy the worker's output, and mix its own output into it.
    outputs = spare_outputs() if has_log(launch["command"]) else ()
    become = _become_with(*outputs) if outputs else _BECOME
    target = [
        "/bin/sh",
        "-c",
        _MARK_START + become,
        started_file(row, incarnation),
        *restore,
        *interpreter,
    ]
    # A variable or an option can hold only one path, so a tool that takes the interpreter there
    # gets a program that becomes the target.
    by_path = INTERPRETER not in launch["command"] and any(
        INTERPRETER in word for word in launch["command"]
    )
    program = (
        _make_program(private_file(row, f"{start_stem(row, incarnation)}.python"), target)
        if by_path
        else interpreter[0]
    )
    keep = [SCRIPT, exit_code_file(row, incarnation)]
    note = None
    if KEEP_EXIT_CODE in launch["command"]:
        try:
            note = Note(keep[1])
        except OSError as error:
            remove_scratch(scratch, leftovers=True)
            reason = f"{keep[1]} cannot be written: {error.strerror}"
            return _run_unwrapped(row, [*interpreter, *arguments], reason, apart)
    command = (
        _resolve(launch["command"], late, {INTERPRETER: target, KEEP_EXIT_CODE: keep}, program)
        + arguments
    )
    late_names = launch["environment"].keys() - set(launch.get("verbatim", ()))
    for name in late_names & environment.keys():
        environment[name] = _replace(environment[name], {**late, INTERPRETER: interpreter[0]})
    environment[VARIABLE] = encode(row)
    if scratch:
        environment["TMPDIR"] = scratch

    mark = started_file(row, incarnation)
    # A tool that gets a signal may end before the worker, and with another exit code.
    to_worker = has_target
    reason = ""
    undelivered: list[int] = []
    log = ToolLog(log_file(row, incarnation) if outputs else "")
    adopt_orphans(has_target)
    for attempt in range(ATTEMPTS):
        since = log.size
        try:
            process = start(command, environment, apart, outputs, log.handle, own_group)
        except OSError as error:
            reason = f"{command[0]} cannot be run: {error.strerror}"
            break
        status = tool_status(
            "running",
            shim=os.getpid(),
            scratch=scratch,
            tool=late["{tool}"],
            tool_version=launch["tool_version"],
            marks=has_target,
        )
        status["pid"], status["start"] = process.pid, process_start(process.pid)
        with suppress(OSError):  # a full disk
            write_json(status_file(row, incarnation), status)
        end = wait(process, mark, to_worker, apart, undelivered, scratch)
        if has_target and not end.started:
            pause(PAUSE * (attempt + 1), undelivered)
            # nsys's agent may still start, and we would wait for it as one of the tool's processes
            if scratch:
                end_tool(scratch, at_once=True)
            if not undelivered:
                continue
        remove_scratch(scratch)
        log.close()
        code = end.code
        if note is not None and (script_code := note.read()) is not None:
            code = script_code
        elif note is not None:
            code = end.code or None
        status["state"], status["exit_code"] = "ended", code
        status["reason"] = STALLED if end.stalled else ""
        with suppress(OSError):  # a full disk
            write_json(status_file(row, incarnation), status)
        # A signal that arrived before the worker's start ends this process instead of the worker.
        if undelivered and has_target:
            return 128 + undelivered[0]
        if code is None:
            if not apart:  # `gpuprof run` says so in its receipt
                _say(row, f"ends with {UNKNOWN}: {UNKNOWN_EXIT_CODE}")
            return int(UNKNOWN)
        return int(as_shells_say(code))
    else:
        take_signals(undelivered)
        words = log.first_words(since) or "it printed nothing"
        reason = f"{os.path.basename(command[0])} does not start (exit code {end.code}): {words}"
    log.close()
    for number in outputs:
        os.close(number)
    remove_scratch(scratch, leftovers=True)
    adopt_orphans(False)
    return _run_unwrapped(row, [*interpreter, *arguments], reason, apart)


def _make_program(path: str, command: list[str]) -> str:
    from shlex import join  # slow to import, rarely needed

    with open(create(path), "w") as file:
        file.write(f'#!/bin/sh\nexec {join(command)} "$@"\n')
        os.fchmod(file.fileno(), 0o755)
    return path


def _resolve(
    command: list[str], late: dict[str, str], several: dict[str, list[str]], program: str
) -> list[str]:
    """Fill in a command's placeholders.

    Args:
        late: the values of placeholders inside a word.
        several: for each placeholder that is a whole word, the words to replace it with.
        program: the value of ``{interpreter}`` inside a longer word.
    """
    words: list[str] = []
    for word in command:
        words += (
            several[word] if word in several else [_replace(word, {**late, INTERPRETER: program})]
        )
    return words


def _replace(word: str, late: dict[str, str]) -> str:
    for placeholder, value in late.items():
        word = word.replace(placeholder, value)
    return word


def _run_unwrapped(row: Row, command: list[str], reason: str, apart: bool) -> int:
    """Run the worker without the tool: become the worker, or start and await it if `apart`."""
    _warn_unwrapped(row, reason)
    row["unwrapped"] = reason
    mark = ""
    if "incarnation" in row:
        mark = started_file(row, row["incarnation"])
        with suppress(OSError):
            write_json(
                status_file(row, row["incarnation"]),
                tool_status("unwrapped", reason=reason, shim=os.getpid()),
            )
    # nothing can be collected from here, so the worker writes its tree to the final directory
    elif "home" in row:
        row["output_dir"] = row.pop("home")
    if not apart:
        _become(command, row)
    command = [*inherited.restore_command(None), *command]
    target = ["/bin/sh", "-c", _MARK_START + _BECOME, mark, *command] if mark else command
    process = start(target, {**os.environ, VARIABLE: encode(row)}, apart)
    code = wait(process, mark, False, apart, []).code
    return UNKNOWN if code is None else int(as_shells_say(code))


def _warn_unwrapped(row: Row, reason: str) -> None:
    _say(row, f"runs without the profiler: {reason}")


def _say(row: Row, what: str) -> None:
    sys.stderr.write(f"gpuprof: {row['group']}-{row['rank']} on {node_name(row)} {what}\n")
    sys.stderr.flush()


def _become(command: list[str], row: Row) -> NoReturn:
    os.environ[VARIABLE] = encode(row)
    inherited.become(command)


def _find_interpreter(row: Row, interpreter: list[str]) -> list[str]:
    """The worker's Python as planned.

    If none was planned, or it is missing on this node, returns this process's own Python, which is
    Ray's on this node.
    """
    if not interpreter:
        return [sys.executable]
    if os.path.isabs(interpreter[0]) and not os.path.exists(interpreter[0]):
        name = f"{row['group']}-{row['rank']}"
        sys.stderr.write(
            f"gpuprof: {name} runs in {sys.executable}: {interpreter[0]} is not on "
            f"{node_name(row)}\n"
        )
        sys.stderr.flush()
        return [sys.executable, *interpreter[1:]]
    return interpreter


def _find(program: str) -> str:
    """`program`, or the program of that name on PATH if this node lacks the planned path."""
    if os.path.isabs(program) and not os.path.exists(program):
        from shutil import which  # slow to import, rarely needed

        return which(os.path.basename(program)) or program
    return program
