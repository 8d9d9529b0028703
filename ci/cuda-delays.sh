#!/usr/bin/env bash
# Runs the suite on the double of the CUDA driver once for each of 20 seeds, by which its streams pause before some of their work: whatever
# order that brings up, every test passes and the double reports nothing. `ci/cuda-delays.sh [SEEDS [ROWS]]` takes another number of seeds, or
# some of them as `14-20`, and an expression for rows instead of all of them.
source "$(dirname "$0")/workspace.sh"
ci/cuda-compilers.sh

seeds=${1:-20} rows=${2:-.*}
first=1 last=$seeds
[[ $seeds != *-* ]] || { first=${seeds%-*} last=${seeds#*-}; }
[[ $first =~ ^[1-9][0-9]*$ && $last =~ ^[1-9][0-9]*$ ]] || die "seeds are a number or two with a dash between, not $seeds"
((first <= last)) || die "seeds go from the lower to the higher, not from $first to $last"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export TRUNNION_REQUIRE=cuda:double

cargo build --quiet -p trunnion-conformance --features cuda
for ((seed = first; seed <= last; seed++)); do
    say "seed $seed of $last: trunnion-conformance --backend cuda:double --row '$rows'"
    CONFORMANCE_DELAYS=$seed "$TARGET_DIR/debug/trunnion-conformance" --backend cuda:double --row "$rows" >"$log" 2>&1 || {
        cat "$log"
        die "seed $seed: something failed; CONFORMANCE_DELAYS=$seed runs it again"
    }
    tail -n 1 "$log"
done
printf 'cuda-delays: seeds %s to %s\n' "$first" "$last"
