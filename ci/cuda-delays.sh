#!/usr/bin/env bash
# Runs the suite on the double of the CUDA driver once for each of 20 seeds, by which its streams pause before some of their work: whatever
# order that brings up, every test passes and the double reports nothing. `ci/cuda-delays.sh [SEEDS [ROWS]]` takes another number of seeds, and
# an expression for rows instead of all of them.
source "$(dirname "$0")/workspace.sh"
ci/cuda-compilers.sh

seeds=${1:-20} rows=${2:-.*}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export TRUNNION_REQUIRE=cuda:double

cargo build --quiet -p trunnion-conformance --features cuda
for ((seed = 1; seed <= seeds; seed++)); do
    say "seed $seed of $seeds: trunnion-conformance --backend cuda:double --row '$rows'"
    CONFORMANCE_DELAYS=$seed "$TARGET_DIR/debug/trunnion-conformance" --backend cuda:double --row "$rows" >"$log" 2>&1 || {
        cat "$log"
        die "seed $seed: something failed; CONFORMANCE_DELAYS=$seed runs it again"
    }
    tail -n 1 "$log"
done
printf 'cuda-delays: %s seeds\n' "$seeds"
