//! Pages that grow where they are: when, by how much, and what becomes of a refusal.

use crate::double::*;
use proptest::prelude::*;
use trunnion_memory_pools::{PoolsConfig, Pressure};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::Rung;
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::{PoolReport, ReportScope};

fn growing(layout: PoolLayout, growth_step: u64) -> Rig {
    Rig::with(PoolsConfig { layout, growth_step: Some(growth_step), ..PoolsConfig::default() })
}

/// Pages of 1 to 64 MiB that grow by the MiB.
fn rig() -> Rig {
    growing(pages(MIB, 64 * MIB), MIB)
}

fn pool(rig: &Rig) -> PoolReport {
    rig.pools.report(ReportScope::Device).pools[0].clone()
}

#[test]
fn a_request_larger_than_the_rest_of_a_page_is_placed_across_its_former_end() {
    let mut rig = rig();
    let first = rig.reserve(MIB / 2, stream(1));
    let second = rig.reserve(3 * MIB, stream(1));
    assert_eq!((rig.storage.pages(), rig.storage.bytes, rig.storage.grew), (1, 4 * MIB, 1));
    let (a, b) = (rig.place(first), rig.place(second));
    assert_eq!((a.0, a.1, b.1), (b.0, 0, MIB / 2), "the rest of the page is the begin of it");
    let report = pool(&rig);
    assert_eq!((report.pages, report.reserved, report.peak_reserved), (1, 4 * MIB, 4 * MIB));
    assert_eq!((report.grown, report.reused, report.largest_free), (2, 0, MIB / 2));
    let third = rig.reserve(MIB / 2, stream(1));
    assert_eq!((rig.place(third).1, pool(&rig).reused), (7 * MIB / 2, 1));
    [first, second, third].into_iter().for_each(|memory| rig.free(memory, &[]));
    assert_eq!(pool(&rig).largest_free, 4 * MIB, "the seam is gone");
    rig.cleanup();
    assert_eq!((rig.storage.pages(), rig.storage.bytes), (0, 0));
    rig.reserve(MIB / 2, stream(1));
    assert_eq!(rig.storage.bytes, MIB, "a new page begins small");
}

#[test]
fn a_page_grows_as_the_pool_would_and_no_further_than_a_page_may() {
    let mut rig = growing(pages(MIB, 8 * MIB), MIB);
    let held: Vec<_> = (0..17).map(|_| rig.reserve(MIB, stream(1))).collect();
    assert_eq!(rig.storage.sizes.values().map(|(size, _)| *size).collect::<Vec<_>>(), [8 * MIB, 8 * MIB, MIB]);
    assert!(rig.storage.reaches.values().all(|reach| *reach == 8 * MIB));
    // Half of the largest page is at the end of none: another page, which grows from then on.
    rig.reserve(8 * MIB, stream(1));
    assert_eq!(rig.storage.pages(), 4);
    held.into_iter().for_each(|memory| rig.free(memory, &[]));

    // A share of what the pool holds, as for a page.
    let wide = PageSizes::growing(MIB, 64 * MIB, 50);
    let mut rig = growing(PoolLayout::new(vec![PoolDescription::new("a", Placement::Fit, wide)]).unwrap(), MIB);
    let mut sizes = vec![];
    for _ in 0..16 {
        rig.reserve(MIB, stream(1));
        sizes.push(rig.storage.bytes / MIB);
    }
    sizes.dedup();
    assert_eq!((sizes, rig.storage.pages()), (vec![1, 2, 3, 4, 6, 9, 13, 19], 1));
}

#[test]
fn what_lacks_much_more_than_the_pool_takes_ahead_has_a_page_of_its_own_that_goes_back() {
    let mut rig = rig();
    rig.reserve(1000, stream(1));
    let large: Vec<_> = (0..4).map(|_| rig.reserve(8 * MIB, stream(1))).collect();
    assert_eq!((rig.storage.pages(), rig.storage.bytes), (3, 33 * MIB), "which grows for more like it");
    large.into_iter().for_each(|memory| rig.free(memory, &[]));
    rig.cleanup();
    assert_eq!((rig.storage.pages(), rig.storage.bytes), (1, MIB), "the small one keeps a small page");
}

#[test]
fn pages_of_one_size_and_pages_as_large_as_a_buffer_stay_as_they_are() {
    for layout in [pages(4 * MIB, 4 * MIB), PoolLayout::exclusive(), PoolLayout::fixed(2 * MIB).unwrap()] {
        let mut rig = growing(layout, 256 * KIB);
        (0..8).for_each(|_| _ = rig.reserve(MIB + 256, stream(1)));
        rig.try_reserve(MIB, stream(1), AllocationMode::Dedicated).unwrap();
        rig.try_reserve(MIB, stream(1), AllocationMode::Persistent).unwrap();
        assert_eq!((rig.storage.grew, rig.storage.reaches.len()), (0, 0));
    }
}

#[test]
fn a_page_of_whole_steps_begins_where_an_eighth_of_the_device_leaves_room_and_is_as_ever_elsewhere() {
    // An eighth is less than two steps.
    let mut rig = growing(pages(256 * KIB, 64 * MIB), MIB);
    rig.storage.max_page = 15 * MIB;
    rig.reserve(256, stream(1));
    assert_eq!((rig.storage.bytes, rig.storage.reaches.len()), (256 * KIB, 0));
    let mut rig = growing(pages(256 * KIB, 64 * MIB), MIB);
    rig.storage.max_page = 16 * MIB;
    rig.reserve(256, stream(1));
    assert_eq!((rig.storage.bytes, rig.storage.reaches.values().copied().collect()), (MIB, vec![2 * MIB]));
    // A request of more than that has a page of its size.
    rig.reserve(5 * MIB + 256, stream(1));
    assert_eq!(rig.storage.bytes, 6 * MIB + 256);
}

#[test]
fn slots_and_what_dies_together_are_placed_in_pages_that_grow() {
    for (description, size) in [
        (PoolDescription::slabs("slabs", 3000, PageSizes::growing(64 * KIB, MIB, 12)), 3000),
        (PoolDescription::new("linear", Placement::Linear, PageSizes::growing(64 * KIB, MIB, 12)), 3072),
    ] {
        let mut rig = growing(PoolLayout::new(vec![description]).unwrap(), 64 * KIB);
        let held: Vec<_> = (0..MIB / 3072).map(|_| rig.reserve(size, stream(1))).collect();
        assert_eq!((rig.storage.pages(), rig.storage.bytes), (1, MIB), "no slot is cut off where it grew");
        let offsets: Vec<_> = held.iter().map(|memory| rig.place(*memory).1).collect();
        assert!(offsets.windows(2).all(|pair| pair[1] == pair[0] + 3072));
        rig.reserve(size, stream(1));
        assert_eq!(rig.storage.pages(), 2);
        held.into_iter().for_each(|memory| rig.free(memory, &[]));
        rig.cleanup();
        assert_eq!(rig.storage.pages(), 1);
    }
}

#[test]
fn a_linear_page_that_the_stream_may_not_fill_does_not_grow_for_it() {
    let linear = PoolDescription::new("linear", Placement::Linear, PageSizes::growing(64 * KIB, MIB, 12));
    let mut rig = growing(PoolLayout::new(vec![linear]).unwrap(), 64 * KIB);
    let first = rig.reserve(60 * KIB, stream(1));
    let last = rig.device.issue(stream(1));
    rig.free(first, &[last]);
    rig.reserve(90 * KIB, stream(2));
    assert_eq!((rig.storage.pages(), rig.storage.grew), (2, 0));
}

#[test]
fn what_the_stream_may_have_at_the_end_counts_though_others_may_not() {
    let mut rig = rig();
    rig.reserve(3 * MIB, stream(1));
    let (last, other) = (rig.reserve(MIB / 2, stream(1)), rig.reserve(MIB / 2, stream(1)));
    assert_eq!(rig.storage.bytes, 4 * MIB);
    let (used, also) = (rig.device.issue(stream(1)), rig.device.issue(stream(2)));
    rig.free(last, &[used]);
    rig.free(other, &[used, also]);
    // Stream 2 comes after none of it: all it needs is new.
    let apart = rig.reserve(2 * MIB, stream(2));
    assert_eq!((rig.place(apart).1, rig.storage.bytes), (4 * MIB, 6 * MIB));
    rig.free(apart, &[]);
    // Stream 1 comes after what was its own, and after the other once it waited for that.
    rig.device.wait(stream(1), also);
    let across = rig.reserve(4 * MIB, stream(1));
    assert_eq!((rig.place(across).1, rig.storage.bytes, rig.storage.pages()), (3 * MIB, 7 * MIB, 1));
}

#[test]
fn the_budget_holds_and_a_page_grows_by_what_it_leaves() {
    let mut rig = rig();
    rig.pools.set_budget(Some(40 * MIB));
    rig.reserve(4 * MIB, stream(1));
    rig.try_reserve(35 * MIB, stream(1), AllocationMode::Dedicated).unwrap();
    rig.reserve(MIB / 2, stream(1));
    assert_eq!((rig.storage.bytes, rig.storage.pages()), (40 * MIB, 2));
    let Err(Pressure::OverBudget(numbers)) = rig.try_reserve(MIB, stream(1), AllocationMode::Auto) else { panic!() };
    assert_eq!((numbers.requested, numbers.reserved, numbers.largest_free), (MIB, 40 * MIB, MIB / 2));
    rig.reserve(MIB / 2, stream(1));
}

#[test]
fn what_is_missing_at_the_end_is_waited_for_and_no_more() {
    let mut rig = rig();
    rig.pools.set_budget(Some(80 * MIB));
    rig.reserve(4 * MIB, stream(1));
    rig.try_reserve(74 * MIB, stream(1), AllocationMode::Dedicated).unwrap();
    rig.reserve(MIB / 4, stream(1));
    let single = rig.try_reserve(MIB, stream(2), AllocationMode::Dedicated).unwrap();
    assert_eq!(rig.storage.bytes, 80 * MIB);
    let last = rig.device.issue(stream(2));
    rig.free(single, &[last]);
    // A page would take 1.5 MiB, which is not to be had; behind the page there is, one is missing.
    let Err(Pressure::Wait(until)) = rig.try_reserve(3 * MIB / 2, stream(1), AllocationMode::Auto) else { panic!() };
    assert_eq!(until, frontier(&[last]));
    rig.device.finish(stream(2), last.seq);
    let across = rig.reserve(3 * MIB / 2, stream(1));
    assert_eq!((rig.place(across).1, rig.storage.bytes, rig.storage.pages()), (4 * MIB + MIB / 4, 80 * MIB, 2));
}

#[test]
fn what_a_page_of_its_own_would_take_is_waited_for_where_a_step_is_more() {
    let mut rig = rig();
    rig.pools.set_budget(Some(80 * MIB));
    rig.reserve(4 * MIB, stream(1));
    rig.try_reserve(151 * MIB / 2, stream(1), AllocationMode::Dedicated).unwrap();
    let single = rig.try_reserve(MIB / 2, stream(2), AllocationMode::Dedicated).unwrap();
    let last = rig.device.issue(stream(2));
    rig.free(single, &[last]);
    let Err(Pressure::Wait(until)) = rig.try_reserve(MIB / 4, stream(1), AllocationMode::Auto) else { panic!() };
    assert_eq!(until, frontier(&[last]));
    rig.device.finish(stream(2), last.seq);
    rig.reserve(MIB / 4, stream(1));
    assert_eq!((rig.storage.bytes, rig.storage.pages(), rig.storage.grew), (80 * MIB, 3, 0));
}

#[test]
fn a_page_that_had_to_be_of_no_whole_steps_stays_as_it_is() {
    let mut rig = rig();
    rig.storage.capacity = 600 * KIB;
    rig.reserve(256, stream(1));
    assert_eq!((rig.storage.bytes, rig.storage.reaches.len()), (256 * KIB, 0));
    rig.storage.capacity = u64::MAX;
    rig.reserve(MIB, stream(1));
    assert_eq!((rig.storage.pages(), rig.storage.grew, rig.storage.reaches.len()), (2, 0, 1));
}

#[test]
fn a_driver_that_refused_to_grow_a_page_is_named_though_the_budget_refused_another_one() {
    for out_of_memory in [true, false] {
        let mut rig = rig();
        rig.pools.set_budget(Some(80 * MIB));
        rig.reserve(4 * MIB, stream(1));
        rig.try_reserve(74 * MIB, stream(1), AllocationMode::Dedicated).unwrap();
        rig.reserve(MIB / 4, stream(1));
        assert_eq!(rig.storage.bytes, 79 * MIB);
        // One is missing, which the budget has; a page would take more.
        rig.storage.capacity = 79 * MIB;
        rig.storage.refuse = Some((rig.storage.asked + 1, out_of_memory));
        match rig.try_reserve(3 * MIB / 2, stream(1), AllocationMode::Auto) {
            Err(Pressure::Exhausted(numbers)) if out_of_memory => {
                assert_eq!(numbers.driver.as_deref(), Some("the device is full"));
            }
            Err(Pressure::Refused(error)) if !out_of_memory => assert_eq!(error.message, "told to refuse"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_unfinished_is_waited_for_though_a_page_will_never_grow_again() {
    let mut rig = rig();
    rig.pools.set_budget(Some(80 * MIB));
    rig.reserve(4 * MIB, stream(1));
    rig.try_reserve(73 * MIB, stream(1), AllocationMode::Dedicated).unwrap();
    let single = rig.try_reserve(2 * MIB, stream(2), AllocationMode::Dedicated).unwrap();
    let last = rig.device.issue(stream(2));
    rig.free(single, &[last]);
    rig.storage.refuse = Some((rig.storage.asked + 1, false));
    let Err(Pressure::Wait(until)) = rig.try_reserve(2 * MIB, stream(1), AllocationMode::Auto) else { panic!() };
    assert_eq!(until, frontier(&[last]));
    rig.device.finish(stream(2), last.seq);
    rig.reserve(2 * MIB, stream(1));
    assert_eq!((rig.storage.pages(), rig.storage.grew), (3, 0));
}

#[test]
fn a_page_grows_on_when_one_that_was_taken_after_it_is_returned_or_as_large_as_it_may_be() {
    let mut rig = rig();
    let first = rig.reserve(1000, stream(1));
    let large = rig.reserve(8 * MIB, stream(1));
    rig.free(large, &[]);
    rig.cleanup();
    let second = rig.reserve(2 * MIB, stream(1));
    assert_eq!((rig.storage.pages(), rig.storage.grew), (1, 1));
    assert_eq!(rig.place(first).0, rig.place(second).0);

    let mut rig = growing(pages(MIB, 8 * MIB), MIB);
    let first = rig.reserve(1000, stream(1));
    rig.reserve(7 * MIB, stream(1));
    rig.reserve(MIB, stream(1));
    assert_eq!((rig.storage.pages(), rig.storage.bytes), (2, 9 * MIB), "the second one grew");
    let third = rig.reserve(2 * MIB, stream(1));
    assert_eq!((rig.place(third).0, rig.storage.pages()), (rig.place(first).0, 2), "the first one does now");
}

#[test]
fn a_page_grows_to_an_eighth_of_a_budget_that_was_set_after_it_was_taken() {
    let mut rig = rig();
    rig.reserve(1000, stream(1));
    rig.pools.set_budget(Some(80 * MIB));
    (0..12).for_each(|_| _ = rig.reserve(4 * MIB, stream(1)));
    let sizes: Vec<_> = rig.storage.sizes.values().map(|(size, _)| size / MIB).collect();
    assert!(sizes.iter().all(|size| *size <= 10), "{sizes:?}");
}

#[test]
fn what_is_unfinished_at_the_end_of_a_page_is_waited_for_where_it_grows_by_the_rest() {
    let linear = PoolDescription::new("linear", Placement::Linear, PageSizes::growing(MIB, 64 * MIB, 12));
    for layout in [pages(MIB, 64 * MIB), PoolLayout::new(vec![linear]).unwrap()] {
        let is_linear = layout.pools()[0].placement == Placement::Linear;
        let mut rig = growing(layout, MIB);
        rig.pools.set_budget(Some(80 * MIB));
        let first = rig.reserve(MIB, stream(1));
        let end = rig.reserve(3 * MIB, stream(1));
        rig.try_reserve(74 * MIB, stream(1), AllocationMode::Dedicated).unwrap();
        let last = rig.device.issue(stream(2));
        rig.free(end, &[last]);
        if is_linear {
            // Filled again by who need not wait.
            rig.free(first, &[last]);
            rig.reserve(MIB, stream(2));
        }
        // Three are unfinished there, and the budget leaves two.
        let Err(Pressure::Wait(until)) = rig.try_reserve(4 * MIB, stream(1), AllocationMode::Auto) else { panic!() };
        assert_eq!(until, frontier(&[last]));
        rig.device.finish(stream(2), last.seq);
        rig.reserve(4 * MIB, stream(1));
        assert_eq!((rig.storage.pages(), rig.storage.bytes), (2, 79 * MIB));
        let more = rig.try_reserve(4 * MIB, stream(1), AllocationMode::Auto);
        assert!(matches!(more, Err(Pressure::OverBudget(_))), "{more:?}");
    }
}

#[test]
fn a_driver_with_little_left_gives_what_is_missing_and_not_a_step_more() {
    let wide = PageSizes::growing(MIB, 64 * MIB, 100);
    let mut rig = growing(PoolLayout::new(vec![PoolDescription::new("a", Placement::Fit, wide)]).unwrap(), MIB);
    rig.storage.capacity = 12 * MIB;
    let first = rig.reserve(21 * MIB / 2, stream(1));
    let kept = rig.try_reserve(MIB, stream(1), AllocationMode::Persistent).unwrap();
    assert_eq!(rig.storage.bytes, 12 * MIB);
    // Empty pages are returned, and what they had is too little for another page, and enough for what is missing behind this one.
    rig.free(kept, &[]);
    let across = rig.reserve(3 * MIB / 2, stream(1));
    assert_eq!((rig.place(across).0, rig.place(across).1), (rig.place(first).0, 21 * MIB / 2));
    assert_eq!((rig.storage.bytes, rig.storage.pages()), (12 * MIB, 1));
}

#[test]
fn a_page_whose_growth_is_refused_is_as_it_was_and_grows_no_more_unless_memory_was_short() {
    for out_of_memory in [true, false] {
        let mut rig = rig();
        let first = rig.reserve(MIB / 2, stream(1));
        rig.storage.refuse = Some((rig.storage.asked + 1, out_of_memory));
        let second = rig.reserve(MIB, stream(1));
        assert_ne!(rig.place(first).0, rig.place(second).0);
        assert_eq!((rig.storage.pages(), rig.storage.grew), (2, 0));
        rig.reserve(MIB / 2, stream(1));
        assert_eq!(rig.storage.bytes, 2 * MIB, "what it had is of use as before");
        rig.reserve(MIB, stream(1));
        assert_eq!((rig.storage.pages(), rig.storage.grew), (2, 1), "the page that was taken last grows");

        // Where there was no other page either, it is the one that would grow.
        let mut rig = self::rig();
        rig.reserve(MIB / 2, stream(1));
        rig.storage.refuse = Some((rig.storage.asked + 1, out_of_memory));
        rig.storage.capacity = MIB;
        rig.try_reserve(MIB, stream(1), AllocationMode::Auto).unwrap_err();
        rig.storage.capacity = u64::MAX;
        rig.reserve(MIB, stream(1));
        let expected = if out_of_memory { (1, 1) } else { (2, 0) };
        assert_eq!((rig.storage.pages(), rig.storage.grew), expected, "short of memory: {out_of_memory}");
    }
}

#[test]
fn a_refused_growth_is_followed_by_the_rungs_of_a_page_and_the_answer_is_theirs() {
    let mut rig = rig();
    rig.reserve(MIB, stream(1));
    rig.storage.refuse = Some((rig.storage.asked + 1, false));
    rig.storage.capacity = MIB;
    let Err(Pressure::Exhausted(numbers)) = rig.try_reserve(MIB, stream(1), AllocationMode::Auto) else { panic!() };
    assert_eq!(numbers.driver.as_deref(), Some("the device is full"));
    assert_eq!(numbers.tried.iter().filter(|rung| **rung == Rung::Grow).count(), 2, "{:?}", numbers.tried);
}

#[test]
fn a_layout_that_is_replaced_grows_no_page() {
    let mut rig = rig();
    let held = rig.reserve(MIB / 2, stream(1));
    rig.install(&pages(2 * MIB, 64 * MIB)).unwrap();
    let new = rig.reserve(MIB, stream(1));
    assert_ne!(rig.place(held).0, rig.place(new).0);
    assert_eq!((rig.storage.pages(), rig.storage.grew), (2, 0));
    rig.free(held, &[]);
    assert_eq!(rig.storage.bytes, 2 * MIB);
}

#[test]
fn a_drain_returns_grown_pages_as_a_whole() {
    let mut rig = rig();
    (0..5).for_each(|_| _ = rig.reserve(MIB, stream(1)));
    rig.pools.drain(&mut rig.storage);
    assert_eq!((rig.storage.pages(), rig.storage.bytes), (0, 0));
    rig.forget_all();
    rig.reserve(MIB, stream(1));
    assert_eq!((rig.storage.pages(), rig.storage.bytes), (1, MIB));
}

/// What comes of a program of requests and frees: bytes reserved at its peak, and its report.
fn footprint(program: impl IntoIterator<Item = (bool, u64)>, growth_step: Option<u64>) -> (u64, PoolReport) {
    let config = PoolsConfig { layout: pages(MIB, 64 * MIB), growth_step, ..PoolsConfig::default() };
    let mut rig = Rig::with(config);
    let mut live: Vec<MemoryId> = Vec::new();
    for (frees, number) in program {
        if frees && !live.is_empty() {
            let memory = live.swap_remove(number as usize % live.len());
            rig.free(memory, &[]);
        } else {
            live.push(rig.reserve(1 + number % (3 * MIB), stream(1)));
        }
    }
    (rig.pools.report(ReportScope::Device).peak_reserved, pool(&rig))
}

#[test]
fn programs_need_less_memory_and_fewer_pages_where_pages_grow() {
    let mut sums = [(0, 0); 2];
    let programs = 100;
    for seed in 1..=programs {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 16
        };
        let program: Vec<_> = (0..200).map(|_| (next() % 5 > 2, next())).collect();
        for (sum, step) in sums.iter_mut().zip([None, Some(256 * KIB)]) {
            let (peak, report) = footprint(program.iter().copied(), step);
            *sum = (sum.0 + peak, sum.1 + report.pages);
        }
    }
    let [stay, grow] = sums;
    println!(
        "{} KiB and {} pages where pages stay as they are",
        stay.0 / KIB / programs,
        stay.1 as f64 / programs as f64
    );
    println!("{} KiB and {} pages where they grow", grow.0 / KIB / programs, grow.1 as f64 / programs as f64);
    assert!(grow.0 < stay.0 && grow.1 < stay.1, "{sums:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_page_that_grows_leaves_no_more_than_one_step_unused(numbers in prop::collection::vec(any::<u64>(), 1..20)) {
        let (_, report) = footprint(numbers.into_iter().map(|number| (false, number)), Some(256 * KIB));
        let step = MIB.max(report.reserved * 12 / 100);
        prop_assert!(report.pages == 1 && report.free < step, "{report:?}");
        prop_assert_eq!(report.free, report.largest_free, "in one piece, at the end");
    }
}
