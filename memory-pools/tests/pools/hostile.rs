//! Random programs where everything goes wrong: a driver that refuses, streams that never finish, budgets, layouts and drains at any
//! time, at several alignments.

use crate::double::*;
use proptest::prelude::*;
use std::collections::HashSet;
use trunnion_memory_pools::{MemoryPools, PoolsConfig, Pressure, Request, Storage, StorageError};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::{PoolKind, ReportScope};
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

const STREAMS: u64 = 7;
/// What these do is never done.
const STUCK: u64 = 6;

#[derive(Clone, Debug)]
enum Action {
    Reserve { stream: u64, size: u64, mode: u8 },
    Use { which: usize, stream: u64 },
    Free { which: usize },
    Finish { stream: u64, back: u64 },
    Wait { stream: u64, other: u64 },
    Refuse { ahead: u64, out_of_memory: bool },
    Capacity { bytes: u64, tells: bool },
    Budget { bytes: Option<u64> },
    Install { which: usize },
    Settle,
    Cleanup,
    Drain,
}

/// Sizes and limits are in steps of a sixteenth of an alignment.
fn action() -> impl Strategy<Value = Action> {
    let streams = 1..=STREAMS;
    let sizes = prop_oneof![4 => 0u64..400, 2 => 0u64..16_000, 1 => 0u64..60_000];
    prop_oneof![
        120 => (streams.clone(), sizes, 0u8..12).prop_map(|(stream, size, mode)| Action::Reserve { stream, size, mode }),
        60 => (any::<usize>(), streams.clone()).prop_map(|(which, stream)| Action::Use { which, stream }),
        100 => any::<usize>().prop_map(|which| Action::Free { which }),
        40 => (streams.clone(), 0u64..40).prop_map(|(stream, back)| Action::Finish { stream, back }),
        30 => (streams.clone(), streams).prop_map(|(stream, other)| Action::Wait { stream, other }),
        10 => (0u64..3, any::<bool>()).prop_map(|(ahead, out_of_memory)| Action::Refuse { ahead, out_of_memory }),
        8 => (20_000u64..200_000, any::<bool>()).prop_map(|(bytes, tells)| Action::Capacity { bytes, tells }),
        8 => prop::option::of(10_000u64..200_000).prop_map(|bytes| Action::Budget { bytes }),
        10 => (0..6usize).prop_map(|which| Action::Install { which }),
        8 => Just(Action::Settle),
        8 => Just(Action::Cleanup),
        1 => Just(Action::Drain),
    ]
}

/// Every kind of pool alone and together, in units of the alignment.
fn layouts(unit: u64) -> Vec<PoolLayout> {
    let sizes = |first, largest, growth| PageSizes::growing(first * unit, largest * unit, growth);
    let slabs = |name, slot| PoolDescription::slabs(name, slot * unit, sizes(64, 512, 12));
    let linear = PoolDescription::new("linear", Placement::Linear, sizes(64, 1024, 12));
    let fit = PoolDescription::new("fit", Placement::Fit, sizes(256, 4096, 12));
    let exclusive = PoolDescription::new("exclusive", Placement::Exclusive, sizes(1, 8192, 0));
    [
        vec![fit.clone()],
        vec![PoolDescription::new("small", Placement::Fit, sizes(32, 32, 0))],
        vec![slabs("a", 2), slabs("b", 30), fit.clone()],
        vec![linear.clone()],
        vec![linear.up_to(100 * unit), exclusive.clone()],
        vec![slabs("a", 3), fit.up_to(500 * unit), exclusive],
    ]
    .map(|pools| PoolLayout::new(pools).unwrap())
    .to_vec()
}

struct Live {
    memory: MemoryId,
    owner: StreamId,
    page: u64,
    from: u64,
    to: u64,
    size: u64,
    uses: Vec<Moment>,
}

/// Uses of bytes by a tenant that is gone.
struct Past {
    page: u64,
    from: u64,
    to: u64,
    at: Moment,
}

struct Model {
    rig: Rig,
    unit: u64,
    layouts: Vec<PoolLayout>,
    live: Vec<Live>,
    past: Vec<Past>,
}

impl Model {
    fn new(unit: u64, first: usize) -> Self {
        let mut layouts = layouts(unit);
        let count = layouts.len();
        layouts.rotate_left(first % count);
        let config = PoolsConfig { layout: layouts[0].clone(), alignment: unit, ..PoolsConfig::default() };
        let mut rig = Rig::with(config);
        rig.storage.max_page = 8192 * unit;
        Self { rig, unit, layouts, live: Vec::new(), past: Vec::new() }
    }

    fn bytes(&self, sixteenths: u64) -> u64 {
        (sixteenths * self.unit).div_ceil(16)
    }

    fn padded(&self, size: u64) -> u64 {
        size.max(1).next_multiple_of(self.unit)
    }

    /// Whether a stream need not wait for a use.
    fn is_free(&self, stream: StreamId, at: Moment) -> bool {
        self.rig.device.is_done(at) || at.stream == stream
    }

    /// A gap between what lives in a page for any sizes that holds so much, where the page's
    /// earlier uses are all done or on this stream.
    fn reusable(&self, stream: StreamId, padded: u64) -> Option<(u64, u64, u64)> {
        let general = self.rig.storage.sizes.iter().filter(|(_, (_, kind))| *kind == PoolKind::General);
        general.flat_map(|(page, (size, _))| self.gaps(*page, *size)).find(|(page, from, to)| {
            // What was merged waits for all that it was made of, though only a part of it is left.
            let uses: Vec<_> = self.past.iter().filter(|past| past.page == *page).map(|past| past.at).collect();
            let streams: HashSet<_> = uses.iter().map(|at| at.stream).collect();
            let told_apart = streams.len() <= Frontier::INLINE;
            told_apart && to - from >= padded && uses.iter().all(|at| self.is_free(stream, *at))
        })
    }

    fn gaps(&self, page: u64, size: u64) -> Vec<(u64, u64, u64)> {
        let mut used: Vec<_> =
            self.live.iter().filter(|live| live.page == page).map(|live| (live.from, live.to)).collect();
        used.push((size, size));
        used.sort_unstable();
        let mut at = 0;
        let mut gaps = Vec::new();
        for (from, to) in used {
            gaps.push((page, at, from));
            at = to;
        }
        gaps
    }

    fn reserve(&mut self, on: StreamId, size: u64, mode: AllocationMode) {
        let padded = self.padded(size);
        let budget = self.rig.pools.config().budget;
        let mut waits = 0;
        let memory = loop {
            let asked = self.rig.storage.asked;
            let reserved = self.rig.storage.bytes;
            let result = self.rig.try_reserve(size, on, mode);
            if asked < self.rig.storage.asked {
                let most = budget.unwrap_or(u64::MAX).max(reserved);
                assert!(self.rig.storage.bytes <= most, "over the budget: {} of {most}", self.rig.storage.bytes);
            }
            let pressure = match result {
                Ok(memory) => break memory,
                Err(pressure) => pressure,
            };
            let takes = self.rig.pools.config().layout.pools().iter().any(|pool| pool.largest_request() >= padded);
            if mode != AllocationMode::Dedicated && takes && !matches!(pressure, Pressure::Refused(_)) {
                let fits = self.reusable(on, padded);
                assert_eq!(fits, None, "{padded} bytes for {on} fit, and were refused: {pressure}");
            }
            match pressure {
                Pressure::Wait(until) => {
                    assert!(!until.is_done(&self.rig.device), "there is nothing to wait for");
                    if until.epoch() > 0
                        || until.moments().iter().any(|at| (STUCK..=STREAMS).any(|on| at.stream == stream(on)))
                    {
                        return;
                    }
                    self.rig.device.finish_frontier(&until);
                    waits += 1;
                    assert!(waits < 40, "no wait helps");
                }
                Pressure::OverBudget(numbers) => {
                    assert!(budget.is_some_and(|budget| numbers.reserved + padded > budget), "{numbers}");
                    return;
                }
                Pressure::Exhausted(numbers) => {
                    assert_eq!(numbers.reserved, self.rig.storage.bytes);
                    return;
                }
                Pressure::Refused(_) => return,
                Pressure::TooLarge { requested, limit } => {
                    assert!(requested == size && limit == self.rig.storage.max_page && padded > limit);
                    return;
                }
                other => panic!("{other}"),
            }
        };
        let place = self.rig.pools.place(memory).unwrap();
        let (page, from) = (place.page.number, place.offset);
        assert!(place.size == size && from.is_multiple_of(self.unit) && from + padded <= place.page.size);
        let to = from + padded;
        for other in &self.live {
            assert!(other.page != page || other.to <= from || to <= other.from, "live blocks overlap");
        }
        for past in self.past.iter().filter(|past| past.page == page && past.from < to && from < past.to) {
            let ordered = self.rig.device.is_done(past.at) || self.rig.device.is_ordered_after(on, past.at);
            assert!(ordered, "{memory} on {on} would overtake {:?}", past.at);
        }
        let first = self.rig.device.issue(on);
        self.live.push(Live { memory, owner: on, page, from, to, size, uses: vec![first] });
    }

    fn free(&mut self, which: usize) {
        let gone = self.live.swap_remove(which);
        self.rig.free(gone.memory, &gone.uses);
        let past = |at: &Moment| Past { page: gone.page, from: gone.from, to: gone.to, at: *at };
        self.past.extend(gone.uses.iter().map(past));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Reserve { stream: on, size, mode } => {
                let mode = match mode {
                    0 => AllocationMode::Dedicated,
                    1 => AllocationMode::Persistent,
                    _ => AllocationMode::Auto,
                };
                self.reserve(stream(on), self.bytes(size), mode);
            }
            Action::Use { which, stream: on } if !self.live.is_empty() => {
                let index = which % self.live.len();
                // As the tracker does: a later use is ordered after the allocation.
                self.rig.device.wait(stream(on), self.live[index].uses[0]);
                let at = self.rig.device.issue(stream(on));
                self.live[index].uses.push(at);
            }
            Action::Free { which } if !self.live.is_empty() => self.free(which % self.live.len()),
            Action::Finish { stream: on, back } if on < STUCK => {
                let seq = self.rig.device.now().saturating_sub(back);
                self.rig.device.finish(stream(on), seq);
            }
            Action::Wait { stream: on, other } => {
                let at = Moment { stream: stream(other), seq: self.rig.device.now() };
                self.rig.device.wait(stream(on), at);
            }
            Action::Refuse { ahead, out_of_memory } => {
                self.rig.storage.refuse = Some((self.rig.storage.asked + 1 + ahead, out_of_memory));
            }
            Action::Capacity { bytes, tells } => {
                (self.rig.storage.capacity, self.rig.storage.tells) = (self.bytes(bytes), tells);
            }
            Action::Budget { bytes } => self.rig.pools.set_budget(bytes.map(|bytes| self.bytes(bytes))),
            Action::Install { which } => self.rig.install(&self.layouts[which]).unwrap(),
            Action::Settle => {
                let Rig { pools, storage, device, .. } = &mut self.rig;
                pools.merge_done(storage, device);
                pools.return_dedicated(storage, device);
                self.rig.check();
            }
            Action::Cleanup => {
                self.rig.cleanup();
                let (pages, usage) = (self.rig.storage.pages(), self.rig.pools.usage());
                self.rig.cleanup();
                assert_eq!((self.rig.storage.pages(), self.rig.pools.usage()), (pages, usage), "a fixed point");
                self.every_page_has_a_reason();
            }
            Action::Drain => {
                let now = self.rig.device.now();
                self.rig.device.finish_all(now);
                self.rig.pools.drain(&mut self.rig.storage);
                self.rig.forget_all();
                self.live.clear();
                self.rig.check();
                assert_eq!(self.rig.pools.usage(), Default::default());
            }
            Action::Use { .. } | Action::Free { .. } | Action::Finish { .. } => {}
        }
        self.check();
    }

    /// After a clean-up a page that is left holds something that lives or is unfinished.
    fn every_page_has_a_reason(&self) {
        for page in self.rig.storage.sizes.keys() {
            let lives = self.live.iter().any(|live| live.page == *page);
            let uses: Vec<_> = self.past.iter().filter(|past| past.page == *page).map(|past| past.at).collect();
            let unfinished = uses.iter().any(|at| !self.rig.device.is_done(*at));
            let streams: HashSet<_> = uses.iter().map(|at| at.stream).collect();
            // More streams than a frontier tells apart are rounded up.
            assert!(lives || unfinished || streams.len() > Frontier::INLINE, "page {page} was to be returned");
        }
    }

    fn check(&mut self) {
        for page in core::mem::take(&mut self.rig.storage.returned) {
            assert!(self.live.iter().all(|live| live.page != page), "page {page} was returned with what lives in it");
            for past in self.past.iter().filter(|past| past.page == page) {
                assert!(self.rig.device.is_done(past.at), "page {page} was returned before {:?} is done", past.at);
            }
            self.past.retain(|past| past.page != page);
        }
        let usage = self.rig.pools.usage();
        let (count, size) = (self.live.len() as u64, self.live.iter().map(|live| live.size).sum::<u64>());
        assert_eq!((usage.allocations, usage.live), (count, size));
        let mut streams = 0;
        for on in (1..=STREAMS).map(stream) {
            let report = self.rig.pools.report(ReportScope::Stream(on)).total();
            let size: u64 = self.live.iter().filter(|live| live.owner == on).map(|live| live.size).sum();
            assert_eq!(report.live, size);
            streams += report.padding;
        }
        assert_eq!(streams, usage.padding, "what the streams take up is what is taken up");
    }

    fn end(mut self) {
        while !self.live.is_empty() {
            self.free(0);
        }
        let now = self.rig.device.now();
        self.rig.device.finish_all(now);
        self.rig.cleanup();
        self.check();
        assert_eq!((self.rig.storage.pages(), self.rig.pools.usage()), (0, Default::default()), "no leak");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_goes_wrong_memory_is_never_given_out_too_early_nor_lost(
        actions in prop::collection::vec(action(), 1..300),
        first in 0..6usize,
        unit in prop::sample::select(vec![1u64, 256, 4096]),
    ) {
        let mut model = Model::new(unit, first);
        actions.into_iter().for_each(|action| model.act(action));
        model.end();
    }
}

#[test]
fn a_frontier_of_many_streams_is_rounded_up_and_not_forgotten() {
    let mut model = Model::new(256, 0);
    model.reserve(stream(1), 4096, AllocationMode::Auto);
    (2..=STREAMS).for_each(|on| model.act(Action::Use { which: 0, stream: on }));
    let first = (model.live[0].page, model.live[0].from);
    model.free(0);
    model.rig.device.finish_all(3);
    model.reserve(stream(1), 4096, AllocationMode::Auto);
    assert_ne!((model.live[0].page, model.live[0].from), first);
    let mut until = Frontier::new();
    until.add_epoch(7);
    model.rig.device.finish_frontier(&until);
    model.reserve(stream(1), 60_000, AllocationMode::Auto);
    assert_eq!(model.live[1].from, 0, "and all of it is free then");
}

/// A driver that never says no.
struct Boundless;

impl Storage for Boundless {
    type Page = u64;

    fn allocate(&mut self, size: u64, _: PoolKind) -> Result<u64, StorageError> {
        Ok(size)
    }

    fn release(&mut self, _: u64) {}

    fn alignment(&self) -> u64 {
        1
    }

    fn max_page(&self) -> u64 {
        u64::MAX
    }
}

/// Sizes around every power of two, at alignments from 1 to the largest there is.
#[test]
fn sizes_up_to_the_last_number_are_placed_or_refused_and_never_counted_wrong() {
    let sizes: Vec<u64> = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).collect();
    let sizes = [sizes, vec![u64::MAX - 4096, u64::MAX - 1, u64::MAX]].concat();
    for (which, alignment) in [(0, 1), (1, 1), (2, 1), (0, 256), (3, 256), (2, 1 << 31), (3, u64::MAX)] {
        let vast = PageSizes::growing(8 << 30, u64::MAX, 1000);
        let layout = match which {
            0 => PoolLayout::new(vec![PoolDescription::new("fit", Placement::Fit, vast)]).unwrap(),
            1 => PoolLayout::new(vec![PoolDescription::new("linear", Placement::Linear, vast)]).unwrap(),
            2 => PoolLayout::new(vec![PoolDescription::slabs("slabs", 1 << 30, vast)]).unwrap(),
            _ => PoolLayout::exclusive(),
        };
        let mut pools = MemoryPools::<Boundless>::new(PoolsConfig { layout, alignment, ..PoolsConfig::default() });
        let device = Device::default();
        let mut live: Vec<(u64, u64, u64, u64)> = Vec::new();
        let mut index = 0;
        for size in sizes.iter().chain(sizes.iter().rev()) {
            for mode in [AllocationMode::Auto, AllocationMode::Dedicated, AllocationMode::Persistent] {
                index += 1;
                let memory = MemoryId { index, generation: 0 };
                let request = Request { memory, size: *size, stream: stream(1), mode };
                match pools.reserve(&mut Boundless, &request, &device) {
                    Ok(()) => {}
                    Err(Pressure::TooLarge { requested, .. }) => {
                        assert!(requested == *size && requested > u64::MAX - alignment.clamp(1, 1 << 31));
                        continue;
                    }
                    Err(Pressure::Exhausted(numbers)) => {
                        assert!(numbers.reserved.checked_add(*size).is_none_or(|sum| sum > u64::MAX - (1 << 32)));
                        continue;
                    }
                    Err(other) => panic!("{size} bytes at {alignment}: {other}"),
                }
                let place = pools.place(memory).unwrap();
                assert!(place.offset.checked_add(*size).is_some_and(|end| end <= *place.page));
                let (page, from, to) = (u64::from(place.page_id.index), place.offset, place.offset + size);
                assert!(live.iter().all(|other| other.0 != page || other.2 <= from || to <= other.1), "{request:?}");
                live.push((page, from, to, u64::from(index)));
            }
            let usage = pools.usage();
            assert!(usage.live + usage.padding <= usage.reserved);
            // Now and then half of it goes, so that there is room to count on.
            if live.len() > 40 {
                for gone in live.split_off(20) {
                    let memory = MemoryId { index: gone.3 as u32, generation: 0 };
                    assert!(pools.free(&mut Boundless, memory, Frontier::new(), &device));
                }
            }
        }
        pools.drain(&mut Boundless);
        assert_eq!(pools.usage(), Default::default());
    }
}

#[test]
fn blocks_next_to_each_other_that_a_stream_may_have_serve_it_together() {
    let half = 512 * KIB;
    for (finish, wait) in [(true, false), (false, true)] {
        let mut rig = Rig::with(PoolsConfig { layout: pages(MIB, MIB), budget: Some(MIB), ..PoolsConfig::default() });
        // A page of a small pool would be an eighth of the budget.
        let whole = rig.reserve(MIB, stream(1));
        rig.free(whole, &[]);
        let (one, other) = (rig.reserve(half, stream(1)), rig.reserve(half, stream(2)));
        let uses = [rig.device.issue(stream(1)), rig.device.issue(stream(2))];
        rig.free(one, &uses[..1]);
        rig.free(other, &uses[1..]);
        if finish {
            rig.device.finish(stream(2), uses[1].seq);
        }
        if wait {
            rig.device.wait(stream(1), uses[1]);
        }
        let both = rig.reserve(MIB, stream(1));
        assert_eq!(rig.place(both).1, 0, "one half is the stream's own, the other done or waited for");
    }
}
