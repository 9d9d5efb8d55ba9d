#!/bin/sh
# Make a virtual environment with released frameworks for `make test-frameworks`:  scripts/frameworks.sh [DIRECTORY]
# Ends with 3 if a package cannot be had, and says which.
set -eu

venv=${1:-.venv-frameworks}
list=$(dirname "$0")/frameworks.txt

sh "$(dirname "$0")/setup.sh" "$venv"
echo "frameworks: installing verl, RLinf, Sample Factory and what their workers import"
if ! said=$("$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --requirement "$list" 2>&1); then
    echo "frameworks: skipped, not to be had: $(echo "$said" | grep -m 1 -i error || echo "$said" | tail -1)" >&2
    exit 3
fi
