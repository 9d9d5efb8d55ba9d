#!/bin/sh
# Do what a release does, but publish nothing:  scripts/release-dry-run.sh [DIRECTORY]
#
# Builds all distributions without a network, checks them, builds the compiled ones for each Python that is here, installs the
# wheels into empty environments, and runs the demo in one of them. DIRECTORY gets sdists and wheels; default: dist.
set -eu
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
dist=${1:-dist}
projects='timing . backends/nsight backends/rocprof_sys testing frameworks/verl frameworks/rlinf frameworks/nemo_rl frameworks/sample_factory'
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
left_out=''

say() { echo "release: $*"; }

say "every file says what release.toml decides"
"$bin/python" scripts/distributions.py --check
version=$("$bin/python" -c 'import gpuprof; print(gpuprof.__version__)')
"$bin/python" scripts/distributions.py --release "v$version" || left_out="$left_out; not ready to publish, see above"

alone=''
if unshare -rn true 2>/dev/null; then
    alone='unshare -rn'
else
    left_out="$left_out; no network namespace can be made here, so the builds could have used the network"
fi
rm -rf "$dist"
for project in $projects; do
    say "building $project${alone:+ without a network}"
    $alone "$bin/python" -m build --no-isolation --outdir "$dist" "$project" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
done
"$bin/twine" check --strict "$dist"/*
"$bin/check-wheel-contents" "$dist"/*.whl

# The file's path, as the name may be somebody else's on the index.
wheel() { # DIRECTORY PACKAGE
    echo "$1/$2"-[0-9]*.whl
}

own=$("$bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
demo=''
for minor in 10 11 12 13 14; do
    python=python3.$minor
    "$python" -c '' 2>/dev/null || python=$(pyenv prefix "3.$minor" 2>/dev/null || true)/bin/python
    if ! "$python" -c '' 2>/dev/null; then
        left_out="$left_out; Python 3.$minor is not here"
        continue
    fi
    say "Python 3.$minor: wheels of the compiled distributions, from their sdists, in an empty environment"
    wheels=$place/wheels-3.$minor venv=$place/venv-3.$minor
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" "$dist"/gpuprof_timing-*.tar.gz "$dist"/gpuprof_nsight-*.tar.gz
    cp "$wheels"/*.whl "$dist"
    # shellcheck disable=SC2046 # each is one path
    "$venv/bin/python" -m pip install --quiet $(wheel "$wheels" gpuprof_timing) "$(wheel "$dist" gpuprof)[html,timeline]" \
        $(wheel "$wheels" gpuprof_nsight) $(wheel "$dist" gpuprof_rocprof_sys)
    printf 'import time\nfor number in range(40):\n    import gpuprof\n    with gpuprof.step(number), gpuprof.timer("work"): time.sleep(0.01)\n' >"$place/train.py"
    (
        cd "$place"
        "$venv/bin/gpuprof" run -- "$venv/bin/python" train.py
        "$venv/bin/gpuprof" explain >explain.txt
        "$venv/bin/gpuprof" html
        "$venv/bin/python" -c 'import gpuprof_timing, sys; sys.exit(not gpuprof_timing.compiled)' || echo "scopes are not compiled"
    ) >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
    tail -n 1 "$place/log"
    # torch can be had for the Python that has it already
    if [ -z "$demo" ] || [ "3.$minor" = "$own" ]; then demo=$venv; fi
done
say "what was built"
ls -l "$dist" | awk 'NR > 1 { print $5, $9 }'

version=$("$demo/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
say "the demo on the wheels, with Python $version"
if "$demo/bin/python" -m pip install --quiet --upgrade pip && "$demo/bin/python" -m pip install --quiet --group demo &&
    "$demo/bin/python" -m pip install --quiet "torch==$("$bin/python" -c 'import torch; print(torch.__version__)')"; then
    "$demo/bin/python" examples/ray_ppo/train.py --backend none --steps 12 --output-dir "$place/demo" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
    tail -n 1 "$place/log"
else
    left_out="$left_out; Ray or torch cannot be had for Python $version, so the demo did not run"
fi

say "the documentation's site"
make docs
say "done${left_out:+. Left out${left_out#;}}"
