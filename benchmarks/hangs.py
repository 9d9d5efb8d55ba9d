"""How often `gpuprof stacks` names the right worker and line: real jobs that hang.

Each job runs under `gpuprof run` and is asked once, after all of its workers are where they hang.
Which rank is to blame differs from round to round. The line that must be named ends with a mark.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

_PATIENCE = 180.0
"""Seconds for a job to come to where it hangs."""
_SETTLED = 3.0
"""Seconds from then on until it is asked."""
_RANKS = """
import os, pathlib, queue, signal, sys, time
import torch, torch.distributed as dist

def load(rank):
    queue.Queue().get()  # here

def train(rank, bad):
    for step in range(6):
        if step == 4:
            pathlib.Path(f"hangs-{rank}").touch()
            if rank == bad:
                CAUSE
        dist.all_reduce(torch.ones(2))
    dist.barrier()  # barrier
    time.sleep(10**6)

torch.set_num_threads(1)
dist.init_process_group("gloo")
train(dist.get_rank(), int(sys.argv[1]))
"""
_ALONE = """
import gpuprof, pathlib, queue, re, sys, threading

def filled(batches):
    return batches.get()  CAUSE queue

def locked(lock):
    with lock:
        with lock:  CAUSE lock
            pass

def matches(text):
    return re.match("(a|aa)+$", text)  CAUSE regex

def power(number):
    return number ** (10 ** 8)  CAUSE power

def spins(count):
    while True: count += 1  CAUSE loop

with gpuprof.step(0):
    pathlib.Path("hangs-0").touch()
    {"queue": lambda: filled(queue.Queue()), "lock": lambda: locked(threading.Lock()),
     "regex": lambda: matches("a" * 80 + "b"), "power": lambda: power(3 ** 1000),
     "loop": lambda: spins(0)}[sys.argv[1]]()
"""
_RAY = """
import os, pathlib, queue, signal, sys, ray
from ray.cluster_utils import Cluster

cluster = Cluster()
options = {"num_cpus": 2, "include_dashboard": False, "temp_dir": os.environ["RAY_DIRECTORY"]}
cluster.add_node(**options, _system_config={
    "health_check_failure_threshold": 3, "health_check_period_ms": 500})
other = cluster.add_node(num_cpus=2, resources={"other": 9}) if sys.argv[1] == "node" else None
ray.init(address=cluster.address)

@ray.remote(num_cpus=0)
class Ping:
    def meet(self, others):
        self.others = others
    def call(self):
        return ray.get(self.others[0].call.remote())  # ping

@ray.remote(num_cpus=0)
class Pong:
    def meet(self, others):
        self.others = others
    def call(self):
        return ray.get(self.others[0].meet.remote([]))  # pong

@ray.remote(num_cpus=0)
class Async:
    async def call(self):
        await self.inner()
    async def inner(self):
        import asyncio
        await asyncio.Event().wait()  # async

@ray.remote(num_cpus=0)
class Far:
    def pid(self):
        return os.getpid()
    def call(self):
        return queue.Queue().get()  # node

@ray.remote(resources={"accelerator": 1})
def starved():
    return 1

def hangs():
    pathlib.Path("hangs-0").touch()

def actors():
    ping, pong = Ping.remote(), Pong.remote()
    ray.get([ping.meet.remote([pong]), pong.meet.remote([ping])])
    reference = ping.call.remote()
    hangs()
    ray.get(reference)

def asyncio():
    reference = Async.remote().call.remote()
    ray.wait([reference], timeout=2)
    hangs()
    ray.get(reference)

def node():
    far = [Far.options(resources={"other": 1}).remote() for _ in range(2)]
    pids = ray.get([actor.pid.remote() for actor in far])
    calls = [actor.call.remote() for actor in far]
    ray.wait(calls, timeout=5)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    cluster.remove_node(other, allow_graceful=False)
    try:
        ray.get(calls)
    except ray.exceptions.RayError:
        hangs()
        queue.Queue().get()

def task():
    reference = starved.remote()
    hangs()
    ray.get(reference)  # task

{"actors": actors, "asyncio": asyncio, "node": node, "task": task}[sys.argv[1]]()
"""


class Kind(NamedTuple):
    """A cause of a hang.

    Args:
        program: the job.
        ranks: how many processes torchrun starts; 0 without torchrun.
        arguments: of the job, given the round.
        expected: the regular expressions that the output must match, given the round; ``{name}``
            is where the line that ends with ``# name`` is.
        act: what happens once the job hangs, given its directory and the round.
    """

    program: str
    ranks: int
    arguments: Callable[[int], Sequence[str]]
    expected: Callable[[int], Sequence[str]]
    act: Callable[[Path, int], object] = lambda *_: None


def _bad(turn: int) -> int:
    return (3 * turn + 1) % 8


def _ranks(cause: str) -> str:
    return _RANKS.replace("CAUSE", cause)


def _alone(name: str, function: str) -> Kind:
    program = _ALONE.replace("CAUSE", "#")
    expected = [rf"Program-0; .*\n +.*{function}.*\({{{name}}}\)"]
    return Kind(program, 0, lambda _: [name], lambda _: expected)


def _stop(directory: Path, turn: int) -> None:
    os.kill(int((directory / "pid").read_text()), signal.SIGSTOP)


def _ray(name: str, *expected: str) -> Kind:
    return Kind(_RAY, 0, lambda _: [name], lambda _: expected)


_STOPS = 'pathlib.Path("pid").write_text(str(os.getpid())); load(rank)'
KINDS = {
    "a rank of 8 waits for a batch": Kind(
        _ranks("load(rank)"),
        8,
        lambda turn: [str(_bad(turn))],
        lambda turn: [
            r"7 of 8 \(ranks [\d,-]+\) are in all_reduce #5",
            rf"rank {_bad(turn)} \(Worker-{_bad(turn)}\) has begun #4 at most, .*at {{here}}",
        ],
    ),
    "a rank of 8 skips a collective": Kind(
        _ranks("continue"),
        8,
        lambda turn: [str(_bad(turn))],
        lambda turn: [
            rf"rank {_bad(turn)} \(Worker-{_bad(turn)}\) .*in torch.barrier.* at {{barrier}}"
        ],
    ),
    "two actors call each other": _ray(
        "actors",
        r"deadlock: Ping-0 \(.*at {ping}, .*\) waits for Pong-0 \(.*at {pong}, .*\) waits for Ping",
    ),
    "a queue that nobody fills": _alone("queue", "filled"),
    "a lock taken twice": _alone("lock", "locked"),
    "a lost node": _ray(
        "node",
        *(
            rf"Far-{rank} .*(not answer|has died); .* old, in queue.get < Far.call at {{node}}"
            for rank in range(2)
        ),
    ),
    "a stopped worker": Kind(
        _ranks(_STOPS),
        4,
        lambda turn: [str(_bad(turn) % 4)],
        lambda turn: [
            rf"Worker-{_bad(turn) % 4} \(.* is stopped, .*; its last record is .*at {{here}}",
            r"3 of 4 \(ranks [\d,-]+\) are in all_reduce #5",
        ],
        _stop,
    ),
    "a task without resources": _ray(
        "task", r"Runner \(.* at {task}, .*\) waits for a task; no process .*resources"
    ),
    "an endless regular expression": _alone("regex", "matches"),
    "an endless power": _alone("power", "power"),
    "an endless loop in Python": _alone("loop", "spins"),
    "an actor that awaits forever": _ray(
        "asyncio", r"Async-0; task .*\n +.*Async.inner.*\({async}\)"
    ),
}


def _lines(program: str) -> dict[str, str]:
    """Where each marked line is, by its mark."""
    marked = re.compile(r"# ?(\w+)$")
    return {
        match[1]: f"job.py:{number}"
        for number, text in enumerate(program.splitlines(), 1)
        if (match := marked.search(text))
    }


def _asked(kind: Kind, turn: int, directory: Path) -> str:
    """What `gpuprof stacks` says of a job that hangs."""
    (directory / "job.py").write_text(kind.program)
    launcher = [sys.executable]
    if kind.ranks:
        torchrun = Path(sys.executable).with_name("torchrun")
        launcher = [str(torchrun), "--nproc-per-node", str(kind.ranks)]
    gpuprof = [sys.executable, "-m", "gpuprof"]
    with tempfile.TemporaryDirectory(prefix="r") as ray, open(directory / "log", "wb") as log:
        job = subprocess.Popen(
            [*gpuprof, "run", "--", *launcher, "job.py", *kind.arguments(turn)],
            cwd=directory,
            env={**os.environ, "RAY_DIRECTORY": ray, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + _PATIENCE
            while len(list(directory.glob("hangs-*"))) < max(1, kind.ranks):
                if time.monotonic() > until or job.poll() is not None:
                    return f"it did not start:\n{(directory / 'log').read_text()}"
                time.sleep(0.2)
            time.sleep(_SETTLED)
            kind.act(directory, turn)
            return subprocess.run(
                [*gpuprof, "stacks", "--again", "2"],
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            ).stdout
        finally:
            _end(job, directory)


def _end(job: subprocess.Popen[bytes], directory: Path) -> None:
    if (directory / "pid").exists():
        os.kill(int((directory / "pid").read_text()), signal.SIGCONT)
    job.terminate()
    try:
        job.wait(20)
    except subprocess.TimeoutExpired:  # C code that holds Python's lock
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def main() -> None:
    """Run the jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="REGEX", help="of the causes")
    parser.add_argument("--show", action="store_true", help="print what was not named")
    arguments = parser.parse_args()
    rows, right, total = [], 0, 0
    for name, kind in KINDS.items():
        if not re.search(arguments.only, name):
            continue
        hits = 0
        for turn in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as directory:
                output = _asked(kind, turn, Path(directory))
            places = {mark: re.escape(where) for mark, where in _lines(kind.program).items()}
            patterns = [pattern.format_map(places) for pattern in kind.expected(turn)]
            named = all(re.search(pattern, output) for pattern in patterns)
            hits += named
            if not named and arguments.show:
                print(f"--- {name}, round {turn}\n{output}\n{patterns}", flush=True)
        rows.append([name, f"{hits} of {arguments.rounds}"])
        right, total = right + hits, total + arguments.rounds
        print(*rows[-1], sep=": ", flush=True)
    rows.append(["in all", f"{right} of {total}"])
    print(tabulate(rows, ["what hangs", "worker and line named"]))


if __name__ == "__main__":
    main()
