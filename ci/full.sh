#!/usr/bin/env bash
# The long forms of what .ci/run does in short: hours, for a quiet machine. `ci/full.sh [STEP…]` runs all steps, or those named.
# All of them run, and one that fails fails the whole.
source "$(dirname "$0")/workspace.sh"
source ci/drivers.sh
ci/cuda-compilers.sh

export CARGO_TERM_COLOR=never
steps=()
failed=0
wanted=("$@")

# step NAME COMMAND…
step() {
    local name=$1 started=$SECONDS outcome=ok
    shift
    ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $name "* ]] || return 0
    printf '\n######## %s: %s\n' "$name" "$*"
    "$@" || outcome="FAILED ($?)"
    [[ $outcome == ok ]] || failed=$((failed + 1))
    steps+=("$(printf '%-12s %-12s %6d s' "$name" "$outcome" "$((SECONDS - started))")")
    printf '######## %s\n' "${steps[-1]}"
}

# Ten minutes for each target.
step fuzz ci/fuzz.sh 600
# One more forced switch of thread in every model.
step loom ci/loom.sh --long
step sanitize ci/sanitize.sh --long
# A hundred times the cases, where a test does not say how many it needs.
step proptest env PROPTEST_CASES=25600 TRUNNION_REQUIRE="$BACKENDS" cargo test --workspace "${ALL_BACKENDS[@]}" --release --exclude trunnion-mutants
# Each broken device with the whole suite.
step mutants env TRUNNION_MUTANTS=full cargo test --release -p trunnion-mutants
# The suite on the CUDA double, in 20 orders of its streams; and the tests of somebody else's crate on it.
step cuda-delays ci/cuda-delays.sh
step cuda-corpus ci/cuda-corpus.sh
# The code of the peers' workspace, for which everything they need is built.
step clippy-peers ci/clippy.sh peers
# Figures that mean something, alone and beside the peers.
step benches cargo run --release -p benches --features vulkan,cuda -- --all
step peers benches/run-peers.sh --all

((${#steps[@]} > 0)) || die "there is no step of that name: ${wanted[*]}"
printf '\n######## all steps\n'
printf '%s\n' "${steps[@]}"
printf '%s steps, %s failed, %d s\n' "${#steps[@]}" "$failed" "$SECONDS"
((failed == 0))
