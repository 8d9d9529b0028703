#!/usr/bin/env bash
# Lets loom's model checker run the shipped files through every order of threads that matters: the executor, handles,
# promises and the waits for them, the registry, the thread that waits for a device. Then bugs are put into a copy of the
# sources, and each has to be found.
#
# `--long` explores one more forced switch of thread in every model, for at most five minutes each.
source "$(dirname "$0")/workspace.sh"
need perl perl-base

# Flags of its own, so a target directory of its own: the two would evict each other.
export CARGO_TARGET_DIR=$TARGET_DIR/loom
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# Nobody looks at a backtrace here, and every seeded bug is another build.
export RUST_BACKTRACE=0 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_INCREMENTAL=1
# What no model runs much of need not be fast, only built fast.
slow=()
for package in trunnion-backend-core trunnion-memory-pools trunnion-resource-tracker regex-automata regex-syntax tracing-subscriber; do
    slow+=(--config "profile.release.package.$package.opt-level=0")
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT

case ${1:-} in
--long) export TRUNNION_LOOM_MORE=1 LOOM_MAX_DURATION=300 ;;
'') ;;
*) die "takes no argument but --long, and was given $1" ;;
esac

explored=0

# explore ROOM MODULE…: lets loom run the models of a room, of which each of these modules has some.
explore() {
    local room=$1 module
    shift
    say "cargo test -p trunnion-$room --release --lib loom::, with --cfg loom"
    cargo test "${slow[@]}" -p "trunnion-$room" --release --lib loom:: 2>&1 | tee "$log"
    count_tests "$log"
    for module in "$@"; do
        grep -q "^test $module::loom::.* ok$" "$log" || die "no model of $module was run: has the module moved?"
    done
    explored=$((explored + PASSED))
}
explore runtime-core executor handle promise service::registry
explore backend-core waiter

# The bugs go into a copy, which is a workspace of these rooms and what they stand on, of a version of its own, lest cargo
# take one for the other. What stands above them is only there for tests.
copy=$CARGO_TARGET_DIR/seeded
rm -rf "$copy"
mkdir -p "$copy"
cp -r Cargo.toml Cargo.lock runtime-core memory-pools resource-tracker backend-core "$copy"
perl -0777 -pi -e 's/^members = \[.*?\]/members = ["runtime-core", "memory-pools", "resource-tracker", "backend-core"]/ms;
    s/^version = "\K[^"]*/$&+seeded/m' "$copy/Cargo.toml"
sed -i '/^trunnion-backend-host = /d' "$copy/memory-pools/Cargo.toml"

# seed MODEL FILE WHAT INSTEAD: puts a bug into the copy of the room, wherever the file has WHAT, which this model has to find.
seed() {
    local file=$room/src/$2
    WHAT=$3 INSTEAD=$4 perl -0777 -pi -e '
        BEGIN { $found = 0 }
        $found = s/\Q$ENV{WHAT}\E/$ENV{INSTEAD}/g;
        END { exit($found ? 0 : 1) }' "$copy/$file" || die "a seed is stale: $2 does not have this: $3"
    seeds+=("$1")
    seeded+=("$file")
}
seeds=() seeded=() found=0

# hunt: has each bug that was seeded found, and takes them out again. Those of one hunt do not meet.
hunt() {
    local build test model models=(test "${slow[@]}" -p "trunnion-$room" --release --lib)
    build=$(cd "$copy" && cargo "${models[@]}" --no-run --quiet 2>&1) || die "the seeded copy does not build:"$'\n'"$build"
    for model in "${seeds[@]}"; do
        if test=$(cd "$copy" && timeout 60 cargo "${models[@]}" --quiet -- --exact "$model" 2>&1); then
            die "a seeded bug was not found by $model:"$'\n'"$test"
        elif (($? == 124)); then
            die "a seeded bug was not found by $model within a minute"
        fi
        grep -Eq 'panicked at|^entry [0-9]+: ' <<<"$test" || die "$model ended for a reason of its own:"$'\n'"$test"
        printf '   found by %s\n' "$model"
        found=$((found + 1))
    done
    for file in "${seeded[@]}"; do cp "$file" "$copy/$file"; done
    seeds=() seeded=()
}

say 'seeded bugs'
room=runtime-core
# An order weakened.
seed executor::loom::a_call_is_answered_whether_its_caller_or_the_runner_runs_it executor/ring.rs \
    '<< KIND_BITS | ENTRY, Ordering::Release' '<< KIND_BITS | ENTRY, Ordering::Relaxed'
seed handle::loom::what_each_holder_did_before_its_drop_has_happened_when_the_memory_is_freed handle/mod.rs \
    'fence(Ordering::Acquire);' ''
seed promise::loom::who_sleeps_sees_what_each_of_two_wakers_wrote platform.rs \
    'if !self.woken.swap(true, Ordering::AcqRel) {' 'if !self.woken.swap(true, Ordering::Relaxed) {'
seed service::registry::loom::a_service_that_is_ended_while_its_start_returns_leaves_the_next_ones_place_alone \
    service/registry.rs 'core::mem::forget(self);' ''
hunt

# A second look left out.
seed executor::loom::an_entry_submitted_while_the_runner_falls_asleep_is_run executor/ring.rs \
    'if tail & !FLAGS != self.head.0.position.load(Ordering::Acquire) {' 'if false {'
seed executor::loom::what_was_claimed_before_a_shutdown_and_comes_after_it_is_dropped executor/runner.rs \
    'if ring.is_empty() {' 'if true {'
seed handle::loom::no_slot_has_two_tenants_while_threads_take_and_give handle/slab.rs \
    '(head >> 32).wrapping_add(1)' '(head >> 32)'
seed promise::loom::who_waits_while_a_promise_is_fulfilled_is_woken promise.rs \
    'match &mut *self.0.lock() {
            State::Given(result) => Poll::Ready(result.clone()),' \
    'if let Some(result) = self.get() {
            return Poll::Ready(result);
        }
        match &mut *self.0.lock() {
            State::Given(_) => Poll::Pending,'
seed service::registry::loom::two_that_ask_for_a_device_at_once_share_one_service service/registry.rs \
    'entries.push((device, Entry::Starting));' ''
hunt

# Somebody overlooked.
seed executor::loom::a_runner_that_left_its_note_at_a_turn_is_woken_by_the_next_entry executor/shared.rs \
    'self.ring.try_sleep() == super::ring::Sleep::Asleep && self.bell.is_quiet()' 'self.ring.is_empty()'
seed handle::loom::a_handle_dropped_while_its_server_ends_frees_nothing_of_the_next handle/mod.rs \
    'if block.service.load(Ordering::Relaxed) == self.service.get() {' '{'
seed handle::loom::an_account_is_given_out_again_when_nothing_is_counted_in_it_any_more handle/account.rs \
    'self.tally.holders.fetch_add(1, Ordering::Relaxed);
        Ok' 'Ok'
seed promise::loom::all_who_wait_are_woken_and_the_first_result_counts promise.rs \
    'wakers.extend(waiting.drain(..));' 'wakers.extend(waiting.pop());'
seed service::registry::loom::a_service_that_ends_forgets_none_that_was_started_after_it service/registry.rs \
    'if *running == id))' 'if *running != id || *running == id))'
hunt

# Somebody not told.
seed executor::loom::a_shutdown_during_a_turn_waits_for_it_and_ends_the_runner executor/shared.rs \
    'if self.has_runner && !self.lull_runner() {' 'if self.has_runner && !self.has_ended() && !self.lull_runner() {'
seed executor::loom::a_runner_that_left_its_note_at_a_drain_is_woken_by_the_next_entry executor/shared.rs \
    ' || self.leave_to_runner() {' ' {'
seed handle::loom::drops_at_once_are_each_freed_once_while_the_server_looks handle/slab.rs \
    'match list.compare_exchange_weak(head, slot.index() + 1, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,' \
    'match Ok::<u32, u32>(list.swap(slot.index() + 1, Ordering::Release)) {
            Ok(_) => return,'
seed promise::loom::a_wait_inside_a_wait_gives_back_the_wake_up_it_took platform.rs \
    'sleeper.rouse();
                return Some' 'return Some'
seed service::registry::loom::a_start_that_fails_leaves_the_place_to_who_waits_for_it service/registry.rs \
    'entries.retain(|(d, entry)| *d != self.device || !matches!(entry, Entry::Starting));' ''
hunt

room=backend-core
# The second look left out.
seed waiter::loom::what_is_given_while_the_thread_falls_asleep_is_waited_for waiter.rs \
    'if self.is_asleep.swap(true, Ordering::AcqRel) {' 'self.is_asleep.store(true, Ordering::Release); {'
hunt

# What was given before the announcement overlooked.
seed waiter::loom::what_two_give_at_once_is_waited_for waiter.rs \
    'if self.is_asleep.swap(true, Ordering::AcqRel) {' 'if self.is_asleep.swap(true, Ordering::Relaxed) {'
hunt

# The end not told to who falls asleep.
seed waiter::loom::a_thread_that_is_told_to_end_while_it_falls_asleep_ends waiter.rs \
    'self.is_over.store(true, Ordering::Release);
        self.rouse();' \
    'self.rouse();
        self.is_over.store(true, Ordering::Release);'
hunt

printf 'loom: %s models explored, %s seeded bugs found\n' "$explored" "$found"
