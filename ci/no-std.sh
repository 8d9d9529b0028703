#!/usr/bin/env bash
# Builds every no_std crate, alone, for a Cortex-M4: a target that has no std, so that one use of it anywhere below the
# crate fails the build. A crate that does use std is built too, and has to fail, or the rest would prove nothing.
source "$(dirname "$0")/workspace.sh"
source ci/thumb.sh

say "no_std: building for $TARGET with $thumb_with"

# built CRATE [OPTION…]
built() {
    printf '   %s\n' "$* --no-default-features"
    "${thumb_cargo[@]}" "${thumb_build[@]}" --quiet --no-default-features -p "$@"
}
for crate in "${NO_STD_CRATES[@]}"; do
    built "$crate"
done
built trunnion-runtime-core --features serde
built trunnion-memory-pools --features serde

control=$CARGO_TARGET_DIR/control
mkdir -p "$control/src"
printf '[package]\nname = "uses-std"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >"$control/Cargo.toml"
printf 'pub fn threads() -> usize {\n    std::thread::available_parallelism().map_or(1, usize::from)\n}\n' \
    >"$control/src/lib.rs"
printf '   negative control: a crate that uses std\n'
if refusal=$("${thumb_cargo[@]}" "${thumb_build[@]}" --quiet --manifest-path "$control/Cargo.toml" 2>&1); then
    die "a crate that uses std was built for $TARGET: this target proves nothing"
fi
grep -q E0463 <<<"$refusal" || die "the crate that uses std failed for another reason than E0463:"$'\n'"$refusal"
printf '   refused with E0463, as it has to be\n'
printf 'no_std: %s crates built for %s\n' "${#NO_STD_CRATES[@]}" "$TARGET"
