"""The hardware and software versions of a process, so that runs can be compared.

It starts no program. It needs only the standard library, since it runs in every worker.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from glob import glob
from pathlib import Path
from typing import TypedDict

_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_NVIDIA = re.compile(r"Kernel Module(?: for \S+)?\s+([\d.]+)")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_MOST = 65536
"""How many bytes of a file to read. Only git's packed references may need more."""


class Environment(TypedDict):
    """The hardware and software versions of a process.

    Args:
        torch: the version of torch; ``None`` as long as torch is not imported.
        ray: the version of Ray; ``None`` as long as Ray is not imported.
        gpus: the names of the node's GPUs, hidden ones included.
    """

    python: str
    torch: str | None
    ray: str | None
    driver: str | None
    gpus: list[str]


def environment(root: str = "/") -> Environment:
    """Describe this process. Imports nothing and never raises.

    Args:
        root: the directory that contains the kernel's ``proc`` and ``sys``.
    """
    return {
        "python": platform.python_version(),
        "torch": _imported("torch"),
        "ray": _imported("ray"),
        "driver": _driver(root),
        "gpus": list(_gpus(root)),
    }


def _imported(module: str) -> str | None:
    version = getattr(sys.modules.get(module), "__version__", None)
    return str(version) if isinstance(version, str) else None


@functools.cache
def _driver(root: str) -> str | None:
    match = _NVIDIA.search(_text(os.path.join(root, "proc/driver/nvidia/version")))
    if match:
        return match[1]
    return _text(os.path.join(root, "sys/module/amdgpu/version")).strip() or None


@functools.cache
def _gpus(root: str) -> tuple[str, ...]:
    nvidia = glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information"))
    matches = [_MODEL.search(_text(path)) for path in sorted(nvidia)]
    models = [name[1] for name in matches if name]
    amd = glob(os.path.join(root, "sys/class/drm/card[0-9]*/device/product_name"))
    models += [name for path in sorted(amd) if (name := _text(path).strip())]
    return tuple(models)


def git_commit(directory: str = ".") -> str | None:
    """The commit checked out in a directory or in a parent directory; ``None`` without one.

    Reads git's files and does not start git. Ignores uncommitted changes.
    """
    try:
        start = Path(directory).absolute()
    except OSError:  # the working directory is gone
        return None
    for place in (start, *start.parents):
        git = place / ".git"
        if git.is_dir():
            return _head(git)
        if git.is_file():  # a work tree or a submodule
            _, _, path = _text(git).partition("gitdir:")
            return _head(place / path.strip()) if path.strip() else None
    return None


def _head(git: Path) -> str | None:
    head = _text(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    name = head.partition(":")[2].strip()
    common = _text(git / "commondir").strip()
    for place in (git, git / common) if common else (git,):
        commit = _text(place / name).strip()
        if _COMMIT.fullmatch(commit):
            return commit
        for line in _text(place / "packed-refs", 64 * 2**20).splitlines():
            commit, _, packed_name = line.partition(" ")
            if packed_name == name and _COMMIT.fullmatch(commit):
                return commit
    return None


def _text(path: str | Path, most: int = _MOST) -> str:
    """The beginning of a file; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""
