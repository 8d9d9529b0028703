//! Running a trace against pools, event by event and without a device.

use super::event::{Event, Requested, Trace};
use super::imagined::{Imagined, Progress};
use super::map::MemoryMap;
use super::report::{Failure, Label, Peak, ReplayReport, Sample};
use crate::policy::PoolsConfig;
use crate::pools::{MemoryPools, Request};
use crate::pressure::Pressure;
use alloc::string::ToString;
use alloc::vec::Vec;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, ReportScope};
use trunnion_runtime_core::timeline::Frontier;

/// Runs a trace against pools that are set up so, and says what came of it.
///
/// Every request is made, also one that was refused when it was recorded: whether it fits here, these pools say. Where they say that
/// memory will be free when something is done, the replay goes on as if that had been waited for. Takes time twice: the second
/// run stops where most was live, to look at it.
pub fn replay(trace: &Trace, config: &PoolsConfig) -> ReplayReport {
    let mut replay = Replay::new(trace, config);
    let mut report = ReplayReport { curve: Vec::with_capacity(trace.events.len()), ..ReplayReport::default() };
    while let Some(step) = replay.step() {
        let event = report.curve.len() as u64;
        report.take(event, step, replay.usage());
    }
    report.waits = replay.waits;
    report.pages_taken = replay.storage.taken;
    report.pages_returned = replay.storage.returned;
    report.end = replay.report();
    let highest = report.curve.iter().enumerate().find(|(_, sample)| sample.live == report.peak_live);
    if let Some((event, _)) = highest {
        let at_peak = Replay::until(trace, config, event as u64);
        report.peak = Peak { event: event as u64, report: at_peak.report(), map: at_peak.map() };
    }
    report
}

/// A replay under way.
///
/// ```
/// use trunnion_memory_pools::PoolsConfig;
/// use trunnion_memory_pools::trace::{Replay, Trace};
/// let trace = Trace::from_lifetimes("id,lower,upper,size\na,0,2,1000\nb,1,3,2000\n")?;
/// let replay = Replay::until(&trace, &PoolsConfig::default(), 1);
/// assert_eq!(replay.usage().live, 3000);
/// # Ok::<(), trunnion_memory_pools::trace::ParseError>(())
/// ```
pub struct Replay<'a> {
    events: core::slice::Iter<'a, Event>,
    pools: MemoryPools<Imagined>,
    storage: Imagined,
    progress: Progress,
    /// By request, where it is.
    requests: Vec<Held>,
    /// Slots of pools' memory that are free, and how often each was given out.
    vacant: Vec<u32>,
    generations: Vec<u32>,
    waits: u64,
}

/// A request that was made.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// `None` where it was refused or freed.
    pub(super) memory: Option<MemoryId>,
    pub(super) stream: StreamId,
}

/// What came of an event.
pub(super) enum Step<'a> {
    Request { number: u32, request: &'a Requested, failed: Option<Pressure> },
    Free,
    Other(&'a Event),
}

impl<'a> Replay<'a> {
    /// A replay of a trace that has not begun.
    pub fn new(trace: &'a Trace, config: &PoolsConfig) -> Self {
        let pools = MemoryPools::new(config.clone());
        let storage = Imagined::new(pools.config());
        Self {
            events: trace.events.iter(),
            pools,
            storage,
            progress: Progress::default(),
            requests: Vec::new(),
            vacant: Vec::new(),
            generations: Vec::new(),
            waits: 0,
        }
    }

    /// A replay up to an event of the trace, counted from 0, that one included.
    pub fn until(trace: &'a Trace, config: &PoolsConfig, event: u64) -> Self {
        let mut replay = Self::new(trace, config);
        (0..=event).try_for_each(|_| replay.step().map(|_| ()));
        replay
    }

    /// Runs the next event. False when there is none.
    pub fn advance(&mut self) -> bool {
        self.step().is_some()
    }

    pub(super) fn step(&mut self) -> Option<Step<'a>> {
        let event = self.events.next()?;
        match event {
            Event::Request(request) => {
                let number = self.requests.len() as u32;
                let failed = self.request(request).err();
                return Some(Step::Request { number, request, failed });
            }
            Event::Free { number, after } => {
                self.free(*number, after.as_deref());
                return Some(Step::Free);
            }
            Event::Done(at) => self.progress.done(*at),
            Event::AllDone(epoch) => self.progress.all_done(*epoch),
            Event::Ordered { stream, after } => self.progress.ordered(*stream, *after),
            Event::Cleanup => self.pools.cleanup(&mut self.storage, &self.progress),
            Event::Snapshot(_) | Event::Mark(_) => {}
        }
        if matches!(event, Event::Done(_) | Event::AllDone(_)) {
            // As a device does that has learnt of it.
            self.pools.return_dedicated(&mut self.storage, &self.progress);
        }
        Some(Step::Other(event))
    }

    fn request(&mut self, requested: &Requested) -> Result<(), Pressure> {
        let Requested { size, stream, mode, .. } = *requested;
        if size == 0 {
            // No bytes touch no pool.
            self.requests.push(Held { memory: None, stream });
            return Ok(());
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.generations.push(0);
            (self.generations.len() - 1) as u32
        });
        let memory = MemoryId { index, generation: self.generations[index as usize] };
        let request = Request { memory, size, stream, mode };
        let answer = loop {
            match self.pools.reserve(&mut self.storage, &request, &self.progress) {
                Err(Pressure::Wait(frontier)) if !frontier.is_done(&self.progress) => {
                    self.progress.wait(&frontier);
                    self.waits += 1;
                }
                answer => break answer,
            }
        };
        let memory = answer.is_ok().then_some(memory);
        if memory.is_none() {
            self.vacant.push(index);
        }
        self.requests.push(Held { memory, stream });
        answer
    }

    fn free(&mut self, number: u32, after: Option<&Frontier>) {
        let Some(held) = self.requests.get_mut(number as usize) else { return };
        let Some(memory) = held.memory.take() else { return };
        let after = after.cloned().unwrap_or_default();
        self.pools.free(&mut self.storage, memory, after, &self.progress);
        let generation = &mut self.generations[memory.index as usize];
        *generation = generation.wrapping_add(1);
        self.vacant.push(memory.index);
    }

    /// The few numbers of the pools as they are now.
    pub fn usage(&self) -> MemoryUsage {
        self.pools.usage()
    }

    /// The pools as they are now.
    pub fn report(&self) -> MemoryReport {
        self.pools.report(ReportScope::Device)
    }

    /// What lies where now.
    pub fn map(&self) -> MemoryMap {
        MemoryMap::of(&self.pools, &self.requests)
    }
}

impl core::fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Replay").field("left", &self.events.len()).field("usage", &self.usage()).finish_non_exhaustive()
    }
}

impl ReplayReport {
    /// Takes in what came of an event.
    fn take(&mut self, event: u64, step: Step<'_>, usage: MemoryUsage) {
        match step {
            Step::Request { number, request, failed } => {
                self.requests += 1;
                self.refused_before += u64::from(request.refused.is_some());
                if let Some(pressure) = failed {
                    self.failed += 1;
                    if self.failures.len() < Self::FAILURES {
                        let Requested { size, stream, mode, .. } = *request;
                        let cause = pressure.to_string();
                        self.failures.push(Failure { event, number, size, stream, mode, cause });
                    }
                }
            }
            Step::Free => self.frees += 1,
            Step::Other(Event::Snapshot(snapshot)) => {
                self.labels.push(Label { event, text: snapshot.label.clone(), recorded: Some(snapshot.usage) });
            }
            Step::Other(Event::Mark(text)) => {
                self.labels.push(Label { event, text: text.clone(), recorded: None });
            }
            Step::Other(_) => {}
        }
        self.peak_live = self.peak_live.max(usage.live);
        self.peak_reserved = self.peak_reserved.max(usage.reserved);
        self.curve.push(Sample { live: usage.live, padding: usage.padding, reserved: usage.reserved });
    }
}

#[cfg(test)]
mod tests;
