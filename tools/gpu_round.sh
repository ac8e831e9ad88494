#!/usr/bin/env bash
# gpu_round.sh - every check that needs a GPU, in one command.
#
# usage: tools/gpu_round.sh [--build DIR] [--out DIR] [--steps LIST]
#                           [--jobs N] [--sanitize-regex REGEX] [--sanitizer-args ARGS]
#                           [--bench-args ARGS]
#
#   --build DIR             the build tree, built here or carried from another machine (its test
#                           lists are relative to the tree); build/default without it, which is
#                           built first if it does not exist
#   --out DIR               where logs and the summary go; build/gpu_round without it
#   --steps LIST            comma-separated, of tests,memcheck,racecheck,bench; all without it
#   --jobs N                gpu tests to run at a time; 1 without it, since some watch the GPU's
#                           memory
#   --sanitize-regex REGEX  the gpu tests to run under compute-sanitizer; without it those of
#                           results under memcheck, and one with both passes under racecheck,
#                           which takes minutes for cuBLASLt's kernels
#   --sanitizer-args ARGS   further arguments of compute-sanitizer, split at blanks
#   --bench-args ARGS       arguments of 'loggerhead bench', split at blanks
#
# A test that is skipped for want of a GPU fails here. Exit status 0 only if every step passed;
# the last lines printed are the summary, which is also DIR/summary.txt. For example:
#
#   tools/gpu_round.sh --out /tmp/round
#   tools/gpu_round.sh --steps tests,memcheck --sanitize-regex '^cuda\.test_cases\.temperature'
set -euo pipefail

source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$source_folder/build/default
out=$source_folder/build/gpu_round
steps=tests,memcheck,racecheck,bench
jobs=1
sanitize_regex=
memcheck_regex='^cuda\.test_(cases|dtype_cases|feature_cases|gradient_cases|live_rows|mask_cases|slopes|temperature_cases|token_temperatures|vocabulary_cases)\.'
racecheck_regex='^cuda\.test_cases\.padded_columns_take_no_gradient$'
sanitizer_args=()
bench_args=()

usage() {
    sed -n '2,/^set /p' "$0" | sed '$d; s/^# \?//'
}

die() {
    echo "gpu_round: $*" >&2
    exit 2
}

while [[ $# -gt 0 ]]; do
    case $1 in
        --help) usage && exit 0 ;;
        --build | --out | --steps | --jobs | --sanitize-regex | --sanitizer-args | \
            --bench-args)
            [[ $# -ge 2 ]] || die "$1 needs a value"
            case $1 in
                --build) build=$2 ;;
                --out) out=$2 ;;
                --steps) steps=$2 ;;
                --jobs) jobs=$2 ;;
                --sanitize-regex) sanitize_regex=$2 ;;
                --sanitizer-args) read -ra sanitizer_args <<<"$2" ;;
                --bench-args) read -ra bench_args <<<"$2" ;;
            esac
            shift 2
            ;;
        *) die "unknown argument $1; --help lists them" ;;
    esac
done
for step in ${steps//,/ }; do
    [[ $step =~ ^(tests|memcheck|racecheck|bench)$ ]] || die "unknown step $step"
done
[[ -n ${steps//,/} ]] || die "--steps names no step"

if [[ ! -e $build/CTestTestfile.cmake ]]; then
    [[ $build == "$source_folder/build/default" ]] || die "$build is no build tree"
    (cd "$source_folder" && cmake --preset default && cmake --build --preset test)
fi
command -v ctest >/dev/null || die "ctest, which comes with CMake, is not on the PATH"
mkdir -p "$out"
build=$(cd "$build" && pwd)
out=$(cd "$out" && pwd)
export LGH_REQUIRE_GPU=1

# ---- Steps: each prints its log and returns its status -------------------------------------------

run_tests() {
    ctest --test-dir "$build" -L '^gpu$' --no-tests=error --output-on-failure --parallel "$jobs"
}

# The cases that the pattern selects, as lines of PROGRAM CASE; test names are cuda.PROGRAM.CASE.
selected_cases() {
    ctest --test-dir "$build" -L '^gpu$' -R "$1" -N |
        sed -n 's/^ *Test *#[0-9]*: cuda\.\([^.]*\)\.\(.*\)$/\1 \2/p'
}

# All cases of a program share one process, since loading it under compute-sanitizer takes longer
# than most cases.
run_sanitizer() {
    local tool=$1 cases program programs names status=0 judged=(--error-exitcode 99)
    local regex=${sanitize_regex:-$memcheck_regex}
    # cuBLASLt's kernels order their accesses by means that racecheck takes for races: its reports
    # count where they name a kernel of this library.
    if [[ $tool == racecheck ]]; then
        judged=()
        regex=${sanitize_regex:-$racecheck_regex}
    fi
    command -v compute-sanitizer >/dev/null || {
        echo "compute-sanitizer, which comes with the CUDA toolkit, is not on the PATH"
        return 1
    }
    cases=$(selected_cases "$regex")
    [[ -n $cases ]] || {
        echo "no gpu test matches $regex"
        return 1
    }
    mapfile -t programs < <(cut -d' ' -f1 <<<"$cases" | sort -u)
    for program in "${programs[@]}"; do
        mapfile -t names < <(sed -n "s/^$program //p" <<<"$cases")
        echo "-- $tool: $program, ${#names[@]} cases"
        LGH_CACHE_DIR=$build/tests/cache compute-sanitizer --tool "$tool" "${judged[@]}" \
            "${sanitizer_args[@]}" "$build/tests/$program" --device cuda "${names[@]}" |
            tee "$out/$tool.$program.log" || status=1
        if [[ $tool == racecheck ]] && grep -q 'at [a-z_]*_kernel+0x' "$out/$tool.$program.log"; then
            echo "-- racecheck: a report names a kernel of this library"
            status=1
        fi
    done
    return "$status"
}

run_bench() {
    "$build/bin/loggerhead" bench "${bench_args[@]}"
}

# ---- Round ---------------------------------------------------------------------------------------

summary=$out/summary.txt
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null ||
        echo "nvidia-smi does not answer"
} >"$summary"

failed=0
for step in ${steps//,/ }; do
    start=$SECONDS
    case $step in
        tests) command=(run_tests) ;;
        memcheck | racecheck) command=(run_sanitizer "$step") ;;
        bench) command=(run_bench) ;;
    esac
    echo "== $step"
    if "${command[@]}" 2>&1 | tee "$out/$step.log"; then
        result=passed
    else
        result=FAILED
        failed=1
    fi
    printf '%-10s %s, %d s\n' "$step" "$result" $((SECONDS - start)) >>"$summary"
done

echo "== summary, logs in $out"
cat "$summary"
exit $failed
