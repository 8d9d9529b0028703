# How a Cortex-M4 is built for: a target that has no standard library. Sourced after workspace.sh, not run.
#
# Uses the toolchain at hand where it has the target (`rustup target add thumbv7em-none-eabi`), else Debian's, which
# brings core's and alloc's sources.
# shellcheck shell=bash disable=SC2034

TARGET=thumbv7em-none-eabi
export CARGO_TARGET_DIR=$TARGET_DIR/no-std
# One profile for all that is built here, whichever workspace it is of, so that core and alloc are built once.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only

if rustup target list --installed 2>/dev/null | grep -qx "$TARGET"; then
    thumb_cargo=(cargo)
    thumb_clippy=(cargo clippy)
    thumb_build=(build --target "$TARGET")
    thumb_with=$(rustc --version)
else
    need /usr/bin/rustc rustc-web
    need /usr/bin/cargo cargo-web
    need /usr/lib/rustlib/src/rust/library/core/Cargo.toml rust-web-src
    version=$(/usr/bin/rustc --version | cut -d' ' -f2)
    version_at_least "$version" "$MSRV" ||
        die "needs Rust $MSRV for $TARGET; /usr/bin/rustc is $version. Either rustup target add $TARGET, or upgrade" \
            "rustc-web, cargo-web and rust-web-src from bookworm-security"
    # By full path, so that rustup's proxies, which have no sources, are not taken. Building core needs what is unstable.
    thumb_cargo=(env RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc /usr/bin/cargo)
    # Of the same package, `rust-web-clippy`, which only ci/clippy.sh needs.
    thumb_clippy=(env RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO=/usr/bin/cargo /usr/bin/cargo-clippy clippy)
    thumb_build=(build '-Zbuild-std=core,alloc' --target "$TARGET")
    thumb_with="/usr/bin/rustc $version"
    # It has no linker for this target. Named for every build, though only a firmware is linked: what is built with another
    # linker named is built again.
    export CARGO_TARGET_THUMBV7EM_NONE_EABI_LINKER=arm-none-eabi-ld
fi
