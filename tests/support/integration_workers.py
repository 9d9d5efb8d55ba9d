"""The actors of the integration tests.

A module of its own, so that Ray's workers import it by name.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gpuprof
import ray


def identity() -> dict[str, Any]:
    """What this process is, as seen from inside."""
    session = sys.modules["gpuprof._session.public"].session()
    return {
        "pid": os.getpid(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "dev_mode": sys.flags.dev_mode,
        "wrapped": "NSYS_PROFILING_SESSION_ID" in os.environ,
        "name": session.name if session else None,
    }


def prepare(step: int) -> int:
    """A task that counts its own steps."""
    with gpuprof.step(step), gpuprof.timer(f"prepare-{step}"):
        return step


def prepare_with_an_actor(step: int) -> int:
    """A task that has an actor, which inherits its runtime environment."""
    helper = ray.remote(Worker).options(num_cpus=0).remote()
    ray.get(helper.identity.remote())
    return prepare(step)


def hold(flag: str) -> str:
    """A task that runs until a file appears, and says so by another."""
    Path(f"{flag}.begun").touch()
    while not Path(flag).exists():
        time.sleep(0.01)
    return "held"


class Worker:
    """An ordinary instrumented worker."""

    def __init__(self) -> None:
        self._timing = gpuprof.timing()

    @gpuprof.timer("actor/run_training")
    def train(self, step: int) -> int:
        """One step, with labels of its own so that a report shows which step it holds."""
        for _ in range(3):
            with self._timing.add_time(f"forward-{step}"):
                pass
        with gpuprof.annotate(f"annotated-{step}"):
            return step

    def meet(self, directory: str, count: int) -> None:
        """Wait until as many workers are here. The directory is theirs alone."""
        with gpuprof.timer("barrier"):
            Path(directory, str(os.getpid())).touch()
            while len(os.listdir(directory)) < count:
                time.sleep(0.001)

    def fill(self, step: int) -> None:
        """One step with so many ranges that its report is half a megabyte."""
        for number in range(20_000):
            with gpuprof.annotate(f"{step}-{number}"):
                pass

    def identity(self) -> dict[str, Any]:
        """What this process is."""
        return identity()

    def die(self) -> None:
        """End at once, as a crash does."""
        os._exit(1)

    def is_wrapped(self) -> bool:
        """Whether code in this worker is told that it is wrapped already."""
        from gpuprof.ray import wrapped

        return wrapped()

    def leave(self) -> None:
        """End as Ray's own exit does."""
        ray.actor.exit_actor()

    def work_until(self, flag: str) -> int:
        """Stay inside one method until a file appears; the driver's calls wait behind it.

        Shows each round by another file.
        """
        rounds = 0
        while not Path(flag).exists():
            with self._timing.add_time("busy"):
                rounds += 1
                time.sleep(0.001)  # a busy worker that lets its other threads run
            Path(f"{flag}.round").touch()
        return rounds

    def work_until_written(self, directory: str) -> float:
        """Work until its file holds some of it, in either tree. Returns the seconds that took."""
        start = time.monotonic()
        while True:
            with self._timing.add_time("spin"):
                time.sleep(0.001)
            for file in Path(directory).glob("*/*.start-*.json"):
                session = json.loads(file.read_text())
                trees = [session["timing"], session["while_profiling"] or {"children": []}]
                if any(node["key"] == "spin" for tree in trees for node in tree["children"]):
                    return time.monotonic() - start

    def start_children(self) -> dict[str, dict[str, Any]]:
        """Start an actor, a task and a subprocess, none of which has options of its own."""
        actor = ray.remote(Worker).options(num_cpus=0).remote()
        code = (
            "import json, sys; sys.path.insert(0, sys.argv[1]); from support.integration_workers "
            "import identity; import gpuprof\n"
            "with gpuprof.timing().add_time('in_subprocess'): pass\n"
            "print(json.dumps(identity()))"
        )
        command = [sys.executable, "-c", code, str(Path(__file__).parents[1])]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {
            "actor": ray.get(actor.identity.remote()),
            "task": ray.get(ray.remote(identity).options(num_cpus=0).remote()),
            "subprocess": json.loads(done.stdout),
        }


class Owner:
    """An actor that starts a worker of its own, as a framework's manager does."""

    def start(self, options: dict[str, Any]) -> Any:
        """Start the worker, and return its handle once it has started."""
        self._worker = ray.remote(Worker).options(**options).remote()
        ray.get(self._worker.identity.remote())
        return self._worker

    def die(self) -> None:
        """End at once, as a crash does."""
        os._exit(1)


class AsyncWorker:
    """An asyncio actor, whose methods take turns."""

    @gpuprof.timer("rollout/generate")
    async def generate(self, step: int) -> int:
        """Await inside scopes, so that those of concurrent calls overlap."""
        for _ in range(3):
            with gpuprof.timing().add_time(f"await-{step}"):
                await asyncio.sleep(0)
        return step

    async def wait_for_ever(self) -> None:
        """A coroutine that nobody will wake."""
        await asyncio.Event().wait()


class Stalling(Worker):
    """A worker with a thread that does nothing but look at the clock."""

    def begin(self) -> None:
        """Start the thread."""
        self._longest = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def longest_stall(self) -> float:
        """The longest time, in seconds, in which the thread could not run, since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _watch(self) -> None:
        last = time.perf_counter()
        while True:
            now = time.perf_counter()
            self._longest = max(self._longest, now - last)
            last = now


class Controller:
    """What a framework makes to tell the workers what to do."""

    def train(self, output: str) -> tuple[list[tuple[str, str, str]], str]:
        """Run a job to its end; return its receipt and the controller's own tree."""
        from gpuprof.ray import Profiler

        from support.launching import config, start

        with Profiler(config(Path(output))) as profiler:
            actor = start(profiler, "ActorGroup", 0)
            for step in range(6):
                with profiler.step(step):
                    ray.get(actor.train.remote(step))
        return [(row.worker, row.window, row.state) for row in profiler.finalize().rows], str(
            profiler.timing
        )
