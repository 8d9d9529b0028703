#!/usr/bin/env bash
# Runs the driver's and the compiler's tests of the published crate cudarc on the CUDA double. Those that fail must be the
# ones listed here, each with the reason; one that passes although it is listed is an error too.
source "$(dirname "$0")/workspace.sh"
ci/cuda-compilers.sh

version=0.19.10
corpus=$TARGET_DIR/cudarc-corpus
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say "the double, and cudarc $version"
cargo build --quiet -p trunnion-cuda-double
cargo fetch --quiet
source=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 2 -type d -name "cudarc-$version" | head -1)
[[ -d $source ]] || die "cargo fetched no cudarc $version"
rm -rf "$corpus"
mkdir -p "$corpus/lib"
cp -r "$source" "$corpus/cudarc"
# A workspace of its own, or cargo takes it for a part of this one.
printf '\n[workspace]\n' >>"$corpus/cudarc/Cargo.toml"

# What the dynamic loader is to find under the names that programs ask for.
compilers=$(find "${TRUNNION_CUDA_COMPILERS:-$TARGET_DIR/cuda-compilers}" -name libnvrtc.so.13 -printf '%h\n' | head -1)
ln -sf "$(realpath "$TARGET_DIR/debug/libtrunnion_cuda_double.so")" "$corpus/lib/libcuda.so.1"
ln -sf "$compilers"/libnvrtc*.so* "$corpus/lib/"
export LD_LIBRARY_PATH=$corpus/lib

say "cargo test of cudarc $version, on the double"
CARGO_TARGET_DIR=$corpus/target cargo test --quiet --manifest-path "$corpus/cudarc/Cargo.toml" --lib --no-default-features \
    --features std,driver,nvrtc,dynamic-loading,cuda-13000 -- --test-threads=1 2>&1 | tee "$log" || true

mapfile -t failed < <(sed -n '/^failures:$/,$p' "$log" | sed -n 's/^    \([a-z_:0-9]*\)$/\1/p' | sort -u)
listed=$(sed 's/[[:space:]]*#.*//' ci/cuda-corpus.txt | grep . | sort -u)
strange=$(comm -3 <(printf '%s\n' "${failed[@]}" | grep . || true) <(printf '%s\n' "$listed" | grep . || true))
grep -q '^test result:' "$log" || die "the tests did not come to an end"
[[ -z $strange ]] || die "these fail and are not listed, or are listed and pass: $strange"
count_tests "$log"
printf '\ncudarc: %s tests pass on the double, %s fail as listed\n' "$PASSED" "${#failed[@]}"
