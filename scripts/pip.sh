#!/bin/sh
# Call pip for a virtual environment:  scripts/pip.sh DIRECTORY install PACKAGE...
# uv does it in a quarter of pip's time. What it cannot find, as it reads none of pip's configuration, pip installs.
set -eu

venv=$1
shift
[ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip --disable-pip-version-check install --quiet uv 2>/dev/null || true
[ -z "${PIP_FIND_LINKS:-}" ] || export UV_FIND_LINKS="$PIP_FIND_LINKS"
[ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="$PIP_INDEX_URL"
VIRTUAL_ENV=$venv "$venv/bin/uv" --quiet pip "$@" 2>/dev/null || "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"
