//! The device that stands in for the one a trace was recorded on: pages that are nothing but a size, and what was done by when.

use crate::policy::PoolsConfig;
use crate::storage::{Storage, StorageError};
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::report::PoolKind;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// The bytes there are: more than any device has, and few enough to be added up.
const CAPACITY: u64 = 1 << 60;

/// Memory without bytes.
pub(super) struct Imagined {
    bytes: u64,
    alignment: u64,
    max_page: u64,
    growth_step: Option<u64>,
    pub(super) taken: u64,
    pub(super) returned: u64,
}

/// A page that is taken.
pub(super) struct Page {
    /// How many were taken before it.
    pub(super) number: u64,
    size: u64,
}

impl Imagined {
    /// For pools that are set up so. Of an allocation, at most `max_allocation` bytes can be asked for; its page is rounded up as a device
    /// does.
    pub(super) fn new(config: &PoolsConfig) -> Self {
        let PoolsConfig { alignment, max_allocation, growth_step, .. } = *config;
        let most = max_allocation.min(CAPACITY);
        let max_page = most.checked_next_multiple_of(alignment).unwrap_or(most);
        Self { bytes: 0, alignment, max_page, growth_step, taken: 0, returned: 0 }
    }

    fn take(&mut self, size: u64) -> Result<(), StorageError> {
        if size > CAPACITY - self.bytes {
            let message = alloc::format!("{CAPACITY} bytes are all that a replay has");
            return Err(StorageError { message, out_of_memory: true });
        }
        self.bytes += size;
        Ok(())
    }
}

impl Storage for Imagined {
    type Page = Page;

    fn allocate(&mut self, size: u64, _: PoolKind) -> Result<Page, StorageError> {
        self.take(size)?;
        let number = self.taken;
        self.taken += 1;
        Ok(Page { number, size })
    }

    fn growth_step(&self) -> Option<u64> {
        self.growth_step
    }

    fn grow(&mut self, page: &mut Page, from: u64, to: u64) -> Result<(), StorageError> {
        self.take(to - from)?;
        page.size = to;
        Ok(())
    }

    fn release(&mut self, page: Page) {
        self.bytes -= page.size;
        self.returned += 1;
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn max_page(&self) -> u64 {
        self.max_page
    }
}

/// What was done by now, as the trace says.
#[derive(Default)]
pub(super) struct Progress {
    done: HashMap<StreamId, u64>,
    all: u64,
    /// By the stream that waited and the one it waited for.
    ordered: HashMap<(StreamId, StreamId), u64>,
}

impl Progress {
    pub(super) fn done(&mut self, at: Moment) {
        raise(self.done.entry(at.stream).or_default(), at.seq);
    }

    pub(super) fn all_done(&mut self, epoch: u64) {
        raise(&mut self.all, epoch);
    }

    pub(super) fn ordered(&mut self, stream: StreamId, after: Moment) {
        raise(self.ordered.entry((stream, after.stream)).or_default(), after.seq);
    }

    /// All of this is done, as if it had been waited for.
    pub(super) fn wait(&mut self, frontier: &Frontier) {
        self.all_done(frontier.epoch());
        frontier.moments().iter().for_each(|at| self.done(*at));
    }
}

fn raise(known: &mut u64, to: u64) {
    *known = (*known).max(to);
}

impl Timeline for Progress {
    fn is_done(&self, at: Moment) -> bool {
        at.seq <= self.all || self.done.get(&at.stream).is_some_and(|done| at.seq <= *done)
    }

    fn is_epoch_done(&self, epoch: u64) -> bool {
        epoch <= self.all
    }

    fn is_ordered_after(&self, stream: StreamId, at: Moment) -> bool {
        stream == at.stream || self.ordered.get(&(stream, at.stream)).is_some_and(|known| at.seq <= *known)
    }
}
