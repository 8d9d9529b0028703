//! Memory and events of somebody else, and events for somebody else.
//!
//! What was taken is held until nothing uses it any more, and goes out with the wakers: it is dropped when the device is released.

use super::DriverServer;
use crate::driver::{Driver, Imported};
use alloc::sync::Arc;
use core::any::Any;
use trunnion_memory_pools::ImportedPage;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::server::ForeignServer;
use trunnion_runtime_core::timeline::{Frontier, Moment};

impl<D: Driver> ForeignServer for DriverServer<D> {
    fn import(&mut self, at: Moment, memory: &Handle, foreign: &Foreign) -> Result<()> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        self.service.get_or_insert(memory.service());
        let lane = self.begin(at);
        let imported = self.hardware.driver.import(foreign);
        let placed = imported.and_then(|page| self.place_imported(at, memory, page, foreign));
        self.end(lane);
        self.settle();
        placed
    }

    fn import_event(&mut self, at: Moment, event: &Foreign) -> Result<()> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let lane = self.begin(at);
        let waits = self.open_stream(lane).and_then(|()| match &mut self.lanes.slots[lane].stream {
            Some(stream) => self.hardware.driver.import_event(stream, event),
            None => Ok(()),
        });
        if waits.is_ok() {
            self.events.push((at, event.clone()));
            self.go_after(lane, at, Frontier::new());
            self.submit(lane);
        }
        self.end(lane);
        self.settle();
        waits
    }

    fn export_event(&mut self, at: Moment) -> Result<Arc<dyn Any + Send + Sync>> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let lane = self.begin(at);
        let event = self.open_stream(lane).and_then(|()| match &mut self.lanes.slots[lane].stream {
            Some(stream) => self.hardware.driver.export_event(stream, at.seq),
            None => Err(self.hardware.driver.unsupported("an event of its own")),
        });
        if event.is_ok() {
            self.go_after(lane, at, Frontier::new());
            self.submit(lane);
        }
        self.end(lane);
        self.settle();
        event
    }
}

impl<D: Driver> DriverServer<D> {
    fn place_imported(
        &mut self,
        at: Moment,
        memory: &Handle,
        imported: Imported<D::Page>,
        foreign: &Foreign,
    ) -> Result<()> {
        let (id, size) = (memory.memory(), memory.allocation_size());
        let page = ImportedPage { page: imported.page, offset: imported.offset, foreign: foreign.clone() };
        if let Err(refused) = self.pools.import(id, size, at.stream, page) {
            self.hardware.driver.release(refused.page);
            return Err(Error::Busy { what: alloc::format!("{id} is placed already").into() });
        }
        // Nobody here has used these bytes.
        self.tracker.open(id, size, Moment { seq: 0, ..at });
        Ok(())
    }

    /// Memory that nothing uses any more.
    #[inline]
    pub(super) fn let_go_of_memory(&mut self) {
        if self.pools.is_any_over() {
            self.pools.take_over().into_iter().for_each(|foreign| foreign.let_go(&mut self.wakers));
        }
    }

    /// Events that have happened.
    pub(super) fn let_go_of_events(&mut self) {
        let mut i = 0;
        while i < self.events.len() {
            if self.is_past(self.events[i].0) {
                self.events.swap_remove(i).1.let_go(&mut self.wakers);
            } else {
                i += 1;
            }
        }
    }
}
