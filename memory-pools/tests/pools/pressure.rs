//! Budgets, refusals, waiting, and what the errors say.

use crate::double::*;
use trunnion_memory_pools::{PoolsConfig, Pressure};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::Rung;
use trunnion_runtime_core::pool_layout::{PageSizes, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::PoolKind;

fn budgeted(budget: u64) -> Rig {
    Rig::with(PoolsConfig { budget: Some(budget), layout: pages(MIB, 4 * MIB), ..PoolsConfig::default() })
}

#[test]
fn over_the_budget_is_refused_before_the_driver_is_asked() {
    let mut rig = budgeted(3 * MIB);
    let held: Vec<_> = (0..3).map(|_| rig.reserve(MIB, stream(1))).collect();
    let asked = rig.storage.asked;
    for mode in [AllocationMode::Auto, AllocationMode::Dedicated, AllocationMode::Persistent] {
        let Err(Pressure::OverBudget(numbers)) = rig.try_reserve(1000, stream(1), mode) else { panic!("{mode}") };
        assert_eq!((numbers.requested, numbers.live, numbers.reserved), (1000, 3 * MIB, 3 * MIB));
        assert_eq!((numbers.budget, numbers.largest_free, numbers.driver.as_ref()), (Some(3 * MIB), 0, None));
        assert!(numbers.tried.starts_with(&[Rung::Reuse, Rung::Merge]) && !numbers.tried.contains(&Rung::Grow));
    }
    assert_eq!(rig.storage.asked, asked);
    rig.free(held[1], &[]);
    rig.reserve(1000, stream(1));
}

#[test]
fn a_page_is_cut_to_what_the_budget_leaves() {
    let mut rig = budgeted(MIB + 512);
    rig.reserve(MIB, stream(1));
    rig.reserve(100, stream(1));
    assert_eq!(rig.storage.bytes, MIB + 512);
}

#[test]
fn empty_pages_make_room_in_the_budget_for_another_kind() {
    let mut rig = budgeted(4 * MIB);
    let placed: Vec<_> = (0..4).map(|_| rig.reserve(MIB, stream(1))).collect();
    placed.into_iter().for_each(|memory| rig.free(memory, &[]));
    assert_eq!(rig.storage.bytes, 4 * MIB);
    rig.try_reserve(3 * MIB, stream(1), AllocationMode::Dedicated).unwrap();
    assert_eq!(rig.storage.bytes, 4 * MIB, "three of four empty pages were returned");
    rig.pools.set_budget(Some(MIB));
    assert!(matches!(rig.try_reserve(3 * MIB, stream(1), AllocationMode::Persistent), Err(Pressure::OverBudget(_))));
    rig.pools.set_budget(None);
    rig.try_reserve(3 * MIB, stream(1), AllocationMode::Persistent).unwrap();
}

#[test]
fn pools_full_of_unfinished_frees_say_what_to_wait_for_and_then_succeed() {
    for mode in [AllocationMode::Auto, AllocationMode::Dedicated] {
        let mut rig = budgeted(4 * MIB);
        let held: Vec<_> = (0..16).map(|_| rig.reserve(256 * KIB, stream(1))).collect();
        for memory in held {
            let last = rig.device.issue(stream(1));
            rig.free(memory, &[last]);
        }
        for size in [256 * KIB, MIB, 3 * MIB] {
            let mut waits = 0;
            let memory = loop {
                match rig.try_reserve(size, stream(2), mode) {
                    Ok(memory) => break memory,
                    Err(Pressure::Wait(until)) => {
                        assert!(!until.is_done(&rig.device), "there is something to wait for");
                        rig.device.finish_frontier(&until);
                    }
                    Err(other) => panic!("{mode} {size}: {other}"),
                }
                waits += 1;
                assert!(waits < 3, "{mode} {size}: one wait is enough");
            };
            rig.free(memory, &[]);
        }
    }
}

#[test]
fn the_wait_is_for_the_earliest_memory_that_fits() {
    let mut rig = budgeted(MIB);
    let held: Vec<_> = (0..4).map(|_| rig.reserve(256 * KIB, stream(1))).collect();
    let uses: Vec<_> = (0..4).map(|s| rig.device.issue(stream(10 + s))).collect();
    for (memory, last) in held.into_iter().zip(&uses) {
        rig.free(memory, &[*last]);
    }
    let Err(Pressure::Wait(until)) = rig.try_reserve(100, stream(2), AllocationMode::Auto) else { panic!() };
    assert_eq!(until.moments(), [uses[0]]);
    let Err(Pressure::Wait(until)) = rig.try_reserve(500 * KIB, stream(2), AllocationMode::Auto) else { panic!() };
    assert_eq!(until.moments(), &uses[..2]);
    rig.device.finish_frontier(&until);
    rig.try_reserve(500 * KIB, stream(2), AllocationMode::Auto).unwrap();
}

#[test]
fn out_of_memory_at_every_request_of_a_scenario_spoils_that_request_only() {
    for mode in [AllocationMode::Auto, AllocationMode::Dedicated, AllocationMode::Persistent] {
        for k in 1..=8 {
            let mut rig = Rig::with(PoolsConfig { layout: pages(256, MIB), ..PoolsConfig::default() });
            rig.storage.refuse = Some((k, false));
            let mut refused = 0;
            let mut held = Vec::new();
            for i in 0..8 {
                match rig.try_reserve(1000 * (i + 1), stream(1), mode) {
                    Ok(memory) => held.push(memory),
                    Err(Pressure::Refused(error)) => {
                        assert_eq!(error.message, "told to refuse");
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!((refused, held.len()), (1, 7));
            held.into_iter().for_each(|memory| rig.free(memory, &[]));
            rig.cleanup();
            assert_eq!(rig.storage.pages(), 0, "{mode} {k}");
        }
    }
}

#[test]
fn a_driver_without_memory_is_asked_for_less_and_after_trimming() {
    let mut rig = Rig::with(PoolsConfig { layout: pages(2 * MIB, 512 * MIB), ..PoolsConfig::default() });
    rig.storage.capacity = MIB;
    rig.reserve(MIB, stream(1));
    let Err(Pressure::Exhausted(numbers)) = rig.try_reserve(2 * MIB, stream(1), AllocationMode::Auto) else { panic!() };
    assert_eq!((numbers.requested, numbers.driver_free), (2 * MIB, Some(0)));
    assert_eq!(numbers.driver.as_deref(), Some("the device is full"));
    assert_eq!(
        numbers.tried,
        [Rung::Reuse, Rung::Merge, Rung::Grow, Rung::Merge, Rung::Trim, Rung::Grow],
        "what was tried, in order"
    );
    rig.storage.capacity = 4 * MIB;
    rig.reserve(2 * MIB, stream(1));
}

#[test]
fn what_is_larger_than_any_page_is_dedicated_and_what_is_too_large_says_the_limit() {
    let mut rig =
        Rig::with(PoolsConfig { layout: pages(2 * MIB, 4 * MIB), max_allocation: 100 * MIB, ..PoolsConfig::default() });
    let memory = rig.reserve(50 * MIB, stream(1));
    assert_eq!(rig.storage.bytes, 50 * MIB);
    rig.free(memory, &[]);
    assert_eq!(rig.storage.bytes, 0);
    let too_large = |requested, limit| Err(Pressure::TooLarge { requested, limit });
    for size in [100 * MIB + 1, 5 << 30, u64::MAX] {
        assert_eq!(rig.try_reserve(size, stream(1), AllocationMode::Auto), too_large(size, 100 * MIB));
    }
    rig.storage.max_page = MIB;
    assert_eq!(rig.try_reserve(2 * MIB, stream(1), AllocationMode::Auto), too_large(2 * MIB, MIB));
    rig.reserve(MIB, stream(1));
    assert_eq!(rig.storage.bytes, MIB);
}

#[test]
fn a_reusable_block_is_found_in_a_long_list_of_slightly_smaller_ones() {
    let mut rig = Rig::with(PoolsConfig { layout: pages(64 * MIB, 64 * MIB), ..PoolsConfig::default() });
    // Blocks of 1,024 units and one of 1,040, of one class, each between blocks that stay.
    let mut freed = vec![];
    for i in 0..50 {
        freed.push(rig.reserve(if i == 0 { 1040 * 256 } else { 1024 * 256 }, stream(1)));
        rig.reserve(256, stream(1));
    }
    let rest = 64 * MIB - rig.pools.usage().live;
    rig.reserve(rest, stream(1));
    freed.into_iter().for_each(|memory| rig.free(memory, &[]));
    rig.reserve(1040 * 256, stream(1));
    assert_eq!(rig.storage.pages(), 1);
}

#[test]
fn a_slot_in_use_and_a_stale_id_are_noticed() {
    let mut rig = Rig::new();
    let memory = rig.reserve(100, stream(1));
    let request = trunnion_memory_pools::Request { memory, size: 1, stream: stream(1), mode: AllocationMode::Auto };
    let again = rig.pools.reserve(&mut rig.storage, &request, &rig.device);
    assert_eq!(again, Err(Pressure::InUse { memory }));
    rig.free(memory, &[]);
    assert!(!rig.pools.free(&mut rig.storage, memory, frontier(&[]), &rig.device));
    let stale = trunnion_runtime_core::id::MemoryId { index: 999_999, generation: 0 };
    assert!(rig.pools.place(stale).is_none());
    assert!(!rig.pools.free(&mut rig.storage, stale, frontier(&[]), &rig.device));
}

#[test]
fn a_budget_that_was_lowered_is_met_before_a_request_is_refused() {
    for mode in [AllocationMode::Persistent, AllocationMode::Auto] {
        let mut rig = budgeted(64 * MIB);
        let held: Vec<_> = (0..8).map(|_| rig.try_reserve(4 * MIB, stream(1), mode).unwrap()).collect();
        held.into_iter().for_each(|memory| rig.free(memory, &[]));
        assert_eq!(rig.storage.bytes, 32 * MIB);
        rig.pools.set_budget(Some(MIB));
        rig.try_reserve(512 * KIB, stream(1), AllocationMode::Dedicated).unwrap();
        assert!(rig.storage.bytes <= MIB);
    }
}

#[test]
fn what_is_waited_for_meets_a_budget_that_was_lowered() {
    let mut rig = budgeted(64 * MIB);
    let held: Vec<_> =
        (0..4).map(|_| rig.try_reserve(8 * MIB, stream(1), AllocationMode::Persistent).unwrap()).collect();
    for memory in held {
        let last = rig.device.issue(stream(1));
        rig.free(memory, &[last]);
    }
    rig.pools.set_budget(Some(9 * MIB));
    let Err(Pressure::Wait(until)) = rig.try_reserve(MIB, stream(2), AllocationMode::Dedicated) else {
        panic!("three of the four have to go");
    };
    assert_eq!(until.moments()[0].seq, 3);
    rig.device.finish_frontier(&until);
    rig.try_reserve(MIB, stream(2), AllocationMode::Dedicated).unwrap();
    assert!(rig.storage.bytes <= 9 * MIB);
}

#[test]
fn slots_larger_than_any_page_leave_a_request_with_memory_of_its_own() {
    let layout = PoolLayout::new(vec![PoolDescription::slabs("slots", MIB, PageSizes::fixed(4 * MIB))]).unwrap();
    let mut rig = Rig::with(PoolsConfig { layout, ..PoolsConfig::default() });
    rig.storage.max_page = 512 * KIB;
    let memory = rig.reserve(1000, stream(1));
    assert_eq!(rig.pools.place(memory).unwrap().page.kind, PoolKind::Dedicated);
}
