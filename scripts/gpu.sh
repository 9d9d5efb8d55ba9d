#!/bin/sh
# Run all that needs a card, in ten minutes and without a network:  scripts/gpu.sh [FOLDER-OF-WHEELS] [TABLE]
# PYTHON is a Python with CUDA's torch; the rest comes from the folder that scripts/gpu-wheels.sh has filled.
set -eu
cd "$(dirname "$0")/.."

wheels=${1:-.gpu-wheels}
table=${2:-gpu.md}
python=${PYTHON:-python3}
venv=.venv-gpu

"$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' || { echo "gpu: $python has no torch. Say PYTHON=..." >&2; exit 1; }
[ -d "$wheels" ] || { echo "gpu: there is no $wheels; scripts/gpu-wheels.sh fills it where there is a network" >&2; exit 1; }

# --system-site-packages would leave out what is in a virtual environment, as torch may be.
rm -rf "$venv"
"$python" -m venv --without-pip "$venv"
"$python" -c '
import sys
for path in sys.path:
    if path.endswith("-packages"):
        print(f"import site; site.addsitedir({path!r})")
' >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"

pip() {
    "$venv/bin/python" "$(echo "$wheels"/pip-*.whl)/pip" --disable-pip-version-check install --quiet --no-index --find-links "$wheels" "$@"
}
pip --group gpu || { echo "gpu: $wheels lacks wheels for $("$python" -V): fill it by scripts/gpu-wheels.sh $wheels VERSION" >&2; exit 1; }
pip --no-build-isolation ./timing '.[device,timeline]' ./backends/nsight ./examples/third_party_backend

PATH=$PWD/$venv/bin:$PATH
results=$(mktemp)
trap 'rm -f "$results"' EXIT
code=0
python -m pytest -m gpu tests --junitxml="$results" || code=$?
{
    python benchmarks/on_a_card.py --tests "$results" || code=$?
    printf '\n%s\n\n' 'Stack samples (`benchmarks/sampling_cost.py`):'
    python benchmarks/sampling_cost.py --rates 20 --pairs 12 || code=$?
    printf '\n%s\n\n' 'All that is recorded, NVML included (`benchmarks/recording_cost.py`):'
    python benchmarks/recording_cost.py --rounds 60 --starts 3 || code=$?
} >"$table"
cat "$table"
exit $code
