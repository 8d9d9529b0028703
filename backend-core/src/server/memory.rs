//! Reservations over the driver's pages.

use super::DriverServer;
use super::tasks::Work;
use crate::driver::{Driver, DriverRefusal};
use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;
use trunnion_memory_pools::{Pressure, Request, Storage, StorageError};
use trunnion_resource_tracker::Use;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::budget::MemoryBudget;
use trunnion_runtime_core::error::{Error, OutOfMemory, Result, Rung};
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, PoolKind, ReportScope};
use trunnion_runtime_core::server::{MemoryServer, RecordingServer, StagingServer};
use trunnion_runtime_core::staging::PinnedMemory;
use trunnion_runtime_core::timeline::{Frontier, Moment};

/// How long the driver is waited for at once, before it is looked whether that was enough.
const LOOK: Duration = Duration::from_millis(2);

/// The driver as the pools see it.
pub(super) struct Hardware<D: Driver> {
    pub(super) driver: D,
    max_page: u64,
}

impl<D: Driver> Hardware<D> {
    pub(super) fn new(driver: D) -> Self {
        // The largest allocation is what a program may ask for; its page is rounded up to what pages are multiples of.
        let limit = driver.properties().limits.max_allocation;
        let max_page = limit.checked_next_multiple_of(driver.page_alignment()).unwrap_or(limit);
        Self { driver, max_page }
    }
}

fn refused(refusal: DriverRefusal) -> StorageError {
    StorageError { message: refusal.message, out_of_memory: refusal.out_of_memory }
}

impl<D: Driver> Storage for Hardware<D> {
    type Page = D::Page;

    fn allocate(&mut self, size: u64, _: PoolKind) -> Result<D::Page, StorageError> {
        self.driver.allocate(size).map_err(refused)
    }

    fn growth_step(&self) -> Option<u64> {
        self.driver.growth_step()
    }

    fn allocate_growing(&mut self, size: u64, reach: u64, _: PoolKind) -> Result<D::Page, StorageError> {
        self.driver.allocate_growing(size, reach).map_err(refused)
    }

    fn grow(&mut self, page: &mut D::Page, _: u64, to: u64) -> Result<(), StorageError> {
        self.driver.grow(page, to).map_err(refused)
    }

    fn release(&mut self, page: D::Page) {
        self.driver.release(page);
    }

    fn alignment(&self) -> u64 {
        self.driver.page_alignment()
    }

    fn max_page(&self) -> u64 {
        self.max_page
    }

    fn driver_free(&self) -> Option<u64> {
        self.driver.free_memory()
    }
}

impl<D: Driver> DriverServer<D> {
    pub(super) fn reserve_memory(&mut self, at: Moment, handle: &Handle, mode: AllocationMode) {
        self.reserve_or(at, handle, mode, |server, request| {
            if let Err(error) = server.reserve_recorded(request) {
                server.leave_unplaced(at, request, error);
            }
            Ok(())
        })
        .ok();
    }

    /// [`reserve_memory`](Self::reserve_memory); where there is none nothing is left of the attempt.
    pub(super) fn try_reserve_memory(&mut self, at: Moment, handle: &Handle, mode: AllocationMode) -> Result<()> {
        self.tried = mode;
        self.reserve_or(at, handle, mode, Self::reserve_recorded)
    }

    /// The cause lies on all of the memory that is not to be had.
    pub(super) fn refuse_memory(&mut self, at: Moment, handle: &Handle, cause: Error) {
        self.reserve_or(at, handle, self.tried, |server, request| {
            server.leave_unplaced(at, request, cause);
            Ok(())
        })
        .ok();
    }

    fn reserve_or(
        &mut self,
        at: Moment,
        handle: &Handle,
        mode: AllocationMode,
        place: impl FnOnce(&mut Self, &Request) -> Result<()>,
    ) -> Result<()> {
        self.service.get_or_insert(handle.service());
        let lane = self.begin(at);
        let (memory, size) = (handle.memory(), handle.allocation_size());
        let mut placed = Ok(());
        if size > 0 {
            let slot = &self.lanes.slots[lane];
            // On an idle stream the block's last uses are done: nobody needs to wait for this moment.
            let is_idle = slot.flight.is_empty() && slot.queue.is_empty() && slot.waits.is_done(&self.timeline);
            self.tracker.open(memory, size, Moment { seq: if is_idle { 0 } else { at.seq }, ..at });
            let request = Request { memory, size, stream: at.stream, mode };
            self.reserving = Some(request);
            placed = place(self, &request);
            self.reserving = None;
            if placed.is_err() {
                self.tracker.close(memory);
            } else if !self.lanes.slots[lane].queue.is_empty() {
                // The block's last uses may be parked on this stream: it is there to be found by who waits for an epoch.
                let uses = [Use { memory, range: 0..size, access: Access::Overwrite }];
                self.park(lane, at, &Frontier::new(), 0, &uses, Work::Settle);
            }
        }
        self.end(lane);
        placed
    }

    fn reserve_recorded(&mut self, request: &Request) -> Result<()> {
        self.reserve_within(request)?;
        if self.recording.is_on() {
            self.record_request(request, None);
        }
        Ok(())
    }

    /// There is no memory: the cause lies on all of it.
    pub(super) fn leave_unplaced(&mut self, at: Moment, request: &Request, error: Error) {
        let Request { memory, size, .. } = *request;
        let failure = Failure::new(at, error.clone());
        self.tracker.mark(memory, 0..size, &failure);
        self.unplaced.insert(memory, failure);
        if self.recording.is_on() {
            self.record_request(request, Some(&error));
        }
    }

    fn reserve_within(&mut self, request: &Request) -> Result<()> {
        let mut deadline = None;
        loop {
            let pressure = match self.pools.reserve(&mut self.hardware, request, &self.timeline) {
                Ok(()) => return Ok(()),
                Err(pressure) => pressure,
            };
            match pressure {
                Pressure::Wait(frontier) => {
                    if self.recording.is_on() {
                        self.record_wait(request);
                    }
                    let deadline = deadline.get_or_insert_with(|| Deadline::after(self.settings.pressure_wait));
                    if !self.wait_for_memory(&frontier, deadline) {
                        return Err(self.ended.clone().unwrap_or_else(|| self.out_of_memory(request)));
                    }
                }
                Pressure::Exhausted(mut numbers) | Pressure::OverBudget(mut numbers) => {
                    if deadline.is_some() {
                        numbers.tried.push(Rung::Wait);
                    }
                    return Err(Error::OutOfMemory(numbers));
                }
                Pressure::TooLarge { requested, limit } => return Err(Error::TooLarge { requested, limit }),
                Pressure::Refused(refused) => {
                    return Err(Error::Driver { call: "allocate".into(), code: 0, message: refused.message });
                }
                other => {
                    return Err(Error::Driver { call: "reserve".into(), code: 0, message: alloc::format!("{other}") });
                }
            }
        }
    }

    /// Waits a little for work that is with the driver. False when that is over: the deadline passed, or what would free memory
    /// is not with the driver.
    fn wait_for_memory(&mut self, frontier: &Frontier, deadline: &Deadline) -> bool {
        for on in frontier.moments() {
            if let Some(lane) = self.lanes.find(on.stream) {
                self.submit_up_to(lane, on.seq);
                if self.lanes.slots[lane].is_parked_at(on.seq) {
                    return false;
                }
            }
        }
        if frontier.epoch() > 0 {
            for lane in 0..self.lanes.slots.len() {
                self.submit_up_to(lane, frontier.epoch());
            }
        }
        if deadline.expired() || self.ended.is_some() || !self.lanes.slots.iter().any(|lane| lane.is_busy()) {
            return false;
        }
        let look = deadline.remaining().map_or(LOOK, |left| left.min(LOOK));
        self.hardware.driver.drain(&Deadline::after(look));
        self.collect();
        self.ended.is_none()
    }

    /// The numbers, for a request that waited in vain.
    fn out_of_memory(&self, request: &Request) -> Error {
        let total = self.pools.report(ReportScope::Device).total();
        Error::OutOfMemory(Box::new(OutOfMemory {
            requested: request.size,
            live: total.live,
            reserved: total.reserved,
            padding: total.padding,
            largest_free: total.largest_free,
            budget: self.settings.memory_budget,
            driver_free: self.hardware.driver.free_memory(),
            tried: vec![Rung::Reuse, Rung::Merge, Rung::Trim, Rung::Wait],
            driver: None,
        }))
    }

    pub(super) fn free_memory(&mut self, memory: MemoryId) {
        if !self.unplaced.is_empty() {
            self.unplaced.remove(&memory);
        }
        let frontier = self.tracker.close(memory);
        if self.recording.is_on() {
            self.record_free(memory, &frontier);
        }
        self.pools.free(&mut self.hardware, memory, frontier, &self.timeline);
    }
}

impl<D: Driver> MemoryServer for DriverServer<D> {
    fn usage(&self) -> MemoryUsage {
        self.pools.usage()
    }

    fn report(&self, scope: ReportScope) -> MemoryReport {
        self.pools.report(scope)
    }

    fn budget(&self) -> MemoryBudget {
        let (driver, usage) = (self.hardware.driver.memory(), self.pools.usage());
        let mut budget = MemoryBudget::default();
        (budget.total, budget.free) = (driver.total, driver.free);
        (budget.process_limit, budget.process_used) = (driver.process_limit, driver.process_used);
        (budget.reserved, budget.live) = (usage.reserved, usage.live);
        budget.limit = self.settings.memory_budget;
        budget
    }

    fn cleanup(&mut self) -> Result<()> {
        self.collect();
        self.settle();
        self.pools.cleanup(&mut self.hardware, &self.timeline);
        if self.recording.is_on() {
            self.record_cleanup();
        }
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn install_pools(&mut self, layout: &PoolLayout) -> Option<Result<()>> {
        self.collect();
        self.settle();
        let ended = self.ended.clone().map_or(Ok(()), Err);
        let installed = ended.and_then(|()| self.pools.install(&mut self.hardware, layout, &self.timeline));
        if installed.is_ok() && self.recording.is_on() {
            self.record_layout(layout);
        }
        Some(installed)
    }

    fn recording(&mut self) -> Option<&mut dyn RecordingServer> {
        Some(self)
    }
}

impl<D: Driver> StagingServer for DriverServer<D> {
    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let refused = |refusal: DriverRefusal| Error::Driver { call: "pin".into(), code: 0, message: refusal.message };
        self.hardware.driver.pin(size).map_err(refused)
    }
}
