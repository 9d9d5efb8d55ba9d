#!/bin/sh
# Install Open MPI and SLURM from Debian, for the tests of `gpuprof run` under mpirun and srun. Needs root.
set -eu
if command -v mpirun >/dev/null && command -v srun >/dev/null && [ -x /usr/sbin/slurmctld ] && [ -x /usr/sbin/slurmd ]; then
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openmpi-bin slurmctld slurmd slurm-client munge
