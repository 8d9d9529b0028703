//! Persistent and dedicated allocations, reports, clean-up and drain.

use crate::double::*;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::report::{PoolKind, ReportScope};

#[test]
fn a_persistent_set_allocated_dropped_and_cleaned_up_returns_to_the_baseline_every_time() {
    let mut rig = Rig::new();
    rig.reserve(100, stream(1));
    let baseline = rig.pools.usage();
    for round in 0..1000 {
        let set: Vec<_> =
            (1..=10).map(|i| rig.try_reserve(i * 10_000, stream(round), AllocationMode::Persistent).unwrap()).collect();
        for memory in set {
            let last = rig.device.issue(stream(round));
            rig.free(memory, &[last]);
        }
        let now = rig.device.now();
        rig.device.finish_all(now);
        rig.cleanup();
        assert_eq!(rig.pools.usage(), baseline);
    }
}

#[test]
fn persistent_memory_is_an_exact_fit_survives_cleanups_and_is_reused_at_the_same_size() {
    let mut rig = Rig::new();
    let a = rig.try_reserve(512 * 100, stream(1), AllocationMode::Persistent).unwrap();
    let place = rig.place(a);
    rig.cleanup();
    assert_eq!(rig.place(a), place);
    assert_eq!(rig.storage.bytes, 512 * 100);
    rig.free(a, &[]);
    let smaller = rig.try_reserve(512 * 99, stream(1), AllocationMode::Persistent).unwrap();
    assert_ne!(rig.place(smaller).0, place.0);
    let same = rig.try_reserve(512 * 100, stream(2), AllocationMode::Persistent).unwrap();
    assert_eq!(rig.place(same), place);
}

#[test]
fn a_persistent_block_in_use_elsewhere_is_passed_over() {
    let mut rig = Rig::new();
    let set: Vec<_> = (0..20).map(|_| rig.try_reserve(1000, stream(1), AllocationMode::Persistent).unwrap()).collect();
    let done = rig.place(set[0]).0;
    for memory in &set {
        let last = rig.device.issue(stream(1));
        rig.free(*memory, &[last]);
    }
    let earliest = rig.device.now() - 19;
    rig.device.finish_all(earliest);
    let memory = rig.try_reserve(1000, stream(2), AllocationMode::Persistent).unwrap();
    assert_eq!(rig.place(memory).0, done, "the only one that is done, freed the longest ago");
}

#[test]
fn dedicated_memory_goes_back_by_itself_once_its_use_is_done() {
    let mut rig = Rig::new();
    let a = rig.try_reserve(5000, stream(1), AllocationMode::Dedicated).unwrap();
    assert_eq!(rig.storage.bytes, 5120);
    let last = rig.device.issue(stream(1));
    rig.free(a, &[last]);
    assert_eq!(rig.storage.bytes, 5120, "still in use");
    rig.device.finish_all(last.seq);
    rig.reserve(100, stream(2));
    assert_eq!(rig.storage.bytes, MIB, "the next request returned it");
}

#[test]
fn dedicated_memory_that_is_unfinished_is_reused_by_its_stream() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        let a = rig.reserve(100 * MIB, stream(1));
        let last = rig.device.issue(stream(1));
        rig.free(a, &[last]);
    }
    assert_eq!(rig.storage.asked, 1);
}

#[test]
fn a_report_names_the_pools_in_order_and_tells_streams_apart() {
    let mut rig = Rig::new();
    let general = rig.reserve(1000, stream(1));
    rig.try_reserve(2000, stream(1), AllocationMode::Persistent).unwrap();
    rig.try_reserve(3000, stream(2), AllocationMode::Dedicated).unwrap();
    let report = rig.pools.report(ReportScope::Device);
    let kinds: Vec<_> = report.pools.iter().map(|p| (p.kind, p.allocations, p.live, p.reserved, p.grown)).collect();
    assert_eq!(
        kinds,
        [
            (PoolKind::General, 1, 1000, MIB, 1),
            (PoolKind::Dedicated, 1, 3000, 3072, 1),
            (PoolKind::Persistent, 1, 2000, 2048, 1)
        ]
    );
    let one = rig.pools.report(ReportScope::Stream(stream(1))).total();
    assert_eq!((one.allocations, one.live, one.padding, one.free, one.reserved), (2, 3000, 72, 0, 3072));
    let two = rig.pools.report(ReportScope::Stream(stream(2))).usage();
    assert_eq!((two.allocations, two.live), (1, 3000));
    rig.free(general, &[]);
    rig.reserve(10, stream(3));
    let report = rig.pools.report(ReportScope::Device);
    assert_eq!((report.pools[0].reused, report.pools[0].peak_live), (1, 1000));
    assert!(report.to_string().contains("persistent"));
}

#[test]
fn a_gibibyte_dropped_and_cleaned_is_returned() {
    let mut rig = Rig::new();
    let held: Vec<_> = (0..1024).map(|_| rig.reserve(MIB, stream(1))).collect();
    let total = rig.pools.report(ReportScope::Device).total();
    assert!(total.reserved <= 1024 * MIB + 1024 * MIB / 8, "{}", total.reserved);
    assert!(total.pages <= 60, "{} pages", total.pages);
    held.into_iter().for_each(|memory| rig.free(memory, &[]));
    rig.cleanup();
    assert_eq!(rig.pools.usage().reserved, 0);
}

#[test]
fn a_drain_returns_everything_and_the_pools_go_on_from_nothing() {
    let mut rig = Rig::new();
    let live = rig.reserve(1000, stream(1));
    for mode in [AllocationMode::Auto, AllocationMode::Dedicated, AllocationMode::Persistent] {
        rig.try_reserve(5000, stream(1), mode).unwrap();
        let freed = rig.try_reserve(6000, stream(1), mode).unwrap();
        let last = rig.device.issue(stream(1));
        rig.free(freed, &[last]);
    }
    rig.pools.drain(&mut rig.storage);
    rig.check();
    assert_eq!((rig.storage.pages(), rig.pools.usage().live), (0, 0));
    assert!(rig.pools.place(live).is_none());
    assert!(!rig.pools.free(&mut rig.storage, live, frontier(&[]), &rig.device));
    rig.pools.drain(&mut rig.storage);
    rig.reserve(1000, stream(1));
}
