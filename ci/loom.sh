#!/usr/bin/env bash
# Lets loom's model checker run the executor's own files through every order of threads that matters.
source "$(dirname "$0")/workspace.sh"

# Flags of its own, so a target directory of its own: the two would evict each other.
export CARGO_TARGET_DIR=$TARGET_DIR/loom
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say 'cargo test -p trunnion-runtime-core --release --lib executor::loom, with --cfg loom'
cargo test -p trunnion-runtime-core --release --lib executor::loom 2>&1 | tee "$log"
count_tests "$log"
((PASSED > 0)) || die 'no model was run: has the module moved?'
printf 'loom: %s models explored\n' "$PASSED"
