"""`gpuprof run`: start one process of any launcher, wrapped if its rank is selected."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from gpuprof._artifacts import alive, close, records, runs
from gpuprof._artifacts.collect import Collection, ThisNode
from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import ReceiptRow, how_far
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._artifacts.settle import settle_node
from gpuprof._config.schema import Config
from gpuprof._config.selection import matches
from gpuprof._launch import at_start, command_line, launchers
from gpuprof._launch.launchers import Launched
from gpuprof._launch.watchdog import watch
from gpuprof._log import log
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._report import printing
from gpuprof._session import companion
from gpuprof._session.orders import make as make_orders
from gpuprof._shim import inherited, node
from gpuprof._shim.files import tool_status
from gpuprof._shim.node import node_name
from gpuprof._shim.row import INTERPRETER, VARIABLE, encode
from gpuprof._shim.run import run as run_shim
from gpuprof._shim.tool import UNKNOWN, UNKNOWN_EXIT_CODE
from gpuprof.backend.types import Command, Tool
from gpuprof.errors import ConfigError, OutputError, ToolError

_HIDDEN = ("", "-1", "NoDevFiles")


def run(config: Config, group: str, words: Sequence[str]) -> int:
    """Run a command as one rank of a worker group, and wait for its end.

    If nothing has to run in front of the command, this process becomes the command and `run` never
    returns.

    Args:
        config: the configuration.
        group: the worker group's name.
        words: the command; the first one is a program on PATH, or a path.

    Returns:
        The command's exit code; 128 plus the signal's number if a signal killed the command.

    Raises:
        ConfigError: the configuration cannot be used for this command, or there is no run id.
        ToolError: the profiler's program is missing or refuses its options. The message names the
            rank and the node.
        OutputError: the output directory cannot be written. The message names the rank and the
            node.
    """
    # inside a worker, the worker is profiled and not this command
    if VARIABLE in os.environ:
        inherited.become(list(words))
    of = launchers.launched(os.environ)
    if of.rank == 0:
        for note in config.source.notes:
            log().warning("%s", note)
    if config.selects_nothing:
        inherited.become(list(words))
    config = config.recording()
    if not of.launcher and os.environ.get("RANK", "0") != "0":
        log().warning(
            "RANK=%s ignored: no known launcher started this process, so it is rank 0 of its own "
            "run. To join the ranks, set TORCHELASTIC_RUN_ID to the same value on each of them, as "
            "torchrun does, with RANK, WORLD_SIZE and LOCAL_WORLD_SIZE",
            os.environ["RANK"],
        )
    run_id = launchers.run_id(of, os.environ)
    planner = Planner(config, run_id, config.working_dir)
    command = command_line.parse(words)
    plan = _plan(planner, group, of.rank, command)
    directory = os.path.join(os.path.abspath(config.output_dir), run_id)
    try:
        with _naming_the_rank(plan):
            with runs.beginning(config):
                runs.join(directory, run_id, config, launchers.restarted(os.environ))
                alive.record_rank(directory, group, of.rank, of.size)
                # Ranks that are not selected get the orders, too: their trees leave out the steps
                # that other ranks capture.
                orders = make_orders(directory) if planner.is_armed(group) else None
                home = Collection(
                    ThisNode(),
                    os.path.join(planner.output_dir, run_id),
                    directory,
                    config.staged and plan.wrapped,
                )
            tool = planner.check_tool() if plan.wrapped else None
            if tool is not None:
                # Plan again, now that the tool's path and version are known.
                plan = _plan(planner, group, of.rank, command, tool)
                planner.try_out(plan, tool)
    except runs.NoPlace as error:
        if config.on_error == "raise":
            raise
        log().warning("%s; the job goes on without profiling", error)
        inherited.become(list(words))
    if of.rank == 0 and config.capture_slow:
        companion.start(directory)
    if not plan.wrapped:
        # nothing would bring the tree of an unwrapped rank home from the staging directory
        planner = Planner(config, run_id, os.path.dirname(directory))
    row = planner.row(plan, list(command.interpreter), tool)
    row["library_steps"] = True
    if config.step_at is not None:
        row["step_at"] = _step_at(config, config.step_at, command)
    if orders is not None:
        row["orders"] = orders
    if of.rank == 0 and not matches(group, config.worker_groups):
        remark = f"not profiled: {plan.reason}; --group sets this process's group"
        if of.launcher or not at_start.starts(plan.environment):
            log().warning("%s: %s", plan.worker.name, remark)
        else:  # this may be a driver whose actors are to be profiled
            row["unselected"] = remark
    if not plan.wrapped:
        row["print_tree"] = _prints_tree(config, of)
        os.environ[VARIABLE] = encode(row)
        if at_start.starts(plan.environment):
            os.environ["PYTHONPATH"] = str(plan.environment["PYTHONPATH"])
        inherited.become(list(words))
    _announce(plan, planner)
    inherited.heed_children()
    row["launch"]["apart"] = True  # a launcher's signals go to the whole process group
    front = os.getpid()
    end_watch = watch(lambda: _finish_for(front, planner, plan, home))
    if config.staged:
        row["home"] = os.path.dirname(directory)
        if config.collect_every is not None:
            home.every(config.collect_every, lambda: [_read(planner, plan)])
    code = run_shim(row, list(command.arguments))
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        record, problems = _finish(planner, plan, home)
        if not record.starts and "unwrapped" in row:  # the status file could not be written
            status = tool_status("unwrapped", reason=row["unwrapped"])
            record = attrs.evolve(record, starts=(Start(group, of.rank, "1", None, status),))
        _report(record, home, problems, plan, planner, of, code)
    except KeyboardInterrupt:
        log().warning(
            "%s: interrupted before its reports were finished; they are in %s",
            plan.worker.name,
            planner.output_dir,
        )
    except Exception as error:  # must not change the job's exit code
        log().warning("%s: %s: %s", plan.worker.name, type(error).__name__, error)
    alive.record_rank(directory, group, of.rank, of.size, over=True)
    end_watch()
    return code


@contextmanager
def _naming_the_rank(plan: PlannedWorker) -> Iterator[None]:
    """Add the names of the rank and the node to an error: a job may have a hundred ranks."""
    try:
        yield
    except (ToolError, OutputError) as error:
        raise type(error)(f"{plan.worker.name} on {node_name()}: {error}") from None


def sees_gpu(environ: Mapping[str, str]) -> bool:
    """Whether a process with these variables has a GPU.

    >>> sees_gpu({"CUDA_VISIBLE_DEVICES": ""})
    False
    """
    variables = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    is_hidden = any(environ.get(name, "0").strip() in _HIDDEN for name in variables)
    return not is_hidden and node.has_gpu()


def _step_at(config: Config, name: str, command: Command) -> str:
    """The value of `step_at` with ``__main__`` as the module if it names the program's own script.

    Raises:
        ConfigError: the script does not define the function, or the command is not a Python program
            that reads PYTHONPATH.
    """
    key = config.where("step_at")
    if not at_start.can_start(command):
        problem = f"{key}: {name}: expected a Python program that reads PYTHONPATH"
        raise ConfigError(f"{problem}, got {' '.join((*command.interpreter, *command.arguments))}")
    module, _, path = name.rpartition(":")
    script = command.arguments[0] if command.script and command.arguments else ""
    if module != "__main__" and module != Path(script).stem:
        return name
    if script and not _defines(script, path):
        raise ConfigError(f"{key}: {name}: {script} defines no {path}")
    return f"__main__:{path}"


def _defines(script: str, path: str) -> bool:
    """Whether a script may define a function, or the class of a method."""
    try:
        tree = ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):  # or Python will report it
        return True
    *classes, name = path.split(".")
    if classes:  # the method may be inherited
        name = classes[0]
    kinds = (ast.ClassDef,) if classes else (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(n, kinds) and n.name == name for n in ast.walk(tree))


def _how_to_use(plan: PlannedWorker) -> str:
    what = (
        "`with gpuprof.timer('train'):` around the code to time"
        if plan.worker.lifetime
        else "`with gpuprof.step(n):` around each step"
    )
    return f"add `import gpuprof`, and {what}"


def _plan(
    planner: Planner, group: str, rank: int, command: Command, tool: Tool | None = None
) -> PlannedWorker:
    has_gpu = sees_gpu(os.environ)
    plan = planner.worker(
        group, rank, script=command.script, python=command.python, has_gpu=has_gpu, tool=tool
    )
    if plan.profiled and not matches(node_name(), planner.config.selection(group).nodes):
        key = planner.config.source.key("nodes", group)
        return PlannedWorker(plan.worker, False, f"{key} does not select {node_name()}")
    if plan.profiled and not plan.command:
        # keep gpuprof run in front of the worker, for the receipt
        plan = attrs.evolve(plan, command=(INTERPRETER,))
    return at_start.add(plan) if at_start.can_start(command) else plan


def _announce(plan: PlannedWorker, planner: Planner) -> None:
    """Log the plan's notes on the first selected rank of the group only."""
    ranks = planner.config.selection(plan.worker.group).ranks
    if ranks is not None and ranks.up_to(1) == [plan.worker.rank]:
        for note in plan.notes:
            log().info("%s: %s", plan.worker.group, note)


def _finish_for(front: int, planner: Planner, plan: PlannedWorker, home: Collection) -> None:
    """Do the final work of the killed process `front`: kill its command and save the reports.

    If `front` has become the command, there is nothing to do.

    Args:
        front: the process id of `gpuprof run`.
    """
    starts = [
        start for start in _read(planner, plan).starts if start.tool and start.tool["shim"] == front
    ]
    for start in starts:
        if start.process is not None:
            with suppress(ProcessLookupError):
                os.kill(start.process, signal.SIGKILL)
    if starts:
        _finish(planner, plan, home)


def _read(planner: Planner, plan: PlannedWorker) -> NodeRecord:
    return records.read_node(os.path.join(planner.output_dir, planner.run)).of(
        plan.worker.group, plan.worker.rank
    )


def _finish(
    planner: Planner, plan: PlannedWorker, home: Collection
) -> tuple[NodeRecord, list[str]]:
    """Wait for the profiler, name its files, and bring them home.

    Returns:
        The record of the rank's files, and the problems on the way.
    """
    home.stop()
    group, rank = plan.worker.group, plan.worker.rank

    def look(give_up: bool) -> NodeRecord:
        return settle_node(planner, {(group, rank): plan}, give_up).of(group, rank)

    record = close.wait(
        look(False),
        look,
        lambda record: not all(start.ended for start in record.starts if start.tool),
    )
    problems = home.bring([record])
    return home.add_sizes(record), problems


def _report(
    record: NodeRecord,
    home: Collection,
    problems: Sequence[str],
    plan: PlannedWorker,
    planner: Planner,
    of: Launched,
    code: int,
) -> None:
    """Print the tree, if this rank is to print it, and the receipt.

    A complete receipt takes one line, because many ranks print at once.
    """
    worker = plan.worker
    session = record.starts[-1].session if record.starts else None
    if session is not None and _prints_tree(planner.config, of):
        log().info("%s", printing.read_tree(session, worker.name).text())
    tool = record.starts[-1].tool if record.starts else None
    if tool is not None and tool["exit_code"] is None:
        unknown = f"{worker.name}: {UNKNOWN_EXIT_CODE}; gpuprof run ends with {UNKNOWN}"
        problems = [*problems, unknown]
    elif code:
        problems = [*problems, f"{worker.name}: the command ended with exit code {code}"]
    receipt = close.make_receipt(
        planner,
        [plan],
        [record],
        home,
        problems,
        explain=lambda row: _explain(row, record, planner, plan),
    )
    if receipt.complete and not receipt.faults:
        log().info(
            "%s: %s", worker.name, "; ".join(filter(None, (receipt.total, receipt.overhead)))
        )
    else:
        printing.print_receipt(receipt)


def _prints_tree(config: Config, of: Launched) -> bool:
    return config.print_trees == "all" or (
        config.print_trees == "ends" and of.rank in (0, of.size - 1)
    )


def _explain(
    row: ReceiptRow, record: NodeRecord, planner: Planner, plan: PlannedWorker
) -> ReceiptRow:
    """Add to a row why a window never opened: the program's last step, or the missing call."""
    session = record.starts[-1].session if record.starts else None
    if row.cause is Reason.NEVER_OPENED and (session is None or session["step"] is None):
        return row.add_detail(f"no step has ended; {_how_to_use(plan)}")
    if row.cause is Reason.NEVER_OPENED:
        return row.add_detail(how_far(session["step"] if session else None))
    if row.cause is Reason.NEVER_USED and any(".child-" in name for name in record.sizes):
        return row.add_detail("its child processes did: put gpuprof run in front of them")
    if row.cause is Reason.NEVER_USED and planner.capability == "in_process":
        return row.add_detail(_how_to_use(plan))
    return row
