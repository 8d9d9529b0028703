#!/usr/bin/env bash
# Builds every no_std crate, alone, for a Cortex-M4: a target that has no std, so that one use of it anywhere below the
# crate fails the build. A crate that does use std is built too, and has to fail, or the rest would prove nothing.
#
# Uses the toolchain at hand where it has the target (`rustup target add thumbv7em-none-eabi`), else Debian's, which
# brings core's and alloc's sources.
source "$(dirname "$0")/workspace.sh"

TARGET=thumbv7em-none-eabi
export CARGO_TARGET_DIR=$TARGET_DIR/no-std

if rustup target list --installed 2>/dev/null | grep -qx "$TARGET"; then
    cargo=(cargo)
    build=(build --target "$TARGET")
    with=$(rustc --version)
else
    need /usr/bin/rustc rustc-web
    need /usr/bin/cargo cargo-web
    need /usr/lib/rustlib/src/rust/library/core/Cargo.toml rust-web-src
    version=$(/usr/bin/rustc --version | cut -d' ' -f2)
    version_at_least "$version" "$MSRV" ||
        die "needs Rust $MSRV for $TARGET; /usr/bin/rustc is $version. Either rustup target add $TARGET, or upgrade" \
            "rustc-web, cargo-web and rust-web-src from bookworm-security"
    # By full path, so that rustup's proxies, which have no sources, are not taken. Building core needs what is unstable.
    cargo=(env RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc /usr/bin/cargo)
    build=(build '-Zbuild-std=core,alloc' --target "$TARGET")
    with="/usr/bin/rustc $version"
fi
say "no_std: building for $TARGET with $with"

# built CRATE [OPTION…]
built() {
    printf '   %s\n' "$* --no-default-features"
    "${cargo[@]}" "${build[@]}" --quiet --no-default-features -p "$@"
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
if refusal=$("${cargo[@]}" "${build[@]}" --quiet --manifest-path "$control/Cargo.toml" 2>&1); then
    die "a crate that uses std was built for $TARGET: this target proves nothing"
fi
grep -q E0463 <<<"$refusal" || die "the crate that uses std failed for another reason than E0463:"$'\n'"$refusal"
printf '   refused with E0463, as it has to be\n'
printf 'no_std: %s crates built for %s\n' "${#NO_STD_CRATES[@]}" "$TARGET"
