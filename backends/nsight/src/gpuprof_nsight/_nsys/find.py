"""Finding nsys, its release, and the options of its commands."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial

from gpuprof.backend import Tool, run_tool

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
"""The paths where NVIDIA's packages install nsys, often without a link on PATH."""
IMPORTER = "host-linux-*/QdstrmImporter"
"""The program that makes reports from raw captures, below the installation's directory."""
EXIT_STATUS = "nsys_termination_status_*"
"""The files in which nsys keeps the exit status of its processes."""
_DEBIAN = "/usr/lib/nsight-systems"
_OF_A_TARGET = ("LD_PRELOAD", "NVTX_INJECTION64_PATH", "TMPDIR")
_PREFIXES = ("NSYS_", "QUADD_")


def locate(executable: str) -> str | None:
    """The path of nsys: the given one, or on PATH; for plain ``nsys`` also the newest installed."""
    path = shutil.which(executable)
    if path is not None or executable != "nsys":
        return path
    return next(iter(_installed()), None)


def _installed() -> list[str]:
    """The nsys in the usual places, the newest first."""
    paths = [path for place in PLACES for path in glob.glob(place) if os.access(path, os.X_OK)]
    return sorted(
        paths, key=lambda path: [int(number) for number in re.findall(r"\d+", path)], reverse=True
    )


def importers(tool: str) -> list[str]:
    """The importers beside `tool` and in the usual places.

    In CUDA's toolkits `tool` is a script with no importer beside it.
    """
    roots = [
        os.path.dirname(os.path.dirname(os.path.realpath(path))) for path in (tool, *_installed())
    ]
    paths = [
        path
        for root in (*roots, _DEBIAN)
        for path in sorted(glob.glob(f"{glob.escape(root)}/{IMPORTER}"))
    ]
    return list(dict.fromkeys(path for path in paths if os.access(path, os.X_OK)))


def shared_folders(version: str | None) -> list[str]:
    """The folders of the temporary directory that every nsys on a machine must share.

    2022.4 keeps the lock of its shared memory ``/dev/shm/NSys-<version>`` there. With separate
    locks, an nsys can start while another one exits, and both lose that memory. After that, no nsys
    starts until all agents have exited and the memory is removed: five rounds of retries at most,
    with twelve concurrent starts. 2023.4 keeps all its state there, and a leftover agent takes over
    other programs' recordings (7 of 25 reports were empty), so it must share nothing.
    """
    year = (version or "").partition(".")[0]
    return [] if year.isdigit() and int(year) >= 2023 else ["nvidia"]


@cache
def find(executable: str) -> Tool | None:
    """Find nsys, its version and its commands' options; ``None`` without one that works.

    Runs once per process and takes 0.1 s.
    """
    path = locate(executable)
    output = path and _say(path, "--version")
    if path is None or output is None:
        return None
    version = re.search(r"\d+(\.\d+)+", output)
    release = version[0] if version else None
    options = dict(features(partial(_say, path)))
    return Tool(path, release, options, shared_folders(release), [EXIT_STATUS])


def environment() -> dict[str, str]:
    """The environment for running nsys: ours without the variables of a profiled process.

    ``TMPDIR`` is the directory of nsys's agent, where nsys looks for its sessions.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in _OF_A_TARGET and not name.startswith(_PREFIXES)
    }
    directory = os.environ.get("NSYS_AGENT_TMP_DIR") or os.environ.get("TMPDIR")
    return {**variables, "TMPDIR": directory} if directory else variables


def _say(path: str, *words: str) -> str | None:
    """What nsys prints when called with these words; ``None`` if it hangs."""
    try:
        with tempfile.TemporaryDirectory(prefix="gpuprof-") as directory:
            return run_tool([path, *words], directory, environment())
    except OSError:
        return ""


def missing(executable: str) -> str:
    """The message for an nsys that is missing or hangs, with the remedy."""
    path = locate(executable)
    if path is not None:
        return f"{path} --version hangs; set nsight.executable to an nsys that works"
    return (
        f"{executable!r} is not on PATH. Install NVIDIA Nsight Systems with "
        "scripts/install-nsys.sh (Debian) or from https://developer.nvidia.com/nsight-systems, or "
        "set nsight.executable to its path (gpuprof report: --set nsight.executable=PATH)"
    )


MODES = ("defer", "sync", "async")
"""When nsys writes the reports.

``defer``: after the last range. ``sync``: after each range, while the program waits. ``async``:
after each range, while the program runs on.
"""
COMMANDS = ("profile", "launch", "start")
_OPTION = re.compile(r"^[ \t]{1,3}(?:-(\w), )?--([\w-]+)(?:\[([\w|]+)\])?", re.MULTILINE)


def features(say: Callable[..., str | None]) -> dict[str, list[str]]:
    """The names of options, long and short, by command.

    ``modes`` are the ways in which ``capture-range-end=repeat`` can write reports. Entries that the
    help texts do not mention are left out.

    Args:
        say: runs nsys with these words and returns its output.
    """
    texts = {command: say(command, "--help") or "" for command in COMMANDS}
    words_by_command = {command: options_in(text) for command, text in texts.items()} | {
        "modes": modes_in(texts["profile"])
    }
    return {name: words for name, words in words_by_command.items() if words}


def options_in(text: str) -> list[str]:
    r"""The names of the options in a help text, in order.

    >>> options_in("\t-t, --trace=\n\n\t   As --sample.\n\t--nvtx-domain-[include|exclude]=\n")
    ['t', 'trace', 'nvtx-domain-include', 'nvtx-domain-exclude']
    """
    names: list[str] = []
    for short, long, endings in _OPTION.findall(text):
        names += [*filter(None, [short]), *(f"{long}{ending}" for ending in endings.split("|"))]
    return names


def modes_in(text: str) -> list[str]:
    """The modes that the help of ``capture-range-end`` mentions.

    2022.4 and 2023.4 have none.
    """
    behind = text.partition("--capture-range-end")[2]
    option = _OPTION.search(behind)
    about = behind[: option.start()] if option else behind
    return [mode for mode in MODES if re.search(rf"\b{mode}\b", about)]
