#!/usr/bin/env bash
# Fuzzes what reads text or files: `ci/fuzz.sh [SECONDS [TARGET [FILE]]]`. Each target, or the one named, runs for ten seconds or
# as many as given, beginning with its seeds and always with the same random numbers. With FILE it runs that input alone, once.
#
# An input that fails, hangs or takes too much memory is kept, and fails the script. Before all others runs a target with a
# planted bug, which has to be found.
SECONDS_EACH=${1:-10}
ONLY=${2:-}
# Named from where the script is called.
INPUT=${3:+$(realpath "$3")}

source "$(dirname "$0")/workspace.sh"

SEED=20260
# Seconds and megabytes that one input may take.
INPUT_SECONDS=5
INPUT_MEMORY=2048
targets=(config names options opening cache program trace wgsl)
[[ -z $ONLY || " ${targets[*]} " == *" $ONLY "* ]] || die "there is no target $ONLY; there are: ${targets[*]}"
[[ -n $INPUT || $SECONDS_EACH =~ ^[1-9][0-9]*$ ]] || die "$SECONDS_EACH is no number of seconds from 1"

need c++ g++

# Counters at every edge and comparison, which libFuzzer reads to find inputs that go new ways. These flags are not for build
# scripts and macros, so the target is named, and the directory is their own.
export CARGO_TARGET_DIR=$TARGET_DIR/fuzz
export RUSTFLAGS="${RUSTFLAGS:-} --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
# What inputs say about the environment is in the inputs.
unset "${!TRUNNION_@}"

say "fuzz: building with $(rustc --version)"
cargo build --release --quiet --target "$HOST_TRIPLE" --manifest-path tests/fuzz/Cargo.toml
binaries=$CARGO_TARGET_DIR/$HOST_TRIPLE/release

# fuzz TARGET SECONDS: fails when an input did, and names that in `found`. What the fuzzer says goes to the log.
fuzz() {
    local target=$1 seconds=$2 words=() status=0
    local grown=$CARGO_TARGET_DIR/corpus/$target kept=$CARGO_TARGET_DIR/artifacts/$target
    # The seeds are what it begins with, not what it found the last time.
    rm -rf "$grown"
    mkdir -p "$grown" "$kept"
    [[ ! -e tests/fuzz/dictionaries/$target.dict ]] || words=("-dict=tests/fuzz/dictionaries/$target.dict")
    "$binaries/$target" "-seed=$SEED" "-max_total_time=$seconds" "-timeout=$INPUT_SECONDS" \
        "-rss_limit_mb=$INPUT_MEMORY" "-artifact_prefix=$kept/" "${words[@]}" "$grown" "tests/fuzz/seeds/$target" >"$log" 2>&1 || status=$?
    found=$(sed -n 's/.*Test unit written to //p' "$log")
    return "$status"
}

if [[ -n $INPUT ]]; then
    exec "$binaries/$ONLY" "-timeout=$INPUT_SECONDS" "-rss_limit_mb=$INPUT_MEMORY" "-artifact_prefix=$(mktemp -d)/" "$INPUT"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
say 'fuzz: a planted bug'
! fuzz control 60 || die 'the planted bug was not found: the fuzzer is not led by what the code compares'
[[ -s $found ]] || die "the planted bug was not kept: $(tail -n 5 "$log")"
printf '   found, as it has to be: %s\n' "$(head -c 64 "$found" | tr -c '[:print:]' '.')"

failed=0
for target in "${targets[@]}"; do
    [[ -z $ONLY || $ONLY == "$target" ]] || continue
    say "fuzz: $target, $SECONDS_EACH s"
    if fuzz "$target" "$SECONDS_EACH"; then
        runs=$(grep -oE '^Done [0-9]+ runs in [0-9]+' "$log") || die "$target ended early: $(tail -n 5 "$log")"
        coverage=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
        printf '   %s s, %s edges\n' "$runs" "${coverage#cov: }"
    else
        failed=$((failed + 1))
        tail -n 40 "$log"
        printf 'FAILED %s; again: ci/fuzz.sh 0 %s %s\n' "$target" "$target" "${found:-(no input was kept)}"
    fi
done
((failed == 0)) || die "$failed targets have inputs that fail"
printf 'fuzz: every target ran without a failing input\n'
