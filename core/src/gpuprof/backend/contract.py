"""The contract's version, and what a backend's class says of it.

How the contract grows is on the page "Write a backend"; `tests/core/backend/frozen` has a backend
of each version, which every later gpuprof must run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from gpuprof._distribution import NAME, release
from gpuprof.backend import hookspecs
from gpuprof.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

CONTRACT = 2
"""The version of the hooks and of the values that pass through them.

It grows by one with every release that adds to them.
"""
OLDEST = 2
"""The oldest version of the contract that still works."""

Capability = Literal["wraps", "in_process", "env_only"]
"""How a backend records.

``wraps``: its command runs the worker, whatever the program. ``in_process``: it records from inside
a Python process that uses gpuprof. ``env_only``: it sets variables, which act for the worker's
whole life.
"""
ACTING = ("render_command", "inject_env", "start_capture", "open_range")
"""A backend needs at least one of these hooks to affect a worker."""


def check(name: str, plugin: object, where: str, distribution: Distribution | None) -> None:
    """Refuse a plugin that is written for an unsupported version of the contract.

    Args:
        where: the path of the key that names the plugin, for the message.
        distribution: the package that provides the plugin.

    Raises:
        PluginError: the plugin's versions of the contract are invalid, all newer than `CONTRACT`,
            or all older than `OLDEST`.
    """
    versions: Any = getattr(plugin, "contract", OLDEST)
    is_pair = isinstance(versions, tuple) and len(versions) == 2
    first, last = versions if is_pair else (versions, versions)
    of = f" ({distribution.name} {distribution.version})" if distribution is not None else ""
    about = f"{where}: {name!r}{of}"
    if type(first) is not int or type(last) is not int or not 1 <= first <= last:
        raise PluginError(
            name,
            f"{about}: contract = {versions!r} is not valid; expected a version, such as "
            f"{CONTRACT}, or the first and the last, such as ({CONTRACT}, {CONTRACT + 1})",
        )
    if first > CONTRACT:
        raise PluginError(
            name,
            f"{about} is written for version {first} of the contract and needs "
            f"{_required(distribution)}; this gpuprof, {release()}, has version {CONTRACT}. "
            "Upgrade gpuprof",
        )
    if last < OLDEST:
        valid = f"version {CONTRACT}" if OLDEST == CONTRACT else f"{OLDEST} to {CONTRACT}"
        raise PluginError(
            name,
            f"{about} is written for version {last} of the contract; this gpuprof, {release()}, "
            f"takes {valid}. Upgrade {distribution.name if distribution else name}, or port it: "
            "the page 'Write a backend' says what has changed",
        )


def capability(backend: object) -> Capability | None:
    """How a backend records, by its hooks; ``None`` if none of them affects a worker."""
    if has(backend, "render_command"):
        return "wraps"
    if has(backend, "start_capture") or has(backend, "open_range"):
        return "in_process"
    return "env_only" if has(backend, "inject_env") else None


def thread_problem(backend: object) -> str | None:
    """The error in `start_in_thread`; ``None`` if it is valid."""
    in_thread = getattr(backend, "start_in_thread", False)
    if not isinstance(in_thread, bool):
        return f"start_in_thread: {in_thread!r} is not valid; expected True or False"
    if in_thread and capability(backend) != "in_process":
        return "start_in_thread: True is for a backend that records in the process"
    return None


def starts_in_thread(backend: object) -> bool:
    """Whether `start_capture` must run on the job's thread, because it records only its caller."""
    return getattr(backend, "start_in_thread", False) is True


def has(plugin: object, hook: str) -> bool:
    """Whether a plugin, or a plugin's class, implements a hook."""
    return getattr(getattr(plugin, hook, None), f"{hookspecs.PROJECT}_impl", None) is not None


def _required(distribution: Distribution | None) -> str:
    """The gpuprof release that a distribution requires."""
    for requirement in (distribution.requires if distribution is not None else None) or []:
        match = re.match(rf"{NAME}\s*\(?\s*([<>=!~][^;)]*)", requirement)
        if match:
            return f"gpuprof {match[1].strip()}"
    return "a newer gpuprof"
