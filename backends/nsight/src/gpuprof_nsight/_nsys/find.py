"""Finding nsys, its release, and which options its commands have."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache, partial

from gpuprof.backend import Tool

PLACES = (
    "/usr/local/cuda*/bin/nsys",
    *(
        f"{root}/{program}"
        for root in (
            "/opt/nvidia/nsight-systems/*",
            "/opt/nvidia/nsight-systems-cli/*",
            "/usr/local/cuda*/nsight-systems-*",
        )
        for program in ("bin/nsys", "target-linux-x64/nsys", "target-linux-sbsa-armv8/nsys")
    ),
)
"""Where NVIDIA's packages put it, often without a link on PATH."""
IMPORTER = "host-linux-*/QdstrmImporter"
"""What makes reports of raw captures, below the directory that an installation has for itself."""
_DEBIAN = "/usr/lib/nsight-systems"
_DEADLINE = 30.0
_OF_A_TARGET = ("LD_PRELOAD", "NVTX_INJECTION64_PATH", "TMPDIR")
_PREFIXES = ("NSYS_", "QUADD_")


def locate(executable: str) -> str | None:
    """The path of nsys: as given, on PATH, or for plain ``nsys`` the newest of the usual places."""
    found = shutil.which(executable)
    if found is not None or executable != "nsys":
        return found
    return next(iter(_installed()), None)


def _installed() -> list[str]:
    """Those in the usual places, the newest first."""
    found = [path for place in PLACES for path in glob.glob(place) if os.access(path, os.X_OK)]
    return sorted(
        found, key=lambda path: [int(number) for number in re.findall(r"\d+", path)], reverse=True
    )


def importers(tool: str) -> list[str]:
    """What can make reports of raw captures: beside `tool`; where that is a script, as in CUDA's
    toolkits, in the usual places.
    """
    roots = [
        os.path.dirname(os.path.dirname(os.path.realpath(path))) for path in (tool, *_installed())
    ]
    found = [
        path
        for root in (*roots, _DEBIAN)
        for path in sorted(glob.glob(f"{glob.escape(root)}/{IMPORTER}"))
    ]
    return list(dict.fromkeys(path for path in found if os.access(path, os.X_OK)))


@cache
def find(executable: str) -> Tool | None:
    """Nsys, its version and its commands' options, or ``None`` where there is none.

    Looked up once per process, in 0.1 s.
    """
    path = locate(executable)
    if path is None:
        return None
    version = re.search(r"\d+(\.\d+)+", _say(path, "--version"))
    return Tool(path, version[0] if version else None, dict(features(partial(_say, path))))


def environment() -> dict[str, str]:
    """Ours without what makes a process a target of nsys; nsys finds its sessions by their
    temporary directory.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _OF_A_TARGET and not name.startswith(_PREFIXES)
    }
    directory = os.environ.get("NSYS_AGENT_TMP_DIR") or os.environ.get("TMPDIR")
    return {**kept, "TMPDIR": directory} if directory else kept


def _say(path: str, *words: str) -> str:
    command = [path, *words]
    try:
        done = subprocess.run(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def missing(executable: str) -> str:
    """What to do about it."""
    return (
        f"{executable!r} is not on PATH. Install NVIDIA Nsight Systems: scripts/install-nsys.sh "
        "(Debian), or "
        "https://developer.nvidia.com/nsight-systems; or say where it is with the key "
        "nsight.executable "
        "(gpuprof report: --set nsight.executable=PATH)"
    )


MODES = ("defer", "sync", "async")
"""Of writing reports: when all ranges have ended, at the end of each while the program waits, or
while it goes on."""
COMMANDS = ("profile", "launch", "start")
_OPTION = re.compile(r"^[ \t]{1,3}(?:-(\w), )?--([\w-]+)(?:\[([\w|]+)\])?", re.MULTILINE)


def features(say: Callable[..., str]) -> dict[str, list[str]]:
    """The names of options, long and short, by the command that takes them.

    What the help does not say is left out.

    ``modes`` are those in which ``capture-range-end=repeat`` can write reports.

    Args:
        say: runs nsys with words, and returns what it prints.
    """
    texts = {command: say(command, "--help") for command in COMMANDS}
    found = {command: options_in(text) for command, text in texts.items()} | {
        "modes": modes_in(texts["profile"])
    }
    return {name: words for name, words in found.items() if words}


def options_in(text: str) -> list[str]:
    r"""The names in a help text, in its order.

    >>> options_in("\t-t, --trace=\n\n\t   As --sample.\n\t--nvtx-domain-[include|exclude]=\n")
    ['t', 'trace', 'nvtx-domain-include', 'nvtx-domain-exclude']
    """
    names: list[str] = []
    for short, long, endings in _OPTION.findall(text):
        names += [*filter(None, [short]), *(f"{long}{ending}" for ending in endings.split("|"))]
    return names


def modes_in(text: str) -> list[str]:
    """The modes that the help of ``capture-range-end`` speaks of.

    Neither 2022.4 nor 2023.4 has any.
    """
    behind = text.partition("--capture-range-end")[2]
    option = _OPTION.search(behind)
    about = behind[: option.start()] if option else behind
    return [mode for mode in MODES if re.search(rf"\b{mode}\b", about)]
