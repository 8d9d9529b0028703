#!/usr/bin/env bash
# Makes the package for a machine with an NVIDIA GPU, where no cargo is needed: `tests/gpu/pack.sh [FILE]` builds the programs, strips them
# and packs them with run.sh, into trunnion-gpu.tar.gz in the target directory unless a file is named. There: unpack it, and run
# trunnion-gpu/run.sh.
source "$(dirname "$0")/../../ci/workspace.sh"

# What the programs may weigh together, so that they travel easily.
MOST_BYTES=$((40 << 20))
package=${1:-$TARGET_DIR/trunnion-gpu.tar.gz}
place=$TARGET_DIR/gpu-package/trunnion-gpu

say "building the programs of $package"
cargo build --release -p trunnion-gpu
cargo build --release -p trunnion-conformance --features cuda
cargo build --release -p benches --features cuda
cargo build --release -p trunnion --features cuda --example digits

rm -rf "$place"
mkdir -p "$place"
for program in trunnion-assumptions trunnion-conformance benches examples/digits; do
    strip --strip-all -o "$place/$(basename "$program")" "$TARGET_DIR/release/$program"
done
cp tests/gpu/run.sh "$place/"
bytes=$(du --bytes --summarize "$place" | cut -f1)
((bytes < MOST_BYTES)) || die "the programs have $bytes bytes, and $MOST_BYTES are allowed"
tar -C "$(dirname "$place")" -czf "$package" trunnion-gpu
printf 'gpu: %d bytes of programs in %s\n' "$bytes" "$package"
