#!/usr/bin/env bash
# Checks that the workspace builds with the oldest Rust its Cargo.toml promises.
source "$(dirname "$0")/workspace.sh"

running=$(rustc --version | cut -d' ' -f2)
if [[ $running == "$MSRV" || $running == "$MSRV".* ]]; then
    cargo=(cargo)
else
    toolchain=$(rustup toolchain list 2>/dev/null | grep -oE "^${MSRV//./\\.}(\.[0-9]+)?" | sort -V | head -n 1) || true
    [[ -n $toolchain ]] ||
        die "rust-version is $MSRV, and neither the running rustc ($running) nor a toolchain of rustup's is:" \
            "rustup toolchain install $MSRV"
    cargo=(cargo "+$toolchain")
    # Another compiler's artefacts, beside the first one's.
    export CARGO_TARGET_DIR=$TARGET_DIR/msrv
fi

say "$("${cargo[@]}" --version): cargo check --workspace, with and without all features"
"${cargo[@]}" check --workspace --locked
"${cargo[@]}" check --workspace --locked --all-features
printf 'msrv: the workspace builds with Rust %s\n' "$MSRV"
