"""A user's program against the public names, for `make check`: mypy reads it, nothing runs it.

An ignored error shows that mypy sees the mistake: it fails where there is nothing to ignore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import gpuprof
from gpuprof.backend import Backend, Command, Tool, Window, Worker, hookimpl
from gpuprof.errors import ConfigError, GpuprofError
from gpuprof.ray import Profiler
from gpuprof_timing import Timing


class Learner:
    """A worker."""

    @gpuprof.timer("learn")
    def learn(self, batch: Sequence[float]) -> float:
        """A decorated method keeps its types."""
        return sum(batch)

    @gpuprof.timer("load")
    async def load(self, path: str) -> bytes:
        """So does a coroutine."""
        return path.encode()


def in_a_worker() -> dict[str, Any]:
    """Scopes, ranges and the tree."""
    learner = Learner()
    loss: float = learner.learn([1.0, 2.0])
    learner.learn("text")  # type: ignore[arg-type]
    with gpuprof.step(3), gpuprof.timer("forward"), gpuprof.annotate("attention"):
        loss += 1
    with gpuprof.step("3"):  # type: ignore[arg-type]
        pass
    tree: Timing = gpuprof.timing()
    with tree.add_time("optimizer"):
        pass
    return {"loss": loss, "seconds": tree["optimizer"]}


def in_a_driver(settings: Mapping[str, Any]) -> list[str]:
    """A run, and what it left."""
    try:
        with Profiler(settings, overrides=["steps=[3]"]) as profiler:
            options: dict[str, Any] = profiler.worker_options(group="Learner", rank=0, num_cpus=1)
            profiler.worker_options(group="Learner", rank="0")  # type: ignore[arg-type]
            profiler.add(object(), group="Learner", rank=0)
            learner: Learner = profiler.start(
                lambda options: Learner(), group="Learner", rank=1, num_gpus=1
            )
            learner.learn([1.0])
            profiler.start(Learner, group="Learner", rank=2)  # type: ignore[arg-type]
            with profiler.step(3):
                options.clear()
        receipt = profiler.finalize()
    except ConfigError as error:
        problem: GpuprofError = error
        return [str(problem)]
    return [row.state for row in receipt.rows]


def before_a_job() -> bool:
    """What would be profiled."""
    made = gpuprof.plan({"backend": "none"}, {"Learner": 2})
    return made.rows[0].profiled


@attrs.frozen
class Options:
    """The keys of a backend's section."""

    depth: int = 3


class Tracer(Backend[Options]):
    """A backend."""

    contract = 2
    Options = Options

    @hookimpl
    def probe(self) -> Tool | None:
        """The program."""
        return Tool("/usr/bin/tracer", "1.0")

    @hookimpl
    def render_command(self, worker: Worker, command: Command) -> list[str]:
        """The command line."""
        return ["tracer", f"--depth={self.options.depth}", *command.interpreter, *command.arguments]

    @hookimpl
    def stop_capture(self, worker: Worker, window: Window) -> list[str]:
        """The files of a window."""
        return [f"{worker.directory}/{window.number}.trace"]
