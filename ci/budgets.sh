#!/usr/bin/env bash
# Holds what a warm launch on a CUDA device costs the host to its bounds: calls of the driver, allocations, and instructions beside the
# driver's own. The last are those of a release build, so the tests that a build for debugging leaves out are run here, and one that is left
# out fails.
source "$(dirname "$0")/workspace.sh"

need valgrind valgrind libc6-dbg
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say 'cargo test --release -p trunnion-backend-cuda --test budget'
cargo test --quiet --release -p trunnion-backend-cuda --test budget -- --nocapture 2>&1 | tee "$log"
! grep -q '^skipped: ' "$log" || die 'a test was left out'
grep 'instructions a launch' "$log" || die 'no instructions were counted'
