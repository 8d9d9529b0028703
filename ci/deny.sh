#!/usr/bin/env bash
# Licences, duplicate versions and sources of every dependency, also of the workspaces inside this one, each against the deny.toml beside
# it or the next above. Builds cargo-deny where it is missing.
source "$(dirname "$0")/workspace.sh"

VERSION=0.20.2
if [[ $(cargo deny --version 2>/dev/null) != "cargo-deny $VERSION" ]]; then
    say "installing cargo-deny $VERSION"
    # It runs for a second and is built for minutes: unoptimised is the quicker of the two.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 \
        cargo install --quiet --locked --version "$VERSION" cargo-deny
fi
for workspace in . "${NESTED[@]}"; do
    say "cargo deny check bans licenses sources: $workspace"
    cargo deny --manifest-path "$workspace/Cargo.toml" --all-features check --hide-inclusion-graph bans licenses sources
done
