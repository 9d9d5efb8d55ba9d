#!/bin/sh
# Make a virtual environment with released frameworks for `make test-frameworks`:  scripts/frameworks.sh [DIRECTORY]
# Ends with 3 if a package cannot be had, and says which. Does nothing where the environment is up to date.
set -eu

venv=${1:-.venv-frameworks}
here=$(dirname "$0")
list=$here/frameworks.txt
ready=$venv/.ready

projects=$(ls "$here"/../pyproject.toml "$here"/../*/pyproject.toml "$here"/../*/*/pyproject.toml)
if [ -e "$ready" ] && [ -z "$(find "$list" "$0" "$here/setup.sh" $projects -newer "$ready")" ]; then
    exit 0
fi
sh "$here/setup.sh" "$venv"
echo "frameworks: installing verl, RLinf, Sample Factory and what their workers import"
if ! said=$(sh "$here/pip.sh" "$venv" install --no-deps --requirement "$list" 2>&1); then
    echo "frameworks: not to be had: $(echo "$said" | grep -m 1 -i error || echo "$said" | tail -1)" >&2
    exit 3
fi
touch "$ready"
