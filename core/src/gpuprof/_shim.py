"""What runs on the node in front of a worker: resolve what the plan could not know, then become or start the worker.

Run by path with ``python -S -E``, before any environment is set up, so: the standard library and two neighbours. The session
imports it too, for the claim. The plan's row for this worker comes in ``GPUPROF_WORKER``; what follows the script on the
command line is appended to the interpreter. Whatever goes wrong here, the worker itself is run.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

if __name__ == "__main__":  # run by path: this folder is where modules are looked for, and the package is not known
    import _exit_code  # type: ignore[import-not-found, no-redef, unused-ignore]
    import _scratch  # type: ignore[import-not-found, no-redef, unused-ignore]
    import _tool_process  # type: ignore[import-not-found, no-redef, unused-ignore]

    sys.path.pop(0)  # nothing else here may shadow the standard library
else:
    from gpuprof import _exit_code, _scratch, _tool_process

VARIABLE = "GPUPROF_WORKER"
VERSION = 1
INTERPRETER = "{interpreter}"
KEEP_EXIT_CODE = "{keep_exit_code}"
"""Stands in a command for the words in front of a script by which its exit code reaches us past a tool that loses it."""
ATTEMPTS = 5
PAUSE = 0.5
"""Seconds after the first attempt, and as many more after each further one.

nsys gives its agent little time to come up, so where all of a node's workers start at once some starts fail (tried: 28 of 100 with
twelve at once beside eight busy processes on two cores). What fails five times is a bad command."""
TOGETHER = 0.2
"""Seconds between two processes that were started at the same moment, at most."""

Row = dict[str, Any]

# Run as the profiler's target: say, once, that the target has started, and as which process, then become the interpreter.
# Without a mark it would be started again, so the directory is made anew if somebody has removed it meanwhile.
_MARK = '{ printf "%s\\n" "$stat" >"$0"; }'
_MARK_START = (
    f'[ -e "$0" ] || {{ read -r stat </proc/$$/stat && {_MARK} 2>/dev/null || {{ mkdir -p "${{0%/*}}" && {_MARK}; }}; }}; exec "$@"'
)


def encode(row: Row) -> str:
    """A row as a value that survives Ray, which expands ``$`` in environment variables."""
    return base64.urlsafe_b64encode(json.dumps(row, separators=(",", ":")).encode()).decode()


def decode(value: str) -> Row:
    """The inverse of `encode`.

    Raises:
        ValueError: it is not a row, or one of another version of gpuprof.
    """
    row = json.loads(base64.urlsafe_b64decode(value))
    if not isinstance(row, dict) or row.get("version") != VERSION:
        raise ValueError(f"{VARIABLE} is not a row of version {VERSION}")
    return row


_given_name: str | None = None


def name_node(name: str | None) -> None:
    """Give this node a name, in this process: one that its row does not tell, as on the driver."""
    global _given_name
    _given_name = name


def node_name(row: Row | None = None) -> str:
    """This node's name in paths: its host name; where several nodes share that, with the beginning of Ray's id of the node.

    Args:
        row: of the worker that this process is. It says whether nodes share a name.
    """
    host = os.uname().nodename
    node = _ray_node() if row is not None and row.get("node_ids") else ""
    return unique_name(host, node) if node else _given_name or host


def unique_name(host: str, node: str) -> str:
    """A node's name where its host name is not enough."""
    return f"{host}-{node[:8]}"


def _ray_node() -> str:
    """Ray's id of this node, which a worker's environment does not have, but the command of the raylet that has started it."""
    with suppress(OSError, KeyError), open(f"/proc/{os.environ['RAY_RAYLET_PID']}/cmdline") as file:
        for word in file.read().split("\0"):
            if word.startswith("--node_id="):
                return word.partition("=")[2]
    return ""


def directory(row: Row) -> str:
    """Where the files of this worker go on this node."""
    return os.path.join(row["output_dir"], row["run"], node_name(row))


def private_file(row: Row, name: str) -> str:
    """A file that is not for the user, beside the reports."""
    return os.path.join(directory(row), ".gpuprof", name)


def claim(row: Row, pid: int, *, twins: bool = False) -> str | None:
    """Take this worker's identity on this node for `pid`. Its children inherit its environment and would pass for it.

    Args:
        twins: take it also beside processes that began at the same moment, which no call of theirs can have started. Ray starts
            two where a first task finds no idle process: one for the task and one for those to come. Either may get it.

    Returns:
        The incarnation, from ``1``; or ``None`` while another process that has the identity lives.

    Raises:
        OSError: the directory cannot be written.
    """
    path = private_file(row, f"{row['group']}-{row['rank']}.claim")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        claims = json.loads(text) if text else []
        mine = {"incarnation": len(claims) + 1, "pid": pid, "start": _scratch.process_start(pid)}
        mine["parent"] = _scratch.process_parent(pid)
        if any(_lives(row, other) and not (twins and _are_twins(mine, other)) for other in claims):
            return None
        file.truncate(0)
        json.dump([*claims, mine], file)
    return str(mine["incarnation"])


def _are_twins(one: Row, other: Row) -> bool:
    """Whether two claims are of processes that were started together. What a call of one starts comes a second later or more."""
    apart = abs(int(one["start"]) - int(other["start"])) / os.sysconf("SC_CLK_TCK")
    return bool(one["parent"] == other["parent"] and apart <= TOGETHER)


def _lives(row: Row, other: Row) -> bool:
    # The profiler outlives its worker while it writes the report, so the target counts, once there is one.
    target = _tool_process.started_process(started_file(row, str(other["incarnation"])))
    pid, start = target or (other["pid"], other["start"])
    return start is not None and _scratch.process_start(pid) == start


def started_file(row: Row, incarnation: str) -> str:
    """Where the target of this start of the worker says which process it is."""
    return private_file(row, f"{_stem(row, incarnation)}.target")


def status_file(row: Row, incarnation: str) -> str:
    """Where the shim says how the profiler fares: JSON with ``state``, ``reason`` and ``exit_code``."""
    return private_file(row, f"{_stem(row, incarnation)}.tool")


def exit_code_file(row: Row, incarnation: str) -> str:
    """Where a worker's script leaves its exit code, if the command has `KEEP_EXIT_CODE` in front of it."""
    return private_file(row, f"{_stem(row, incarnation)}.exit-code")


def _stem(row: Row, incarnation: str) -> str:
    return f"{row['group']}-{row['rank']}.start-{incarnation}"


def write_json(path: str, data: Row) -> None:
    """Write a file that is never seen half-written."""
    text = json.dumps(data)  # before a file is there that nobody would take away
    temporary = f"{path}.{os.uname().nodename}.{os.getpid()}.tmp"  # process ids repeat in containers
    with open(temporary, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def run(row: Row, arguments: list[str]) -> int:
    """Run the worker to its end, wrapped. Where the plan or this node does not allow that, become it, and never return.

    Args:
        row: of the plan, with ``launch``.
        arguments: appended to the interpreter.

    Returns:
        The exit code; 128 and its number for a signal.
    """
    launch = row.pop("launch")
    apart = launch.get("apart", False)  # see `_tool_process`
    interpreter = _find_interpreter(row, launch["interpreter"])
    try:
        incarnation = claim(row, os.getpid(), twins=not apart)
    except (OSError, ValueError) as error:
        return _run_unwrapped(row, [*interpreter, *arguments], f"{directory(row)} cannot be written: {error}", apart)
    if incarnation is None:
        if apart:  # `gpuprof run` inside a worker does not come here
            _say_without(row, "another process is this rank of this run, and lives")
        row["role"] = "child"
        _become([*interpreter, *arguments], row)
    row.update(role="owner", node=node_name(row), incarnation=incarnation)
    if not selected(row["nodes"]):
        row["profiled"] = False
        with suppress(OSError):
            write_json(status_file(row, incarnation), {"state": "unselected"})
        _become([*interpreter, *arguments], row)

    environment = dict(os.environ)
    for name, value in launch["environment"].items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    late = {"{node}": node_name(row), "{incarnation}": incarnation, "{tool}": _find(launch["tool"])}
    scratch, restore = _scratch.make_scratch(environment, launch["shared_temporary"])
    out = _tool_process.spare_output() if apart else 0
    become = _MARK_START + (f" >&{out} {out}>&-" if out else "")
    target = ["/bin/sh", "-c", become, started_file(row, incarnation), *restore, *interpreter]
    # A tool that takes the interpreter as the value of a variable or an option takes one path: a program that becomes it.
    by_path = INTERPRETER not in launch["command"] and any(INTERPRETER in word for word in launch["command"])
    program = _make_program(private_file(row, f"{_stem(row, incarnation)}.python"), target) if by_path else interpreter[0]
    keep = [os.path.abspath(_exit_code.__file__), exit_code_file(row, incarnation)]
    command = _resolve(launch["command"], late, {INTERPRETER: target, KEEP_EXIT_CODE: keep}, program) + arguments
    for name in launch["environment"].keys() & environment.keys():
        environment[name] = _replace(environment[name], {**late, INTERPRETER: interpreter[0]})
    environment[VARIABLE] = encode(row)
    if scratch:
        environment["TMPDIR"] = scratch

    observed = by_path or INTERPRETER in launch["command"]
    mark = started_file(row, incarnation)
    to_worker = by_path or (apart and observed)
    reason = ""
    unheard: list[int] = []
    for attempt in range(ATTEMPTS):
        try:
            process = _tool_process.start(command, environment, apart, out)
        except OSError as error:
            reason = f"{command[0]} cannot be run: {error.strerror}"
            break
        tool = {"tool": late["{tool}"], "version": launch["tool_version"], "marks": observed}
        about = {"shim": os.getpid(), "scratch": scratch, **tool}
        running = {"state": "running", "pid": process.pid, "start": _scratch.process_start(process.pid), **about}
        with suppress(OSError):  # a full disk
            write_json(status_file(row, incarnation), running)
        exit_code, started = _tool_process.wait(process, mark, to_worker, apart, unheard)
        if observed and not started:
            _tool_process.pause(PAUSE * (attempt + 1), unheard)
            if scratch:  # nsys's agent comes up after all, and whoever waits for the tool to end would wait for it, too
                _scratch.end_tool(scratch, at_once=True)
            if not unheard:
                continue
        _scratch.remove_scratch(scratch)
        exit_code = exit_code or _exit_code.noted(keep[1])
        with suppress(OSError):  # a full disk
            write_json(status_file(row, incarnation), {"state": "ended", "exit_code": exit_code, **about})
        # A worker that was told to end before it had started is not started.
        return 128 + unheard[0] if unheard and observed else int(_tool_process.as_shells_say(exit_code))
    else:
        _tool_process.take_signals(unheard)
        probe = _resolve(launch["command"], late, {INTERPRETER: ["true"], KEEP_EXIT_CODE: []}, "true")
        said = _tool_process.last_words(probe, environment)
        reason = f"{os.path.basename(command[0])} does not start (exit code {exit_code}): {said}"
    _scratch.remove_scratch(scratch, leftovers=True)
    return _run_unwrapped(row, [*interpreter, *arguments], reason, apart)


def _make_program(path: str, command: list[str]) -> str:
    from shlex import join  # slow to import, rarely needed

    with open(path, "w") as file:
        file.write(f'#!/bin/sh\nexec {join(command)} "$@"\n')
    os.chmod(path, 0o755)
    return path


def _resolve(command: list[str], late: dict[str, str], several: dict[str, list[str]], program: str) -> list[str]:
    """The command with the values of its placeholders; those of `several` become words of their own."""
    resolved: list[str] = []
    for word in command:
        resolved += several[word] if word in several else [_replace(word, {**late, INTERPRETER: program})]
    return resolved


def _replace(word: str, late: dict[str, str]) -> str:
    for placeholder, value in late.items():
        word = word.replace(placeholder, value)
    return word


def _run_unwrapped(row: Row, command: list[str], reason: str, apart: bool) -> int:
    """Run the worker without the tool: become it, or stay in front of it for whoever has something to say when it has ended."""
    _say_without(row, reason)
    row["unwrapped"] = reason
    mark = ""
    if "incarnation" in row:
        mark = started_file(row, row["incarnation"])
        with suppress(OSError):
            write_json(status_file(row, row["incarnation"]), {"state": "unwrapped", "reason": reason, "shim": os.getpid()})
    elif "home" in row:  # what cannot be written is not brought there: its tree is written there, by a worker that starts there
        row["output_dir"] = row.pop("home")
    if not apart:
        _become(command, row)
    marked = ["/bin/sh", "-c", _MARK_START, mark, *command] if mark else command
    process = _tool_process.start(marked, {**os.environ, VARIABLE: encode(row)}, apart, 0)
    code: int = _tool_process.as_shells_say(_tool_process.wait(process, mark, False, apart, [])[0])
    return code


def _say_without(row: Row, reason: str) -> None:
    sys.stderr.write(f"gpuprof: {row['group']}-{row['rank']} on {node_name(row)} runs without the profiler: {reason}\n")
    sys.stderr.flush()


def _become(command: list[str], row: Row) -> NoReturn:
    _tool_process.take_signals()
    os.environ[VARIABLE] = encode(row)
    os.execvp(command[0], command)


def selected(nodes: list[str]) -> bool:
    """Whether host names or wildcards select this node."""
    if [node.lower() for node in nodes] == ["all"]:
        return True
    from fnmatch import fnmatchcase  # slow to import, rarely needed

    return any(pattern.lower() == "all" or fnmatchcase(os.uname().nodename.lower(), pattern.lower()) for pattern in nodes)


def _find_interpreter(row: Row, planned: list[str]) -> list[str]:
    """The worker's Python as planned; where none was, or this node does not have it, the one that this is: Ray's here."""
    if not planned:
        return [sys.executable]
    if os.path.isabs(planned[0]) and not os.path.exists(planned[0]):
        name = f"{row['group']}-{row['rank']}"
        sys.stderr.write(f"gpuprof: {name} runs in {sys.executable}: {planned[0]} is not on {node_name(row)}\n")
        sys.stderr.flush()
        return [sys.executable, *planned[1:]]
    return planned


def _find(program: str) -> str:
    """`program`; the one of that name on PATH where this node lacks it at the planned place."""
    if os.path.isabs(program) and not os.path.exists(program):
        from shutil import which  # slow to import, rarely needed

        return which(os.path.basename(program)) or program
    return program


if __name__ == "__main__":
    sys.exit(run(decode(os.environ[VARIABLE]), sys.argv[1:]))
