"""The samples of verl's agent loop: what it generates, the tools that it calls, and the reward.

An agent loop runs one sample in one task of an `AgentLoopWorker`. What it calls there belongs to
this sample, so a context variable is enough to know it, and no value of the job changes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any
from uuid import uuid4

import gpuprof
from gpuprof.frameworks import guarded, replace

_sample: ContextVar[str | None] = ContextVar("gpuprof_verl_sample", default=None)


def workers(module: ModuleType) -> None:
    """Know the sample of each agent loop, and record the wait for its reward."""

    def looping(original: Callable[..., Any]) -> Callable[..., Any]:
        async def _run_agent_loop(self: Any, *args: Any, **options: Any) -> Any:
            trajectory = args[1] if len(args) > 1 else options.get("trajectory")
            token = _sample.set(guarded("verl: a sample", lambda: _id_of(trajectory)))
            try:
                return await original(self, *args, **options)
            finally:
                _sample.reset(token)

        return _run_agent_loop

    def scoring(original: Callable[..., Any]) -> Callable[..., Any]:
        async def _compute_score(self: Any, outputs: Any, *args: Any, **options: Any) -> Any:
            sample = _sample.get()
            # else the trainer computes the rewards, of the whole batch
            if sample is None or getattr(self, "reward_loop_worker_handles", None) is None:
                return await original(self, outputs, *args, **options)
            with gpuprof.sample(sample, phase="reward") as phase:
                result = await original(self, outputs, *args, **options)
                guarded("verl: a sample", lambda: phase.note(turns=outputs[-1].num_turns))
                return result

        return _compute_score

    worker = module.AgentLoopWorker
    replace(worker, "_run_agent_loop", looping, ["sampling_params", "trajectory"])
    replace(worker, "_compute_score", scoring, ["outputs"])


def clients(module: ModuleType) -> None:
    """Record each request to an inference server: one for each turn, and for each partial rollout.

    The client of asynchronous training makes a request of its base class for each part.
    """

    def generating(original: Callable[..., Any]) -> Callable[..., Any]:
        async def generate(self: Any, *args: Any, **options: Any) -> Any:
            sample = _sample.get()
            if sample is None:
                return await original(self, *args, **options)
            with gpuprof.sample(sample, phase="generate") as phase:
                output = await original(self, *args, **options)
                guarded("verl: a sample", lambda: phase.note(**_notes_of(output)))
                return output

        return generate

    replace(module.LLMServerClient, "generate", generating, ["request_id", "prompt_ids"])


def tools(module: ModuleType) -> None:
    """Record each call of a tool; a sample may call several at once."""

    def calling(original: Callable[..., Any]) -> Callable[..., Any]:
        async def _call_tool(self: Any, *args: Any, **options: Any) -> Any:
            sample = _sample.get()
            if sample is None:
                return await original(self, *args, **options)
            with gpuprof.sample(sample, phase="tool"):
                return await original(self, *args, **options)

        return _call_tool

    replace(module.ToolAgentLoop, "_call_tool", calling, ["tool_call"])


def _id_of(trajectory: Any) -> str:
    """Step, prompt and rollout, and what no other sample has: workers number theirs alike."""
    kind = "validate " if trajectory["validate"] else ""
    prompt = f"{trajectory['sample_index']}.{trajectory['rollout_n']}"
    return f"{kind}{trajectory['step']}/{prompt}/{uuid4().hex[:8]}"


def _notes_of(output: Any) -> dict[str, float]:
    notes: dict[str, float] = {"tokens": len(output.token_ids)}
    version = output.extra_fields.get("global_steps")
    if isinstance(version, int):
        notes["version"] = version
    if output.num_preempted:
        notes["preempted"] = output.num_preempted
    return notes
