"""This process's rank and run, read from the launcher's environment variables."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import attrs

from gpuprof._artifacts.run_id import RUN_VARIABLE, given_run_id, new_run_id
from gpuprof._shim.node import node_name
from gpuprof._shim.processes import process_start
from gpuprof.errors import ConfigError


@attrs.frozen
class Launched:
    """One process of a launch.

    Args:
        launcher: the launcher's display name; empty if there is no launcher.
        rank: this process's rank in the whole job, from 0.
        size: the number of ranks in the job.
        on_node: the number of ranks on this node; ``None`` if the launcher does not tell.
        variable: an environment variable that every rank has and the launcher itself lacks.
        run: an id unique to this launch and shared by all its ranks; ``None`` if there is none.
        remedy: how to set an id if `run` is ``None``, as the end of an error message.
    """

    launcher: str = ""
    rank: int = 0
    size: int = 1
    on_node: int | None = 1
    variable: str = ""
    run: str | None = None
    remedy: str = ""


def launched(environ: Mapping[str, str]) -> Launched:
    """Read the variables of torchrun, Open MPI, PMI (MPICH, Intel MPI, Cray) or SLURM.

    MPI's variables win over SLURM's: inside an allocation, SLURM may have started MPI's daemon,
    and the daemon the ranks.

    Raises:
        ConfigError: a variable is not a number.

    >>> slurm = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}
    >>> found = launched({**slurm, "SLURM_PROCID": "3"})
    >>> found.launcher, found.rank, found.size, found.run
    ('srun', 3, 8, 'slurm-12.0')
    """
    step = environ.get("SLURM_STEP_ID")  # a batch script has SLURM_PROCID too, but is not a rank
    slurm = f"slurm-{environ.get('SLURM_JOB_ID')}.{step}" if step else None
    if "TORCHELASTIC_RUN_ID" in environ:
        own_id = environ["TORCHELASTIC_RUN_ID"]
        run = f"torchrun-{own_id}" if own_id != "none" else slurm
        size = _number(environ, "WORLD_SIZE")
        on_node = _number(environ, "LOCAL_WORLD_SIZE")
        remedy = ", or give torchrun --rdzv-id"
        return Launched(
            launcher="torchrun",
            rank=_number(environ, "RANK"),
            size=size,
            on_node=on_node,
            variable="TORCHELASTIC_RUN_ID",
            run=run,
            remedy=remedy,
        )
    if "OMPI_COMM_WORLD_RANK" in environ:
        name = environ.get("PMIX_NAMESPACE")
        size, on_node = (
            _number(environ, "OMPI_COMM_WORLD_SIZE"),
            _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        )
        variable = "OMPI_COMM_WORLD_RANK"
        return Launched(
            launcher="Open MPI",
            rank=_number(environ, variable),
            size=size,
            on_node=on_node,
            variable=variable,
            run=f"mpi-{name}" if name else slurm,
        )
    if "PMI_RANK" in environ:
        local = _number(environ, "MPI_LOCALNRANKS") if "MPI_LOCALNRANKS" in environ else None
        return Launched(
            launcher="PMI",
            rank=_number(environ, "PMI_RANK"),
            size=_number(environ, "PMI_SIZE"),
            on_node=local,
            variable="PMI_RANK",
            run=slurm,
        )
    if step and "SLURM_PROCID" in environ:
        size = _number(
            environ, "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
        )
        return Launched(
            launcher="srun",
            rank=_number(environ, "SLURM_PROCID"),
            size=size,
            on_node=None,
            variable="SLURM_PROCID",
            run=slurm,
        )
    return Launched()


def usual_group(environ: Mapping[str, str]) -> str:
    """The worker group of a process that was not given one.

    A program that no launcher has started is not a ``Worker``, for it may itself start actors of a
    class ``Worker``, which then have the ranks from 0.

    Raises:
        ConfigError: a launcher's variable is not a number.
    """
    return "Worker" if launched(environ).launcher else "Program"


def run_id(of: Launched, environ: Mapping[str, str]) -> str:
    """The run's id, the same for all ranks of a launch.

    Takes the first that exists: ``GPUPROF_RUN``, the launcher's id, or a new id for a single
    process. Otherwise, if all ranks are on one node, derives the id from the process that started
    the ranks.

    Raises:
        ConfigError: there is no common id, or ``GPUPROF_RUN`` is not valid.
    """
    user_id = given_run_id(environ)
    if user_id is not None:
        return user_id
    if of.run is not None:
        return re.sub(r"[^\w.@+-]", "-", of.run, flags=re.ASCII)
    if of.size == 1:
        return new_run_id()
    if of.on_node == of.size:
        return _named_after(_ancestor_without(of.variable))
    problem = (
        f"the {of.size} ranks of {of.launcher} have no common run id; set it to the same "
        f"value on every rank{of.remedy}"
    )
    raise ConfigError(f"{RUN_VARIABLE}: is not set, and {problem}")


def restarted(environ: Mapping[str, str]) -> bool:
    """Whether the launcher has restarted this job under the same id."""
    counts = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    return any(environ.get(name, "0") not in ("", "0") for name in counts)


def _ancestor_without(variable: str) -> int:
    """The nearest ancestor process without the variable: the launcher, even above a shell."""
    pid = os.getppid()
    while pid > 1:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break  # another user's process, so not one of our ranks
        if not any(entry.startswith(f"{variable}=".encode()) for entry in environment):
            break
        pid = parent
    return pid


def _named_after(pid: int) -> str:
    """A run id derived from a process, so that all its descendants compute the same id."""
    start = process_start(pid) or "0"
    boot = next(
        int(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime ")
    )
    moment = time.gmtime(boot + int(start) / os.sysconf("SC_CLK_TCK"))
    digest = hashlib.blake2b(f"{node_name()} {pid} {start}".encode(), digest_size=3).hexdigest()
    return new_run_id(moment, digest)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(
            f"{name}: {text!r} is not valid; expected the integer that the launcher sets"
        )
    return int(text)
