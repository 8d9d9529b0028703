#!/usr/bin/env bash
# AddressSanitizer over the crates that hold unsafe code and over the conformance suite; Miri and ThreadSanitizer where
# the toolchain has what they need, and `NOT RUN` with the reason where it has not.
source "$(dirname "$0")/workspace.sh"

# Sanitizers are unstable flags, and this is the switch that lets a stable compiler take them.
export RUSTC_BOOTSTRAP=1
export TRUNNION_REQUIRE=${TRUNNION_REQUIRE:-$BACKENDS}
SYSROOT=$(rustc --print sysroot)
flags=${RUSTFLAGS:-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# ran NAME: adds up what the log says and refuses a run that tested nothing.
ran() {
    count_tests "$log"
    ((PASSED > 0)) || die "$1: no test was run"
    summary+=("$1: $PASSED passed, $FAILED failed, $IGNORED ignored")
}
not_run() {
    printf '%s: NOT RUN: %s\n' "$1" "$2"
    summary+=("$1: NOT RUN: $2")
}
summary=()

# Integration and unit tests only: rustdoc compiles its examples without these flags. With a target named, build scripts
# and macros stay plain.
say "AddressSanitizer, with leak detection, on $HOST_TRIPLE"
# A request for more memory than there is has to come back as null here too: what is done then is among what is tested.
export ASAN_OPTIONS="allocator_may_return_null=1:detect_leaks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
RUSTFLAGS="$flags -Zsanitizer=address" CARGO_TARGET_DIR=$TARGET_DIR/asan \
    cargo test --target "$HOST_TRIPLE" --tests \
    -p trunnion-runtime-core -p trunnion-backend-host 2>&1 | tee "$log"
ran AddressSanitizer

# These also end devices whose work never ends: what that still uses is left to the process, on purpose, so leaks say nothing
# here. Nor does resident memory, which the sanitizer holds on to: the tests that look at it are for ordinary builds.
say "AddressSanitizer, without leak detection, over the server and the conformance suite"
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"
RUSTFLAGS="$flags -Zsanitizer=address" CARGO_TARGET_DIR=$TARGET_DIR/asan \
    cargo test --target "$HOST_TRIPLE" --tests -p trunnion-backend-core 2>&1 | tee "$log"
ran 'AddressSanitizer, server'
RUSTFLAGS="$flags -Zsanitizer=address" CARGO_TARGET_DIR=$TARGET_DIR/asan \
    cargo test --target "$HOST_TRIPLE" -p trunnion-conformance --test conformance -- \
    --skip leave_no_memory_behind 2>&1 | tee "$log"
ran 'AddressSanitizer, conformance'

say Miri
if cargo miri --version >/dev/null 2>&1 && [[ -e $SYSROOT/lib/rustlib/src/rust/library/Cargo.lock ]]; then
    # The deadlines need a clock and the file bytes need files, which Miri gives only without isolation.
    MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation" CARGO_TARGET_DIR=$TARGET_DIR/miri \
        PROPTEST_CASES=4 cargo miri test --lib -p trunnion-runtime-core -p trunnion-backend-host 2>&1 | tee "$log"
    ran Miri
else
    not_run Miri "$(rustc --version) has no component miri, or not the rust-src it needs"
fi

say ThreadSanitizer
if [[ ! -e $SYSROOT/lib/rustlib/$HOST_TRIPLE/lib/librustc-stable_rt.tsan.a &&
    ! -e $SYSROOT/lib/rustlib/$HOST_TRIPLE/lib/librustc-nightly_rt.tsan.a ]]; then
    not_run ThreadSanitizer "$(rustc --version) comes without its runtime"
elif [[ ! -e $SYSROOT/lib/rustlib/src/rust/library/Cargo.lock ]]; then
    not_run ThreadSanitizer "std has to be built with it, or each Arc is a false alarm, and $(rustc --version) has no rust-src"
else
    RUSTFLAGS="$flags -Zsanitizer=thread" CARGO_TARGET_DIR=$TARGET_DIR/tsan \
        cargo test '-Zbuild-std' --target "$HOST_TRIPLE" --tests \
        -p trunnion-runtime-core -p trunnion-backend-host 2>&1 | tee "$log"
    ran ThreadSanitizer
fi

say 'sanitizers, in short'
printf '%s\n' "${summary[@]}"
