#!/usr/bin/env bash
# Formatting, and clippy without a warning over every combination of features that is promised to build. A line below is
# a combination; whoever adds a crate or a feature adds the lines for it. The workspaces inside this one are looked at last.
#
# `ci/clippy.sh peers` looks at the code of the peers' workspace alone, for which a few hundred crates are built.
source "$(dirname "$0")/workspace.sh"

if [[ ${1:-} == peers ]]; then
    say 'cargo clippy: benches/peers'
    cargo clippy --quiet --manifest-path benches/peers/Cargo.toml --all-targets -- -D warnings
    exit
fi
[[ -z ${1:-} ]] || die "takes no argument but peers, and was given $1"

matrix=(
    '--workspace --all-targets --all-features'

    '-p trunnion-runtime-core --all-targets'
    '-p trunnion-runtime-core --no-default-features'
    '-p trunnion-runtime-core --no-default-features --features serde'
    '-p trunnion-runtime-core --features serde'

    '-p trunnion-memory-pools --all-targets'
    '-p trunnion-memory-pools --no-default-features'
    '-p trunnion-memory-pools --no-default-features --features serde'
    '-p trunnion-memory-pools --features serde'

    '-p trunnion-resource-tracker --all-targets'
    '-p trunnion-resource-tracker --no-default-features'

    '-p trunnion-kernel-wgsl --all-targets'
    '-p trunnion-kernel-wgsl --no-default-features'

    '-p trunnion-server-layers --all-targets'
    '-p trunnion-server-layers --no-default-features'

    '-p trunnion-backend-core --all-targets'
    '-p trunnion-backend-core --no-default-features'
    '-p trunnion-backend-core --no-default-features --features serde'
    '-p trunnion-backend-core --features serde'

    '-p trunnion-backend-host --all-targets'
    '-p trunnion-backend-host --no-default-features'

    '-p trunnion-backend-vulkan --all-targets'

    '-p trunnion-backend-cuda --all-targets'

    '-p trunnion-dlpack --all-targets'

    '-p trunnion-cli --all-targets'

    '-p trunnion --all-targets'
    '-p trunnion --no-default-features'
    '-p trunnion --no-default-features --features host'
    '-p trunnion --no-default-features --features vulkan'
    '-p trunnion --all-targets --features vulkan'
    '-p trunnion --features serde'
    '-p trunnion --no-default-features --features cuda'
    '-p trunnion --all-targets --features cuda'
    '-p trunnion --no-default-features --features dlpack'

    '-p trunnion-conformance --all-targets'
    '-p trunnion-conformance --no-default-features'
    '-p trunnion-conformance --no-default-features --features facade'
    '-p trunnion-conformance --no-default-features --features vulkan'
    '-p trunnion-conformance --all-targets --features vulkan'
    '-p trunnion-conformance --no-default-features --features cuda'
    '-p trunnion-conformance --all-targets --features cuda'

    '-p trunnion-mutants --all-targets'

    '-p trunnion-driver-rig --all-targets'

    '-p trunnion-vulkan-shim --all-targets'

    '-p trunnion-cuda-double --all-targets'

    '-p trunnion-cuda-raw --all-targets'

    '-p trunnion-gpu --all-targets'

    '-p benches --all-targets'
    '-p benches --all-targets --features vulkan'
    '-p benches --all-targets --features cuda'
)

say 'cargo fmt --all --check'
cargo fmt --all --check
for workspace in "${NESTED[@]}"; do
    cargo fmt --check --manifest-path "$workspace/Cargo.toml"
done

# A crate that nobody listed would go unchecked without anyone noticing.
members=$(cargo tree --workspace --depth 0 --prefix none --format '{p}' | awk 'NF { print $1 }' | sort -u)
for member in $members; do
    printf '%s\n' "${matrix[@]}" | grep -q -- "^-p $member " || die "no line of the matrix names the crate $member"
done

for combination in "${matrix[@]}"; do
    say "cargo clippy $combination"
    # shellcheck disable=SC2086 # a combination is several words
    cargo clippy --quiet $combination -- -D warnings
done

say 'cargo clippy: tests/fuzz'
need c++ g++
cargo clippy --quiet --manifest-path tests/fuzz/Cargo.toml --all-targets -- -D warnings

# Whoever builds for the board looks at its code too.
source ci/thumb.sh
say "cargo clippy: tests/firmware, with $thumb_with"
[[ ${thumb_cargo[*]} == cargo ]] || need /usr/bin/cargo-clippy rust-web-clippy
"${thumb_clippy[@]}" "${thumb_build[@]:1}" --quiet --manifest-path tests/firmware/Cargo.toml -- -D warnings

printf '\nclippy: %s combinations of features, and the workspaces inside, without a warning\n' "${#matrix[@]}"
