#!/usr/bin/env bash
# Builds the firmware for a Cortex-M4 and runs its checks in an emulator: without a clock, with one, and then made to fail
# in every way a run can, so that this script is seen to notice. Prints a line a check and `N passed, N failed`.
source "$(dirname "$0")/../../ci/workspace.sh"
source ci/thumb.sh

# Seconds for one run in the emulator, which needs a few.
LIMIT=60
# Seconds after which a run that hangs on purpose is stopped.
HANG_LIMIT=3

need qemu-system-arm qemu-system-arm
linker=${CARGO_TARGET_THUMBV7EM_NONE_EABI_LINKER:-}
[[ -z $linker ]] || need "$linker" binutils-arm-none-eabi

say "firmware: building for $TARGET with $thumb_with"
"${thumb_cargo[@]}" "${thumb_build[@]}" --quiet --manifest-path tests/firmware/Cargo.toml
firmware=$CARGO_TARGET_DIR/$TARGET/debug/trunnion-firmware
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# emulate SECONDS [ARGUMENT…]: runs the firmware; what it prints goes to the log. Succeeds when it ended by itself, within
# the time, said that everything passed, and has a line for each check that did.
emulate() {
    local seconds=$1 config=enable=on,target=native,arg=firmware argument status=0
    shift
    for argument in "$@"; do config+=,arg=$argument; done
    # In a shell of its own, which says nothing of an emulator that gives up.
    (timeout --kill-after=5 "$seconds" qemu-system-arm -M mps2-an386 -nographic -monitor none -serial none \
        -semihosting-config "$config" -kernel "$firmware" >"$log" 2>&1 </dev/null || exit) 2>/dev/null || status=$?
    read -r CHECKS_PASSED CHECKS_FAILED < <(
        sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$log" | tail -n 1 | grep . || echo '0 0'
    )
    ((status == 0 && CHECKS_PASSED > 0 && CHECKS_FAILED == 0)) && (($(grep -c '^ok ' "$log") == CHECKS_PASSED))
}

say 'firmware: without a clock'
emulate "$LIMIT" || { cat "$log"; die 'the firmware failed'; }
cat "$log"
say 'firmware: with a clock'
emulate "$LIMIT" clock || { cat "$log"; die 'the firmware failed with a clock'; }
tail -n 2 "$log"
passed=$CHECKS_PASSED

say 'firmware: negative controls'
for end in fail panic fault hang; do
    limit=$LIMIT
    [[ $end == hang ]] && limit=$HANG_LIMIT
    ! emulate "$limit" "$end" || die "a firmware that was to $end was taken for one that passed"
    printf '   made to %s: noticed: %s\n' "$end" "$(grep -v '^ok ' "$log" | head -n 1)"
done
printf 'firmware: %s passed, 0 failed\n' "$passed"
