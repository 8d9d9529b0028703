//! What is promised, row by row.

use trunnion_resource_tracker::{Resolved, Streams, Tracker, Use, Verdict};
use trunnion_runtime_core::access::Access::{self, Overwrite, Read, ReadWrite, Write};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::failure::{Failure, Failures};
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::timeline::Moment;

const SIZE: u64 = 100;

struct Device {
    tracker: Tracker,
    streams: Streams,
    seq: u64,
}

fn memory(index: u32) -> MemoryId {
    MemoryId { index, generation: 0 }
}

fn on(index: u32, range: core::ops::Range<u64>, access: Access) -> Use {
    Use { memory: memory(index), range, access }
}

fn all(index: u32, access: Access) -> Use {
    on(index, 0..SIZE, access)
}

fn lost(at: Moment) -> Failure {
    Failure::new(at, Error::DeviceLost { cause: "a test".into() })
}

impl Device {
    /// A device with eight buffers nobody has used.
    fn new() -> Self {
        let mut tracker = Tracker::new();
        (0..8).for_each(|i| tracker.open(memory(i), SIZE, Moment { stream: StreamId::from_raw(1), seq: 0 }));
        Self { tracker, streams: Streams::new(), seq: 0 }
    }

    fn begin(&mut self, stream: u64, name: &str, uses: &[Use]) -> (Moment, Resolved) {
        self.seq += 1;
        let at = Moment { stream: StreamId::from_raw(stream), seq: self.seq };
        self.streams.issue(at);
        let name = self.tracker.name(name);
        let resolved = self.tracker.resolve(at, name, uses, &self.streams);
        self.streams.waited_for(at, &resolved.waits);
        (at, resolved)
    }

    fn land(&mut self, stream: u64, name: &str, uses: &[Use]) -> (Moment, Resolved) {
        let (at, resolved) = self.begin(stream, name, uses);
        assert!(matches!(resolved.verdict, Verdict::Run), "{name}: {:?}", resolved.verdict);
        self.tracker.landed(at);
        (at, resolved)
    }

    fn fail(&mut self, stream: u64, name: &str, uses: &[Use]) -> Moment {
        let (at, resolved) = self.begin(stream, name, uses);
        assert!(matches!(resolved.verdict, Verdict::Run), "{name}: {:?}", resolved.verdict);
        self.tracker.failed(at, uses, &lost(at));
        at
    }

    fn complete(&mut self, at: Moment) {
        self.streams.complete(at.stream, at.seq);
    }

    fn check(&self, u: Use) -> Result<(), Error> {
        let mut failures = Failures::new();
        self.tracker.check(u.memory, u.range, &mut failures);
        failures.into_result()
    }
}

fn skipped(resolved: &Resolved) -> &Failure {
    match &resolved.verdict {
        Verdict::Skip(failure) => failure,
        Verdict::Run => panic!("it ran"),
    }
}

// ---- order

#[test]
fn a_read_waits_for_the_last_write_and_a_write_for_the_reads_since_on_any_stream() {
    let mut d = Device::new();
    let (write, _) = d.land(1, "write", &[all(0, Overwrite)]);
    let (read2, r2) = d.land(2, "read", &[all(0, Read)]);
    let (read3, r3) = d.land(3, "read", &[all(0, Read)]);
    assert_eq!((r2.waits.moments(), r3.waits.moments()), (&[write][..], &[write][..]), "reads do not wait for reads");
    let (_, again) = d.land(4, "update", &[all(0, ReadWrite)]);
    assert_eq!(again.waits.moments(), [write, read2, read3]);
    assert!(!again.barrier);
}

#[test]
fn ranges_that_do_not_overlap_do_not_wait_for_each_other() {
    let mut d = Device::new();
    d.land(1, "left", &[on(0, 0..50, Overwrite)]);
    let (right, r) = d.land(2, "right", &[on(0, 50..100, Overwrite)]);
    assert!(r.waits.is_empty());
    let (_, r) = d.land(3, "read", &[on(0, 50..60, Read)]);
    assert_eq!(r.waits.moments(), [right]);
}

#[test]
fn what_is_done_or_was_waited_for_is_not_waited_for_again() {
    let mut d = Device::new();
    let (write, _) = d.land(1, "write", &[all(0, Overwrite), all(1, Overwrite)]);
    assert_eq!(d.land(2, "read", &[all(0, Read)]).1.waits.moments(), [write]);
    assert!(d.land(2, "read", &[all(1, Read)]).1.waits.is_empty(), "the stream is ordered after it by now");
    d.complete(write);
    assert!(d.land(3, "read", &[all(1, Read)]).1.waits.is_empty(), "it is done");
}

#[test]
fn a_conflict_within_a_stream_needs_a_barrier_until_it_is_done() {
    let mut d = Device::new();
    let (write, r) = d.land(1, "write", &[all(0, Overwrite)]);
    assert!(!r.barrier);
    let (_, r) = d.land(1, "read", &[all(0, Read)]);
    assert_eq!((r.barrier, r.hazard, r.waits.is_empty()), (true, write.seq, true));
    assert!(!d.land(1, "elsewhere", &[all(1, Overwrite)]).1.barrier);
    d.complete(write);
    assert!(!d.land(1, "read", &[all(0, Read)]).1.barrier);
}

#[test]
fn overlapping_bindings_of_one_operation_do_not_wait_for_itself_but_for_all_before() {
    let mut d = Device::new();
    let (read, _) = d.land(1, "read", &[all(0, Read)]);
    for stream in 2..=6 {
        d.land(stream, "read", &[all(0, Read)]);
    }
    let (at, r) = d.land(1, "shift", &[on(0, 0..60, Read), on(0, 40..100, Write)]);
    assert!(r.barrier && r.hazard >= read.seq && r.hazard < at.seq);
    let (epoch, rest) = (r.waits.epoch(), r.waits.moments());
    assert!(
        epoch == 5 && rest.len() == 1 && rest[0].seq == at.seq - 1,
        "the fifth reader rounds up, the sixth is kept apart"
    );
}

#[test]
fn a_reservation_is_waited_for_and_a_drop_answers_the_last_uses() {
    let mut d = Device::new();
    let (reserve, _) = d.land(1, "reserve", &[]);
    d.tracker.open(memory(9), 16, reserve);
    let (read, r) = d.land(2, "read", &[on(9, 0..16, Read)]);
    assert_eq!(r.waits.moments(), [reserve]);
    assert_eq!(d.tracker.memory_size(memory(9)), Some(16));
    let last = d.tracker.close(memory(9));
    assert_eq!(last.moments(), [reserve, read]);
    assert_eq!((d.tracker.memory_size(memory(9)), d.tracker.close(memory(9)).is_empty()), (None, true));
}

#[test]
fn a_write_stands_for_everything_before_it() {
    let mut d = Device::new();
    d.land(1, "write", &[all(0, Overwrite)]);
    d.land(2, "read", &[all(0, Read)]);
    let (update, _) = d.land(3, "update", &[all(0, ReadWrite)]);
    assert_eq!(d.land(4, "write", &[all(0, Overwrite)]).1.waits.moments(), [update]);
}

#[test]
fn readers_that_are_done_make_room_before_a_set_is_rounded_up() {
    let mut d = Device::new();
    for stream in 1..=20 {
        let (read, _) = d.land(stream, "read", &[all(0, Read)]);
        if stream < 20 {
            d.complete(read);
        }
    }
    let (_, r) = d.land(99, "write", &[all(0, Overwrite)]);
    assert_eq!((r.waits.epoch(), r.waits.moments().len()), (0, 1));
}

#[test]
fn a_drop_answers_what_an_interrupted_operation_should_have_waited_for() {
    let mut d = Device::new();
    let (read, _) = d.land(1, "read", &[all(0, Read)]);
    let (broken, _) = d.begin(2, "broken", &[all(0, Overwrite)]);
    assert_eq!(d.tracker.close(memory(0)).moments(), [broken, read]);
}

// ---- failure

#[test]
fn f2_one_failure_on_several_buffers_is_named_once() {
    let mut d = Device::new();
    let at = d.fail(1, "a", &[all(0, Write), all(1, Write)]);
    let mut failures = Failures::new();
    d.tracker.check(memory(0), 0..SIZE, &mut failures);
    d.tracker.check(memory(1), 0..SIZE, &mut failures);
    assert_eq!(failures.into_result(), Err(lost(at).to_error()));
}

#[test]
fn f3_a_launch_over_a_marked_readable_input_is_skipped_and_its_outputs_inherit_the_chain() {
    for access in [Read, Write, ReadWrite] {
        let mut d = Device::new();
        let cause = d.fail(1, "first", &[all(0, Overwrite)]);
        let (at, r) = d.begin(1, "second", &[all(1, Overwrite), all(0, access), all(2, Read)]);
        assert_eq!(skipped(&r).origin(), cause);
        assert!(r.waits.is_empty() && !r.barrier);
        let Err(Error::Inherited { chain, .. }) = d.check(all(1, Read)) else { panic!("{access:?} hands nothing on") };
        assert_eq!((chain[0].operation.as_str(), chain[0].at), ("second", at));
        assert_eq!(d.check(all(2, Read)), Ok(()), "what is only read stays as it was");
        let (_, r) = d.land(2, "other", &[all(2, Overwrite)]);
        assert!(r.waits.is_empty(), "what was skipped has used nothing");
    }
}

#[test]
fn f3_of_several_marked_inputs_the_first_by_binding_then_by_address_is_inherited() {
    let mut d = Device::new();
    d.fail(1, "a", &[on(0, 50..60, Overwrite)]);
    let low = d.fail(1, "b", &[on(0, 10..20, Overwrite)]);
    let other = d.fail(1, "c", &[all(1, Overwrite)]);
    assert_eq!(skipped(&d.begin(1, "sum", &[all(2, Overwrite), all(0, Read), all(1, Read)]).1).origin(), low);
    assert_eq!(skipped(&d.begin(1, "sum", &[all(2, Overwrite), all(1, Read), all(0, Read)]).1).origin(), other);
}

#[test]
fn f3_a_chain_says_how_many_links_were_dropped() {
    let mut d = Device::new();
    d.fail(1, "first", &[all(0, Overwrite)]);
    for _ in 0..10 {
        skipped(&d.begin(1, "step", &[all(0, ReadWrite)]).1);
    }
    let Err(Error::Inherited { chain, dropped, .. }) = d.check(all(0, Read)) else { panic!("inherited") };
    assert_eq!((chain.len(), dropped), (8, 2));
}

#[test]
fn f3_neighbours_that_inherit_by_different_ways_keep_their_own() {
    let mut d = Device::new();
    d.fail(1, "first", &[all(0, Overwrite)]);
    for (name, range) in [("left", 0..50), ("right", 50..100)] {
        skipped(&d.begin(1, name, &[all(0, Read), on(1, range, Overwrite)]).1);
    }
    for (name, range) in [("left", 0..50), ("right", 50..100)] {
        let way = d.check(on(1, range, Read));
        assert!(matches!(&way, Err(Error::Inherited { chain, .. }) if chain[0].operation == name), "{way:?}");
    }
}

#[test]
fn f4_an_overwrite_clears_exactly_its_bytes_and_a_write_none() {
    let mut d = Device::new();
    d.fail(1, "first", &[all(0, Overwrite)]);
    d.land(1, "fill", &[on(0, 20..30, Overwrite)]);
    assert!(d.check(on(0, 0..20, Read)).is_err());
    assert_eq!(d.check(on(0, 20..30, Read)), Ok(()));
    assert!(d.check(on(0, 30..31, Read)).is_err());
    skipped(&d.begin(1, "store", &[on(0, 0..20, Write)]).1);
    assert!(d.check(on(0, 0..20, Read)).is_err(), "a kernel that merely stores clears nothing");
}

#[test]
fn f4_an_overwrite_that_fails_leaves_its_own_failure() {
    let mut d = Device::new();
    d.fail(1, "first", &[all(0, Overwrite)]);
    let second = d.fail(1, "second", &[on(0, 0..10, Overwrite)]);
    assert_eq!(d.check(on(0, 0..10, Read)), Err(lost(second).to_error()));
}

#[test]
fn f5_a_reservation_that_failed_for_one_buffer_leaves_the_others_readable() {
    let mut d = Device::new();
    let at = Moment { stream: StreamId::from_raw(1), seq: 1 };
    d.tracker.mark(memory(1), 0..u64::MAX, &lost(at));
    assert_eq!((d.check(all(0, Read)), d.check(all(2, Read))), (Ok(()), Ok(())));
    assert!(d.check(on(1, 99..100, Read)).is_err());
}

#[test]
fn f6_an_operation_that_was_interrupted_leaves_its_outputs_marked_at_once_and_for_good() {
    let mut d = Device::new();
    let uses = [all(0, Read), on(1, 10..20, Write), all(2, Overwrite)];
    let (before, _) = d.land(1, "before", &[all(2, Read)]);
    let (at, r) = d.begin(2, "broken", &uses);
    assert_eq!(r.waits.moments(), [before]);
    let provisional = d.check(on(1, 0..11, Read));
    assert!(matches!(&provisional, Err(Error::Panicked { what, .. }) if what == "`broken`"), "{provisional:?}");
    assert_eq!((d.check(all(0, Read)), d.check(on(1, 20..30, Read))), (Ok(()), Ok(())));
    let (_, next) = d.land(3, "next", &[all(2, Overwrite)]);
    assert_eq!(next.waits.moments(), [at, before], "nobody knows whether stream 2 came to wait for it");
    assert_eq!(d.check(on(1, 10..20, Read)), provisional);
    assert_eq!(d.check(all(2, Read)), Ok(()));
}

#[test]
fn f9_a_late_failure_reaches_what_consumed_the_bytes_and_spares_what_was_overwritten() {
    let mut d = Device::new();
    let (a, _) = d.land(1, "a", &[all(0, Overwrite)]);
    d.land(1, "copy", &[all(0, Read), all(1, Overwrite)]);
    d.land(2, "again", &[on(1, 0..10, Read), on(2, 0..10, Overwrite)]);
    d.land(2, "unrelated", &[all(3, ReadWrite)]);
    d.land(2, "fill", &[on(0, 0..40, Overwrite)]);
    d.land(2, "after", &[on(0, 0..40, Read), all(4, Overwrite)]);
    d.tracker.failed(a, &[all(0, Overwrite)], &lost(a));
    assert_eq!(d.check(on(0, 0..40, Read)), Ok(()), "replaced since");
    assert_eq!(d.check(on(0, 40..100, Read)), Err(lost(a).to_error()));
    assert!(matches!(d.check(all(1, Read)), Err(Error::Inherited { chain, .. }) if chain.len() == 1));
    let Err(Error::Inherited { chain, .. }) = d.check(all(2, Read)) else { panic!("inherited") };
    assert_eq!(chain.iter().map(|l| l.operation.as_str()).collect::<Vec<_>>(), ["copy", "again"]);
    assert_eq!((d.check(on(2, 10..100, Read)), d.check(all(3, Read)), d.check(all(4, Read))), (Ok(()), Ok(()), Ok(())));
}

#[test]
fn f9_a_late_failure_is_told_to_every_later_operation_that_used_the_bytes_reads_too() {
    let mut d = Device::new();
    let (a, _) = d.land(1, "a", &[all(0, Overwrite)]);
    let (copy, _) = d.land(1, "copy", &[all(0, Read), all(1, Overwrite)]);
    d.land(2, "unrelated", &[all(3, ReadWrite)]);
    let (read, _) = d.land(2, "read", &[all(1, Read)]);
    d.land(2, "fill", &[all(0, Overwrite)]);
    d.land(2, "read", &[all(0, Read)]);
    let mut told = Vec::new();
    d.tracker.failed_telling(a, &[all(0, Overwrite)], &lost(a), |at, failure| told.push((at, failure.origin())));
    assert_eq!(told, [(copy, a), (read, a)]);
}

#[test]
fn f9_a_late_failure_reaches_an_operation_that_is_just_being_encoded() {
    let mut d = Device::new();
    let (a, _) = d.land(1, "a", &[all(0, Overwrite)]);
    d.tracker.mark(memory(1), 0..SIZE, &lost(Moment { stream: a.stream, seq: 1 }));
    let (b, r) = d.begin(1, "b", &[all(0, Read), all(1, Overwrite)]);
    assert!(matches!(r.verdict, Verdict::Run));
    d.tracker.failed(a, &[all(0, Overwrite)], &lost(a));
    d.tracker.landed(b);
    assert!(d.check(all(1, Read)).is_err());
    d.land(1, "fill", &[all(1, Overwrite)]);
    assert_eq!(d.check(all(1, Read)), Ok(()));
}

#[test]
fn f9_a_late_failure_reaches_through_memory_that_was_dropped_and_not_into_its_next_tenant() {
    let mut d = Device::new();
    let (a, _) = d.land(1, "a", &[all(0, Overwrite)]);
    d.land(1, "b", &[all(0, Read), all(1, Overwrite)]);
    let (c, _) = d.land(1, "c", &[all(1, Read), all(2, Overwrite)]);
    d.tracker.close(memory(1));
    let next = MemoryId { index: 1, generation: 1 };
    d.tracker.open(next, SIZE, c);
    d.tracker.failed(a, &[all(0, Overwrite)], &lost(a));
    assert!(d.check(all(2, Read)).is_err());
    assert_eq!(d.check(Use { memory: next, range: 0..SIZE, access: Read }), Ok(()));
}

#[test]
fn f9_a_failure_of_an_operation_that_was_called_done_marks_what_it_still_is_the_last_writer_of() {
    let mut d = Device::new();
    let (a, _) = d.land(1, "a", &[all(0, Overwrite)]);
    let (b, _) = d.land(1, "b", &[on(0, 0..10, Overwrite)]);
    d.complete(b);
    d.tracker.retire(&d.streams);
    assert_eq!(d.tracker.remembered(), 0);
    d.tracker.failed(a, &[all(0, Overwrite)], &lost(a));
    assert_eq!(d.check(on(0, 0..10, Read)), Ok(()));
    assert!(d.check(on(0, 10..11, Read)).is_err());
}

#[test]
fn l4_a_grid_in_a_buffer_is_one_more_input() {
    let mut d = Device::new();
    let (grid, _) = d.land(1, "count", &[on(0, 0..12, Overwrite)]);
    assert_eq!(d.land(2, "dynamic", &[all(1, Overwrite), on(0, 0..12, Read)]).1.waits.moments(), [grid]);
    d.fail(1, "count", &[on(0, 0..12, Overwrite)]);
    skipped(&d.begin(2, "dynamic", &[all(1, Overwrite), on(0, 0..12, Read)]).1);
    assert!(d.check(all(1, Read)).is_err());
}

#[test]
fn m6_a_write_clears_marks_on_exactly_the_bytes_written() {
    let mut d = Device::new();
    d.fail(1, "kernel", &[all(0, Write)]);
    d.land(2, "write", &[on(0, 8..16, Overwrite)]);
    assert_eq!(d.check(on(0, 8..16, Read)), Ok(()));
    assert!(d.check(on(0, 7..8, Read)).is_err() && d.check(on(0, 16..17, Read)).is_err());
}

// ---- misuse and bounds

#[test]
fn a_wrong_binding_is_a_typed_refusal_that_marks_the_outputs() {
    let mut d = Device::new();
    let stale = MemoryId { index: 0, generation: 7 };
    let (_, r) = d.begin(1, "k", &[all(1, Overwrite), Use { memory: stale, range: 0..4, access: Read }]);
    assert_eq!(skipped(&r).to_error(), Error::StaleHandle { memory: stale });
    assert!(d.check(all(1, Read)).is_err());
    let (_, r) = d.begin(1, "k", &[on(2, 90..101, Overwrite)]);
    assert_eq!(skipped(&r).to_error(), Error::OutOfRange { what: "k".into(), range: 90..101, size: SIZE });
    assert_eq!(d.check(on(2, 0..90, Read)), Ok(()));
    assert!(d.check(on(2, 90..100, Read)).is_err());
    #[allow(clippy::reversed_empty_ranges, reason = "that is the misuse")]
    let (_, r) = d.begin(1, "k", &[on(3, 9..8, Read)]);
    assert!(matches!(skipped(&r).to_error(), Error::OutOfRange { .. }));
    let beyond = MemoryId { index: u32::MAX, generation: 0 };
    assert!(d.tracker.close(beyond).is_empty());
    d.tracker.mark(beyond, 0..1, skipped(&r));
    assert_eq!(d.check(Use { memory: beyond, range: 0..1, access: Read }), Ok(()));
}

#[test]
fn empty_bindings_and_buffers_conflict_with_nothing() {
    let mut d = Device::new();
    d.tracker.open(memory(9), 0, Moment { stream: StreamId::from_raw(1), seq: 1 });
    d.fail(1, "a", &[all(0, Overwrite), on(9, 0..0, Overwrite)]);
    let (_, r) = d.land(2, "b", &[on(0, 50..50, ReadWrite), on(9, 0..0, ReadWrite)]);
    assert!(r.waits.is_empty());
    assert!(d.check(on(0, 50..50, Read)).is_ok() && d.check(on(9, 0..0, Read)).is_ok());
}

#[test]
fn the_log_stays_small_behind_an_operation_that_takes_long_and_keeps_what_consumed_it() {
    let mut d = Device::new();
    let (slow, _) = d.land(1, "slow", &[all(0, Overwrite)]);
    let (consumer, _) = d.land(2, "consumer", &[all(0, Read), all(1, Overwrite)]);
    // The consumer is seen done before the operation it waited for.
    d.complete(consumer);
    for _ in 0..10_000 {
        let (at, _) = d.land(3, "quick", &[all(2, ReadWrite)]);
        d.complete(at);
    }
    assert!(d.tracker.remembered() <= 64, "{} operations", d.tracker.remembered());
    d.tracker.failed(slow, &[all(0, Overwrite)], &lost(slow));
    assert!(d.check(all(1, Read)).is_err());
    assert_eq!(d.check(all(2, Read)), Ok(()));
}

#[test]
fn a_buffer_written_in_ever_new_pieces_keeps_no_history_of_what_is_done() {
    let mut d = Device::new();
    let large = MemoryId { index: 9, generation: 0 };
    d.tracker.open(large, 1 << 20, Moment { stream: StreamId::from_raw(1), seq: 0 });
    for k in 0..20_000_u64 {
        let start = k * 7919 % (1 << 20);
        let range = start..(start + 13).min(1 << 20);
        let (at, _) = d.land(1 + k % 4, "piece", &[Use { memory: large, range, access: Overwrite }]);
        d.complete(at);
    }
    let last = d.tracker.close(large);
    assert!(last.is_done(&d.streams));
}
