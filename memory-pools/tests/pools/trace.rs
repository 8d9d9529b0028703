//! A recording of pools in use replays to what they did.

use crate::double::*;
use proptest::prelude::*;
use trunnion_memory_pools::trace::{Event, Recorder, Sink, Trace, replay};
use trunnion_memory_pools::{PoolsConfig, Pressure, Request};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::ReportScope;
use trunnion_runtime_core::timeline::Moment;

/// A rig that is recorded.
struct Recorded<K> {
    rig: Rig,
    recorder: Recorder<K>,
    next: u32,
}

impl<K: Sink> Recorded<K> {
    fn new(rig: Rig, sink: K) -> Self {
        let recorder = Recorder::new(sink, &[("test", "yes")], &rig.pools);
        // Ids that the rig has not given out.
        Self { rig, recorder, next: 1000 }
    }

    fn reserve(&mut self, size: u64, on: u64, mode: AllocationMode) -> Option<MemoryId> {
        let memory = MemoryId { index: self.next, generation: 3 };
        self.next += 1;
        let request = Request { memory, size, stream: stream(on), mode };
        let Rig { pools, storage, device, .. } = &mut self.rig;
        loop {
            match pools.reserve(storage, &request, device) {
                Ok(()) => {
                    self.recorder.served(&request, device);
                    return Some(memory);
                }
                Err(Pressure::Wait(until)) => {
                    self.recorder.waits(&request, device);
                    device.finish_frontier(&until);
                }
                Err(cause) => {
                    self.recorder.refused(&request, &cause, device);
                    return None;
                }
            }
        }
    }

    fn free(&mut self, memory: MemoryId, uses: &[Moment]) {
        let Rig { pools, storage, device, .. } = &mut self.rig;
        let uses = frontier(uses);
        self.recorder.freed(memory, &uses, device);
        pools.free(storage, memory, uses, device);
    }
}

#[derive(Clone, Debug)]
enum Action {
    Reserve { on: u64, size: u64, mode: u8 },
    Use { which: usize, on: u64 },
    Free { which: usize },
    Finish { on: u64, back: u64 },
    Wait { on: u64, other: u64 },
    Cleanup,
}

fn action() -> impl Strategy<Value = Action> {
    let streams = 1u64..7;
    let sizes = prop_oneof![3 => 1u64..5000, 2 => 1u64..200_000, 1 => 1u64..3_000_000];
    prop_oneof![
        6 => (streams.clone(), sizes, 0u8..12).prop_map(|(on, size, mode)| Action::Reserve { on, size, mode }),
        4 => (any::<usize>(), streams.clone()).prop_map(|(which, on)| Action::Use { which, on }),
        5 => any::<usize>().prop_map(|which| Action::Free { which }),
        2 => (streams.clone(), 0u64..40).prop_map(|(on, back)| Action::Finish { on, back }),
        2 => (streams.clone(), streams).prop_map(|(on, other)| Action::Wait { on, other }),
        1 => Just(Action::Cleanup),
    ]
}

/// Layouts of every kind of pool, alone and together.
fn layouts() -> Vec<PoolLayout> {
    let sizes = PageSizes::growing(64 * KIB, 2 * MIB, 12);
    let of = |pools| PoolLayout::new(pools).unwrap();
    vec![
        pages(256 * KIB, 2 * MIB),
        of(vec![PoolDescription::new("step", Placement::Linear, sizes)]),
        of(vec![PoolDescription::new("each", Placement::Exclusive, sizes)]),
        of(vec![
            PoolDescription::slabs("slots", 3000, sizes),
            PoolDescription::new("steps", Placement::Linear, sizes).up_to(20_000),
            PoolDescription::new("middle", Placement::Fit, sizes).up_to(200_000),
            PoolDescription::new("each", Placement::Exclusive, sizes),
        ]),
    ]
}

fn run(actions: Vec<Action>, budget: Option<u64>, layout: PoolLayout) -> (Trace, Rig) {
    run_on(actions, PoolsConfig { budget, layout, ..PoolsConfig::default() })
}

fn run_on(actions: Vec<Action>, config: PoolsConfig) -> (Trace, Rig) {
    let mut it = Recorded::new(Rig::with(PoolsConfig { max_allocation: 1 << 40, ..config }), String::new());
    let mut live: Vec<(MemoryId, Vec<Moment>)> = Vec::new();
    for action in actions {
        match action {
            Action::Reserve { on, size, mode } => {
                let mode = match mode {
                    0 => AllocationMode::Dedicated,
                    1 => AllocationMode::Persistent,
                    _ => AllocationMode::Auto,
                };
                if let Some(memory) = it.reserve(size, on, mode) {
                    let first = it.rig.device.issue(stream(on));
                    live.push((memory, vec![first]));
                }
            }
            Action::Use { which, on } if !live.is_empty() => {
                let index = which % live.len();
                let first = live[index].1[0];
                it.rig.device.wait(stream(on), first);
                let at = it.rig.device.issue(stream(on));
                live[index].1.push(at);
            }
            Action::Free { which } if !live.is_empty() => {
                let (memory, uses) = live.swap_remove(which % live.len());
                it.free(memory, &uses);
            }
            Action::Finish { on, back } => {
                let seq = it.rig.device.now().saturating_sub(back);
                it.rig.device.finish(stream(on), seq);
                // As a device does that has learnt of it, and as a replay does.
                let Rig { pools, storage, device, .. } = &mut it.rig;
                pools.return_dedicated(storage, device);
            }
            Action::Wait { on, other } => {
                let at = Moment { stream: stream(other), seq: it.rig.device.now() };
                it.rig.device.wait(stream(on), at);
            }
            Action::Cleanup => {
                let Rig { pools, storage, device, .. } = &mut it.rig;
                pools.cleanup(storage, device);
                it.recorder.cleaned_up(device);
            }
            Action::Use { .. } | Action::Free { .. } => {}
        }
    }
    it.recorder.end();
    assert_eq!(it.recorder.fault(), None);
    let text = it.recorder.into_sink();
    (Trace::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), it.rig)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_recording_replayed_on_the_same_pools_does_what_they_did(
        actions in prop::collection::vec(action(), 1..300),
        layout in prop::sample::select(layouts()),
    ) {
        let (trace, rig) = run(actions, None, layout.clone());
        prop_assert_eq!(&trace.pools.as_ref().unwrap().layout, &layout);
        let report = replay(&trace, &trace.pools.clone().unwrap());
        let end = rig.pools.report(ReportScope::Device);
        for (replayed, recorded) in report.end.pools.iter().zip(&end.pools) {
            let numbers = |pool: &trunnion_runtime_core::report::PoolReport| (
                pool.kind, pool.allocations, pool.live, pool.padding, pool.peak_live, pool.reused, pool.grown,
            );
            prop_assert_eq!(numbers(replayed), numbers(recorded));
            // What is dedicated goes back when a replay is told, which may be a little later.
            prop_assert!(replayed.reserved >= recorded.reserved && replayed.peak_reserved >= recorded.peak_reserved);
        }
        let governed = ..layout.pools().len();
        prop_assert_eq!(&report.end.pools[governed], &end.pools[governed]);
        prop_assert_eq!(Trace::parse(&trace.to_string()).unwrap(), trace);
    }

    #[test]
    fn and_under_a_budget_every_request_is_in_it(
        actions in prop::collection::vec(action(), 1..300),
        layout in prop::sample::select(layouts()),
    ) {
        let (trace, rig) = run(actions, Some(6 * MIB), layout);
        let config = trace.pools.clone().unwrap();
        prop_assert_eq!(config.budget, Some(6 * MIB));
        let report = replay(&trace, &config);
        prop_assert!(report.peak_reserved <= 6 * MIB);
        let served = trace.events.iter().filter(|event| matches!(event, Event::Request(r) if r.refused.is_none()));
        let end = rig.pools.report(ReportScope::Device).total();
        prop_assert_eq!(served.count() as u64, end.reused + end.grown);
    }
}

#[test]
fn a_recording_that_begins_late_has_what_is_live() {
    let mut rig = Rig::new();
    let auto = rig.reserve(5000, stream(4));
    let kept = rig.try_reserve(700, stream(5), AllocationMode::Persistent).unwrap();
    let gone = rig.reserve(60, stream(4));
    rig.free(gone, &[]);
    let mut it = Recorded::new(rig, String::new());
    it.free(auto, &[]);
    it.free(gone, &[]);
    it.free(kept, &[]);
    it.recorder.end();
    let trace = Trace::parse(&it.recorder.into_sink()).unwrap();
    let report = replay(&trace, &PoolsConfig::default());
    assert_eq!((report.requests, report.frees, report.peak_live, report.labels.len()), (2, 2, 5700, 1));
    let Event::Request(request) = &trace.events[1] else { panic!("{trace}") };
    assert_eq!((request.stream, request.mode), (stream(5), AllocationMode::Persistent));
}

#[test]
fn what_a_request_waited_for_is_not_done_before_it_waited() {
    let layout = pages(64 * KIB, MIB);
    let config = PoolsConfig { budget: Some(64 * KIB), layout, ..PoolsConfig::default() };
    let mut it = Recorded::new(Rig::with(config), String::new());
    let first = it.reserve(64 * KIB, 1, AllocationMode::Auto).unwrap();
    let used = it.rig.device.issue(stream(1));
    it.free(first, &[used]);
    assert!(it.reserve(64 * KIB, 2, AllocationMode::Auto).is_some());
    it.recorder.end();
    let trace = Trace::parse(&it.recorder.into_sink()).unwrap();
    let report = replay(&trace, &trace.pools.clone().unwrap());
    assert_eq!((report.waits, report.failed, report.pages_taken), (1, 0, 1));
}

#[test]
fn what_pools_round_up_where_they_join_uses_is_known_to_be_done() {
    // More streams used the page than a frontier keeps apart.
    let layout = layouts().swap_remove(1);
    let mut it = Recorded::new(Rig::with(PoolsConfig { layout, ..PoolsConfig::default() }), String::new());
    let live: Vec<_> = (1..=6).map(|on| it.reserve(1000, on, AllocationMode::Auto).unwrap()).collect();
    let uses: Vec<_> = (1..=6).map(|on| it.rig.device.issue(stream(on))).collect();
    live.into_iter().zip(&uses).for_each(|(memory, at)| it.free(memory, &[*at]));
    uses.iter().for_each(|at| it.rig.device.finish(at.stream, at.seq));
    let Rig { pools, storage, device, .. } = &mut it.rig;
    pools.cleanup(storage, device);
    it.recorder.cleaned_up(device);
    it.recorder.end();
    let trace = Trace::parse(&it.recorder.into_sink()).unwrap();
    let report = replay(&trace, &trace.pools.clone().unwrap());
    assert_eq!((it.rig.pools.usage().reserved, report.end.total().reserved), (0, 0));
    assert!(trace.events.contains(&Event::AllDone(uses[5].seq)), "{trace}");
}

/// Takes some lines and then none.
struct Full(usize);

impl Sink for Full {
    fn line(&mut self, _: &str) -> Result<(), String> {
        self.0 = self.0.checked_sub(1).ok_or("the disk is full")?;
        Ok(())
    }
}

#[test]
fn a_sink_that_fails_ends_the_recording_and_not_the_pools() {
    let mut it = Recorded::new(Rig::new(), Full(6));
    for _ in 0..10 {
        let memory = it.reserve(100, 1, AllocationMode::Auto).unwrap();
        it.free(memory, &[]);
    }
    // The first lines are no events.
    assert_eq!((it.recorder.events(), it.recorder.fault()), (2, Some("the disk is full")));
    assert_eq!(it.rig.pools.usage().live, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_recording_of_pages_that_grow_is_replayed_on_pages_that_grow(
        actions in prop::collection::vec(action(), 1..300),
        layout in prop::sample::select(layouts()),
    ) {
        let config = PoolsConfig { layout: layout.clone(), growth_step: Some(64 * KIB), ..PoolsConfig::default() };
        let (trace, rig) = run_on(actions, config);
        prop_assert_eq!(trace.pools.as_ref().unwrap().growth_step, Some(64 * KIB));
        let report = replay(&trace, &trace.pools.clone().unwrap());
        let end = rig.pools.report(ReportScope::Device);
        let governed = ..layout.pools().len();
        prop_assert_eq!(&report.end.pools[governed], &end.pools[governed]);
        prop_assert_eq!(Trace::parse(&trace.to_string()).unwrap(), trace);
    }
}
