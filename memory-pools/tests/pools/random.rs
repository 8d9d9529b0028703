//! Random programs against a model that remembers every use of every byte.

use crate::double::*;
use proptest::prelude::*;
use trunnion_memory_pools::{PageId, PoolsConfig, Pressure};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::timeline::{Moment, Timeline};

#[derive(Clone, Debug)]
enum Action {
    Reserve { stream: u64, size: u64, mode: u8 },
    Use { which: usize, stream: u64 },
    Free { which: usize },
    Finish { stream: u64, back: u64 },
    Wait { stream: u64, other: u64 },
    Cleanup,
    Install { which: usize },
}

fn action() -> impl Strategy<Value = Action> {
    let streams = 1u64..7;
    let sizes = prop_oneof![3 => 1u64..5000, 2 => 1u64..200_000, 1 => 1u64..3_000_000];
    prop_oneof![
        6 => (streams.clone(), sizes, 0u8..12).prop_map(|(stream, size, mode)| Action::Reserve { stream, size, mode }),
        4 => (any::<usize>(), streams.clone()).prop_map(|(which, stream)| Action::Use { which, stream }),
        5 => any::<usize>().prop_map(|which| Action::Free { which }),
        2 => (streams.clone(), 0u64..40).prop_map(|(stream, back)| Action::Finish { stream, back }),
        2 => (streams.clone(), streams).prop_map(|(stream, other)| Action::Wait { stream, other }),
        1 => Just(Action::Cleanup),
        1 => (0..4usize).prop_map(|which| Action::Install { which }),
    ]
}

struct Live {
    memory: MemoryId,
    page: PageId,
    from: u64,
    to: u64,
    uses: Vec<Moment>,
}

/// Uses of bytes by tenants that are gone.
type Past = Vec<(PageId, u64, u64, Moment)>;

/// One of every kind of pool, alone and together.
fn layouts() -> Vec<PoolLayout> {
    let small = PageSizes::growing(64 * KIB, MIB, 12);
    let linear = PoolDescription::new("linear", Placement::Linear, small);
    let fit = PoolDescription::new("fit", Placement::Fit, PageSizes::growing(256 * KIB, 2 * MIB, 12));
    let pools = [
        vec![PoolDescription::slabs("a", 500, small), PoolDescription::slabs("b", 5000, small), fit],
        vec![linear.clone()],
        vec![
            linear.up_to(10_000),
            PoolDescription::new("exclusive", Placement::Exclusive, PageSizes::growing(1, 4 * MIB, 0)),
        ],
    ];
    [pages(256 * KIB, 2 * MIB)].into_iter().chain(pools.map(|pools| PoolLayout::new(pools).unwrap())).collect()
}

fn run(actions: Vec<Action>, budget: Option<u64>, layouts: &[PoolLayout]) {
    run_on(actions, budget, layouts, None);
}

/// The same on a storage whose pages grow in such steps, where they do.
fn run_on(actions: Vec<Action>, budget: Option<u64>, layouts: &[PoolLayout], growth_step: Option<u64>) {
    let config = PoolsConfig { budget, layout: layouts[0].clone(), growth_step, ..PoolsConfig::default() };
    let mut rig = Rig::with(config);
    let mut live: Vec<Live> = Vec::new();
    let mut past: Past = Vec::new();
    for action in actions {
        match action {
            Action::Reserve { stream: on, size, mode } => {
                let mode = match mode {
                    0 => AllocationMode::Dedicated,
                    1 => AllocationMode::Persistent,
                    _ => AllocationMode::Auto,
                };
                let mut result = rig.try_reserve(size, stream(on), mode);
                let mut waits = 0;
                while let Err(Pressure::Wait(until)) = &result {
                    assert!(!until.is_done(&rig.device));
                    rig.device.finish_frontier(until);
                    waits += 1;
                    assert!(waits < 3, "what was waited for makes the request succeed or fail");
                    result = rig.try_reserve(size, stream(on), mode);
                }
                let memory = match result {
                    Ok(memory) => memory,
                    Err(Pressure::OverBudget(numbers)) => {
                        assert!(budget.is_some_and(|b| numbers.reserved + size.next_multiple_of(256) > b));
                        continue;
                    }
                    Err(other) => panic!("{other}"),
                };
                assert!(budget.is_none_or(|budget| rig.storage.bytes <= budget));
                let (page, from, size) = rig.place(memory);
                assert!(from.is_multiple_of(256));
                let to = from + size;
                for other in &live {
                    assert!(other.page != page || other.to <= from || to <= other.from, "live blocks overlap");
                }
                for (page_was, from_was, to_was, at) in &past {
                    if *page_was == page && *from_was < to && from < *to_was {
                        let free = rig.device.is_done(*at) || rig.device.is_ordered_after(stream(on), *at);
                        assert!(free, "{memory} on {on} would overtake {at:?}");
                    }
                }
                let first = rig.device.issue(stream(on));
                live.push(Live { memory, page, from, to, uses: vec![first] });
            }
            Action::Use { which, stream: on } if !live.is_empty() => {
                let index = which % live.len();
                // As the tracker does: a later use is ordered after the allocation.
                let first = live[index].uses[0];
                rig.device.wait(stream(on), first);
                let at = rig.device.issue(stream(on));
                live[index].uses.push(at);
            }
            Action::Free { which } if !live.is_empty() => {
                let gone = live.swap_remove(which % live.len());
                rig.free(gone.memory, &gone.uses);
                past.extend(gone.uses.iter().map(|at| (gone.page, gone.from, gone.to, *at)));
            }
            Action::Finish { stream: on, back } => {
                let seq = rig.device.now().saturating_sub(back);
                rig.device.finish(stream(on), seq);
            }
            Action::Wait { stream: on, other } => {
                let at = Moment { stream: stream(other), seq: rig.device.now() };
                rig.device.wait(stream(on), at);
            }
            Action::Cleanup => {
                rig.cleanup();
                let (pages, usage) = (rig.storage.pages(), rig.pools.usage());
                rig.cleanup();
                assert_eq!((rig.storage.pages(), rig.pools.usage()), (pages, usage), "a fixed point");
            }
            Action::Install { which } => rig.install(&layouts[which % layouts.len()]).unwrap(),
            Action::Use { .. } | Action::Free { .. } => {}
        }
    }
    for gone in live {
        rig.free(gone.memory, &gone.uses);
    }
    let now = rig.device.now();
    rig.device.finish_all(now);
    rig.cleanup();
    assert_eq!((rig.storage.pages(), rig.pools.usage()), (0, Default::default()), "no leak");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn memory_is_never_given_out_too_early(actions in prop::collection::vec(action(), 1..300)) {
        run(actions, None, &[pages(256 * KIB, 2 * MIB)]);
    }

    #[test]
    fn nor_under_a_budget(actions in prop::collection::vec(action(), 1..300)) {
        run(actions, Some(6 * MIB), &[pages(256 * KIB, 2 * MIB)]);
    }

    #[test]
    fn nor_from_any_kind_of_pool_while_layouts_are_replaced(actions in prop::collection::vec(action(), 1..300), first in 0..4usize) {
        let mut layouts = layouts();
        layouts.rotate_left(first);
        run(actions, None, &layouts);
    }

    #[test]
    fn nor_from_any_kind_of_pool_under_a_budget(actions in prop::collection::vec(action(), 1..300), first in 0..4usize) {
        let mut layouts = layouts();
        layouts.rotate_left(first);
        run(actions, Some(6 * MIB), &layouts);
    }

    #[test]
    fn nor_where_pages_grow(actions in prop::collection::vec(action(), 1..300), step in 0..3usize) {
        run_on(actions, None, &[pages(256 * KIB, 2 * MIB)], Some([256, 12 * KIB, 256 * KIB][step]));
    }

    #[test]
    fn nor_where_pages_of_any_kind_grow_under_a_budget(actions in prop::collection::vec(action(), 1..300), first in 0..4usize) {
        let mut layouts = layouts();
        layouts.rotate_left(first);
        run_on(actions, Some(10 * MIB), &layouts, Some(64 * KIB));
    }
}
