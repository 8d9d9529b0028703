//! Streams as the server sees them. What is kept of a stream goes away when it is idle and others need the place.

use super::flight::Flight;
use super::parking::Parked;
use crate::driver::Driver;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::task::Waker;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::timeline::Frontier;

/// Driver streams kept for reuse.
const SPARE: usize = 4;

/// Who waits for a moment.
pub(super) enum Waiter {
    Waker(Waker),
    Promise(Promise<()>),
}

/// A stream: `done <= finished operations <= submitted <= encoded <= parked`, all by number.
pub(super) struct Lane<D: Driver> {
    pub(super) id: StreamId,
    /// Opened for the first operation that reaches the driver.
    pub(super) stream: Option<D::Stream>,
    pub(super) flight: Flight,
    /// How many of the newest in flight are not submitted.
    pub(super) encoded: usize,
    /// What the batch being encoded waits for.
    pub(super) waits: Frontier,
    /// The newest operation that waits for another stream on the device.
    pub(super) waited: u64,
    /// A barrier lies before the operation with this number.
    pub(super) barrier: u64,
    pub(super) submitted: u64,
    /// What the driver last said it has finished; then what all streams were asked once more after; then what counts.
    pub(super) reported: u64,
    pub(super) seen: u64,
    pub(super) finished: u64,
    /// The latest operation accepted.
    pub(super) issued: u64,
    /// Up to where moments are done.
    pub(super) done: u64,
    pub(super) queue: VecDeque<Parked>,
    pub(super) waiters: Vec<(u64, Waiter)>,
}

impl<D: Driver> Lane<D> {
    fn new(id: StreamId) -> Self {
        Self {
            id,
            stream: None,
            flight: Flight::default(),
            encoded: 0,
            waits: Frontier::new(),
            waited: 0,
            barrier: 0,
            submitted: 0,
            reported: 0,
            seen: 0,
            finished: 0,
            issued: 0,
            done: 0,
            queue: VecDeque::new(),
            waiters: Vec::new(),
        }
    }

    /// Something submitted is unfinished.
    pub(super) fn is_busy(&self) -> bool {
        self.flight.len() > self.encoded
    }

    /// Something unfinished waits for another stream, and what comes after it does so too.
    pub(super) fn is_waiting(&self) -> bool {
        self.flight.oldest().is_some_and(|oldest| oldest <= self.waited)
    }

    /// Nothing is unfinished.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_empty() && self.queue.is_empty() && self.waiters.is_empty()
    }

    /// How many operations up to the number are not done.
    pub(super) fn unfinished(&self, up_to: u64) -> usize {
        self.flight.count_within(up_to) + self.queue.partition_point(|parked| parked.at.seq <= up_to)
    }

    /// Whether operation `seq`, or one before it, is parked.
    pub(super) fn is_parked_at(&self, seq: u64) -> bool {
        self.queue.front().is_some_and(|parked| parked.at.seq <= seq)
    }
}

pub(super) struct Lanes<D: Driver> {
    pub(super) slots: Vec<Lane<D>>,
    vacant: Vec<usize>,
    index: HashMap<StreamId, usize>,
    /// The one asked for last, as most operations come from one stream in a row.
    last: usize,
    keep: usize,
    sweep_at: usize,
    spare: Vec<D::Stream>,
}

impl<D: Driver> Lanes<D> {
    const SWEEP: usize = 32;

    pub(super) fn new(keep: usize) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            index: HashMap::new(),
            last: 0,
            keep,
            sweep_at: keep + Self::SWEEP,
            spare: Vec::new(),
        }
    }

    /// How many streams there are.
    pub(super) fn live(&self) -> usize {
        self.index.len()
    }

    #[inline]
    pub(super) fn find(&self, id: StreamId) -> Option<usize> {
        match self.slots.get(self.last) {
            Some(lane) if lane.id == id => Some(self.last),
            _ => self.index.get(&id).copied(),
        }
    }

    /// The stream's place, made where there is none.
    #[inline]
    pub(super) fn place(&mut self, id: StreamId) -> usize {
        let lane = match self.find(id) {
            Some(lane) => lane,
            None => self.make(id),
        };
        self.last = lane;
        lane
    }

    fn make(&mut self, id: StreamId) -> usize {
        let lane = match self.vacant.pop() {
            Some(lane) => {
                self.slots[lane] = Lane::new(id);
                lane
            }
            None => {
                self.slots.push(Lane::new(id));
                self.slots.len() - 1
            }
        };
        self.index.insert(id, lane);
        lane
    }

    /// Whether it is time to look for idle streams.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.index.len() >= self.sweep_at
    }

    /// Ends idle streams but for the `keep` used last; no stream's place changes. How many are kept.
    #[cold]
    pub(super) fn sweep(&mut self, driver: &mut D) -> usize {
        let mut idle: Vec<(u64, usize)> = self
            .index
            .values()
            .filter(|lane| self.slots[**lane].is_idle())
            .map(|lane| (self.slots[*lane].issued, *lane))
            .collect();
        idle.sort_unstable();
        let surplus = idle.len().saturating_sub(self.keep);
        for (_, i) in &idle[..surplus] {
            let lane = core::mem::replace(&mut self.slots[*i], Lane::new(StreamId::from_raw(0)));
            self.index.remove(&lane.id);
            self.vacant.push(*i);
            if let Some(stream) = lane.stream {
                self.give_stream(driver, stream);
            }
        }
        self.sweep_at = self.live() + self.live().max(Self::SWEEP);
        self.keep
    }

    fn give_stream(&mut self, driver: &mut D, stream: D::Stream) {
        if self.spare.len() < SPARE { self.spare.push(stream) } else { driver.close_stream(stream) }
    }

    /// A driver stream that nobody uses any more.
    pub(super) fn take_spare(&mut self) -> Option<D::Stream> {
        self.spare.pop()
    }

    /// Takes out every driver stream.
    pub(super) fn take_streams(&mut self) -> Vec<D::Stream> {
        let mut all = core::mem::take(&mut self.spare);
        all.extend(self.slots.iter_mut().filter_map(|lane| lane.stream.take()));
        all
    }
}
