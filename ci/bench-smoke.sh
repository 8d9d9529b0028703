#!/usr/bin/env bash
# Runs every benchmark once, small, so that none can rot. The times mean nothing here; that they come out does. A count of
# instructions above the bound its workload gives it fails the run.
source "$(dirname "$0")/workspace.sh"

need valgrind valgrind libc6-dbg
need "/usr/share/vulkan/icd.d/lvp_icd.$(uname -m).json" mesa-vulkan-drivers libvulkan1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say 'cargo run --release -p benches --features vulkan,cuda -- --all --quick'
cargo run --release -p benches --features vulkan,cuda -- --all --quick | tee "$log"
cases=$(grep -c '^{"workload":' "$log") || die 'not one line of figures came out'
printf 'bench-smoke: %s cases ran\n' "$cases"
