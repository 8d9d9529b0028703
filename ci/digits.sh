#!/usr/bin/env bash
# Trains the digits example as its page says to, then on a Vulkan device, and holds each run to what the page promises: 95 % of the
# test digits read right, and a picture. Takes the directory for the pictures, or uses one under the target directory.
source "$(dirname "$0")/workspace.sh"
source ci/drivers.sh

PROMISED=0.95
out=${1:-$TARGET_DIR/digits}

# train OUT OPTION…: with options of cargo, then `--` and those of the example.
train() {
    local out=$1 printed last share
    shift
    rm -f "$out/digits.png"
    say "cargo run --release -p trunnion --example digits $* --out $out"
    printed=$(cargo run --release -p trunnion --example digits "$@" --out "$out")
    printf '%s\n' "$printed"
    last=$(tail -n 1 <<<"$printed")
    share=$(grep -oE '[01]\.[0-9]+$' <<<"$last") || die "the last line holds no share of digits read right: $last"
    awk -v share="$share" -v promised="$PROMISED" 'BEGIN { exit !(share >= promised) }' ||
        die "$share of the test digits read right; $PROMISED is promised"
    [[ -s $out/digits.png ]] || die "no picture in $out/digits.png"
    summary+=("digits: $share read right, at least $PROMISED promised: $*")
}
summary=()
train "$out" --
train "$out/vulkan" --features vulkan -- --backend vulkan:llvmpipe
printf '%s\n' "${summary[@]}"
