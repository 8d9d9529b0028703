//! Memory of somebody else: placed where it is, in no sum, and let go of with its last use.

use crate::double::*;
use alloc::sync::Arc;
use trunnion_memory_pools::{ImportedPage, PoolsConfig, Pressure, Storage};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::report::{MemoryUsage, PoolKind, ReportScope};

/// A page of somebody else, and how many hold what belongs to it.
fn foreign(rig: &mut Rig, size: u64) -> (ImportedPage<Page>, Arc<()>) {
    let held = Arc::new(());
    let page = rig.storage.lend(640 + size);
    (ImportedPage { page, offset: 640, foreign: Foreign::new(held.clone()) }, held)
}

fn import(rig: &mut Rig, size: u64) -> (MemoryId, Arc<()>) {
    let memory = rig.next_memory();
    let (page, held) = foreign(rig, size);
    rig.pools.import(memory, size, stream(1), page).unwrap();
    rig.check();
    (memory, held)
}

#[test]
fn imported_memory_is_where_it_is_and_in_no_sum() {
    let mut rig = Rig::new();
    rig.reserve(1000, stream(1));
    let before = (rig.pools.usage(), rig.pools.report(ReportScope::Device));
    let (memory, _held) = import(&mut rig, 777);
    let place = rig.pools.place(memory).unwrap();
    assert_eq!((place.offset, place.size, place.page.kind), (640, 777, PoolKind::Imported));
    assert_eq!(rig.pools.usage(), before.0);
    let report = rig.pools.report(ReportScope::Device);
    assert_eq!((report.usage(), report.peak_reserved), (before.1.usage(), before.1.peak_reserved));
    let (line, others) = report.pools.split_last().unwrap();
    assert_eq!(others, before.1.pools);
    assert_eq!(
        (line.kind, line.live, line.reserved, line.padding, line.free, line.pages),
        (PoolKind::Imported, 777, 777, 0, 0, 1)
    );
    assert!(rig.pools.live().all(|(live, ..)| live != memory), "a recording asks for no memory of somebody else");
}

#[test]
fn it_is_let_go_of_when_its_last_use_is_done_and_not_by_a_clean_up() {
    let mut rig = Rig::new();
    let (memory, held) = import(&mut rig, 5000);
    rig.cleanup();
    let last = rig.device.issue(stream(1));
    rig.free(memory, &[last]);
    rig.cleanup();
    assert!(!rig.pools.is_any_over() && rig.storage.lent() == 1, "still in use");
    rig.device.finish_all(last.seq);
    rig.pools.return_dedicated(&mut rig.storage, &rig.device);
    assert_eq!((rig.storage.lent(), Arc::strong_count(&held)), (0, 2));
    assert_eq!(rig.pools.take_over().len(), 1);
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(rig.pools.take_over().is_empty());
}

#[test]
fn it_serves_no_request_whatever_is_missing() {
    let config = PoolsConfig { layout: pages(MIB, 64 * MIB), budget: Some(MIB), ..PoolsConfig::default() };
    let mut rig = Rig::with(config);
    let (memory, _held) = import(&mut rig, 8 * MIB);
    let last = rig.device.issue(stream(1));
    rig.free(memory, &[last]);
    for mode in [AllocationMode::Auto, AllocationMode::Dedicated, AllocationMode::Persistent] {
        for size in [8 * MIB, 2 * MIB] {
            let refused = rig.try_reserve(size, stream(1), mode).unwrap_err();
            // Waiting for it would bring no room.
            let Pressure::OverBudget(numbers) = refused else { panic!("{refused}") };
            assert_eq!((numbers.reserved, numbers.budget), (0, Some(MIB)));
        }
    }
    let own = rig.reserve(MIB / 2, stream(1));
    assert_ne!(rig.pools.place(own).unwrap().page.kind, PoolKind::Imported);
}

#[test]
fn a_drain_lets_go_of_everything() {
    let mut rig = Rig::new();
    let (_, live) = import(&mut rig, 100);
    let (freed, unfinished) = import(&mut rig, 200);
    let last = rig.device.issue(stream(1));
    rig.free(freed, &[last]);
    rig.pools.drain(&mut rig.storage);
    assert_eq!((rig.storage.lent(), rig.pools.take_over().len()), (0, 2));
    assert_eq!((Arc::strong_count(&live), Arc::strong_count(&unfinished)), (1, 1));
    assert_eq!(rig.pools.usage(), MemoryUsage::default());
}

#[test]
fn a_slot_that_is_taken_gives_the_page_back() {
    let mut rig = Rig::new();
    let memory = rig.reserve(100, stream(1));
    let (page, held) = foreign(&mut rig, 100);
    let refused = rig.pools.import(memory, 100, stream(1), page).unwrap_err();
    rig.storage.release(refused.page);
    drop(refused.foreign);
    assert_eq!((Arc::strong_count(&held), rig.place(memory).1), (1, 0));
}
