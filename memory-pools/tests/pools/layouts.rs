//! Layouts: what each kind of pool does, routing, and one layout in the place of another.

use crate::double::*;
use trunnion_memory_pools::{PoolsConfig, Pressure};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::{PoolKind, PoolReport, ReportScope};

fn layout(pools: Vec<PoolDescription>) -> PoolLayout {
    PoolLayout::new(pools).unwrap()
}

fn rig_of(layout: PoolLayout) -> Rig {
    Rig::with(PoolsConfig { layout, ..PoolsConfig::default() })
}

fn linear() -> PoolLayout {
    layout(vec![PoolDescription::new("frames", Placement::Linear, PageSizes::fixed(64 * KIB))])
}

fn slabs() -> PoolLayout {
    let slabs = PoolDescription::slabs("small", 1024, PageSizes::fixed(16 * KIB));
    layout(vec![slabs, PoolDescription::new("rest", Placement::Fit, PageSizes::fixed(64 * KIB))])
}

fn pools(rig: &Rig) -> Vec<PoolReport> {
    rig.pools.report(ReportScope::Device).pools
}

fn pool(rig: &Rig, name: &str) -> PoolReport {
    pools(rig).into_iter().find(|pool| pool.name == name && !pool.retired).expect("a pool of that name")
}

// ---- routing

#[test]
fn a_request_goes_to_the_first_pool_that_takes_it_and_to_none_alone() {
    let mut rig = rig_of(slabs());
    for size in [1, 1000, 1024, 1025, 64 * KIB, 64 * KIB + 1] {
        rig.reserve(size, stream(1));
    }
    let served: Vec<_> = pools(&rig).into_iter().map(|pool| (pool.name, pool.kind, pool.allocations)).collect();
    assert_eq!(
        served,
        [
            ("small".to_string(), PoolKind::Slabs, 3),
            ("rest".into(), PoolKind::General, 2),
            ("dedicated".into(), PoolKind::Dedicated, 1),
            ("persistent".into(), PoolKind::Persistent, 0)
        ]
    );
    let one = rig.pools.report(ReportScope::Stream(stream(1)));
    assert_eq!(one.pools.iter().map(|pool| pool.allocations).collect::<Vec<_>>(), [3, 2, 1, 0]);
}

// ---- slabs

#[test]
fn a_slot_is_padding_beyond_what_was_asked_for() {
    let mut rig = rig_of(slabs());
    rig.reserve(100, stream(1));
    let small = pool(&rig, "small");
    assert_eq!((small.live, small.padding, small.reserved, small.largest_free), (100, 924, 16 * KIB, 1024));
}

#[test]
fn a_slot_is_reused_by_its_stream_at_once_by_others_when_it_is_done_and_whatever_the_size() {
    let mut rig = rig_of(slabs());
    let held: Vec<_> = (0..16).map(|_| rig.reserve(1000, stream(1))).collect();
    let places: Vec<_> = held.iter().map(|memory| rig.place(*memory)).collect();
    assert!((0..16).all(|i| places.iter().any(|place| place.1 == i * 1024)), "a page full of slots");
    let last = rig.device.issue(stream(1));
    rig.free(held[3], &[last]);
    let other = rig.reserve(1000, stream(2));
    assert_ne!(rig.place(other).0, places[3].0, "it would overtake the last use");
    let again = rig.reserve(10, stream(1));
    assert_eq!(rig.place(again).0, places[3].0);
    assert_eq!(rig.place(again).1, places[3].1);
    let last = rig.device.issue(stream(1));
    rig.free(again, &[last]);
    rig.device.finish_all(last.seq);
    let pages = rig.storage.pages();
    (0..16).for_each(|_| {
        rig.reserve(1, stream(3));
    });
    assert_eq!(rig.storage.pages(), pages, "what was done serves whoever asks");
}

#[test]
fn a_slot_whose_last_use_a_stream_has_waited_for_is_its_own() {
    let mut rig = rig_of(slabs());
    rig.storage.capacity = 16 * KIB;
    let held: Vec<_> = (0..16).map(|_| rig.reserve(1000, stream(1))).collect();
    let uses = [rig.device.issue(stream(1)), rig.device.issue(stream(2))];
    rig.free(held[5], &uses);
    let Err(Pressure::Wait(until)) = rig.try_reserve(1, stream(3), AllocationMode::Auto) else { panic!() };
    assert_eq!(until.moments(), uses);
    uses.iter().for_each(|at| rig.device.wait(stream(3), *at));
    rig.reserve(1, stream(3));
}

#[test]
fn slabs_that_are_empty_are_returned_by_a_clean_up() {
    let mut rig = rig_of(slabs());
    let held: Vec<_> = (0..100).map(|_| rig.reserve(1000, stream(1))).collect();
    let kept = rig.reserve(1000, stream(1));
    let place = rig.place(kept);
    for memory in held {
        let last = rig.device.issue(stream(1));
        rig.free(memory, &[last]);
    }
    rig.cleanup();
    assert_eq!(rig.storage.bytes, 7 * 16 * KIB, "unfinished");
    let now = rig.device.now();
    rig.device.finish_all(now);
    rig.cleanup();
    assert_eq!((rig.storage.bytes, rig.place(kept)), (16 * KIB, place));
}

// ---- linear

#[test]
fn a_linear_page_is_filled_in_order_and_used_again_as_a_whole() {
    let mut rig = rig_of(linear());
    let held: Vec<_> = (0..4).map(|_| rig.reserve(16 * KIB, stream(1))).collect();
    let places: Vec<_> = held.iter().map(|memory| rig.place(*memory)).collect();
    assert_eq!(places.iter().map(|place| place.1).collect::<Vec<_>>(), [0, 16 * KIB, 32 * KIB, 48 * KIB]);
    for memory in &held[..3] {
        rig.free(*memory, &[]);
    }
    let next = rig.reserve(KIB, stream(1));
    assert_ne!(rig.place(next).0, places[0].0, "one of the page's lives");
    rig.free(held[3], &[]);
    rig.free(next, &[]);
    rig.reserve(64 * KIB, stream(1));
    rig.reserve(64 * KIB, stream(2));
    assert_eq!(rig.storage.pages(), 2);
}

#[test]
fn a_linear_page_comes_after_the_last_uses_of_all_that_was_in_it() {
    let mut rig = rig_of(linear());
    let (a, b) = (rig.reserve(KIB, stream(1)), rig.reserve(KIB, stream(1)));
    let page = rig.place(a).0;
    let uses = [rig.device.issue(stream(1)), rig.device.issue(stream(1))];
    rig.free(b, &[uses[1]]);
    rig.free(a, &[uses[0]]);
    let other = rig.reserve(KIB, stream(2));
    assert_ne!(rig.place(other).0, page, "it would overtake both");
    rig.device.finish_all(uses[0].seq);
    let next = rig.reserve(64 * KIB, stream(2));
    assert_ne!(rig.place(next).0, page, "one of two is not done");
    let own = rig.reserve(64 * KIB, stream(1));
    assert_eq!(rig.place(own).0, page, "what a stream does comes after what it did");
    let last = rig.device.issue(stream(1));
    rig.free(own, &[last]);
    rig.device.finish_all(uses[1].seq);
    let third = rig.reserve(64 * KIB, stream(2));
    assert_ne!(rig.place(third).0, page);
    rig.device.finish_all(last.seq);
    let fourth = rig.reserve(64 * KIB, stream(2));
    assert_eq!(rig.place(fourth).0, page);
}

#[test]
fn frames_that_come_and_go_take_two_pages_each_way() {
    let mut rig = rig_of(linear());
    let mut frames = Vec::new();
    for frame in 0..200 {
        let held: Vec<_> = (1..=10).map(|i| rig.reserve(i * KIB, stream(1 + frame % 2))).collect();
        let last = rig.device.issue(stream(1 + frame % 2));
        frames.push((held, last));
        if frames.len() == 3 {
            let (held, last) = frames.remove(0);
            rig.device.finish_all(last.seq);
            held.into_iter().for_each(|memory| rig.free(memory, &[last]));
        }
    }
    assert!(rig.storage.pages() <= 6, "{}", rig.storage.pages());
}

// ---- exclusive

#[test]
fn an_exclusive_page_is_kept_for_buffers_of_about_its_size() {
    let mut rig = rig_of(PoolLayout::exclusive());
    let memory = rig.reserve(1000 * KIB, stream(1));
    let place = rig.place(memory);
    assert_eq!((place.1, rig.storage.bytes), (0, MIB));
    rig.free(memory, &[]);
    assert_eq!(rig.storage.bytes, MIB, "kept");
    let again = rig.reserve(1010 * KIB, stream(2));
    assert_eq!(rig.place(again).0, place.0);
    let much_smaller = rig.reserve(500 * KIB, stream(2));
    assert_ne!(rig.place(much_smaller).0, place.0);
    assert_eq!(pool(&rig, "exclusive").allocations, 2);
    rig.free(again, &[]);
    rig.free(much_smaller, &[]);
    rig.cleanup();
    assert_eq!(rig.storage.pages(), 0);
}

// ---- one layout in the place of another

#[test]
fn a_layout_governs_new_pages_at_once_and_old_pages_retire_as_they_empty() {
    let mut rig = Rig::new();
    let old: Vec<_> = (0..4).map(|_| rig.reserve(MIB, stream(1))).collect();
    rig.reserve(10, stream(2));
    rig.free(old[0], &[]);
    assert_eq!(rig.storage.bytes, 5 * MIB);
    rig.install(&slabs()).unwrap();
    assert_eq!(rig.storage.bytes, 4 * MIB, "the page that was empty went back at once");
    let places: Vec<_> = old[1..].iter().map(|memory| rig.place(*memory)).collect();
    let new = rig.reserve(100, stream(1));
    assert!(places.iter().all(|place| place.0 != rig.place(new).0));
    let names: Vec<_> = pools(&rig).into_iter().map(|pool| (pool.name, pool.retired, pool.pages)).collect();
    let expected = [
        ("small", false, 1),
        ("rest", false, 0),
        ("dedicated", false, 0),
        ("persistent", false, 0),
        ("general", true, 4),
    ];
    assert_eq!(names, expected.map(|(name, retired, pages)| (name.to_string(), retired, pages)));
    // One is freed with its last use done, one before.
    rig.free(old[1], &[]);
    assert_eq!(rig.storage.bytes, 3 * MIB + 16 * KIB);
    let last = rig.device.issue(stream(1));
    rig.free(old[2], &[last]);
    assert_eq!(rig.storage.bytes, 3 * MIB + 16 * KIB, "in use yet");
    rig.device.finish_all(last.seq);
    (0..8).for_each(|_| {
        rig.reserve(100, stream(1));
    });
    assert_eq!(rig.storage.bytes, 2 * MIB + 16 * KIB, "requests returned it in passing");
    assert_eq!(rig.place(old[3]), places[2]);
    rig.free(old[3], &[]);
    assert_eq!(pools(&rig).iter().filter(|pool| pool.retired).map(|pool| pool.pages).sum::<u64>(), 1);
}

#[test]
fn a_retired_pool_is_gone_with_its_last_page() {
    for retired in [PoolLayout::adaptive(), slabs(), linear(), PoolLayout::exclusive()] {
        let mut rig = rig_of(retired.clone());
        let held: Vec<_> = (0..40).map(|i| rig.reserve(100 + i * 50, stream(i % 3))).collect();
        rig.install(&PoolLayout::fixed(MIB).unwrap()).unwrap();
        for (i, memory) in held.into_iter().enumerate() {
            assert!(pools(&rig).iter().any(|pool| pool.retired), "{retired}: {i}");
            let uses = if i % 2 == 0 { vec![] } else { vec![rig.device.issue(stream(9))] };
            rig.free(memory, &uses);
        }
        let now = rig.device.now();
        rig.device.finish_all(now);
        for _ in 0..200 {
            rig.pools.return_dedicated(&mut rig.storage, &rig.device);
        }
        rig.check();
        assert!(pools(&rig).iter().all(|pool| !pool.retired), "{retired}");
        assert_eq!(rig.storage.pages(), 0, "{retired}");
    }
}

#[test]
fn persistent_and_dedicated_allocations_are_not_touched() {
    let mut rig = Rig::new();
    let modes = [AllocationMode::Persistent, AllocationMode::Dedicated];
    let held = modes.map(|mode| rig.try_reserve(5000, stream(1), mode).unwrap());
    let kept = rig.try_reserve(7000, stream(1), AllocationMode::Persistent).unwrap();
    let (page, places) = (rig.place(kept).0, held.map(|memory| rig.place(memory)));
    rig.free(kept, &[]);
    rig.install(&slabs()).unwrap();
    assert_eq!(held.map(|memory| rig.place(memory)), places);
    let again = rig.try_reserve(7000, stream(1), AllocationMode::Persistent).unwrap();
    assert_eq!(rig.place(again).0, page, "it was kept for the size");
}

#[test]
fn a_layout_installed_again_goes_on_where_it_was() {
    let mut rig = rig_of(slabs());
    let held = rig.reserve(2000, stream(1));
    let freed = rig.reserve(3000, stream(1));
    rig.free(freed, &[]);
    for _ in 0..100 {
        rig.install(&slabs()).unwrap();
        assert_eq!((rig.storage.pages(), pools(&rig).len()), (1, 4));
        rig.install(&linear()).unwrap();
        assert_eq!((rig.storage.pages(), pools(&rig).len()), (1, 4), "the pool that holds a page, retired");
    }
    rig.install(&slabs()).unwrap();
    let again = rig.reserve(3000, stream(1));
    assert_eq!(rig.place(again).0, rig.place(held).0);
}

#[test]
fn a_request_that_would_fail_is_served_from_pages_of_the_layout_before() {
    let mut rig = rig_of(PoolLayout::fixed(MIB).unwrap());
    rig.storage.capacity = MIB;
    let (kept, freed) = (rig.reserve(MIB / 2, stream(1)), rig.reserve(MIB / 2, stream(1)));
    rig.free(freed, &[]);
    rig.install(&slabs()).unwrap();
    let memory = rig.reserve(1000, stream(1));
    assert_eq!(rig.place(memory).0, rig.place(kept).0);
    let last = rig.device.issue(stream(1));
    rig.free(kept, &[last]);
    let Err(Pressure::Wait(until)) = rig.try_reserve(512 * KIB, stream(2), AllocationMode::Auto) else { panic!() };
    assert_eq!(until.moments(), [last], "that is what helps");
}

#[test]
fn slots_larger_than_any_page_are_refused_with_both_sizes_and_nothing_changes() {
    let mut rig = Rig::new();
    rig.storage.max_page = 4 * MIB;
    let large = layout(vec![PoolDescription::slabs("huge", 5 * MIB, PageSizes::fixed(64 * MIB))]);
    let Err(Error::InvalidLayout { why }) = rig.install(&large) else { panic!() };
    assert!(why.contains("`huge`") && why.contains("5242880") && why.contains("4194304"), "{why}");
    assert_eq!((rig.pools.config().layout.pools()[0].name.as_str(), pools(&rig).len()), ("general", 3));
}

#[test]
fn a_drain_forgets_pools_of_earlier_layouts() {
    let mut rig = rig_of(slabs());
    rig.reserve(100, stream(1));
    rig.install(&linear()).unwrap();
    rig.reserve(100, stream(1));
    assert_eq!((pools(&rig).len(), rig.storage.pages()), (4, 2));
    rig.pools.drain(&mut rig.storage);
    rig.check();
    assert_eq!((pools(&rig).len(), rig.storage.pages()), (3, 0));
    rig.reserve(100, stream(1));
    assert_eq!(pool(&rig, "frames").allocations, 1);
}

// ---- little memory

#[test]
fn with_little_memory_what_needs_a_page_of_its_own_finds_room_beside_the_pool() {
    for mode in [AllocationMode::Persistent, AllocationMode::Dedicated] {
        let mut rig = rig_of(PoolLayout::default());
        (rig.storage.capacity, rig.storage.max_page) = (MIB, MIB);
        rig.reserve(2048, stream(1));
        rig.try_reserve(2048, stream(1), mode).unwrap();
        assert!(rig.storage.bytes <= MIB / 8 + 2048, "{}", rig.storage.bytes);
    }
}

#[test]
fn a_persistent_request_lies_inside_a_page_rather_than_fail() {
    let mut rig = rig_of(PoolLayout::fixed(MIB).unwrap());
    rig.storage.capacity = MIB;
    let auto = rig.reserve(2048, stream(1));
    let persistent = rig.try_reserve(2048, stream(1), AllocationMode::Persistent).unwrap();
    assert_eq!(rig.place(persistent).0, rig.place(auto).0);
    rig.free(auto, &[]);
    rig.cleanup();
    assert_eq!(rig.storage.pages(), 1, "it is in use");
    assert!(matches!(rig.try_reserve(2048, stream(1), AllocationMode::Dedicated), Err(Pressure::Exhausted(_))));
}

#[test]
fn a_request_is_not_refused_because_its_slot_is_larger_than_what_there_is() {
    let slots = layout(vec![PoolDescription::slabs("slots", 8 * KIB, PageSizes::fixed(64 * KIB))]);
    let mut rig = Rig::with(PoolsConfig { layout: slots, budget: Some(4 * KIB), ..PoolsConfig::default() });
    rig.reserve(1000, stream(1));
    assert_eq!((pool(&rig, "dedicated").allocations, rig.storage.bytes), (1, 1024));
    let Err(Pressure::OverBudget(numbers)) = rig.try_reserve(4 * KIB, stream(1), AllocationMode::Auto) else {
        panic!()
    };
    assert_eq!((numbers.requested, numbers.reserved, numbers.budget), (4 * KIB, 1024, Some(4 * KIB)));
}

#[test]
fn the_devices_peak_stays_when_the_pools_that_made_it_are_gone() {
    let mut rig = rig_of(PoolLayout::fixed(MIB).unwrap());
    let held: Vec<_> = (0..3).map(|_| rig.reserve(MIB, stream(1))).collect();
    rig.install(&slabs()).unwrap();
    held.into_iter().for_each(|memory| rig.free(memory, &[]));
    rig.reserve(1, stream(1));
    let report = rig.pools.report(ReportScope::Device);
    assert_eq!((report.peak_reserved, report.total().peak_reserved), (3 * MIB, 3 * MIB));
    assert_eq!((report.total().reserved, report.pools.len()), (16 * KIB, 4));
}

#[test]
fn requests_that_get_larger_and_larger_leave_nothing_behind() {
    let mut rig = rig_of(PoolLayout::default());
    for size in 1..=200 {
        let memory = rig.reserve(size * MIB, stream(1));
        rig.free(memory, &[]);
    }
    assert!(rig.pools.report(ReportScope::Device).peak_reserved <= 210 * MIB);
}
