#!/usr/bin/env bash
# Builds the documentation of every crate with every feature; a broken link or an odd tag fails it.
source "$(dirname "$0")/workspace.sh"

say 'cargo doc --workspace --no-deps --all-features, warnings denied'
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --workspace --no-deps --all-features
