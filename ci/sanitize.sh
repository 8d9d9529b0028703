#!/usr/bin/env bash
# AddressSanitizer and ThreadSanitizer over the crates that hold unsafe code, AddressSanitizer over the conformance suite
# too; Miri where the toolchain has it. `NOT RUN` with the reason where a compiler has not what one of them needs.
#
# All of it runs on the host: a Vulkan driver is machine code that no sanitizer looks into, with threads and leaks of its own.
#
# `--long` runs ThreadSanitizer over the server and the conformance suite too.
source "$(dirname "$0")/workspace.sh"

case ${1:-} in
--long) long=1 ;;
'') long= ;;
*) die "takes no argument but --long, and was given $1" ;;
esac

# Sanitizers are unstable flags, and this is the switch that lets a stable compiler take them.
export RUSTC_BOOTSTRAP=1
export TRUNNION_REQUIRE=host
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
    not_run Miri "$(rustc --version) has no component miri, or not the rust-src it needs; Debian packages no other"
fi

say ThreadSanitizer
# The standard library is built with it too, or each Arc is a false alarm. Its sources come with Debian's compiler, as
# ci/no-std.sh uses it, and the runtime with the clang of the same LLVM.
need /usr/bin/rustc rustc-web
need /usr/bin/cargo cargo-web
need /usr/lib/rustlib/src/rust/library/std/Cargo.toml rust-web-src
version=$(/usr/bin/rustc --version | cut -d' ' -f2)
llvm=$(/usr/bin/rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
runtime=/usr/lib/llvm-$llvm/lib/clang/$llvm/lib/linux/libclang_rt.tsan-${HOST_TRIPLE%%-*}.a
if ! version_at_least "$version" "$MSRV"; then
    not_run ThreadSanitizer "needs Rust $MSRV; /usr/bin/rustc is $version"
elif ! [[ -e $runtime ]] && ! apt-cache show "libclang-rt-$llvm-dev" >/dev/null 2>&1; then
    not_run ThreadSanitizer "/usr/bin/rustc is of LLVM $llvm, and Debian has no libclang-rt-$llvm-dev to fit"
else
    need "clang-$llvm" "clang-$llvm"
    need "$runtime" "libclang-rt-$llvm-dev"
    # threads SUBCOMMAND OPTION…: cargo with everything built for ThreadSanitizer, at most eight minutes.
    threads() {
        local subcommand=$1
        shift
        RUSTC=/usr/bin/rustc CARGO_TARGET_DIR=$TARGET_DIR/tsan CARGO_PROFILE_DEV_DEBUG=line-tables-only \
            RUSTFLAGS="$flags -Zsanitizer=thread -Zexternal-clangrt -Clinker=clang-$llvm -Clink-arg=-fsanitize=thread" \
            TSAN_OPTIONS="allocator_may_return_null=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}" \
            timeout 480 /usr/bin/cargo "$subcommand" '-Zbuild-std' --target "$HOST_TRIPLE" "$@"
    }
    threads test --tests -p trunnion-runtime-core -p trunnion-backend-host 2>&1 | tee "$log"
    ran ThreadSanitizer
    if [[ $long ]]; then
        threads test --tests -p trunnion-backend-core 2>&1 | tee "$log"
        ran 'ThreadSanitizer, server'
        threads test -p trunnion-conformance --test conformance -- --skip leave_no_memory_behind 2>&1 | tee "$log"
        ran 'ThreadSanitizer, conformance'
    fi

    printf '   negative control: two threads that add to one number without a lock\n'
    control=$TARGET_DIR/tsan/control
    mkdir -p "$control/src"
    printf '[package]\nname = "races"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >"$control/Cargo.toml"
    cat >"$control/src/main.rs" <<'RUST'
struct Number(std::cell::UnsafeCell<u64>);
unsafe impl Sync for Number {}
static NUMBER: Number = Number(std::cell::UnsafeCell::new(0));
fn add() {
    (0..1_000).for_each(|_| unsafe { *NUMBER.0.get() += 1 });
}
fn main() {
    let other = std::thread::spawn(add);
    add();
    other.join().unwrap();
}
RUST
    if report=$(threads run --quiet --manifest-path "$control/Cargo.toml" 2>&1); then
        die 'ThreadSanitizer reported nothing of a data race: it proves nothing'
    fi
    grep -q 'WARNING: ThreadSanitizer: data race' <<<"$report" ||
        die "the data race ended for another reason than its report:"$'\n'"$report"
    printf '   reported, as it has to be\n'
fi

say 'sanitizers, in short'
printf '%s\n' "${summary[@]}"
