"""A SLURM cluster of one node on loopback, with its state in a directory of its own."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.ports import free_ports
from support.waiting import DEADLINE

PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "srun")
_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
_SETTINGS = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def installed() -> bool:
    """Whether all of it is on this machine."""
    return all(shutil.which(program, path=_PATH) for program in PROGRAMS)


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """The variables with which `srun` finds the cluster."""
    with tempfile.TemporaryDirectory(prefix="gps") as name, ExitStack() as daemons:
        place = Path(name)
        for directory in ("state", "spool"):
            (place / directory).mkdir()
        key = place / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        values = {
            "host": host,
            "ports": free_ports(2),
            "user": getpass.getuser(),
            "place": place,
            "cpus": os.cpu_count(),
        }
        (place / "slurm.conf").write_text(_SETTINGS.format(**values))
        parts = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        own = [f"--{part}={place}/munge.{part.partition('-')[0]}" for part in parts]
        environment = {"SLURM_CONF": str(place / "slurm.conf")}
        for command in (
            ["munged", "--foreground", "--force", *own],
            ["slurmctld", "-D"],
            ["slurmd", "-D"],
        ):
            program = shutil.which(command[0], path=_PATH)
            with (place / f"{command[0]}.out").open("w") as output:
                daemon = subprocess.Popen(
                    [str(program), *command[1:]],
                    env={**os.environ, **environment},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            daemons.callback(daemon.wait)
            daemons.callback(daemon.terminate)
        _await_idle(place, {**os.environ, **environment})
        yield environment


def _await_idle(place: Path, environment: dict[str, str]) -> None:
    until = time.monotonic() + DEADLINE
    while True:
        done = subprocess.run(
            ["sinfo", "-h", "-o", "%T"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.strip() == "idle":
            return
        said = {file.name: file.read_text() for file in place.glob("*.out")}
        assert time.monotonic() < until, (done, said)
