#!/usr/bin/env bash
# Trains the digits example once, as its page says to, and holds it to what it promises: 95 % of the test digits read
# right, and a picture. Takes the directory for the picture, or uses one under the target directory.
source "$(dirname "$0")/workspace.sh"

PROMISED=0.95
out=${1:-$TARGET_DIR/digits}
rm -f "$out/digits.png"

say "cargo run --release -p trunnion --example digits -- --out $out"
printed=$(cargo run --release -p trunnion --example digits -- --out "$out")
printf '%s\n' "$printed"
last=$(tail -n 1 <<<"$printed")
share=$(grep -oE '[01]\.[0-9]+$' <<<"$last") || die "the last line holds no share of digits read right: $last"
awk -v share="$share" -v promised="$PROMISED" 'BEGIN { exit !(share >= promised) }' ||
    die "$share of the test digits read right; $PROMISED is promised"
[[ -s $out/digits.png ]] || die "no picture in $out/digits.png"
printf 'digits: %s read right, at least %s promised\n' "$share" "$PROMISED"
