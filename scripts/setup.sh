#!/bin/sh
# Make a virtual environment with gpuprof, its backends, and what the demo and the tests need:  scripts/setup.sh [DIRECTORY]
# PYTHON=python3.13 says with which Python. TORCH=no leaves torch out: where there is no CPU build of it, it is several gigabytes.
set -eu

venv=${1:-.venv}
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "setup: gpuprof needs Python 3.10 or later; $python is $("$python" --version). Say PYTHON=..." >&2
    exit 1
}

if [ ! -x "$venv/bin/python" ]; then
    # Debian splits venv off: then `import venv` works but ensurepip is missing.
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv "$venv"
    elif "$python" -m virtualenv --version >/dev/null 2>&1; then
        "$python" -m virtualenv --quiet "$venv"
    else
        echo "setup: $python cannot make virtual environments. Run: apt-get install -y python3-venv" >&2
        exit 1
    fi
fi

# First pip itself: before 23.3 it ignores the extra `rocprof_sys` with a mere warning.
"$venv/bin/python" -m pip --disable-pip-version-check install --quiet --upgrade pip

pip() {
    sh "$(dirname "$0")/pip.sh" "$venv" "$@"
}

# The CPU build of torch by its exact version: that cannot turn into the CUDA build. Elsewhere whatever torch is on offer.
if [ "${TORCH:-yes}" = no ]; then
    echo "setup: leaving torch out; the demo cannot run without it, and its tests are skipped"
elif ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    echo "setup: installing torch"
    pip install 'torch==2.13.0+cpu' 2>/dev/null || {
        echo "setup: no CPU build of torch here; the one that pip finds may be several gigabytes (TORCH=no leaves it out)"
        pip install torch
    }
fi

echo "setup: installing gpuprof and what the demo and the tests use"
# The groups first: they bring the build backend. In a call of their own: pip mixes them up with paths.
pip install --group demo --group test --group check
# By path: the name `gpuprof` on PyPI is another project's.
pip install --no-build-isolation --editable ./timing --editable '.[nsight,rocprof_sys,frameworks]' --editable ./backends/nsight \
    --editable ./backends/rocprof_sys --editable ./testing --editable ./frameworks/verl --editable ./frameworks/rlinf \
    --editable ./frameworks/nemo_rl --editable ./frameworks/sample_factory --editable ./examples/third_party_backend \
    --editable ./examples/py_spy
