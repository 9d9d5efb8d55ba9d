"""Which rank of which run a process is, by the variables of its launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpuprof._launch.launchers import launched, run_id
from gpuprof.errors import ConfigError
from gpuprof.ray import Profiler

TORCHRUN = {"TORCHELASTIC_RUN_ID": "job-7", "RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-a@1",
}
PMI = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "99",
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
}
DAEMON = {**SRUN, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
"""What a rank sees whose MPI has started a daemon on each node through SLURM."""


@pytest.mark.parametrize(
    ("environ", "launcher", "run"),
    [
        (TORCHRUN, "torchrun", "torchrun-job-7"),
        (OPEN_MPI, "Open MPI", "mpi-prterun-a@1"),
        (SRUN, "srun", "slurm-12.0"),
        ({**TORCHRUN, **SRUN}, "torchrun", "torchrun-job-7"),
        ({**TORCHRUN, **DAEMON, "TORCHELASTIC_RUN_ID": "none"}, "torchrun", "slurm-12.0"),
        ({**OPEN_MPI, **DAEMON}, "Open MPI", "mpi-prterun-a@1"),
        ({**PMI, **DAEMON}, "PMI", "slurm-12.0"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "a b/c"}, "torchrun", "torchrun-a-b-c"),
    ],
    ids=str,
)
def test_rank_size_and_run(environ: dict[str, str], launcher: str, run: str) -> None:
    """Each launcher says them in its own words, and the one that is nearest to the rank counts."""
    found = launched(environ)
    assert (launcher, 3, 8, run) == (found.launcher, found.rank, found.size, run_id(found, environ))


def test_a_process_of_its_own() -> None:
    """Nothing has launched it: rank 0 of 1, and no two runs have the same id.

    A batch script is such a process as well.
    """
    alone = launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "12"})
    assert (0, 1) == (alone.rank, alone.size)
    assert run_id(alone, {}) != run_id(alone, {})


def test_the_users_run_id_wins() -> None:
    """Over whatever the launcher says."""
    environ = {**SRUN, "GPUPROF_RUN": "mine"}
    assert "mine" == run_id(launched(environ), environ)


@pytest.mark.parametrize(
    "given", ["a/b", "../a", "..", "/a", "", ".hidden", "a b", "\N{SNOWMAN}", "a" * 129]
)
def test_a_run_id_that_is_no_name_is_refused(given: str) -> None:
    """It becomes a directory."""
    with pytest.raises(
        ConfigError, match=r"GPUPROF_RUN: .* is not valid; expected letters, digits"
    ):
        run_id(launched({}), {"GPUPROF_RUN": given})


@pytest.mark.parametrize("given", ["a/b", "../a", "..", "/a", "", ".hidden", "a" * 129])
def test_a_profiler_refuses_such_a_run_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """The driver's check is that of `gpuprof run`, and no directory is left."""
    monkeypatch.setenv("GPUPROF_RUN", given)
    with pytest.raises(ConfigError, match=r"GPUPROF_RUN: .* is not valid; expected letters"):
        Profiler({"backend": "none", "worker_groups": ["A"], "output_dir": str(tmp_path / "out")})
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["a", "2024_a.b@c+d-e", "a" * 128])
def test_a_run_id_that_is_a_name_is_taken(given: str) -> None:
    """As it stands."""
    assert given == run_id(launched({}), {"GPUPROF_RUN": given})


def test_a_profiler_that_profiles_nothing_needs_no_run_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiling that is switched off cannot fail the job."""
    monkeypatch.setenv("GPUPROF_RUN", "a/b")
    assert Profiler({"backend": "none", "enabled": False}).directory is None


@pytest.mark.parametrize(
    "environ", [{**PMI, "MPI_LOCALNRANKS": "4"}, {**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}]
)
def test_ranks_on_several_nodes_need_an_id(environ: dict[str, str]) -> None:
    """The error says what to set."""
    with pytest.raises(
        ConfigError,
        match=r"GPUPROF_RUN: is not set, and the 8 ranks of .* have no common run id; set it",
    ):
        run_id(launched(environ), environ)


def test_a_rank_that_is_no_number() -> None:
    """The variable is named."""
    with pytest.raises(ConfigError, match="PMI_RANK: 'x' is not valid"):
        launched({**PMI, "PMI_RANK": "x"})


ASK = """
import json, os
from gpuprof._launch.launchers import launched, run_id
print(json.dumps(run_id(launched(os.environ), os.environ)))
"""
LAUNCH = """
import json, os, subprocess, sys
environment = {**os.environ, "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
ask = [sys.executable, "-c", sys.argv[1]]
# The second rank has a shell in between, as a launcher's script may.
commands = [ask, ["sh", "-c", '"$@"; exit $?', "sh", *ask]]
found = []
for rank, command in enumerate(commands):
    environment["PMI_RANK"] = str(rank)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found.append(json.loads(done.stdout))
print(json.dumps(found))
"""


def test_ranks_of_one_node_agree_without_an_id() -> None:
    """They have their launcher in common, and another launcher has other ranks."""
    environment = {name: value for name, value in os.environ.items() if name != "GPUPROF_RUN"}
    command = [sys.executable, "-c", LAUNCH, ASK]
    first, second = (
        json.loads(
            subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(2)
    )
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert first[0] != second[0]
