#!/bin/sh
# Make a virtual environment with the libraries of `make test-jobs`:  scripts/jobs.sh [DIRECTORY]
# Ends with 3 if a package cannot be had, and says which. Does nothing where the environment is up to date.
set -eu

venv=${1:-.venv-jobs}
here=$(dirname "$0")
list=$here/jobs.txt
ready=$venv/.ready-jobs

projects=$(ls "$here"/../pyproject.toml "$here"/../*/pyproject.toml "$here"/../*/*/pyproject.toml)
if [ -e "$ready" ] && [ -z "$(find "$list" "$0" "$here/setup.sh" $projects -newer "$ready")" ]; then
    exit 0
fi
sh "$here/setup.sh" "$venv"
echo "jobs: installing Transformers, Lightning, TRL and Ray's libraries"
# The torch that is there stays: another one may be several gigabytes.
torch=$("$venv/bin/python" -c 'import torch; print(f"torch=={torch.__version__}")')
if ! said=$(sh "$here/pip.sh" "$venv" install --requirement "$list" "$torch" 2>&1); then
    echo "jobs: not to be had: $(echo "$said" | grep -m 1 -i error || echo "$said" | tail -1)" >&2
    exit 3
fi
touch "$ready"
