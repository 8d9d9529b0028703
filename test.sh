#!/usr/bin/env bash
# Runs every test there is: units, documentation, examples, the conformance suite on each backend built so far, the no_std
# crates on a target that has no std, and a firmware of them in an emulator. Installs what is missing. Takes no options.
source "$(dirname "$0")/ci/workspace.sh"
source ci/drivers.sh

export TRUNNION_REQUIRE=${TRUNNION_REQUIRE:-$BACKENDS}
log=$(mktemp) firmware_log=$(mktemp)
trap 'rm -f "$log" "$firmware_log"' EXIT

# For the tests that count instructions.
need valgrind valgrind libc6-dbg
# For those that look at what is written as SPIR-V.
need spirv-val spirv-tools
# For those on the double of the CUDA driver, which runs what the real compiler makes.
ci/cuda-compilers.sh

say "cargo test --workspace ${ALL_BACKENDS[*]} (TRUNNION_REQUIRE=$TRUNNION_REQUIRE)"
tests=ok
cargo test --workspace "${ALL_BACKENDS[@]}" --no-fail-fast 2>&1 | tee "$log" || tests=FAILED
count_tests "$log"
# A run that tested nothing has not passed.
((PASSED > 0)) || tests=FAILED

no_std=ok
ci/no-std.sh || no_std=FAILED

firmware=ok
tests/firmware/run.sh 2>&1 | tee "$firmware_log" || firmware=FAILED
checks=$(sed -nE 's/^firmware: ([0-9]+) passed.*/\1/p' "$firmware_log")

say summary
printf '%-28s %s\n' \
    'tests' "$tests: $PASSED passed, $FAILED failed, $IGNORED ignored" \
    'backends required' "$TRUNNION_REQUIRE" \
    'no_std on thumbv7em' "$no_std: ${#NO_STD_CRATES[@]} crates" \
    'firmware' "$firmware: ${checks:-none} passed"
if [[ $tests != ok ]]; then
    # The names again, so that nobody has to scroll for them.
    grep -E '^test .* FAILED$|^error' "$log" | sort -u | head -n 50 || true
fi
[[ $tests == ok && $no_std == ok && $firmware == ok ]] || exit 1
