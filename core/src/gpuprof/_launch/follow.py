"""`gpuprof run` in front of torchrun or `accelerate launch` records each rank.

The launcher itself is not recorded. When the launcher starts a rank, `_start/sitecustomize.py`
replaces the rank by `gpuprof run` with the same flags and the rank's own command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import NoReturn

from gpuprof._launch import at_start, command_line
from gpuprof._shim import inherited
from gpuprof._shim.row import VARIABLE

FOLLOWED = "GPUPROF_FOLLOWED"
"""The variable with the launcher's process id and the flags of `gpuprof run` for its ranks."""
_PROGRAMS = (["torchrun"], ["accelerate", "launch"], ["accelerate-launch"])
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def starts_ranks(words: Sequence[str]) -> bool:
    """Whether a command is a launcher whose ranks gpuprof can follow.

    >>> starts_ranks(["torchrun", "--nproc-per-node", "2", "train.py"])
    True
    >>> starts_ranks(["python", "-m", "torch.distributed.run", "train.py"])
    True
    >>> starts_ranks(["torchrun", "--no-python", "gpuprof", "run", "--", "python", "train.py"])
    False
    """
    if VARIABLE in os.environ or "gpuprof" in words:
        return False
    command = command_line.parse(words)
    if command.python and command.arguments[:1] == ("-m",):
        return command.arguments[1:2] != () and command.arguments[1] in _MODULES
    command_words = [os.path.basename(words[0]), *words[1:]]
    return any(command_words[: len(program)] == program for program in _PROGRAMS)


def become(words: Sequence[str], flags: Sequence[str]) -> NoReturn:
    """Replace this process by a launcher, and follow its ranks.

    Args:
        words: the launcher's command.
        flags: the flags of `gpuprof run` for the ranks.
    """
    os.environ[FOLLOWED] = json.dumps([os.getpid(), *flags])
    os.environ["PYTHONPATH"] = at_start.path(os.environ.get("PYTHONPATH", ""))
    inherited.become(list(words))
