#!/bin/sh
# Fill a folder with the wheels that `make gpu` installs where there is no network; torch is not among them:
#   scripts/gpu-wheels.sh [FOLDER] [PYTHON-VERSION]
# Run it where there is a network, and take the checkout with the folder to a machine with a card. PYTHON-VERSION is that machine's.
set -eu
cd "$(dirname "$0")/.."

folder=${1:-.gpu-wheels}
version=${2:-3.12}
most=60 # MiB, as much as some clusters let a job bring along

rm -rf "$folder"
download() {
    # pip matches the number of a platform exactly
    .venv/bin/python -m pip --disable-pip-version-check download --quiet --only-binary=:all: --no-build-isolation --dest "$folder" \
        --implementation cp --python-version "$version" --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_5_x86_64 --platform manylinux1_x86_64 "$@"
}
download ./timing '.[device,timeline]' ./backends/nsight ./examples/third_party_backend # what they need
download --group gpu                                                             # in a call of its own: pip mixes groups up with paths
size=$(du -sm "$folder" | cut -f 1)
echo "gpu-wheels: $(find "$folder" -name '*.whl' | wc -l) wheels for Python $version in $folder, $size MiB"
[ "$size" -lt $most ] || { echo "gpu-wheels: that is more than $most MiB" >&2; exit 1; }
