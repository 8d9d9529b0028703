//! When freed memory is given out again: never too early, and promptly.

use crate::double::*;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::report::ReportScope;

#[test]
fn a_stream_takes_back_its_own_memory_at_once_and_another_only_when_it_is_done() {
    let mut rig = Rig::new();
    let (one, two) = (stream(1), stream(2));
    let a = rig.reserve(MIB, one);
    let first = rig.place(a);
    let last = rig.device.issue(one);
    rig.free(a, &[last]);
    let b = rig.reserve(MIB, two);
    assert_ne!(rig.place(b).0, first.0, "it would overtake the last use");
    let c = rig.reserve(MIB, one);
    assert_eq!(rig.place(c), first);
    let last = rig.device.issue(one);
    rig.free(c, &[last]);
    rig.device.finish_all(last.seq);
    let d = rig.reserve(MIB, two);
    assert_eq!(rig.place(d), first);
}

#[test]
fn a_stream_that_waited_for_the_last_use_need_not_wait_again() {
    let mut rig = Rig::new();
    let (one, two, three) = (stream(1), stream(2), stream(3));
    let a = rig.reserve(MIB, one);
    let first = rig.place(a);
    let uses = [rig.device.issue(one), rig.device.issue(three)];
    rig.free(a, &uses);
    rig.device.wait(two, uses[0]);
    let b = rig.reserve(MIB, two);
    assert_ne!(rig.place(b).0, first.0, "it waited for one of two uses");
    rig.device.wait(two, uses[1]);
    let c = rig.reserve(MIB, two);
    assert_eq!(rig.place(c), first, "and then for both");
}

#[test]
fn memory_used_by_more_streams_than_are_told_apart_waits_for_the_epoch() {
    let mut rig = Rig::new();
    let a = rig.reserve(MIB, stream(1));
    let first = rig.place(a);
    let uses: Vec<_> = (1..=6).map(|s| rig.device.issue(stream(s))).collect();
    rig.free(a, &uses);
    let b = rig.reserve(MIB, stream(1));
    assert_ne!(rig.place(b).0, first.0);
    rig.device.finish_all(uses[5].seq);
    let c = rig.reserve(MIB, stream(9));
    assert_eq!(rig.place(c), first);
}

#[test]
fn to_a_stream_that_runs_ahead_memory_behaves_as_if_the_device_had_no_lag() {
    let mut rig = Rig::new();
    let mut random = fastrand(7);
    let mut live = Vec::new();
    for _ in 0..20_000 {
        if live.len() == 100 {
            let memory = live.swap_remove(random() as usize % live.len());
            let last = rig.device.issue(stream(1));
            rig.free(memory, &[last]);
        }
        live.push(rig.reserve(1 + random() % (256 * KIB), stream(1)));
    }
    let total = rig.pools.report(ReportScope::Device).total();
    let waste = total.peak_reserved as f64 / total.peak_live as f64;
    assert!(waste < 1.25, "nothing was ever done, yet {waste} of the peak is reserved");
}

#[test]
fn eight_streams_of_random_sizes_with_a_constant_live_set_have_a_bounded_high_water() {
    // What the device has not finished cannot be reused by all: at most a 25th of the live set here.
    for (lag, count) in [(0, 400), (16, 400), (64, 1600)] {
        let mut rig = Rig::new();
        let mut random = fastrand(42 + lag);
        let mut live = Vec::new();
        for _ in 0..20_000 {
            let on = stream(1 + random() % 8);
            if live.len() == count {
                let memory = live.swap_remove(random() as usize % live.len());
                let last = rig.device.issue(on);
                rig.free(memory, &[last]);
            }
            live.push(rig.reserve(1 + random() % (256 * KIB), on));
            let now = rig.device.now();
            rig.device.finish_all(now.saturating_sub(lag));
        }
        let total = rig.pools.report(ReportScope::Device).total();
        let waste = total.peak_reserved as f64 / total.peak_live as f64;
        println!("lag {lag}: {waste:.3}");
        assert!(waste <= 1.25, "lag {lag}: {waste} of the peak is reserved");
    }
}

#[test]
fn a_thousand_streams_that_come_and_go_leave_nothing_behind() {
    let mut rig = Rig::new();
    for number in 1..=1000 {
        let on = stream(number);
        let memory = rig.reserve(MIB, on);
        let last = rig.device.issue(on);
        rig.free(memory, &[last]);
        rig.device.finish_all(last.seq.saturating_sub(2));
    }
    let total = rig.pools.report(ReportScope::Device).total();
    assert!(total.peak_reserved <= 5 * MIB, "{}", total.peak_reserved);
    let now = rig.device.now();
    rig.device.finish_all(now);
    rig.cleanup();
    assert_eq!(rig.storage.pages(), 0);
}

#[test]
fn a_request_asks_few_questions_however_much_is_unfinished() {
    let mut rig = Rig::new();
    let memory: Vec<_> = (0..4000).map(|_| rig.reserve(4 * KIB, stream(1))).collect();
    for memory in memory.iter().step_by(2) {
        let last = rig.device.issue(stream(1));
        rig.free(*memory, &[last]);
    }
    *rig.device.questions.borrow_mut() = 0;
    for _ in 0..1000 {
        let memory = rig.reserve(4 * KIB, stream(1));
        let last = rig.device.issue(stream(1));
        rig.free(memory, &[last]);
    }
    assert!(*rig.device.questions.borrow() <= 8 * 1000);
}

#[test]
fn a_buffer_held_across_a_cleanup_stays_where_it_is() {
    let mut rig = Rig::new();
    let others: Vec<_> = (0..8).map(|_| rig.reserve(MIB, stream(1))).collect();
    let kept = rig.reserve(MIB, stream(1));
    let place = rig.place(kept);
    for other in others {
        rig.free(other, &[]);
    }
    rig.cleanup();
    assert_eq!(rig.place(kept), place);
    assert_eq!(rig.storage.bytes, MIB);
    for _ in 0..8 {
        let later = rig.reserve(MIB, stream(2));
        assert_ne!(rig.place(later).0, place.0, "page ids are never given to two pages");
    }
}

#[test]
fn a_page_whose_memory_is_unfinished_is_returned_only_when_it_is_done() {
    let mut rig = Rig::new();
    for mode in [AllocationMode::Auto, AllocationMode::Dedicated, AllocationMode::Persistent] {
        let memory = rig.try_reserve(MIB, stream(1), mode).unwrap();
        let last = rig.device.issue(stream(1));
        rig.free(memory, &[last]);
        rig.cleanup();
        assert_eq!(rig.storage.pages(), 1, "{mode}");
        rig.device.finish_all(last.seq);
        rig.cleanup();
        assert_eq!(rig.storage.pages(), 0, "{mode}");
        rig.cleanup();
    }
}

/// Numbers that look random, from a seed.
pub fn fastrand(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }
}

#[test]
fn a_mix_of_nine_sizes_takes_little_more_than_the_most_that_was_live() {
    let mut rig = Rig::new();
    let mut random = fastrand(3);
    let sizes = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 12 * MIB];
    let mut live = Vec::new();
    for _ in 0..10_000 {
        if live.len() == 400 {
            let memory = live.swap_remove(random() as usize % live.len());
            rig.free(memory, &[]);
        }
        live.push(rig.reserve(sizes[random() as usize % 9], stream(1)));
    }
    let total = rig.pools.report(ReportScope::Device).total();
    let waste = total.peak_reserved as f64 / total.peak_live as f64;
    println!("mixed: {waste:.3}, {} pages", total.pages);
    assert!(waste <= 1.15, "{waste} of the peak is reserved");
}

#[test]
fn a_page_of_more_than_four_gibibytes_is_placed_in() {
    let gib = 1 << 30;
    let mut rig =
        Rig::with(trunnion_memory_pools::PoolsConfig { layout: pages(1000 * gib, 1000 * gib), ..Default::default() });
    rig.storage.max_page = 1 << 50;
    let held: Vec<_> = (0..100).map(|_| rig.reserve(10 * gib, stream(1))).collect();
    let mut offsets: Vec<_> = held.iter().map(|memory| rig.place(*memory).1).collect();
    offsets.sort_unstable();
    assert!(offsets.iter().enumerate().all(|(i, offset)| *offset == i as u64 * 10 * gib));
    assert_eq!(rig.storage.pages(), 1);
}
