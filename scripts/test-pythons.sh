#!/bin/sh
# Run the suite without nsys and torch on each Python, in environments of their own:  scripts/test-pythons.sh python3.10 python3.13
# PYTEST has arguments for pytest. What has passed, failed and been left out is said at the end.
set -u
cd "$(dirname "$0")/.."

passed='' failed='' left_out=0
leave_out() {
    echo "test-pythons: $1 is left out: $2" >&2
    left_out=$((left_out + 1))
}

for python; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || {
        leave_out "$python" "it does not run on this machine"
        continue
    }
    venv=.venv-$version
    if [ -n "$(find scripts/setup.sh pyproject.toml */pyproject.toml */*/pyproject.toml timing/hatch_build.py timing/src/gpuprof_timing/_hot.c backends/nsight/hatch_build.py backends/nsight/src/gpuprof_nsight/_nvtx/compiled.c -newer "$venv/.ready" 2>&1)" ]; then
        mkdir -p "$venv"
        if TORCH=no PYTHON=$python sh scripts/setup.sh "$venv" >"$venv/setup.log" 2>&1; then
            touch "$venv/.ready"
        elif grep -q 'No matching distribution found for ray' "$venv/setup.log"; then
            leave_out "$python" "there is no Ray for it"
            continue
        else
            tail -n 20 "$venv/setup.log" >&2
            failed="$failed $python (setup)"
            continue
        fi
    fi
    echo "test-pythons: $python"
    # shellcheck disable=SC2086 # several words
    if "$venv/bin/python" -m pytest ${PYTEST:-} -m "not nsys"; then
        passed="$passed $python"
    else
        failed="$failed $python"
    fi
done
echo "test-pythons: passed:${passed:- none}; failed:${failed:- none}; left out: $left_out of $#"
[ -z "$failed" ]
